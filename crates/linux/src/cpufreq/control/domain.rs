//! CPUs that can only change speed together, the requests for each of them, and the means that sets
//! their speed.
//!
//! The means decides which CPUs those are. cpufreq has its policies. Duty cycles go by core: one of
//! two hyperthreads decides for the other, and the processor determines which one. Power caps and
//! the uncore go by socket. The rest is the same for all means: a domain gets the fastest of its
//! CPUs' requests, and a domain of which another process has a CPU stays as it is.

use super::clock::Clock;
use super::duty_cycle::DutyCycle;
use super::power_cap::PowerCap;
use super::preference::Preference;
use super::state::FrequencyState;
use super::uncore::Uncore;
use crate::journal::{ChangeError, Journal};
use machine::{CpuId, CpuList, FrequencyLimit, Kilohertz};
use std::collections::BTreeMap;

/// The abilities of a domain, for a policy that chooses among its speeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speeds {
    pub cpus: CpuList,
    /// The slowest and the fastest frequency of the hardware.
    pub hardware: (Kilohertz, Kilohertz),
    /// The fastest without turbo, where the driver shows it.
    pub base: Option<Kilohertz>,
    /// The steps, slow to fast; empty where the driver takes any frequency.
    pub steps: Vec<Kilohertz>,
}

#[derive(Debug)]
pub(super) struct Domain {
    pub(super) means: Means,
    pub(super) speeds: Speeds,
    /// CPUs of it that are not ours. With any, the domain stays as it is.
    pub(super) foreign: CpuList,
    /// The request of each CPU. A CPU without one asks for full speed.
    pub(super) asked: BTreeMap<CpuId, FrequencyLimit>,
    pub(super) state: FrequencyState,
}

/// A domain's limit, for the code that sets it.
pub(super) struct Order<'a> {
    pub(super) speeds: &'a Speeds,
    /// The combined request of all its CPUs.
    pub(super) limit: FrequencyLimit,
    /// The nearest of its steps.
    pub(super) clock: Kilohertz,
}

/// The means that sets the speed of a domain.
#[derive(Debug)]
pub(super) enum Means {
    Clock(Clock),
    Preference(Preference),
    DutyCycle(DutyCycle),
    PowerCap(PowerCap),
    Uncore(Uncore),
}

impl Domain {
    /// All of it is ours, without a request.
    pub(super) fn new(means: Means, speeds: Speeds) -> Self {
        Self {
            means,
            speeds,
            foreign: CpuList::default(),
            asked: BTreeMap::new(),
            state: FrequencyState::Free,
        }
    }

    /// Returns an error if the limit is none for this domain.
    pub(super) fn permits(&self, limit: FrequencyLimit) -> Result<(), String> {
        let (FrequencyLimit::AtMost(asked) | FrequencyLimit::Exactly(asked)) = limit else { return Ok(()) };
        if !self.foreign.0.is_empty() {
            return Err(format!(
                "CPU {} can only change speed together, and CPU {} is not ours: take all of them, or none",
                self.speeds.cpus, self.foreign
            ));
        }
        let (slowest, fastest) = self.speeds.hardware;
        // Such a cap frees an uncore (`uncore`), and sockets differ in their fastest clock.
        let is_free =
            matches!((&self.means, limit), (Means::Uncore(_), FrequencyLimit::AtMost(_))) && asked >= fastest;
        if !is_free && (asked < slowest || asked > fastest) {
            return Err(format!(
                "{asked} is beyond what CPU {} can do: write {slowest} to {fastest}",
                self.speeds.cpus
            ));
        }
        let only_caps = match self.means {
            Means::Clock(_) | Means::DutyCycle(_) | Means::Uncore(_) => return Ok(()),
            Means::Preference(_) => "a preference",
            Means::PowerCap(_) => "a power cap",
        };
        match limit {
            FrequencyLimit::Exactly(_) => {
                Err(format!("{only_caps} sets no speed, only a limit to it: choose bounds or speed instead"))
            }
            FrequencyLimit::AtMost(_) | FrequencyLimit::None => Ok(()),
        }
    }

    /// The fastest of its CPUs' requests. Among caps a speed counts as a cap: a CPU that asked for
    /// a cap may be slower.
    pub(super) fn combined(&self) -> FrequencyLimit {
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

    /// Puts the combined request of its CPUs in force.
    pub(super) fn put_in_force(&mut self, journal: &mut Journal) -> Result<FrequencyState, String> {
        let limit = self.combined();
        let Some(clock) = self.speeds.step(limit) else {
            return self.free(journal).map(|()| FrequencyState::Free).map_err(|error| self.explain(&error));
        };
        let order = Order { speeds: &self.speeds, limit, clock };
        let result = match &mut self.means {
            Means::Clock(clock) => clock.put_in_force(journal, &order),
            Means::Preference(preference) => preference.put_in_force(journal, &order),
            Means::DutyCycle(duty) => duty.put_in_force(journal, &order),
            Means::PowerCap(cap) => cap.put_in_force(journal, &order),
            Means::Uncore(uncore) => uncore.put_in_force(journal, &order),
        };
        result.map_err(|trouble| match trouble {
            Trouble::Told(reason) => reason,
            Trouble::Change(error) => self.explain(&error),
        })
    }

    pub(super) fn free(&self, journal: &mut Journal) -> Result<(), ChangeError> {
        match &self.means {
            Means::Clock(clock) => clock.free(journal),
            Means::Preference(preference) => preference.free(journal),
            Means::DutyCycle(duty) => duty.free(journal),
            Means::PowerCap(cap) => cap.free(journal),
            Means::Uncore(uncore) => uncore.free(journal),
        }
    }

    /// True if the journal's `path` belongs to this domain.
    pub(super) fn has(&self, path: &str) -> bool {
        match &self.means {
            Means::Clock(clock) => clock.has(path),
            Means::Preference(preference) => preference.has(path),
            Means::DutyCycle(duty) => duty.has(path),
            Means::PowerCap(cap) => cap.has(path),
            Means::Uncore(uncore) => uncore.has(path),
        }
    }

    /// Why a change was not made, and the remedy.
    pub(super) fn explain(&self, error: &ChangeError) -> String {
        let own = match (&self.means, error) {
            (Means::Preference(_), ChangeError::File(file)) => Preference::explain(file),
            (Means::DutyCycle(_), ChangeError::File(file)) => DutyCycle::explain(file),
            (Means::PowerCap(_), ChangeError::File(file)) => PowerCap::explain(file),
            _ => None,
        };
        own.unwrap_or_else(|| error.reason())
    }
}

impl Speeds {
    /// The nearest step: a cap rounds down and a speed up, as the kernel does. `None` for no limit.
    pub(super) fn step(&self, limit: FrequencyLimit) -> Option<Kilohertz> {
        let steps = &self.steps;
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

/// Why a limit is not in force.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The text says all.
    Told(String),
    Change(ChangeError),
}

impl From<String> for Trouble {
    fn from(reason: String) -> Self {
        Self::Told(reason)
    }
}

impl From<ChangeError> for Trouble {
    fn from(error: ChangeError) -> Self {
        Self::Change(error)
    }
}

impl From<crate::root::FileError> for Trouble {
    fn from(error: crate::root::FileError) -> Self {
        Self::Change(error.into())
    }
}
