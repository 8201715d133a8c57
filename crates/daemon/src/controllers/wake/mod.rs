//! Anticipatory wake-ups on a live machine: `policy::wake_plan` with Linux on both sides (the CPU sleeps paper, section 2).
//!
//! ```text
//!   ring (slots::wake), a doorbell each --+
//!   lines over a Unix socket -------------+--> loop --> Caller --> Plan --> policy::wake_plan::Planner
//!   datagrams, HTTP (token) --------------+                         |           |
//!   disk events (BPF) --------------------+                         |           +-- due --> Helper, one a CPU, pinned: its own timer
//!                                                                   |                          |
//!                                            arbiter::IdleWindow <--+--------------------------+  opens and closes
//! ```
//!
//! One loop hears everybody but the disks; it has no timer and sleeps until something is said. Of a disk's operations a thread on the CPU that
//! asked hears. Each CPU has a helper thread (`helper`) whose timer wakes that CPU and opens its window, so the begin of a window does not
//! wait for anybody else's wake-up. Whoever changes the plan does so under its lock and carries out at once what follows.
//!
//! Terms. A *window* is what the planner calls one, in force: the CPU polls ([`Act::Polling`]). Its *alarm* wakes the CPU for it ([`Alarm`]).
//! The *lead* of a request is doorbell, exit latency and margin. A *principal* is a user and a name; several connections may be one. *Too
//! late*: nearer than the lead.
//!
//! What always holds:
//! - Idle limits are changed through `linux::arbiter` alone, so journalled first, and combined with what others ask; a window that is open
//!   when this process is killed is closed by `roost restore`, and by the next arbiter.
//! - What a caller asked is taken back when its connection ends, however it ends.
//! - Limits hold for users, and for all who know the token; a name is for the books, and its account ends.
//! - A caller can be slow, dead or hostile: its ring is bounded and read in turns, its line is cut off, its answers are dropped with it,
//!   and the planner's limits hold for its user.

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
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use thiserror::Error;

/// By what a CPU is kept awake.
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

/// By what a CPU that sleeps is woken in time.
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

/// What is asked of the planner as a whole.
#[derive(Clone, Debug)]
pub struct WakeOptions {
    /// Which CPUs it may keep awake.
    pub cpus: CpuList,
    /// The planner's constants.
    pub params: Params,
    /// What waking takes, if it is not to be measured.
    pub exit_latency: Option<Duration>,
    /// By what CPUs are kept awake; `None`: what was measured to be best.
    pub act: Option<Act>,
    /// By what they are woken; `None`: the same.
    pub alarm: Option<Alarm>,
    /// Where local callers connect.
    pub socket: PathBuf,
    /// Users who may, beside this one and root.
    pub users: Vec<u32>,
    /// Where datagrams are heard.
    pub udp: Option<SocketAddr>,
    /// What remote callers have to know.
    pub token: Option<Token>,
    /// CPUs that remote callers mean when they name none.
    pub remote_cpus: CpuList,
    /// Count sleep by events.
    pub events: bool,
    /// Foresee the operations of disks.
    pub disks: bool,
    /// The CPU on which callers are heard: one that is woken by what is said, instead of any that sleeps.
    pub home: Option<CpuId>,
}

/// Why it did not start.
#[derive(Debug, Error)]
pub enum WakeError {
    /// The idle limits of these CPUs cannot be had.
    #[error(transparent)]
    Lock(#[from] linux::LockError),
    /// A thread cannot be where it has to.
    #[error(transparent)]
    Affinity(#[from] linux::AffinityError),
    /// The socket cannot be made.
    #[error(
        "cannot listen at {place}: {cause}\nhint: another planner may run (roost wake status), or name another place"
    )]
    Taken {
        /// Where.
        place: String,
        /// Why.
        cause: std::io::Error,
    },
    /// Something else.
    #[error("{0}")]
    Failed(String),
    /// No CPU can be kept awake here.
    #[error("no CPU can be kept awake here: {0}")]
    Unsupported(String),
}

/// Who a principal is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrincipalInfo {
    kind: PrincipalKind,
    user: Option<u32>,
    name: String,
    /// Connections that are it.
    connections: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrincipalKind {
    Local,
    Remote,
    Device,
}

/// Gives principals their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roll(Arc<AtomicU32>);

impl Roll {
    /// The principal of that name; new if there was none. It uses the allowance of its user, or of all who know the token.
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

    /// One of its connections has ended. The account of a name of which none is left stays in the books for a while.
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

/// Accounts of names that are gone. Those that went before are one.
const GONE_MAX: usize = 64;
