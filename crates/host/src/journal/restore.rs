//! Putting back what a dead run changed.
//!
//! Whoever begins a run restores first, and then reads what it will put back itself. What it reads must not be a dead run's own,
//! so two things are waited for: another process that is just restoring (they exclude each other by a lock on the folder), and a
//! killed process that the kernel has not yet taken the journal's lock from (it closes a dead process's files one by one, and the lock of a
//! CPU may be free before that of the journal).

use super::record::Account;
use super::undo::{Undone, undo_all};
use super::{SUFFIX, boot_id};
use crate::Root;
use crate::knob::{Knob, cpu_of_switch};
use crate::lock::RUN_FOLDER;
use crate::root::FileError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What [`restore`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Restored {
    /// What was found and done, for people, one fact a line; never empty.
    pub lines: Vec<String>,
    /// Files given their earlier text back.
    pub put_back: usize,
    /// Files that somebody else had changed since.
    pub left_alone: usize,
    /// Files that should have been put back but could not be. Their journals are kept, so it can be tried again.
    pub failed: usize,
    /// Runs that are still alive; what they changed stays.
    pub alive: usize,
}

/// The journals cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the journals in {path}: {cause}; run `roost restore` as the user that ran Roost, or as root", path = path.display())]
pub struct RestoreError {
    /// The folder or file.
    pub path: PathBuf,
    /// What the kernel said.
    #[source]
    pub cause: io::Error,
}

/// Puts back whatever runs that no longer live have changed below `root`, leaves alone what somebody else changed
/// since, and says what it did. Runs that still live are passed over.
pub fn restore(root: &Root) -> Result<Restored, RestoreError> {
    let folder = root.path(RUN_FOLDER);
    let mut report = Restored::default();
    let unreadable = |cause: io::Error| RestoreError { path: folder.clone(), cause };
    let _one_restores = match File::open(&folder) {
        Ok(lock) => {
            flock(&lock, FlockOperation::LockExclusive).map_err(|cause| unreadable(cause.into()))?;
            Some(lock)
        }
        // No run was ever here; or reading it fails as well, and says so.
        Err(_) => None,
    };
    let mut names = root.names(RUN_FOLDER).map_err(|error| match error {
        FileError::Unreadable { path, cause } => RestoreError { path, cause },
        other => RestoreError { path: folder.clone(), cause: io::Error::other(other.to_string()) },
    })?;
    // CPUs that a run took offline first: until they are back, what other runs changed of them is refused or cannot be seen.
    names.retain(|name| name.ends_with(SUFFIX));
    names.sort_by_key(|name| !switches_cpus(&folder.join(name)));
    for name in &names {
        restore_one(root, folder.join(name), &mut report)?;
    }
    if report.lines.is_empty() {
        report.lines.push(format!("nothing to put back: no run has left a journal in {}", folder.display()));
    }
    Ok(report)
}

/// The same before a run begins: what there is to say of those that died, and nothing where there were none.
pub(crate) fn restore_at_start(root: &Root) -> Vec<String> {
    match restore(root) {
        Ok(report) if report.put_back + report.left_alone + report.failed > 0 => report.lines,
        Ok(_) => Vec::new(),
        Err(error) => vec![error.to_string()],
    }
}

/// True if this journal holds a CPU that was taken offline.
fn switches_cpus(path: &Path) -> bool {
    let bytes = open(path).and_then(|mut file| contents(&mut file)).unwrap_or_default();
    Account::read(&bytes).held.keys().any(|path| cpu_of_switch(path).is_some())
}

/// A journal is never a link: one that is was not made by us.
fn open(path: &Path) -> io::Result<File> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    OpenOptions::new().read(true).custom_flags(no_follow).open(path)
}

fn restore_one(root: &Root, path: PathBuf, report: &mut Restored) -> Result<(), RestoreError> {
    let unreadable = |cause| RestoreError { path: path.clone(), cause };
    let mut file = match open(&path) {
        Ok(file) => file,
        // Its owner, or another `roost restore`, has just finished with it.
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(unreadable(cause)),
    };
    let mut lock = flock(&file, FlockOperation::NonBlockingLockExclusive);
    let account = Account::read(&contents(&mut file).map_err(unreadable)?);
    if lock == Err(Errno::WOULDBLOCK) && account.process.is_some_and(is_ending) {
        lock = until_unlocked(&file);
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
    if account.unreadable > 0 {
        let (count, path) = (account.unreadable, path.display());
        report.lines.push(format!("{who}: {count} torn or foreign line(s) passed over in {path}"));
    }
    if account.boot.as_deref().is_some_and(|boot| boot != boot_id()) {
        report.lines.push(format!("{who} ran before the machine was last started: nothing of it is left"));
    } else if undo_run(root, &who, account, report) {
        // Kept: it is all that is known about the files that could not be written.
        return Ok(());
    }
    fs::remove_file(&path).map_err(unreadable)
}

/// Returns true if something that should have been put back was not.
fn undo_run(root: &Root, who: &str, account: Account, report: &mut Restored) -> bool {
    let (failed_before, lines_before) = (report.failed, report.lines.len());
    // A journal is followed nowhere but to what this crate changes, whatever it says: `roost restore` runs as root.
    let mut held = account.held;
    held.retain(|path, _| {
        let known = Knob::at(root, path).is_some();
        if !known {
            report
                .lines
                .push(format!("{who}: `{path}` in its journal is no file that Roost changes: passed over"));
        }
        known
    });
    for (_, undone) in undo_all(root, &mut BTreeMap::new(), &held) {
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
    report.failed > failed_before
}

/// True if this process has been killed or has ended, and the kernel is cleaning up after it, or has.
fn is_ending(process: u32) -> bool {
    /// `PF_EXITING` (`include/linux/sched.h`), in the ninth field of `/proc/PID/stat`: set before the first file is closed.
    const EXITING: u64 = 0x4;
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    // The name may hold anything; the fields after it begin with the third.
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.split(' '));
    let flags = fields.and_then(|mut fields| fields.nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & EXITING != 0)
}

/// The lock of a process that ends. It is a matter of microseconds; one that hangs in the kernel is told as alive.
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
    /// Far beyond what a run writes before it begins its journal anew.
    const LENGTH_MAX: u64 = 16 << 20;
    let mut bytes = Vec::new();
    file.take(LENGTH_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;
    use crate::journal::record::Record;

    const KNOB: &str = "sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us";

    /// A journal as a killed process leaves it: there, but locked by nobody.
    fn leave_journal(machine: &FakeMachine, boot: &str, records: &[Record]) {
        let run = Record::Run { holder: "roost serve".into(), process: 4_000_000, boot: boot.to_owned() };
        let text: String = std::iter::once(&run).chain(records).map(Record::line).collect();
        machine.write("run/roost/4000000-1-0.journal", &text);
    }

    fn intent(path: &str, before: &str, after: &str) -> Record {
        Record::Intent { path: path.into(), before: before.into(), after: after.into() }
    }

    #[test]
    fn a_killed_runs_change_is_put_back_once() {
        let machine = FakeMachine::intel_server(2);
        machine.write(KNOB, "2\n");
        leave_journal(&machine, &boot_id(), &[intent(KNOB, "100", "2")]);
        let report = restore(machine.root()).unwrap();
        assert_eq!((report.put_back, report.left_alone, report.failed), (1, 0, 0), "{report:?}");
        assert_eq!(machine.read(KNOB), "100");
        assert!(report.lines[0].contains("roost serve (process 4000000)"), "{report:?}");
        assert!(restore(machine.root()).unwrap().lines[0].starts_with("nothing to put back"));
    }

    #[test]
    fn a_change_that_was_never_made_is_not_unmade() {
        let machine = FakeMachine::intel_server(2);
        leave_journal(&machine, &boot_id(), &[intent(KNOB, "0", "2")]);
        let report = restore(machine.root()).unwrap();
        assert_eq!((report.put_back, report.left_alone), (0, 0));
        assert!(report.lines[0].contains("already reads"), "{report:?}");
    }

    #[test]
    fn what_somebody_changed_since_is_left_alone() {
        let machine = FakeMachine::intel_server(2);
        machine.write(KNOB, "33\n");
        leave_journal(&machine, &boot_id(), &[intent(KNOB, "0", "2")]);
        let report = restore(machine.root()).unwrap();
        assert_eq!((report.put_back, report.left_alone), (0, 1));
        assert!(report.lines[0].contains("left alone") && report.lines[0].contains("33"), "{report:?}");
        assert_eq!(machine.read(KNOB), "33");
    }

    #[test]
    fn a_cpu_that_was_removed_is_no_failure() {
        let machine = FakeMachine::intel_server(2);
        machine.remove("sys/devices/system/cpu/cpu1");
        leave_journal(&machine, &boot_id(), &[intent(KNOB, "0", "2")]);
        let report = restore(machine.root()).unwrap();
        assert!(report.failed == 0 && report.lines[0].contains("no longer exists"), "{report:?}");
    }

    #[test]
    fn a_journal_from_before_a_restart_is_thrown_away_unread() {
        let machine = FakeMachine::intel_server(2);
        machine.write(KNOB, "2\n");
        leave_journal(&machine, "another-boot", &[intent(KNOB, "0", "2")]);
        let report = restore(machine.root()).unwrap();
        assert_eq!(machine.read(KNOB), "2");
        assert!(report.lines[0].contains("last started"), "{report:?}");
        assert!(machine.root().names("run/roost").unwrap().is_empty());
    }

    #[test]
    fn a_journal_leads_nowhere_but_to_the_files_that_we_change() {
        let machine = FakeMachine::intel_server(2);
        machine.write("etc/shadow", "2\n");
        let paths = [
            "etc/shadow",
            "/etc/shadow",
            "sys/devices/system/cpu/cpu1/../../../../../etc/shadow",
            "sys/devices/system/cpu/cpu0/hotplug/target",
            "sys/devices/system/cpu/cpu/power/pm_qos_resume_latency_us",
        ];
        leave_journal(&machine, &boot_id(), &paths.map(|path| intent(path, "evil", "2")));
        let report = restore(machine.root()).unwrap();
        assert_eq!((report.put_back, report.lines.len()), (0, paths.len()), "{report:?}");
        assert_eq!(machine.read("etc/shadow"), "2");
    }

    /// True once somebody waits for a lock on this file.
    fn is_waited_for(path: &Path) -> bool {
        let inode = format!(":{} ", fs::metadata(path).unwrap().ino());
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| line.contains("->") && line.contains(&inode))
    }

    #[test]
    fn who_begins_waits_for_another_that_is_just_putting_back() {
        let machine = FakeMachine::intel_server(2);
        machine.write(KNOB, "2\n");
        leave_journal(&machine, &boot_id(), &[intent(KNOB, "100", "2")]);
        // The other has the folder and the journal, and has not written yet.
        let (folder, journal) = (machine.path("run/roost"), machine.path("run/roost/4000000-1-0.journal"));
        let locks = [&folder, &journal].map(|path| File::open(path).unwrap());
        locks.iter().for_each(|lock| flock(lock, FlockOperation::NonBlockingLockExclusive).unwrap());
        std::thread::scope(|scope| {
            let beginning = scope.spawn(|| {
                restore_at_start(machine.root());
                machine.read(KNOB)
            });
            while !beginning.is_finished() && !is_waited_for(&folder) {
                std::thread::yield_now();
            }
            machine.write(KNOB, "100");
            fs::remove_file(&journal).unwrap();
            drop(locks);
            assert_eq!(beginning.join().unwrap(), "100");
        });
    }

    #[test]
    fn who_begins_waits_for_the_end_of_a_process_that_was_killed() {
        use crate::Offspring as _;
        let machine = FakeMachine::intel_server(2);
        machine.write(KNOB, "2\n");
        // Killed and not waited for: it stays among the processes, as one that the kernel is not yet through with.
        let mut killed = std::process::Command::new("sleep").arg("600").ends_with_parent().spawn().unwrap();
        assert!(!is_ending(killed.id()) && !is_ending(std::process::id()));
        killed.kill().unwrap();
        while !is_ending(killed.id()) {
            std::thread::yield_now();
        }
        let run = Record::Run { holder: "roost serve".into(), process: killed.id(), boot: boot_id() };
        let journal = machine.path("run/roost/1-1-0.journal");
        machine.write("run/roost/1-1-0.journal", &(run.line() + &intent(KNOB, "100", "2").line()));
        let lock = File::open(&journal).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        std::thread::scope(|scope| {
            let beginning = scope.spawn(|| restore(machine.root()).unwrap());
            // Long enough for one that does not wait to be seen to do so; else only the test is weaker.
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(1));
                assert!(!beginning.is_finished(), "it did not wait");
            }
            drop(lock);
            assert_eq!(beginning.join().unwrap().put_back, 1);
        });
        assert_eq!(machine.read(KNOB), "100");
        killed.wait().unwrap();
    }

    #[test]
    fn a_journal_that_is_a_link_is_refused() {
        let machine = FakeMachine::intel_server(1);
        machine.write("run/roost/elsewhere", "");
        std::os::unix::fs::symlink(
            machine.path("run/roost/elsewhere"),
            machine.path("run/roost/1-1-0.journal"),
        )
        .unwrap();
        assert!(restore(machine.root()).is_err());
    }
}
