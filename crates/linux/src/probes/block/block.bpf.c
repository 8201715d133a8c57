/* The times when the kernel gives an operation to a disk and when it is complete, reported to user
 * space one by one.
 *
 *   block_rq_issue    --> a record that wakes the reader: it has to act before the disk answers
 *   block_rq_complete --> a record, read with the next: it wakes no task
 *
 * Each CPU has a ring of its own, with its reader on that CPU. The CPU is awake, since a thread of
 * it has just made the request; a reader on another CPU would have to wake first, which takes as
 * long as a fast disk's answer. An operation's end lies in the same ring as its begin, wherever the
 * interrupt came. A CPU without a ring is not watched.
 *
 * Only operations that a thread waits for are reported: reads, and writes that are marked so
 * (REQ_SYNC). Both events look at the same fields, so an operation is reported twice or not at all.
 * A record that finds no room is counted and lost. */
#include "../include/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define REQ_OP_MASK 0xff
#define REQ_OP_READ 0
#define REQ_OP_WRITE 1
#define REQ_SYNC (1u << 11) /* __REQ_SYNC, the same since Linux 4.10 */
#define RB_NO_WAKEUP 1

enum kind { ISSUED = 1, COMPLETED = 2 };

struct config {
    __u32 device; /* the kernel's dev_t; 0: all */
    __u32 watcher; /* the process that listens: its own operations are not told */
};

const volatile struct config config SEC(".rodata.config");

struct cpu {
    __u64 told;
    __u64 lost;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1); /* as many as there may be CPUs; set before loading */
    __type(key, __u32);
    __type(value, struct cpu);
} cpus SEC(".maps");

struct ring {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 15);
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, 1); /* as many as there may be CPUs; set before loading, and filled by who listens */
    __type(key, __u32);
    __array(values, struct ring);
} operations SEC(".maps");

struct operation {
    __u64 at;      /* bpf_ktime_get_ns: CLOCK_MONOTONIC */
    __u64 request; /* the kernel's name of it while it is under way */
    __u32 bytes;
    __u32 device;
    __u32 cpu;  /* of one that begins, where it was asked for; of one that is complete, where that was told */
    __u16 kind;
    __u16 write;
};

static __always_inline int tell(struct request *rq, __u16 kind, __u32 bytes, __u64 flags)
{
    __u32 here = bpf_get_smp_processor_id(), asked = BPF_CORE_READ(rq, cmd_flags), op = asked & REQ_OP_MASK;
    __u32 asker = BPF_CORE_READ(rq, mq_ctx, cpu); /* a worker of the kernel may issue it elsewhere */
    struct block_device *part = BPF_CORE_READ(rq, part);
    __u32 device = part ? BPF_CORE_READ(part, bd_dev) : 0;
    struct cpu *own = bpf_map_lookup_elem(&cpus, &here);
    struct operation *told;
    void *ring;

    if (!own || !device || (op != REQ_OP_READ && op != REQ_OP_WRITE))
        return 0;
    if ((op == REQ_OP_WRITE && !(asked & REQ_SYNC)) || (config.device && config.device != device))
        return 0;
    ring = bpf_map_lookup_elem(&operations, &asker);
    if (!ring)
        return 0;
    told = bpf_ringbuf_reserve(ring, sizeof(*told), 0);
    if (!told) {
        own->lost += 1;
        return 0;
    }
    told->at = bpf_ktime_get_ns();
    told->request = (__u64)rq;
    told->bytes = bytes;
    told->device = device;
    told->cpu = kind == ISSUED ? asker : here;
    told->kind = kind;
    told->write = op == REQ_OP_WRITE;
    bpf_ringbuf_submit(told, flags);
    own->told += 1;
    return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(issued, struct request *rq)
{
    if (bpf_get_current_pid_tgid() >> 32 == config.watcher)
        return 0;
    /* Forced: by itself the ring wakes only a reader that has read all, and the last completion
     * woke no task. */
    return tell(rq, ISSUED, BPF_CORE_READ(rq, __data_len), BPF_RB_FORCE_WAKEUP);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(completed, struct request *rq, int error, unsigned int bytes)
{
    return tell(rq, COMPLETED, bytes, RB_NO_WAKEUP);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
