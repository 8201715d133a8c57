//! The claims of a paper, each as a figure that can be met or missed; see the header of
//! `papers/headlines.toml`.
//!
//! A claim names runs of one figure by their coordinates (variant, policy, values of the axes),
//! takes a metric of each, and makes one number of it: the value itself, a change against other
//! runs, a ratio, points of a third, or the value of an axis at which the metric is least. Several
//! runs become one number by their mean, least or greatest, or each must hold.
//!
//! Intervals are carried along as if runs were independent. Contestants of a figure share their
//! arrivals, so differences are known somewhat better than that.

mod cells;

use super::board::{Board, Outcomes};
use super::metrics::Metric;
use cells::{When, picks, stretches};
use serde::Deserialize;
use serde::Serialize;
use sim::outcome::Estimate;
use std::collections::BTreeMap;
use toml::Value;

/// A claim as the file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub id: String,
    pub paper: String,
    /// From which figure's runs it is computed.
    pub figure: String,
    /// The paper's words, with the section.
    pub says: String,
    /// Under which conditions, and how the words were read.
    pub conditions: String,
    #[serde(default)]
    metric: String,
    #[serde(default)]
    pub form: Form,
    #[serde(default)]
    subject: Selection,
    #[serde(default)]
    against: Selection,
    #[serde(default)]
    reference: Selection,
    #[serde(default)]
    best_over: Option<String>,
    #[serde(default)]
    over: Option<String>,
    #[serde(default)]
    pub value: Option<f64>,
    /// Where the paper gives a range or a direction.
    #[serde(default)]
    pub within: Option<[f64; 2]>,
    #[serde(default = "a_third")]
    tolerance: f64,
    /// Why it is no result: it only gives back its own input.
    #[serde(default)]
    pub check: Option<String>,
    /// Why it is missed, after a look at the runs.
    #[serde(default)]
    pub why_not: Option<String>,
    /// The command whose output shows that `why_not` is the cause.
    #[serde(default)]
    pub tested: Option<String>,
    /// The authors' own raw numbers that contradict it: it is neither met nor missed.
    #[serde(default)]
    pub refuted: Option<String>,
    /// A part that no simulation here has, without which the claim cannot be tried: it is missed.
    #[serde(default)]
    pub missing: Option<String>,
    /// Not one of the first list: it is counted apart.
    #[serde(default)]
    pub added: bool,
}

/// The bar: within 30 %.
fn a_third() -> f64 {
    0.3
}

/// How a claim's number is made of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    #[default]
    Value,
    /// How much it is above another run's, as a share of that.
    Change,
    /// How much another run's is above it, as a share of it: against / subject - 1.
    Excess,
    Ratio,
    /// How much it is above another run's, as a share of a third.
    Points,
    /// Where on an axis it is least.
    Argmin,
}

/// Coordinates: `contestant`, `variant`, `policy`, `time`, or a key of the sweep.
type Selection = BTreeMap<String, Value>;

/// One of the selections that lists stand for.
type Pick = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub value: f64,
    /// Half of its 95 % interval; `None` where a run gave none.
    pub half_width: Option<f64>,
    /// Its parts, where they are not all.
    pub remark: Option<String>,
    pub is_met: bool,
}

/// The parts of one number: places on the board.
#[derive(Clone, Debug)]
struct Part {
    /// One place; several where the least over an axis is taken.
    subject: Vec<usize>,
    against: Option<usize>,
    reference: Option<usize>,
}

impl Claim {
    /// Fields that need each other are there.
    pub fn check(&self) -> Result<(), String> {
        if self.tested.is_some() && self.why_not.is_none() {
            return Err("`tested` wants `why_not`, the cause that it tests".into());
        }
        if self.missing.is_some() {
            let is_tried = !self.metric.is_empty() || !self.subject.is_empty() || self.refuted.is_some();
            return if is_tried { Err("`missing` wants neither runs nor `refuted`".into()) } else { Ok(()) };
        }
        self.metric()?;
        match (self.value, self.within) {
            (Some(value), None) if value != 0.0 => {}
            (None, Some([low, high])) if low <= high => {}
            _ => return Err("give either a value that is not 0 or within = [low, high]".into()),
        }
        let over: &[&str] = &["mean", "least", "greatest", "all"];
        match (self.form, &self.over) {
            (Form::Argmin, None) => {
                return Err("argmin wants `over`, the key whose best value is meant".into());
            }
            (Form::Argmin, _) | (_, None) => {}
            (_, Some(fold)) if over.contains(&fold.as_str()) => {}
            (_, Some(fold)) => return Err(format!("over = \"{fold}\": write one of {}", over.join(", "))),
        }
        let compares = matches!(self.form, Form::Change | Form::Excess | Form::Ratio | Form::Points);
        if compares == self.against.is_empty() || (self.form == Form::Points) == self.reference.is_empty() {
            return Err(
                "change, excess and ratio want `against`, points also `reference`, the others neither".into(),
            );
        }
        Ok(())
    }

    pub fn metric(&self) -> Result<Metric, String> {
        self.metric.parse()
    }

    /// The places that it needs, each once.
    pub fn needs(&self, board: &Board) -> Result<Vec<usize>, String> {
        let mut places: Vec<usize> = (self.parts(board)?.into_iter())
            .flat_map(|part| part.subject.into_iter().chain(part.against).chain(part.reference))
            .collect();
        places.sort_unstable();
        places.dedup();
        Ok(places)
    }

    pub fn evaluate(&self, board: &Board, outcomes: &Outcomes<'_>) -> Result<Found, String> {
        let metric = self.metric()?;
        let parts = self.parts(board)?;
        let time = self.subject.get("time").map(When::parse).transpose()?;
        let mut found: Vec<(Estimate, String)> = Vec::new();
        for part in &parts {
            let stretches = stretches(time, part, outcomes)?;
            for stretch in stretches {
                let of = |place: usize| value(&metric, place, stretch, board, outcomes);
                found.extend(self.of_part(part, of, board, stretch)?);
            }
        }
        self.fold(found)
    }

    fn of_part(
        &self,
        part: &Part,
        of: impl Fn(usize) -> Result<Estimate, String>,
        board: &Board,
        stretch: Option<usize>,
    ) -> Result<Option<(Estimate, String)>, String> {
        let name = |place: usize| match stretch {
            None => board.places[place].name(),
            Some(stretch) => format!("{}, sample {}", board.places[place].name(), stretch + 1),
        };
        // Of several, the least; those that are unstable are no candidates.
        let mut best: Option<(usize, Estimate)> = None;
        for &place in &part.subject {
            match of(place) {
                Ok(value) if best.is_none_or(|(_, least)| value.value < least.value) => {
                    best = Some((place, value))
                }
                Ok(_) => {}
                Err(problem) if part.subject.len() == 1 => return Err(problem),
                Err(_) => {}
            }
        }
        let (place, subject) = best.ok_or("no run of the subject is stable")?;
        if self.form == Form::Argmin {
            return self.best_value(part, place, &of, board).map(Some);
        }
        let against = part.against.map(&of).transpose()?;
        let reference = part.reference.map(&of).transpose()?;
        let estimate = match (self.form, against, reference) {
            (Form::Value, ..) => subject,
            (Form::Ratio, Some(against), _) => ratio(subject, against),
            (Form::Change, Some(against), _) => above_one(ratio(subject, against)),
            (Form::Excess, Some(against), _) => above_one(ratio(against, subject)),
            (Form::Points, Some(against), Some(reference)) => points(subject, against, reference),
            _ => return Err("nothing to compare with".into()),
        };
        Ok(Some((estimate, name(place))))
    }

    /// The value of the axis `over` at which the metric is least, and those that are as good within
    /// the intervals.
    fn best_value(
        &self,
        part: &Part,
        best: usize,
        of: impl Fn(usize) -> Result<Estimate, String>,
        board: &Board,
    ) -> Result<(Estimate, String), String> {
        let over = self.over.as_deref().unwrap_or_default();
        let at = |place: usize| board.places[place].axes.get(over).cloned().unwrap_or_default();
        let number = |text: &str| text.parse::<f64>().map_err(|_| format!("{over} = {text} is no number"));
        let least = of(best)?;
        let ceiling = least.value + least.half_width.unwrap_or(0.0);
        let mut as_good = Vec::new();
        for &place in part.subject.iter().filter(|&&place| place != best) {
            let Ok(value) = of(place) else { continue };
            if value.value - value.half_width.unwrap_or(0.0) <= ceiling {
                as_good.push(at(place));
            }
        }
        let mut remark = board.places[best].name_without(over);
        if !as_good.is_empty() {
            remark = format!("{remark}; as good within the intervals: {}", as_good.join(", "));
        }
        Ok((Estimate { value: number(&at(best))?, half_width: None }, remark))
    }

    fn fold(&self, found: Vec<(Estimate, String)>) -> Result<Found, String> {
        let one = |(estimate, name): (Estimate, String), remark: bool| Found {
            value: estimate.value,
            half_width: estimate.half_width,
            remark: remark.then_some(name),
            is_met: self.holds(estimate.value),
        };
        if found.len() == 1 {
            let is_argmin = self.form == Form::Argmin;
            return found
                .into_iter()
                .next()
                .map(|found| one(found, is_argmin))
                .ok_or_else(|| "no run".into());
        }
        let by = |a: &&(Estimate, String), b: &&(Estimate, String)| a.0.value.total_cmp(&b.0.value);
        let picked = match self.over.as_deref() {
            Some("least") => found.iter().min_by(by),
            Some("greatest") => found.iter().max_by(by),
            Some("mean") => {
                let n = found.len() as f64;
                let value = found.iter().map(|(estimate, _)| estimate.value).sum::<f64>() / n;
                let squares = found.iter().map(|(estimate, _)| estimate.half_width.map(|half| half * half));
                let half_width = squares.sum::<Option<f64>>().map(|sum| sum.sqrt() / n);
                let remark = Some(format!("mean of {} runs", found.len()));
                return Ok(Found { value, half_width, remark, is_met: self.holds(value) });
            }
            // Each must hold: the one that is farthest out speaks for all.
            Some(_) => found.iter().max_by(|a, b| self.excess(a.0.value).total_cmp(&self.excess(b.0.value))),
            None => {
                return Err(format!(
                    "{} runs are meant and `over` does not say how they become one",
                    found.len()
                ));
            }
        };
        picked.cloned().map(|found| one(found, true)).ok_or_else(|| "no run is meant".into())
    }

    pub fn holds(&self, ours: f64) -> bool {
        self.excess(ours) <= 0.0
    }

    /// The least and the greatest that would do.
    pub fn bar(&self) -> [f64; 2] {
        match (self.value, self.within) {
            (Some(value), _) => {
                let (a, b) = (value * (1.0 - self.tolerance), value * (1.0 + self.tolerance));
                [a.min(b), a.max(b)]
            }
            (None, Some(within)) => within,
            (None, None) => [f64::NAN; 2],
        }
    }

    /// How far outside the bar; not above zero if inside.
    fn excess(&self, ours: f64) -> f64 {
        let [low, high] = self.bar();
        // A share of a unit in the last place is no miss: 2 is within [2, 2].
        (low - ours).max(ours - high) - 1e-9
    }

    /// The one run that a printed number is of, and the number in the metric's unit; `None` for a
    /// number that is computed from more.
    pub fn pin(&self, board: &Board) -> Option<(usize, f64)> {
        let has_time = self.subject.contains_key("time");
        let value =
            self.value.filter(|_| self.form == Form::Value && !has_time && self.best_over.is_none())?;
        let scale = if self.metric().ok()?.is_time() { 1e3 } else { 1.0 };
        match &self.parts(board).ok()?[..] {
            [Part { subject, .. }] => Some((*subject.first()?, value * scale)),
            _ => None,
        }
    }

    /// Ours against the paper's, as a share of the paper's.
    pub fn deviation(&self, ours: f64) -> Option<f64> {
        self.value.map(|value| (ours - value) / value.abs())
    }

    /// The groups of places that each give one number.
    fn parts(&self, board: &Board) -> Result<Vec<Part>, String> {
        let (subjects, againsts, references) =
            (picks(&self.subject)?, picks(&self.against)?, picks(&self.reference)?);
        for (what, list) in [("against", &againsts), ("reference", &references)] {
            if list.len() > 1 && list.len() != subjects.len() {
                return Err(format!("{what} lists {} values, subject {}", list.len(), subjects.len()));
            }
        }
        let along = if self.form == Form::Argmin { self.over.as_deref() } else { self.best_over.as_deref() };
        let mut parts: Vec<Part> = Vec::new();
        for (at, pick) in subjects.iter().enumerate() {
            let names_someone = ["contestant", "variant", "policy"].iter().any(|key| pick.contains_key(*key));
            let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
            for (index, place) in board.places.iter().enumerate() {
                if place.is(pick)? && (names_someone || !place.is_ours()) {
                    let group = along.map_or_else(|| format!("{index:09}"), |key| place.name_without(key));
                    groups.entry(group).or_default().push(index);
                }
            }
            if groups.is_empty() {
                return Err(format!("no run is {pick:?}"));
            }
            for subject in groups.into_values() {
                let other = |list: &[Pick]| match list {
                    [] => Ok(None),
                    [one] => board.counterpart(subject[0], one).map(Some),
                    many => board.counterpart(subject[0], &many[at]).map(Some),
                };
                let (against, reference) = (
                    other(if self.against.is_empty() { &[] } else { &againsts })?,
                    other(if self.reference.is_empty() { &[] } else { &references })?,
                );
                parts.push(Part { subject, against, reference });
            }
        }
        Ok(parts)
    }
}

/// A metric of one run, or of a stretch of it. Times in microseconds, as the papers print them.
fn value(
    metric: &Metric,
    place: usize,
    stretch: Option<usize>,
    board: &Board,
    outcomes: &Outcomes<'_>,
) -> Result<Estimate, String> {
    let name = || board.places[place].name();
    let outcome = outcomes[place].ok_or_else(|| format!("{} was not run", name()))?;
    let found = match stretch {
        None => metric.of(outcome),
        Some(stretch) => outcome.points.get(stretch).and_then(|point| metric.of_point(point)),
    };
    let found = found.ok_or_else(|| match outcome.verdict {
        sim::outcome::Verdict::Unstable => format!("{} is unstable", name()),
        _ => format!("{} has no {metric}", name()),
    })?;
    let scale = if metric.is_time() { 1e-3 } else { 1.0 };
    Ok(Estimate { value: found.value * scale, half_width: found.half_width.map(|half| half * scale) })
}

fn ratio(subject: Estimate, against: Estimate) -> Estimate {
    let value = subject.value / against.value;
    let half_width = subject
        .half_width
        .zip(against.half_width)
        .map(|(a, b)| value.abs() * (a / subject.value).hypot(b / against.value));
    Estimate { value, half_width }
}

fn above_one(ratio: Estimate) -> Estimate {
    Estimate { value: ratio.value - 1.0, ..ratio }
}

fn points(subject: Estimate, against: Estimate, reference: Estimate) -> Estimate {
    let value = (subject.value - against.value) / reference.value;
    let half_width =
        subject.half_width.zip(against.half_width).zip(reference.half_width).map(|((a, b), c)| {
            (a / reference.value).hypot(b / reference.value).hypot(value * c / reference.value)
        });
    Estimate { value, half_width }
}

#[cfg(test)]
mod tests;
