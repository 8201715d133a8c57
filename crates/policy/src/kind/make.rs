//! From a word's parameters to its policy.

use super::{CorePolicy, FrequencyPolicy, IdlePolicy, NapPolicy, Policy, WakeDelayPolicy};
use crate::frequency::PointTable;
use crate::registry::Queues;
use crate::wake_plan::{self, Predictor};
use crate::{Scheduling, SleepState, peafowl, quiescence, staging};
use machine::{CpuId, Duration, Goal, Platform, WorkerId};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;

/// All that a policy is made from.
#[derive(Clone, Copy, Debug)]
pub struct Making<'a> {
    pub word: &'a str,
    /// The word's parameters, after their check.
    pub settings: &'a Value,
    /// There is one if the entry needs one.
    pub goal: Option<Goal>,
    pub platform: &'a Platform,
    /// CPUs that serve requests, from number 0.
    pub workers: u16,
    pub queues: Queues,
}

impl Making<'_> {
    /// # Panics
    /// If the parameters were not checked against the entry's table.
    pub fn params<P: DeserializeOwned>(&self) -> P {
        serde_json::from_value(self.settings.clone()).expect("parameters were checked")
    }

    /// # Panics
    /// If the entry says that it needs no goal, and there is none.
    pub fn goal(&self) -> Goal {
        self.goal.expect("a policy that needs a goal has one")
    }

    /// # Panics
    /// On a platform that was not checked.
    pub fn points(&self) -> PointTable {
        PointTable::new(&self.platform.frequencies).expect("a checked platform has frequencies")
    }

    /// The idle states from shallow to deep, with the exit latencies that the machine has.
    pub fn states(&self) -> Vec<SleepState> {
        SleepState::all(self.platform)
    }

    /// The deepest idle state as the machine advertises it; `None` without one.
    pub fn deepest_advertised(&self) -> Option<SleepState> {
        let state = self.platform.cstates.0.last()?;
        Some(SleepState {
            exit_latency: state.exit_latency,
            power: state.power.unwrap_or_default(),
            wake_joules: self.platform.wake_joules().pop()?,
        })
    }

    pub fn cpus(&self) -> usize {
        self.platform.cpus()
    }

    /// Number of physical cores. The threads of core `c` are CPU `c` and, in steps of this number,
    /// the CPUs after it.
    pub fn cores(&self) -> usize {
        self.cpus() / usize::from(self.platform.threads_per_core)
    }
}

#[derive(Clone, Copy)]
pub enum Make {
    /// The driver needs nothing: its stock behaviour, or a policy of the driver's own.
    Nothing,
    Cores(fn(&Making<'_>) -> Box<dyn CorePolicy>),
    /// Connections on workers, where requests go by connection.
    Placement(Placement),
    Nap(fn(&Making<'_>) -> Box<dyn NapPolicy>),
    Idle(fn(&Making<'_>, &super::idle::IdleTable) -> Box<dyn IdlePolicy>),
    Frequency(fn(&Making<'_>) -> Box<dyn FrequencyPolicy>),
    Uncore(fn(&Making<'_>) -> Box<dyn Policy>),
    /// `None` on a machine without an idle state.
    WakeDelay(fn(&Making<'_>) -> Option<Box<dyn WakeDelayPolicy>>),
    Anticipation(fn(&Making<'_>) -> Anticipation),
    Quiescence(fn(&Making<'_>) -> quiescence::Params),
    /// And the time in which a request is to be answered.
    Staging(fn(&Making<'_>) -> (staging::Params, Duration)),
}

impl fmt::Debug for Make {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Cores(_) => "Cores",
            Self::Placement(_) => "Placement",
            Self::Nap(_) => "Nap",
            Self::Idle(_) => "Idle",
            Self::Frequency(_) => "Frequency",
            Self::Uncore(_) => "Uncore",
            Self::WakeDelay(_) => "WakeDelay",
            Self::Anticipation(_) => "Anticipation",
            Self::Quiescence(_) => "Quiescence",
            Self::Staging(_) => "Staging",
        })
    }
}

pub type Workers = [(WorkerId, CpuId)];

/// Makes a policy that counts cores.
pub type MakeCores = fn(&Making<'_>) -> Box<dyn CorePolicy>;

#[derive(Clone, Copy)]
pub struct Placement {
    pub place: fn(&Making<'_>, &Workers) -> Placed,
    /// The same policy for work that any core can take; `None`: it needs connections.
    pub cores: Option<MakeCores>,
    /// Where connections are placed, `cores` still says on how many workers.
    pub is_counted: bool,
}

/// The scheduler of a service by connections, and the parameters of its workers.
pub struct Placed {
    pub scheduling: Scheduling,
    pub params: peafowl::Params,
}

/// Waking CPUs before a device answers.
pub struct Anticipation {
    pub planner: wake_plan::Params,
    /// The time that the planner subtracts; `None`: the true exit latency of the deepest state that
    /// the CPU may enter.
    pub exit_latency: Option<Duration>,
    /// A CPU stays awake for a late answer, so many target residencies of that state.
    pub overtime: f64,
    pub predictor: Predictor,
}
