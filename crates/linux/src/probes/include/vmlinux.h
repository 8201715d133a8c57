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
    BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
    BPF_MAP_TYPE_QUEUE = 22,
    BPF_MAP_TYPE_SK_STORAGE = 24,
    BPF_MAP_TYPE_RINGBUF = 27,
};
enum {
    BPF_ANY = 0,
    BPF_NOEXIST = 1,
};
enum {
    BPF_F_NO_PREALLOC = 1,
    BPF_F_MMAPABLE = 1024,
};
enum { BPF_SK_STORAGE_GET_F_CREATE = 1 };
enum { BPF_RB_AVAIL_DATA = 0, BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };

/* Known to the kernel by its name and size. */
struct bpf_timer {
    __u64 opaque[2];
} __attribute__((aligned(8)));

struct in6_addr {
    __u32 words[4]; /* by another name in the kernel: only its place and length matter */
};

struct sock_common {
    __be32 skc_daddr;
    __be32 skc_rcv_saddr;
    __be16 skc_dport;
    __u16 skc_num;
    __u16 skc_family;
    volatile unsigned char skc_state;
    struct in6_addr skc_v6_daddr;
    struct in6_addr skc_v6_rcv_saddr;
} PER_KERNEL;

struct sock {
    struct sock_common __sk_common;
} PER_KERNEL;

struct unix_sock {
    struct sock *peer;
} PER_KERNEL;

struct socket {
    struct sock *sk;
} PER_KERNEL;

struct inode {
    unsigned long i_ino;
    __u16 i_mode;
} PER_KERNEL;

struct file {
    struct inode *f_inode;
    void *private_data;
} PER_KERNEL;

struct fdtable {
    unsigned int max_fds;
    struct file **fd;
} PER_KERNEL;

struct files_struct {
    struct fdtable *fdt;
} PER_KERNEL;

/* What a program's registers were when it entered the kernel, of which a kernel has one kind. */
struct pt_regs___x86 {
    unsigned long di;
    unsigned long si;
    unsigned long orig_ax;
    unsigned long cs;
} PER_KERNEL;

struct pt_regs___arm64 {
    __u64 regs[31];
    __u64 orig_x0;
    __s32 syscallno;
} PER_KERNEL;

struct irqaction;

struct thread_info {
    __u32 cpu;
} PER_KERNEL;

typedef struct {
    int counter;
} atomic_t;

struct signal_struct {
    atomic_t live; /* threads of the process that have not ended */
} PER_KERNEL;

struct rq {
    unsigned int nr_running; /* tasks that run or are ready to */
} PER_KERNEL;

struct cfs_rq {
    struct rq *rq; /* of its CPU; with groups alone (CONFIG_FAIR_GROUP_SCHED) */
} PER_KERNEL;

struct sched_entity {
    struct cfs_rq *cfs_rq; /* set for tasks of every class */
} PER_KERNEL;

struct task_struct {
    struct thread_info thread_info;
    struct sched_entity se;
    unsigned int flags;
    unsigned int in_iowait : 1;
    struct files_struct *files;
    struct signal_struct *signal;
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

struct blk_mq_ctx {
    unsigned int cpu;
} PER_KERNEL;

struct request {
    struct blk_mq_ctx *mq_ctx;
    __u32 cmd_flags;
    unsigned int __data_len;
    struct block_device *part;
} PER_KERNEL;
