//! The load of one connection (section 3.3): n divided by the time in which the last n requests came.
//!
//! A counter and two instants, so that a request costs an addition and a comparison. The figure travels with its
//! connection from worker to worker.
//!
//! The published code keeps the last rate of a connection that went silent for ever. Here time itself bounds it:
//! with k requests since the window began, t ago, the rate is hardly above (k + 2 + 2 sqrt(k + 1)) / t, two standard
//! deviations of a Poisson count and a little; the smaller of this bound and the last measurement is the load. A
//! steady connection never meets the bound, a silent one decays as 1/t.

use super::Params;
use machine::{Duration, Instant, Rate};
use serde::{Deserialize, Serialize};

/// What a connection carries with it so that its load stays known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionLoad {
    window_start: Instant,
    requests: u32,
    measured: Option<Rate>,
}

impl ConnectionLoad {
    /// A connection opened at `now` that has sent nothing.
    pub fn new(now: Instant) -> Self {
        Self { window_start: now, requests: 0, measured: None }
    }

    /// `requests` of this connection were served at `now`.
    #[inline]
    pub fn record(&mut self, now: Instant, requests: u32, params: &Params) {
        self.requests = self.requests.saturating_add(requests);
        if self.requests >= params.window_requests {
            self.close_window(now, params);
        }
    }

    /// Apart from `record`, so that the path taken by all but one request in n stays short.
    #[inline]
    fn close_window(&mut self, now: Instant, params: &Params) {
        let span = now.since(self.window_start);
        if span >= params.window_span && !span.is_zero() {
            self.measured = Some(Rate::of(u64::from(self.requests), span));
            self.window_start = now;
            self.requests = 0;
        }
    }

    /// The load at `now`.
    pub fn rate(&self, now: Instant, params: &Params) -> Rate {
        let elapsed = now.since(self.window_start);
        let requests = f64::from(self.requests);
        match self.measured {
            Some(measured) => {
                let bound = requests + 2.0 + 2.0 * (requests + 1.0).sqrt();
                measured.min(Rate::per_second(bound * 1e9 / elapsed.as_nanos().max(1) as f64))
            }
            // The first window is still open. Judged over a report at least, so that the first requests of a new
            // connection are no huge rate.
            None => {
                let span = elapsed.max(params.report_period).max(Duration::from_nanos(1));
                Rate::of(u64::from(self.requests), span)
            }
        }
    }
}
