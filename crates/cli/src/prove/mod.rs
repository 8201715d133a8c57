//! `roost prove`: the saving of governing on a live service, in blocks, with intervals.
//!
//! ```text
//!   options.rs         the arguments
//!   block.rs           one block: `roost govern` for so long, or the same in a dry run
//!   client.rs          the tail that clients see, from Prometheus
//!   meters.rs          RAPL, sensors, commands, the model; busy and awake CPUs
//!   tell.rs            lines while it runs, and the result as text
//!   page.rs            the run's folder and its page
//!   kit/               `--kit`: all that a machine can show, in one archive
//! ```
//!
//! The statistics are in [`study::prove`].

mod block;
mod client;
mod kit;
mod meters;
mod options;
mod page;
mod tell;

pub use options::Args;

use crate::command_meter::CommandMeter;
use crate::daemon::{Request, stand_back};
use crate::exit::{Exit, coded, usage};
use crate::govern::trace::ServiceTrace;
use crate::signals::EndSignals;
use ::daemon::{Prospect, running};
use anyhow::Result;
use block::{Order, Stop};
use client::ClientTail;
use machine::{Duration, Goal};
use meters::Meters;
use options::Instead;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use study::prove::outcome::Plan;
use study::prove::{Block, End, LikeLoad, Outcome, Treatment, Verdict, schedule};

/// The percentile of the tail of a service without a goal.
const QUANTILE: f64 = 0.99;

/// A run as it was asked for, for its page and its document.
pub struct Setup {
    pub service: String,
    pub goal: Option<Goal>,
    pub quantile: f64,
    pub blocks: u32,
    pub block: Duration,
    pub settling: Duration,
    pub like: f64,
    pub seed: u64,
    pub started: String,
    pub meters: Vec<meters::MeterName>,
    pub describes: Vec<String>,
    pub config: toml::Table,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(length) = args.kit {
        return kit::run(args, length);
    }
    let (pairs, settling) = (args.pairs()?, args.settling()?);
    let governing = args.governing()?;
    let config = governing.configuration()?.config;
    if config.record.is_some() {
        return Err(usage("a block records nothing\nhint: leave `record` out of the file"));
    }
    args.check_epochs(settling, config.epoch)?;
    let root = block::root_of(&governing);
    if let Some(daemon) = running(&config.socket) {
        return Err(coded(
            Exit::Refused,
            format!("{daemon} runs, and ungoverned blocks need that it does not\nhint: stop it first"),
        ));
    }
    if !governing.take_over {
        stand_back(&root, &config)?;
    }
    let service = config.services.first().ok_or_else(|| usage("name a service: --port 11211, say"))?;
    // A service that is not there is told before anything else begins.
    let prospect = Prospect::of(&root, service, config.clock_means())
        .map_err(|error| crate::daemon::refused(::daemon::StartError::from(error).into()))?;
    let stop = Stop::default();
    // Before anything is held.
    let told = stop.clone();
    EndSignals::watch()?.call(move || told.now())?;
    let mut commands = Vec::new();
    for command in &args.meter {
        let (meter, remark) = CommandMeter::open(command)?;
        remark.iter().for_each(|remark| eprintln!("{remark}"));
        commands.push(meter);
    }
    let mut client = None;
    if let Some(url) = &args.client_tail {
        let (tail, remark) = ClientTail::open(url, args.block - settling)?;
        remark.iter().for_each(|remark| eprintln!("{remark}"));
        client = Some(tail);
    }
    let started = crate::run_folder::started()?;
    let seed = args.seed.unwrap_or_else(|| linux::now().as_nanos() % 1_000_000);
    let trace = args.perfetto.as_ref().map(|path| ServiceTrace::create(path, linux::now()));
    let trace = trace.transpose().map_err(|error| usage(format!("{error:#}")))?;
    let trace = trace.map(|trace| Arc::new(Mutex::new(trace)));
    let mut folder = page::Folder::begin(args, &started)?;
    let every = (args.block / 50).clamp(Duration::from_millis(100), Duration::from_secs(1));
    let meters = Meters::open(&root, &linux::online_cpus(&root)?, commands, every);
    let goal = service.goal;
    let main = meters.names()[0].clone();
    let plan = Plan::new(pairs, LikeLoad(args.like), args.until, goal, (main.name, main.source));
    let setup = Setup {
        service: format!("{} ({})", service.name, prospect.service.name),
        goal,
        quantile: goal.map_or(QUANTILE, |goal| goal.quantile),
        blocks: args.blocks,
        block: args.block,
        settling,
        like: args.like,
        seed,
        started,
        meters: meters.names().to_vec(),
        describes: meters.describe().to_vec(),
        config: toml::Table::try_from(&config)?,
    };
    if let Some(folder) = &mut folder {
        folder.info(&setup)?;
    }
    let tariff = args.electricity.tariff();
    let year =
        |outcome: &Outcome| outcome.watts_saved.filter(|_| tariff.is_given()).map(|watts| tariff.year(watts));
    tell::begin(args, &setup);
    let began = linux::now();
    let mut blocks: Vec<Block> = Vec::new();
    let mut broken = None;
    let mut end = End::Whole;
    for (at, treatment) in (0_u32..).zip(schedule(pairs, seed)) {
        let order = Order {
            number: at + 1,
            pair: at / 2 + 1,
            treatment,
            length: args.block,
            settling,
            epoch: config.epoch,
            quantile: setup.quantile,
            goal,
            instead: args.instead,
            trace: trace.clone(),
        };
        let is_dry = treatment == Treatment::Ungoverned || args.instead != Instead::Govern;
        let request = Request {
            config: config.clone(),
            file: None,
            root: root.clone(),
            dry_run: is_dry,
            take_over: governing.take_over,
            names: &governing.names,
            length: Some(args.block),
            whole: Vec::new(),
        };
        match block::run(&order, request, (&meters, client.as_ref()), &stop, began) {
            // Nothing has been measured yet: an error like that of any command.
            Err(error) if blocks.is_empty() => return Err(error),
            Err(error) => {
                // Between two blocks another daemon may begin; else it is the service that has
                // gone.
                let error = match running(&config.socket) {
                    Some(_) => error,
                    None => anyhow::anyhow!("the service has ended, or cannot be governed now: {error:#}"),
                };
                end = End::Broken(format!("{error:#}"));
                broken = Some(error);
                break;
            }
            Ok(ran) => {
                if let Some(folder) = &mut folder {
                    folder.block(&ran.block);
                }
                blocks.push(ran.block);
                tell::block(args, &setup, &blocks[at as usize], plan.power_so_far(&blocks).as_ref());
                // A machine that was held up is silent for a while; a service that has gone is not found.
                let is_gone = ran.was_silent && Prospect::of(&root, service, config.clock_means()).is_err();
                let gone = || anyhow::anyhow!("the service has ended, or is not found any longer");
                if let Some(error) = ran.broken.or_else(|| is_gone.then(gone)) {
                    end = End::Broken(format!("{error:#}"));
                    broken = Some(error);
                    break;
                }
            }
        }
        if stop.has_come() {
            end = End::Stopped;
            break;
        }
        if let Some(stops) = plan.stops(&blocks) {
            end = stops;
            break;
        }
        if let Some(folder) = &folder
            && blocks.len().is_multiple_of(2)
        {
            let outcome = plan.outcome(&blocks, End::Stopped);
            folder.so_far(&setup, &blocks, &outcome, year(&outcome).as_ref());
        }
    }
    drop(meters);
    let outcome = plan.outcome(&blocks, end);
    if let Some(trace) = trace.and_then(Arc::into_inner) {
        let mut trace = trace.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        trace.say("blocks", linux::now(), &outcome.sentence, &[]);
        eprintln!("{}", trace.end());
    }
    let year = year(&outcome);
    let kept = folder.map(|folder| folder.end(&setup, &blocks, &outcome, year.as_ref())).transpose();
    if let Ok(Some(at)) = &kept {
        eprintln!("{at}");
    }
    // The verdict is told though nothing may be kept of it.
    tell::end(args, &setup, &outcome, year.as_ref())?;
    match (code(&outcome, broken, || tell::remedy(&setup, &blocks, &outcome)), kept) {
        (Ok(_), Err(lost)) => Err(lost),
        (Err(error), Err(lost)) => {
            eprintln!("{lost:#}");
            Err(error)
        }
        (code, Ok(_)) => code,
    }
}

/// The exit code: a goal that was missed, a service that went, a measurement that proves nothing.
fn code(
    outcome: &Outcome,
    broken: Option<anyhow::Error>,
    remedy: impl FnOnce() -> String,
) -> Result<ExitCode> {
    match (broken, outcome.verdict) {
        (Some(error), _) => Err(error.context(format!("the run ended after block {}", outcome.blocks))),
        (None, Verdict::Missed) => Ok(Exit::GoalMissed.into()),
        (None, Verdict::Unproven) if outcome.end != End::Stopped => Err(coded(Exit::Invalid, remedy())),
        _ => Ok(ExitCode::SUCCESS),
    }
}
