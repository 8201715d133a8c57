//! Sums over one CPU or several, before any division: shares cannot be added, times and counts can.

use super::{
    Findings, Known, LatencySource, LengthShare, Part, Slept, Slices, StateSlept, WakeCost, WakeLatency,
};
use crate::sleep::{CpuPattern, Wakers};
use machine::{CstateIndex, CstateKind, Duration, LengthHistogram, Rate, Ratio};
use std::collections::BTreeMap;

/// Sums over one CPU or several, before any division.
pub(super) struct Tally {
    states: BTreeMap<(CstateIndex, String), StateTally>,
    idle: LengthHistogram,
    active: LengthHistogram,
    /// Active time, which counts alone also tell.
    busy: Duration,
    wakers: Option<Wakers>,
}

#[derive(Clone)]
struct StateTally {
    kind: Option<CstateKind>,
    exit: Option<Duration>,
    forbidden: bool,
    target: Option<Duration>,
    wake: Option<WakeLatency>,
    sleeps: u64,
    time: Duration,
    premature: Option<f64>,
    missed: Option<f64>,
}

impl Tally {
    pub fn none() -> Self {
        Self {
            states: BTreeMap::new(),
            idle: LengthHistogram::default(),
            active: LengthHistogram::default(),
            busy: Duration::ZERO,
            wakers: None,
        }
    }

    pub fn of(pattern: &CpuPattern, known: &Known, elapsed: Duration, lengths: bool) -> Self {
        let mut tally = Self { wakers: pattern.wakers, active: pattern.active.clone(), ..Self::none() };
        let unused = LengthHistogram::default();
        for place in 0..pattern.idle.len().max(pattern.table.0.len()) {
            let idle = pattern.idle.get(place).unwrap_or(&unused);
            let index = CstateIndex(u8::try_from(place).unwrap_or(u8::MAX));
            let state = pattern.table.state(index);
            let judge = |length: Option<Duration>| {
                length.filter(|_| lengths).map(|length| idle.below(length).0.min(idle.count() as f64))
            };
            let target = state.map(|state| state.target_residency);
            let name = state.map_or_else(|| format!("state {place}"), |state| state.name.clone());
            let deeper = state.map(|_| deeper_target(pattern, known, index));
            let of = StateTally {
                kind: state.map(|state| state.kind),
                exit: state.map(|state| state.exit_latency),
                forbidden: known.disabled.contains(&(pattern.cpu, index)),
                target,
                wake: wake_latency(pattern, known, index),
                sleeps: idle.count(),
                time: idle.time(),
                premature: judge(target),
                // Without a deeper state none can be missed.
                missed: deeper.filter(|_| lengths).map(|target| {
                    target.map_or(0.0, |target| idle.count() as f64 - judge(Some(target)).unwrap_or_default())
                }),
            };
            tally.idle.add(idle);
            tally.states.insert((index, name), of);
        }
        tally.busy = if lengths { tally.active.time() } else { elapsed - tally.idle.time() };
        tally
    }

    pub fn add(&mut self, other: &Self) {
        for (key, state) in &other.states {
            self.states.entry(key.clone()).and_modify(|sum| sum.add(state)).or_insert_with(|| state.clone());
        }
        self.idle.add(&other.idle);
        self.active.add(&other.active);
        self.busy += other.busy;
        if let Some(wakers) = &other.wakers {
            self.wakers.get_or_insert_default().add(wakers);
        }
    }

    pub fn slept(&self, elapsed: Duration, lengths: bool) -> Slept {
        let idle = self.idle.time();
        let seen = idle + self.busy;
        let sleeps = self.idle.count();
        let sum = |of: fn(&StateTally) -> Option<f64>| {
            // One state with sleeps that cannot be judged leaves the sum unknown.
            let judged = self.states.values().filter(|state| state.sleeps > 0).map(of);
            judged.sum::<Option<f64>>().filter(|_| lengths && sleeps > 0).map(|count| part(count, sleeps))
        };
        let shares = |of: &LengthHistogram| lengths.then(|| length_shares(of, seen));
        Slept {
            seen,
            active: Ratio::of(self.busy, seen),
            sleeps,
            transitions_per_s: if elapsed.is_zero() { Rate::ZERO } else { Rate::of(sleeps, elapsed) },
            states: self
                .states
                .iter()
                .map(|((index, name), state)| state.slept(*index, name, seen))
                .collect(),
            premature: sum(|state| state.premature),
            missed_deep: sum(|state| state.missed),
            slices: lengths.then(|| slices(&self.idle, &self.active)),
            wake_cost: self.wake_cost(seen),
            wakers: self.wakers,
            idle_lengths: shares(&self.idle),
            active_lengths: shares(&self.active),
        }
    }

    fn wake_cost(&self, seen: Duration) -> Option<WakeCost> {
        let mut source = LatencySource::Measured;
        let mut cost = Duration::ZERO;
        // A CPU that spins is awake, so its wake-up need not be measured.
        let is_sleep = |state: &&StateTally| state.sleeps > 0 && state.kind != Some(CstateKind::Polling);
        for state in self.states.values().filter(is_sleep) {
            let wake = state.wake?;
            source = source.max(wake.source);
            cost += wake.usual * state.sleeps;
        }
        (!self.states.is_empty()).then(|| WakeCost { share: Ratio::of(cost, seen), source })
    }
}

impl StateTally {
    fn add(&mut self, other: &Self) {
        self.sleeps += other.sleeps;
        self.time += other.time;
        self.forbidden &= other.forbidden;
        let sum = |one: Option<f64>, other: Option<f64>| Some(one? + other?);
        self.premature = sum(self.premature, other.premature);
        self.missed = sum(self.missed, other.missed);
    }

    fn slept(&self, state: CstateIndex, name: &str, seen: Duration) -> StateSlept {
        StateSlept {
            state,
            name: name.to_owned(),
            kind: self.kind,
            exit_latency: self.exit,
            target_residency: self.target,
            wake: self.wake,
            forbidden: self.forbidden,
            share: Ratio::of(self.time, seen),
            sleeps: self.sleeps,
            mean: (self.sleeps > 0).then(|| self.time / self.sleeps),
            premature: self.premature.map(|count| part(count, self.sleeps)),
            missed_deep: self.missed.map(|count| part(count, self.sleeps)),
        }
    }
}

fn part(count: f64, of: u64) -> Part {
    Part { count: count.round() as u64, share: Ratio::new(if of == 0 { 0.0 } else { count / of as f64 }) }
}

/// The target residency of the next deeper state that is worth more and allowed.
fn deeper_target(pattern: &CpuPattern, known: &Known, index: CstateIndex) -> Option<Duration> {
    let own = pattern.table.state(index)?.target_residency;
    let deeper = pattern.table.0.iter().enumerate().skip(index.index() + 1);
    let allowed = deeper.filter(|(place, _)| {
        let index = CstateIndex(u8::try_from(*place).unwrap_or(u8::MAX));
        !known.disabled.contains(&(pattern.cpu, index))
    });
    allowed.map(|(_, state)| state.target_residency).filter(|&target| target > own).min()
}

fn wake_latency(pattern: &CpuPattern, known: &Known, index: CstateIndex) -> Option<WakeLatency> {
    let measured = |usual, worst| WakeLatency { usual, worst, source: LatencySource::Measured };
    if let Some(wake) = known.wake.get(&index) {
        return Some(measured(wake.p50, wake.p99.max(wake.p50)));
    }
    let state = pattern.table.state(index)?;
    let advertised = WakeLatency {
        usual: state.exit_latency,
        worst: state.exit_latency,
        source: LatencySource::Advertised,
    };
    Some(state.true_exit_latency.map_or(advertised, |took| measured(took, took)))
}

fn slices(idle: &LengthHistogram, active: &LengthHistogram) -> Slices {
    let (short_idle, short_active) = (idle.below(Findings::SHORT).1, active.below(Findings::SHORT).1);
    let all = idle.time() + active.time();
    Slices {
        short_of_idle: Ratio::of(short_idle, idle.time()),
        short_of_active: Ratio::of(short_active, active.time()),
        short_idle_of_all: Ratio::of(short_idle, all),
        short_of_all: Ratio::of(short_idle + short_active, all),
    }
}

/// Four buckets to one: an eye compares doublings, and the simulator's figures have them.
fn length_shares(of: &LengthHistogram, seen: Duration) -> Vec<LengthShare> {
    let (first, inner, last) = (
        &of.times[..1],
        &of.times[1..LengthHistogram::BUCKETS - 1],
        &of.times[LengthHistogram::BUCKETS - 1..],
    );
    let groups = std::iter::once(first).chain(inner.chunks(4)).chain(std::iter::once(last));
    let mut to_ns = LengthHistogram::bounds(0).1.as_nanos();
    groups
        .map(|times| {
            let share = Ratio::of(times.iter().copied().sum(), seen);
            let entry = LengthShare { from_ns: to_ns / 2, to_ns, share };
            to_ns *= 2;
            entry
        })
        .collect()
}
