//! The method on a memcached of this machine: `roost prove` itself, with blocks that govern
//! nothing, and with blocks that burn 5 % more CPU time.
//!
//! The burnt time is 5 % of the machine's busy time in the ungoverned blocks of a run before.
//!
//! A run whose halves are alike is judged twice: whole, and at the block at which `--until` would
//! have ended it, by the intervals that hold at any end. To stop changes no block before it, so
//! the same blocks answer both questions.

use super::{Args, Counted, Keep, Kind};
use crate::contestant::{Stable, Who};
use anyhow::{Context as _, Result, bail};
use linux::EndsWithParent as _;
use machine::EnergySource;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};
use study::prove::outcome::Plan;
use study::prove::trial;
use study::prove::{Block, End, LikeLoad, Outcome, Until};

/// A run of `roost prove`, as its folder has it.
#[derive(Serialize)]
struct Ran {
    kind: &'static str,
    run: u32,
    document: Value,
    blocks: Vec<Block>,
}

/// The part of a run's document that its judging needs.
#[derive(Deserialize)]
struct Facts {
    like: f64,
    meters: Vec<Meter>,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Deserialize)]
struct Meter {
    name: String,
}

/// Of twenty runs three may err, and fifteen have to find the work that was added.
const ERRORS_MOST: f64 = 3.0 / 20.0;
const FOUND_LEAST: f64 = 15.0 / 20.0;

pub(super) fn run(args: &Args, keep: &mut Keep<'_>) -> Result<Vec<Counted>> {
    let folder = tempfile::tempdir().context("a folder for the server's log")?;
    let roost = crate::product::roost()?;
    let stable = Stable::of(&args.peer, linux::allowed_cpus()?, 64, folder.path())?;
    let server = stable.start(Who::Peer)?;
    let target = server.target().to_string();
    let port = target.rsplit(':').next().context("a port")?.to_owned();
    let mut load = Command::new(&roost);
    load.args(["load", &target, "--rate", &args.rate.as_per_second().to_string(), "--for", "24h"]);
    let mut load = load.stdout(Stdio::null()).stderr(Stdio::null()).ends_with_parent().spawn()?;
    let socket = folder.path().join("prove.sock");
    let out = folder.path().join("run");
    let prove = |kind: &'static str, instead: &str, run: u32| -> Result<Ran> {
        let mut command = Command::new(&roost);
        command.args(["prove", "--json", "--port", &port, "--instead", instead]);
        command.args(["--blocks", &args.blocks.to_string(), "--block", &args.block.to_string()]);
        command.args(["--seed", &run.to_string(), "--out"]).arg(&out).arg("--");
        command.arg("--socket").arg(&socket);
        let output = command.ends_with_parent().output().context("roost prove")?;
        if output.stdout.is_empty() {
            bail!("roost prove: {}", String::from_utf8_lossy(&output.stderr));
        }
        let document = serde_json::from_slice(&output.stdout)?;
        let lines = fs::read_to_string(out.join("blocks.jsonl"))?;
        let blocks = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Ran { kind, run, document, blocks })
    };
    let result = runs(args, keep, prove);
    let _ = load.kill();
    let _ = load.wait();
    result
}

fn runs(
    args: &Args,
    keep: &mut Keep<'_>,
    prove: impl Fn(&'static str, &str, u32) -> Result<Ran>,
) -> Result<Vec<Counted>> {
    let until: Until = "1%@power".parse().map_err(anyhow::Error::msg)?;
    let most = (ERRORS_MOST * f64::from(args.runs)).floor() as u32;
    let least = (FOUND_LEAST * f64::from(args.runs)).ceil() as u32;
    let mut counted = Vec::new();
    let mut count = |kind: &str, outcomes: &[Outcome], bar: &dyn Fn(&str) -> Option<(u32, u32)>| {
        for (figure, found) in trial::found(outcomes) {
            counted.push(Counted::of(kind, &figure, found, args.runs, bar(&figure)));
        }
    };
    let mut busy = None;
    for kind in &args.kinds {
        let (name, is_added) = match kind {
            Kind::Same => ("live A/A", false),
            Kind::Added => ("live +5 % CPU time", true),
        };
        if is_added && busy.is_none() {
            busy = busy_of(&facts(&prove(name, "nothing", 0)?)?.outcome);
        }
        let instead = if is_added {
            let busy = busy.context("the run before does not tell how busy the CPUs were")?;
            format!("burn={:.4}", (0.05 * busy).min(1.0))
        } else {
            "nothing".to_owned()
        };
        let (mut whole, mut ended) = (Vec::new(), Vec::new());
        for run in 1..=args.runs {
            let ran = prove(name, &instead, run)?;
            keep(serde_json::to_value(&ran)?)?;
            let facts = facts(&ran)?;
            eprintln!("{name}: run {run} of {}: {}", args.runs, facts.outcome.sentence);
            if !is_added {
                busy = busy_of(&facts.outcome);
                ended.push(at_the_end(&facts, until, args.blocks / 2, &ran.blocks));
            }
            whole.push(facts.outcome);
        }
        if is_added {
            count(name, &whole, &|figure| (figure == "cpu_s_per_request").then_some((least, args.runs)));
        } else {
            count(name, &whole, &|_| Some((0, most)));
            count(&format!("{name}, --until {until}"), &ended, &|_| Some((0, most)));
        }
    }
    Ok(counted)
}

fn facts(ran: &Ran) -> Result<Facts> {
    Facts::deserialize(&ran.document).context("the document of `roost prove`")
}

/// The verdict at the block at which this bound ends the run.
fn at_the_end(facts: &Facts, until: Until, pairs: u32, blocks: &[Block]) -> Outcome {
    let meter = facts.meters.first().map_or("", |meter| &meter.name).to_owned();
    let meter = (meter.clone(), EnergySource::Modelled(meter));
    let plan = Plan::new(pairs, LikeLoad(facts.like), Some(until), None, meter);
    let stop = (1..=blocks.len()).find_map(|length| Some((length, plan.stops(&blocks[..length])?)));
    let (length, end) = stop.unwrap_or((blocks.len(), End::Stopped));
    plan.outcome(&blocks[..length], end)
}

/// The busy CPUs of a run's ungoverned blocks.
fn busy_of(outcome: &Outcome) -> Option<f64> {
    let busy = outcome.changes.iter().find(|change| change.figure == "busy_cpus")?;
    Some(busy.ungoverned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::prove::Treatment;

    const KEPT: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/runs/2026-11-28-prove-live/prove-live.jsonl");

    /// The kept runs in which both halves were treated the same.
    fn alike() -> Vec<(Facts, Vec<Block>)> {
        let text = fs::read_to_string(KEPT).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let runs = lines.filter(|line| line["kind"] == "live A/A" && line.get("blocks").is_some());
        let parts = |run: Value| {
            let blocks = serde_json::from_value(run["blocks"].clone()).unwrap();
            (Facts::deserialize(&run["document"]).unwrap(), blocks)
        };
        runs.map(parts).collect()
    }

    #[test]
    fn the_counts_of_the_page_are_those_of_the_kept_runs() {
        let runs = alike();
        let until = "1%@power".parse().unwrap();
        let ended: Vec<Outcome> =
            runs.iter().map(|(facts, blocks)| at_the_end(facts, until, 12, blocks)).collect();
        let whole: Vec<Outcome> = runs.into_iter().map(|(facts, _)| facts.outcome).collect();
        assert_eq!(whole.len(), 20);
        assert!(trial::found(&whole).values().all(|&found| found == 0));
        let found = trial::found(&ended);
        assert_eq!(found.len(), 7);
        for (figure, found) in found {
            assert_eq!(found, u32::from(figure.starts_with("joules_per_request")), "{figure}");
        }
    }

    #[test]
    fn five_per_cent_more_are_lost_in_the_scatter_of_the_kept_runs() {
        let judged = |(facts, mut blocks): (Facts, Vec<Block>)| {
            for block in blocks.iter_mut().filter(|block| block.treatment == Treatment::Governed) {
                *block.figures.get_mut("cpu_s_per_request").unwrap() *= 1.05;
            }
            let meter = (facts.meters[0].name.clone(), EnergySource::Modelled(String::new()));
            Plan::new(12, LikeLoad(facts.like), None, None, meter).outcome(&blocks, End::Whole)
        };
        let outcomes: Vec<Outcome> = alike().into_iter().map(judged).collect();
        assert_eq!(trial::found(&outcomes)["cpu_s_per_request"], 5);
    }
}
