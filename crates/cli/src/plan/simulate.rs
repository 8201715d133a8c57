//! The simulations of a plan: the recorded run, then every policy at every load.

use super::Args;
use super::source::Source;
use crate::exit::usage;
use anyhow::Result;
use sim::plan::{Calibration, Candidate, Choice, Fidelity, Ranked, candidates, choose};
use sim::runner::{self, Task};
use sim::scenario::Contestant;
use sim::{Document, Outcome};
use study::progress::Progress;
use toml::Value;

pub struct Plan {
    pub recorded: Outcome,
    pub fidelity: Fidelity,
    pub ranked: Vec<Ranked>,
    /// Of each load but the first: the load and its candidates, in the same order.
    pub sensitivity: Vec<(f64, Vec<Ranked>)>,
    pub choice: Choice,
    /// The recorded tail is longer than the model's, and no prediction goes below it.
    pub holds_tails: bool,
}

pub fn plan(args: &Args, source: &Source) -> Result<Plan> {
    let recording = &source.recording;
    let recorded = requests(&source.recorded, args)?;
    let policies = recorded.scenario().map_err(usage)?.policies.first().cloned().unwrap_or_default();
    let task = Task { contestant: contestant("as recorded", &policies, &recorded), seed: 1 };
    let outcome = task.run().map_err(usage)?;
    let fidelity = Fidelity::of(recording, &outcome, f64::from(recording.cpus()));

    let scenario = source.document.scenario().map_err(usage)?;
    let platform = source.document.platform(&scenario).map_err(usage)?;
    let workers = scenario.server.workers.unwrap_or(platform.cpus() as u16);
    let port = recording.service.as_ref().and_then(|service| service.ports.first());
    let service = port.map_or("--port PORT".to_owned(), |port| format!("--port {port}"));
    let all = candidates(recording, workers, &service, source.goal);
    let document = requests(&source.document, args)?;
    let mut tasks = Vec::new();
    let loads: Vec<f64> = std::iter::once(1.0).chain(args.loads.iter().copied()).collect();
    for &load in &loads {
        for candidate in &all {
            tasks.push(Task { contestant: of(candidate, &document, load)?, seed: 1 });
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let progress = Progress::new(tasks.len(), args.json);
    let outcomes = runner::run_all(&tasks, threads, &Default::default(), |place, _| {
        progress.done(&tasks[place].contestant.name)
    });
    progress.end();
    let calibration = Calibration::of(recording, &outcome);
    let calibrated = |mut outcome: Outcome| {
        calibration.apply(&mut outcome);
        outcome
    };
    let outcomes: Vec<Outcome> =
        outcomes.into_iter().map(|outcome| Ok(calibrated(outcome.map_err(usage)?))).collect::<Result<_>>()?;
    let mut loads = loads.iter().zip(outcomes.chunks(all.len())).map(|(&load, outcomes)| {
        let pairs = all.iter().zip(outcomes);
        let ranked =
            pairs.map(|(candidate, outcome)| Ranked::new(candidate.clone(), outcome.clone(), source.goal));
        (load, ranked.collect::<Vec<_>>())
    });
    let ranked = loads.next().map(|(_, ranked)| ranked).unwrap_or_default();
    let sensitivity: Vec<(f64, Vec<Ranked>)> = loads.collect();
    let choice = choose(&ranked, source.goal);
    Ok(Plan {
        recorded: outcome,
        fidelity,
        ranked,
        sensitivity,
        choice,
        holds_tails: calibration.holds_tails(),
    })
}

fn contestant(name: &str, policies: &str, document: &Document) -> Contestant {
    Contestant { name: name.to_owned(), policies: policies.to_owned(), document: document.clone() }
}

fn requests(document: &Document, args: &Args) -> Result<Document> {
    let Some(requests) = args.requests else { return Ok(document.clone()) };
    document.with("run.requests", &Value::Integer(requests.max(1) as i64)).map_err(usage)
}

fn of(candidate: &Candidate, document: &Document, load: f64) -> Result<Contestant> {
    let mut document = scaled(document, load)?;
    for (key, value) in &candidate.set {
        document = document.with(key, value).map_err(usage)?;
    }
    if candidate.policies.contains("carb") || candidate.policies.contains("pegasus") {
        document = long_enough(&document)?;
    }
    Ok(contestant(&candidate.name, &candidate.policies, &document))
}

/// The rate of a schedule, or the number of clients that wait for replies, times `load`.
fn scaled(document: &Document, load: f64) -> Result<Document> {
    if load == 1.0 {
        return Ok(document.clone());
    }
    let scenario = document.scenario().map_err(usage)?;
    let (key, value) = if let Some(count) = scenario.server.clients.as_ref().and_then(|clients| clients.count)
    {
        let count = (f64::from(count) * load).round().max(1.0);
        ("server.clients.count", Value::Integer(count as i64))
    } else if let Some(rate) = scenario.workload.rate {
        ("workload.rate", Value::Float(rate.as_per_second() * load))
    } else if let Some(utilisation) = scenario.run.utilisation {
        ("run.utilisation", Value::Float(utilisation * load))
    } else {
        return Ok(document.clone());
    };
    document.with(key, &value).map_err(usage)
}

/// A controller decides once a second: half a minute of it, as far as that is no long wait.
fn long_enough(document: &Document) -> Result<Document> {
    const SECONDS: f64 = 30.0;
    const MOST: f64 = 3e6;
    let scenario = document.scenario().map_err(usage)?;
    let rate = scenario.workload.rate.map_or(0.0, |rate| rate.as_per_second());
    let requests = (scenario.run.requests as f64).max((rate * SECONDS).min(MOST));
    document.with("run.requests", &Value::Integer(requests as i64)).map_err(usage)
}
