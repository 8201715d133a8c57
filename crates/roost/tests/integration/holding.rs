//! One holder per knob: a store and a governor on the same CPUs. Whoever comes second asks who came first.

use crate::fixture::{ROOST, Server, signal, skipped};
use crate::governing::{Governor, Memcached, cannot};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// What every CPU's limit reads, if it is the same.
fn limit() -> String {
    let read = |cpu: &machine::CpuId| {
        let path = format!("/sys/devices/system/cpu/cpu{}/power/pm_qos_resume_latency_us", cpu.0);
        fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    let mut limits: Vec<String> = host::allowed_cpus().expect("CPUs").0.iter().map(read).collect();
    limits.dedup();
    if limits.len() == 1 { limits.remove(0) } else { format!("{limits:?}") }
}

fn until_limit(wanted: &str) {
    for _ in 0..5000 {
        if limit() == wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("the limit reads {} and not {wanted}", limit());
}

fn store() -> Server {
    // A worker on each CPU; polling shows on machines without idle states, too.
    let mut command = Command::new(ROOST);
    Server::start_command(command.args([
        "serve",
        "--port",
        "0",
        "--policy",
        "all-awake",
        "--active-idle",
        "poll",
    ]))
}

fn governor(folder: &std::path::Path, port: u16) -> Governor {
    let port = port.to_string();
    // Whatever idle states there are: the limit is written where the kernel has a file for it.
    let flags = ["--port", &port, "--policy", "fixed", "--idle", "70us", "--epoch", "50ms"];
    Governor::start(folder, &flags)
}

#[test]
fn a_store_and_a_governor_share_the_cpus_in_either_order() {
    if cannot("two holders of one knob") {
        return;
    }
    if limit() != "0" {
        return skipped(
            "two holders of one knob",
            &format!("somebody limits these CPUs already: {}", limit()),
        );
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let memcached = Memcached::start(folder.path());

    // The governor first.
    let mut first = governor(folder.path(), memcached.port);
    first.until("an epoch", |epoch| epoch["epochs"].as_u64() > Some(1));
    until_limit("70");
    let second = store();
    until_limit("n/a");
    let status = String::from_utf8(first.ask(&["status"]).stdout).expect("text");
    assert!(status.contains("roost serve on"), "{status}");
    assert_eq!(second.terminate().0, Some(0));
    until_limit("70");
    let (code, said) = first.end();
    assert_eq!((code, limit().as_str()), (Some(0), "0"), "{said}");

    // The store first; then it is killed, and the governor takes over what it held.
    let first = store();
    until_limit("n/a");
    let mut second = governor(folder.path(), memcached.port);
    second.until("an epoch", |epoch| epoch["epochs"].as_u64() > Some(1));
    assert_eq!(limit(), "n/a", "the strictest");
    signal(first.pid(), "KILL");
    until_limit("70");
    let (code, said) = second.end();
    assert_eq!((code, limit().as_str()), (Some(0), "0"), "{said}");
    assert!(said.contains("is asked for idle limits") && said.contains("taken over"), "{said}");
}
