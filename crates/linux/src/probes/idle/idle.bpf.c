/* How long each CPU is idle and active, in which state, and the interrupt that ended it.
 *
 *   cpu_idle(state)  --------- idle ---------  cpu_idle(-1)  ------ active ------  cpu_idle(state)
 *                        first interrupt = waker
 *
 * Each CPU writes a struct of its own, which user space reads at any time: nothing is locked,
 * nothing is sent, and the memory does not depend on the rate of events. Both cpu_idle events fire
 * on the CPU that they are about, with interrupts off.
 *
 * The waker is the first interrupt after the entry. A CPU that halts takes it before it leaves its
 * idle state; one that waits with interrupts off (mwait) takes it just after, so a short while
 * after the exit still counts. */
#include "../include/lengths.h"
#include <bpf/bpf_tracing.h>

#define IDLE_STATES 10 /* CPUIDLE_STATE_MAX */
#define EXIT 4294967295u
#define AFTER_EXIT_NS 5000

enum waker { TIMER, DEVICE, IPI, UNSEEN, WAKERS };
enum phase { UNKNOWN, ACTIVE, IDLE };

struct cpu_idle {
    struct lengths idle[IDLE_STATES];
    struct lengths active;
    __u64 wakers[WAKERS];
    __u64 since;
    __u32 phase;
    __u32 state;
    __u64 awaited; /* a possible waker: 0 none, 1 still idle, else the time of the exit */
    __u64 odd;     /* events that cannot follow each other: one was missed */
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1); /* as many as there may be CPUs; set before loading */
    __type(key, __u32);
    __type(value, struct cpu_idle);
} cpus SEC(".maps");

SEC("tp_btf/cpu_idle")
int BPF_PROG(cpu_idle, unsigned int state, unsigned int cpu_id)
{
    __u32 cpu = cpu_id;
    struct cpu_idle *own = bpf_map_lookup_elem(&cpus, &cpu);
    __u64 now = bpf_ktime_get_ns();

    if (!own)
        return 0;
    if (state == EXIT) {
        if (own->phase == IDLE) {
            __u64 asked = own->state;

            forget(asked);
            if (asked < IDLE_STATES)
                length_record(&own->idle[asked], now - own->since);
            if (own->awaited)
                own->awaited = now;
        } else if (own->phase == ACTIVE) {
            own->odd += 1;
        }
        own->phase = ACTIVE;
    } else {
        if (own->phase == ACTIVE)
            length_record(&own->active, now - own->since);
        else if (own->phase == IDLE)
            own->odd += 1;
        if (own->awaited)
            own->wakers[UNSEEN] += 1;
        own->awaited = 1;
        own->phase = IDLE;
        own->state = state;
    }
    own->since = now;
    return 0;
}

static __always_inline int woken_by(enum waker waker)
{
    __u32 cpu = bpf_get_smp_processor_id();
    struct cpu_idle *own = bpf_map_lookup_elem(&cpus, &cpu);

    if (!own || !own->awaited)
        return 0;
    if (own->awaited != 1 && bpf_ktime_get_ns() - own->awaited > AFTER_EXIT_NS)
        own->wakers[UNSEEN] += 1;
    else
        own->wakers[waker] += 1;
    own->awaited = 0;
    return 0;
}

/* Optional: which of these a kernel has depends on its processor. */
SEC("?tp_btf/local_timer_entry")
int BPF_PROG(by_timer, int vector)
{
    return woken_by(TIMER);
}

SEC("?tp_btf/irq_handler_entry")
int BPF_PROG(by_device, int irq, struct irqaction *action)
{
    return woken_by(DEVICE);
}

SEC("?tp_btf/reschedule_entry")
int BPF_PROG(by_reschedule, int vector)
{
    return woken_by(IPI);
}

SEC("?tp_btf/call_function_entry")
int BPF_PROG(by_call, int vector)
{
    return woken_by(IPI);
}

SEC("?tp_btf/call_function_single_entry")
int BPF_PROG(by_single_call, int vector)
{
    return woken_by(IPI);
}

SEC("?tp_btf/ipi_entry")
int BPF_PROG(by_ipi, const char *reason)
{
    return woken_by(IPI);
}

/* For the test that compares buckets with user space's: the bucket of a length. */
struct bucket_of {
    __u64 nanos;
    __u64 bucket;
};

SEC("?syscall")
int bucket_of(struct bucket_of *asked)
{
    asked->bucket = length_bucket(asked->nanos);
    return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
