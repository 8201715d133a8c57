//! Sleeping until a given time of the monotonic clock, and as exactly as the kernel can.

use machine::Instant;
use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec};
use std::num::NonZeroU64;

/// Sleeps until `deadline`, also if signals come in between.
pub fn sleep_until(deadline: Instant) {
    let nanos = deadline.as_nanos();
    let request = Timespec {
        tv_sec: (nanos / 1_000_000_000).try_into().unwrap_or(i64::MAX),
        tv_nsec: (nanos % 1_000_000_000) as _,
    };
    while clock_nanosleep_absolute(ClockId::Monotonic, &request) == Err(rustix::io::Errno::INTR) {}
}

/// Lets the calling thread's timers fire when they are due. By default the kernel may delay them by
/// 50 us, to gather wake-ups; a measurement of lateness must not measure that.
pub fn want_exact_timers() {
    // Refused nowhere; if it were, sleeps are a little late.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::now;

    #[test]
    fn nobody_wakes_too_early() {
        want_exact_timers();
        let deadline = now() + machine::Duration::from_millis(2);
        sleep_until(deadline);
        assert!(now() >= deadline);
        sleep_until(Instant::ZERO);
    }
}
