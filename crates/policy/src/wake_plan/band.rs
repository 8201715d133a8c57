//! From an expectation to a window: the band in which the errors of the last expectations lay.
//!
//! Whatever model says "540 us", its own past errors say how far to trust it. The band reaches from
//! a low to a high one of the last errors, so that it holds the next with a chosen probability (see
//! `recent`): lopsided where errors are, narrow where the model is good, wider as soon as it is
//! not. Confidence is a window, in the planner's currency: a worse model costs time awake, and the
//! energy of that is on the bill of the principal that asked.
//!
//! Before there are errors enough for the promised probability, the band is also no narrower than a
//! first guess. A band so wide that a CPU would hardly sleep before it is no prediction.

use super::{Prediction, Record, recent::Recent};
use crate::check::Check;
use crate::registry::{Parameter, count, number, share, time};
use machine::{Duration, Ratio};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BandParams {
    pub history: u16,
    pub coverage: Ratio,
    pub first_guess: f64,
    pub widest: f64,
    #[serde(with = "machine::duration_text")]
    pub short: Duration,
}

impl Check for BandParams {
    const PARAMETERS: &'static [Parameter] = &[
        count("history", "errors that are remembered")
            .above_zero()
            .source("ours: the least for 0.9 with two outliers to spare"),
        share("coverage", "the probability that the event falls into the window")
            .above_zero_to(1.0)
            .source("ours: the paper's predictor is right in 0.87"),
        number("first_guess", "half the width of the first guess, of the expectation")
            .source("CPU sleeps, Figure 2: 5 and 10 %"),
        number("widest", "a window longer than this share of the expectation is no prediction")
            .above_zero()
            .source("ours"),
        time("short", "unless it is over so soon after its cause")
            .source("ours: in so short a time a CPU hardly sleeps"),
    ];
}

impl Default for BandParams {
    fn default() -> Self {
        Self { history: 39, coverage: Ratio::new(0.9), first_guess: 0.1, widest: 1.0, short: Duration::ZERO }
    }
}

/// The errors of one model and its record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Band {
    params: BandParams,
    /// Actual time less the expected time, in ns.
    errors: Recent,
    pub record: Record,
}

impl Band {
    pub fn new(params: BandParams) -> Self {
        Self { params, errors: Recent::new(params.history), record: Record::default() }
    }

    /// A typical error, in ns; `None` before four are known.
    pub fn spread_ns(&self) -> Option<f64> {
        (self.errors.len() >= 4).then_some(self.errors.quartile_distance()? as f64)
    }

    /// The window about `expected`, `stretch` times as wide as its errors were. `None` if it is too
    /// wide to be of use.
    pub fn around(&self, expected: Duration, stretch: f64) -> Option<Prediction> {
        let guess = expected.scale(self.params.first_guess);
        let prediction = self.around_with(expected, guess, stretch);
        let is_of_use = prediction.window() <= prediction.expected.scale(self.params.widest)
            || prediction.latest <= self.params.short;
        is_of_use.then_some(prediction)
    }

    /// The same with a first guess of its own, and however wide it is.
    pub fn around_with(&self, expected: Duration, guess: Duration, stretch: f64) -> Prediction {
        let (guess, stretch) = (signed(guess), stretch.max(1.0));
        let (mut low, mut high) = self.errors.interval(self.params.coverage).unwrap_or((-guess, guess));
        let middle = self.errors.median().unwrap_or(0);
        if !self.is_learned() {
            (low, high) = (low.min(-guess), high.max(guess));
        }
        let stretched =
            |edge: i64| middle.saturating_add((edge.saturating_sub(middle) as f64 * stretch) as i64);
        let moved = |by: i64| Duration::from_nanos(signed(expected).saturating_add(by).max(0) as u64);
        let (earliest, latest) = (moved(stretched(low)), moved(stretched(high)));
        Prediction { earliest, expected: moved(middle), latest }
    }

    /// An event came after `actual`, had `prediction`, and the model behind it, if it had an
    /// opinion, said `expected`.
    pub fn handle_came(
        &mut self,
        prediction: Option<Prediction>,
        expected: Option<Duration>,
        actual: Duration,
    ) {
        self.record.note(prediction, actual);
        if let Some(expected) = expected {
            self.errors.push(signed(actual).saturating_sub(signed(expected)));
        }
    }

    /// True when the smallest and the largest error alone keep the promise.
    fn is_learned(&self) -> bool {
        let outside = 2.0 / (self.errors.len() + 1) as f64;
        1.0 - outside >= self.params.coverage.as_f64() - 1e-9
            || self.errors.len() >= usize::from(self.params.history)
    }
}

fn signed(length: Duration) -> i64 {
    i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Duration = Duration::from_micros;

    fn learned(errors_us: impl IntoIterator<Item = i64>) -> Band {
        let mut band = Band::new(BandParams::default());
        for error in errors_us {
            band.handle_came(None, Some(US(500)), US((500 + error) as u64));
        }
        band
    }

    #[test]
    fn errors_of_any_size_do_no_harm() {
        let mut band = Band::new(BandParams::default());
        for nth in 0..50 {
            let lengths = [Duration::ZERO, Duration::MAX];
            band.handle_came(None, Some(lengths[nth % 2]), lengths[(nth + 1) % 2]);
        }
        let prediction = band.around_with(Duration::MAX, Duration::MAX, 2.0);
        assert!(
            prediction.earliest <= prediction.latest && band.spread_ns().is_some_and(|spread| spread > 0.0)
        );
    }

    #[test]
    fn the_first_window_is_a_guess() {
        let prediction = learned([]).around(US(500), 1.0).unwrap();
        assert_eq!(
            (prediction.earliest, prediction.expected, prediction.latest),
            (US(450), US(500), US(550))
        );
    }

    #[test]
    fn a_few_errors_can_widen_the_guess_but_not_narrow_it() {
        let prediction = learned([0, 0, 80]).around(US(500), 1.0).unwrap();
        assert_eq!((prediction.earliest, prediction.latest), (US(450), US(580)));
    }

    #[test]
    fn nineteen_errors_are_believed() {
        let prediction = learned((0..19).map(|n| n % 3)).around(US(500), 1.0).unwrap();
        assert_eq!(
            (prediction.earliest, prediction.expected, prediction.latest),
            (US(500), US(501), US(502))
        );
    }

    #[test]
    fn a_window_as_long_as_the_wait_is_no_prediction() {
        let band = learned((0..39).map(|n| if n % 2 == 0 { -240 } else { 300 }));
        assert_eq!(band.around(US(500), 1.0), None);
        assert!(band.around(US(5_000), 1.0).is_some());
    }

    #[test]
    fn a_wide_window_that_is_over_soon_is_one_all_the_same() {
        let params = BandParams { short: US(400), ..BandParams::default() };
        let scattered = |expected: u64| {
            let mut band = Band::new(params);
            for nth in 0..39 {
                let actual = if nth % 2 == 0 { expected / 2 } else { expected * 2 };
                band.handle_came(None, Some(US(expected)), US(actual));
            }
            band.around(US(expected), 1.0)
        };
        let prediction = scattered(150).unwrap();
        assert_eq!((prediction.earliest, prediction.latest), (US(75), US(300)));
        assert_eq!(scattered(300), None, "it may take 600 us");
    }

    #[test]
    fn a_window_never_begins_before_its_cause() {
        let band = learned((0..39).map(|n| -12 * n));
        let prediction = band.around_with(US(10), US(1), 1.0);
        assert_eq!(prediction.earliest, Duration::ZERO);
    }
}
