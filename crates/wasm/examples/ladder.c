/* The kernel's governor `ladder` in short: one state deeper after four sleeps in a row that were
 * long enough for it, one shallower after one that was too short. */
#include "roost_policy.h"

ROOST_POLICY

static const int PROMOTE_AFTER = 4;

static int state, good;

ROOST_EXPORT int32_t on_idle(int64_t now, int64_t next_timer, int64_t next_tick, int64_t limit) {
    return state;
}

ROOST_EXPORT void on_wake(int32_t slept, int64_t idle, int32_t by) {
    int deeper = slept + 1;
    if (idle < target_residency_ns(slept)) {
        state = slept > 0 ? slept - 1 : 0;
        good = 0;
    } else if (deeper < idle_states() && idle >= target_residency_ns(deeper) && ++good >= PROMOTE_AFTER) {
        state = deeper;
        good = 0;
    }
}
