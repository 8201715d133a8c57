//! Tests from outside the process: dying at the worst moments, and a real kernel's files.

#![allow(clippy::disallowed_methods, reason = "tests write into folders of their own")]

mod batch;
mod confine;
mod confine_lab;
mod crash;
mod files;
mod freezer;
mod frequency;
// The lab's machine is an x86.
#[cfg(target_arch = "x86_64")]
mod frequency_lab;
mod hotplug_lab;
mod idle_lab;
mod idle_program;
#[cfg(target_arch = "x86_64")]
mod lab_ports;
mod lending;
mod real_kernel;
mod service;
mod tree;
