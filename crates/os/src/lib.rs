//! The part of an operating system that is alike on all: the time, files that are whole or not there,
//! text that is safe for a terminal.
//!
//! The problem: simulating, reading a run and loading a service are done on laptops, too, and a
//! laptop has Windows or macOS. The crate `linux` knows the rest of a machine, and exists on Linux
//! alone.
//!
//! ```text
//!   now              CLOCK_MONOTONIC             std::time, elsewhere
//!   SafeFolder       safe_folder/: descriptors   plain_folder.rs: paths
//!   connect_within   Unix sockets                -
//!   printable        text alone
//! ```
//!
//! Invariants:
//! - A file takes its name when it is whole, on every system.
//! - On Linux, where Roost may run as root, no link of another user is followed. Elsewhere Roost
//!   changes nothing but its own files, and trusts the folders that it is told.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write into folders of their own"))]

mod clock;
#[cfg(target_os = "linux")]
mod connect;
mod error;
#[cfg(not(target_os = "linux"))]
#[allow(clippy::disallowed_methods, reason = "SafeFolder is made of them")]
mod plain_folder;
mod printable;
#[cfg(target_os = "linux")]
mod safe_folder;

pub use clock::now;
#[cfg(target_os = "linux")]
pub use connect::connect_within;
pub use error::SafeError;
#[cfg(not(target_os = "linux"))]
pub use plain_folder::SafeFolder;
pub use printable::{printable, printable_name};
#[cfg(target_os = "linux")]
pub use safe_folder::SafeFolder;
