/* Always the deepest state, as the built-in `deep`: the least that a module can do. */
#include "roost_policy.h"

ROOST_POLICY

ROOST_EXPORT int32_t on_idle(int64_t now, int64_t next_timer, int64_t next_tick, int64_t limit) {
    return idle_states() - 1;
}
