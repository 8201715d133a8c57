//! A recording of `roost stage`: one log for each server's stage, in segments.

use super::segments;
use crate::exit::{Exit, coded};
use crate::table::print;
use anyhow::Result;
use policy::log::replay as again;
use policy::staging::Stager;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

const PREFIX: &str = "stage-";

#[derive(Debug, Serialize)]
struct Replayed {
    stage: String,
    segments: usize,
    steps: usize,
    bursts: u64,
}

/// True if the folder has such logs.
pub fn is_here(folder: &Path) -> bool {
    !segments::logs(folder, PREFIX).is_empty()
}

pub fn replay(folder: &Path, json: bool) -> Result<ExitCode> {
    let mut all = Vec::new();
    for (stage, files) in segments::logs(folder, PREFIX) {
        let text = segments::read(&files)?.concat();
        let replayed =
            again::<Stager>(&text).map_err(|error| coded(Exit::Failed, format!("{stage}: {error}")))?;
        let bursts = replayed.state.record().bursts();
        all.push(Replayed { stage, segments: replayed.segments, steps: replayed.steps, bursts });
    }
    if json {
        crate::json::print(1, &BTreeMap::from([("stages", &all)]))?;
    } else {
        let line = |one: &Replayed| {
            let Replayed { stage, segments, steps, bursts } = one;
            format!(
                "{stage}: {steps} steps in {segments} segments, {bursts} bursts: the same releases again\n"
            )
        };
        print(&all.iter().map(line).collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}
