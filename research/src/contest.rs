//! Roost's own policy in the papers' figures: no part of their results, run beside it.
//!
//! The question is whether the power of a paper's own policy can be had for less at the same tail.
//! So `joint` is given, as its goal, the tail that the paper's policy had in the same run. Both meet
//! the same arrivals, services and noise, so they are judged in pairs: ours wins a run when the 95 %
//! interval of the difference in power lies below zero and the tail is no higher. It wins a figure
//! when it wins each of its runs.

use super::board::{Board, Place};
use super::library::Study;
use super::metrics::Metric;
use super::runs::Runs;
use anyhow::{Context, Result};
use report::exit::usage;
use serde::{Deserialize, Serialize};
use sim::outcome::Estimate;
use sim::runner::Task;
use sim::scenario::Contestant;
use sim::statistics::Difference;
use sim::{Document, Outcome};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use study::figures::Unit;
use study::grid::{self, Planned};
use study::{options, paired};
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
    /// How ours serves, in the keys of a scenario, as `roost serve` can: active workers that halt where the
    /// paper's poll, idle ones that steal.
    #[serde(default)]
    pub ours_set: BTreeMap<String, Value>,
    /// Both runs have so many times the figure's requests, where those are too few for an interval.
    #[serde(default = "once")]
    pub longer: NonZeroU32,
    /// Other keys that both have, such as `run.horizon`, where a run drifts and has no interval either.
    #[serde(default)]
    pub both_set: BTreeMap<String, Value>,
}

/// One run of the paper's policy, and ours beside it.
#[derive(Clone, Debug)]
pub struct Round {
    /// The paper's place on the board.
    pub place: usize,
    /// The paper's policy there, as the contest has it.
    pub theirs: Planned,
    /// Ours, once the paper's run has a tail.
    pub ours: Option<Planned>,
}

fn once() -> NonZeroU32 {
    NonZeroU32::MIN
}

#[derive(Clone, Debug, Serialize)]
pub struct Bout {
    pub run: String,
    /// Watts of the paper's policy, ours.
    pub power: [Estimate; 2],
    /// Watts that no policy can go below with ours's goal; absent for another metric than power.
    pub floor: Option<f64>,
    /// Tails in nanoseconds.
    pub tail: [Estimate; 2],
    /// Our power less the paper's, in pairs; `None` where the two runs have none.
    pub power_difference: Option<Difference>,
    /// Our tail less the paper's, in the same way.
    pub tail_difference: Option<Difference>,
    /// Lower power beyond doubt, at no higher tail.
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

    /// The rounds of a figure, without ours.
    pub fn rounds(&self, board: &Board) -> Result<Vec<Round>> {
        let places = board.places.iter().enumerate().filter(|(_, place)| place.policies == self.own);
        let round = |(index, place): (usize, &Place)| {
            let as_drawn = self.longer == once() && self.both_set.is_empty();
            let theirs = if as_drawn { place.planned.clone() } else { self.theirs(place)? };
            // A wrong key is found before the first run.
            self.ours(place, &theirs, ANY_TAIL_NS)?;
            Ok(Round { place: index, theirs, ours: None })
        };
        let rounds: Result<Vec<Round>> = places.map(round).collect();
        rounds.with_context(|| format!("the contest of {}/{} in headlines.toml", self.paper, self.figure))
    }

    /// The paper's run of a contest that is not as the figure.
    fn theirs(&self, place: &Place) -> Result<Planned> {
        let mut contestant = place.planned.run.task.contestant.clone();
        let requests = contestant.document.scenario().map_err(usage)?.run.requests;
        let requests = Value::Integer(requests.saturating_mul(self.longer.get().into()) as i64);
        let document = contestant.document.with("run.requests", &requests).map_err(usage)?;
        contestant.document = with_all(document, &self.both_set)?;
        contestant.name = format!("{} (contest)", place.contestant);
        beside(place, contestant)
    }

    /// Sets ours of each round whose other run has been made: its tail is ours's goal.
    pub fn challenge(&self, board: &Board, rounds: &mut [Round], runs: &Runs) -> Result<()> {
        for round in rounds {
            let tail = runs.of(&round.theirs).and_then(|outcome| self.tail().ok()?.of(outcome));
            let ours = |tail: Estimate| self.ours(&board.places[round.place], &round.theirs, tail.value);
            round.ours = tail.map(ours).transpose()?;
        }
        Ok(())
    }

    fn ours(&self, place: &Place, theirs: &Planned, tail_ns: f64) -> Result<Planned> {
        let mut contestant = theirs.run.task.contestant.clone();
        let goal = format!("{}ns@{}", (tail_ns * AIM).round(), self.tail);
        let mut document = contestant.document.with("goal", &Value::String(goal)).map_err(usage)?;
        if self.without_agent {
            document = without_agent(&document)?;
        }
        contestant.policies = self.ours.clone();
        contestant.name = format!("{} (ours)", place.contestant);
        contestant.document = with_all(document, &self.ours_set)?;
        beside(place, contestant)
    }

    /// What else differs from the figure, in sentences; empty if nothing does.
    pub fn differences(&self) -> String {
        let keys = |set: &BTreeMap<String, Value>| {
            set.iter().map(|(key, value)| format!("`{key} = {value}`")).collect::<Vec<_>>().join(" and ")
        };
        let mut sentences = String::new();
        if !self.ours_set.is_empty() {
            sentences += &format!(" Ours serves with {}.", keys(&self.ours_set));
        }
        if !self.both_set.is_empty() {
            sentences += &format!(" Both have {}.", keys(&self.both_set));
        }
        if self.longer != once() {
            sentences += &format!(" Both have {} times the figure's requests.", self.longer);
        }
        sentences
    }

    /// The outcome of them; rounds in which either side has no figures are lost.
    pub fn bouts(&self, board: &Board, rounds: &[Round], runs: &Runs) -> Result<Vec<Bout>> {
        let (tail, power) = (self.tail()?, self.power()?);
        let nothing = Estimate { value: f64::NAN, half_width: None };
        let bout = |round: &Round| {
            let place = &board.places[round.place];
            let sides =
                [Some(&round.theirs), round.ours.as_ref()].map(|side| side.and_then(|side| runs.of(side)));
            let of =
                |metric: &Metric| sides.map(|side| side.and_then(|run| metric.of(run)).unwrap_or(nothing));
            let pairs = |metric: &Metric| match (metric, sides) {
                (Metric::Figure(figure), [Some(theirs), Some(ours)]) => {
                    paired::difference(figure, ours, theirs)
                }
                _ => None,
            };
            let floor = round.ours.as_ref().zip(sides[1]).map(|(ours, run)| self.floor(&ours.run.task, run));
            let mut bout = Bout {
                run: place.name(),
                power: of(&power),
                floor: floor.transpose()?.flatten(),
                tail: of(&tail),
                power_difference: pairs(&power),
                tail_difference: pairs(&tail),
                is_won: false,
            };
            bout.is_won = bout.is_less() && bout.is_no_later();
            Ok(bout)
        };
        rounds.iter().map(bout).collect()
    }

    /// Of the metric that counts as power; see `sim::floor`.
    fn floor(&self, task: &Task, run: &Outcome) -> Result<Option<f64>> {
        let floor = task.floor(run.rate).map_err(usage)?;
        Ok(match self.power.as_str() {
            "core_watts" => Some(floor.cores_watts),
            "cpu_watts" => Some(floor.cpu_watts),
            "server_watts" => Some(floor.server_watts),
            _ => None,
        })
    }
}

impl Bout {
    /// How much more ours draws and how much later it answers, in percent of the paper's policy.
    pub fn pairs_text(&self) -> [String; 2] {
        let text = |difference: Option<Difference>| {
            difference.map_or_else(|| "-".to_owned(), |found| paired::relative_text(&found))
        };
        [text(self.power_difference), text(self.tail_difference)]
    }

    /// The floor, and how far above it ours is.
    pub fn floor_text(&self, unit: Unit) -> String {
        self.floor.map_or_else(
            || "-".to_owned(),
            |floor| format!("{}, {:+.1} %", unit.text(floor), (self.power[1].value / floor - 1.0) * 100.0),
        )
    }

    /// Our power is lower beyond doubt. Runs without pairs are judged by their own intervals.
    fn is_less(&self) -> bool {
        let [theirs, ours] = self.power;
        self.power_difference.map_or_else(|| below(ours, theirs), |difference| difference.is_below())
    }

    /// Our tail is no higher, by the estimates.
    fn is_no_later(&self) -> bool {
        let [theirs, ours] = self.tail;
        let of_pairs = self.tail_difference.map(|difference| difference.absolute.estimate <= 0.0);
        of_pairs.unwrap_or(ours.value <= theirs.value)
    }
}

/// Whose goal is a tail keeps it by a hair or misses it by one, and chance decides which. So ours's
/// is a fiftieth lower: more than the tails of these runs are uncertain by, and to ours's
/// disadvantage.
const AIM: f64 = 0.98;
/// In place of one that is not measured yet.
const ANY_TAIL_NS: f64 = 1e9;

/// A run of a place beside its own, such as ours.
fn beside(place: &Place, contestant: Contestant) -> Result<Planned> {
    let run = options::task(contestant)?;
    let mut key = place.planned.key.clone();
    key.scenario = grid::scenario_digest(&run)?;
    key.contestant = run.task.contestant.name.clone();
    Ok(Planned { point: place.planned.point, key, run })
}

fn with_all(document: Document, set: &BTreeMap<String, Value>) -> Result<Document> {
    set.iter().try_fold(document, |document, (key, value)| document.with(key, value).map_err(usage))
}

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
    use sim::statistics::{Interval, Portion};

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

    fn bout(power: f64, power_off: f64, tail: f64) -> Bout {
        let difference = |estimate, half_width| Difference {
            absolute: Interval { estimate, half_width },
            relative: None,
            portion: Portion::Replication,
            pairs: 10,
        };
        Bout {
            run: String::new(),
            // Intervals that overlap, and tails that say the opposite of their pairs.
            power: [estimate(10.0, 2.0), estimate(9.5, 2.0)],
            tail: [estimate(100.0, 9.0), estimate(101.0, 9.0)],
            power_difference: Some(difference(power, power_off)),
            tail_difference: Some(difference(tail, 5.0)),
            is_won: false,
            floor: None,
        }
    }

    #[test]
    fn pairs_decide_where_there_are_any() {
        let won = bout(-0.5, 0.1, -1.0);
        assert!(won.is_less() && won.is_no_later());
        assert!(!bout(-0.5, 0.6, -1.0).is_less() && !bout(-0.5, 0.1, 1.0).is_no_later());
        let alone = Bout { power_difference: None, tail_difference: None, ..won };
        assert!(!alone.is_less() && !alone.is_no_later());
    }

    #[test]
    fn a_policy_never_wins_against_itself() {
        let same = bout(0.0, 0.0, 0.0);
        assert!(!same.is_less() && same.is_no_later());
    }
}
