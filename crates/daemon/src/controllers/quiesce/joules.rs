//! Energy while freezing was on, and while it was left off: measured where there is a meter, else
//! modelled, and labelled.
//!
//! The model charges each CPU for its own activity (`linux::EnergyMeter`). The saving of a package
//! whose CPUs all sleep at once is not in it. Both ways are compared over the whole run, so the
//! changes of the load are in the comparison too; a trial takes turns.

use linux::{EnergyMeter, Root};
use machine::{CpuList, Instant};
use serde::Serialize;

#[derive(Debug)]
pub(super) struct Joules {
    meter: EnergyMeter,
    last: Option<(Instant, f64)>,
    /// Seconds and joules: left off, and on.
    spent: [(f64, f64); 2],
}

#[derive(Clone, Debug, Serialize)]
pub struct EnergyStatus {
    /// Where the figures come from, and whether they are measured.
    pub source: String,
    /// While freezing was left off, watts; `None` if it never was, or if it is unknown.
    pub watts_without: Option<f64>,
    pub watts_with: Option<f64>,
}

impl Joules {
    pub(super) fn open(root: &Root, cpus: &CpuList, now: Instant) -> Self {
        Self { meter: EnergyMeter::open(root, cpus, now), last: None, spent: [(0.0, 0.0); 2] }
    }

    /// The energy since the last call belongs to the state until now.
    pub(super) fn read(&mut self, now: Instant, was_on: bool) {
        let Some(used) = self.meter.read(now).map(|reading| reading.used.as_joules()) else {
            self.last = None;
            return;
        };
        if let Some((before, joules)) = self.last.replace((now, used)) {
            let (seconds, spent) = &mut self.spent[usize::from(was_on)];
            *seconds += now.since(before).as_secs_f64();
            *spent += used - joules;
        }
    }

    pub(super) fn status(&self) -> EnergyStatus {
        let watts = |(seconds, joules): (f64, f64)| (seconds > 0.0).then(|| joules / seconds);
        EnergyStatus {
            source: self.meter.source().to_string(),
            watts_without: watts(self.spent[0]),
            watts_with: watts(self.spent[1]),
        }
    }
}
