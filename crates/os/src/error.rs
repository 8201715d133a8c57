//! Why a file or folder was not opened.

use std::io;
use std::path::PathBuf;

/// Why a file or folder was not opened.
#[derive(Debug, thiserror::Error)]
pub enum SafeError {
    /// Another user could choose its content.
    #[error("{path}: {why}", path = path.display())]
    Unsafe {
        path: PathBuf,
        /// The other user, and the means.
        why: String,
    },
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl SafeError {
    /// As the standard library's, for callers whose errors are those.
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Io { source, .. } => source,
            Self::Unsafe { .. } => io::Error::new(io::ErrorKind::PermissionDenied, self.to_string()),
        }
    }

    /// The kernel's error, where there is one.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Io { source, .. } => source.kind(),
            Self::Unsafe { .. } => io::ErrorKind::PermissionDenied,
        }
    }
}
