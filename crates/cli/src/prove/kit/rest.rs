//! Wake-up times; the machine at rest, limited to one idle state after another; its clocks.

use super::{Ended, HOLDER, Run};
use crate::prove::meters::Meters;
use linux::{
    FrequencyControl, FrequencyOptions, FrequencyState, IdleControl, IdleOptions, LimitState, Residency,
};
use machine::{CpuId, CpuList, CstateTable, Duration, FrequencyLimit, IdleLimit, Kilohertz};
use observe::probe::{self, Batch, WakeSource};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use study::kit::{ClockSpan, IdleSpan, Share, State, Wakes, Word};

/// The longest beginning of a span that does not count: a limit is in force at once, and a CPU
/// that sleeps finds it at its next wake-up, a timer tick or two later.
const SETTLE_MOST: Duration = Duration::from_secs(2);

/// A look at the signals at least this often.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Run<'_> {
    pub(super) fn wake_ups(&mut self) -> Ended {
        let length = self.part_of(10);
        match probe::probe(length, &self.stop, &mut |step| eprintln!("  {step}")) {
            Err(error) => {
                eprintln!("  {error}");
                (State::Gap, Some("no CPU can be put to sleep by this process"))
            }
            Ok(found) => {
                found.notes.iter().for_each(|note| eprintln!("  {note}"));
                self.archive.wakes = found.batches.iter().map(wakes).collect();
                match found.notes.is_empty() {
                    true => (State::Done, None),
                    false => (State::Done, Some("with remarks, told on the terminal of the run")),
                }
            }
        }
    }

    pub(super) fn idle_power(&mut self) -> Ended {
        let Some(&first) = self.cpus.0.first() else { return (State::Gap, Some("no CPU is allowed")) };
        let table = linux::idle_table(&self.root, first).unwrap_or_default();
        let mut limits = vec![(IdleLimit::None, None)];
        limits.extend(probe::limits(&table).map(|(limit, name)| (limit, Some(name))));
        let mut turns: Vec<_> = limits.iter().chain(limits.iter().rev()).cloned().collect();
        let span = self.part_of(20) / turns.len() as u64;
        let mut why = (limits.len() == 1).then_some("no idle state can be limited here: power as it is");
        let mut control = None;
        if limits.len() > 1 {
            match IdleControl::open(&self.root, &self.cpus, IdleOptions::new(HOLDER)) {
                Ok(opened) => control = Some(opened),
                Err(error) => {
                    eprintln!("  {error}");
                    why = Some("idle states cannot be limited by this user, or another program has them");
                    turns.truncate(1);
                }
            }
        }
        let meters = self.open_meters(span);
        let count = turns.len();
        for (at, (limit, name)) in turns.into_iter().enumerate() {
            if self.is_stopped() {
                break;
            }
            let shown = name.as_deref().unwrap_or("no limit");
            eprintln!("  {} of {count}: {shown}, {span}", at + 1);
            if let Some(control) = &mut control
                && let Err(reason) = put(control, &self.cpus, limit)
            {
                eprintln!("  {reason}");
                why = Some(
                    "a limit was refused, or the administrator's own is stricter: its spans are missing",
                );
                continue;
            }
            if let Some(found) = self.at_rest(&meters, span, name.as_deref()) {
                self.archive.idle.push(found);
            }
        }
        drop(control);
        match (self.archive.idle.is_empty(), why) {
            (true, why) => (State::Gap, Some(why.unwrap_or("no span was measured"))),
            (false, why) => (State::Done, why),
        }
    }

    /// The machine left alone for so long.
    fn at_rest(&self, meters: &Meters, span: Duration, limited_to: Option<&str>) -> Option<IdleSpan> {
        let root = &self.root;
        self.pause((span / 4).min(SETTLE_MOST));
        let start = |&cpu: &CpuId| {
            let table = linux::idle_table(root, cpu).ok()?;
            Some((table, Residency::start(root, cpu).ok()?))
        };
        let mut counts: Vec<(CstateTable, Residency)> = self.cpus.0.iter().filter_map(start).collect();
        let begin = linux::now();
        self.pause(span - (span / 4).min(SETTLE_MOST));
        let end = linux::now();
        let seconds = end.since(begin).as_secs_f64();
        let mut by_state: BTreeMap<(Duration, String), f64> = BTreeMap::new();
        for (table, residency) in &mut counts {
            let times = residency.read(root).ok()?;
            for (state, time) in table.0.iter().zip(times) {
                *by_state.entry((state.exit_latency, state.name.clone())).or_default() += time.as_secs_f64();
            }
        }
        let all = seconds * self.cpus.0.len() as f64;
        let share = |((_, name), time): ((Duration, String), f64)| Share {
            state: Word::name(&name).unwrap_or_else(|| Word::of("?")),
            share: (time / all).max(0.0),
        };
        let sample = meters.take(begin, end);
        (!self.is_stopped()).then(|| IdleSpan {
            limited_to: limited_to.map(|name| Word::name(name).unwrap_or_else(|| Word::of("?"))),
            seconds,
            watts: sample.watts.into_iter().map(plain).collect(),
            busy_cpus: plain(sample.busy_cpus),
            states: by_state.into_iter().map(share).collect(),
        })
    }

    pub(super) fn clocks(&mut self) -> Ended {
        let mut control = match FrequencyControl::open(&self.root, &self.cpus, FrequencyOptions::new(HOLDER))
        {
            Ok(control) => control,
            Err(error) => {
                eprintln!("  {error}");
                return (State::Gap, Some("no clock can be set here"));
            }
        };
        let Some((slow, fast)) = control.speeds().map(|speeds| speeds.hardware).next() else {
            return (State::Gap, Some("no clock can be set here"));
        };
        let middle = Kilohertz(u64::midpoint(slow.0, fast.0));
        let turns = [slow, middle, fast, fast, middle, slow];
        let span = self.part_of(5) / turns.len() as u64;
        let meters = self.open_meters(span);
        let mut why = None;
        for (at, clock) in turns.into_iter().enumerate() {
            if self.is_stopped() {
                break;
            }
            eprintln!("  {} of {}: at most {clock}, {span}", at + 1, turns.len());
            let states = self.cpus.0.iter().map(|&cpu| control.limit(cpu, FrequencyLimit::AtMost(clock)));
            let states: Vec<FrequencyState> = states.collect();
            if !states.iter().any(|state| matches!(state, FrequencyState::InForce { .. })) {
                why = Some("a limit of the clock was refused: its spans are missing");
                continue;
            }
            self.pause((span / 4).min(SETTLE_MOST));
            let begin = linux::now();
            let turns = self.turns(span - (span / 4).min(SETTLE_MOST));
            let end = linux::now();
            let seconds = end.since(begin).as_secs_f64();
            if self.is_stopped() || seconds <= 0.0 {
                break;
            }
            let watts = meters.take(begin, end).watts.into_iter().map(plain).collect();
            let turns_per_s = turns as f64 / seconds;
            self.archive.clocks.push(ClockSpan { at_most_khz: clock.0, seconds, turns_per_s, watts });
        }
        for line in control.release() {
            eprintln!("  {line}");
        }
        if self.archive.clocks.is_empty() {
            (State::Gap, Some(why.unwrap_or("no span was measured")))
        } else {
            (State::Done, why)
        }
    }

    fn open_meters(&self, span: Duration) -> Meters {
        let every = (span / 20).clamp(LOOK_EVERY, Duration::from_secs(1));
        Meters::open(&self.root, &self.cpus, self.commands.clone(), every)
    }

    /// Until the time is over or a signal comes.
    fn pause(&self, length: Duration) {
        let until = linux::now() + length;
        while linux::now() < until && !self.is_stopped() {
            std::thread::sleep(LOOK_EVERY.min(until.since(linux::now())).into());
        }
    }

    /// How often a fixed loop of integer work goes round in this time, on one CPU.
    fn turns(&self, length: Duration) -> u64 {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let (mut turns, mut value) = (0_u64, 1_u64);
                while !over.load(Ordering::Relaxed) {
                    for _ in 0..10_000 {
                        // Knuth's generator (The Art of Computer Programming, volume 2, 3.3.4): each
                        // turn needs the one before.
                        value = black_box(
                            value
                                .wrapping_mul(6_364_136_223_846_793_005)
                                .wrapping_add(1_442_695_040_888_963_407),
                        );
                    }
                    turns += 1;
                }
                turns
            });
            self.pause(length);
            over.store(true, Ordering::Relaxed);
            worker.join().unwrap_or_default()
        })
    }
}

/// Puts it in force on all of them.
fn put(control: &mut IdleControl, cpus: &CpuList, limit: IdleLimit) -> Result<(), String> {
    for &cpu in &cpus.0 {
        match control.apply(cpu, limit) {
            LimitState::Refused { reason } => return Err(reason),
            LimitState::InForce { kept_stricter: true, .. } if limit != IdleLimit::None => {
                return Err(format!("CPU {}: the administrator's own limit is stricter", cpu.0));
            }
            LimitState::InForce { .. } | LimitState::Floor { .. } => {}
        }
    }
    Ok(())
}

fn wakes(batch: &Batch) -> Wakes {
    let name = |name: &String| Word::name(name).unwrap_or_else(|| Word::of("?"));
    let states = batch.states.iter().flatten();
    Wakes {
        limited_to: batch.limited_to.as_ref().map(name),
        by_other_cpu: batch.way == WakeSource::OtherCpu,
        sleep_ns: batch.sleep.as_nanos(),
        samples: batch.samples as u32,
        p50_ns: batch.p50.as_nanos(),
        p99_ns: batch.p99.as_nanos(),
        states: states.map(|share| Share { state: name(&share.name), share: share.share.as_f64() }).collect(),
    }
}

/// A number that an archive may have.
fn plain(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value >= 0.0)
}
