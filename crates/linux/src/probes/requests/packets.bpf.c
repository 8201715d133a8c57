/* Requests of an unmodified server, at its packets: the fallback for kernels without the socket's
 * events.
 *
 * A filter on the root cgroup sees each packet of the port come in and go out, and lets all pass.
 * From the first packet with data in to the first with data out: it includes the time of the
 * server's sockets and the wake-up, and service and waiting cannot be told apart. Data that comes
 * before the reply is taken as part of the request, and counted as merged. */
#include "../include/requests.h"
#include <bpf/bpf_endian.h>

#define PASS 1
#define IPV4 0x0800
#define IPV6 0x86DD
#define TCP 6

struct peer {
    __u32 address[4];
    __u16 port;
    __u16 own;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 65536);
    __type(key, struct peer);
    __type(value, __u64);
} pending SEC(".maps");

struct ports {
    __be16 source;
    __be16 target;
};

/* Reads the packet's ends; the length of its data, or 0 for a packet that is no TCP with data, or
 * has rare headers. */
static __always_inline int parse(struct __sk_buff *skb, int address_v4, int address_v6, struct ports *ports,
                                 struct peer *peer)
{
    __u8 first = 0, protocol = 0, offset = 0;
    __u32 header;

    if (bpf_skb_load_bytes(skb, 0, &first, 1))
        return 0;
    if (first >> 4 == 4) {
        header = (first & 15) * 4;
        bpf_skb_load_bytes(skb, 9, &protocol, 1);
        bpf_skb_load_bytes(skb, address_v4, &peer->address, 4);
    } else if (first >> 4 == 6) {
        header = 40;
        bpf_skb_load_bytes(skb, 6, &protocol, 1);
        bpf_skb_load_bytes(skb, address_v6, &peer->address, 16);
    } else {
        return 0;
    }
    if (protocol != TCP || bpf_skb_load_bytes(skb, header, ports, sizeof(*ports)) ||
        bpf_skb_load_bytes(skb, header + 12, &offset, 1))
        return 0;
    return (int)skb->len - (int)header - (offset >> 4) * 4;
}

SEC("cgroup_skb/ingress")
int incoming(struct __sk_buff *skb)
{
    struct ports ports = {};
    struct peer peer = {};
    struct seen *seen;
    bool heart;
    __u64 now;

    if (parse(skb, 12, 8, &ports, &peer) <= 0)
        return PASS;
    heart = is_heart(bpf_ntohs(ports.target));
    if (!heart && !is_watched(bpf_ntohs(ports.target)))
        return PASS;
    seen = seen_here();
    if (!seen)
        return PASS;
    peer.port = ports.source;
    peer.own = ports.target;
    now = bpf_ktime_get_ns();
    if (!heart)
        arrived(&seen->arrivals);
    if (bpf_map_lookup_elem(&pending, &peer)) {
        if (!heart)
            seen->merged += 1;
        return PASS;
    }
    if (bpf_map_update_elem(&pending, &peer, &now, 0))
        seen->unfit += 1;
    return PASS;
}

SEC("cgroup_skb/egress")
int outgoing(struct __sk_buff *skb)
{
    struct ports ports = {};
    struct peer peer = {};
    struct seen *seen;
    __u64 *since;
    bool heart;

    if (parse(skb, 16, 24, &ports, &peer) <= 0)
        return PASS;
    heart = is_heart(bpf_ntohs(ports.source));
    if (!heart && !is_watched(bpf_ntohs(ports.source)))
        return PASS;
    seen = seen_here();
    peer.port = ports.target;
    peer.own = ports.source;
    since = bpf_map_lookup_elem(&pending, &peer);
    if (!seen || !since)
        return PASS;
    if (heart) {
        beat();
    } else {
        seen->requests += 1;
        time_record(&seen->response, bpf_ktime_get_ns() - *since, 1);
    }
    bpf_map_delete_elem(&pending, &peer);
    return PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
