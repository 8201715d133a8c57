//! When requests arrive.
//!
//! Gaps are drawn with mean one on the clock of event counts and carried to time by the profile's inverse
//! integral, so every kind of arrivals follows every load shape exactly in the mean.

use crate::{Profile, Random, SpecError};
use machine::Duration;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How arrivals are spread around their rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrivalKind {
    /// Independent of each other: exponential gaps.
    Poisson,
    /// Generalized Pareto gaps with ETC's shape parameter 0.154971 (Atikoglu et al., SIGMETRICS 2012), burstier
    /// than Poisson: the coefficient of variation is 1.2.
    Gpareto,
    /// Evenly spaced: every gap the same.
    Uniform,
}

impl ArrivalKind {
    /// One gap, of mean one.
    fn gap(self, random: &mut Random) -> f64 {
        match self {
            Self::Poisson => -(1.0 - random.unit()).ln(),
            Self::Gpareto => (1.0 - GPARETO_K) / GPARETO_K * ((1.0 - random.unit()).powf(-GPARETO_K) - 1.0),
            Self::Uniform => 1.0,
        }
    }
}

impl FromStr for ArrivalKind {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "poisson" => Ok(Self::Poisson),
            "gpareto" => Ok(Self::Gpareto),
            "uniform" => Ok(Self::Uniform),
            _ => Err(SpecError::Arrivals(text.to_owned())),
        }
    }
}

impl fmt::Display for ArrivalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Poisson => "poisson",
            Self::Gpareto => "gpareto",
            Self::Uniform => "uniform",
        })
    }
}

/// One arrival: request number `index` is due `at` this long after the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Number of the request, from 0.
    pub index: u64,
    /// When it is due.
    pub at: Duration,
}

/// An endless stream of arrivals in order of time.
#[derive(Clone, Debug)]
pub struct Arrivals {
    kind: ArrivalKind,
    profile: Profile,
    random: Random,
    next_index: u64,
    events: f64,
    piece: usize,
}

impl Arrivals {
    /// Arrivals along `profile`; the same for the same seed.
    pub fn new(kind: ArrivalKind, profile: Profile, seed: u64) -> Self {
        Self { kind, profile, random: Random::new(seed ^ GAP_SALT, 0), next_index: 0, events: 0.0, piece: 0 }
    }

    /// The rate that they follow.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        self.events += self.kind.gap(&mut self.random);
        let index = self.next_index;
        self.next_index += 1;
        Some(Arrival { index, at: self.profile.time_of_near(self.events, &mut self.piece) })
    }
}

/// ETC's shape parameter of the gaps.
const GPARETO_K: f64 = 0.154971;
const GAP_SALT: u64 = 0xa6d3_79c1_4e08_bf25;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Segment;
    use machine::Rate;
    use proptest::prelude::*;

    const KINDS: [ArrivalKind; 3] = [ArrivalKind::Poisson, ArrivalKind::Gpareto, ArrivalKind::Uniform];

    #[test]
    fn gaps_have_mean_one_and_the_spread_of_their_kind() {
        for (kind, deviation) in [
            (ArrivalKind::Poisson, 1.0),
            (ArrivalKind::Gpareto, (1.0 / (1.0 - 2.0 * GPARETO_K)).sqrt()),
            (ArrivalKind::Uniform, 0.0),
        ] {
            let mut random = Random::new(11, 0);
            let gaps: Vec<f64> = (0..400_000).map(|_| kind.gap(&mut random)).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            assert!((mean - 1.0).abs() < 0.01, "{kind}: mean {mean}");
            assert!((variance.sqrt() - deviation).abs() < 0.03, "{kind}: deviation {}", variance.sqrt());
        }
    }

    #[test]
    fn arrivals_follow_a_changing_rate() {
        let segment = |from: f64, to: f64| Segment {
            length: Duration::from_secs(10),
            from: Rate::per_second(from),
            to: Rate::per_second(to),
        };
        let profile = Profile::new(&[segment(1000.0, 9000.0), segment(2000.0, 2000.0)]).unwrap();
        for kind in KINDS {
            let mut counts = [0u32; 4];
            for arrival in Arrivals::new(kind, profile.clone(), 3) {
                match counts.get_mut((arrival.at.as_nanos() / 5_000_000_000) as usize) {
                    Some(count) => *count += 1,
                    None => break,
                }
            }
            for (count, expected) in counts.iter().zip([15_000.0, 35_000.0, 10_000.0, 10_000.0]) {
                assert!((f64::from(*count) / expected - 1.0).abs() < 0.06, "{kind}: {counts:?}");
            }
        }
    }

    #[test]
    fn the_first_arrivals_of_a_seed_are_fixed() {
        // Recorded when written: a change breaks every recorded run.
        let profile = Profile::constant(Rate::per_second(1000.0)).unwrap();
        let first: Vec<u64> = Arrivals::new(ArrivalKind::Poisson, profile, 1)
            .take(4)
            .map(|arrival| arrival.at.as_micros())
            .collect();
        assert_eq!(first, FIRST_OF_SEED_ONE_US);
    }

    const FIRST_OF_SEED_ONE_US: [u64; 4] = [785, 1492, 4011, 4209];

    proptest! {
        #[test]
        fn arrivals_are_ordered_numbered_and_repeatable(seed: u64, rate in 0.1..1e7f64, kind in 0usize..3) {
            let profile = Profile::constant(Rate::per_second(rate)).unwrap();
            let one: Vec<Arrival> = Arrivals::new(KINDS[kind], profile.clone(), seed).take(100).collect();
            let other: Vec<Arrival> = Arrivals::new(KINDS[kind], profile, seed).take(100).collect();
            prop_assert_eq!(&one, &other);
            prop_assert!(one.windows(2).all(|w| w[0].at <= w[1].at && w[0].index + 1 == w[1].index));
        }
    }
}
