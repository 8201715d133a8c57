//! Parts of one process, and leases of other processes, at one arbiter. The test with real
//! processes is `crates/cli/tests/integration/holding.rs`.

mod active;
mod clock;
mod idle;

use super::*;
use crate::fake::FakeMachine;
use machine::{CpuId, Duration};

fn cpus(text: &str) -> CpuList {
    text.parse().unwrap()
}

fn us(us: u64) -> IdleLimit {
    IdleLimit::ExitLatency(Duration::from_micros(us))
}

/// An arbiter that holds the idle limits of these CPUs.
fn open(machine: &FakeMachine, list: &str) -> Arbiter {
    let arbiter = Arbiter::new(machine.root(), "roost govern");
    arbiter.idle.hold("services", &cpus(list)).unwrap();
    arbiter
}

/// Another process, known by its lease.
fn lease(lease: u64, name: &str) -> Asker {
    Asker { lease, process: 7, name: name.to_owned() }
}

fn limit_of(machine: &FakeMachine, cpu: u16) -> String {
    machine.read(&format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"))
}

#[test]
fn a_second_arbiter_is_refused_by_name_until_the_first_one_ends() {
    let machine = FakeMachine::intel_server(2);
    let first = open(&machine, "0");
    let second = Arbiter::new(machine.root(), "another daemon");
    let name = format!("roost govern (process {})", std::process::id());
    let refused = [
        second.idle.hold("shop", &cpus("1")).unwrap_err().to_string(),
        second.active.hold().unwrap_err().to_string(),
        second.active.claim("shop", &Claim { active: cpus("1"), ..Claim::default() }).unwrap_err(),
    ];
    assert!(refused.iter().all(|why| why.contains(&name) && why.contains("arbiter.lock")), "{refused:?}");
    drop(first);
    second.idle.hold("shop", &cpus("0-1")).unwrap();
}

#[test]
fn withdrawing_a_lease_takes_all_that_it_asked_for_and_leaves_the_rest() {
    let machine = FakeMachine::intel_server(2);
    let arbiter = open(&machine, "0-1");
    let store = lease(1, "roost serve");
    arbiter.idle.hold(store.clone(), &cpus("1")).unwrap();
    arbiter.idle.limit("shop", CpuId(1), us(70));
    arbiter.idle.limit(store.clone(), CpuId(1), us(5));
    arbiter.active.claim(store.clone(), &Claim { active: cpus("0"), ..Claim::default() }).unwrap();
    assert_eq!(limit_of(&machine, 1), "5");
    let told: Vec<_> = arbiter.asked().into_iter().map(|asked| (asked.asker, asked.process)).collect();
    let own = std::process::id();
    for (asker, process) in [("roost serve", 7), ("roost serve", 7), ("shop", own)] {
        assert!(told.contains(&(asker.to_owned(), process)), "{told:?}");
    }
    arbiter.withdraw(&store);
    assert_eq!(limit_of(&machine, 1), "70", "the rest's combination, no constant");
    assert_eq!(arbiter.asked().len(), 1);
    drop(arbiter);
    assert_eq!(limit_of(&machine, 1), "0");
}
