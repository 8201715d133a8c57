/* Requests of an unmodified server, at its sockets: about Linux 6.3 and later.
 *
 *    packet ----> sk_data_ready ----------> sock_recv_length ------> sock_send_length
 *    interrupt    |  waiting: queue, wake-up  |  service                |
 *                 |---------------- response -------------------------- |
 *
 * From the first byte in to the first byte out. Requests that follow without waiting (pipelined)
 * are one here, and counted as merged. Data that becomes ready while a request is under way and is
 * taken only after the reply is the next request, and its time runs from when it was ready. */
#include "../include/requests.h"
#include <bpf/bpf_tracing.h>

#define ESTABLISHED 1
#define CLOSE_WAIT 8
#define INET 2
#define INET6 10
#define PEEK 2
#define NET_RX 3
#define EXIT 4294967295u

/* Data becomes ready on the CPU that took the packet, at the same time as the server's thread
 * replies to the request before. So they share one word, which is only ever exchanged whole; the
 * rest is the thread's own. */
struct connection {
    __u64 arrived; /* when data became ready that was not taken yet, or NONE */
    __u64 ready;   /* the moment at which the request under way became ready, or NONE */
    __u64 taken;   /* when its first byte was read, if it is timed */
};

struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct connection);
} connections SEC(".maps");

/* When each CPU left its idle state, until its first network work since; 1: idle now; 0: neither.
 */
struct waking {
    __u64 left;
    __u64 delay;
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct waking);
} wakings SEC(".maps");

static __always_inline struct waking *waking_here(void)
{
    __u32 cpu = bpf_get_smp_processor_id();

    return bpf_map_lookup_elem(&wakings, &cpu);
}

static __always_inline bool is_served_here(const struct sock *sk)
{
    __u16 family = sk->__sk_common.skc_family;
    unsigned char state = sk->__sk_common.skc_state;

    if (family != INET && family != INET6)
        return 0;
    if (state != ESTABLISHED && state != CLOSE_WAIT)
        return 0;
    return is_watched(sk->__sk_common.skc_num) || is_heart(sk->__sk_common.skc_num);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(received, struct sock *sk, int length, int flags)
{
    struct connection *connection;
    struct seen *seen;
    __u64 arrived;

    if (length <= 0 || (flags & PEEK) || !is_served_here(sk))
        return 0;
    connection = bpf_sk_storage_get(&connections, sk, 0, 0);
    if (!connection)
        return 0;
    /* Exchanging costs more than looking, and mostly there is something or nothing to take for
     * long. */
    arrived = connection->arrived ? __sync_lock_test_and_set(&connection->arrived, NONE) : NONE;
    if (connection->ready) {
        /* The rest of a long request, or the next one taken before this one's reply. */
        if (arrived) {
            seen = seen_here();
            if (seen)
                seen->merged += 1;
        }
        return 0;
    }
    if (!arrived) {
        /* Data that became ready while the read before was ending was taken for that one's: it
         * waited for nothing. */
        seen = seen_here();
        if (!seen)
            return 0;
        arrived = moment(&seen->choice);
        connection->taken = arrived & ~DOUBLES_MASK;
    } else if (arrived != UNTIMED) {
        connection->taken = bpf_ktime_get_ns();
    }
    connection->ready = arrived;
    return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(sent, struct sock *sk, int length, int flags)
{
    struct connection *connection;
    struct seen *seen;
    __u64 now, ready, taken;

    if (length <= 0 || !is_served_here(sk))
        return 0;
    connection = bpf_sk_storage_get(&connections, sk, 0, 0);
    /* A reply's later parts, or a server that speaks first. */
    if (!connection || !connection->ready)
        return 0;
    ready = connection->ready;
    connection->ready = NONE;
    if (is_heart(sk->__sk_common.skc_num)) {
        beat();
        return 0;
    }
    seen = seen_here();
    if (!seen)
        return 0;
    seen->requests += 1;
    if (ready == UNTIMED)
        return 0;
    now = bpf_ktime_get_ns();
    taken = connection->taken;
    seen->timed += 1;
    time_record(&seen->response, now - (ready & ~DOUBLES_MASK), stands_for(ready));
    time_record(&seen->service, now - taken, stands_for(ready));
    time_record(&seen->waiting, taken - (ready & ~DOUBLES_MASK), stands_for(ready));
    return 0;
}

/* The interrupted CPU's own way out of idle lies before the socket. */
SEC("?tp_btf/cpu_idle")
int BPF_PROG(cpu_idle, unsigned int state, unsigned int cpu_id)
{
    struct waking *waking = waking_here();

    if (waking)
        waking->left = state == EXIT ? (waking->left == 1 ? bpf_ktime_get_ns() : 0) : 1;
    return 0;
}

SEC("?tp_btf/softirq_entry")
int BPF_PROG(softirq, unsigned int vector)
{
    struct waking *waking;

    if (vector != NET_RX)
        return 0;
    waking = waking_here();
    if (!waking)
        return 0;
    /* A halted CPU runs its interrupts before it says that it left: that delay is hidden (1). */
    waking->delay = waking->left > 1 ? bpf_ktime_get_ns() - waking->left : waking->left;
    waking->left = 0;
    return 0;
}

/* The last one, because programs are attached in this order: it alone begins to follow a
 * connection, and then all the others are there. */
SEC("tp_btf/sk_data_ready")
int BPF_PROG(data_ready, struct sock *sk)
{
    struct connection *connection;
    struct waking *waking;
    struct seen *seen;

    if (!is_served_here(sk))
        return 0;
    if (is_heart(sk->__sk_common.skc_num)) {
        connection = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
        if (connection)
            connection->arrived = UNTIMED;
        return 0;
    }
    seen = seen_here();
    if (!seen)
        return 0;
    arrived(&seen->arrivals);
    waking = waking_here();
    if (waking && waking->delay) {
        if (waking->delay == 1)
            seen->wakes_hidden += 1;
        else
            time_record(&seen->interrupt, waking->delay, 1);
        waking->delay = 0;
    }
    connection = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
    if (!connection) {
        seen->unfit += 1;
        return 0;
    }
    if (connection->arrived || __sync_val_compare_and_swap(&connection->arrived, NONE, moment(&seen->choice)))
        seen->merged += 1;
    return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
