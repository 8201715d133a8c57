//! Speed for the threads that are in the hot function: `policy::frequency::hurry_up` on a live
//! service.
//!
//! ```text
//!   agent's slots, scheduler's events --> EventTracker --> Happened --> HurryUp --> Shift --> Clocks
//!                     |                                        |                      |
//!        doorbell, kicks, timer: wake                          +------ recording -----+
//!
//!   Clocks --> linux::FrequencyControl       Tally: the run in figures
//! ```
//!
//! One thread decides. It sleeps on the slot file's doorbell, and is woken by
//! - an enter, which rings while the governor sleeps;
//! - a kick: a CPU whose clock was chosen by its activity does something else
//!   (`linux::ThreadPlaces`);
//! - the policy's timer;
//! - while a thread is inside, `LOOK_EVERY`: exits ring nothing, and after a call has ended its
//!   core stays fast until the next look;
//! - the end of the service, and a signal, through threads of their own that only wait.
//!
//! Slots come from the service itself, in a file, or from the kernel for an unchanged program
//! ([`SlotSource`]): the same reader, the same loop. The kernel sees every enter and every return.
//! It learns late of an exception or a `longjmp` out of the function: from the thread's next enter
//! or exit. It also learns from a look, once the thread has been inside for 20 ms and sleeps
//! further out on its stack. Such looks come every `LOOK_EVERY` for as long as the slot says
//! inside. So such a core is fast for at most as long as its thread computes on, and 20 ms. The
//! depth in such a slot counts calls whose return address is still on the stack. A call that was
//! left unseen is dropped as soon as the thread enters or leaves at or above it, so the depth never
//! adds up.
//!
//! So a service with no thread inside costs nothing: no timer runs. Where a server enters more
//! often than the loop can look, two looks are at least `PACE` apart, and enters in between are
//! seen together.
//!
//! What always holds:
//! - Clocks are changed through [`Clocks`], so journalled first and put back in whatever way this
//!   ends; the slots are read and never believed (`slots::Reader`).
//! - Who is dead is not inside, whatever its slot says; when the service ends, or its file becomes
//!   unreadable, this ends.
//! - The policy's inputs and answers are recorded before they are carried out, where a recording
//!   was asked for.

mod config;
mod domains;
mod error;
mod open;
mod status;
mod tally;
mod tracker;

pub use config::{HurryUpConfig, threshold};
pub use error::HurryError;
pub use open::{ClocksAsked, HurryOptions, Preset, SlotSource};
pub use status::{CpuLevel, HotThread, HurryStatus};
pub use tally::{CpuTally, Tally};

use crate::audit::{Audit, Entry, now_unix_s};
use crate::clocks::{Clocks, Repair};
use crate::controllers::{Controller, ControllerStatus, Machine, Refusal, Seen};
use linux::probes::Notifier;
use linux::{FrequencyActuator, RotatingLog};
use machine::{CpuId, Duration, FrequencyLimit, Instant};
use observe::functions::FunctionWatch;
use policy::frequency::HurryUp;
use policy::frequency::hurry_up::{Happened, Level, Shift};
use policy::log::{Recorded as _, state_line, step_line};
use slots::{Enable, Woken};
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracker::EventTracker;

/// A live service whose clocks are chosen by the threads in its hot function.
#[derive(Debug)]
pub struct Hurry {
    process: u32,
    tracker: EventTracker,
    policy: HurryUp,
    /// Under this name clocks are asked for.
    asker: String,
    /// `None`: nothing is touched.
    clocks: Option<Clocks>,
    actuator: Option<FrequencyActuator>,
    tally: Tally,
    recording: Option<RotatingLog>,
    audit: Audit,
    notices: Vec<String>,
    stop: Stop,
    ended: Arc<AtomicBool>,
    looked: Instant,
    /// Threads that ended inside, lately: a service that is killed loses them before it ends
    /// itself.
    fallen: VecDeque<Instant>,
    repaired: Instant,
    /// CPUs were asked to tell when they do something else.
    asked_kicks: bool,
    /// They flap: not asked before then.
    ask_from: Instant,
    /// The number of changes since a thread was last inside.
    disturbed: u32,
    _kicks: Option<Notifier>,
    _end: OwnedFd,
    /// Of a program that was not changed.
    _probes: Option<FunctionWatch>,
}

/// Ends a [`Hurry`] from another thread.
#[derive(Clone, Debug)]
pub struct Stop {
    is_asked: Arc<AtomicBool>,
    bell: slots::Bell,
}

impl Stop {
    pub fn now(&self) {
        self.is_asked.store(true, Ordering::Release);
        // A file that is cut short ends it as well.
        let _ = self.bell.ring();
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was asked to, or its time was over.
    Stopped,
    ServiceEnded {
        /// So many of its threads were inside.
        inside: usize,
    },
    Contested {
        what: String,
    },
}

/// While a thread is inside, exits and moves are seen at most this late. The price is a core that
/// stays fast for nothing meanwhile; the price of less is more than 500 looks a second.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Two looks are at least this far apart: half of the time that an enter may wait for its clock.
const PACE: Duration = Duration::from_micros(500);
/// A thread that was not found is looked for again.
const SEARCH_AGAIN: Duration = Duration::from_millis(100);
/// CPUs that change between idle and busy are asked again after this, then after twice as long, and
/// so on.
const FLAPPING: Duration = Duration::from_millis(50);
/// After this many changes since a thread was last inside they are asked no more, and count as busy
/// until one is inside again: other work on this machine shall not keep us awake.
const KICKS_MAX: u32 = 5;
/// Between two looks for other processes' changes of clocks.
const REPAIR_EVERY: Duration = Duration::from_secs(1);
/// Who fell so shortly before the service did fell with it.
const TOGETHER: Duration = Duration::from_secs(1);
const FALLEN_MAX: usize = 1_000;
/// The author of clock changes in the audit.
const SERVICE: &str = "hurry-up";

impl Hurry {
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// The notices since the last call.
    pub fn drain_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Chooses clocks until it is stopped, the service ends or `until` comes. `show` is called when
    /// clocks or the threads inside have changed, and when it goes to rest.
    pub fn run(
        &mut self,
        until: Option<Instant>,
        mut show: impl FnMut(&mut Self),
    ) -> Result<Ending, HurryError> {
        let mut rested = false;
        loop {
            let now = linux::now();
            if self.stop.is_asked.load(Ordering::Acquire) || until.is_some_and(|until| until <= now) {
                return Ok(Ending::Stopped);
            }
            if self.ended.load(Ordering::Acquire) {
                let lately = self.fallen.iter().filter(|&&fell| now.since(fell) < TOGETHER).count();
                return Ok(Ending::ServiceEnded { inside: self.policy.hot().count() + lately });
            }
            let has_changed = self.look(now)?;
            if let Some(what) = self.repair(now) {
                return Ok(Ending::Contested { what });
            }
            if has_changed {
                self.stop_asking(now);
            }
            let rest = self.rest(now);
            if has_changed || (rest.is_none() && !rested) {
                show(self);
            }
            rested = rest.is_none();
            if rest == Some(Duration::ZERO) {
                continue;
            }
            let until_then = until.map(|until| until.since(now));
            let timeout = [rest, until_then].into_iter().flatten().min();
            match self.tracker.sleep(timeout)? {
                Woken::Entered if linux::now() < self.looked + PACE => linux::sleep_until(self.looked + PACE),
                // A CPU that has kicked will not do so again, whatever it does when it is looked
                // at.
                Woken::Called => {
                    self.disturbed += u32::from(self.asked_kicks);
                    self.stop_asking(linux::now());
                }
                Woken::Entered | Woken::TimedOut => {}
            }
        }
    }

    /// Observes events, decides and acts. True if there is something to show.
    fn look(&mut self, now: Instant) -> Result<bool, HurryError> {
        self.tracker.suppose_work(self.disturbed >= KICKS_MAX);
        let happened = self.tracker.look(now)?;
        self.looked = now;
        self.tally.looked(&happened);
        let is_due = self.policy.poll_timeout().is_some_and(|due| due <= now);
        if happened.is_empty() && !is_due && self.tally.looks > 1 {
            return Ok(false);
        }
        for happened in &happened {
            if let Happened::Gone { thread } = *happened
                && self.policy.hot().any(|hot| hot.thread == thread)
            {
                self.fallen.truncate(FALLEN_MAX - 1);
                self.fallen.push_front(now);
            }
        }
        let shifts = self.policy.apply(now, &happened);
        self.record(now, &happened, &shifts);
        let cpus = self.obey(&shifts);
        let done = linux::now();
        for happened in &happened {
            if let Happened::Entered { thread, at } = *happened
                && self
                    .policy
                    .hot()
                    .any(|hot| hot.thread == thread && hot.cpu.is_some_and(|cpu| cpus.contains(&cpu)))
            {
                self.tally.delays.saturating_record(done.since(at).as_nanos());
            }
        }
        for (cpu, level) in self.policy.levels() {
            self.tally.level_is(done, cpu, level);
        }
        self.note_threshold(now);
        let is_news = |happened: &Happened| {
            matches!(happened, Happened::Entered { .. } | Happened::Left { .. } | Happened::Gone { .. })
        };
        Ok(!shifts.is_empty() || happened.iter().any(is_news))
    }

    /// Sets clocks, those that rise first; the CPUs that were to change.
    fn obey(&mut self, shifts: &[Shift]) -> BTreeSet<CpuId> {
        let mut ordered = shifts.to_vec();
        ordered.sort_by_key(|shift| std::cmp::Reverse(shift.frequency));
        if let Some(clocks) = &self.clocks {
            for shift in &ordered {
                // A refusal is among its notices.
                clocks.limit(&self.asker, shift.cpu, limit(self.actuator, shift));
            }
            self.tally.writes += ordered.len() as u64;
        }
        ordered.iter().map(|shift| shift.cpu).collect()
    }

    /// How long there is nothing to do; `None`: until something happens.
    fn rest(&mut self, now: Instant) -> Option<Duration> {
        let due = self.policy.poll_timeout().map(|due| due.since(now));
        let is_hot = self.policy.hot().next().is_some();
        if is_hot {
            self.stop_asking(now);
            self.disturbed = 0;
            return due.into_iter().chain([LOOK_EVERY]).min();
        }
        let search = self.tracker.has_strangers().then_some(SEARCH_AGAIN);
        let due = due.into_iter().chain(search).min();
        if !self.policy.follows_work() || !self.tracker.places.sees_cpus() {
            return due;
        }
        if self.asked_kicks || self.disturbed >= KICKS_MAX {
            return due;
        }
        if now < self.ask_from {
            return due.into_iter().chain([self.ask_from.since(now)]).min();
        }
        self.asked_kicks = true;
        self.tracker.ask_kicks();
        // No event reports a change from before the question.
        Some(Duration::ZERO)
    }

    /// The kick of these CPUs has come, or is of no interest now. A CPU that flaps is not asked
    /// again at once.
    fn stop_asking(&mut self, now: Instant) {
        if std::mem::take(&mut self.asked_kicks) {
            self.tracker.ask_no_kicks();
            self.ask_from = now + FLAPPING * (1 << self.disturbed);
        }
    }

    /// Another process's change of our clocks is set right once; a second one stays.
    fn repair(&mut self, now: Instant) -> Option<String> {
        let clocks = self.clocks.as_ref()?;
        if now.since(self.repaired) < REPAIR_EVERY {
            return None;
        }
        self.repaired = now;
        match clocks.repair(&self.asker) {
            Repair::Unneeded => None,
            Repair::Done(what) => {
                self.tell("clock", "another's", "ours", format!("set once more: {what}"));
                self.notices.push(format!("set once more: {what}"));
                None
            }
            Repair::Vain(what) => {
                self.tell("clock", "ours", "another's", format!("set twice by another process: {what}"));
                Some(what)
            }
        }
    }

    fn note_threshold(&mut self, now: Instant) {
        let threshold = self.policy.threshold();
        let last = self.tally.thresholds.last().map(|(_, last)| *last);
        self.tally.threshold_is(now, threshold);
        if let Some(last) = last.filter(|last| *last != threshold) {
            self.tell(
                "threshold",
                &last.to_string(),
                &threshold.to_string(),
                "learned from the calls seen".to_owned(),
            );
        }
    }

    fn tell(&mut self, what: &str, old: &str, new: &str, why: String) {
        let entry = Entry {
            at_unix_s: now_unix_s(),
            service: format!("process {}", self.process),
            what: what.to_owned(),
            old: old.to_owned(),
            new: new.to_owned(),
            why,
            by: SERVICE.to_owned(),
        };
        self.notices.extend(self.audit.write(&entry));
    }

    fn record(&mut self, now: Instant, happened: &Vec<Happened>, shifts: &Vec<Shift>) {
        let Some(recording) = &mut self.recording else { return };
        let written = recording.write(&step_line::<HurryUp>(now, happened, shifts));
        let turned = written.and_then(|()| {
            if recording.is_full() { recording.rotate(&state_line(&self.policy)) } else { Ok(()) }
        });
        if let Err(error) = turned {
            self.notices.push(format!("the recording ends here: {error}"));
            self.recording = None;
        }
    }

    /// Puts everything back, and reports it, one line per file. Dropping does the same in silence.
    pub fn release(&mut self) -> Vec<String> {
        self.tracker.ask_no_kicks();
        // A file that is cut short, or whose service is gone, needs it no more.
        let _ = self.tracker.reader.enable(Enable::On);
        if let Some(Err(error)) = self.recording.as_mut().map(RotatingLog::flush) {
            self.notices.push(format!("the recording ends here: {error}"));
        }
        self.tell("clocks", "by who is inside", "as before", "the end".to_owned());
        self.clocks.as_ref().map(|clocks| clocks.release_of(&self.asker)).unwrap_or_default()
    }
}

/// The meaning of a policy's clock for this means: a hint and a power cap only limit.
fn limit(actuator: Option<FrequencyActuator>, shift: &Shift) -> FrequencyLimit {
    match actuator {
        Some(FrequencyActuator::Preference | FrequencyActuator::PowerCap | FrequencyActuator::Uncore) => {
            FrequencyLimit::AtMost(shift.frequency)
        }
        None
        | Some(FrequencyActuator::SetSpeed | FrequencyActuator::Bounds | FrequencyActuator::DutyCycle) => {
            FrequencyLimit::Exactly(shift.frequency)
        }
    }
}

impl Controller for Hurry {
    type Config = HurryUpConfig;

    fn open(machine: &Machine, config: &HurryUpConfig) -> Result<Self, Refusal> {
        let mut hurry = Self::open(&config.options(machine)?)?;
        let [idle, work, heavy] = hurry.clocks();
        hurry.notices.push(format!("clocks: {idle} idle, {work} at work, {heavy} for heavy calls"));
        Ok(hurry)
    }

    fn ender(&self) -> Box<dyn Fn() + Send> {
        let stop = self.stop();
        Box::new(move || stop.now())
    }

    fn run(&mut self, show: &mut dyn FnMut(&mut Self)) -> Result<Option<String>, Refusal> {
        match self.run(None, show) {
            Ok(Ending::Stopped) => Ok(None),
            Ok(Ending::ServiceEnded { inside: 0 }) => {
                Ok(Some("the service has ended; the clocks are as they were".to_owned()))
            }
            Ok(Ending::ServiceEnded { inside }) => Err(Refusal::failed(format!(
                "the service died with {inside} of its threads in the hot function; the clocks are as \
                 they were"
            ))),
            Ok(Ending::Contested { what }) => Err(Refusal::held(format!(
                "another process sets these clocks: {what}\nhint: stop it, or leave it these CPUs with \
                 --cpus; theirs stays in force"
            ))),
            Err(error) => Err(Refusal::failed(format!("{error}; the clocks are as they were"))),
        }
    }

    fn rests(&self) -> bool {
        self.policy.hot().next().is_none()
    }

    fn status(&self, now: Instant) -> ControllerStatus {
        ControllerStatus::HurryUp(Box::new(self.status(now)))
    }

    fn drain_notices(&mut self) -> Vec<String> {
        self.drain_notices()
    }

    fn release(&mut self) -> Vec<String> {
        self.release()
    }

    fn seen(&self) -> Seen<'_> {
        Seen::HurryUp(self)
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        let _ = self.tracker.reader.enable(Enable::On);
        // After a panic nothing was released.
        if let Some(clocks) = &self.clocks {
            clocks.withdraw(&self.asker);
        }
    }
}

/// The name of a level for people.
pub fn level_word(level: Level) -> &'static str {
    match level {
        Level::Min => "min",
        Level::Mid => "mid",
        Level::Max => "max",
    }
}
