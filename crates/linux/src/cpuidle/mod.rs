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
mod tests;
