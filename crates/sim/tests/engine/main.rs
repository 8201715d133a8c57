//! The engine against closed forms, and the properties that hold in every run.
//!
//! The engine itself asserts Little's law and that no core's time is lost, at the end of every run,
//! so each run here tests those too.

mod active_idle;
mod clients;
mod combinations;
mod devices;
mod exact;
mod followers;
mod foreign;
mod invariants;
mod own;
mod pairs;
mod parameters;
mod policies;
mod power;
mod programs;
mod queues;
mod reference;
mod registry;
mod series;
mod shards;
mod siblings;
mod stealing;
mod stopping;
mod streams;
mod threads;
mod waking;

use sim::runner::{Task, run_all};
use sim::scenario::Estimates;
use sim::{Document, Outcome};

/// A scenario of ten cores and a shared queue at rho 0.8, with other keys appended or set.
pub(crate) fn document(set: &[(&str, toml::Value)]) -> Document {
    let text = "goal = \"300us@p99\"\n[machine]\npreset = \"xeon-silver-4116\"\nsockets = 1\ncores = 10\n\
                threads = 1\n[workload]\nservice = { exponential = \"10us\" }\n[run]\nutilisation = 0.8\n\
                requests = 60_000\nhorizon = \"steady\"\n";
    let document =
        Document::parse("test.toml".as_ref(), text, &Estimates::default()).expect("the text is a scenario");
    set.iter().fold(document, |document, (key, value)| document.with(key, value).expect("the key can be set"))
}

pub(crate) fn task(document: Document, policies: &str, seed: u64) -> Task {
    let contestant =
        sim::scenario::Contestant { name: policies.to_owned(), policies: policies.to_owned(), document };
    Task { contestant, seed }
}

pub(crate) fn run(set: &[(&str, toml::Value)], policies: &str, seed: u64) -> Outcome {
    task(document(set), policies, seed).run().unwrap_or_else(|error| panic!("{policies}: {error}"))
}

pub(crate) fn run_many(tasks: &[Task], threads: usize) -> Vec<Outcome> {
    let results = run_all(tasks, threads, &Default::default(), |_, _| {});
    results.into_iter().map(|result| result.unwrap_or_else(|error| panic!("{error}"))).collect()
}
