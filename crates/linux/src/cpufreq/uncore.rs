//! The clock of the uncore: the caches, the mesh and the memory controllers that the cores of a
//! socket share.
//!
//! Intel's driver (`intel_uncore_frequency`; on machines with TPMI `intel_uncore_frequency_tpmi`)
//! shows bounds of that clock, between which the hardware chooses:
//!
//! - one folder `package_PP_die_DD` by die, on all machines;
//! - with TPMI one `uncoreNN` by fabric cluster as well, with the present clock. A write to the first
//!   kind sets all of its clusters alike, so where there are clusters Roost reads and writes
//!   these: each gets back its own value.
//!
//! *Efficiency latency control* (ELC, Linux 6.12): while the CPUs of a cluster are less busy than
//! `elc_low_threshold_percent`, its clock does not fall below `elc_floor_freq_khz`; beyond
//! `elc_high_threshold_percent` it rises by steps of 100 MHz, and not at once, where
//! `elc_high_threshold_enable` is 1. A floor below `min_freq_khz` is ignored.
//!
//! AMD's driver (`amd_hsmp`) shows the clock of the fabric (`fclk_input`, in MHz), and no bounds in
//! sysfs.
//!
//! Sources: Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst,
//! Documentation/arch/x86/amd_hsmp.rst.

use crate::root::{Gaps, Root, cpu_folder};
use crate::system::topology::{online_cpus, topology_of};
use machine::{CpuId, CpuList, Kilohertz};
use serde::Serialize;

pub(crate) const FOLDER: &str = "sys/devices/system/cpu/intel_uncore_frequency";

/// AMD's drivers, each with one folder by socket below.
const FABRIC_FOLDERS: &str = "sys/devices/platform";

/// A part of the uncore with a clock of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UncoreDomain {
    /// Its folder below the driver's: `package_00_die_00`, `uncore03` or `AMDI0097:00`.
    pub name: String,
    /// The CPUs of its die or socket.
    pub cpus: CpuList,
    /// The slowest and the fastest clock of the hardware; `None` where none can be set.
    pub hardware: Option<(Kilohertz, Kilohertz)>,
    /// The bounds now, within which the hardware chooses.
    pub min: Option<Kilohertz>,
    pub max: Option<Kilohertz>,
    pub current: Option<Kilohertz>,
    pub elc: Option<Elc>,
    /// True if this user could set the bounds; `None` for a recorded machine.
    pub may_set: Option<bool>,
}

/// The settings of efficiency latency control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Elc {
    /// The least clock while CPUs are less busy than the low threshold.
    pub floor: Kilohertz,
    pub low_percent: Option<u8>,
    pub high_percent: Option<u8>,
    /// Beyond the high threshold the clock rises by steps.
    pub rises_by_steps: Option<bool>,
}

/// The domains in order of name, those of Intel's clusters in place of their dies; none where no
/// driver shows them.
pub fn uncore_domains(root: &Root, gaps: &mut Gaps) -> Vec<UncoreDomain> {
    let names = gaps.names(root, FOLDER);
    let Ok(online) = online_cpus(root) else { return Vec::new() };
    let packages = topology_of(root, &online);
    let cpus = |package: u16, die: Option<u16>| {
        let of = packages.0.iter().filter(|cpu| cpu.package == package).map(|cpu| cpu.id);
        CpuList(
            of.filter(|&cpu| die.is_none_or(|die| die_of(root, cpu).is_none_or(|of| of == die))).collect(),
        )
    };
    let mut domains = Vec::new();
    let mut clustered = Vec::new();
    for name in names.iter().filter(|name| is_cluster(name)) {
        let Some(package) = gaps.parse::<u16>(root, &format!("{FOLDER}/{name}/package_id"), "a number")
        else {
            continue;
        };
        clustered.push(package);
        domains.push(domain(root, gaps, name, cpus(package, None)));
    }
    for name in &names {
        let Some((package, die)) = place_of(name).filter(|(package, _)| !clustered.contains(package)) else {
            continue;
        };
        domains.push(domain(root, gaps, name, cpus(package, Some(die))));
    }
    domains.extend(fabrics(root, cpus));
    domains.retain(|domain| !domain.cpus.0.is_empty());
    domains
}

/// The fastest present clock of these; `None` where none tells it.
pub fn uncore_clock(root: &Root, domains: &[UncoreDomain]) -> Option<Kilohertz> {
    let current = |domain: &UncoreDomain| {
        root.parse(&format!("{FOLDER}/{}/current_freq_khz", domain.name), "a frequency in kHz").ok()
    };
    domains.iter().filter_map(current).max().map(Kilohertz)
}

fn domain(root: &Root, gaps: &mut Gaps, name: &str, cpus: CpuList) -> UncoreDomain {
    let file = |of: &str| format!("{FOLDER}/{name}/{of}");
    let mut khz = |of: &str| {
        // Zero is a register that says nothing.
        gaps.parse::<u64>(root, &file(of), "a frequency in kHz").filter(|&khz| khz > 0).map(Kilohertz)
    };
    let hardware = khz("initial_min_freq_khz").zip(khz("initial_max_freq_khz"));
    let hardware = hardware.filter(|(slowest, fastest)| slowest < fastest);
    let (min, max, current) = (khz("min_freq_khz"), khz("max_freq_khz"), khz("current_freq_khz"));
    let floor = khz("elc_floor_freq_khz");
    let mut percent = |of: &str| gaps.parse::<u8>(root, &file(of), "a percentage");
    let elc = floor.map(|floor| Elc {
        floor,
        low_percent: percent("elc_low_threshold_percent"),
        high_percent: percent("elc_high_threshold_percent"),
        rises_by_steps: percent("elc_high_threshold_enable").map(|on| on != 0),
    });
    let may_set = root.may_write(&file("max_freq_khz"));
    UncoreDomain { name: name.to_owned(), cpus, hardware, min, max, current, elc, may_set }
}

/// AMD's fabric clocks: the present one of each socket.
fn fabrics(root: &Root, cpus: impl Fn(u16, Option<u16>) -> CpuList) -> Vec<UncoreDomain> {
    let names = root.names(FABRIC_FOLDERS).unwrap_or_default();
    let fabric = |name: &String| {
        let socket = name.strip_prefix("AMDI0097:")?.parse::<u16>().ok()?;
        let mhz: u64 = root.parse(&format!("{FABRIC_FOLDERS}/{name}/fclk_input"), "a clock in MHz").ok()?;
        Some(UncoreDomain {
            name: name.clone(),
            cpus: cpus(socket, None),
            current: Some(Kilohertz(mhz * 1000)),
            may_set: Some(false),
            ..UncoreDomain::default()
        })
    };
    names.iter().filter_map(fabric).collect()
}

/// The die of a CPU, where the kernel shows dies (5.2).
fn die_of(root: &Root, cpu: CpuId) -> Option<u16> {
    root.parse(&format!("{}/topology/die_id", cpu_folder(cpu)), "a number").ok()
}

fn is_cluster(name: &str) -> bool {
    name.strip_prefix("uncore").is_some_and(|number| number.parse::<u16>().is_ok())
}

/// The package and the die of `package_01_die_00`.
fn place_of(name: &str) -> Option<(u16, u16)> {
    let (package, die) = name.strip_prefix("package_")?.split_once("_die_")?;
    Some((package.parse().ok()?, die.parse().ok()?))
}

/// The last part of the path of a file that Roost may write.
pub(crate) fn uncore_file(path: &str) -> Option<&str> {
    let (name, file) = path.strip_prefix(FOLDER)?.strip_prefix('/')?.split_once('/')?;
    let is_ours = is_cluster(name) || place_of(name).is_some();
    (is_ours && FILES.contains(&file)).then_some(file)
}

pub(crate) const MIN: &str = "min_freq_khz";
pub(crate) const MAX: &str = "max_freq_khz";
pub(crate) const FLOOR: &str = "elc_floor_freq_khz";
pub(crate) const BY_STEPS: &str = "elc_high_threshold_enable";
const FILES: [&str; 4] = [MIN, MAX, FLOOR, BY_STEPS];
