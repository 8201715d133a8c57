//! Blocks at one load, and their comparison: the statistics are those of [`crate::prove`].

use super::{Machine, Meter, Word};
use crate::prove::outcome::Plan;
use crate::prove::{Block, End, Figure, LikeLoad, Outcome, Treatment};
use machine::EnergySource;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `load-N.json`: the blocks at one load, and how they were planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Of the highest rate that the generator got.
    pub share: f64,
    pub offered_per_s: f64,
    pub goal: Word,
    pub planned_blocks: u32,
    pub block_s: f64,
    pub settling_s: f64,
    pub like: f64,
    pub end: LoadEnd,
    pub blocks: Vec<LoadBlock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadEnd {
    Whole,
    Missed,
    Stopped,
    Broken,
}

impl From<&End> for LoadEnd {
    fn from(end: &End) -> Self {
        match end {
            End::Whole | End::Narrow => Self::Whole,
            End::Missed => Self::Missed,
            End::Stopped => Self::Stopped,
            End::Broken(_) => Self::Broken,
        }
    }
}

/// A block, with the names of meters replaced by those of the archive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadBlock {
    pub number: u32,
    pub pair: u32,
    pub treatment: Treatment,
    pub began_s: f64,
    pub measured_s: f64,
    pub rate_per_s: Option<f64>,
    pub tail_ns: Option<f64>,
    /// By meter, in the machine's order.
    pub watts: Vec<Option<f64>>,
    pub busy_cpus: Option<f64>,
    pub awake_cpus: Option<f64>,
    pub cores: Option<f64>,
    pub missed_goal: Option<bool>,
    /// True if the block does not count.
    pub is_void: bool,
}

impl Load {
    /// The comparison, made anew of the blocks. `None` where the machine has no meter at all.
    pub fn outcome(&self, machine: &Machine) -> Option<Outcome> {
        let meter = machine.meters.first()?;
        let source = match meter.kind.is_measured() {
            true => EnergySource::Measured(meter.name.to_string()),
            false => EnergySource::Modelled(meter.name.to_string()),
        };
        let goal = self.goal.as_str().parse().ok();
        let name = (meter.name.to_string(), source);
        let plan = Plan::new(self.planned_blocks / 2, LikeLoad(self.like), None, goal, name);
        let blocks: Vec<Block> = self.blocks.iter().map(|block| block.whole(&machine.meters)).collect();
        let end = match self.end {
            LoadEnd::Whole => End::Whole,
            LoadEnd::Missed => End::Missed,
            LoadEnd::Stopped => End::Stopped,
            LoadEnd::Broken => End::Broken("it broke off".to_owned()),
        };
        Some(plan.outcome(&blocks, end))
    }
}

impl LoadBlock {
    /// Of a block of `roost prove`: its figures by the names of its own meters, in this order.
    pub fn of(block: &Block, meters: &[String]) -> Self {
        let of = |figure: Figure| block.figures.get(&figure.to_string()).copied();
        Self {
            number: block.number,
            pair: block.pair,
            treatment: block.treatment,
            began_s: block.began_s,
            measured_s: block.measured_s,
            rate_per_s: block.rate_per_s,
            tail_ns: of(Figure::Tail),
            watts: meters.iter().map(|meter| of(Figure::Watts(meter.clone()))).collect(),
            busy_cpus: of(Figure::BusyCpus),
            awake_cpus: of(Figure::AwakeCpus),
            cores: of(Figure::Cores),
            missed_goal: block.missed_goal,
            is_void: block.void.is_some(),
        }
    }

    fn whole(&self, meters: &[Meter]) -> Block {
        let rate = self.rate_per_s.filter(|rate| *rate > 0.0);
        let mut figures: Vec<(Figure, Option<f64>)> = vec![
            (Figure::Tail, self.tail_ns),
            (Figure::BusyCpus, self.busy_cpus),
            (Figure::CpuPerRequest, self.busy_cpus.zip(rate).map(|(busy, rate)| busy / rate)),
            (Figure::AwakeCpus, self.awake_cpus),
            (Figure::Cores, self.cores),
        ];
        for (meter, watts) in meters.iter().zip(&self.watts) {
            let name = meter.name.to_string();
            figures.push((Figure::Watts(name.clone()), *watts));
            let joules = watts.zip(rate).map(|(watts, rate)| watts / rate);
            figures.push((Figure::JoulesPerRequest(name), joules));
        }
        let figures = figures.into_iter().filter_map(|(figure, value)| Some((figure.to_string(), value?)));
        Block {
            number: self.number,
            pair: self.pair,
            treatment: self.treatment,
            began_s: self.began_s,
            measured_s: self.measured_s,
            rate_per_s: self.rate_per_s,
            figures: figures.collect(),
            missing: BTreeMap::new(),
            missed_goal: self.missed_goal,
            void: self.is_void.then(|| "it does not count".to_owned()),
        }
    }
}
