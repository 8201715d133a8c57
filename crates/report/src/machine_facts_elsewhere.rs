//! A run's facts about its machine, where that has no files of Linux: those of the standard library.

use crate::run::Machine;
use std::env::{consts, var};
use std::thread::available_parallelism;

pub fn this_machine() -> Machine {
    Machine {
        host: var(if cfg!(windows) { "COMPUTERNAME" } else { "HOSTNAME" }).ok(),
        cpus: available_parallelism().ok().and_then(|cpus| cpus.get().try_into().ok()),
        kernel: Some(format!("{}, {}", consts::OS, consts::ARCH)),
        ..Machine::default()
    }
}
