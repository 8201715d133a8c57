//! Slack-enabled quiescence on a live machine: `policy::quiescence`, fed by the scheduler's events,
//! with the kernel's freezers as its hands.
//!
//! ```text
//!   linux::probes::WaitProgram --> EventTracker --> Quiescence --> Freeze, Thaw --> freezer::Freezer
//!     waits and wake-ups           learned waits,       |            journal, then the kernel's file
//!     of threads                   learned graph        +-- min wait <-- cost of freezing, measured
//! ```
//!
//! One thread decides. It sleeps on the program's bell, and is woken when all critical threads
//! wait, while something is frozen as soon as one goes on, by the policy's timer, and once a second
//! to look for processes that came or went. A bell that rings for waits that turn out too short is
//! answered at most once in 2 ms (`PACE`).
//!
//! What always holds:
//! - Groups are frozen through [`Freezer`] alone, so journalled first and thawed in whatever way
//!   this ends.
//! - Before anything is frozen the program is told to ring for each thread that goes on; events
//!   from before are looked at right after.
//! - A background group in which a process is found that is critical, or that others wait for, is
//!   left alone until it has left.
//! - Lost events, a freezer that fails, an error of any kind: everything goes on.

mod config;
mod decider;
mod domain;
mod error;
mod joules;
mod open;
mod status;
mod tally;
#[cfg(test)]
mod tests;
mod text;
mod tracker;

pub use config::QuiesceConfig;
pub use domain::Domain;
pub use error::QuiesceError;
pub use joules::EnergyStatus;
pub use open::{QuiesceOptions, Trigger};
pub use status::{BackgroundStatus, CriticalStatus, EdgeStatus, PayoffStatus, QuiesceStatus, SiteStatus};

use crate::controllers::{Controller, ControllerStatus, Machine, Refusal, Seen};
use decider::Decider;
use joules::Joules;
use linux::Root;
use linux::freezer::{Freezer, FreezerWay, Frozen, processes_of};
use linux::probes::{WaitProgram, WaitRole};
use machine::{Duration, Instant};
use policy::quiescence::{GroupId, QuiescenceCommand};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tally::{GroupTally, Tally};
use tracker::EventTracker;

/// A unit whose threads must not wait for a frozen process.
#[derive(Debug)]
struct Critical {
    unit: String,
    /// As a person would call it.
    name: String,
    processes: BTreeSet<u32>,
}

/// A unit that may be frozen.
#[derive(Debug)]
struct Background {
    unit: String,
    /// As a person would call it.
    name: String,
    way: FreezerWay,
    processes: BTreeSet<u32>,
    tally: GroupTally,
    /// Those that had come at the last look: they may have become another program since.
    come: BTreeSet<u32>,
    /// Of its processes, those that are not to be frozen whatever group they are in, and why.
    needed: BTreeMap<u32, String>,
    /// A critical or needed process is in it, or its freezer failed: not frozen.
    spared: Option<Spared>,
}

/// Why a group is not frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Spared {
    /// Until this process has left.
    Holds(String),
    Failed(String),
}

impl Spared {
    fn why(&self) -> &str {
        let (Self::Holds(why) | Self::Failed(why)) = self;
        why
    }
}

/// A machine whose background work stands still while critical work waits.
#[derive(Debug)]
pub struct Quiesce {
    root: Root,
    program: WaitProgram,
    tracker: EventTracker,
    decider: Decider,
    /// `None`: nothing is touched.
    freezer: Option<Freezer>,
    critical: Vec<Critical>,
    background: Vec<Background>,
    domain: Domain,
    trigger: Option<Trigger>,
    tally: Tally,
    joules: Joules,
    /// Freezing was not left off at the last look.
    was_on: bool,
    notices: Vec<String>,
    lost: u64,
    rescanned: Instant,
    stop: Stop,
    stopped: OwnedFd,
}

/// Ends a [`Quiesce`] from another thread.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    pub fn now(&self) {
        // A pipe that is full says so already.
        let _ = rustix::io::write(&*self.0, &[1]);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was asked to, or its time was over.
    Stopped,
    /// No critical process is left, and no unit in which one may come back.
    CriticalEnded,
}

/// Who has come and gone is looked for so often: of a process that was moved into a unit, or that
/// began with a unit that was started again. Children are followed as they are born.
const RESCAN_EVERY: Duration = Duration::from_secs(1);
/// After a ring that led to nothing, the next look is so much later: 500 looks a second are the
/// most that short waits cost.
const PACE: Duration = Duration::from_millis(2);
/// The first groups after 0, which is all other processes.
const FIRST_GROUP: u32 = 1;

impl Quiesce {
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Freezes and thaws until it is stopped, no critical process is left, or `until` comes. `show`
    /// is called after each look.
    pub fn run(
        &mut self,
        until: Option<Instant>,
        mut show: impl FnMut(&mut Self),
    ) -> Result<Ending, QuiesceError> {
        loop {
            let now = linux::now();
            if until.is_some_and(|until| until <= now) {
                return Ok(Ending::Stopped);
            }
            if now >= self.rescanned + RESCAN_EVERY && !self.rescan(now)? {
                return Ok(Ending::CriticalEnded);
            }
            let has_acted = self.look(now);
            show(self);
            let now = linux::now();
            let pace = self.pace(now, has_acted);
            let dues = [self.decider.poll_timeout(), until, pace, Some(self.rescanned + RESCAN_EVERY)];
            let due = dues.into_iter().flatten().min().expect("the last one");
            if self.sleep(due.since(now))? {
                return Ok(Ending::Stopped);
            }
        }
    }

    /// Takes events, decides and acts. True if something was frozen or thawed.
    fn look(&mut self, now: Instant) -> bool {
        self.tally.looks += 1;
        let mut events = self.program.take();
        let lost = self.program.lost();
        if lost > self.lost {
            self.lost = lost;
            // The events taken are of before the loss, and so are those that came while they were
            // read.
            events.clear();
            self.program.take();
            self.forget(now);
        }
        self.decider.handle_idle(now, self.program.all_idle_time());
        let woken = self.tracker.hear(&mut self.decider, &events);
        let over = self.tracker.drain_unmarked(&self.decider);
        over.into_iter().for_each(|thread| self.program.unmark(thread));
        self.decider.handle_timeout(now);
        let has_acted = self.obey(woken);
        if self.decider.is_on() != self.was_on {
            self.joules.read(now, self.was_on);
            self.was_on = !self.was_on;
        }
        has_acted
    }

    fn obey(&mut self, woken: Option<Instant>) -> bool {
        let commands = self.decider.commands(linux::now());
        if commands.is_empty() {
            return false;
        }
        if commands.iter().any(|command| matches!(command, QuiescenceCommand::Freeze(_))) {
            self.program.arm(true);
        }
        let began = linux::now();
        let (mut has_frozen, mut has_thawed) = (false, false);
        for command in commands {
            match command {
                QuiescenceCommand::Freeze(group) => {
                    has_frozen = true;
                    self.freeze(group);
                }
                QuiescenceCommand::Thaw(group) => {
                    has_thawed = true;
                    self.thaw(group);
                }
            }
        }
        let done = linux::now();
        if !self.background.iter().any(|background| background.tally.since.is_some()) {
            self.program.arm(false);
        }
        if let Some(woken) = woken.filter(|_| has_thawed) {
            self.tally.delays.saturating_record(done.since(woken).as_nanos());
        }
        if let Some(cost) = self.tally.cost.spent(done, done.since(began), has_frozen) {
            self.decider.handle_cost(done, cost);
        }
        true
    }

    fn freeze(&mut self, group: GroupId) {
        let number = self.number(group);
        let background = &mut self.background[number];
        if background.spared.is_some() {
            return;
        }
        let outcome = self.freezer.as_mut().map_or(Ok(Frozen::Told), |freezer| freezer.freeze(number));
        let tally = &mut background.tally;
        match outcome {
            Ok(Frozen::Told) => {
                tally.freezes += 1;
                tally.since = Some(linux::now());
            }
            Ok(Frozen::Foreign) => tally.foreign += 1,
            Ok(Frozen::Gone) => tally.gone += 1,
            Err(error) => {
                background.spared = Some(Spared::Failed(error.to_string()));
                self.notices.push(format!("{}: not frozen any more: {error}", self.background[number].unit));
                // Half of it may have been frozen.
                self.thaw(group);
            }
        }
    }

    /// Of a group that is frozen: a child born before its parent had taken up its stop.
    fn freeze_the_rest(&mut self, number: usize) {
        let background = &mut self.background[number];
        let Some(freezer) = self.freezer.as_mut().filter(|_| background.tally.since.is_some()) else {
            return;
        };
        if freezer.stands(number) {
            return;
        }
        if let Err(error) = freezer.freeze(number) {
            background.spared = Some(Spared::Failed(error.to_string()));
            self.notices.push(format!("{}: not frozen any more: {error}", background.unit));
            self.thaw(GroupId(role_of_background(self.critical.len(), number).group));
        }
    }

    fn thaw(&mut self, group: GroupId) {
        let number = self.number(group);
        let tally = &mut self.background[number].tally;
        if let Some(freezer) = &mut self.freezer {
            if tally.since.is_some() && !freezer.stands(number) {
                tally.unconfirmed += 1;
            }
            if let Err(error) = freezer.thaw(number) {
                self.notices.push(format!("{}: cannot be thawed: {error}", self.background[number].unit));
                self.background[number].spared = Some(Spared::Failed("it could not be thawed".to_owned()));
                return;
            }
        }
        let tally = &mut self.background[number].tally;
        if let Some(since) = tally.since.take() {
            let length = linux::now().since(since);
            tally.frozen += length;
            tally.longest = tally.longest.max(length);
        }
    }

    /// Events were lost: everything goes on, and the critical threads are read anew.
    fn forget(&mut self, now: Instant) {
        self.tracker.forget_all();
        self.decider.handle_lost(now);
        for (number, critical) in self.critical.iter().enumerate() {
            let role = role_of_critical(number, self.trigger);
            for &process in critical.processes.iter().filter(|_| role.is_critical) {
                let events = self.program.look(process, role);
                self.tracker.hear(&mut self.decider, &events);
            }
        }
    }

    /// Looks for processes that came or went. False if no critical process is left that may come
    /// back.
    fn rescan(&mut self, now: Instant) -> Result<bool, QuiesceError> {
        self.rescanned = now;
        if let Some(cost) = self.tally.cost.forget(now) {
            self.decider.handle_cost(now, cost);
        }
        if self.tally.cost.is_due(now) && self.background.iter().all(|group| group.tally.since.is_none()) {
            self.try_again()?;
        }
        for number in 0..self.critical.len() {
            let processes = processes_of(&self.root, &self.critical[number].unit).unwrap_or_default();
            let role = role_of_critical(number, self.trigger);
            for process in processes.difference(&self.critical[number].processes) {
                let events = self.program.assign(*process, role)?;
                self.tracker.hear(&mut self.decider, &events);
            }
            self.dismiss(&self.critical[number].processes, &processes);
            self.critical[number].processes = processes;
        }
        let critical: BTreeSet<u32> =
            self.critical.iter().flat_map(|critical| &critical.processes).copied().collect();
        for number in 0..self.background.len() {
            let processes = match &self.freezer {
                Some(freezer) => freezer.processes(number),
                None => processes_of(&self.root, &self.background[number].unit).unwrap_or_default(),
            };
            let role = role_of_background(self.critical.len(), number);
            let come: BTreeSet<u32> =
                processes.difference(&self.background[number].processes).copied().collect();
            for process in &come {
                if !critical.contains(process) {
                    self.program.assign(*process, role)?;
                }
            }
            self.dismiss(&self.background[number].processes, &processes);
            if self.background[number].spared.is_some() && self.background[number].tally.since.is_some() {
                // It could not be thawed the last time.
                self.thaw(GroupId(role.group));
            }
            let mixed = processes.iter().find(|process| critical.contains(process));
            let holds = mixed.map(|process| format!("it holds critical process {process}"));
            let background = &mut self.background[number];
            background.needed.retain(|process, _| processes.contains(process));
            let young = background.come.intersection(&processes).chain(&come).copied().collect();
            background.needed.extend(self.freezer.as_ref().and_then(|freezer| freezer.needed(&young)));
            let holds = holds.or_else(|| background.needed.values().next().cloned());
            (background.come, background.processes) = (come, processes);
            self.freeze_the_rest(number);
            self.spare(number, holds);
        }
        self.tracker.expire(&self.decider);
        self.notices.extend(self.decider.flush());
        self.joules.read(now, self.was_on);
        let is_process = |unit: &str| unit.bytes().all(|byte| byte.is_ascii_digit());
        Ok(!critical.is_empty() || !self.critical.iter().all(|critical| is_process(&critical.unit)))
    }

    /// A group that holds a process that is not to be frozen is thawed, and left alone until that
    /// has left.
    fn spare(&mut self, number: usize, holds: Option<String>) {
        let background = &mut self.background[number];
        match (&background.spared, holds) {
            (None, Some(why)) => {
                self.notices.push(format!("{} is left alone: {why}", background.unit));
                background.spared = Some(Spared::Holds(why));
                self.thaw(GroupId(role_of_background(self.critical.len(), number).group));
            }
            (Some(Spared::Holds(_)), holds) => background.spared = holds.map(Spared::Holds),
            _ => {}
        }
    }

    fn dismiss(&self, before: &BTreeSet<u32>, now: &BTreeSet<u32>) {
        before.difference(now).for_each(|&process| self.program.dismiss(process));
    }

    /// The time of the next look without a ring. A ring that led to nothing is answered only once
    /// in a while.
    fn pace(&self, now: Instant, has_acted: bool) -> Option<Instant> {
        if has_acted || !self.tracker.has_events() {
            self.program.hold(Instant::ZERO);
            return None;
        }
        // Who waits by then is seen at that look.
        self.program.hold(now + PACE);
        Some(now + PACE)
    }

    /// Until something happens. True if it was told to end.
    fn sleep(&mut self, at_most: Duration) -> Result<bool, QuiesceError> {
        let nanos = at_most.as_nanos();
        let timeout =
            Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
        let bell = self.program.notifier();
        let mut ends = [PollFd::new(&bell, PollFlags::IN), PollFd::new(&self.stopped, PollFlags::IN)];
        match poll(&mut ends, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(!ends[1].revents().is_empty()),
            Err(error) => Err(QuiesceError::Watch(error.into())),
        }
    }

    fn number(&self, group: GroupId) -> usize {
        (group.0 - FIRST_GROUP) as usize - self.critical.len()
    }
}

impl Controller for Quiesce {
    type Config = QuiesceConfig;

    fn open(machine: &Machine, config: &QuiesceConfig) -> Result<Self, Refusal> {
        Ok(Self::open(config.options(machine))?)
    }

    fn ender(&self) -> Box<dyn Fn() + Send> {
        let stop = self.stop();
        Box::new(move || stop.now())
    }

    fn run(&mut self, show: &mut dyn FnMut(&mut Self)) -> Result<Option<String>, Refusal> {
        match self.run(None, show) {
            Ok(Ending::Stopped) => Ok(None),
            Ok(Ending::CriticalEnded) => {
                Err(Refusal::failed("no critical process is left; everything goes on"))
            }
            Err(error) => Err(Refusal::failed(format!("{error}; everything goes on"))),
        }
    }

    fn status(&self, now: Instant) -> ControllerStatus {
        ControllerStatus::Quiesce(Box::new(self.status(now)))
    }

    fn drain_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Thaws everything, and reports it.
    fn release(&mut self) -> Vec<String> {
        self.decider.handle_stop(linux::now());
        self.obey(None);
        self.notices.extend(self.decider.flush());
        self.freezer.as_mut().map(Freezer::release).unwrap_or_default()
    }

    fn seen(&self) -> Seen<'_> {
        Seen::Quiesce(self)
    }
}

/// Of a process of this unit. Where causes are followed from requests, only threads that one has
/// reached are told of.
fn role_of_critical(number: usize, trigger: Option<Trigger>) -> WaitRole {
    let group = FIRST_GROUP + number as u32;
    let is_asked = trigger == Some(Trigger::Accept);
    WaitRole { group, is_critical: !is_asked, is_asked, ..WaitRole::default() }
}

fn role_of_background(critical: usize, number: usize) -> WaitRole {
    let group = FIRST_GROUP + (critical + number) as u32;
    WaitRole { group, is_background: true, ..WaitRole::default() }
}
