//! Every constant of Hurry-up.

use machine::{Duration, Kilohertz};
use serde::{Deserialize, Serialize};

/// When a call counts as heavy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    /// After this long in the hot function.
    Fixed(#[serde(with = "machine::duration_text")] Duration),
    /// After longer than most calls take.
    Learned(Learned),
}

/// How the threshold is learned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Learned {
    /// The share of calls that are light. 0.95: the load generator of the paper makes 5 % of its queries heavy
    /// (section II-C).
    pub quantile: f64,
    /// The threshold is set anew after so many calls, from them alone. 200: ten beyond the quantile \[D\].
    pub calls: u32,
    /// And is never less than this. 1 ms, a hundred changes of clock (10 us, Peafowl paper, section 4.3): what is
    /// gained must be more than what the change costs \[D\].
    #[serde(with = "machine::duration_text")]
    pub floor: Duration,
    /// What it is until then. 350 ms, the paper's first setting (section V-C).
    #[serde(with = "machine::duration_text")]
    pub first: Duration,
}

impl Default for Learned {
    fn default() -> Self {
        let (floor, first) = (Duration::from_millis(1), Duration::from_millis(350));
        Self { quantile: 0.95, calls: 200, floor, first }
    }
}

/// The constants of one Hurry-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Outside the hot function. 1.0 GHz in the paper. A clock that the machine lacks is rounded up to one it has.
    pub f_min: Kilohertz,
    /// Inside. 2.0 GHz in the paper (Observation 4).
    pub f_mid: Kilohertz,
    /// Inside for longer than the threshold. 2.6 GHz in the paper.
    pub f_max: Kilohertz,
    /// `never`: decide when something happens. Else the paper's sleep: decide at its multiples only.
    #[serde(with = "machine::duration_text::optional")]
    pub sleep: Option<Duration>,
    /// When a call counts as heavy.
    pub threshold: Threshold,
    /// A thread counts where it is and while it can run, and other work counts as inside. Else threads alone count, wherever
    /// they wait, as in the paper's flowchart.
    pub follows_work: bool,
    /// A core that is idle, and a thread that waits, count as before for so long: who pauses for a moment shall not change
    /// clocks. 10 ms, a thousand changes of clock \[D\]. Without effect where work is not followed.
    #[serde(with = "machine::duration_text")]
    pub grace: Duration,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            f_min: Kilohertz(1_000_000),
            f_mid: Kilohertz(2_000_000),
            f_max: Kilohertz(2_600_000),
            sleep: None,
            threshold: Threshold::Learned(Learned::default()),
            follows_work: true,
            grace: Duration::from_millis(10),
        }
    }
}

impl Params {
    /// The paper's flowchart with its first setting: 10 ms of sleep, a threshold of 350 ms (section V-C).
    pub fn paper() -> Self {
        Self {
            sleep: Some(Duration::from_millis(10)),
            threshold: Threshold::Fixed(Duration::from_millis(350)),
            follows_work: false,
            ..Self::default()
        }
    }

    /// The same as the paper tuned it: 50 ms and 450 ms (section V-F).
    pub fn tuned() -> Self {
        Self {
            sleep: Some(Duration::from_millis(50)),
            threshold: Threshold::Fixed(Duration::from_millis(450)),
            ..Self::paper()
        }
    }
}
