//! A cap on the average power of a socket, by RAPL: Pegasus was built on it.
//!
//! powercap shows each socket as `intel-rapl:N`, whose first constraint (`long_term`) is an average
//! that the hardware keeps by choosing frequencies itself. One cap serves all cores of the socket
//! and all services on it: a socket gets the *most* of its CPUs' requests, and one with a CPU that
//! is not ours keeps its limit. A half-idle socket lets its busy cores run faster than a cap on
//! frequencies would. That is its use, and the reason that it limits no single core.
//!
//! The request is a frequency, whose cube is the share of full power (voltage goes down with the
//! frequency, as in the table that Pegasus decides by). The cap then lies as far between the floor
//! and full power:
//!
//! - *Full power* is the limit that was there, or the design power (`constraint_0_max_power_uw`)
//!   where that is less: an average above it is never reached, so lowering it would change nothing.
//! - *The floor* is `constraint_0_min_power_uw`, where the driver shows it; else 30 % of full power
//!   (ESTIMATE: a server's socket takes 15 to 40 % of its design power at rest, caches and memory
//!   controllers included). Below it the hardware would stop clocks and no longer keep the cap.
//!
//! Speeds are offered in 32 equal steps of power. Limits are written in eighths of a watt, the
//! hardware's unit.
//!
//! Invariants: a cap is never above the limit that was there. A cap that reads back more
//! than one unit off is refused. A limit that was switched off (`enabled` 0) is switched on as long
//! as ours is there.

use super::domain::{Domain, Means, Order, Speeds, Trouble};
use super::state::{FrequencyActuator, FrequencyState};
use crate::cpufreq::nominal_clock;
use crate::journal::{ChangeError, Journal};
use crate::knob::{UNIT_UW, same_power};
use crate::root::{FileError, Gaps, Root, cpu_folder};
use crate::system::topology::{online_cpus, topology_of};
use machine::{CpuId, CpuList, Kilohertz, Microwatts};

#[derive(Debug)]
pub(super) struct PowerCap {
    /// Its folder below the root.
    folder: String,
    design: Option<u64>,
    least: Option<u64>,
}

impl PowerCap {
    pub(super) fn put_in_force(
        &self,
        journal: &mut Journal,
        order: &Order<'_>,
    ) -> Result<FrequencyState, Trouble> {
        let &Order { speeds, limit, clock } = order;
        let file = self.file(LIMIT);
        let earlier = journal.earlier(&file)?;
        let original: u64 = earlier
            .parse()
            .map_err(|_| format!("{LIMIT} reads `{earlier}` where microwatts were expected"))?;
        let share = (clock.0 as f64 / speeds.hardware.1.0 as f64).powi(3);
        let cap = self.cap(original, share);
        let reads = match cap {
            Some(cap) => journal.set(&file, &cap.to_string())?,
            // The limit that was there is as low as any of ours.
            None => {
                journal.put_back(&file)?;
                earlier
            }
        };
        if let Some(cap) = cap {
            if !same_power(&cap.to_string(), &reads) {
                return Err(Trouble::Told(format!(
                    "{LIMIT} reads {reads} after {cap} was written: the firmware or another program bounds it"
                )));
            }
            self.switch_on(journal)?;
        }
        let watts = Microwatts(reads.parse().unwrap_or(original));
        Ok(FrequencyState::InForce {
            limit,
            reads: clock,
            by: FrequencyActuator::PowerCap,
            setting: Some(format!("power cap {:.1} W", watts.as_watts())),
            kept_stricter: cap.is_none(),
        })
    }

    pub(super) fn free(&self, journal: &mut Journal) -> Result<(), ChangeError> {
        // The switch first: a cap that is switched off is none.
        [LIMIT, ENABLED].into_iter().try_for_each(|file| journal.put_back(&self.file(file)))
    }

    pub(super) fn has(&self, path: &str) -> bool {
        path.rsplit_once('/').is_some_and(|(folder, _)| folder == self.folder)
    }

    pub(super) fn explain(error: &FileError) -> Option<String> {
        match error {
            FileError::Unwritable { cause, .. } if cause.kind() == std::io::ErrorKind::PermissionDenied => {
                Some(format!(
                    "{LIMIT} cannot be written: {cause}; run as root, or give this user the file \
                     (udev, tmpfiles); where root is \
                     refused as well the firmware has locked it: look there for a power limit lock"
                ))
            }
            _ => None,
        }
    }

    /// The cap at this share of full power; `None` where there is nothing between the floor and
    /// `original`.
    fn cap(&self, original: u64, share: f64) -> Option<u64> {
        let full = self.design.map_or(original, |design| design.min(original));
        let floor = self.least.unwrap_or((full as f64 * FLOOR_OF_FULL) as u64);
        if floor >= full {
            return None;
        }
        let cap = floor + ((full - floor) as f64 * share.clamp(0.0, 1.0)) as u64;
        let cap = ((cap + UNIT_UW / 2) / UNIT_UW * UNIT_UW).max(floor.next_multiple_of(UNIT_UW));
        (cap < original).then_some(cap)
    }

    fn switch_on(&self, journal: &mut Journal) -> Result<(), Trouble> {
        let file = self.file(ENABLED);
        match journal.read(&file) {
            Ok(text) if text == "0" => {
                let reads = journal.set(&file, "1")?;
                if reads == "1" {
                    return Ok(());
                }
                Err(Trouble::Told(format!(
                    "{ENABLED} of {} reads {reads} after 1 was written: the firmware keeps power limits off",
                    self.folder
                )))
            }
            // Not every driver has a switch.
            Ok(_) | Err(FileError::Missing { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }
}

/// The sockets with a CPU among `cpus`, or why their power cannot be capped.
pub(super) fn domains(root: &Root, cpus: &CpuList) -> Result<Vec<Domain>, String> {
    let mut gaps = Gaps::default();
    let online = online_cpus(root).map_err(|error| error.to_string())?;
    let (mut found, mut uncapped) = (Vec::new(), Vec::new());
    for zone in gaps.names(root, FOLDER) {
        let is_package = zone.strip_prefix("intel-rapl:").is_some_and(|number| number.parse::<u16>().is_ok());
        let folder = format!("{FOLDER}/{zone}");
        let Some(name) = is_package.then(|| gaps.text(root, &format!("{folder}/name"))).flatten() else {
            continue;
        };
        let Some(of) = cpus_of(root, &online, &name) else { continue };
        if of.0.is_disjoint(&cpus.0) {
            continue;
        }
        let mut microwatts = |file: &str| gaps.parse::<u64>(root, &format!("{folder}/{file}"), "microwatts");
        if microwatts(LIMIT).is_none() {
            uncapped.push(name);
            continue;
        }
        // Some firmware says zero where it does not know.
        let (design, least) =
            (microwatts(DESIGN).filter(|&uw| uw > 0), microwatts(LEAST).filter(|&uw| uw > 0));
        let Some(nominal) = of.0.first().and_then(|&cpu| nominal_clock(root, cpu)) else {
            return Err(format!(
                "nothing says at which clock CPU {of} runs (no cpufreq, and no `@ 2.60GHz` in its \
                 name in /proc/cpuinfo)\nhint: \
                 leave rapl out"
            ));
        };
        let steps: Vec<Kilohertz> = (1..=STEPS).map(|step| clock_of(nominal, step)).collect();
        let speeds = Speeds { cpus: of, hardware: (steps[0], nominal), base: None, steps };
        found.push(Domain::new(Means::PowerCap(PowerCap { folder, design, least }), speeds));
    }
    if !found.is_empty() {
        found.sort_by(|one, other| one.speeds.cpus.0.cmp(&other.speeds.cpus.0));
        return Ok(found);
    }
    if uncapped.is_empty() {
        return Err("there is no RAPL zone of these CPUs in /sys/class/powercap, as on virtual \
            machines\nhint: on a real machine \
             load its driver (modprobe intel_rapl_msr), or leave rapl out: pegasus then caps clocks"
            .to_owned());
    }
    Err(format!(
        "RAPL meters {} and has no limit of it that can be read ({LIMIT}; AMD's has none)\nhint: \
         leave rapl out: pegasus then caps \
         clocks",
        uncapped.join(", ")
    ))
}

/// The frequency that stands for this many steps of full power.
fn clock_of(nominal: Kilohertz, step: u32) -> Kilohertz {
    Kilohertz((nominal.0 as f64 * (f64::from(step) / f64::from(STEPS)).cbrt()).round() as u64)
}

/// The CPUs of `package-0`, or of `package-0-die-1` where a socket has several.
fn cpus_of(root: &Root, online: &CpuList, name: &str) -> Option<CpuList> {
    let place = name.strip_prefix("package-")?;
    let (package, die) = match place.split_once("-die-") {
        Some((package, die)) => (package, Some(die.parse::<u16>().ok()?)),
        None => (place, None),
    };
    let package: u16 = package.parse().ok()?;
    let is_on_die = |cpu: CpuId| {
        die.is_none_or(|die| {
            root.parse::<u16>(&format!("{}/topology/die_id", cpu_folder(cpu)), "a number").ok() == Some(die)
        })
    };
    let of = topology_of(root, online).0.into_iter().filter(|cpu| cpu.package == package).map(|cpu| cpu.id);
    Some(CpuList(of.filter(|&cpu| is_on_die(cpu)).collect()))
}

const FOLDER: &str = "sys/class/powercap";
const LIMIT: &str = "constraint_0_power_limit_uw";
const DESIGN: &str = "constraint_0_max_power_uw";
const LEAST: &str = "constraint_0_min_power_uw";
const ENABLED: &str = "enabled";

/// The share of full power, where the driver does not say.
const FLOOR_OF_FULL: f64 = 0.3;

/// As many as a policy can tell apart.
const STEPS: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;
    use crate::{FrequencyControl, FrequencyError, FrequencyOptions};
    use FrequencyLimit::{AtMost, None as Free};
    use machine::FrequencyLimit;
    use proptest::prelude::*;

    /// Two sockets of two CPUs, 100 W each, at 2 GHz.
    fn machine() -> FakeMachine {
        let machine = FakeMachine::intel_server(4);
        machine.write("proc/cpuinfo", "vendor_id : GenuineIntel\nmodel name : Xeon @ 2.00GHz\n");
        for cpu in 0..4 {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
            machine.write(&file, &format!("{}\n", cpu / 2));
        }
        for socket in 0..2 {
            for (file, text) in [
                ("name", format!("package-{socket}")),
                (LIMIT, "100000000".to_owned()),
                (DESIGN, "100000000".to_owned()),
                (ENABLED, "1".to_owned()),
            ] {
                machine.write(&format!("{FOLDER}/intel-rapl:{socket}/{file}"), &format!("{text}\n"));
            }
        }
        machine
    }

    fn options() -> FrequencyOptions {
        FrequencyOptions { actuator: Some(FrequencyActuator::PowerCap), ..FrequencyOptions::new("a test") }
    }

    fn open(machine: &FakeMachine, cpus: &str) -> FrequencyControl {
        FrequencyControl::open(machine.root(), &cpus.parse().unwrap(), options()).unwrap()
    }

    fn reads(machine: &FakeMachine, socket: u8, file: &str) -> String {
        machine.read(&format!("{FOLDER}/intel-rapl:{socket}/{file}"))
    }

    /// The frequency of half of full power.
    fn half() -> FrequencyLimit {
        AtMost(clock_of(Kilohertz(2_000_000), STEPS / 2))
    }

    #[test]
    fn a_socket_gets_the_most_of_what_its_cpus_ask_for() {
        let machine = machine();
        let before = machine.snapshot();
        let mut control = open(&machine, "0-3");
        control.limit(CpuId(0), half());
        assert_eq!(reads(&machine, 0, LIMIT), "100000000", "its neighbour is asked nothing and wants all");
        let state = control.limit(CpuId(1), AtMost(Kilohertz(1_000_000)));
        // Half way between 30 and 100 W.
        assert_eq!(state.to_string(), "power cap 65.0 W, for at most 1587.401MHz");
        assert_eq!(
            (reads(&machine, 0, LIMIT), reads(&machine, 1, LIMIT)),
            ("65000000".into(), "100000000".into())
        );
        // An eighth of full power: the cube of half the frequency.
        control.limit(CpuId(0), AtMost(Kilohertz(1_000_000)));
        assert_eq!(reads(&machine, 0, LIMIT), "38750000");
        assert_eq!(control.limit(CpuId(0), Free), FrequencyState::Free);
        assert_eq!(machine.snapshot(), before);
        control.limit(CpuId(2), half());
        control.limit(CpuId(3), half());
        drop(control);
        assert_eq!(machine.snapshot(), before);
    }

    #[test]
    fn a_limit_that_was_off_is_on_while_ours_is_there() {
        let machine = machine();
        machine.write(&format!("{FOLDER}/intel-rapl:0/{ENABLED}"), "0\n");
        let before = machine.snapshot();
        let mut control = open(&machine, "0-1");
        (0..2).for_each(|cpu| drop(control.limit(CpuId(cpu), half())));
        assert_eq!(reads(&machine, 0, ENABLED), "1");
        (0..2).for_each(|cpu| drop(control.limit(CpuId(cpu), Free)));
        assert_eq!(machine.snapshot(), before);
        // A driver without a switch.
        machine.remove(&format!("{FOLDER}/intel-rapl:0/{ENABLED}"));
        control.limit(CpuId(0), half());
        assert!(matches!(control.limit(CpuId(1), half()), FrequencyState::InForce { .. }));
    }

    #[test]
    fn a_lower_limit_of_the_administrators_stays() {
        let machine = machine();
        machine.write(&format!("{FOLDER}/intel-rapl:0/{LEAST}"), "40000000\n");
        machine.write(&format!("{FOLDER}/intel-rapl:0/{LIMIT}"), "35000000\n");
        let mut control = open(&machine, "0-1");
        (0..2).for_each(|cpu| drop(control.limit(CpuId(cpu), half())));
        assert_eq!(reads(&machine, 0, LIMIT), "35000000");
        let (_, state) = control.states().next().unwrap();
        assert!(matches!(state, FrequencyState::InForce { kept_stricter: true, .. }), "{state}");
    }

    #[test]
    fn somebody_elses_limit_is_drift_and_theirs_in_the_end() {
        let machine = machine();
        let mut control = open(&machine, "0-1");
        (0..2).for_each(|cpu| drop(control.limit(CpuId(cpu), half())));
        assert_eq!(control.drift(), []);
        machine.write(&format!("{FOLDER}/intel-rapl:0/{LIMIT}"), "80000000\n");
        let drift = control.drift();
        assert_eq!(
            drift[0].to_string(),
            "constraint_0_power_limit_uw of CPU 0-1 reads 80000000 where we had set 65000000"
        );
        control.reassert();
        // 80 W is all there is now: half way from 30 % of it.
        assert_eq!(reads(&machine, 0, LIMIT), "52000000");
        control.release();
        assert_eq!(reads(&machine, 0, LIMIT), "80000000");
    }

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let machine = machine();
        let state = open(&machine, "0").limit(CpuId(0), half());
        assert!(state.to_string().contains("CPU 1 is not ours"), "{state}");
        let refused = |machine: &FakeMachine| {
            let error =
                FrequencyControl::open(machine.root(), &"0-1".parse().unwrap(), options()).unwrap_err();
            assert!(matches!(error, FrequencyError::Lacking { by: FrequencyActuator::PowerCap, .. }));
            error.to_string()
        };
        machine.remove(&format!("{FOLDER}/intel-rapl:0/{LIMIT}"));
        let error = refused(&machine);
        assert!(error.contains("meters package-0 and has no limit") && error.contains("hint:"), "{error}");
        machine.remove(FOLDER);
        let error = refused(&machine);
        assert!(error.contains("no RAPL zone") && error.contains("modprobe"), "{error}");
        let locked = FileError::Unwritable {
            path: LIMIT.into(),
            value: "1".into(),
            cause: rustix::io::Errno::ACCESS.into(),
        };
        assert!(PowerCap::explain(&locked).is_some_and(|told| told.contains("firmware has locked it")));
    }

    #[test]
    fn dies_have_a_cap_each() {
        let machine = machine();
        for cpu in 0..4 {
            machine.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"), "0\n");
            machine.write(
                &format!("sys/devices/system/cpu/cpu{cpu}/topology/die_id"),
                &format!("{}\n", cpu % 2),
            );
        }
        let online = "0-3".parse().unwrap();
        let of = |name: &str| cpus_of(machine.root(), &online, name).map(|cpus| cpus.to_string());
        assert_eq!(
            (of("package-0-die-1"), of("package-0"), of("psys")),
            (Some("1,3".into()), Some("0-3".into()), None)
        );
    }

    proptest! {
        #[test]
        fn a_cap_is_between_the_floor_and_the_limit_and_rises_with_its_share(
            original in 5_000_000_u64..500_000_000,
            design in prop::option::of(5_000_000_u64..500_000_000),
            least in prop::option::of(1_000_000_u64..100_000_000),
            shares in prop::collection::vec(0.0..1.0_f64, 2),
        ) {
            let cap = PowerCap { folder: String::new(), design, least };
            let caps: Vec<Option<u64>> = shares.iter().map(|&share| cap.cap(original, share)).collect();
            for cap in caps.iter().flatten() {
                prop_assert!(*cap < original && cap % UNIT_UW == 0);
                prop_assert!(least.is_none_or(|least| *cap >= least));
            }
            if shares[0] < shares[1] {
                // None stands for the limit that was there.
                prop_assert!(caps[0].unwrap_or(original) <= caps[1].unwrap_or(original));
            }
        }
    }
}
