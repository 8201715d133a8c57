/* Fine buckets for response times: sixty-four to each doubling from 256 ns to 17 s, so that a
 * percentile is right within 1.6 %. User space makes HDR histograms of them (`requests/mod.rs`). */
#pragma once
#include "lengths.h"

#define TIME_LOWEST 8
#define TIME_HIGHEST 34
#define TIME_FINE 6
#define TIME_BUCKETS (2 + ((TIME_HIGHEST - TIME_LOWEST) << TIME_FINE))

struct times {
    __u64 total;
    __u32 counts[TIME_BUCKETS];
};

/* `weight`: so many requests took this long, of which one was timed. */
static __always_inline void time_record(struct times *times, __u64 nanos, __u32 weight)
{
    __u64 octave, bucket = 0;

    if (nanos >= (1ull << TIME_LOWEST)) {
        octave = highest_bit(nanos);
        if (octave >= TIME_HIGHEST)
            bucket = TIME_BUCKETS - 1;
        else
            bucket = 1 + ((octave - TIME_LOWEST) << TIME_FINE) +
                     ((nanos >> (octave - TIME_FINE)) & ((1 << TIME_FINE) - 1));
    }
    forget(bucket);
    if (bucket >= TIME_BUCKETS)
        return;
    times->counts[bucket] += weight;
    times->total += nanos * weight;
}
