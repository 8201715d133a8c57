//! Limits how deeply, or how little, our CPUs may sleep, and puts everything back.
//!
//! An active worker's CPU should halt, but not so deep that the next request pays for the wake-up.
//! An inactive worker's CPU should have no limit of ours. The policy decides ([`IdleLimit`]); this
//! module tells the kernel, by one of two actuators:
//!
//! - [`IdleActuator::PmQos`], the default: the CPU's `pm_qos_resume_latency_us`. One number, needs
//!   only the file's permission.
//! - [`IdleActuator::Disable`]: the `disable` file of each state whose exit latency is above the
//!   limit. For kernels whose governor does not heed pm_qos; needs CAP_SYS_ADMIN. The shallowest
//!   state is never forbidden.
//!
//! That is a *ceiling*. The opposite extreme, every sleep in the deepest state
//! ([`IdleLimit::Deepest`]), takes a *floor* ([`IdleControl::forbid_shallower`]). The kernel has no
//! interface for a floor, so it is the `disable` files of all shallower states, polling among them,
//! whatever the actuator. A CPU has one of the two from us at a time; setting one withdraws the
//! other.
//!
//! Terms:
//! - A limit is *in force* when the file reads so, which is checked after every write.
//! - It *has an effect* when the CPU has a state that it forbids: on a virtual machine with one
//!   halt state, only polling can.
//!
//! Invariants:
//! - Only CPUs that this process has locked are written, by the kernel's own number. (The published
//!   Peafowl code writes the files of CPU `worker + 1`.)
//! - An administrator's stricter limit stays; ours combines with it as the minimum. Withdrawing
//!   ours restores the text that was there, verbatim. A state that was forbidden before us stays
//!   forbidden.
//! - Under a floor a CPU keeps a state that halts: a floor above everything that is allowed is
//!   refused. States are freed before others are forbidden, so this also holds between any two
//!   steps.
//! - A missing permission, cpuidle or place for the journal is a [`LimitState`] with its reason,
//!   told once by [`IdleControl::drain_notices`], never an exit: the service runs on with the
//!   machine as it is.

mod halt_poll;
mod window;

use crate::arbiter::YIELDS;
use crate::cpuidle::pm_qos::{
    bound, from_text, global_limit, latency_device, resume_latency_file, stricter, to_text,
};
use crate::cpuidle::{disable_file, idle_driver, idle_table};
use crate::journal::{ChangeError, Checkpoint, Journal, restore_at_start};
use crate::lock::{CpuLocks, LockError};
use crate::root::{FileError, Root};
pub(crate) use halt_poll::is_parameter;
use machine::{CpuId, CpuList, Cstate, CstateIndex, CstateKind, CstateTable, Duration, IdleLimit};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use window::Window;

/// The kernel interface that limits idle states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleActuator {
    /// The CPU's resume-latency limit.
    #[default]
    PmQos,
    /// Each state's `disable` file.
    Disable,
}

pub struct IdleOptions {
    /// Our name, for a process that finds a CPU taken: `roost serve on 127.0.0.1:11211`.
    pub holder: String,
    pub actuator: IdleActuator,
    /// A daemon may have these CPUs: the holder lets go of them as soon as one listens.
    pub yields: bool,
    /// Called between the steps of each change; for tests that end the process there.
    pub checkpoint: Option<Checkpoint>,
}

impl IdleOptions {
    /// The default actuator in the name of `holder`.
    pub fn new(holder: impl Into<String>) -> Self {
        Self { holder: holder.into(), actuator: IdleActuator::default(), yields: false, checkpoint: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitState {
    InForce {
        /// The limit in force, ours and the administrator's combined.
        limit: IdleLimit,
        /// True if the administrator's own limit is stricter than ours and therefore stays.
        kept_stricter: bool,
        /// False if this CPU has no idle state that the limit forbids, so it changes nothing.
        has_effect: bool,
    },
    /// Only states at least this deep: the kernel's files read so.
    Floor {
        /// The shallowest of them, by its driver's name.
        name: String,
        /// True if the kernel did not let us forbid polling.
        may_poll: bool,
        /// False if this CPU has no idle state that the floor forbids.
        has_effect: bool,
    },
    /// It could not be put in force.
    Refused { reason: String },
}

impl LimitState {
    /// The ceiling that the kernel's files state, where one could be set.
    pub fn limit(&self) -> Option<IdleLimit> {
        match self {
            Self::InForce { limit, .. } => Some(*limit),
            Self::Floor { .. } | Self::Refused { .. } => None,
        }
    }

    /// True if it is in force and forbids something.
    pub fn has_effect(&self) -> bool {
        matches!(self, Self::InForce { has_effect: true, .. } | Self::Floor { has_effect: true, .. })
    }
}

impl fmt::Display for LimitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, kept_stricter, has_effect) = match self {
            Self::InForce { limit, kept_stricter, has_effect } => (limit, kept_stricter, has_effect),
            Self::Floor { name, may_poll, has_effect } => {
                write!(f, "{name} and deeper")?;
                if *may_poll {
                    f.write_str(" (and polling, which this kernel does not let us forbid)")?;
                }
                if !has_effect {
                    f.write_str(" (without effect: this CPU has no shallower state)")?;
                }
                return Ok(());
            }
            Self::Refused { reason } => return write!(f, "refused: {reason}"),
        };
        match limit {
            IdleLimit::None => f.write_str("none")?,
            IdleLimit::Deepest => f.write_str("the deepest state")?,
            IdleLimit::ExitLatency(Duration::ZERO) => f.write_str("polling only")?,
            IdleLimit::ExitLatency(latency) => write!(f, "exit latency <= {latency}")?,
        }
        if *kept_stricter {
            f.write_str(" (the administrator's own, stricter than ours)")?;
        }
        if !has_effect && *limit != IdleLimit::None {
            f.write_str(" (without effect: this CPU has no deeper state)")?;
        }
        Ok(())
    }
}

/// The idle limits of the CPUs that this process owns. Drop puts everything back, so also when a
/// panic unwinds; `std::process::exit` drops nothing, so call [`IdleControl::restore`] before it.
#[derive(Debug)]
pub struct IdleControl {
    root: Root,
    actuator: IdleActuator,
    /// The journal that all changes go through, or why nothing can be changed.
    journal: Result<Journal, String>,
    cpus: BTreeMap<CpuId, OwnedCpu>,
    /// CPUs that windows keep awake.
    windows: BTreeMap<CpuId, Window>,
    notices: Vec<String>,
    told: BTreeSet<String>,
    /// Dropped last, after the journal has put everything back.
    _locks: Option<CpuLocks>,
}

#[derive(Debug)]
struct OwnedCpu {
    table: CstateTable,
    state: LimitState,
}

impl IdleControl {
    /// Locks `cpus`, puts back the settings that a dead run left, and prepares to limit them. The
    /// only error is that another process holds one of them; [`Self::drain_notices`] has everything
    /// else that is missing.
    pub fn open(root: &Root, cpus: &CpuList, options: IdleOptions) -> Result<Self, LockError> {
        let mut notices = Vec::new();
        let (locks, journal) = match CpuLocks::take(root, cpus, &options.holder) {
            Err(refused) if refused.is_refusal() => return Err(refused),
            Err(unavailable) => (None, Err(unavailable.to_string())),
            Ok(mut locks) => {
                if options.yields {
                    locks.announce(YIELDS);
                }
                notices.extend(restore_at_start(root)?);
                let journal = Journal::begin(root, &options.holder, options.checkpoint);
                (Some(locks), journal.map_err(|error| error.to_string()))
            }
        };
        let untouched =
            LimitState::InForce { limit: IdleLimit::None, kept_stricter: false, has_effect: false };
        let owned = |&cpu| {
            let table = idle_table(root, cpu).unwrap_or_default();
            (cpu, OwnedCpu { table, state: untouched.clone() })
        };
        let cpus = cpus.0.iter().map(owned).collect();
        let mut control = Self {
            root: root.clone(),
            actuator: options.actuator,
            journal,
            cpus,
            windows: BTreeMap::new(),
            notices,
            told: BTreeSet::new(),
            _locks: locks,
        };
        control.survey();
        Ok(control)
    }

    /// Notes the machine's gaps, and their cost.
    fn survey(&mut self) {
        if let Err(reason) = &self.journal {
            let cost = "idle states stay as the machine has them, so a request may pay for a deep sleep";
            self.notices.push(format!("idle limits are off: {reason}; {cost}"));
        }
        let driver = idle_driver(&self.root);
        let which = |wanted: &dyn Fn(&CstateTable) -> bool| {
            CpuList(self.cpus.iter().filter(|(_, cpu)| wanted(&cpu.table)).map(|(&cpu, _)| cpu).collect())
        };
        let without = which(&|table| table.0.is_empty());
        let shallow = which(&|table| !table.0.is_empty() && !table.has_depth());
        if !without.0.is_empty() {
            self.notices.push(format!(
                "CPU {without}: no usable cpuidle table (driver {}); which idle state they take is \
                 not ours to limit, \
                 and their residency is unknown",
                driver.driver.as_deref().unwrap_or("none")
            ));
        }
        if !shallow.0.is_empty() {
            self.notices.push(format!(
                "CPU {shallow}: one halt state only (driver {}), as in a virtual machine; a limit \
                 can have no effect \
                 except polling, and how deep the host lets them sleep is its own affair",
                driver.driver.as_deref().unwrap_or("unknown")
            ));
        }
        if let Some(limit @ IdleLimit::ExitLatency(latency)) = global_limit(&self.root) {
            let forbids = which(&|table| table.0.iter().any(|state| state.exit_latency > bound(limit)));
            if !forbids.0.is_empty() {
                let device = latency_device(&self.root);
                self.notices.push(format!(
                    "another process holds {device} at {latency}: CPU {forbids} cannot sleep deeper than \
                     that, active or not, so parking workers saves less"
                ));
            }
        }
    }

    /// The limit for an active CPU: it halts, and no deeper than its shallowest halt. None where
    /// its states are unknown.
    pub fn active_limit(&self, cpu: CpuId) -> IdleLimit {
        let shallowest = self.cpus.get(&cpu).and_then(|cpu| cpu.table.shallowest_halt());
        shallowest.map_or(IdleLimit::None, IdleLimit::ExitLatency)
    }

    /// The idle states of one of our CPUs; empty where the kernel has no cpuidle.
    pub fn table(&self, cpu: CpuId) -> Option<&CstateTable> {
        self.cpus.get(&cpu).map(|cpu| &cpu.table)
    }

    /// Puts `limit` in force on `cpu`, combined with the administrator's own, and returns the
    /// outcome.
    pub fn apply(&mut self, cpu: CpuId, limit: IdleLimit) -> LimitState {
        let state = match self.try_apply(cpu, limit) {
            Ok(state) => state,
            Err(reason) => {
                self.tell_once(cpu, &reason);
                LimitState::Refused { reason }
            }
        };
        if let Some(owned) = self.cpus.get_mut(&cpu) {
            owned.state = state.clone();
        }
        self.renew_window(cpu);
        state
    }

    /// The deepest state that `cpu` may take without us: it halts, nothing has forbidden it, and no
    /// other latency limit excludes it. None where no state is known or left.
    pub fn deepest_allowed(&mut self, cpu: CpuId) -> Option<CstateIndex> {
        let table = &self.cpus.get(&cpu)?.table;
        let allowed = allowed(self.journal.as_mut().ok()?, &self.root, cpu, table).ok()?;
        let halting = (0u8..).zip(&table.0).zip(allowed).filter(|(_, is_allowed)| *is_allowed);
        halting.max_by_key(|((_, state), _)| depth(state)).map(|((index, _), _)| CstateIndex(index))
    }

    /// Forbids every state of `cpu` that is shallower than this one, polling among them, and
    /// returns the outcome. Refused without a change if no state that halts would be left.
    pub fn forbid_shallower(&mut self, cpu: CpuId, than: CstateIndex) -> LimitState {
        let state = match self.try_forbid_shallower(cpu, than) {
            Ok(state) => state,
            Err(reason) => LimitState::Refused { reason },
        };
        if let Some(owned) = self.cpus.get_mut(&cpu) {
            owned.state = state.clone();
        }
        state
    }

    /// The outcome of the last limit on each CPU.
    pub fn states(&self) -> impl Iterator<Item = (CpuId, &LimitState)> {
        self.cpus.iter().map(|(&cpu, owned)| (cpu, &owned.state))
    }

    /// The notices since the last call: missing features with their cost, and the remains of a dead
    /// run. Each fact comes once.
    pub fn drain_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Puts everything back now, and returns one line per file. Dropping does the same in silence.
    pub fn restore(&mut self) -> Vec<String> {
        self.windows.clear();
        let Ok(journal) = &mut self.journal else { return Vec::new() };
        let lines = journal.put_back_all().iter().map(ToString::to_string).collect();
        for owned in self.cpus.values_mut() {
            owned.state =
                LimitState::InForce { limit: IdleLimit::None, kept_stricter: false, has_effect: false };
        }
        lines
    }

    fn try_apply(&mut self, cpu: CpuId, limit: IdleLimit) -> Result<LimitState, String> {
        let owned = self.cpus.get(&cpu).ok_or(NOT_OURS)?;
        if limit == IdleLimit::Deepest {
            let deepest =
                self.deepest_allowed(cpu).ok_or("no idle state of this CPU is known and allowed")?;
            return self.try_forbid_shallower(cpu, deepest);
        }
        let journal = self.journal.as_mut().map_err(|reason| reason.clone())?;
        match self.actuator {
            IdleActuator::PmQos => free_states(journal, cpu, &owned.table)
                .and_then(|()| limit_latency(journal, cpu, &owned.table, limit)),
            IdleActuator::Disable => disable_states(journal, cpu, &owned.table, limit),
        }
        .map_err(|error| error.reason())
    }

    fn try_forbid_shallower(&mut self, cpu: CpuId, than: CstateIndex) -> Result<LimitState, String> {
        let table = &self.cpus.get(&cpu).ok_or(NOT_OURS)?.table;
        let journal = self.journal.as_mut().map_err(|reason| reason.clone())?;
        if table.0.is_empty() {
            return Err("this kernel does not offer idle states to choose from".to_owned());
        }
        let Some(floor) = table.state(than) else {
            return Err(format!("no state {}; the deepest is {}", than.0, table.0.len() - 1));
        };
        let allowed = allowed(journal, &self.root, cpu, table).map_err(|error| error.reason())?;
        let is_left =
            table.0.iter().zip(allowed).any(|(state, is_allowed)| is_allowed && !is_shallower(state, floor));
        if !is_left {
            return Err(format!(
                "{} and whatever is deeper is forbidden already, so no state that halts would be left",
                floor.name
            ));
        }
        let done = raise_floor(journal, cpu, table, floor);
        if done.is_err() {
            // Half a floor is none. Settings that cannot be undone now stay in the journal.
            let _ = free_states(journal, cpu, table);
        }
        done.map_err(|error| error.reason())
    }

    fn tell_once(&mut self, cpu: CpuId, reason: &str) {
        // The journal's own trouble was already told.
        if self.journal.as_ref().is_err_and(|known| known == reason) || !self.told.insert(reason.to_owned()) {
            return;
        }
        self.notices.push(format!(
            "the idle limit of {cpu} (and of others, if they fail alike) is refused: {reason}; its \
             idle states stay as \
             they are, so a request may pay for a deep sleep"
        ));
    }
}

impl Drop for IdleControl {
    fn drop(&mut self) {
        // The journal before the locks: no other process may hold a CPU that still has a limit of
        // ours.
        self.journal = Err("ended".to_owned());
    }
}

fn limit_latency(
    journal: &mut Journal,
    cpu: CpuId,
    table: &CstateTable,
    limit: IdleLimit,
) -> Result<LimitState, ChangeError> {
    let file = resume_latency_file(cpu);
    let earlier = earlier_limit(journal, cpu)?;
    let kept_stricter = bound(earlier) < bound(limit);
    let in_force = if bound(earlier) <= bound(limit) {
        journal.put_back(&file)?;
        earlier
    } else {
        let reads = journal.set(&file, &to_text(stricter(earlier, limit)))?;
        latency_limit(cpu, &reads)?
    };
    let has_effect = table.0.iter().any(|state| state.exit_latency > bound(in_force));
    Ok(LimitState::InForce { limit: in_force, kept_stricter, has_effect })
}

/// The latency limit that `cpu` would have without us.
fn earlier_limit(journal: &mut Journal, cpu: CpuId) -> Result<IdleLimit, FileError> {
    latency_limit(cpu, &journal.earlier(&resume_latency_file(cpu))?)
}

fn latency_limit(cpu: CpuId, text: &str) -> Result<IdleLimit, FileError> {
    from_text(text).ok_or_else(|| FileError::Nonsense {
        path: resume_latency_file(cpu).into(),
        text: text.to_owned(),
        expected: "`0`, `n/a` or a number of microseconds",
    })
}

fn disable_states(
    journal: &mut Journal,
    cpu: CpuId,
    table: &CstateTable,
    limit: IdleLimit,
) -> Result<LimitState, ChangeError> {
    // With every state forbidden the kernel takes its default idle routine, which may be the
    // deepest.
    let Some(shallowest) = table.0.iter().map(|state| state.exit_latency).min() else {
        let path = disable_file(cpu, CstateIndex(0)).into();
        return Err(FileError::Missing { path }.into());
    };
    let forbidden_above = bound(limit).max(shallowest);
    let is_above = |state: &Cstate| state.exit_latency > forbidden_above;
    let reads = forbid(journal, cpu, table, is_above)?;
    let left = || table.0.iter().zip(&reads).filter(|(_, reads)| *reads == "0").map(|(state, _)| state);
    let in_force = match (limit, left().max_by_key(|state| state.exit_latency)) {
        (IdleLimit::None, _) => IdleLimit::None,
        (limit, Some(state)) if state.kind == CstateKind::Halting => {
            IdleLimit::ExitLatency(bound(limit).max(state.exit_latency))
        }
        _ => IdleLimit::ExitLatency(Duration::ZERO),
    };
    Ok(LimitState::InForce {
        limit: in_force,
        kept_stricter: table.0.iter().zip(&reads).any(|(state, reads)| !is_above(state) && reads != "0"),
        has_effect: table.0.iter().any(is_above),
    })
}

/// `floor` is allowed, or something deeper.
fn raise_floor(
    journal: &mut Journal,
    cpu: CpuId,
    table: &CstateTable,
    floor: &Cstate,
) -> Result<LimitState, ChangeError> {
    // A ceiling of ours would leave nothing between the two.
    journal.put_back(&resume_latency_file(cpu))?;
    let reads = forbid(journal, cpu, table, |state| is_shallower(state, floor))?;
    let mut may_poll = false;
    for ((index, state), reads) in (0u8..).zip(&table.0).zip(reads) {
        if reads != "0" || !is_shallower(state, floor) {
            continue;
        }
        if state.kind == CstateKind::Halting {
            let path = disable_file(cpu, CstateIndex(index)).into();
            return Err(
                FileError::Nonsense { path, text: reads, expected: "`1`, which was just written" }.into()
            );
        }
        may_poll = true;
    }
    let has_effect = table.0.iter().any(|state| is_shallower(state, floor));
    Ok(LimitState::Floor { name: floor.name.clone(), may_poll, has_effect })
}

/// Sets the `disable` files of those states, withdraws ours from the others, and returns the value
/// of each.
fn forbid(
    journal: &mut Journal,
    cpu: CpuId,
    table: &CstateTable,
    is_forbidden: impl Fn(&Cstate) -> bool,
) -> Result<Vec<String>, ChangeError> {
    let states =
        || (0u8..).zip(&table.0).map(|(index, state)| (disable_file(cpu, CstateIndex(index)), state));
    // First of all, so that a state is left meanwhile.
    for (file, _) in states().filter(|(_, state)| !is_forbidden(state)) {
        journal.put_back(&file)?;
    }
    let mut all = Vec::with_capacity(table.0.len());
    for (file, state) in states() {
        let mut reads = journal.earlier(&file)?;
        // Kernels count reasons here (bit 0 the user's, bit 1 the driver's): whatever is not 0
        // forbids already.
        if is_forbidden(state) && reads == "0" {
            match journal.set(&file, "1") {
                Ok(now) => reads = now,
                // Polling wastes power and costs no latency, so a kernel may keep it for itself.
                Err(ChangeError::File(_)) if state.kind == CstateKind::Polling => {}
                Err(error) => return Err(error),
            }
        }
        all.push(reads);
    }
    Ok(all)
}

/// Withdraws our values of the `disable` files.
fn free_states(journal: &mut Journal, cpu: CpuId, table: &CstateTable) -> Result<(), ChangeError> {
    (0u8..).zip(&table.0).try_for_each(|(index, _)| journal.put_back(&disable_file(cpu, CstateIndex(index))))
}

/// For each state: whether it halts and may be taken without us.
fn allowed(
    journal: &mut Journal,
    root: &Root,
    cpu: CpuId,
    table: &CstateTable,
) -> Result<Vec<bool>, ChangeError> {
    let own = match earlier_limit(journal, cpu) {
        // A kernel without the file has no such limit either.
        Err(FileError::Missing { .. }) => IdleLimit::None,
        own => own?,
    };
    let latency_max = bound(stricter(own, global_limit(root).unwrap_or(IdleLimit::None)));
    let mut all = Vec::with_capacity(table.0.len());
    for (index, state) in (0u8..).zip(&table.0) {
        let reads = journal.earlier(&disable_file(cpu, CstateIndex(index)))?;
        all.push(state.kind == CstateKind::Halting && reads == "0" && state.exit_latency <= latency_max);
    }
    Ok(all)
}

/// The order of states from shallow to deep. Polling comes first: a halt may advertise a latency of
/// zero as well.
fn depth(state: &Cstate) -> (bool, Duration, Duration) {
    (state.kind == CstateKind::Halting, state.exit_latency, state.target_residency)
}

fn is_shallower(state: &Cstate, floor: &Cstate) -> bool {
    depth(state) < depth(floor)
}

const NOT_OURS: &str = "not among the CPUs that this process has locked";

#[cfg(test)]
mod tests;
