//! What the server changes on a machine, seen on a made-up one: journalled, put back, or restored
//! after a SIGKILL.

use crate::fixture::{ROOST, Server, signal};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A machine with the CPUs that this test may run on, each with POLL and three states that halt.
pub fn machine() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let cpus = linux::allowed_cpus().unwrap();
    put("sys/devices/system/cpu/online", &format!("{cpus}\n"));
    put("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n");
    put("sys/devices/system/cpu/cpuidle/current_governor", "menu\n");
    for cpu in &cpus.0 {
        let folder = format!("sys/devices/system/cpu/cpu{}", cpu.0);
        put(&format!("{folder}/power/pm_qos_resume_latency_us"), "0\n");
        for (state, (name, latency, residency)) in
            [("POLL", 0, 0), ("C1", 2, 2), ("C1E", 10, 20), ("C6", 133, 600)].into_iter().enumerate()
        {
            let state = format!("{folder}/cpuidle/state{state}");
            put(&format!("{state}/name"), &format!("{name}\n"));
            put(&format!("{state}/desc"), &format!("{name}\n"));
            put(&format!("{state}/latency"), &format!("{latency}\n"));
            put(&format!("{state}/residency"), &format!("{residency}\n"));
            for (file, text) in [
                ("disable", "0\n"),
                ("default_status", "enabled\n"),
                ("time", "0\n"),
                ("usage", "0\n"),
                ("rejected", "0\n"),
                ("power", "0\n"),
                ("above", "0\n"),
                ("below", "0\n"),
            ] {
                put(&format!("{state}/{file}"), text);
            }
        }
    }
    put("proc/stat", "");
    root
}

pub fn start(root: &Path, flags: &[&str]) -> Server {
    Server::start_command(
        Command::new(ROOST)
            .args(["serve", "--port", "0", "--memory-limit", "64m", "--root"])
            .arg(root)
            .args(flags),
    )
}

/// Every CPU's limit, as the files read.
pub fn limits(root: &Path) -> Vec<String> {
    let cpus = linux::allowed_cpus().unwrap();
    let read = |cpu: u16| {
        let path = root.join(format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"));
        fs::read_to_string(path).unwrap().trim().to_owned()
    };
    cpus.0.iter().map(|cpu| read(cpu.0)).collect()
}

/// Waits for the director, which limits the CPUs after the server says where it listens.
pub fn wait_for_limits(root: &Path, wanted: &str) {
    for _ in 0..3000 {
        if limits(root).iter().all(|limit| limit == wanted) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("limits are {:?}, not {wanted}", limits(root));
}

pub fn restore(root: &Path) -> (Option<i32>, String) {
    let output = Command::new(ROOST).args(["restore", "--root"]).arg(root).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn active_cpus_are_limited_to_their_shallowest_halt_and_put_back_on_sigterm() {
    let machine = machine();
    let server = start(machine.path(), &["--policy", "all-awake"]);
    wait_for_limits(machine.path(), "2");
    let (code, _) = server.terminate();
    assert_eq!(code, Some(0));
    assert!(limits(machine.path()).iter().all(|limit| limit == "0"), "{:?}", limits(machine.path()));
}

#[test]
fn polling_is_asked_for_as_not_available() {
    let machine = machine();
    let server = start(machine.path(), &["--policy", "all-awake", "--active-idle", "poll"]);
    wait_for_limits(machine.path(), "n/a");
    drop(server);
    assert!(limits(machine.path()).iter().all(|limit| limit == "0"));
}

#[test]
fn restore_undoes_what_a_killed_run_left_and_leaves_alone_what_changed_since() {
    let machine = machine();
    let server = start(machine.path(), &["--policy", "all-awake"]);
    wait_for_limits(machine.path(), "2");
    let (_, said) = restore(machine.path());
    assert!(limits(machine.path()).iter().all(|limit| limit == "2"), "a living run is left alone: {said}");
    signal(server.pid(), "KILL");
    drop(server);
    assert!(limits(machine.path()).iter().all(|limit| limit == "2"), "no process was there to put it back");
    // Another program decides about one CPU meanwhile.
    let first = linux::allowed_cpus().unwrap().0.first().unwrap().0;
    let file =
        machine.path().join(format!("sys/devices/system/cpu/cpu{first}/power/pm_qos_resume_latency_us"));
    fs::write(&file, "77\n").unwrap();
    let (code, said) = restore(machine.path());
    assert_eq!(code, Some(0), "{said}");
    let after = limits(machine.path());
    assert_eq!(after[0], "77", "{said}");
    assert!(after[1..].iter().all(|limit| limit == "0"), "{after:?}: {said}");
    let (code, said) = restore(machine.path());
    assert_eq!(code, Some(0), "a second restore finds nothing: {said}");
    assert_eq!(limits(machine.path()), after);
}

#[test]
fn a_second_store_leaves_the_first_ones_cpus_alone_until_it_has_ended() {
    let machine = machine();
    let server = start(machine.path(), &["--policy", "all-awake"]);
    wait_for_limits(machine.path(), "2");
    let mut command = Command::new(ROOST);
    command.args(["serve", "--port", "0", "--policy", "all-awake", "--active-idle", "poll", "--root"]);
    let log = machine.path().join("second.log");
    command.arg(machine.path()).stderr(fs::File::create(&log).unwrap());
    let second = Server::start_command(&mut command);
    let said = fs::read_to_string(&log).unwrap();
    let first = format!("process {}", server.pid());
    assert!(said.contains(&first) && said.contains("by way of a daemon"), "{said}");
    assert!(limits(machine.path()).iter().all(|limit| limit == "2"));
    assert_eq!(server.terminate().0, Some(0));
    wait_for_limits(machine.path(), "n/a");
    assert_eq!(second.terminate().0, Some(0));
    assert!(limits(machine.path()).iter().all(|limit| limit == "0"));
}

#[test]
fn a_holder_that_does_not_yield_is_named() {
    let machine = machine();
    let root = linux::Root::at(machine.path());
    let _locks = linux::CpuLocks::take(&root, &linux::allowed_cpus().unwrap(), "roost bench").unwrap();
    let output =
        Command::new(ROOST).args(["serve", "--port", "0", "--root"]).arg(machine.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    let own = format!("process {}", std::process::id());
    assert!(said.contains(&own) && said.contains("roost bench"), "{said}");
}

#[test]
fn without_cpuidle_the_server_runs_and_says_what_is_missing() {
    let empty = tempfile::tempdir().unwrap();
    let server = start(empty.path(), &[]);
    let mut client = server.connect();
    assert_eq!(client.set("k", "v"), "STORED");
    assert_eq!(client.value("k").as_deref(), Some("v"));
    assert_eq!(server.terminate().0, Some(0));
}
