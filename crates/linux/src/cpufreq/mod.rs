//! cpufreq: frequencies, the driver or governor that sets them, and their bounds.
//!
//! `cpufreq/policyN/` is one *domain*: the CPUs that can only change speed together
//! (`affected_cpus`). Frequencies are in kHz. Three pairs of bounds must not be mixed up:
//! `cpuinfo_*` is the hardware's range, `scaling_*` the range allowed now, and `scaling_cur_freq`
//! the last request or measurement, as the driver likes. Under `intel_pstate` and `amd-pstate` in
//! active mode the hardware chooses, and `energy_performance_preference` (EPP) is a hint to it. One
//! way works everywhere: clamp `scaling_min_freq` and `scaling_max_freq`, and read back the values
//! that were accepted.
//!
//! Turbo is one switch for the machine, of two makes: `intel_pstate/no_turbo` (1 is off) and
//! `cpufreq/boost` (1 is on).

pub(crate) mod control;
pub(crate) mod uncore;

use crate::root::{FileError, Gaps, Root};
use machine::{CpuId, CpuList, Kilohertz};
use serde::Serialize;

pub(crate) const FOLDER: &str = "sys/devices/system/cpu/cpufreq";

/// CPUs that change speed together, and their settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FrequencyDomain {
    /// Its online CPUs.
    pub cpus: CpuList,
    /// `intel_pstate`, `intel_cpufreq` (that is intel_pstate in passive mode), `acpi-cpufreq`,
    /// `amd-pstate-epp`, ...
    pub driver: Option<String>,
    /// The slowest frequency of the hardware.
    pub hardware_min: Option<Kilohertz>,
    /// The fastest, with turbo.
    pub hardware_max: Option<Kilohertz>,
    /// The fastest without turbo, where the driver shows it.
    pub base: Option<Kilohertz>,
    /// The slowest frequency that is allowed now.
    pub min: Option<Kilohertz>,
    /// The fastest frequency that is allowed now.
    pub max: Option<Kilohertz>,
    /// The present frequency, as the driver has it.
    pub current: Option<Kilohertz>,
    pub governor: Option<String>,
    pub governors: Vec<String>,
    /// The hint to hardware that chooses by itself (EPP).
    pub preference: Option<String>,
    pub preferences: Vec<String>,
    /// True if this user could set the bounds; `None` for a recorded machine.
    pub may_set: Option<bool>,
}

/// The domains, in order of their first CPU; none where the kernel does not set frequencies.
pub fn frequency_domains(root: &Root, gaps: &mut Gaps) -> Vec<FrequencyDomain> {
    let mut domains = Vec::new();
    for name in gaps.names(root, FOLDER) {
        let Some(first) = name.strip_prefix("policy").and_then(|number| number.parse::<u16>().ok()) else {
            continue;
        };
        let file = |name_of: &str| format!("{FOLDER}/{name}/{name_of}");
        let affected = gaps.text(root, &file("affected_cpus"));
        let cpus = match affected.as_deref().map(spaced_list) {
            Some(Some(cpus)) => cpus,
            // Every CPU of it is offline.
            None => continue,
            Some(None) => {
                gaps.0.push(FileError::Nonsense {
                    path: root.path(&file("affected_cpus")),
                    text: affected.unwrap_or_default(),
                    expected: "numbers of CPUs",
                });
                CpuList([CpuId(first)].into())
            }
        };
        let mut khz = |name_of: &str| gaps.parse(root, &file(name_of), "a frequency in kHz").map(Kilohertz);
        let (hardware_min, hardware_max) = (khz("cpuinfo_min_freq"), khz("cpuinfo_max_freq"));
        let (base, min, max) = (khz("base_frequency"), khz("scaling_min_freq"), khz("scaling_max_freq"));
        // `<unknown>` where the hardware does not answer.
        let current = gaps.text(root, &file("scaling_cur_freq")).filter(|text| text != "<unknown>");
        let current = current.and_then(|_| gaps.parse(root, &file("scaling_cur_freq"), "a frequency in kHz"));
        let mut words = |name_of: &str| {
            let text = gaps.text(root, &file(name_of)).unwrap_or_default();
            text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let governors = words("scaling_available_governors");
        let preferences = words("energy_performance_available_preferences");
        domains.push(FrequencyDomain {
            cpus,
            driver: gaps.text(root, &file("scaling_driver")),
            hardware_min,
            hardware_max,
            base,
            min,
            max,
            current: current.map(Kilohertz),
            governor: gaps.text(root, &file("scaling_governor")),
            governors,
            preference: gaps.text(root, &file("energy_performance_preference")),
            preferences,
            may_set: root.may_write(&file("scaling_max_freq")),
        });
    }
    domains.sort_by(|one, other| one.cpus.0.cmp(&other.cpus.0));
    domains
}

/// True if turbo is on; `None` where no file says.
pub fn turbo(root: &Root, gaps: &mut Gaps) -> Option<bool> {
    let off = gaps.parse::<u8>(root, "sys/devices/system/cpu/intel_pstate/no_turbo", "0 or 1");
    off.map(|off| off == 0)
        .or_else(|| gaps.parse::<u8>(root, &format!("{FOLDER}/boost"), "0 or 1").map(|on| on != 0))
}

/// The mode of a driver that has several: `intel_pstate` and `active`, `passive` or `off`;
/// `amd_pstate` and `active`, `passive`, `guided` or `disable`.
pub fn pstate_mode(root: &Root, gaps: &mut Gaps) -> Option<(&'static str, String)> {
    ["intel_pstate", "amd_pstate"].into_iter().find_map(|driver| {
        Some((driver, gaps.text(root, &format!("sys/devices/system/cpu/{driver}/status"))?))
    })
}

/// The frequency of a CPU at full speed without turbo: as cpufreq says, else as the processor's
/// name does (`@ 2.60GHz`).
pub(crate) fn nominal_clock(root: &Root, cpu: CpuId) -> Option<Kilohertz> {
    let domains = frequency_domains(root, &mut Gaps::default());
    let domain = domains.into_iter().find(|domain| domain.cpus.0.contains(&cpu));
    if let Some(clock) = domain.and_then(|domain| domain.base.or(domain.hardware_max)) {
        return Some(clock);
    }
    let name = crate::processor(root).model_name;
    let (_, clock) = name.rsplit_once('@')?;
    clock.trim().parse().ok()
}

/// Numbers between spaces: cpufreq writes CPUs like this, unlike the rest of sysfs.
pub(crate) fn spaced_list(text: &str) -> Option<CpuList> {
    text.split_whitespace().map(|number| number.parse().ok().map(CpuId)).collect::<Option<_>>().map(CpuList)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    fn domain(machine: &FakeMachine, policy: u16, cpus: &str) {
        let folder = format!("{FOLDER}/policy{policy}");
        for (file, text) in [
            ("affected_cpus", cpus),
            ("scaling_driver", "acpi-cpufreq"),
            ("cpuinfo_min_freq", "1500000"),
            ("cpuinfo_max_freq", "2250000"),
            ("scaling_min_freq", "1500000"),
            ("scaling_max_freq", "2000000"),
            ("scaling_cur_freq", "<unknown>"),
            ("scaling_governor", "schedutil"),
            ("scaling_available_governors", "performance schedutil userspace "),
        ] {
            machine.write(&format!("{folder}/{file}"), &format!("{text}\n"));
        }
    }

    #[test]
    fn domains_are_told_with_their_cpus_and_bounds() {
        let machine = FakeMachine::amd_server(12);
        domain(&machine, 10, "10 11");
        domain(&machine, 2, "2 3");
        let mut gaps = Gaps::default();
        let domains = frequency_domains(machine.root(), &mut gaps);
        assert_eq!(domains.iter().map(|d| d.cpus.to_string()).collect::<Vec<_>>(), ["2-3", "10-11"]);
        assert_eq!((domains[0].max, domains[0].current), (Some(Kilohertz(2_000_000)), None));
        assert_eq!(domains[0].governors.len(), 3);
        assert!(gaps.0.is_empty(), "{gaps:?}");
    }

    #[test]
    fn nonsense_is_noted_and_the_rest_still_read() {
        let machine = FakeMachine::amd_server(2);
        domain(&machine, 0, "0 one");
        machine.write(&format!("{FOLDER}/policy0/scaling_max_freq"), "fast\n");
        machine.write(&format!("{FOLDER}/boost"), "perhaps\n");
        let mut gaps = Gaps::default();
        let domains = frequency_domains(machine.root(), &mut gaps);
        assert_eq!((domains[0].cpus.to_string(), domains[0].max), ("0".to_owned(), None));
        assert_eq!(domains[0].governor.as_deref(), Some("schedutil"));
        assert_eq!(turbo(machine.root(), &mut gaps), None);
        assert_eq!(gaps.0.len(), 3, "{gaps:?}");
    }

    #[test]
    fn turbo_has_two_switches_of_opposite_sense() {
        let machine = FakeMachine::intel_server(1);
        let mut gaps = Gaps::default();
        assert_eq!(turbo(machine.root(), &mut gaps), None);
        machine.write(&format!("{FOLDER}/boost"), "1\n");
        assert_eq!(turbo(machine.root(), &mut gaps), Some(true));
        machine.write("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n");
        machine.write("sys/devices/system/cpu/intel_pstate/status", "active\n");
        assert_eq!(turbo(machine.root(), &mut gaps), Some(false));
        assert_eq!(pstate_mode(machine.root(), &mut gaps), Some(("intel_pstate", "active".to_owned())));
    }
}
