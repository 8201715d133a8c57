//! `roost govern --lend` beside a real memcached: batch work on the CPUs that it has left, and its own settings
//! after any end.

use crate::fixture::{ROOST, is_installed, skipped};
use crate::governing::{Governor, Memcached};
use batch::Batch;
use machine::{CpuId, CpuList};
use serde_json::Value;
use std::process::Command;

#[path = "../../../linux/tests/it/batch.rs"]
mod batch;

fn status(governor: &Governor) -> Value {
    serde_json::from_slice(&governor.ask(&["status", "--json"]).stdout).expect("JSON")
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
    let Some(batch) = Batch::begin() else { return };
    let before = batch.state();
    let folder = tempfile::tempdir().expect("a folder");
    let memcached = Memcached::start(folder.path());
    let (port, lend) = (memcached.port.to_string(), format!("cgroup:{}", batch.name));
    let flags = ["--port", &port, "--policy", "fixed", "--cores", "1", "--lend", &lend];
    for end in ["TERM", "KILL"] {
        let mut governor = Governor::start(folder.path(), &flags);
        governor.until("one core is left to the service", |epoch| epoch["cores"][0] == 1);
        let has_worked = |lent: &Value| !lent["cpus"][0].is_null() && lent["used_ns"].as_u64() > Some(0);
        let mut lent = status(&governor)["lent"].clone();
        for _ in 0..100 {
            if has_worked(&lent) {
                break;
            }
            governor.until("another epoch", |_| true);
            lent = status(&governor)["lent"].clone();
        }
        assert!(has_worked(&lent), "{lent}");
        assert_eq!((lent["to"].as_str(), batch.read("cpu.idle").as_str()), (Some(&*batch.name), "1"));
        let cpus = lent["cpus"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|cpu| CpuId(cpu.as_u64().expect("a number") as u16));
        assert_eq!(CpuList(cpus.collect()).to_string(), batch.read("cpuset.cpus"));
        let told = String::from_utf8(governor.ask(&["status"]).stdout).expect("text");
        assert!(told.contains(&format!("{}: has CPU", batch.name)) && told.contains("of CPU time"), "{told}");
        let (code, said) = governor.end_by(end);
        if end == "TERM" {
            assert_eq!(code, Some(0), "{said}");
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
