//! One holder per knob: a lock per CPU below `/run/roost`.
//!
//! Two programs that limit the same CPU's idle states undo each other's work, and each puts the other's value back as
//! if it had been the administrator's. So a Roost process takes `/run/roost/cpuN.lock` for every CPU that it means to
//! change, or learns who has it. The lock is `flock`'s: the kernel lets go of it when the holder ends, however it
//! ends, so a file left by a SIGKILL blocks nobody. A CPU's clock has a lock of its own, `cpuN.clock.lock`, and so has the register of CPUs that are needed, `active.lock`. The first line of
//! the file, the holder's name and process, is for people; a second one may say at which socket the holder can be asked
//! (`holder`).

use crate::root::{Gaps, Root};
use machine::{CpuId, CpuList};
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where locks and journals are kept, below the root.
pub(crate) const RUN_FOLDER: &str = "run/roost";

/// CPUs that are not to be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process controls the CPU.
    #[error("{cpu} is held by {holder}: stop it, or choose other CPUs (its lock is {path})", path = path.display())]
    Held {
        /// The first CPU found taken.
        cpu: CpuId,
        /// Name and process of the holder, as it wrote them.
        holder: String,
        /// The lock file.
        path: PathBuf,
    },
    /// Another process tells everybody else where to be.
    #[error("what is not governed is kept off parked CPUs by {holder} already: stop it (its lock is {path})", path = path.display())]
    Surroundings {
        /// Name and process of the holder, as it wrote them.
        holder: String,
        /// The lock file.
        path: PathBuf,
    },
    /// Another process knows which CPUs are needed, and cannot be asked.
    #[error("which CPUs are needed is known to {holder}, which takes no claims: stop it (its lock is {path})", path = path.display())]
    Register {
        /// Name and process of the holder, as it wrote them.
        holder: String,
        /// The lock file.
        path: PathBuf,
    },
    /// Another process takes CPUs offline.
    #[error("CPUs are taken offline by {holder} already: stop it (its lock is {path})", path = path.display())]
    Hotplug {
        /// Name and process of the holder, as it wrote them.
        holder: String,
        /// The lock file.
        path: PathBuf,
    },
    /// No lock can be made here, so nobody can know who holds what.
    #[error(
        "cannot keep a lock at {path}: {cause}; give this user the folder and what is in it (install -d -m 0700 -o USER FOLDER, chown USER FOLDER/*)",
        path = path.display()
    )]
    Unavailable {
        /// The file or folder concerned.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
}

/// The locks of some CPUs, held until dropped.
#[derive(Debug)]
pub struct CpuLocks {
    files: Vec<File>,
}

impl CpuLocks {
    /// Takes the locks of all `cpus` or of none. `holder` says who we are, for the one who comes second.
    pub fn take(root: &Root, cpus: &CpuList, holder: &str) -> Result<Self, LockError> {
        Self::take_each(root, cpus, holder, "")
    }

    /// The same for their clocks, which are another knob: who limits a CPU's sleep need not set its speed.
    pub(crate) fn take_clocks(root: &Root, cpus: &CpuList, holder: &str) -> Result<Self, LockError> {
        Self::take_each(root, cpus, holder, ".clock")
    }

    fn take_each(root: &Root, cpus: &CpuList, holder: &str, of: &str) -> Result<Self, LockError> {
        let folder = run_folder(root)?;
        let mut files = Vec::new();
        for &cpu in &cpus.0 {
            let path = folder.join(format!("cpu{}{of}.lock", cpu.0));
            match take(&path, holder) {
                Ok(file) => files.push(file),
                Err(Refusal::Taken(holder)) => return Err(LockError::Held { cpu, holder, path }),
                Err(Refusal::Unavailable(cause)) => return Err(LockError::Unavailable { path, cause }),
            }
        }
        Ok(Self { files })
    }

    /// Adds a line to the files. One that cannot be written is not: the locks hold all the same.
    pub(crate) fn announce(&mut self, line: &str) {
        for file in &mut self.files {
            let _ = writeln!(file, "{line}");
        }
    }
}

/// Why a lock is not to be had.
pub(crate) enum Refusal {
    /// Somebody has it: what they wrote about themselves.
    Taken(String),
    Unavailable(io::Error),
}

/// Takes the lock at `path` and writes there who we are.
pub(crate) fn take(path: &Path, holder: &str) -> Result<File, Refusal> {
    // Never truncated on opening: until the lock is ours, the text is the holder's.
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(path).map_err(Refusal::Unavailable)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(Refusal::Taken(holder_of(&mut file))),
        Err(cause) => return Err(Refusal::Unavailable(cause.into())),
    }
    let text = format!("{holder} (process {})\n", std::process::id());
    file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).map_err(Refusal::Unavailable)?;
    Ok(file)
}

/// The same for a file that goes with its holder.
pub(crate) fn take_passing(path: &Path, holder: &str) -> Result<File, Refusal> {
    loop {
        match take(path, holder) {
            // Its last holder removed it between our opening and our locking it: nobody else would see ours.
            Ok(file) if file.metadata().is_ok_and(|file| file.nlink() == 0) => {}
            result => return result,
        }
    }
}

/// A CPU that a Roost process holds, or held until it died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuHolder {
    /// Which.
    pub cpu: CpuId,
    /// What the holder wrote about itself.
    pub holder: String,
    /// True if a process of that number runs. To try the lock would be surer, but for a moment nobody else could have
    /// it; and a survey disturbs nobody.
    pub runs: bool,
}

/// Whose names stand in the lock files, and how many journals of changes there are.
pub fn cpu_holders(root: &Root, gaps: &mut Gaps) -> (Vec<CpuHolder>, usize) {
    let (mut holders, mut journals) = (Vec::new(), 0);
    for name in gaps.names(root, RUN_FOLDER) {
        journals += usize::from(name.ends_with(".journal"));
        let cpu = name.strip_prefix("cpu").and_then(|rest| rest.strip_suffix(".lock")?.parse().ok());
        let Some(cpu) = cpu else { continue };
        let Some(text) = gaps.text(root, &format!("{RUN_FOLDER}/{name}")) else { continue };
        let holder = text.lines().next().unwrap_or_default().to_owned();
        let runs = process_in(&holder).is_some_and(|pid| root.has(&format!("proc/{pid}")) == Some(true));
        holders.push(CpuHolder { cpu: CpuId(cpu), holder, runs });
    }
    holders.sort_by_key(|holder| holder.cpu);
    (holders, journals)
}

/// The process that such a line names.
fn process_in(holder: &str) -> Option<u32> {
    holder.rsplit_once("(process ")?.1.strip_suffix(')')?.parse().ok()
}

/// CPUs that other Roost processes need, each with who does: those whose sleep or clock they limit, and those of the services that
/// they keep on CPUs.
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
        if !process_in(holder).is_some_and(lives) {
            continue;
        }
        let cpu = cpu.and_then(|number| number.parse().ok()).map(CpuId);
        let service = process.and_then(|number| crate::threads::cpus(number.parse().ok()?).ok());
        let cpus = cpu.into_iter().chain(service.unwrap_or_default().0);
        needed.extend(cpus.map(|cpu| (cpu, holder.to_owned())));
    }
    needed
}

/// What the holder wrote about itself. It may be caught between taking the lock and writing.
fn holder_of(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(4096).read_to_string(&mut text));
    match text.lines().next() {
        Some(line) if read.is_ok() && !line.is_empty() => line.to_owned(),
        _ => "another process".to_owned(),
    }
}

/// The folder for locks and journals, made if need be. Its owner alone can list it and read what is in it; others may pass
/// through, to the socket at which a daemon tells them how it is.
pub(crate) fn run_folder(root: &Root) -> Result<PathBuf, LockError> {
    let path = root.path(RUN_FOLDER);
    if let Some(parent) = path.parent() {
        // `/run` itself exists on every machine; a bare test root may lack it.
        let _ = fs::create_dir_all(parent);
    }
    match DirBuilder::new().mode(0o711).create(&path) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => {
            Err(LockError::Unavailable { path, cause })
        }
        _ => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Offspring as _;
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

    #[test]
    fn a_survey_tells_a_holder_that_runs_from_a_dead_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let _locks = CpuLocks::take(&root, &cpus("3"), "roost serve").unwrap();
        fs::create_dir_all(root.path(&format!("proc/{}", std::process::id()))).unwrap();
        fs::write(root.path("run/roost/cpu11.lock"), "roost serve (process 1)\n").unwrap();
        fs::write(root.path("run/roost/cpu99999.lock"), "nobody\n").unwrap();
        fs::write(root.path("run/roost/1-2.journal"), "").unwrap();
        let (holders, journals) = cpu_holders(&root, &mut Gaps::default());
        let seen: Vec<_> = holders.iter().map(|holder| (holder.cpu, holder.runs)).collect();
        assert_eq!((seen.as_slice(), journals), ([(CpuId(3), true), (CpuId(11), false)].as_slice(), 1));
    }

    #[test]
    fn a_cpu_that_another_living_roost_needs_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let mut other = std::process::Command::new("sleep").arg("600").ends_with_parent().spawn().unwrap();
        let _own = CpuLocks::take(&root, &cpus("1"), "we").unwrap();
        for (name, pid) in
            [("cpu3", other.id()), ("cpu4.clock", other.id()), ("cpu5", 1), ("surroundings", other.id())]
        {
            fs::write(root.path(&format!("run/roost/{name}.lock")), format!("roost serve (process {pid})\n"))
                .unwrap();
        }
        for pid in [other.id(), std::process::id()] {
            fs::create_dir_all(root.path(&format!("proc/{pid}"))).unwrap();
        }
        let needed: Vec<u16> = needed_by_others(&root).keys().map(|cpu| cpu.0).collect();
        assert_eq!(needed, [3, 4]);
        // Its service may be on all CPUs that there are.
        let service = format!("run/roost/process{}.lock", std::process::id());
        fs::write(root.path(&service), format!("roost govern (process {})\n", other.id())).unwrap();
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
        assert!(error.to_string().contains("install -d"), "{error}");
    }
}
