//! From the scheduler's events to the work of one service: CPU time, turns, and wake-ups.
//!
//! Terms. A thread has a *turn* from the switch that gives it a CPU until the one that takes it
//! away. It *wakes* when a turn begins after one that it left to sleep; one wake-up may have
//! several turns. A recording has no requests; a wake-up of a service is the nearest thing.
//!
//! Invariants:
//! - Time on a CPU whose beginning was not seen is not counted; so the sum of all never exceeds the
//!   span times the CPUs.
//! - Memory: the service's threads, the CPUs, and a number for each second of at most a day.

use super::line::{Said, thread_number};
use hdrhistogram::Histogram;
use machine::{CpuId, Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

/// The threads of a service: those of a process and its children.
#[derive(Debug)]
pub(super) struct Members {
    process: u32,
    threads: BTreeMap<u32, u32>,
    parents: BTreeMap<u32, u32>,
    pub name: Option<String>,
    /// The recording says to which process a thread belongs.
    pub are_told: bool,
}

impl Members {
    pub fn of(process: u32) -> Self {
        let none = BTreeMap::new();
        Self { process, threads: none.clone(), parents: none, name: None, are_told: false }
    }

    /// A thread's number may come to mean one of another process: the last one counts.
    pub fn take(&mut self, said: &Said<'_>) {
        match *said {
            Said::Thread { process, thread, name } if thread != 0 => {
                if thread == self.process && !name.is_empty() {
                    self.name = Some(String::from_utf8_lossy(name).into_owned());
                }
                self.are_told |= process.is_some();
                // A process that ends is told of as process 0.
                let process = process.filter(|&process| process != 0);
                let known = process.or_else(|| (thread == self.process).then_some(thread));
                if let Some(process) = known.filter(|_| self.threads.len() < THREADS_MAX) {
                    self.threads.insert(thread, process);
                }
            }
            Said::Child { process, parent } if process != parent && self.parents.len() < THREADS_MAX => {
                self.parents.insert(process, parent);
            }
            _ => {}
        }
    }

    pub fn threads(&self) -> BTreeSet<u32> {
        let mut processes = BTreeSet::from([self.process]);
        loop {
            let known = processes.len();
            let children = self.parents.iter().filter(|(_, parent)| processes.contains(parent));
            let children: Vec<u32> = children.map(|(&process, _)| process).collect();
            processes.extend(children);
            if processes.len() == known {
                break;
            }
        }
        let of_it = self.threads.iter().filter(|(_, process)| processes.contains(process));
        of_it.map(|(&thread, _)| thread).collect()
    }
}

/// CPU time and turns of a group of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worked {
    pub cpu: Duration,
    pub turns: u64,
}

/// A service's work in a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceWork {
    /// From the first to the last event of the scheduler.
    pub elapsed: Duration,
    pub service: Worked,
    /// Everything else that had a CPU, without the idle threads.
    pub others: Worked,
    /// Time that the idle threads had a CPU.
    pub idle: Duration,
    /// Turns of each of its threads.
    pub threads: Vec<u64>,
    /// Turns that began after sleep.
    pub wakes: u64,
    /// The same in each second of the recording; the last is a part of one.
    pub each_second: Vec<u64>,
    /// From a wake-up to its turn, in nanoseconds; `None` if no wake-ups were recorded.
    pub waiting: Option<Histogram<u64>>,
    /// CPU time from a wake-up until the next sleep, in nanoseconds.
    pub work: Option<Histogram<u64>>,
}

#[derive(Debug, Default)]
struct Thread {
    turns: u64,
    asleep: bool,
    woken: Option<Instant>,
    /// CPU time since it woke; `None` if its waking was not seen.
    work: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Schedule {
    threads: BTreeMap<u32, Thread>,
    cpus: BTreeMap<CpuId, Option<(u32, Instant)>>,
    span: Option<(Instant, Instant)>,
    service: Worked,
    others: Worked,
    idle: Duration,
    wakes: u64,
    each_second: Vec<u64>,
    waiting: Histogram<u64>,
    work: Histogram<u64>,
}

impl Schedule {
    pub fn of(threads: BTreeSet<u32>) -> Self {
        Self {
            threads: threads.into_iter().map(|thread| (thread, Thread::default())).collect(),
            cpus: BTreeMap::new(),
            span: None,
            service: Worked::default(),
            others: Worked::default(),
            idle: Duration::ZERO,
            wakes: 0,
            each_second: Vec::new(),
            waiting: lengths(),
            work: lengths(),
        }
    }

    pub fn take(&mut self, said: &Said<'_>) {
        match *said {
            Said::Switch { at, cpu, left, sleeps, taken } => self.switch(at, cpu, left, sleeps, taken),
            Said::Woken { at, thread } => {
                if let Some(thread) = self.threads.get_mut(&thread).filter(|thread| thread.asleep) {
                    thread.woken.get_or_insert(at);
                }
            }
            Said::Lost { cpu, .. } => self.lose(cpu),
            _ => {}
        }
    }

    fn switch(&mut self, at: Instant, cpu: CpuId, left: u32, sleeps: bool, taken: u32) {
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
        let running = self.cpus.entry(cpu).or_default();
        // Another thread, or a time that runs backwards: a switch in between is missing.
        let seen = running.filter(|&(thread, since)| thread == left && since <= at);
        let ran = seen.map(|(_, since)| at.since(since));
        *running = Some((taken, at));
        match self.threads.get_mut(&left) {
            Some(thread) => {
                self.service.cpu += ran.unwrap_or_default();
                let work = thread.work.take().zip(ran).map(|(work, ran)| work + ran);
                if sleeps {
                    if let Some(work) = work {
                        self.work.saturating_record(work.as_nanos());
                    }
                } else {
                    thread.work = work;
                }
                (thread.asleep, thread.woken) = (sleeps, None);
            }
            None if left != 0 => self.others.cpu += ran.unwrap_or_default(),
            None => self.idle += ran.unwrap_or_default(),
        }
        match self.threads.get_mut(&taken) {
            Some(thread) => {
                thread.turns += 1;
                self.service.turns += 1;
                if std::mem::take(&mut thread.asleep) {
                    thread.work = Some(Duration::ZERO);
                    if let Some(woken) = thread.woken.take() {
                        self.waiting.saturating_record(at.since(woken).as_nanos());
                    }
                    self.wakes += 1;
                    let second = at.since(first).as_secs_f64() as usize;
                    if second < SECONDS_MAX {
                        self.each_second.resize(self.each_second.len().max(second + 1), 0);
                        self.each_second[second] += 1;
                    }
                }
            }
            None if taken != 0 => self.others.turns += 1,
            None => {}
        }
    }

    fn lose(&mut self, cpu: Option<CpuId>) {
        for (_, running) in self.cpus.iter_mut().filter(|(which, _)| cpu.is_none_or(|cpu| cpu == **which)) {
            *running = None;
        }
        for thread in self.threads.values_mut() {
            (thread.asleep, thread.woken, thread.work) = (false, None, None);
        }
    }

    /// `None` without a single switch.
    pub fn work(self) -> Option<ServiceWork> {
        let (first, last) = self.span?;
        let some = |lengths: Histogram<u64>| (!lengths.is_empty()).then_some(lengths);
        Some(ServiceWork {
            elapsed: last.since(first),
            service: self.service,
            others: self.others,
            idle: self.idle,
            threads: self
                .threads
                .into_values()
                .map(|thread| thread.turns)
                .filter(|&turns| turns > 0)
                .collect(),
            wakes: self.wakes,
            each_second: self.each_second,
            waiting: some(self.waiting),
            work: some(self.work),
        })
    }

    /// CPUs of which a switch was seen.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.cpus.keys().copied()
    }
}

/// A number of the file's in an `int`.
pub(super) fn thread_of(number: i64) -> Option<u32> {
    u64::try_from(number).ok().and_then(thread_number)
}

/// From a nanosecond to a minute, three digits.
fn lengths() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("these bounds are right")
}

const THREADS_MAX: usize = 1 << 18;
/// A day.
const SECONDS_MAX: usize = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1_000)
    }

    fn switch(micros: u64, left: u32, sleeps: bool, taken: u32) -> Said<'static> {
        Said::Switch { at: at(micros), cpu: CpuId(0), left, sleeps, taken }
    }

    fn work(events: &[Said<'_>]) -> ServiceWork {
        let mut schedule = Schedule::of(BTreeSet::from([12]));
        events.iter().for_each(|said| schedule.take(said));
        schedule.work().unwrap()
    }

    #[test]
    fn a_wake_up_lasts_over_a_preemption_until_the_next_sleep() {
        let found = work(&[
            switch(0, 12, true, 0),
            Said::Woken { at: at(100), thread: 12 },
            switch(130, 0, false, 12),
            switch(150, 12, false, 9),
            switch(160, 9, true, 12),
            switch(165, 12, true, 0),
            switch(1_200_000, 0, false, 12),
            switch(1_200_010, 12, true, 0),
        ]);
        assert_eq!((found.wakes, found.service.turns, found.others.turns), (2, 3, 1));
        assert_eq!(found.service.cpu, Duration::from_micros(35));
        assert_eq!(
            (found.others.cpu, found.idle),
            (Duration::from_micros(10), Duration::from_micros(1_199_965))
        );
        assert_eq!((found.each_second, found.threads), (vec![1, 1], vec![3]));
        assert_eq!(found.waiting.unwrap().max() / 1_000, 30);
        let work = found.work.unwrap();
        assert_eq!((work.len(), work.min() / 1_000, work.max() / 1_000), (2, 10, 25));
    }

    #[test]
    fn time_whose_beginning_was_not_seen_is_not_counted() {
        let found = work(&[
            switch(50, 12, true, 0),
            switch(60, 0, false, 12),
            Said::Lost { events: 3, cpu: Some(CpuId(0)) },
            switch(90, 12, true, 9),
            // The switch from 9 to 12 is missing.
            switch(95, 12, true, 0),
        ]);
        assert_eq!((found.service.cpu, found.others.cpu), (Duration::ZERO, Duration::ZERO));
        assert_eq!((found.wakes, found.work), (1, None));
    }

    #[test]
    fn a_service_is_its_process_and_its_children() {
        let mut members = Members::of(10);
        let thread = |process, thread| Said::Thread { process: Some(process), thread, name: b"mc" };
        for said in [thread(10, 10), thread(10, 12), thread(11, 11), thread(30, 31), thread(0, 0)] {
            members.take(&said);
        }
        members.take(&Said::Child { process: 13, parent: 11 });
        members.take(&thread(13, 14));
        assert_eq!(members.threads(), BTreeSet::from([10, 12]));
        members.take(&Said::Child { process: 11, parent: 10 });
        assert_eq!(members.threads(), BTreeSet::from([10, 11, 12, 14]));
        assert_eq!((members.name.as_deref(), members.are_told), (Some("mc"), true));
    }
}
