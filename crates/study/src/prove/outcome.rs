//! When a run stops, and its verdict.

use super::compare::change_of;
use super::{Block, Change, Ending, Figure, LikeLoad, Looks, PAIRS_LEAST, Pairs, Treatment, compare};
use machine::{EnergySource, Goal};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A run as it is planned.
#[derive(Clone, Debug)]
pub struct Plan {
    pub pairs: u32,
    pub like: LikeLoad,
    pub until: Option<Until>,
    pub goal: Option<Goal>,
    /// The meter whose power the verdict is about, and its basis.
    pub meter: (String, EnergySource),
    looks: Looks,
}

/// `1%@power`: half of the interval's width of that figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Until {
    share: f64,
    of: Of,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Power,
    Energy,
    Tail,
    Cpu,
}

const NAMES: [(&str, Of); 4] =
    [("power", Of::Power), ("energy", Of::Energy), ("tail", Of::Tail), ("cpu", Of::Cpu)];

impl FromStr for Until {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no precision: write a percentage from 0.01% to 50% of power, energy, tail or \
                 cpu, such as 1%@power"
            )
        };
        let (share, of) = text.split_once('@').ok_or_else(wrong)?;
        let percent: f64 =
            share.trim().strip_suffix('%').and_then(|digits| digits.trim().parse().ok()).ok_or_else(wrong)?;
        let of = NAMES.iter().find(|(name, _)| *name == of.trim()).map(|(_, of)| *of).ok_or_else(wrong)?;
        (0.01..=50.0).contains(&percent).then_some(Self { share: percent / 100.0, of }).ok_or_else(wrong)
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, of)| *of == self.of).map_or("", |(name, _)| name);
        write!(f, "{}%@{name}", (self.share * 1e8).round() / 1e6)
    }
}

/// The reason why a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// All of the planned blocks have ended.
    Whole,
    /// The interval of `--until` is narrow enough.
    Narrow,
    /// The goal was missed in two governed blocks in a row.
    Missed,
    /// A signal came before the last block's end.
    Stopped,
    /// The service ended, or it could not be governed any longer: the reason.
    Broken(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Less power: the interval excludes no change.
    Saves,
    /// More power: the interval excludes no change.
    Costs,
    /// The interval of the power contains no change.
    NoDifference,
    /// No saving is claimed: the goal was missed.
    Missed,
    /// Too few pairs, or no power.
    Unproven,
}

/// The result of a run, as `summary.json` has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub verdict: Verdict,
    /// The verdict and its interval in one sentence.
    pub sentence: String,
    pub end: End,
    /// The number of blocks that have ended.
    pub blocks: u32,
    /// Pairs that are compared; with unlike load; with a block that does not count.
    pub pairs: u32,
    pub pairs_unlike: u32,
    pub pairs_void: u32,
    /// Governed and ungoverned blocks that missed the goal, of those with a known tail.
    pub missed_governed: (u32, u32),
    pub missed_ungoverned: (u32, u32),
    pub changes: Vec<Change>,
    /// The power saved a server in watts, and the ends of its interval. Nothing where no saving is
    /// claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts_saved: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts_saved_low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts_saved_high: Option<f64>,
}

impl Plan {
    pub fn new(
        pairs: u32,
        like: LikeLoad,
        until: Option<Until>,
        goal: Option<Goal>,
        meter: (String, EnergySource),
    ) -> Self {
        Self { pairs, like, until, goal, meter, looks: Looks::of(pairs as usize) }
    }

    /// Why the run stops after these blocks, if it does.
    pub fn stops(&self, blocks: &[Block]) -> Option<End> {
        if missed_twice(blocks) {
            return Some(End::Missed);
        }
        let pairs = Pairs::of(blocks, self.like);
        let is_narrow = self.until.is_some_and(|until| {
            let of = change_of(&self.figure(until.of), &pairs, &self.looks, Ending::AnyTime);
            of.and_then(|change| change.half_width()).is_some_and(|half| half <= until.share)
        });
        // Half a pair tells nothing: the run ends with a whole one.
        if is_narrow && blocks.len().is_multiple_of(2) {
            return Some(End::Narrow);
        }
        (blocks.len() >= 2 * self.pairs as usize).then_some(End::Whole)
    }

    fn figure(&self, of: Of) -> Figure {
        match of {
            Of::Power => Figure::Watts(self.meter.0.clone()),
            Of::Energy => Figure::JoulesPerRequest(self.meter.0.clone()),
            Of::Tail => Figure::Tail,
            Of::Cpu => Figure::CpuPerRequest,
        }
    }

    /// The interval of the power so far, for a person who watches.
    pub fn power_so_far(&self, blocks: &[Block]) -> Option<Change> {
        change_of(&self.figure(Of::Power), &Pairs::of(blocks, self.like), &self.looks, Ending::AnyTime)
    }

    pub fn outcome(&self, blocks: &[Block], end: End) -> Outcome {
        let pairs = Pairs::of(blocks, self.like);
        let ending = match end {
            End::Whole if self.until.is_none() => Ending::Planned,
            _ => Ending::AnyTime,
        };
        let changes = compare(&pairs, &self.looks, ending);
        let power = self.figure(Of::Power).to_string();
        let power = changes.iter().find(|change| change.figure == power);
        let verdict = match power {
            _ if end == End::Missed => Verdict::Missed,
            Some(change) if change.low.is_some() => match (change.is_found(), change.change < 0.0) {
                (false, _) => Verdict::NoDifference,
                (true, true) => Verdict::Saves,
                (true, false) => Verdict::Costs,
            },
            _ => Verdict::Unproven,
        };
        let saved = power.filter(|_| !matches!(verdict, Verdict::Missed | Verdict::Unproven));
        // Less than nothing of nothing is no saving, and has no sign.
        let watts = |of: Option<f64>| Some(0.0 - of? * saved?.ungoverned);
        let mut outcome = Outcome {
            verdict,
            sentence: String::new(),
            end,
            blocks: blocks.len() as u32,
            pairs: pairs.like.len() as u32,
            pairs_unlike: pairs.unlike,
            pairs_void: pairs.void,
            missed_governed: missed(blocks, Treatment::Governed),
            missed_ungoverned: missed(blocks, Treatment::Ungoverned),
            watts_saved: watts(saved.map(|change| change.change)),
            watts_saved_low: watts(saved.and_then(|change| change.high)),
            watts_saved_high: watts(saved.and_then(|change| change.low)),
            changes: Vec::new(),
        };
        outcome.sentence = self.sentence(&outcome, power);
        outcome.changes = changes;
        outcome
    }

    fn sentence(&self, outcome: &Outcome, power: Option<&Change>) -> String {
        let by = match &self.meter.1 {
            EnergySource::Measured(_) => format!("measured by {}", self.meter.0),
            EnergySource::Modelled(_) => format!("MODELLED by {}, not measured", self.meter.0),
        };
        let percent = |share: f64| format!("{:.1}", tenths(100.0 * share));
        let interval = |sign: f64| {
            let ends = power.and_then(|change| change.low.zip(change.high));
            let (low, high) = ends.map_or((f64::NAN, f64::NAN), |(low, high)| (sign * low, sign * high));
            format!("{} to {} %", percent(low.min(high)), percent(low.max(high)))
        };
        let goal = match (self.goal, outcome.missed_governed) {
            (None, _) => String::new(),
            (Some(goal), (_, 0)) => format!("; whether it kept {goal} is not known"),
            (Some(goal), (missed, known)) => {
                format!("; the goal of {goal} was kept in {} of {known} governed blocks", known - missed)
            }
        };
        let size = power.map_or(0.0, |change| change.change.abs());
        let watts = outcome.watts_saved.unwrap_or_default().abs();
        match outcome.verdict {
            Verdict::Saves => format!(
                "Governing saves {} % of the power (95 % interval {}), {watts:.2} W a server, {by}{goal}.",
                percent(size),
                interval(-1.0)
            ),
            Verdict::Costs => format!(
                "Governing costs {} % more power (95 % interval {}), {watts:.2} W a server, {by}{goal}.",
                percent(size),
                interval(1.0)
            ),
            Verdict::NoDifference => format!(
                "No difference of power was found: governing changes it by {} (95 % interval), {by}{goal}.",
                interval(1.0)
            ),
            Verdict::Missed => {
                let (missed, known) = outcome.missed_ungoverned;
                let goal = self.goal.map_or_else(String::new, |goal| format!(" of {goal}"));
                format!(
                    "MISSED: the goal{goal} was missed in two governed blocks in a row, so no saving is \
                     claimed (ungoverned blocks missed it in {missed} of {known})."
                )
            }
            Verdict::Unproven => format!(
                "Nothing is proven: {} pairs of like load with a known power, of at least {PAIRS_LEAST}.",
                power.map_or(0, |change| change.pairs)
            ),
        }
    }
}

/// Rounded to one decimal place, and a zero without a sign.
pub fn tenths(value: f64) -> f64 {
    (10.0 * value).round() / 10.0 + 0.0
}

/// The last two governed blocks whose tail is known, with no other governed one between them.
fn missed_twice(blocks: &[Block]) -> bool {
    let governed = blocks.iter().rev().filter(|block| block.treatment == Treatment::Governed);
    let last: Vec<bool> = governed.take(2).map(|block| block.missed_goal == Some(true)).collect();
    last == [true, true]
}

fn missed(blocks: &[Block], treatment: Treatment) -> (u32, u32) {
    let known = blocks.iter().filter(|block| block.treatment == treatment && block.void.is_none());
    known
        .filter_map(|block| block.missed_goal)
        .fold((0, 0), |(missed, known), is_missed| (missed + u32::from(is_missed), known + 1))
}

#[cfg(test)]
mod tests {
    use super::super::block::tests::block;
    use super::*;

    fn plan(until: Option<&str>) -> Plan {
        let meter = ("m".to_owned(), EnergySource::Modelled("m".to_owned()));
        let until = until.map(|text| text.parse().unwrap());
        Plan::new(10, LikeLoad(0.1), until, "500us@p99".parse().ok(), meter)
    }

    /// So many pairs, governed at this share of the power, with this scatter.
    fn blocks(pairs: u32, share: f64, scatter: f64) -> Vec<Block> {
        let of = |pair: u32| {
            let off = scatter * if pair.is_multiple_of(2) { 1.0 } else { -1.0 };
            [
                block(pair, Treatment::Governed, 100.0, 50.0 * share * (1.0 + off)),
                block(pair, Treatment::Ungoverned, 100.0, 50.0),
            ]
        };
        (1..=pairs).flat_map(of).collect()
    }

    #[test]
    fn the_verdict_is_a_sentence_that_says_how_it_was_got() {
        for (share, verdict, words) in [
            (0.9, Verdict::Saves, "saves 10.0 % of the power (95 % interval 9"),
            (1.1, Verdict::Costs, "costs 10.0 % more"),
            (1.0, Verdict::NoDifference, "No difference"),
        ] {
            let outcome = plan(None).outcome(&blocks(10, share, 0.005), End::Whole);
            assert_eq!(outcome.verdict, verdict);
            for words in [words, "MODELLED", "10 of 10 governed blocks"] {
                assert!(outcome.sentence.contains(words), "{}", outcome.sentence);
            }
            assert!((outcome.watts_saved.unwrap() - 50.0 * (1.0 - share)).abs() < 0.01);
        }
        let few = plan(None).outcome(&blocks(3, 0.9, 0.005), End::Stopped);
        assert_eq!((few.verdict, few.watts_saved), (Verdict::Unproven, None));
    }

    #[test]
    fn a_goal_that_is_missed_twice_in_a_row_ends_the_run_without_a_saving() {
        let mut all = blocks(4, 0.5, 0.001);
        all[4].missed_goal = Some(true);
        assert_eq!(plan(None).stops(&all), None, "once is chance");
        all[6].missed_goal = Some(true);
        assert_eq!(plan(None).stops(&all), Some(End::Missed));
        let outcome = plan(None).outcome(&all, End::Missed);
        assert_eq!((outcome.verdict, outcome.watts_saved), (Verdict::Missed, None));
        assert_eq!((outcome.missed_governed, outcome.missed_ungoverned), ((2, 4), (0, 4)));
        assert!(outcome.sentence.starts_with("MISSED"), "{}", outcome.sentence);
        all[4].missed_goal = None;
        assert_eq!(plan(None).stops(&all), None, "a tail that is not known is not missed");
    }

    #[test]
    fn a_run_stops_when_the_interval_is_narrow_and_at_the_latest_at_its_end() {
        let narrow = plan(Some("1%@power"));
        assert_eq!(narrow.stops(&blocks(3, 0.9, 0.001)), None, "three pairs have no interval");
        assert_eq!(narrow.stops(&blocks(4, 0.9, 0.001)), Some(End::Narrow));
        assert_eq!(narrow.stops(&blocks(9, 0.9, 0.1)), None);
        assert_eq!(narrow.stops(&blocks(10, 0.9, 0.1)), Some(End::Whole));
        let of = |plan: &Plan, end| plan.outcome(&blocks(10, 0.9, 0.1), end).changes[0].half_width();
        assert!(of(&narrow, End::Whole) > of(&plan(None), End::Whole), "it could have ended earlier");
        assert_eq!(of(&narrow, End::Whole), of(&plan(None), End::Stopped));
    }

    #[test]
    fn a_zero_has_no_sign() {
        let shown = [-0.04, 0.04, -0.06, 12.34].map(|value| format!("{:+.1}", tenths(value)));
        assert_eq!(shown, ["+0.0", "+0.0", "-0.1", "+12.3"]);
    }

    #[test]
    fn a_precision_names_its_figure() {
        for text in ["1%@power", "0.5%@energy", "5%@tail", "2%@cpu"] {
            assert_eq!(text.parse::<Until>().unwrap().to_string(), text);
        }
        for wrong in ["1@power", "1%", "0%@power", "60%@power", "1%@p99", "x%@tail"] {
            assert!(wrong.parse::<Until>().unwrap_err().contains("such as 1%@power"), "{wrong}");
        }
    }
}
