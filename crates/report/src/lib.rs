//! The looks of a run: a folder on disk, one HTML page made from it, and the views for a terminal.
//!
//! The problem: a claim such as "the same tail on half the cores" is believed when it can be looked
//! at, kept, opened on another machine in a year, and checked against the raw numbers. So every run
//! leaves a folder ([`run`]) that pandas and DuckDB open as it stands, and one page that needs
//! nothing but a browser ([`html`]).
//!
//! ```text
//!  driver --> run (phases over time) --+
//!  driver --> figures::Page <----------+--> page.json --> html      report.html
//!  simulator --> figures::Page
//!  run --> terminal              `roost top`, `roost demo` while it runs and when it is over
//! ```
//!
//! Invariants:
//! - This crate decides nothing and measures nothing; it shows a driver's records.
//! - A figure that is missing is shown as missing (`-`, or a sentence why), never as zero.
//! - Energy is printed with its source, always: measured is not modelled.
//! - No output refers to anything outside itself, and no text from a run is trusted in HTML.

// First: its macros are for all modules after it.
#[macro_use]
pub mod print;

pub mod exit;
pub mod figures;
pub mod html;
#[cfg_attr(not(target_os = "linux"), path = "machine_facts_elsewhere.rs")]
pub mod machine_facts;
pub mod money;
pub mod perfetto;
pub mod run;
pub mod run_folder;
pub mod table;
pub mod terminal;
mod text;

pub use text::{distinct, grouped};
