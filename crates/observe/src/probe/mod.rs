//! The real cost of a wake-up on this machine.
//!
//! The exit latency that a driver advertises is a promise about the worst case, and often far from
//! the truth: the 400 us of some firmware are 10, and a virtual machine states 1 us for a halt that
//! takes 50. So: a thread pinned to one CPU sleeps, is woken after a known time, and reads the
//! clock.
//!
//! ```text
//!   waker (another CPU):  ...sleep...  stamp, wake ------.
//!   sleeper:              asleep in some idle state ......|. awake: now - stamp     OtherCpu
//!   sleeper:              asleep until a deadline .......... awake: now - deadline  Timer
//! ```
//!
//! Terms. A *batch* is many sleeps of one length, ended in one way, under one limit. A wake-up's
//! *latency* ends when the woken thread reads the clock: it holds the system call, the interrupt,
//! the exit from the idle state and the scheduler. The idle state's part is the difference between
//! batches that differ in nothing else.
//!
//! The change of cpuidle's `usage` over the batch shows which states were taken: it counts the
//! requests for a state on that CPU by all its sleepers. Where several states may be asked for,
//! batches are repeated with the CPU limited to each in turn, so that each state's own cost is
//! seen; the limits are journalled and put back by [`linux::IdleControl`].
//!
//! Invariants:
//! - Nothing is changed without a journal, and every change is put back when the probe ends,
//!   however it ends.
//! - A measurement that failed is a note with its reason. Without cpuidle the states are unknown,
//!   and the wake-ups are measured all the same.
//! - The probe takes about as long as it was given: longer sleeps get more of the time, shorter
//!   ones more samples.

mod batch;
mod table;
mod wake;

pub use wake::WakeError;

use batch::{Wakes, by_other_cpu, by_timer};
use linux::{IdleControl, IdleOptions, LimitState, Root, UsageMeter};
use machine::{CpuId, CpuList, CstateKind, CstateTable, Duration, IdleLimit, Ratio, Topology};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};

/// The lengths of sleep that are tried, and the share of time that each gets.
const SLEEPS: [(Duration, u64); 5] = [
    (Duration::from_micros(10), 1),
    (Duration::from_micros(100), 2),
    (Duration::from_millis(1), 4),
    (Duration::from_millis(10), 8),
    (Duration::from_millis(100), 16),
];
/// The same where each state is tried in turn: the extremes teach nothing about a state that is
/// forced anyway.
const FORCED_SLEEPS: std::ops::Range<usize> = 1..4;
/// More samples than this say nothing new about a 99th percentile.
const SAMPLES_MAX: usize = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeSource {
    /// By a thread on another CPU, through a futex.
    OtherCpu,
    Timer,
}

/// The measurements of many sleeps alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// The deepest state that was allowed; `None` if nothing was changed.
    pub limited_to: Option<String>,
    pub way: WakeSource,
    #[serde(rename = "sleep_ns", alias = "sleep")]
    pub sleep: Duration,
    pub samples: usize,
    /// Half of them took no longer.
    #[serde(rename = "p50_ns", alias = "p50")]
    pub p50: Duration,
    /// 99 of 100 took no longer; of fewer than 100 samples, the longest.
    #[serde(rename = "p99_ns", alias = "p99")]
    pub p99: Duration,
    /// Half of the calls that ended a sleep took the waker no longer: the system call, and of a CPU that
    /// halts the interrupt to it, for which a virtual machine's waker waits. Absent of timers.
    #[serde(rename = "call_ns", default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Duration>,
    /// How much of the time the sleeper's CPU was busy, in steps of a clock tick; our own work is
    /// in it.
    pub busy: Option<Ratio>,
    /// States asked for on that CPU meanwhile, the most frequent first; `None` where the kernel
    /// does not count.
    pub states: Option<Vec<StateShare>>,
}

/// How often a state was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateShare {
    pub name: String,
    /// The exit latency that its driver advertises.
    #[serde(rename = "advertised_ns", alias = "advertised")]
    pub advertised: Duration,
    pub share: Ratio,
}

/// All that a probe found. In JSON, lengths are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// The CPU that was put to sleep.
    pub sleeper: CpuId,
    pub waker: Option<CpuId>,
    /// The idle driver, where there is one.
    pub driver: Option<String>,
    /// The cost of reading the clock: the grain of every figure here.
    #[serde(rename = "clock_ns", alias = "clock")]
    pub clock: Duration,
    /// In the order in which they were measured.
    pub batches: Vec<Batch>,
    /// The failed measurements, with their reasons.
    pub notes: Vec<String>,
    /// True if it was stopped before its time.
    pub stopped: bool,
}

/// A probe that could not even begin.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Not even this process's own CPUs are known.
    #[error("cannot probe: {0}")]
    Affinity(#[from] linux::AffinityError),
    /// There is no CPU to sleep on.
    #[error("cannot probe: no CPU is allowed to this process")]
    NoCpu,
}

#[derive(Clone, Debug, PartialEq)]
struct Step {
    limit: Option<(IdleLimit, String)>,
    way: WakeSource,
    sleep: Duration,
    weight: u64,
}

/// Measures for about `length`, tells `progress` before each batch, and ends early when `stop` is
/// set.
pub fn probe(
    length: Duration,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<Probe, ProbeError> {
    let root = Root::system();
    let allowed = linux::allowed_cpus()?;
    let topology = linux::topology(&root).unwrap_or_default();
    let (sleeper, waker) = choose(&allowed, &topology).ok_or(ProbeError::NoCpu)?;
    let table = linux::idle_table(&root, sleeper).unwrap_or_default();
    let mut probe = Probe {
        sleeper,
        waker,
        driver: linux::idle_driver(&root).driver,
        clock: batch::clock_cost(),
        batches: Vec::new(),
        notes: Vec::new(),
        stopped: false,
    };
    if waker.is_none() {
        let why =
            "this process may use one CPU only: no other CPU could wake it, so timers alone are measured";
        probe.notes.push(why.to_owned());
    }
    if table.0.is_empty() {
        let why = "no cpuidle: which state a sleep takes is unknown, and none can be forced";
        probe.notes.push(why.to_owned());
    }
    let mut control = None;
    let steps = plan(waker.is_some(), &table);
    let end = linux::now() + length;
    for (index, step) in steps.iter().enumerate() {
        let weights: u64 = steps[index..].iter().map(|step| step.weight).sum();
        let share = end.since(linux::now()) * step.weight / weights.max(1);
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if let Some((limit, name)) = &step.limit
            && let Err(why) = force(&mut control, &root, sleeper, *limit)
        {
            let what = format!("{name} cannot be forced, nor can others be: {why}");
            probe.notes.push(what);
            break;
        }
        progress(&format!("{} of {}: {}", index + 1, steps.len(), step.words()));
        match measure(&root, (sleeper, waker), &table, step, share, stop) {
            Ok(batch) => probe.batches.extend(batch),
            Err(why) => probe.notes.push(format!("{}: {why}", step.words())),
        }
    }
    if let Some(busy) = busiest(&probe.batches) {
        probe.notes.push(format!(
            "{sleeper} was up to {busy} busy with other work: a wake-up that found it awake was quicker \
             than from idleness, one that had to wait was slower; for figures to rely on, probe a quiet \
             machine"
        ));
    }
    probe.stopped = stop.load(Ordering::Relaxed);
    Ok(probe)
}

/// How late a thread on `cpu` is that sleeps for `sleep` by its own timer: sorted, after `samples`
/// sleeps.
pub fn timer_lateness(
    cpu: CpuId,
    sleep: Duration,
    samples: usize,
) -> Result<Vec<Duration>, linux::AffinityError> {
    let stop = AtomicBool::new(false);
    let until = linux::now() + (sleep + PATIENCE) * samples as u64;
    let mut latencies = by_timer(cpu, sleep, &batch::Limits { until, samples_max: samples, stop: &stop })?;
    latencies.sort_unstable();
    Ok(latencies)
}

/// From a wake-up by `waker` until a thread on `sleeper` that has slept for `sleep` runs: sorted,
/// after `samples` sleeps.
pub fn wake_latency(
    sleeper: CpuId,
    waker: CpuId,
    sleep: Duration,
    samples: usize,
) -> Result<Vec<Duration>, linux::AffinityError> {
    let stop = AtomicBool::new(false);
    let until = linux::now() + (sleep + PATIENCE) * samples as u64;
    let limits = batch::Limits { until, samples_max: samples, stop: &stop };
    let mut latencies = by_other_cpu(sleeper, waker, sleep, &limits)?.latencies;
    latencies.sort_unstable();
    Ok(latencies)
}

/// For one sleep to be over, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_millis(10);

/// How busy the CPU was at most, where that is not our own doing and more than a trifle.
fn busiest(batches: &[Batch]) -> Option<Ratio> {
    /// Sleeps from here on leave the CPU to others: our own work is a hundredth of them.
    const LONG: Duration = Duration::from_millis(1);
    const TRIFLE: f64 = 0.1;
    let busy = batches.iter().filter(|batch| batch.sleep >= LONG).filter_map(|batch| batch.busy);
    // A forced POLL is idleness to /proc/stat, so it does not count.
    busy.max_by(|one, other| one.as_f64().total_cmp(&other.as_f64())).filter(|busy| busy.as_f64() > TRIFLE)
}

/// The last allowed CPU sleeps, because interrupts prefer the first. The first that does not share
/// its core wakes it; a sibling would keep the core awake.
fn choose(allowed: &CpuList, topology: &Topology) -> Option<(CpuId, Option<CpuId>)> {
    let sleeper = *allowed.0.last()?;
    let siblings: Vec<CpuId> = topology.siblings(sleeper).collect();
    let others = || allowed.0.iter().copied().filter(|&cpu| cpu != sleeper);
    Some((sleeper, others().find(|cpu| !siblings.contains(cpu)).or_else(|| others().next())))
}

/// All batches: first as the machine is, then limited to each state from which a limit keeps a
/// deeper one.
fn plan(has_waker: bool, table: &CstateTable) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |limit: Option<(IdleLimit, String)>, sleeps: &[(Duration, u64)]| {
        for &(sleep, weight) in sleeps {
            let ways = if has_waker {
                &[WakeSource::OtherCpu, WakeSource::Timer][..]
            } else {
                &[WakeSource::Timer][..]
            };
            steps.extend(ways.iter().map(|&way| Step { limit: limit.clone(), way, sleep, weight }));
        }
    };
    add(None, &SLEEPS);
    for limit in limits(table) {
        add(Some(limit), &SLEEPS[FORCED_SLEEPS]);
    }
    steps
}

/// Each state from which a limit keeps a deeper one, and its name.
pub fn limits(table: &CstateTable) -> impl Iterator<Item = (IdleLimit, String)> {
    table.0.iter().filter_map(|state| {
        // A limit of zero is polling; a halt may advertise zero, but a limit cannot name it.
        let bound = match state.kind {
            CstateKind::Polling => Duration::ZERO,
            CstateKind::Halting => state.exit_latency.max(Duration::from_micros(1)),
        };
        let is_deeper = table.0.iter().any(|other| other.exit_latency > bound);
        is_deeper.then(|| (IdleLimit::ExitLatency(bound), state.name.clone()))
    })
}

impl Step {
    fn words(&self) -> String {
        let way = match self.way {
            WakeSource::OtherCpu => "woken by another CPU",
            WakeSource::Timer => "woken by a timer",
        };
        let limit = self.limit.as_ref().map_or(String::new(), |(_, name)| format!(", {name} at most"));
        format!("sleeps of {}, {way}{limit}", self.sleep)
    }
}

/// Limits the sleeper's CPU. The journal is opened with the first limit, so that a machine with
/// nothing to force is not even locked.
fn force(control: &mut Option<IdleControl>, root: &Root, cpu: CpuId, limit: IdleLimit) -> Result<(), String> {
    if control.is_none() {
        let options = IdleOptions::new("roost doctor --probe");
        let opened = IdleControl::open(root, &CpuList([cpu].into()), options);
        *control = Some(opened.map_err(|held| held.to_string())?);
    }
    match control.as_mut().expect("just made").apply(cpu, limit) {
        LimitState::InForce { kept_stricter: true, limit, .. } => {
            Err(format!("the administrator's own limit is stricter ({limit:?})"))
        }
        LimitState::InForce { .. } | LimitState::Floor { .. } => Ok(()),
        LimitState::Refused { reason } => Err(reason),
    }
}

/// One batch; nothing if it was stopped before its first sample.
fn measure(
    root: &Root,
    (sleeper, waker): (CpuId, Option<CpuId>),
    table: &CstateTable,
    step: &Step,
    share: Duration,
    stop: &AtomicBool,
) -> Result<Option<Batch>, linux::AffinityError> {
    let before = linux::state_counts(root, sleeper).ok();
    let mut usage = UsageMeter::start(root, &CpuList([sleeper].into()), linux::now());
    let until = linux::now() + share;
    let limits = batch::Limits { until, samples_max: SAMPLES_MAX, stop };
    let Wakes { mut latencies, mut calls } = match (step.way, waker) {
        (WakeSource::OtherCpu, Some(waker)) => by_other_cpu(sleeper, waker, step.sleep, &limits)?,
        _ => Wakes { latencies: by_timer(sleeper, step.sleep, &limits)?, calls: Vec::new() },
    };
    let after = linux::state_counts(root, sleeper).ok();
    if latencies.is_empty() {
        return Ok(None);
    }
    latencies.sort_unstable();
    calls.sort_unstable();
    let used = usage.read(linux::now());
    let busy = used.first().and_then(|cpu| Some(Ratio::of(cpu.busy?, cpu.elapsed)));
    Ok(Some(Batch {
        busy,
        limited_to: step.limit.as_ref().map(|(_, name)| name.clone()),
        way: step.way,
        sleep: step.sleep,
        samples: latencies.len(),
        p50: percentile(&latencies, 50),
        p99: percentile(&latencies, 99),
        call: (!calls.is_empty()).then(|| percentile(&calls, 50)),
        states: before.zip(after).and_then(|(before, after)| {
            let usage =
                |counts: &[linux::StateCounts]| counts.iter().map(|count| count.usage).collect::<Vec<_>>();
            shares(table, &usage(&before), &usage(&after))
        }),
    }))
}

/// Nearest rank: the smallest value that `percent` of 100 do not exceed.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// Which states were asked for between two counts; `None` if none was, or a count fell because a
/// driver registered anew.
fn shares(table: &CstateTable, before: &[u64], after: &[u64]) -> Option<Vec<StateShare>> {
    if [before.len(), after.len()] != [table.0.len(); 2] {
        return None;
    }
    let counts: Option<Vec<u64>> =
        after.iter().zip(before).map(|(after, before)| after.checked_sub(*before)).collect();
    let counts = counts?;
    let total: u64 = counts.iter().sum();
    let mut shares: Vec<StateShare> = table
        .0
        .iter()
        .zip(&counts)
        .filter(|(_, count)| **count > 0)
        .map(|(state, &count)| StateShare {
            name: state.name.clone(),
            advertised: state.exit_latency,
            share: Ratio::new(count as f64 / total as f64),
        })
        .collect();
    shares.sort_by(|one, other| other.share.as_f64().total_cmp(&one.share.as_f64()));
    (total > 0).then_some(shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Cstate;

    fn table(states: &[(&str, u64)]) -> CstateTable {
        let state = |&(name, micros): &(&str, u64)| Cstate {
            name: name.to_owned(),
            kind: if name == "POLL" { CstateKind::Polling } else { CstateKind::Halting },
            exit_latency: Duration::from_micros(micros),
            true_exit_latency: None,
            entry_latency: None,
            target_residency: Duration::ZERO,
            power: None,
        };
        CstateTable(states.iter().map(state).collect())
    }

    fn forced(table: &CstateTable) -> Vec<String> {
        let mut names: Vec<String> =
            plan(true, table).into_iter().filter_map(|step| Some(step.limit?.1)).collect();
        names.dedup();
        names
    }

    #[test]
    fn each_state_but_the_deepest_is_forced() {
        assert_eq!(
            forced(&table(&[("POLL", 0), ("C1", 2), ("C1E", 10), ("C6", 133)])),
            ["POLL", "C1", "C1E"]
        );
        assert_eq!(forced(&table(&[("POLL", 0), ("haltpoll idle", 1)])), ["POLL"]);
        assert_eq!(forced(&table(&[("WFI", 1), ("cpu-sleep", 270)])), ["WFI"]);
        assert!(forced(&table(&[])).is_empty() && forced(&table(&[("HLT", 0)])).is_empty());
        assert_eq!(plan(true, &table(&[])).len(), 10);
        assert!(plan(false, &table(&[])).iter().all(|step| step.way == WakeSource::Timer));
    }

    #[test]
    fn the_waker_is_no_sibling_where_there_is_another() {
        let (machine, all) = (Topology::uniform(1, 2, 2), "0-3".parse().unwrap());
        // cpu3 shares its core with cpu1.
        assert_eq!(choose(&all, &machine), Some((CpuId(3), Some(CpuId(0)))));
        assert_eq!(choose(&"1,3".parse().unwrap(), &machine), Some((CpuId(3), Some(CpuId(1)))));
        assert_eq!(choose(&"2".parse().unwrap(), &machine), Some((CpuId(2), None)));
        assert_eq!(choose(&CpuList::default(), &machine), None);
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<Duration> = (1..=200).map(Duration::from_nanos).collect();
        assert_eq!((percentile(&values, 50).as_nanos(), percentile(&values, 99).as_nanos()), (100, 198));
        assert_eq!(percentile(&values[..3], 99).as_nanos(), 3);
        assert_eq!(percentile(&values[..1], 50).as_nanos(), 1);
    }

    #[test]
    fn states_are_told_by_the_change_of_their_counts() {
        let table = table(&[("POLL", 0), ("C1", 2), ("C6", 133)]);
        let found = shares(&table, &[5, 10, 0], &[5, 40, 90]).unwrap();
        let names: Vec<(&str, f64)> =
            found.iter().map(|share| (share.name.as_str(), share.share.as_f64())).collect();
        assert_eq!(names, [("C6", 0.75), ("C1", 0.25)]);
        assert_eq!(shares(&table, &[5, 10, 0], &[0, 11, 1]), None, "registered anew");
        assert_eq!(shares(&table, &[5, 10, 0], &[5, 10, 0]), None, "no CPU slept");
        assert_eq!(shares(&table, &[5], &[6]), None);
    }

    #[test]
    fn a_forced_state_is_journalled_and_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let tree = include_str!("../../tests/testdata/intel-server.tree");
        crate::doctor::unpack(tree, folder.path()).unwrap();
        let (root, file) =
            (Root::at(folder.path()), "sys/devices/system/cpu/cpu7/power/pm_qos_resume_latency_us");
        let reads = || std::fs::read_to_string(root.path(file)).unwrap().trim_end().to_owned();
        let journals = || linux::cpu_holders(&root, &mut linux::Gaps::default()).1;
        let mut control = None;
        for (limit, text) in [(Duration::ZERO, "n/a"), (Duration::from_micros(10), "10")] {
            force(&mut control, &root, CpuId(7), IdleLimit::ExitLatency(limit)).unwrap();
            assert_eq!((reads(), journals()), (text.to_owned(), 1));
        }
        drop(control);
        assert_eq!((reads(), journals()), ("0".to_owned(), 0));
        // Another process has the CPU: nothing is touched.
        let other = linux::CpuLocks::take(&root, &"7".parse().unwrap(), "roost serve").unwrap();
        let refused = force(&mut None, &root, CpuId(7), IdleLimit::ExitLatency(Duration::ZERO)).unwrap_err();
        assert!(refused.contains("roost serve") && reads() == "0", "{refused}");
        drop(other);
        // An administrator's stricter limit stays, so that the state asked for cannot be seen.
        std::fs::write(root.path(file), "n/a\n").unwrap();
        assert!(force(&mut None, &root, CpuId(7), IdleLimit::ExitLatency(Duration::from_micros(2))).is_err());
    }

    #[test]
    fn a_busy_cpu_is_told() {
        let batch = |sleep, busy: Option<f64>| Batch {
            limited_to: None,
            way: WakeSource::Timer,
            sleep,
            samples: 1,
            p50: Duration::ZERO,
            p99: Duration::ZERO,
            call: None,
            busy: busy.map(Ratio::new),
            states: None,
        };
        let (short, long) = (Duration::from_micros(10), Duration::from_millis(10));
        assert_eq!(busiest(&[batch(short, Some(0.9)), batch(long, Some(0.05)), batch(long, None)]), None);
        assert_eq!(busiest(&[batch(long, Some(0.5)), batch(long, Some(0.2))]), Some(Ratio::new(0.5)));
    }

    #[test]
    fn a_short_probe_of_this_machine_measures_or_says_why_not() {
        let (mut told, stop) = (0, AtomicBool::new(false));
        let found = probe(Duration::from_millis(300), &stop, &mut |_| told += 1).unwrap();
        assert!(told >= found.batches.len() && !found.stopped);
        assert!(found.batches.iter().any(|batch| batch.way == WakeSource::Timer), "{found:?}");
        assert!(found.waker.is_some() || !found.notes.is_empty());
        assert!(found.batches.iter().all(|batch| batch.samples > 0 && batch.p50 <= batch.p99));
        let has_call = |batch: &Batch| batch.call.is_some() == (batch.way == WakeSource::OtherCpu);
        assert!(found.batches.iter().all(has_call), "{found:?}");
        assert!(found.to_string().contains("Measured wake latency"));
        serde_json::to_string(&found).unwrap();
    }

    #[test]
    fn a_probe_that_is_stopped_stops() {
        let found = probe(Duration::from_secs(3600), &AtomicBool::new(true), &mut |_| ()).unwrap();
        assert!(found.stopped && found.batches.is_empty());
    }
}
