//! A distribution from a file, in the form of BigHouse's workloads.
//!
//! Lines of `x F`: the share F of all times is at most x, both rising, the first F zero. Between
//! two lines the share rises straight; two lines with the same x are a step. A file that stops
//! short of 1, as BigHouse's do at 0.999, is scaled up to it, which cuts the tail there: fit a law
//! to it instead where the tail matters.

use super::TimeUnit;
use crate::Random;
use crate::SpecError;
use crate::alias::{Alias, PLACES_MAX};
use std::path::Path;

/// The table, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Empirical {
    /// Time, and the share of draws that are at most it; the last share is one.
    points: Vec<(f64, f64)>,
    /// Chooses the stretch between two points.
    choice: Alias,
}

impl Empirical {
    pub fn read(path: &Path, unit: TimeUnit) -> Result<Self, SpecError> {
        let text = std::fs::read_to_string(path).map_err(|cause| SpecError::FileUnreadable {
            path: path.to_owned(),
            cause,
            form: FORM,
        })?;
        Self::parse(&text, path, unit)
    }

    fn parse(text: &str, path: &Path, unit: TimeUnit) -> Result<Self, SpecError> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let refused = |problem: &str| SpecError::file_line(path, index + 1, line, problem, FORM);
            let mut fields = line.split_ascii_whitespace();
            let mut number = || fields.next().and_then(|field| field.parse::<f64>().ok());
            let (Some(x), Some(share)) = (number(), number()) else {
                return Err(refused("is not two numbers"));
            };
            if fields.next().is_some() {
                return Err(refused("is not two numbers"));
            }
            if !(0.0..f64::INFINITY).contains(&x) || !(0.0..=1.0).contains(&share) {
                return Err(refused("has a number out of range"));
            }
            let x = x * unit.nanos();
            match points.last() {
                None if share != 0.0 => return Err(refused("does not begin at share 0")),
                Some((before, share_before)) if x < *before || share < *share_before => {
                    return Err(refused("falls below the line before"));
                }
                _ => points.push((x, share)),
            }
        }
        let (longest, whole) = points.last().copied().unwrap_or_default();
        if points.len() < 2 || points.len() > PLACES_MAX || whole <= 0.0 || longest <= 0.0 {
            let problem =
                format!("has {} usable lines that reach share {whole} at {longest} ns", points.len());
            return Err(SpecError::FileShort { path: path.to_owned(), problem, form: FORM });
        }
        for point in &mut points {
            point.1 /= whole;
        }
        let chances: Vec<f64> = points.windows(2).map(|w| w[1].1 - w[0].1).collect();
        Ok(Self { choice: Alias::new(&chances), points })
    }

    #[inline]
    pub fn draw(&self, random: &mut Random) -> f64 {
        let stretch = self.choice.draw(random);
        let (from, to) = (self.points[stretch].0, self.points[stretch + 1].0);
        from + (to - from) * random.unit()
    }

    pub fn mean(&self) -> f64 {
        self.points.windows(2).map(|w| (w[1].1 - w[0].1) * (w[0].0 + w[1].0) / 2.0).sum()
    }
}

/// The contents of such a file.
const FORM: &str =
    "each line is `x F`: the share F of times, rising from 0 to 1, is at most x, such as `4.5 0.93`";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Empirical {
        pub fn second_moment(&self) -> f64 {
            let square = |a: f64, b: f64| (a * a + a * b + b * b) / 3.0;
            self.points.windows(2).map(|w| (w[1].1 - w[0].1) * square(w[0].0, w[1].0)).sum()
        }

        pub fn cdf(&self, x: f64) -> f64 {
            match self.points.partition_point(|point| point.0 <= x) {
                0 => 0.0,
                after if after == self.points.len() => 1.0,
                after => {
                    let ((from, low), (to, high)) = (self.points[after - 1], self.points[after]);
                    low + (high - low) * (x - from) / (to - from)
                }
            }
        }

        pub fn quantile(&self, q: f64) -> f64 {
            let after = self.points.partition_point(|point| point.1 < q).clamp(1, self.points.len() - 1);
            let ((from, low), (to, high)) = (self.points[after - 1], self.points[after]);
            if high > low { from + (to - from) * (q - low) / (high - low) } else { from }
        }
    }

    fn parse(text: &str) -> Result<Empirical, SpecError> {
        Empirical::parse(text, Path::new("web.cdf"), TimeUnit::Milliseconds)
    }

    #[test]
    fn a_file_that_stops_short_is_scaled_up() {
        let table = parse("# from a trace\n0 0\n1 0.5\n\n2\t0.999\n").unwrap();
        assert_eq!(table.cdf(2e6), 1.0);
        assert!((table.cdf(1e6) - 0.5 / 0.999).abs() < 1e-12);
        assert_eq!(table.quantile(1.0), 2e6);
    }

    #[test]
    fn a_wrong_line_is_named_with_its_number_and_the_fix() {
        for (text, line, problem) in [
            ("0 0\n1", 2, "two numbers"),
            ("0 0\n1 x", 2, "two numbers"),
            ("0 0\n1 0.5 7", 2, "two numbers"),
            ("0 0\n\nnan 0.5", 3, "out of range"),
            ("0 0\n1 nan", 2, "out of range"),
            ("0 0\n1 1.5", 2, "out of range"),
            ("0 0\n-1 0.5", 2, "out of range"),
            ("0 0\n2 0.5\n1 0.7", 3, "falls below"),
            ("0 0\n2 0.5\n3 0.4", 3, "falls below"),
            ("1 0.5\n2 1", 1, "does not begin"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.starts_with(&format!("web.cdf:{line}:")), "{message}");
            assert!(message.contains(problem) && message.contains("4.5 0.93"), "{message}");
        }
    }

    #[test]
    fn what_holds_no_distribution_is_refused() {
        for text in ["", "# nothing", "0 0", "0 0\n5 0\n", "0 0\n0 1"] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains("web.cdf") && message.contains("usable lines"), "{text:?}: {message}");
        }
        let missing = Empirical::read(Path::new("/nonexistent/x.cdf"), TimeUnit::Seconds).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/x.cdf"), "{missing}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([-0-9.einafx ]{0,12}\n){0,8}", seed: u64) {
            if let Ok(table) = parse(&text) {
                let drawn = table.draw(&mut Random::new(seed, 0));
                prop_assert!(drawn >= 0.0 && drawn <= table.quantile(1.0));
            }
        }
    }
}
