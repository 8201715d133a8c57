//! Roost's own policy in the papers' figures: no part of their results, run beside it.
//!
//! The question is whether the power of a paper's own policy can be had for less at the same tail.
//! So `joint` is given, as its goal, the tail that the paper's policy had in the same run; it wins
//! there when its power is lower and its tail no higher, with intervals that do not touch in power.
//! It wins a figure when it wins each of its runs.

use super::board::{Board, Place};
use super::library::Study;
use super::metrics::Metric;
use super::runs::Runs;
use anyhow::Result;
use report::exit::usage;
use serde::{Deserialize, Serialize};
use sim::Document;
use sim::outcome::Estimate;
use study::grid::{self, Planned};
use study::options;
use toml::Value;

/// Where it is tried, as `papers/headlines.toml` has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contest {
    pub paper: String,
    pub figure: String,
    /// The paper's own policy: a line of policies.
    pub own: String,
    pub ours: String,
    /// Which percentile counts.
    pub tail: String,
    pub power: String,
    /// The last of the figure's background work is that of the paper's agent, which does not run
    /// for ours.
    #[serde(default)]
    pub without_agent: bool,
}

/// One run of the paper's policy, and ours beside it.
#[derive(Clone, Debug)]
pub struct Round {
    /// The paper's place on the board.
    pub place: usize,
    /// Ours, if the paper's run has a tail.
    pub ours: Option<Planned>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Bout {
    pub run: String,
    /// Watts of the paper's policy, ours.
    pub power: [Estimate; 2],
    /// Tails in nanoseconds.
    pub tail: [Estimate; 2],
    /// Lower power with disjoint intervals at no higher tail.
    pub is_won: bool,
}

impl Contest {
    /// It is held in this figure.
    pub fn is_of(&self, study: &Study) -> bool {
        self.paper == study.paper.name && self.figure == study.figure.name
    }

    fn tail(&self) -> Result<Metric> {
        self.tail.parse().map_err(usage)
    }

    fn power(&self) -> Result<Metric> {
        self.power.parse().map_err(usage)
    }

    /// The rounds of a figure whose own runs have been made.
    pub fn rounds(&self, board: &Board, runs: &Runs) -> Result<Vec<Round>> {
        let places = board.places.iter().enumerate().filter(|(_, place)| place.policies == self.own);
        places.map(|(index, place)| Ok(Round { place: index, ours: self.round(place, runs)? })).collect()
    }

    fn round(&self, place: &Place, runs: &Runs) -> Result<Option<Planned>> {
        let tail = runs.of(&place.planned).and_then(|outcome| self.tail().ok()?.of(outcome));
        let Some(tail) = tail else { return Ok(None) };
        let contestant = &place.planned.run.task.contestant;
        let goal = format!("{}ns@{}", (tail.value * AIM).round(), self.tail);
        let mut document = contestant.document.with("goal", &Value::String(goal)).map_err(usage)?;
        if self.without_agent {
            document = without_agent(&document)?;
        }
        let mut contestant = contestant.clone();
        contestant.policies = self.ours.clone();
        contestant.name = format!("{} (ours)", place.contestant);
        contestant.document = document;
        let run = options::task(contestant)?;
        let mut key = place.planned.key.clone();
        key.scenario = grid::scenario_digest(&run)?;
        key.contestant = run.task.contestant.name.clone();
        Ok(Some(Planned { key, run }))
    }

    /// The outcome of them; rounds in which either side has no figures are lost.
    pub fn bouts(&self, board: &Board, rounds: &[Round], runs: &Runs) -> Result<Vec<Bout>> {
        let (tail, power) = (self.tail()?, self.power()?);
        let nothing = Estimate { value: f64::NAN, half_width: None };
        let bout = |round: &Round| {
            let place = &board.places[round.place];
            let sides =
                [Some(&place.planned), round.ours.as_ref()].map(|side| side.and_then(|side| runs.of(side)));
            let of =
                |metric: &Metric| sides.map(|side| side.and_then(|run| metric.of(run)).unwrap_or(nothing));
            let (power, tail) = (of(&power), of(&tail));
            let is_won = below(power[1], power[0]) && tail[1].value <= tail[0].value;
            Bout { run: place.name(), power, tail, is_won }
        };
        Ok(rounds.iter().map(bout).collect())
    }
}

/// Whose goal is a tail keeps it by a hair or misses it by one, and chance decides which. So ours's
/// is a fiftieth lower: more than the tails of these runs are uncertain by, and to ours's
/// disadvantage.
const AIM: f64 = 0.98;

/// A scenario without the last of its background work.
fn without_agent(document: &Document) -> Result<Document> {
    let noise = document.table().get("server").and_then(|server| server.get("noise"));
    let mut noise = noise.and_then(Value::as_array).cloned().unwrap_or_default();
    noise.pop();
    document.with("server.noise", &Value::Array(noise)).map_err(usage)
}

/// Below, and the intervals do not touch.
fn below(a: Estimate, b: Estimate) -> bool {
    matches!((a.interval(), b.interval()), (Some(a), Some(b)) if a.high() < b.low())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(value: f64, half_width: f64) -> Estimate {
        Estimate { value, half_width: Some(half_width) }
    }

    #[test]
    fn lower_is_lower_when_the_intervals_do_not_touch() {
        assert!(below(estimate(9.0, 0.4), estimate(10.0, 0.5)));
        assert!(!below(estimate(9.0, 0.5), estimate(10.0, 0.5)));
        assert!(!below(estimate(11.0, 0.1), estimate(10.0, 0.1)));
        assert!(!below(Estimate { value: 1.0, half_width: None }, estimate(10.0, 0.1)));
        assert!(!below(estimate(f64::NAN, f64::NAN), estimate(10.0, 0.1)));
    }
}
