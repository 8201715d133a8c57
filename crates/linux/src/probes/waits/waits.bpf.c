/* The critical threads, the object that each waits for and the task that ends its wait; and when
 * all CPUs of a domain are idle together.
 *
 *   sched_switch    a critical thread stops            --> BLOCK      (its system call, and its descriptor's kind)
 *   sched_waking    it is being woken                   (the caller's role, if its system call can wake)
 *   sched_wakeup    it goes on                          --> UNBLOCK
 *   fork, exit      threads come and go                 --> FORK, EXIT
 *   sockets         a request comes, its answer goes    --> TRIGGER, RESPONSE, RECEIVE         (causal only)
 *   sys_enter       a pipe or socket is being written   --> SEND                               (causal only)
 *   sys_exit        a pipe was read                     --> RECEIVE                            (causal only)
 *                                                             |
 *                                                       ring, which wakes its reader only where that matters
 *
 * The reader decides. `desk.busy`, the number of critical threads that do not wait for an object
 * that may be slept through, only shows when it is worth waking it: when all of them wait, and,
 * while any process is frozen, as soon as one does not.
 *
 * Marked beside those of the critical groups, where causes are followed: threads that a request has
 * reached, by a wake-up or a fork of a marked one. User space unmarks them when the request is
 * over. */
#include "../include/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include "../include/latest.h"
#include "../include/lengths.h"

#define THREADS_MAX 16384
#define PROCESSES_MAX 16384
#define PORTS_MAX 256
#define CHANNELS_MAX 4096
#define CALLS_MAX 512
#define RING_BYTES (256 * 1024)
#define DEAD 0x80            /* TASK_DEAD, in prev_state */
#define PF_EXITING 0x4
#define PF_KTHREAD 0x200000
#define FORMAT 0xF000        /* S_IFMT and its values */
#define SOCKET 0xC000
#define CHARACTERS 0x2000
#define PIPE 0x1000
#define OF_PIPE (1ull << 62) /* in a channel's number: no address and no pair of ports has this bit alone */
#define UNIX 1
#define INET 2
#define INET6 10
#define VSOCK 40
#define LISTEN 10
#define ESTABLISHED 1
#define CLOSE_WAIT 8
#define PRIVATE_FUTEX 128
#define USER_64 0x33         /* the code segment of 64-bit programs */
#define PEEK 2

enum kind { BLOCK = 1, UNBLOCK, MARKED, FORK, EXIT, SEND, RECEIVE, TRIGGER, RESPONSE };
enum wait { OTHER, NETWORK, DISK, MANY, LOCAL, WITHIN, INPUT };

/* The object that a system call waits for, by number: in the table `calls`. */
#define CALL_KIND 0xF
#define ON_DESCRIPTOR 1
#define ON_MANY 2
#define ON_FUTEX 3
#define ON_TIME 4
#define CAN_WAKE 16

#define CRITICAL 0x80000000u
#define BACKGROUND 0x40000000u
#define ASKED 0x20000000u /* requests come to it */

struct config {
    __u32 watcher; /* the process that looks */
    __u32 causal;  /* follow a request's effects */
    __u64 domain[16];
};

const volatile struct config config SEC(".rodata.config");

struct event {
    __u64 at;
    __u64 place; /* which wait of its kind, or the channel or request */
    __u32 kind;
    __u32 task;
    __u32 group; /* its process's role */
    __u32 wait;
    __u32 other; /* the waker, parent or child; 0 for none */
    __u32 other_group;
};

struct thread {
    __u32 busy;
    __u32 blocked;
    __u32 waker; /* who is waking it, until it goes on; 0: an interrupt */
    __u32 waker_process;
};

struct desk {
    __s64 busy;
    __u64 armed;      /* something is frozen: tell at once when a critical thread goes on */
    __u64 not_before; /* and that all wait, not before this */
    __u64 lost;
    __s64 awake;      /* CPUs of the domain that are not idle */
    __u64 since;      /* when the last of them went idle */
    __u64 idle;       /* ns in which all were */
    __u64 idles;      /* so many times */
    __u64 rings;
    __u64 pipes;      /* a critical thread has ever written into one */
    struct lengths lengths; /* of those times */
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct desk);
} desk SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1); /* as many as there may be CPUs; set before loading */
    __type(key, __u32);
    __type(value, __u64);   /* 1: idle */
} cpus SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, PROCESSES_MAX);
    __type(key, __u32);
    __type(value, __u32);
} roles SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, THREADS_MAX);
    __type(key, __u32);
    __type(value, struct thread);
} threads SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, CALLS_MAX);
    __type(key, __u32);
    __type(value, __u32);
} calls SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, PORTS_MAX);
    __type(key, __u32);
    __type(value, __u32);
} ports SEC(".maps");

/* Channels into which a marked thread has written. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, CHANNELS_MAX);
    __type(key, __u64);
    __type(value, __u32);
} channels SEC(".maps");

/* Requests under way, by socket. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, CHANNELS_MAX);
    __type(key, __u64);
    __type(value, __u32);
} requests SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, RING_BYTES);
} events SEC(".maps");

static __always_inline struct desk *the_desk(void)
{
    __u32 only = 0;

    return bpf_map_lookup_elem(&desk, &only);
}

static __always_inline __u32 role_of(__u32 process)
{
    __u32 *role = bpf_map_lookup_elem(&roles, &process);

    return role ? *role : 0;
}

static __always_inline void tell(struct desk *desk, struct event *about, bool is_urgent)
{
    struct event *told = bpf_ringbuf_reserve(&events, sizeof(*told), 0);
    __u64 flags = BPF_RB_NO_WAKEUP;

    if (!told) {
        __sync_fetch_and_add(&desk->lost, 1);
        return;
    }
    *told = *about;
    if (is_urgent || bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > RING_BYTES / 2) {
        flags = BPF_RB_FORCE_WAKEUP;
        __sync_fetch_and_add(&desk->rings, 1);
    }
    bpf_ringbuf_submit(told, flags);
}

/* The number of the system call in which a task is, and its first two arguments; -1 if it is in
 * none. */
struct call {
    long number;
    unsigned long first, second;
};

static __always_inline struct call call_of(struct task_struct *task)
{
    struct call call = { .number = -1 };
    void *regs;

    if (task->flags & PF_KTHREAD)
        return call;
    regs = (void *)bpf_task_pt_regs(task);
    if (!regs)
        return call;
    if (bpf_core_field_exists(struct pt_regs___x86, orig_ax)) {
        struct pt_regs___x86 *x86 = regs;

        if ((BPF_CORE_READ(x86, cs) & 0xFFFF) != USER_64)
            return call;
        call.number = BPF_CORE_READ(x86, orig_ax);
        call.first = BPF_CORE_READ(x86, di);
        call.second = BPF_CORE_READ(x86, si);
    } else if (bpf_core_field_exists(struct pt_regs___arm64, syscallno)) {
        struct pt_regs___arm64 *arm64 = regs;

        call.number = BPF_CORE_READ(arm64, syscallno);
        call.first = BPF_CORE_READ(arm64, orig_x0);
        call.second = BPF_CORE_READ(arm64, regs[1]);
    }
    return call;
}

static __always_inline __u32 class_of(long number)
{
    __u32 key = number, *class;

    if (number < 0 || number >= CALLS_MAX)
        return 0;
    class = bpf_map_lookup_elem(&calls, &key);
    return class ? *class : 0;
}

static __always_inline bool is_here(struct sock *sk, __u16 family)
{
    __u32 here, there, own[4] = {}, peer[4] = {};

    if (family == INET) {
        there = BPF_CORE_READ(sk, __sk_common.skc_daddr);
        here = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
        return (there & 0xFF) == 127 || (there && there == here);
    }
    BPF_CORE_READ_INTO(&peer, sk, __sk_common.skc_v6_daddr);
    BPF_CORE_READ_INTO(&own, sk, __sk_common.skc_v6_rcv_saddr);
    if (!(peer[0] | peer[1]) && !peer[2] && peer[3] == 0x01000000)
        return 1;
    if (!(peer[0] | peer[1]) && peer[2] == 0xFFFF0000 && (peer[3] & 0xFF) == 127)
        return 1;
    return peer[3] && peer[0] == own[0] && peer[1] == own[1] && peer[2] == own[2] && peer[3] == own[3];
}

static __always_inline enum wait wait_on_socket(struct sock *sk, __u64 *place)
{
    __u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

    if (family == VSOCK)
        return NETWORK;
    if (family == UNIX)
        return LOCAL;
    if (family != INET && family != INET6)
        return OTHER;
    if (BPF_CORE_READ(sk, __sk_common.skc_state) == LISTEN) {
        *place |= (__u64)BPF_CORE_READ(sk, __sk_common.skc_num) << 32;
        return NETWORK;
    }
    *place |= (__u64)BPF_CORE_READ(sk, __sk_common.skc_dport);
    return is_here(sk, family) ? LOCAL : NETWORK;
}

static __always_inline struct file *file_of(struct task_struct *task, unsigned long descriptor)
{
    struct file **slots, *file = 0;

    if (descriptor >= BPF_CORE_READ(task, files, fdt, max_fds))
        return 0;
    slots = BPF_CORE_READ(task, files, fdt, fd);
    if (bpf_probe_read_kernel(&file, sizeof(file), slots + descriptor))
        return 0;
    return file;
}

/* The object that a stopping task waits for. `place` tells apart waits of one kind. */
static __always_inline enum wait wait_of(struct task_struct *task, __u64 *place)
{
    struct call call;
    struct file *file;
    struct socket *socket;
    __u32 class, format;

    *place = 0;
    if (BPF_CORE_READ_BITFIELD(task, in_iowait))
        return DISK;
    call = call_of(task);
    class = class_of(call.number) & CALL_KIND;
    *place = (__u64)(call.number & 0xFFFF) << 48;
    if (class == ON_MANY) {
        *place |= call.first & 0xFFFFFFFF;
        return MANY;
    }
    if (class == ON_TIME)
        return WITHIN;
    if (class == ON_FUTEX)
        return call.second & PRIVATE_FUTEX ? WITHIN : OTHER;
    file = class == ON_DESCRIPTOR ? file_of(task, call.first) : 0;
    if (!file)
        return OTHER;
    format = BPF_CORE_READ(file, f_inode, i_mode) & FORMAT;
    if (format == CHARACTERS)
        return INPUT;
    if (format != SOCKET)
        return OTHER;
    socket = BPF_CORE_READ(file, private_data);
    return wait_on_socket(BPF_CORE_READ(socket, sk), place);
}

static __always_inline struct thread *track(struct desk *desk, __u32 id)
{
    struct thread fresh = { .busy = 1 };

    if (bpf_map_update_elem(&threads, &id, &fresh, BPF_NOEXIST)) {
        /* Full, or just made by another CPU. */
        struct thread *known = bpf_map_lookup_elem(&threads, &id);

        if (!known)
            __sync_fetch_and_add(&desk->lost, 1);
        return known;
    }
    __sync_fetch_and_add(&desk->busy, 1);
    return bpf_map_lookup_elem(&threads, &id);
}

static __always_inline void stops(struct desk *desk, struct thread *thread, struct task_struct *task, __u32 role)
{
    struct event event = { .kind = BLOCK, .task = task->pid, .group = role, .at = bpf_ktime_get_ns() };
    bool all_wait = 0;

    event.wait = wait_of(task, &event.place);
    thread->blocked = 1;
    if (event.wait != OTHER && thread->busy) {
        thread->busy = 0;
        all_wait = __sync_fetch_and_add(&desk->busy, -1) <= 1;
    }
    tell(desk, &event, all_wait && event.at >= desk->not_before);
}

static __always_inline void goes_on(struct desk *desk, struct thread *thread, struct task_struct *task)
{
    struct event event = { .kind = UNBLOCK, .task = task->pid, .at = bpf_ktime_get_ns() };

    thread->blocked = 0;
    if (!thread->busy) {
        thread->busy = 1;
        __sync_fetch_and_add(&desk->busy, 1);
    }
    event.group = role_of(task->tgid);
    if (thread->waker) {
        event.other = thread->waker;
        event.other_group = role_of(thread->waker_process);
    }
    tell(desk, &event, desk->armed);
}

/* One that is no interrupt that happened to come while something else ran: its system call can wake
 * others. An interrupt that comes during such a call passes for its caller: the difference,
 * the count of preemption, is a variable that not every kernel shows. */
static __always_inline bool wakes(struct task_struct *current)
{
    return current->pid && class_of(call_of(current).number) & CAN_WAKE;
}

/* A CPU may be held up between any two of these lines, on a virtual machine for milliseconds. So
 * each reports when it went idle before it counts as idle: the CPU that then finds all of them idle
 * has the moment of the last one, and none counts time in which another worked. */
static __always_inline void count_idle(struct desk *desk, bool is_idle)
{
    __u32 cpu = bpf_get_smp_processor_id();
    __u64 *was_idle = bpf_map_lookup_elem(&cpus, &cpu);
    __u64 now, since;

    if (!was_idle || *was_idle == is_idle || !(config.domain[(cpu >> 6) & 15] >> (cpu & 63) & 1))
        return;
    *was_idle = is_idle;
    now = bpf_ktime_get_ns();
    if (is_idle) {
        put_latest(&desk->since, now);
        __sync_fetch_and_add(&desk->awake, -1);
        return;
    }
    if (__sync_fetch_and_add(&desk->awake, 1) != 0)
        return;
    since = *(volatile __u64 *)&desk->since;
    /* Later: a CPU has begun to work and gone idle again in between. */
    if (since > now)
        return;
    /* One CPU at a time comes here: to be the next, it would have to go idle first. `all_idle.rs`
     * tells a state between these lines from a whole one. */
    desk->idle += now - since;
    desk->idles += 1;
    length_record(&desk->lengths, now - since);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
    struct desk *desk = the_desk();
    struct thread *thread;
    __u32 id = prev->pid, role;

    if (!desk)
        return 0;
    if (!prev->pid || !next->pid)
        count_idle(desk, !next->pid);
    if (!preempt && prev_state && !(prev_state & DEAD) && id) {
        thread = bpf_map_lookup_elem(&threads, &id);
        role = role_of(prev->tgid);
        if (!thread && role & CRITICAL && !(prev->flags & PF_EXITING))
            thread = track(desk, id);
        if (thread)
            stops(desk, thread, prev, role);
    }
    return 0;
}

/* In the waker's own context. Whether the thread has gone to sleep by now is not known here. */
SEC("tp_btf/sched_waking")
int BPF_PROG(waking, struct task_struct *task)
{
    struct task_struct *current = bpf_get_current_task_btf();
    struct desk *desk = the_desk();
    struct thread *thread;
    struct event event;
    __u32 id = task->pid, by = current->pid;

    if (!desk)
        return 0;
    thread = bpf_map_lookup_elem(&threads, &id);
    if (thread) {
        thread->waker = wakes(current) ? by : 0;
        thread->waker_process = current->tgid;
        return 0;
    }
    if (!config.causal || task->flags & PF_KTHREAD || task->tgid == config.watcher ||
        !bpf_map_lookup_elem(&threads, &by) ||
        !wakes(current) || !track(desk, id))
        return 0;
    event = (struct event){ .kind = MARKED, .task = id, .group = role_of(task->tgid), .other = by,
                            .other_group = role_of(current->tgid), .at = bpf_ktime_get_ns() };
    tell(desk, &event, desk->armed);
    return 0;
}

/* On the CPU where the thread shall run, maybe in an interrupt there. */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(woken, struct task_struct *task)
{
    struct desk *desk = the_desk();
    struct thread *thread;
    __u32 id = task->pid;

    if (!desk)
        return 0;
    thread = bpf_map_lookup_elem(&threads, &id);
    if (thread && thread->blocked)
        goes_on(desk, thread, task);
    return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(forked, struct task_struct *parent, struct task_struct *child)
{
    struct desk *desk = the_desk();
    struct event event;
    __u32 role = role_of(parent->tgid), process = child->tgid, by = parent->pid;

    if (!desk)
        return 0;
    if (role && process != parent->tgid && bpf_map_update_elem(&roles, &process, &role, BPF_ANY))
        __sync_fetch_and_add(&desk->lost, 1);
    if (!(role & CRITICAL) && !bpf_map_lookup_elem(&threads, &by))
        return 0;
    track(desk, child->pid);
    event = (struct event){ .kind = FORK, .task = by, .group = role, .other = child->pid, .other_group = role,
                            .at = bpf_ktime_get_ns() };
    tell(desk, &event, desk->armed);
    return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(ended, struct task_struct *task)
{
    struct desk *desk = the_desk();
    struct event event = { .kind = EXIT, .task = task->pid };
    struct thread *thread;
    __u32 id = task->pid, process = task->tgid;
    bool all_wait = 0;

    if (!desk)
        return 0;
    thread = bpf_map_lookup_elem(&threads, &id);
    event.group = role_of(process);
    /* The last of its process: no look sees those that came and went between two looks. */
    if (event.group && !BPF_CORE_READ(task, signal, live.counter))
        bpf_map_delete_elem(&roles, &process);
    if (!thread)
        return 0;
    if (thread->busy)
        all_wait = __sync_fetch_and_add(&desk->busy, -1) <= 1;
    bpf_map_delete_elem(&threads, &id);
    event.at = bpf_ktime_get_ns();
    tell(desk, &event, desk->armed || all_wait);
    return 0;
}

/* Both ends of a connection within this machine have the same number. */
static __always_inline __u64 channel_of(struct sock *sk)
{
    __u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
    __u64 here, there;

    if (family == UNIX) {
        here = (__u64)sk;
        there = (__u64)BPF_CORE_READ((struct unix_sock *)sk, peer);
        if (!there)
            return 0;
        return here < there ? here : there;
    }
    if ((family != INET && family != INET6) || !is_here(sk, family))
        return 0;
    here = BPF_CORE_READ(sk, __sk_common.skc_num);
    there = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
    return here < there ? here << 16 | there : there << 16 | here;
}

static __always_inline bool is_asked_here(struct sock *sk)
{
    __u16 family = sk->__sk_common.skc_family;
    __u32 port = sk->__sk_common.skc_num;
    unsigned char state = sk->__sk_common.skc_state;

    return (family == INET || family == INET6) && (state == ESTABLISHED || state == CLOSE_WAIT) &&
           bpf_map_lookup_elem(&ports, &port);
}

/* Optional: where causes are followed, and the kernel has the event. */
SEC("?tp_btf/sock_recv_length")
int BPF_PROG(received, struct sock *sk, int length, int flags)
{
    struct task_struct *current = bpf_get_current_task_btf();
    struct desk *desk = the_desk();
    struct event event = { .task = current->pid };
    __u64 request = (__u64)sk, channel;
    __u32 port = sk->__sk_common.skc_num;

    if (!desk || length <= 0 || flags & PEEK)
        return 0;
    event.group = role_of(current->tgid);
    event.at = bpf_ktime_get_ns();
    if (event.group & (CRITICAL | ASKED) && is_asked_here(sk)) {
        /* Also of a known one: another thread may read more of it, and an answer may not have been
         * seen. */
        bpf_map_update_elem(&requests, &request, &port, BPF_ANY);
        track(desk, event.task);
        event.kind = TRIGGER;
        event.place = request;
        event.wait = port;
        tell(desk, &event, desk->armed);
        return 0;
    }
    channel = channel_of(sk);
    if (!channel || !bpf_map_lookup_elem(&channels, &channel))
        return 0;
    bpf_map_delete_elem(&channels, &channel);
    track(desk, event.task);
    event.kind = RECEIVE;
    event.place = channel;
    tell(desk, &event, desk->armed);
    return 0;
}

/* A task writes into a channel. Reported before the first byte is in it: on another CPU a reader
 * has it, and is back in user space, before the writer's own call returns. A write that fails
 * leaves a mark that stays, and so no process stands still until the request is over. */
static __always_inline void sends(struct desk *desk, struct event *event, __u64 channel)
{
    __u32 one = 1;

    bpf_map_update_elem(&channels, &channel, &one, BPF_ANY);
    event->kind = SEND;
    event->place = channel;
    event->at = bpf_ktime_get_ns();
    tell(desk, event, desk->armed);
}

static __always_inline bool is_write(struct call call)
{
    return class_of(call.number) == (ON_DESCRIPTOR | CAN_WAKE);
}

SEC("?tp_btf/sock_send_length")
int BPF_PROG(sent, struct sock *sk, int length, int flags)
{
    struct task_struct *current = bpf_get_current_task_btf();
    struct desk *desk = the_desk();
    struct event event = { .task = current->pid };
    __u64 request = (__u64)sk, channel;

    if (!desk || length <= 0)
        return 0;
    event.group = role_of(current->tgid);
    event.at = bpf_ktime_get_ns();
    if (bpf_map_lookup_elem(&requests, &request)) {
        bpf_map_delete_elem(&requests, &request);
        event.kind = RESPONSE;
        event.place = request;
        tell(desk, &event, desk->armed);
        return 0;
    }
    /* Writes by one of the calls below have been reported; `sendfile` and io_uring have not. */
    if (is_write(call_of(current)) || (!bpf_map_lookup_elem(&threads, &event.task) && !(event.group & BACKGROUND)))
        return 0;
    channel = channel_of(sk);
    if (channel)
        sends(desk, &event, channel);
    return 0;
}

/* A call begins that writes to a pipe, or to a socket whose other end is on this machine. */
SEC("?tp_btf/sys_enter")
int BPF_PROG(entered, void *regs, long number)
{
    struct task_struct *current = bpf_get_current_task_btf();
    struct desk *desk = the_desk();
    struct event event = { .task = current->pid };
    struct call call;
    struct file *file;
    struct socket *socket;
    struct sock *sk;
    __u32 format;
    __u64 channel;

    if (!desk)
        return 0;
    call = call_of(current);
    if (!is_write(call))
        return 0;
    event.group = role_of(current->tgid);
    if (!bpf_map_lookup_elem(&threads, &event.task) && !(event.group & BACKGROUND))
        return 0;
    file = file_of(current, call.first);
    if (!file)
        return 0;
    format = BPF_CORE_READ(file, f_inode, i_mode) & FORMAT;
    if (format == PIPE) {
        desk->pipes = 1;
        sends(desk, &event, BPF_CORE_READ(file, f_inode, i_ino) | OF_PIPE);
    } else if (format == SOCKET) {
        socket = BPF_CORE_READ(file, private_data);
        sk = BPF_CORE_READ(socket, sk);
        channel = (__u64)sk;
        /* An answer is reported when it is on its way. */
        if (!sk || bpf_map_lookup_elem(&requests, &channel))
            return 0;
        channel = channel_of(sk);
        if (channel)
            sends(desk, &event, channel);
    }
    return 0;
}

/* A call has returned: its reads from a pipe. Pipes have no events of their own. */
SEC("?tp_btf/sys_exit")
int BPF_PROG(returned, void *regs, long result)
{
    struct task_struct *current = bpf_get_current_task_btf();
    struct desk *desk = the_desk();
    struct event event = { .task = current->pid };
    struct call call;
    struct file *file;

    if (!desk || result <= 0 || !desk->pipes)
        return 0;
    call = call_of(current);
    if (class_of(call.number) != ON_DESCRIPTOR)
        return 0;
    file = file_of(current, call.first);
    if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & FORMAT) != PIPE)
        return 0;
    event.place = BPF_CORE_READ(file, f_inode, i_ino) | OF_PIPE;
    if (!bpf_map_lookup_elem(&channels, &event.place))
        return 0;
    bpf_map_delete_elem(&channels, &event.place);
    track(desk, event.task);
    event.group = role_of(current->tgid);
    event.kind = RECEIVE;
    event.at = bpf_ktime_get_ns();
    tell(desk, &event, desk->armed);
    return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
