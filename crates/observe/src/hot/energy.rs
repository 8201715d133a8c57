//! Joules for each request at each clock, measured under the load that is there: a clock is set,
//! the meter and the requests are read before and after, and then the next.
//!
//! Invariants: clocks are set through `linux`'s control, which journals first and puts back when it
//! is released or dropped; a clock that the kernel refused, or at which no request came, has no
//! figure.

use linux::{EnergyMeter, FrequencyControl, FrequencyState};
use machine::{CpuId, Duration, FrequencyLimit, Kilohertz};
use serde::Serialize;
use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClockMeasured {
    pub frequency: Kilohertz,
    pub requests: u64,
    /// Energy of each, of all that the meter sees; `None` if there is none to tell.
    pub joules: Option<f64>,
    pub why: Option<String>,
}

/// The clocks that all domains have; of drivers that take any, eight evenly between the bounds.
pub fn clocks(control: &FrequencyControl) -> Vec<Kilohertz> {
    let of = |(slow, fast): (Kilohertz, Kilohertz), steps: &[Kilohertz]| -> BTreeSet<Kilohertz> {
        let even =
            (0..STEPS).map(|step| Kilohertz(slow.0 + (fast.0.saturating_sub(slow.0)) * step / (STEPS - 1)));
        if steps.is_empty() { even.collect() } else { steps.iter().copied().collect() }
    };
    let mut all = control.speeds().map(|speeds| of(speeds.hardware, &speeds.steps));
    let Some(first) = all.next() else { return Vec::new() };
    all.fold(first, |common, other| common.intersection(&other).copied().collect()).into_iter().collect()
}

/// Measures for `each` at every one of `clocks`. `requests` tells how many were answered so far;
/// `wait` returns false to end it all.
pub fn measure(
    control: &mut FrequencyControl,
    meter: &mut EnergyMeter,
    clocks: &[Kilohertz],
    each: Duration,
    mut requests: impl FnMut() -> u64,
    mut wait: impl FnMut(Duration) -> bool,
) -> Vec<ClockMeasured> {
    let cpus: Vec<CpuId> = control.speeds().flat_map(|speeds| speeds.cpus.0.iter().copied()).collect();
    let mut found = Vec::new();
    for &frequency in clocks {
        let refusals: BTreeSet<String> = cpus
            .iter()
            .filter_map(|&cpu| match control.limit(cpu, FrequencyLimit::Exactly(frequency)) {
                FrequencyState::Refused { reason } => Some(reason),
                _ => None,
            })
            .collect();
        if let Some(why) = refusals.into_iter().next() {
            found.push(ClockMeasured { frequency, requests: 0, joules: None, why: Some(why) });
            continue;
        }
        // Calls under way at the earlier clock do not count for this one.
        if !wait(each.scale(SETTLING)) {
            break;
        }
        let before = (requests(), meter.read(linux::now()));
        let goes_on = wait(each);
        let after = (requests(), meter.read(linux::now()));
        if !goes_on {
            break;
        }
        let answered = after.0.saturating_sub(before.0);
        let used =
            before.1.zip(after.1).map(|(before, after)| after.used.as_joules() - before.used.as_joules());
        let joules = used.filter(|_| answered > 0).map(|used| used / answered as f64);
        let why = match (used, answered) {
            (None, _) => Some("the meter could not be read".to_owned()),
            (_, 0) => Some("no request came".to_owned()),
            _ => None,
        };
        found.push(ClockMeasured { frequency, requests: answered, joules, why });
    }
    control.release();
    found
}

const STEPS: u64 = 8;
const SETTLING: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;
    use linux::{FrequencyOptions, Root};
    use std::cell::Cell;
    use std::fs;
    use std::path::Path;

    fn write(root: &Path, below: &str, text: &str) {
        let path = root.join(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy0";
    const METER: &str = "sys/class/powercap/intel-rapl:0/energy_uj";

    /// One CPU with three clocks under `userspace`, and a meter.
    fn machine() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "sys/devices/system/cpu/online", "0");
        write(root, "sys/devices/system/cpu/possible", "0");
        for (name, text) in [
            ("affected_cpus", "0"),
            ("cpuinfo_min_freq", "1000000"),
            ("cpuinfo_max_freq", "2600000"),
            ("scaling_min_freq", "1000000"),
            ("scaling_max_freq", "2600000"),
            ("scaling_setspeed", "2600000"),
            ("scaling_governor", "userspace"),
            ("scaling_available_governors", "schedutil userspace"),
            ("scaling_available_frequencies", "2600000 2000000 1000000"),
        ] {
            write(root, &format!("{POLICY}/{name}"), text);
        }
        for (name, text) in
            [("name", "package-0"), ("energy_uj", "0"), ("max_energy_range_uj", "262143328850")]
        {
            write(root, &format!("sys/class/powercap/intel-rapl:0/{name}"), text);
        }
        folder
    }

    fn now_set(root: &Path) -> u64 {
        fs::read_to_string(root.join(POLICY).join("scaling_setspeed")).unwrap().trim().parse().unwrap()
    }

    #[test]
    fn each_clock_is_set_measured_and_put_back() {
        let folder = machine();
        let root = Root::at(folder.path());
        let cpus = "0".parse().unwrap();
        let mut control = FrequencyControl::open(&root, &cpus, FrequencyOptions::new("a test")).unwrap();
        let mut meter = EnergyMeter::open(&root, &cpus, linux::now());
        assert!(meter.is_measured(), "{:?}", meter.describe());
        let steps = clocks(&control);
        assert_eq!(steps, [1_000_000, 2_000_000, 2_600_000].map(Kilohertz));
        // A machine on which the middle clock is the cheapest: 5, 3 and 4 J for each of ten
        // requests.
        let (requests, used) = (Cell::new(0), Cell::new(0u64));
        let seen = std::cell::RefCell::new(Vec::new());
        let each = Duration::from_millis(100);
        let wait = |length: Duration| {
            if length == each {
                let clock = now_set(folder.path());
                seen.borrow_mut().push(clock);
                requests.set(requests.get() + 10);
                let joules = match clock {
                    1_000_000 => 5,
                    2_000_000 => 3,
                    _ => 4,
                };
                used.set(used.get() + 10 * joules * 1_000_000);
                write(folder.path(), METER, &used.get().to_string());
            }
            true
        };
        let found = measure(&mut control, &mut meter, &steps, each, || requests.get(), wait);
        assert_eq!(*seen.borrow(), [1_000_000, 2_000_000, 2_600_000]);
        let joules: Vec<f64> = found.iter().map(|clock| clock.joules.unwrap()).collect();
        assert_eq!(joules, [5.0, 3.0, 4.0]);
        assert_eq!(now_set(folder.path()), 2_600_000, "put back");
    }

    #[test]
    fn a_signal_ends_it_and_the_clock_is_put_back_and_no_requests_have_no_figure() {
        let folder = machine();
        let root = Root::at(folder.path());
        let cpus = "0".parse().unwrap();
        let mut control = FrequencyControl::open(&root, &cpus, FrequencyOptions::new("a test")).unwrap();
        let mut meter = EnergyMeter::open(&root, &cpus, linux::now());
        let steps = clocks(&control);
        let waits = Cell::new(0);
        let wait = |_| {
            waits.set(waits.get() + 1);
            waits.get() < 3
        };
        let found = measure(&mut control, &mut meter, &steps, Duration::from_millis(1), || 0, wait);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].joules, found[0].why.as_deref()), (None, Some("no request came")));
        assert_eq!(now_set(folder.path()), 2_600_000);
    }
}
