//! The method on a memcached of this machine: `roost prove` itself, with blocks that govern
//! nothing, and with blocks that burn 5 % more CPU time.
//!
//! The burnt time is 5 % of the machine's busy time in the ungoverned blocks of a run before.

use super::{Args, Counted, Keep, Kind};
use crate::contestant::{Stable, Who};
use anyhow::{Context as _, Result, bail};
use linux::EndsWithParent as _;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

#[derive(Serialize)]
struct Ran<'a> {
    kind: &'a str,
    run: u32,
    document: &'a Value,
}

/// Of twenty runs three may err, and fifteen have to find the work that was added.
const ERRORS_MOST: f64 = 3.0 / 20.0;
const FOUND_LEAST: f64 = 15.0 / 20.0;

pub(super) fn run(args: &Args, keep: &mut Keep<'_>) -> Result<Vec<Counted>> {
    let folder = tempfile::tempdir().context("a folder for the server's log")?;
    let roost = crate::product::roost()?;
    let stable = Stable {
        peer: args.peer.clone(),
        ours: roost.clone(),
        cpus: linux::allowed_cpus()?,
        memory_mib: 64,
        folder: folder.path().to_owned(),
    };
    let server = stable.start(Who::Peer)?;
    let target = server.target().to_string();
    let port = target.rsplit(':').next().context("a port")?.to_owned();
    let mut load = Command::new(&roost);
    load.args(["load", &target, "--rate", &args.rate.as_per_second().to_string(), "--for", "24h"]);
    let mut load = load.stdout(Stdio::null()).stderr(Stdio::null()).ends_with_parent().spawn()?;
    let socket = folder.path().join("prove.sock");
    let prove = |instead: &str, until: Option<&str>, seed: u32| -> Result<Value> {
        let mut command = Command::new(&roost);
        command.args(["prove", "--json", "--port", &port, "--instead", instead]);
        command.args(["--blocks", &args.blocks.to_string(), "--block", &args.block.to_string()]);
        command.args(["--seed", &seed.to_string()]);
        command.args(until.into_iter().flat_map(|until| ["--until", until]));
        command.args(["--", "--socket"]).arg(&socket);
        let output = command.ends_with_parent().output().context("roost prove")?;
        if output.stdout.is_empty() {
            bail!("roost prove: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let result = runs(args, keep, prove);
    let _ = load.kill();
    let _ = load.wait();
    result
}

fn runs(
    args: &Args,
    keep: &mut Keep<'_>,
    prove: impl Fn(&str, Option<&str>, u32) -> Result<Value>,
) -> Result<Vec<Counted>> {
    let mut counted = Vec::new();
    let mut busy = None;
    for chosen in &args.kinds {
        let (kind, is_added, until) = match chosen {
            Kind::Same => ("live A/A", false, None),
            Kind::Until => ("live A/A, --until 1%@power", false, Some("1%@power")),
            Kind::Added => ("live +5 % CPU time", true, None),
        };
        if is_added && busy.is_none() {
            busy = busy_of(&prove("nothing", None, 0)?);
        }
        let burn = format!("burn={:.4}", (0.05 * busy.unwrap_or_default()).min(1.0));
        let mut found: BTreeMap<String, u32> = BTreeMap::new();
        for run in 1..=args.runs {
            let document = prove(if is_added { &burn } else { "nothing" }, until, run)?;
            keep(serde_json::to_value(Ran { kind, run, document: &document })?)?;
            if !is_added {
                busy = busy_of(&document);
            }
            for change in document["changes"].as_array().into_iter().flatten() {
                let name = change["figure"].as_str().unwrap_or_default();
                let is_found = change["low"].as_f64() > Some(0.0)
                    || change["high"].as_f64().is_some_and(|high| high < 0.0);
                *found.entry(name.to_owned()).or_default() += u32::from(is_found);
            }
            eprintln!("{kind}: run {run} of {}: {}", args.runs, document["sentence"]);
        }
        let most = (ERRORS_MOST * f64::from(args.runs)).floor() as u32;
        let least = (FOUND_LEAST * f64::from(args.runs)).ceil() as u32;
        for (figure, found) in found {
            let bar = match is_added {
                false => Some((0, most)),
                true => (figure == "cpu_s_per_request").then_some((least, args.runs)),
            };
            counted.push(Counted::of(kind, &figure, found, args.runs, bar));
        }
    }
    Ok(counted)
}

/// The busy CPUs of a run's ungoverned blocks.
fn busy_of(document: &Value) -> Option<f64> {
    let changes = document["changes"].as_array()?;
    changes.iter().find(|change| change["figure"] == "busy_cpus")?["ungoverned"].as_f64()
}
