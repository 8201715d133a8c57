//! From single `cpu_idle` events to a pattern: for recordings, and where the kernel cannot count by
//! itself.
//!
//! A CPU's waker is the first interrupt after it went idle. The place where that is seen depends on
//! how the CPU sleeps: a plain halt runs the handler before the kernel reports that the CPU is
//! awake, `mwait` with interrupts off runs it just after.

use super::{CpuPattern, SleepPattern, SleepSource, Waker, Wakers};
use machine::{CpuId, CstateTable, Duration, Instant, LengthHistogram};
use std::collections::BTreeMap;

/// Follows the events of each CPU. Events of one CPU come in order of time; those of different CPUs
/// may mix.
#[derive(Debug, Default)]
pub struct Recorder {
    cpus: BTreeMap<CpuId, Followed>,
    lost: u64,
    first: Option<Instant>,
    last: Option<Instant>,
    /// Without a single interrupt, wakers were not watched.
    interrupts: bool,
}

#[derive(Debug, Default)]
struct Followed {
    idle: Vec<LengthHistogram>,
    active: LengthHistogram,
    now: State,
    /// Events before this come too late: their time is taken.
    latest: Instant,
    wakers: Wakers,
    end: End,
}

/// The known end of the current idle period, or of the one before.
#[derive(Clone, Copy, Debug, Default)]
enum End {
    /// Nothing yet, or all of it.
    #[default]
    Told,
    /// An interrupt came before the kernel said that the CPU is awake.
    Interrupted(Waker),
    /// The CPU is awake since then, and its interrupt may still come.
    Awaited(Instant),
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Before the first event, and after a loss.
    #[default]
    Unknown,
    Idle {
        state: usize,
        since: Instant,
    },
    Active {
        since: Instant,
    },
}

impl Recorder {
    /// States above this number are no idle states but a damaged event.
    pub const STATES_MAX: usize = 16;

    /// An interrupt that comes later than this after an idle period did not end it.
    const LATE: Duration = Duration::from_micros(20);

    /// `cpu` goes idle in `state`, or leaves its idle state with `None`. An event that cannot
    /// follow the one before (two entries in a row, a time that runs backwards) means that one is
    /// missing: the period in between is given up and counted as lost. So no moment counts twice,
    /// and the periods of a CPU never exceed the span.
    pub fn event(&mut self, now: Instant, cpu: CpuId, state: Option<usize>) {
        self.first = Some(self.first.map_or(now, |first| first.min(now)));
        self.last = Some(self.last.map_or(now, |last| last.max(now)));
        let followed = self.cpus.entry(cpu).or_default();
        let backwards = now < followed.latest;
        followed.latest = followed.latest.max(now);
        match (followed.now, state) {
            (State::Idle { state: asked, since }, None) if !backwards => {
                if followed.idle.len() <= asked {
                    followed.idle.resize(asked + 1, LengthHistogram::default());
                }
                followed.idle[asked].record(now.since(since));
                followed.end = match followed.end {
                    End::Interrupted(waker) => {
                        followed.wakers.count(Some(waker));
                        End::Told
                    }
                    _ => End::Awaited(now),
                };
            }
            (State::Active { since }, Some(_)) if !backwards => {
                followed.active.record(now.since(since));
                if let End::Awaited(_) = std::mem::take(&mut followed.end) {
                    followed.wakers.count(None);
                }
            }
            (State::Unknown, _) if !backwards => followed.end = End::Told,
            _ => {
                self.lost = self.lost.saturating_add(1);
                followed.end = End::Told;
            }
        }
        followed.now = match state {
            _ if backwards => State::Unknown,
            Some(state) if state < Self::STATES_MAX => State::Idle { state, since: now },
            Some(_) => {
                self.lost = self.lost.saturating_add(1);
                State::Unknown
            }
            None => State::Active { since: now },
        };
    }

    pub fn interrupt(&mut self, now: Instant, cpu: CpuId, waker: Waker) {
        self.interrupts = true;
        let Some(followed) = self.cpus.get_mut(&cpu) else { return };
        followed.end = match (followed.now, followed.end) {
            (State::Idle { .. }, End::Told) => End::Interrupted(waker),
            (State::Active { .. }, End::Awaited(awake)) => {
                followed.wakers.count((now.since(awake) <= Self::LATE).then_some(waker));
                End::Told
            }
            (_, end) => end,
        };
    }

    /// `events` of `cpu` are missing here, or of all CPUs: the state of the period in progress is
    /// unknown from now on.
    pub fn lose(&mut self, events: u64, cpu: Option<CpuId>) {
        self.lost = self.lost.saturating_add(events);
        for (&which, followed) in &mut self.cpus {
            if cpu.is_none_or(|cpu| cpu == which) {
                followed.now = State::Unknown;
                followed.end = End::Told;
            }
        }
    }

    /// From the first event to the last.
    pub fn span(&self) -> Duration {
        self.first.zip(self.last).map_or(Duration::ZERO, |(first, last)| last.since(first))
    }

    /// The periods so far. `table` describes each CPU's states.
    pub fn pattern(
        &self,
        elapsed: Duration,
        source: SleepSource,
        table: impl Fn(CpuId) -> CstateTable,
    ) -> SleepPattern {
        let cpu = |(&cpu, followed): (&CpuId, &Followed)| {
            let table = table(cpu);
            let mut idle = followed.idle.clone();
            idle.resize(idle.len().max(table.0.len()), LengthHistogram::default());
            let wakers = self.interrupts.then_some(followed.wakers);
            CpuPattern { cpu, table, idle, active: followed.active.clone(), wakers }
        };
        SleepPattern { elapsed, source, cpus: self.cpus.iter().map(cpu).collect(), lost: self.lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1_000)
    }

    fn pattern(recorder: &Recorder) -> SleepPattern {
        recorder.pattern(recorder.span(), SleepSource::PerfRing, |_| CstateTable::default())
    }

    #[test]
    fn periods_lie_between_events_and_the_first_is_not_guessed() {
        let mut recorder = Recorder::default();
        recorder.event(at(100), CpuId(1), None);
        recorder.event(at(130), CpuId(1), Some(2));
        recorder.event(at(100), CpuId(0), Some(1));
        recorder.event(at(1_130), CpuId(1), None);
        recorder.event(at(1_140), CpuId(1), Some(0));
        let pattern = pattern(&recorder);
        assert_eq!(pattern.cpus.len(), 2);
        assert_eq!((pattern.cpus[0].idle.len(), pattern.cpus[0].active.count()), (0, 0));
        let cpu = &pattern.cpus[1];
        assert_eq!((cpu.idle[2].count(), cpu.idle[2].time()), (1, Duration::from_millis(1)));
        assert_eq!((cpu.active.count(), cpu.active.time()), (2, Duration::from_micros(40)));
        assert_eq!((pattern.lost, pattern.elapsed), (0, Duration::from_micros(1_040)));
    }

    #[test]
    fn an_event_that_cannot_follow_gives_the_period_up_and_says_so() {
        let mut recorder = Recorder::default();
        recorder.event(at(10), CpuId(0), Some(1));
        recorder.event(at(90), CpuId(0), Some(3));
        recorder.event(at(95), CpuId(0), None);
        recorder.event(at(99), CpuId(0), None);
        recorder.event(at(50), CpuId(0), Some(1));
        recorder.event(at(120), CpuId(0), None);
        recorder.event(at(130), CpuId(0), Some(4_000_000));
        let pattern = pattern(&recorder);
        assert_eq!(pattern.lost, 4);
        assert_eq!(pattern.cpus[0].idle.iter().map(LengthHistogram::count).sum::<u64>(), 1);
        assert_eq!(pattern.cpus[0].idle[3].time(), Duration::from_micros(5));
    }

    #[test]
    fn after_a_loss_the_next_period_is_not_guessed() {
        let mut recorder = Recorder::default();
        for cpu in [0, 1] {
            recorder.event(at(10), CpuId(cpu), Some(1));
        }
        recorder.lose(7, Some(CpuId(0)));
        for cpu in [0, 1] {
            recorder.event(at(20), CpuId(cpu), None);
        }
        let pattern = pattern(&recorder);
        assert_eq!(pattern.lost, 7);
        assert!(pattern.cpus[0].idle.is_empty());
        assert_eq!(pattern.cpus[1].idle[1].count(), 1);
    }

    #[test]
    fn a_recording_that_says_absurdly_many_events_were_lost_is_read() {
        let mut recorder = Recorder::default();
        recorder.lose(u64::MAX, None);
        recorder.lose(u64::MAX, Some(CpuId(1)));
        assert_eq!(pattern(&recorder).lost, u64::MAX);
    }

    #[test]
    fn the_first_interrupt_while_idle_or_just_after_is_what_woke_the_cpu() {
        let mut recorder = Recorder::default();
        let cpu = CpuId(0);
        recorder.event(at(10), cpu, None);
        // As a plain halt ends, and a second interrupt that came with it.
        recorder.event(at(20), cpu, Some(1));
        recorder.interrupt(at(50), cpu, Waker::Device);
        recorder.interrupt(at(51), cpu, Waker::Timer);
        recorder.event(at(52), cpu, None);
        recorder.interrupt(at(53), cpu, Waker::Timer);
        // As `mwait` ends.
        recorder.event(at(60), cpu, Some(2));
        recorder.event(at(90), cpu, None);
        recorder.interrupt(at(91), cpu, Waker::Ipi);
        // Work that came by a mark in memory, and a timer long after.
        recorder.event(at(100), cpu, Some(0));
        recorder.event(at(110), cpu, None);
        recorder.interrupt(at(900), cpu, Waker::Timer);
        // Nothing at all.
        recorder.event(at(1_000), cpu, Some(0));
        recorder.event(at(1_100), cpu, None);
        recorder.event(at(1_200), cpu, Some(0));
        let wakers = pattern(&recorder).cpus[0].wakers.unwrap();
        assert_eq!(wakers, Wakers { timer: 0, device: 1, ipi: 1, unseen: 2 });
    }

    #[test]
    fn without_interrupts_the_waker_is_unknown() {
        let mut recorder = Recorder::default();
        recorder.event(at(10), CpuId(0), Some(1));
        recorder.event(at(20), CpuId(0), None);
        assert_eq!(pattern(&recorder).cpus[0].wakers, None);
    }

    #[test]
    fn the_same_moments_told_twice_count_once() {
        let mut recorder = Recorder::default();
        for _ in 0..2 {
            recorder.event(at(10), CpuId(0), Some(1));
            recorder.event(at(30), CpuId(0), None);
        }
        let pattern = pattern(&recorder);
        assert_eq!((pattern.cpus[0].idle[1].time(), pattern.lost), (Duration::from_micros(20), 1));
    }
}
