//! Processes and threads: the members of a service, their CPUs and scheduling classes, and how our
//! own begin and end.

pub(crate) mod affinity;
pub mod code_files;
pub(crate) mod cpu_time;
pub(crate) mod ends_with_parent;
pub(crate) mod pid_namespace;
pub(crate) mod pods;
pub(crate) mod privileges;
pub(crate) mod programs;
pub(crate) mod realtime;
pub(crate) mod runs;
pub mod service;
pub mod signals;
pub mod symbols;
pub(crate) mod thread_places;
pub(crate) mod threads;
