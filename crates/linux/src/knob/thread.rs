//! One thread's affinity.

use crate::processes::threads::{self, ThreadName, is_gone};
use crate::root::FileError;
use machine::CpuList;
use std::io;
use std::path::PathBuf;

#[derive(Debug)]
pub(super) struct ThreadKnob {
    name: ThreadName,
}

impl ThreadKnob {
    pub(super) fn new(name: ThreadName) -> Self {
        Self { name }
    }

    /// The CPUs where it may run, if the number is still this thread's. In the microseconds between
    /// this and a write the number could pass on, as with every tool that names threads by number.
    pub(super) fn read(&self) -> Result<String, FileError> {
        let unreadable = |cause: io::Error| match is_gone(&cause) {
            true => FileError::Missing { path: self.path() },
            false => FileError::Unreadable { path: self.path(), cause },
        };
        if threads::began(self.name.process, self.name.thread).map_err(unreadable)? != self.name.began {
            return Err(FileError::Missing { path: self.path() });
        }
        Ok(threads::cpus(self.name.thread).map_err(unreadable)?.to_string())
    }

    /// Returns the CPUs where it may run then. The number's owner was checked at the last read,
    /// just before.
    pub(super) fn write(&self, value: &str) -> Result<String, FileError> {
        let cpus: CpuList = value.parse().map_err(|_| FileError::Nonsense {
            path: self.path(),
            text: value.to_owned(),
            expected: "a list of CPUs",
        })?;
        let thread = self.name.thread;
        self.written(value, threads::set_cpus(thread, &cpus).and_then(|()| threads::cpus(thread)))
            .map(|cpus| cpus.to_string())
    }

    /// Lets it run wherever its cpuset does.
    pub(super) fn free(&self) -> Result<(), FileError> {
        self.written("all", threads::set_all_cpus(self.name.thread))
    }

    fn written<T>(&self, value: &str, result: io::Result<T>) -> Result<T, FileError> {
        result.map_err(|cause| match is_gone(&cause) {
            true => FileError::Missing { path: self.path() },
            false => FileError::Unwritable { path: self.path(), value: value.to_owned(), cause },
        })
    }

    /// For messages.
    fn path(&self) -> PathBuf {
        format!("/proc/{}/task/{} (affinity)", self.name.process, self.name.thread).into()
    }
}
