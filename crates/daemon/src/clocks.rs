//! The clocks of all services that want theirs chosen, and how fast they get on.
//!
//! The services of a daemon share one handle ([`Clocks`]) on the requests that `linux::arbiter`
//! combines. Controllers share it too. A service that does not care for a CPU's clock has no say in
//! it. One that cares and asks for nothing just now wants the full clock. So a CPU is capped only
//! while every service with a say there has a cap, and the fastest of these caps is in force.
//!
//! A policy needs the speeds and the power of each beforehand; [`points`] looks them up. Power is
//! *modelled*: with the cube of the clock, since voltage goes down with it; with a duty cycle in
//! proportion, since voltage stays. Pegasus needs no more than its order of magnitude.
//!
//! [`Pace`] is how fast each CPU got on: instructions and cycles by the processor's own counters,
//! through perf. The kernel reads them on their own CPU, which it interrupts for that, so a CPU
//! that was idle is not asked: its share is taken over the time since it was last read.
//!
//! By which of the kernel's means speed is set is one choice for the daemon ([`ClockMeans`]), since
//! a socket's power cap is one for all services on it. Without a choice it is the clock; a
//! preference, a duty cycle and a power cap are for those who name them.
//!
//! What always holds: `linux::FrequencyControl` combines the requests for CPUs that share a clock.
//! Once its services are dropped, every clock is as it was.

use linux::arbiter::{ClockLimits, ClockMeans};
use linux::perf::WorkCounters;
use linux::{CpuUsage, FrequencyActuator, FrequencyError, FrequencyState, Root, Speeds};
use machine::{
    CpuId, CpuList, Duration, FrequencyLimit, Kilohertz, Microwatts, OperatingPoint, PointKind, Rate,
};
use policy::frequency::PointTable;
use policy::governing::{FrequencyMode, UncoreMode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The clocks of some CPUs, on behalf of several services.
#[derive(Clone, Debug)]
pub struct Clocks(Arc<Mutex<Held>>);

#[derive(Debug)]
struct Held {
    limits: ClockLimits,
    /// For these, drift was repaired at their last look.
    repaired: BTreeSet<String>,
}

/// The outcome of a repair after another process's change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    Unneeded,
    Done(String),
    /// It had been set once more, and reads something else again.
    Vain(String),
}

impl Clocks {
    /// Those that `limits` holds.
    pub fn of(limits: &ClockLimits) -> Self {
        Self(Arc::new(Mutex::new(Held { limits: limits.clone(), repaired: BTreeSet::new() })))
    }

    /// True if they are held for all of these.
    pub fn is_for(&self, cpus: &CpuList) -> bool {
        self.held().limits.is_for(cpus)
    }

    /// `service` has a say in these clocks from now on, and asks for nothing yet.
    pub fn join(&self, service: &str, cpus: &CpuList) {
        for &cpu in &cpus.0 {
            self.limit(service, cpu, FrequencyLimit::None);
        }
    }

    /// Sets the request of `service` for `cpu`, in place of its earlier one.
    pub fn limit(&self, service: &str, cpu: CpuId, limit: FrequencyLimit) -> FrequencyState {
        self.held().limits.limit(service, cpu, limit)
    }

    /// `service` has no say any more.
    pub fn withdraw(&self, service: &str) {
        let mut held = self.held();
        held.repaired.remove(service);
        held.limits.withdraw(service);
    }

    /// The same, with a line for each thing that was put back, where no other service has a say.
    pub fn release_of(&self, service: &str) -> Vec<String> {
        let mut held = self.held();
        held.repaired.remove(service);
        held.limits.release_of(service)
    }

    /// Looks for other processes' changes of clocks in which `service` has a say, and repairs them
    /// once.
    pub fn repair(&self, service: &str) -> Repair {
        let mut held = self.held();
        let Held { limits, repaired } = &mut *held;
        let its = limits.cpus_of(service);
        let drift = limits.drift().into_iter().find(|drift| !drift.cpus.0.is_disjoint(&its.0));
        let Some(drift) = drift else {
            repaired.remove(service);
            return Repair::Unneeded;
        };
        if repaired.remove(service) {
            return Repair::Vain(drift.to_string());
        }
        repaired.insert(service.to_owned());
        limits.reassert();
        Repair::Done(drift.to_string())
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The features that the mode needs and this machine lacks, with the remedy, in one text; `None` if
/// it lacks none.
pub fn missing(root: &Root, mode: FrequencyMode, cpus: &CpuList, means: ClockMeans) -> Option<String> {
    if mode == FrequencyMode::Stock {
        return None;
    }
    let mut lacks = Vec::new();
    match (points(root, cpus, means.actuator), mode) {
        (Ok(table), FrequencyMode::Cap(cap)) => {
            let (slowest, fastest) = bounds(root, cpus, means.actuator)
                .unwrap_or((table.khz(table.slowest()), table.khz(table.fastest())));
            if cap < slowest || cap > fastest {
                lacks.push(format!("{cap} is beyond what these CPUs can do: write {slowest} to {fastest}"));
            }
        }
        (Ok(_), _) => {}
        (Err(why), _) => lacks.push(why),
    }
    if mode == FrequencyMode::Sensitivity
        && let Err(why) = WorkCounters::open(cpus)
    {
        let (why, hint) = why
            .split_once("\nhint: ")
            .unwrap_or((&why, "a real machine has them; as root, or with CAP_PERFMON"));
        lacks.push(format!("{COUNTERS}: {why}; {hint}"));
    }
    if lacks.is_empty() {
        return None;
    }
    if let Some(actuator) = means.actuator.filter(|_| lacks.iter().any(|why| why.contains("\nhint:"))) {
        // The message names the remedy.
        return Some(format!(
            "frequency = \"{mode}\" by frequency_actuator = \"{actuator}\": {}",
            lacks.join("; and ")
        ));
    }
    let instead = match (mode, lacks.as_slice()) {
        (FrequencyMode::Sensitivity, [only]) if only.starts_with(COUNTERS) => "; pegasus needs no counters",
        _ => "; stock needs nothing",
    };
    Some(format!(
        "frequency = \"{mode}\" cannot be had here: {}\nhint: `roost doctor` tells more{instead}",
        lacks.join("; and ")
    ))
}

/// Why the uncore cannot be set in this mode for a service on `cpus`, with the remedy, in one text;
/// `None` if it can.
pub fn uncore_missing(root: &Root, mode: UncoreMode, cpus: &CpuList) -> Option<String> {
    if mode == UncoreMode::Stock {
        return None;
    }
    let told = |why: String| Some(format!("uncore = \"{mode}\" cannot be had here: {why}"));
    let all = match linux::speeds_by(root, cpus, Some(FrequencyActuator::Uncore)) {
        Err(FrequencyError::Lacking { reason, .. }) => return told(reason),
        Err(error) => return told(error.to_string()),
        Ok(all) => all,
    };
    if let Some(foreign) = all.iter().find(|speeds| !speeds.cpus.0.is_subset(&cpus.0)) {
        return told(format!(
            "the CPUs {} share one uncore, and the service may use {cpus} alone: give it whole sockets \
             with cpus, or leave uncore out",
            foreign.cpus
        ));
    }
    let (slowest, fastest) = in_common(&all)?;
    let domains = linux::uncore_domains(root, &mut linux::Gaps::default());
    let has_elc =
        |speeds: &Speeds| domains.iter().any(|domain| domain.cpus == speeds.cpus && domain.elc.is_some());
    match mode {
        UncoreMode::Auto | UncoreMode::Fixed(_) if slowest >= fastest => {
            told("its sockets have no range of clocks in common: write elc, or leave uncore out".to_owned())
        }
        UncoreMode::Fixed(clock) if clock < slowest || clock > fastest => {
            told(format!("{clock} is beyond what it can do: write fixed:{slowest} to fixed:{fastest}"))
        }
        UncoreMode::Elc if !all.iter().all(has_elc) => told(
            "the kernel shows no efficiency latency control (elc_floor_freq_khz: Linux 6.12, and a \
             processor with TPMI): write auto or fixed"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The clocks among which a mode chooses for the uncore of these CPUs, slow to fast: those that all
/// their sockets have; for ELC the fastest of any, which frees each of them.
pub fn uncore_clocks(root: &Root, cpus: &CpuList, mode: UncoreMode) -> Vec<Kilohertz> {
    if matches!(mode, UncoreMode::Stock | UncoreMode::Fixed(_)) {
        return Vec::new();
    }
    let all = linux::speeds_by(root, cpus, Some(FrequencyActuator::Uncore)).unwrap_or_default();
    let Some((slowest, fastest)) = in_common(&all) else { return Vec::new() };
    if mode == UncoreMode::Elc {
        return all.iter().map(|speeds| speeds.hardware.1).max().into_iter().collect();
    }
    let steps = all[0].steps.iter().copied();
    steps.filter(|clock| (slowest..=fastest).contains(clock)).collect()
}

/// The slowest and the fastest clock that all of these have.
fn in_common(all: &[Speeds]) -> Option<(Kilohertz, Kilohertz)> {
    let slowest = all.iter().map(|speeds| speeds.hardware.0).max()?;
    let fastest = all.iter().map(|speeds| speeds.hardware.1).min()?;
    Some((slowest, fastest))
}

fn bounds(
    root: &Root,
    cpus: &CpuList,
    actuator: Option<FrequencyActuator>,
) -> Option<(Kilohertz, Kilohertz)> {
    in_common(&linux::speeds_by(root, cpus, actuator).ok()?)
}

/// The operating points that all of `cpus` have by this means, slow to fast; or why there are none.
/// Turbo is not among them.
pub fn points(
    root: &Root,
    cpus: &CpuList,
    actuator: Option<FrequencyActuator>,
) -> Result<PointTable, String> {
    let all = match linux::speeds_by(root, cpus, actuator) {
        Err(FrequencyError::Unsupported { .. }) => Vec::new(),
        result => result.map_err(|error| error.to_string())?,
    };
    let Some(first) = all.first() else {
        return Err("cpufreq: the kernel sets no clock of these CPUs (virtual machines have none; \
                    on a real one load its driver, such as acpi-cpufreq)"
            .to_owned());
    };
    let known: usize = all.iter().map(|speeds| speeds.cpus.0.intersection(&cpus.0).count()).sum();
    if known < cpus.0.len() {
        return Err(format!(
            "cpufreq: the kernel sets the clocks of {known} of {} CPUs alone; name those with cpus",
            cpus.0.len()
        ));
    }
    if all.iter().any(|speeds| (speeds.hardware, &speeds.steps) != (first.hardware, &first.steps)) {
        return Err("one kind of cores: these differ in speed; name those of one kind with cpus".to_owned());
    }
    let (slowest, fastest) = (first.hardware.0, first.base.unwrap_or(first.hardware.1));
    let mut steps = first.steps.clone();
    if steps.is_empty() {
        // Such a driver takes anything; its hardware distinguishes steps of 100 MHz.
        steps = (slowest.0..fastest.0).step_by(100_000).map(Kilohertz).chain([fastest]).collect();
    }
    let last = steps.len().saturating_sub(1);
    // More than a table holds: as many of them, evenly, with both ends.
    let places = PointTable::MAX_POINTS.min(steps.len());
    let kept = (0..places).map(|place| steps[place * last / (places - 1).max(1)]);
    let nominal = steps.last().map_or(1.0, |step| step.0 as f64);
    let (exponent, kind) = match actuator {
        Some(FrequencyActuator::DutyCycle) => (1, PointKind::DutyCycle),
        _ => (3, PointKind::Pstate),
    };
    let point = |frequency: Kilohertz| OperatingPoint {
        frequency,
        power: Microwatts::from_watts(10.0 * (frequency.0 as f64 / nominal).powi(exponent)),
        kind,
    };
    kept.map(point).collect::<Vec<_>>().try_into().map_err(|error| format!("usable clocks: {error}"))
}

#[derive(Debug)]
pub struct Pace {
    counters: WorkCounters,
    last: BTreeMap<CpuId, Seen>,
}

/// The last reading of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    instructions: u64,
    cycles: u64,
    busy: Duration,
}

impl Pace {
    pub fn open(cpus: &CpuList) -> Result<Self, String> {
        Ok(Self { counters: WorkCounters::open(cpus)?, last: BTreeMap::new() })
    }

    /// Instructions per second and the mean clock of each CPU, over the time that it was busy since
    /// it was last read. Those that were not are not asked.
    pub fn read(&mut self, usage: &[CpuUsage]) -> BTreeMap<CpuId, (Rate, Kilohertz)> {
        let busy: BTreeMap<CpuId, Duration> =
            usage.iter().filter_map(|usage| Some((usage.cpu, usage.busy?))).collect();
        let worked = |cpu: CpuId| {
            let before = self.last.get(&cpu).map_or(Duration::ZERO, |seen| seen.busy);
            busy.get(&cpu).is_some_and(|&now| now - before >= WORKED)
        };
        let work = self.counters.read_of(worked);
        let (mut paces, mut stopped) = (BTreeMap::new(), Vec::new());
        for work in work {
            let Some(&busy) = busy.get(&work.cpu) else { continue };
            let now = Seen { instructions: work.instructions, cycles: work.cycles, busy };
            let before = self.last.insert(work.cpu, now).unwrap_or_default();
            if before != Seen::default() && before.cycles == now.cycles {
                stopped.push((work.cpu, Seen { busy, ..Seen::default() }));
            }
            paces.extend(pace(before, now).map(|pace| (work.cpu, pace)));
        }
        // It worked without a cycle: it was offline in between, which takes its counters from it.
        for (cpu, from_here) in stopped {
            self.counters.open_again(cpu);
            self.last.insert(cpu, from_here);
        }
        paces
    }
}

/// `None` where a count went backwards, as one that shares its place with others may after it was
/// scaled.
fn pace(before: Seen, now: Seen) -> Option<(Rate, Kilohertz)> {
    let seconds = (now.busy - before.busy).as_secs_f64();
    let instructions = now.instructions.checked_sub(before.instructions)? as f64;
    let cycles = now.cycles.checked_sub(before.cycles)? as f64;
    (seconds > 0.0 && cycles > 0.0).then(|| {
        (Rate::per_second(instructions / seconds), Kilohertz((cycles / seconds / 1e3).round() as u64))
    })
}

/// The inputs of sensitivity beside the clocks.
const COUNTERS: &str = "the processor's counters";

/// Less work tells nothing: some ten thousand instructions, as `sensitivity::Params::min_busy`.
const WORKED: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests;
