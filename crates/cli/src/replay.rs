//! `roost replay`: a recorded run again, or under other parameters.

mod quiescence;
mod segments;
mod stages;
mod store;

use crate::exit::{Exit, coded, usage};
use crate::table::print;
use anyhow::Result;
use daemon::{Replay, ReplayError, ServiceConfig};
use machine::Duration;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Replay a recorded run: the same inputs must give the same commands
///
/// Reads a recording of `roost serve --record DIR`, or one that `record = "DIR"` in a configuration asked
/// for, of the daemon, `roost govern`, `quiesce`, `govern hurry-up` or `stage`: readings, changes by `set`
/// and reloads, whether writes were refused. With --policy, says when and how another policy would have
/// decided; the readings depended on the cores that the service really had, so that is no forecast.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../help/replay.txt"))]
pub struct Args {
    /// The folder of the recording
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Another policy: a TOML file with a service's keys, and the recorded run's epoch [default: 1s]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Print JSON instead of lines
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        // A policy's is told as an error, with the line of the damaged log.
        if !panic.location().is_some_and(|place| place.file().contains("crates/policy/")) {
            tell(panic);
        }
    }));
    if quiescence::is_here(&args.folder) {
        return quiescence::replay(&args.folder, args.policy.as_deref(), args.json);
    }
    let again = if stages::is_here(&args.folder) {
        Some(stages::replay as fn(&Path, bool) -> Result<ExitCode>)
    } else {
        store::is_here(&args.folder).then_some(store::replay as _)
    };
    if let Some(again) = again {
        if args.policy.is_some() {
            return Err(usage(
                "--policy is for recordings of `roost govern`\nhint: `roost sim` tells of another stage or store",
            ));
        }
        return again(&args.folder, args.json);
    }
    let replays = match &args.policy {
        None => Replay::of(&args.folder),
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .map_err(|cause| usage(format!("cannot read {}: {cause}", file.display())))?;
            let mut table: toml::Table =
                text.parse().map_err(|error| usage(format!("{}: {error}", file.display())))?;
            let epoch = match table.remove("epoch") {
                None => Duration::from_secs(1),
                Some(toml::Value::String(text)) => {
                    text.parse().map_err(|error| usage(format!("{}: epoch: {error}", file.display())))?
                }
                Some(_) => return Err(usage(format!("{}: write epoch = \"1s\"", file.display()))),
            };
            // Where the service is does not matter any more; the keys' rules do.
            table.entry("port").or_insert(toml::Value::Integer(1));
            let config: ServiceConfig =
                toml::Value::Table(table).try_into().map_err(|error: toml::de::Error| {
                    usage(format!("{}: {}", file.display(), error.message()))
                })?;
            Replay::under(&args.folder, config.params(epoch))
        }
    };
    let replays = replays.map_err(|error| match error {
        ReplayError::Diverged { .. } => coded(Exit::Failed, error),
        ReplayError::Empty(_) | ReplayError::Unreadable { .. } => usage(error),
    })?;
    if args.json {
        crate::json::print(1, &BTreeMap::from([("services", &replays)]))?;
    } else {
        print(&told(&replays, args.policy.is_some()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn told(replays: &[Replay], other: bool) -> String {
    let mut text = String::new();
    for replay in replays {
        let Replay { service, segments, steps, commands, .. } = replay;
        let verdict = match (other, replay.differences.len()) {
            (false, _) => "the same commands again".to_owned(),
            (true, 0) => "the other policy would have decided the same".to_owned(),
            (true, count) => format!("the other policy would have decided otherwise {count} times"),
        };
        let _ =
            writeln!(text, "{service}: {steps} steps in {segments} segments, {commands} commands: {verdict}");
        if replay.torn {
            let _ = writeln!(text, "  the last line is cut off, as a run that was killed leaves it");
        }
        let first = replay.differences.first().map(|first| first.at);
        for difference in &replay.differences {
            let after = difference.at.since(first.unwrap_or(difference.at));
            let _ = writeln!(
                text,
                "  +{:>9}: CPU {} instead of {} ({})",
                after.to_string(),
                difference.would,
                difference.had,
                difference.why
            );
        }
    }
    text
}
