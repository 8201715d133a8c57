//! How long keys and values are.
//!
//! ETC and USR are two of Facebook's memcached pools (Atikoglu et al., "Workload analysis of a
//! large-scale key-value store", SIGMETRICS 2012, section 5). ETC: key sizes follow a generalized
//! extreme value distribution; values of up to 14 bytes have the probabilities of a table, longer
//! ones follow a generalized Pareto from 15 on. USR: keys of 16 or 21 bytes and values of 2.
//!
//! A size belongs to a key, not to a request: asking twice gives the same, so the bytes that a key
//! space occupies do not depend on how it is used.

use crate::{Random, SpecError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySize {
    /// All alike, in bytes.
    Fixed(u16),
    Etc,
    /// As in USR: 16 or 21 bytes. The paper gives no split; we take halves.
    Usr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueSize {
    /// All alike, in bytes.
    Fixed(u32),
    Etc,
    /// As in USR: 2 bytes.
    Usr,
}

impl KeySize {
    /// Longest key of the memcached protocol, in bytes.
    pub const MAX: usize = 250;

    /// Bytes of one key, from 1 to 250; `random` is the key's own stream.
    pub(crate) fn draw(self, random: &mut Random) -> usize {
        match self {
            Self::Fixed(bytes) => usize::from(bytes),
            Self::Etc => {
                let u = random.unit().max(f64::MIN_POSITIVE);
                let size = ETC_KEY_MU
                    + ETC_KEY_SIGMA / ETC_KEY_K * ((-u.ln()).max(f64::MIN_POSITIVE).powf(-ETC_KEY_K) - 1.0);
                (size.round().max(1.0) as usize).min(Self::MAX)
            }
            Self::Usr => 16 + 5 * (random.below(2) as usize),
        }
    }
}

impl ValueSize {
    /// Longest value that a memcached can be configured to take (`-I 128m`), in bytes.
    pub const MAX: usize = 128 << 20;

    /// Bytes of one value; `random` is the key's own stream.
    pub(crate) fn draw(self, random: &mut Random) -> usize {
        match self {
            Self::Fixed(bytes) => bytes as usize,
            Self::Etc => {
                let mut u = random.unit();
                for (bytes, probability) in ETC_SMALL_VALUES.iter().enumerate() {
                    if u < *probability {
                        return bytes;
                    }
                    u -= probability;
                }
                let tail = ETC_VALUE_SIGMA / ETC_VALUE_K
                    * ((1.0 - random.unit()).max(f64::MIN_POSITIVE).powf(-ETC_VALUE_K) - 1.0);
                (15.0 + tail).min(ETC_VALUE_MAX) as usize
            }
            Self::Usr => 2,
        }
    }
}

impl FromStr for KeySize {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "etc" => Ok(Self::Etc),
            "usr" => Ok(Self::Usr),
            _ => match text.parse::<u16>() {
                Ok(bytes) if (1..=Self::MAX).contains(&usize::from(bytes)) => Ok(Self::Fixed(bytes)),
                _ => Err(SpecError::KeySize(text.to_owned())),
            },
        }
    }
}

impl FromStr for ValueSize {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "etc" => Ok(Self::Etc),
            "usr" => Ok(Self::Usr),
            _ => match text.parse::<u32>() {
                Ok(bytes) if bytes as usize <= Self::MAX => Ok(Self::Fixed(bytes)),
                _ => Err(SpecError::ValueSize(text.to_owned())),
            },
        }
    }
}

impl fmt::Display for KeySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{bytes}"),
            Self::Etc => f.write_str("etc"),
            Self::Usr => f.write_str("usr"),
        }
    }
}

impl fmt::Display for ValueSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{bytes}"),
            Self::Etc => f.write_str("etc"),
            Self::Usr => f.write_str("usr"),
        }
    }
}

// ETC's constants as the mutilate load generator ships them, after Atikoglu et al. 2012, section 5.
const ETC_KEY_MU: f64 = 30.7984;
const ETC_KEY_SIGMA: f64 = 8.20449;
const ETC_KEY_K: f64 = 0.078688;
const ETC_VALUE_SIGMA: f64 = 214.476;
const ETC_VALUE_K: f64 = 0.348238;
/// Longer ones are cut: memcached's own limit, which the published generator uses too, in bytes.
const ETC_VALUE_MAX: f64 = 1e6;
/// Probability of each value size from 0 to 14 bytes.
const ETC_SMALL_VALUES: [f64; 15] = [
    0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837, 0.00837,
    0.08989, 0.00092, 0.00326, 0.01980,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(draws: impl Iterator<Item = usize>) -> f64 {
        let (count, sum) = draws.fold((0u32, 0usize), |(count, sum), size| (count + 1, sum + size));
        sum as f64 / f64::from(count)
    }

    #[test]
    fn etc_keys_have_the_mean_of_their_distribution() {
        // mu + sigma (Gamma(1 - k) - 1) / k with Gamma(1 - 0.078688) = 1.05191.
        let expected = 30.7984 + 8.20449 * (1.05191 - 1.0) / 0.078688;
        let measured = mean((0..200_000).map(|n| KeySize::Etc.draw(&mut Random::new(5, n))));
        assert!((measured - expected).abs() < 0.3, "{measured} for {expected}");
    }

    #[test]
    fn etc_values_have_the_mean_of_their_distribution() {
        let small: f64 = ETC_SMALL_VALUES.iter().enumerate().map(|(size, p)| size as f64 * p).sum();
        let share: f64 = 1.0 - ETC_SMALL_VALUES.iter().sum::<f64>();
        let expected = small + share * (15.0 + ETC_VALUE_SIGMA / (1.0 - ETC_VALUE_K) - 0.5);
        let measured = mean((0..400_000).map(|n| ValueSize::Etc.draw(&mut Random::new(5, n))));
        assert!((measured / expected - 1.0).abs() < 0.02, "{measured} for {expected}");
        let twos = (0..100_000).filter(|n| ValueSize::Etc.draw(&mut Random::new(9, *n)) == 2).count();
        assert!((twos as f64 / 1e5 - 0.17820).abs() < 0.005, "{twos}");
    }

    #[test]
    fn sizes_stay_within_the_protocol() {
        for n in 0..300_000 {
            let key = KeySize::Etc.draw(&mut Random::new(1, n));
            assert!((1..=250).contains(&key));
            assert!([16, 21].contains(&KeySize::Usr.draw(&mut Random::new(1, n))));
            assert!(ValueSize::Etc.draw(&mut Random::new(1, n)) <= 1_000_000);
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_the_fix() {
        for text in ["0", "251", "-1", "", "big", "1e3"] {
            assert!(text.parse::<KeySize>().unwrap_err().to_string().contains("1 to 250"), "{text}");
        }
        for text in ["134217729", "-1", "", "1k"] {
            assert!(text.parse::<ValueSize>().unwrap_err().to_string().contains("number of bytes"), "{text}");
        }
        assert_eq!("0".parse::<ValueSize>().unwrap(), ValueSize::Fixed(0));
    }
}
