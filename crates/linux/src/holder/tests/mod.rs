//! Processes here are holders of one process: locks and sockets do not know the difference. Real ones are in
//! `crates/cli/tests/integration/holding.rs`.

mod active;
mod clock;
mod hostile;
mod idle;

use super::*;
use crate::cpuidle::control::IdleActuator;
use crate::fake::FakeMachine;
use machine::CpuId;
use std::path::PathBuf;

fn cpus(text: &str) -> CpuList {
    text.parse().unwrap()
}

fn us(us: u64) -> IdleLimit {
    IdleLimit::ExitLatency(Duration::from_micros(us))
}

fn open(machine: &FakeMachine, list: &str, name: &str) -> IdleHolder {
    IdleHolder::open(machine.root(), &cpus(list), name, IdleActuator::PmQos).unwrap()
}

/// The line that asks for this.
fn asks(asker: &str, cpu: u16, limit: IdleLimit) -> Vec<u8> {
    let ask = wire::Ask::Idle { cpu: CpuId(cpu), limit };
    wire::line(&wire::Request { v: wire::VERSION, asker: asker.to_owned(), ask })
}

fn limit_of(machine: &FakeMachine, cpu: u16) -> String {
    machine.read(&format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"))
}

fn socket(machine: &FakeMachine) -> PathBuf {
    let mut sockets = std::fs::read_dir(machine.path("run/roost")).unwrap().flatten();
    sockets.find(|file| file.file_name().to_string_lossy().starts_with("holder-")).expect("a socket").path()
}

/// Connections end in other threads.
fn soon(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{what}: not within two seconds");
}
