//! The clocks of all services that want theirs chosen, and how fast they get on.
//!
//! The services of a daemon share one handle ([`Clocks`]) on the requests that `linux::arbiter`
//! combines. Controllers share it too. A service that does not care for a CPU's clock has no say in
//! it. One that cares and asks for nothing just now wants the full clock. So a CPU is capped only
//! while every service with a say there has a cap, and the fastest of these caps is in force.
//!
//! A policy needs the speeds and the power of each beforehand; [`gears`] looks them up. Power is
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
use linux::{CpuUsage, FrequencyActuator, FrequencyError, FrequencyState, Root};
use machine::{CpuId, CpuList, Duration, FrequencyLimit, Gear, GearKind, Kilohertz, Microwatts, Rate};
use policy::frequency::GearTable;
use policy::governing::FrequencyMode;
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
    match (gears(root, cpus, means.actuator), mode) {
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

fn bounds(
    root: &Root,
    cpus: &CpuList,
    actuator: Option<FrequencyActuator>,
) -> Option<(Kilohertz, Kilohertz)> {
    let all = linux::speeds_by(root, cpus, actuator).ok()?;
    Some((
        all.iter().map(|speeds| speeds.hardware.0).max()?,
        all.iter().map(|speeds| speeds.hardware.1).min()?,
    ))
}

/// The gears that all of `cpus` have by this means, slow to fast; or why there are none. Turbo is
/// not among them.
pub fn gears(root: &Root, cpus: &CpuList, actuator: Option<FrequencyActuator>) -> Result<GearTable, String> {
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
    let places = GearTable::MAX_GEARS.min(steps.len());
    let kept = (0..places).map(|place| steps[place * last / (places - 1).max(1)]);
    let nominal = steps.last().map_or(1.0, |step| step.0 as f64);
    let (exponent, kind) = match actuator {
        Some(FrequencyActuator::DutyCycle) => (1, GearKind::DutyCycle),
        _ => (3, GearKind::Pstate),
    };
    let gear = |frequency: Kilohertz| Gear {
        frequency,
        power: Microwatts::from_watts(10.0 * (frequency.0 as f64 / nominal).powi(exponent)),
        kind,
    };
    kept.map(gear).collect::<Vec<_>>().try_into().map_err(|error| format!("usable clocks: {error}"))
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
mod tests {
    use super::*;
    use linux::arbiter::Arbiter;
    use std::fs;
    use std::path::PathBuf;

    /// Two CPUs that share a clock.
    fn machine(steps: &str) -> (tempfile::TempDir, Root, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("sys/devices/system/cpu/cpufreq/policy0");
        fs::create_dir_all(&policy).unwrap();
        fs::create_dir_all(folder.path().join("run")).unwrap();
        for (file, text) in [
            ("affected_cpus", "0 1"),
            ("cpuinfo_min_freq", "1000000"),
            ("cpuinfo_max_freq", "2600000"),
            ("scaling_min_freq", "1000000"),
            ("scaling_max_freq", "2600000"),
            ("scaling_setspeed", "<unsupported>"),
            ("scaling_governor", "schedutil"),
            ("scaling_available_frequencies", steps),
        ] {
            fs::write(policy.join(file), format!("{text}\n")).unwrap();
        }
        let root = Root::at(folder.path());
        (folder, root, policy.join("scaling_max_freq"))
    }

    const STEPS: &str = "2600000 2000000 1400000 1000000";

    fn cpus(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    fn at_most(mhz: u64) -> FrequencyLimit {
        FrequencyLimit::AtMost(Kilohertz(mhz * 1_000))
    }

    fn clocks(root: &Root) -> Clocks {
        let limits = Arbiter::new(root, "a test").clocks;
        limits.hold("services", &cpus("0-1")).unwrap();
        Clocks::of(&limits)
    }

    #[test]
    fn the_fastest_wins_and_withdrawing_gives_what_the_rest_asks_for() {
        let (_folder, root, max) = machine(STEPS);
        let reads = || fs::read_to_string(&max).unwrap().trim().to_owned();
        let clocks = clocks(&root);
        clocks.join("cache", &cpus("0-1"));
        clocks.limit("cache", CpuId(0), at_most(1_000));
        assert_eq!(reads(), "2600000", "cpu1 is free, and shares the clock");
        clocks.limit("cache", CpuId(1), at_most(1_400));
        assert_eq!(reads(), "1400000");
        // Who has a say and asks for nothing wants all.
        clocks.join("search", &cpus("0"));
        assert_eq!(reads(), "2600000");
        clocks.limit("search", CpuId(0), at_most(2_000));
        assert_eq!(reads(), "2000000");
        clocks.withdraw("search");
        assert_eq!(reads(), "1400000");
        clocks.withdraw("cache");
        assert_eq!(reads(), "2600000");
        clocks.limit("cache", CpuId(0), at_most(1_000));
        drop(clocks);
        assert_eq!(reads(), "2600000");
    }

    #[test]
    fn somebody_elses_change_is_repaired_once() {
        let (_folder, root, max) = machine(STEPS);
        let clocks = clocks(&root);
        for cpu in [0, 1] {
            clocks.limit("cache", CpuId(cpu), at_most(1_400));
        }
        assert_eq!(clocks.repair("cache"), Repair::Unneeded);
        fs::write(&max, "2000000\n").unwrap();
        assert!(matches!(clocks.repair("cache"), Repair::Done(what) if what.contains("scaling_max_freq")));
        assert_eq!(fs::read_to_string(&max).unwrap(), "1400000\n");
        fs::write(&max, "2000000\n").unwrap();
        assert!(matches!(clocks.repair("cache"), Repair::Vain(_)));
        clocks.withdraw("cache");
        assert_eq!(fs::read_to_string(&max).unwrap(), "2000000\n", "theirs stays");
    }

    #[test]
    fn gears_are_what_all_cpus_have() {
        let (_folder, root, _) = machine(STEPS);
        let table = gears(&root, &cpus("0-1"), None).unwrap();
        assert_eq!((table.count(), table.khz(table.slowest())), (4, Kilohertz(1_000_000)));
        assert!(gears(&root, &cpus("0-2"), None).unwrap_err().contains("2 of 3 CPUs"));
        // Any speed: every 100 MHz.
        let (_folder, root, _) = machine("");
        let table = gears(&root, &cpus("0-1"), None).unwrap();
        assert_eq!((table.count(), table.khz(table.fastest())), (17, Kilohertz(2_600_000)));
        // More than a table holds.
        let many: Vec<String> = (0..100).map(|step| (1_000_000 + step * 16_000).to_string()).collect();
        let (_folder, root, _) = machine(&many.join(" "));
        let table = gears(&root, &cpus("0-1"), None).unwrap();
        assert_eq!((table.count(), table.khz(table.fastest())), (32, Kilohertz(2_584_000)));
        let (_folder, root, _) = machine("1000000");
        assert_eq!(gears(&root, &cpus("0-1"), None).unwrap().count(), 1);
    }

    #[test]
    fn gears_of_a_duty_cycle_cost_in_proportion_and_those_of_a_power_cap_are_even() {
        let (folder, root, _) = machine(STEPS);
        for (file, text) in [
            ("proc/cpuinfo", "vendor_id : GenuineIntel\nflags : acpi\n"),
            ("sys/devices/system/cpu/online", "0-1\n"),
            ("dev/cpu/0/msr", ""),
            ("dev/cpu/1/msr", ""),
            ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
            ("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "100000000\n"),
        ] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let table = gears(&root, &cpus("0-1"), Some(FrequencyActuator::DutyCycle)).unwrap();
        let slowest = table.slowest();
        assert_eq!((table.count(), table.speed(slowest), table.power(slowest).as_watts()), (8, 0.125, 1.25));
        let table = gears(&root, &cpus("0-1"), Some(FrequencyActuator::PowerCap)).unwrap();
        let watts: Vec<f64> = table.iter().map(|gear| table.power(gear).as_watts()).collect();
        assert_eq!(watts.len(), 32);
        assert!(watts.windows(2).all(|two| (two[1] - two[0] - 10.0 / 32.0).abs() < 1e-3), "{watts:?}");
    }

    #[test]
    fn services_share_a_sockets_power_and_the_most_wins() {
        let (folder, root, _) = machine(STEPS);
        let zone = folder.path().join("sys/class/powercap/intel-rapl:0");
        fs::create_dir_all(&zone).unwrap();
        fs::write(folder.path().join("sys/devices/system/cpu/online"), "0-1\n").unwrap();
        fs::write(zone.join("name"), "package-0\n").unwrap();
        let limit = zone.join("constraint_0_power_limit_uw");
        fs::write(&limit, "100000000\n").unwrap();
        let reads = || fs::read_to_string(&limit).unwrap().trim().to_owned();
        let means = ClockMeans { actuator: Some(FrequencyActuator::PowerCap), allow_msr: false };
        let limits = Arbiter::new(&root, "a test").clocks;
        limits.use_means(means).unwrap();
        limits.hold("services", &cpus("0-1")).unwrap();
        let clocks = Clocks::of(&limits);
        clocks.limit("cache", CpuId(0), at_most(1_300));
        clocks.limit("search", CpuId(1), at_most(2_100));
        // Of 2.6 GHz: 0.527 of full power, rounded down to 16 of 32 steps, between 30 and 100 W.
        assert_eq!(reads(), "65000000");
        clocks.withdraw("search");
        assert_eq!(reads(), "100000000", "cpu1 is asked nothing now, and wants all");
        clocks.limit("search", CpuId(1), at_most(1_300));
        assert_eq!(reads(), "38750000");
        fs::write(&limit, "90000000\n").unwrap();
        assert!(matches!(clocks.repair("cache"), Repair::Done(_)));
        fs::write(&limit, "90000000\n").unwrap();
        assert!(matches!(clocks.repair("cache"), Repair::Vain(_)));
        clocks.withdraw("cache");
        clocks.withdraw("search");
        assert_eq!(reads(), "90000000", "theirs stays");
    }

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let bare = Root::at(folder.path());
        assert_eq!(missing(&bare, FrequencyMode::Stock, &cpus("0"), ClockMeans::default()), None);
        let told = missing(&bare, FrequencyMode::Sensitivity, &cpus("0"), ClockMeans::default()).unwrap();
        assert!(told.contains("cpufreq") && told.contains("hint:"), "{told}");
        let (_folder, root, _) = machine(STEPS);
        for (actuator, told) in [
            (FrequencyActuator::Preference, "amd_pstate=active"),
            (FrequencyActuator::DutyCycle, "Intel's processors"),
            (FrequencyActuator::PowerCap, "/sys/class/powercap"),
        ] {
            let means = ClockMeans { actuator: Some(actuator), allow_msr: true };
            let reason = missing(&root, FrequencyMode::Pegasus, &cpus("0-1"), means).unwrap();
            assert!(reason.contains(told) && reason.matches("hint:").count() == 1, "{reason}");
        }
        assert_eq!(missing(&root, FrequencyMode::Pegasus, &cpus("0-1"), ClockMeans::default()), None);
        assert_eq!(
            missing(&root, FrequencyMode::Cap(Kilohertz(1_500_000)), &cpus("0-1"), ClockMeans::default()),
            None
        );
        let told =
            missing(&root, FrequencyMode::Cap(Kilohertz(900_000)), &cpus("0-1"), ClockMeans::default())
                .unwrap();
        assert!(told.contains("900MHz is beyond") && told.contains("write 1000MHz to 2600MHz"), "{told}");
    }

    #[test]
    fn pace_is_over_busy_time_and_a_count_that_goes_back_is_none() {
        let seen = |instructions, cycles, ms| Seen { instructions, cycles, busy: Duration::from_millis(ms) };
        let (rate, clock) = pace(seen(1_000, 1_000, 10), seen(2_001_000, 1_001_000, 11)).unwrap();
        assert_eq!((rate.as_per_second(), clock), (2e9, Kilohertz(1_000_000)));
        assert_eq!(pace(seen(10, 10, 1), seen(5, 20, 2)), None);
        assert_eq!(pace(seen(10, 10, 1), seen(20, 20, 1)), None);
    }
}
