//! The daemon on real kernels: what unit tests cannot have.

// The lab's machine is an x86.
#[cfg(target_arch = "x86_64")]
mod frequency_lab;
mod govern_lab;
#[cfg(target_arch = "x86_64")]
mod hurry_up_lab;
#[cfg(target_arch = "x86_64")]
#[path = "../../../linux/tests/it/lab_ports.rs"]
mod lab_ports;
