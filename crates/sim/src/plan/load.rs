//! The load that counts and means tell of: how bursty it is, and whether clients wait for replies.

use super::recording::{Known, Loop};

/// Index of dispersion of counts: their variance over their mean, of `arrivals` in so many equal
/// `windows`. For a renewal process it tends to the squared coefficient of variation of the gaps as
/// windows grow (Cox and Lewis, The Statistical Analysis of Series of Events, 1966, section 4.6). The
/// variance comes from the `squares` of the differences between neighbours (von Neumann, 1941), so a
/// drift of the rate is not taken for burstiness. Windows must be about as short as queues last: over
/// a second, a rate that wanders by 2 % looks like bursts of dozens. `None` of fewer than 100 windows
/// or 1,000 arrivals.
pub fn dispersion(windows: u64, arrivals: u64, squares: u64) -> Option<f64> {
    let count = (windows >= 100 && arrivals >= 1_000).then_some(windows as f64)?;
    Some(squares as f64 / (2.0 * (count - 1.0)) / (arrivals as f64 / count))
}

/// Clients wait for replies if, by Little's law, most connections have a request outstanding.
pub fn loop_of(rate_per_s: f64, mean_response_us: f64, connections: u64) -> Option<Known<Loop>> {
    const MOST: f64 = 0.5;
    if connections == 0 {
        return None;
    }
    let outstanding = rate_per_s * mean_response_us * 1e-6;
    let kind = if outstanding >= MOST * connections as f64 { Loop::Closed } else { Loop::Open };
    let by = format!(
        "Little's law: {outstanding:.2} requests outstanding on {connections} connections; half of \
         them or more is a closed loop"
    );
    Some(Known::derived(kind, by))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gaps of mean one, 400 to a window at first, and 700 at the end.
    fn counted(mut gap: impl FnMut() -> f64) -> f64 {
        let (mut arrivals, mut squares, mut before) = (0, 0, 0_u64);
        for window in 0..600 {
            let rate = 400.0 + f64::from(window) * 0.5;
            let (mut at, mut count) = (0.0, 0_u64);
            loop {
                at += gap() / rate;
                if at > 1.0 {
                    break;
                }
                count += 1;
            }
            squares += count.abs_diff(before).pow(2) * u64::from(window > 0);
            arrivals += count;
            before = count;
        }
        dispersion(600, arrivals, squares).unwrap()
    }

    #[test]
    fn counts_tell_the_variation_of_gaps_whatever_the_drift() {
        let mut random = workload::Random::new(7, 0);
        // The deviation of the estimate is sqrt(3 / n), 0.07.
        let found = counted(|| random.exponential());
        assert!((found - 1.0).abs() < 0.22, "{found}");
        // A tenth of the gaps 5.5 times the mean, the others half of it: (0.1 x 2 x 5.5^2 + 0.9 x 2
        // x 0.5^2) - 1 = 5.5.
        let found = counted(|| random.exponential() * if random.below(10) == 0 { 5.5 } else { 0.5 });
        assert!((found - 5.5).abs() < 1.5, "{found}");
        assert_eq!((dispersion(99, 1_000, 0), dispersion(100, 999, 0)), (None, None));
        assert_eq!(dispersion(100, 1_000, 0), Some(0.0));
    }

    #[test]
    fn clients_that_wait_are_told_by_littles_law() {
        assert_eq!(loop_of(10_000.0, 100.0, 32).unwrap().value, Loop::Open);
        assert_eq!(loop_of(100_000.0, 300.0, 32).unwrap().value, Loop::Closed);
        assert_eq!(loop_of(1.0, 1.0, 0), None);
    }
}
