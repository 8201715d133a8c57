//! The findings of `roost prove --kit` on a machine: one archive, without names and addresses.
//!
//! ```text
//!   mod.rs       the contents of an archive
//!   word.rs      the only texts in it
//!   archive.rs   a tar of JSON files; strangers' bytes are checked
//!   load.rs      blocks at one load, and their comparison
//!   page.rs      its page
//!   seen.rs      docs/hardware.md: the knowledge that archives have shown, and the rest
//! ```
//!
//! **Privacy by construction.** No type here has a field for a free text. A number is a number; a
//! name is a [`Word`], and only names that a driver or the kernel gives to kinds of hardware are
//! asked for. A host name, an address or a command line has no place to go to.
//!
//! Invariants: a part that was not measured is in [`Summary::parts`] with its reason, and its file
//! is absent or has fewer entries. All numbers are finite.

mod archive;
mod load;
mod page;
pub mod seen;
mod word;

pub use archive::{Archive, ArchiveError, BLOCKS_MAX, SIZE_MAX};
pub use load::{Load, LoadBlock, LoadEnd};
pub use word::Word;

use serde::{Deserialize, Serialize};

/// Of the archive. Another one is refused.
pub const FORMAT: u32 = 1;

/// `kit.json`: the run itself, and the state of its parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    pub format: u32,
    /// The version of the Roost that wrote it.
    pub version: Word,
    /// The day on which it began, in UTC.
    pub date: Word,
    pub planned_s: u64,
    pub took_s: f64,
    /// True if a signal ended it before its time.
    pub ended_early: bool,
    pub parts: Vec<PartState>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartState {
    pub part: Part,
    pub state: State,
    /// Why something is missing, if something is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Word>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Machine,
    WakeUps,
    IdlePower,
    Clocks,
    Loads,
}

impl Part {
    pub const ALL: [Self; 5] = [Self::Machine, Self::WakeUps, Self::IdlePower, Self::Clocks, Self::Loads];

    pub fn name(self) -> &'static str {
        match self {
            Self::Machine => "facts of the machine",
            Self::WakeUps => "wake-up times",
            Self::IdlePower => "idle power by state",
            Self::Clocks => "clocks",
            Self::Loads => "governed and ungoverned blocks",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Done,
    /// A signal came: the measurements until then are here.
    EndedEarly,
    /// The machine lacks a means, or the part failed.
    Gap,
    /// The run ended before it began.
    NotBegun,
}

/// `machine.json`: the machine as numbers and names of kinds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub processor: Option<Word>,
    /// The numbers of the kernel's release: its suffix may be a name.
    pub kernel: Option<Word>,
    pub virtual_machine: Option<bool>,
    pub cpus: u32,
    pub cores: u32,
    pub sockets: u32,
    pub numa_nodes: u32,
    pub idle_driver: Option<Word>,
    pub idle_governor: Option<Word>,
    pub idle_tables: Vec<IdleTable>,
    /// Whether the hardware may demote requests to C1.
    pub c1_demotion: Option<bool>,
    /// The strictest limit in force on a CPU before the run, in ns of exit latency.
    pub idle_limit_ns: Option<u64>,
    pub clocks: Vec<ClockDomains>,
    pub turbo: Option<bool>,
    pub pstate_mode: Option<Word>,
    pub uncore: Vec<Uncore>,
    pub meters: Vec<Meter>,
    pub nics: Vec<Nic>,
    /// Which trees are mounted: `none`, `v1`, `v2` or `hybrid`.
    pub cgroups: Word,
    /// Whether the tree has the cpuset controller.
    pub cpuset: bool,
    /// Programs in the kernel: how many load, of how many that were tried.
    pub bpf_loaded: Option<(u32, u32)>,
}

/// So many CPUs with the same idle states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleTable {
    pub cpus: u32,
    pub states: Vec<IdleState>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleState {
    pub name: Word,
    pub halts: bool,
    pub exit_latency_ns: u64,
    pub target_residency_ns: u64,
    pub disabled: Option<bool>,
}

/// So many domains of the clock that are alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockDomains {
    pub domains: u32,
    pub cpus: u32,
    pub driver: Option<Word>,
    pub governor: Option<Word>,
    pub preference: Option<Word>,
    pub hardware_min_khz: Option<u64>,
    pub hardware_max_khz: Option<u64>,
    pub base_khz: Option<u64>,
    pub min_khz: Option<u64>,
    pub max_khz: Option<u64>,
}

/// Bounds of the clock beside the cores, of so many domains (`intel_uncore_frequency`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uncore {
    pub domains: u32,
    pub min_khz: Option<u64>,
    pub max_khz: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meter {
    pub kind: MeterKind,
    /// All figures of this meter are by this name.
    pub name: Word,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeterKind {
    Rapl,
    /// A board's or a supply's sensor (hwmon).
    Sensor,
    /// A command of `--meter`: the number it has on the command line, never its words.
    Command,
    /// No meter: residency and a table of powers.
    Model,
}

impl MeterKind {
    pub fn is_measured(self) -> bool {
        self != Self::Model
    }
}

/// A network card: its queues as numbers, never its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    pub rx_queues: u32,
    pub tx_queues: u32,
    pub mbit_per_s: Option<u32>,
}

/// A line of `wakes.json`: many sleeps alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wakes {
    /// The deepest state that was allowed; absent if nothing was changed.
    pub limited_to: Option<Word>,
    /// Woken by another CPU, or else by a timer.
    pub by_other_cpu: bool,
    pub sleep_ns: u64,
    pub samples: u32,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub states: Vec<Share>,
}

/// How often a state was asked for, or for how much of the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    pub state: Word,
    pub share: f64,
}

/// A line of `idle.json`: all CPUs left alone under one limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleSpan {
    pub limited_to: Option<Word>,
    pub seconds: f64,
    /// By meter, in the machine's order.
    pub watts: Vec<Option<f64>>,
    pub busy_cpus: Option<f64>,
    /// Shares of the time of all CPUs together.
    pub states: Vec<Share>,
}

/// A line of `clocks.json`: all CPUs limited to a clock, one of them at work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockSpan {
    pub at_most_khz: u64,
    pub seconds: f64,
    /// Turns of a fixed loop per second: the speed that the limit really gave.
    pub turns_per_s: f64,
    pub watts: Vec<Option<f64>>,
}
