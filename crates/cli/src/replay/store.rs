//! A recording of `roost serve`: one log of its scheduler and one for each worker, in segments.

use super::segments;
use crate::exit::{Exit, coded};
use crate::table::print;
use anyhow::Result;
use policy::log::{Recorded, replay as again};
use policy::{Scheduling, peafowl};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

const SCHEDULER: &str = "scheduler";
const WORKER: &str = "worker-";

#[derive(Debug, Serialize)]
struct Replayed {
    instance: String,
    segments: usize,
    steps: usize,
}

/// True if the folder has such logs.
pub fn is_here(folder: &Path) -> bool {
    !segments::logs(folder, SCHEDULER).is_empty()
}

pub fn replay(folder: &Path, json: bool) -> Result<ExitCode> {
    let mut all = each::<Scheduling>(folder, SCHEDULER)?;
    all.extend(each::<peafowl::Worker>(folder, WORKER)?);
    if json {
        crate::json::print(1, &BTreeMap::from([("instances", &all)]))?;
    } else {
        let line = |one: &Replayed| {
            let Replayed { instance, segments, steps } = one;
            if *steps == 0 {
                return format!("{instance}: the run was killed before a step of it was written\n");
            }
            format!("{instance}: {steps} steps in {segments} segments: the same answers again\n")
        };
        print(&all.iter().map(line).collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn each<P: Recorded>(folder: &Path, prefix: &str) -> Result<Vec<Replayed>> {
    let replayed = |(name, files): (String, Vec<_>)| {
        let instance = format!("{prefix}{name}");
        let text = segments::read(&files)?.concat();
        if text.is_empty() {
            return Ok(Replayed { instance, segments: files.len(), steps: 0 });
        }
        let replayed =
            again::<P>(&text).map_err(|error| coded(Exit::Failed, format!("{instance}: {error}")))?;
        Ok(Replayed { instance, segments: replayed.segments, steps: replayed.steps })
    };
    segments::logs(folder, prefix).into_iter().map(replayed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_a_killed_run_left_empty_is_no_fault() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("scheduler.000000.jsonl"), "").unwrap();
        assert!(is_here(folder.path()));
        let all = each::<Scheduling>(folder.path(), SCHEDULER).unwrap();
        assert_eq!(all.iter().map(|one| one.steps).collect::<Vec<_>>(), [0]);
    }
}
