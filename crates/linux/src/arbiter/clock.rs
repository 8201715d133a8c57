//! How fast each CPU may run, as several ask for it.
//!
//! A service that does not care for a CPU's clock has no say in it; one that cares and asks for nothing just now wants all of it.
//! So a cap is in force on a CPU while all that have a say there have one, and it is the fastest of them. By which of the
//! kernel's means is the arbiter's choice: what is asked for is a clock, whatever the means makes of it.

use super::Wish;
use super::laws::fastest;
use super::per_cpu::{Knob, Shared, Taken};
use crate::cpufreq::control::{
    FrequencyActuator, FrequencyControl, FrequencyDrift, FrequencyError, FrequencyOptions, FrequencyState,
};
use crate::lock::LockError;
use crate::root::Root;
use machine::{CpuId, CpuList, FrequencyLimit};

/// Clocks, shared.
pub type ClockLimits = Shared<FrequencyControl>;

/// By what speed is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockMeans {
    /// `None`: the clock, in the way that its governor takes.
    pub actuator: Option<FrequencyActuator>,
    /// A model-specific register may be written, which taints the kernel until it is booted again.
    pub allow_msr: bool,
}

impl ClockLimits {
    /// Another program's changes of the clocks that are held.
    pub fn drift(&self) -> Vec<FrequencyDrift> {
        self.held().knobs().flat_map(FrequencyControl::drift).collect()
    }

    /// Sets once more what is asked for.
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
            // Who names the speed wants the governor that takes one.
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
