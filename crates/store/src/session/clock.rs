//! The meaning of a client's expiry on the server's clock.
//!
//! The server counts seconds from its start, where it reads 2: in an item, 0 means that it never
//! expires and 1 that it already has.

/// An expiry up to this is so many seconds from now; above, it is a Unix time. 30 days
/// (`REALTIME_MAXDELTA`).
const RELATIVE_MAX: i32 = 60 * 60 * 24 * 30;

/// An instant before the server started.
const PAST: u32 = 1;

/// Turns a client's expiry into server seconds. `unix_offset` is Unix time less server time.
#[inline]
pub(super) fn expiry(exptime: i32, now: u32, unix_offset: i64) -> u32 {
    match exptime {
        0 => 0,
        ..0 => PAST,
        1..=RELATIVE_MAX => now.saturating_add(exptime.unsigned_abs()),
        _ => u32::try_from(i64::from(exptime) - unix_offset).unwrap_or(PAST).max(PAST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unix time when the server's clock read zero.
    const OFFSET: i64 = 1_700_000_000;

    #[test]
    fn zero_never_comes_and_a_negative_expiry_has_passed() {
        assert_eq!(expiry(0, 10, OFFSET), 0);
        assert_eq!(expiry(-1, 10, OFFSET), 1);
        assert_eq!(expiry(i32::MIN, 10, OFFSET), 1);
    }

    #[test]
    fn thirty_days_part_relative_from_absolute() {
        assert_eq!(expiry(30, 10, OFFSET), 40);
        assert_eq!(expiry(RELATIVE_MAX, 10, OFFSET), 10 + 2_592_000);
        assert_eq!(expiry(RELATIVE_MAX + 1, 10, OFFSET), 1, "a Unix time in 1970");
        assert_eq!(expiry(1_700_000_050, 10, OFFSET), 50);
        assert_eq!(expiry(1_700_000_000, 10, OFFSET), 1, "the instant before the first is past, not never");
        assert_eq!(expiry(1_600_000_000, 10, OFFSET), 1);
    }
}
