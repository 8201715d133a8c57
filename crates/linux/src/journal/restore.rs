//! Puts back the changes of a dead run.
//!
//! A run restores first, and then reads the texts that it will put back itself. Those must not be a
//! dead run's own, so two things are waited for. One is another process that is just restoring: the
//! lock `restore.lock` excludes it, and a run that does not get the lock in time does not begin.
//! The other is a killed process from which the kernel has not yet taken the journal's lock: the
//! kernel closes a dead process's files one by one, and the lock of a CPU may be free before that
//! of the journal.
//!
//! Invariants:
//! - A journal is read only if it belongs to this user or to root, is a regular file and no link.
//! - One journal that cannot be used stops no other; it is kept, and its fault counts as a failure.
//! - A journal is removed only if all of it was understood and nothing in it is left to do.
//! - A thread is identified by its number and its start time. In other namespaces than the
//!   journal's these mean other threads, so there no thread counts as gone.
//! - A network card's settings are put back in the network namespace of the journal: see [`network`].

mod network;

use super::record::{Account, namespace_of, namespaces};
use super::undo::{Undone, undo_all};
use super::{SUFFIX, UNKNOWN_BOOT, boot_id};
use crate::Root;
use crate::knob::StopName;
use crate::knob::{Knob, cpu_of_switch, is_of_card};
use crate::lock::{LockError, take_soon};
use crate::processes::threads::{self, ThreadName};
use crate::run_place::{OpenInError, check, open_in, run_place};
use os::SafeFolder;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Restored {
    /// The facts found and the changes made, for people, one a line; never empty.
    pub lines: Vec<String>,
    /// Files given their earlier text back.
    pub put_back: usize,
    /// Files that another program had changed since.
    pub left_alone: usize,
    /// Files that should have been put back but could not be. Their journals are kept, for another
    /// try.
    pub failed: usize,
    /// Runs that are still alive; their changes stay.
    pub alive: usize,
}

/// The journals cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("cannot read the journals in {path}: {cause}; run `roost restore` as the user that ran \
        Roost, or as root", path = path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// Another process restores for too long, or the folder is not to be trusted.
    #[error(transparent)]
    Refused(#[from] LockError),
}

/// Puts back the changes below `root` of runs that no longer live, leaves other programs' later
/// changes alone, and reports. Runs that still live are passed over.
pub fn restore(root: &Root) -> Result<Restored, RestoreError> {
    let folder = run_place(root);
    let mut report = Restored::default();
    let nothing = format!("nothing to put back: no run has left a journal in {}", folder.display());
    match fs::symlink_metadata(&folder) {
        // No run was ever here.
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            report.lines.push(nothing);
            return Ok(report);
        }
        Err(cause) => return Err(RestoreError::Unreadable { path: folder, cause }),
        Ok(_) => {}
    }
    check(&folder)?;
    let entries =
        fs::read_dir(&folder).map_err(|cause| RestoreError::Unreadable { path: folder.clone(), cause })?;
    drop(entries);
    let _one_restores = take_soon(&folder.join("restore.lock"), &own_words())?;
    let _of_before = exclude_earlier_versions(&folder, &mut report);
    let entries =
        fs::read_dir(&folder).map_err(|cause| RestoreError::Unreadable { path: folder.clone(), cause })?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    if let Ok(folder) = SafeFolder::open(&folder) {
        // Of a run that was killed as it began, or as it wrote its journal anew: then the old one
        // exists.
        folder.remove_drafts();
        for draft in
            names.iter().filter(|name| earlier_draft(name).is_some_and(|process| !threads::lives(process)))
        {
            let _ = folder.remove_if_left(draft);
        }
    }
    names.retain(|name| name.ends_with(SUFFIX));
    names.sort_unstable();
    // CPUs that a run took offline come first: until they are back, other runs' changes to them are
    // refused or hidden.
    names.sort_by_key(|name| !switches_cpus(&folder.join(name)));
    for name in &names {
        restore_one(root, folder.join(name), &mut report);
    }
    if report.lines.is_empty() {
        report.lines.push(nothing);
    }
    Ok(report)
}

/// The number of journals that killed runs have left and [`restore`] has yet to follow; none while
/// another process restores.
pub fn restore_pending(root: &Root) -> usize {
    let folder = run_place(root);
    let Ok(_one_restores) = take_soon(&folder.join("restore.lock"), &own_words()) else { return 0 };
    let journals = fs::read_dir(&folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let is_left = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == &SUFFIX[1..])
            && open(path).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_ok())
    };
    journals.filter(is_left).count()
}

/// As [`restore`], before a run begins: the notices about dead runs, and nothing where there were none. A
/// run that would read a dead run's values gets an error and must not begin.
pub(crate) fn restore_at_start(root: &Root) -> Result<Vec<String>, LockError> {
    match restore(root) {
        Ok(report) if report.put_back + report.left_alone + report.failed > 0 => Ok(report.lines),
        Ok(_) => Ok(Vec::new()),
        Err(RestoreError::Refused(refused)) if refused.is_refusal() => Err(refused),
        Err(error) => Ok(vec![error.to_string()]),
    }
}

/// The name of this command, for processes that wait for us.
fn own_words() -> String {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = if name == "exe" { "roost".to_owned() } else { name };
    std::iter::once(name)
        .chain(words.next().filter(|word| !word.starts_with('-')))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Earlier versions exclude each other by a lock on the folder. It is taken as well, where it is
/// free soon: a stranger who opened the folder while others could still read it may hold it, and
/// must not stop us.
fn exclude_earlier_versions(folder: &Path, report: &mut Restored) -> Option<File> {
    let lock = File::open(folder).ok()?;
    match until_unlocked(&lock) {
        Ok(()) => Some(lock),
        Err(_) => {
            report.lines.push(format!(
                "{} is locked by another process, as an earlier Roost does while it puts back: not \
                 waited for any longer",
                folder.display()
            ));
            None
        }
    }
}

/// The process of a journal that an earlier version had not written whole yet:
/// `PROCESS-TIME-RUN.draft`.
fn earlier_draft(name: &str) -> Option<u32> {
    let numbers: Vec<&str> = name.strip_suffix(".draft")?.split('-').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (numbers.len() == 3 && numbers.iter().all(is_number)).then(|| numbers[0].parse().ok())?
}

/// True if this journal holds a CPU that was taken offline.
fn switches_cpus(path: &Path) -> bool {
    let bytes = open(path).ok().and_then(|mut file| contents(&mut file).ok()).unwrap_or_default();
    Account::read(&bytes).held.keys().any(|path| cpu_of_switch(path).is_some())
}

/// A journal is never a link, and never another user's.
fn open(path: &Path) -> Result<File, OpenInError> {
    open_in(OpenOptions::new().read(true), path)
}

/// Deals with one journal. Its faults are reported and counted.
fn restore_one(root: &Root, path: PathBuf, report: &mut Restored) {
    if let Err(why) = try_restore_one(root, &path, report) {
        report.failed += 1;
        report.lines.push(format!("not followed: {} {why}", path.display()));
    }
}

fn try_restore_one(root: &Root, path: &Path, report: &mut Restored) -> Result<(), String> {
    let unreadable = |cause: io::Error| format!("cannot be read: {cause}");
    let mut file = match open(path) {
        Ok(file) => file,
        // Its owner, or another `roost restore`, has just finished with it.
        Err(OpenInError::Failed(cause)) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(OpenInError::Failed(cause)) => return Err(unreadable(cause)),
        Err(OpenInError::Unsafe(why)) => return Err(format!("{why}; look at it, and remove it")),
    };
    let mut lock = flock(&file, FlockOperation::NonBlockingLockExclusive);
    let mut account = Account::read(&contents(&mut file).map_err(unreadable)?);
    if lock == Err(Errno::WOULDBLOCK) && account.process.is_some_and(is_ending) {
        lock = until_unlocked(&file);
        account = Account::read(&contents(&mut file).map_err(unreadable)?);
    }
    let holder = account.holder.as_deref().unwrap_or("an unnamed run");
    let process = account.process.map_or_else(|| "unknown".to_owned(), |process| process.to_string());
    let who = format!("{holder} (process {process})");
    match lock {
        Ok(()) if file.metadata().is_ok_and(|file| file.nlink() == 0) => return Ok(()),
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            report.alive += 1;
            report.lines.push(format!("{who} still runs: what it changed stays until it ends"));
            return Ok(());
        }
        Err(cause) => return Err(unreadable(cause.into())),
    }
    if account.is_torn {
        report.lines.push(format!("{who}: the last line of {} is torn and passed over", path.display()));
    }
    let failed_before = report.failed;
    if account.boot.as_deref().is_some_and(is_another_boot) {
        report.lines.push(format!("{who} ran before the machine was last started: nothing of it is left"));
    } else {
        if account.unreadable > 0 {
            let version = account.version.as_deref().unwrap_or("no version that is known");
            report.failed += 1;
            report.lines.push(format!(
                "{who}: {} line(s) of its journal are not understood; they are of {version}. It is \
                 kept: put back with that \
                 version, or look at it and remove {}",
                account.unreadable,
                path.display()
            ));
        }
        undo_run(root, &who, account, report);
    }
    if report.failed > failed_before {
        // Kept: nothing else is known about the files that could not be written.
        return Ok(());
    }
    fs::remove_file(path).map_err(|cause| format!("is done with, and cannot be removed: {cause}"))
}

/// True if both are known and differ. A boot without a name counts as this one: texts are compared
/// anyway.
fn is_another_boot(boot: &str) -> bool {
    let now = boot_id();
    boot != now && boot != UNKNOWN_BOOT && now != UNKNOWN_BOOT
}

/// Puts back a run's changes, and counts those that stay.
fn undo_run(root: &Root, who: &str, account: Account, report: &mut Restored) {
    let lines_before = report.lines.len();
    // A journal is followed only to knobs of this crate, whatever it says: `roost restore` runs as
    // root.
    let mut held = account.held;
    held.retain(|path, _| {
        let known = Knob::at(root, path).is_some();
        if !known {
            report.failed += 1;
            report.lines.push(format!(
                "{who}: `{path}` in its journal is no file that this Roost changes: \
                    passed over, and the journal is kept"
            ));
        }
        known
    });
    let here = namespaces();
    let mut undone = Vec::new();
    let is_of_other_net = namespace_of(&account.namespaces, "net")
        .is_some_and(|theirs| Some(theirs) != namespace_of(&here, "net"));
    let mut cards = BTreeMap::new();
    if is_of_other_net {
        cards = held.extract_if(.., |path, _| is_of_card(path)).collect();
    }
    if !cards.is_empty() {
        match network::undo(root, &account.namespaces, &here, &cards) {
            network::Elsewhere::Undone(there) => undone = there,
            network::Elsewhere::Gone => held.extend(cards),
            network::Elsewhere::Unknown(cause) => {
                report.failed += 1;
                report.lines.push(format!(
                    "{who}: {} setting(s) of network cards are those of another network namespace ({}): \
                     {cause}; its journal is kept: run `roost restore` as root, outside of a unit, or \
                     there (nsenter, or in that container)",
                    cards.len(),
                    account.namespaces
                ));
            }
        }
    }
    if !account.namespaces.is_empty() && account.namespaces != here {
        let is_elsewhere = |path: &str| is_elsewhere(path, &account.namespaces, &here);
        let before = held.len();
        held.retain(|path, _| !is_elsewhere(path));
        let kept = before - held.len();
        if kept > 0 {
            report.failed += 1;
            report.lines.push(format!(
                "{who}: {kept} thread(s) cannot be told from here, for it ran in other namespaces \
                 ({}, and here {here}); its journal \
                 is kept: run `roost restore` there (nsenter, or in that container)",
                account.namespaces
            ));
        }
    }
    undone.extend(undo_all(root, &mut BTreeMap::new(), &held));
    for (_, undone) in undone {
        match undone {
            Undone::PutBack { .. } => report.put_back += 1,
            Undone::LeftAlone { .. } => report.left_alone += 1,
            Undone::Failed { .. } => report.failed += 1,
            Undone::AlreadyThere { .. } | Undone::Untouched { .. } | Undone::Gone { .. } => {}
        }
        if undone.is_news() {
            report.lines.push(format!("{who}: {undone}"));
        }
    }
    if report.lines.len() == lines_before {
        report.lines.push(format!("{who} ended with everything put back"));
    }
}

/// True if `path` names a thread or process that cannot be identified in these namespaces. Where
/// process numbers are the same and only times differ, one whose number is not in use is gone.
fn is_elsewhere(path: &str, theirs: &str, here: &str) -> bool {
    let (process, thread) = if let Some(name) = ThreadName::from_path(path) {
        (name.process, name.thread)
    } else if let Some(name) = StopName::from_path(path) {
        (name.process, name.process)
    } else {
        return false;
    };
    let is_same = |kind| namespace_of(theirs, kind) == namespace_of(here, kind);
    !is_same("pid") || (!is_same("time") && threads::began(process, thread).is_ok())
}

/// True if this process has been killed or has ended, and the kernel is cleaning up after it, or
/// has.
fn is_ending(process: u32) -> bool {
    /// `PF_EXITING` (`include/linux/sched.h`), in the ninth field of `/proc/PID/stat`: set before
    /// the first file is closed.
    const EXITING: u64 = 0x4;
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    // The name may hold any text; the fields after it begin with the third.
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.split(' '));
    let flags = fields.and_then(|mut fields| fields.nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & EXITING != 0)
}

/// The lock of a process that ends takes microseconds to go; a process that hangs in the kernel
/// counts as alive.
fn until_unlocked(file: &File) -> Result<(), Errno> {
    for _ in 0..1000 {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(std::time::Duration::from_millis(1)),
            other => return other,
        }
    }
    Err(Errno::WOULDBLOCK)
}

fn contents(file: &mut File) -> io::Result<Vec<u8>> {
    /// Far longer than a run's journal before its rewrite.
    const LENGTH_MAX: u64 = 16 << 20;
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(LENGTH_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
