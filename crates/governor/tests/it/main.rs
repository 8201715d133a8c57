//! The daemon on real kernels: what unit tests cannot have.

mod lab;
