//! One holder per knob: a lock per CPU below `/run/roost`.
//!
//! Two programs that limit the same CPU's idle states undo each other's work, and each puts the
//! other's value back as if it had been the administrator's. So a Roost process takes
//! `/run/roost/cpuN.lock` for every CPU that it means to change, or learns the holder. The lock is
//! `flock`'s: the kernel releases it when the holder ends in any way, so a file left by a SIGKILL
//! blocks no process. A CPU's frequency has a lock of its own, `cpuN.clock.lock`, its socket's uncore
//! `cpuN.uncore.lock`, a network card `nic-DEVICE.lock`, and so has the
//! machine's arbiter, `arbiter.lock`. The first line of the file, the
//! holder's name and process, is for people; a second one says where the holder yields to an arbiter
//! (`arbiter`).

use crate::root::{Gaps, Root};
use crate::run_place::{OpenInError, RUN_FOLDER, open_in};
use machine::{CpuId, CpuList};
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

pub(crate) use crate::run_place::run_folder;

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{cpu} is held by {holder}: stop it, or choose other CPUs (its lock is \
        {path})", path = path.display())]
    Held {
        /// The first CPU found taken.
        cpu: CpuId,
        /// Name and process of the holder, as it wrote them.
        holder: String,
        path: PathBuf,
    },
    /// Another process keeps all other tasks off the parked CPUs.
    #[error("what is not governed is kept off parked CPUs by {holder} already: stop it (its lock \
        is {path})", path = path.display())]
    CpuIsolation {
        /// Name and process of the holder, as it wrote them.
        holder: String,
        path: PathBuf,
    },
    /// Another process is this machine's arbiter.
    #[error("the knobs of this machine are in the hands of {holder}: have it govern this, too, or \
        stop it (its lock is {path})", path = path.display())]
    Arbiter {
        /// Name and process of the holder, as it wrote them.
        holder: String,
        path: PathBuf,
    },
    /// Another process puts off the interrupts of this network device.
    #[error("interrupts of {device} are put off by {holder} already: stop it (its lock is \
        {path})", path = path.display())]
    Card {
        device: String,
        /// Name and process of the holder, as it wrote them.
        holder: String,
        path: PathBuf,
    },
    #[error("CPUs are taken offline by {holder} already: stop it (its lock is \
        {path})", path = path.display())]
    Hotplug {
        /// Name and process of the holder, as it wrote them.
        holder: String,
        path: PathBuf,
    },
    /// Another process has been putting back for too long: it may hang.
    #[error(
        "{holder} has been putting back what a dead run changed for {} s: look what it waits for, \
         or end it (its lock is {path})",
        PATIENCE.as_secs(), path = path.display()
    )]
    Busy {
        /// Name and process of the holder, as it wrote them.
        holder: String,
        path: PathBuf,
    },
    /// A signal came while another process was putting back.
    #[error("told to end while {holder} puts back what a dead run changed; nothing was begun")]
    Stopped {
        /// Name and process of the holder, as it wrote them.
        holder: String,
    },
    /// The file or folder may be another user's work.
    #[error(
        "{path} {why}, so nothing in it can be believed\nhint: look at it; then `rm -r` it, or \
         give it back: chown -R root: FOLDER, chmod 0711 FOLDER",
        path = path.display()
    )]
    Unsafe { path: PathBuf, why: String },
    /// No lock can be made here, so no holder can be known.
    #[error("cannot keep a lock at {path}: {cause}{}", hint(cause), path = path.display())]
    Unavailable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
}

impl LockError {
    /// True if another process or user is in the way, and not the machine's lack of a place.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Unavailable { .. })
    }

    /// True if a process has the CPU that lets go of it as soon as a daemon listens.
    pub fn is_yielded(&self) -> bool {
        matches!(self, Self::Held { path, .. } if crate::arbiter::yields(path))
    }
}

fn hint(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => {
            "\nhint: run it as root; a user's own runs keep theirs in $XDG_RUNTIME_DIR/roost"
        }
        io::ErrorKind::NotFound => "\nhint: set XDG_RUNTIME_DIR to a folder that is this user's own",
        io::ErrorKind::ReadOnlyFilesystem => {
            "\nhint: mount it writable; in a unit, RuntimeDirectory=roost and RuntimeDirectoryMode=0711"
        }
        io::ErrorKind::NotADirectory => "\nhint: something else lies where a folder belongs: move it away",
        _ => "",
    }
}

/// The locks of some CPUs, held until dropped.
#[derive(Debug)]
pub struct CpuLocks {
    files: Vec<FileLock>,
}

impl CpuLocks {
    /// Takes the locks of all `cpus` or of none. `holder` is our name, for a process that comes
    /// second.
    pub fn take(root: &Root, cpus: &CpuList, holder: &str) -> Result<Self, LockError> {
        Self::take_each(root, cpus, holder, "")
    }

    /// The same for their frequencies, which are another knob: a process that limits a CPU's sleep
    /// need not set its speed.
    pub(crate) fn take_clocks(root: &Root, cpus: &CpuList, holder: &str) -> Result<Self, LockError> {
        Self::take_each(root, cpus, holder, ".clock")
    }

    /// The same for the uncore of their sockets.
    pub(crate) fn take_uncore(root: &Root, cpus: &CpuList, holder: &str) -> Result<Self, LockError> {
        Self::take_each(root, cpus, holder, ".uncore")
    }

    fn take_each(root: &Root, cpus: &CpuList, holder: &str, of: &str) -> Result<Self, LockError> {
        let folder = run_folder(root)?;
        let mut files = Vec::new();
        for &cpu in &cpus.0 {
            let path = folder.join(format!("cpu{}{of}.lock", cpu.0));
            match take(&path, holder) {
                Ok(file) => files.push(file),
                Err(Refusal::Taken(holder)) => return Err(LockError::Held { cpu, holder, path }),
                Err(refusal) => return Err(refusal.at(path)),
            }
        }
        Ok(Self { files })
    }

    /// Adds a line to the files. One that cannot be written is not: the locks hold all the same.
    pub(crate) fn announce(&mut self, line: &str) {
        for file in &mut self.files {
            let _ = writeln!(file.0, "{line}");
        }
    }
}

/// A file that this process has locked. Closing it would not do: a child that another thread has
/// just forked keeps the lock until it starts its program.
#[derive(Debug)]
pub(crate) struct FileLock(pub(crate) File);

impl Drop for FileLock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Why a lock is not available.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Another process holds it: the text that it wrote about itself.
    Taken(String),
    /// The file is not to be trusted: the reason.
    Unsafe(String),
    Unavailable(io::Error),
}

impl Refusal {
    /// The error at this path.
    pub(crate) fn at(self, path: PathBuf) -> LockError {
        match self {
            Self::Unsafe(why) => LockError::Unsafe { path, why },
            Self::Unavailable(cause) => LockError::Unavailable { path, cause },
            Self::Taken(holder) => LockError::Busy { holder, path },
        }
    }
}

/// Takes the lock at `path` and writes our name there.
pub(crate) fn take(path: &Path, holder: &str) -> Result<FileLock, Refusal> {
    // Never truncated on opening: until the lock is ours, the text is the holder's.
    let mut options = OpenOptions::new();
    #[expect(
        clippy::disallowed_methods,
        reason = "open_in follows no link and believes no other user's file"
    )]
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = open_in(&mut options, path).map_err(|error| match error {
        OpenInError::Unsafe(why) => Refusal::Unsafe(why),
        OpenInError::Failed(cause) => Refusal::Unavailable(cause),
    })?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(Refusal::Taken(holder_of(&mut file))),
        Err(cause) => return Err(Refusal::Unavailable(cause.into())),
    }
    let text = format!("{holder} (process {})\n", std::process::id());
    file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).map_err(Refusal::Unavailable)?;
    Ok(FileLock(file))
}

/// The patience with a lock that is held for moments.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// Set by the handler of the signals that end this process: no lock is waited for any longer.
static ENDING: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The flag that ends every wait for a lock. The handler of signals sets it, so a command that has
/// not begun yet ends at once.
pub fn end_of_waiting() -> Arc<AtomicBool> {
    Arc::clone(&ENDING)
}

/// A lock that is held for moments; its file goes with it.
#[derive(Debug)]
pub(crate) struct Passing {
    path: PathBuf,
    _lock: FileLock,
}

impl Drop for Passing {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes a lock that is held for moments: waits for it, but not forever and not beyond a signal.
pub(crate) fn take_soon(path: &Path, holder: &str) -> Result<Passing, LockError> {
    take_within(path, holder, PATIENCE)
}

fn take_within(path: &Path, holder: &str, patience: Duration) -> Result<Passing, LockError> {
    let began = Instant::now();
    loop {
        match take_passing(path, holder) {
            Err(Refusal::Taken(holder)) => {
                if ENDING.load(Ordering::Relaxed) {
                    return Err(LockError::Stopped { holder });
                }
                if began.elapsed() >= patience {
                    return Err(LockError::Busy { holder, path: path.to_owned() });
                }
                std::thread::sleep(PAUSE);
            }
            Ok(lock) => return Ok(Passing { path: path.to_owned(), _lock: lock }),
            Err(refusal) => return Err(refusal.at(path.to_owned())),
        }
    }
}

/// The same for a file that goes with its holder.
pub(crate) fn take_passing(path: &Path, holder: &str) -> Result<FileLock, Refusal> {
    loop {
        match take(path, holder) {
            // Its last holder removed it between our open and our lock: no other process would see
            // ours.
            Ok(lock) if lock.0.metadata().is_ok_and(|file| file.nlink() == 0) => {}
            result => return result,
        }
    }
}

/// A CPU that a Roost process holds, or held until it died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuHolder {
    pub cpu: CpuId,
    /// The text that the holder wrote about itself.
    pub holder: String,
    /// True if a process of that number runs and the kernel lists the lock. Trying the lock would
    /// disturb: for a moment no other process could have it.
    pub runs: bool,
}

/// The holders in the lock files, and the number of journals of changes.
pub fn cpu_holders(root: &Root, gaps: &mut Gaps) -> (Vec<CpuHolder>, usize) {
    let (mut holders, mut journals) = (Vec::new(), 0);
    for name in gaps.names(root, RUN_FOLDER) {
        journals += usize::from(name.ends_with(".journal"));
        let cpu = name.strip_prefix("cpu").and_then(|rest| rest.strip_suffix(".lock")?.parse().ok());
        let Some(cpu) = cpu else { continue };
        let Some(text) = gaps.text(root, &format!("{RUN_FOLDER}/{name}")) else { continue };
        let holder = text.lines().next().unwrap_or_default().to_owned();
        let lives = process_in(&holder).is_some_and(|pid| root.has(&format!("proc/{pid}")) == Some(true));
        // The lock of a recorded machine has no holder here.
        let runs =
            lives && (*root != Root::system() || is_locked(&root.path(&format!("{RUN_FOLDER}/{name}"))));
        holders.push(CpuHolder { cpu: CpuId(cpu), holder, runs });
    }
    holders.sort_by_key(|holder| holder.cpu);
    (holders, journals)
}

/// The process that such a line names.
fn process_in(holder: &str) -> Option<u32> {
    holder.rsplit_once("(process ")?.1.strip_suffix(')')?.parse().ok()
}

/// CPUs that other Roost processes need, each with its holder: those whose sleep or frequency they
/// limit, and those of the services that they keep on CPUs.
pub(crate) fn needed_by_others(root: &Root) -> BTreeMap<CpuId, String> {
    let mut needed = BTreeMap::new();
    for name in root.names(RUN_FOLDER).unwrap_or_default() {
        let Some(name) = name.strip_suffix(".lock") else { continue };
        let cpu = name.strip_suffix(".clock").unwrap_or(name).strip_prefix("cpu");
        let process = name.strip_prefix("process");
        if cpu.is_none() && process.is_none() {
            continue;
        }
        let text = root.text(&format!("{RUN_FOLDER}/{name}.lock")).unwrap_or_default();
        let holder = text.lines().next().unwrap_or_default();
        let lives = |pid: u32| pid != std::process::id() && root.has(&format!("proc/{pid}")) == Some(true);
        // A number that is in use again is another process, which holds nothing.
        let is_held = || is_locked(&root.path(&format!("{RUN_FOLDER}/{name}.lock")));
        if !process_in(holder).is_some_and(lives) || !is_held() {
            continue;
        }
        let cpu = cpu.and_then(|number| number.parse().ok()).map(CpuId);
        let service = process.and_then(|number| crate::processes::threads::cpus(number.parse().ok()?).ok());
        let cpus = cpu.into_iter().chain(service.unwrap_or_default().0);
        needed.extend(cpus.map(|cpu| (cpu, holder.to_owned())));
    }
    needed
}

/// True if the kernel lists a lock on this file, or does not say. The inode's number is enough: the
/// device that it lists is not that of `stat` on every file system, and another file of the same
/// number makes us only more careful.
fn is_locked(path: &Path) -> bool {
    let Ok(locks) = fs::read_to_string("/proc/locks") else { return true };
    let Ok(about) = fs::metadata(path) else { return false };
    let inode = format!(":{}", about.ino());
    locks.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        fields.next() == Some("FLOCK") && fields.any(|field| field.ends_with(&inode))
    })
}

/// The text that the holder wrote about itself. The read may fall between its lock and its write.
fn holder_of(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(4096).read_to_string(&mut text));
    match text.lines().next() {
        Some(line) if read.is_ok() && !line.is_empty() => line.to_owned(),
        _ => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EndsWithParent as _;
    use std::os::unix::fs::PermissionsExt;

    fn cpus(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    #[test]
    fn the_second_one_learns_who_was_first() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let first = CpuLocks::take(&root, &cpus("2-3"), "roost serve").unwrap();
        let error = CpuLocks::take(&root, &cpus("1-2"), "roost govern").unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, LockError::Held { cpu: CpuId(2), .. }));
        let me = format!("roost serve (process {})", std::process::id());
        assert!(text.contains("cpu2") && text.contains(&me), "{text}");
        // It took none of them: cpu1, which it had before it found cpu2 taken, is free again.
        let others = CpuLocks::take(&root, &cpus("1"), "a third").unwrap();
        drop(first);
        CpuLocks::take(&root, &cpus("2-3"), "roost govern").unwrap();
        drop(others);
    }

    /// A child has such a copy from `fork` to `exec`, and any thread may start one.
    #[test]
    fn a_released_lock_is_free_although_a_copy_of_its_descriptor_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let path = run_folder(&root).unwrap().join("arbiter.lock");
        let lock = take(&path, "roost govern").unwrap();
        let copy = lock.0.try_clone().unwrap();
        drop(lock);
        let again = take(&path, "roost serve").unwrap();
        drop(copy);
        assert!(matches!(take(&path, "roost govern"), Err(Refusal::Taken(_))));
        drop(again);
    }

    #[test]
    fn a_survey_tells_a_holder_that_runs_from_a_dead_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let _locks = CpuLocks::take(&root, &cpus("3"), "roost serve").unwrap();
        fs::create_dir_all(root.path(&format!("proc/{}", std::process::id()))).unwrap();
        fs::write(root.path("run/roost/cpu11.lock"), "roost serve (process 1)\n").unwrap();
        fs::write(root.path("run/roost/cpu99999.lock"), "no holder\n").unwrap();
        fs::write(root.path("run/roost/1-2.journal"), "").unwrap();
        let (holders, journals) = cpu_holders(&root, &mut Gaps::default());
        let seen: Vec<_> = holders.iter().map(|holder| (holder.cpu, holder.runs)).collect();
        assert_eq!((seen.as_slice(), journals), ([(CpuId(3), true), (CpuId(11), false)].as_slice(), 1));
    }

    /// A lock as process `pid` would hold it.
    fn locked(root: &Root, name: &str, pid: u32) -> FileLock {
        let path = root.path(&format!("run/roost/{name}.lock"));
        fs::write(&path, format!("roost serve (process {pid})\n")).unwrap();
        let file = File::open(&path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        FileLock(file)
    }

    #[test]
    fn a_cpu_that_another_living_roost_needs_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let mut other = std::process::Command::new("sleep").arg("600").ends_with_parent().spawn().unwrap();
        let _own = CpuLocks::take(&root, &cpus("1"), "we").unwrap();
        let mut locks = Vec::new();
        for (name, pid) in
            [("cpu3", other.id()), ("cpu4.clock", other.id()), ("cpu5", 1), ("surroundings", other.id())]
        {
            locks.push(locked(&root, name, pid));
        }
        // Left by a dead process, its number in use again.
        drop(locked(&root, "cpu6", other.id()));
        for pid in [other.id(), std::process::id()] {
            fs::create_dir_all(root.path(&format!("proc/{pid}"))).unwrap();
        }
        let needed: Vec<u16> = needed_by_others(&root).keys().map(|cpu| cpu.0).collect();
        assert_eq!(needed, [3, 4]);
        // Its service may be on all CPUs.
        let service = format!("process{}", std::process::id());
        locks.push(locked(&root, &service, other.id()));
        let needed: CpuList = CpuList(needed_by_others(&root).into_keys().collect());
        assert!(needed.0.is_superset(&crate::allowed_cpus().unwrap().0), "{needed}");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_lock_file_left_by_the_dead_blocks_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        run_folder(&root).unwrap();
        let path = root.path("run/roost/cpu0.lock");
        fs::write(&path, "a much longer name than ours, killed long ago (process 1)\n").unwrap();
        let _locks = CpuLocks::take(&root, &cpus("0"), "x").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("x (process {})\n", std::process::id()));
    }

    #[test]
    fn only_the_owner_may_look_inside() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let _locks = CpuLocks::take(&root, &cpus("0"), "x").unwrap();
        let mode = |below: &str| fs::metadata(root.path(below)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("run/roost"), 0o711);
        assert_eq!(mode("run/roost/cpu0.lock"), 0o600);
    }

    #[test]
    fn a_place_where_no_folder_can_be_made_is_reported_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("run"), "a file where a folder should be").unwrap();
        let error = CpuLocks::take(&Root::at(folder.path()), &cpus("0"), "x").unwrap_err();
        assert!(matches!(&error, LockError::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("hint: something else lies"), "{error}");
    }

    #[test]
    fn a_lock_that_is_a_link_is_neither_followed_nor_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let run = run_folder(&root).unwrap();
        let precious = folder.path().join("precious");
        fs::write(&precious, "text").unwrap();
        std::os::unix::fs::symlink(&precious, run.join("cpu0.lock")).unwrap();
        let error = CpuLocks::take(&root, &cpus("0"), "x").unwrap_err();
        assert!(matches!(&error, LockError::Unsafe { .. }), "{error}");
        assert!(error.to_string().contains("is a link") && error.to_string().contains("hint:"), "{error}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "text");
    }

    #[test]
    fn a_folder_in_which_others_may_write_is_refused_and_one_that_they_may_read_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let run = run_folder(&root).unwrap();
        let set = |mode| fs::set_permissions(&run, fs::Permissions::from_mode(mode)).unwrap();
        let mode = || fs::metadata(&run).unwrap().permissions().mode() & 0o7777;
        for open in [0o777, 0o770, 0o1777] {
            set(open);
            let error = run_folder(&root).unwrap_err();
            assert!(matches!(&error, LockError::Unsafe { .. }) && mode() == open, "{error}");
        }
        for (found, left) in [(0o755, 0o711), (0o711, 0o711), (0o700, 0o700), (0o750, 0o710)] {
            set(found);
            run_folder(&root).unwrap();
            assert_eq!(mode(), left);
        }
    }

    #[test]
    fn a_folder_that_is_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        fs::create_dir_all(root.path("run")).unwrap();
        fs::create_dir(root.path("elsewhere")).unwrap();
        std::os::unix::fs::symlink(root.path("elsewhere"), root.path("run/roost")).unwrap();
        let error = run_folder(&root).unwrap_err();
        assert!(matches!(&error, LockError::Unsafe { .. }), "{error}");
    }

    #[test]
    fn who_waits_for_a_lock_learns_after_a_while_who_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let path = run_folder(&root).unwrap().join("restore.lock");
        let held = take(&path, "roost restore").unwrap();
        let error = take_within(&path, "roost govern", Duration::from_millis(20)).unwrap_err();
        let me = format!("roost restore (process {})", std::process::id());
        assert!(matches!(&error, LockError::Busy { holder, .. } if *holder == me), "{error}");
        drop(held);
        take_within(&path, "roost govern", Duration::ZERO).unwrap();
    }
}
