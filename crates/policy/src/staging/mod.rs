//! Staged bursts: requests are held back and released together (the CPU sleeps paper, section 3).
//!
//! A request that may take 500 ms and needs 12 need not begin at once. If requests wait and then
//! run together, the CPUs are busy side by side for a short while and asleep side by side for the
//! rest, which is when a multicore saves most: its last awake core costs as much as several more.
//! This is deliberately not work-conserving.
//!
//! ```text
//!   arrivals     |  | |     |    | ||       |   |  |   |
//!   staging      ---------------------#------------------------#----
//!   burst                             ######..                 #####.
//!                                     ^ released               ^ the most urgent deadline, less a burst's tail
//! ```
//!
//! When to release: [`Mode::Period`] is the mode that the paper measured (every 250 ms for a target
//! of 500: 68 W became 53 W and the 99.9th percentile stayed below the target); [`Mode::Deadline`]
//! is the one that it proposes ("when some staged requests are in danger of missing their latency
//! deadlines") and does not build; [`Mode::Guarded`] is both, whichever comes first: a regular
//! rhythm for as long as the deadlines allow it. In all of them a full stage is released too.
//!
//! Several stages need not burst together: [`Params::phase`] shifts the ends of one's periods, and
//! [`phases`] gives each of several its own; in deadline mode [`timetable`] says whose burst goes a
//! little earlier.
//!
//! The meaning of danger is learned. [`Tails`] knows how long requests take from release to
//! completion in bursts of each size; and beyond its forecast stands a margin that every miss
//! widens and every success narrows a little, in such a proportion that in the long run only the
//! tolerated share of held requests misses. Before bursts of a size are known, a request is held
//! for half of its time at most: the paper's own proportion.
//!
//! At high load, when the tail of a burst takes all the time there is, every request is in danger
//! on arrival and is released at once: staging is off, by itself, until bursts are short again.
//!
//! Invariants:
//! - every request is released exactly once, in the order of arrival, unless it was withdrawn
//!   before;
//! - in deadline mode, with a driver that is on time, no request is held beyond its deadline less
//!   the tail, as known at each moment of its wait;
//! - never more than [`Params::max_staged`] requests are held, and none is held without a
//!   timeout.

mod apart;
#[cfg(test)]
mod properties;
mod replay;
mod stager;
mod tails;

use crate::check::Check;
use crate::kind::Make;
use crate::registry::{
    Entry, Maturity, Parameter, Question, Runs, Word, count, one_of, settings, share, time,
};
pub use apart::{Coming, timetable};
pub use replay::{Input, Output};
pub use stager::{Record, Release, StagedId, Stager, Verdict};
pub use tails::Tails;

use machine::{Duration, Ratio};
use serde::{Deserialize, Serialize};

/// When a burst begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// At the end of every [`Params::period`], whatever the deadlines are. Periods are counted from
    /// the driver's epoch, so that several stages on one machine burst together.
    Period,
    /// When the deadline of a staged request is in danger.
    #[default]
    Deadline,
    /// At the end of every [`Params::period`], and before it when the deadline of a staged request
    /// is in danger.
    Guarded,
}

pub static ENTRY: Entry = Entry {
    words: &[
        Word::new("staged", "requests are let in together, before a deadline is in danger", |_| {
            settings(Params::default())
        }),
        Word::new("staged-paper", "the same, with every period", |_| settings(Params::paper())),
    ],
    question: Question::Admission,
    help: "Requests are held back and released together, so that the CPUs are busy side by side and \
           asleep side by side. When a burst must begin follows from the deadlines and from how long \
           bursts of each size have taken.",
    runs: Runs::Live,
    maturity: Maturity::Experimental,
    origin: "CPU sleeps, section 3",
    needs_goal: true,
    make: Make::Staging(|making| (making.params(), making.goal().latency)),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    pub mode: Mode,
    #[serde(with = "machine::duration_text")]
    pub period: Duration,
    #[serde(with = "machine::duration_text")]
    pub phase: Duration,
    pub max_staged: u32,
    pub quantile: Ratio,
    pub history: u16,
    pub first: u16,
    pub first_share: Ratio,
    #[serde(with = "machine::duration_text")]
    pub margin_step: Duration,
    #[serde(with = "machine::duration_text")]
    pub max_margin: Duration,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        one_of("mode", "when a burst begins", &["period", "deadline", "guarded"])
            .source("CPU sleeps, section 3, proposes deadlines and measured periods"),
        time("period", "the period of period mode")
            .above_zero()
            .source("CPU sleeps, section 3, for a target of 500 ms"),
        time("phase", "by how much this stage's periods end later")
            .not_above("period")
            .source("ours: zero, all burst together"),
        count("max_staged", "a stage that holds so many is released")
            .above_zero()
            .source("ours: ten seconds of the paper's load"),
        share("quantile", "the share of requests that shall be in time")
            .above_zero_to(1.0)
            .source("CPU sleeps, section 3"),
        count("history", "completions that are remembered for each size of burst")
            .above_zero()
            .source("ours: one in 200 exceeds the longest"),
        count("first", "a size of burst is known after so many completions")
            .above_zero()
            .not_above("history")
            .source("ours"),
        share("first_share", "until then a request is held for this share of its time")
            .source("CPU sleeps: 250 ms of 500"),
        time("margin_step", "a miss widens the margin by this much")
            .not_above("max_margin")
            .source("ours: a fiftieth of the paper's target"),
        time("max_margin", "the margin is never wider")
            .source("ours: a time of trouble shall not end staging for long"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self {
            mode: Mode::Deadline,
            period: Duration::from_millis(250),
            phase: Duration::ZERO,
            max_staged: 1024,
            quantile: Ratio::new(0.999),
            history: 199,
            first: 20,
            first_share: Ratio::new(0.5),
            margin_step: Duration::from_millis(10),
            max_margin: Duration::from_millis(100),
        }
    }
}

impl Params {
    /// The paper's proxy: all that is staged, every 250 ms.
    pub fn paper() -> Self {
        Self { mode: Mode::Period, ..Self::default() }
    }
}

/// The phases of `count` stages with the same period, so that their bursts are as far apart as they
/// can be.
pub fn phases(period: Duration, count: u32) -> impl Iterator<Item = Duration> {
    (0..u64::from(count)).map(move |number| {
        Duration::from_nanos(
            (u128::from(period.as_nanos()) * u128::from(number) / u128::from(count.max(1))) as u64,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_divide_the_period() {
        let of =
            |count| phases(Duration::from_millis(250), count).map(Duration::as_millis).collect::<Vec<_>>();
        assert_eq!((of(0), of(1), of(2), of(5)), (vec![], vec![0], vec![0, 125], vec![0, 50, 100, 150, 200]));
        assert_eq!(phases(Duration::MAX, 3).last(), Some(Duration::from_nanos(u64::MAX / 3 * 2)));
    }
}
