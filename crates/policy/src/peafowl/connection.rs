//! The load of one connection (section 3.3): n divided by the time in which the last n requests
//! came; or, where load is busy time, the work that these n took divided by that time.
//!
//! A counter and two instants, so that a request costs an addition and a comparison. The figure
//! travels with its connection from worker to worker.
//!
//! The published code keeps the last rate of a connection that went silent for ever. Here time
//! itself bounds it: with k requests since the window began, t ago, the rate is hardly above (k +
//! 2 + 2 sqrt(k + 1)) / t, two standard deviations of a Poisson count and a little; the smaller of
//! this bound and the last measurement is the load. A steady connection never meets the bound, a
//! silent one decays as 1/t.

use super::{Load, Params};
use machine::{Duration, Instant, Rate};
use serde::{Deserialize, Serialize};

/// Where load is busy time, a window is over after so many spans, however few requests came.
const WINDOW_SPANS_MOST: u64 = 10;

/// The books that a connection carries with it so that its load stays known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionLoad {
    window_start: Instant,
    requests: u32,
    measured: Option<Rate>,
    /// Work in the open window, and per request in those that are over.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    busy: Duration,
    #[serde(default, skip_serializing_if = "crate::is_default")]
    cost: Duration,
}

impl ConnectionLoad {
    /// A connection opened at `now` that has sent nothing.
    pub fn new(now: Instant) -> Self {
        Self { window_start: now, requests: 0, measured: None, busy: Duration::ZERO, cost: Duration::ZERO }
    }

    /// `requests` of this connection were served at `now`, which took `busy`.
    #[inline]
    pub fn record(&mut self, now: Instant, requests: u32, busy: Duration, params: &Params) {
        self.requests = self.requests.saturating_add(requests);
        let mut is_over = self.requests >= params.window_requests;
        if params.load == Load::BusyTime {
            self.busy += busy;
            // Few requests may be heavy ones, and their cost shall not be remembered until n have
            // come.
            is_over |= now.since(self.window_start) >= params.window_span * WINDOW_SPANS_MOST;
        }
        if is_over {
            self.close_window(now, params);
        }
    }

    /// Apart from `record`, so that the path taken by all but one request in n stays short.
    #[inline]
    fn close_window(&mut self, now: Instant, params: &Params) {
        let span = now.since(self.window_start);
        if span >= params.window_span && !span.is_zero() {
            self.measured = Some(Rate::of(u64::from(self.requests), span));
            self.cost = self.busy / u64::from(self.requests.max(1));
            self.window_start = now;
            self.requests = 0;
            self.busy = Duration::ZERO;
        }
    }

    /// The published code's look at a guest: if the open window holds `rerate` times the requests of
    /// a report period at the old rate, the new rate counts at once. By how much the rate rose.
    pub fn rerate(&mut self, now: Instant, params: &Params) -> Rate {
        let Some(old) = self.measured.filter(|_| params.rerate > 0.0 && params.load == Load::Requests) else {
            return Rate::ZERO;
        };
        let period_s = params.report_period.as_secs_f64();
        if f64::from(self.requests) < params.rerate * old.as_per_second() * period_s {
            return Rate::ZERO;
        }
        let elapsed = now.since(self.window_start).max(params.report_period);
        let new = Rate::of(u64::from(self.requests), elapsed);
        self.measured = Some(new);
        new - old
    }

    /// The load at `now`, in the unit that the policy counts in.
    pub fn load(&self, now: Instant, params: &Params) -> Rate {
        let rate = self.rate(now, params);
        match params.load {
            Load::Requests => rate,
            Load::BusyTime => {
                // The requests that the open window holds already may be heavier than all before.
                let least = if self.measured.is_some() { params.window_span } else { params.report_period };
                let elapsed = now.since(self.window_start).max(least).max(Duration::from_nanos(1));
                let open = self.busy.as_nanos() as f64 / elapsed.as_nanos() as f64;
                rate.scale(self.cost.as_secs_f64()).max(Rate::per_second(open))
            }
        }
    }

    /// Its requests per second at `now`.
    pub fn rate(&self, now: Instant, params: &Params) -> Rate {
        let elapsed = now.since(self.window_start);
        let requests = f64::from(self.requests);
        match self.measured {
            Some(measured) => {
                let bound = requests + 2.0 + 2.0 * (requests + 1.0).sqrt();
                measured.min(Rate::per_second(bound * 1e9 / elapsed.as_nanos().max(1) as f64))
            }
            // The first window is still open. Judged over a report at least, so that the first
            // requests of a new connection are no huge rate.
            None => {
                let span = elapsed.max(params.report_period).max(Duration::from_nanos(1));
                Rate::of(u64::from(self.requests), span)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(secs: f64) -> Instant {
        Instant::ZERO + Duration::from_secs_f64(secs)
    }

    /// Requests every `gap` until `end`.
    fn steady(gap: f64, end: f64, params: &Params) -> ConnectionLoad {
        let mut load = ConnectionLoad::new(Instant::ZERO);
        let requests = (end / gap).round() as u64;
        for request in 1..=requests {
            load.record(at(gap * request as f64), 1, Duration::ZERO, params);
        }
        load
    }

    #[test]
    fn a_window_of_n_requests_gives_n_over_its_time() {
        let exact = Params { window_requests: 10, window_span: Duration::ZERO, ..Params::default() };
        let load = steady(0.01, 0.1, &exact);
        assert_eq!(load.rate(at(0.1), &exact), Rate::per_second(100.0));
    }

    #[test]
    fn a_fast_connection_is_measured_over_the_span() {
        let params = Params::default();
        let load = steady(1e-5, 0.05, &params);
        assert!((load.rate(at(0.05), &params).as_per_second() - 1e5).abs() < 1.0);
        let short = steady(1e-5, 0.01, &params);
        assert_eq!(short.measured, None, "n requests came, but in too short a time");
    }

    #[test]
    fn a_window_with_more_than_the_old_rate_gives_counts_at_once() {
        let second = Duration::from_secs(1);
        let params = Params {
            window_requests: 1,
            window_span: second,
            report_period: second,
            rerate: 1.125,
            ..Params::default()
        };
        let mut load = steady(0.01, 1.0, &params);
        assert_eq!(load.rate(at(1.0), &params), Rate::per_second(100.0));
        for request in 1..113 {
            load.record(at(1.0 + 0.001 * f64::from(request)), 1, Duration::ZERO, &params);
            assert_eq!(load.rerate(at(1.2), &params), Rate::ZERO);
        }
        load.record(at(1.2), 1, Duration::ZERO, &params);
        assert_eq!(load.rerate(at(1.2), &params), Rate::per_second(13.0), "113 in a period of a second");
        assert_eq!(load.rate(at(1.2), &params), Rate::per_second(113.0));
        let off = Params { rerate: 0.0, ..params };
        load.record(at(1.3), 500, Duration::ZERO, &off);
        assert_eq!(load.rerate(at(1.3), &off), Rate::ZERO);
    }

    #[test]
    fn silence_decays_the_rate_by_time_alone() {
        let params = Params::default();
        let load = steady(0.001, 1.0, &params);
        let rate = |secs: f64| load.rate(at(secs), &params).as_per_second();
        assert!((rate(1.0) - 1000.0).abs() < 1.0);
        assert!(rate(1.2) < 300.0, "{}", rate(1.2));
        assert!(rate(11.0) < 6.0);
        assert!(rate(1001.0) < 0.1);
    }

    #[test]
    fn a_new_connection_counts_what_it_sent_so_far() {
        let params = Params::default();
        let mut load = ConnectionLoad::new(at(5.0));
        assert_eq!(load.rate(at(5.0), &params), Rate::ZERO);
        load.record(at(5.0), 1, Duration::ZERO, &params);
        assert_eq!(load.rate(at(5.0), &params), Rate::per_second(10.0), "over a report, not over nothing");
        assert_eq!(load.rate(at(9.0), &params), Rate::per_second(0.25));
    }

    #[test]
    fn clocks_that_go_back_do_no_harm() {
        let params = Params::default();
        let mut load = steady(0.001, 1.0, &params);
        load.record(at(0.5), 1000, Duration::ZERO, &params);
        assert!(load.rate(at(0.2), &params).as_per_second().is_finite());
    }

    proptest! {
        #[test]
        fn the_rate_never_rises_in_silence_and_never_exceeds_what_was_measured(
            gaps in prop::collection::vec((1_u64..50_000_000, 1_u32..40), 1..300),
            waits in prop::collection::vec(0_u64..3_000_000_000, 1..20),
        ) {
            let params = Params::default();
            let mut load = ConnectionLoad::new(Instant::ZERO);
            let mut now = Instant::ZERO;
            let mut fastest = 0.0_f64;
            for (gap, requests) in gaps {
                now += Duration::from_nanos(gap);
                load.record(now, requests, Duration::ZERO, &params);
                fastest = fastest.max(load.measured.map_or(0.0, Rate::as_per_second));
            }
            let mut before = load.rate(now, &params);
            for wait in waits {
                now += Duration::from_nanos(wait);
                let rate = load.rate(now, &params);
                prop_assert!(rate <= before);
                prop_assert!(load.measured.is_none() || rate.as_per_second() <= fastest);
                before = rate;
            }
        }

        #[test]
        fn its_books_read_back_exactly(gaps in prop::collection::vec(1_u64..9_000_000, 0..200)) {
            let params = Params::default();
            let mut load = ConnectionLoad::new(Instant::ZERO);
            let mut now = Instant::ZERO;
            for gap in gaps {
                now += Duration::from_nanos(gap);
                load.record(now, 1, Duration::ZERO, &params);
            }
            let text = serde_json::to_string(&load).unwrap();
            prop_assert_eq!(serde_json::from_str::<ConnectionLoad>(&text).unwrap(), load);
        }
    }
}
