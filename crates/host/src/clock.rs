//! Now, as the kernel's monotonic clock has it.

use machine::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`: comparable between threads, unmoved by a change of the date.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    // Both fields are never negative for this clock.
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_run_backwards() {
        let mut last = now();
        for _ in 0..1000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }
}
