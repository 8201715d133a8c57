//! The movable root: where `/sys`, `/proc`, `/dev` and `/run/roost` begin.
//!
//! The kernel's interfaces are files, so a directory can stand in for a kernel: a tree recorded on
//! an Intel server is that server to every reader in this crate, on any laptop. Nothing here names
//! a file but through a [`Root`], and a path below it is always written without its leading slash
//! (`sys/devices/system/cpu`), which is also how the journal records it.
//!
//! Invariants: a text that is read is trimmed of the line feed that the kernel appends; a number
//! that does not parse is an error that shows the text, never a zero.

use machine::CpuId;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where the machine's files begin: `/` on a live machine, any directory in a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Self::system()
    }
}

impl Root {
    pub fn system() -> Self {
        Self(PathBuf::from("/"))
    }

    /// A recorded or made-up machine whose `sys`, `proc`, `dev` and `run` lie below `prefix`.
    pub fn at(prefix: impl Into<PathBuf>) -> Self {
        Self(prefix.into())
    }

    /// The file or folder at `below`, a path without its leading slash.
    pub fn path(&self, below: &str) -> PathBuf {
        self.0.join(below)
    }

    /// The file's text, without the final line feed.
    pub(crate) fn text(&self, below: &str) -> Result<String, FileError> {
        let path = self.path(below);
        let text = at_once(&path).map_err(|cause| FileError::unreadable(&path, cause))?;
        Ok(text.trim_end().to_owned())
    }

    /// The file's text as a number or another type that parses.
    pub(crate) fn parse<T: FromStr>(&self, below: &str, expected: &'static str) -> Result<T, FileError> {
        let text = self.text(below)?;
        text.trim().parse().map_err(|_| FileError::Nonsense { path: self.path(below), text, expected })
    }

    /// True if something is at `below`; `None` if this user may not look.
    pub(crate) fn has(&self, below: &str) -> Option<bool> {
        self.path(below).try_exists().ok()
    }

    /// True if this user could write the file at `below`, as far as the kernel tells beforehand.
    /// `None` for a recorded machine, whose permissions are not those of the recording.
    pub fn may_write(&self, below: &str) -> Option<bool> {
        use rustix::fs::{Access, access};
        (self.0 == Path::new("/")).then(|| access(self.path(below), Access::WRITE_OK).is_ok())
    }

    /// Names of the entries of a folder, in order; none if there is no such folder.
    pub(crate) fn names(&self, below: &str) -> Result<Vec<String>, FileError> {
        let path = self.path(below);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(FileError::unreadable(&path, cause)),
        };
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort_unstable();
        Ok(names)
    }
}

/// Reads a whole file, in as few calls as a kernel file needs: its size shows as 0, so a reader
/// that asks for that first reads in many small steps.
fn at_once(path: &Path) -> io::Result<String> {
    let mut text = String::with_capacity(PAGE);
    File::open(path)?.take(u64::MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The most bytes of a sysfs file (`fs/sysfs/file.c`).
const PAGE: usize = 4096;

/// The failures of a survey of a machine, each with its reason.
///
/// Writes a kernel file. A missing one is an error and is not made: below a mistaken root a new
/// file would look like a knob that took the value.
pub(crate) fn overwrite(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write as _;
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(text.as_bytes())
}

/// A survey goes on when one file fails, but must not keep quiet about it. A file that merely *does
/// not exist* is no gap: the kernel or the machine lacks that interface, and the survey's own
/// answer says so.
#[derive(Debug, Default)]
pub struct Gaps(pub Vec<FileError>);

impl Gaps {
    /// The value that was read, or `None`; a failure other than absence is noted.
    pub fn see<T>(&mut self, result: Result<T, FileError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(FileError::Missing { .. }) => None,
            Err(error) => {
                self.0.push(error);
                None
            }
        }
    }

    /// Names in a folder; none if it is absent or may not be listed, which is noted.
    pub(crate) fn names(&mut self, root: &Root, below: &str) -> Vec<String> {
        self.see(root.names(below)).unwrap_or_default()
    }

    /// A file's text, if it exists and is not empty.
    pub(crate) fn text(&mut self, root: &Root, below: &str) -> Option<String> {
        self.see(root.text(below)).filter(|text| !text.is_empty())
    }

    /// A file's text as another type.
    pub(crate) fn parse<T: FromStr>(
        &mut self,
        root: &Root,
        below: &str,
        expected: &'static str,
    ) -> Option<T> {
        self.see(root.parse(below, expected))
    }
}

/// The folder of one CPU. The number is the kernel's own: a worker's number has another type.
pub(crate) fn cpu_folder(cpu: CpuId) -> String {
    format!("sys/devices/system/cpu/cpu{}", cpu.0)
}

/// A kernel file that could not be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is not there: the kernel lacks this interface, or the CPU is gone.
    #[error("{path} does not exist: this kernel or machine does not offer it", path = path.display())]
    Missing { path: PathBuf },
    /// It is there, but reading failed.
    #[error("cannot read {path}: {cause}", path = path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// It has a text that this kernel interface never has.
    #[error("{path} reads `{text}` where {expected} was expected", path = path.display())]
    Nonsense { path: PathBuf, text: String, expected: &'static str },
    #[error("cannot write `{value}` to {path}: {cause}", path = path.display())]
    Unwritable {
        path: PathBuf,
        value: String,
        #[source]
        cause: io::Error,
    },
}

impl FileError {
    pub(crate) fn unreadable(path: &Path, cause: io::Error) -> Self {
        let path = path.to_owned();
        match cause.kind() {
            io::ErrorKind::NotFound => Self::Missing { path },
            // The kernel never has a folder where it has a file. A recording does, so that a file
            // that its maker was not allowed to read cannot be read by root either.
            io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => {
                let closed = "permission denied where this was recorded";
                Self::Unreadable { path, cause: io::Error::new(io::ErrorKind::PermissionDenied, closed) }
            }
            _ => Self::Unreadable { path, cause },
        }
    }

    pub(crate) fn unwritable(path: &Path, value: &str, cause: io::Error) -> Self {
        if cause.kind() == io::ErrorKind::NotFound {
            Self::Missing { path: path.to_owned() }
        } else {
            Self::Unwritable { path: path.to_owned(), value: value.to_owned(), cause }
        }
    }

    pub fn path(&self) -> &Path {
        match self {
            Self::Missing { path }
            | Self::Unreadable { path, .. }
            | Self::Nonsense { path, .. }
            | Self::Unwritable { path, .. } => path,
        }
    }

    /// The reason without the path: several CPUs that fail alike share it.
    pub fn reason(&self) -> String {
        match self {
            Self::Missing { .. } => "no such file: this kernel or machine does not offer it".to_owned(),
            Self::Unreadable { cause, .. } => format!("cannot be read: {cause}"),
            Self::Nonsense { text, expected, .. } => format!("reads `{text}` where {expected} was expected"),
            Self::Unwritable { cause, .. } => match cause.kind() {
                io::ErrorKind::PermissionDenied => {
                    format!(
                        "cannot be written: {cause}; run as root, or give this user the file (udev, tmpfiles)"
                    )
                }
                io::ErrorKind::ReadOnlyFilesystem => {
                    format!("cannot be written: {cause}; drop ProtectKernelTunables= from the unit")
                }
                _ => format!("cannot be written: {cause}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_told_apart_from_a_file_that_says_nonsense() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        assert!(matches!(root.parse::<u64>("sys/latency", "a number"), Err(FileError::Missing { .. })));
        fs::create_dir(folder.path().join("sys")).unwrap();
        fs::write(folder.path().join("sys/latency"), "many\n").unwrap();
        let error = root.parse::<u64>("sys/latency", "a number").unwrap_err();
        assert!(matches!(&error, FileError::Nonsense { text, .. } if text == "many"), "{error}");
        fs::write(folder.path().join("sys/latency"), " 7 \n").unwrap();
        assert_eq!(root.parse::<u64>("sys/latency", "a number").unwrap(), 7);
        assert!(root.names("nowhere").unwrap().is_empty());
    }
}
