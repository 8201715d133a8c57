//! Machines made by hand, for tests: a temporary folder with the files that a kernel of that
//! machine would show.

use crate::Root;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use tempfile::TempDir;

// Tests from outside this crate look at files in the same way.
#[path = "../tests/it/files.rs"]
mod files;

pub(crate) struct FakeMachine {
    folder: TempDir,
    root: Root,
}

impl FakeMachine {
    /// A program that can be run. Another process writes it: opened here for writing, it might still be so
    /// in a child of another test's thread, and then the kernel does not run it.
    pub(crate) fn program(&self, below: &str, text: &str) {
        let source = format!("{below}.text");
        self.write(&source, text);
        let mut install = std::process::Command::new("install");
        install.args(["-m", "755"]).arg(self.path(&source)).arg(self.path(below));
        assert!(install.status().unwrap().success());
        fs::remove_file(self.path(&source)).unwrap();
    }

    /// `states`: name, exit latency and target residency in us.
    pub(crate) fn with_states(cpus: u16, states: &[(&str, u64, u64)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = Self { root: Root::at(folder.path()), folder };
        let list = format!("0-{}\n", cpus - 1);
        machine.write("sys/devices/system/cpu/online", &list);
        machine.write("sys/devices/system/cpu/cpuidle/current_driver", "none\n");
        machine.write("sys/devices/system/cpu/cpuidle/current_governor", "menu\n");
        for cpu in 0..cpus {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            machine.write(&format!("{folder}/power/pm_qos_resume_latency_us"), "0\n");
            machine.write(&format!("{folder}/topology/core_id"), &format!("{cpu}\n"));
            machine.write(&format!("{folder}/topology/physical_package_id"), "0\n");
            for (index, (name, latency, residency)) in states.iter().enumerate() {
                let state = format!("{folder}/cpuidle/state{index}");
                machine.write(&format!("{state}/name"), &format!("{name}\n"));
                machine.write(&format!("{state}/latency"), &format!("{latency}\n"));
                machine.write(&format!("{state}/residency"), &format!("{residency}\n"));
                machine.write(&format!("{state}/default_status"), "enabled\n");
                for file in ["time", "usage", "rejected", "disable"] {
                    machine.write(&format!("{state}/{file}"), "0\n");
                }
            }
        }
        machine
    }

    /// Skylake-SP under intel_idle.
    pub(crate) fn intel_server(cpus: u16) -> Self {
        let machine =
            Self::with_states(cpus, &[("POLL", 0, 0), ("C1", 2, 2), ("C1E", 10, 20), ("C6", 133, 600)]);
        machine.write("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n");
        machine
    }

    /// An EPYC under acpi_idle, whose firmware advertises 800 us for C2.
    pub(crate) fn amd_server(cpus: u16) -> Self {
        let machine = Self::with_states(cpus, &[("POLL", 0, 0), ("C1", 1, 2), ("C2", 800, 1600)]);
        machine.write("sys/devices/system/cpu/cpuidle/current_driver", "acpi_idle\n");
        machine
    }

    /// An Arm server under psci_idle: no polling state, as `cpuidle-psci` registers `WFI` first.
    pub(crate) fn arm_server(cpus: u16) -> Self {
        let machine = Self::with_states(cpus, &[("WFI", 1, 1), ("cpu-sleep", 270, 1500)]);
        machine.write("sys/devices/system/cpu/cpuidle/current_driver", "psci_idle\n");
        machine
    }

    /// A virtual machine under haltpoll: one state that halts.
    pub(crate) fn virtual_machine(cpus: u16) -> Self {
        let machine = Self::with_states(cpus, &[("POLL", 0, 0), ("haltpoll idle", 1, 1)]);
        machine.write("sys/devices/system/cpu/cpuidle/current_driver", "haltpoll\n");
        machine
    }

    pub(crate) fn root(&self) -> &Root {
        &self.root
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    pub(crate) fn write(&self, below: &str, text: &str) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, below: &str) -> String {
        fs::read_to_string(self.path(below)).unwrap().trim_end().to_owned()
    }

    /// A register of a CPU, in an ordinary file that is read and written at the register's number
    /// as the device is.
    pub(crate) fn set_register(&self, cpu: u16, register: u64, value: u64) {
        let path = self.path(&format!("dev/cpu/{cpu}/msr"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = fs::OpenOptions::new().create(true).write(true).truncate(false).open(path).unwrap();
        file.write_all_at(&value.to_le_bytes(), register).unwrap();
    }

    pub(crate) fn register(&self, cpu: u16, register: u64) -> u64 {
        let mut bytes = [0; 8];
        let file = fs::File::open(self.path(&format!("dev/cpu/{cpu}/msr"))).unwrap();
        file.read_exact_at(&mut bytes, register).unwrap();
        u64::from_le_bytes(bytes)
    }

    pub(crate) fn remove(&self, below: &str) {
        let path = self.path(below);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }

    /// Every file below `sys` with its text, to compare before and after.
    pub(crate) fn snapshot(&self) -> Vec<(PathBuf, String)> {
        files::below(vec![self.path("sys")])
    }
}
