//! The energy-performance preference (EPP): a hint to hardware that chooses its frequency by
//! itself, from "as fast as you can" to "as cheap as you can".
//!
//! Under `intel_pstate` and `amd-pstate` in active mode there is no `scaling_setspeed`, and on some
//! machines the bounds have little effect. Those drivers were made for the preference. It promises
//! no frequency. So a cap becomes a place between two ends: the fastest frequency stands for *the
//! administrator's setting*, the slowest for `power`, and a request lies as far between them as its
//! frequency does. The hint never asks for more speed than there was without us.
//!
//! With r = (frequency - slowest) / (fastest - slowest):
//!
//! | the driver takes | steps | a cap becomes |
//! |---|---|---|
//! | names | own, and each offered name that is more frugal (n in all) | step floor((1 - r) n) |
//! | numbers, 0 (fast) to 255 (frugal) | nine | own + (255 - own) floor(8 (1 - r)) / 8 |
//!
//! With `balance_performance` before us and all names on offer, a frequency in the upper third
//! changes nothing, one in the middle third is `balance_power`, one below it `power`.
//!
//! Numbers are used with `intel_pstate`, which takes them since Linux 5.9, and where the file reads
//! one; if the kernel refuses one, names are used from then on. A name counts as `performance` 0,
//! `balance_performance` 128, `balance_power` 192, `power` 255, Intel's own figures; some models
//! use others for a name, which moves the steps and not their order. A number that the driver has a
//! name for reads back as that name, and is in force.
//!
//! Invariants: under the governor `performance`, where the kernel refuses any other hint
//! (EBUSY), nothing is written and the reason says so.

use super::clock::{GOVERNOR, policies};
use super::domain::{Domain, Means, Order, Speeds, Trouble};
use super::state::{FrequencyActuator, FrequencyState};
use crate::journal::{ChangeError, Journal};
use crate::root::{FileError, Gaps, Root};
use machine::{CpuList, Kilohertz};

#[derive(Debug)]
pub(super) struct Preference {
    /// Its folder below the root.
    folder: String,
    /// The known names on offer, the fastest first.
    names: Vec<String>,
    takes_numbers: bool,
}

impl Preference {
    pub(super) fn put_in_force(
        &mut self,
        journal: &mut Journal,
        order: &Order<'_>,
    ) -> Result<FrequencyState, Trouble> {
        let &Order { speeds, limit, clock } = order;
        let governor = journal.read(&format!("{}/{GOVERNOR}", self.folder))?;
        if governor.split(' ').next() == Some("performance") {
            return Err(Trouble::Told(UNDER_PERFORMANCE.to_owned()));
        }
        let file = self.file();
        let own = journal.earlier(&file)?;
        let share = share(speeds, clock);
        let mut reads = None;
        if self.takes_numbers {
            let number = number_for(&own, share);
            match journal.set(&file, &number) {
                Ok(is) => reads = Some((number, is)),
                Err(ChangeError::File(FileError::Unwritable { cause, .. })) if is_invalid(&cause) => {
                    self.takes_numbers = false;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let (wanted, reads) = match reads {
            Some(both) => both,
            None => {
                let name = name_for(&own, &self.names, share);
                let is = journal.set(&file, &name)?;
                (name, is)
            }
        };
        // The kernel calls a number by its name where it has one.
        let is_named = wanted.parse::<u8>().is_ok() && number_of(&reads).is_some();
        if reads != wanted && !is_named {
            return Err(Trouble::Told(format!(
                "{FILE} reads {reads} after {wanted} was written: another program or the firmware chooses it"
            )));
        }
        Ok(FrequencyState::InForce {
            limit,
            reads: clock,
            by: FrequencyActuator::Preference,
            setting: Some(format!("energy preference {reads}")),
            kept_stricter: number_of(&own) == Some(FRUGAL),
        })
    }

    pub(super) fn free(&self, journal: &mut Journal) -> Result<(), ChangeError> {
        journal.put_back(&self.file())
    }

    pub(super) fn has(&self, path: &str) -> bool {
        path == self.file()
    }

    pub(super) fn explain(error: &FileError) -> Option<String> {
        match error {
            FileError::Unwritable { cause, .. }
                if cause.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) =>
            {
                Some(UNDER_PERFORMANCE.to_owned())
            }
            _ => None,
        }
    }

    fn file(&self) -> String {
        format!("{}/{FILE}", self.folder)
    }
}

const UNDER_PERFORMANCE: &str = "energy_performance_preference takes nothing while the governor is \
    performance: write powersave to \
     scaling_governor (cpupower frequency-set -g powersave), or leave epp out";

fn is_invalid(cause: &std::io::Error) -> bool {
    cause.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error())
}

/// The place of a frequency between the slowest (0) and the fastest (1).
fn share(speeds: &Speeds, clock: Kilohertz) -> f64 {
    let (slowest, fastest) = speeds.hardware;
    let range = fastest.0.saturating_sub(slowest.0).max(1);
    (clock.0.saturating_sub(slowest.0) as f64 / range as f64).min(1.0)
}

fn number_of(text: &str) -> Option<u8> {
    match text {
        "performance" => Some(0),
        // The firmware's first setting, which on servers is this.
        "balance_performance" | "default" => Some(128),
        "balance_power" => Some(192),
        "power" => Some(FRUGAL),
        number => number.parse().ok(),
    }
}

/// The number for a frequency at this share of its range; the administrator's `own` in the first
/// step.
fn number_for(own: &str, share: f64) -> String {
    let step = ((1.0 - share) * NUMBER_STEPS).floor();
    if step <= 0.0 {
        return own.to_owned();
    }
    let from = f64::from(number_of(own).unwrap_or(128));
    let number = from + (f64::from(FRUGAL) - from) * step.min(NUMBER_STEPS) / NUMBER_STEPS;
    (number.round() as u8).to_string()
}

/// The same in names.
fn name_for(own: &str, names: &[String], share: f64) -> String {
    let from = number_of(own).unwrap_or(128);
    let more_frugal = names.iter().filter(|name| number_of(name).is_some_and(|number| number > from));
    let steps: Vec<&str> = std::iter::once(own).chain(more_frugal.map(String::as_str)).collect();
    let step = ((1.0 - share) * steps.len() as f64).floor() as usize;
    steps[step.min(steps.len() - 1)].to_owned()
}

/// The domains with a CPU among `cpus`, or the reason that there are none.
pub(super) fn domains(root: &Root, cpus: &CpuList) -> Result<Vec<Domain>, String> {
    let mut gaps = Gaps::default();
    let mut found = Vec::new();
    for (folder, speeds) in policies(root, cpus) {
        let Some(now) = gaps.text(root, &format!("{folder}/{FILE}")) else { continue };
        let offered = gaps.text(root, &format!("{folder}/{OFFERED}")).unwrap_or_default();
        let mut names: Vec<(u8, String)> = offered
            .split_whitespace()
            .filter(|name| *name != "default" && name.parse::<u8>().is_err())
            .filter_map(|name| Some((number_of(name)?, name.to_owned())))
            .collect();
        names.sort();
        names.dedup();
        let driver = gaps.text(root, &format!("{folder}/scaling_driver"));
        let takes_numbers = driver.as_deref() == Some("intel_pstate") || now.parse::<u8>().is_ok();
        let names = names.into_iter().map(|(_, name)| name).collect();
        let preference = Preference { folder, names, takes_numbers };
        found.push(Domain::new(Means::Preference(preference), speeds));
    }
    if found.is_empty() {
        return Err(format!(
            "CPU {cpus} has no {FILE}, which intel_pstate and amd-pstate show in active mode on \
             processors that choose their \
             clock by themselves\nhint: boot with intel_pstate=active or amd_pstate=active, or leave epp out"
        ));
    }
    Ok(found)
}

/// The last preference there is.
const FRUGAL: u8 = 255;

/// Steps of numbers beyond the administrator's own.
const NUMBER_STEPS: f64 = 8.0;

const FILE: &str = "energy_performance_preference";
const OFFERED: &str = "energy_performance_available_preferences";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpufreq::FOLDER;
    use crate::fake::FakeMachine;
    use crate::{FrequencyControl, FrequencyError, FrequencyOptions};
    use FrequencyLimit::{AtMost, None as Free};
    use machine::CpuId;
    use machine::FrequencyLimit;

    const GHZ: fn(u64) -> Kilohertz = |tenths| Kilohertz(tenths * 100_000);

    fn file(policy: u16, name: &str) -> String {
        format!("{FOLDER}/policy{policy}/{name}")
    }

    /// Two CPUs with a frequency each, from 1 to 4 GHz, in active mode.
    fn machine(driver: &str, own: &str) -> FakeMachine {
        let machine = FakeMachine::intel_server(2);
        for policy in 0..2 {
            for (name, text) in [
                ("affected_cpus", policy.to_string().as_str()),
                ("cpuinfo_min_freq", "1000000"),
                ("cpuinfo_max_freq", "4000000"),
                ("scaling_min_freq", "1000000"),
                ("scaling_max_freq", "4000000"),
                ("scaling_governor", "powersave"),
                ("scaling_driver", driver),
                (FILE, own),
                (OFFERED, "default performance balance_performance balance_power power"),
            ] {
                machine.write(&file(policy, name), &format!("{text}\n"));
            }
        }
        machine
    }

    fn open(machine: &FakeMachine) -> FrequencyControl {
        let options = FrequencyOptions {
            actuator: Some(FrequencyActuator::Preference),
            ..FrequencyOptions::new("a test")
        };
        FrequencyControl::open(machine.root(), &"0-1".parse().unwrap(), options).unwrap()
    }

    #[test]
    fn names_go_from_the_administrators_own_to_power() {
        let names = ["performance", "balance_performance", "balance_power", "power"].map(str::to_owned);
        for (own, share, name) in [
            ("balance_performance", 1.0, "balance_performance"),
            ("balance_performance", 0.7, "balance_performance"),
            ("balance_performance", 0.6, "balance_power"),
            ("balance_performance", 0.3, "power"),
            ("balance_performance", 0.0, "power"),
            ("performance", 0.6, "balance_performance"),
            ("performance", 0.4, "balance_power"),
            ("default", 0.6, "balance_power"),
            ("power", 1.0, "power"),
            ("power", 0.0, "power"),
            ("something new", 0.9, "something new"),
        ] {
            assert_eq!(name_for(own, &names, share), name, "{own} {share}");
        }
        assert_eq!(name_for("performance", &[], 0.0), "performance", "nothing is on offer");
    }

    #[test]
    fn numbers_go_in_eight_steps_to_255() {
        for (own, share, number) in [
            ("128", 1.0, "128"),
            ("128", 0.9, "128"),
            ("128", 0.87, "144"),
            ("balance_performance", 0.5, "192"),
            ("0", 0.5, "128"),
            ("0", 0.0, "255"),
            ("255", 0.0, "255"),
        ] {
            assert_eq!(number_for(own, share), number, "{own} {share}");
        }
    }

    #[test]
    fn a_cap_becomes_a_hint_of_its_own_domain_and_goes_with_its_owner() {
        let machine = machine("amd-pstate-epp", "balance_performance");
        let before = machine.snapshot();
        let mut control = open(&machine);
        let state = control.limit(CpuId(1), AtMost(GHZ(25)));
        assert_eq!(state.to_string(), "energy preference balance_power, for at most 2500MHz");
        assert_eq!(machine.read(&file(1, FILE)), "balance_power");
        assert_eq!(machine.read(&file(0, FILE)), "balance_performance");
        control.limit(CpuId(1), AtMost(GHZ(10)));
        assert_eq!(machine.read(&file(1, FILE)), "power");
        assert_eq!(control.limit(CpuId(1), Free), FrequencyState::Free);
        assert_eq!(machine.snapshot(), before);
        control.limit(CpuId(0), AtMost(GHZ(12)));
        drop(control);
        assert_eq!(machine.snapshot(), before);
    }

    #[test]
    fn intel_takes_numbers() {
        let machine = machine("intel_pstate", "128");
        let mut control = open(&machine);
        control.limit(CpuId(0), AtMost(GHZ(25)));
        assert_eq!(machine.read(&file(0, FILE)), "192");
        drop(control);
        assert_eq!(machine.read(&file(0, FILE)), "128");
    }

    #[test]
    fn under_performance_nothing_is_written_and_the_fix_is_named() {
        let machine = machine("intel_pstate", "performance");
        machine.write(&file(0, GOVERNOR), "performance\n");
        let before = machine.snapshot();
        let state = open(&machine).limit(CpuId(0), AtMost(GHZ(20)));
        assert!(state.to_string().contains("write powersave to scaling_governor"), "{state}");
        assert_eq!(machine.snapshot(), before);
        let busy = FileError::Unwritable {
            path: FILE.into(),
            value: "power".into(),
            cause: rustix::io::Errno::BUSY.into(),
        };
        assert!(Preference::explain(&busy).is_some_and(|told| told.contains("powersave")));
    }

    #[test]
    fn a_number_that_the_kernel_refuses_becomes_a_name() {
        let machine = machine("intel_pstate", "balance_performance");
        // This driver takes -16 to 15 as a number, and reads so. It refuses 255 (EINVAL), and so
        // the code after it.
        machine.remove(&file(0, FILE));
        std::os::unix::fs::symlink("/proc/self/oom_adj", machine.path(&file(0, FILE))).unwrap();
        let mut control = open(&machine);
        let state = control.limit(CpuId(0), AtMost(GHZ(10)));
        assert!(state.to_string().contains("Invalid argument"), "{state}");
        let Means::Preference(preference) = &control.domains[0].means else { panic!() };
        assert!(!preference.takes_numbers, "names from now on");
    }

    #[test]
    fn somebody_elses_hint_is_drift_and_stays_in_the_end() {
        let machine = machine("amd-pstate-epp", "performance");
        let mut control = open(&machine);
        control.limit(CpuId(0), AtMost(GHZ(10)));
        assert_eq!(control.drift(), []);
        machine.write(&file(0, FILE), "balance_power\n");
        let drift = control.drift();
        assert_eq!(
            drift[0].to_string(),
            "energy_performance_preference of CPU 0 reads balance_power where we had set power"
        );
        control.reassert();
        assert_eq!(machine.read(&file(0, FILE)), "power");
        control.release();
        assert_eq!(machine.read(&file(0, FILE)), "balance_power");
    }

    #[test]
    fn a_hint_is_no_speed_and_a_driver_without_it_is_told() {
        let machine = machine("intel_pstate", "power");
        let state = open(&machine).limit(CpuId(0), FrequencyLimit::Exactly(GHZ(20)));
        assert!(state.to_string().contains("sets no speed"), "{state}");
        (0..2).for_each(|policy| machine.remove(&file(policy, FILE)));
        let options =
            FrequencyOptions { actuator: Some(FrequencyActuator::Preference), ..FrequencyOptions::new("x") };
        let error = FrequencyControl::open(machine.root(), &"0-1".parse().unwrap(), options).unwrap_err();
        assert!(matches!(error, FrequencyError::Lacking { .. }));
        assert!(error.to_string().contains("hint: boot with intel_pstate=active"), "{error}");
    }
}
