//! The idle limit of each CPU, combined from several requests.

use super::Wish;
use super::laws::strictest;
use super::per_cpu::{Knob, Shared, Taken};
use crate::cpuidle::control::{IdleActuator, IdleControl, IdleOptions, LimitState};
use crate::cpuidle::idle_table;
use crate::lock::LockError;
use crate::root::Root;
use machine::{CpuId, CpuList, CstateTable, IdleLimit};

pub type IdleLimits = Shared<IdleControl>;

impl IdleLimits {
    /// The idle states of a CPU; empty where the kernel has no cpuidle.
    pub fn table(&self, cpu: CpuId) -> CstateTable {
        idle_table(self.lock().root(), cpu).unwrap_or_default()
    }
}

impl Knob for IdleControl {
    type Limit = IdleLimit;
    type State = LimitState;
    type Means = IdleActuator;
    type Error = LockError;

    const NAME: &str = "idle limits";
    const IS_SHARED: bool = false;

    fn open(root: &Root, cpus: &CpuList, name: &str, actuator: IdleActuator) -> Result<Self, LockError> {
        Self::open(root, cpus, IdleOptions { actuator, ..IdleOptions::new(name) })
    }

    fn taken(error: LockError) -> Result<Taken, LockError> {
        match error {
            LockError::Held { cpu, holder, path } => Ok(Taken { cpu, holder, path }),
            other => Err(other),
        }
    }

    fn put(&mut self, cpu: CpuId, limit: Option<IdleLimit>) -> LimitState {
        self.apply(cpu, limit.unwrap_or(IdleLimit::None))
    }

    fn together(asked: impl Iterator<Item = IdleLimit>) -> Option<IdleLimit> {
        strictest(asked)
    }

    fn say(limit: IdleLimit) -> Option<IdleLimit> {
        (limit != IdleLimit::None).then_some(limit)
    }

    fn refused(reason: String) -> LimitState {
        LimitState::Refused { reason }
    }

    fn is_refused(state: &LimitState) -> bool {
        matches!(state, LimitState::Refused { .. })
    }

    fn wish(limit: IdleLimit) -> Wish {
        Wish::Idle(limit)
    }

    fn drain_notices(&mut self) -> Vec<String> {
        self.drain_notices()
    }

    fn restore(&mut self) -> Vec<String> {
        self.restore()
    }
}
