//! Why a group is not frozen.

use crate::journal::ChangeError;
use crate::lock::LockError;
use crate::processes::service::ServiceError;
use crate::root::FileError;
use std::path::PathBuf;

/// A group that cannot be frozen.
#[derive(Debug, thiserror::Error)]
pub enum FreezerError {
    /// There is none of this name.
    #[error(transparent)]
    Unknown(#[from] ServiceError),
    /// It must not be.
    #[error(
        "{unit} is not frozen: {reason}\nhint: name the background work's own unit or cgroup; `systemd-run --unit NAME COMMAND` gives it one"
    )]
    NotOurs {
        /// As it was named.
        unit: String,
        /// Why.
        reason: String,
    },
    /// It has somebody in it for whom others are frozen.
    #[error(
        "{unit} is not frozen: {reason}\nhint: name a background unit that holds none of the critical one's processes"
    )]
    Critical {
        /// As it was named.
        unit: String,
        /// Who.
        reason: String,
    },
    /// Another Roost process has it.
    #[error("{unit} is frozen and thawed by {holder} already: stop that first (its lock is {path})", path = path.display())]
    Held {
        /// As it was named.
        unit: String,
        /// Name and process of the holder, as it wrote them.
        holder: String,
        /// The lock file.
        path: PathBuf,
    },
    /// No way is left by which it could be.
    #[error("{unit} cannot be frozen here: {reason}")]
    NoWay {
        /// As it was named.
        unit: String,
        /// Why.
        reason: String,
    },
    /// No lock or no journal can be kept, so nothing may be changed.
    #[error(transparent)]
    Unavailable(#[from] LockError),
    /// A file of the kernel's.
    #[error(transparent)]
    File(#[from] FileError),
    /// The journal.
    #[error("{0}")]
    Journal(String),
}

impl From<ChangeError> for FreezerError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::File(error) => Self::File(error),
            error @ ChangeError::Journal { .. } => Self::Journal(error.to_string()),
        }
    }
}
