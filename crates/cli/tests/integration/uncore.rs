//! The uncore of a made-up machine, slowed for a real memcached: no virtual machine has one that can be
//! set.

use crate::fixture::ROOST;
use crate::governing::{Governor, Load, Memcached, cannot};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One socket with all CPUs of this machine, its processes, and two clusters with ELC.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
        let machine = Self(folder);
        let cpus = linux::allowed_cpus().expect("CPUs");
        machine.write("sys/devices/system/cpu/online", &cpus.to_string());
        for cpu in &cpus.0 {
            let topology = format!("sys/devices/system/cpu/cpu{}/topology", cpu.0);
            machine.write(&format!("{topology}/core_id"), &cpu.0.to_string());
            machine.write(&format!("{topology}/physical_package_id"), "0");
        }
        for cluster in ["uncore00", "uncore01"] {
            for (file, value) in [
                ("package_id", "0"),
                ("initial_min_freq_khz", "800000"),
                ("initial_max_freq_khz", "2200000"),
                ("min_freq_khz", "800000"),
                ("max_freq_khz", "2200000"),
                ("current_freq_khz", "2000000"),
                ("elc_floor_freq_khz", "2200000"),
                ("elc_high_threshold_enable", "0"),
            ] {
                machine.write(&format!("{UNCORE}/{cluster}/{file}"), value);
            }
        }
        fs::create_dir(machine.path().join("run")).expect("a folder");
        symlink("/proc", machine.path().join("proc")).expect("a link");
        machine
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, below: &str, text: &str) {
        let path = self.path().join(below);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, format!("{text}\n")).expect("a file");
    }

    /// The files of the uncore, each with its text.
    fn uncore(&self) -> BTreeMap<PathBuf, String> {
        let below = |folder: &Path| -> Vec<PathBuf> {
            fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
        };
        let files = below(&self.path().join(UNCORE)).into_iter().flat_map(|cluster| below(&cluster));
        files.map(|file| (file.clone(), fs::read_to_string(file).expect("a file"))).collect()
    }

    fn max(&self) -> String {
        let file = self.path().join(UNCORE).join("uncore01/max_freq_khz");
        fs::read_to_string(file).expect("a file").trim().to_owned()
    }

    fn governor(&self, port: u16, uncore: &str) -> Governor {
        let (port, root) = (port.to_string(), self.path().to_str().expect("UTF-8"));
        self.write("my.toml", "epoch = \"50ms\"");
        let file = format!("{root}/my.toml");
        let words = ["--port", &port, "--policy", "fixed", "--uncore", uncore, "--root", root];
        let goal = if uncore == "auto" { &["--goal", "10s@p99"][..] } else { &[] };
        Governor::start(self.path(), &[&words[..], &["--take-over", "--config", &file], goal].concat())
    }
}

const UNCORE: &str = "sys/devices/system/cpu/intel_uncore_frequency";

fn limit(epoch: &Value) -> Option<u64> {
    epoch["uncore"]["limit"]["at_most"].as_u64()
}

#[test]
fn it_slows_while_the_goal_is_kept_and_is_as_it_was_after_the_end_or_a_kill() {
    if cannot("the uncore") {
        return;
    }
    let (machine, folder) = (Machine::new(), tempfile::tempdir().expect("a temporary folder"));
    let server = Memcached::start(folder.path());
    let _load = Load::on(server.port);
    let before = machine.uncore();

    let mut governor = machine.governor(server.port, "auto");
    let slow = governor.until("a slower uncore", |epoch| limit(epoch).is_some_and(|khz| khz <= 2_000_000));
    assert_eq!(
        (slow["uncore"]["mode"].as_str(), &slow["uncore"]["current"]),
        (Some("auto"), &2_000_000.into())
    );
    assert_ne!(machine.uncore(), before);
    let (code, said) = governor.end();
    assert_eq!((code, machine.uncore() == before), (Some(0), true), "{said}");
    assert!(said.contains("uncore free -> at most 2100MHz (the tail leaves room"), "{said}");

    let mut governor = machine.governor(server.port, "auto");
    governor.until("a slower uncore", |epoch| limit(epoch).is_some());
    governor.child.kill().expect("SIGKILL");
    governor.child.wait().expect("its end");
    assert_ne!(machine.max(), "2200000");
    let restored =
        Command::new(ROOST).args(["restore", "--root"]).arg(machine.path()).output().expect("it runs");
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(machine.uncore(), before, "{}", String::from_utf8_lossy(&restored.stdout));
}

#[test]
fn a_persons_clock_and_elc_are_in_force_at_once_and_what_cannot_be_had_is_told() {
    if cannot("a person's uncore") {
        return;
    }
    let (machine, folder) = (Machine::new(), tempfile::tempdir().expect("a temporary folder"));
    let server = Memcached::start(folder.path());
    let before = machine.uncore();
    for (uncore, max, floor) in [("fixed:1.5GHz", "1500000", "1500000"), ("elc", "2200000", "800000")] {
        let mut governor = machine.governor(server.port, uncore);
        governor.until("the limit", |epoch| epoch["uncore"]["limit"] != "none");
        let floor_file = machine.path().join(UNCORE).join("uncore00/elc_floor_freq_khz");
        let reads = (machine.max(), fs::read_to_string(floor_file).expect("a file"));
        assert_eq!(reads, (max.to_owned(), format!("{floor}\n")), "{uncore}");
        let (code, said) = governor.end();
        assert_eq!((code, machine.uncore() == before), (Some(0), true), "{uncore}: {said}");
    }
    for (uncore, told) in
        [("fixed:3GHz", "write fixed:800MHz to fixed:2200MHz"), ("auto", "modprobe intel-uncore-frequency")]
    {
        if uncore == "auto" {
            fs::remove_dir_all(machine.path().join(UNCORE)).expect("it is there");
        }
        let governor = machine.governor(server.port, uncore);
        let output = governor.wait();
        assert!(output.1.contains(told) && output.0 != Some(0), "{uncore}: {output:?}");
    }
}
