//! The best of the simulated candidates.
//!
//! The best is the one of least power among those that this machine can carry out and whose tail,
//! with its whole interval, stays within the goal. Without a goal nothing is the best: the
//! choice between power and tail is a person's. If none keeps the goal, the one of the lowest tail is told.

use super::candidates::Candidate;
use crate::outcome::{Estimate, Outcome, Verdict};
use crate::statistics::Quantity;
use machine::Goal;

#[derive(Clone, Debug)]
pub struct Ranked {
    pub candidate: Candidate,
    pub outcome: Outcome,
    /// `None` without a goal, or where the run says nothing of it.
    pub keeps_goal: Option<bool>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    Best(usize),
    /// None keeps the goal: place of the one that comes nearest, and its tail in nanoseconds.
    NoneKeeps {
        nearest: Option<(usize, f64)>,
    },
    NoGoal,
}

impl Ranked {
    pub fn new(candidate: Candidate, outcome: Outcome, goal: Option<Goal>) -> Self {
        let keeps_goal = goal.and_then(|goal| {
            if outcome.verdict == Verdict::Unstable {
                return Some(false);
            }
            let tail = tail(&outcome, goal)?;
            let high = tail.value + tail.half_width.unwrap_or(0.0);
            Some(high <= goal.latency.as_nanos() as f64)
        });
        Self { candidate, outcome, keeps_goal }
    }
}

/// The response time that a goal bounds.
pub fn tail(outcome: &Outcome, goal: Goal) -> Option<Estimate> {
    outcome.responses.at(Quantity::of(goal)?)
}

/// A saving of a smaller share of the power is no reason to change a service that keeps its goal; the
/// model's own error is greater.
pub const WORTH_A_CHANGE: f64 = 0.005;

/// The best of `all` that this machine can carry out. The first is the service as it is.
pub fn choose(all: &[Ranked], goal: Option<Goal>) -> Choice {
    let Some(goal) = goal else { return Choice::NoGoal };
    let able = || all.iter().enumerate().filter(|(_, ranked)| ranked.candidate.unable.is_none());
    let keeping = able().filter(|(_, ranked)| ranked.keeps_goal == Some(true));
    let watts = |ranked: &Ranked| ranked.outcome.power.server_watts;
    // Of equal ones the first, which changes least.
    let best = keeping.clone().min_by(|(_, one), (_, other)| watts(one).total_cmp(&watts(other)));
    if let Some((place, best)) = best {
        let first = keeping.clone().find(|(place, _)| *place == 0);
        let is_enough = first.is_some_and(|(_, now)| watts(now) * (1.0 - WORTH_A_CHANGE) <= watts(best));
        return Choice::Best(if is_enough { 0 } else { place });
    }
    let tails = able().filter_map(|(place, ranked)| Some((place, tail(&ranked.outcome, goal)?.value)));
    Choice::NoneKeeps { nearest: tails.min_by(|(_, one), (_, other)| one.total_cmp(other)) }
}

#[cfg(test)]
mod tests {
    use super::super::recording::tests::sample;
    use super::super::{candidates, scenario_text};
    use super::*;
    use crate::runner::{Task, run_all};
    use crate::scenario::{Contestant, Document, Estimates};
    use std::path::Path;

    fn ranked(goal: &str) -> (Vec<Ranked>, Goal) {
        let goal: Goal = goal.parse().unwrap();
        let text = scenario_text(&sample(), Some(goal)).unwrap();
        let document = Document::parse(Path::new("s.toml"), &text, &Estimates::default()).unwrap();
        let document = document.with("run.requests", &toml::Value::Integer(20_000)).unwrap();
        let all = candidates(&sample(), 2, "--port 11211", Some(goal));
        let task = |candidate: &Candidate| {
            let set = candidate.set.iter();
            let document =
                set.fold(document.clone(), |document, (key, value)| document.with(key, value).unwrap());
            let (name, policies) = (candidate.name.clone(), candidate.policies.clone());
            Task { contestant: Contestant { name, policies, document }, seed: 1 }
        };
        let tasks: Vec<Task> = all.iter().map(task).collect();
        let outcomes = run_all(&tasks, 2, &Default::default(), |_, _| ());
        let all = all
            .into_iter()
            .zip(outcomes)
            .map(|(candidate, outcome)| Ranked::new(candidate, outcome.unwrap(), Some(goal)));
        (all.collect(), goal)
    }

    #[test]
    fn the_best_keeps_the_goal_takes_least_power_and_can_be_carried_out() {
        let (all, goal) = ranked("2ms@p99");
        let Choice::Best(best) = choose(&all, Some(goal)) else { panic!("some keep 2 ms") };
        let best = &all[best];
        assert!(best.candidate.unable.is_none() && best.keeps_goal == Some(true));
        for other in all.iter().filter(|other| other.keeps_goal == Some(true)) {
            let is_better = other.outcome.power.server_watts >= best.outcome.power.server_watts;
            assert!(other.candidate.unable.is_some() || is_better, "{}", other.candidate.name);
        }
        assert!(!best.candidate.name.contains("polling"), "polling saves nothing");
    }

    #[test]
    fn a_saving_of_less_than_half_a_percent_is_no_reason_for_a_change() {
        let (mut all, goal) = ranked("2ms@p99");
        let able = |ranked: &Ranked| ranked.candidate.unable.is_none() && ranked.keeps_goal == Some(true);
        assert!(able(&all[0]), "the service as it is keeps 2 ms");
        let other = all.iter().rposition(able).unwrap();
        assert_ne!(other, 0);
        all.iter_mut().for_each(|ranked| ranked.outcome.power.server_watts = 100.0);
        for (watts, best) in [(99.6, 0), (99.4, other)] {
            all[other].outcome.power.server_watts = watts;
            assert_eq!(choose(&all, Some(goal)), Choice::Best(best), "{watts} W");
        }
    }

    #[test]
    fn a_goal_below_the_work_itself_is_kept_by_none_and_the_nearest_is_told() {
        let (all, goal) = ranked("5us@p99");
        let Choice::NoneKeeps { nearest: Some((place, tail)) } = choose(&all, Some(goal)) else {
            panic!("the work alone takes 8 us")
        };
        assert!(tail > 5_000.0);
        assert!(all[place].candidate.name.contains("polling"), "{}", all[place].candidate.name);
        assert_eq!(choose(&all, None), Choice::NoGoal);
    }
}
