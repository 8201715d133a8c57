//! The freezer: groups of processes that stand still for a while, and then go on unchanged.
//!
//! ```text
//!   a unit, a cgroup, a process --> place.rs: which folder of which tree, or whether it must not be frozen
//!                                      |
//!   Freezer: lock per group, Journal   +--> version 2   cgroup.freeze, confirmed by cgroup.events
//!                                      +--> version 1   freezer.state, with a tree of its own
//!                                      `--> neither     SIGSTOP to each process, SIGCONT after
//! ```
//!
//! **Effects on the frozen.** In all three ways a system call in which a thread slept may end
//! early: `epoll_wait` (also `nanosleep`'s remainder, `poll` with a handler, `semop`) returns
//! `EINTR` once, as after any debugger's stop. A program that does not expect that of `epoll_wait`
//! has a fault that a `SIGSTOP` shows as well. Version 2 wakes every sleeper of the group once for
//! that. Timers run on while the group stands, and fire when it goes on. The parent learns of a
//! `SIGSTOP`, which a shell's job control shows.
//!
//! **Earlier stops.** A task that a signal has stopped stays stopped in all ways: the freezers do
//! not touch that state, and the third way leaves out processes that are stopped already. A group
//! that another program has frozen, or one above it, is left alone ([`Frozen::Foreign`]).
//!
//! Invariants:
//! - Before each freeze the journal says so; a group is thawed on every way out, and by
//!   `roost restore` after a SIGKILL.
//! - One holder per group: a lock in `/run/roost` that ends with its holder.
//! - Never frozen: a tree's root, `init.scope`, `system.slice`, and a group that holds this
//!   process, one of its ancestors, process 1, a process that the caller calls critical, or a
//!   service that others wait for (`needed.rs` has the list).
//! - A group that is gone is reported ([`Frozen::Gone`]), and may come back.

mod error;
mod events;
mod family;
mod hold;
mod needed;
mod place;

pub use error::FreezerError;

use crate::Root;
use crate::journal::{ChangeError, Checkpoint, Journal, restore_at_start};
use crate::knob::{FROZEN, is_stopped};
use crate::processes::service::{collect_members, command};
use crate::root::FileError;
use events::Events;
use family::stop;
use hold::Lock;
use machine::Duration;
use os::printable_name;
use place::Place;
use std::collections::BTreeSet;

/// The way to freeze a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum FreezerWay {
    /// The freezer of cgroups of version 2.
    #[serde(rename = "cgroup.freeze")]
    V2,
    /// The freezer of cgroups of version 1.
    #[serde(rename = "freezer.state")]
    V1,
    /// A signal to each process.
    #[serde(rename = "SIGSTOP")]
    Signal,
}

impl std::fmt::Display for FreezerWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V2 => "cgroup.freeze",
            Self::V1 => "freezer.state",
            Self::Signal => "SIGSTOP",
        })
    }
}

pub struct FreezerOptions {
    /// Our name, for a process that finds a lock or a journal.
    pub holder: String,
    /// Ways that may not be used, though they may exist.
    pub without: Vec<FreezerWay>,
    /// Called at every step of every change, for tests that end the process there.
    pub checkpoint: Option<Checkpoint>,
}

impl FreezerOptions {
    pub fn new(holder: &str) -> Self {
        Self { holder: holder.to_owned(), without: Vec::new(), checkpoint: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frozen {
    /// The freeze was requested.
    Told,
    /// Another program has frozen it, or a group above it: it is left alone.
    Foreign,
    /// It does not exist now.
    Gone,
}

#[derive(Debug)]
struct Group {
    unit: String,
    place: Place,
    /// For a group of version 2.
    events: Option<Events>,
    is_told: bool,
    /// By their paths in the journal: the processes that we stopped.
    stopped: Vec<String>,
    _lock: Lock,
}

/// Groups that may be frozen. Drop thaws them.
#[derive(Debug)]
pub struct Freezer {
    root: Root,
    journal: Journal,
    groups: Vec<Group>,
    notices: Vec<String>,
}

/// The patience with a group in a trial. A task in the middle of a disk transfer stands still only
/// after it.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(100);
/// The pause between two trials, in which the group works.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(2);

impl Freezer {
    /// Takes hold of these units, or of none: a systemd unit, a cgroup's path, or a process's
    /// number. None may hold one of the processes `critical`. Nothing is frozen yet.
    pub fn open(
        root: &Root,
        units: &[String],
        critical: &BTreeSet<u32>,
        options: FreezerOptions,
    ) -> Result<Self, FreezerError> {
        let places = places(root, units, critical, &options.without)?;
        let notices = restore_at_start(root)?;
        let mut groups = Vec::new();
        for (unit, place) in units.iter().cloned().zip(places) {
            let lock = Lock::take(root, &unit, &place, &options.holder)?;
            let events = match &place {
                Place::V2(folder) => Some(Events::of(root, folder)),
                Place::V1(_) | Place::Family(_) => None,
            };
            groups.push(Group { unit, place, events, is_told: false, stopped: Vec::new(), _lock: lock });
        }
        let journal = Journal::begin(root, &options.holder, options.checkpoint)?;
        Ok(Self { root: root.clone(), journal, groups, notices })
    }

    pub fn drain_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// The name that the caller gave it, and the way to freeze it. Groups are numbered in the order
    /// of their names' list.
    pub fn group(&self, number: usize) -> (&str, FreezerWay) {
        (&self.groups[number].unit, self.groups[number].place.way())
    }

    /// Its present processes.
    pub fn processes(&self, number: usize) -> BTreeSet<u32> {
        self.groups[number].place.processes(&self.root)
    }

    /// The first of these processes that must not be frozen in any group, and why; for processes
    /// that came to a group later.
    pub fn needed(&self, processes: &BTreeSet<u32>) -> Option<(u32, String)> {
        needed::among(&self.root, processes)
    }

    /// True between a freeze and its thaw.
    pub fn is_told(&self, number: usize) -> bool {
        self.groups[number].is_told
    }

    /// Tells the group to stand still, which takes effect a little later: [`Self::stands`]. With
    /// signals, the next call stops processes that were born before that.
    pub fn freeze(&mut self, number: usize) -> Result<Frozen, FreezerError> {
        let Self { root, journal, groups, .. } = self;
        let group = &mut groups[number];
        if group.is_told && !matches!(group.place, Place::Family(_)) {
            return Ok(Frozen::Told);
        }
        let outcome = match &group.place {
            Place::V2(folder) => {
                let is_asked = root.text(&format!("{folder}/cgroup.freeze")).is_ok_and(|text| text == "1");
                if is_asked || group.events.as_ref().is_some_and(Events::read_frozen) {
                    return Ok(Frozen::Foreign);
                }
                tell(journal, &format!("{folder}/cgroup.freeze"), "1")
            }
            Place::V1(folder) => {
                if root.text(&format!("{folder}/freezer.state")).is_ok_and(|state| state != "THAWED") {
                    return Ok(Frozen::Foreign);
                }
                tell(journal, &format!("{folder}/freezer.state"), FROZEN)
            }
            Place::Family(process) => stop(root, journal, *process, &mut group.stopped),
        };
        if matches!(outcome, Ok(Frozen::Told)) || !group.stopped.is_empty() {
            group.is_told = true;
        }
        outcome
    }

    /// True once all its processes stand still. Where a group has processes and groups of its own,
    /// Linux 6.18 says so when its own processes stand; those of its inner groups follow.
    pub fn stands(&self, number: usize) -> bool {
        let group = &self.groups[number];
        group.is_told
            && match &group.place {
                // Not `cgroup.freeze`, which shows the request only.
                Place::V2(_) => group.events.as_ref().is_some_and(Events::read_frozen),
                Place::V1(folder) => {
                    self.root.text(&format!("{folder}/freezer.state")).is_ok_and(|state| state == FROZEN)
                }
                Place::Family(process) => family::stands(&self.root, *process, &group.stopped),
            }
    }

    /// Lets it go on. A group that was thawed by another program or is gone counts as a success.
    pub fn thaw(&mut self, number: usize) -> Result<(), FreezerError> {
        let group = &mut self.groups[number];
        if !group.is_told {
            return Ok(());
        }
        let paths = match &group.place {
            Place::V2(folder) => vec![format!("{folder}/cgroup.freeze")],
            Place::V1(folder) => vec![format!("{folder}/freezer.state")],
            // Children first: a process that waits for one sees it go on.
            Place::Family(_) => group.stopped.iter().rev().cloned().collect(),
        };
        let mut result = Ok(());
        for path in paths {
            match self.journal.put_back_at_once(&path) {
                Err(ChangeError::File(FileError::Missing { .. })) => {
                    let _ = self.journal.forget(&path);
                }
                // Nothing may change without a record in the journal, but leaving it frozen would
                // be worse: all goes back.
                Err(ChangeError::Journal { .. }) => {
                    let undone = self.journal.put_back_all();
                    if let Some(failed) = undone.iter().find(|undone| undone.is_failure()) {
                        result = Err(FreezerError::Journal(failed.to_string()));
                    }
                }
                Err(error) => result = Err(error.into()),
                Ok(()) if matches!(group.place, Place::Family(_)) => drop(self.journal.forget(&path)),
                Ok(()) => {}
            }
        }
        if result.is_ok() {
            group.is_told = false;
            group.stopped.clear();
        }
        result
    }

    /// The time of freezing and thawing this group until all its processes have followed: the
    /// median of `rounds`, between which it works for a while. `None` if it does not exist, was
    /// frozen by another program, or does not stand still in 100 ms.
    pub fn measure(&mut self, number: usize, rounds: usize) -> Result<Option<Duration>, FreezerError> {
        let mut taken = Vec::new();
        for _ in 0..rounds {
            let began = crate::now();
            if self.freeze(number)? != Frozen::Told {
                return Ok(None);
            }
            let stood = self.until(|freezer| freezer.stands(number));
            self.thaw(number)?;
            if !stood {
                return Ok(None);
            }
            self.until(|freezer| freezer.goes(number));
            taken.push(crate::now().since(began));
            std::thread::sleep(PAUSE);
        }
        taken.sort();
        Ok(taken.get(taken.len() / 2).copied())
    }

    /// Thaws everything and returns one line per file that had not been put back yet.
    pub fn release(&mut self) -> Vec<String> {
        for number in 0..self.groups.len() {
            if let Err(error) = self.thaw(number) {
                self.notices.push(error.to_string());
            }
        }
        self.journal
            .put_back_all()
            .iter()
            .filter(|undone| undone.is_news())
            .map(ToString::to_string)
            .collect()
    }

    fn goes(&self, number: usize) -> bool {
        match &self.groups[number].place {
            Place::V2(_) => !self.groups[number].events.as_ref().is_some_and(Events::read_frozen),
            Place::V1(folder) => {
                self.root.text(&format!("{folder}/freezer.state")).is_ok_and(|state| state == "THAWED")
            }
            Place::Family(process) => !is_stopped(*process).unwrap_or(false),
        }
    }

    fn until(&self, holds: impl Fn(&Self) -> bool) -> bool {
        let patience = std::time::Instant::now() + PATIENCE;
        while !holds(self) {
            if std::time::Instant::now() > patience {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.release();
    }
}

fn tell(journal: &mut Journal, path: &str, value: &str) -> Result<Frozen, FreezerError> {
    match journal.set(path, value) {
        Ok(_) => Ok(Frozen::Told),
        Err(ChangeError::File(FileError::Missing { .. })) => {
            // It has nothing to put back.
            let _ = journal.forget(path);
            Ok(Frozen::Gone)
        }
        Err(error) => Err(error.into()),
    }
}

/// The processes of a unit, of a cgroup, or of a process with its children: for example the
/// critical ones.
pub fn processes_of(root: &Root, unit: &str) -> Result<BTreeSet<u32>, FreezerError> {
    Ok(Place::find(root, unit, &[])?.processes(root))
}

/// A readable name: a process by its program, a cgroup by its last folder, a unit by its name.
pub fn name_of(root: &Root, unit: &str) -> String {
    match unit.parse() {
        Ok(process) => printable_name(&command(root, process)),
        Err(_) => unit.trim_end_matches('/').rsplit('/').next().unwrap_or(unit).to_owned(),
    }
}

/// The way in which each of these would be frozen; an error where one must not be. Nothing is held
/// or changed.
pub fn survey(
    root: &Root,
    units: &[String],
    critical: &BTreeSet<u32>,
    without: &[FreezerWay],
) -> Result<Vec<FreezerWay>, FreezerError> {
    Ok(places(root, units, critical, without)?.iter().map(Place::way).collect())
}

fn places(
    root: &Root,
    units: &[String],
    critical: &BTreeSet<u32>,
    without: &[FreezerWay],
) -> Result<Vec<Place>, FreezerError> {
    let place = |unit: &String| {
        let place = Place::find(root, unit, without)?;
        place.check(root, unit, critical)?;
        Ok(place)
    };
    units.iter().map(place).collect()
}

/// The first few of these, by name.
fn named(root: &Root, processes: &BTreeSet<u32>) -> String {
    let shown = processes.iter().take(3).map(|&process| format!("{} ({process})", command(root, process)));
    shown.collect::<Vec<_>>().join(", ")
}

/// Whether both folders hold one group, of which processes are born and end all the time: a process that
/// is there in two looks at one is there in the look at the other between them.
pub(crate) fn is_same_group(root: &Root, one: &str, other: &str) -> bool {
    let [ones, others, ones_later, others_later] =
        [one, other, one, other].map(|folder| members(root, folder));
    ones.intersection(&ones_later).all(|process| others.contains(process))
        && others.intersection(&others_later).all(|process| ones_later.contains(process))
        && ones_later.is_empty() == others_later.is_empty()
}

/// All processes below a folder.
fn members(root: &Root, folder: &str) -> BTreeSet<u32> {
    let mut members = BTreeSet::new();
    collect_members(&root.path(folder), &mut members);
    members
}
