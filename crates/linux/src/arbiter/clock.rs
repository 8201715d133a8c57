//! The frequency limit of each CPU, combined from several requests.
//!
//! A service that is indifferent to a CPU's clock has no say in it. A service that cares and asks
//! for nothing at the moment wants the full clock. So a cap is in force on a CPU while every asker
//! with a say there has a cap, and the cap in force is the fastest of them. The arbiter chooses the
//! kernel interface; an asker names a clock.

use super::Wish;
use super::laws::fastest;
use super::per_cpu::{Knob, Shared, Taken};
use crate::cpufreq::control::{
    FrequencyActuator, FrequencyControl, FrequencyDrift, FrequencyError, FrequencyOptions, FrequencyState,
};
use crate::lock::LockError;
use crate::root::Root;
use machine::{CpuId, CpuList, FrequencyLimit};

pub type ClockLimits = Shared<FrequencyControl>;

/// The interface that sets the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockMeans {
    /// `None`: the interface that suits the current governor.
    pub actuator: Option<FrequencyActuator>,
    /// Allows writes of model-specific registers, which taint the kernel until it is booted again.
    pub allow_msr: bool,
}

/// The means of the uncore's clock.
pub(super) const UNCORE: ClockMeans =
    ClockMeans { actuator: Some(FrequencyActuator::Uncore), allow_msr: false };

impl ClockLimits {
    /// Changes that another program made to the clocks held here.
    pub fn drift(&self) -> Vec<FrequencyDrift> {
        self.held().knobs().flat_map(FrequencyControl::drift).collect()
    }

    /// Writes the limits in force again.
    pub fn reassert(&self) -> Vec<FrequencyState> {
        self.held().knobs().flat_map(FrequencyControl::reassert).collect()
    }
}

impl Knob for FrequencyControl {
    type Limit = FrequencyLimit;
    type State = FrequencyState;
    type Means = ClockMeans;
    type Error = FrequencyError;

    const NAME: &str = "clocks";
    const IS_SHARED: bool = true;

    fn open(root: &Root, cpus: &CpuList, name: &str, means: ClockMeans) -> Result<Self, FrequencyError> {
        let options = FrequencyOptions {
            actuator: means.actuator,
            allow_msr: means.allow_msr,
            // An asker that names this actuator wants the governor that takes a speed.
            may_replace_governor: means.actuator == Some(FrequencyActuator::SetSpeed),
            ..FrequencyOptions::new(name)
        };
        Self::open(root, cpus, options)
    }

    fn taken(error: FrequencyError) -> Result<Taken, FrequencyError> {
        match error {
            FrequencyError::Lock(LockError::Held { cpu, holder, path }) => Ok(Taken { cpu, holder, path }),
            other => Err(other),
        }
    }

    fn put(&mut self, cpu: CpuId, limit: Option<FrequencyLimit>) -> FrequencyState {
        self.limit(cpu, limit.unwrap_or(FrequencyLimit::None))
    }

    fn together(asked: impl Iterator<Item = FrequencyLimit>) -> Option<FrequencyLimit> {
        fastest(asked)
    }

    fn say(limit: FrequencyLimit) -> Option<FrequencyLimit> {
        Some(limit)
    }

    fn refused(reason: String) -> FrequencyState {
        FrequencyState::Refused { reason }
    }

    fn is_refused(state: &FrequencyState) -> bool {
        matches!(state, FrequencyState::Refused { .. })
    }

    fn wish(limit: FrequencyLimit) -> Wish {
        Wish::Clock(limit)
    }

    fn drain_notices(&mut self) -> Vec<String> {
        self.drain_notices()
    }

    fn restore(&mut self) -> Vec<String> {
        self.release()
    }
}
