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

use super::board::{Board, Outcomes, Place};
use super::metrics::Metric;
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
    metric: String,
    pub form: Form,
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
}

/// The bar: within 30 %.
fn a_third() -> f64 {
    0.3
}

/// How a claim's number is made of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    Value,
    /// How much it is above another run's, as a share of that.
    Change,
    /// How many times another run's.
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
    /// Within the bar.
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
        let compares = matches!(self.form, Form::Change | Form::Ratio | Form::Points);
        if compares == self.against.is_empty() || (self.form == Form::Points) == self.reference.is_empty() {
            return Err("change and ratio want `against`, points also `reference`, the others neither".into());
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
            (Form::Change, Some(against), _) => {
                let ratio = ratio(subject, against);
                Estimate { value: ratio.value - 1.0, ..ratio }
            }
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

    /// Within the bar.
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

/// Which part of a time series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    First,
    Last,
    Each,
    /// Counted from one.
    Sample(usize),
}

impl When {
    fn parse(value: &Value) -> Result<Self, String> {
        match value {
            Value::String(text) if text == "first" => Ok(Self::First),
            Value::String(text) if text == "last" => Ok(Self::Last),
            Value::String(text) if text == "each" => Ok(Self::Each),
            Value::Integer(sample) if *sample > 0 => Ok(Self::Sample(*sample as usize)),
            other => Err(format!("time = {other}: write \"first\", \"last\", \"each\" or a sample's number")),
        }
    }
}

/// The samples that a part is looked at in; one `None` for the whole run.
fn stretches(time: Option<When>, part: &Part, outcomes: &Outcomes<'_>) -> Result<Vec<Option<usize>>, String> {
    let Some(time) = time else { return Ok(vec![None]) };
    let places = part.subject.iter().chain(&part.against).chain(&part.reference);
    let lengths = places.filter_map(|&place| outcomes[place]).map(|outcome| outcome.points.len());
    let samples = lengths.min().filter(|&samples| samples > 0).ok_or("no time series")?;
    Ok(match time {
        When::First => vec![Some(0)],
        When::Last => vec![Some(samples - 1)],
        When::Sample(sample) if sample <= samples => vec![Some(sample - 1)],
        When::Sample(sample) => return Err(format!("there is no sample {sample} of {samples}")),
        When::Each => (0..samples).map(Some).collect(),
    })
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

fn points(subject: Estimate, against: Estimate, reference: Estimate) -> Estimate {
    let value = (subject.value - against.value) / reference.value;
    let half_width =
        subject.half_width.zip(against.half_width).zip(reference.half_width).map(|((a, b), c)| {
            (a / reference.value).hypot(b / reference.value).hypot(value * c / reference.value)
        });
    Estimate { value, half_width }
}

/// Lists are read place by place.
fn picks(selection: &Selection) -> Result<Vec<Pick>, String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let lists = selection.values().filter_map(Value::as_array).map(Vec::len);
    let length = lists.clone().max().unwrap_or(1);
    if lists.clone().any(|other| other != length) {
        return Err("lists of one selection have the same length".into());
    }
    let pick = |at: usize| {
        let coordinate = |(key, value): (&String, &Value)| {
            let value = value.as_array().map_or(value, |list| &list[at]);
            (key.clone(), text(value))
        };
        selection.iter().filter(|(key, _)| *key != "time").map(coordinate).collect()
    };
    Ok((0..length).map(pick).collect())
}

impl Place {
    /// As a person finds it again.
    pub fn name(&self) -> String {
        self.name_without("")
    }

    /// The same without the value on one axis.
    pub fn name_without(&self, key: &str) -> String {
        let axes = self.axes.iter().filter(|(axis, _)| *axis != key);
        let axes = axes.map(|(axis, value)| format!("{} {value}", axis.rsplit('.').next().unwrap_or(axis)));
        std::iter::once(self.contestant.clone()).chain(axes).collect::<Vec<_>>().join(", ")
    }

    fn is(&self, pick: &Pick) -> Result<bool, String> {
        for (key, wanted) in pick {
            let has = match key.as_str() {
                "contestant" => Some(&self.contestant),
                "variant" => self.variant.as_ref(),
                "policy" => Some(&self.policies),
                axis => self.axes.get(axis),
            };
            match has {
                None => return Err(format!("runs have no `{key}`")),
                Some(has) if has != wanted => return Ok(false),
                Some(_) => {}
            }
        }
        Ok(true)
    }
}

impl Board {
    /// The run that differs from `place` in the keys of `pick` and in nothing else that is free.
    fn counterpart(&self, place: usize, pick: &Pick) -> Result<usize, String> {
        let place = &self.places[place];
        let mut candidates = Vec::new();
        for (index, other) in self.places.iter().enumerate() {
            let same_axes = place
                .axes
                .iter()
                .all(|(axis, value)| pick.contains_key(axis) || other.axes.get(axis) == Some(value));
            if same_axes && other.is(pick)? {
                candidates.push(index);
            }
        }
        type Likeness = fn(&Place, &Place) -> bool;
        let alike: [Likeness; 2] = [|a, b| a.variant == b.variant, |a, b| a.policies == b.policies];
        for alike in alike {
            if candidates.len() > 1 {
                candidates.retain(|&index| alike(&self.places[index], place));
            }
        }
        match candidates[..] {
            [one] => Ok(one),
            [] => Err(format!("no run beside {} is {pick:?}", place.name())),
            _ => Err(format!("several runs beside {} are {pick:?}", place.name())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(value: f64, half_width: f64) -> Estimate {
        Estimate { value, half_width: Some(half_width) }
    }

    fn claim(text: &str) -> Claim {
        let head = "id = \"x\"\npaper = \"p\"\nfigure = \"1\"\nsays = \"\"\nconditions = \"\"\n";
        toml::from_str(&format!("{head}{text}")).unwrap()
    }

    #[test]
    fn the_bar_is_thirty_percent_with_the_right_sign() {
        let saving = claim(
            "metric = \"cpu_watts\"\nform = \"change\"\nsubject = {}\nagainst = { policy = \"menu\" }\n\
             value = -0.20",
        );
        for (ours, is_met) in
            [(-0.20, true), (-0.26, true), (-0.14, true), (-0.27, false), (-0.13, false), (0.20, false)]
        {
            assert_eq!(saving.holds(ours), is_met, "{ours}");
        }
        assert!(
            (saving.deviation(-0.25).unwrap() + 0.25).abs() < 1e-12,
            "a quarter more is saved than printed"
        );
        let best = claim(
            "metric = \"p95\"\nform = \"argmin\"\nsubject = {}\nover = \"server.workers\"\nvalue = 2\n\
             tolerance = 0.0",
        );
        assert!(best.holds(2.0) && !best.holds(3.0));
        let range = claim("metric = \"p99\"\nform = \"value\"\nsubject = {}\nwithin = [300, 1e9]");
        assert!(range.holds(300.0) && !range.holds(299.0));
    }

    #[test]
    fn intervals_are_carried_along_by_hand() {
        let quotient = ratio(estimate(8.0, 0.3), estimate(2.0, 0.1));
        assert!((quotient.value - 4.0).abs() < 1e-12);
        // Relative 0.0375 and 0.05: together 0.0625.
        assert!((quotient.half_width.unwrap() - 0.25).abs() < 1e-12);
        let shares = points(estimate(11.0, 0.3), estimate(10.0, 0.4), estimate(20.0, 0.0));
        assert!((shares.value - 0.05).abs() < 1e-12 && (shares.half_width.unwrap() - 0.025).abs() < 1e-12);
        assert_eq!(ratio(Estimate { value: 1.0, half_width: None }, estimate(1.0, 0.1)).half_width, None);
    }

    #[test]
    fn claims_that_cannot_be_computed_are_refused() {
        for text in [
            "metric = \"p99\"\nform = \"value\"\nsubject = {}",
            "metric = \"p99\"\nform = \"change\"\nsubject = {}\nvalue = 0.1",
            "metric = \"p99\"\nform = \"value\"\nsubject = {}\nover = \"median\"\nvalue = 1",
            "metric = \"p99\"\nform = \"argmin\"\nsubject = {}\nvalue = 1",
            "metric = \"p98\"\nform = \"value\"\nsubject = {}\nvalue = 1",
        ] {
            assert!(claim(text).check().is_err(), "{text}");
        }
    }
}
