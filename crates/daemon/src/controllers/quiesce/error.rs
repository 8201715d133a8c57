//! Why background work is not frozen.

use linux::freezer::FreezerError;
use linux::probes::BpfError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// An error, and the remedy.
#[derive(Debug, Error)]
pub enum QuiesceError {
    /// A unit that is not there or must not be frozen, or a freezer that cannot be had.
    #[error(transparent)]
    Freezer(#[from] FreezerError),
    /// The scheduler's events cannot be seen.
    #[error("who waits for what cannot be seen here: {0}")]
    Blind(#[from] BpfError),
    /// CPUs that are not there, or that no freezable process uses.
    #[error("domain = {domain}: {reason}")]
    Domain { domain: String, reason: String },
    #[error("trigger = {trigger}: {reason}")]
    Trigger { trigger: &'static str, reason: String },
    #[error(
        "cannot record into {folder}: {cause}\nhint: name another folder as record",
        folder = folder.display()
    )]
    Record { folder: PathBuf, cause: io::Error },
    #[error("cannot wait for events: {0}")]
    Watch(io::Error),
}
