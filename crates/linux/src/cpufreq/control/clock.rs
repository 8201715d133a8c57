//! Frequency by cpufreq: the speed that `userspace` takes, or the bounds of the governor.
//!
//! | the domain's governor | cap | speed |
//! |---|---|---|
//! | `userspace` | `scaling_setspeed`, never above its earlier value | `scaling_setspeed` |
//! | any other, or hardware that chooses | `scaling_max_freq` | `scaling_max_freq` and `scaling_min_freq` |
//!
//! Under `userspace` Roost alone chooses, and a write is in force when it returns. A governor or
//! the hardware goes on choosing below a cap. Where the caller allows, `userspace` replaces the
//! governor when the control is opened, never later. The change takes effect at once and costs the
//! governor's settings, which the journal keeps with its name.
//!
//! Invariants: between two bounds the order of writes keeps the lower one below the upper
//! one; a value that the hardware lacks is never written.

use super::domain::{Domain, Means, Order, Speeds, Trouble};
use super::state::{FrequencyActuator, FrequencyState};
use crate::cpufreq::{FOLDER, spaced_list};
use crate::journal::{ChangeError, Journal};
use crate::root::{Gaps, Root};
use machine::{CpuList, FrequencyLimit, Kilohertz};

#[derive(Debug)]
pub(super) struct Clock {
    /// Its folder below the root.
    folder: String,
    /// We replaced its governor: without a limit it runs as fast as allowed, for nothing else
    /// raises it.
    pub(super) replaced: bool,
    /// The only setting to use; `None`: the one that the governor heeds.
    only: Option<FrequencyActuator>,
}

impl Clock {
    pub(super) fn put_in_force(
        &self,
        journal: &mut Journal,
        order: &Order<'_>,
    ) -> Result<FrequencyState, Trouble> {
        let governor = journal.read(&self.file(GOVERNOR))?;
        let governor = governor.split(' ').next().unwrap_or_default();
        match self.only {
            None if governor == USERSPACE => self.set_speed(journal, order),
            Some(FrequencyActuator::SetSpeed) if governor == USERSPACE => self.set_speed(journal, order),
            Some(FrequencyActuator::SetSpeed) => Err(Trouble::Told(format!(
                "{SPEED} is for the governor {USERSPACE}, and this one is {governor}: write \
                 {USERSPACE} to {GOVERNOR}, or leave the actuator out"
            ))),
            _ => self.set_bounds(journal, order),
        }
    }

    pub(super) fn free(&self, journal: &mut Journal) -> Result<(), ChangeError> {
        if self.replaced {
            let fastest = journal.read(&self.file(MAX))?;
            return journal.set(&self.file(SPEED), &fastest).map(drop);
        }
        // Except for a replaced governor. The upper bound goes up before the lower one moves.
        [MAX, MIN, SPEED].into_iter().try_for_each(|file| journal.put_back(&self.file(file)))
    }

    pub(super) fn has(&self, path: &str) -> bool {
        path.rsplit_once('/').is_some_and(|(folder, _)| folder == self.folder)
    }

    /// Makes `userspace` its governor, where there is one to be had.
    pub(super) fn replace_governor(&mut self, root: &Root, journal: &mut Journal) -> Result<(), ChangeError> {
        let others = Gaps::default().text(root, &format!("{}/scaling_available_governors", self.folder));
        let has = others.is_some_and(|names| names.split_whitespace().any(|name| name == USERSPACE));
        let is = journal.read(&self.file(GOVERNOR)).is_ok_and(|text| text == USERSPACE);
        if !has || is {
            return Ok(());
        }
        journal.set(&self.file(GOVERNOR), USERSPACE)?;
        self.replaced = true;
        // It begins with its speed at that moment, and nothing else raises it.
        self.free(journal)
    }

    fn set_speed(&self, journal: &mut Journal, order: &Order<'_>) -> Result<FrequencyState, Trouble> {
        let &Order { limit, clock: wanted, .. } = order;
        // A text from before another program changed the governor.
        for file in [MAX, MIN] {
            journal.put_back(&self.file(file))?;
        }
        let file = self.file(SPEED);
        let earlier = journal.earlier(&file)?;
        let earlier = Kilohertz(
            earlier
                .parse()
                .map_err(|_| format!("{SPEED} reads `{earlier}` where a frequency was expected"))?,
        );
        // A cap never raises a speed that another program chose. A speed that we chose is no
        // reason.
        let kept_stricter = matches!(limit, FrequencyLimit::AtMost(_)) && earlier < wanted && !self.replaced;
        let wanted = if kept_stricter { earlier } else { wanted };
        let reads = journal.set(&file, &wanted.0.to_string())?;
        in_force(limit, wanted, SPEED, &reads, FrequencyActuator::SetSpeed, kept_stricter)
    }

    fn set_bounds(&self, journal: &mut Journal, order: &Order<'_>) -> Result<FrequencyState, Trouble> {
        let &Order { speeds, limit, clock: wanted } = order;
        journal.put_back(&self.file(SPEED))?;
        let (min, max) = (self.file(MIN), self.file(MAX));
        let mut earlier = |file: &str| -> Result<Kilohertz, Trouble> {
            let text = journal.earlier(file)?;
            let told = || format!("{file} reads `{text}` where a frequency was expected");
            text.parse().map(Kilohertz).map_err(|_| Trouble::Told(told()))
        };
        let (lowest, highest) = (earlier(&min)?, earlier(&max)?);
        let within = wanted.max(lowest).min(highest);
        let (slowest, fastest) = speeds.hardware;
        if within < slowest || within > fastest {
            return Err(Trouble::Told(format!(
                "its own bounds read {lowest} to {highest}, which this hardware does not have"
            )));
        }
        let text = within.0.to_string();
        match limit {
            FrequencyLimit::Exactly(_) => {
                let now: u64 = journal.read(&max).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
                let order = if within.0 > now { [&max, &min] } else { [&min, &max] };
                for file in order {
                    journal.set(file, &text)?;
                }
            }
            FrequencyLimit::AtMost(_) | FrequencyLimit::None => {
                journal.put_back(&min)?;
                journal.set(&max, &text)?;
            }
        }
        let reads = journal.read(&max)?;
        in_force(limit, within, MAX, &reads, FrequencyActuator::Bounds, within != wanted)
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }
}

/// The file decides: a cap above the one that was requested is none.
fn in_force(
    limit: FrequencyLimit,
    wanted: Kilohertz,
    file: &str,
    reads: &str,
    by: FrequencyActuator,
    kept_stricter: bool,
) -> Result<FrequencyState, Trouble> {
    let wrong = || format!("{file} reads {reads} after {} was written: another bound is in force", wanted.0);
    let reads = Kilohertz(reads.parse().map_err(|_| wrong())?);
    let is_met = match limit {
        FrequencyLimit::None | FrequencyLimit::AtMost(_) => reads <= wanted,
        FrequencyLimit::Exactly(_) => reads.0.abs_diff(wanted.0) < STEP_MAX.0,
    };
    if !is_met {
        return Err(Trouble::Told(wrong()));
    }
    Ok(FrequencyState::InForce { limit, reads, by, setting: None, kept_stricter })
}

/// A driver without steps of its own rounds to a multiple of its bus clock, 100 MHz on most.
const STEP_MAX: Kilohertz = Kilohertz(100_000);

/// The domains with a CPU among `cpus` and readable hardware bounds.
pub(super) fn domains(root: &Root, cpus: &CpuList, only: Option<FrequencyActuator>) -> Vec<Domain> {
    let clock = |(folder, speeds)| Domain::new(Means::Clock(Clock { folder, replaced: false, only }), speeds);
    policies(root, cpus).into_iter().map(clock).collect()
}

/// cpufreq's policies with a CPU among `cpus` and readable hardware bounds: folder and abilities of
/// each.
pub(super) fn policies(root: &Root, cpus: &CpuList) -> Vec<(String, Speeds)> {
    let mut gaps = Gaps::default();
    let mut found = Vec::new();
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
        if !of.0.is_disjoint(&cpus.0) {
            found.push((folder, Speeds { cpus: of, hardware: (slowest, fastest), base, steps }));
        }
    }
    found.sort_by(|(_, one), (_, other)| one.cpus.0.cmp(&other.cpus.0));
    found
}

pub(super) const USERSPACE: &str = "userspace";
pub(super) const GOVERNOR: &str = "scaling_governor";
pub(super) const SPEED: &str = "scaling_setspeed";
pub(super) const MIN: &str = "scaling_min_freq";
pub(super) const MAX: &str = "scaling_max_freq";
