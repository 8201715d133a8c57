//! A cpuset's CPUs, and its existence: a folder of version 1, the controller of version 2; and an isolated
//! partition of version 2.

use super::file::FileKnob;
use crate::root::{FileError, overwrite};
use machine::CpuList;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The text of an existing folder.
pub(crate) const PRESENT: &str = "present";
/// The text of a missing folder.
const ABSENT: &str = "absent";
/// The text of a `cgroup.subtree_control` that enables the controller; without, it is empty.
pub(crate) const CPUSET: &str = "cpuset";

/// The CPUs in force in a cgroup of version 2.
const EFFECTIVE: &str = "cpuset.cpus.effective";

/// Processes that begin while others are moved away: after this many rounds the folder stays, and
/// is reported.
const ROUNDS_MAX: usize = 100;
/// The pause between two rounds: a process that is just ending counts until it is gone.
const PAUSE: Duration = Duration::from_micros(200);

/// A `cpuset.cpus`.
#[derive(Debug)]
pub(super) struct CpusKnob {
    pub(super) file: FileKnob,
    folder: PathBuf,
}

impl CpusKnob {
    pub(super) fn new(path: PathBuf) -> Self {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Self { file: FileKnob::new(path), folder }
    }

    /// In version 2 the CPUs of a cgroup that has processes cannot be emptied (ENOSPC), though they
    /// may well begin empty. The nearest text is all CPUs of the cgroup above; and if the
    /// controller there is ours, disabling it empties them after all.
    pub(super) fn give_back(&mut self, before: &str) -> Result<String, FileError> {
        match self.file.write(before) {
            Err(FileError::Unwritable { cause, .. })
                if before.is_empty() && cause.kind() == io::ErrorKind::StorageFull =>
            {
                let path = self.folder.parent().unwrap_or(Path::new("")).join(EFFECTIVE);
                let all = fs::read_to_string(&path).map_err(|cause| FileError::unreadable(&path, cause))?;
                self.file.write(all.trim_end())
            }
            result => result,
        }
    }
}

/// A cpuset of version 1 that we made inside the one where its processes had been.
#[derive(Debug)]
pub(super) struct FolderKnob {
    path: PathBuf,
}

impl FolderKnob {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn read(&self) -> String {
        if self.path.is_dir() { PRESENT } else { ABSENT }.to_owned()
    }

    /// Makes the folder; or moves its processes to the one above, where they came from, and removes
    /// it.
    pub(super) fn write(&self, value: &str) -> Result<(), FileError> {
        #[expect(clippy::disallowed_methods, reason = "a cgroup, in the kernel's own file system")]
        let result = if value == PRESENT { fs::create_dir(&self.path) } else { self.dissolve() };
        result.map_err(|cause| FileError::Unwritable {
            path: self.path.clone(),
            value: value.to_owned(),
            cause,
        })
    }

    fn dissolve(&self) -> io::Result<()> {
        let above = self.path.parent().map(|above| above.join("cgroup.procs")).unwrap_or_default();
        for _ in 0..ROUNDS_MAX {
            let members = fs::read_to_string(self.path.join("cgroup.procs"))?;
            for process in members.lines() {
                match overwrite(&above, process) {
                    // It ended in between.
                    Err(cause) if crate::processes::threads::is_gone(&cause) => {}
                    result => result?,
                }
            }
            match fs::remove_dir(&self.path) {
                // A process of it has forked in between.
                Err(cause) if cause.kind() == io::ErrorKind::ResourceBusy => thread::sleep(PAUSE),
                result => return result,
            }
        }
        fs::remove_dir(&self.path)
    }
}

/// A cgroup of version 2 that is an isolated partition: nothing but threads that belong to one of its CPUs
/// may run there. Reads its CPUs; the folder is ours as a whole, so while it is half made, the kernel's word
/// for it is ours as well.
#[derive(Debug)]
pub(super) struct PartitionKnob {
    folder: FolderKnob,
}

/// Its CPUs, before all other cgroups (Linux 6.7).
const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
/// Its kind: `isolated`, `member` of none, `isolated invalid` and the reason.
const PARTITION_KIND: &str = "cpuset.cpus.partition";
const ISOLATED: &str = "isolated";

impl PartitionKnob {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { folder: FolderKnob::new(path) }
    }

    pub(super) fn read(&self) -> Result<String, FileError> {
        if self.folder.read() == ABSENT {
            return Ok(ABSENT.to_owned());
        }
        match self.text(PARTITION_KIND) {
            Ok(kind) if kind == ISOLATED => self.text(EXCLUSIVE),
            // The group outlives its controller, which another program may take away.
            Err(FileError::Missing { .. }) => Ok(format!("a cgroup without {CPUSET}")),
            kind => kind,
        }
    }

    pub(super) fn write(&self, value: &str) -> Result<String, FileError> {
        if value == ABSENT {
            self.folder.write(ABSENT)?;
            return self.read();
        }
        if self.folder.read() == ABSENT {
            self.folder.write(PRESENT)?;
        }
        self.set(EXCLUSIVE, value)?;
        if self.text(PARTITION_KIND)? != ISOLATED {
            self.set(PARTITION_KIND, ISOLATED)?;
        }
        let kind = self.text(PARTITION_KIND)?;
        if kind != ISOLATED {
            let path = self.folder.path.join(PARTITION_KIND);
            return Err(FileError::unwritable(&path, ISOLATED, io::Error::other(format!("it reads {kind}"))));
        }
        self.read()
    }

    /// True of a text of ours where it reads as one that is half made.
    pub(super) fn is_half_made(text: &str, reads: &str) -> bool {
        text != ABSENT && reads != ABSENT && reads.parse::<CpuList>().is_err()
    }

    fn text(&self, name: &str) -> Result<String, FileError> {
        let path = self.folder.path.join(name);
        let text = fs::read_to_string(&path).map_err(|cause| FileError::unreadable(&path, cause))?;
        Ok(text.trim_end().to_owned())
    }

    fn set(&self, name: &str, value: &str) -> Result<(), FileError> {
        let path = self.folder.path.join(name);
        overwrite(&path, value).map_err(|cause| FileError::unwritable(&path, value, cause))
    }
}

/// The controller for the children of a cgroup of version 2, enabled or not.
#[derive(Debug)]
pub(super) struct ControllerKnob {
    path: PathBuf,
}

impl ControllerKnob {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Reads as another program's, and so is left alone, once a child has CPUs of its own, fewer
    /// than there are here: without the controller it would lose them.
    pub(super) fn read(&self) -> Result<String, FileError> {
        let text =
            fs::read_to_string(&self.path).map_err(|cause| FileError::unreadable(&self.path, cause))?;
        if !text.split_ascii_whitespace().any(|name| name == CPUSET) {
            return Ok(String::new());
        }
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let all = fs::read_to_string(folder.join(EFFECTIVE)).unwrap_or_default();
        let children = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        Ok(match children.filter(|child| child.is_dir()).find(|child| is_used(child, all.trim())) {
            Some(user) => format!("{CPUSET}, which {} uses", user.display()),
            None => CPUSET.to_owned(),
        })
    }

    pub(super) fn write(&self, value: &str) -> Result<(), FileError> {
        let sign = if value == CPUSET { '+' } else { '-' };
        let text = format!("{sign}{CPUSET}");
        overwrite(&self.path, &text).map_err(|cause| FileError::unwritable(&self.path, &text, cause))
    }
}

fn is_used(child: &Path, all: &str) -> bool {
    let text = |name: &str| fs::read_to_string(child.join(name)).unwrap_or_default();
    !["", all].contains(&text("cpuset.cpus").trim())
        || !["", "member"].contains(&text(PARTITION_KIND).trim())
        || text("cgroup.subtree_control").split_ascii_whitespace().any(|name| name == CPUSET)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_that_another_child_uses_does_not_read_as_ours() {
        let folder = tempfile::tempdir().unwrap();
        let knob = ControllerKnob::new(folder.path().join("cgroup.subtree_control"));
        assert!(matches!(knob.read(), Err(FileError::Missing { .. })));
        fs::write(&knob.path, "cpu memory\n").unwrap();
        assert_eq!(knob.read().unwrap(), "");
        fs::write(&knob.path, "cpuset cpu\n").unwrap();
        fs::create_dir(folder.path().join("shop")).unwrap();
        fs::write(folder.path().join("shop/cpuset.cpus"), "\n").unwrap();
        assert_eq!(knob.read().unwrap(), CPUSET);
        fs::write(folder.path().join(EFFECTIVE), "0-3\n").unwrap();
        fs::write(folder.path().join("shop/cpuset.cpus"), "0-3\n").unwrap();
        assert_eq!(knob.read().unwrap(), CPUSET, "it has all, so it would lose nothing");
        fs::write(folder.path().join("shop/cpuset.cpus"), "1-2\n").unwrap();
        assert!(knob.read().unwrap().contains("shop uses"));
        fs::write(folder.path().join("shop/cpuset.cpus"), "\n").unwrap();
        fs::write(folder.path().join("shop").join(PARTITION_KIND), "member\n").unwrap();
        assert_eq!(knob.read().unwrap(), CPUSET);
        fs::write(folder.path().join("shop").join(PARTITION_KIND), "isolated\n").unwrap();
        assert!(knob.read().unwrap().contains("shop uses"), "a partition ends without the controller");
    }

    #[test]
    fn a_partition_reads_its_cpus_once_the_kernel_has_made_it() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("parked");
        let knob = PartitionKnob::new(folder.clone());
        assert_eq!(knob.read().unwrap(), ABSENT);
        fs::create_dir(&folder).unwrap();
        assert!(PartitionKnob::is_half_made("1-3", &knob.read().unwrap()));
        // A kernel before 6.7.
        fs::write(folder.join(PARTITION_KIND), "member\n").unwrap();
        assert!(knob.write("1-3").unwrap_err().to_string().contains(EXCLUSIVE));
        assert_eq!(knob.read().unwrap(), "member");
        assert!(PartitionKnob::is_half_made("1-3", "member"));
        fs::write(folder.join(EXCLUSIVE), "\n").unwrap();
        assert_eq!(knob.write("1-3").unwrap(), "1-3");
        assert_eq!(knob.write("2-3").unwrap(), "2-3");
        assert!(!PartitionKnob::is_half_made("1-3", "2-3") && !PartitionKnob::is_half_made("1-3", ABSENT));
        assert!(!PartitionKnob::is_half_made(ABSENT, "member"), "it is there");
    }

    #[test]
    fn a_folder_is_made_once_and_is_absent_when_gone() {
        let folder = tempfile::tempdir().unwrap();
        let knob = FolderKnob::new(folder.path().join("roost-1"));
        assert_eq!(knob.read(), ABSENT);
        knob.write(PRESENT).unwrap();
        assert_eq!(knob.read(), PRESENT);
        let error = knob.write(PRESENT).unwrap_err().to_string();
        assert!(error.contains("exists"), "{error}");
    }
}
