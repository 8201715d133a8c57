//! cpuidle's sysfs folder: the idle states of each CPU, and the time in each of them.
//!
//! `cpuN/cpuidle/stateM/` describes one state: `name`, `latency` (exit latency, us), `residency`
//! (target residency, us), and counts since registration: `time` (us), `usage`, `rejected`. The
//! counts are of *requests*: a hypervisor or the hardware may have done less. `time` is added up
//! when a sleep *ends*, so a CPU that is asleep now still shows its sleep as missing.
//!
//! Invariants:
//! - The table's order is the kernel's, so a state's place in it is the number in `stateM`.
//! - Whether a state polls is decided here, once (`kind_of`), and carried in its [`CstateKind`].
//! - A machine without cpuidle is [`FileError::Missing`], a reported state; nothing panics over it.
//!   (The published Peafowl code crashes where the folder is missing.)

pub(crate) mod control;
pub(crate) mod misprediction;
pub(crate) mod pm_qos;

use crate::root::{FileError, Gaps, Root, cpu_folder};
use machine::{CpuId, Cstate, CstateIndex, CstateKind, CstateTable, Duration};
use serde::Serialize;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The hardware driver and the governor above it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IdleDriver {
    /// `intel_idle`, `acpi_idle`, `psci_idle`, `haltpoll`, ...; `None` where cpuidle is absent or
    /// reads `none`.
    pub driver: Option<String>,
    /// `menu`, `teo`, `haltpoll`, `ladder`.
    pub governor: Option<String>,
}

pub fn idle_driver(root: &Root) -> IdleDriver {
    let name = |file: &str| {
        root.text(&format!("sys/devices/system/cpu/cpuidle/{file}"))
            .ok()
            .filter(|name| !name.is_empty() && name != "none")
    };
    let governor = name("current_governor").or_else(|| name("current_governor_ro"));
    IdleDriver { driver: name("current_driver"), governor }
}

/// The idle states of `cpu`, in the kernel's order.
pub fn idle_table(root: &Root, cpu: CpuId) -> Result<CstateTable, FileError> {
    let folder = format!("{}/cpuidle", cpu_folder(cpu));
    let count = state_count(root, &folder)?;
    let mut states = Vec::with_capacity(count);
    for index in 0..count {
        let micros = |file: &str| {
            root.parse(&format!("{folder}/state{index}/{file}"), "a number of microseconds")
                .map(Duration::from_micros)
        };
        states.push(Cstate {
            name: root.text(&format!("{folder}/state{index}/name"))?,
            kind: CstateKind::Halting,
            exit_latency: micros("latency")?,
            true_exit_latency: None,
            entry_latency: None,
            target_residency: micros("residency")?,
            power: None,
        });
    }
    for index in 0..count {
        states[index].kind = kind_of(&states, index);
    }
    Ok(CstateTable(states))
}

/// The kernel calls its spinning state POLL on every architecture. Where none is so called, a first
/// state that needs no time to leave is one. Latency zero alone proves nothing: the plain
/// `ACPI HLT` of a virtual machine advertises zero as well, and it halts. Nor do Arm's WFI and
/// ACPI's low power idle states (LPI) ever poll, whatever latency their firmware states.
fn kind_of(states: &[Cstate], index: usize) -> CstateKind {
    let is_poll = |state: &Cstate| state.name.eq_ignore_ascii_case("POLL");
    let halts_by_name = ["WFI", "LPI"].iter().any(|name| states[index].name.starts_with(name));
    let unnamed = !halts_by_name
        && index == 0
        && !states.iter().any(is_poll)
        && states.len() > 1
        && states[index].exit_latency.is_zero();
    if is_poll(&states[index]) || unnamed { CstateKind::Polling } else { CstateKind::Halting }
}

fn state_count(root: &Root, folder: &str) -> Result<usize, FileError> {
    let numbers =
        root.names(folder)?.into_iter().filter_map(|name| name.strip_prefix("state")?.parse::<u8>().ok());
    match numbers.max() {
        Some(last) => Ok(usize::from(last) + 1),
        None => Err(FileError::Missing { path: root.path(folder) }),
    }
}

/// The kernel's counts of one state since it was registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// Time asked for in this state, over all sleeps that have ended.
    pub time: Duration,
    /// Sleeps begun in it.
    pub usage: u64,
    /// Sleeps that the driver or hardware refused; kernels before 5.11 do not say.
    pub rejected: Option<u64>,
    /// True if it is forbidden (`disable` reads other than 0).
    pub disabled: bool,
}

/// The counts of each state of `cpu`, in the table's order.
pub fn state_counts(root: &Root, cpu: CpuId) -> Result<Vec<StateCounts>, FileError> {
    let folder = format!("{}/cpuidle", cpu_folder(cpu));
    (0..state_count(root, &folder)?)
        .map(|index| {
            let number = |file: &str| root.parse::<u64>(&format!("{folder}/state{index}/{file}"), "a count");
            Ok(StateCounts {
                time: Duration::from_micros(number("time")?),
                usage: number("usage")?,
                rejected: number("rejected").ok(),
                disabled: number("disable").is_ok_and(|disable| disable != 0),
            })
        })
        .collect()
}

/// The kernel's other facts about one state: permission, and the driver's full name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StateSettings {
    /// The driver's own words (`desc`): `MWAIT 0x20`, `ACPI IOPORT 0x814`,
    /// `CPUIDLE CORE POLL IDLE`.
    pub description: Option<String>,
    /// True if it is forbidden now (`disable` reads other than 0).
    pub disabled: Option<bool>,
    /// True if the driver registered it as forbidden (`default_status`; kernels since 5.6 say so).
    pub disabled_by_default: Option<bool>,
}

/// The settings of each state of `cpu`, in the table's order.
pub fn state_settings(root: &Root, cpu: CpuId, gaps: &mut Gaps) -> Vec<StateSettings> {
    let folder = format!("{}/cpuidle", cpu_folder(cpu));
    let count = gaps.see(state_count(root, &folder)).unwrap_or(0);
    let settings = |index| {
        let file = |name: &str| format!("{folder}/state{index}/{name}");
        let disabled = gaps.parse::<u64>(root, &file("disable"), "0, 1, 2 or 3");
        let default = gaps.text(root, &file("default_status"));
        StateSettings {
            description: gaps.text(root, &file("desc")).filter(|text| text != "<null>"),
            disabled: disabled.map(|disable| disable != 0),
            disabled_by_default: default.map(|status| status == "disabled"),
        }
    };
    (0..count).map(settings).collect()
}

/// Settings that change idle states from the side: `module.parameter = value` of the drivers that
/// offer idle states, and `intel_c1_demotion`, by which hardware makes C1 of a request for a deeper
/// state (kernels since 6.16, some Xeons).
pub fn idle_parameters(root: &Root, gaps: &mut Gaps) -> Vec<(String, String)> {
    const PARAMETERS: [&str; 10] = [
        "cpuidle/off",
        "cpuidle/governor",
        "cpuidle_haltpoll/force",
        "haltpoll/guest_halt_poll_ns",
        "intel_idle/max_cstate",
        "intel_idle/states_off",
        "intel_idle/no_acpi",
        "intel_idle/use_acpi",
        "processor/max_cstate",
        "processor/nocst",
    ];
    let mut parameters = Vec::new();
    for name in PARAMETERS {
        let (module, parameter) = name.split_once('/').expect("written so above");
        if let Some(value) = gaps.text(root, &format!("sys/module/{module}/parameters/{parameter}")) {
            parameters.push((format!("{module}.{parameter}"), value));
        }
    }
    parameters
}

/// True if the hardware may demote requests to C1, where the kernel shows it.
pub fn c1_demotion(root: &Root, gaps: &mut Gaps) -> Option<bool> {
    gaps.parse::<u8>(root, "sys/devices/system/cpu/cpuidle/intel_c1_demotion", "0 or 1").map(|on| on != 0)
}

/// The file that forbids one state of one CPU.
pub(crate) fn disable_file(cpu: CpuId, state: CstateIndex) -> String {
    format!("{}/cpuidle/state{}/disable", cpu_folder(cpu), state.0)
}

/// Time per idle state since the start, added up from differences. So a reset of the kernel's
/// counts (they are zeroed when a driver registers again) costs at most one interval and never
/// gives a negative time.
///
/// The files stay open: a machine has hundreds of them, and they are read every second.
#[derive(Debug)]
pub struct Residency {
    cpu: CpuId,
    files: Vec<File>,
    last: Vec<Duration>,
    total: Vec<Duration>,
}

impl Residency {
    pub fn start(root: &Root, cpu: CpuId) -> Result<Self, FileError> {
        let files = time_files(root, cpu)?;
        let last =
            files.iter().map(|file| read_time(file, root, cpu)).collect::<Result<Vec<Duration>, _>>()?;
        Ok(Self { cpu, files, total: vec![Duration::ZERO; last.len()], last })
    }

    /// Reads the counts and returns the time spent in each state since the start, in the table's
    /// order.
    pub fn read(&mut self, root: &Root) -> Result<&[Duration], FileError> {
        let times = |files: &[File]| files.iter().map(|file| read_time(file, root, self.cpu)).collect();
        let now: Vec<Duration> = match times(&self.files) {
            Ok(now) => now,
            // Files die when a driver registers again.
            Err(_) => {
                self.files = time_files(root, self.cpu)?;
                times(&self.files)?
            }
        };
        self.last.resize(now.len(), Duration::ZERO);
        self.total.resize(now.len(), Duration::ZERO);
        for ((total, last), now) in self.total.iter_mut().zip(&mut self.last).zip(now) {
            // After a reset, the whole count is new.
            *total += if now < *last { now } else { now - *last };
            *last = now;
        }
        Ok(&self.total)
    }
}

fn time_files(root: &Root, cpu: CpuId) -> Result<Vec<File>, FileError> {
    let folder = format!("{}/cpuidle", cpu_folder(cpu));
    let open = |index| {
        let path = root.path(&format!("{folder}/state{index}/time"));
        File::open(&path).map_err(|cause| FileError::unreadable(&path, cause))
    };
    (0..state_count(root, &folder)?).map(open).collect()
}

fn read_time(file: &File, root: &Root, cpu: CpuId) -> Result<Duration, FileError> {
    let mut bytes = [0; 32];
    let path = || root.path(&format!("{}/cpuidle", cpu_folder(cpu)));
    let length = file.read_at(&mut bytes, 0).map_err(|cause| FileError::unreadable(&path(), cause))?;
    let text = String::from_utf8_lossy(&bytes[..length]);
    match text.trim().parse() {
        Ok(micros) => Ok(Duration::from_micros(micros)),
        Err(_) => Err(FileError::Nonsense {
            path: path(),
            text: text.trim().to_owned(),
            expected: "a time in microseconds",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    #[test]
    fn a_server_reads_as_the_kernel_lists_it() {
        let machine = FakeMachine::intel_server(8);
        let table = idle_table(machine.root(), CpuId(7)).unwrap();
        let names: Vec<&str> = table.0.iter().map(|state| state.name.as_str()).collect();
        assert_eq!(names, ["POLL", "C1", "C1E", "C6"]);
        assert_eq!(table.0[3].exit_latency, Duration::from_micros(133));
        assert_eq!(table.0[3].target_residency, Duration::from_micros(600));
        assert_eq!(table.0[0].kind, CstateKind::Polling);
        assert!(table.0[1..].iter().all(|state| state.kind == CstateKind::Halting));
        assert_eq!(
            idle_driver(machine.root()),
            IdleDriver { driver: Some("intel_idle".into()), governor: Some("menu".into()) }
        );
    }

    #[test]
    fn a_machine_without_cpuidle_is_a_state_not_a_crash() {
        let machine = FakeMachine::intel_server(2);
        machine.remove("sys/devices/system/cpu/cpu1/cpuidle");
        machine.remove("sys/devices/system/cpu/cpuidle");
        assert!(matches!(idle_table(machine.root(), CpuId(1)), Err(FileError::Missing { .. })));
        assert!(matches!(state_counts(machine.root(), CpuId(1)), Err(FileError::Missing { .. })));
        assert!(Residency::start(machine.root(), CpuId(1)).is_err());
        assert_eq!(idle_driver(machine.root()), IdleDriver { driver: None, governor: None });
    }

    #[test]
    fn an_empty_or_nonsensical_table_is_an_error_that_shows_it() {
        let machine = FakeMachine::intel_server(1);
        machine.write("sys/devices/system/cpu/cpu0/cpuidle/state2/latency", "soon\n");
        let text = idle_table(machine.root(), CpuId(0)).unwrap_err().to_string();
        assert!(text.contains("state2/latency") && text.contains("soon"), "{text}");
    }

    #[test]
    fn a_halt_that_advertises_zero_is_not_taken_for_polling() {
        let machine = FakeMachine::with_states(1, &[("POLL", 0, 0), ("C1", 0, 0)]);
        let table = idle_table(machine.root(), CpuId(0)).unwrap();
        assert_eq!(table.0[1].kind, CstateKind::Halting);
        // A limit of zero would make it poll.
        assert_eq!(table.shallowest_halt(), Some(Duration::from_micros(1)));
        let lone = FakeMachine::with_states(1, &[("HLT", 0, 0)]);
        assert_eq!(idle_table(lone.root(), CpuId(0)).unwrap().0[0].kind, CstateKind::Halting);
        let unnamed = FakeMachine::with_states(1, &[("SPIN", 0, 0), ("C2", 9, 9)]);
        assert_eq!(idle_table(unnamed.root(), CpuId(0)).unwrap().0[0].kind, CstateKind::Polling);
        let lpi = FakeMachine::with_states(1, &[("LPI-0", 0, 0), ("LPI-1", 100, 500)]);
        assert_eq!(idle_table(lpi.root(), CpuId(0)).unwrap().0[0].kind, CstateKind::Halting);
    }

    #[test]
    fn an_arm_machine_without_a_polling_state_has_none() {
        let machine = FakeMachine::arm_server(4);
        let table = idle_table(machine.root(), CpuId(3)).unwrap();
        assert!(table.0.iter().all(|state| state.kind == CstateKind::Halting));
        assert_eq!(table.shallowest_halt(), Some(Duration::from_micros(1)));
    }

    #[test]
    fn a_state_that_is_forbidden_by_default_is_told_from_one_that_somebody_forbade() {
        let machine = FakeMachine::intel_server(1);
        let state = |index: u8| format!("sys/devices/system/cpu/cpu0/cpuidle/state{index}");
        machine.write(&format!("{}/default_status", state(2)), "disabled\n");
        machine.write(&format!("{}/disable", state(2)), "1\n");
        machine.write(&format!("{}/disable", state(3)), "maybe\n");
        machine.write(&format!("{}/desc", state(1)), "MWAIT 0x00\n");
        let mut gaps = Gaps::default();
        let settings = state_settings(machine.root(), CpuId(0), &mut gaps);
        assert_eq!((settings[1].disabled, settings[1].disabled_by_default), (Some(false), Some(false)));
        assert_eq!((settings[2].disabled, settings[2].disabled_by_default), (Some(true), Some(true)));
        assert_eq!(settings[1].description.as_deref(), Some("MWAIT 0x00"));
        assert_eq!((settings[3].disabled, gaps.0.len()), (None, 1), "nonsense is no answer, and is noted");
        assert!(state_settings(machine.root(), CpuId(9), &mut gaps).is_empty());
    }

    #[test]
    fn residency_survives_a_reset_of_the_kernels_counts() {
        let machine = FakeMachine::intel_server(1);
        let time = "sys/devices/system/cpu/cpu0/cpuidle/state3/time";
        machine.write(time, "5000\n");
        let mut residency = Residency::start(machine.root(), CpuId(0)).unwrap();
        machine.write(time, "7000\n");
        assert_eq!(residency.read(machine.root()).unwrap()[3], Duration::from_micros(2000));
        machine.write(time, "300\n");
        assert_eq!(residency.read(machine.root()).unwrap()[3], Duration::from_micros(2300));
        // Registered again: other files under the same names.
        machine.remove(time);
        machine.write(time, "400\n");
        assert_eq!(
            residency.read(machine.root()).unwrap()[3],
            Duration::from_micros(2300),
            "the old file still reads"
        );
        machine.write(&time.replace("state3", "state1"), "later\n");
        assert!(residency.read(machine.root()).is_err());
        machine.write(&time.replace("state3", "state1"), "50\n");
        let times = residency.read(machine.root()).unwrap();
        assert_eq!((times[1], times[3]), (Duration::from_micros(50), Duration::from_micros(2400)));
    }
}
