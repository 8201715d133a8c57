/* The places of the threads of one process, and the use of each CPU: in memory that user space
 * maps, so that reading is no system call.
 *
 *   sched_switch, sched_wakeup, sched_migrate_task, sched_process_exit --> places[index[thread]], one word each
 *   sched_switch ------------------------------------------------------> cpus[cpu].now, one word
 *
 * A CPU's use before its first switch comes from a program that user space runs on it once: one
 * that computes for seconds without a switch is not idle. It runs on the CPU itself, so with no
 * event between.
 *
 * A word changes in one store, so it is never torn. Only threads that user space has given an index
 * are followed; another process costs a comparison. The watcher's own slices are passed over: the
 * CPU of the watcher keeps its earlier use, and is idle if the last task there waits and no other is
 * ready.
 *
 * A CPU may be asked to kick, once: when it is idle, or, if its frequency was lowered because it
 * was idle, when it has worked for longer than `patience` at a stretch. Switches show the begin of
 * work, and the scheduler's own accounting, which comes with every tick of a busy CPU, shows that
 * it goes on. */
#include "../include/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define THREADS_MAX 16384
#define IDLE 1 /* no thread has this number: thread 1 is of process 1 */
#define DEAD 0x80 /* TASK_DEAD, in prev_state: it will not run again */

enum state { UNKNOWN, RUNS, READY, WAITS, GONE };
enum ask { NOTHING, WHEN_IT_WORKS, WHEN_IT_IS_IDLE };

struct config {
    __u32 watched;  /* the process */
    __u32 watcher;  /* the process that looks */
    __u64 patience; /* ns */
};

const volatile struct config config SEC(".rodata.config");

struct cpu {
    __u64 now;   /* thread, process << 32; IDLE; 0 unknown */
    __u64 asked; /* when to kick */
    __u64 since; /* asked to kick when it works: it has worked since then, 0 if it does not */
    __u64 line[5];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1); /* as many as there may be CPUs; set before loading */
    __type(key, __u32);
    __type(value, struct cpu);
} cpus SEC(".maps");

/* state << 32 | cpu */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, THREADS_MAX);
    __type(key, __u32);
    __type(value, __u64);
} places SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, THREADS_MAX);
    __type(key, __u32);
    __type(value, __u32);
} indices SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} kicks SEC(".maps");

/* Its CPU has no other task that runs or is ready to. Assumed where the kernel does not tell. */
static __always_inline bool is_alone(struct task_struct *task)
{
    if (!bpf_core_field_exists(struct cfs_rq, rq))
        return 1;
    return task->se.cfs_rq->rq->nr_running <= 1;
}

static __always_inline __u64 *place_of(__u32 thread)
{
    __u32 *index = bpf_map_lookup_elem(&indices, &thread);

    return index ? bpf_map_lookup_elem(&places, index) : 0;
}

static __always_inline void put(__u32 thread, enum state state, __u32 cpu)
{
    __u64 *place = place_of(thread);

    /* A thread that has ended is switched away from once more. */
    if (place && *place >> 32 != GONE)
        *place = (__u64)state << 32 | cpu;
}

static __always_inline void kick(struct cpu *own, __u32 cpu)
{
    __u64 *told;

    own->asked = NOTHING;
    told = bpf_ringbuf_reserve(&kicks, sizeof(*told), 0);
    if (!told)
        return;
    *told = cpu;
    bpf_ringbuf_submit(told, BPF_RB_FORCE_WAKEUP);
}

static __always_inline void works(struct cpu *own, __u32 cpu)
{
    __u64 now = bpf_ktime_get_ns();

    if (!own->since)
        own->since = now;
    else if (now - own->since >= config.patience)
        kick(own, cpu);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
    __u32 cpu = bpf_get_smp_processor_id();
    struct cpu *own = bpf_map_lookup_elem(&cpus, &cpu);
    __u32 from = prev->tgid, to = next->tgid;
    bool waits = !preempt && prev_state;

    if (from == config.watched)
        put(prev->pid, prev_state & DEAD ? GONE : waits ? WAITS : READY, cpu);
    if (to == config.watched)
        put(next->pid, RUNS, cpu);
    if (!own)
        return 0;
    if (to == config.watcher) {
        if (waits && is_alone(next))
            own->now = IDLE;
        return 0;
    }
    own->now = next->pid ? (__u64)to << 32 | (__u32)next->pid : IDLE;
    if (own->asked == WHEN_IT_WORKS) {
        if (next->pid)
            works(own, cpu);
        else
            own->since = 0;
    } else if (own->asked == WHEN_IT_IS_IDLE && !next->pid) {
        kick(own, cpu);
    }
    return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(woken, struct task_struct *task)
{
    if (task->tgid == config.watched)
        put(task->pid, READY, task->thread_info.cpu);
    return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(migrated, struct task_struct *task, int to)
{
    __u64 *place;

    if (task->tgid != config.watched)
        return 0;
    place = place_of(task->pid);
    if (place)
        *place = (*place & ~0xffffffffull) | (__u32)to;
    return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(ended, struct task_struct *task)
{
    if (task->tgid == config.watched)
        put(task->pid, GONE, bpf_get_smp_processor_id());
    return 0;
}

/* Optional: without it a CPU that works on one thing alone kicks at its next switch. */
SEC("?tp_btf/sched_stat_runtime")
int BPF_PROG(goes_on)
{
    __u32 cpu = bpf_get_smp_processor_id();
    struct cpu *own = bpf_map_lookup_elem(&cpus, &cpu);

    if (own && own->asked == WHEN_IT_WORKS && own->now != IDLE)
        works(own, cpu);
    return 0;
}

/* Run on each CPU by user space, from an interrupt: the interrupted task runs there. */
SEC("raw_tp")
int asked_now(void *nothing)
{
    __u32 cpu = bpf_get_smp_processor_id();
    struct cpu *own = bpf_map_lookup_elem(&cpus, &cpu);
    __u64 who = bpf_get_current_pid_tgid();

    if (own && !own->now && who >> 32 != config.watcher)
        own->now = who ? who : IDLE;
    return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
