//! Puts back the held changes of a journal, at the end of a run as after its death.
//!
//! CPUs that were taken offline come first, for much else is refused or hidden while they are away.
//! Files are put back one by one. Threads need more: one that began while its process was confined
//! has its parent's CPUs, ours, though no journal names it. So the processes of the named threads
//! are searched again, and their descendants: a thread that may run exactly on the CPUs that we
//! gave to an older one gets that older thread's earlier CPUs. The kernel does not record which
//! thread began another, so the main thread counts as the parent where it fits, else the one that
//! had the most CPUs: rather too free than too narrow.
//!
//! A process that left its parents (a daemon's second fork) between the last look and a SIGKILL is
//! not found.

use super::record::Held;
use crate::Root;
use crate::knob::{Knob, called, same_cpus};
use crate::processes::service::{parent, with_descendants};
use crate::processes::threads::{self, AFFINITY, ThreadName};
use crate::root::FileError;
use machine::CpuList;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Threads that are born while others are put back: we stop after this many rounds.
const ROUNDS_MAX: usize = 16;

/// The outcome for one file when it was to be put back.
#[derive(Debug)]
pub(crate) enum Undone {
    PutBack {
        path: String,
        from: String,
        to: String,
    },
    AlreadyThere {
        path: String,
        reads: String,
    },
    /// It was written down, and never changed.
    Untouched {
        path: String,
    },
    LeftAlone {
        path: String,
        reads: String,
        ours: String,
    },
    Gone {
        path: String,
    },
    Failed {
        error: FileError,
    },
}

impl Undone {
    /// False where there is nothing to report.
    pub(crate) fn is_news(&self) -> bool {
        !matches!(self, Self::Untouched { .. })
    }

    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }
}

impl fmt::Display for Undone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PutBack { path, from, to } => {
                write!(f, "{}: put back from `{from}` to `{to}`", called(path))
            }
            Self::AlreadyThere { path, reads } => {
                write!(f, "{}: already reads `{reads}`, as it should", called(path))
            }
            Self::Untouched { path } => write!(f, "{}: never changed", called(path)),
            Self::LeftAlone { path, reads, ours } => write!(
                f,
                "{}: left alone; it reads `{reads}`, which another program set after our `{ours}`",
                called(path)
            ),
            Self::Gone { path } => write!(f, "{}: no longer exists, nothing to put back", called(path)),
            Self::Failed { error } => write!(f, "not put back: {error}"),
        }
    }
}

/// Puts back all of `held`, in the possible order, and then the threads that inherited from it.
/// Each comes with its path.
pub(super) fn undo_all(
    root: &Root,
    knobs: &mut BTreeMap<String, Knob>,
    held: &BTreeMap<String, Held>,
) -> Vec<(String, Undone)> {
    for path in held.keys().filter(|path| !knobs.contains_key(*path)).cloned().collect::<Vec<_>>() {
        if let Some(knob) = Knob::at(root, &path) {
            knobs.insert(path, knob);
        }
    }
    let mut held = held.clone();
    let vanished = look_before_cpus_come_back(knobs, &mut held);
    let mut paths: Vec<&String> = held.keys().filter(|path| knobs.contains_key(*path)).collect();
    paths.sort_by_key(|path| {
        let inside_first = knobs[*path].is_undone_from_inside();
        let depth = if inside_first { usize::MAX - path.len() } else { path.len() };
        (knobs[*path].turn(), depth)
    });
    let mut done = Vec::new();
    for path in paths {
        if let Some(knob) = knobs.get_mut(path) {
            let undone = if held[path].may_be_lost() {
                undo_loss(knob, path, &held[path].before, vanished.contains(path))
            } else {
                undo(knob, path, &held[path])
            };
            done.push((path.clone(), undone));
        }
    }
    // Those whose parents are held; a cpuset frees its tasks by itself.
    done.extend(undo_inherited(root, &held));
    done
}

/// Collects the facts needed while CPUs are away, and returns the files that are away with them.
/// When a CPU comes back, some kernels make threads forget their CPUs. Another program's choice for
/// such a thread belongs there from now on.
fn look_before_cpus_come_back(
    knobs: &mut BTreeMap<String, Knob>,
    held: &mut BTreeMap<String, Held>,
) -> BTreeSet<String> {
    let mut vanished = BTreeSet::new();
    for (path, held) in held {
        let Some(knob) = knobs.get_mut(path).filter(|_| held.may_be_lost() || held.may_be_forgotten()) else {
            continue;
        };
        match knob.read() {
            Err(_) if held.may_be_lost() => drop(vanished.insert(path.clone())),
            Ok(_) if held.is_fresh() => drop(vanished.insert(path.clone())),
            // Nothing is read of a thread whose CPUs are all away.
            Ok(reads) if held.may_be_lost() || reads.is_empty() => {}
            Ok(reads) if !held.texts().any(|text| knob.same(text, &reads)) => held.before = reads,
            _ => {}
        }
    }
    vanished
}

/// Gives one file its earlier text back if it still reads one of ours.
fn undo(knob: &mut Knob, path: &str, held: &Held) -> Undone {
    let path = path.to_owned();
    let is_unwritten = held.is_unwritten();
    if is_unwritten && held.texts().all(|text| text == held.before) {
        return Undone::Untouched { path };
    }
    let reads = match knob.read() {
        Ok(reads) if is_unwritten && knob.same(&held.before, &reads) => return Undone::Untouched { path },
        Ok(reads) => reads,
        Err(FileError::Missing { .. }) => return Undone::Gone { path },
        Err(error) => return Undone::Failed { error },
    };
    if knob.same(&held.before, &reads) {
        if knob.is_deferred() {
            // Our last write may not have been taken up yet. A refusal leaves the present text,
            // which is as it should be.
            let _ = knob.give_back(&held.before);
        }
        return Undone::AlreadyThere { path, reads };
    }
    if !held.texts().any(|ours| knob.same(ours, &reads)) {
        return Undone::LeftAlone { path, reads, ours: held.ours.last().cloned().unwrap_or_default() };
    }
    given_back(knob, path, &held.before, reads)
}

fn given_back(knob: &mut Knob, path: String, before: &str, from: String) -> Undone {
    match knob.give_back(before) {
        Ok(to) if knob.same(before, &to) => Undone::PutBack { path, from, to },
        Ok(to) => {
            // In words, so that a reader does not take it for an earlier text.
            let to = format!("{to}, for the kernel refuses {before:?}");
            Undone::PutBack { path, from, to }
        }
        Err(FileError::Missing { .. }) => Undone::Gone { path },
        Err(error) => Undone::Failed { error },
    }
}

/// Gives a file its earlier text back that was away with its CPU until just now. A file that could
/// be read all the time belongs to its last writer.
fn undo_loss(knob: &mut Knob, path: &str, before: &str, vanished: bool) -> Undone {
    let path = path.to_owned();
    if !vanished {
        return Undone::Untouched { path };
    }
    match knob.read() {
        Ok(reads) if knob.same(before, &reads) => Undone::AlreadyThere { path, reads },
        Ok(reads) => given_back(knob, path, before, reads),
        Err(FileError::Missing { .. }) => Undone::Gone { path },
        Err(error) => Undone::Failed { error },
    }
}

/// Threads that are in no journal and run on CPUs that we gave to their parents.
fn undo_inherited(root: &Root, held: &BTreeMap<String, Held>) -> Vec<(String, Undone)> {
    let named = held.keys().filter_map(|path| ThreadName::from_path(path));
    let alive = named.filter(ThreadName::process_lives).map(|name| name.process);
    let elders: BTreeSet<u32> = alive.collect();
    let mut done = Vec::new();
    if elders.is_empty() {
        return done;
    }
    // Threads are real, so the processes are searched in the real /proc.
    let Ok(family) = with_descendants(&Root::system(), elders) else { return done };
    for _ in 0..ROUNDS_MAX {
        let before = done.len();
        for &process in &family {
            let Ok(began) = threads::began(process, process) else { continue };
            for thread in threads::of_process(process).unwrap_or_default() {
                let Ok(name) = ThreadName::now(process, began, thread) else { continue };
                let path = name.path();
                let Some(reads) = threads::cpus(thread).ok().map(|cpus| cpus.to_string()) else { continue };
                let ancestry = ancestry(process, &family);
                if held.contains_key(&path) || done.iter().any(|(known, _)| *known == path) {
                    continue;
                }
                let Some(before) = inherited(root, held, &ancestry, &reads) else { continue };
                let Some(mut knob) = Knob::at(root, &path) else { continue };
                done.push((path.clone(), undo(&mut knob, &path, &Held { before, ours: vec![reads] })));
            }
        }
        if done.len() == before {
            break;
        }
    }
    done
}

/// A process, its parent, and on while they are of the family.
pub(crate) fn ancestry(process: u32, family: &BTreeSet<u32>) -> Vec<u32> {
    let mut line = vec![process];
    let mut last = process;
    while let Some(parent) = parent(&Root::system(), last).filter(|parent| family.contains(parent)) {
        // A number that passed on during the look could close a circle.
        if line.contains(&parent) {
            break;
        }
        line.push(parent);
        last = parent;
    }
    line
}

/// The CPUs without us of a thread that reads `reads`, if it has them from a thread that is `held`:
/// one of its own process, else of its parent and so on.
pub(crate) fn inherited(
    root: &Root,
    held: &BTreeMap<String, Held>,
    ancestry: &[u32],
    reads: &str,
) -> Option<String> {
    ancestry.iter().find_map(|process| {
        let prefix = format!("{AFFINITY}{process}:");
        let of_process = held.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        let elders = of_process.filter(|(_, held)| held.ours.iter().any(|ours| same_cpus(root, ours, reads)));
        let rank = |path: &str, before: &str| {
            let main = ThreadName::from_path(path).is_some_and(|name| name.thread == name.process);
            (main, before.parse::<CpuList>().map_or(0, |cpus| cpus.0.len()))
        };
        elders.max_by_key(|(path, held)| rank(path, &held.before)).map(|(_, held)| held.before.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(entries: &[(&str, &str, &str)]) -> BTreeMap<String, Held> {
        let entry = |&(path, before, ours): &(&str, &str, &str)| {
            (path.to_owned(), Held { before: before.to_owned(), ours: vec![ours.to_owned()] })
        };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn a_thread_inherits_from_its_own_process_and_there_from_the_main_thread() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let held = held(&[
            ("affinity/10:1/10:1", "0-3", "2"),
            ("affinity/10:1/11:5", "0-7", "2"),
            ("affinity/10:1/12:5", "1", "1"),
            ("affinity/100:1/100:1", "6", "2"),
            ("affinity/20:1/21:1", "4", "2"),
            ("affinity/20:1/22:1", "4-5", "2"),
        ]);
        let from = |ancestry: &[u32], reads: &str| inherited(&root, &held, ancestry, reads);
        assert_eq!(from(&[10], "2").as_deref(), Some("0-3"), "the main thread, though another had more");
        assert_eq!(from(&[20], "2").as_deref(), Some("4-5"), "no main thread: the widest");
        assert_eq!(from(&[30, 20, 10], "2").as_deref(), Some("4-5"), "the nearest ancestor");
        assert_eq!(from(&[10], "2-3"), None, "not a value of ours");
        assert_eq!(from(&[1], "2"), None, "another process, though its number begins alike");
    }

    #[test]
    fn what_nobody_may_follow_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let gone = format!("affinity/{}:1/{}:1", u32::MAX, u32::MAX);
        let held = held(&[("etc/shadow", "evil", "2"), (&gone, "0", "1")]);
        let done = undo_all(&root, &mut BTreeMap::new(), &held);
        assert!(matches!(done[..], [(_, Undone::Gone { .. })]), "{done:?}");
    }
}
