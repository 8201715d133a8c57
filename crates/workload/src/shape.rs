//! Load shapes: profiles as people write them.
//!
//! | written | rate over time |
//! |---|---|
//! | `constant` | the same throughout |
//! | `ramp:A..B[..C]` | straight from A to B (to C ...) over the run |
//! | `steps:A,B,C` | each for an equal part of the run; `steps:A@10s,B@5s` for its own time, over and over |
//! | `burst` | Peafowl, figure 7: the peak, a fall to 5 % of it, a quiet spell, 65 % of it at once |
//! | `burst:A..B[@P+L]` | A, at once B for a quarter of it; with `@P+L`: A for P, B for L, over and over |
//! | `diurnal[:A..B]` | a sinus with a period of a day, from A (half the peak) up to B and back |
//! | `etc`, `microsoft`, `nlanr` | 24 hours of the published traces |
//! | `etc-gaps` | the 24 hours of ETC's published gaps, 40 to 60 k/s; with arrivals of kind `etc` |
//! | `decay` | 24 falling steps of the same family |
//! | `google` | Peafowl 4.1: 1000 k/s for a quarter of an hour, then 230 k/s |
//! | `carb-slow`, `carb-fast` | the 90 minutes of CARB 4.1; see [`Autoregressive`](crate::Autoregressive) |
//! | `csv:FILE` | lines of `seconds,rate` |
//!
//! A shape whose rates are absolute can be scaled to another peak; one that has times of its own
//! can be compressed, and repeats when the run is longer.

use crate::arrivals::ETC_HOURS;
use crate::{Autoregressive, Profile, Segment, SpecError, trace};
use machine::{Duration, Rate};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A rate over time that still may be scaled to a peak and fitted to a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    text: String,
    /// Lengths are seconds if `own_time`, otherwise seconds that stand for shares of the run.
    segments: Vec<Segment>,
    own_time: bool,
    /// Rates are requests per second; otherwise they are relative to a peak of one.
    own_rate: bool,
}

impl Shape {
    pub fn constant() -> Self {
        Self { text: "constant".to_owned(), segments: hold(&[1.0], 1.0), own_time: false, own_rate: false }
    }

    /// The rates of such a process, over and over.
    pub fn autoregressive(process: &Autoregressive) -> Result<Self, SpecError> {
        let hold = |rate: Rate| Segment { length: process.step, from: rate, to: rate };
        let segments = process.rates()?.into_iter().map(hold).collect();
        Ok(Self { text: "autoregressive".to_owned(), segments, own_time: true, own_rate: true })
    }

    /// How long it takes by itself, time compressed by `compression`; none if it stretches over any
    /// run.
    pub fn length(&self, compression: f64) -> Option<Duration> {
        let whole: Duration = self.segments.iter().map(|segment| segment.length).sum();
        self.own_time.then(|| whole.scale(1.0 / compression))
    }

    /// The profile whose highest rate is `peak` (none: the shape's own), for a run of this length,
    /// with the shape's own times divided by `compression`.
    pub fn profile(&self, peak: Option<Rate>, run: Duration, compression: f64) -> Result<Profile, SpecError> {
        if !(compression.is_finite() && compression > 0.0) {
            return Err(SpecError::Compression(compression.to_string()));
        }
        let rates = self.segments.iter().flat_map(|segment| [segment.from, segment.to]);
        let highest = rates.fold(Rate::ZERO, Rate::max).as_per_second();
        if highest <= 0.0 {
            return Err(SpecError::NothingArrives);
        }
        let rate_factor = match peak {
            Some(peak) => peak.as_per_second() / highest,
            None if self.own_rate => 1.0,
            None => return Err(SpecError::RateMissing(self.text.clone())),
        };
        let whole: Duration = self.segments.iter().map(|segment| segment.length).sum();
        let time_factor =
            if self.own_time { 1.0 / compression } else { run.as_secs_f64() / whole.as_secs_f64() };
        let fitted: Vec<Segment> = self
            .segments
            .iter()
            .map(|segment| Segment {
                length: segment.length.scale(time_factor),
                from: segment.from.scale(rate_factor),
                to: segment.to.scale(rate_factor),
            })
            .collect();
        Profile::new(&fitted)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for Shape {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = |fix: &str| SpecError::Shape { text: text.to_owned(), fix: fix.to_owned() };
        let shape =
            |segments, own_time, own_rate| Ok(Self { text: text.to_owned(), segments, own_time, own_rate });
        let day = |table: &[f64]| {
            let rates: Vec<f64> = table.iter().map(|value| value * TABLE_UNIT).collect();
            shape(hold(&rates, HOUR_S), true, true)
        };
        match text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest))) {
            ("constant", None) => Ok(Self::constant()),
            ("ramp", Some(points)) => {
                let points = rates(points, "..").filter(|points| points.len() > 1);
                let points =
                    points.ok_or_else(|| refused("write two or more rates, such as ramp:50k..1M"))?;
                shape(points.windows(2).map(|w| straight(1.0, w[0], w[1])).collect(), false, true)
            }
            ("steps", Some(steps)) if steps.contains('@') => {
                let fix = "give each step a rate and a time, such as steps:50k@10s,100k@5s";
                let timed = steps.split(',').map(|step| {
                    let (rate, length) = step.split_once('@')?;
                    let (rate, length) = (rate_or_zero(rate)?, positive_seconds(length)?);
                    Some(straight(length, rate, rate))
                });
                shape(timed.collect::<Option<_>>().ok_or_else(|| refused(fix))?, true, true)
            }
            ("steps", Some(steps)) => {
                let fix = "write rates between commas, such as steps:50k,100k,200k";
                shape(hold(&rates(steps, ",").ok_or_else(|| refused(fix))?, 1.0), false, true)
            }
            ("burst", None) => {
                let falling = [straight(1.0, 1.0, 1.0), straight(1.0, 1.0, 0.05)];
                let burst = [straight(1.0, 0.05, 0.05), straight(1.0, 0.65, 0.65)];
                shape([falling, burst].concat(), false, false)
            }
            ("burst", Some(rest)) => {
                let fix = "write two rates, such as burst:50k..650k, or with times burst:50k..650k@10s+1s";
                let (levels, times) =
                    rest.split_once('@').map_or((rest, None), |(levels, times)| (levels, Some(times)));
                let levels = rates(levels, "..").ok_or_else(|| refused(fix))?;
                let [base, peak] = levels[..] else { return Err(refused(fix)) };
                let Some(times) = times else {
                    return shape(hold(&[base, base, peak, base], 1.0), false, true);
                };
                let times = times
                    .split_once('+')
                    .and_then(|(pause, length)| Some((positive_seconds(pause)?, positive_seconds(length)?)));
                let (pause, length) = times.ok_or_else(|| refused(fix))?;
                shape(vec![straight(pause, base, base), straight(length, peak, peak)], true, true)
            }
            ("diurnal", None) => shape(sinus(0.5, 1.0), true, false),
            ("diurnal", Some(levels)) => {
                let fix = "write the lowest and the highest rate, such as diurnal:40k..80k";
                let levels = rates(levels, "..").ok_or_else(|| refused(fix))?;
                let [low, high] = levels[..] else { return Err(refused(fix)) };
                shape(sinus(low, high), true, true)
            }
            ("etc", None) => day(&ETC),
            ("etc-gaps", None) => {
                let rates: Vec<f64> =
                    ETC_HOURS.iter().map(|(sigma_us, k)| (1.0 - k) / sigma_us * 1e6).collect();
                shape(hold(&rates, HOUR_S), true, true)
            }
            ("microsoft", None) => day(&MICROSOFT),
            ("nlanr", None) => day(&NLANR),
            ("decay", None) => day(&DECAY),
            ("google", None) => shape(hold(&GOOGLE, HOUR_S / 4.0), true, true),
            ("carb-slow", None) => shape(Self::autoregressive(&Autoregressive::slow())?.segments, true, true),
            ("carb-fast", None) => shape(Self::autoregressive(&Autoregressive::fast())?.segments, true, true),
            ("csv", Some(path)) => shape(trace::read(Path::new(path))?, true, true),
            _ => Err(refused(
                "write constant, ramp:A..B, steps:A,B,.., burst, burst:A..B, diurnal, etc, etc-gaps, \
                 microsoft, nlanr, decay, google, carb-slow, carb-fast or csv:FILE",
            )),
        }
    }
}

/// A rate as people write it: `800`, `50k`, `1.2M`; above zero.
pub fn parse_rate(text: &str) -> Result<Rate, SpecError> {
    match rate_or_zero(text) {
        Some(rate) if rate > 0.0 => Ok(Rate::per_second(rate)),
        _ => Err(SpecError::Rate(text.to_owned())),
    }
}

fn rate_or_zero(text: &str) -> Option<f64> {
    let (number, factor) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1e3),
        b'M' | b'm' => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let rate = number.parse::<f64>().ok()? * factor;
    (rate.is_finite() && rate >= 0.0).then_some(rate)
}

fn rates(text: &str, separator: &str) -> Option<Vec<f64>> {
    text.split(separator).map(rate_or_zero).collect()
}

fn positive_seconds(text: &str) -> Option<f64> {
    let length: Duration = text.parse().ok()?;
    (!length.is_zero()).then(|| length.as_secs_f64())
}

fn straight(length_s: f64, from: f64, to: f64) -> Segment {
    Segment {
        length: Duration::from_secs_f64(length_s),
        from: Rate::per_second(from),
        to: Rate::per_second(to),
    }
}

fn hold(rates: &[f64], each_s: f64) -> Vec<Segment> {
    rates.iter().map(|rate| straight(each_s, *rate, *rate)).collect()
}

/// One day from `low` at midnight up to `high` at noon and back, in straight pieces: with 96 of
/// them the rate is within 0.1 % of the true sinus.
fn sinus(low: f64, high: f64) -> Vec<Segment> {
    let at = |n: usize| {
        let phase = n as f64 / SINUS_PIECES as f64 * std::f64::consts::TAU;
        low + (high - low) * (1.0 - phase.cos()) / 2.0
    };
    (0..SINUS_PIECES).map(|n| straight(24.0 * HOUR_S / SINUS_PIECES as f64, at(n), at(n + 1))).collect()
}

const HOUR_S: f64 = 3600.0;
const SINUS_PIECES: usize = 96;

/// The published tables are in units of this many requests per second.
const TABLE_UNIT: f64 = 512.0;
// Steps of a mutilate variant with Peafowl-style load tables (its authorship is not confirmed). No
// time is published with them; 24 values are taken as the hours of a day.
/// Facebook's ETC pool: 38 k to 74 k requests per second.
const ETC: [f64; 24] = [
    125.0, 117.18, 136.71, 126.953, 113.28, 101.56, 91.79, 74.21, 89.38, 95.70, 99.60, 82.03, 117.18, 125.0,
    134.76, 140.62, 142.57, 138.67, 144.53, 142.51, 125.0, 119.14, 115.23, 97.65,
];
/// A Microsoft storage trace (after Kavalanekar et al., IISWC 2008): 33 k to 100 k requests per
/// second.
const MICROSOFT: [f64; 24] = [
    191.4, 195.31, 175.78, 146.48, 132.81, 126.95, 121.09, 126.95, 107.42, 87.89, 78.12, 70.31, 64.45, 70.31,
    72.26, 74.21, 82.03, 89.84, 107.42, 97.65, 82.03, 80.07, 78.12, 74.21,
];
/// NLANR's trace: 73 k to 99 k requests per second; its table has 23 values.
const NLANR: [f64; 23] = [
    146.48, 144.53, 142.57, 148.43, 160.15, 171.87, 177.73, 185.54, 181.64, 175.78, 183.59, 181.64, 179.68,
    175.78, 181.64, 185.54, 193.35, 185.54, 173.82, 171.87, 169.92, 166.01, 162.10,
];
/// A staircase from 1 M down to 31 k requests per second.
const DECAY: [f64; 24] = [
    1953.0, 1855.0, 1757.0, 1660.0, 1562.0, 1464.0, 1367.0, 1269.0, 1171.0, 1171.0, 1074.0, 976.5, 878.0,
    780.0, 683.0, 683.0, 586.0, 489.0, 392.0, 295.0, 199.0, 97.65, 80.0, 60.0,
];
/// Google search as Peafowl 4.1 plays it, in requests per second; each step a quarter of an hour.
const GOOGLE: [f64; 2] = [1_000_000.0, 230_000.0];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate_at(text: &str, peak: Option<f64>, run_s: u64, compression: f64, t: f64) -> f64 {
        let shape: Shape = text.parse().unwrap();
        let peak = peak.map(Rate::per_second);
        let profile = shape.profile(peak, Duration::from_secs(run_s), compression).unwrap();
        profile.rate_at(Duration::from_secs_f64(t)).as_per_second().round()
    }

    #[test]
    fn shapes_are_what_they_say() {
        assert_eq!(rate_at("constant", Some(7e3), 10, 1.0, 9.0), 7e3);
        assert_eq!(rate_at("ramp:50k..1M", None, 10, 1.0, 5.0), 525e3);
        assert_eq!(rate_at("ramp:0..10k..0", None, 10, 1.0, 5.0), 10e3);
        assert_eq!(rate_at("steps:1k,2k,3k", None, 9, 1.0, 4.0), 2e3);
        assert_eq!(rate_at("steps:1k@2s,5k@1s", None, 9, 1.0, 5.5), 5e3);
        assert_eq!(rate_at("burst", Some(1e6), 40, 1.0, 5.0), 1e6);
        assert_eq!(rate_at("burst", Some(1e6), 40, 1.0, 25.0), 50e3);
        assert_eq!(rate_at("burst", Some(1e6), 40, 1.0, 30.1), 650e3);
        assert_eq!(rate_at("burst:50k..650k", None, 40, 1.0, 21.0), 650e3);
        assert_eq!(rate_at("burst:50k..650k", None, 40, 1.0, 31.0), 50e3);
        assert_eq!(rate_at("burst:50k..650k@10s+1s", None, 40, 1.0, 21.5), 650e3);
        assert_eq!(rate_at("diurnal", Some(80e3), 40, 3600.0, 0.0), 40e3);
        assert_eq!(rate_at("diurnal", Some(80e3), 40, 3600.0, 12.0), 80e3);
        assert_eq!(rate_at("etc", None, 24, 3600.0, 0.5), 64e3);
        assert_eq!(rate_at("etc", Some(144.53), 24, 3600.0, 7.5), 74.0);
        assert_eq!(rate_at("google", None, 60, 60.0, 14.0), 1e6);
        assert_eq!(rate_at("google", None, 60, 60.0, 16.0), 230e3);
        assert_eq!(rate_at("google", None, 60, 60.0, 31.0), 1e6);
        assert_eq!(rate_at("etc-gaps", None, 24, 3600.0, 9.5), 39_733.0);
        let burst = Autoregressive::fast().rates().unwrap()[28].as_per_second().round();
        assert_eq!(rate_at("carb-fast", None, 90, 60.0, 28.5), burst);
    }

    #[test]
    fn only_shapes_with_times_of_their_own_are_compressed() {
        let length = |text: &str| text.parse::<Shape>().unwrap().length(3600.0);
        assert_eq!(length("etc"), Some(Duration::from_secs(24)));
        assert_eq!(length("google"), Some(Duration::from_millis(500)));
        assert_eq!(length("ramp:1..2"), None);
        assert_eq!(length("constant"), None);
    }

    #[test]
    fn the_published_tables_have_the_published_ranges() {
        for (text, low, high) in
            [("etc", 38e3, 74e3), ("microsoft", 33e3, 100e3), ("nlanr", 73e3, 99e3), ("decay", 31e3, 1e6)]
        {
            let shape: Shape = text.parse().unwrap();
            let rates: Vec<f64> = shape.segments.iter().map(|segment| segment.from.as_per_second()).collect();
            let (min, max) = rates.iter().fold((f64::MAX, 0.0f64), |(lo, hi), r| (lo.min(*r), hi.max(*r)));
            assert!((min - low).abs() < 1000.0 && (max - high).abs() < 1000.0, "{text}: {min} {max}");
        }
    }

    #[test]
    fn a_trace_file_plays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("day.csv");
        std::fs::write(&path, "0,1000\n60,2000\n120,0\n").unwrap();
        let text = format!("csv:{}", path.display());
        assert_eq!(rate_at(&text, None, 10, 60.0, 1.5), 2e3);
        assert_eq!(rate_at(&text, Some(10.0), 10, 60.0, 0.5), 5.0);
        assert_eq!(rate_at(&text, None, 10, 60.0, 2.5), 0.0);
    }

    #[test]
    fn what_is_no_shape_is_refused_with_the_fix() {
        for (text, fix) in [
            ("sawtooth", "write constant, ramp"),
            ("constant:1", "write constant, ramp"),
            ("etc:5", "write constant, ramp"),
            ("ramp:5k", "two or more rates"),
            ("ramp:a..b", "two or more rates"),
            ("ramp:-1..5", "two or more rates"),
            ("steps:", "between commas"),
            ("steps:1k@", "a rate and a time"),
            ("steps:1k@0s", "a rate and a time"),
            ("steps:1k@1s,2k", "a rate and a time"),
            ("burst:1", "two rates"),
            ("burst:1..2@5", "two rates"),
            ("diurnal:1..2..3", "lowest and the highest"),
        ] {
            let message = text.parse::<Shape>().unwrap_err().to_string();
            assert!(message.contains(fix), "{text}: {message}");
        }
        let day = Duration::from_secs(1);
        let missing = Shape::constant().profile(None, day, 1.0).unwrap_err().to_string();
        assert!(missing.contains("--rate"), "{missing}");
        assert!("etc".parse::<Shape>().unwrap().profile(None, day, 0.0).is_err());
        assert!(
            "steps:0,0".parse::<Shape>().unwrap().profile(Some(Rate::per_second(1.0)), day, 1.0).is_err()
        );
    }

    #[test]
    fn rates_read_as_people_write_them() {
        for (text, rate) in [("800", 800.0), ("50k", 50e3), ("1.2M", 1.2e6), ("1e3", 1e3)] {
            assert_eq!(parse_rate(text).unwrap().as_per_second(), rate);
        }
        for text in ["", "k", "0", "-5", "5q", "nan", "inf", "1 k", "é"] {
            assert!(parse_rate(text).unwrap_err().to_string().contains("50k"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(constant|ramp|steps|burst|diurnal|etc)?:?[-0-9.kM@+,smé]{0,20}") {
            if let Ok(shape) = text.parse::<Shape>() {
                let _ = shape.profile(Some(Rate::per_second(10.0)), Duration::from_secs(1), 1.0);
            }
        }

        #[test]
        fn the_peak_is_the_peak_that_was_asked(peak in 1.0..1e7f64, name in 0usize..6) {
            let text = ["constant", "burst", "diurnal", "etc", "microsoft", "google"][name];
            let shape: Shape = text.parse().unwrap();
            let profile = shape.profile(Some(Rate::per_second(peak)), Duration::from_secs(10), 100.0).unwrap();
            prop_assert!((profile.peak().as_per_second() / peak - 1.0).abs() < 1e-9);
        }
    }
}
