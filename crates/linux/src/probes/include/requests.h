/* The common part of all three ways of watching requests: the ports or processes, and the place of
 * the figures. */
#pragma once
#include "times.h"

#define WATCHED_MAX 16

/* Ports in host order, or processes; those not used are zero. Set before loading. */
const volatile struct {
    __u32 watched[WATCHED_MAX];
    __u32 count;
    __u32 heart;  /* a port or process of our own, whose requests prove that all of this is at work; 0: none */
    __u32 alarms; /* 1: the ring of alarms is there */
} config SEC(".rodata.config");

#include "pulse.h"

static __always_inline bool is_watched(__u32 asked)
{
    for (__u32 i = 0; i < WATCHED_MAX; i++) {
        if (i >= config.count)
            break;
        if (config.watched[i] == asked)
            return 1;
    }
    return 0;
}

static __always_inline bool is_heart(__u32 asked)
{
    return asked && asked == config.heart;
}

/* Reading clocks and filling histograms is most of the cost of watching. So on a CPU with many
 * requests only some are timed, and each of them counts for the number that it was drawn from. Gaps
 * are drawn at random, so that no rhythm of the load is met or missed, and before the request that
 * they lead to, so that counts and means stay right under any load. */
struct choice {
    __u32 left;   /* requests until the next one that is timed */
    __u32 doubles; /* that one counts for two to the power of this */
    __u64 last;   /* when the last one was timed */
};

/* One for each CPU. */
struct seen {
    __u64 requests; /* first byte in to first byte out */
    __u64 merged;   /* data that was taken as part of a request under way */
    __u64 unfit;    /* connections for which there was no memory to follow them */
    __u64 wakes_hidden; /* packets whose CPU was woken for them, but said so only afterwards */
    __u64 arrivals; /* data that came and is not yet added to the pulse's window */
    __u64 timed;    /* requests that were timed, of those that were seen */
    struct choice choice;
    struct times response; /* ready to replied */
    struct times service;  /* taken to replied */
    struct times waiting;  /* ready to taken: queue and wake-up */
    struct times interrupt; /* the interrupted CPU: out of idle to its network work */
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1); /* as many as there may be CPUs; set before loading */
    __type(key, __u32);
    __type(value, struct seen);
} cpus SEC(".maps");

/* A moment as connections keep it: in its last bits, for how many requests it stands. */
#define NONE 0
#define UNTIMED 1
#define DOUBLES_MAX 5
#define DOUBLES_MASK 7ull
/* As many as this and a CPU times fewer; as few as this and it times more: 1900 to 7600 a second.
 */
#define OFTEN (1ull << 17)
#define SELDOM (1ull << 19)

/* Now, if this request is one to be timed; UNTIMED otherwise. */
static __always_inline __u64 moment(struct choice *choice)
{
    /* An interrupt may choose in between: then a gap is a little longer or shorter, and never
     * endless. */
    __u32 left = *(volatile __u32 *)&choice->left;
    __u64 now, since;

    if (left) {
        choice->left = left - 1;
        return UNTIMED;
    }
    now = bpf_ktime_get_ns() & ~DOUBLES_MASK;
    since = now - choice->last;
    choice->last = now;
    now |= choice->doubles & DOUBLES_MASK;
    if (since < OFTEN && choice->doubles < DOUBLES_MAX)
        choice->doubles += 1;
    else if (since > SELDOM && choice->doubles)
        choice->doubles -= 1;
    /* From 0 to 2 (2^doubles - 1), so one in 2^doubles on average. */
    if (choice->doubles)
        choice->left = bpf_get_prandom_u32() % ((2u << (choice->doubles & DOUBLES_MASK)) - 1);
    return now;
}

static __always_inline __u32 stands_for(__u64 moment)
{
    return 1u << (moment & DOUBLES_MASK);
}

static __always_inline struct seen *seen_here(void)
{
    __u32 cpu = bpf_get_smp_processor_id();

    return bpf_map_lookup_elem(&cpus, &cpu);
}
