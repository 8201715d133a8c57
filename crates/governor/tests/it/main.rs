//! The daemon on real kernels: what unit tests cannot have.

mod frequency_lab;
mod govern_lab;
#[path = "../../../host/tests/it/lab_ports.rs"]
mod lab_ports;
