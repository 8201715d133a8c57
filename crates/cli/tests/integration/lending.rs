//! `roost govern --lend` beside a real memcached: batch work on the CPUs that it has left, and its own settings
//! after any end.

use crate::fixture::{IdleLimits, ROOST, is_installed, signal, skipped};
use crate::governing::Memcached;
use batch::Batch;
use linux::EndsWithParent as _;
use machine::{CpuId, CpuList};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[path = "../../../linux/tests/it/batch.rs"]
mod batch;

/// A governor that holds the machine's register of needed CPUs: no other one may be there.
fn govern(socket: &Path, flags: &[&str]) -> Child {
    let mut command = Command::new(ROOST);
    command.args(["govern", "--json", "--socket"]).arg(socket).args(flags);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).ends_with_parent().spawn().expect("roost starts")
}

fn status(socket: &Path, words: &[&str]) -> String {
    let mut command = Command::new(ROOST);
    command.arg("status").args(words).arg("--socket").arg(socket);
    String::from_utf8(command.output().expect("roost runs").stdout).expect("text")
}

fn lent(socket: &Path) -> Value {
    serde_json::from_str::<Value>(&status(socket, &["--json"])).unwrap_or_default()["lent"].clone()
}

#[test]
fn batch_work_has_the_cpus_that_a_service_left_and_its_settings_back_after_any_end() {
    let name = "batch_work_has_the_cpus_that_a_service_left";
    if !is_installed("memcached") {
        return skipped(name, "no memcached here");
    }
    let online = linux::online_cpus(&linux::Root::system()).expect("CPUs");
    if online.0.len() < 2 {
        return skipped(name, "one CPU: there is none to lend");
    }
    let _alone = IdleLimits::alone();
    let Some(batch) = Batch::begin(1) else { return };
    let before = batch.state();
    let folder = tempfile::tempdir().expect("a folder");
    let memcached = Memcached::start(folder.path());
    let socket = folder.path().join("govern.sock");
    let (port, lend) = (memcached.port.to_string(), format!("cgroup:{}", batch.name));
    let flags = ["--port", &port, "--policy", "fixed", "--cores", "1", "--lend", &lend];
    for end in ["TERM", "KILL"] {
        let mut governor = govern(&socket, &flags);
        let has_worked = |lent: &Value| !lent["cpus"][0].is_null() && lent["used_ns"].as_u64() > Some(0);
        let mut lent = self::lent(&socket);
        let until = Instant::now() + Duration::from_secs(120);
        while !has_worked(&lent) && Instant::now() < until {
            assert!(governor.try_wait().expect("its state").is_none(), "it ended");
            std::thread::sleep(Duration::from_millis(50));
            lent = self::lent(&socket);
        }
        assert!(has_worked(&lent), "{lent}");
        assert_eq!((lent["to"].as_str(), batch.read("cpu.idle").as_str()), (Some(&*batch.name), "1"));
        let cpus = lent["cpus"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|cpu| CpuId(cpu.as_u64().expect("a number") as u16));
        assert_eq!(CpuList(cpus.collect()).to_string(), batch.read("cpuset.cpus"));
        let told = status(&socket, &[]);
        assert!(told.contains(&format!("{}: has CPU", batch.name)) && told.contains("of CPU time"), "{told}");
        signal(governor.id(), end);
        let output = governor.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        if end == "TERM" {
            assert!(output.status.success(), "{said}");
            assert!(said.contains("of CPU time on CPUs that no service needed"), "{said}");
        } else {
            assert_ne!(batch.state(), before, "a SIGKILL puts nothing back");
            let restored = Command::new(ROOST).arg("restore").output().expect("roost runs");
            assert!(restored.status.success(), "{restored:?}");
        }
        assert_eq!(batch.state(), before, "after {end}");
        assert!(!batch.is_frozen());
    }
}
