//! How much work lies before the end of each queued request, with the probability asked for.
//!
//! A table has eight *rows*, for how far the request in execution has got (its *head*): row r
//! begins at w_r, the work with which r eighths of all requests are done. Its first entry is the
//! quantile of the head's rest, P0(c) = P(C = c + w_r | C >= w_r); entry i that of the head's rest
//! and i whole requests, P0 (*) PS^i. The mass at a point is taken as spread half a step to both
//! sides, so a quantile is no whole number of steps.
//!
//! Beyond 16 requests a sum is all but normal: entry i is the last exact one plus the growth of
//! mean + z * sd from there. (As usually told it *is* mean + z * sd; that lies below the sixteenth
//! entry when requests are skewed, and a longer queue would then ask for less.)
//!
//! Invariants: entries are finite, not negative, and do not fall along a row.

use super::convolver::{Convolver, MOST_REQUESTS};
use super::distribution::Distribution;
use crate::timing::tails::normal_quantile;
use serde::{Deserialize, Serialize};

/// Number of rows of a table \[R\].
const ROWS: usize = 8;

/// The quantiles of work, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Table {
    /// w_1 to w_7. Of rows that begin at the same place the first is meant, and the next has the
    /// next place.
    starts_ns: [f64; ROWS - 1],
    tails_ns: [[f64; MOST_REQUESTS]; ROWS],
    /// The inputs of the normal approximation: variance of the head's rest; mean and variance of a
    /// whole request.
    rest_variance: [f64; ROWS],
    mean_ns: f64,
    variance: f64,
    z: f64,
}

impl Table {
    /// Of requests that need nothing.
    pub(super) const NOTHING: Self = Self {
        starts_ns: [f64::MAX; ROWS - 1],
        tails_ns: [[0.0; MOST_REQUESTS]; ROWS],
        rest_variance: [0.0; ROWS],
        mean_ns: 0.0,
        variance: 0.0,
        z: 0.0,
    };

    /// Of requests that are distributed as `whole`.
    pub(super) fn of(whole: &Distribution, quantile: f64, convolver: &mut Convolver) -> Self {
        let starts: [usize; ROWS] = whole.starts();
        let (mean_ns, variance) = whole.moments();
        let mut table = Self { mean_ns, variance, z: normal_quantile(quantile), ..Self::NOTHING };
        for (row, start) in table.starts_ns.iter_mut().enumerate() {
            let next = starts[row + 1..].iter().find(|next| **next > starts[row]);
            *start = next.map_or(f64::MAX, |next| *next as f64 * whole.step_ns);
        }
        let workspace = convolver.prepare(whole, (1.0 - quantile) * WRAPPED_OF_MISSES);
        for row in 0..ROWS {
            if row > 0 && starts[row] == starts[row - 1] {
                table.tails_ns[row] = table.tails_ns[row - 1];
                table.rest_variance[row] = table.rest_variance[row - 1];
                continue;
            }
            let rest = whole.rest(starts[row]);
            table.rest_variance[row] = rest.moments().1;
            let tails_ns = &mut table.tails_ns[row];
            tails_ns[0] = tail_of(&rest.mass, quantile) * whole.step_ns;
            workspace.sums(&rest, |ahead, sum| tails_ns[ahead] = tail_of(sum, quantile) * whole.step_ns);
        }
        table
    }

    /// The row of a head that has done so much.
    #[inline]
    pub(super) fn row(&self, done_ns: f64) -> usize {
        // Counted, not searched: seven comparisons without a branch.
        self.starts_ns.iter().map(|start| u64::from(*start <= done_ns)).sum::<u64>() as usize
    }

    #[inline]
    pub(super) fn tails(&self, row: usize) -> Tails<'_> {
        Tails { table: self, row, tails_ns: &self.tails_ns[row] }
    }

    #[cold]
    fn beyond_ns(&self, row: usize, ahead: usize) -> f64 {
        let last = MOST_REQUESTS - 1;
        let sd = |whole: usize| (self.rest_variance[row] + whole as f64 * self.variance).sqrt();
        let more = (ahead - last) as f64 * self.mean_ns + self.z * (sd(ahead) - sd(last));
        self.tails_ns[row][last] + more
    }
}

pub(super) struct Tails<'a> {
    table: &'a Table,
    row: usize,
    tails_ns: &'a [f64; MOST_REQUESTS],
}

impl Tails<'_> {
    /// The work before the end of the request with `ahead` before it, the head among them.
    #[inline]
    pub(super) fn of(&self, ahead: usize) -> f64 {
        self.tails_ns.get(ahead).copied().unwrap_or_else(|| self.table.beyond_ns(self.row, ahead))
    }
}

/// The quantile of a distribution, in steps.
fn tail_of(masses: &[f64], quantile: f64) -> f64 {
    // A hair below, so that no rounding of the transform decides whether a point is reached
    // exactly.
    let wanted = quantile * (1.0 - 1e-9);
    let mut below = 0.0;
    for (point, &mass) in masses.iter().enumerate() {
        if below + mass >= wanted {
            let within = ((wanted - below) / mass).clamp(0.0, 1.0);
            return (point as f64 - 0.5 + within).max(0.0);
        }
        below += mass;
    }
    masses.len() as f64
}

/// The part of the allowed misses that may wrap around when sums are formed: too little to move a
/// quantile \[D\].
const WRAPPED_OF_MISSES: f64 = 1e-8;

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Duration;
    use policy::frequency::log_histogram::LogHistogram;
    use proptest::prelude::*;

    fn measured(nanos: impl IntoIterator<Item = f64>) -> Distribution {
        let mut histogram = LogHistogram::new();
        for nanos in nanos {
            histogram.record(Duration::from_nanos(nanos as u64));
        }
        Distribution::of(&histogram, 0.99).unwrap()
    }

    /// As many lengths as make up an exponential distribution, mean 10 us.
    fn exponential() -> Distribution {
        let count = 200_000;
        measured((0..count).map(|k| -10_000.0 * (1.0 - (k as f64 + 0.5) / count as f64).ln()))
    }

    fn table(whole: &Distribution, quantile: f64) -> Table {
        Table::of(whole, quantile, &mut Convolver::default())
    }

    #[test]
    fn an_exponential_head_has_as_much_left_as_ever() {
        let table = table(&exponential(), 0.99);
        for (row, tails) in table.tails_ns.iter().enumerate() {
            assert!((tails[0] / 46_052.0 - 1.0).abs() < 0.02, "row {row}: {}", tails[0]);
        }
    }

    #[test]
    fn rows_begin_at_the_octiles() {
        let table = table(&exponential(), 0.99);
        let width = exponential().step_ns;
        for row in 1..ROWS {
            let octile = -10_000.0 * (1.0 - row as f64 / 8.0).ln();
            assert_eq!(table.row(octile + width), row);
            assert_eq!(table.row(octile - width), row - 1);
        }
        assert_eq!((table.row(0.0), table.row(1e12)), (0, 7));
    }

    #[test]
    fn sums_of_exponentials_are_erlang() {
        // Quantiles of the Erlang distribution with so many phases, in means.
        let phases = [1, 2, 4, 8, 16, 32, 64];
        let p99 = [4.6052, 6.6384, 10.0451, 15.9999, 26.7429, 46.6084, 84.0666];
        let p95 = [2.9957, 4.7439, 7.7537, 13.1481, 23.0971, 41.8376, 77.4517];
        let exponential = exponential();
        for (quantile, means) in [(0.99, p99), (0.95, p95)] {
            let table = table(&exponential, quantile);
            for (phases, means) in phases.into_iter().zip(means) {
                let found = table.tails(0).of(phases - 1) / 10_000.0;
                assert!((found / means - 1.0).abs() < 0.01, "{phases} at {quantile}: {found} for {means}");
            }
        }
    }

    #[test]
    fn requests_that_are_all_alike_add_up_and_shift() {
        let whole = measured([20_000.0; 1_000]);
        let table = table(&whole, 0.99);
        let step = whole.step_ns;
        for ahead in [0, 1, 7, 15, 40] {
            let exact = (ahead + 1) as f64 * 20_000.0;
            let not_begun = table.tails(table.row(19_000.0)).of(ahead);
            assert!((not_begun - exact).abs() < 2.0 * step + exact * 0.003, "{ahead}: {not_begun}");
            let all_but_done = table.tails(table.row(20_000.0)).of(ahead);
            assert!(
                (all_but_done - (exact - 20_000.0)).abs() < 2.0 * step + exact * 0.003,
                "{ahead}: {all_but_done}"
            );
        }
    }

    #[test]
    fn a_mixture_agrees_with_drawing_lots() {
        // Nine short ones, one long. Lots from a fixed multiplicative generator.
        let length = |lot: u64| if lot.is_multiple_of(10) { 90_000.0 } else { 4_000.0 + (lot % 977) as f64 };
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut lot = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let whole = measured((0..100_000).map(|_| length(lot())));
        let table = table(&whole, 0.99);
        for ahead in [1, 5, 15] {
            let mut sums: Vec<f64> = (0..40_000).map(|_| (0..=ahead).map(|_| length(lot())).sum()).collect();
            sums.sort_by(f64::total_cmp);
            let (least, most) = (sums[39_500], sums[39_700]);
            let found = table.tails(0).of(ahead);
            let step = whole.step_ns;
            assert!(least - step < found && found < most + step, "{ahead}: {least} {found} {most}");
        }
    }

    #[test]
    fn normal_quantiles_are_those_of_the_handbooks() {
        for (quantile, z) in [(0.5, 0.0), (0.9, 1.2816), (0.95, 1.6449), (0.99, 2.3263), (0.9999, 3.7190)] {
            assert!((normal_quantile(quantile) - z).abs() < 5e-4, "{quantile}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_longer_queue_is_never_less_work(
            nanos in prop::collection::vec(0.0..300_000.0_f64, 1..60),
            quantile in 0.5..0.9999_f64,
        ) {
            let whole = measured(nanos.into_iter().chain([1.0]));
            let table = table(&whole, quantile);
            for row in 0..ROWS {
                prop_assert!(table.tails(row).of(0) >= 0.0);
                for ahead in 0..40 {
                    let (shorter, longer) = (table.tails(row).of(ahead), table.tails(row).of(ahead + 1));
                    prop_assert!(longer.is_finite() && longer >= shorter - 1e-6, "{row} {ahead}: {shorter} {longer}");
                }
            }
        }
    }
}
