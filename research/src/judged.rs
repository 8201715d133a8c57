//! A claim beside its result, in words: for the terminal, the page and `docs/papers.md`.

use super::board::{Board, Outcomes};
use super::claim::{Claim, Form, Found};
use serde::Serialize;
use study::figures::Unit;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within the bar.
    Met,
    Missed,
    /// The authors' own raw numbers contradict the paper: neither met nor missed.
    Refuted,
    /// A part of it is missing here: counts as missed.
    NotReproducible,
    /// The result is the input: shows that the scenario is set up as meant, and nothing else.
    Check,
}

#[derive(Clone, Debug)]
pub struct Judged<'a> {
    pub claim: &'a Claim,
    /// It is one of those that count, and wants to be explained when it is missed.
    counts: bool,
    /// Ours, or why there is none.
    pub found: Result<Found, String>,
}

impl<'a> Judged<'a> {
    /// The result of a figure's runs for a claim.
    pub fn new(claim: &'a Claim, counts: bool, board: &Board, outcomes: &Outcomes<'_>) -> Self {
        Self { claim, counts, found: claim.evaluate(board, outcomes) }
    }

    /// A claim whose figure no scenario draws.
    pub fn untried(claim: &'a Claim) -> Self {
        let problem = claim.missing.clone().unwrap_or_else(|| "its figure is not simulated".to_owned());
        Self { claim, counts: true, found: Err(problem) }
    }

    pub fn verdict(&self) -> Verdict {
        match &self.found {
            _ if self.claim.check.is_some() => Verdict::Check,
            _ if self.claim.refuted.is_some() => Verdict::Refuted,
            _ if self.claim.missing.is_some() => Verdict::NotReproducible,
            Ok(found) if found.is_met => Verdict::Met,
            _ => Verdict::Missed,
        }
    }

    pub fn verdict_text(&self) -> &'static str {
        match (self.verdict(), &self.found) {
            (Verdict::Met, _) => "met",
            (Verdict::Missed, _) => "MISSED",
            (Verdict::Refuted, _) => "refuted by data",
            (Verdict::NotReproducible, _) => "NOT REPRODUCIBLE",
            (Verdict::Check, Ok(found)) if found.is_met => "set-up check",
            (Verdict::Check, _) => "set-up check FAILS",
        }
    }

    pub fn ours(&self) -> String {
        match &self.found {
            Ok(found) => self.claim.text(found.value),
            Err(_) => "-".to_owned(),
        }
    }

    /// Half of its interval, in the same unit.
    pub fn spread(&self) -> String {
        match &self.found {
            Ok(Found { half_width: Some(half_width), .. }) => self.claim.spread_text(*half_width),
            _ => "-".to_owned(),
        }
    }

    pub fn deviation(&self) -> String {
        let found = self.found.as_ref().ok();
        let deviation = found.and_then(|found| self.claim.deviation(found.value));
        deviation.map_or_else(|| "-".to_owned(), |share| format!("{:+.0} %", share * 100.0))
    }

    /// From where to where, as a reader compares it with the paper's number.
    pub fn interval(&self) -> String {
        match &self.found {
            Ok(Found { value, half_width: Some(half), .. }) if self.claim.form != Form::Argmin => {
                format!("{} to {}", self.claim.text(value - half), self.claim.text(value + half))
            }
            _ => "-".to_owned(),
        }
    }

    /// Why it is missed or no result, how its number was made where that is not plain; sentences.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        match &self.found {
            Err(problem) if self.verdict() == Verdict::NotReproducible => {
                remarks.push(format!("missing here: {problem}"));
            }
            Err(problem) => remarks.push(format!("no figure: {problem}")),
            Ok(found) => {
                remarks.extend(found.remark.clone());
                if let Some(half_width) = found.half_width {
                    let ends = [found.value - half_width, found.value + half_width];
                    if ends.iter().any(|&end| self.claim.holds(end) != found.is_met) {
                        remarks.push("the interval reaches across the bar".to_owned());
                    }
                }
                remarks.extend(self.claim.saving_text(found.value));
            }
        }
        remarks.extend(self.claim.check.iter().map(|why| format!("set-up check: {why}")));
        remarks.extend(self.claim.refuted.iter().map(|raw| format!("the authors' data: {raw}")));
        if self.verdict() == Verdict::Missed {
            remarks.extend(self.cause());
        }
        remarks
    }

    /// The cause of a miss: tested, with the command that shows it, or supposed.
    pub fn cause(&self) -> Option<String> {
        match (&self.claim.why_not, &self.claim.tested) {
            (Some(why), Some(command)) => Some(format!("cause: {why}; tested by: {command}")),
            (Some(why), None) => Some(format!("not yet tested; supposed: {why}")),
            (None, _) => self.counts.then(|| "cause not yet tested".to_owned()),
        }
    }
}

/// How many claims came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub met: usize,
    /// Those that are not reproducible among them.
    pub missed: usize,
    pub refuted: usize,
    pub checks: usize,
}

impl Tally {
    pub fn of<'a>(judged: impl Iterator<Item = &'a Judged<'a>>) -> Self {
        let mut tally = Self::default();
        for judged in judged {
            let count = match judged.verdict() {
                Verdict::Met => &mut tally.met,
                Verdict::Missed | Verdict::NotReproducible => &mut tally.missed,
                Verdict::Refuted => &mut tally.refuted,
                Verdict::Check => &mut tally.checks,
            };
            *count += 1;
        }
        tally
    }

    /// Those that can be met or missed.
    pub fn counted(self) -> usize {
        self.met + self.missed
    }
}

impl Claim {
    pub fn paper_text(&self) -> String {
        match (self.value, self.within) {
            (Some(value), _) => self.text(value),
            (None, Some([low, high])) if high >= self.beyond() => format!("{} or more", self.text(low)),
            (None, Some([low, high])) if low <= -self.beyond() => format!("{} or less", self.text(high)),
            (None, Some([0.0, high])) => format!("at most {}", self.text(high)),
            (None, Some([low, high])) => format!("{} to {}", self.text(low), self.text(high)),
            (None, None) => "-".to_owned(),
        }
    }

    /// Of a paper that divides the larger by the smaller: the same as a saving, ours and theirs.
    fn saving_text(&self, ours: f64) -> Option<String> {
        let saving = |excess: f64| format!("{:.1} %", excess / (1.0 + excess) * 100.0);
        let theirs = self.value.filter(|_| self.form == Form::Excess)?;
        Some(format!("as a saving: {}, the paper's {}", saving(ours), saving(theirs)))
    }

    /// From here on, an upper end means "or more".
    fn beyond(&self) -> f64 {
        if self.form == Form::Value { 1e9 } else { 10.0 }
    }

    pub fn text(&self, value: f64) -> String {
        match self.form {
            Form::Change | Form::Excess => format!("{:+.1} %", value * 100.0),
            Form::Points => format!("{:+.1} points", value * 100.0),
            Form::Ratio => format!("{value:.2}x"),
            Form::Argmin => format!("{value}"),
            Form::Value => self.in_unit(value),
        }
    }

    fn spread_text(&self, half_width: f64) -> String {
        match self.form {
            Form::Change | Form::Excess | Form::Points => format!("±{:.1}", half_width * 100.0),
            Form::Ratio => format!("±{half_width:.2}"),
            Form::Argmin => "-".to_owned(),
            Form::Value => format!("±{}", self.in_unit(half_width)),
        }
    }

    /// Times are microseconds, as the papers print them.
    fn in_unit(&self, value: f64) -> String {
        let unit = self.metric().map_or(Unit::Count, |metric| metric.unit());
        if unit == Unit::Nanoseconds { unit.text(value * 1e3) } else { unit.text(value) }
    }
}
