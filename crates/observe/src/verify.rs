//! The verdict put to the test on this machine: requests and power with the CPUs' sleep as shallow
//! as it goes, and as deep as the kernel likes, in turns.
//!
//! The tail and the power that a choice of idle states can move were *predicted* from the CPUs'
//! behaviour when left alone. Here they are moved: block by block the idle states of all CPUs are
//! limited to the shallowest that halts, and freed again, under the service's own load; the first
//! of a pair alternates, so that a drift of the load favours neither.
//! [`compare`](crate::verdict::compare) judges whether the change stays within the prediction.
//!
//! Invariants:
//! - Limits go through `linux::IdleControl`: journalled first, in force only inside of a shallow
//!   block, put back on every way out.
//! - A machine without a choice of states, or CPUs that another run holds, is an error before
//!   anything is changed.

use crate::requests::{RequestWatch, percentile};
use crate::verdict::Side;
use linux::{EnergyMeter, IdleControl, IdleOptions, LimitState, Root};
use machine::{CpuList, Duration, EnergySource, IdleLimit, Microwatts};
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Pairs of a shallow and a deep block.
    pub pairs: u32,
    pub length: Duration,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum VerifyError {
    #[error("there is no choice of idle states to put to the test: {0}")]
    NoChoice(String),
    /// Another run has limits of its own.
    #[error("{0}")]
    Held(String),
    #[error("in {0} of the blocks no request was answered\nhint: give the service its load meanwhile")]
    NoRequests(u32),
    /// The run was told to stop.
    #[error("stopped before both sides were measured; idle limits are as they were")]
    Stopped,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Sleep as shallow as it goes.
    pub shallow: Side,
    /// Sleep as deep as the kernel likes.
    pub deep: Side,
    /// Where power is from; modelled power is no proof of anything and left out of the sides.
    pub power: EnergySource,
}

/// Runs the blocks. `told` hears of each that begins.
pub fn verify(
    root: &Root,
    cpus: &CpuList,
    requests: &mut RequestWatch,
    blocks: Blocks,
    stop: &AtomicBool,
    mut told: impl FnMut(u32, &'static str),
) -> Result<Measured, VerifyError> {
    let mut control = IdleControl::open(root, cpus, IdleOptions::new("roost observe --verify"))
        .map_err(|held| VerifyError::Held(held.to_string()))?;
    let has_choice =
        cpus.0.iter().any(|&cpu| control.table(cpu).is_some_and(machine::CstateTable::has_depth));
    if !has_choice {
        let why = "no CPU has two states that halt".to_owned();
        return Err(VerifyError::NoChoice(why));
    }
    let mut energy = EnergyMeter::open(root, cpus, linux::now());
    let (mut shallow, mut deep) = (Samples::default(), Samples::default());
    for pair in 0..blocks.pairs {
        let order = if pair.is_multiple_of(2) { [true, false] } else { [false, true] };
        for is_shallow in order {
            told(pair, if is_shallow { "shallow" } else { "deep" });
            for &cpu in &cpus.0 {
                let limit = if is_shallow { control.active_limit(cpu) } else { IdleLimit::None };
                if let LimitState::Refused { reason } = control.apply(cpu, limit) {
                    return Err(VerifyError::NoChoice(reason));
                }
            }
            pause(SETTLE, stop)?;
            requests.read(linux::now());
            let before = (linux::now(), energy.read(linux::now()));
            pause(blocks.length, stop)?;
            let seen = requests.read(linux::now());
            let after = (linux::now(), energy.read(linux::now()));
            let side = if is_shallow { &mut shallow } else { &mut deep };
            let p99 = seen.response.as_ref().and_then(|times| percentile(times, 99.0));
            side.p99_ns.extend(p99.map(|p99| p99.as_nanos() as f64));
            if let (Some(used_before), Some(used)) = (before.1, after.1) {
                let joules = used.used.as_joules() - used_before.used.as_joules();
                side.watts.push(joules / after.0.since(before.0).as_secs_f64().max(1e-9));
            }
        }
    }
    drop(control);
    let missing = 2 * blocks.pairs - (shallow.p99_ns.len() + deep.p99_ns.len()) as u32;
    if shallow.p99_ns.len() < 2 || deep.p99_ns.len() < 2 {
        return Err(VerifyError::NoRequests(missing));
    }
    let is_measured = energy.is_measured();
    Ok(Measured { shallow: shallow.side(is_measured), deep: deep.side(is_measured), power: energy.source() })
}

/// The results of one side's blocks.
#[derive(Default)]
struct Samples {
    p99_ns: Vec<f64>,
    watts: Vec<f64>,
}

impl Samples {
    fn side(&self, is_measured: bool) -> Side {
        let (p99, p99_half) = mean(&self.p99_ns);
        let power = is_measured.then(|| {
            let (watts, half) = mean(&self.watts);
            let micro = |watts: f64| Microwatts((watts * 1e6).max(0.0) as u64);
            (micro(watts), micro(half))
        });
        Side {
            p99: Duration::from_nanos(p99 as u64),
            p99_half_width: Duration::from_nanos(p99_half as u64),
            power,
        }
    }
}

/// Mean of blocks, and half the width of its 95 % interval: Student's t for as many blocks as there
/// are.
fn mean(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    if values.len() < 2 {
        return (mean, f64::INFINITY);
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    /// Two-sided, 95 %, for 1 to 10 degrees of freedom.
    const T: [f64; 10] = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let t = T.get(values.len() - 2).copied().unwrap_or(2.2);
    (mean, t * (variance / count).sqrt())
}

fn pause(length: Duration, stop: &AtomicBool) -> Result<(), VerifyError> {
    let over = linux::now() + length;
    while linux::now() < over {
        if stop.load(Ordering::Relaxed) {
            return Err(VerifyError::Stopped);
        }
        std::thread::sleep(std::time::Duration::from(over.since(linux::now()).min(PATIENCE)));
    }
    Ok(())
}

/// Until every CPU that slept under the earlier limit has woken once, on any machine that has work.
const SETTLE: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_agree_have_a_narrow_interval_and_one_block_has_none() {
        let (middle, half) = mean(&[100.0, 102.0, 98.0, 100.0]);
        assert!((middle - 100.0).abs() < 1e-9 && (2.0..3.0).contains(&half), "{half}");
        assert!(mean(&[5.0]).1.is_infinite());
        let many: Vec<f64> = (0..50).map(|block| f64::from(block % 2)).collect();
        assert!(mean(&many).1 < 0.2);
    }

    #[test]
    fn modelled_power_proves_nothing_and_is_left_out() {
        let samples = Samples { p99_ns: vec![1e5, 1e5], watts: vec![10.0, 11.0] };
        assert_eq!(samples.side(false).power, None);
        assert_eq!(samples.side(true).power.unwrap().0, Microwatts(10_500_000));
    }
}
