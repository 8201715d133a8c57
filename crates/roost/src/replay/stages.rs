//! What `roost stage --record` wrote: one log for each server's stage, in segments.

use crate::exit::{Exit, coded, usage};
use crate::table::print;
use anyhow::Result;
use policy::log::replay as again;
use policy::staging::Stager;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// One stage, replayed.
#[derive(Debug, Serialize)]
struct Replayed {
    stage: String,
    segments: usize,
    steps: usize,
    bursts: u64,
}

/// True if the folder has such logs.
pub fn is_here(folder: &Path) -> bool {
    !logs(folder).is_empty()
}

/// Repeats them all.
pub fn replay(folder: &Path, json: bool) -> Result<ExitCode> {
    let mut all = Vec::new();
    for (stage, segments) in logs(folder) {
        let mut text = String::new();
        for path in &segments {
            let segment = std::fs::read_to_string(path)
                .map_err(|cause| usage(format!("cannot read {}: {cause}", path.display())))?;
            // A run that was killed leaves a line without an end.
            text.push_str(segment.rfind('\n').map_or("", |end| &segment[..=end]));
        }
        let replayed =
            again::<Stager>(&text).map_err(|error| coded(Exit::Failed, format!("{stage}: {error}")))?;
        let bursts = replayed.state.record().bursts();
        all.push(Replayed { stage, segments: replayed.segments, steps: replayed.steps, bursts });
    }
    if json {
        print(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
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

/// The segments of each stage, in order.
fn logs(folder: &Path) -> BTreeMap<String, Vec<PathBuf>> {
    let mut logs: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stage = name.strip_prefix("stage-").and_then(|name| name.strip_suffix(".jsonl"));
        if let Some((stage, _number)) = stage.and_then(|name| name.rsplit_once('.')) {
            logs.entry(stage.to_owned()).or_default().push(path);
        }
    }
    logs.values_mut().for_each(|segments| segments.sort());
    logs
}
