//! Trials of the whole method on simulated servers: its errors and its finds.
//!
//! **A block** is a run of the simulator: two cores under menu, 2,000 requests/s at 10 % load, for
//! five simulated seconds. **The noise between blocks** is that of a live service: load and service
//! time drift. Both are multiplied by the exponential of a process with
//! memory (AR(1), half of which is forgotten after seven blocks); its deviation is 5 % of the load
//! and 2 % of the service time. These numbers describe the trial and are no claim about any machine.
//!
//! **Without a treatment** the governed blocks are like the others, and every difference that is
//! found is an error. **With one** each governed request takes so much more CPU time.
//!
//! The pairs, the rule of like load, the intervals and the rule of stopping are those of a live
//! run: [`Plan`].

use super::outcome::Plan;
use super::{Block, End, Figure, LikeLoad, Outcome, Treatment, Until, schedule};
use machine::EnergySource;
use sim::ScenarioError;
use sim::runner::Task;
use sim::scenario::{Document, Estimates};
use std::collections::BTreeMap;
use std::path::Path;
use workload::Random;

/// A trial: a run of the method on one simulated server.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    pub pairs: u32,
    /// Requests of a block; five seconds have 10,000.
    pub requests: u32,
    /// The share of CPU time that a governed request takes more.
    pub added: f64,
    pub until: Option<Until>,
    pub seed: u64,
}

const METER: &str = "simulated";

/// The load's deviation between blocks, that of the service time, and the share of a deviation that
/// the next block keeps.
const LOAD: f64 = 0.05;
const SERVICE: f64 = 0.02;
const KEPT: f64 = 0.9;

impl Trial {
    /// Runs it as `roost prove` runs a live one: block by block until the plan says stop.
    pub fn run(&self, plan: &Plan) -> Result<Outcome, ScenarioError> {
        let mut random = Random::new(self.seed, 1);
        let mut drift = [random.normal(), random.normal()];
        let mut blocks = Vec::new();
        let mut end = End::Whole;
        for (at, treatment) in (0_u32..).zip(schedule(self.pairs, self.seed)) {
            drift = drift.map(|value| KEPT * value + (1.0 - KEPT * KEPT).sqrt() * random.normal());
            blocks.push(self.block(at, treatment, drift)?);
            if let Some(stops) = plan.stops(&blocks) {
                end = stops;
                break;
            }
        }
        Ok(plan.outcome(&blocks, end))
    }

    /// The plan of such trials: made once, since the looks' table takes a moment.
    pub fn plan(&self) -> Plan {
        let meter = (METER.to_owned(), EnergySource::Modelled(METER.to_owned()));
        Plan::new(self.pairs, LikeLoad(0.1), self.until, None, meter)
    }

    fn block(&self, at: u32, treatment: Treatment, drift: [f64; 2]) -> Result<Block, ScenarioError> {
        let added = if treatment == Treatment::Governed { 1.0 + self.added } else { 1.0 };
        let rate = 2_000.0 * (LOAD * drift[0]).exp();
        let service_us = 100.0 * (SERVICE * drift[1]).exp() * added;
        let text = format!(
            "title = \"a block\"\npolicies = [\"menu\"]\n[machine]\npreset = \"xeon-silver-4116\"\n\
             sockets = 1\ncores = 2\n[workload]\nrate = {rate:.3}\n\
             service = {{ distribution = \"lognormal\", mean = \"{service_us:.4}us\", cv = 1.0 }}\n\
             [run]\nrequests = {}\n",
            self.requests
        );
        let document = Document::parse(Path::new("a block"), &text, &Estimates::default())?;
        let contestant = document.contestants()?.swap_remove(0);
        // Each block its own arrivals: other seeds of other trials are far away.
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(at));
        let ran = Task { contestant, seed }.run()?;
        let busy = ran.working * 2.0;
        let mut figures = BTreeMap::new();
        let mut put = |figure: Figure, value: f64| figures.insert(figure.to_string(), value);
        put(Figure::Watts(METER.to_owned()), ran.power.cores_watts);
        put(Figure::JoulesPerRequest(METER.to_owned()), ran.power.cores_watts / ran.rate);
        put(Figure::BusyCpus, busy);
        put(Figure::CpuPerRequest, busy / ran.rate);
        put(Figure::AwakeCpus, ran.awake);
        if let Some(tail) = ran.responses.p99_ns {
            put(Figure::Tail, tail.value);
        }
        Ok(Block {
            number: at + 1,
            pair: at / 2 + 1,
            treatment,
            began_s: f64::from(at) * ran.length_s,
            measured_s: ran.length_s,
            rate_per_s: Some(ran.rate),
            figures,
            missing: BTreeMap::new(),
            missed_goal: None,
            void: None,
        })
    }
}

/// How many of the outcomes found a difference, figure by figure.
pub fn found(outcomes: &[Outcome]) -> BTreeMap<String, u32> {
    let mut found: BTreeMap<String, u32> = BTreeMap::new();
    for change in outcomes.iter().flat_map(|outcome| &outcome.changes) {
        *found.entry(change.figure.clone()).or_default() += u32::from(change.is_found());
    }
    found
}

/// So many trials with seeds from 1 on, on this many threads.
pub fn run_all(trial: Trial, count: u32, threads: usize) -> Result<Vec<Outcome>, ScenarioError> {
    let plan = trial.plan();
    let share = |thread: u32| {
        let seeds = (1..=count).filter(move |seed| seed % threads.max(1) as u32 == thread);
        let run = |seed| Trial { seed: u64::from(seed), ..trial }.run(&plan);
        seeds.map(run).collect::<Result<Vec<Outcome>, ScenarioError>>()
    };
    std::thread::scope(|scope| {
        let share = &share;
        let threads: Vec<_> =
            (0..threads.max(1) as u32).map(|thread| scope.spawn(move || share(thread))).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIAL: Trial = Trial { pairs: 12, requests: 500, added: 0.0, until: None, seed: 0 };

    /// 200 trials err in 10, give or take three deviations of 3.1; `roost-bench prove` has a
    /// thousand of whole length.
    fn errs_as_often_as_it_says(until: Option<&str>, least: u32) {
        let trial = Trial { until: until.map(|text| text.parse().unwrap()), ..TRIAL };
        let outcomes = run_all(trial, 200, 2).unwrap();
        let found = found(&outcomes);
        assert_eq!(found.len(), 6, "{found:?}");
        for (figure, errors) in &found {
            assert!((least..=19).contains(errors), "{figure}: {errors} of 200; {found:?}");
        }
        let pairs: u32 = outcomes.iter().map(|outcome| outcome.pairs + outcome.pairs_unlike).sum();
        assert_eq!(until.is_some(), pairs < 200 * 12, "--until ends runs early, and nothing else does");
    }

    #[test]
    fn the_same_treatment_twice_is_found_to_differ_in_five_of_a_hundred_runs() {
        errs_as_often_as_it_says(None, 1);
    }

    #[test]
    fn a_run_that_stops_itself_errs_no_more_often() {
        errs_as_often_as_it_says(Some("4%@power"), 0);
    }

    #[test]
    fn five_per_cent_of_cpu_time_more_are_found() {
        // Ten thousand requests a block, as five seconds have.
        let trial = Trial { requests: 10_000, added: 0.05, ..TRIAL };
        let found = found(&run_all(trial, 10, 2).unwrap());
        assert!(found["cpu_s_per_request"] >= 8, "{found:?}");
    }
}
