//! The normal law's cumulative share and its inverse, for quantiles that results are compared with.

/// The share of a normal law (mean 0, deviation 1) below `z`, to 15 digits.
///
/// By the series of Marsaglia, "Evaluating the normal distribution", Journal of Statistical
/// Software 11(4), 2004.
pub(super) fn cdf(z: f64) -> f64 {
    if z.abs() > 8.0 {
        return if z < 0.0 { 0.0 } else { 1.0 };
    }
    let (mut sum, mut term, mut n) = (z, z, 1.0);
    while sum + term != sum {
        n += 2.0;
        term *= z * z / n;
        sum += term;
    }
    0.5 + sum * (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt()
}

/// The place below which the share `q` of a normal law lies.
pub(super) fn quantile(q: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    while high - low > 1e-13 {
        let middle = (low + high) / 2.0;
        if cdf(middle) < q { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_values_come_out() {
        for (q, z) in [(0.5, 0.0), (0.95, 1.644_853_627), (0.99, 2.326_347_874), (0.999, 3.090_232_306)] {
            assert!((quantile(q) - z).abs() < 1e-8, "{q}: {}", quantile(q));
            assert!((quantile(1.0 - q) + z).abs() < 1e-8);
            assert!((cdf(z) - q).abs() < 1e-9);
        }
        assert_eq!((cdf(-9.0), cdf(9.0)), (0.0, 1.0));
    }
}
