//! How long `n` requests in a row take at worst: the q-quantile of a sum of service times, at any
//! speed.
//!
//! To know how long a request may be delayed one must know how much it, and those before it, may
//! still need. That is not known; so it is learned from completed requests, each of which used some
//! time that shrinks with the clock (*compute*, stated at nominal speed) and some that does not
//! (*memory*). At speed v a request takes compute / v + memory.
//!
//! Approach. The last [`Params::log`] completions are kept, and every [`Params::rebuild`] turned
//! into a table.
//! - Service times are put on 128 equidistant points from zero to the longest; one between two
//!   points counts in part for each, so that the mean stays exact and the variance grows by at most
//!   a quarter of the square of their distance. All sums of up to [`EXACT`] of them follow by
//!   convolution on the same points, without rounding again.
//! - That is done twice: at nominal speed and at the slowest. Between the two a tail is read off
//!   the chord over the slowdown 1 / v. The chord is exact if the share of compute is the same in
//!   all requests, and an upper bound where the quantile is convex in the slowdown, as it is for
//!   every sum that is near a Gaussian. The sum of a compute and a memory quantile, the other cheap
//!   way (Rubik's), is further off when the two are independent.
//! - Longer sums are Gaussian in the growth by `n`: n mean + z sd sqrt(n), and a constant for the
//!   skew, as the Cornish-Fisher expansion gives it, chosen to fit the last convolution.
//!
//! Invariants: tails grow with `n` and with the slowdown; a service time that never varies
//! gives exactly `n` times itself; with fewer than [`Params::least`] completions there is no
//! answer, because a quantile guessed from a handful is their maximum at best.

mod sums;

pub use sums::EXACT;
pub(crate) use sums::normal_quantile;

use machine::{Duration, Instant, Ratio};
use policy::check::Check;
use policy::registry::{Parameter, Surroundings, count, quantile, time};
use serde::{Deserialize, Serialize};
use sums::Sums;

impl Params {
    /// The defaults, changed by a scenario's goal.
    pub fn around(around: &Surroundings<'_>) -> Self {
        let plain = Self::default();
        Self { quantile: Ratio::new(around.quantile_or(plain.quantile.as_f64())), ..plain }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    pub quantile: Ratio,
    pub log: u32,
    pub least: u32,
    #[serde(with = "machine::duration_text")]
    pub rebuild: Duration,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        quantile("quantile", "which tail").given("the goal").source("Peafowl, section 4.3"),
        count("log", "completions that are remembered")
            .above_zero()
            .source("ours: forty lie beyond a 99th percentile"),
        count("least", "with fewer there is no answer")
            .above_zero()
            .not_above("log")
            .source("ours: below, the 99th percentile is the longest one seen"),
        time("rebuild", "time between two tables").above_zero().source("as Rubik's"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self { quantile: Ratio::new(0.99), log: 4096, least: 100, rebuild: Duration::from_millis(100) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Demand {
    compute: Duration,
    memory: Duration,
}

impl Demand {
    fn at(self, slowdown: f64) -> f64 {
        self.compute.as_nanos() as f64 * slowdown + self.memory.as_nanos() as f64
    }
}

/// The learned tails of one service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tails {
    params: Params,
    /// A ring, once it is full.
    log: Vec<Demand>,
    /// Where the next completion goes when it is.
    oldest: u32,
    /// When the next table is made; `None` until something completes.
    due: Option<Instant>,
    table: Option<Table>,
    /// The slowdown at the slowest speed: at least 1.
    slowest: f64,
}

/// The two ends of the chords.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Table {
    nominal: Sums,
    slow: Sums,
    /// One over the width of the chords; zero if there is but one speed.
    per_slowdown: f64,
    mean_compute_ns: f64,
    mean_memory_ns: f64,
}

impl Tails {
    /// Nothing is known yet. `slowest` is the least speed that will be asked about, as a share of
    /// the nominal.
    pub fn new(params: Params, slowest: f64) -> Self {
        let slowest = (1.0 / slowest).max(1.0);
        Self { params, log: Vec::new(), oldest: 0, due: None, table: None, slowest }
    }

    /// A request is done. `compute` is its computing at nominal speed.
    pub fn handle_completion(&mut self, now: Instant, compute: Duration, memory: Duration) {
        let demand = Demand { compute, memory };
        if self.log.len() < self.params.log.max(1) as usize {
            self.log.push(demand);
        } else {
            self.log[self.oldest as usize] = demand;
            self.oldest = (self.oldest + 1) % self.log.len() as u32;
        }
        // The first table is made as soon as there can be one: until then no request may be
        // delayed.
        let least = self.params.least.min(self.params.log) as usize;
        let enough = self.table.is_some() || self.log.len() >= least;
        if self.due.is_none() && enough {
            let wait = if self.table.is_some() { self.params.rebuild } else { Duration::ZERO };
            self.due = Some(now + wait);
        }
    }

    /// When [`Self::handle_timeout`] wants to be called; never while nothing completes.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Makes the table anew if it is time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            self.rebuild();
        }
    }

    /// The q-quantile of `count` service times at this speed; `None` while too little is known.
    pub fn tail(&self, count: u32, speed: f64) -> Option<Duration> {
        let table = self.table.as_ref()?;
        let nominal = table.nominal.tail(count);
        // Rounding to points must not make a slow clock look fast.
        let slow = table.slow.tail(count).max(nominal);
        let along = (1.0 / speed - 1.0) * table.per_slowdown;
        Some(Duration::from_nanos((nominal + (slow - nominal) * along).round() as u64))
    }

    /// The mean service time at this speed.
    pub fn mean(&self, speed: f64) -> Option<Duration> {
        let table = self.table.as_ref()?;
        let nanos = table.mean_compute_ns / speed + table.mean_memory_ns;
        Some(Duration::from_nanos(nanos.round() as u64))
    }

    fn rebuild(&mut self) {
        let per_slowdown = if self.slowest > 1.0 { 1.0 / (self.slowest - 1.0) } else { 0.0 };
        let quantile = self.params.quantile.as_f64().max(0.5);
        let count = self.log.len().max(1) as f64;
        let mean = |part: fn(&Demand) -> Duration| {
            self.log.iter().map(|demand| part(demand).as_nanos() as f64).sum::<f64>() / count
        };
        self.table = Some(Table {
            nominal: Sums::of(&self.log, 1.0, quantile),
            slow: Sums::of(&self.log, self.slowest, quantile),
            per_slowdown,
            mean_compute_ns: mean(|demand| demand.compute),
            mean_memory_ns: mean(|demand| demand.memory),
        });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Tails of a service with these (compute, memory) times in nanoseconds.
    pub(crate) fn learned(params: Params, slowest: f64, demands: &[(u64, u64)]) -> Tails {
        let mut tails = Tails::new(Params { log: demands.len() as u32, least: 1, ..params }, slowest);
        for &(compute, memory) in demands {
            let (compute, memory) = (Duration::from_nanos(compute), Duration::from_nanos(memory));
            tails.handle_completion(Instant::ZERO, compute, memory);
        }
        tails.handle_timeout(Instant::ZERO);
        // Those that came after the first table.
        tails.rebuild();
        tails
    }

    /// 4000 exponential times with this mean, one in the middle of each quantile.
    fn exponential(mean_ns: f64) -> Vec<u64> {
        (0..4000).map(|i| (-(1.0 - (f64::from(i) + 0.5) / 4000.0).ln() * mean_ns) as u64).collect()
    }

    fn nanos(tails: &Tails, count: u32, speed: f64) -> f64 {
        tails.tail(count, speed).unwrap().as_nanos() as f64
    }

    #[test]
    fn a_service_that_never_varies_takes_n_times_itself() {
        let tails = learned(Params::default(), 0.5, &[(7_000, 3_001); 200]);
        for count in [1, 2, 7, 16, 17, 1_000] {
            for (speed, one) in [(1.0, 10_001), (0.8, 11_751), (0.5, 17_001)] {
                let expected = Duration::from_nanos(one * u64::from(count));
                assert_eq!(tails.tail(count, speed), Some(expected), "{count} at {speed}");
            }
        }
        assert_eq!(tails.mean(0.5), Some(Duration::from_nanos(17_001)));
        assert_eq!(tails.tail(0, 0.5), Some(Duration::ZERO));
    }

    #[test]
    fn exponential_sums_have_erlang_tails() {
        let demands: Vec<_> = exponential(10_000.0).into_iter().map(|time| (time, 0)).collect();
        let tails = learned(Params::default(), 0.5, &demands);
        // 99th percentiles of Erlang(n, 1), from P(Poisson(x) < n) = 0.01.
        for (count, erlang) in
            [(1, 4.605), (2, 6.638), (4, 10.045), (8, 16.0), (16, 26.743), (32, 46.66), (64, 84.2)]
        {
            let got = nanos(&tails, count, 1.0) / 10_000.0;
            assert!((0.995..1.03).contains(&(got / erlang)), "{count}: {got} for {erlang}");
            let slow = nanos(&tails, count, 0.5) / 20_000.0;
            assert!((slow / got - 1.0).abs() < 1e-3, "{count}: all of it is compute");
        }
    }

    #[test]
    fn the_chord_is_above_the_tail_when_compute_and_memory_are_independent() {
        // 64 x 64 combinations of two exponentials: all of the joint distribution, so that the
        // truth is enumerable.
        let axis: Vec<u64> = (0..64).map(|i| (-(1.0 - (i as f64 + 0.5) / 64.0).ln() * 1e4) as u64).collect();
        let demands: Vec<_> = axis.iter().flat_map(|&c| axis.iter().map(move |&m| (c, m))).collect();
        let tails = learned(Params::default(), 0.3, &demands);
        for speed in [0.3, 0.4, 0.6, 0.8, 1.0] {
            let mut times: Vec<f64> = demands.iter().map(|&(c, m)| c as f64 / speed + m as f64).collect();
            times.sort_by(f64::total_cmp);
            let truth = times[(times.len() * 99).div_ceil(100) - 1];
            let got = nanos(&tails, 1, speed);
            assert!((0.99..1.06).contains(&(got / truth)), "{speed}: {got} for {truth}");
        }
    }

    #[test]
    fn nothing_is_said_from_a_handful_and_the_table_follows_the_service() {
        let params = Params { log: 200, ..Params::default() };
        let mut tails = Tails::new(params, 0.5);
        let complete = |tails: &mut Tails, at_ms: u64, micros: u64| {
            let now = Instant::ZERO + Duration::from_millis(at_ms);
            tails.handle_completion(now, Duration::from_micros(micros), Duration::ZERO);
        };
        for _ in 0..99 {
            complete(&mut tails, 0, 10);
        }
        assert_eq!((tails.poll_timeout(), tails.tail(1, 1.0), tails.mean(1.0)), (None, None, None));
        complete(&mut tails, 1, 10);
        assert_eq!(tails.poll_timeout(), Some(Instant::from_nanos(1_000_000)));
        tails.handle_timeout(Instant::from_nanos(999_999));
        assert_eq!(tails.tail(1, 1.0), None);
        tails.handle_timeout(Instant::from_nanos(1_000_000));
        assert_eq!((tails.tail(3, 1.0), tails.poll_timeout()), (Some(Duration::from_micros(30)), None));
        for _ in 0..200 {
            complete(&mut tails, 2, 20);
        }
        assert_eq!(tails.poll_timeout(), Some(Instant::from_nanos(102_000_000)));
        tails.handle_timeout(Instant::from_nanos(102_000_000));
        assert_eq!(tails.tail(3, 1.0), Some(Duration::from_micros(60)), "the old ones are forgotten");
    }

    proptest! {
        #[test]
        fn sums_on_the_points_are_exact(
            times in prop::collection::vec(0_u64..=127, 1..40),
            quantile in 0.5..0.999_f64,
        ) {
            // With the longest at 127 the points are whole numbers, and the sum of three can be
            // counted out.
            let times: Vec<u64> = times.into_iter().chain([127]).collect();
            let params = Params { quantile: Ratio::new(quantile), ..Params::default() };
            let demands: Vec<_> = times.iter().map(|&time| (time, 0)).collect();
            let tails = learned(params, 1.0, &demands);
            let mut sums = Vec::new();
            for a in &times {
                for b in &times {
                    sums.extend(times.iter().map(|c| a + b + c));
                }
            }
            sums.sort_unstable();
            let rank = (quantile * sums.len() as f64 - 1e-6).ceil() as usize;
            prop_assert_eq!(tails.tail(3, 1.0), Some(Duration::from_nanos(sums[rank.max(1) - 1])));
        }

        #[test]
        fn tails_grow_with_their_number_and_as_the_clock_falls(
            demands in prop::collection::vec((0_u64..50_000, 0_u64..50_000), 1..100),
            slowest in 0.2..1.0_f64,
        ) {
            let tails = learned(Params::default(), slowest, &demands);
            let speeds = [1.0, 0.5 + 0.5 * slowest, slowest];
            for count in 0..40 {
                for pair in speeds.windows(2) {
                    prop_assert!(tails.tail(count, pair[0]) <= tails.tail(count, pair[1]));
                }
                for speed in speeds {
                    prop_assert!(tails.tail(count, speed) <= tails.tail(count + 1, speed));
                }
            }
        }
    }
}
