//! Everything that needs the real binary: one test program with modules.
//!
//! A server is ready when it has printed where it listens; ports are chosen by the system. What
//! this machine cannot run prints `SKIPPED` and the reason.

#![allow(clippy::disallowed_methods, reason = "tests write into folders of their own")]

mod conformance;
mod demo;
mod doctor;
mod doors;
mod ending;
mod events;
mod examples;
mod fixture;
mod governing;
mod holding;
mod hostile;
mod hot;
mod hurrying;
mod json;
mod judging;
#[path = "../../../slots/tests/it/jvm.rs"]
mod jvm;
mod keeping;
mod kit;
mod leasing;
mod lending;
mod observing;
mod pages;
mod planning;
mod proving;
mod putting_back;
mod quiescing;
mod rogue_jvms;
mod run_folder;
mod saturating;
mod sealing;
mod seeing;
mod sim;
mod soak;
mod staging;
mod terminal;
mod uncore;
mod usage;
mod waking;
mod watching;
