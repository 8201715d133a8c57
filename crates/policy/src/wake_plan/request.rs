//! Requests to the planner, and its commands to its driver.

use machine::{CpuId, Duration, Instant, Ratio};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name under which wake-ups are asked for and paid: a process, a service, a remote client, as
/// the driver numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Principal(pub u32);

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("principal-{}", self.0))
    }
}

/// Whose allowance a principal uses. Names are given freely and are for the books; users and tokens
/// are not, so principals of one user share one allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payer {
    /// Its own alone.
    Alone(Principal),
    /// That of all of this number: a user, or all programs that know a secret, as the driver
    /// numbers them.
    Shared(u64),
}

/// A CPU shall be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The principal that pays for it.
    pub principal: Principal,
    pub cpu: CpuId,
    /// From when on. The exit latency is not subtracted: that is the planner's business.
    pub ready: Instant,
    /// For how long, if the event does not come before.
    pub stay: Duration,
}

/// A request that was accepted. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestId {
    pub(super) cpu: CpuId,
    pub(super) number: u64,
}

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// Not one of the planner's CPUs.
    #[error("{0} is not planned for: name one of the CPUs that the planner was given")]
    UnknownCpu(CpuId),
    /// The whole window lies in the past.
    #[error("the window is over: ask before the event, not after it")]
    Past,
    /// The window begins too far ahead.
    #[error("the window begins more than {0} from now: ask again when it is nearer")]
    TooFar(Duration),
    #[error("the window is longer than {0}: ask again before it ends")]
    TooLong(Duration),
    /// The CPU has as many requests outstanding as it may have.
    #[error("the CPU has {0} requests outstanding: withdraw some or wait until they are over")]
    CpuFull(u16),
    /// The principal has as many requests outstanding as it may have, with those that share its
    /// allowance.
    #[error("the principal has {0} requests outstanding: withdraw some or wait until they are over")]
    PrincipalFull(u16),
    /// The ledger has as many accounts as it may have.
    #[error("there are {0} principals: one of them must leave first")]
    TooManyPrincipals(u16),
    #[error("the principal asks more than {0} times a second: ask less often, or raise its limit")]
    TooOften(u32),
    /// The principal has kept CPUs awake for too long.
    #[error(
        "the principal has kept CPUs awake for more than {0} of the time: ask for shorter windows, or \
         raise its limit"
    )]
    TooMuch(Ratio),
    #[error(
        "all callers together ask more than {0} times a second: ask less often, or raise the machine's limit"
    )]
    MachineTooOften(u32),
    /// CPUs were kept awake for too long on all accounts together.
    #[error(
        "all CPUs were kept awake for more than {0} of the time for all callers together: ask \
         for shorter windows, or raise the machine's limit"
    )]
    MachineTooMuch(Ratio),
}

/// A length of time for which a CPU is kept awake, waking included: `from` belongs to it, `until`
/// does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// When the CPU begins to wake.
    pub from: Instant,
    /// The time from which it may sleep again.
    pub until: Instant,
}

/// The planner's commands to its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeCommand {
    /// The CPU shall wake now, if it sleeps, and not sleep before `until`. Said again, with the
    /// same `from`, when the end has moved: so a driver may arm a timer of its own for the end, and
    /// no CPU stays awake if the planner dies.
    KeepAwake { cpu: CpuId, from: Instant, until: Instant },
    /// The window is over: the CPU may sleep as before.
    MaySleep { cpu: CpuId },
}
