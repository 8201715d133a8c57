//! The parts of one run, checked: nothing in here can be wrong any more.

use super::stealing::Stealing;
use crate::policies::Policies;
use crate::statistics::{Horizon, Precision};
use machine::{Duration, Platform, Rate};
use serde::{Deserialize, Serialize};
use workload::Sampler;

/// Which queue a request goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dispatch {
    /// One queue for all cores (M/G/k).
    #[default]
    Shared,
    /// A queue per core, drawn at random.
    Random,
    /// A queue per core, in turn.
    RoundRobin,
    /// A queue per worker, by connection; which worker serves a connection is up to the policy
    /// (Peafowl).
    Connections,
    /// A request goes to several cores in pieces, and is done when the last piece is.
    ForkJoin,
}

/// The pieces of a request that forks.
#[derive(Clone, Debug, Default)]
pub struct Shards {
    /// How many; `None` for one on every active core.
    pub count: Option<u16>,
    pub onto: Onto,
    pub work: ShardWork,
    /// The factor on each piece's work, in seconds; `None` for one.
    pub factor: Option<Sampler>,
    /// After the last piece as many more of this length go into the queue for all: query, then fetch.
    pub fetch: Option<Duration>,
}

/// Which cores get the pieces of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Onto {
    /// Active cores drawn anew for each request, each with a queue of its own.
    #[default]
    Random,
    /// The next cores to be idle: the pieces wait in one queue for all.
    Idle,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardWork {
    /// Each piece has as much as the whole request.
    #[default]
    Whole,
    /// The request's, divided by the number of pieces.
    Divided,
    /// A draw of its own from the class's service times.
    Drawn,
}

/// Which idle core takes a request from a shared queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pick {
    /// The one in the shallowest state, as Linux's wake-up path prefers; of those the lowest
    /// number.
    #[default]
    Shallowest,
    /// The lowest number: packs.
    Lowest,
    Random,
}

/// Which CPU an interrupt lands on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The CPU that will serve the request, or has served it.
    #[default]
    Same,
    /// By connection, over all CPUs, asleep or not (receive-side scaling).
    Spread,
    /// By connection, over the CPUs that are active (steered, as Flow Director can).
    Active,
    Cpu(u16),
}

/// Work that is not the service's: daemons, kernel threads, timers of others.
#[derive(Clone, Debug)]
pub struct Noise {
    /// Mean time between two pieces of it, on each CPU or on the machine; of a thread its mean sleep.
    /// Exponential.
    pub every: Duration,
    /// How long a piece takes at the nominal clock.
    pub length: Sampler,
    /// Requests wake it, and nothing else does.
    pub follows: Option<Follows>,
    pub on: NoiseOn,
    /// It can be frozen while nothing critical runs (quiescence).
    pub deferrable: bool,
}

/// A thread that each request wakes, whose piece of work begins anew with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follows {
    /// The requests come from this thread: each is sent when the thread is on a CPU.
    pub sends: bool,
}

/// Where noise strikes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseOn {
    #[default]
    Each,
    /// The machine has one source; each piece goes to any active CPU.
    Any,
    /// The machine has one thread, which the kernel places on an idle CPU.
    Scheduled,
}

/// Threads of the service that share one queue, each with connections of its own.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    pub count: u16,
    /// CPU time of a turn before its first request and after its last.
    pub before: Duration,
    pub after: Duration,
}

#[derive(Clone, Debug)]
pub struct Nic {
    /// CPU time before a request reaches its queue.
    pub receive: Duration,
    /// CPU time after a reply was sent; no request waits for it.
    pub transmit: Duration,
    /// The CPUs that both interrupts land on.
    pub on: Target,
}

/// The state of a request while it waits for a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// It blocks: its core may sleep, and an interrupt resumes it.
    #[default]
    Block,
    /// It spins until the device is done: no interrupt is needed.
    Spin,
}

/// A device that each request calls once: an SSD, an accelerator.
#[derive(Clone, Debug)]
pub struct Device {
    /// Time that each call of it takes.
    pub latency: Sampler,
    /// The share of a request's work that comes before the call; with shards, all of it.
    pub before: f64,
    /// CPU time that its interrupt takes.
    pub interrupt: Duration,
    /// The CPUs that its interrupt lands on.
    pub on: Target,
    /// How requests wait for it.
    pub wait: Wait,
}

/// Clients that wait for a reply before they send again.
#[derive(Clone, Debug)]
pub struct Closed {
    /// Number of requests that they have outstanding at most, one each.
    pub clients: u32,
    /// So many of them share a connection.
    pub depth: u32,
    pub pause: Pause,
    /// They live on this machine: the pause is a timer of their CPU, and a request counts from when
    /// that is up.
    pub timer: bool,
}

/// When a client of a closed loop sends again.
#[derive(Clone, Debug)]
pub enum Pause {
    Think(Sampler),
    /// So long after it sent last; at once if the reply took longer.
    Cycle {
        length: Sampler,
        phases: Phases,
    },
}

/// Where in the first cycle each client begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phases {
    InStep,
    Even,
    /// Each at a time of its own.
    Random,
}

/// The bound on requests outstanding on one connection of a load that has a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    pub requests: u32,
    pub measured: Measured,
}

/// The time that a response time counts from, where a request may wait at its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// When it is sent, as load generators measure that wait for room.
    #[default]
    Sent,
    /// When the load has it due: the wait at the client is part of it.
    Due,
}

#[derive(Clone, Debug)]
pub struct Setup {
    pub platform: Platform,
    /// The scheduler's tick; `None` if there is none.
    pub tick: Option<Duration>,
    /// The period of each CPU's own timer; not zero.
    pub timer: Duration,
    /// Deviation of the logarithm of each wake-up's time, whose median is the real exit latency.
    pub waking_spread: f64,
    /// CPU time of a tick or timer that comes to an idle CPU.
    pub tick_cost: Duration,
    pub dispatch: Dispatch,
    /// The rule that picks an idle core.
    pub pick: Pick,
    /// CPUs that serve, from number 0; the others only take interrupts.
    pub workers: usize,
    /// Other work.
    /// The threads that serve; one for each core, at no cost, if absent.
    pub threads: Option<Threads>,
    pub noise: Vec<Noise>,
    pub nic: Option<Nic>,
    pub device: Option<Device>,
    /// Idle workers take requests from others' queues.
    pub stealing: Option<Stealing>,
    /// Time on the way from one worker to another, for a connection that moves.
    pub transfer: Duration,
    /// How the CPUs of active workers idle, where connections are placed.
    pub active_idle: policy::active_idle::Mode,
    /// The limit that Peafowl's workers begin with.
    pub learned_limit: Option<Rate>,
    /// The pieces of a request, where it forks.
    pub shards: Shards,
    /// A closed loop instead of the load's arrivals.
    pub closed: Option<Closed>,
    /// At most so many requests outstanding on a connection.
    pub depth: Option<Depth>,
    /// Added to every response time: the time outside this machine.
    pub outside: Duration,
    pub policies: Policies,
    pub goal: Option<crate::Goal>,
    /// Requests that are simulated at most.
    pub requests: u64,
    /// Upper bound on the simulated time.
    pub length: Option<Duration>,
    /// Whether the run is a stretch of something that goes on, or a story.
    pub horizon: Horizon,
    /// The run stops when this holds.
    pub precision: Option<Precision>,
    /// Samples of a time series; zero for none.
    pub samples: u32,
    /// Seed of all that is not the load's own.
    pub seed: u64,
}

impl Setup {
    /// Requests, or their pieces, wait in one queue for any core.
    pub fn has_shared_queue(&self) -> bool {
        match self.dispatch {
            Dispatch::Shared => true,
            Dispatch::ForkJoin => self.shards.count.is_some() && self.shards.onto == Onto::Idle,
            Dispatch::Random | Dispatch::RoundRobin | Dispatch::Connections => false,
        }
    }
}
