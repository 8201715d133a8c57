//! Learning the load limit (section 3.3): the highest load that a worker has carried for its own
//! connections.
//!
//! Without the scheduler every connection would be served at home, and users accept the latency of
//! that. So the running maximum of the load of a worker's *resident* connections is a load that it
//! may also carry for guests. A sample with a Z-score above 2.5 is an outlier and does not become
//! the maximum.
//!
//! The paper leaves open whether outliers enter mean and variance. They must, or a lasting rise
//! would stay an outlier for ever; and the sample count must be capped, or after a long life a
//! lasting rise would take up 13 % of that life before it is believed. The sample is entered first
//! and judged afterwards, so that the first eight samples of a worker cannot be outliers: a start
//! is never mistaken for a peak.
//!
//! **Incomplete samples.** While some of a worker's own connections are served elsewhere, the sum
//! over those that are here is too small. Too small a sum can do no harm as a maximum, but it would
//! pull the mean down and make the return of the ordinary look like an outlier. Such a sample is
//! entered only if it lies above the mean.
//!
//! Invariants: the limit never falls but by [`LearnedLimit::reset`]; a rise that lasts is
//! learned after [`Params::learn_after`], after 10 or 10^7 samples; no sample marked saturated
//! leaves a trace.

use super::Params;
use machine::Rate;
use serde::{Deserialize, Serialize};

/// A worker's limit in requests per second and the statistics behind it. Kept across restarts by
/// the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LearnedLimit {
    limit: Option<Rate>,
    samples: u64,
    mean_per_s: f64,
    variance: f64,
}

impl LearnedLimit {
    /// The limit, if any load was measured yet.
    pub fn limit(&self) -> Option<Rate> {
        self.limit
    }

    /// A limit that needs no learning, in requests per second.
    pub(super) fn set(&mut self, limit: Option<Rate>) {
        self.limit = limit;
    }

    /// Whether these figures can have been learned: a value from a file may be anything.
    pub fn is_sound(&self) -> bool {
        let figures = [self.mean_per_s, self.variance, self.limit.map_or(0.0, Rate::as_per_second)];
        figures.iter().all(|figure| figure.is_finite() && *figure >= 0.0)
    }

    /// How many samples stand behind mean and variance, up to the cap.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Forgets everything: the next sample is the first.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// One sample of the load of the resident connections. `complete`: all of the worker's own
    /// connections are here. The caller leaves out saturated samples and those without any
    /// resident.
    pub fn observe(&mut self, load: Rate, complete: bool, params: &Params) {
        let sample = load.as_per_second();
        if complete || sample >= self.mean_per_s {
            // Welford's update; with the count held at the cap it becomes an exponential average of
            // that length.
            self.samples = self.samples.saturating_add(1).min(params.sample_cap());
            let count = self.samples as f64;
            let deviation = sample - self.mean_per_s;
            self.mean_per_s += deviation / count;
            self.variance += (deviation * (sample - self.mean_per_s) - self.variance) / count;
        }
        let above = sample - self.mean_per_s;
        let outlier = above > 0.0 && above * above > params.outlier_z * params.outlier_z * self.variance;
        match self.limit {
            None => self.limit = Some(load),
            Some(limit) if !outlier => self.limit = Some(limit.max(load)),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Duration;
    use proptest::prelude::*;

    fn observe(learned: &mut LearnedLimit, load: f64, params: &Params) {
        learned.observe(Rate::per_second(load), true, params);
    }

    fn limit(learned: &LearnedLimit) -> f64 {
        learned.limit().map_or(0.0, Rate::as_per_second)
    }

    /// A life of `samples` samples around `mean`, without playing them all.
    fn long_life(samples: u64, mean: f64, deviation: f64, params: &Params) -> LearnedLimit {
        LearnedLimit {
            limit: Some(Rate::per_second(mean + 2.0 * deviation)),
            samples: samples.min(params.sample_cap()),
            mean_per_s: mean,
            variance: deviation * deviation,
        }
    }

    #[test]
    fn a_count_from_a_file_that_no_run_can_reach_is_cut_to_the_cap() {
        let params = Params::default();
        let mut learned = LearnedLimit { samples: u64::MAX, ..long_life(u64::MAX, 500.0, 10.0, &params) };
        observe(&mut learned, 505.0, &params);
        assert_eq!(learned.samples(), params.sample_cap());
        assert!(learned.is_sound() && limit(&learned) >= 505.0);
    }

    #[test]
    fn the_first_measured_rate_is_the_first_limit() {
        let mut learned = LearnedLimit::default();
        assert_eq!(learned.limit(), None);
        observe(&mut learned, 500.0, &Params::default());
        assert_eq!(limit(&learned), 500.0);
    }

    #[test]
    fn a_start_is_no_outlier() {
        let params = Params::default();
        let mut learned = LearnedLimit::default();
        for load in [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 900.0] {
            observe(&mut learned, load, &params);
        }
        assert_eq!(limit(&learned), 900.0);
    }

    #[test]
    fn a_single_peak_is_an_outlier() {
        let params = Params::default();
        let mut learned = long_life(1000, 100.0, 5.0, &params);
        observe(&mut learned, 300.0, &params);
        assert_eq!(limit(&learned), 110.0);
        observe(&mut learned, 112.0, &params);
        assert_eq!(limit(&learned), 112.0, "the ordinary is still learned");
    }

    #[test]
    fn the_cap_gives_the_stated_time() {
        let params = Params::default();
        assert_eq!(params.sample_cap(), 4042);
        let scaled = params.scaled(4.0);
        assert_eq!(scaled.report_period, Duration::from_millis(25));
        assert_eq!(scaled.sample_cap(), 4042, "as many samples, each in a quarter of the time");
        assert!(Params { learn_after: Duration::ZERO, ..params }.sample_cap() >= 8);
    }

    #[test]
    fn partial_sums_do_not_drag_the_mean() {
        let params = Params::default();
        let mut learned = long_life(1000, 100.0, 5.0, &params);
        let before = learned;
        for _ in 0..10_000 {
            learned.observe(Rate::per_second(3.0), false, &params);
        }
        assert_eq!(learned, before);
        learned.observe(Rate::per_second(111.0), false, &params);
        assert_eq!(limit(&learned), 111.0, "part of the connections sent more than all before");
    }

    #[test]
    fn a_reset_forgets_everything() {
        let params = Params::default();
        let mut learned = long_life(1000, 100.0, 5.0, &params);
        learned.reset();
        observe(&mut learned, 7.0, &params);
        assert_eq!((limit(&learned), learned.samples()), (7.0, 1));
    }

    #[test]
    fn an_unknown_key_of_a_state_file_is_refused() {
        assert!(serde_json::from_str::<LearnedLimit>("{\"limit\":5.0,\"lifetime\":1}").is_err());
    }

    proptest! {
        #[test]
        fn a_lasting_rise_is_learned_in_the_stated_time_after_any_life(
            samples in prop_oneof![1_u64..20_000, Just(10_000_000)],
            mean in 0.0..1e5_f64,
            noise in 0.0..0.2_f64,
            rise in 1.01..20.0_f64,
        ) {
            let params = Params::default();
            let mut learned = long_life(samples, mean, mean * noise, &params);
            let risen = (mean * rise).max(limit(&learned)) + 1.0;
            let stated = params.learn_after.as_nanos().div_ceil(params.report_period.as_nanos());
            for _ in 0..stated {
                observe(&mut learned, risen, &params);
            }
            prop_assert_eq!(limit(&learned), risen);
        }

        #[test]
        fn the_limit_never_falls_and_is_always_a_load_that_was_seen(
            loads in prop::collection::vec((0.0..1e6_f64, any::<bool>()), 1..300),
        ) {
            let params = Params::default();
            let mut learned = LearnedLimit::default();
            let mut before = 0.0;
            for (at, &(load, complete)) in loads.iter().enumerate() {
                learned.observe(Rate::per_second(load), complete, &params);
                let now = limit(&learned);
                prop_assert!(now >= before && loads[..=at].iter().any(|&(seen, _)| seen == now));
                before = now;
            }
        }

        #[test]
        fn mean_and_variance_are_exact_below_the_cap(loads in prop::collection::vec(0.0..1e4_f64, 1..200)) {
            let mut learned = LearnedLimit::default();
            for &load in &loads {
                observe(&mut learned, load, &Params::default());
            }
            let count = loads.len() as f64;
            let mean = loads.iter().sum::<f64>() / count;
            let variance = loads.iter().map(|load| (load - mean).powi(2)).sum::<f64>() / count;
            prop_assert!((learned.mean_per_s - mean).abs() < 1e-6 * (1.0 + mean));
            prop_assert!((learned.variance - variance).abs() < 1e-6 * (1.0 + variance));
        }
    }
}
