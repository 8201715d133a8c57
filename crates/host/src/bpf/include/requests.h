/* What all three ways of watching requests share: which ports or processes are meant, and where the figures go. */
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

/* One for each CPU. */
struct seen {
    __u64 requests; /* first byte in to first byte out */
    __u64 merged;   /* data that came while a request of its connection was under way, and was taken as part of it */
    __u64 unfit;    /* connections for which there was no memory to follow them */
    __u64 wakes_hidden; /* packets whose CPU was woken for them, but said so only afterwards */
    __u64 arrivals; /* data that came and is not yet added to the pulse's window */
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

static __always_inline struct seen *seen_here(void)
{
    __u32 cpu = bpf_get_smp_processor_id();

    return bpf_map_lookup_elem(&cpus, &cpu);
}
