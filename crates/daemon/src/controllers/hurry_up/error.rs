//! Reasons why clocks are not chosen by the threads in the hot function.

use linux::{ConfineError, FrequencyError};
use machine::CpuList;
use observe::functions::FunctionError;
use policy::check::Wrong;
use slots::ReaderError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// An error, and the remedy.
#[derive(Debug, Error)]
pub enum HurryError {
    #[error(
        "there is no slot file {path}\nhint: start the service with the agent: \
         -javaagent:roost-agent.jar=method=pkg.Class::method,file={path}, or \
         attach it: java -jar roost-agent.jar PID method=...,file={path}; a native server writes \
         one by include/roost.h or the crate slots, and one that \
         cannot be changed is watched by --uprobe",
        path = path.display()
    )]
    NoSlots { path: PathBuf },
    /// The file cannot be read, or no longer.
    #[error(transparent)]
    Slots(#[from] ReaderError),
    #[error(transparent)]
    Functions(#[from] FunctionError),
    #[error("there is no process {0}\nhint: `pgrep -a NAME` finds it by its name")]
    NoProcess(u32),
    #[error(
        "{path} was left by process {writer}, which has ended or runs in a container\nhint: start \
         the service, which makes a new file; if it runs in a \
         container, name its process as it is seen here with --pid",
        path = path.display()
    )]
    Left {
        path: PathBuf,
        /// Who wrote it, by its own account.
        writer: u32,
    },
    #[error(
        "{path} was written by process {writer}, which is not process {process}{inner}\nhint: name \
         the file that the agent of process {process} was \
         told to write, or leave --pid out",
        path = path.display()
    )]
    OtherProcess {
        path: PathBuf,
        /// Who wrote it, by its own account.
        writer: u32,
        process: u32,
        /// The other process's own number, where it differs.
        inner: String,
    },
    #[error(transparent)]
    Cpus(#[from] ConfineError),
    #[error("--cpus {asked} leaves none: process {process} may run on {allowed}")]
    NoCpu { process: u32, asked: CpuList, allowed: CpuList },
    /// No clock can be set here.
    #[error(
        "{0}\nhint: `roost doctor` tells more; --dry-run shows who is in the hot function and what \
         would be done"
    )]
    NoClocks(String),
    /// Clocks cannot be held.
    #[error(transparent)]
    Clocks(#[from] FrequencyError),
    /// Clocks or the threshold make no sense.
    #[error("{0}")]
    Wrong(#[from] Wrong),
    /// The recording or the audit cannot be begun.
    #[error("cannot write {path}: {cause}\nhint: name another place as {key}", path = path.display())]
    Output { path: PathBuf, cause: io::Error, key: &'static str },
    /// The end of the service could not be watched for.
    #[error("cannot watch process {process}: {cause}")]
    Watch { process: u32, cause: io::Error },
}
