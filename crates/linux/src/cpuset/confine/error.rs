//! Why a service cannot be kept on its CPUs.

use super::ConfineActuator;
use crate::journal::ChangeError;
use crate::lock::LockError;
use crate::processes::affinity::AffinityError;
use crate::root::FileError;
use crate::system::sched_ext::Unbound;
use machine::CpuList;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    #[error(
        "{service} has no process that this user can see, other than this one\nhint: run as root, \
         or name it by --pid"
    )]
    NoProcess {
        /// The user's name for it.
        service: String,
    },
    /// It was there, and has gone.
    #[error("the service has ended: none of its processes lives")]
    Ended,
    /// A process of another user, where only one user's may be confined.
    #[error("process {process} is not user {user}'s own")]
    NotOwn { process: u32, user: u32 },
    /// Another Roost process has it.
    #[error("process {process} is confined by {holder}: stop that first (its lock is \
        {path})", path = path.display())]
    Held {
        process: u32,
        /// Name and process of the holder, as it wrote them.
        holder: String,
        path: PathBuf,
    },
    /// No lock or no journal can be kept, so nothing may change.
    #[error(transparent)]
    Unavailable(#[from] LockError),
    /// This actuator does not work here, or none does.
    #[error("cannot confine the service by {actuator}: {reason}")]
    Unsupported { actuator: ConfineActuator, reason: String },
    #[error("no CPU to keep the service on: a service needs at least one")]
    Empty,
    /// CPUs that the service had not before.
    #[error("the service may not have them: {0}")]
    NotAllowed(#[from] AffinityError),
    #[error("CPU {asked} is offline: online are {online}")]
    NoneOnline { asked: CpuList, online: CpuList },
    /// The kernel accepted the CPUs and uses others.
    #[error(
        "{what} was set to `{asked}`, but `{reads}` is in force: a cgroup above it allows no more, \
         or not these"
    )]
    NotInForce { what: String, asked: CpuList, reads: String },
    /// A scheduler in BPF is loaded, and bound threads are not where they should be.
    #[error(
        "the loaded sched_ext scheduler {name} does not keep to affinity: {found}\nhint: unload it, or leave \
         the service to it"
    )]
    Scheduler { name: String, found: Unbound },
    /// The kernel or the journal refused.
    #[error("{0}")]
    Refused(String),
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The threads could not be listed.
    #[error("cannot look at the service's threads: {0}")]
    Threads(#[source] io::Error),
}

impl From<ChangeError> for ConfineError {
    fn from(error: ChangeError) -> Self {
        Self::Refused(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::CpuId;

    #[test]
    fn a_scheduler_that_is_in_the_way_is_named_with_what_was_found() {
        let found = Unbound::Strayed { asked: CpuId(1), seen: CpuId(0) };
        let told = ConfineError::Scheduler { name: "odd_1.0".to_owned(), found }.to_string();
        assert!(
            told.contains("odd_1.0 does not keep to affinity: a thread bound to cpu1 ran on cpu0"),
            "{told}"
        );
        assert!(told.contains("hint: unload it"), "{told}");
    }
}
