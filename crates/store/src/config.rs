//! A server's configuration. Every value here is already checked: the command line refuses wrong
//! ones.

use crate::session::{self, Users};
use crate::store::StoreConfig;
use machine::{CpuId, Duration, PowerModel};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// Everything that a server needs to know before it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen; port 0 lets the system choose.
    pub listen: Vec<Listen>,
    /// The CPU of each worker. Several workers may share one.
    pub worker_cpus: Vec<CpuId>,
    pub store: StoreConfig,
    pub limits: Limits,
    /// A client has to say which of these it is; absent: all are served.
    pub users: Option<Arc<Users>>,
    /// The identity shown at the places with TLS.
    pub tls: Option<Arc<tls::Server>>,
    pub policy: Policy,
    /// How deep the CPU of an active worker may sleep; under [`Policy::Joint`] the plan says it.
    pub active_idle: policy::active_idle::Mode,
    /// How that is asked of the kernel; `None` does not ask.
    pub idle_actuator: Option<linux::IdleActuator>,
    /// The control socket of the daemon that is asked for idle limits where one runs.
    pub control: PathBuf,
    /// The network card whose interrupts are put off while requests come; `None` leaves all as they are.
    pub nic: Option<Nic>,
    /// Leave requests in their sockets for a while and serve them together; `None` serves at once.
    pub stage: Option<crate::holding::Stage>,
    /// A request that would wait for longer than this may be served by an idle worker; `None` leaves
    /// each to the worker of its connection.
    pub steal_after: Option<Duration>,
    /// Where `/sys`, `/proc` and `/run` are found.
    pub root: linux::Root,
    /// Where learned limits are kept between runs.
    pub state_file: Option<PathBuf>,
    /// Where items are kept between runs.
    pub items: Option<PathBuf>,
    /// Where readings and commands are recorded for replay.
    pub record: Option<PathBuf>,
    /// The table of powers for modelled energy; `None` chooses by the machine.
    pub power_model: Option<PowerModel>,
    /// The receiver of messages to the operator.
    pub log: Log,
}

impl Config {
    /// A server on a loopback port that the system chooses, with 256 MiB and the kernel's own idle
    /// choice, that says nothing: for measurements, demonstrations and tests in the same process.
    pub fn on_loopback(worker_cpus: Vec<CpuId>, policy: Policy) -> Self {
        Self {
            listen: vec![Listen::Tcp(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))],
            worker_cpus,
            store: StoreConfig { memory_limit: 256 << 20, max_item_size: 1 << 20, shards: None },
            limits: Limits {
                max_connections: 1024,
                stall: Duration::from_secs(30),
                session: session::Limits::default(),
            },
            users: None,
            tls: None,
            policy,
            active_idle: policy::active_idle::Mode::Stock,
            idle_actuator: None,
            control: linux::run_place(&linux::Root::system()).join("roost.sock"),
            nic: None,
            stage: None,
            steal_after: None,
            root: linux::Root::system(),
            state_file: None,
            items: None,
            record: None,
            power_model: None,
            log: Log::new(|_| {}),
        }
    }
}

/// A network card whose interrupts are put off while requests come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    pub device: String,
    pub times: linux::SuspendTimes,
    /// So long a worker looks for packets before it sleeps; zero: once.
    pub busy_poll: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    /// The same with TLS, by the identity of [`Config::tls`].
    Tls(SocketAddr),
    /// A Unix socket; a user that may write it can connect.
    Unix {
        path: PathBuf,
        mode: u32,
    },
}

/// The receiver of messages to the operator: a line at a time, each said once.
#[derive(Clone)]
pub struct Log(Arc<dyn Fn(&str) + Send + Sync>);

impl Log {
    /// Lines go to `hear`, from any thread.
    pub fn new(hear: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }

    pub(crate) fn say(&self, line: &str) {
        (self.0)(line);
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

#[derive(Clone, Debug)]
pub struct Limits {
    /// Client connections at the most.
    pub max_connections: u32,
    /// A client that takes none of its answers for this long is closed.
    pub stall: Duration,
    pub session: session::Limits,
}

/// How many workers stay awake, and which worker serves which connection.
#[derive(Clone, Debug)]
pub enum Policy {
    AllAwake,
    Peafowl(policy::peafowl::Params),
    /// The number of workers by an epoch controller (CAL 2017).
    Carb(policy::carb::Params),
    /// The plan of least modelled power within a goal, from the workers' counts.
    Joint(policy::joint::Params),
}

impl Policy {
    pub fn name(&self) -> &'static str {
        match self {
            Self::AllAwake => "all-awake",
            Self::Peafowl(_) => "peafowl",
            Self::Carb(_) => "carb",
            Self::Joint(_) => "joint",
        }
    }
}
