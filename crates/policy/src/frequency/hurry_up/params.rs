use super::Bound;
use crate::check::Check;
use crate::kind::Make;
use crate::registry::{
    Entry, Maturity, Parameter, Question, Runs, Word, clock, count, flag, settings, share, table, time,
};
use machine::{Duration, Kilohertz};
use serde::{Deserialize, Serialize};

pub static ENTRY: Entry = Entry {
    words: &[
        Word::new("hurry-up", "fast for requests long in the hot function, with a learned threshold", |_| {
            settings(Params::default())
        }),
        Word::new("hurry-up-paper", "the same as printed", |_| settings(Params::paper())),
    ],
    question: Question::Frequency,
    help: "Outside the hot function a thread's core runs at f_min, inside at f_mid, at which light \
           requests take the least energy, and at f_max once the thread has been inside for longer than \
           the threshold: a heavy request sets the tail.",
    runs: Runs::Live,
    maturity: Maturity::Experimental,
    origin: "Hurry-up, section IV",
    make: Make::Frequency(|making| Box::new(Bound::new(making))),
    ..Entry::of::<Params>()
};

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
    pub quantile: f64,
    pub calls: u32,
    #[serde(with = "machine::duration_text")]
    pub floor: Duration,
    #[serde(with = "machine::duration_text")]
    pub first: Duration,
}

impl Check for Learned {
    const PARAMETERS: &'static [Parameter] = &[
        share("quantile", "the share of calls that are light")
            .source("Hurry-up, section II-C: 5 % of its queries are heavy"),
        count("calls", "calls after which the threshold is set anew, from them alone")
            .above_zero()
            .source("ours: ten beyond the quantile"),
        time("floor", "the threshold is never less")
            .not_above("first")
            .source("ours: a hundred changes of frequency"),
        time("first", "what it is until then").source("Hurry-up, section V-C"),
    ];
}

impl Default for Learned {
    fn default() -> Self {
        let (floor, first) = (Duration::from_millis(1), Duration::from_millis(350));
        Self { quantile: 0.95, calls: 200, floor, first }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    pub f_min: Kilohertz,
    pub f_mid: Kilohertz,
    pub f_max: Kilohertz,
    #[serde(with = "machine::duration_text::optional")]
    pub sleep: Option<Duration>,
    pub threshold: Threshold,
    pub follows_work: bool,
    #[serde(with = "machine::duration_text")]
    pub grace: Duration,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        clock("f_min", "outside the hot function").not_above("f_mid").source("Hurry-up, section IV"),
        clock("f_mid", "inside").not_above("f_max").source("Hurry-up, Observation 4"),
        clock("f_max", "inside for longer than the threshold").source("Hurry-up, section IV"),
        time("sleep", "decide at multiples of this only; `never`: when something happens")
            .above_zero()
            .source("ours; 10 ms and 50 ms in the paper, sections V-C and V-F"),
        time("threshold.fixed", "a call is heavy after this long")
            .source("Hurry-up, section V-C; 450 ms tuned, section V-F"),
        table("threshold.learned", "a call is heavy after longer than most", Learned::PARAMETERS),
        flag("follows_work", "a thread counts where it is and while it can run")
            .source("ours; false is the paper's flowchart"),
        time("grace", "an idle core and a waiting thread count as before for this long")
            .source("ours: a thousand changes of frequency"),
    ];
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
    /// The paper's flowchart with its first setting: 10 ms of sleep, a threshold of 350 ms (section
    /// V-C).
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
