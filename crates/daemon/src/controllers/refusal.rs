//! Why something is not done, with the exit code that a command gives for it.

use super::cores::OpenError;
use super::hurry_up::HurryError;
use super::quiesce::QuiesceError;
use super::wake::WakeError;
use crate::control::ControlError;
use crate::run::StartError;
use linux::freezer::FreezerError;
use linux::{ConfineError, FrequencyError, HotplugError, LendError, LockError};
use observe::functions::FunctionError;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::io::ErrorKind;
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    Failed,
    /// The flags or the configuration are wrong.
    Usage,
    /// This machine lacks a feature that it needs.
    Unsupported,
    /// Another process holds the knob, or this user may not.
    Held,
}

#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct Refusal {
    pub kind: RefusalKind,
    /// The reason, and the remedy.
    pub message: String,
}

impl Refusal {
    fn new(kind: RefusalKind, message: impl Display) -> Self {
        Self { kind, message: message.to_string() }
    }

    pub fn failed(message: impl Display) -> Self {
        Self::new(RefusalKind::Failed, message)
    }

    /// The flags or the configuration are wrong.
    pub fn usage(message: impl Display) -> Self {
        Self::new(RefusalKind::Usage, message)
    }

    /// Another process holds the knob, or this user may not.
    pub fn held(message: impl Display) -> Self {
        Self::new(RefusalKind::Held, message)
    }
}

impl From<QuiesceError> for Refusal {
    fn from(error: QuiesceError) -> Self {
        let kind = match &error {
            QuiesceError::Freezer(FreezerError::NotOurs { .. } | FreezerError::Held { .. }) => {
                RefusalKind::Held
            }
            QuiesceError::Freezer(FreezerError::Unavailable(lock)) if lock.is_refusal() => RefusalKind::Held,
            QuiesceError::Blind(_)
            | QuiesceError::Watch(_)
            | QuiesceError::Freezer(
                FreezerError::Unavailable(_)
                | FreezerError::File(_)
                | FreezerError::Journal(_)
                | FreezerError::NoWay { .. },
            ) => RefusalKind::Unsupported,
            QuiesceError::Freezer(FreezerError::Unknown(_) | FreezerError::Critical { .. })
            | QuiesceError::Domain { .. }
            | QuiesceError::Trigger { .. }
            | QuiesceError::Record { .. } => RefusalKind::Usage,
        };
        Self::new(kind, error)
    }
}

impl From<HurryError> for Refusal {
    fn from(error: HurryError) -> Self {
        let kind = match &error {
            HurryError::NoClocks(_)
            | HurryError::Clocks(FrequencyError::Unsupported { .. } | FrequencyError::Lacking { .. })
            | HurryError::Clocks(FrequencyError::Lock(LockError::Unavailable { .. }))
            | HurryError::Watch { .. }
            | HurryError::Functions(FunctionError::Bpf(_)) => RefusalKind::Unsupported,
            HurryError::Clocks(FrequencyError::Lock(_)) => RefusalKind::Held,
            _ => RefusalKind::Usage,
        };
        Self::new(kind, error)
    }
}

impl From<WakeError> for Refusal {
    fn from(error: WakeError) -> Self {
        let kind = match &error {
            WakeError::Lock(lock) if lock.is_refusal() => RefusalKind::Held,
            WakeError::Lock(_) | WakeError::Unsupported(_) => RefusalKind::Unsupported,
            WakeError::Affinity(_) | WakeError::Taken { .. } => RefusalKind::Usage,
            WakeError::Failed(_) => RefusalKind::Failed,
        };
        Self::new(kind, error)
    }
}

impl From<StartError> for Refusal {
    fn from(error: StartError) -> Self {
        let kind = match &error {
            StartError::Service(
                OpenError::Blind { .. } | OpenError::Policy { .. } | OpenError::Clocks { .. },
            )
            | StartError::NoClocks { .. }
            | StartError::Lend(LendError::Missing { .. } | LendError::Unavailable(_))
            | StartError::Clocks(FrequencyError::Unsupported { .. } | FrequencyError::Lacking { .. })
            | StartError::Service(OpenError::Confine(
                ConfineError::Unsupported { .. } | ConfineError::Scheduler { .. },
            )) => RefusalKind::Unsupported,
            StartError::Clocks(FrequencyError::MsrNotAllowed)
            | StartError::Lend(LendError::Group(_) | LendError::Change { .. })
            | StartError::Service(
                OpenError::Service(_)
                | OpenError::NoCpu { .. }
                | OpenError::Record { .. }
                | OpenError::Unheard { .. },
            )
            | StartError::Audit { .. } => RefusalKind::Usage,
            // No place for the socket: a user without a run folder, say.
            StartError::Control(ControlError::Taken { cause, .. })
                if cause.kind() != ErrorKind::InvalidInput =>
            {
                RefusalKind::Unsupported
            }
            StartError::Control(_) => RefusalKind::Usage,
            // A user who may not keep locks, or not see the service's processes: root may.
            StartError::Service(OpenError::Confine(ConfineError::Unavailable(lock))) if lock.is_refusal() => {
                RefusalKind::Held
            }
            StartError::Held(LockError::Unavailable { .. })
            | StartError::Service(OpenError::Confine(
                ConfineError::NoProcess { .. } | ConfineError::Unavailable(LockError::Unavailable { .. }),
            ))
            | StartError::Hotplug(
                HotplugError::Unsupported(_) | HotplugError::Lock(LockError::Unavailable { .. }),
            ) => RefusalKind::Unsupported,
            StartError::Held(_)
            | StartError::Running(_)
            | StartError::Clocks(FrequencyError::Lock(_))
            | StartError::Hotplug(HotplugError::Lock(_))
            | StartError::Service(OpenError::Confine(
                ConfineError::Held { .. } | ConfineError::NotOwn { .. },
            )) => RefusalKind::Held,
            StartError::Service(OpenError::Confine(_)) => RefusalKind::Failed,
        };
        Self::new(kind, error)
    }
}
