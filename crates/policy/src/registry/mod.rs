//! The registry: the description of each policy, beside its code.
//!
//! An [`Entry`] is one policy: the words that a line of policies may name it by, the question that
//! it answers, its parameters, where it runs, how mature it is, and which paper it is from. A
//! driver takes registries (this crate's [`POLICIES`](crate::POLICIES), the literature's, its own),
//! finds a word's entry with [`find`], and knows from it the defaults and the bounds of the word's
//! parameters.
//!
//! A policy joins by a table of parameters ([`Check`]), an implementation of its
//! [kind](crate::kind) and an `ENTRY` in its own file, and one line in its crate's list.

mod describe;
mod parameter;

pub use describe::{Description, ParameterDescription, WordDescription, by_question};
pub use parameter::*;

use crate::check::{Check, Wrong};
use crate::kind::Make;
use machine::{Duration, Goal, Platform};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;

/// All that a policy says of itself.
#[derive(Debug)]
pub struct Entry {
    /// The first is the policy's name. The others start from other parameters.
    pub words: &'static [Word],
    pub question: Question,
    /// Questions that it answers besides: no other word of the line may.
    pub also: &'static [Question],
    /// Questions that it answers unless another word of the line does.
    pub unless_named: &'static [Question],
    pub shape: Shape,
    /// One paragraph.
    pub help: &'static str,
    pub runs: Runs,
    pub maturity: Maturity,
    /// Where the policy comes from.
    pub origin: &'static str,
    /// It works towards a latency goal and cannot do without one.
    pub needs_goal: bool,
    /// It needs work that any core can take; where connections have workers this is to be done
    /// instead.
    pub not_by_connection: Option<&'static str>,
    /// It decides the same whatever happens.
    pub is_constant: bool,
    pub make: Make,
}

impl Entry {
    /// An entry whose other fields are the usual ones: `Entry { words, ..Entry::of::<Params>() }`.
    pub const fn of<P: Check + DeserializeOwned>() -> Self {
        Self { shape: Shape::of::<P>(), ..Self::PLAIN }
    }

    /// The same for a policy without parameters.
    pub const PLAIN: Self = Self {
        words: &[],
        question: Question::Cores,
        also: &[],
        unless_named: &[],
        shape: Shape::NONE,
        help: "",
        runs: Runs::Simulated,
        maturity: Maturity::Research,
        origin: "",
        needs_goal: false,
        not_by_connection: None,
        is_constant: false,
        make: Make::Nothing,
    };

    pub fn name(&self) -> &'static str {
        self.words.first().map_or("", |word| word.word)
    }

    /// Every question that it may answer.
    pub fn questions(&self) -> impl Iterator<Item = Question> + '_ {
        std::iter::once(self.question)
            .chain(self.also.iter().copied())
            .chain(self.unless_named.iter().copied())
    }
}

/// A word of a line of policies.
#[derive(Debug)]
pub struct Word {
    pub word: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Its parameters before a file changes any.
    pub settings: fn(&Surroundings<'_>) -> Value,
}

impl Word {
    pub const fn new(
        word: &'static str,
        summary: &'static str,
        settings: fn(&Surroundings<'_>) -> Value,
    ) -> Self {
        Self { word, summary, settings }
    }

    /// A word that takes no parameters.
    pub const fn bare(word: &'static str, summary: &'static str) -> Self {
        Self { word, summary, settings: |_| Value::Object(serde_json::Map::new()) }
    }
}

/// Parameters as data, for [`Word::settings`].
pub fn settings<P: Serialize>(params: P) -> Value {
    serde_json::to_value(params).expect("plain data is written without error")
}

/// The driver's knowledge when it makes a policy. All of it may be missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Surroundings<'a> {
    pub goal: Option<Goal>,
    pub platform: Option<&'a Platform>,
    /// The scheduler's.
    pub tick: Option<Duration>,
    pub queues: Queues,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queues {
    #[default]
    Shared,
    PerCore,
    /// Each worker has its own, and a connection stays with its worker.
    Connections,
    /// The same, but idle workers take requests from others: they wait as in one queue.
    Stolen,
}

impl Queues {
    /// True where a connection stays with its worker, whether others may take its requests or not.
    pub fn are_of_connections(self) -> bool {
        matches!(self, Self::Connections | Self::Stolen)
    }
}

impl Surroundings<'_> {
    pub fn latency_or(&self, default: Duration) -> Duration {
        self.goal.map_or(default, |goal| goal.latency)
    }

    pub fn quantile_or(&self, default: f64) -> f64 {
        self.goal.map_or(default, |goal| goal.quantile)
    }

    /// How long a change of frequency takes until it works, delay and stall together.
    pub fn frequency_switch_or(&self, default: Duration) -> Duration {
        self.platform.map_or(default, |platform| {
            let table = &platform.frequencies;
            table.delay + table.stall
        })
    }
}

/// The decision that a policy makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    Cores,
    Idle,
    Frequency,
    Uncore,
    Waking,
    Device,
    Interrupts,
    Background,
    Admission,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cores => "how many cores",
            Self::Idle => "which idle state",
            Self::Frequency => "which frequency",
            Self::Uncore => "how fast the uncore runs",
            Self::Waking => "when to wake",
            Self::Device => "when a device answers",
            Self::Interrupts => "where interrupts go",
            Self::Background => "what is held back",
            Self::Admission => "when requests are let in",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Runs {
    /// On Linux and in the simulator.
    Live,
    Simulated,
}

impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Live => "live and simulated",
            Self::Simulated => "simulated only",
        })
    }
}

/// How far a policy may be trusted with a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Maturity {
    /// A command's default, or behind one that restores all it changes and has been run for hours.
    Production,
    /// Runs live, and is off unless asked for.
    Experimental,
    /// Only for comparisons, in the simulator.
    Research,
}

impl fmt::Display for Maturity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Production => "production",
            Self::Experimental => "experimental",
            Self::Research => "research",
        })
    }
}

/// A policy's table of parameters, and the type behind it.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub parameters: &'static [Parameter],
    read: fn(Value) -> Result<(), Refused>,
}

impl Shape {
    pub const NONE: Self = Self { parameters: &[], read: |_| Ok(()) };

    pub const fn of<P: Check + DeserializeOwned>() -> Self {
        Self { parameters: P::PARAMETERS, read: read::<P> }
    }

    /// `values` are parameters of this policy: all its keys, no other, each within its bounds.
    pub fn check(&self, values: &Value) -> Result<(), Refused> {
        (self.read)(values.clone())
    }
}

/// Why values are no parameters of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A key that there is not, or a value of another type.
    #[error("{0}")]
    Unreadable(String),
    #[error(transparent)]
    Wrong(Wrong),
}

fn read<P: Check + DeserializeOwned>(values: Value) -> Result<(), Refused> {
    let params: P = serde_json::from_value(values).map_err(|error| Refused::Unreadable(error.to_string()))?;
    params.check().map_err(Refused::Wrong)
}

pub type Registry = [&'static Entry];

/// The entry that has this word, and the word.
pub fn find(registries: &[&Registry], word: &str) -> Option<(&'static Entry, &'static Word)> {
    all(registries).find(|(_, known)| known.word == word)
}

/// Every word of these registries, with its entry.
pub fn all<'a>(registries: &'a [&'a Registry]) -> impl Iterator<Item = (&'static Entry, &'static Word)> + 'a {
    let entries = registries.iter().flat_map(|registry| registry.iter().copied());
    entries.flat_map(|entry| entry.words.iter().map(move |word| (entry, word)))
}
