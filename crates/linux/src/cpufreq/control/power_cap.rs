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
mod tests;
