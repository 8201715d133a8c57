/* CARB's search (section 3 of the paper, as printed). It decides as the built-in `carb-paper` does.
 *
 * The first epoch is measured only. Then S0 holds until rate or tail change, S1 scales up and S2
 * down step by step, and a rise of the rate beyond a threshold wakes all cores. */
#include "roost_policy.h"

ROOST_POLICY

static const double STEP_RATE = 5000, JUMP_RATE = 20000, STEP_TAIL = 0.1;
static const int MIN_ACTIVE = 2;

enum state { HOLD, UP, DOWN };

static enum state state = DOWN;
static int wanted, has_before;
static double rate_before;
static int64_t tail_before;

static void step(enum state towards) {
    int next = wanted + (towards == UP ? 1 : -1);
    int least = MIN_ACTIVE < workers() ? MIN_ACTIVE : workers();
    if (next < least || next > workers()) {
        state = HOLD; /* a step that the bounds forbid settles instead */
    } else {
        wanted = next;
        state = towards;
    }
}

static void search(double rate) {
    int64_t tail = tail_ns();
    int rose = 0, exceeds = 0;
    if (tail != ROOST_MISSING && tail_before != ROOST_MISSING) {
        int64_t mean = mean_ns() == ROOST_MISSING ? tail_before : mean_ns();
        int64_t bound = tail_before + (int64_t)((double)mean * STEP_TAIL);
        rose = tail >= bound;
        exceeds = tail > bound;
    }
    if (state == HOLD) {
        if (rate > rate_before + STEP_RATE)
            step(UP);
        else if (rate + STEP_RATE < rate_before)
            step(DOWN);
        else if (exceeds)
            step(UP);
    } else if (!rose) {
        step(state);
    } else {
        step(state == UP ? DOWN : UP);
        state = HOLD;
    }
}

ROOST_EXPORT double tail_quantile(void) { return 0.95; }

ROOST_EXPORT void on_start(void) { wanted = workers(); }

ROOST_EXPORT void on_epoch(void) {
    double rate = (double)requests() / ((double)span_ns() / 1e9);
    if (has_before) {
        if (rate - rate_before > JUMP_RATE) {
            wanted = workers();
            state = DOWN;
        } else {
            search(rate);
        }
    }
    has_before = 1;
    rate_before = rate;
    tail_before = tail_ns();
    set_cores(wanted);
}
