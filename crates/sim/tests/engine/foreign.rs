//! A policy of another crate: the parser takes its registry, and the engine calls it by its kind.

use super::{document, task};
use machine::Instant;
use policy::frequency::PointIndex;
use policy::kind::{Decision, FrequencyPolicy, Make, Policy, Request, Watch};
use policy::registry::{Entry, Question, Registry, Word};
use sim::engine::{Dispatch, Engine};
use sim::outcome::Outcome;
use sim::policies::{Policies, REGISTRIES};
use std::collections::BTreeMap;

/// The slowest P-state for even cores, the fastest for odd ones, decided at each request.
struct ByParity {
    slowest: PointIndex,
    fastest: PointIndex,
}

impl Policy for ByParity {
    fn poll_decision(&mut self) -> Option<Decision> {
        None
    }
}

impl FrequencyPolicy for ByParity {
    fn watches(&self) -> Watch {
        Watch::Work
    }

    fn handle_start(&mut self, _: Instant, cpu: usize, _: &Request, _: PointIndex) -> Option<PointIndex> {
        Some(if cpu.is_multiple_of(2) { self.slowest } else { self.fastest })
    }
}

static ENTRY: Entry = Entry {
    words: &[Word::bare("by-parity", "slow even cores, fast odd ones")],
    question: Question::Frequency,
    make: Make::Frequency(|making| {
        let points = making.points();
        Box::new(ByParity { slowest: points.slowest(), fastest: points.fastest() })
    }),
    ..Entry::PLAIN
};

static POLICIES: &Registry = &[&ENTRY];

fn core_watts(line: &str) -> f64 {
    let (mut setup, jobs) =
        document(&[("run.utilisation", toml::Value::Float(0.3))]).setup("menu", 1).expect("a scenario");
    let mut registries = REGISTRIES.to_vec();
    registries.push(POLICIES);
    let (params, dispatch) = (BTreeMap::new(), Dispatch::Shared);
    setup.policies = Policies::parse(
        &registries,
        line,
        &params,
        setup.goal,
        &setup.platform,
        setup.tick,
        (dispatch, false),
    )
    .expect("a line of policies");
    Outcome::new(line, &Engine::new(setup, jobs).run()).power.cores_watts
}

#[test]
fn a_policy_of_another_crate_runs_as_one_of_ours() {
    let (slow, mixed, fast) = (core_watts("powersave"), core_watts("by-parity"), core_watts("menu"));
    assert!(slow < mixed && mixed < fast, "{slow} {mixed} {fast}");
}

#[test]
fn without_its_registry_its_word_is_not_known() {
    let error = task(document(&[]), "by-parity", 1).run().unwrap_err().to_string();
    assert!(error.contains("no policy is called `by-parity`"), "{error}");
}
