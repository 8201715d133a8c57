//! The totals of a run: of each group, of the cost of freezing and thawing, of the delay of thaws.

use hdrhistogram::Histogram;
use linux::probes::AllIdle;
use machine::{Duration, Instant};

#[derive(Debug, Default)]
pub(super) struct GroupTally {
    pub(super) freezes: u64,
    /// Frozen since then, if it is.
    pub(super) since: Option<Instant>,
    pub(super) frozen: Duration,
    pub(super) longest: Duration,
    pub(super) unconfirmed: u64,
    /// Another process had frozen it already.
    pub(super) foreign: u64,
    /// Not there when it was to be.
    pub(super) gone: u64,
    pub(super) cost: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Cost {
    /// The least of all trials: one beside a burst of other work says too much.
    tried: Duration,
    tried_at: Instant,
    /// The time to the next trial while nothing is frozen.
    retry: Duration,
    pub(super) is_measured: bool,
    freeze: Duration,
    lately: Vec<(Instant, Duration)>,
}

#[derive(Debug)]
pub(super) struct Tally {
    pub(super) began: Instant,
    pub(super) looks: u64,
    pub(super) before: AllIdle,
    pub(super) cost: Cost,
    /// From a critical thread's going on until the thaw had been written, in nanoseconds.
    pub(super) delays: Histogram<u64>,
}

/// Cycles of which the median is taken.
const CYCLES: usize = 15;
/// And for so long: where they took so much that no wait is worth it any more, none would ever say
/// that it takes less again.
const KEPT: Duration = Duration::from_secs(10);

/// Where nothing was frozen for so long, it is tried again: a trial at a bad moment may be the
/// reason that no wait is worth it. Then after twice that time, and so on.
const FIRST_RETRY: Duration = Duration::from_secs(10);
const LAST_RETRY: Duration = Duration::from_secs(640);

impl Cost {
    pub(super) fn tried(now: Instant, tried: Duration) -> Self {
        Self {
            tried,
            tried_at: now,
            retry: FIRST_RETRY,
            is_measured: true,
            freeze: Duration::ZERO,
            lately: Vec::new(),
        }
    }

    pub(super) fn untried(now: Instant, tried: Duration) -> Self {
        Self { is_measured: false, ..Self::tried(now, tried) }
    }

    /// True if it is time for another trial.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.is_measured && self.lately.is_empty() && self.tried_at + self.retry <= now
    }

    /// Adds a trial, which may have measured nothing. Returns the cost from now on.
    pub(super) fn tried_again(&mut self, now: Instant, tried: Option<Duration>) -> Duration {
        self.tried = tried.map_or(self.tried, |tried| tried.min(self.tried));
        (self.tried_at, self.retry) = (now, (self.retry * 2).min(LAST_RETRY));
        self.now()
    }

    /// Adds the cost of a freeze or a thaw. Returns the recent cost of both, if that is more than
    /// at the trial.
    pub(super) fn spent(&mut self, now: Instant, time: Duration, is_freeze: bool) -> Option<Duration> {
        if is_freeze {
            self.freeze = time;
            return None;
        }
        if self.lately.len() == CYCLES {
            self.lately.remove(0);
        }
        self.lately.push((now, std::mem::take(&mut self.freeze) + time));
        Some(self.now())
    }

    /// The present cost, without the samples that are too old, if some are.
    pub(super) fn forget(&mut self, now: Instant) -> Option<Duration> {
        let before = self.lately.len();
        self.lately.retain(|(at, _)| *at + KEPT > now);
        (self.lately.len() < before).then(|| self.now())
    }

    pub(super) fn now(&self) -> Duration {
        let mut sorted: Vec<Duration> = self.lately.iter().map(|(_, taken)| *taken).collect();
        sorted.sort();
        sorted.get(CYCLES / 2).copied().unwrap_or(Duration::ZERO).max(self.tried)
    }
}

impl Tally {
    pub(super) fn begin(now: Instant) -> Self {
        // From a microsecond to a minute, to a hundredth.
        let delays = Histogram::new_with_bounds(1_000, 60_000_000_000, 2).expect("bounds in order");
        Self {
            began: now,
            looks: 0,
            before: AllIdle::default(),
            cost: Cost::tried(now, Duration::ZERO),
            delays,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_what_was_tried_until_most_cycles_take_longer() {
        let us = Duration::from_micros;
        let mut cost = Cost::tried(Instant::ZERO, us(100));
        let mut cycle = |time: u64| {
            let now = Instant::ZERO;
            assert_eq!(cost.spent(now, us(time), true), None, "half a cycle says nothing");
            cost.spent(now, us(time), false).unwrap()
        };
        for _ in 0..CYCLES {
            assert_eq!(cycle(10), us(100));
        }
        // One that was slow, and a few, are no reason; most are.
        for _ in 0..CYCLES / 2 {
            assert_eq!(cycle(300), us(100));
        }
        assert_eq!(cycle(300), us(600));
        for _ in 0..CYCLES {
            cycle(10);
        }
        assert_eq!(cycle(10), us(100), "it forgets");
    }

    #[test]
    fn what_took_long_is_forgotten_though_no_cycle_comes_after_it() {
        let us = Duration::from_micros;
        let mut cost = Cost::tried(Instant::ZERO, us(100));
        for _ in 0..CYCLES {
            cost.spent(Instant::ZERO, us(9_000), true);
            cost.spent(Instant::ZERO, us(1_000), false);
        }
        assert_eq!(cost.now(), us(10_000));
        let later = Instant::ZERO + KEPT;
        assert_eq!(cost.forget(Instant::from_nanos(later.as_nanos() - 1)), None);
        assert_eq!((cost.forget(later), cost.forget(later)), (Some(us(100)), None));
    }

    #[test]
    fn a_trial_at_a_bad_moment_is_repeated_ever_more_rarely_and_the_least_counts() {
        let us = Duration::from_micros;
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut cost = Cost::tried(at(0), us(40_000));
        assert!(!cost.is_due(at(9)) && cost.is_due(at(10)));
        assert_eq!(cost.tried_again(at(10), Some(us(50))), us(50));
        assert!(!cost.is_due(at(29)) && cost.is_due(at(30)));
        assert_eq!(cost.tried_again(at(30), Some(us(90_000))), us(50), "worse moments are forgotten");
        assert_eq!(cost.tried_again(at(30), None), us(50));
        for _ in 0..20 {
            cost.tried_again(at(30), Some(us(60)));
        }
        assert!(!cost.is_due(at(669)) && cost.is_due(at(670)), "but it is never given up");
        // Cycles say more than a trial.
        cost.spent(at(670), us(70), true);
        cost.spent(at(670), us(70), false);
        assert!(!cost.is_due(at(670)));
        assert!(!Cost::untried(at(0), us(100)).is_due(at(1000)), "nothing may be tried");
    }
}
