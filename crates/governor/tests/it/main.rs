//! The daemon on real kernels: what unit tests cannot have.

mod frequency_lab;
mod govern_lab;
