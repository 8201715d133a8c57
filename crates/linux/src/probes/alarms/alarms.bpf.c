/* A timer of each CPU that the CPU itself sets as it goes idle, for the time that user space has
 * written into memory.
 *
 *   user space: due[cpu] = T          a store, which wakes no task
 *   sched_switch to the idle task --> the CPU's timer is set for T, on that CPU        (BPF_F_TIMER_CPU_PIN)
 *   the timer fires there         --> due is still later: set anew, no wake-up
 *                                 --> it is time: a record into the CPU's ring, which wakes its helper
 *
 * A timer can only be set on the CPU that runs this. So user space has to wake a CPU that sleeps
 * until a later time than the new one, and `idle` and `armed` show whether it does. Each side
 * writes its own words first and reads the other's then, with a full barrier between: one of the
 * two sees the other's write. */
#include "../include/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define NEVER (~0ull)
#define TURNS_MAX 8          /* user space cannot change its mind more often meanwhile */
#define MONOTONIC 1         /* CLOCK_MONOTONIC */
#define ABSOLUTE (1ull << 0) /* BPF_F_TIMER_ABS, Linux 6.4 */
#define PINNED (1ull << 1)  /* BPF_F_TIMER_CPU_PIN, Linux 6.7 */

struct cpu {
    __u64 due;     /* user space's: when its helper shall run; NEVER */
    __u64 armed;   /* the time of its timer; NEVER */
    __u64 idle;    /* the idle task runs there */
    __u64 since;   /* when its timer was set */
    __u64 over;    /* the last time that its helper was told of: it may sleep before it has asked for another */
    __u64 set;     /* how often it was */
    __u64 fired;   /* and its helper told */
    __u64 early;   /* and it was not time yet */
    __u64 refused; /* and the kernel would not */
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1); /* as many as there may be CPUs; set before loading */
    __type(key, __u32);
    __type(value, struct cpu);
} cpus SEC(".maps");

struct alarm {
    struct bpf_timer timer;
};

struct told {
    __u64 due;
    __u64 since; /* when the timer was set for it: later than that on a CPU that was busy then */
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1); /* as many as there may be CPUs; set before loading */
    __type(key, __u32);
    __type(value, struct alarm);
} alarms SEC(".maps");

struct ring {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 12);
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, 1); /* the possible CPUs; set before loading */
    __type(key, __u32);
    __array(values, struct ring);
} helpers SEC(".maps");

/* For a time that is due now, and again if that has changed meanwhile: user space may have looked
 * at `armed` before it was written. */
static __always_inline void set(struct cpu *own, struct bpf_timer *timer)
{
    __u64 due;

    for (int turn = 0; turn < TURNS_MAX; turn++) {
        due = own->due;
        own->since = bpf_ktime_get_ns();
        own->set += 1;
        /* A full barrier, before `due` is read again. */
        __sync_lock_test_and_set(&own->armed, due);
        if (due != NEVER && bpf_timer_start(timer, due, ABSOLUTE | PINNED)) {
            own->armed = NEVER;
            own->refused += 1;
        }
        if (own->due == due)
            return;
    }
}

static int fire(void *map, __u32 *key, struct alarm *alarm)
{
    __u32 cpu = *key;
    struct cpu *own = bpf_map_lookup_elem(&cpus, &cpu);
    struct told *told;
    __u64 due;
    void *ring;

    if (!own)
        return 0;
    /* A full barrier, before `due` is read. */
    __sync_lock_test_and_set(&own->armed, NEVER);
    due = own->due;
    if (due == NEVER)
        return 0;
    if (bpf_ktime_get_ns() < due) {
        own->early += 1;
        set(own, &alarm->timer);
        return 0;
    }
    own->over = due;
    own->fired += 1;
    ring = bpf_map_lookup_elem(&helpers, &cpu);
    if (!ring)
        return 0;
    /* Full: its helper has been told and has not run yet. */
    told = bpf_ringbuf_reserve(ring, sizeof(*told), 0);
    if (!told)
        return 0;
    told->due = due;
    told->since = own->since;
    bpf_ringbuf_submit(told, BPF_RB_FORCE_WAKEUP);
    return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next)
{
    __u32 cpu = bpf_get_smp_processor_id();
    struct cpu *own = bpf_map_lookup_elem(&cpus, &cpu);
    struct alarm *alarm;
    __u64 due;

    if (!own)
        return 0;
    if (next->pid) {
        own->idle = 0;
        return 0;
    }
    /* A full barrier, before `due` is read. */
    __sync_lock_test_and_set(&own->idle, 1);
    due = own->due;
    if (due == NEVER || due == own->armed || due == own->over)
        return 0;
    alarm = bpf_map_lookup_elem(&alarms, &cpu);
    if (alarm)
        set(own, &alarm->timer);
    return 0;
}

/* Run once by user space for each CPU, before anything is due there. */
struct prepare {
    __u32 cpu;
    __s32 refused;
};

SEC("syscall")
int prepare(struct prepare *asked)
{
    __u32 cpu = asked->cpu;
    struct alarm *alarm = bpf_map_lookup_elem(&alarms, &cpu);

    asked->refused = -1;
    if (!alarm)
        return 0;
    asked->refused = bpf_timer_init(&alarm->timer, &alarms, MONOTONIC);
    if (!asked->refused)
        asked->refused = bpf_timer_set_callback(&alarm->timer, fire);
    /* One that fires at once and finds nothing due: an older kernel refuses it for its flags. */
    if (!asked->refused)
        asked->refused = bpf_timer_start(&alarm->timer, 0, ABSOLUTE | PINNED);
    return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
