/* A moment that several CPUs write: the latest that any of them has put in. */
#pragma once
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* Between its look at the clock and this, a CPU may be held up, on a virtual machine for
 * milliseconds; a time that others have put in meanwhile stays. A CPU in the way has just put in a
 * time of its own, so a few tries are as good as any number. */
static __always_inline void put_latest(__u64 *moment, __u64 now)
{
    __u64 seen = *(volatile __u64 *)moment, before;

    for (int tries = 0; tries < 8 && seen < now; tries++) {
        before = __sync_val_compare_and_swap(moment, seen, now);
        if (before == seen)
            return;
        seen = before;
    }
}
