/* The facts that user space must know between two readings: that the programs are at work (beats),
 * and that far more came than it expected (the alarm). One small struct for the whole machine
 * beside the large ones of each CPU. */
#pragma once
#include "lengths.h"

/* Arrivals are counted in windows of 4.2 ms: short against the 20 ms in which all cores shall be
 * awake, long against the gaps between requests of a load that matters. The squares of the
 * differences between neighbouring windows tell how bursty arrivals are, whatever their drift. */
#define WINDOW_SHIFT 22

/* Set by user space once an epoch, whole. */
struct rule {
    __u64 epoch;    /* counts up; an alarm is given once in each, and peaks begin anew */
    __u64 arrivals; /* so many in one window are an alarm; 0: none is wanted */
    __u64 batch;    /* a CPU adds to the window after so many arrivals of its own: they share one cache line */
};

/* Written by the programs. Two CPUs may write at once and lose a count: that much an alarm may be
 * wrong. */
struct pulse {
    __u64 beats; /* replies on the heart's own port */
    __u64 epoch;
    __u64 window;
    __u64 count; /* arrivals in this window so far */
    __u64 peak;  /* the most in any window of this epoch */
    __u64 rung;  /* the epoch of the last alarm */
    __u64 counted; /* arrivals in all windows */
    __u64 before;  /* arrivals in the window before this one */
    __u64 squares; /* of the differences between neighbouring windows, empty ones among them */
};

/* The record that wakes user space. */
struct alarm {
    __u64 epoch;
    __u64 at; /* bpf_ktime_get_ns: CLOCK_MONOTONIC */
    __u64 count;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct rule);
} rules SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct pulse);
} pulses SEC(".maps");

/* Linux 5.8; where it is missing, `config.alarms` is 0 and the verifier never sees its use. */
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} alarms SEC(".maps");

static __always_inline struct pulse *the_pulse(void)
{
    __u32 only = 0;

    return bpf_map_lookup_elem(&pulses, &only);
}

static __always_inline __u64 squared(__u64 one, __u64 other)
{
    __u64 difference = one - other;

    return difference * difference;
}

/* The window that was counted has ended. A CPU whose clock was read a moment ago begins none anew. */
static __always_inline void turn(struct pulse *pulse, __u64 window)
{
    __u64 count = pulse->count, passed = window - pulse->window;

    if (!passed || passed >> 63)
        return;
    pulse->window = window;
    pulse->count = 0;
    pulse->squares += squared(count, pulse->before);
    if (passed > 1) {
        pulse->squares += squared(count, 0);
        count = 0;
    }
    pulse->before = count;
}

static __always_inline void beat(void)
{
    struct pulse *pulse = the_pulse();

    if (pulse)
        __sync_fetch_and_add(&pulse->beats, 1);
}

/* Data came for a watched port; `own` counts this CPU's that are not yet added to the window. */
static __always_inline void arrived(__u64 *own)
{
    struct pulse *pulse;
    struct alarm *alarm;
    struct rule *rule;
    __u32 only = 0;
    __u64 count, now;

    rule = bpf_map_lookup_elem(&rules, &only);
    if (!rule || !rule->batch)
        return;
    count = *own + 1;
    if (count < rule->batch) {
        *own = count;
        return;
    }
    *own = 0;
    pulse = the_pulse();
    if (!pulse)
        return;
    now = bpf_ktime_get_ns();
    if (pulse->epoch != rule->epoch) {
        pulse->epoch = rule->epoch;
        pulse->peak = 0;
        pulse->count = 0;
    }
    turn(pulse, now >> WINDOW_SHIFT);
    pulse->counted += count;
    __sync_fetch_and_add(&pulse->count, count);
    count = pulse->count;
    if (count > pulse->peak)
        pulse->peak = count;
    if (!config.alarms || !rule->arrivals || count < rule->arrivals || pulse->rung == rule->epoch)
        return;
    pulse->rung = rule->epoch;
    alarm = bpf_ringbuf_reserve(&alarms, sizeof(*alarm), 0);
    if (!alarm)
        return;
    alarm->epoch = rule->epoch;
    alarm->at = now;
    alarm->count = count;
    bpf_ringbuf_submit(alarm, BPF_RB_FORCE_WAKEUP);
}
