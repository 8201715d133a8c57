//! A finished block, and the pairs that may be compared.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The treatment of a block, as files and pages write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Treatment {
    Governed,
    Ungoverned,
}

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Governed => "governed",
            Self::Ungoverned => "ungoverned",
        })
    }
}

/// A block, as a line of `blocks.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// The block's place in the run, from 1.
    pub number: u32,
    /// From 1; two blocks have the same.
    pub pair: u32,
    pub treatment: Treatment,
    /// Seconds from the beginning of the run to that of the block.
    pub began_s: f64,
    /// The part that counts, after the settling time.
    pub measured_s: f64,
    /// Answered requests per second in that part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// The figures, by name; one that could not be measured is not here.
    pub figures: BTreeMap<String, f64>,
    /// Why a figure that was asked for is not there, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, String>,
    /// Whether the tail was over the goal, where both are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_goal: Option<bool>,
    /// Why the block does not count, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
}

/// A figure that blocks are compared by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Mean power by this meter, in watts.
    Watts(String),
    /// Energy per request by this meter.
    JoulesPerRequest(String),
    /// The response time at the goal's percentile, in nanoseconds.
    Tail,
    /// The same as its clients see it.
    ClientTail,
    /// CPUs busy, in the mean, with any work of the machine.
    BusyCpus,
    /// CPU time of the machine per request, in seconds.
    CpuPerRequest,
    /// CPUs not in an idle state that halts, in the mean.
    AwakeCpus,
    /// Cores that the service may run on, in the mean.
    Cores,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Watts(meter) => write!(f, "watts {meter}"),
            Self::JoulesPerRequest(meter) => write!(f, "joules_per_request {meter}"),
            Self::Tail => f.write_str("tail_ns"),
            Self::ClientTail => f.write_str("client_tail_ns"),
            Self::BusyCpus => f.write_str("busy_cpus"),
            Self::CpuPerRequest => f.write_str("cpu_s_per_request"),
            Self::AwakeCpus => f.write_str("awake_cpus"),
            Self::Cores => f.write_str("cores"),
        }
    }
}

impl FromStr for Figure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((of, meter)) = text.split_once(' ') {
            return match of {
                "watts" => Ok(Self::Watts(meter.to_owned())),
                "joules_per_request" => Ok(Self::JoulesPerRequest(meter.to_owned())),
                _ => Err(format!("`{text}` is no figure of a block")),
            };
        }
        let plain =
            [Self::Tail, Self::ClientTail, Self::BusyCpus, Self::CpuPerRequest, Self::AwakeCpus, Self::Cores];
        let found = plain.into_iter().find(|figure| figure.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is no figure of a block"))
    }
}

/// Blocks have like load if the higher rate is at most this share above the lower one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LikeLoad(pub f64);

impl LikeLoad {
    fn holds(self, one: f64, other: f64) -> bool {
        one.max(other) <= one.min(other) * (1.0 + self.0)
    }
}

/// The pairs of a run that count, and how many do not.
#[derive(Clone, Debug, Default)]
pub struct Pairs<'a> {
    /// The governed block, then the ungoverned one.
    pub like: Vec<(&'a Block, &'a Block)>,
    /// Pairs whose rates differ by more than the rule allows.
    pub unlike: u32,
    /// Pairs with a block that does not count.
    pub void: u32,
}

impl<'a> Pairs<'a> {
    /// Of all whole pairs; half a pair is none.
    pub fn of(blocks: &'a [Block], rule: LikeLoad) -> Self {
        let mut pairs = Self::default();
        let mut by_pair: BTreeMap<u32, Vec<&Block>> = BTreeMap::new();
        for block in blocks {
            by_pair.entry(block.pair).or_default().push(block);
        }
        for both in by_pair.values() {
            let of = |treatment| both.iter().find(|block| block.treatment == treatment);
            let (Some(&governed), Some(&ungoverned)) = (of(Treatment::Governed), of(Treatment::Ungoverned))
            else {
                continue;
            };
            let known = |block: &Block| block.rate_per_s.filter(|_| block.void.is_none());
            match known(governed).zip(known(ungoverned)) {
                None => pairs.void += 1,
                Some((one, other)) if rule.holds(one, other) => pairs.like.push((governed, ungoverned)),
                Some(_) => pairs.unlike += 1,
            }
        }
        pairs
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn block(pair: u32, treatment: Treatment, rate: f64, watts: f64) -> Block {
        Block {
            number: 2 * pair + u32::from(treatment == Treatment::Governed) - 1,
            pair,
            treatment,
            began_s: 0.0,
            measured_s: 40.0,
            rate_per_s: Some(rate),
            figures: [(Figure::Watts("m".to_owned()).to_string(), watts)].into(),
            missing: BTreeMap::new(),
            missed_goal: Some(false),
            void: None,
        }
    }

    #[test]
    fn pairs_of_unlike_load_and_void_blocks_are_counted_and_not_compared() {
        use Treatment::{Governed, Ungoverned};
        let mut blocks = vec![
            block(1, Governed, 100.0, 9.0),
            block(1, Ungoverned, 110.0, 10.0),
            block(2, Governed, 100.0, 9.0),
            block(2, Ungoverned, 111.0, 10.0),
            block(3, Ungoverned, 100.0, 10.0),
            block(3, Governed, 100.0, 9.0),
            block(4, Governed, 100.0, 9.0),
        ];
        blocks[5].void = Some("no request".to_owned());
        let pairs = Pairs::of(&blocks, LikeLoad(0.1));
        assert_eq!((pairs.like.len(), pairs.unlike, pairs.void), (1, 1, 1));
    }

    #[test]
    fn a_figure_is_written_as_it_is_read() {
        for text in ["watts RAPL package-0 + dram-0", "joules_per_request m", "tail_ns", "cores"] {
            assert_eq!(text.parse::<Figure>().unwrap().to_string(), text);
        }
        assert!("volts m".parse::<Figure>().is_err() && "speed".parse::<Figure>().is_err());
    }
}
