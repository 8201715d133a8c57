//! How many requests had been answered by when: looked at now and then, and in between taken to
//! come evenly.
//!
//! Calls are counted by the service's own clock and for a time that it chooses, after the
//! attachment has made classes anew, which takes its CPUs from its requests. The answers of that
//! very time are asked of the course afterwards.

use machine::{Duration, Instant};

/// Looks in order of time, each with all requests until then.
#[derive(Clone, Debug, Default)]
pub(super) struct Course(Vec<(Instant, u64)>);

impl Course {
    /// `more` have been answered since the last look.
    pub fn look(&mut self, now: Instant, more: u64) {
        let before = self.0.last().map_or(0, |&(_, all)| all);
        self.0.push((now, before + more));
    }

    /// Answered from `began` on for `length`, as far as the course was read.
    pub fn within(&self, began: Instant, length: Duration) -> u64 {
        (self.until(began + length) - self.until(began)).round() as u64
    }

    fn until(&self, at: Instant) -> f64 {
        let next = self.0.partition_point(|&(look, _)| look <= at);
        let Some(&(from, before)) = next.checked_sub(1).map(|last| &self.0[last]) else { return 0.0 };
        let Some(&(to, after)) = self.0.get(next) else { return before as f64 };
        let part = at.since(from).as_secs_f64() / to.since(from).as_secs_f64();
        (after - before) as f64 * part + before as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn what_is_answered_between_two_looks_came_evenly() {
        let mut course = Course::default();
        assert_eq!(course.within(at(0), Duration::from_secs(1)), 0);
        // Nothing while classes are made anew, then a thousand a second.
        for (ms, more) in [(100, 0), (600, 0), (1_100, 500), (1_600, 500)] {
            course.look(at(ms), more);
        }
        assert_eq!(course.within(at(600), Duration::from_secs(1)), 1_000);
        assert_eq!(course.within(at(700), Duration::from_millis(450)), 450);
        assert_eq!(course.within(at(0), Duration::from_millis(700)), 100);
        assert_eq!(course.within(at(1_500), Duration::from_secs(60)), 100, "no look later");
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_whole(
            looks in proptest::collection::vec((0_u64..50, 0_u64..1_000), 0..20),
            mut cuts in proptest::collection::vec(0_u64..1_200, 2..6),
        ) {
            let (mut course, mut now, mut all) = (Course::default(), 1, 0);
            course.look(at(now), 0);
            for (length, more) in looks {
                now += length;
                course.look(at(now), more);
                all += more;
            }
            cuts.sort_unstable();
            let part = |cut: &[u64]| course.within(at(cut[0]), Duration::from_millis(cut[1] - cut[0]));
            let parts: u64 = cuts.windows(2).map(part).sum();
            let whole = part(&[cuts[0], *cuts.last().unwrap()]);
            prop_assert!(parts.abs_diff(whole) <= cuts.len() as u64, "{parts} {whole}");
            prop_assert_eq!(course.within(at(0), Duration::from_secs(10)), all);
        }
    }
}
