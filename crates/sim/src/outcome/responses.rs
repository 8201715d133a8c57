//! Response times of a run, with their intervals, and the verdict on the run that they allow.

use crate::engine::{End, Ended, Setup};
use crate::statistics::{Doubt, Horizon, Interval, Quantile, Quantity, Replications, Sample as Responded};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All requests were answered, or the time was over.
    Complete,
    /// The precision that was asked for is reached.
    Precise,
    /// The requests were used up before the precision that was asked for was reached.
    Imprecise,
    /// More came than the machine can do. Its times mean nothing and are not given.
    Unstable,
    /// Response times still changed in the middle of the run: too few requests. Estimates are given
    /// without intervals.
    Unsettled,
}

/// A figure that another seed would change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The best guess of the quantity.
    pub value: f64,
    /// How far the truth may lie to either side, with 95 % confidence; `None` if the run was too
    /// short to tell.
    pub half_width: Option<f64>,
}

impl Estimate {
    /// With its interval, if it has one.
    pub fn interval(&self) -> Option<Interval> {
        self.half_width.map(|half_width| Interval { estimate: self.value, half_width })
    }

    fn of(value: Option<f64>, interval: Option<Interval>) -> Option<Self> {
        match interval {
            Some(Interval { estimate, half_width }) => {
                Some(Self { value: estimate, half_width: Some(half_width) })
            }
            None => value.map(|value| Self { value, half_width: None }),
        }
    }
}

/// Distribution of response times, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Responses {
    pub mean_ns: Option<Estimate>,
    pub p50_ns: Option<Estimate>,
    pub p95_ns: Option<Estimate>,
    pub p99_ns: Option<Estimate>,
    pub p999_ns: Option<Estimate>,
    /// Other percentiles that a goal or a precision names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Other>,
}

/// A percentile that a goal or a precision names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Other {
    pub what: Quantity,
    pub found_ns: Estimate,
}

impl Responses {
    /// One of them; `None` if it was not asked for, or the run does not say.
    pub fn at(&self, what: Quantity) -> Option<Estimate> {
        let known = [self.mean_ns, self.p50_ns, self.p95_ns, self.p99_ns, self.p999_ns];
        let shown = Quantity::SHOWN.iter().zip(known).find(|(shown, _)| **shown == what);
        let other = || self.others.iter().find(|other| other.what == what).map(|other| other.found_ns);
        shown.map_or_else(other, |(_, found)| found)
    }

    /// The quantiles that the run tells, with their values.
    pub fn quantiles_mut(&mut self) -> impl Iterator<Item = (Quantile, &mut Estimate)> {
        let shown = [
            (Quantile::P50, &mut self.p50_ns),
            (Quantile::P95, &mut self.p95_ns),
            (Quantile::P99, &mut self.p99_ns),
            (Quantile::P999, &mut self.p999_ns),
        ];
        let others = self.others.iter_mut().filter_map(|other| match other.what {
            Quantity::Quantile(quantile) => Some((quantile, &mut other.found_ns)),
            Quantity::Mean => None,
        });
        shown.into_iter().filter_map(|(quantile, found)| Some((quantile, found.as_mut()?))).chain(others)
    }

    /// The figures of a sample, with those that `asked` names.
    pub(crate) fn of(sample: &Responded<'_>, with_intervals: bool, asked: &[Quantity]) -> Self {
        let one = |quantity| {
            let interval = if with_intervals { sample.interval(quantity) } else { None };
            Estimate::of(sample.estimate(quantity), interval)
        };
        let quantile = |quantile| one(Quantity::Quantile(quantile));
        let mut others: Vec<Quantity> = Vec::new();
        for &what in asked {
            if !Quantity::SHOWN.contains(&what) && !others.contains(&what) {
                others.push(what);
            }
        }
        let others = others.into_iter().filter_map(|what| Some(Other { what, found_ns: one(what)? }));
        Self {
            mean_ns: one(Quantity::Mean),
            p50_ns: quantile(Quantile::P50),
            p95_ns: quantile(Quantile::P95),
            p99_ns: quantile(Quantile::P99),
            p999_ns: quantile(Quantile::P999),
            others: others.collect(),
        }
    }
}

/// The quantities of this run that are reported besides those of every run.
pub(crate) fn asked(setup: &Setup) -> Vec<Quantity> {
    let goal = setup.goal.and_then(Quantity::of);
    goal.into_iter().chain(setup.precision.map(|precision| precision.quantity())).collect()
}

/// The response times of one run, and how it ended.
pub(super) fn responses_of(ended: &Ended) -> (Responses, Verdict) {
    let responses = &ended.metrics().responses;
    let precision_asked = ended.setup().precision.is_some();
    let asked = asked(ended.setup());
    if ended.end == End::Unstable {
        return (Responses::default(), Verdict::Unstable);
    }
    if ended.setup().horizon == Horizon::Whole {
        // One story: its figures, without an interval. Several make one, see `Outcome::of_all`.
        let mut runs = Replications::new(Horizon::Whole);
        let told = runs.add(ended.setup().seed, responses).is_ok();
        let story = if told { Responses::of(&runs.sample(), false, &asked) } else { Responses::default() };
        return (story, Verdict::Complete);
    }
    match responses.sample() {
        Ok(sample) => {
            let verdict = match ended.end {
                End::Precise => Verdict::Precise,
                _ if precision_asked && !responses.is_precise() => Verdict::Imprecise,
                _ => Verdict::Complete,
            };
            (Responses::of(&sample, true, &asked), verdict)
        }
        Err(Doubt::Unstable) => (Responses::default(), Verdict::Unstable),
        Err(Doubt::Unsettled) => {
            let mut runs = Replications::new(Horizon::Whole);
            let told = runs.add(ended.setup().seed, responses).is_ok();
            let story =
                if told { Responses::of(&runs.sample(), false, &asked) } else { Responses::default() };
            (story, Verdict::Unsettled)
        }
    }
}
