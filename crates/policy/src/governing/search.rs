//! The search for the number of cores, and the epochs that it sees.

use super::Cores;
use crate::carb::{Controller, Epoch, GoalSearch};
use machine::{CpuId, Goal, Ratio, Reading};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Search {
    Constant(u16),
    Slope(Box<Controller>),
    Goal(Box<GoalSearch>),
    /// The last order of a policy from outside, and its goal.
    Ordered(u16, Option<Goal>),
}

pub(super) fn search(cores: Cores, count: u16) -> Search {
    match cores {
        Cores::All => Search::Constant(count),
        Cores::Fixed(wanted) => Search::Constant(wanted.clamp(1, count)),
        Cores::Slope(params) => Search::Slope(Box::new(Controller::new(params, count))),
        Cores::Goal(goal, params) => Search::Goal(Box::new(GoalSearch::new(params, goal, count))),
        Cores::Ordered(goal) => Search::Ordered(count, goal),
    }
}

pub(super) fn epoch_of(reading: &Reading, active: &BTreeSet<CpuId>, search: &Search) -> Epoch {
    let service = &reading.service;
    let busy: Vec<f64> = (reading.cpus.iter())
        .filter(|cpu| active.contains(&cpu.cpu))
        .filter_map(|cpu| Some(cpu.busy?.as_f64()))
        .collect();
    let busy = (!busy.is_empty()).then(|| Ratio::new(busy.iter().sum::<f64>() / busy.len() as f64));
    let tail = match search {
        Search::Goal(_) => service.tail,
        // The paper evaluates the 95th percentile.
        Search::Slope(_) | Search::Constant(_) | Search::Ordered(..) => service.p95.or(service.p99),
    };
    Epoch { rate: service.rate, tail, mean: service.mean, busy }
}
