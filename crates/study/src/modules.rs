//! Policies that a line names by their file: `policies = ["mine.wasm + teo"]`.
//!
//! The file lies beside the scenario; one that the command line names, in the working directory. A
//! cell of a sweep has its code in its digest, so a changed file is another cell.

use crate::exit::usage;
use anyhow::Result;
use sim::{Document, policies};
use std::path::Path;
use wasm::Module;

/// Loads the modules that a document's lines name.
pub fn load_named(document: &Document) -> Result<()> {
    let scenario = document.scenario().map_err(usage)?;
    let contestants = document.contestants().map_err(usage)?;
    let of_fleet = scenario.fleet.iter().flat_map(|fleet| &fleet.policies);
    let lines = contestants.iter().map(|contestant| &contestant.policies).chain(of_fleet);
    load(lines, document.path().parent().unwrap_or(Path::new("")))
}

/// Loads the modules that these lines name; files lie in `folder`.
pub fn load<'a>(lines: impl Iterator<Item = &'a String>, folder: &Path) -> Result<()> {
    for word in lines.flat_map(|line| words(line)) {
        let module = Module::read(&folder.join(word)).map_err(usage)?;
        if let Some(registry) = wasm::register(word, module).map_err(usage)? {
            policies::join(registry);
        }
    }
    Ok(())
}

/// The code of the modules of a line, as text; nothing for a line without any.
pub fn told(line: &str) -> String {
    words(line).filter_map(wasm::digest).map(|digest| format!("{digest:016x}\n")).collect()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split('+').map(str::trim).filter(|word| word.ends_with(".wasm"))
}
