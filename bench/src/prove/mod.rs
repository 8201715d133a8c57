//! `roost-bench prove`: the errors and the finds of `roost prove`.
//!
//! ```text
//!   mod.rs    the arguments; trials on simulated servers (study::prove::trial)
//!   live.rs   the same on a memcached of this machine, by the program itself
//! ```

mod live;

use crate::exit::Exit;
use crate::harness::{Header, Output, SEED, append, describe, folder};
use crate::table::{Table, print};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use study::prove::trial::{Trial, found, run_all};

/// Count the errors and the finds of `roost prove`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench prove
  roost-bench prove --live --out benches/runs/2026-11-26-intel-xeon-2cpu
  # A look at whether the live part works
  roost-bench prove --live --runs 1 --blocks 8 --block 2s")]
pub struct Args {
    /// Simulated runs with the same treatment twice; a fifth as many with 5 % more CPU time
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(20..))]
    simulated: u32,
    /// On this machine's memcached instead: one and a half hours, quiet, as root
    #[arg(long)]
    live: bool,
    /// Make only these kinds of live runs, in this order
    #[arg(long, value_enum, value_delimiter = ',', default_value = "same,added")]
    kinds: Vec<Kind>,
    /// So many live runs of each kind
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// So many blocks has each live run, an even number
    #[arg(long, value_name = "N", default_value_t = 24)]
    blocks: u32,
    /// The length of each block of the live runs
    #[arg(long, value_name = "TIME", default_value = "5s")]
    block: machine::Duration,
    /// The memcached that the live runs measure
    #[arg(long, value_name = "FILE", default_value = "memcached")]
    peer: PathBuf,
    /// Requests per second of a live run
    #[arg(long, value_name = "RATE", default_value = "10k", value_parser = workload::parse_rate)]
    rate: machine::Rate,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    /// Both halves of a run are treated the same; judged whole, and as `--until` would have ended it
    Same,
    /// 5 % more CPU time in one half
    Added,
}

impl Args {
    /// True if the machine is governed meanwhile.
    pub fn is_live(&self) -> bool {
        self.live
    }
}

/// A kind of runs, and the bar for how many of them find a difference.
#[derive(Serialize)]
struct Counted {
    kind: String,
    figure: String,
    found: u32,
    runs: u32,
    /// The least and the most that are allowed.
    bar: Option<(u32, u32)>,
    met: Option<bool>,
}

impl Counted {
    fn of(kind: &str, figure: &str, found: u32, runs: u32, bar: Option<(u32, u32)>) -> Self {
        let met = bar.map(|(least, most)| (least..=most).contains(&found));
        Self { kind: kind.to_owned(), figure: figure.to_owned(), found, runs, bar, met }
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let name = if args.live { "prove-live" } else { "prove" };
    let header = Header::now(name, SEED)?;
    let file = format!("{name}.jsonl");
    let folder = folder(args.output.out.as_deref(), &header.started, &header.machine);
    append(&folder, &file, &header)?;
    let mut keep = |line: serde_json::Value| append(&folder, &file, &line);
    let counted = if args.live { live::run(args, &mut keep)? } else { simulated(args, &mut keep)? };
    counted.iter().try_for_each(|row| append(&folder, &file, row))?;
    if args.output.json {
        let all = serde_json::json!({ "run": header, "counted": counted });
        print(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
    } else {
        let mut table =
            Table::new(2, ["runs", "figure", "found", "of", "bar", ""].map(str::to_owned).to_vec());
        for row in &counted {
            let bar = row.bar.map(|(least, most)| format!("{least} to {most}"));
            let met = row.met.map(|met| if met { "met" } else { "MISSED" });
            table.row(vec![
                row.kind.clone(),
                row.figure.clone(),
                row.found.to_string(),
                row.runs.to_string(),
                bar.unwrap_or_default(),
                met.unwrap_or_default().to_owned(),
            ]);
        }
        let at = folder.join(&file);
        print(&format!("{}\n{}raw data: {}\n", describe(&header.machine), table.text(), at.display()))?;
    }
    let is_missed = counted.iter().any(|row| row.met == Some(false));
    Ok(if is_missed { Exit::GoalMissed.into() } else { ExitCode::SUCCESS })
}

/// Takes a line of raw data.
type Keep<'a> = dyn FnMut(serde_json::Value) -> Result<()> + 'a;

#[derive(Serialize)]
struct Simulated<'a> {
    kind: &'a str,
    pairs: u32,
    found: Vec<&'a str>,
}

fn simulated(args: &Args, keep: &mut Keep<'_>) -> Result<Vec<Counted>> {
    let whole = Trial { pairs: 12, requests: 10_000, added: 0.0, until: None, seed: 0 };
    let until = Some("1%@power".parse().map_err(anyhow::Error::msg)?);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counted = Vec::new();
    for (kind, trial, runs) in [
        ("A/A", whole, args.simulated),
        ("A/A, --until 1%@power", Trial { until, ..whole }, args.simulated),
        ("+5 % CPU time", Trial { added: 0.05, ..whole }, args.simulated / 5),
    ] {
        let outcomes = run_all(trial, runs, threads).context("a trial")?;
        for outcome in &outcomes {
            let found = outcome.changes.iter().filter(|change| change.is_found());
            let found = found.map(|change| change.figure.as_str()).collect();
            keep(serde_json::to_value(Simulated { kind, pairs: outcome.pairs, found })?)?;
        }
        let is_added = trial.added > 0.0;
        let found: BTreeMap<String, u32> = found(&outcomes);
        for (figure, found) in found {
            let bar = match is_added {
                false => Some((runs * 3 / 100, runs * 7 / 100)),
                true => (figure == "cpu_s_per_request").then_some((runs * 8 / 10, runs)),
            };
            counted.push(Counted::of(kind, &figure, found, runs, bar));
        }
    }
    Ok(counted)
}
