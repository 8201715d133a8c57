//! Whether the machine is still the one that was recorded. On a shared host its CPUs are slower, or away,
//! at times, and a model of the one machine says nothing of the other.
//!
//! - *pace*: how long a fixed computation takes, on all CPUs at once; the slowest counts.
//! - *stolen*: the share of the CPUs' time that the hypervisor gave to others (`steal` of /proc/stat).

use anyhow::{Context as _, Result};
use machine::{CpuId, CpuList};
use std::time::{Duration, Instant};

/// A pace that differs by more than this is another machine's.
const PACE_WITHIN: f64 = 0.05;
/// More than this share makes a run's tail the host's.
const STOLEN_MOST: f64 = 0.005;
/// So long the machine is waited for, before a run that will not count.
const PATIENCE: Duration = Duration::from_secs(120);

/// The median of nine computations of some milliseconds, on the slowest CPU.
pub fn pace(cpus: &CpuList) -> Result<f64> {
    let threads: Vec<_> = cpus.0.iter().map(|&cpu| std::thread::spawn(move || of_one(cpu))).collect();
    let mut slowest = 0.0_f64;
    for thread in threads {
        slowest = slowest.max(thread.join().expect("it does not panic")?);
    }
    Ok(slowest)
}

fn of_one(cpu: CpuId) -> Result<f64> {
    let mut only = rustix::thread::CpuSet::new();
    only.set(cpu.index());
    rustix::thread::sched_setaffinity(None, &only).context("pinning a thread")?;
    let mut took: Vec<f64> = (0..9).map(|_| compute().as_secs_f64()).collect();
    took.sort_by(f64::total_cmp);
    Ok(took[4])
}

fn compute() -> Duration {
    let began = Instant::now();
    let mut value = 1_u64;
    for round in 0..2_000_000_u64 {
        value = (value ^ round).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
    }
    std::hint::black_box(value);
    began.elapsed()
}

/// Time of all CPUs that the hypervisor gave to others, since the machine began.
fn stolen() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.lines().next().and_then(|all| all.split_whitespace().nth(8)?.parse().ok());
    // A tick of /proc is 10 ms on every architecture that Linux has.
    Duration::from_millis(ticks.unwrap_or(0_u64) * 10)
}

/// Waits for a machine of this pace, does `act`, and says why it does not count.
pub fn watched<T>(
    cpus: &CpuList,
    recorded: f64,
    act: impl FnOnce() -> Result<T>,
) -> Result<(T, Option<String>)> {
    let began = Instant::now();
    let is_same = |pace: f64| (pace / recorded - 1.0).abs() <= PACE_WITHIN;
    while !is_same(pace(cpus)?) && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_secs(2));
    }
    let (before, began) = (stolen(), Instant::now());
    let done = act()?;
    let time = began.elapsed().as_secs_f64() * cpus.0.len() as f64;
    let share = (stolen() - before).as_secs_f64() / time;
    let after = pace(cpus)?;
    let why = if share > STOLEN_MOST {
        Some(format!("the host took {:.1} % of the CPUs", share * 100.0))
    } else if !is_same(after) {
        Some(format!("the CPUs are at {:.2} of the recorded pace", recorded / after))
    } else {
        None
    };
    Ok((done, why))
}
