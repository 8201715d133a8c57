//! A recording of `roost quiesce`: the same commands again, or the freezes under other
//! constants.

use super::segments;
use crate::exit::{Exit, coded, usage};
use crate::table::print;
use anyhow::Result;
use policy::check::Check as _;
use policy::log::{replay as again, steps};
use policy::quiescence::{Params, Quiescence};
use serde::Serialize;
use sim::recorded_waits::{self, StoodStill};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const INSTANCE: &str = "quiesce";

#[derive(Debug, Serialize)]
struct Replayed {
    segments: usize,
    steps: usize,
    /// As it was.
    had: StoodStill,
    /// Under other constants, simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    would: Option<StoodStill>,
}

/// True if the folder has such logs.
pub fn is_here(folder: &Path) -> bool {
    !logs(folder).is_empty()
}

fn logs(folder: &Path) -> Vec<PathBuf> {
    segments::logs(folder, INSTANCE).remove("").unwrap_or_default()
}

/// Repeats it; with a file of constants also asks for their decisions.
pub fn replay(folder: &Path, params: Option<&Path>, json: bool) -> Result<ExitCode> {
    let texts = segments::read(&logs(folder))?;
    let diverged = |error| coded(Exit::Failed, format!("{INSTANCE}: {error}"));
    let replayed = again::<Quiescence>(&texts.concat()).map_err(diverged)?;
    let mut all = Vec::new();
    for text in &texts {
        all.extend(steps::<Quiescence>(text).map_err(diverged)?.steps);
    }
    let would = params.map(|file| -> Result<StoodStill> {
        let text = std::fs::read_to_string(file)
            .map_err(|cause| usage(format!("cannot read {}: {cause}", file.display())))?;
        let params: Params = toml::from_str(&text)
            .map_err(|error| usage(format!("{}: {}", file.display(), error.message())))?;
        params.check().map_err(|wrong| usage(format!("{}: {wrong}", file.display())))?;
        Ok(recorded_waits::again(&all, replayed.state.anew(params)).0)
    });
    let told = Replayed {
        segments: replayed.segments,
        steps: replayed.steps,
        had: recorded_waits::as_recorded(&all),
        would: would.transpose()?,
    };
    if json {
        crate::json::print(1, &told)?
    } else {
        print(&text(&told))?
    }
    Ok(ExitCode::SUCCESS)
}

fn text(told: &Replayed) -> String {
    let still = |still: &StoodStill| {
        let groups: Vec<String> = still
            .frozen_share
            .iter()
            .map(|(group, share)| format!("group {group} for {:.1} % of the time", share * 100.0))
            .collect();
        let groups = if groups.is_empty() { "nothing stood still".to_owned() } else { groups.join(", ") };
        format!("{} freezes in {:.1} s: {groups}", still.freezes, still.length_s)
    };
    let mut text = format!(
        "{} steps in {} segments: the same commands again\n{}\n",
        told.steps,
        told.segments,
        still(&told.had)
    );
    if let Some(would) = &told.would {
        text += &format!("under the other constants, simulated: {}\n", still(would));
    }
    text
}
