/* Requests of an unmodified server, at its system calls: the last fallback, where neither sockets
 * nor packets can be watched.
 *
 * From the return of a thread's read to its next write: the server's own code alone, without the
 * socket's queue, the wake-up and the kernel's part of the reply. Reads of files and pipes look the
 * same, so a server that reads those is shown more requests than it has. */
#include "../include/requests.h"

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, __u32);
    __type(value, __u64);
} pending SEC(".maps");

/* The layout of every sys_exit tracepoint. */
struct returned {
    __u64 common;
    __u64 number;
    __s64 value;
};

static __always_inline int begin(struct returned *call)
{
    __u64 thread = bpf_get_current_pid_tgid(), now;
    __u32 tid = thread, process = thread >> 32;
    struct seen *seen;

    if (call->value <= 0 || (!is_watched(process) && !is_heart(process)))
        return 0;
    now = bpf_ktime_get_ns();
    seen = seen_here();
    if (seen && is_watched(process))
        arrived(&seen->arrivals);
    bpf_map_update_elem(&pending, &tid, &now, 0);
    return 0;
}

static __always_inline int end(void)
{
    __u64 thread = bpf_get_current_pid_tgid();
    __u32 tid = thread, process = thread >> 32;
    bool heart = is_heart(process);
    struct seen *seen;
    __u64 *since;

    if (!is_watched(process) && !heart)
        return 0;
    since = bpf_map_lookup_elem(&pending, &tid);
    seen = seen_here();
    if (!since || !seen)
        return 0;
    if (heart)
        beat();
    if (is_watched(process)) {
        seen->requests += 1;
        time_record(&seen->service, bpf_ktime_get_ns() - *since, 1);
    }
    bpf_map_delete_elem(&pending, &tid);
    return 0;
}

#define BEGINS(call) \
    SEC("tracepoint/syscalls/sys_exit_" #call)                                                     \
    int begin_##call(struct returned *returned) { return begin(returned); }
#define ENDS(call) \
    SEC("tracepoint/syscalls/sys_enter_" #call) int end_##call(void *entered) { return end(); }

BEGINS(read)
BEGINS(readv)
BEGINS(recvfrom)
BEGINS(recvmsg)
ENDS(write)
ENDS(writev)
ENDS(sendto)
ENDS(sendmsg)

char LICENSE[] SEC("license") = "Dual MIT/GPL";
