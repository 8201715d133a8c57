/* The kernel's types, as far as Roost's programs name them. Fields are found by name on the running kernel (CO-RE), so
 * neither order nor completeness matters here. */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef _Bool bool;

#define PER_KERNEL __attribute__((preserve_access_index))

enum {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_LRU_HASH = 9,
    BPF_MAP_TYPE_QUEUE = 22,
    BPF_MAP_TYPE_SK_STORAGE = 24,
    BPF_MAP_TYPE_RINGBUF = 27,
};
enum {
    BPF_F_NO_PREALLOC = 1,
    BPF_F_MMAPABLE = 1024,
};
enum { BPF_SK_STORAGE_GET_F_CREATE = 1 };
enum { BPF_RB_FORCE_WAKEUP = 2 };

struct sock_common {
    __u16 skc_num;
    __u16 skc_family;
    volatile unsigned char skc_state;
} PER_KERNEL;

struct sock {
    struct sock_common __sk_common;
} PER_KERNEL;

struct irqaction;

struct thread_info {
    __u32 cpu;
} PER_KERNEL;

struct task_struct {
    struct thread_info thread_info;
    int pid;  /* of the thread */
    int tgid; /* of the process; both in the first pid namespace */
} PER_KERNEL;

/* What a cgroup's filter may see of a packet: a stable interface, not the kernel's own structure. */
struct __sk_buff {
    __u32 len;
    __u32 pkt_type;
    __u32 mark;
    __u32 queue_mapping;
    __u32 protocol;
};

struct block_device {
    __u32 bd_dev;
} PER_KERNEL;

struct request {
    __u32 cmd_flags;
    unsigned int __data_len;
    struct block_device *part;
} PER_KERNEL;
