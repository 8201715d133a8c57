//! What a pattern of sleeps amounts to: how much of each state, how many sleeps chosen wrongly, what waking costs, and how
//! finely the time is sliced.
//!
//! Terms, all of the Tradeoffs paper (IISWC 2014, section II). A sleep is *premature* if it ended before its state's target
//! residency: a shallower state would have used less energy and woken faster. It *missed a deeper state* if it lasted for
//! the target residency of a deeper one that was allowed. *Wake cost* is sleeps x wake latency: CPU time in which work was
//! there and nobody did it.
//!
//! What always holds:
//! - Shares are of the CPU time that was *seen*, which lies between two events; so residencies and active time add up to one.
//! - What depends on states that nobody described is `None`, and so is what depends on lengths where only counts are known.
//!   [`Findings::unknown`] then says what is lost.
//! - A sleep is not premature and deep enough for a deeper state at once, and neither count exceeds the sleeps.

use super::{CpuPattern, SleepPattern, SleepSource, Wakers};
use machine::{CpuId, CstateIndex, CstateKind, Duration, LengthHistogram, Rate, Ratio};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of the idle states beside their tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// What waking takes by measurement on this machine, by the state's number.
    pub wake: BTreeMap<CstateIndex, MeasuredWake>,
    /// States that somebody has forbidden.
    pub disabled: BTreeSet<(CpuId, CstateIndex)>,
}

/// What waking from a state took, of many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredWake {
    /// In the middle.
    pub p50: Duration,
    /// All but one in a hundred.
    pub p99: Duration,
}

/// What a pattern amounts to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Findings {
    /// By what means the periods were seen.
    pub source: String,
    /// How long was watched.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Duration,
    /// Events that were lost.
    pub lost: u64,
    /// What cannot be said and why, a sentence each.
    pub unknown: Vec<String>,
    /// All CPUs together.
    pub all: Slept,
    /// Each CPU, in order of number.
    pub cpus: Vec<CpuSlept>,
}

/// How one CPU slept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuSlept {
    /// Which.
    pub cpu: CpuId,
    /// How.
    #[serde(flatten)]
    pub slept: Slept,
}

/// How one CPU slept, or several together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Slept {
    /// CPU time in periods of which both ends were seen.
    #[serde(rename = "seen_ns")]
    pub seen: Duration,
    /// Share of it in which a CPU was active.
    pub active: Ratio,
    /// Sleeps in all.
    pub sleeps: u64,
    /// Sleeps per second, the CPUs' together.
    pub transitions_per_s: Rate,
    /// Every state that was used or is known.
    pub states: Vec<StateSlept>,
    /// Sleeps that ended before their state's target residency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub premature: Option<Part>,
    /// Sleeps that were long enough for a deeper state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_deep: Option<Part>,
    /// How finely time is sliced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<Slices>,
    /// What waking costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_cost: Option<WakeCost>,
    /// What ended the sleeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakers: Option<Wakers>,
    /// Where the idle time lies by the length of periods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_lengths: Option<Vec<LengthShare>>,
    /// Where the active time lies by the length of periods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_lengths: Option<Vec<LengthShare>>,
}

/// What became of one state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateSlept {
    /// Its number, as `cpu_idle` events have it.
    pub state: CstateIndex,
    /// Its name, or `state 2` where nobody said.
    pub name: String,
    /// Spinning or stopped, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<CstateKind>,
    /// What the table says that waking takes at worst, where known.
    #[serde(rename = "exit_latency_ns", skip_serializing_if = "Option::is_none")]
    pub exit_latency: Option<Duration>,
    /// The shortest sleep that is worth it, where known.
    #[serde(rename = "target_residency_ns", skip_serializing_if = "Option::is_none")]
    pub target_residency: Option<Duration>,
    /// What waking from it takes, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<WakeLatency>,
    /// True if somebody has forbidden it on all of the CPUs.
    pub forbidden: bool,
    /// Share of the CPU time seen that was asked to be spent in it.
    pub share: Ratio,
    /// Sleeps in it.
    pub sleeps: u64,
    /// How long they were on average; `None` without one.
    #[serde(rename = "mean_ns", skip_serializing_if = "Option::is_none")]
    pub mean: Option<Duration>,
    /// Those that ended before its target residency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub premature: Option<Part>,
    /// Those that were long enough for a deeper state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_deep: Option<Part>,
}

/// Some of the sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Part {
    /// How many.
    pub count: u64,
    /// Of those in question.
    pub share: Ratio,
}

/// What waking from a state takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WakeLatency {
    /// As a rule.
    #[serde(rename = "usual_ns")]
    pub usual: Duration,
    /// At worst, or all but one time in a hundred.
    #[serde(rename = "worst_ns")]
    pub worst: Duration,
    /// Says who.
    pub source: LatencySource,
}

/// Where a latency comes from. Machines differ from what they advertise by up to ten times, both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LatencySource {
    /// It was measured on this machine.
    Measured,
    /// The state's table says so.
    Advertised,
}

/// What waking costs in CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WakeCost {
    /// Share of the CPU time seen.
    pub share: Ratio,
    /// Measured, if all of it is.
    pub source: LatencySource,
}

/// How finely time is sliced: the time in periods shorter than a millisecond, the length below which the paper finds that
/// the choice of a state matters (section III B).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Slices {
    /// Idle time in short periods, as a share of idle time.
    pub short_of_idle: Ratio,
    /// Active time in short periods, as a share of active time.
    pub short_of_active: Ratio,
    /// Idle time in short periods, as a share of all time.
    pub short_idle_of_all: Ratio,
    /// Idle and active time in short periods, as a share of all time: what the paper compares services by.
    pub short_of_all: Ratio,
}

/// The share of all time that lies in periods of similar length: one entry for each doubling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LengthShare {
    /// From this length on.
    pub from_ns: u64,
    /// Up to this one. The last also holds whatever is longer, the first whatever is shorter.
    pub to_ns: u64,
    /// Share of the CPU time seen.
    pub share: Ratio,
}

impl Findings {
    /// Periods shorter than this are short.
    pub const SHORT: Duration = Duration::from_millis(1);

    /// What `pattern` amounts to.
    pub fn of(pattern: &SleepPattern, known: &Known) -> Self {
        let lengths = pattern.source != SleepSource::Counts;
        let tallies: Vec<Tally> =
            pattern.cpus.iter().map(|cpu| Tally::of(cpu, known, pattern.elapsed, lengths)).collect();
        let mut all = Tally::none();
        tallies.iter().for_each(|tally| all.add(tally));
        let all = all.slept(pattern.elapsed, lengths);
        let cpus = pattern.cpus.iter().zip(&tallies);
        Self {
            source: pattern.source.to_string(),
            elapsed: pattern.elapsed,
            lost: pattern.lost,
            unknown: unknown(pattern, &all),
            cpus: cpus
                .map(|(cpu, tally)| CpuSlept { cpu: cpu.cpu, slept: tally.slept(pattern.elapsed, lengths) })
                .collect(),
            all,
        }
    }
}

impl Slept {
    /// The CPU time that a share of it is.
    pub fn time(&self, share: Ratio) -> Duration {
        self.seen.scale(share.as_f64())
    }

    /// Share of the CPU time seen in which no CPU was active.
    pub fn idle(&self) -> Ratio {
        if self.seen.is_zero() { Ratio::ZERO } else { Ratio::new(1.0 - self.active.as_f64()) }
    }
}

fn unknown(pattern: &SleepPattern, all: &Slept) -> Vec<String> {
    let mut unknown = Vec::new();
    if pattern.source == SleepSource::Counts {
        unknown.push(
            "cpuidle's counts have no lengths: no distributions, no premature and no missed sleeps, no short slices."
                .to_owned(),
        );
    }
    if pattern.cpus.iter().any(|cpu| cpu.table.0.is_empty()) {
        unknown.push(
            "Nothing is known of the idle states: what a sleep should have lasted and what waking takes cannot be said."
                .to_owned(),
        );
    }
    if pattern.cpus.iter().all(|cpu| cpu.wakers.is_none()) {
        unknown.push("What woke the CPUs was not watched.".to_owned());
    }
    let whole = pattern.elapsed * pattern.cpus.len() as u64;
    let seen = Ratio::of(all.seen, whole);
    if seen.as_f64() < SEEN_MIN {
        unknown.push(format!(
            "Only {seen} of the CPU time lies between two events that were seen; all shares are of that part."
        ));
    }
    unknown
}

/// Where less of the time is accounted for, it is said.
const SEEN_MIN: f64 = 0.9;

/// Sums over one CPU or several, before any division.
struct Tally {
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
    fn none() -> Self {
        Self {
            states: BTreeMap::new(),
            idle: LengthHistogram::default(),
            active: LengthHistogram::default(),
            busy: Duration::ZERO,
            wakers: None,
        }
    }

    fn of(pattern: &CpuPattern, known: &Known, elapsed: Duration, lengths: bool) -> Self {
        let mut tally = Self { wakers: pattern.wakers, active: pattern.active.clone(), ..Self::none() };
        for (place, idle) in pattern.idle.iter().enumerate() {
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

    fn add(&mut self, other: &Self) {
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

    fn slept(&self, elapsed: Duration, lengths: bool) -> Slept {
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
        for state in self.states.values().filter(|state| state.sleeps > 0) {
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

/// Four buckets to one: a doubling is what an eye compares, and what the simulator's figures have.
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

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{Cstate, CstateTable};
    use proptest::prelude::*;

    fn state(name: &str, kind: CstateKind, exit_us: u64, target_us: u64) -> Cstate {
        Cstate {
            name: name.into(),
            kind,
            exit_latency: Duration::from_micros(exit_us),
            true_exit_latency: None,
            entry_latency: None,
            target_residency: Duration::from_micros(target_us),
            power: None,
        }
    }

    /// The paper's SandyBridge with a spinning state in front, as Linux has it.
    fn sandybridge() -> CstateTable {
        CstateTable(vec![
            state("POLL", CstateKind::Polling, 0, 0),
            state("C1", CstateKind::Halting, 1, 1),
            state("C3", CstateKind::Halting, 80, 106),
            state("C6", CstateKind::Halting, 104, 345),
        ])
    }

    fn lengths(micros: &[u64]) -> LengthHistogram {
        let mut lengths = LengthHistogram::default();
        micros.iter().for_each(|&micros| lengths.record(Duration::from_micros(micros)));
        lengths
    }

    fn pattern(table: CstateTable, idle: &[&[u64]], active: &[u64]) -> SleepPattern {
        let cpu = CpuPattern {
            cpu: CpuId(0),
            table,
            idle: idle.iter().map(|idle| lengths(idle)).collect(),
            active: lengths(active),
            wakers: None,
        };
        let elapsed = cpu.idle.iter().map(LengthHistogram::time).sum::<Duration>() + cpu.active.time();
        SleepPattern { elapsed, source: SleepSource::Bpf, cpus: vec![cpu], lost: 0 }
    }

    #[test]
    fn sleeps_are_judged_by_their_own_target_and_by_the_next_deeper_one() {
        // C1: 20 right, 2 long enough for C3. C3: one premature, one right. C6: one premature, one right.
        let c1 = [&[20; 20][..], &[200, 5_000]].concat();
        let pattern = pattern(sandybridge(), &[&[], &c1, &[40, 150], &[80, 900]], &[100; 24]);
        let found = Findings::of(&pattern, &Known::default()).all;
        let counts = |of: fn(&StateSlept) -> Option<Part>| -> Vec<u64> {
            found.states.iter().map(|state| of(state).unwrap().count).collect()
        };
        assert_eq!(counts(|state| state.premature), [0, 0, 1, 1]);
        assert_eq!(counts(|state| state.missed_deep), [0, 2, 0, 0]);
        assert_eq!((found.premature.unwrap().count, found.missed_deep.unwrap().count), (2, 2));
        assert_eq!(found.sleeps, 26);
    }

    #[test]
    fn a_forbidden_state_cannot_be_missed() {
        let pattern = pattern(sandybridge(), &[&[], &[200; 9], &[], &[]], &[100]);
        let known = |states: &[u8]| Known {
            disabled: states.iter().map(|&index| (CpuId(0), CstateIndex(index))).collect(),
            ..Known::default()
        };
        let missed = |known: &Known| Findings::of(&pattern, known).all.missed_deep.unwrap().count;
        assert_eq!((missed(&known(&[])), missed(&known(&[2])), missed(&known(&[2, 3]))), (9, 0, 0));
    }

    #[test]
    fn waking_costs_what_was_measured_or_else_what_is_advertised() {
        let pattern = pattern(sandybridge(), &[&[], &[99; 10], &[], &[9_901; 10]], &[]);
        let cost = |known: &Known| Findings::of(&pattern, known).all.wake_cost.unwrap();
        let advertised = cost(&Known::default());
        assert_eq!(advertised.source, LatencySource::Advertised);
        assert!((advertised.share.as_f64() - 0.0105).abs() < 1e-9, "{advertised:?}");
        let wake = [(1, 3), (3, 47)].map(|(state, micros)| {
            let [p50, p99] = [micros, 9 * micros].map(Duration::from_micros);
            (CstateIndex(state), MeasuredWake { p50, p99 })
        });
        let measured = cost(&Known { wake: wake.into(), ..Known::default() });
        assert_eq!((measured.source, measured.share), (LatencySource::Measured, Ratio::new(0.005)));
        let half = cost(&Known { wake: wake[1..].iter().copied().collect(), ..Known::default() });
        assert_eq!(half.source, LatencySource::Advertised);
    }

    #[test]
    fn without_a_table_states_are_numbers_and_nothing_is_judged() {
        let pattern = pattern(CstateTable::default(), &[&[], &[500; 4]], &[500; 4]);
        let found = Findings::of(&pattern, &Known::default());
        let state = &found.all.states[1];
        assert_eq!((state.name.as_str(), state.share, state.sleeps), ("state 1", Ratio::new(0.5), 4));
        assert_eq!((state.premature, state.missed_deep, state.wake), (None, None, None));
        assert_eq!((found.all.premature, found.all.wake_cost), (None, None));
        assert!(found.all.slices.is_some());
        assert_eq!(found.unknown.len(), 2, "{:?}", found.unknown);
        let json = serde_json::to_value(&found).unwrap();
        assert!(json["all"].get("premature").is_none(), "{json}");
        assert_eq!(json["cpus"][0]["seen_ns"], 4_000_000);
    }

    #[test]
    fn counts_tell_residency_and_nothing_of_lengths() {
        let mut pattern = pattern(sandybridge(), &[&[], &[250; 1_000]], &[]);
        (pattern.source, pattern.elapsed) = (SleepSource::Counts, Duration::from_secs(1));
        let found = Findings::of(&pattern, &Known::default());
        assert_eq!((found.all.active, found.all.states[1].share), (Ratio::new(0.75), Ratio::new(0.25)));
        assert_eq!((found.all.premature, found.all.slices, found.all.idle_lengths), (None, None, None));
        assert!(found.all.wake_cost.is_some());
        assert!(found.unknown[0].contains("no lengths"));
    }

    #[test]
    fn short_slices_are_those_below_a_millisecond_by_time_not_by_number() {
        let pattern = pattern(sandybridge(), &[&[], &[100; 100], &[], &[10_000; 3]], &[100; 50]);
        let slices = Findings::of(&pattern, &Known::default()).all.slices.unwrap();
        assert_eq!((slices.short_of_idle, slices.short_of_active), (Ratio::new(0.25), Ratio::ONE));
        assert!((slices.short_of_all.as_f64() - 15.0 / 45.0).abs() < 1e-9);
    }

    #[test]
    fn cpus_with_different_tables_are_told_apart_in_the_sum() {
        let mut both = pattern(sandybridge(), &[&[], &[50; 3]], &[50]);
        let little = CstateTable(vec![
            state("POLL", CstateKind::Polling, 0, 0),
            state("C1E", CstateKind::Halting, 2, 4),
        ]);
        both.cpus
            .push(CpuPattern { cpu: CpuId(1), ..pattern(little, &[&[], &[50; 5]], &[50]).cpus[0].clone() });
        let names: Vec<(String, u64)> = Findings::of(&both, &Known::default())
            .all
            .states
            .into_iter()
            .map(|state| (state.name, state.sleeps))
            .collect();
        let expected = [("POLL", 0), ("C1", 3), ("C1E", 5)];
        assert_eq!(names, expected.map(|(name, sleeps)| (name.to_owned(), sleeps)));
    }

    proptest! {
        #[test]
        fn shares_add_up_to_one_and_no_count_exceeds_the_sleeps(
            idle in proptest::collection::vec(proptest::collection::vec(1u64..2_000_000, 0..30), 4),
            active in proptest::collection::vec(1u64..2_000_000, 1..60),
        ) {
            let idle: Vec<&[u64]> = idle.iter().map(Vec::as_slice).collect();
            let found = Findings::of(&pattern(sandybridge(), &idle, &active), &Known::default()).all;
            let shares = found.active.as_f64() + found.states.iter().map(|state| state.share.as_f64()).sum::<f64>();
            prop_assert!((shares - 1.0).abs() < 1e-9);
            let of = |lengths: &Option<Vec<LengthShare>>| -> f64 {
                lengths.iter().flatten().map(|entry| entry.share.as_f64()).sum()
            };
            prop_assert!((of(&found.idle_lengths) + of(&found.active_lengths) - 1.0).abs() < 1e-9);
            for state in &found.states {
                let (premature, missed) = (state.premature.unwrap(), state.missed_deep.unwrap());
                prop_assert!(premature.count + missed.count <= state.sleeps + 1);
            }
            let slices = found.slices.unwrap();
            prop_assert!(slices.short_idle_of_all <= slices.short_of_all);
        }
    }
}
