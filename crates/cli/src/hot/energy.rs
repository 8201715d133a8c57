//! The clock at which light requests take the least energy: measured where there are clocks to set
//! and a meter to read, else modelled.

use super::Args;
use super::results::Found;
use crate::exit::{Exit, coded, usage};
use ::observe::hot::{ClockMeasured, clocks, measure};
use ::observe::requests::RequestWatch;
use anyhow::{Context as _, Result};
use linux::{EnergyMeter, FrequencyControl, FrequencyError, FrequencyOptions, Root, service};
use machine::{Duration, EnergySource, Kilohertz, Platform, PowerModel, Ratio};
use policy::hot::{ClockCost, LeastEnergy, Work, even_share, least_energy};
use serde::Serialize;
use std::sync::atomic::Ordering;

/// How long is measured at each clock.
const AT_EACH_CLOCK: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Serialize)]
pub struct Energy {
    /// Where every figure of it is from.
    pub source: EnergySource,
    /// The measurement; empty where it is modelled.
    pub measured: Vec<ClockMeasured>,
    /// The model; empty where it is measured.
    pub modelled: Vec<Modelled>,
    pub best: Option<Kilohertz>,
    /// Its sources, in sentences.
    pub notes: Vec<String>,
}

/// One clock, for a core that shares its socket's uncore and for one that has it to itself.
#[derive(Clone, Debug, Serialize)]
pub struct Modelled {
    /// Charged an even share of the socket's uncore, as where all its cores work.
    pub shared: ClockCost,
    /// Charged all of it, as where one client asks again when it was answered.
    pub alone: ClockCost,
}

/// Measures if it can, and models otherwise.
pub fn of(args: &Args, found: &Found) -> Result<Energy> {
    let root = Root::system();
    let cpus = linux::online_cpus(&root).context("reading which CPUs there are")?;
    if args.machine.is_none() {
        let meter = EnergyMeter::open(&root, &cpus, linux::now());
        if meter.is_measured() {
            match FrequencyControl::open(&root, &cpus, FrequencyOptions::new("roost hot")) {
                Ok(control) => return measured(args, &root, control, meter),
                Err(error @ FrequencyError::Unsupported { .. }) => {
                    return modelled(args, &root, found, &error.to_string());
                }
                Err(error) => return Err(coded(Exit::Refused, format!("--energy: {error}"))),
            }
        }
        let why = meter.describe().first().cloned().unwrap_or_default();
        return modelled(args, &root, found, &why);
    }
    modelled(args, &root, found, "a machine was named")
}

fn measured(
    args: &Args,
    root: &Root,
    mut control: FrequencyControl,
    mut meter: EnergyMeter,
) -> Result<Energy> {
    let ended = crate::signals::end_flag()?;
    let mut service = service::of_process(root, args.pid).map_err(usage)?;
    if let Some(port) = args.port {
        service.ports = [port].into();
    }
    let (watch, _) = RequestWatch::open(root, &service, linux::now());
    let mut watch = watch.map_err(|error| coded(Exit::Unsupported, format!("--energy: {error}")))?;
    let requests = || {
        watch.read(linux::now());
        watch.total().requests
    };
    let wait = |length: Duration| {
        let over = linux::now() + length;
        while !ended.load(Ordering::Relaxed) && linux::now() < over {
            std::thread::sleep(LOOK.min(over.since(linux::now())).into());
        }
        !ended.load(Ordering::Relaxed)
    };
    let all = clocks(&control);
    eprintln!("roost hot: measuring {} clocks, {} each", all.len(), AT_EACH_CLOCK);
    let found = measure(&mut control, &mut meter, &all, AT_EACH_CLOCK, requests, wait);
    drop(control);
    if ended.load(Ordering::Relaxed) {
        return Err(coded(Exit::Failed, "--energy: stopped; the clocks are as they were"));
    }
    let known = found.iter().filter_map(|clock| Some((clock.frequency, clock.joules?)));
    let best = known.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(frequency, _)| frequency);
    let notes = vec![
        "measured under the load that was there: all requests, light and heavy; all that the \
         meter sees is charged to them"
            .to_owned(),
    ];
    Ok(Energy { source: meter.source(), measured: found, modelled: Vec::new(), best, notes })
}

fn modelled(args: &Args, root: &Root, found: &Found, why: &str) -> Result<Energy> {
    let (name, platform) = match &args.machine {
        Some(name) => {
            let platform = Platform::by_name(name).ok_or_else(|| {
                let known: Vec<String> =
                    Platform::presets().into_iter().map(|platform| platform.name).collect();
                usage(format!("--machine {name}: no such machine; there are {}", known.join(", ")))
            })?;
            (platform.name.clone(), platform)
        }
        None => {
            let name = PowerModel::for_processor(&linux::processor(root)).name;
            let own = name.split(',').next().unwrap_or(&name);
            let platform = Platform::by_name(own).with_context(|| format!("no machine {own}"))?;
            (name, platform)
        }
    };
    let missing = || {
        coded(
            Exit::Failed,
            "--energy: without a hot function whose calls were timed there is no time to model \
             with\nhint: send more load, or say the calls of a request by --shards",
        )
    };
    let row = found.rows.first().filter(|_| found.is_found()).ok_or_else(missing)?;
    let (light, calls) = (row.light.ok_or_else(missing)?, row.calls_per_request.ok_or_else(missing)?);
    let work = |uncore_share: Ratio| Work {
        time: light.scale(calls),
        measured_at: Kilohertz(0),
        waiting: Ratio::ZERO,
        per_second: found.requests_per_s.unwrap_or(0.0),
        uncore_share,
    };
    let share = even_share(&platform);
    let (shared, alone) = (least_energy(&platform, &work(share)), least_energy(&platform, &work(Ratio::ONE)));
    let at_best = |found: &LeastEnergy| found.best.map(|at| found.clocks[at].frequency);
    let (best, best_alone) = (at_best(&shared), at_best(&alone));
    let modelled = shared
        .clocks
        .into_iter()
        .zip(alone.clocks)
        .map(|(shared, alone)| Modelled { shared, alone })
        .collect();
    let mut notes = vec![
        format!("modelled, not measured: {why}"),
        format!(
            "a light request is {} in {} at the present clock, which is taken for the nominal one \
             of {name}; its time is the function's, waiting included",
            light.scale(calls),
            row.function
        ),
        "time is taken to grow as the clock falls, as it does in the simulator for work that does \
         not wait for memory"
            .to_owned(),
        format!(
            "charged is what would not be there without the request: the core above its deepest \
             sleep, and {share} of its socket's uncore above the package's deepest sleep (an even \
             share of {} cores)",
            platform.cores_per_socket
        ),
    ];
    if let Some(alone) = best_alone.filter(|alone| Some(*alone) != best) {
        notes.push(format!(
            "where one core alone keeps its socket awake it is charged the whole uncore, and \
             least is at {alone}"
        ));
    }
    Ok(Energy { source: EnergySource::Modelled(name), measured: Vec::new(), modelled, best, notes })
}

const LOOK: Duration = Duration::from_millis(50);
