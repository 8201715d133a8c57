//! Governing a service that was not changed: how many cores it gets, which ones, how deeply they
//! may sleep, how fast they and their uncore run.
//!
//! **Problem.** [`crate::carb`] says how many. A driver must feed it whole epochs, turn its number
//! into CPUs, and above all know when not to be clever: a daemon that loses sight of its service,
//! or whose writes are refused, must leave the machine as if it were not there.
//!
//! **Approach.** One state machine per service. A driver gives it a reading once an epoch
//! ([`Input::Reading`]) and the errors in between; it answers with commands, each with its reason
//! ([`Decision`]). All of it is data, so a run can be recorded, replayed, and replayed under other
//! parameters.
//!
//! ```text
//!                 readings without a rate, N in a row; refusals, N in a row; drift that comes back
//!      +-- searching --------------------------------------------------------------------> open --+
//!      |       ^                                                                                  |
//!      |       +------------------- the wait is over, and there is a rate again ------------------+
//!      +--> paused: a person asked for all cores (`set`)
//! ```
//!
//! Terms. A *core* is a physical core with all its threads ([`cores_in_order`]); numbers of cores
//! are numbers of these. *Open* is failing open: all cores, no limit, and a wait that doubles
//! before it tries again. *Silence* is a rate of zero, and no failure: no request waits, so the
//! service gets its fewest cores. Drift is a foreign change of a value that we have set.
//!
//! Invariants:
//! - Whatever is told, the CPUs in force are a non-empty prefix of the cores, and their limits are
//!   those of the active ones.
//! - When open or paused, all CPUs are active and no limit is in force, on sleep, speed or uncore.
//! - A command is given when something changes and not otherwise.
//! - A timeout that comes late, early or twice does no harm: there are none, epochs are the only
//!   clock.

/// A mode is written and read as the words that a person writes.
macro_rules! in_words {
    ($mode:ty) => {
        impl serde::Serialize for $mode {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $mode {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

mod alarm;
mod commands;
mod frequency;
mod idle;
mod order;
mod params;
mod replay;
mod search;
mod uncore;
mod why;

pub use alarm::{Expected, LoadSpikeDetector};
pub use frequency::{ClockWhy, Frequency, FrequencyMode, ServiceFrequency};
pub use idle::{IdleMode, IdleModes, ServiceIdle};
pub use order::cores_in_order;
pub use params::{Cores, Params};
pub use uncore::{ENTRY as UNCORE, Params as UncoreParams, ServiceUncore, UncoreMode, UncoreWhy};
pub use why::{Failure, Why};

use crate::carb::{GoalParams, GoalSearch};
use crate::frequency::PointTable;
use crate::own::Orders;
use machine::{Command, CpuId, CpuList, Duration, FrequencyLimit, Goal, Instant, Kilohertz, Reading};
use search::{Search, epoch_of, search};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// A machine and the part of it that the service may use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTopology {
    /// The CPUs that can be given or taken, in the order in which they are given.
    pub cores: Vec<Vec<CpuId>>,
    /// By CPU the exit latencies of its states that halt, the shallowest first.
    pub halts: BTreeMap<CpuId, Vec<Duration>>,
    /// How fast they can run, where their clock is to be chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub points: Option<PointTable>,
    /// The clocks that their uncore can have, slow to fast, where that is to be chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncore: Vec<Kilohertz>,
}

/// The inputs of the policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// An epoch is over, and this was seen in it.
    Reading(Reading),
    /// A command could not be carried out.
    Refused { reason: String },
    /// A setting reads something else, and still did after it was set again.
    Drift { what: String },
    /// Everything that was commanded is in force.
    Applied,
    /// Between two epochs something showed that all cores are needed at once.
    Alarm,
    /// Another goal from now on; one that is governed otherwise gets a search by goal.
    Goal(Goal),
    /// A person wants all cores, or has done with that.
    Pause(bool),
    /// New parameters: the configuration was read again.
    Reload(Params),
    /// A policy from outside has seen the next reading already, and orders this. Without a cap on
    /// the clocks it orders none; with one, it stays below.
    Orders(Orders),
    /// The policy from outside is at fault: all cores and no limits from now on.
    Fault(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    pub command: Command,
    pub why: Why,
}

/// The state that a service is in now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Searching,
    Open {
        failure: Failure,
        /// Epochs until the policy tries again.
        left: u32,
    },
    /// A person asked for all cores.
    Paused,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceController {
    params: Params,
    topology: CpuTopology,
    search: Search,
    idle: ServiceIdle,
    #[serde(default)]
    frequency: ServiceFrequency,
    #[serde(default)]
    uncore: ServiceUncore,
    mode: Mode,
    /// The number of CPUs in force.
    active: u16,
    lost: u32,
    refused: u32,
    /// How often it has failed open without an epoch of success in between, for the wait.
    failures: u32,
    decided: VecDeque<Decision>,
}

impl ServiceController {
    /// All cores active, no limits; the first epoch decides. `topology` has at least one core.
    pub fn new(params: Params, topology: CpuTopology) -> Self {
        assert!(!topology.cores.is_empty(), "a service runs somewhere");
        let cores = topology.cores.len() as u16;
        let cpus = topology.cores.iter().flatten().copied();
        let idle = ServiceIdle::new(params.idle.clone(), cpus, topology.halts.clone());
        Self {
            search: search(params.cores, cores),
            idle,
            frequency: ServiceFrequency::new(params.frequency, &topology),
            uncore: ServiceUncore::new(params.uncore, params.uncore_goal),
            params,
            mode: Mode::Searching,
            active: cores,
            lost: 0,
            refused: 0,
            failures: 0,
            decided: VecDeque::new(),
            topology,
        }
    }

    pub fn mode(&self) -> &Mode {
        &self.mode
    }

    /// The CPUs that the service has now.
    pub fn active(&self) -> CpuList {
        CpuList(self.active_set())
    }

    /// How many cores it has, and how many there are.
    pub fn cores(&self) -> (u16, u16) {
        (self.active, self.topology.cores.len() as u16)
    }

    /// The CPUs that can be given and taken.
    pub fn topology(&self) -> &CpuTopology {
        &self.topology
    }

    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The goal, where there is one.
    pub fn goal(&self) -> Option<Goal> {
        match &self.search {
            Search::Goal(search) => Some(search.goal()),
            Search::Ordered(_, goal) => *goal,
            Search::Constant(_) | Search::Slope(_) => self.frequency.goal().or(self.uncore.goal()),
        }
    }

    /// The caps on the clocks of its CPUs; one that is not here has none.
    pub fn clocks(&self) -> &BTreeMap<CpuId, FrequencyLimit> {
        self.frequency.in_force()
    }

    /// The limit of the uncore's clock.
    pub fn uncore(&self) -> FrequencyLimit {
        self.uncore.in_force()
    }

    /// The tail by number of cores at the present load, as far as it was seen.
    pub fn curve(&self) -> Vec<(u16, Duration)> {
        match &self.search {
            Search::Goal(search) => search.curve().collect(),
            Search::Constant(_) | Search::Slope(_) | Search::Ordered(..) => Vec::new(),
        }
    }

    /// An alarm would give it more cores than it has.
    pub fn wants_alarm(&self) -> bool {
        let can_grow = usize::from(self.active) < self.topology.cores.len();
        self.mode == Mode::Searching && can_grow && !matches!(self.search, Search::Constant(_))
    }

    /// The idle mode can change nothing on this machine.
    pub fn idle_has_no_effect(&self) -> bool {
        self.idle.has_no_effect()
    }

    pub fn handle(&mut self, now: Instant, input: &Input) {
        match input {
            Input::Reading(reading) => self.handle_reading(now, reading),
            Input::Refused { reason } => {
                self.refused += 1;
                if self.refused >= self.params.lost_after {
                    self.open(Failure::Refused { reason: reason.clone() });
                }
            }
            Input::Drift { what } => self.open(Failure::Drift { what: what.clone() }),
            Input::Applied => self.refused = 0,
            Input::Alarm => self.handle_alarm(now),
            Input::Goal(goal) => self.set_goal(*goal),
            Input::Pause(true) => {
                self.mode = Mode::Paused;
                self.give_all(Why::Paused);
            }
            Input::Pause(false) => {
                if self.mode == Mode::Paused {
                    self.mode = Mode::Searching;
                    self.search = search(self.params.cores, self.topology.cores.len() as u16);
                    self.frequency.forget(&self.topology);
                    self.uncore.forget();
                }
            }
            Input::Reload(params) => self.reload(params.clone()),
            Input::Orders(orders) => self.take(*orders),
            Input::Fault(fault) => {
                self.open(Failure::Policy { fault: fault.clone() });
                if let Mode::Open { left, .. } = &mut self.mode {
                    *left = u32::MAX;
                }
            }
        }
    }

    /// The next decision that is to be carried out.
    pub fn poll_command(&mut self) -> Option<Decision> {
        self.decided.pop_front()
    }

    fn handle_reading(&mut self, now: Instant, reading: &Reading) {
        if reading.service.rate.is_none() {
            self.lost += 1;
        } else {
            self.lost = 0;
        }
        match &mut self.mode {
            Mode::Paused => return,
            Mode::Open { left, .. } => {
                *left = left.saturating_sub(1);
                if *left > 0 || self.lost > 0 {
                    return;
                }
                self.mode = Mode::Searching;
                self.search = search(self.params.cores, self.topology.cores.len() as u16);
                self.frequency.forget(&self.topology);
                self.uncore.forget();
            }
            Mode::Searching if self.lost >= self.params.lost_after => {
                return self.open(Failure::Lost { epochs: self.lost });
            }
            // One epoch in the dark is no reason for anything.
            Mode::Searching if self.lost > 0 => return,
            Mode::Searching => self.failures = 0,
        }
        let active = self.active_set();
        let epoch = epoch_of(reading, &active, &self.search);
        let (wanted, why) = match &mut self.search {
            Search::Constant(cores) => (*cores, Why::Configured),
            Search::Ordered(cores, _) => (*cores, Why::Ordered),
            Search::Slope(controller) => {
                let wanted = controller.handle_epoch(&epoch);
                (wanted, Why::Slope(controller.state()))
            }
            Search::Goal(search) => {
                let wanted = search.handle_epoch(&epoch);
                (wanted, Why::Goal(search.why()))
            }
        };
        self.idle.handle_epoch(&active, &reading.cpus);
        self.frequency.handle_epoch(now, &self.topology, self.active, reading, self.params.lost_after);
        let before = self.active;
        self.put(wanted, why);
        self.uncore.handle_epoch(&self.topology, &reading.service, self.active == before);
        self.set_clocks();
    }

    fn handle_alarm(&mut self, now: Instant) {
        if self.mode != Mode::Searching {
            return;
        }
        let cores = self.topology.cores.len() as u16;
        match &mut self.search {
            Search::Constant(_) => {}
            Search::Ordered(ordered, _) => {
                *ordered = cores;
                self.put(cores, Why::Alarm);
            }
            Search::Slope(controller) => {
                controller.handle_alarm();
                self.put(cores, Why::Alarm);
            }
            Search::Goal(search) => {
                search.handle_alarm();
                self.put(cores, Why::Alarm);
            }
        }
        self.frequency.handle_alarm(now, &self.topology);
        self.uncore.handle_alarm();
        self.set_clocks();
    }

    fn set_goal(&mut self, goal: Goal) {
        if self.params.uncore == UncoreMode::Auto {
            self.params.uncore_goal = Some(goal);
            self.uncore.set_goal(goal);
            if matches!(self.search, Search::Constant(_)) {
                return;
            }
        }
        if let Frequency::Pegasus(own, _) = &mut self.params.frequency {
            *own = goal;
            self.frequency.set_goal(goal);
            // The clock keeps it; how many cores there are is another matter.
            if !matches!(self.search, Search::Goal(_)) {
                return;
            }
        }
        match &mut self.search {
            Search::Goal(search) => search.set_goal(goal),
            Search::Ordered(_, own) => {
                *own = Some(goal);
                self.params.cores = Cores::Ordered(Some(goal));
                return;
            }
            Search::Constant(_) | Search::Slope(_) => {
                let search = GoalSearch::new(GoalParams::default(), goal, self.topology.cores.len() as u16);
                self.search = Search::Goal(Box::new(search));
            }
        }
        let params = match self.params.cores {
            Cores::Goal(_, params) => params,
            Cores::All | Cores::Fixed(_) | Cores::Slope(_) | Cores::Ordered(_) => GoalParams::default(),
        };
        self.params.cores = Cores::Goal(goal, params);
    }

    /// The epoch that ends now puts them into force.
    fn take(&mut self, orders: Orders) {
        if let (Search::Ordered(ordered, _), Some(cores)) = (&mut self.search, orders.cores) {
            *ordered = cores;
        }
        if let Some(limit) = orders.idle_limit {
            let is_none = limit == Duration::MAX;
            self.idle.set_modes(if is_none { IdleMode::Stock } else { IdleMode::Limit(limit) }.into());
        }
        if let (Some(clock), Frequency::Cap(most)) = (orders.clock, self.params.frequency) {
            self.frequency.set_mode(Frequency::Cap(clock.min(most)), &self.topology);
        }
    }

    fn reload(&mut self, params: Params) {
        let before = std::mem::replace(&mut self.params, params.clone());
        self.idle.set_modes(params.idle);
        self.frequency.set_mode(params.frequency, &self.topology);
        self.uncore.set_mode(params.uncore, params.uncore_goal);
        match (before.cores, params.cores, &mut self.search) {
            // The learned state of the service stays.
            (Cores::Goal(_, old), Cores::Goal(goal, new), Search::Goal(search)) if old == new => {
                search.set_goal(goal)
            }
            (old, new, _) if old != new => self.search = search(new, self.topology.cores.len() as u16),
            _ => {}
        }
        if self.mode == Mode::Searching {
            let limits = self.idle.limits(&self.active_set());
            self.decide(limits, &Why::Configured);
            self.set_clocks();
        }
    }

    /// All cores, no limits, and a wait.
    fn open(&mut self, failure: Failure) {
        if self.mode == Mode::Paused {
            return;
        }
        let wait = self.params.retry_epochs.max(1).saturating_mul(1 << self.failures.min(6));
        self.failures += 1;
        self.refused = 0;
        self.mode = Mode::Open { failure: failure.clone(), left: wait };
        self.give_all(Why::Open(failure));
    }
}

#[cfg(test)]
mod tests;
