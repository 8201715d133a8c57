//! `roost prove --kit`: the abilities of a machine that we have never seen, in one archive.
//!
//! ```text
//!   list.rs      the plan: measurements, changes, the archive; told before anything begins
//!   facts.rs     the doctor's facts, as numbers and names of kinds
//!   rest.rs      idle power by the deepest state allowed; speed and power by clock
//!   loads.rs     `roost serve`, `roost load` and `roost prove` as children, at a few loads
//! ```
//!
//! The archive is [`study::kit`]. It is written anew after each part, so that a run that is killed
//! leaves the parts that were done. Idle limits and clocks are journalled by `linux`, and governed
//! blocks are those of `roost prove`: both put back on every exit, and `roost restore` does it after
//! a SIGKILL. Children get SIGTERM when this process ends in any way.

mod facts;
mod list;
mod loads;
mod rest;

use super::meters::Meters;
use super::options::Args;
use crate::command_meter::CommandMeter;
use crate::exit::{Exit, coded, usage};
use crate::signals;
use ::daemon::running;
use anyhow::{Context as _, Result};
use linux::{Root, SafeFolder};
use machine::{CpuList, Duration};
use report::terminal;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use study::kit::{Archive, FORMAT, Part, PartState, State, Summary, Word};

/// Holders of locks are called so.
const HOLDER: &str = "roost prove --kit";

/// Eight blocks at one load need half of it.
const LENGTH_LEAST: Duration = Duration::from_secs(60);
const LENGTH_MOST: Duration = Duration::from_secs(86_400);

/// The goal of the kit's own service: that of the README's examples.
const GOAL: &str = "1ms@p99";

/// The whole run: its means, and its findings so far.
struct Run<'a> {
    args: &'a Args,
    root: Root,
    cpus: CpuList,
    length: Duration,
    commands: Vec<CommandMeter>,
    /// The meters by the names that this process has for them, in the archive's order.
    meters: Vec<String>,
    stop: Arc<AtomicBool>,
    place: PathBuf,
    archive: Archive,
}

/// How a part ended, and why something is missing.
type Ended = (State, Option<&'static str>);

pub fn run(args: &Args, length: Duration) -> Result<ExitCode> {
    if !(LENGTH_LEAST..=LENGTH_MOST).contains(&length) {
        return Err(usage(format!("--kit {length}: write 1m to 24h")));
    }
    let place = args.out.clone().ok_or_else(|| usage("--kit needs a file: --out server.tar.gz, say"))?;
    if place.is_dir() {
        return Err(usage(format!("--out {}: the archive is a file, not a folder", place.display())));
    }
    let mut governing = args.governing()?;
    // Of the kit's own service the port is not known yet.
    governing.service.port = Some(11211);
    let config = governing.configuration()?.config;
    if let Some(daemon) = running(&config.socket) {
        let why = format!("{daemon} runs, and ungoverned blocks need that it does not\nhint: stop it first");
        return Err(coded(Exit::Refused, why));
    }
    let root = Root::system();
    let cpus = linux::allowed_cpus()?;
    let mut commands = Vec::new();
    for command in &args.meter {
        let (meter, remark) = CommandMeter::open(command)?;
        remark.iter().for_each(|remark| eprintln!("{remark}"));
        commands.push(meter);
    }
    let every = Duration::from_secs(1);
    let names = Meters::open(&root, &cpus, commands.clone(), every).names().to_vec();
    let machine = facts::machine(&root, &facts::meters(&names, commands.len()));
    eprintln!("{}", list::text(&machine, length, &place));
    if !agreed()? {
        eprintln!("nothing was changed");
        return Ok(ExitCode::SUCCESS);
    }
    let started = crate::run_folder::started()?;
    let parts = Part::ALL.map(|part| PartState { part, state: State::NotBegun, why: None });
    let summary = Summary {
        format: FORMAT,
        version: Word::of(env!("CARGO_PKG_VERSION")),
        date: Word::of(started.split(' ').next().unwrap_or_default()),
        planned_s: length.as_nanos() / 1_000_000_000,
        took_s: 0.0,
        ended_early: false,
        parts: parts.to_vec(),
    };
    let archive = Archive {
        summary,
        machine,
        wakes: Vec::new(),
        idle: Vec::new(),
        clocks: Vec::new(),
        loads: Vec::new(),
    };
    // Before anything is held.
    let stop = signals::end_flag()?;
    let meters = names.into_iter().map(|meter| meter.name).collect();
    let mut run = Run { args, root, cpus, length, commands, meters, stop, place, archive };
    run.all()
}

/// On a terminal a person says so; a script has said it by running the command.
fn agreed() -> Result<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(true);
    }
    let mut answer = String::new();
    let mut stderr = io::stderr();
    stderr.write_all(b"Begin? [y/N] ").and_then(|()| stderr.flush()).context("the terminal")?;
    io::stdin().read_line(&mut answer).context("the terminal")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

impl Run<'_> {
    fn all(&mut self) -> Result<ExitCode> {
        let began = linux::now();
        self.ended(Part::Machine, (State::Done, None), 0.0)?;
        for part in &Part::ALL[1..] {
            if self.is_stopped() {
                break;
            }
            let number = Part::ALL.iter().position(|other| other == part).unwrap_or_default() + 1;
            eprintln!("part {number} of {}: {}", Part::ALL.len(), part.name());
            let ended = match part {
                Part::Machine => (State::Done, None),
                Part::WakeUps => self.wake_ups(),
                Part::IdlePower => self.idle_power(),
                Part::Clocks => self.clocks(),
                Part::Loads => self.loads()?,
            };
            let ended = if self.is_stopped() { (State::EndedEarly, None) } else { ended };
            if let Some(why) = ended.1 {
                eprintln!("  {}: {why}", if ended.0 == State::Gap { "GAP" } else { "remark" });
            }
            self.ended(*part, ended, linux::now().since(began).as_secs_f64())?;
        }
        // As any reader will see it.
        let mut bytes = Vec::new();
        self.archive.write(&mut bytes)?;
        let archive = Archive::read(&bytes).context("the archive that was written")?;
        println!("{}", terminal::page(&archive.page()));
        println!("archive: {}", self.place.display());
        println!("page: roost report {}", self.place.display());
        Ok(ExitCode::SUCCESS)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Notes how a part ended, and writes all that there is.
    fn ended(&mut self, part: Part, (state, why): Ended, took_s: f64) -> Result<()> {
        let summary = &mut self.archive.summary;
        if let Some(known) = summary.parts.iter_mut().find(|known| known.part == part) {
            known.state = state;
            known.why = why.map(Word::of);
        }
        summary.took_s = took_s;
        summary.ended_early = self.stop.load(Ordering::Relaxed);
        let written = SafeFolder::write(&self.place, 0o666, |file| self.archive.write(file));
        written
            .with_context(|| format!("cannot write {}; name another file with --out", self.place.display()))
    }

    /// So many hundredths of the run's time.
    fn part_of(&self, percent: u64) -> Duration {
        self.length * percent / 100
    }
}
