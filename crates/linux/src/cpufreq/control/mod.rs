//! Limits how fast our CPUs may run, and puts everything back.
//!
//! A policy requests a *cap* or a *speed* for one CPU ([`FrequencyLimit`]). Machines set speed by
//! *domain*, the CPUs that can only change together. So each CPU keeps its request, and its domain
//! gets the fastest of them: no CPU is slowed because a neighbour needs less. A CPU without a
//! request wants full speed, and frees its domain.
//!
//! | [`FrequencyActuator`] | domain | setting | file |
//! |---|---|---|---|
//! | none named | cpufreq policy | a clock, under `userspace`; else bounds of it | `clock` |
//! | `SetSpeed`, `Bounds` | cpufreq policy | that one of the two | `clock` |
//! | `Preference` | cpufreq policy | a hint to hardware that chooses by itself | `preference` |
//! | `DutyCycle` | physical core | for which part of the time the clock runs | `duty_cycle` |
//! | `PowerCap` | socket | the average power that it may take | `power_cap` |
//! | `Uncore` | socket or die | the clock of caches, mesh and memory controllers | `uncore` |
//!
//! The last four are never chosen by default: they limit less exactly, have a cost that cannot be put
//! back, or set another clock, so the user has to name them. The policy decides a frequency for all of
//! them; each file documents its translation.
//!
//! Terms:
//! - *Hardware bounds*: the slowest and the fastest that a domain can run. A limit beyond them is
//!   an error.
//! - *The administrator's bounds*: the texts that the files would have without us. A limit is
//!   brought within them, and the answer says so.
//! - *Drift*: another program's change of a file that we hold.
//!
//! Invariants:
//! - Only domains of which this process has locked every CPU are written; a CPU that is not ours
//!   keeps its frequency.
//! - Every write is journalled first and read back after. The kernel has 50 ms to take a bound up.
//!   A limit that is not in force then is refused and withdrawn.
//! - Withdrawing restores the text that was there, or the one that another program has set since.

mod clock;
mod domain;
mod duty_cycle;
mod power_cap;
mod preference;
mod state;
mod uncore;

pub use domain::Speeds;
pub use state::{FrequencyActuator, FrequencyDrift, FrequencyState};

use crate::journal::{Checkpoint, Journal, restore_at_start};
use crate::lock::{CpuLocks, LockError};
use crate::root::Root;
use domain::{Domain, Means};
use machine::{CpuId, CpuList, Duration, FrequencyLimit, Instant};
use std::collections::BTreeSet;

pub struct FrequencyOptions {
    /// Our name, for a process that finds a frequency taken.
    pub holder: String,
    /// The means; `None`: frequency, in the way that the governor heeds.
    pub actuator: Option<FrequencyActuator>,
    /// A model-specific register may be written, which taints the kernel until the next boot.
    pub allow_msr: bool,
    /// Replace the governor by `userspace` where it is offered.
    pub may_replace_governor: bool,
    /// Called between the steps of each change; for tests that end the process there.
    pub checkpoint: Option<Checkpoint>,
}

impl FrequencyOptions {
    /// Options in the name of `holder`, with the governors as they are.
    pub fn new(holder: impl Into<String>) -> Self {
        Self {
            holder: holder.into(),
            actuator: None,
            allow_msr: false,
            may_replace_governor: false,
            checkpoint: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum FrequencyError {
    #[error(
        "no clock of CPU {cpus} can be set: this kernel shows no cpufreq for them, as on most \
         virtual machines\nhint: \
         on a real machine load its driver (modprobe acpi-cpufreq) or let the firmware leave the \
         clock to the system"
    )]
    Unsupported { cpus: CpuList },
    /// The requested means is not available.
    #[error("{by} cannot be had here: {reason}")]
    Lacking {
        by: FrequencyActuator,
        /// The missing part, and the remedy.
        reason: String,
    },
    /// It writes a register, and the user has not allowed that.
    #[error(
        "duty-cycle writes a model-specific register, which taints the kernel (flag S in \
         /proc/sys/kernel/tainted): the duty \
         cycle is put back at the end, the taint stays until the next boot\nhint: allow it with \
         allow_msr = true"
    )]
    MsrNotAllowed,
    /// Another process has them, or no lock can tell.
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// The abilities of every domain that has a CPU among `cpus` and a frequency that cpufreq sets.
pub fn speeds(root: &Root, cpus: &CpuList) -> Vec<Speeds> {
    clock::policies(root, cpus).into_iter().map(|(_, speeds)| speeds).collect()
}

/// The abilities of every domain that has a CPU among `cpus`, by this means; or the reason that it
/// is not available.
pub fn speeds_by(
    root: &Root,
    cpus: &CpuList,
    actuator: Option<FrequencyActuator>,
) -> Result<Vec<Speeds>, FrequencyError> {
    Ok(domains(root, cpus, actuator)?.into_iter().map(|domain| domain.speeds).collect())
}

/// The frequencies of the CPUs that this process owns. Drop puts everything back, so also when a
/// panic unwinds; `std::process::exit` drops nothing, so call [`FrequencyControl::release`] before
/// it.
#[derive(Debug)]
pub struct FrequencyControl {
    journal: Option<Journal>,
    domains: Vec<Domain>,
    notices: Vec<String>,
    told: BTreeSet<String>,
    /// When registers were last looked at: each look wakes their CPU.
    looked_at_registers: Option<Instant>,
    /// Dropped last, after the journal has put everything back.
    _locks: CpuLocks,
}

impl FrequencyControl {
    /// Locks the frequencies of `cpus`, puts back the settings that a dead run left, and prepares
    /// to limit them.
    pub fn open(root: &Root, cpus: &CpuList, options: FrequencyOptions) -> Result<Self, FrequencyError> {
        if options.actuator == Some(FrequencyActuator::DutyCycle) && !options.allow_msr {
            return Err(FrequencyError::MsrNotAllowed);
        }
        let mut domains = domains(root, cpus, options.actuator)?;
        let locks = match options.actuator {
            Some(FrequencyActuator::Uncore) => CpuLocks::take_uncore(root, cpus, &options.holder)?,
            _ => CpuLocks::take_clocks(root, cpus, &options.holder)?,
        };
        let notices = restore_at_start(root)?;
        for domain in &mut domains {
            domain.foreign = CpuList(domain.speeds.cpus.0.difference(&cpus.0).copied().collect());
        }
        let journal = Some(Journal::begin(root, &options.holder, options.checkpoint)?);
        let (told, looked_at_registers) = (BTreeSet::new(), None);
        let mut control = Self { journal, domains, notices, told, looked_at_registers, _locks: locks };
        let without = CpuList(cpus.0.iter().copied().filter(|&cpu| control.place(cpu).is_none()).collect());
        if !without.0.is_empty() {
            control
                .notices
                .push(format!("CPU {without}: the kernel does not set their clock (no cpufreq domain)"));
        }
        if options.may_replace_governor {
            control.replace_governors(root);
        }
        Ok(control)
    }

    pub fn speeds(&self) -> impl Iterator<Item = &Speeds> {
        self.domains.iter().map(|domain| &domain.speeds)
    }

    /// Replaces the request of `cpu`. Returns the outcome for its domain.
    pub fn limit(&mut self, cpu: CpuId, limit: FrequencyLimit) -> FrequencyState {
        let Some(at) = self.place(cpu) else {
            return self.refused(
                cpu,
                "the kernel does not set its clock, or it is not among the CPUs that we have locked".into(),
            );
        };
        if let Err(reason) = self.domains[at].permits(limit) {
            return self.refused(cpu, reason);
        }
        let domain = &mut self.domains[at];
        match limit {
            FrequencyLimit::None => domain.asked.remove(&cpu),
            limit => domain.asked.insert(cpu, limit),
        };
        let state = match self.put_in_force(at) {
            Ok(state) => state,
            Err(reason) => {
                // A half-done change is undone. One that cannot be undone now stays in the journal.
                if let Some(journal) = &mut self.journal {
                    let _ = self.domains[at].free(journal);
                }
                self.refused(cpu, reason)
            }
        };
        self.domains[at].state = state.clone();
        state
    }

    /// The outcome of the last limit on each CPU's domain.
    pub fn states(&self) -> impl Iterator<Item = (&CpuList, &FrequencyState)> {
        self.domains.iter().map(|domain| (&domain.speeds.cpus, &domain.state))
    }

    /// Files that no longer read as we left them. Registers are looked at once a minute: reading
    /// wakes their CPU.
    pub fn drift(&mut self) -> Vec<FrequencyDrift> {
        let Some(journal) = &mut self.journal else { return Vec::new() };
        let now = crate::now();
        let looks_at_registers =
            self.looked_at_registers.is_none_or(|last| now.since(last) >= BETWEEN_LOOKS_AT_REGISTERS);
        if looks_at_registers {
            self.looked_at_registers = Some(now);
        }
        let held: Vec<(String, Vec<String>)> =
            journal.held().iter().map(|(path, held)| (path.clone(), held.ours.clone())).collect();
        let mut found = Vec::new();
        for (path, ours) in held {
            let domain = self.domains.iter().find(|domain| domain.has(&path));
            let is_register = domain.is_some_and(|domain| matches!(domain.means, Means::DutyCycle(_)));
            if is_register && !looks_at_registers {
                continue;
            }
            // A CPU that goes offline takes its files along.
            let Ok(reads) = journal.read(&path) else { continue };
            if ours.contains(&reads) {
                continue;
            }
            found.push(FrequencyDrift {
                cpus: domain.map(|domain| domain.speeds.cpus.clone()).unwrap_or_default(),
                file: path.rsplit('/').next().unwrap_or(&path).to_owned(),
                ours: ours.last().cloned().unwrap_or_default(),
                reads,
            });
        }
        found
    }

    /// Sets the requests once more, on every domain. Bounds that another program has set since are
    /// the administrator's now.
    pub fn reassert(&mut self) -> Vec<FrequencyState> {
        let again = |at: usize, control: &mut Self| {
            let state = control.put_in_force(at).unwrap_or_else(|reason| FrequencyState::Refused { reason });
            control.domains[at].state = state.clone();
            state
        };
        // A register that was set once more must be looked at soon, or a change would go unseen.
        self.looked_at_registers = None;
        (0..self.domains.len()).map(|at| again(at, self)).collect()
    }

    /// The notices since the last call; each fact comes once.
    pub fn drain_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Puts everything back now, and returns one line per file. Dropping does the same in silence.
    pub fn release(&mut self) -> Vec<String> {
        for domain in &mut self.domains {
            domain.asked.clear();
            if let Means::Clock(clock) = &mut domain.means {
                clock.replaced = false;
            }
            domain.state = FrequencyState::Free;
        }
        let undone = self.journal.as_mut().map(Journal::put_back_all).unwrap_or_default();
        undone.iter().map(ToString::to_string).collect()
    }

    fn place(&self, cpu: CpuId) -> Option<usize> {
        let is_ours =
            |domain: &Domain| domain.speeds.cpus.0.contains(&cpu) && !domain.foreign.0.contains(&cpu);
        self.domains.iter().position(is_ours)
    }

    fn put_in_force(&mut self, at: usize) -> Result<FrequencyState, String> {
        let journal = self.journal.as_mut().ok_or("it has ended")?;
        self.domains[at].put_in_force(journal)
    }

    fn replace_governors(&mut self, root: &Root) {
        let Some(journal) = &mut self.journal else { return };
        for domain in self.domains.iter_mut().filter(|domain| domain.foreign.0.is_empty()) {
            let Means::Clock(clock) = &mut domain.means else { continue };
            if let Err(error) = clock.replace_governor(root, journal) {
                let (cpus, why) = (&domain.speeds.cpus, domain.explain(&error));
                self.notices.push(format!("CPU {cpus}: its governor is not replaced: {why}"));
            }
        }
    }

    fn refused(&mut self, cpu: CpuId, reason: String) -> FrequencyState {
        if self.told.insert(reason.clone()) {
            self.notices.push(format!(
                "the clock of {cpu} (and of others, if they fail alike) is not limited: {reason}"
            ));
        }
        FrequencyState::Refused { reason }
    }
}

impl Drop for FrequencyControl {
    fn drop(&mut self) {
        // The journal before the locks: no other process may hold a frequency that still has a
        // limit of ours.
        self.journal = None;
    }
}

/// The domains with a CPU among `cpus` by this means, in order of their first CPU; at least one.
fn domains(
    root: &Root,
    cpus: &CpuList,
    actuator: Option<FrequencyActuator>,
) -> Result<Vec<Domain>, FrequencyError> {
    let lacking = |by| move |reason| FrequencyError::Lacking { by, reason };
    let found = match actuator {
        None | Some(FrequencyActuator::SetSpeed | FrequencyActuator::Bounds) => {
            clock::domains(root, cpus, actuator)
        }
        Some(by @ FrequencyActuator::Preference) => preference::domains(root, cpus).map_err(lacking(by))?,
        Some(by @ FrequencyActuator::DutyCycle) => duty_cycle::domains(root, cpus).map_err(lacking(by))?,
        Some(by @ FrequencyActuator::PowerCap) => power_cap::domains(root, cpus).map_err(lacking(by))?,
        Some(by @ FrequencyActuator::Uncore) => uncore::domains(root, cpus).map_err(lacking(by))?,
    };
    if found.is_empty() {
        return Err(FrequencyError::Unsupported { cpus: cpus.clone() });
    }
    Ok(found)
}

/// Between two looks at a register, each of which interrupts its CPU and so wakes it.
const BETWEEN_LOOKS_AT_REGISTERS: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
