/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * roost_policy.h: a policy of one's own as a WebAssembly module. docs/wasm.md explains it.
 *
 *     #include "roost_policy.h"
 *
 *     ROOST_POLICY                                      // once per module: its version
 *
 *     ROOST_EXPORT void on_epoch(void) {                // twice the cores that worked
 *         double busy = 0;
 *         for (int cpu = 0; cpu < cpus(); cpu++) busy += working(cpu);
 *         int wanted = (int)(2 * busy) + 1;
 *         set_cores(wanted < workers() ? wanted : workers());
 *     }
 *
 *     clang --target=wasm32 -Os -nostdlib -Iinclude -Wl,--no-entry,--export-dynamic \
 *         -o mine.wasm mine.c
 *     roost sim run scenarios/mmk.toml --policy menu --policy mine.wasm
 *
 * Times are nanoseconds. A time that is not known is ROOST_MISSING, a number that is not known NaN.
 * An argument or an order out of bounds ends the run.
 */
#ifndef ROOST_POLICY_H
#define ROOST_POLICY_H

#include <stdint.h>

#define ROOST_EXPORT __attribute__((visibility("default"), used))
#define ROOST_IMPORT(name) __attribute__((import_module("roost"), import_name(#name)))

/* The version of this interface. */
#define ROOST_POLICY \
    ROOST_EXPORT int32_t roost_policy(void) { return 1; }

enum {
    ROOST_MISSING = -1,
    /* Answers of on_idle: a state's number, with the tick kept or not, or polling. */
    ROOST_POLL = -1,
    ROOST_KEEP_TICK = 256,
    /* The last argument of on_wake. */
    ROOST_BY_INTERRUPT = 0,
    ROOST_BY_TIMER = 1,
    ROOST_BY_TICK = 2,
};

/* The machine. Idle states are numbered from shallow to deep, clocks from slow to fast. */
ROOST_IMPORT(workers) int32_t workers(void); /* cores that may serve requests */
ROOST_IMPORT(cpus) int32_t cpus(void);
ROOST_IMPORT(goal_ns) int64_t goal_ns(void);
ROOST_IMPORT(goal_quantile) double goal_quantile(void); /* such as 0.99 */
ROOST_IMPORT(idle_states) int32_t idle_states(void);
ROOST_IMPORT(exit_latency_ns) int64_t exit_latency_ns(int32_t state);
ROOST_IMPORT(target_residency_ns) int64_t target_residency_ns(int32_t state);
ROOST_IMPORT(clocks) int32_t clocks(void);
ROOST_IMPORT(clock_khz) int64_t clock_khz(int32_t clock);

/* The epoch that has ended last. */
ROOST_IMPORT(now_ns) int64_t now_ns(void);
ROOST_IMPORT(span_ns) int64_t span_ns(void);
ROOST_IMPORT(requests) int64_t requests(void); /* that were answered in it */
ROOST_IMPORT(mean_ns) int64_t mean_ns(void);   /* of their response times */
ROOST_IMPORT(tail_ns) int64_t tail_ns(void);   /* at tail_quantile */
ROOST_IMPORT(active) int32_t active(void);     /* cores that new work may go to */
ROOST_IMPORT(working) double working(int32_t cpu); /* the share of it that the CPU worked */
ROOST_IMPORT(core_watts) double core_watts(void);  /* of all cores */

/* Orders, which hold until others come. */
ROOST_IMPORT(set_cores) void set_cores(int32_t cores);
/* Active cores enter no state with a longer exit latency; 0: they poll, below 0: no limit. */
ROOST_IMPORT(set_idle_limit_ns) void set_idle_limit_ns(int64_t exit_latency);
/* All cores take the slowest clock that is at least as fast. */
ROOST_IMPORT(set_clock_khz) void set_clock_khz(int64_t clock);

/* The calls that a module may export:
 *
 *     void on_start(void)                             before all others
 *     int64_t epoch_ns(void)                          time between two calls of on_epoch; 1 s
 *     double tail_quantile(void)                      of tail_ns; the goal's, or 0.99
 *     void on_epoch(void)                             an epoch has ended
 *     void on_arrival(int64_t now, int32_t in_system)                           simulated only
 *     void on_completion(int64_t now, int64_t response, int32_t in_system)      simulated only
 *
 * or, in a module of its own, of which each CPU has an instance:
 *
 *     int32_t on_idle(int64_t now, int64_t next_timer, int64_t next_tick, int64_t limit)
 *     void on_wake(int32_t state, int64_t idle, int32_t by)     that sleep is over
 */
#endif
