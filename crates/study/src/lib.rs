//! Studies: a scenario file, its changes, its finished runs, and their tables and pages.
//!
//! The simulator runs one contestant in one scenario. A study is many of them: a person names a
//! file and changes on the command line, a grid of cells comes of it, each cell is run once and
//! kept, and tables, one JSON document and a page show all. `roost sim` and `roost-papers` are the
//! programs.
//!
//! ```text
//!   options.rs    a scenario file and the command line's changes to it
//!   changes.rs    the changes of `--set`
//!   grid.rs       the cells, and which of them a changed scenario leaves
//!   cells.rs      finished cells, kept in a file that survives a kill
//!   columns.rs    tables as typed columns: CSV files, data frames
//!   modules.rs    policies in WebAssembly that a line names by their file
//!   traces/       published traces in Roost's own form
//!   sweep.rs      every cell of a grid, in a folder that can be gone on with
//!   figures.rs    the figures of a run by name: for tables, CSV files and plots
//!   paired.rs     contestants against one of them, on the same chance
//!   results.rs    for programs: one JSON document, CSV files
//!   fleet.rs      the same of fleets
//!   folder.rs     files that are whole or not there
//!   progress.rs   how far it is
//!   kit/          an archive of what a machine showed, and the table of such archives
//!   prove/        governed and ungoverned blocks of a live service, compared in pairs
//!   page/         report.html
//! ```

// `println!` and its kin in all modules are those of `report::print`.
#[macro_use(eprintln)]
extern crate report as _;

pub mod cells;
pub mod changes;
pub mod columns;
pub mod figures;
pub mod fleet;
pub mod folder;
pub mod grid;
pub mod kit;
mod modules;
pub mod options;
pub mod page;
pub mod paired;
pub mod progress;
pub mod prove;
pub mod results;
pub mod sweep;
pub mod traces;

use report::{exit, run_folder};
