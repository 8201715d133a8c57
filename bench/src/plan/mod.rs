//! `roost-bench plan`: the predictions of `roost plan` beside runs of what they predict.
//!
//! A service is recorded once at each load, on all cores with halts allowed. From that one recording
//! come the predictions of the other settings: one core less than two, polling idle, half and one
//! and a half times the load. They are written down before any of those runs begins
//! (`predictions.json`; `--predict` ends there, `--predicted FILE` takes them up). Then each setting
//! runs in each round, in random order, and [`judge`] compares.
//!
//! A run on a machine that is slower than at the recording, or partly away ([`host`]), is made again, four
//! times at most; one that still is on another machine is kept and does not count.
//!
//! Times are the service's own, seen by `roost observe` in both; so are busy CPUs and wake-ups. The
//! generator is `roost load` on the same CPUs, and part of recording and model; it sleeps until each
//! request is due, as clients do that do not spin. Wake-up times are those of `roost doctor --probe`.

mod host;
mod judge;
mod services;

use crate::contestant::Ends;
use crate::exit::{Exit, usage};
use crate::harness::{Measured, Output, Run, SEED};
use crate::table::Table;
use anyhow::{Context as _, Result, bail};
use judge::{Cell, METRICS, Truth, bars};
use linux::EndsWithParent as _;
use machine::Duration;
use serde::{Deserialize, Serialize};
use services::{Running, Service};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use workload::Random;

/// Compare the predictions of `roost plan` with real runs
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench plan --memcached ./memcached --out benches/runs/2026-11-26-intel-xeon-2cpu
  roost-bench plan --services memcached --predict --out p      predictions only
  roost-bench plan --services memcached --predicted p/predictions.json --out p
  roost-bench plan --services memcached --rounds 2 --for 3s --settle 1s --loads 0.4")]
pub struct Args {
    /// Services: memcached, nginx, elasticsearch; one that is missing is left out with a word
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "memcached,nginx")]
    services: Vec<Service>,
    /// The memcached, 1.6.45 for the published table
    #[arg(long, value_name = "FILE", default_value = "memcached")]
    memcached: PathBuf,
    /// The nginx program to start and measure
    #[arg(long, value_name = "FILE", default_value = "nginx")]
    nginx: PathBuf,
    /// A search engine that runs: the address of its searches, see experiments/plan/elasticsearch
    #[arg(long, value_name = "URL", requires_all = ["body", "words"])]
    search: Option<String>,
    /// The body of a search, with {words} in it
    #[arg(long, value_name = "JSON", requires = "search")]
    body: Option<String>,
    /// A file of the words to search for, one to a line
    #[arg(long, value_name = "FILE", requires = "search")]
    words: Option<PathBuf>,
    /// Loads, as shares of the measured capacity
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', default_value = "0.15,0.4,0.65")]
    loads: Vec<f64>,
    /// Runs of each setting; their median is the truth
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long a recording, and a run, is watched
    #[arg(long = "for", value_name = "TIME", default_value = "20s")]
    length: Duration,
    /// How long a load is on before it is watched
    #[arg(long, value_name = "TIME", default_value = "3s")]
    settle: Duration,
    /// End after the predictions, before anything is measured
    #[arg(long, conflicts_with = "predicted")]
    predict: bool,
    /// Take the predictions of an earlier --predict
    #[arg(long, value_name = "FILE")]
    predicted: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// A setting that is predicted and run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Setting {
    OneCore,
    Polling,
    HalfLoad,
    MoreLoad,
}

impl Setting {
    const ALL: [Self; 4] = [Self::OneCore, Self::Polling, Self::HalfLoad, Self::MoreLoad];

    fn name(self) -> &'static str {
        match self {
            Self::OneCore => "one core",
            Self::Polling => "polling",
            Self::HalfLoad => "0.5 x load",
            Self::MoreLoad => "1.5 x load",
        }
    }

    fn load(self) -> f64 {
        match self {
            Self::HalfLoad => 0.5,
            Self::MoreLoad => 1.5,
            _ => 1.0,
        }
    }

    /// Arguments of `roost govern` that set it.
    fn governing(self, cores: usize) -> Option<Vec<String>> {
        let fixed = |cores: usize, more: &[&str]| {
            let words = ["--policy", "fixed", "--cores"].map(str::to_owned).into_iter();
            words.chain([cores.to_string()]).chain(more.iter().map(|&word| word.to_owned())).collect()
        };
        match self {
            Self::OneCore => Some(fixed(1, &[])),
            Self::Polling => Some(fixed(cores, &["--idle", "0us"])),
            _ => None,
        }
    }

    /// The name of the plan's candidate.
    fn candidate(self, cores: usize) -> String {
        match self {
            Self::OneCore => "1 core, idle as now".to_owned(),
            Self::Polling => format!("{cores} cores, polling idle"),
            _ => format!("{cores} cores, idle as now"),
        }
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Case {
    service: String,
    share: f64,
    rate: f64,
    /// The pace of the machine just after its recording, in seconds; see [`host::pace`].
    pace_s: f64,
    /// By setting, in the order of [`METRICS`].
    predicted: BTreeMap<String, [Option<f64>; 4]>,
    /// Whether the plan trusts its own model, in its words.
    fidelity: Vec<String>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let cores = linux::allowed_cpus().map_err(usage)?.0.len();
    if cores < 2 {
        return Err(usage("bench plan needs two CPUs: with one there is no other core count"));
    }
    let mut run = Run::begin("plan", &args.output, SEED)?;
    let mut found = Vec::new();
    for &service in &args.services {
        match service.program(args) {
            Some(program) => found.push((service, program)),
            None => run.remark(format!("{service}: it is not here, so it is left out")),
        }
    }
    if found.is_empty() {
        return Err(usage("no service is here: name one with --memcached, --nginx or --search"));
    }
    let folder = std::path::absolute(run.folder())?;
    let cases = match &args.predicted {
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .map_err(|cause| usage(format!("--predicted {}: {cause}", file.display())))?;
            serde_json::from_str(&text).with_context(|| format!("--predicted {}", file.display()))?
        }
        None => predictions(args, &found, &folder)?,
    };
    if args.predict {
        crate::table::print(&format!("predictions: {}\n", folder.join(PREDICTIONS).display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut cells = Vec::new();
    let mut random = Random::new(SEED, 1);
    for case in &cases {
        let Some((service, program)) = found.iter().find(|(service, _)| service.to_string() == case.service)
        else {
            continue;
        };
        cells.extend(measured(args, &mut run, case, *service, program, cores, &mut random)?);
    }
    conclude(run, &cells, &cases)
}

/// Of a run on a machine that is another than at the recording.
const TRIES: u32 = 4;

const PREDICTIONS: &str = "predictions.json";

/// One recording for each load of each service, and the plan made of it.
fn predictions(args: &Args, found: &[(Service, PathBuf)], folder: &Path) -> Result<Vec<Case>> {
    let cores = linux::allowed_cpus().map_err(usage)?.0.len();
    let mut cases = Vec::new();
    crate::run_folder::create(folder)?;
    let probed = folder.join("wake.json");
    eprintln!("wake-up times of the idle states: for 10 s");
    let probe = Command::new(crate::product::roost()?).args(["doctor", "--json", "--probe"]).output()?;
    if !probe.status.success() {
        bail!("roost doctor --probe: {}", probe.status);
    }
    std::fs::write(&probed, &probe.stdout)?;
    for (service, program) in found {
        let server = service.start(args, program)?;
        let capacity = server.capacity(args.length)?;
        eprintln!("{service}: {capacity:.0} requests/s at most");
        for &share in &args.loads {
            let rate = capacity * share;
            let place = folder.join(format!("plan-{service}-{share}"));
            watched(args, &server, rate, None, Some(&probed), &place)?;
            let pace_s = host::pace(&linux::allowed_cpus().map_err(usage)?)?;
            cases.push(Case { pace_s, ..planned(*service, share, rate, cores, &place)? });
        }
    }
    let text = serde_json::to_string_pretty(&cases)?;
    crate::run_folder::write(folder, PREDICTIONS, |file| std::io::Write::write_all(file, text.as_bytes()))?;
    Ok(cases)
}

fn planned(service: Service, share: f64, rate: f64, cores: usize, place: &Path) -> Result<Case> {
    let output = Command::new(crate::product::roost()?)
        .args(["plan", "--json", "--loads", "0.5,1.5"])
        .arg(place)
        .stderr(Stdio::inherit())
        .output()?;
    // Six: the plan does not trust its model, and its predictions are judged all the same.
    if !matches!(output.status.code(), Some(0 | 6)) {
        bail!("roost plan {}: {}", place.display(), output.status);
    }
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).context("the plan's document")?;
    let rows = |load: f64| {
        let other = plan["sensitivity"].as_array().into_iter().flatten();
        let other = other.filter(|entry| entry["load"].as_f64() == Some(load));
        let rows = if load == 1.0 {
            Some(&plan["candidates"])
        } else {
            other.map(|entry| &entry["candidates"]).next()
        };
        rows.and_then(serde_json::Value::as_array).cloned().unwrap_or_default()
    };
    let of = |setting: Setting| -> [Option<f64>; 4] {
        let name = setting.candidate(cores);
        let rows = rows(setting.load());
        let Some(row) = rows.iter().find(|row| row["name"].as_str() == Some(&name)) else { return [None; 4] };
        let micros = |key: &str| row[key]["value"].as_f64().map(|nanos| nanos / 1e3);
        [micros("p50_ns"), micros("p99_ns"), row["busy_cpus"].as_f64(), row["wakes_per_s"].as_f64()]
    };
    let reasons = plan["fidelity"]["reasons"].as_array().into_iter().flatten();
    Ok(Case {
        service: service.to_string(),
        share,
        rate,
        pace_s: 0.0,
        predicted: Setting::ALL.iter().map(|&setting| (setting.to_string(), of(setting))).collect(),
        fidelity: reasons.filter_map(|reason| Some(reason.as_str()?.to_owned())).collect(),
    })
}

/// A load, a governor where one is needed, and an observation of both into `place`.
fn watched(
    args: &Args,
    server: &Running,
    rate: f64,
    governing: Option<Vec<String>>,
    wake_latency: Option<&Path>,
    place: &Path,
) -> Result<[Option<f64>; 4]> {
    let port = server.port.to_string();
    let roost = crate::product::roost()?;
    let _load = Ends(server.load(rate, args.settle + args.length + Duration::from_secs(5))?);
    let mut governor = governing
        .map(|words| {
            let mut governor = Command::new(&roost);
            governor.args(["govern", "--port", &port]).args(words).arg("--json").ends_with_parent();
            governor.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Ends)
        })
        .transpose()?;
    std::thread::sleep(args.settle.into());
    let length = format!("{}ms", args.length.as_millis());
    let mut observe = Command::new(&roost);
    observe.arg("observe");
    if let Some(file) = wake_latency {
        observe.arg("--wake-latency").arg(file);
    }
    let status = observe
        .args(["--json", "--port", &port, "--for", &length, "--out"])
        .arg(place)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if !status.success() {
        bail!("roost observe of {}: {status}", server.service);
    }
    // A governor that was refused governs nothing, and the run would be of another setting.
    if let Some(Ends(governor)) = &mut governor
        && let Some(status) = governor.try_wait()?
    {
        bail!("roost govern of {} ended before the run: {status}", server.service);
    }
    let path = place.join("recording.json");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let seen: serde_json::Value = serde_json::from_str(&text)?;
    let value = |part: &str, key: &str| seen[part][key]["value"].as_f64();
    Ok([
        value("responses", "p50_us"),
        value("responses", "p99_us"),
        value("sleeps", "busy_cpus"),
        value("sleeps", "wakes_per_s"),
    ])
}

/// Runs all settings of a case, round by round.
fn measured(
    args: &Args,
    run: &mut Run,
    case: &Case,
    service: Service,
    program: &Path,
    cores: usize,
    random: &mut Random,
) -> Result<Vec<Cell>> {
    let server = service.start(args, program)?;
    let folder = tempfile::tempdir().context("a folder for observations")?;
    let cpus = linux::allowed_cpus().map_err(usage)?;
    let mut values: BTreeMap<Setting, Vec<[Option<f64>; 4]>> = BTreeMap::new();
    let name = format!("{} at {:.0} %", case.service, case.share * 100.0);
    run.rounds(&name, args.rounds, &Setting::ALL, |&setting, round| {
        let place = folder.path().join(format!("{round}-{}", setting as u8));
        let once =
            || watched(args, &server, case.rate * setting.load(), setting.governing(cores), None, &place);
        let mut tries = 1;
        let (found, other) = loop {
            let (found, other) = host::watched(&cpus, case.pace_s, once)?;
            let Some(why) = &other else { break (found, other) };
            eprintln!("{name}, {setting}: {why}");
            if tries == TRIES {
                break (found, other);
            }
            tries += 1;
            let _ = std::fs::remove_dir_all(&place);
        };
        if other.is_none() {
            values.entry(setting).or_default().push(found);
        }
        let known = METRICS.into_iter().zip(found);
        Ok(Measured::of(known.filter_map(|(metric, value)| Some((metric, value?)))).valid(other.is_none()))
    })?;
    let cell = |setting: Setting| {
        let runs = values.get(&setting).map_or(&[][..], Vec::as_slice);
        let mut truth = [None; 4];
        for (metric, truth) in truth.iter_mut().enumerate() {
            let all: Vec<f64> = runs.iter().filter_map(|found| found[metric]).collect();
            *truth = Truth::of(&all, random);
        }
        let predicted = case.predicted.get(setting.name()).copied().unwrap_or_default();
        Cell { name: format!("{name}, {setting}"), predicted, truth }
    };
    Ok(Setting::ALL.into_iter().map(cell).collect())
}

/// The table, the bars, and the exit code of the worst of them.
fn conclude(mut run: Run, cells: &[Cell], cases: &[Case]) -> Result<ExitCode> {
    let mut head = vec![String::new()];
    head.extend(METRICS.iter().flat_map(|metric| [format!("{metric} told"), "true, 95 %".to_owned()]));
    let mut table = Table::new(1, head);
    for cell in cells {
        let mark = if cell.is_decided() { "" } else { " (undecided)" };
        let mut row = vec![format!("{}{mark}", cell.name)];
        for metric in 0..METRICS.len() {
            row.push(cell.predicted[metric].map_or("-".to_owned(), |told| format!("{told:.2}")));
            row.push(cell.truth[metric].map_or("-".to_owned(), |truth| {
                format!("{:.2} [{:.2}, {:.2}]", truth.median, truth.low, truth.high)
            }));
        }
        table.row(row);
    }
    let bars = bars(cells);
    for case in cases {
        let at = format!("{} at {:.0} %", case.service, case.share * 100.0);
        case.fidelity.iter().for_each(|reason| run.remark(format!("{at}: {reason}")));
    }
    for bar in &bars {
        let found = bar.found.map_or("-".to_owned(), |found| format!("{:.1} %", found * 100.0));
        let met = match bar.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not decided",
        };
        run.remark(format!("{}: {found}, bar {:.0} %: {met}", bar.what, bar.most * 100.0));
    }
    run.remark(table.text());
    run.remark(serde_json::to_string(&serde_json::json!({ "cells": cells, "bars": bars }))?);
    run.end(&[])?;
    Ok(if bars.iter().any(|bar| bar.is_met().is_none()) {
        Exit::Invalid.into()
    } else if bars.iter().any(|bar| bar.is_met() == Some(false)) {
        Exit::GoalMissed.into()
    } else {
        ExitCode::SUCCESS
    })
}
