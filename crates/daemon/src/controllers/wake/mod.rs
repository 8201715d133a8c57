//! Anticipatory wake-ups on a live machine: `policy::wake_plan` between two sides of Linux (the CPU
//! sleeps paper, section 2).
//!
//! ```text
//!   ring (slots::wake), doorbell -+
//!   lines, control socket --------+--> loop --> Caller --> Plan --> policy::wake_plan::Planner
//!   datagrams, HTTP (token) ------+                         |        |
//!   disk events (BPF) ------------+                         |        +-- due --> Helper
//!                                                           |                      |
//!                          arbiter::IdleWindow <------------+----------------------+
//!                                                        closes                  opens
//! ```
//!
//! One loop hears all callers. It has no timer, and sleeps until a message comes. Disk operations
//! are heard by a thread on the CPU that issued them. Each CPU has a helper thread (`helper`) whose
//! timer wakes that CPU and opens its window, so the start of a window waits for no other wake-up.
//! A thread that changes the plan holds its lock and carries out the consequences at once.
//!
//! Terms. A *window* is a time for which the planner keeps a CPU awake: the CPU polls
//! ([`Act::Polling`]). Its *alarm* wakes the CPU for it ([`Alarm`]). The *lead* of a request is the
//! sum of doorbell, exit latency and margin. A *principal* is a user and a name; several
//! connections may share one. *Too late* means nearer than the lead.
//!
//! Invariants:
//! - Idle limits are changed through `linux::arbiter` alone, so they are journalled first and
//!   combined with other requests. A window that is open when this process is killed is closed by
//!   `roost restore`, and by the next arbiter.
//! - A caller's requests are withdrawn when its connection ends, however it ends.
//! - Allowances bind users, and all callers that know the token together. A name only tells
//!   accounts apart, and its account ends.
//! - A caller can be slow, dead or hostile: its ring is bounded and read in turns, a long line is
//!   cut off, unread answers end the connection, and the planner's limits bind its user.

mod books;
mod calibrate;
mod caller;
mod config;
mod controller;
mod daemon;
mod disk;
mod helper;
mod listener;
mod plan;
mod remote;
mod status;
pub mod wire;

pub use calibrate::{Calibration, Latency, SLEEP};
pub use config::WakeConfig;
pub use controller::Wake;
pub use daemon::{WakeDaemon, WakeHandle};
pub use remote::{RemoteDesk, Token, Unheard};
pub use status::{AccountStatus, Asked, BooksCheck, CpuStatus, PredictorStatus, WakeStatus};

use machine::{CpuId, CpuList, Duration, Instant};
use plan::Plan;
use policy::wake_plan::{Params, Principal};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use thiserror::Error;

/// How a CPU is kept awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Its idle limit is zero for the window, so that it polls: a wake-up then needs no interrupt.
    Polling,
    /// A thread spins on it, at the lowest priority.
    Spin,
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Polling => "polling (pm_qos)",
            Self::Spin => "a spinning thread",
        })
    }
}

/// How a sleeping CPU is woken in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Alarm {
    /// A thread on it has a timer of its own.
    #[default]
    Thread,
    /// The kernel sets a timer as the CPU goes idle (BPF), which calls that thread.
    Kernel,
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Thread => "a thread's timer",
            Self::Kernel => "a timer set by the kernel (BPF)",
        })
    }
}

#[derive(Clone, Debug)]
pub struct WakeOptions {
    /// CPUs that it may keep awake.
    pub cpus: CpuList,
    pub params: Params,
    /// The time that waking takes; `None`: it is measured.
    pub exit_latency: Option<Duration>,
    /// How CPUs are kept awake; `None`: the way that measured best.
    pub act: Option<Act>,
    /// How CPUs are woken; `None`: the way that measured best.
    pub alarm: Option<Alarm>,
    /// Users that may ask, besides this process's own and root.
    pub users: Vec<u32>,
    /// The address for datagrams.
    pub udp: Option<SocketAddr>,
    /// The token of remote callers.
    pub token: Option<Token>,
    /// CPUs of a remote caller that names none.
    pub remote_cpus: CpuList,
    pub events: bool,
    /// Foresee the operations of disks.
    pub disks: bool,
    /// The CPU on which callers are heard: messages wake this CPU instead of any that sleeps.
    pub home: Option<CpuId>,
}

/// The reason why the planner did not start.
#[derive(Debug, Error)]
pub enum WakeError {
    /// The idle limits of these CPUs cannot be had.
    #[error(transparent)]
    Lock(#[from] linux::LockError),
    #[error(transparent)]
    Affinity(#[from] linux::AffinityError),
    #[error(
        "cannot listen at {place}: {cause}\nhint: another program may listen there: name another address"
    )]
    Taken { place: String, cause: std::io::Error },
    #[error("{0}")]
    Failed(String),
    #[error("no CPU can be kept awake here: {0}")]
    Unsupported(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrincipalInfo {
    kind: PrincipalKind,
    user: Option<u32>,
    name: String,
    connections: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrincipalKind {
    Local,
    Remote,
    Device,
}

/// Numbers the principals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roll(Arc<AtomicU32>);

impl Roll {
    /// The principal of that name, a new one if there was none. It uses the allowance of its user,
    /// or of all callers that know the token.
    fn enter(&self, plan: &mut Plan, kind: PrincipalKind, user: Option<u32>, name: &str) -> Principal {
        let known = plan
            .principals
            .iter_mut()
            .find(|(_, info)| (info.kind, info.user) == (kind, user) && info.name == name);
        if let Some((&principal, info)) = known {
            info.connections += 1;
            plan.gone.retain(|gone| *gone != principal);
            return principal;
        }
        let principal = Principal(self.0.fetch_add(1, Ordering::Relaxed) + 1);
        let info = PrincipalInfo { kind, user, name: name.to_owned(), connections: 1 };
        plan.enter(principal, info);
        principal
    }

    /// Ends one connection of a principal. After the last one its account stays for a while.
    fn leave(&self, plan: &mut Plan, principal: Principal, now: Instant) {
        let has_account = plan.planner().ledger().account(principal).is_some();
        let Some(info) = plan.principals.get_mut(&principal) else { return };
        info.connections = info.connections.saturating_sub(1);
        if info.connections > 0 {
            return;
        }
        if !has_account {
            return plan.depart(now, principal);
        }
        plan.gone.push_back(principal);
        if plan.gone.len() > GONE_MAX
            && let Some(oldest) = plan.gone.pop_front()
        {
            plan.depart(now, oldest);
        }
    }
}

/// The most accounts of names that are gone. Older ones are merged.
const GONE_MAX: usize = 64;
