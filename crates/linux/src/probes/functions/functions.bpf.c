/* Enters and exits of functions of an unchanged program, as hot-function slots (docs/formats.md)
 * and as a tally.
 *
 *    first instruction ---> entered    push {stack pointer, function, now}; the slot says inside
 *    each way out --------> left       pop; the slot says outside
 *    thread ends ---------> ended      its slot is free
 *
 * A way out is a plain probe on the return instruction, never a return probe: that one replaces the
 * return address on the program's stack, and an exception that is thrown through it ends the
 * program.
 *
 * So some ways out are not seen: exceptions, longjmp, tail calls by a conditional jump. The stack
 * pointer shows them. A call that is under way has its return address above every later one's; a
 * thread that enters or leaves at or above it has left that call. User space detects a thread that
 * sleeps above it (functions/mod.rs). */
#include "../include/times.h"

#define FUNCTIONS_MAX 16
#define FRAMES_MAX 16

/* The offsets in a slot file; crates/slots/src/layout.rs is its twin. */
#define ENABLE 64
#define ASLEEP 72
#define DOORBELL 76
#define NO_SLOT 128
#define TOO_DEEP 152
#define SLOTS_USED 184
#define SLOTS 36864
#define SLOT_COUNT 1024
#define ENABLE_HOOK 1
#define ENABLE_EXIT_TIMES 2

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __uint(value_size, SLOTS + SLOT_COUNT * 64);
} image SEC(".maps");

struct slot {
    __u64 state; /* sequence, depth << 32, function << 48 */
    __u64 entered_at;
    __u64 exited_at;
    __u64 nested;
    __u32 tid;
    __u32 claims;
    __u64 stack; /* the writer's own: where the return address of the outermost call is */
};

/* Places that are free. */
struct {
    __uint(type, BPF_MAP_TYPE_QUEUE);
    __uint(max_entries, SLOT_COUNT);
    __uint(value_size, sizeof(__u32));
} vacant SEC(".maps");

struct frame {
    __u64 stack;
    __u64 entered_at;
    __u32 function;
    __u32 pad;
};

struct thread {
    __u32 slot; /* its place, + 1; 0: there was none */
    __u32 depth;
    struct frame frames[FRAMES_MAX];
    __u8 within[FUNCTIONS_MAX]; /* calls of each function that it is in */
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, __u32);
    __type(value, struct thread);
} threads SEC(".maps");

/* A value for a new thread, which is larger than a program's stack. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct thread);
} blank SEC(".maps");

struct tally {
    __u64 calls; /* from outside: recursion is one */
    __u64 unseen; /* of them, those whose way out was not seen */
    struct times times;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, FUNCTIONS_MAX);
    __type(key, __u32);
    __type(value, struct tally);
} tallies SEC(".maps");

/* One for each CPU. */
struct probed {
    __u64 enters;
    __u64 exits;
    __u64 unfit; /* enters of threads for which there was no memory */
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct probed);
} cpus SEC(".maps");

/* One byte for each ring of the doorbell; user space sleeps on it. */
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} rings SEC(".maps");

const volatile struct {
    __u32 tallies; /* 1: calls are counted and timed, too */
} config SEC(".rodata.config");

/* The kernel's user registers on x86-64: a stable interface. */
struct registers {
    __u64 others[19];
    __u64 sp;
    __u64 ss;
};

static __always_inline void *image_at(__u32 offset)
{
    __u32 zero = 0;
    char *start = bpf_map_lookup_elem(&image, &zero);

    return start ? start + offset : 0;
}

static __always_inline struct slot *slot_of(const struct thread *thread)
{
    __u32 place = thread->slot, zero = 0;
    char *start;

    if (!place)
        return 0;
    start = bpf_map_lookup_elem(&image, &zero);
    if (!start)
        return 0;
    place -= 1;
    /* Or clang 14 shifts a copy whose range the verifier does not know. */
    asm volatile("%0 &= 1023" : "+r"(place));
    return (struct slot *)(start + SLOTS + place * 64);
}

static __always_inline struct probed *probed_here(void)
{
    __u32 cpu = bpf_get_smp_processor_id();

    return bpf_map_lookup_elem(&cpus, &cpu);
}

static __always_inline struct thread *thread_new(__u32 tid)
{
    __u32 zero = 0, place = 0, *used;
    struct thread *empty = bpf_map_lookup_elem(&blank, &zero), *thread;
    __u64 *no_slot;
    struct slot *slot;

    if (!empty || bpf_map_update_elem(&threads, &tid, empty, 0))
        return 0;
    thread = bpf_map_lookup_elem(&threads, &tid);
    if (!thread)
        return 0;
    if (bpf_map_pop_elem(&vacant, &place)) {
        no_slot = image_at(NO_SLOT);
        if (no_slot)
            __sync_fetch_and_add(no_slot, 1);
        return thread;
    }
    place &= SLOT_COUNT - 1;
    thread->slot = place + 1;
    slot = slot_of(thread);
    used = image_at(SLOTS_USED);
    if (slot && used) {
        slot->tid = tid;
        slot->claims += 1;
        /* Places come in order the first time, so this only grows; two at once grow it to the
         * larger. */
        for (int i = 0; i < 4; i++) {
            __u32 seen = *(volatile __u32 *)used;
            if (seen >= place + 1 || __sync_val_compare_and_swap(used, seen, place + 1) == seen)
                break;
        }
    }
    return thread;
}

/* Ends every call that began at or below `stack`; how many. The one exactly at it is timed: it is
 * the one that returns now. */
static __always_inline void pop_to(struct thread *thread, __u64 stack, __u64 now)
{
    for (int i = 0; i < FRAMES_MAX; i++) {
        __u32 depth = thread->depth, function;
        struct frame *frame;
        struct tally *tally;

        if (!depth)
            return;
        depth -= 1;
        asm volatile("%0 &= 15" : "+r"(depth));
        frame = &thread->frames[depth];
        if (frame->stack > stack)
            return;
        thread->depth = depth;
        function = frame->function;
        asm volatile("%0 &= 15" : "+r"(function));
        if (thread->within[function])
            thread->within[function] -= 1;
        if (config.tallies && !thread->within[function]) {
            tally = bpf_map_lookup_elem(&tallies, &function);
            if (tally && now && frame->stack == stack)
                time_record(&tally->times, now - frame->entered_at, 1);
            else if (tally)
                __sync_fetch_and_add(&tally->unseen, 1);
        }
    }
}

/* The slot as it is when the thread is in `depth` calls. */
static __always_inline __u64 state_of(__u32 sequence, __u32 depth, __u32 function)
{
    return (__u64)sequence | (__u64)depth << 32 | (__u64)function << 48;
}

SEC("uprobe")
int entered(struct registers *registers)
{
    __u32 tid = (__u32)bpf_get_current_pid_tgid(), function = bpf_get_attach_cookie(registers), before, *word;
    __u64 now, stack = registers->sp, *deep;
    struct probed *probed = probed_here();
    struct thread *thread;
    struct frame *frame;
    struct slot *slot;

    word = image_at(ENABLE);
    if (!probed || !word || !(*(volatile __u32 *)word & ENABLE_HOOK))
        return 0;
    thread = bpf_map_lookup_elem(&threads, &tid);
    if (!thread)
        thread = thread_new(tid);
    if (!thread) {
        probed->unfit += 1;
        return 0;
    }
    probed->enters += 1;
    asm volatile("%0 &= 15" : "+r"(function));
    now = bpf_ktime_get_ns();
    before = thread->depth;
    pop_to(thread, stack, 0);
    before = thread->depth < before;
    if (thread->depth >= FRAMES_MAX - 1) {
        deep = image_at(TOO_DEEP);
        if (deep)
            __sync_fetch_and_add(deep, 1);
        return 0;
    }
    {
        __u32 depth = thread->depth;

        asm volatile("%0 &= 15" : "+r"(depth));
        frame = &thread->frames[depth];
    }
    frame->stack = stack;
    frame->entered_at = now;
    frame->function = function;
    thread->depth += 1;
    if (config.tallies && !thread->within[function]) {
        struct tally *tally = bpf_map_lookup_elem(&tallies, &function);

        if (tally)
            __sync_fetch_and_add(&tally->calls, 1);
    }
    thread->within[function] += 1;

    slot = slot_of(thread);
    if (!slot)
        return 0;
    if (thread->depth == 1) {
        __u32 sequence = (__u32)slot->state;

        /* A call before that was left unseen is over now: the time is written while the sequence is
         * even. */
        if (sequence & 1) {
            sequence += 1;
            *(volatile __u64 *)&slot->state = state_of(sequence, 0, function);
        }
        *(volatile __u64 *)&slot->entered_at = now;
        slot->stack = stack;
        asm volatile("" ::: "memory");
        *(volatile __u64 *)&slot->state = state_of(sequence + 1, 1, function);
    } else {
        __u64 state = slot->state;

        slot->nested += 1;
        *(volatile __u64 *)&slot->state = state_of((__u32)state, thread->depth, state >> 48);
    }
    word = image_at(ASLEEP);
    if (word && *(volatile __u32 *)word && __sync_lock_test_and_set(word, 0)) {
        word = image_at(DOORBELL);
        if (word) {
            __u8 ring = 1;

            __sync_fetch_and_add(word, 1);
            bpf_ringbuf_output(&rings, &ring, sizeof(ring), BPF_RB_FORCE_WAKEUP);
        }
    }
    return 0;
}

SEC("uprobe")
int left(struct registers *registers)
{
    __u32 tid = (__u32)bpf_get_current_pid_tgid(), *enable;
    struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
    struct probed *probed = probed_here();
    struct slot *slot;
    __u64 now = 0, state;
    bool wants_time;

    /* No thread here entered during the watch. */
    if (!thread || !probed || !thread->depth)
        return 0;
    enable = image_at(ENABLE);
    wants_time = enable && (*(volatile __u32 *)enable & ENABLE_EXIT_TIMES);
    if (config.tallies || wants_time)
        now = bpf_ktime_get_ns();
    probed->exits += 1;
    pop_to(thread, registers->sp, now);
    slot = slot_of(thread);
    if (!slot)
        return 0;
    state = slot->state;
    if (thread->depth) {
        *(volatile __u64 *)&slot->state = state_of((__u32)state, thread->depth, state >> 48);
    } else if (state & 1) {
        if (wants_time)
            *(volatile __u64 *)&slot->exited_at = now;
        asm volatile("" ::: "memory");
        *(volatile __u64 *)&slot->state = state_of((__u32)state + 1, 0, state >> 48);
    }
    return 0;
}

/* The thread that ends is the one that runs here. */
SEC("tp_btf/sched_process_exit")
int ended(void *context)
{
    __u32 tid = (__u32)bpf_get_current_pid_tgid(), place;
    struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
    struct slot *slot;

    if (!thread)
        return 0;
    slot = slot_of(thread);
    if (slot) {
        place = thread->slot - 1;
        *(volatile __u64 *)&slot->state = 0;
        slot->entered_at = 0;
        slot->exited_at = 0;
        slot->nested = 0;
        slot->stack = 0;
        *(volatile __u32 *)&slot->tid = 0;
        bpf_map_push_elem(&vacant, &place, 0);
    }
    bpf_map_delete_elem(&threads, &tid);
    return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
