//! A clock that no change of the date moves.

use machine::Instant;

/// Nanoseconds of `CLOCK_MONOTONIC`: comparable between threads, and between processes.
#[cfg(target_os = "linux")]
pub fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Both fields are never negative for this clock.
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Nanoseconds since this process first asked, and a second: comparable between its threads.
#[cfg(not(target_os = "linux"))]
pub fn now() -> Instant {
    static FIRST: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    let since = FIRST.elapsed();
    // A time of zero stands for "never".
    Instant::from_nanos(1_000_000_000 + u64::try_from(since.as_nanos()).unwrap_or(u64::MAX / 2))
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
