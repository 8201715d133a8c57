//! Slack-enabled quiescence: background work stands still while the work that the user waits for is
//! waiting itself (the CPU sleeps paper, section 3).
//!
//! Background tasks (an update, a backup, an indexer) run a little now and a little then, and each
//! time wake a CPU and the parts that it shares with the others. While a response is being
//! computed, they might as well: the CPUs are up anyway. But when all that works on the response is
//! blocked, on the network or a disk, they could stand still unnoticed; then all CPUs sleep at
//! once, and the background runs again, piggybacked, when the response goes on.
//!
//! ```text
//!   critical path    ####....wait for the network....####......disk......##   response
//!   background       # ## #|                         |# ## |          |# # ##  #
//!   CPUs             awake |  all asleep             |     |          |
//!                          ^ Freeze                  ^ Thaw
//! ```
//!
//! **Critical tasks.** An *interaction* begins with a trigger (a touch, an accepted request) in
//! some task and ends with its response. Critical is the task of the trigger, and whatever a
//! critical task causes: a child that it forks, a task that it signals or wakes, the reader of a
//! pipe or socket that it wrote to. This is followed event by event; the paper names these events,
//! and offline graphs per user interface component: [`Graph`] is learned as requests go, per type
//! of request. Besides, whole groups may be declared [`Role::Critical`].
//!
//! **Background tasks.** Only groups declared [`Role::Background`]. A task of which nothing is
//! known is never frozen; a background task that an interaction reaches is critical, and its group
//! runs.
//!
//! **When.** All critical tasks are blocked on input or output (or some of them on each other,
//! within their process), nothing that one sent is still undelivered, and the wait is worth it: it
//! will last [`Params::min_wait`] longer, or, where that is not known, has lasted that long
//! already. Blocked on anything else (a lock, a pipe of another process) is no such wait: it may be
//! a background task that is waited for. For the same reason a background group from which a
//! critical task has lately received anything is left alone.
//!
//! **Whether at all.** Freezing costs something too, and the work that piles up has to be run.
//! Where the driver reads for how long all CPUs are idle ([`Quiescence::handle_idle`]), it is tried
//! out whether there is more of that with freezing than without; it is left off where there is not,
//! and where it cannot be excluded that critical threads' cycles or waits get longer by it
//! (`payoff/mod.rs`).
//!
//! **Until when.** Until a critical task goes on; of waits that always last equally long
//! ([`Wait::Punctual`]) until just before, so that thawing is over when the critical work goes on.
//!
//! **Fail open.** When events were lost, or there is more to know than the tables hold, everything
//! thaws, and stays so until every interaction that may have been going on must be over.
//!
//! Invariants, in whatever order events arrive:
//! - a group is frozen only while none of its tasks is critical, and while every critical task is
//!   blocked on input or output, or within its process while another is;
//! - with a driver that is on time no group is frozen for longer than [`Params::max_freeze`] at a
//!   time, nor in the long run for more than [`Params::max_share`] of the time;
//! - after [`Quiescence::handle_stop`] everything is thawed, for good.

mod causal;
#[cfg(test)]
mod chain;
mod controller;
mod graph;
mod learned;
mod payoff;
#[cfg(test)]
mod properties;
mod recorded;
#[cfg(test)]
mod scenarios;

use crate::check::Check;
use crate::kind::Make;
use crate::registry::{
    Entry, Maturity, Parameter, Question, Runs, Word, count, settings, share, table, time,
};
pub use controller::{Outlook, Quiescence, QuiescenceCommand, Record};
pub use graph::{Edge, Graph, Seen};
pub use learned::{CLEAN_MIN, Nature, Site, Waits};
pub use payoff::{PayoffParams, Reason, Verdict};
pub use recorded::QuiescenceInput;

use machine::{Duration, Ratio};
use serde::{Deserialize, Serialize};

/// A thread, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub u32);

/// The unit of freezing: a cgroup, as the driver numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(pub u32);

/// A thread and where it is, as every event tells: nothing need be remembered of threads that do
/// not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub id: TaskId,
    /// Its group at the time.
    pub group: GroupId,
}

/// Something that one task writes to and another reads from, within this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelId {
    Pipe(u64),
    /// A connection between two sockets of this machine. One to elsewhere is no channel: nothing
    /// here receives from it.
    Socket(u64),
}

/// From a trigger to its response, as the driver numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InteractionId(pub u64);

/// The cause of a task's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// A disk, or a peer on another machine.
    Io {
        /// For how long, if that is known.
        expected: Option<Duration>,
    },
    /// The same, of a kind that always lasts for about so long.
    Punctual {
        /// For so long, or hardly longer.
        length: Duration,
    },
    /// Another thread of its own process, or a time of its own choosing: nothing that may be
    /// frozen, and no slack by itself.
    Within,
    /// Anything else, or unknown.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// An interaction begins with this task.
    Trigger {
        /// The first critical task.
        task: Task,
        /// A number that no interaction under way has.
        interaction: InteractionId,
    },
    Response {
        interaction: InteractionId,
    },
    Fork {
        parent: Task,
        child: Task,
    },
    /// A task signalled or woke another.
    Signal {
        from: Task,
        to: Task,
    },
    /// A task wrote to a pipe or socket.
    Send {
        task: Task,
        channel: ChannelId,
    },
    /// A task read from a pipe or socket.
    Receive {
        task: Task,
        channel: ChannelId,
    },
    /// A task does not run any more until something happens.
    Block {
        task: Task,
        on: Wait,
    },
    /// A task runs, or is ready to.
    Unblock {
        task: Task,
    },
    Exit {
        task: TaskId,
    },
}

/// The declared role of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// All its tasks are critical, always. The driver says of each of them whether it is blocked,
    /// at the start.
    Critical,
    /// It may be frozen.
    Background,
}

pub static ENTRY: Entry = Entry {
    words: &[Word::new("quiesce", "background work waits while every request waits for the device", |_| {
        settings(Params::default())
    })],
    question: Question::Background,
    help: "While all that works on a response is blocked on input or output, background tasks stand \
           still, so that all CPUs sleep at once; they run again when the response goes on. Live, it is \
           tried out whether that brings idle time and slows nothing. In simulation it holds back noise \
           that is deferrable.",
    runs: Runs::Live,
    maturity: Maturity::Experimental,
    origin: "CPU sleeps, section 3",
    make: Make::Quiescence(|making| making.params()),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub min_wait: Duration,
    pub worth: u32,
    #[serde(with = "machine::duration_text")]
    pub max_freeze: Duration,
    pub max_share: Ratio,
    #[serde(with = "machine::duration_text")]
    pub leave_alone: Duration,
    #[serde(with = "machine::duration_text")]
    pub max_interaction: Duration,
    pub max_tasks: u16,
    pub max_channels: u16,
    pub payoff: PayoffParams,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("min_wait", "a shorter wait is not worth freezing for")
            .not_above("max_freeze")
            .source("ours: twenty times the 30 us that freezing and thawing a cgroup takes"),
        count("worth", "a wait is worth it at so many times what freezing takes")
            .above_zero()
            .source("ours: then a twentieth of it is lost"),
        time("max_freeze", "no group is frozen for longer at a time")
            .above_zero()
            .source("ours: the paper's waits are of 100 ms"),
        share("max_share", "nor for more of the time in the long run")
            .source("ours: a chain of short waits must not starve it; no bound in the paper"),
        time("leave_alone", "a group that sent to a critical task is left alone for this long")
            .source("ours"),
        time("max_interaction", "an interaction without a response is over after this")
            .above_zero()
            .source("ours: what a user waits for at most"),
        count("max_tasks", "critical tasks at a time; with more, nothing is frozen")
            .above_zero()
            .source("ours"),
        count("max_channels", "pipes and sockets that carry something critical, likewise")
            .above_zero()
            .source("ours"),
        table("payoff", "whether it is tried out if freezing pays", PayoffParams::PARAMETERS),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self {
            min_wait: Duration::from_millis(1),
            worth: 20,
            max_freeze: Duration::from_millis(250),
            max_share: Ratio::new(0.75),
            leave_alone: Duration::from_secs(1),
            max_interaction: Duration::from_secs(10),
            max_tasks: 1024,
            max_channels: 1024,
            payoff: PayoffParams::default(),
        }
    }
}
