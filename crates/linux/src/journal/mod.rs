//! The write-ahead journal: every change to the machine is written down before it is made, and put
//! back after.
//!
//! A process that limits a CPU's idle states and is then killed leaves the machine limited: the
//! kernel does not record which process set `pm_qos_resume_latency_us`. (The published Peafowl code
//! leaves C-states disabled even after a normal exit.) So a change takes four steps: note the
//! intent, write the file, read it back, note the text read. After a SIGKILL between any two of
//! them, the journal still has every value that the file can have from us.
//!
//! Invariants:
//! - No file is written that the journal does not name; if the journal cannot be written, nothing
//!   is changed.
//! - `before`, the text to put back, is the file's earlier text, verbatim. It follows a change that
//!   another program makes in the meantime: that text then belongs there.
//! - A file whose text is not ours is left alone when we put things back.
//! - A file that goes away with its CPU gets its earlier text back only from the process that
//!   brings that CPU back, and only if it could not be read just before: then no other program can
//!   have changed it.
//! - The kernel offers no compare-and-write, so another program's change between our look and our
//!   write can be lost.
//! - A journal names the version that wrote it. A complete line that is not understood keeps it,
//!   and `roost restore` fails.
//! - The journal lives in `/run/roost`, one file per run, locked (`flock`) as long as its owner
//!   lives. The lock tells a dead run's journal from a live one's; a process number may be in use
//!   again. The journal lasts as long as `/run`: after a power cut the kernel's own values are the
//!   fresh ones, and the boot in the journal shows that.

mod record;
mod restore;
mod undo;

pub use record::{Account, Held};
pub(crate) use restore::restore_at_start;
pub use restore::{RestoreError, Restored, restore, restore_pending};
pub(crate) use undo::{ancestry, inherited};

use crate::Root;
use crate::knob::{Knob, cpu_of_switch};
use crate::lock::{FileLock, LockError, run_folder};
use crate::root::FileError;
use os::{SafeError, SafeFolder};
use record::{FRESH, LOST, Record, VERSION, by_kernel, namespaces, settle};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use undo::{Undone, undo_all};

/// The end of a journal's file name.
const SUFFIX: &str = ".journal";

/// A journal longer than this, and than twice the held changes, is written anew with only those.
/// Each change adds about 300 bytes.
const LENGTH_MAX: u64 = 64 * 1024;

/// A point between two steps of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The intent is in the journal; the file is as it was.
    Journalled,
    /// The file is written; the journal does not say so yet.
    Written,
    /// The journal has the text read.
    Committed,
}

/// Called at every step of every change. For tests that end the process there.
pub type Checkpoint = Box<dyn FnMut(Step) + Send>;

/// A change that was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    #[error("{0}")]
    File(#[from] FileError),
    #[error("the journal {path} cannot be written, so nothing is changed: {cause}", path = path.display())]
    Journal { path: PathBuf, cause: io::Error },
}

impl ChangeError {
    /// The reason with the file's name and without its path: several CPUs that fail alike share it.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::File(file) => {
                let name = file.path().file_name().unwrap_or_default().to_string_lossy();
                format!("{name} {}", file.reason())
            }
            Self::Journal { .. } => self.to_string(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) reads: String,
    /// False if it was there already, so nothing was written.
    pub(crate) changed: bool,
}

pub(crate) struct Journal {
    root: Root,
    path: PathBuf,
    file: FileLock,
    length: u64,
    /// Beyond this length it is written anew.
    length_max: u64,
    run: Record,
    /// Files that do not read as they would without us; each has one value of ours here.
    held: BTreeMap<String, Held>,
    knobs: BTreeMap<String, Knob>,
    checkpoint: Option<Checkpoint>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("path", &self.path).field("held", &self.held).finish_non_exhaustive()
    }
}

impl Journal {
    /// Begins a journal for the run of `holder`.
    pub(crate) fn begin(
        root: &Root,
        holder: &str,
        checkpoint: Option<Checkpoint>,
    ) -> Result<Self, LockError> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let process = std::process::id();
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        // The time keeps a reused process number from overwriting a dead run's journal.
        let name = format!("{process}-{}-{run}{SUFFIX}", crate::now().as_nanos());
        let path = run_folder(root)?.join(name);
        let run = Record::Run {
            holder: holder.to_owned(),
            process,
            boot: boot_id(),
            version: VERSION,
            program: concat!("roost ", env!("CARGO_PKG_VERSION")).to_owned(),
            namespaces: namespaces(),
        };
        let (file, length) = write_anew(&path, &run.line())
            .map_err(|cause| LockError::Unavailable { path: path.clone(), cause })?;
        let (held, knobs) = (BTreeMap::new(), BTreeMap::new());
        let (root, length_max) = (root.clone(), LENGTH_MAX);
        Ok(Self { root, path, file, length, length_max, run, held, knobs, checkpoint })
    }

    /// The text of the file without us.
    pub(crate) fn earlier(&mut self, path: &str) -> Result<String, FileError> {
        let current = self.knob(path).read()?;
        Ok(self.without_us(path, &current))
    }

    /// Sets the file to `value`, or back to its text without us where that is the same. Returns the
    /// text read then.
    pub(crate) fn set(&mut self, path: &str, value: &str) -> Result<String, ChangeError> {
        Ok(self.set_from(path, |_| value.to_owned())?.reads)
    }

    /// Sets the file to a text that `choose` derives from its text without us.
    pub(crate) fn set_from(
        &mut self,
        path: &str,
        choose: impl FnOnce(&str) -> String,
    ) -> Result<Set, ChangeError> {
        let current = self.knob(path).read()?;
        let before = self.without_us(path, &current);
        let value = choose(&before);
        if self.knob(path).same(&value, &current) && !self.is_pending(path, &current) {
            if before == current && self.held.get(path).is_some_and(|held| !held.is_written(&current)) {
                // Another program has set it to the very value that we want: it is theirs now.
                self.settle(path, before, current)?;
            }
            return Ok(Set { reads: value, changed: false });
        }
        let words =
            std::iter::once(value.as_str()).chain(self.knob(path).other_words(&value).iter().copied());
        let intent =
            |word: &str| Record::Intent { path: path.into(), before: before.clone(), after: word.into() };
        let intents: Vec<Record> = words.map(intent).collect();
        self.append_all(&intents)?;
        self.at(Step::Journalled);
        let knob = self.knob(path);
        let written = if value == before { knob.give_back(&value) } else { knob.write(&value) };
        self.at(Step::Written);
        // A refused write leaves the file as it is; only reading tells.
        let after = match &written {
            Ok(after) => after.clone(),
            Err(_) => self.knob(path).read()?,
        };
        if written.is_ok() && after != value && value != before && self.knob(path).is_deferred() {
            self.note_pending(path, before, value, after)?;
        } else {
            self.settle(path, before, after)?;
        }
        self.at(Step::Committed);
        Ok(Set { reads: written?, changed: true })
    }

    /// Takes a thread that reads `reads` without a write of ours into the journal: it read so
    /// before us, or has it from its parent. `before` belongs there.
    pub(crate) fn adopt(&mut self, path: &str, before: &str, reads: &str) -> Result<(), ChangeError> {
        self.settle(path, before.to_owned(), reads.to_owned())
    }

    /// Notes that the kernel may set it to `value` because of another change of ours. It must be
    /// held.
    pub(crate) fn expect(&mut self, path: &str, value: &str) -> Result<(), ChangeError> {
        self.expect_also(path, by_kernel(value))
    }

    fn expect_also(&mut self, path: &str, after: String) -> Result<(), ChangeError> {
        let Some(held) = self.held.get_mut(path).filter(|held| !held.ours.contains(&after)) else {
            return Ok(());
        };
        held.ours.push(after.clone());
        let (path, before) = (path.to_owned(), held.before.clone());
        self.append(Record::Intent { path, before, after })
    }

    /// Notes the text of a file that may go away with its CPU.
    pub(crate) fn expect_loss(&mut self, path: &str) -> Result<(), ChangeError> {
        if !self.held.contains_key(path) {
            let before = self.knob(path).read()?;
            self.held.insert(path.to_owned(), Held { before, ours: Vec::new() });
        }
        self.expect_also(path, LOST.to_owned())
    }

    /// Notes that such a file is away, and that its CPU is about to be brought back.
    pub(crate) fn expect_fresh(&mut self, path: &str) -> Result<(), ChangeError> {
        self.expect_also(path, FRESH.to_owned())
    }

    /// Gives a file that was lost, and exists again, its earlier text; it is held no longer.
    pub(crate) fn replace_lost(&mut self, path: &str) -> Result<(), ChangeError> {
        let Some(held) = self.held.get(path) else { return Ok(()) };
        let before = held.before.clone();
        // From here on it is told from other programs' changes.
        let reads = self.knob(path).read()?;
        self.settle(path, before, reads)?;
        self.put_back(path)
    }

    /// Notes that the file may come to read `value` at any time from now on, by writes around the
    /// journal: those of an open descriptor, for a file that is written thousands of times a
    /// second. Returns its text without us. Any change through here ends the promise, and it has to
    /// be given anew.
    pub(crate) fn promise(&mut self, path: &str, value: &str) -> Result<String, ChangeError> {
        let current = self.knob(path).read()?;
        let before = self.without_us(path, &current);
        let held = self.held.entry(path.to_owned()).or_default();
        held.before.clone_from(&before);
        if !held.ours.iter().any(|ours| ours == value) {
            held.ours.push(value.to_owned());
        }
        self.append(Record::Intent {
            path: path.to_owned(),
            before: before.clone(),
            after: value.to_owned(),
        })?;
        self.at(Step::Journalled);
        Ok(before)
    }

    /// Forgets an object that is gone.
    pub(crate) fn forget(&mut self, path: &str) -> Result<(), ChangeError> {
        self.knobs.remove(path);
        if self.held.remove(path).is_none() {
            return Ok(());
        }
        self.append(Record::Forgotten { path: path.to_owned() })
    }

    /// The held changes: by path, the text that belongs there and ours.
    pub(crate) fn held(&self) -> &BTreeMap<String, Held> {
        &self.held
    }

    /// Reads a file or object that we change.
    pub(crate) fn read(&mut self, path: &str) -> Result<String, FileError> {
        self.knob(path).read()
    }

    /// Writes the held value once more. `value` stands in the journal, so nothing new is written
    /// there.
    pub(crate) fn write_again(&mut self, path: &str, value: &str) -> Result<(), FileError> {
        debug_assert!(self.held.get(path).is_some_and(|held| held.ours.iter().any(|ours| ours == value)));
        self.knob(path).write(value).map(drop)
    }

    /// True if the text `reads` satisfies `text`, apart from CPUs that are offline.
    pub(crate) fn same(&mut self, path: &str, text: &str, reads: &str) -> bool {
        self.knob(path).same(text, reads)
    }

    /// Gives the file its earlier text back, unless its text is not ours.
    pub(crate) fn put_back(&mut self, path: &str) -> Result<(), ChangeError> {
        let Some(held) = self.held.get(path) else { return Ok(()) };
        let before = held.before.clone();
        let current = self.knob(path).read()?;
        if self.is_ours(path, &current) || (current == before && self.is_pending(path, &current)) {
            self.set(path, &before)?;
        } else {
            self.settle(path, current.clone(), current)?;
        }
        Ok(())
    }

    /// As [`Self::put_back`], but writes first and notes that afterwards: for a file whose change
    /// work waits for. A kill in between leaves the file as it would be without us, which the
    /// journal's last line of it allows for.
    pub(crate) fn put_back_at_once(&mut self, path: &str) -> Result<(), ChangeError> {
        let Some(before) = self.held.get(path).map(|held| held.before.clone()) else { return Ok(()) };
        let current = self.knob(path).read()?;
        if current == before || !self.is_ours(path, &current) || self.knob(path).is_deferred() {
            return self.put_back(path);
        }
        let reads = self.knob(path).give_back(&before)?;
        self.at(Step::Written);
        self.settle(path, before, reads)?;
        self.at(Step::Committed);
        Ok(())
    }

    /// Puts everything back and returns one line per file. Changes that cannot be put back stay in
    /// the journal, for `roost restore`.
    pub(crate) fn put_back_all(&mut self) -> Vec<Undone> {
        let mut done = Vec::new();
        let undone = undo_all(&self.root, &mut self.knobs, &self.held);
        // Settings that a CPU takes along cannot be whole while it stays away.
        let is_whole =
            !undone.iter().any(|(path, undone)| undone.is_failure() && cpu_of_switch(path).is_some());
        // Noted only when all of it is done: the records of older threads determine the text of a
        // thread born under us.
        for (path, undone) in undone {
            if is_whole && !undone.is_failure() && self.held.remove(&path).is_some() {
                // If this cannot be noted, a later `roost restore` finds the file as it should be
                // and says so.
                let _ = self.append(Record::Forgotten { path });
            }
            done.push(undone);
        }
        done
    }

    /// Notes, here and in the journal, that it reads `after`, where `before` belongs.
    fn settle(&mut self, path: &str, before: String, after: String) -> Result<(), ChangeError> {
        settle(&mut self.held, path.to_owned(), before.clone(), after.clone());
        self.append(Record::Settled { path: path.to_owned(), before, after })
    }

    /// Notes that `value` was written and `after` is read, so far: the kernel takes some writes up
    /// later. Both are ours then, besides earlier values; the intent in the journal says so
    /// already.
    fn note_pending(
        &mut self,
        path: &str,
        before: String,
        value: String,
        after: String,
    ) -> Result<(), ChangeError> {
        let mut ours = self.held.get(path).map(|held| held.ours.clone()).unwrap_or_default();
        ours.push(value);
        let is_new = after != before && !ours.contains(&after);
        if is_new {
            ours.push(after.clone());
        }
        // Held first: a journal that is written anew just now must have both.
        self.held.insert(path.to_owned(), Held { before: before.clone(), ours });
        if is_new { self.append(Record::Intent { path: path.to_owned(), before, after }) } else { Ok(()) }
    }

    /// True if the file, which reads `current`, may yet come to read another value of ours.
    fn is_pending(&mut self, path: &str, current: &str) -> bool {
        let pending = self.held.get(path).is_some_and(|held| held.ours.iter().any(|ours| ours != current));
        pending && self.knob(path).is_deferred()
    }

    /// The text of the file without us, given its present text.
    fn without_us(&mut self, path: &str, current: &str) -> String {
        if self.is_ours(path, current) { self.held[path].before.clone() } else { current.to_owned() }
    }

    /// True if the text read is one that we left there.
    fn is_ours(&mut self, path: &str, current: &str) -> bool {
        let Some(held) = self.held.get(path).cloned() else { return false };
        let knob = self.knob(path);
        held.texts().any(|text| knob.same(text, current))
    }

    /// Reports the step to a test.
    pub(crate) fn at(&mut self, step: Step) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint(step);
        }
    }

    fn knob(&mut self, path: &str) -> &mut Knob {
        // The path is copied only where the knob is new.
        if !self.knobs.contains_key(path) {
            let knob = Knob::at(&self.root, path).expect("only what Roost changes is asked for");
            self.knobs.insert(path.to_owned(), knob);
        }
        self.knobs.get_mut(path).expect("inserted")
    }

    fn append(&mut self, record: Record) -> Result<(), ChangeError> {
        self.append_all(&[record])
    }

    /// In one piece: a rewrite of the journal must not part records that belong together.
    fn append_all(&mut self, records: &[Record]) -> Result<(), ChangeError> {
        let result = self.try_append(&records.iter().map(Record::line).collect::<String>());
        result.map_err(|cause| ChangeError::Journal { path: self.path.clone(), cause })
    }

    fn try_append(&mut self, lines: &str) -> io::Result<()> {
        if self.length > self.length_max {
            let mut text = self.run.line();
            for (path, Held { before, ours }) in &self.held {
                for after in ours {
                    let (path, before, after) = (path.clone(), before.clone(), after.clone());
                    text += &Record::Intent { path, before, after }.line();
                }
            }
            (self.file, self.length) = write_anew(&self.path, &text)?;
            self.length_max = LENGTH_MAX.max(2 * self.length);
        }
        if let Err(cause) = self.file.0.write_all(lines.as_bytes()) {
            // Half a line would spoil the next one.
            let _ = self.file.0.set_len(self.length);
            return Err(cause);
        }
        self.length += lines.len() as u64;
        Ok(())
    }
}

impl Drop for Journal {
    /// The last resort of an exit and of a panic.
    fn drop(&mut self) {
        self.put_back_all();
        if self.held.is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes the journal appear with this text, already locked: no other run can mistake it for a dead
/// run's in between. An existing journal always has its text, even after a crash of the machine.
fn write_anew(path: &Path, text: &str) -> io::Result<(FileLock, u64)> {
    let (folder, name) = SafeFolder::of_file(path, None).map_err(SafeError::into_io)?;
    let file = folder.replace_and_keep(name, 0o600, |file| file.write_all(text.as_bytes()));
    Ok((FileLock(file.map_err(SafeError::into_io)?), text.len() as u64))
}

/// In place of a boot's name where it cannot be read.
const UNKNOWN_BOOT: &str = "unknown";

/// The kernel's name for this boot of the machine. Read from the real `/proc` even under a moved
/// root: the processes whose journals we judge are real.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| UNKNOWN_BOOT.into(), |id| id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;
    use std::fs::OpenOptions;
    use std::sync::{Arc, Mutex};

    const KNOB: &str = "sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us";

    fn journal(machine: &FakeMachine) -> Journal {
        Journal::begin(machine.root(), "test", None).unwrap()
    }

    #[test]
    fn a_number_that_may_read_as_a_name_is_ours_by_either_until_it_is_read() {
        let machine = FakeMachine::intel_server(2);
        let file = "sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference";
        machine.write(file, "balance_performance\n");
        let mut journal = journal(&machine);
        let (path, seen) = (journal.path.clone(), Arc::new(Mutex::new(Vec::new())));
        let at_each_step = Arc::clone(&seen);
        journal.checkpoint = Some(Box::new(move |_| {
            let account = record::Account::read(&fs::read(&path).unwrap());
            at_each_step.lock().unwrap().extend(account.held.get(file).map(|held| held.ours.clone()));
        }));
        journal.set(file, "255").unwrap();
        let killed_here = ["255", "performance", "balance_performance", "balance_power", "power"];
        assert_eq!(*seen.lock().unwrap(), [killed_here.to_vec(), killed_here.to_vec(), vec!["255"]]);
    }

    #[test]
    fn what_was_there_comes_back_verbatim() {
        let machine = FakeMachine::intel_server(2);
        machine.write(KNOB, "n/a\n");
        let before = machine.snapshot();
        let mut journal = journal(&machine);
        journal.set(KNOB, "2").unwrap();
        journal.set(KNOB, "50").unwrap();
        assert_eq!(machine.read(KNOB), "50");
        assert_eq!(journal.earlier(KNOB).unwrap(), "n/a");
        drop(journal);
        assert_eq!(machine.snapshot(), before);
        assert_eq!(machine.root().names("run/roost").unwrap(), [""; 0], "no journal is left behind");
    }

    #[test]
    fn a_panic_puts_the_machine_back() {
        let machine = FakeMachine::intel_server(2);
        let root = machine.root().clone();
        let panicked = std::thread::spawn(move || {
            let mut journal = Journal::begin(&root, "test", None).unwrap();
            journal.set(KNOB, "2").unwrap();
            assert_eq!(root.text(KNOB).unwrap(), "2");
            std::panic::resume_unwind(Box::new("a fault of ours"));
        })
        .join();
        assert!(panicked.is_err());
        assert_eq!(machine.read(KNOB), "0");
    }

    #[test]
    fn somebody_elses_change_is_left_alone_and_becomes_what_belongs_there() {
        let machine = FakeMachine::intel_server(2);
        let mut journal = journal(&machine);
        journal.set(KNOB, "2").unwrap();
        machine.write(KNOB, "77\n");
        assert_eq!(journal.earlier(KNOB).unwrap(), "77");
        journal.set(KNOB, "2").unwrap();
        journal.put_back(KNOB).unwrap();
        assert_eq!(machine.read(KNOB), "77");
        journal.set(KNOB, "2").unwrap();
        machine.write(KNOB, "78\n");
        let lines = journal.put_back_all();
        assert_eq!(machine.read(KNOB), "78");
        assert!(lines[0].to_string().contains("left alone"), "{}", lines[0]);
    }

    #[test]
    fn our_value_set_by_somebody_else_after_we_withdrew_is_theirs() {
        let machine = FakeMachine::intel_server(2);
        let mut journal = journal(&machine);
        journal.set(KNOB, "2").unwrap();
        journal.put_back(KNOB).unwrap();
        machine.write(KNOB, "2\n");
        drop(journal);
        assert_eq!(machine.read(KNOB), "2");
    }

    #[test]
    fn a_full_disk_refuses_the_change_instead_of_making_it_unrecorded() {
        let machine = FakeMachine::intel_server(2);
        let mut journal = journal(&machine);
        journal.file.0 = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = journal.set(KNOB, "2").unwrap_err();
        assert!(matches!(&error, ChangeError::Journal { .. }), "{error}");
        assert_eq!(machine.read(KNOB), "0");
    }

    #[test]
    fn a_long_run_keeps_a_short_journal_that_still_knows_everything() {
        let machine = FakeMachine::intel_server(2);
        let other = KNOB.replace("cpu1", "cpu0");
        let mut journal = journal(&machine);
        journal.set(&other, "9").unwrap();
        for _ in 0..1000 {
            journal.set(KNOB, "2").unwrap();
            journal.put_back(KNOB).unwrap();
        }
        journal.set(KNOB, "3").unwrap();
        let bytes = fs::read(&journal.path).unwrap();
        assert!((bytes.len() as u64) < LENGTH_MAX + 1000, "{}", bytes.len());
        let account = record::Account::read(&bytes);
        assert_eq!(account.unreadable, 0);
        assert_eq!(account.held, journal.held);
        assert_eq!(account.holder.as_deref(), Some("test"));
        // Locked still, though it is another file than at the beginning.
        assert!(restore(machine.root()).unwrap().lines[0].contains("still runs"));
        assert_eq!(machine.read(KNOB), "3");
    }
}
