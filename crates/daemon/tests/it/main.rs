//! The daemon on real kernels: the checks that unit tests cannot make.

#![allow(clippy::disallowed_methods, reason = "tests write into folders of their own")]

// The lab's machine is an x86.
#[cfg(target_arch = "x86_64")]
mod frequency_lab;
mod govern_lab;
#[cfg(target_arch = "x86_64")]
mod hurry_up_lab;
#[cfg(target_arch = "x86_64")]
#[path = "../../../linux/tests/it/lab_ports.rs"]
mod lab_ports;
mod pods_lab;
