//! The load that a worker can carry, where load is busy time: a fixed share of the time that it
//! gets of its CPU.
//!
//! A count of requests says nothing of a worker's capacity: a pipelined preload brings fifty times
//! the requests of the same work asked one by one, a multi-get of large values a thousandth. Work
//! fills a CPU, so the limit is [`Params::full_busy`] of it, from the first report on, and no
//! history can spoil it.
//!
//! **Taken time.** The CPU may be taken away, by a hypervisor or by other programs. A turn that
//! lasts for longer than any turn works ([`Params::turn_most`], and four times as long as as many
//! requests took of late) was interrupted. Only work is charged to connections; the ratio of
//! charged time to the time between waits, taken time included, is the *share got*. A worker that
//! gets half of its CPU is full at half the work.
//!
//! **In requests.** For the detector between two reports, and for people, the same limit is also
//! given in requests per second, by the cost of a request of late.
//!
//! Invariants: the limit is between a twentieth of `full_busy` and `full_busy`; two seconds
//! after the load is the same, so is the limit.

use super::Params;
use machine::{Duration, Instant, Rate, Ratio};
use serde::{Deserialize, Serialize};

/// Requests that a cost is computed from at the least.
const REQUESTS_LEAST: u64 = 16;

/// Time between waits from which the share got is told at the least.
const WORKED_LEAST: Duration = Duration::from_micros(500);

/// A turn that takes so many times as long as its requests took before is believed.
const TURN_SPREAD: f64 = 4.0;

/// A worker that got less of its CPU than this shows nothing but noise.
const GOT_LEAST: f64 = 0.05;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Capacity {
    since: Instant,
    requests: u64,
    charged: Duration,
    /// Time between waits since the last judgement, and the part of it that was work.
    worked: Duration,
    of_it_charged: Duration,
    cost_ns: Option<f64>,
    got: f64,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            since: Instant::ZERO,
            requests: 0,
            charged: Duration::ZERO,
            worked: Duration::ZERO,
            of_it_charged: Duration::ZERO,
            cost_ns: None,
            got: 1.0,
        }
    }
}

impl Capacity {
    /// Requests were served in a turn that took `busy`; returns the part of that which is work.
    #[inline]
    pub fn charge(&mut self, requests: u32, busy: Duration, params: &Params) -> Duration {
        // Many requests at once may take long; by how much is known from those before, and learned
        // where it is not.
        let usual = TURN_SPREAD * self.cost_ns.unwrap_or(0.0) * f64::from(requests);
        let work = busy.min(params.turn_most.max(Duration::from_nanos(usual as u64)));
        self.requests += u64::from(requests);
        self.charged += work;
        self.of_it_charged += work;
        work
    }

    /// A report period is over, in which the worker was outside its wait for `worked`.
    pub fn report(&mut self, now: Instant, worked: Duration, params: &Params) {
        let elapsed = now.since(self.since).as_nanos() as f64;
        let weight = elapsed / (elapsed + params.capacity_memory.as_nanos().max(1) as f64);
        self.since = self.since.max(now);
        if self.requests >= REQUESTS_LEAST {
            let cost = self.charged.as_nanos() as f64 / self.requests as f64;
            let before = self.cost_ns.unwrap_or(cost);
            self.cost_ns = Some(before + weight * (cost - before));
            self.requests = 0;
            self.charged = Duration::ZERO;
        }
        self.worked += worked;
        if self.worked >= WORKED_LEAST {
            let share = self.of_it_charged.as_nanos() as f64 / self.worked.as_nanos() as f64;
            self.got += weight * (share.clamp(GOT_LEAST, 1.0) - self.got);
            self.worked = Duration::ZERO;
            self.of_it_charged = Duration::ZERO;
        } else {
            // A worker that hardly works is not kept from it.
            self.got += weight * (1.0 - self.got);
        }
    }

    /// The highest load that the worker should carry, in seconds of work per second.
    pub fn limit(&self, params: &Params) -> Rate {
        Rate::per_second(params.full_busy.as_f64() * self.got)
    }

    /// The work, in seconds per second, of a worker that is outside its wait for this share of the
    /// time.
    pub fn got_of(&self, busy: Ratio) -> Rate {
        Rate::per_second(busy.as_f64() * self.got)
    }

    /// The same as [`Capacity::limit`] in requests per second of the kind that came last; nothing
    /// before the first have come.
    pub fn limit_in_requests(&self, params: &Params) -> Option<Rate> {
        let cost = self.cost_ns.filter(|&cost| cost > 0.0)?;
        Some(self.limit(params).scale(1e9 / cost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(100);

    /// Reports of the same kind; each period holds `turns` of `requests` that take `busy`, and
    /// `worked` in all.
    fn play(
        capacity: &mut Capacity,
        reports: u64,
        turns: u64,
        requests: u32,
        busy: Duration,
        worked: Duration,
    ) {
        let params = Params::live();
        for _ in 0..reports {
            (0..turns).for_each(|_| {
                capacity.charge(requests, busy, &params);
            });
            let now = capacity.since + PERIOD;
            capacity.report(now, worked, &params);
        }
    }

    fn requests(capacity: &Capacity) -> f64 {
        capacity.limit_in_requests(&Params::live()).map_or(0.0, Rate::as_per_second)
    }

    #[test]
    fn a_preload_leaves_no_trace_after_two_seconds() {
        let ten = Duration::from_micros(10);
        let (mut fresh, mut preloaded) = (Capacity::default(), Capacity::default());
        play(&mut preloaded, 5, 100, 512, Duration::from_micros(700), Duration::from_millis(70));
        assert!(requests(&preloaded) > 500_000.0, "{}", requests(&preloaded));
        for capacity in [&mut fresh, &mut preloaded] {
            play(capacity, 20, 1_000, 1, ten, ten * 1_000);
        }
        assert!((requests(&fresh) - 80_000.0).abs() < 1.0);
        assert!((requests(&preloaded) / requests(&fresh) - 1.0).abs() < 0.01);
    }

    #[test]
    fn half_a_cpu_is_full_at_half_the_work() {
        let mut capacity = Capacity::default();
        play(&mut capacity, 20, 1_000, 1, Duration::from_micros(10), Duration::from_millis(20));
        let limit = capacity.limit(&Params::live()).as_per_second();
        assert!((limit - 0.4).abs() < 0.01, "{limit}");
        play(&mut capacity, 20, 0, 1, Duration::ZERO, Duration::ZERO);
        assert!(
            (capacity.limit(&Params::live()).as_per_second() - 0.8).abs() < 0.01,
            "it had the rest to itself"
        );
    }

    #[test]
    fn a_turn_that_was_interrupted_is_charged_what_turns_take() {
        let params = Params::live();
        let mut capacity = Capacity::default();
        assert_eq!(capacity.charge(1, Duration::from_millis(40), &params), params.turn_most);
    }

    #[test]
    fn long_turns_of_many_requests_are_believed_in_the_end() {
        // 512 requests of 20 us each: ten times as long as a turn should take, in every turn.
        let mut capacity = Capacity::default();
        let turn = Duration::from_micros(20) * 512;
        play(&mut capacity, 20, 9, 512, turn, turn * 9);
        assert!((requests(&capacity) - 40_000.0).abs() < 400.0, "{}", requests(&capacity));
    }

    #[test]
    fn nothing_was_served_and_nothing_is_said_in_requests() {
        let mut capacity = Capacity::default();
        play(&mut capacity, 3, 0, 0, Duration::ZERO, Duration::from_millis(1));
        assert_eq!(capacity.limit_in_requests(&Params::live()), None);
        assert!(capacity.limit(&Params::live()) > Rate::ZERO);
    }
}
