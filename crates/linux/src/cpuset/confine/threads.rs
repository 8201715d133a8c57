//! By affinity: each thread gets its CPUs.
//!
//! A process may start a thread at any moment, and the thread begins with its parent's CPUs. So the
//! list of threads is read until a reading shows no new one. A child of a thread that was moved
//! already has the new CPUs; a child of one that was not is found by the next reading. A new thread
//! that runs on CPUs that we gave to an older one has them from us, and gets back that older
//! thread's own (`journal/undo.rs`). Any other value comes from the service itself, and is the one
//! to restore. To tell the two apart, all threads stand in the journal, those too that need no
//! change.

use super::masks::share;
use super::{ConfineError, Confined, Drift, Foreign};
use crate::Root;
use crate::journal::{ChangeError, Journal, ancestry, inherited};
use crate::knob::called;
use crate::processes::privileges::{Capability, privileges};
use crate::processes::threads::{self as kernel, ThreadName, is_gone};
use crate::root::{FileError, Gaps};
use machine::CpuList;
use std::collections::{BTreeMap, BTreeSet};

/// For a process that starts threads faster than this loop, the number of rounds is bounded; the
/// next check finds the rest.
const ROUNDS_MAX: usize = 16;

/// The record of each thread, by its number.
#[derive(Debug, Default)]
pub(super) struct Threads(BTreeMap<u32, Known>);

#[derive(Debug)]
struct Known {
    process: u32,
    /// In the journal.
    path: String,
    /// The CPUs that it was given.
    share: String,
}

/// The result of one reading of the lists of threads.
#[derive(Default)]
struct Reading {
    changed: usize,
    /// Threads that are here now.
    present: BTreeSet<u32>,
    foreign: Vec<Foreign>,
}

impl Threads {
    /// Puts every thread on its share of `cpus`.
    pub(super) fn confine(
        &mut self,
        root: &Root,
        journal: &mut Journal,
        processes: &BTreeMap<u32, u64>,
        cpus: &CpuList,
        online: &CpuList,
    ) -> Result<Confined, ConfineError> {
        if self.0.is_empty() {
            // All are written down before the first is changed: a thread that is present now has
            // nothing from us.
            self.read_until_stable(root, journal, processes, |_, _, _, _| Ok(()))?;
        }
        let reading =
            self.read_until_stable(root, journal, processes, |threads, journal, thread, reading| {
                let changed = threads.place(journal, thread, cpus, online)?;
                reading.changed += usize::from(changed);
                Ok(())
            })?;
        if reading.present.is_empty() {
            return Err(ConfineError::Ended);
        }
        let mut in_force = CpuList::default();
        for known in self.0.values() {
            in_force.0.extend(known.share.parse::<CpuList>().unwrap_or_default().0);
        }
        in_force.0.retain(|cpu| online.0.contains(cpu));
        Ok(Confined { threads: reading.present.len(), changed: reading.changed, in_force })
    }

    /// Puts new threads on their share of `cpus`, and reports those that another program moved.
    pub(super) fn check(
        &mut self,
        root: &Root,
        journal: &mut Journal,
        processes: &BTreeMap<u32, u64>,
        cpus: &CpuList,
        online: &CpuList,
    ) -> Result<Drift, ConfineError> {
        let reading =
            self.read_until_stable(root, journal, processes, |threads, journal, thread, reading| {
                let known = &threads.0[&thread];
                if known.share.is_empty() {
                    reading.changed += usize::from(threads.place(journal, thread, cpus, online)?);
                    return Ok(());
                }
                let reads = journal.read(&known.path)?;
                if !journal.same(&known.path, &known.share, &reads) {
                    let (what, ours) = (called(&known.path), known.share.clone());
                    reading.foreign.push(Foreign { what, reads, ours });
                }
                Ok(())
            })?;
        Ok(Drift { confined: reading.changed, foreign: reading.foreign })
    }

    /// Calls `act` once for each thread, those included that are born meanwhile, and forgets those
    /// that ended.
    fn read_until_stable(
        &mut self,
        root: &Root,
        journal: &mut Journal,
        processes: &BTreeMap<u32, u64>,
        act: impl Fn(&mut Self, &mut Journal, u32, &mut Reading) -> Result<(), ChangeError>,
    ) -> Result<Reading, ConfineError> {
        let mut reading = Reading::default();
        for _ in 0..ROUNDS_MAX {
            let mut anybody_new = false;
            for (&process, &began) in processes {
                for thread in kernel::of_process(process).map_err(ConfineError::Threads)? {
                    if !reading.present.insert(thread) {
                        continue;
                    }
                    anybody_new = true;
                    let result = self
                        .meet(root, journal, processes, (process, began, thread))
                        .and_then(|()| act(self, journal, thread, &mut reading));
                    match result {
                        // It ended during the look, or its number is another's now, which the next
                        // round meets.
                        Err(ChangeError::File(FileError::Missing { .. })) => {
                            reading.present.remove(&thread);
                            self.forget(journal, thread)?;
                        }
                        result => result?,
                    }
                }
            }
            if !anybody_new {
                break;
            }
        }
        let ended = self.0.keys().copied().filter(|thread| !reading.present.contains(thread));
        for thread in ended.collect::<Vec<_>>() {
            self.forget(journal, thread)?;
        }
        Ok(reading)
    }

    /// Adds a thread: finds the CPUs that it has from us through its parent.
    fn meet(
        &mut self,
        root: &Root,
        journal: &mut Journal,
        processes: &BTreeMap<u32, u64>,
        (process, began, thread): (u32, u64, u32),
    ) -> Result<(), ChangeError> {
        if self.0.get(&thread).is_some_and(|known| known.process == process) {
            return Ok(());
        }
        let gone = || FileError::Missing { path: format!("/proc/{process}/task/{thread}").into() };
        let name = ThreadName::now(process, began, thread).map_err(|cause| match is_gone(&cause) {
            true => gone(),
            false => FileError::unreadable(gone().path(), cause),
        })?;
        let path = name.path();
        let reads = journal.read(&path)?;
        let family: BTreeSet<u32> = processes.keys().copied().collect();
        let before = inherited(root, journal.held(), &ancestry(process, &family), &reads);
        journal.adopt(&path, before.as_deref().unwrap_or(&reads), &reads)?;
        self.0.insert(thread, Known { process, path, share: String::new() });
        Ok(())
    }

    /// The threads that had these CPUs without us.
    pub(super) fn that_had(&self, journal: &Journal, cpus: &CpuList) -> Vec<u32> {
        let before = |known: &Known| journal.held().get(&known.path)?.before.parse::<CpuList>().ok();
        let all = self.0.iter().filter(|(_, known)| before(known).as_ref() == Some(cpus));
        all.map(|(&thread, _)| thread).collect()
    }

    /// Puts a known thread on its share. True if it had to be moved.
    fn place(
        &mut self,
        journal: &mut Journal,
        thread: u32,
        cpus: &CpuList,
        online: &CpuList,
    ) -> Result<bool, ChangeError> {
        let Some(known) = self.0.get_mut(&thread) else { return Ok(false) };
        let set = journal.set_from(&known.path, |own| {
            let own: CpuList = own.parse().unwrap_or_default();
            share(&own, cpus, online).to_string()
        })?;
        known.share = set.reads;
        Ok(set.changed)
    }

    fn forget(&mut self, journal: &mut Journal, thread: u32) -> Result<(), ChangeError> {
        match self.0.remove(&thread) {
            Some(known) => journal.forget(&known.path),
            None => Ok(()),
        }
    }
}

/// An error if this user may not set the CPUs of these processes: the kernel wants the same user,
/// or CAP_SYS_NICE.
pub(super) fn may_change(processes: &BTreeMap<u32, u64>) -> Result<(), String> {
    let me = privileges(&Root::system(), &mut Gaps::default());
    if me.has(Capability::SysNice) != Some(false) {
        return Ok(());
    }
    for process in processes.keys() {
        let status = Root::system().text(&format!("proc/{process}/status")).unwrap_or_default();
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        // Real and effective: either may be ours.
        let mut users = users.split_whitespace().take(2).map(|user| user.parse::<u32>().ok()).peekable();
        if users.peek().is_some() && !users.any(|user| user.is_some() && user == me.user) {
            return Err(format!(
                "process {process} is another user's: its threads need CAP_SYS_NICE; run as root or grant it"
            ));
        }
    }
    Ok(())
}
