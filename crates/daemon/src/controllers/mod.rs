//! Controllers: a room for each decision that is carried out on a live machine.
//!
//! `cores` decides once an epoch and runs in the daemon's own loop ([`crate::Daemon`]). The others
//! follow events that come far more often, so each instance has a thread of its own (`host.rs`).
//!
//! | room | table | decides |
//! |---|---|---|
//! | `cores` | `[[service]]` | how many cores a service has, how deeply they sleep, how fast they run |
//! | `hurry_up` | `[[hurry_up]]` | the frequency of a core, by the calls of a hot function |
//! | `quiesce` | `[[quiesce]]` | when background work is frozen |
//! | `wake` | `[wake]` | when a CPU is woken ahead of an event |
//!
//! To add one: a room whose type is a [`Controller`], a line in [`Table`], [`Seen`] and
//! [`ControllerStatus`], and a field in [`crate::Part`].
//!
//! Properties:
//! - A controller that ends, fails or panics is withdrawn alone, and its changes are put back.
//! - One whose service is gone is opened again, ever more rarely.

pub mod cores;
mod host;
pub mod hurry_up;
pub mod quiesce;
mod refusal;
pub mod wake;

pub use host::{ControllerReport, ControllerState, Observer};
pub(crate) use host::{Happened, Hosted, Owner};
pub use refusal::{Refusal, RefusalKind};

use crate::control::Callers;
use hurry_up::{Hurry, HurryStatus, HurryUpConfig};
use linux::Root;
use linux::arbiter::{Arbiter, ClockMeans};
use machine::Instant;
use quiesce::{Quiesce, QuiesceConfig, QuiesceStatus};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use wake::{Wake, WakeConfig, WakeHandle, WakeStatus};

/// The state that all controllers of a daemon share.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The folder below which `/sys`, `/proc` and `/run` lie.
    pub root: Root,
    pub dry_run: bool,
    pub record: Option<PathBuf>,
    /// The file to which changes are appended.
    pub audit: Option<PathBuf>,
    pub frequency: ClockMeans,
    /// True once this controller is told to end, for slow steps in `open`.
    pub ends: Arc<AtomicBool>,
    /// The requests of all controllers for the per-CPU knobs.
    pub arbiter: Arbiter,
    /// The callers of the planner of wake-ups.
    pub callers: Callers,
}

/// A decision with its sensors and its actuators, on a thread of its own.
pub trait Controller: Sized + Send + 'static {
    type Config: Clone + Send + 'static;

    /// Takes hold of its service and its knobs. `release` or `drop` puts its changes back.
    fn open(machine: &Machine, config: &Self::Config) -> Result<Self, Refusal>;

    /// Ends [`Self::run`] from another thread, now or as soon as it begins.
    fn ender(&self) -> Box<dyn Fn() + Send>;

    /// Decides until it is told to end: `Ok(None)`. `Ok(Some(line))`: its service ended in good
    /// order. `show` is called whenever there is something new to see.
    fn run(&mut self, show: &mut dyn FnMut(&mut Self)) -> Result<Option<String>, Refusal>;

    /// True if `show` may not be called again for long: its state is then published at once.
    fn rests(&self) -> bool {
        false
    }

    fn status(&self, now: Instant) -> ControllerStatus;

    /// Lines for the operator since the last call.
    fn drain_notices(&mut self) -> Vec<String>;

    /// Puts its changes back; a line for each thing.
    fn release(&mut self) -> Vec<String>;

    /// Itself, for a view in the same process.
    fn seen(&self) -> Seen<'_>;
}

/// A table of the configuration, of any controller with a thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Table {
    Quiesce(QuiesceConfig),
    /// A service with a hot function.
    HurryUp(HurryUpConfig),
    /// CPUs that are woken ahead of events.
    Wake(WakeConfig),
}

impl Table {
    /// The instance's name in `status` and metrics.
    pub fn name(&self) -> String {
        match self {
            Self::Quiesce(config) => config.name(),
            Self::HurryUp(config) => config.name(),
            Self::Wake(_) => "wake".to_owned(),
        }
    }

    /// Refuses values that can mean nothing.
    pub fn check(&self) -> Result<(), Refusal> {
        match self {
            Self::Quiesce(config) => config.check(),
            Self::HurryUp(config) => config.check(),
            Self::Wake(config) => config.check(),
        }
    }

    fn start(&self, host: host::Host) -> std::io::Result<std::thread::JoinHandle<()>> {
        match self {
            Self::Quiesce(config) => host.start::<Quiesce>(config),
            Self::HurryUp(config) => host.start::<Hurry>(config),
            Self::Wake(config) => host.start::<Wake>(config),
        }
    }
}

/// A controller of this process, as a view sees it.
pub enum Seen<'a> {
    Quiesce(&'a Quiesce),
    /// A service with a hot function.
    HurryUp(&'a Hurry),
    /// CPUs that are woken ahead of events.
    Wake(&'a WakeHandle),
}

/// A controller's state, as programs read it.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ControllerStatus {
    Quiesce(Box<QuiesceStatus>),
    /// A service with a hot function.
    HurryUp(Box<HurryStatus>),
    /// CPUs that are woken ahead of events.
    Wake(Box<WakeStatus>),
}

impl ControllerStatus {
    /// The state in a few lines of at most 80 columns.
    pub fn text(&self) -> String {
        match self {
            Self::Quiesce(status) => status.text(),
            Self::HurryUp(status) => status.text(),
            Self::Wake(status) => status.text(),
        }
    }
}
