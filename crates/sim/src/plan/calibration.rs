//! Known errors of the model, taken out of its predictions.
//!
//! The recorded run is known and simulated as well; what the model misses there it will miss elsewhere.
//!
//! - *Busy CPUs*: predicted is the change. Each prediction is multiplied by recorded over modelled.
//! - *Tails*: a thread of the service may be ready and get no CPU: it is queued behind a program while
//!   another CPU is idle, or the host has taken its CPU away. A recording does not say why, and the model
//!   has no such wait. So where the model's tail of the recorded run is shorter than the recorded one, no
//!   prediction goes below the recorded one. Its p99 is the middle of the seconds' p99, where there is one:
//!   a tail that a few seconds of trouble made will not come again. ESTIMATE: the waits that the model lacks
//!   come while a CPU is idle, and its own while none is; so the longer of the two is the tail, and not their
//!   sum.

use super::recording::{Bucket, Recording};
use crate::outcome::{Estimate, Outcome};
use crate::statistics::Quantile;

#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// Busy CPUs, recorded over modelled.
    busy: f64,
    /// The recorded tails that are longer than the model's, in ns.
    tails: Vec<(Quantile, f64)>,
}

/// So many requests beyond a quantile tell where it is.
const FEWEST: f64 = 100.0;
/// Lower ones are no tail.
const TAIL: f64 = 0.9;

impl Calibration {
    /// `modelled` is the recorded run, simulated.
    pub fn of(recording: &Recording, modelled: &Outcome) -> Self {
        let model = f64::from(recording.cpus()) * modelled.working;
        let recorded = recording.sleeps.busy_cpus.as_ref().map_or(model, |busy| busy.value);
        let mut responses = modelled.responses.clone();
        let tails = responses.quantiles_mut().filter_map(|(quantile, found)| {
            let ns = recorded_us(recording, quantile)? * 1e3;
            (quantile.share() >= TAIL && ns > found.value).then_some((quantile, ns))
        });
        Self { busy: if model > 0.0 { recorded / model } else { 1.0 }, tails: tails.collect() }
    }

    pub fn apply(&self, outcome: &mut Outcome) {
        outcome.working = (outcome.working * self.busy).min(1.0);
        for (quantile, found) in outcome.responses.quantiles_mut() {
            let least_ns = self.tails.iter().find(|(tail, _)| *tail == quantile).map(|(_, ns)| *ns);
            if let Some(least_ns) = least_ns.filter(|&least_ns| found.value < least_ns) {
                *found = Estimate { value: least_ns, half_width: None };
            }
        }
    }

    pub fn holds_tails(&self) -> bool {
        !self.tails.is_empty()
    }
}

fn recorded_us(recording: &Recording, quantile: Quantile) -> Option<f64> {
    let answers = &recording.responses;
    let p99 = answers.tail_us();
    if quantile == Quantile::P99 && p99.is_some() {
        return p99;
    }
    let own = within(&answers.histogram, quantile.share())?;
    // Seconds of trouble may be more than a twentieth of all: no lower quantile is beyond p99.
    Some(p99.filter(|_| quantile.share() < Quantile::P99.share()).map_or(own, |p99| own.min(p99)))
}

/// Requests lie evenly within a bucket.
fn within(histogram: &[Bucket], quantile: f64) -> Option<f64> {
    let all = histogram.iter().map(|bucket| bucket.count).sum::<u64>() as f64;
    if all * (1.0 - quantile) < FEWEST {
        return None;
    }
    let (mut below, mut from_us) = (0.0, 0.0);
    for bucket in histogram {
        let count = bucket.count as f64;
        if below + count >= quantile * all {
            return Some(from_us + (bucket.to_us - from_us) * (quantile * all - below) / count.max(1.0));
        }
        (below, from_us) = (below + count, bucket.to_us);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::recording::Known;
    use super::super::recording::tests::sample;
    use super::super::scenario_text;
    use super::*;
    use crate::outcome::Verdict;
    use crate::runner::Task;
    use crate::scenario::{Document, Estimates};

    fn modelled() -> Outcome {
        let text = scenario_text(&sample(), None).unwrap();
        let document = Document::parse("s.toml".as_ref(), &text, &Estimates::default()).unwrap();
        let document = document.with("run.requests", &toml::Value::Integer(20_000)).unwrap();
        let contestant = document.contestants().unwrap().remove(0);
        Task { contestant, seed: 1 }.run().unwrap()
    }

    fn ns(outcome: &Outcome) -> [f64; 4] {
        let answers = &outcome.responses;
        let all = [answers.p50_ns, answers.p95_ns, answers.p99_ns, answers.p999_ns];
        all.map(|found| found.unwrap().value)
    }

    #[test]
    fn no_tail_goes_below_a_longer_recorded_one_and_a_longer_own_one_stays() {
        let model = modelled();
        let [p50, p95, p99, p999] = ns(&model);
        let mut recording = sample();
        recording.responses.p99_us = Some(Known::measured(3.0 * p99 / 1e3, "three times as long"));
        // Evenly up to ten times the model's p95: of 1,000 requests no p95 is known.
        for (count, least) in [(1_000, p95), (100_000, 9.5 * p95)] {
            recording.responses.histogram = vec![Bucket { to_us: p95 / 100.0, count }];
            let calibration = Calibration::of(&recording, &model);
            assert!(calibration.holds_tails());
            let mut other = model.clone();
            calibration.apply(&mut other);
            let found = ns(&other);
            assert_eq!(found[0], p50, "the middle is no tail");
            // Never beyond the p99.
            let least = f64::min(least, 3.0 * p99);
            assert!((found[1] / least - 1.0).abs() < 1e-9, "{found:?} {least}");
            assert!((found[2] / (3.0 * p99) - 1.0).abs() < 1e-9, "{found:?}");
            let mut slow = model.clone();
            slow.responses.p99_ns.as_mut().unwrap().value = 5.0 * p99;
            calibration.apply(&mut slow);
            assert_eq!(ns(&slow)[2], 5.0 * p99);
        }
        // Trouble in a few seconds: the middle of the seconds' tails is the floor, and not the whole's.
        recording.responses.p99_steady_us = Some(Known::measured(2.0 * p99 / 1e3, "twice as long"));
        let mut steady = model.clone();
        Calibration::of(&recording, &model).apply(&mut steady);
        assert!((ns(&steady)[2] / (2.0 * p99) - 1.0).abs() < 1e-9);
        recording.responses.p99_steady_us = None;
        // The model's own is longer than the recorded: that is an error of another kind.
        recording.responses.histogram.clear();
        recording.responses.p99_us = Some(Known::measured(p99 / 2e3, "half"));
        let calibration = Calibration::of(&recording, &model);
        let mut other = model.clone();
        calibration.apply(&mut other);
        assert!(!calibration.holds_tails());
        assert_eq!(ns(&other), [p50, p95, p99, p999]);
    }

    #[test]
    fn busy_cpus_change_as_the_model_says_from_the_recorded_number() {
        let model = modelled();
        let mut recording = sample();
        let busy = f64::from(recording.cpus()) * model.working;
        recording.sleeps.busy_cpus = Some(Known::measured(0.9 * busy, "a tenth less"));
        let mut half = Outcome { working: model.working / 2.0, ..model.clone() };
        Calibration::of(&recording, &model).apply(&mut half);
        assert!((half.working / (0.45 * model.working) - 1.0).abs() < 1e-9);
        recording.sleeps.busy_cpus = None;
        let mut same = model.clone();
        Calibration::of(&recording, &model).apply(&mut same);
        assert_eq!(same.working, model.working);
        // Without figures there is nothing to raise.
        let mut unstable = Outcome { verdict: Verdict::Unstable, ..model.clone() };
        unstable.responses = Default::default();
        Calibration::of(&recording, &model).apply(&mut unstable);
        assert!(unstable.responses.p99_ns.is_none());
    }
}
