//! Exponential and normal numbers for the price of a multiplication, nearly always.
//!
//! The ziggurat (Marsaglia and Tsang, "The ziggurat method for generating random variables",
//! Journal of Statistical Software 5(8), 2000) covers a falling density with [`LAYERS`] horizontal
//! strips of equal area. A draw takes a strip and a place on it. Unless the place lies beyond the
//! beginning of the next strip (1 in 90), it is the answer. A place beyond is compared with the
//! density itself, and the lowest strip ends in the tail, which is drawn exactly.
//!
//! The tables are worked out by the compiler in plain additions, multiplications and divisions,
//! which IEEE 754 fixes to the last bit: the same seed gives the same numbers on every machine and
//! with every later version.

use crate::Random;

/// Strips, one for each value of eight random bits.
const LAYERS: usize = 256;

/// Where strip i ends, and the density there; the first is the width that the lowest one would have
/// without its tail.
struct Table {
    edge: [f64; LAYERS + 1],
    density: [f64; LAYERS + 1],
}

/// Where the lowest strip gives way to the tail, and the area of each strip, for 256 strips:
/// Marsaglia and Tsang.
const EXPONENTIAL_EDGE: f64 = 7.697_117_470_131_05;
const EXPONENTIAL_AREA: f64 = 0.003_949_659_822_581_557;
const NORMAL_EDGE: f64 = 3.654_152_885_361_009;
const NORMAL_AREA: f64 = 0.004_928_673_233_974_655;

static EXPONENTIAL: Table = {
    let mut edge = [0.0; LAYERS + 1];
    let mut density = [1.0; LAYERS + 1];
    edge[0] = EXPONENTIAL_AREA / exp(-EXPONENTIAL_EDGE);
    edge[1] = EXPONENTIAL_EDGE;
    let mut i = 1;
    while i < LAYERS {
        density[i] = exp(-edge[i]);
        if i + 1 < LAYERS {
            edge[i + 1] = -ln(density[i] + EXPONENTIAL_AREA / edge[i]);
        }
        i += 1;
    }
    density[0] = exp(-edge[0]);
    Table { edge, density }
};

static NORMAL: Table = {
    let mut edge = [0.0; LAYERS + 1];
    let mut density = [1.0; LAYERS + 1];
    edge[0] = NORMAL_AREA / exp(-NORMAL_EDGE * NORMAL_EDGE / 2.0);
    edge[1] = NORMAL_EDGE;
    let mut i = 1;
    while i < LAYERS {
        density[i] = exp(-edge[i] * edge[i] / 2.0);
        if i + 1 < LAYERS {
            edge[i + 1] = sqrt(-2.0 * ln(density[i] + NORMAL_AREA / edge[i]));
        }
        i += 1;
    }
    density[0] = exp(-edge[0] * edge[0] / 2.0);
    Table { edge, density }
};

/// A place on a strip that is there for certain, with the strip's number and the bits that are
/// left.
macro_rules! strip {
    ($table:expr, $random:expr) => {{
        let bits = $random.bits();
        let layer = (bits & 0xff) as usize;
        // The upper 53 bits, none of which chose the strip.
        let place = (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64) * $table.edge[layer];
        (layer, place, bits)
    }};
}

#[inline(always)]
pub(crate) fn exponential(random: &mut Random) -> f64 {
    let (layer, place, _) = strip!(EXPONENTIAL, random);
    if place < EXPONENTIAL.edge[layer + 1] { place } else { exponential_edge(layer, place, random) }
}

#[cold]
fn exponential_edge(mut layer: usize, mut place: f64, random: &mut Random) -> f64 {
    let mut tail = 0.0;
    loop {
        if place < EXPONENTIAL.edge[layer + 1] {
            return tail + place;
        }
        if layer == 0 {
            // The rest of an exponential number beyond any point is exponential again.
            tail += EXPONENTIAL_EDGE;
        } else {
            let (low, high) = (EXPONENTIAL.density[layer], EXPONENTIAL.density[layer + 1]);
            if low + (high - low) * random.unit() < (-place).exp() {
                return tail + place;
            }
        }
        (layer, place, _) = strip!(EXPONENTIAL, random);
    }
}

/// Normal, of mean zero and deviation one.
#[inline]
pub(crate) fn normal(random: &mut Random) -> f64 {
    let (layer, place, bits) = strip!(NORMAL, random);
    let size = if place < NORMAL.edge[layer + 1] { place } else { normal_edge(layer, place, random) };
    // The ninth bit is in neither the strip's number nor the place.
    if bits & 0x100 == 0 { size } else { -size }
}

#[cold]
fn normal_edge(mut layer: usize, mut place: f64, random: &mut Random) -> f64 {
    loop {
        if place < NORMAL.edge[layer + 1] {
            return place;
        }
        if layer == 0 {
            return normal_tail(random);
        }
        let (low, high) = (NORMAL.density[layer], NORMAL.density[layer + 1]);
        if low + (high - low) * random.unit() < (-place * place / 2.0).exp() {
            return place;
        }
        (layer, place, _) = strip!(NORMAL, random);
    }
}

/// Beyond the edge by rejection from an exponential (Marsaglia 1964, as in the paper).
fn normal_tail(random: &mut Random) -> f64 {
    loop {
        let beyond = exponential(random) / NORMAL_EDGE;
        if 2.0 * exponential(random) > beyond * beyond {
            return NORMAL_EDGE + beyond;
        }
    }
}

/// e^x for x from -700 to 0: Taylor's series after halving the argument until it is small.
const fn exp(x: f64) -> f64 {
    let mut halvings = 0;
    let mut small = x;
    while small < -0.01 {
        small /= 2.0;
        halvings += 1;
    }
    // e^small - 1, which squaring as (1 + y)^2 - 1 = y (2 + y) carries back without losing digits
    // to the one.
    let mut term = small;
    let mut less_one = small;
    let mut n = 2;
    while n < 12 {
        term = term * small / n as f64;
        less_one += term;
        n += 1;
    }
    let mut n = 0;
    while n < halvings {
        less_one *= 2.0 + less_one;
        n += 1;
    }
    1.0 + less_one
}

/// ln x for x in (0, 1]: ln 2^-n + ln m with m from 0.7 to 1.4, by the series of the inverse
/// hyperbolic tangent.
const fn ln(x: f64) -> f64 {
    let mut mantissa = x;
    let mut halvings = 0.0;
    while mantissa < std::f64::consts::FRAC_1_SQRT_2 {
        mantissa *= 2.0;
        halvings += 1.0;
    }
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let mut power = t;
    let mut sum = 0.0;
    let mut n = 1.0;
    while n < 50.0 {
        sum += power / n;
        power *= t * t;
        n += 2.0;
    }
    2.0 * sum - halvings * std::f64::consts::LN_2
}

/// The square root by Newton's iteration, for x from 1e-3 to 20.
const fn sqrt(x: f64) -> f64 {
    let mut root = 1.0 + x / 4.0;
    let mut n = 0;
    while n < 30 {
        root = (root + x / root) / 2.0;
        n += 1;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_those_of_the_published_method() {
        for i in 1..LAYERS {
            let x = EXPONENTIAL.edge[i];
            assert!((EXPONENTIAL.density[i] / (-x).exp() - 1.0).abs() < 1e-11, "{i}");
            let x = NORMAL.edge[i];
            assert!((NORMAL.density[i] / (-x * x / 2.0).exp() - 1.0).abs() < 1e-11, "{i}");
        }
        for (table, area) in [(&EXPONENTIAL, EXPONENTIAL_AREA), (&NORMAL, NORMAL_AREA)] {
            // Every strip has the same area, the highest included, which nothing but right
            // constants brings about.
            for i in 1..LAYERS {
                let strip = table.edge[i] * (table.density[i + 1] - table.density[i]);
                assert!((strip / area - 1.0).abs() < 1e-9, "{i}: {strip}");
            }
            assert!(table.edge.windows(2).all(|w| w[0] > w[1]));
        }
        let tail = (-EXPONENTIAL_EDGE).exp();
        assert!(((EXPONENTIAL_EDGE * tail + tail) / EXPONENTIAL_AREA - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_first_numbers_of_a_seed_are_fixed() {
        // Recorded when written: a change breaks every recorded run.
        let mut random = Random::new(1, 0);
        let exponential: Vec<u64> = (0..4).map(|_| exponential(&mut random).to_bits()).collect();
        let normal: Vec<u64> = (0..4).map(|_| normal(&mut random).to_bits()).collect();
        assert_eq!(exponential, FIRST_EXPONENTIAL);
        assert_eq!(normal, FIRST_NORMAL);
    }

    const FIRST_EXPONENTIAL: [u64; 4] =
        [4600648401852153283, 4576295286263326788, 4615162360152050089, 4593587795705145750];
    const FIRST_NORMAL: [u64; 4] =
        [13826270447089707420, 13821368455332367895, 13832462347640200373, 4611297310706181815];

    #[test]
    fn exponential_numbers_are_exponential_into_the_tail() {
        let mut random = Random::new(7, 0);
        let draws = 4_000_000u32;
        let thresholds = [0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 7.0, 8.0, 10.0];
        let mut beyond = [0u32; 9];
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..draws {
            let x = exponential(&mut random);
            sum += x;
            squares += x * x;
            for (count, threshold) in beyond.iter_mut().zip(thresholds) {
                *count += u32::from(x > threshold);
            }
        }
        let n = f64::from(draws);
        assert!((sum / n - 1.0).abs() < 0.002 && (squares / n - 2.0).abs() < 0.01, "{sum} {squares}");
        for (count, threshold) in beyond.iter().zip(thresholds) {
            let share = (-threshold).exp();
            let deviation = (n * share * (1.0 - share)).sqrt();
            // Five standard deviations of the counting noise.
            assert!((f64::from(*count) - n * share).abs() < 5.0 * deviation, "{threshold}: {count}");
        }
    }

    #[test]
    fn normal_numbers_are_normal_into_the_tail() {
        let mut random = Random::new(7, 0);
        let draws = 4_000_000u32;
        // P(X > z), from tables.
        let tails = [
            (0.0, 0.5),
            (1.0, 0.158_655),
            (2.0, 0.022_750),
            (3.0, 1.349_9e-3),
            (3.7, 1.078e-4),
            (4.5, 3.398e-6),
        ];
        let mut beyond = [[0u32; 6]; 2];
        for _ in 0..draws {
            let x = normal(&mut random);
            for (place, (z, _)) in tails.iter().enumerate() {
                beyond[0][place] += u32::from(x > *z);
                beyond[1][place] += u32::from(-x > *z);
            }
        }
        for side in beyond {
            for (count, (z, share)) in side.iter().zip(tails) {
                let expected = f64::from(draws) * share;
                assert!((f64::from(*count) - expected).abs() < 5.0 * expected.sqrt() + 1.0, "{z}: {count}");
            }
        }
    }
}
