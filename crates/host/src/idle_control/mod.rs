//! Limits how deeply the CPUs that we own may sleep, and puts everything back.
//!
//! An active worker's CPU should halt but not sink so deep that the next request pays for its waking; an inactive
//! worker's CPU should have no limit of ours. The policy says which ([`IdleLimit`]); this says it to the kernel, by
//! one of two actuators:
//!
//! - [`IdleActuator::PmQos`], the default: the CPU's `pm_qos_resume_latency_us`. One number, needs only the file's
//!   permission.
//! - [`IdleActuator::Disable`]: the `disable` file of each state whose exit latency is above the limit. For kernels
//!   whose governor does not heed pm_qos; needs CAP_SYS_ADMIN. The shallowest state is never forbidden.
//!
//! Terms. A limit is *in force* when the file reads so, which is checked after every write. It *has an effect* when
//! the CPU has a state that it forbids: on a virtual machine with one halt state, only polling can.
//!
//! What always holds:
//! - Only CPUs that this process has locked are written, by the kernel's own number. (The published Peafowl code
//!   writes the files of CPU `worker + 1`.)
//! - An administrator's stricter limit stays; ours combines with it as the minimum. Withdrawing ours restores the
//!   text that was there, verbatim. A state that was forbidden before us stays forbidden.
//! - What is missing (permission, cpuidle, a place for the journal) is a [`LimitState`] with its reason, told once by
//!   [`IdleControl::drain_notices`], never an exit: the service runs on with the machine as it is.

use crate::cpuidle::{disable_file, idle_driver, idle_table};
use crate::journal::{ChangeError, Checkpoint, Journal, restore};
use crate::lock::{CpuLocks, LockError};
use crate::pm_qos::{bound, from_text, global_limit, resume_latency_file, stricter, to_text};
use crate::root::{FileError, Root};
use machine::{CpuId, CpuList, Cstate, CstateIndex, CstateKind, CstateTable, Duration, IdleLimit};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// By which of the kernel's interfaces idle states are limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleActuator {
    /// The CPU's resume-latency limit.
    #[default]
    PmQos,
    /// Each state's `disable` file.
    Disable,
}

/// How to open an [`IdleControl`].
pub struct IdleOptions {
    /// Who we are, for whoever finds a CPU taken: `roost serve on 127.0.0.1:11211`.
    pub holder: String,
    /// By which interface.
    pub actuator: IdleActuator,
    /// Called between the steps of each change; for tests that end the process there.
    pub checkpoint: Option<Checkpoint>,
}

impl IdleOptions {
    /// The default actuator in the name of `holder`.
    pub fn new(holder: impl Into<String>) -> Self {
        Self { holder: holder.into(), actuator: IdleActuator::default(), checkpoint: None }
    }
}

/// What became of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitState {
    /// The kernel's files read so.
    InForce {
        /// What holds now, ours and the administrator's combined.
        limit: IdleLimit,
        /// True if the administrator's own limit is stricter than ours and therefore stays.
        kept_stricter: bool,
        /// False if this CPU has no idle state that the limit forbids, so that it changes nothing.
        has_effect: bool,
    },
    /// It could not be put in force.
    Refused {
        /// Why.
        reason: String,
    },
}

impl LimitState {
    /// The limit that the kernel's files state, where they could be set.
    pub fn limit(&self) -> Option<IdleLimit> {
        match self {
            Self::InForce { limit, .. } => Some(*limit),
            Self::Refused { .. } => None,
        }
    }
}

impl fmt::Display for LimitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::InForce { limit, kept_stricter, has_effect } = self else {
            let Self::Refused { reason } = self else { unreachable!() };
            return write!(f, "refused: {reason}");
        };
        match limit {
            IdleLimit::None => f.write_str("none")?,
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

/// The idle limits of the CPUs that this process owns. Everything is put back when it is dropped, so also when a panic
/// unwinds; `std::process::exit` drops nothing, so call [`IdleControl::restore`] before it.
#[derive(Debug)]
pub struct IdleControl {
    actuator: IdleActuator,
    /// Why nothing can be changed at all, or the journal through which everything is.
    journal: Result<Journal, String>,
    cpus: BTreeMap<CpuId, OwnedCpu>,
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
    /// Locks `cpus`, puts back what a dead run left, and prepares to limit them. The only error is that another
    /// process holds one of them; everything else that is missing is told by [`Self::drain_notices`].
    pub fn open(root: &Root, cpus: &CpuList, options: IdleOptions) -> Result<Self, LockError> {
        let mut notices = Vec::new();
        let (locks, journal) = match CpuLocks::take(root, cpus, &options.holder) {
            Err(held @ LockError::Held { .. }) => return Err(held),
            Err(unavailable) => (None, Err(unavailable.to_string())),
            Ok(locks) => {
                match restore(root) {
                    Ok(report) if report.put_back + report.left_alone + report.failed > 0 => {
                        notices.extend(report.lines)
                    }
                    Ok(_) => {}
                    Err(error) => notices.push(error.to_string()),
                }
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
        let mut control =
            Self { actuator: options.actuator, journal, cpus, notices, told: BTreeSet::new(), _locks: locks };
        control.survey(root);
        Ok(control)
    }

    /// Notes what the machine lacks, and what that costs.
    fn survey(&mut self, root: &Root) {
        if let Err(reason) = &self.journal {
            let cost = "idle states stay as the machine has them, so a request may pay for a deep sleep";
            self.notices.push(format!("idle limits are off: {reason}; {cost}"));
        }
        let driver = idle_driver(root);
        let which = |wanted: &dyn Fn(&CstateTable) -> bool| {
            CpuList(self.cpus.iter().filter(|(_, cpu)| wanted(&cpu.table)).map(|(&cpu, _)| cpu).collect())
        };
        let without = which(&|table| table.0.is_empty());
        let shallow = which(&|table| !table.0.is_empty() && !table.has_depth());
        if !without.0.is_empty() {
            self.notices.push(format!(
                "CPU {without}: no usable cpuidle table (driver {}); which idle state they take is not ours to limit, \
                 and their residency is unknown",
                driver.driver.as_deref().unwrap_or("none")
            ));
        }
        if !shallow.0.is_empty() {
            self.notices.push(format!(
                "CPU {shallow}: one halt state only (driver {}), as in a virtual machine; a limit can have no effect \
                 except polling, and how deep the host lets them sleep is its own affair",
                driver.driver.as_deref().unwrap_or("unknown")
            ));
        }
        if let Some(limit @ IdleLimit::ExitLatency(latency)) = global_limit(root) {
            let forbids = which(&|table| table.0.iter().any(|state| state.exit_latency > bound(limit)));
            if !forbids.0.is_empty() {
                self.notices.push(format!(
                    "another process holds /dev/cpu_dma_latency at {latency}: CPU {forbids} cannot sleep deeper than \
                     that, active or not, so parking workers saves less"
                ));
            }
        }
    }

    /// The limit for an active CPU: it halts, and no deeper than its shallowest halt. None where its states are
    /// unknown.
    pub fn active_limit(&self, cpu: CpuId) -> IdleLimit {
        let shallowest = self.cpus.get(&cpu).and_then(|cpu| cpu.table.shallowest_halt());
        shallowest.map_or(IdleLimit::None, IdleLimit::ExitLatency)
    }

    /// The idle states of one of our CPUs; empty where the kernel has no cpuidle.
    pub fn table(&self, cpu: CpuId) -> Option<&CstateTable> {
        self.cpus.get(&cpu).map(|cpu| &cpu.table)
    }

    /// Puts `limit` in force on `cpu`, combined with the administrator's own, and says what came of it.
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
        state
    }

    /// What came of the last limit on each CPU.
    pub fn states(&self) -> impl Iterator<Item = (CpuId, &LimitState)> {
        self.cpus.iter().map(|(&cpu, owned)| (cpu, &owned.state))
    }

    /// What there is to say since the last call: what is missing and what it costs, what a dead run had left. Each
    /// fact comes once.
    pub fn drain_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Puts everything back now, and says what was done, one line per file. Dropping does the same in silence.
    pub fn restore(&mut self) -> Vec<String> {
        let Ok(journal) = &mut self.journal else { return Vec::new() };
        let lines = journal.put_back_all().iter().map(ToString::to_string).collect();
        for owned in self.cpus.values_mut() {
            owned.state =
                LimitState::InForce { limit: IdleLimit::None, kept_stricter: false, has_effect: false };
        }
        lines
    }

    fn try_apply(&mut self, cpu: CpuId, limit: IdleLimit) -> Result<LimitState, String> {
        let Some(owned) = self.cpus.get(&cpu) else {
            return Err("not among the CPUs that this process has locked".to_owned());
        };
        let journal = self.journal.as_mut().map_err(|reason| reason.clone())?;
        match self.actuator {
            IdleActuator::PmQos => limit_latency(journal, cpu, &owned.table, limit),
            IdleActuator::Disable => disable_states(journal, cpu, &owned.table, limit),
        }
        .map_err(|error| reason(&error))
    }

    fn tell_once(&mut self, cpu: CpuId, reason: &str) {
        // The journal's own trouble is already told.
        if self.journal.as_ref().is_err_and(|known| known == reason) || !self.told.insert(reason.to_owned()) {
            return;
        }
        self.notices.push(format!(
            "the idle limit of {cpu} (and of others, if they fail alike) is refused: {reason}; its idle states stay as \
             they are, so a request may pay for a deep sleep"
        ));
    }
}

impl Drop for IdleControl {
    fn drop(&mut self) {
        // The journal before the locks: nobody else may hold a CPU that still has a limit of ours.
        self.journal = Err("ended".to_owned());
    }
}

fn reason(error: &ChangeError) -> String {
    match error {
        ChangeError::File(file) => {
            let name =
                file.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            format!("{name} {}", file.reason())
        }
        ChangeError::Journal { .. } => error.to_string(),
    }
}

fn limit_latency(
    journal: &mut Journal,
    cpu: CpuId,
    table: &CstateTable,
    limit: IdleLimit,
) -> Result<LimitState, ChangeError> {
    let file = resume_latency_file(cpu);
    let earlier_text = journal.earlier(&file)?;
    let nonsense = |text: &str| FileError::Nonsense {
        path: file.clone().into(),
        text: text.to_owned(),
        expected: "`0`, `n/a` or a number of microseconds",
    };
    let earlier = from_text(&earlier_text).ok_or_else(|| nonsense(&earlier_text))?;
    let kept_stricter = bound(earlier) < bound(limit);
    let in_force = if bound(earlier) <= bound(limit) {
        journal.put_back(&file)?;
        earlier
    } else {
        let reads = journal.set(&file, &to_text(stricter(earlier, limit)))?;
        from_text(&reads).ok_or_else(|| nonsense(&reads))?
    };
    let has_effect = table.0.iter().any(|state| state.exit_latency > bound(in_force));
    Ok(LimitState::InForce { limit: in_force, kept_stricter, has_effect })
}

fn disable_states(
    journal: &mut Journal,
    cpu: CpuId,
    table: &CstateTable,
    limit: IdleLimit,
) -> Result<LimitState, ChangeError> {
    // With every state forbidden the kernel takes its default idle routine, which may be the deepest.
    let Some(shallowest) = table.0.iter().map(|state| state.exit_latency).min() else {
        let path = disable_file(cpu, CstateIndex(0)).into();
        return Err(FileError::Missing { path }.into());
    };
    let forbidden_above = bound(limit).max(shallowest);
    let (mut has_effect, mut kept_stricter) = (false, false);
    let mut deepest_left: Option<&Cstate> = None;
    for (index, state) in table.0.iter().enumerate() {
        let file = disable_file(cpu, CstateIndex(index as u8));
        let mut reads = journal.earlier(&file)?;
        if state.exit_latency > forbidden_above {
            has_effect = true;
            // Kernels count reasons here (bit 0 the user's, bit 1 the driver's): whatever is not 0 forbids already.
            if reads == "0" {
                reads = journal.set(&file, "1")?;
            }
        } else {
            journal.put_back(&file)?;
            kept_stricter |= reads != "0";
        }
        if reads == "0" && deepest_left.is_none_or(|deepest| state.exit_latency >= deepest.exit_latency) {
            deepest_left = Some(state);
        }
    }
    let in_force = match (limit, deepest_left) {
        (IdleLimit::None, _) => IdleLimit::None,
        (limit, Some(state)) if state.kind == CstateKind::Halting => {
            IdleLimit::ExitLatency(bound(limit).max(state.exit_latency))
        }
        _ => IdleLimit::ExitLatency(Duration::ZERO),
    };
    Ok(LimitState::InForce { limit: in_force, kept_stricter, has_effect })
}

#[cfg(test)]
mod tests;
