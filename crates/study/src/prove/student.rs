//! Student's t: how often chance goes so far.
//!
//! The two-sided tail is the regularised incomplete beta function: P(|T| > t) = I_x(f/2, 1/2) with
//! x = f / (f + t^2) (NIST DLMF 8.17; Abramowitz and Stegun 26.7.1). The function is the continued
//! fraction DLMF 8.17.22, by the method of Lentz.

/// The probability of a value further from 0 than `t`, on either side.
pub fn two_sided(t: f64, freedom: f64) -> f64 {
    let square = t * t;
    if !square.is_finite() {
        return 0.0;
    }
    beta(freedom / (freedom + square), freedom / 2.0, 0.5)
}

/// The `t` with [`two_sided`] equal to `error`.
pub fn quantile(error: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided(high, freedom) > error && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if two_sided(middle, freedom) > error { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// The regularised incomplete beta function I_x(a, b).
fn beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on this side; I_x(a, b) = 1 - I_(1-x)(b, a) on the other.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let off_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / off_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..300 {
        let m = f64::from(step);
        for term in [
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        ] {
            d = 1.0 / off_zero(1.0 + term * d);
            c = off_zero(1.0 + term / c);
            fraction *= c * d;
        }
        if (c * d - 1.0).abs() < 1e-13 {
            break;
        }
    }
    front * fraction
}

/// The smallest number that Lentz's method puts in place of 0.
const TINY: f64 = 1e-300;

/// The logarithm of the gamma function: Stirling's series (DLMF 5.11.1), after the recurrence has
/// moved the argument above 10, where five terms give twelve digits.
fn ln_gamma(x: f64) -> f64 {
    let mut shift = 0.0;
    let mut z = x;
    while z < 10.0 {
        shift += z.ln();
        z += 1.0;
    }
    let (inverse, square) = (1.0 / z, 1.0 / (z * z));
    let series = inverse
        * (1.0 / 12.0
            - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square * (1.0 / 1680.0 - square / 1188.0))));
    (z - 0.5) * z.ln() - z + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantiles_are_those_of_the_tables() {
        // Abramowitz and Stegun, table 26.10.
        for (freedom, error, t) in [
            (1.0, 0.05, 12.706),
            (2.0, 0.05, 4.303),
            (5.0, 0.05, 2.571),
            (11.0, 0.05, 2.201),
            (11.0, 0.01, 3.106),
            (30.0, 0.02, 2.457),
            (120.0, 0.05, 1.980),
        ] {
            let found = quantile(error, freedom);
            assert!((found - t).abs() < 6e-4, "{freedom} {error}: {found}");
        }
    }

    #[test]
    fn one_and_two_degrees_are_their_closed_forms() {
        for t in [0.0, 0.1, 1.0, 7.0, 300.0] {
            // Cauchy; and for two degrees 1 - t / sqrt(2 + t^2).
            let one = 1.0 - 2.0 * f64::atan(t) / std::f64::consts::PI;
            assert!((two_sided(t, 1.0) - one).abs() < 1e-10, "{t}");
            let two = 1.0 - t / (2.0 + t * t).sqrt();
            assert!((two_sided(t, 2.0) - two).abs() < 1e-10, "{t}");
        }
        assert_eq!(two_sided(f64::INFINITY, 3.0), 0.0);
    }
}
