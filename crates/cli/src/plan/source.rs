//! The recording that a plan is made from, and its scenario.

use super::Args;
use crate::exit::{Exit, coded, usage};
use crate::observe::{self, record, record::RECORDING};
use crate::run_folder::{self, Place};
use ::observe::recording::{Input, read_service};
use anyhow::{Context as _, Result};
use machine::Goal;
use sim::Document;
use sim::plan::generator::Awake;
use sim::plan::{Recording, scenario_text};
use sim::scenario::Estimates;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

pub const SCENARIO: &str = "scenario.toml";

pub struct Source {
    pub folder: PathBuf,
    /// The folder was made for this plan, which then is within it.
    pub is_made: bool,
    pub recording: Recording,
    /// As recorded: the model's error is judged with it.
    pub recorded: Document,
    /// As a person may have changed it: the policies are compared with it.
    pub document: Document,
    pub scenario_path: PathBuf,
    pub goal: Option<Goal>,
    pub notes: Vec<String>,
}

impl Source {
    pub fn of(args: &Args) -> Result<Self> {
        let (folder, recording, is_made) = match (&args.recording, args.service.pid) {
            (Some(file), pid) if file.is_file() => convert(args, file, pid)?,
            (Some(folder), Some(_)) => {
                return Err(usage(format!(
                    "--pid names the service in a file of perf or trace-cmd, and {} is a folder or not there\n\
                     hint: leave --pid out",
                    folder.display()
                )));
            }
            (Some(folder), None) => (folder.clone(), read(folder)?, false),
            (None, _) => record(args)?,
        };
        let scenario_path = folder.join(SCENARIO);
        let refused =
            |why: &dyn std::fmt::Display| usage(format!("{}: {why}", folder.join(RECORDING).display()));
        let written = scenario_text(&recording, args.goal).map_err(|why| refused(&why))?;
        let parse = |text: &str| Document::parse(&scenario_path, text, &Estimates::default()).map_err(usage);
        let recorded = parse(&written)?;
        let mut notes = recording.gaps.clone();
        let mut document = recorded.clone();
        match std::fs::read_to_string(&scenario_path) {
            Ok(text) => {
                document = parse(&text)?;
                let is_changed = without_goal(&document) != without_goal(&recorded);
                if is_changed {
                    notes.push(format!(
                        "{} differs from the recording: policies are compared in it, and the model's error \
                         is that of the recorded run",
                        scenario_path.display()
                    ));
                }
                if let Some(goal) = args.goal {
                    let goal = toml::Value::String(goal.to_string());
                    document = document.with("goal", &goal).map_err(usage)?;
                }
            }
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
                run_folder::write(&folder, SCENARIO, |file| file.write_all(written.as_bytes()))
                    .with_context(|| {
                        let folder = folder.display();
                        format!(
                            "the plan's scenario belongs beside the recording; of a folder that is not \
                             yours make a copy: cp -r {folder} mine"
                        )
                    })?;
            }
            Err(cause) => return Err(usage(format!("{}: {cause}", scenario_path.display()))),
        }
        let goal = document.scenario().map_err(usage)?.goal;
        notes.extend(elsewhere(&recording));
        notes.extend(Awake::of(&recording).and_then(|awake| awake.warning()));
        Ok(Self { folder, is_made, recording, recorded, document, scenario_path, goal, notes })
    }
}

fn without_goal(document: &Document) -> toml::Table {
    let mut table = document.table().clone();
    table.remove("goal");
    table
}

/// A day, second by second, takes a hundredth of it.
const LENGTH_MAX: u64 = 64 << 20;

fn read(folder: &Path) -> Result<Recording> {
    let path = folder.join(RECORDING);
    let mut text = String::new();
    let file = std::fs::File::open(&path);
    // A byte more tells a longer file, and a device without an end is none that is read for ever.
    file.and_then(|file| file.take(LENGTH_MAX + 1).read_to_string(&mut text)).map_err(|cause| {
        usage(format!(
            "{}: {cause}\nhint: `roost observe --port PORT --out DIR` makes a recording",
            path.display()
        ))
    })?;
    if text.len() as u64 > LENGTH_MAX {
        return Err(usage(format!(
            "{}: a recording is no longer than {} MiB",
            path.display(),
            LENGTH_MAX >> 20
        )));
    }
    Recording::read(&text).map_err(|why| usage(format!("{}: {why}", path.display())))
}

/// A recording made elsewhere, and the folder that it is kept in.
fn convert(args: &Args, file: &Path, pid: Option<u32>) -> Result<(PathBuf, Recording, bool)> {
    let pid = pid.ok_or_else(|| {
        usage(format!(
            "{}: a recording of the whole machine: name its service with --pid\n\
             hint: a folder of `roost observe` needs no name",
            file.display()
        ))
    })?;
    let now = linux::threads_of_process(pid).unwrap_or_default();
    let found = read_service(Input::File(file), pid, &now).map_err(usage)?;
    let recording = record::elsewhere(found, pid);
    let place = Place::of(args.out.as_deref(), &format!("plan-{}", stamp()?), RECORDING)?.make()?;
    // A scenario of an earlier recording is not of this one.
    run_folder::clear(&place, &[RECORDING, SCENARIO])?;
    let json = serde_json::to_string_pretty(&recording)?;
    let recording = Recording::read(&json)
        .map_err(|why| usage(format!("{}: {why}\n{}", file.display(), recording.gaps.join("\n"))))?;
    run_folder::write(&place, RECORDING, |file| writeln!(file, "{json}"))?;
    Ok((place, recording, true))
}

fn record(args: &Args) -> Result<(PathBuf, Recording, bool)> {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => Path::new("runs").join(format!("plan-{}", stamp()?)),
    };
    let observation = observe::Args::for_plan(args, &out);
    if !args.json {
        eprintln!("roost plan: recording for {}", observation.length());
    }
    let (recording, report) = observe::record_for_plan(&observation)?;
    let folder = report.parent().context("the report's folder")?.to_owned();
    let written = serde_json::to_string(&recording)?;
    let recording = Recording::read(&written)
        .map_err(|why| coded(Exit::Invalid, format!("the recording is of no use: {why}")))?;
    Ok((folder, recording, true))
}

fn stamp() -> Result<String> {
    Ok(run_folder::started()?.replace(" UTC", "").replace([' ', ':'], "-"))
}

/// How the recorded machine differs from this one: the plan holds for the recorded one.
fn elsewhere(recording: &Recording) -> Vec<String> {
    let here = crate::machine_facts::this_machine();
    let recorded = &recording.machine;
    let mut differences = Vec::new();
    let mut differ = |what: &str, there: &Option<String>, here: &Option<String>| {
        if let (Some(there), Some(here)) = (there, here)
            && there != here
        {
            differences.push(format!("{what} {there}, here {here}"));
        }
    };
    differ("kernel", &recorded.kernel, &here.kernel);
    differ("processor", &recorded.processor, &here.cpu_model);
    let cpus = Some(recording.cpus().to_string());
    differ("CPUs", &cpus, &here.cpus.map(|cpus| cpus.to_string()));
    let names = |states: Vec<&str>| (!states.is_empty()).then(|| states.join(" "));
    let there = names(recorded.states.iter().map(|state| state.name.as_str()).collect());
    let own =
        here.idle_states.iter().map(|state| state.rsplit_once(" (").map_or(&state[..], |(name, _)| name));
    differ("idle states", &there, &names(own.collect()));
    if differences.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "recorded on another machine or kernel ({}): the plan is for that one, and so is its line",
        differences.join("; ")
    )]
}
