//! When to be awake: work that is delayed as long as its goal allows, so that cores sleep deeply in
//! between.
//!
//! A service with a tail-latency goal of L and requests that need less than L has slack. One may
//! spend it on a slower clock, or on sleep: leave requests in the queue of a sleeping core, and
//! wake it just in time for all of them. Short idle periods so become long ones, and each wake-up
//! serves a batch.
//!
//! - [`tails`]: how long `n` requests in a row take at worst, learned while they run. All slack is
//!   computed from it.
//! - [`dyn_sleep`]: every core sleeps as long as its queue can bear, at one clock frequency.
//! - [`udpm`]: the same, and for each busy period the frequency that costs least.
//! - [`reschedule`]: which core an arrival goes to, by rules that uDPM's authors tried.
//! - [`sleep_scale`]: no request waits on purpose; but idle state and frequency are the ones that
//!   would have been best for the last second's requests.
//!
//! Terms. Requests that arrived at t_1 <= t_2 <= ... wait at one core; tail_i is the q-quantile of
//! the time that `i` of them take. The i-th keeps its goal with probability q if the core is up at
//! t_i + L - tail_i: its *deadline*. The core is *up* one exit latency after its wake-up *begins*.
//!
//! Two [`Form`]s. [`Form::Exact`] is up at the earliest deadline. [`Form::Published`] is the rule
//! of the authors' simulator: up at mean(t_i) + L - n tail_1 / 2, near the mean of all deadlines if
//! tails add up. The mean is late for every request whose deadline is before it, and even for a
//! single one: that one gets half of its own tail.

pub mod dyn_sleep;
pub mod reschedule;
pub mod sleep_scale;
pub mod tails;
pub mod udpm;

use machine::{Duration, Instant};
use policy::SleepState;
use serde::{Deserialize, Serialize};
use tails::Tails;

/// Which deadline counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// The earliest.
    #[default]
    Exact,
    /// About the mean \[C\].
    Published,
}

/// When the requests that wait at one core need it, at one speed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Deadline {
    /// The time when the sleep began.
    since: Instant,
    waiting: u32,
    /// Sum of their arrivals, each counted from `since`.
    arrivals: Duration,
    /// The core must be up by then; before any request, never.
    up_by: Instant,
}

impl Deadline {
    fn new(since: Instant) -> Self {
        Self { since, waiting: 0, arrivals: Duration::ZERO, up_by: Instant::ZERO + Duration::MAX }
    }

    /// One more request. As long as nothing is known about service times, the core is needed at
    /// once.
    fn add(&mut self, form: Form, arrived: Instant, goal: Duration, tails: &Tails, speed: f64) {
        self.waiting += 1;
        match form {
            Form::Exact => {
                let by = tails.tail(self.waiting, speed).map(|tail| arrived + goal - tail);
                self.up_by = self.up_by.min(by.unwrap_or_default());
            }
            Form::Published => {
                self.arrivals += arrived.since(self.since);
                let waiting = u64::from(self.waiting);
                let by = |tail| self.since + self.arrivals / waiting + goal - tail * waiting / 2;
                self.up_by = tails.tail(1, speed).map(by).unwrap_or_default();
            }
        }
    }
}
