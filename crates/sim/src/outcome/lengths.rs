//! How long the CPUs were idle, and how long they were not.

use crate::engine::IdleLengths;
use serde::{Deserialize, Serialize};

/// Lengths of periods, in buckets that double.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    /// Lower end of each bucket, in ns.
    pub from_ns: Vec<u64>,
    /// Number of such periods per second.
    pub per_s: Vec<f64>,
    /// Share of all CPU time that was spent in periods of this length.
    pub time_share: Vec<f64>,
}

/// Buckets from 2^9 ns, half a microsecond, on; shorter periods are counted there.
pub(super) fn lengths(lengths: &IdleLengths, length_s: f64, cpu_time_ns: f64) -> Lengths {
    const FIRST: usize = 9;
    let last = lengths.counts.iter().rposition(|&count| count > 0).unwrap_or(FIRST).max(FIRST);
    let fold = |values: &[u64; 64]| -> Vec<u64> {
        let shorter: u64 = values[..FIRST].iter().sum();
        let mut folded = values[FIRST..=last].to_vec();
        folded[0] += shorter;
        folded
    };
    Lengths {
        from_ns: (FIRST..=last).map(|bucket| 1 << bucket).collect(),
        per_s: fold(&lengths.counts).iter().map(|&count| count as f64 / length_s).collect(),
        time_share: fold(&lengths.time_ns).iter().map(|&ns| ns as f64 / cpu_time_ns).collect(),
    }
}
