//! Whether a measured A/B run of the two extremes stays within the prediction. For `--verify`; the
//! measuring is done elsewhere.
//!
//! The prediction is a bound, so it is wrong only if *more* moved. A tail that is shorter, or power
//! that is higher, under deep sleep is within it. It is reported all the same, because then another
//! thing moved as well: the clock with fewer cores awake, or a service that minds cheap sleep. (The
//! paper's search2 did so, section III C, and busy-spin threads were suspected.)

use machine::{Duration, Microwatts};
use serde::Serialize;
use std::fmt;

/// The most that may move from one extreme to the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The tail, upwards with deep sleep.
    #[serde(rename = "tail_ns")]
    pub tail: Option<Duration>,
    #[serde(rename = "power_uw")]
    pub power: Option<Microwatts>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    pub p99: Duration,
    /// How far it may be off to either side, from repeated runs.
    pub p99_half_width: Duration,
    /// Mean power and how far it may be off, where there is a meter.
    pub power: Option<(Microwatts, Microwatts)>,
}

/// How the run compares with the prediction. `None` where nothing was predicted or measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub tail: Option<Held>,
    pub power: Option<Held>,
}

/// The fate of a bound. Numbers are in the unit of the bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// The change is no larger, or not surely so.
    Within {
        changed: f64,
        bound: f64,
    },
    /// It changed the other way, and surely so.
    Opposite {
        changed: f64,
    },
    Beyond {
        changed: f64,
        bound: f64,
    },
}

impl Comparison {
    /// True unless something moved by more than it may.
    pub fn is_within(&self) -> bool {
        ![self.tail, self.power].iter().flatten().any(|held| matches!(held, Held::Beyond { .. }))
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |value: f64| format!("{:.1} us", value / 1e3);
        let watts = |value: f64| format!("{:.2} W", value / 1e6);
        sentence(f, "Tail under deep sleep: longer", "shorter", self.tail, &us)?;
        f.write_str(" ")?;
        sentence(f, "Power under deep sleep: less", "more", self.power, &watts)
    }
}

fn sentence(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    other_way: &str,
    held: Option<Held>,
    text: &dyn Fn(f64) -> String,
) -> fmt::Result {
    match held {
        None => write!(f, "{what}, or not, is not known."),
        Some(Held::Within { changed, bound }) => {
            write!(f, "{what} by {}, within the {} predicted at most.", text(changed), text(bound))
        }
        Some(Held::Opposite { changed }) => {
            write!(
                f,
                "{what} is what was predicted, and it is {other_way} by {}: something else moved too.",
                text(-changed)
            )
        }
        Some(Held::Beyond { changed, bound }) => {
            write!(f, "{what} by {}, BEYOND the {} predicted at most.", text(changed), text(bound))
        }
    }
}

/// Holds a run against the prediction.
pub fn compare(predicted: &Change, shallow: &Side, deep: &Side) -> Comparison {
    let nanos = |length: Duration| length.as_nanos() as f64;
    let tail = predicted.tail.map(|bound| {
        let changed = nanos(deep.p99) - nanos(shallow.p99);
        held(changed, together(nanos(deep.p99_half_width), nanos(shallow.p99_half_width)), nanos(bound))
    });
    let power = predicted.power.zip(shallow.power).zip(deep.power).map(|((bound, shallow), deep)| {
        let micros = |power: Microwatts| power.0 as f64;
        held(micros(shallow.0) - micros(deep.0), together(micros(shallow.1), micros(deep.1)), micros(bound))
    });
    Comparison { tail, power }
}

/// Half-widths of independent measurements add as squares.
fn together(one: f64, other: f64) -> f64 {
    one.hypot(other)
}

fn held(changed: f64, half_width: f64, bound: f64) -> Held {
    if changed - half_width > bound {
        Held::Beyond { changed, bound }
    } else if changed + half_width < 0.0 {
        Held::Opposite { changed }
    } else {
        Held::Within { changed, bound }
    }
}
