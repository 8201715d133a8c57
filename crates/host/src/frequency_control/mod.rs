//! Limits how fast the CPUs that we own may run, and puts everything back.
//!
//! A policy asks for a *cap* or a *speed* for one CPU ([`FrequencyLimit`]); the kernel sets clocks by *domain*, the CPUs that
//! can only change together. So each CPU has what was asked for it, and its domain gets the fastest of them: nobody is slowed
//! because a neighbour needs less. A CPU that nothing is asked for wants all it can have, and frees its domain.
//!
//! | the domain's governor | cap | speed |
//! |---|---|---|
//! | `userspace` | `scaling_setspeed`, never above what it was | `scaling_setspeed` |
//! | any other, or hardware that chooses | `scaling_max_freq` | `scaling_max_freq` and `scaling_min_freq` |
//!
//! Under `userspace` nobody but us chooses, and a write is in force when it returns; a governor or the hardware goes on
//! choosing below a cap. Where the caller allows, the governor is replaced by `userspace` when it is opened, never later: that
//! takes effect at once and costs the governor's settings, which the journal keeps with its name.
//!
//! Terms. *Hardware bounds* are `cpuinfo_min_freq` and `cpuinfo_max_freq`: beyond them is an error. *The administrator's
//! bounds* are what `scaling_min_freq` and `scaling_max_freq` would read without us: a limit is brought within them, and the
//! answer says so. *Drift* is somebody else's change of a file that we hold.
//!
//! What always holds:
//! - Only domains are written of which this process has locked every CPU; a CPU that is not ours keeps its clock.
//! - Every write is journalled first and read back after; a bound when the kernel has had 50 ms to take it up. What is not in
//!   force then is refused, and taken back.
//! - Withdrawing gives what belongs there: the text that was there, or what somebody else has set since.
//! - Between two bounds the order of writes keeps the lower one below the upper one.

use crate::cpufreq::{FOLDER, spaced_list};
use crate::journal::{ChangeError, Checkpoint, Journal, restore};
use crate::lock::{CpuLocks, LockError};
use crate::root::{Gaps, Root};
use machine::{CpuId, CpuList, FrequencyLimit, Kilohertz};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How to open a [`FrequencyControl`].
pub struct FrequencyOptions {
    /// Who we are, for whoever finds a clock taken.
    pub holder: String,
    /// Replace the governor by `userspace` where there is one to be had.
    pub may_replace_governor: bool,
    /// Called between the steps of each change; for tests that end the process there.
    pub checkpoint: Option<Checkpoint>,
}

impl FrequencyOptions {
    /// In the name of `holder`, with the governors as they are.
    pub fn new(holder: impl Into<String>) -> Self {
        Self { holder: holder.into(), may_replace_governor: false, checkpoint: None }
    }
}

/// Why clocks cannot be held.
#[derive(Debug, thiserror::Error)]
pub enum FrequencyError {
    /// There is nothing to set.
    #[error(
        "no clock of CPU {cpus} can be set: this kernel shows no cpufreq for them, as on most virtual machines\nhint: \
         on a real machine load its driver (modprobe acpi-cpufreq) or let the firmware leave the clock to the system"
    )]
    Unsupported {
        /// None of these.
        cpus: CpuList,
    },
    /// Somebody has them, or nobody can know.
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// By which of the kernel's files a limit is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrequencyActuator {
    /// `scaling_setspeed`.
    SetSpeed,
    /// `scaling_max_freq`, and `scaling_min_freq` for a speed.
    Bounds,
}

/// What became of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrequencyState {
    /// Nothing of ours is there.
    Free,
    /// The kernel's files read so.
    InForce {
        /// What the CPUs of the domain ask for together.
        limit: FrequencyLimit,
        /// What is in force: the nearest that the hardware has.
        reads: Kilohertz,
        /// By which file.
        by: FrequencyActuator,
        /// True if the administrator's own bounds are stricter and therefore stay.
        kept_stricter: bool,
    },
    /// It could not be put in force.
    Refused {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for FrequencyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("free"),
            Self::InForce { limit, reads, kept_stricter, .. } => {
                let how = if matches!(limit, FrequencyLimit::Exactly(_)) { "" } else { "at most " };
                write!(f, "{how}{reads}")?;
                if *kept_stricter {
                    f.write_str(" (within the administrator's own bounds)")?;
                }
                Ok(())
            }
            Self::Refused { reason } => write!(f, "refused: {reason}"),
        }
    }
}

/// A file that reads something else than we left there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrequencyDrift {
    /// The CPUs concerned.
    pub cpus: CpuList,
    /// Which file.
    pub file: String,
    /// What we left there.
    pub ours: String,
    /// What it reads.
    pub reads: String,
}

impl fmt::Display for FrequencyDrift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpus, file, ours, reads } = self;
        write!(f, "{file} of CPU {cpus} reads {reads} where we had set {ours}")
    }
}

/// What a domain can do, for who chooses among its speeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speeds {
    /// Its CPUs.
    pub cpus: CpuList,
    /// The slowest and the fastest of the hardware.
    pub hardware: (Kilohertz, Kilohertz),
    /// The fastest without turbo, where the driver tells.
    pub base: Option<Kilohertz>,
    /// Those that there are, slow to fast; empty where the driver takes any.
    pub steps: Vec<Kilohertz>,
}

/// What every domain can do that has a CPU among `cpus`.
pub fn speeds(root: &Root, cpus: &CpuList) -> Vec<Speeds> {
    domains(root, cpus).into_iter().map(|domain| domain.speeds).collect()
}

/// The clocks of the CPUs that this process owns. Everything is put back when it is dropped, so also when a panic unwinds;
/// `std::process::exit` drops nothing, so call [`FrequencyControl::release`] before it.
#[derive(Debug)]
pub struct FrequencyControl {
    journal: Option<Journal>,
    domains: Vec<Domain>,
    notices: Vec<String>,
    told: BTreeSet<String>,
    /// Dropped last, after the journal has put everything back.
    _locks: CpuLocks,
}

#[derive(Debug)]
struct Domain {
    /// Its folder below the root.
    folder: String,
    speeds: Speeds,
    /// CPUs of it that are not ours; with any, it stays as it is.
    foreign: CpuList,
    /// By CPU what is asked for it; none: as fast as can be.
    asked: BTreeMap<CpuId, FrequencyLimit>,
    /// Its governor was replaced by us: free means as fast as allowed, for nobody else raises it.
    replaced: bool,
    state: FrequencyState,
}

impl FrequencyControl {
    /// Locks the clocks of `cpus`, puts back what a dead run left, and prepares to limit them.
    pub fn open(root: &Root, cpus: &CpuList, options: FrequencyOptions) -> Result<Self, FrequencyError> {
        let mut domains = domains(root, cpus);
        if domains.is_empty() {
            return Err(FrequencyError::Unsupported { cpus: cpus.clone() });
        }
        let locks = CpuLocks::take_clocks(root, cpus, &options.holder)?;
        let mut notices = Vec::new();
        match restore(root) {
            Ok(report) if report.put_back + report.left_alone + report.failed > 0 => {
                notices.extend(report.lines)
            }
            Ok(_) => {}
            Err(error) => notices.push(error.to_string()),
        }
        for domain in &mut domains {
            domain.foreign = CpuList(domain.speeds.cpus.0.difference(&cpus.0).copied().collect());
        }
        let journal = Some(Journal::begin(root, &options.holder, options.checkpoint)?);
        let mut control = Self { journal, domains, notices, told: BTreeSet::new(), _locks: locks };
        let without = CpuList(cpus.0.iter().copied().filter(|&cpu| control.place(cpu).is_none()).collect());
        if !without.0.is_empty() {
            control
                .notices
                .push(format!("CPU {without}: the kernel does not set their clock (no cpufreq domain)"));
        }
        if options.may_replace_governor {
            (0..control.domains.len()).for_each(|at| control.replace_governor(root, at));
        }
        Ok(control)
    }

    /// What each domain can do.
    pub fn speeds(&self) -> impl Iterator<Item = &Speeds> {
        self.domains.iter().map(|domain| &domain.speeds)
    }

    /// `cpu` shall run so from now on, and not as it was asked before. Says what came of it for its domain.
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
                // What is half done is nothing. What cannot be undone now stays in the journal.
                let _ = self.free(at);
                self.refused(cpu, reason)
            }
        };
        self.domains[at].state = state.clone();
        state
    }

    /// What came of the last limit on each CPU's domain.
    pub fn states(&self) -> impl Iterator<Item = (&CpuList, &FrequencyState)> {
        self.domains.iter().map(|domain| (&domain.speeds.cpus, &domain.state))
    }

    /// Files that read something else than we left there.
    pub fn drift(&mut self) -> Vec<FrequencyDrift> {
        let Some(journal) = &mut self.journal else { return Vec::new() };
        let held: Vec<(String, Vec<String>)> =
            journal.held().iter().map(|(path, held)| (path.clone(), held.ours.clone())).collect();
        let mut found = Vec::new();
        for (path, ours) in held {
            // A CPU that went offline took its files along.
            let Ok(reads) = journal.read(&path) else { continue };
            if ours.contains(&reads) {
                continue;
            }
            let (folder, file) = path.rsplit_once('/').unwrap_or(("", &path));
            let domain = self.domains.iter().find(|domain| domain.folder == folder);
            found.push(FrequencyDrift {
                cpus: domain.map(|domain| domain.speeds.cpus.clone()).unwrap_or_default(),
                file: file.to_owned(),
                ours: ours.last().cloned().unwrap_or_default(),
                reads,
            });
        }
        found
    }

    /// Sets once more what is asked for, on every domain. Somebody else's bounds of since then are the administrator's now.
    pub fn reassert(&mut self) -> Vec<FrequencyState> {
        let again = |at: usize, control: &mut Self| {
            let state = control.put_in_force(at).unwrap_or_else(|reason| FrequencyState::Refused { reason });
            control.domains[at].state = state.clone();
            state
        };
        (0..self.domains.len()).map(|at| again(at, self)).collect()
    }

    /// What there is to say since the last call; each fact comes once.
    pub fn drain_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Puts everything back now, and says what was done, one line per file. Dropping does the same in silence.
    pub fn release(&mut self) -> Vec<String> {
        for domain in &mut self.domains {
            domain.asked.clear();
            domain.replaced = false;
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
        let domain = &self.domains[at];
        let limit = domain.combined();
        if limit == FrequencyLimit::None {
            return self.free(at).map(|()| FrequencyState::Free).map_err(|error| reason(&error));
        }
        let governor = journal.read(&domain.file(GOVERNOR)).map_err(|error| reason(&error.into()))?;
        if governor.split(' ').next() == Some(USERSPACE) {
            set_speed(journal, domain, limit)
        } else {
            set_bounds(journal, domain, limit)
        }
    }

    /// Nothing is asked for.
    fn free(&mut self, at: usize) -> Result<(), ChangeError> {
        if !self.domains[at].replaced {
            return self.put_back(at);
        }
        let (Some(journal), domain) = (self.journal.as_mut(), &self.domains[at]) else { return Ok(()) };
        let fastest = journal.read(&domain.file(MAX))?;
        journal.set(&domain.file(SPEED), &fastest).map(drop)
    }

    /// Gives the domain's files back what belongs there, but for a governor that was replaced.
    fn put_back(&mut self, at: usize) -> Result<(), ChangeError> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let domain = &self.domains[at];
        // The upper bound goes up before the lower one moves.
        [MAX, MIN, SPEED].into_iter().try_for_each(|file| journal.put_back(&domain.file(file)))
    }

    fn replace_governor(&mut self, root: &Root, at: usize) {
        let Some(journal) = &mut self.journal else { return };
        let domain = &self.domains[at];
        let others = Gaps::default().text(root, &format!("{}/scaling_available_governors", domain.folder));
        let has = others.is_some_and(|names| names.split_whitespace().any(|name| name == USERSPACE));
        let is = journal.read(&domain.file(GOVERNOR)).is_ok_and(|text| text == USERSPACE);
        if !has || is || !domain.foreign.0.is_empty() {
            return;
        }
        match journal.set(&domain.file(GOVERNOR), USERSPACE) {
            Ok(_) => {
                self.domains[at].replaced = true;
                // It begins with whatever speed the domain has just then, and nobody raises it.
                if let Err(error) = self.free(at) {
                    self.notices.push(reason(&error));
                }
            }
            Err(error) => {
                let cpus = &self.domains[at].speeds.cpus;
                self.notices.push(format!("CPU {cpus}: the governor stays: {}", reason(&error)));
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
        // The journal before the locks: nobody else may hold a clock that still has a limit of ours.
        self.journal = None;
    }
}

impl Domain {
    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    /// An error if the limit is none for this domain.
    fn permits(&self, limit: FrequencyLimit) -> Result<(), String> {
        let (FrequencyLimit::AtMost(asked) | FrequencyLimit::Exactly(asked)) = limit else { return Ok(()) };
        if !self.foreign.0.is_empty() {
            return Err(format!(
                "CPU {} can only change speed together, and CPU {} is not ours: take all of them, or none",
                self.speeds.cpus, self.foreign
            ));
        }
        let (slowest, fastest) = self.speeds.hardware;
        if asked < slowest || asked > fastest {
            return Err(format!(
                "{asked} is beyond what CPU {} can do: write {slowest} to {fastest}",
                self.speeds.cpus
            ));
        }
        Ok(())
    }

    /// The fastest of what its CPUs ask for. A speed among caps counts as a cap: who asked for a cap may be slower.
    fn combined(&self) -> FrequencyLimit {
        let mut fastest: Option<(Kilohertz, bool)> = None;
        for cpu in &self.speeds.cpus.0 {
            let (asked, exactly) = match self.asked.get(cpu) {
                None | Some(FrequencyLimit::None) => return FrequencyLimit::None,
                Some(FrequencyLimit::AtMost(asked)) => (*asked, false),
                Some(FrequencyLimit::Exactly(asked)) => (*asked, true),
            };
            fastest = Some(match fastest {
                None => (asked, exactly),
                Some((other, and)) => (other.max(asked), and && exactly),
            });
        }
        match fastest {
            None => FrequencyLimit::None,
            Some((speed, true)) => FrequencyLimit::Exactly(speed),
            Some((speed, false)) => FrequencyLimit::AtMost(speed),
        }
    }

    /// What of the hardware's steps comes nearest: a cap rounds down and a speed up, as the kernel does.
    fn step(&self, limit: FrequencyLimit) -> Option<Kilohertz> {
        let steps = &self.speeds.steps;
        match limit {
            FrequencyLimit::None => None,
            FrequencyLimit::AtMost(asked) => {
                Some(steps.iter().rfind(|&&step| step <= asked).or(steps.first()).copied().unwrap_or(asked))
            }
            FrequencyLimit::Exactly(asked) => {
                Some(steps.iter().find(|&&step| step >= asked).or(steps.last()).copied().unwrap_or(asked))
            }
        }
    }
}

fn set_speed(
    journal: &mut Journal,
    domain: &Domain,
    limit: FrequencyLimit,
) -> Result<FrequencyState, String> {
    let told = |error: ChangeError| reason(&error);
    // From before the governor was changed by somebody.
    for file in [MAX, MIN] {
        journal.put_back(&domain.file(file)).map_err(told)?;
    }
    let Some(wanted) = domain.step(limit) else { return Ok(FrequencyState::Free) };
    let file = domain.file(SPEED);
    let earlier = journal.earlier(&file).map_err(|error| reason(&error.into()))?;
    let earlier = Kilohertz(
        earlier.parse().map_err(|_| format!("{SPEED} reads `{earlier}` where a frequency was expected"))?,
    );
    // A cap never raises the speed that somebody chose; one that we chose ourselves is no reason.
    let kept_stricter = matches!(limit, FrequencyLimit::AtMost(_)) && earlier < wanted && !domain.replaced;
    let wanted = if kept_stricter { earlier } else { wanted };
    let reads = journal.set(&file, &wanted.0.to_string()).map_err(told)?;
    in_force(limit, wanted, SPEED, &reads, FrequencyActuator::SetSpeed, kept_stricter)
}

fn set_bounds(
    journal: &mut Journal,
    domain: &Domain,
    limit: FrequencyLimit,
) -> Result<FrequencyState, String> {
    let told = |error: ChangeError| reason(&error);
    journal.put_back(&domain.file(SPEED)).map_err(told)?;
    let Some(wanted) = domain.step(limit) else { return Ok(FrequencyState::Free) };
    let (min, max) = (domain.file(MIN), domain.file(MAX));
    let mut earlier = |file: &str| -> Result<Kilohertz, String> {
        let text = journal.earlier(file).map_err(|error| reason(&error.into()))?;
        text.parse()
            .map(Kilohertz)
            .map_err(|_| format!("{file} reads `{text}` where a frequency was expected"))
    };
    let (lowest, highest) = (earlier(&min)?, earlier(&max)?);
    let within = wanted.max(lowest).min(highest);
    let (slowest, fastest) = domain.speeds.hardware;
    if within < slowest || within > fastest {
        return Err(format!("its own bounds read {lowest} to {highest}, which this hardware does not have"));
    }
    let text = within.0.to_string();
    match limit {
        FrequencyLimit::Exactly(_) => {
            let now: u64 = journal.read(&max).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
            let order = if within.0 > now { [&max, &min] } else { [&min, &max] };
            for file in order {
                journal.set(file, &text).map_err(told)?;
            }
        }
        FrequencyLimit::AtMost(_) | FrequencyLimit::None => {
            journal.put_back(&min).map_err(told)?;
            journal.set(&max, &text).map_err(told)?;
        }
    }
    let reads = journal.read(&max).map_err(|error| reason(&error.into()))?;
    in_force(limit, within, MAX, &reads, FrequencyActuator::Bounds, within != wanted)
}

/// What the file says is judged: a cap that is above what was asked is none.
fn in_force(
    limit: FrequencyLimit,
    wanted: Kilohertz,
    file: &str,
    reads: &str,
    by: FrequencyActuator,
    kept_stricter: bool,
) -> Result<FrequencyState, String> {
    let wrong =
        || format!("{file} reads {reads} after {} was written: somebody else's bound is in force", wanted.0);
    let reads = Kilohertz(reads.parse().map_err(|_| wrong())?);
    let is_met = match limit {
        FrequencyLimit::None | FrequencyLimit::AtMost(_) => reads <= wanted,
        FrequencyLimit::Exactly(_) => reads.0.abs_diff(wanted.0) < STEP_MAX.0,
    };
    if is_met { Ok(FrequencyState::InForce { limit, reads, by, kept_stricter }) } else { Err(wrong()) }
}

/// A driver without steps of its own rounds to a multiple of its bus clock, 100 MHz on most.
const STEP_MAX: Kilohertz = Kilohertz(100_000);

/// The domains with a CPU among `cpus`, of which the hardware's bounds can be read.
fn domains(root: &Root, cpus: &CpuList) -> Vec<Domain> {
    let mut gaps = Gaps::default();
    let mut domains = Vec::new();
    for name in gaps.names(root, FOLDER) {
        if name.strip_prefix("policy").is_none_or(|number| number.parse::<u16>().is_err()) {
            continue;
        }
        let folder = format!("{FOLDER}/{name}");
        let affected = gaps.text(root, &format!("{folder}/affected_cpus"));
        let Some(of) = affected.as_deref().and_then(spaced_list) else { continue };
        let mut khz =
            |file: &str| gaps.parse(root, &format!("{folder}/{file}"), "a frequency in kHz").map(Kilohertz);
        let (Some(slowest), Some(fastest)) = (khz("cpuinfo_min_freq"), khz("cpuinfo_max_freq")) else {
            continue;
        };
        let base = khz("base_frequency");
        let steps = gaps.text(root, &format!("{folder}/scaling_available_frequencies")).unwrap_or_default();
        let mut steps: Vec<Kilohertz> =
            steps.split_whitespace().filter_map(|step| step.parse().ok().map(Kilohertz)).collect();
        steps.sort_unstable();
        steps.dedup();
        if of.0.is_disjoint(&cpus.0) {
            continue;
        }
        domains.push(Domain {
            folder,
            speeds: Speeds { cpus: of, hardware: (slowest, fastest), base, steps },
            foreign: CpuList::default(),
            asked: BTreeMap::new(),
            replaced: false,
            state: FrequencyState::Free,
        });
    }
    domains.sort_by(|one, other| one.speeds.cpus.0.cmp(&other.speeds.cpus.0));
    domains
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

const USERSPACE: &str = "userspace";
const GOVERNOR: &str = "scaling_governor";
const SPEED: &str = "scaling_setspeed";
const MIN: &str = "scaling_min_freq";
const MAX: &str = "scaling_max_freq";

#[cfg(test)]
mod tests;
