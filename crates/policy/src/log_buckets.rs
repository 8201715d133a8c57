//! Buckets of lengths of time that grow with the lengths in them: `2^BITS` equal ones to an octave.
//!
//! Below `2^(BITS+1)` ns a bucket is one nanosecond wide; above, a bucket is at most `1/2^BITS` as
//! wide as its lengths. Finding one is a shift and an addition.

/// A bucket that is not empty: it holds the lengths from `from_ns` up to, not including, `to_ns`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    pub from_ns: f64,
    pub to_ns: f64,
    pub count: u32,
}

impl Bucket {
    pub fn middle_ns(self) -> f64 {
        (self.from_ns + self.to_ns) / 2.0
    }

    /// How many of them are above this, evenly spread as they are taken for.
    pub(crate) fn later_than(self, time_ns: f64) -> u32 {
        let share = ((self.to_ns - time_ns) / (self.to_ns - self.from_ns)).clamp(0.0, 1.0);
        (f64::from(self.count) * share).round() as u32
    }
}

/// Index of the bucket that holds `nanos`.
#[inline]
pub(crate) fn place<const BITS: usize>(nanos: u64) -> usize {
    let octave = (nanos >> BITS).checked_ilog2().map_or(0, |log| log as usize);
    (octave << BITS) + (nanos >> octave) as usize
}

/// The least length of a bucket, in nanoseconds.
pub(crate) fn start_ns<const BITS: usize>(place: usize) -> u64 {
    let octave = (place >> BITS).saturating_sub(1);
    ((place - (octave << BITS)) as u64) << octave
}

/// Buckets that are not empty, from short to long.
pub(crate) fn filled<const BITS: usize>(counts: &[u32]) -> impl Iterator<Item = Bucket> + '_ {
    counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(place, &count)| Bucket {
        from_ns: start_ns::<BITS>(place) as f64,
        to_ns: start_ns::<BITS>(place + 1) as f64,
        count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow<const BITS: usize>(buckets: usize) {
        assert_eq!(start_ns::<BITS>(0), 0);
        for bucket in 0..buckets {
            let (from, to) = (start_ns::<BITS>(bucket), start_ns::<BITS>(bucket + 1));
            assert!(from < to, "{bucket}");
            assert_eq!((place::<BITS>(from), place::<BITS>(to - 1)), (bucket, bucket));
            assert!(to - from == 1 || (to - from) << BITS <= from, "{bucket}");
        }
    }

    #[test]
    fn buckets_follow_one_another_without_a_gap() {
        follow::<5>(1024);
        follow::<6>(2240);
    }
}
