//! Which connection carries which request.
//!
//! A server like Peafowl's schedules connections, not requests, so a workload says how its requests
//! fall on them: how many there are, how unequal their rates, and whether each sends all the time
//! or in bursts. The connection of a request is a pure function of the seed, the request's number
//! and its time, as everything else about a request is.
//!
//! Bursts leave the whole as it was. Time is cut into windows. A connection is on in a window or
//! off, by a coin of its own, so that it stays on for 1 / (1 - on) windows in the mean. A request
//! falls only on connections that are on at its time, in proportion to their rates. So arrivals
//! follow their profile exactly while each connection starts and stops.

use crate::alias::Alias;
use crate::either::{Either, either};
use crate::random::{GAMMA, mix};
use crate::{Popularity, SpecError};
use machine::{Duration, Ratio};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;

/// How requests are spread over connections. In a scenario a plain number is so many alike.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Connections {
    pub count: u32,
    /// How unequal their rates: connection 0 the busiest.
    #[serde(serialize_with = "as_text")]
    pub spread: Popularity,
    /// Share of the time in which a connection sends at all.
    pub on: Ratio,
    /// How long it stays on or off before the coin is thrown again.
    #[serde(with = "machine::duration_text")]
    pub window: Duration,
}

impl Default for Connections {
    fn default() -> Self {
        Self { count: 1, spread: Popularity::Uniform, on: Ratio::ONE, window: Duration::from_millis(100) }
    }
}

fn as_text<S: serde::Serializer>(spread: &Popularity, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(spread)
}

impl<'de> Deserialize<'de> for Connections {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            count: u32,
            spread: Option<String>,
            on: Option<f64>,
            #[serde(default = "never", with = "machine::duration_text::optional")]
            window: Option<Duration>,
        }
        fn never() -> Option<Duration> {
            None
        }
        let default = Self::default();
        let expected = "a number of connections, or a table such as { count = 512, spread = \"zipf:0.9\" }";
        let read = match either(deserializer, expected)? {
            Either::Plain(count) => Self { count: i64::clamp(count, 0, u32::MAX.into()) as u32, ..default },
            Either::Table(Table { count, spread, on, window }) => {
                let spread = spread.map_or(Ok(default.spread), |text| text.parse());
                let on = on.unwrap_or(1.0);
                Self {
                    count,
                    spread: spread.map_err(D::Error::custom)?,
                    // Out of range is told below, not bent.
                    on: if (0.0..=1.0).contains(&on) { Ratio::new(on) } else { Ratio::ZERO },
                    window: window.unwrap_or(default.window),
                }
            }
        };
        read.check().map_err(D::Error::custom)?;
        Ok(read)
    }
}

impl Connections {
    /// Fails if a figure is out of range; says which.
    pub fn check(&self) -> Result<(), SpecError> {
        let wrong = |key: &str, fix: &'static str| {
            let problem = "is out of range".to_owned();
            Err(SpecError::Key { key: format!("connections.{key}"), problem, fix })
        };
        if !(1..=COUNT_MAX).contains(&self.count) {
            return wrong("count", "write a whole number from 1 to 1000000");
        }
        if self.on == Ratio::ZERO || !(0.0..=1.0).contains(&self.on.as_f64()) {
            return wrong("on", "write a share of the time above 0 and up to 1, such as 0.25");
        }
        if self.window.is_zero() {
            return wrong("window", "write a time above zero, such as \"100ms\"");
        }
        Ok(())
    }
}

/// The connections of one seed, ready to be asked.
#[derive(Clone, Debug)]
pub(crate) struct Carrier {
    count: u32,
    /// Where random bits for request numbers begin.
    salt: u64,
    /// Chooses by rate; none if all are alike.
    rates: Option<Arc<Alias>>,
    /// Chance of being on in 2^-64, and the window in ns; none if always on.
    bursts: Option<(u64, u64)>,
}

impl Carrier {
    pub fn new(connections: &Connections, seed: u64) -> Result<Self, SpecError> {
        connections.check()?;
        let count = connections.count;
        let rates = match connections.spread {
            Popularity::Uniform => None,
            Popularity::Zipf(exponent) => {
                let rates: Vec<f64> = (1..=count).map(|rank| f64::from(rank).powf(-exponent)).collect();
                Some(Arc::new(Alias::new(&rates)))
            }
        };
        let on = connections.on.as_f64();
        let bursts = (on < 1.0).then(|| ((on * 2f64.powi(64)) as u64, connections.window.as_nanos()));
        Ok(Self { count, salt: salt(seed), rates, bursts })
    }

    /// The same connections under another seed.
    pub fn with_seed(&self, seed: u64) -> Self {
        Self { salt: salt(seed), ..self.clone() }
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// Which connection carries request number `index`, due at `at`.
    #[inline]
    pub fn connection(&self, index: u64, at: Duration) -> u32 {
        let mut bits = mix(index ^ self.salt);
        for _ in 0..ATTEMPTS {
            let candidate = self.candidate(bits);
            if self.bursts.is_none_or(|bursts| self.is_on(candidate, at, bursts)) {
                return candidate;
            }
            bits = mix(bits.wrapping_add(GAMMA));
        }
        self.candidate(bits)
    }

    #[inline]
    fn candidate(&self, bits: u64) -> u32 {
        match &self.rates {
            None => spread_evenly(bits, self.count),
            Some(rates) => rates.place(bits) as u32,
        }
    }

    fn is_on(&self, connection: u32, at: Duration, (chance, window_ns): (u64, u64)) -> bool {
        let own = mix(self.salt ^ mix(u64::from(connection) ^ BURST_SALT));
        // Windows of different connections begin at different times.
        let window = (at.as_nanos() + own % window_ns) / window_ns;
        mix(own.wrapping_add(window.wrapping_mul(GAMMA))) < chance
    }
}

/// The connection of request `index` among `count` alike.
pub(crate) fn evenly(index: u64, seed: u64, count: u32) -> u32 {
    spread_evenly(mix(index ^ salt(seed)), count)
}

fn spread_evenly(bits: u64, count: u32) -> u32 {
    ((u128::from(bits) * u128::from(count)) >> 64) as u32
}

fn salt(seed: u64) -> u64 {
    mix(seed ^ CONNECTION_SALT)
}

const COUNT_MAX: u32 = 1_000_000;
/// With all connections off at once, which few connections and a small share make possible, a
/// request goes to any connection after so many tries.
const ATTEMPTS: u32 = 64;
const CONNECTION_SALT: u64 = 0x7b46_e2d9_18ac_5f03;
const BURST_SALT: u64 = 0xe83f_5a07_c1d2_946b;

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(connections: &Connections, requests: u64, gap: Duration) -> Vec<u32> {
        let carrier = Carrier::new(connections, 5).unwrap();
        let mut seen = vec![0; connections.count as usize];
        for index in 0..requests {
            seen[carrier.connection(index, gap * index) as usize] += 1;
        }
        seen
    }

    #[test]
    fn a_zipf_spread_has_zipfs_rates() {
        let connections = Connections { count: 20, spread: Popularity::Zipf(1.0), ..Connections::default() };
        let seen = counts(&connections, 200_000, Duration::from_micros(10));
        let whole: f64 = (1..=20).map(|rank| 1.0 / f64::from(rank)).sum();
        for (place, count) in seen.iter().enumerate() {
            let expected = 200_000.0 / whole / (place + 1) as f64;
            assert!(
                (f64::from(*count) - expected).abs() < 5.0 * expected.sqrt(),
                "{place}: {count} for {expected}"
            );
        }
    }

    #[test]
    fn bursts_keep_the_rates_and_fall_into_windows() {
        let window = Duration::from_millis(10);
        let bursty = Connections { count: 64, on: Ratio::new(0.25), window, ..Connections::default() };
        let carrier = Carrier::new(&bursty, 5).unwrap();
        let gap = Duration::from_micros(10);
        // Of 8000 windows each connection is on in a quarter.
        let seen = counts(&bursty, 8_000_000, gap);
        assert!(seen.iter().all(|count| (f64::from(*count) / 125_000.0 - 1.0).abs() < 0.15), "{seen:?}");
        // In one window about a quarter of the connections send; evenly spread all would.
        let sending = (0..1000u64).map(|n| carrier.connection(n, gap * n));
        let sending = sending.collect::<std::collections::BTreeSet<u32>>().len();
        assert!((16..40).contains(&sending), "{sending}");
    }

    #[test]
    fn if_everybody_is_off_somebody_sends_all_the_same() {
        let lonely = Connections { count: 1, on: Ratio::new(0.01), ..Connections::default() };
        assert_eq!(counts(&lonely, 1000, Duration::from_millis(1)), [1000]);
    }

    #[test]
    fn alike_connections_are_those_of_the_load_generator() {
        let carrier = Carrier::new(&Connections { count: 512, ..Connections::default() }, 9).unwrap();
        for index in 0..1000 {
            assert_eq!(carrier.connection(index, Duration::ZERO), evenly(index, 9, 512));
        }
    }

    #[test]
    fn connections_are_read_as_a_number_or_a_table() {
        #[derive(Debug, Deserialize, Serialize)]
        struct Line {
            connections: Connections,
        }
        let read = |text: &str| toml::from_str::<Line>(text).map(|line| line.connections);
        assert_eq!(read("connections = 512").unwrap(), Connections { count: 512, ..Connections::default() });
        let table = r#"connections = { count = 8, spread = "zipf:0.9", on = 0.25, window = "20ms" }"#;
        let expected = Connections {
            count: 8,
            spread: Popularity::Zipf(0.9),
            on: Ratio::new(0.25),
            window: Duration::from_millis(20),
        };
        assert_eq!(read(table).unwrap(), expected);
        let written = toml::to_string(&Line { connections: expected.clone() }).unwrap();
        assert_eq!(read(&written).unwrap(), expected);
        for (text, fix) in [
            ("connections = 0", "from 1 to 1000000"),
            ("connections = -5", "from 1 to 1000000"),
            ("connections = { count = 5000000 }", "from 1 to 1000000"),
            ("connections = { count = 5, on = 0 }", "above 0 and up to 1"),
            ("connections = { count = 5, on = 1.5 }", "above 0 and up to 1"),
            ("connections = { count = 5, on = nan }", "above 0 and up to 1"),
            ("connections = { count = 5, window = \"0s\" }", "100ms"),
            ("connections = { count = 5, spread = \"pareto\" }", "zipf:0.99"),
            ("connections = { count = 5, skew = 1 }", "unknown field `skew`"),
            ("connections = \"many\"", "a number of connections"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(fix), "{text}: {message}");
        }
    }
}
