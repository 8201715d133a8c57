//! Why a group is not frozen.

use crate::journal::ChangeError;
use crate::lock::LockError;
use crate::processes::service::ServiceError;
use crate::root::FileError;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum FreezerError {
    /// There is none of this name.
    #[error(transparent)]
    Unknown(#[from] ServiceError),
    /// It must never be frozen.
    #[error(
        "{unit} is not frozen: {reason}\nhint: name the background work's own unit or cgroup; \
         `systemd-run --unit NAME COMMAND` gives it one"
    )]
    NotOurs { unit: String, reason: String },
    /// It holds processes that others are frozen for.
    #[error(
        "{unit} is not frozen: {reason}\nhint: name a background unit that holds none of the \
         critical one's processes"
    )]
    Critical { unit: String, reason: String },
    /// Another Roost process holds it.
    #[error("{unit} is frozen and thawed by {holder} already: stop that first (its lock is \
        {path})", path = path.display())]
    Held {
        unit: String,
        /// Name and process of the holder, as it wrote them.
        holder: String,
        path: PathBuf,
    },
    /// No way to freeze it is left.
    #[error("{unit} cannot be frozen here: {reason}")]
    NoWay { unit: String, reason: String },
    /// No lock or no journal can be kept, so nothing may change.
    #[error(transparent)]
    Unavailable(#[from] LockError),
    /// A kernel file failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The journal failed.
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
