//! How deeply each CPU may sleep, as several ask for it.

use super::Wish;
use super::laws::strictest;
use super::per_cpu::{Holder, Knob, Taken};
use super::wire::{Answer, Ask};
use crate::cpuidle::control::{IdleActuator, IdleControl, IdleOptions, LimitState};
use crate::cpuidle::idle_table;
use crate::lock::LockError;
use crate::root::Root;
use machine::{CpuId, CpuList, CstateTable, IdleLimit};

/// Idle limits, shared.
pub type IdleHolder = Holder<IdleControl>;

impl IdleHolder {
    /// The idle states of one of these CPUs; empty where the kernel has no cpuidle.
    pub fn table(&self, cpu: CpuId) -> CstateTable {
        idle_table(&self.root, cpu).unwrap_or_default()
    }
}

impl Knob for IdleControl {
    type Limit = IdleLimit;
    type State = LimitState;
    type Means = IdleActuator;
    type Error = LockError;

    const NAME: &str = "idle limits";

    fn open(root: &Root, cpus: &CpuList, name: &str, actuator: IdleActuator) -> Result<Self, LockError> {
        Self::open(root, cpus, IdleOptions { actuator, ..IdleOptions::new(name) })
    }

    fn taken(error: LockError) -> Result<Taken, LockError> {
        match error {
            LockError::Held { cpu, holder, path } => Ok(Taken { cpu, holder, path }),
            other => Err(other),
        }
    }

    fn announce(&mut self, line: &str) {
        self.announce(line);
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

    fn ask(cpu: CpuId, limit: Option<IdleLimit>) -> Ask {
        Ask::Idle { cpu, limit: limit.unwrap_or(IdleLimit::None) }
    }

    fn asked(ask: Ask) -> Option<(CpuId, Option<IdleLimit>)> {
        let Ask::Idle { cpu, limit } = ask else { return None };
        Some((cpu, <Self as Knob>::say(limit)))
    }

    fn answer(state: LimitState) -> Answer {
        Answer::Idle(state)
    }

    fn state(answer: Answer) -> LimitState {
        match answer {
            Answer::Idle(state) => state,
            Answer::Refused(reason) => <Self as Knob>::refused(reason),
            other => <Self as Knob>::refused(format!("its holder answers something else: {other:?}")),
        }
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
