//! The load that counts and means tell of: how bursty it is, and whether clients wait for replies.

use super::recording::{Known, Loop};

/// Index of dispersion of counts: variance of the counts of equal windows over their mean. For a
/// renewal process it tends to the squared coefficient of variation of the gaps as windows grow
/// (Cox and Lewis, The Statistical Analysis of Series of Events, 1966, section 4.6). The variance
/// comes from differences of neighbours (von Neumann, 1941), so a slow drift of the rate is not
/// taken for burstiness. `None` of fewer than ten windows, or of empty ones.
pub fn dispersion(counts: &[f64]) -> Option<f64> {
    const FEWEST: usize = 10;
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    if counts.len() < FEWEST || mean <= 0.0 {
        return None;
    }
    let squares = counts.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum::<f64>();
    Some(squares / (2.0 * (counts.len() - 1) as f64) / mean)
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

    #[test]
    fn counts_of_a_poisson_process_have_dispersion_one_whatever_the_drift() {
        let mut random = workload::Random::new(7, 0);
        // A Poisson count of mean 400 as a normal number would hide errors: count gaps instead.
        let mut counts = Vec::new();
        for second in 0..600 {
            let rate = 400.0 + f64::from(second) * 0.5;
            let (mut at, mut count) = (0.0, 0.0);
            loop {
                at += random.exponential() / rate;
                if at > 1.0 {
                    break;
                }
                count += 1.0;
            }
            counts.push(count);
        }
        let found = dispersion(&counts).unwrap();
        // The deviation of the estimate is sqrt(3 / n), 0.07.
        assert!((found - 1.0).abs() < 0.22, "{found}");
        assert_eq!(dispersion(&[5.0; 9]), None);
        assert_eq!(dispersion(&[5.0; 20]), Some(0.0));
    }

    #[test]
    fn clients_that_wait_are_told_by_littles_law() {
        assert_eq!(loop_of(10_000.0, 100.0, 32).unwrap().value, Loop::Open);
        assert_eq!(loop_of(100_000.0, 300.0, 32).unwrap().value, Loop::Closed);
        assert_eq!(loop_of(1.0, 1.0, 0), None);
    }
}
