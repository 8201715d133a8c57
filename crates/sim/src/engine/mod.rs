//! A server in simulated time.
//!
//! ```text
//!   workload::Jobs --> arrive --> (staged?) --> (receive interrupt?) --> dispatch --> a queue
//!                                                                                      |
//!   events: core c is due  --> Working: complete, next work or idle      ready <-- signal, wake-up
//!                              Waking:  ready, next work                               |
//!                              Asleep:  a tick, a planned wake-up                    start --> Working
//!           something rare --> a clock changes, an interrupt ends, a device answers, a policy's time has come
//! ```
//!
//! Policies decide, the engine carries out: it asks the idle governor at every idle entry, tells
//! the frequency policy of every begin and end of work if it wants to know, and turns the commands
//! of the slow ones into changes. Everything is plain calls on enums: one run is one thread,
//! without allocation once its queues have grown.
//!
//! Invariants, checked at the end of every run: each core's time adds up to the run's length
//! (energy is a sum over it); the work done is the work that arrived and left, plus the work that
//! was begun; Little's law between the mean number in the system and the mean time in it, exactly,
//! because both are sums over the same visits.
//!
//! Files: `requests` is the request path, `idle` idle entry and exit, `interrupts` whatever preempts,
//! `fanout` requests with devices or shards, `dvfs` frequencies, `placement` connections on workers,
//! `stealing` from others, `programs` and `followers` threads of other programs, `core_policy` how many
//! cores, `system_sleep` naps of the whole machine, `wake_delay` and `pre_wake` when to wake, `cap` the
//! bound on power, `known` and `decisions` the calls of policies, `metrics` all counts.

mod ahead;
mod cap;
mod chance;
mod chronicle;
mod clients;
mod core_policy;
mod cpu_set;
mod decisions;
mod dvfs;
mod ended;
mod event_queue;
mod fanout;
mod followers;
mod hardware;
mod idle;
mod idle_sets;
mod interrupts;
mod known;
mod meter;
mod metrics;
mod placement;
mod pre_wake;
mod programs;
mod quiescing;
mod requests;
mod running;
mod setup;
mod staging;
mod stealing;
mod system_sleep;
mod task;
mod threads;
mod turbo;
mod uncore;
mod wake_delay;

pub use chronicle::{Chronicle, Clock, Decided, Piece, Sleep, What};
pub use cpu_set::MAX_CPUS;
pub use ended::Ended;
pub use meter::Residency;
pub(crate) use metrics::histogram;
pub use metrics::{IdleLengths, Metrics, Sample, SleepCounts, Times, Visit};
pub use running::End;
pub use setup::{
    Closed, Depth, Device, Dispatch, Follows, Measured, Nic, Noise, NoiseOn, Onto, Pause, Phases, Pick,
    Setup, ShardWork, Shards, Target, Threads, Wait,
};
pub use stealing::Stealing;

use crate::fleet::Leaf;
use crate::stop::Stop;
use ahead::Ahead;
use cpu_set::CpuSet;
use event_queue::EventQueue;
use hardware::Hardware;
use idle_sets::IdleSets;
use interrupts::{Interrupt, Then};
use std::collections::VecDeque;
use task::{InPieces, Task};
use workload::Jobs;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doing {
    Working,
    /// It has ended one and looks for the next.
    Between,
    /// An interrupt, or work of another service.
    Interrupted,
    /// A thread of another program.
    Program,
    Waking,
    #[default]
    Asleep,
    Polling,
    /// The whole machine is stopped.
    Napping,
}

/// One logical CPU, as requests see it.
#[derive(Clone, Debug, Default)]
struct Core {
    doing: Doing,
    /// The idle state it is in, or was last.
    state: u8,
    idle_since: u64,
    task: Task,
    /// Its task was begun, and nothing moves that.
    started: u64,
    began: u64,
    ends: u64,
    /// The part of the task that was left at `began`.
    left: f64,
    /// Work of completed tasks, at the nominal clock.
    completed_ns: u64,
    queue: VecDeque<Task>,
    interrupts: VecDeque<Interrupt>,
    /// Of another program's thread, while it works on it.
    piece: Option<programs::Piece>,
    /// A nap came in the middle of its task.
    halted: bool,
    /// Its sleep is ended by the next tick.
    tick_kept: bool,
    /// It is kept awake until then, work or not.
    awake_until: u64,
    /// When a timer of a client that lives here is due; governors see it coming.
    timer_ns: u64,
    /// The longest exit latency tolerated when it goes idle.
    limit_ns: u64,
}

#[derive(Clone, Debug)]
enum Later {
    Clock {
        domain: usize,
    },
    Then(Then),
    Noise {
        source: usize,
    },
    /// A device answers a request of several pieces.
    Device {
        request: u32,
    },
    /// A client of a closed loop sends its next request, or a connection has room for one.
    Client {
        client: u32,
    },
    /// The policy that holds back other people's work wants to be called.
    Quiescing,
    /// The planner of early wake-ups wants to be called.
    PreWake,
    /// The frequency policy asked to look at the CPU again.
    Review {
        cpu: usize,
    },
    /// The policy that counts cores wants to be called.
    CoreControl,
    /// The frequency policy wants to be called.
    Dvfs,
    /// The policy of the uncore wants to be called.
    Uncore,
    /// The policy that places connections wants to be called.
    Placement(placement::Post),
    Staging,
    /// The delaying policy's model is to be rebuilt.
    WakeDelay,
    /// The sockets look at their power.
    Cap,
    /// A sample for the time series.
    Sample,
}

/// One simulated server with its policies and its load.
pub struct Engine {
    setup: Setup,
    now: u64,
    hardware: Hardware,
    events: EventQueue<Later>,
    cores: Vec<Core>,
    /// Waiting for any core, where the queue is shared.
    shared: VecDeque<Task>,
    has_shared: bool,
    /// How many requests each worker keeps from those that steal; none where nothing is stolen.
    keeping: Vec<policy::stealing::Stealing>,
    programs: programs::Programs,
    threads: Option<Box<threads::Threads>>,
    /// Cores in the order in which the last request's pieces drew them.
    drawn: Vec<u16>,
    pieces: InPieces,
    /// So many requests wait for the device and hold no core.
    blocked: u64,
    /// How long the request did that which is leaving now.
    device_ns: u64,
    /// CPUs that new work may go to.
    active: CpuSet,
    /// How many they are: asked for each request, and counting bits takes its time.
    active_count: usize,
    /// The interrupts of parked CPUs go to active ones.
    steers: bool,
    /// Idle CPUs: first those that poll, then by state.
    idle: IdleSets,
    jobs: Jobs,
    /// Its load is its share of a fleet's.
    leaf: Option<Box<Leaf>>,
    stop: Stop,
    /// The request that comes next, at `next_at`.
    next: Task,
    next_at: u64,
    /// Number of requests taken from the load.
    fetched: u64,
    clients: clients::Clients,
    /// No request is sent after it.
    stop_at: u64,
    is_stopped: bool,
    /// When the last request was sent.
    sent_at: u64,
    ahead: Ahead,
    chance: chance::Chance,
    turn: usize,
    sleepers: idle::Sleepers,
    dvfs: dvfs::Dvfs,
    core_policy: core_policy::CoreControl,
    uncore: Option<Box<uncore::UncoreControl>>,
    placement: Option<Box<placement::Placement>>,
    wake_delay: wake_delay::WakeDelay,
    staging: Option<Box<staging::Stage>>,
    pre_wake: Option<Box<pre_wake::PreWake>>,
    quiescing: Option<Box<quiescing::Quiescing>>,
    cap: Option<Box<cap::Cap>>,
    outside_ns: u64,
    /// The part of it in the tails that a policy reads which counts cores for no goal: it measures at the
    /// client, as CARB's benchmark. Others are told the server's part, as their goal is, and workers
    /// measure in the server.
    told_outside_ns: u64,
    /// Some part has to be told of every answer.
    is_watched: bool,
    /// A policy may answer overload with more speed or cores; a queue that grows for a while is no
    /// verdict then.
    adapts: bool,
    /// Requests in the system when the last one came.
    backlog: u64,
    metrics: Metrics,
    chronicle: Option<Box<Chronicle>>,
    sample_every: u64,
    /// Sums up to the last sample.
    sampled: Sample,
}

/// So many idle states a simulated core may have.
const MAX_STATES: usize = 12;
