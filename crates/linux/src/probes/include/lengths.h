/* Buckets of lengths, four to each doubling: the kernel's side of machine::LengthHistogram. A test
 * asks this code for the bucket of many lengths and compares. */
#pragma once
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#define LENGTH_BUCKETS 98
#define LENGTH_LOWEST 10
#define LENGTH_HIGHEST 34

struct lengths {
    __u64 counts[LENGTH_BUCKETS];
    __u64 times[LENGTH_BUCKETS];
};

/* The place of the highest bit of a number above zero. The processor's own instruction cannot be
 * had from BPF. */
static __always_inline __u32 highest_bit(__u64 number)
{
    __u32 bit = 0;

    if (number >> 32) { number >>= 32; bit += 32; }
    if (number >> 16) { number >>= 16; bit += 16; }
    if (number >> 8) { number >>= 8; bit += 8; }
    if (number >> 4) { number >>= 4; bit += 4; }
    if (number >> 2) { number >>= 2; bit += 2; }
    if (number >> 1) bit += 1;
    return bit;
}

/* Keeps the compiler from knowing a number, so that the check that follows stays in the program for
 * the verifier. */
#define forget(number) asm volatile("" : "+r"(number))

static __always_inline __u64 length_bucket(__u64 nanos)
{
    __u64 octave, bucket;

    if (nanos < (1ull << LENGTH_LOWEST))
        return 0;
    octave = highest_bit(nanos);
    if (octave >= LENGTH_HIGHEST)
        return LENGTH_BUCKETS - 1;
    bucket = 1 + 4 * (octave - LENGTH_LOWEST) + ((nanos >> (octave - 2)) & 3);
    forget(bucket);
    return bucket < LENGTH_BUCKETS ? bucket : LENGTH_BUCKETS - 1;
}

static __always_inline void length_record(struct lengths *lengths, __u64 nanos)
{
    __u64 bucket = length_bucket(nanos);

    forget(bucket);
    if (bucket >= LENGTH_BUCKETS)
        return;
    lengths->counts[bucket] += 1;
    lengths->times[bucket] += nanos;
}
