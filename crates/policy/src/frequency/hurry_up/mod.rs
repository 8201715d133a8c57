//! Hurry-up: speed for the threads that are in the hot function, and full speed for those that are
//! in it for long (the Hurry-up paper, section IV and its Figure 5).
//!
//! A search engine spends most of its time in one function. Outside it a thread's core runs at
//! f_min; inside at f_mid, the clock at which light requests take the least energy (found by
//! profiling); and a thread that has been inside for longer than a *threshold* has a heavy request,
//! which sets the tail: its core runs at f_max. An agent tells of each `enter` and `exit`.
//!
//! ```text
//!                  enter                   inside for longer than the threshold
//!   outside: f_min ------> inside: f_mid ---------------------------------------> late: f_max
//!      ^                     | exit                                                 | exit
//!      +---------------------+------------------------------------------------------+
//! ```
//!
//! [`Params::paper`] is the flowchart as printed: a thread of its own sleeps, takes the events that
//! there are, and looks at every search thread. The default differs in two ways. Decisions are made
//! when something happens, not up to one `sleep` later: a short call is not missed, and a quiet
//! machine is not woken. And the threshold is learned: the time that 95 % of calls stay below, the
//! share of queries that the paper's load generator makes light. That quantile can be measured
//! while the policy acts, because calls shorter than the threshold ran at f_mid whatever it is.
//!
//! A core is not a thread. Where the driver can tell, this follows threads across cores and knows
//! their other work (`levels.rs`): a core has the level of its most urgent thread that can run,
//! cores that share a clock have that of the most urgent among them, only cores that are truly idle
//! go to f_min, and the runtime's work for all its threads (collecting garbage, stopping them at a
//! safepoint) runs at f_max while a thread that is inside waits. The paper's flowchart knows none
//! of this: its preset looks at threads alone.
//!
//! One code, two drivers. The simulator binds each thread to a core ([`HurryUp::new`]) and calls
//! `handle_enter` and `handle_exit`. The governor begins with cores alone ([`HurryUp::of_service`])
//! and tells all that a look has shown in one call ([`HurryUp::handle_look`]), which is also
//! recorded and replayed (`input.rs`).
//!
//! Events may be lost or come twice. An exit without an enter is none. A second enter is a new call
//! (the exit before it was lost): its clock starts anew, and the lost call teaches nothing. A
//! thread whose exit was lost runs fast until its next event. Threads that were not named are
//! ignored.
//!
//! Invariants: every command names an operating point of the table, and only a change is commanded;
//! the order of events of different threads at one instant leaves no trace; a core of several
//! threads runs as fast as the fastest needs; while no thread is inside no core is at f_max, and no
//! timer is asked for.

mod bound;
mod input;
mod levels;
mod params;
#[cfg(test)]
mod properties;

pub use bound::Bound;
pub use input::Happened;
pub use levels::{Level, Work};
pub use params::{ENTRY, Learned, Params, Threshold};

use super::log_histogram::LogHistogram;
use super::{PointIndex, PointTable};
use levels::Cores;
use machine::{CpuId, Duration, Instant, Kilohertz};
use serde::{Deserialize, Serialize};

/// A thread by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ThreadId(pub u32);

/// A core that shall change its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shift {
    pub cpu: CpuId,
    pub point: PointIndex,
    /// The clock of that operating point, as cpufreq wants it.
    pub frequency: Kilohertz,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Thread {
    id: ThreadId,
    /// Place in the list of cores; `None` while it is on none of ours.
    core: Option<usize>,
    /// It runs or waits for its turn to; otherwise it waits for something else.
    runs: bool,
    /// It waits, and will count as waiting from then on.
    waits_from: Option<Instant>,
    call: Option<Call>,
    /// The level that the call needs: f_min for none.
    level: Level,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Call {
    entered: Instant,
    /// When the call turns out to be heavy.
    late_at: Instant,
}

impl Thread {
    fn new(id: ThreadId, core: Option<usize>, runs: bool) -> Self {
        Self { id, core, runs, waits_from: None, call: None, level: Level::Min }
    }
}

/// A thread that is inside, as programs show it to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hot {
    pub thread: ThreadId,
    /// Where; `None`: on none of the cores that are ours.
    pub cpu: Option<CpuId>,
    /// It runs, or waits for its turn to.
    pub runs: bool,
    pub entered: Instant,
    pub level: Level,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HurryUp {
    params: Params,
    points: PointTable,
    /// Indexed by level, from f_min to f_max.
    paces: [PointIndex; 3],
    threshold: Duration,
    /// Of the calls since the threshold was set.
    calls: LogHistogram,
    last_exit: Instant,
    /// Sorted by the numbers of the threads.
    threads: Vec<Thread>,
    cores: Cores,
    /// Of the paper's thread: when it looks next, if there may be something to see.
    look_at: Option<Instant>,
}

impl HurryUp {
    /// `threads`: each search thread and the CPU that it is bound to. A thread that is named twice
    /// is on the first.
    pub fn new(
        params: Params,
        points: &PointTable,
        threads: impl IntoIterator<Item = (ThreadId, CpuId)>,
    ) -> Self {
        let mut bound: Vec<(ThreadId, CpuId)> = threads.into_iter().collect();
        bound.sort_by_key(|(thread, _)| *thread);
        bound.dedup_by_key(|(thread, _)| *thread);
        let mut policy = Self::of_service(params, points, bound.iter().map(|(_, cpu)| vec![*cpu]));
        let thread = |(id, cpu)| Thread::new(id, policy.cores.place(cpu), true);
        policy.threads = bound.into_iter().map(thread).collect();
        policy
    }

    /// `domains`: the CPUs that are ours, each list those that can only change speed together.
    /// Threads come with [`Happened::Placed`].
    pub fn of_service(
        params: Params,
        points: &PointTable,
        domains: impl IntoIterator<Item = Vec<CpuId>>,
    ) -> Self {
        let nominal = points.khz(points.fastest()).0 as f64;
        let pace = |clock: Kilohertz| points.at_least_speed(clock.0 as f64 / nominal);
        Self {
            params,
            points: *points,
            paces: [params.f_min, params.f_mid, params.f_max].map(pace),
            threshold: match params.threshold {
                Threshold::Fixed(threshold) => threshold,
                Threshold::Learned(learned) => learned.first.max(learned.floor),
            },
            calls: LogHistogram::new(),
            last_exit: Instant::ZERO,
            threads: Vec::new(),
            cores: Cores::new(domains),
            look_at: None,
        }
    }

    /// The thread entered the hot function.
    pub fn handle_enter(&mut self, now: Instant, thread: ThreadId) {
        let Some(place) = self.place(thread) else { return };
        self.learn(now);
        let late_at = now + self.threshold;
        self.threads[place].call = Some(Call { entered: now, late_at });
        self.note(now, place);
    }

    pub fn handle_exit(&mut self, now: Instant, thread: ThreadId) {
        self.exit(now, thread, |call| Some(now.since(call.entered)));
    }

    /// `length`: how long the call took; one of which that is not known teaches nothing.
    fn exit(&mut self, now: Instant, thread: ThreadId, length: impl FnOnce(Call) -> Option<Duration>) {
        let Some(place) = self.place(thread) else { return };
        let Some(call) = self.threads[place].call.take() else { return };
        if let Some(length) = length(call) {
            self.record(now, length);
        }
        self.note(now, place);
    }

    /// A call has ended that took so long.
    fn record(&mut self, now: Instant, length: Duration) {
        self.learn(now);
        self.calls.record(length);
        self.last_exit = self.last_exit.max(now);
    }

    /// All that was seen between the last look and this one, in one go: the commands after it are
    /// one decision.
    pub fn handle_look(&mut self, now: Instant, happened: &[Happened]) {
        for &happened in happened {
            self.happen(now, happened);
        }
        self.handle_timeout(now);
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.params.sleep.is_some() {
            return self.look_at;
        }
        let inside = self.threads.iter().filter(|thread| thread.level == Level::Mid);
        let late = inside.filter_map(|thread| thread.call).map(|call| call.late_at);
        // A thread outside counts for nothing, and may wait as it likes.
        let waits = self.threads.iter().filter(|thread| thread.call.is_some());
        late.chain(waits.filter_map(|thread| thread.waits_from)).chain(self.cores.next_idle()).min()
    }

    /// Looks whose call turned out to be heavy. A call that is too early does nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        self.pause(now);
        for place in 0..self.threads.len() {
            self.decide(now, place);
        }
        self.settle();
        let waiting = self.threads.iter().any(|thread| thread.level == Level::Mid);
        self.look_at = if waiting { self.next_look(now) } else { None };
    }

    /// The next change of clock to make; call it until there is none.
    pub fn poll_command(&mut self) -> Option<Shift> {
        let (cpu, point) = self.cores.poll_change(&self.paces)?;
        Some(Shift { cpu, point, frequency: self.points.khz(point) })
    }

    /// After how long in the hot function a call counts as heavy, now.
    pub fn threshold(&self) -> Duration {
        self.threshold
    }

    /// Whether the other work of cores is of interest.
    pub fn follows_work(&self) -> bool {
        self.params.follows_work
    }

    /// The threads inside, in order of number.
    pub fn hot(&self) -> impl Iterator<Item = Hot> + '_ {
        self.threads.iter().filter_map(|thread| {
            Some(Hot {
                thread: thread.id,
                cpu: thread.core.map(|core| self.cores.cpu(core)),
                runs: thread.runs,
                entered: thread.call?.entered,
                level: thread.level,
            })
        })
    }

    /// The clock of each CPU, in order of number.
    pub fn levels(&self) -> impl Iterator<Item = (CpuId, Level)> + '_ {
        self.cores.levels()
    }

    pub fn clock(&self, level: Level) -> Kilohertz {
        self.points.khz(self.paces[level as usize])
    }

    fn place(&self, thread: ThreadId) -> Option<usize> {
        self.threads.binary_search_by_key(&thread, |thread| thread.id).ok()
    }

    fn note(&mut self, now: Instant, place: usize) {
        match self.look_at {
            _ if self.params.sleep.is_none() => {
                self.decide(now, place);
                self.settle();
            }
            None => self.look_at = self.next_look(now),
            Some(_) => {}
        }
    }

    fn decide(&mut self, now: Instant, place: usize) {
        let polled = self.params.sleep.is_some();
        let thread = &mut self.threads[place];
        thread.level = match thread.call {
            None => Level::Min,
            // The flowchart asks whether the thread is over its time; a timer means the instant
            // itself.
            Some(call) if call.late_at < now || !polled && call.late_at == now => Level::Max,
            Some(_) => Level::Mid,
        };
    }

    /// Threads that have waited for long enough do.
    fn pause(&mut self, now: Instant) {
        for thread in &mut self.threads {
            if thread.waits_from.is_some_and(|from| from <= now) {
                (thread.runs, thread.waits_from) = (false, None);
            }
        }
        self.cores.pause(now);
    }

    /// The need of every core, from its threads and its other work.
    fn settle(&mut self) {
        let follows = self.params.follows_work;
        let is_awaited = follows && self.threads.iter().any(|thread| thread.call.is_some() && !thread.runs);
        self.cores.begin(follows, is_awaited);
        for thread in self.threads.iter().filter(|thread| thread.runs || !follows) {
            if let Some(core) = thread.core {
                self.cores.raise(core, thread.level);
            }
        }
    }

    /// The paper's thread sleeps until the next multiple of its sleep.
    fn next_look(&self, now: Instant) -> Option<Instant> {
        let sleep_ns = self.params.sleep?.as_nanos().max(1);
        Some(Instant::from_nanos((now.as_nanos() / sleep_ns).saturating_add(1).saturating_mul(sleep_ns)))
    }

    /// Sets the threshold if there were enough calls before `now`.
    fn learn(&mut self, now: Instant) {
        let Threshold::Learned(learned) = self.params.threshold else { return };
        if self.calls.total() >= u64::from(learned.calls.max(1)) && self.last_exit < now {
            let usual = self.calls.quantile(learned.quantile).unwrap_or(learned.first);
            self.threshold = usual.max(learned.floor);
            self.calls.clear();
        }
    }
}

#[cfg(test)]
mod tests;
