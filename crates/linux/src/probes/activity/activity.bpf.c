/* When any thread of one service runs, on any CPU, and when any task runs at all.
 *
 *   sched_switch --> prev, next --> two counts of CPUs: those that run the service, those that run anything
 *                                            1 -> 0: an idle period begins      0 -> 1: it ends, and is recorded
 *
 * The counts belong to the whole machine, so they are changed atomically. No other CPU writes the
 * end of an idle period at the same time, since only the CPU that finds the count at zero does. The
 * time of the last leaving is written before the count goes down, so that CPU finds the time as
 * well.
 *
 * Nothing is known of a CPU before its first switch: its work until then is not counted. */
#include "../include/latest.h"
#include "../include/lengths.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

struct config {
    __u64 cgroup;   /* of version 2; 0: the process */
    __u32 process;
    __u32 unused;
    __u64 long_ns;  /* idle periods of at least this length are added up */
};

const volatile struct config config SEC(".rodata.config");

/* The kernel's own, as far as they matter here. */
struct kernfs_node___roost {
    __u64 id;
} __attribute__((preserve_access_index));

struct cgroup___roost {
    struct kernfs_node___roost *kn;
} __attribute__((preserve_access_index));

struct css_set___roost {
    struct cgroup___roost *dfl_cgrp;
} __attribute__((preserve_access_index));

struct task_struct___roost {
    struct css_set___roost *cgroups;
} __attribute__((preserve_access_index));

struct cpu {
    __u64 in_service; /* 1 while it runs the service */
    __u64 is_busy;    /* 1 while it runs anything */
    __u64 since;      /* that it is busy */
    __u64 busy;       /* ns, in periods that have ended */
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1); /* as many as there may be CPUs; set before loading */
    __type(key, __u32);
    __type(value, struct cpu);
} cpus SEC(".maps");

struct idle {
    struct lengths lengths;
    __u64 running; /* CPUs */
    __u64 left;    /* when the last of them went */
    __u64 long_count;
    __u64 long_ns;
};

struct whole {
    struct idle service;
    struct idle machine;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct whole);
} whole SEC(".maps");

static __always_inline void comes(struct idle *idle, __u64 now)
{
    __u64 length;

    if (__sync_fetch_and_add(&idle->running, 1) != 0 || !idle->left)
        return;
    length = now - idle->left;
    if ((__s64)length < 0)
        length = 0;
    length_record(&idle->lengths, length);
    if (length >= config.long_ns) {
        idle->long_count += 1;
        idle->long_ns += length;
    }
}

static __always_inline void goes(struct idle *idle, __u64 now)
{
    put_latest(&idle->left, now);
    __sync_fetch_and_add(&idle->running, -1);
}

static __always_inline __u64 is_of_service(struct task_struct *task)
{
    if (config.cgroup) {
        struct task_struct___roost *known = (void *)task;

        return BPF_CORE_READ(known, cgroups, dfl_cgrp, kn, id) == config.cgroup;
    }
    return (__u32)task->tgid == config.process;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next)
{
    __u32 cpu = bpf_get_smp_processor_id(), zero = 0;
    struct cpu *own = bpf_map_lookup_elem(&cpus, &cpu);
    struct whole *all = bpf_map_lookup_elem(&whole, &zero);
    __u64 now = bpf_ktime_get_ns();
    __u64 in_service, is_busy;

    if (!own || !all)
        return 0;
    is_busy = next->pid != 0;
    in_service = is_busy && is_of_service(next);
    if (in_service && !own->in_service)
        comes(&all->service, now);
    if (is_busy && !own->is_busy) {
        comes(&all->machine, now);
        own->since = now;
    }
    if (!in_service && own->in_service)
        goes(&all->service, now);
    if (!is_busy && own->is_busy) {
        own->busy += now - own->since;
        goes(&all->machine, now);
    }
    own->in_service = in_service;
    own->is_busy = is_busy;
    return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
