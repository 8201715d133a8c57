//! When a repeated computation will be done (the CPU sleeps paper, section 2): after about as long
//! as the last times.
//!
//! How long a kernel on a GPU runs cannot be known in general; but programs iterate, and each
//! iteration runs the same kernel on as much data. The paper predicts from history and does not say
//! how: 540 us +- 25 (K-means) and 500 us +- 50 with a few outliers (StreamCluster), the first
//! invocation apart, were predicted "with about 87% accuracy".
//!
//! Ours, for each kernel by itself: the mean of the last runs without an eighth of them at either
//! end, the very first run left out (it compiles, or fills caches); about that the band of the last
//! errors. How many runs? Eight follow a change, and carry their own scatter into the expectation:
//! an error 7 % larger than that of a predictor that knows the law. Thirty-two are nearly as good
//! as the law, and late by sixteen runs when it changes. So both are kept, and the one speaks whose
//! expectations were nearer lately. Nothing here is particular to GPUs: any begin and end that
//! repeat will do.
//!
//! Invariants: the first to speak are the eight; a single outlier does not decide which one speaks.

use super::band::{Band, BandParams};
use super::recent::Recent;
use super::table::Table;
use super::{Prediction, Record};
use crate::check::Check;
use crate::registry::{Parameter, count, table};
use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// A kernel and the inputs that its run time depends on (its grid, its data's size), as the driver
/// numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KernelId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KernelParams {
    pub history: u16,
    pub long_history: u16,
    pub dropped: u16,
    pub max_kernels: u16,
    pub band: BandParams,
}

impl Check for KernelParams {
    const PARAMETERS: &'static [Parameter] = &[
        count("history", "runs that the expectation rests on where runs change")
            .above_zero()
            .not_above("long_history")
            .source("ours"),
        count("long_history", "and where they do not").source("ours"),
        count("dropped", "first runs that are left out").source("CPU sleeps, Figure 2"),
        count("max_kernels", "kernels that are remembered").above_zero().source("ours"),
        table("band", "the window", BandParams::PARAMETERS),
    ];
}

impl Default for KernelParams {
    fn default() -> Self {
        Self { history: 8, long_history: 32, dropped: 1, max_kernels: 64, band: BandParams::default() }
    }
}

/// A kernel that was launched: to be handed back when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launched {
    pub kernel: KernelId,
    pub at: Instant,
    /// When it will be done, counted from `at`.
    pub prediction: Option<Prediction>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernels {
    params: KernelParams,
    known: Table<KernelId, Kernel>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kernel {
    /// First runs still to be left out.
    to_drop: u16,
    short: Window,
    long: Window,
    band: Band,
}

/// Some last runs, and how well they told the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Window {
    runs: Recent,
    /// A mean of its errors that forgets, as fractions of the actual value.
    error: f64,
}

/// The weight of a new error in that mean: ten runs decide.
const NEW_ERROR: f64 = 0.1;
/// An error counts as this fraction at most, or an outlier would be most of the mean.
const ERROR_MAX: f64 = 0.2;

impl Window {
    fn new(history: u16) -> Self {
        Self { runs: Recent::new(history), error: 0.0 }
    }

    fn expected(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.runs.trimmed_mean()?.max(0) as u64))
    }

    fn push(&mut self, actual: Duration) {
        if let Some(expected) = self.expected() {
            let error = expected.as_nanos().abs_diff(actual.as_nanos()) as f64;
            let error = (error / (actual.as_nanos().max(1)) as f64).min(ERROR_MAX);
            self.error += NEW_ERROR * (error - self.error);
        }
        self.runs.push(i64::try_from(actual.as_nanos()).unwrap_or(i64::MAX));
    }
}

impl Kernels {
    pub fn new(params: KernelParams) -> Self {
        Self { params, known: Table::new(params.max_kernels) }
    }

    pub fn handle_launched(&mut self, now: Instant, kernel: KernelId) -> Launched {
        let params = self.params;
        let known = self.known.entry(kernel, || Kernel {
            to_drop: params.dropped,
            short: Window::new(params.history),
            long: Window::new(params.long_history),
            band: Band::new(params.band),
        });
        let prediction = known.expected().and_then(|expected| {
            let band = known.band.around(expected, 1.0)?;
            // The errors move the window. But the prediction is the middle of the last runs: the
            // middle of their errors would only add its own scatter.
            Some(Prediction { expected: expected.clamp(band.earliest, band.latest), ..band })
        });
        Launched { kernel, at: now, prediction }
    }

    pub fn handle_done(&mut self, now: Instant, launched: &Launched) {
        let Some(kernel) = self.known.find_mut(launched.kernel) else { return };
        let actual = now.since(launched.at);
        let expected = kernel.expected();
        kernel.band.handle_came(launched.prediction, expected, actual);
        if kernel.to_drop > 0 {
            kernel.to_drop -= 1;
        } else {
            kernel.short.push(actual);
            kernel.long.push(actual);
        }
    }

    /// A kernel failed, or will not be waited for.
    pub fn handle_abandoned(&mut self, launched: &Launched) {
        if let Some(kernel) = self.known.find_mut(launched.kernel) {
            kernel.band.record.note_absent(launched.prediction);
        }
    }

    /// How the predictions for one kernel fared.
    pub fn record(&self, kernel: KernelId) -> Option<Record> {
        Some(self.known.find(kernel)?.band.record)
    }

    /// How the predictions for all remembered kernels fared.
    pub fn total(&self) -> Record {
        let mut total = Record::default();
        self.known.values().for_each(|kernel| total += kernel.band.record);
        total
    }
}

impl Kernel {
    fn expected(&self) -> Option<Duration> {
        let who = if self.long.error < self.short.error { &self.long } else { &self.short };
        who.expected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K_MEANS: KernelId = KernelId(1);

    /// Runs a kernel once for each time in us.
    fn run(
        kernels: &mut Kernels,
        kernel: KernelId,
        times_us: impl IntoIterator<Item = f64>,
    ) -> Option<Prediction> {
        let mut now = Instant::ZERO;
        let mut last = None;
        for us in times_us {
            let launched = kernels.handle_launched(now, kernel);
            now += Duration::from_nanos((us * 1e3) as u64);
            kernels.handle_done(now, &launched);
            last = launched.prediction;
        }
        last
    }

    /// Standard normal, by the sum of twelve.
    fn normal(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        move || {
            let uniform = |state: &mut u64| {
                *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (*state >> 11) as f64 / (1_u64 << 53) as f64
            };
            (0..12).map(|_| uniform(&mut state)).sum::<f64>() - 6.0
        }
    }

    #[test]
    fn the_first_run_is_left_out_and_the_third_is_predicted() {
        let mut kernels = Kernels::new(KernelParams::default());
        assert_eq!(run(&mut kernels, K_MEANS, [5_000.0, 540.0]), None);
        let third = run(&mut kernels, K_MEANS, [541.0]).unwrap();
        assert_eq!(third.expected, Duration::from_micros(540));
    }

    #[test]
    fn the_papers_kernels_are_predicted() {
        // Twice the standard deviation is +- 25 and +- 50 us; 2 % of the second's runs take three
        // times as long; both drift by 1 us in 100 runs.
        for (kernel, mean, sigma, outliers) in [(1, 540.0, 12.5, 0), (2, 500.0, 25.0, 50)] {
            let mut kernels = Kernels::new(KernelParams::default());
            let mut normal = normal(kernel);
            let times = (0..3000).map(|n| {
                let us = mean + 0.01 * f64::from(n) + sigma * normal();
                if outliers > 0 && n % outliers == outliers - 1 { 3.0 * us } else { us }
            });
            run(&mut kernels, KernelId(kernel), times);
            let record = kernels.record(KernelId(kernel)).unwrap();
            assert!(record.within_tenth_rate().as_f64() >= 0.9, "{kernel}: {record:?}");
            assert!(record.hit_rate().as_f64() >= 0.87, "{kernel}: {record:?}");
            assert!(record.accuracy().as_f64() >= 0.87, "{kernel}: {record:?}");
        }
    }

    #[test]
    fn kernels_of_a_real_gpu_are_predicted() {
        let files = [
            include_str!("../../../../testdata/kernels/k-means.txt"),
            include_str!("../../../../testdata/kernels/stream-cluster.txt"),
        ];
        for text in files {
            let mut kernels = Kernels::new(KernelParams::default());
            run(&mut kernels, K_MEANS, text.lines().map(|line| line.parse::<f64>().unwrap()));
            let record = kernels.record(K_MEANS).unwrap();
            assert!(record.predicted() > 500, "{record:?}");
            assert!(record.within_tenth_rate().as_f64() >= 0.9, "{record:?}");
            assert!(record.hit_rate().as_f64() >= 0.85, "{record:?}");
        }
    }

    #[test]
    fn who_knows_the_law_is_hardly_better_and_a_change_is_followed() {
        let mut kernels = Kernels::new(KernelParams::default());
        let mut normal = normal(11);
        let mut by_the_law = 0;
        // StreamCluster's, which drifts by 10 % in 500 runs and then falls back.
        let times: Vec<f64> = (0..20_000)
            .map(|n| {
                let middle = 475.0 + 0.1 * f64::from(n % 500);
                let us = middle + 25.0 * normal();
                let us = if n % 50 == 49 { 3.0 * us } else { us };
                by_the_law += u64::from((us - middle).abs() <= us / 10.0);
                us
            })
            .collect();
        let runs = times.len() as f64;
        run(&mut kernels, K_MEANS, times);
        let ours = kernels.record(K_MEANS).unwrap().within_tenth_rate().as_f64();
        assert!(ours >= by_the_law as f64 / runs - 0.02, "{ours}, the law {}", by_the_law as f64 / runs);
        // Another size of data is known before the short history is over.
        let steps = [vec![540.0; 100], vec![900.0; 8]].concat();
        let changed = run(&mut kernels, KernelId(2), steps).unwrap();
        assert_eq!(changed.expected, Duration::from_micros(900));
    }

    #[test]
    fn a_steady_kernel_has_a_narrow_window_and_a_restless_one_none() {
        let mut kernels = Kernels::new(KernelParams::default());
        let steady = run(&mut kernels, KernelId(1), (0..60).map(|n| 540.0 + f64::from(n % 3))).unwrap();
        assert!(steady.window() <= Duration::from_micros(3), "{steady:?}");
        let mut normal = normal(3);
        let restless = run(&mut kernels, KernelId(2), (0..60).map(|_| (900.0 + 500.0 * normal()).max(10.0)));
        assert_eq!(restless, None);
    }

    #[test]
    fn the_number_of_kernels_is_bounded_and_a_forgotten_one_does_no_harm() {
        let mut kernels = Kernels::new(KernelParams { max_kernels: 2, ..KernelParams::default() });
        let launched = kernels.handle_launched(Instant::ZERO, KernelId(1));
        for kernel in 2..10 {
            run(&mut kernels, KernelId(kernel), [500.0, 500.0, 500.0]);
        }
        kernels.handle_done(Instant::from_nanos(1), &launched);
        kernels.handle_abandoned(&launched);
        assert_eq!(kernels.record(KernelId(1)), None);
        assert_eq!(kernels.total().predicted(), 2);
    }
}
