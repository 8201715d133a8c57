//! A scenario: machine, service, load and contestants as people write them, and the run that comes
//! of it.
//!
//! Read in three steps, so that an error is found before anything runs and names where it is. A
//! [`Document`] is the TOML text as a tree, in which values from the table of ESTIMATEs have been
//! filled in and a sweep or a variant can set keys. A [`Scenario`] is the same with types: unknown
//! keys are refused. A [`Setup`](crate::Setup) is the setup of one contestant's run, checked: a
//! platform that cannot be, a policy that is not known, a load of nothing do not get there.

mod clients;
mod device;
mod document;
mod error;
mod noise;
mod resolve;
mod shards;
mod shared;
mod stealing;
mod threads;

pub use document::{Document, Estimates};
pub use error::ScenarioError;
pub use resolve::Contestant;

use crate::Goal;
use crate::engine::{Dispatch, Measured, NoiseOn, Onto, Pick, ShardWork, Target, Wait};
use crate::statistics::{Horizon, Precision};
use machine::{Cstate, Duration, FrequencyTable, Rate, Waking};
use policy::active_idle::Mode as ActiveIdle;
use serde::{Deserialize, Deserializer, Serialize, de};
use std::collections::BTreeMap;
use workload::{Demand, Distribution};

/// Everything that a scenario file says.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    #[serde(default)]
    pub title: String,
    /// The assumptions; printed with every result.
    #[serde(default)]
    pub assumptions: Vec<String>,
    /// The contestants: each a list of policies joined by ` + `.
    #[serde(default)]
    pub policies: Vec<String>,
    /// The latency goal, for the policies that work towards one.
    #[serde(default)]
    pub goal: Option<Goal>,
    pub machine: Machine,
    #[serde(default)]
    pub server: Server,
    #[serde(default)]
    pub workload: Demand,
    /// Parameters of the policies, by policy name.
    #[serde(default)]
    pub params: BTreeMap<String, toml::Table>,
    /// The run's length and its precision.
    #[serde(default)]
    pub run: Run,
    /// Dotted keys and the values that each takes: the grid of all of them.
    #[serde(default)]
    pub sweep: BTreeMap<String, Vec<toml::Value>>,
    /// Contestants that differ in more than their policies.
    #[serde(default)]
    pub variant: Vec<Variant>,
    #[serde(default)]
    pub fleet: Option<Fleet>,
    /// The part of it that a paper's figure shows.
    #[serde(default)]
    pub figure: Option<Figure>,
}

/// The machine: a preset, and its differences from that.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Machine {
    /// The name of the machine's preset.
    pub preset: String,
    pub sockets: Option<u16>,
    /// Number of cores in a socket.
    pub cores: Option<u16>,
    /// Number of threads in a core.
    pub threads: Option<u16>,
    /// Whether few awake cores run faster than nominal.
    pub turbo: Turbo,
    /// Whether whole sockets sleep; the preset knows.
    pub package: Option<bool>,
    /// The scheduler's tick; `never` for none. 4 ms is Linux's default of 250 Hz.
    pub tick: Option<Tick>,
    /// The period of each CPU's own timer, which the governors see coming. 200 ms: the least
    /// retransmission timeout of TCP \[K\], which a CPU that sends replies nearly always has armed.
    pub timer: Option<Time>,
    /// Deviation of the logarithm of a wake-up's real time.
    pub waking_spread: Option<f64>,
    /// CPU time of a tick that comes to an idle CPU. 2 us \[D\].
    pub tick_cost: Option<Time>,
    /// Power of a core that polls, as a share of its power at work.
    pub poll_share: Option<f64>,
    /// How the energy of waking is settled: `break-even` at the idle states' target residencies, or
    /// `full-power`, as work for the whole exit latency.
    pub waking: Option<Waking>,
    /// Watts of a socket beside its cores.
    pub uncore_watts: Option<f64>,
    /// The clock of the sockets' uncore; its fastest without one.
    pub uncore_clock: Option<String>,
    /// Watts of the rest of the server.
    pub rest_watts: Option<f64>,
    /// Idle states instead of the preset's.
    pub cstates: Option<Vec<Cstate>>,
    /// Changes of single idle states, by name.
    pub cstate: BTreeMap<String, CstateTable>,
    /// Watts of a socket's uncore while the whole package sleeps.
    pub package_watts: Option<f64>,
    /// The bound on a socket's mean power.
    pub cap: Option<CapTable>,
    /// Share by which each watt that a socket draws beyond its sleep raises that power.
    pub warming: Option<f64>,
    /// Operating points that replace those of the preset.
    pub frequencies: Option<FrequencyTable>,
}

/// Faster than nominal while few cores are awake.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged, expecting = "write true, or bins such as [{ cores = 2, khz = 3700000, watts = 7.4 }]")]
pub enum Turbo {
    /// The preset's bins if true, else none.
    Preset(bool),
    Bins(Vec<TurboTable>),
}

impl Default for Turbo {
    fn default() -> Self {
        Self::Preset(false)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TurboTable {
    /// Up to so many cores awake.
    pub cores: u16,
    pub khz: u64,
    /// Watts of a core at it.
    pub watts: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CapTable {
    pub watts: f64,
    /// Time constant of the mean. 1 s: the time window of PL1 that Intel's servers begin with is
    /// about one second \[D\].
    #[serde(default = "second")]
    pub window: Time,
}

fn second() -> Time {
    Time(Duration::from_secs(1))
}

/// The changes of one idle state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CstateTable {
    /// The exit latency that is advertised.
    pub exit_latency: Option<Time>,
    /// The time that waking really takes.
    pub true_exit_latency: Option<Time>,
    /// The shortest sleep that pays.
    pub target_residency: Option<Time>,
    /// Watts of a core in it.
    pub watts: Option<f64>,
}

/// A length of time as text.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Time(#[serde(with = "machine::duration_text")] pub Duration);

/// A length of time, or `never`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Tick(#[serde(with = "machine::duration_text::optional")] pub Option<Duration>);

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Which queue a request goes to.
    pub dispatch: Dispatch,
    /// The rule that picks an idle core.
    pub pick: Pick,
    /// CPUs that serve; all if absent.
    pub workers: Option<u16>,
    /// Idle workers take requests that wait for others.
    pub stealing: Option<Stealing>,
    /// How long a connection that moves is on its way. 20 us: measured of `roost serve`.
    pub transfer: Option<Time>,
    /// How the CPU of an active worker idles where a policy places connections: `halt` in its
    /// shallowest state, `poll`, or `stock`, as deep as its idle policy likes. CPUs of parked
    /// workers have no limit. `halt`.
    pub active_idle: Option<ActiveIdle>,
    /// Each worker's load limit, known when the run begins, in requests per second: Peafowl learns
    /// it from a peak, and a run at one load has none.
    #[serde(with = "workload::rate_text::optional")]
    pub learned_limit: Option<Rate>,
    /// By how much the shards of one request differ.
    pub shard_cv: f64,
    /// The shards of a request that forks; one to every active core if absent.
    pub shards: Option<ShardsTable>,
    /// The threads that serve a shared queue.
    pub threads: Option<ThreadsTable>,
    /// Work of other programs on the machine.
    pub noise: Vec<NoiseTable>,
    /// Added to every response time: client, wire, whatever lies outside the server.
    pub outside: Option<Time>,
    pub nic: Option<NicTable>,
    /// A device that every request calls.
    pub device: Option<DeviceTable>,
    /// Clients that wait for replies before they send again.
    pub clients: Option<Clients>,
}

/// Threads that serve a shared queue, each with connections of its own.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadsTable {
    pub count: u16,
    /// CPU time of a turn before its first request.
    #[serde(default = "no_time")]
    pub before: Time,
    /// And after its last.
    #[serde(default = "no_time")]
    pub after: Time,
}

fn no_time() -> Time {
    Time(Duration::ZERO)
}

/// Work that is not the service's.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseTable {
    /// Mean gap from one to the next.
    pub every: Option<Time>,
    /// In its place: so many for each request of the load, at its mean rate.
    pub per_request: Option<f64>,
    /// In place of gap and length: each request wakes it, and it works until so much CPU time after
    /// the last one.
    pub after_request: Option<Time>,
    #[serde(default)]
    pub sends: bool,
    /// Length of the work each time.
    pub length: Option<Distribution>,
    #[serde(default)]
    pub on: NoiseOn,
    /// True if quiescence may hold it back.
    #[serde(default)]
    pub deferrable: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stealing {
    /// CPU time of the thief for each request.
    pub cost: Time,
    /// A request that others may take would wait for longer than this.
    pub after: Option<Time>,
}

/// A request that forks on some of the cores.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ShardsTable {
    /// How many shards a request has.
    pub count: u16,
    #[serde(default)]
    pub onto: Onto,
    #[serde(default)]
    pub work: ShardWork,
    /// Length of each piece of a second round.
    pub fetch: Option<Time>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NicTable {
    /// CPU time before a request reaches its queue.
    pub receive: Time,
    /// CPU time of the interrupt after a reply.
    pub transmit: Time,
    #[serde(default)]
    pub on: Target,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceTable {
    /// Time that each call of it takes.
    pub latency: Distribution,
    /// Share of the request's work before the call; half of it, or all shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<f64>,
    /// CPU time that its interrupt takes.
    pub interrupt: Time,
    /// The CPUs that its interrupt lands on.
    #[serde(default)]
    pub on: Target,
    /// How requests wait.
    #[serde(default)]
    pub wait: Wait,
}

/// Clients that wait for replies: a closed loop if there is a `count` of them, else the load's own
/// with a bound on the outstanding requests of each connection.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clients {
    pub count: Option<u32>,
    /// How long each waits between reply and next request.
    pub think: Option<Distribution>,
    /// How long after it sent last each sends again, or at once if the reply took longer.
    pub cycle: Option<Distribution>,
    /// All begin their first cycle at once.
    pub in_step: bool,
    /// Where else in the first cycle they begin.
    pub phases: Option<Spread>,
    /// Requests outstanding on a connection at most.
    pub depth: Option<u32>,
    /// The time that response times count from.
    pub measured: Measured,
    /// They live on the serving CPUs: the pause is a timer there, and a request counts from when
    /// the CPU is up for it.
    pub timer: bool,
}

/// How clients out of step are spread over a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    Even,
    Random,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Run {
    /// Upper bound on the number of requests: a number, or a text such as `50k`.
    #[serde(deserialize_with = "count")]
    pub requests: u64,
    /// Upper bound on the simulated time.
    pub length: Option<Time>,
    /// The rate as a share of the workers' capacity at the nominal clock.
    pub utilisation: Option<f64>,
    /// Everything random follows from this number.
    pub seed: u64,
    /// The run goes on until this holds.
    pub precision: Option<Precision>,
    /// `steady` for a process that goes on as it is, `whole` for a story with beginning and end; a
    /// load that changes is a story unless this says otherwise.
    pub horizon: Option<Horizon>,
    /// Runs of a story with other seeds. At least ten for intervals; 10.
    pub replications: u32,
    /// Number of points of the time series.
    pub samples: u32,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            requests: 1_000_000,
            length: None,
            utilisation: None,
            seed: 1,
            precision: None,
            horizon: None,
            replications: 10,
            samples: 256,
        }
    }
}

/// A whole number from 1 on, or its text as people write it.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    /// More would take years.
    const MOST: f64 = 1e15;
    let value = toml::Value::deserialize(deserializer)?;
    let count = match &value {
        toml::Value::Integer(count) => *count as f64,
        toml::Value::String(text) => {
            workload::parse_rate(&text.replace('_', "")).map_or(f64::NAN, Rate::as_per_second)
        }
        _ => f64::NAN,
    };
    if count.fract() == 0.0 && (1.0..=MOST).contains(&count) {
        return Ok(count as u64);
    }
    Err(de::Error::custom(format!("requests = {value}: write a whole number from 1 on, such as 200k or 10M")))
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// The name that plots use for it.
    pub name: String,
    #[serde(default)]
    pub policies: String,
    /// Dotted keys that are different for it.
    #[serde(default)]
    pub set: BTreeMap<String, toml::Value>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fleet {
    pub servers: u32,
    /// How many of them each request asks; the answer is complete when the last has answered.
    pub fanout: u32,
    /// Policies of the servers, in turn; the contestant's if empty.
    #[serde(default)]
    pub policies: Vec<String>,
    /// Only so many servers are simulated, and stand for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<u32>,
}

/// The content of a paper's figure.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Figure {
    pub paper: String,
    /// The number of its figure or table.
    pub name: String,
    /// Caption.
    pub title: String,
    /// The key on the horizontal axis, or `time`, or `variant`.
    pub x: String,
    /// Names of the metrics on the vertical axis.
    pub y: Vec<String>,
    /// The paper's figures in words and tables.
    pub paper_says: Vec<String>,
    /// Headlines that rest on it, by id.
    pub headlines: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_requests_are_whole_numbers_or_their_texts() {
        let requests =
            |text: &str| toml::from_str::<Run>(&format!("requests = {text}")).map(|run| run.requests);
        for (text, count) in [("1000", 1000), ("\"200k\"", 200_000), ("\"1_000_000\"", 1_000_000)] {
            assert_eq!(requests(text), Ok(count));
        }
        for text in ["0", "1.5", "-1", "nan", "\"1.5\"", "\"-1\"", "\"inf\"", "\"many\"", "\"\""] {
            let error = requests(text).unwrap_err().to_string();
            assert!(error.contains("such as 200k"), "{text}: {error}");
        }
    }

    #[test]
    fn turbo_that_is_neither_says_how_to_write_it() {
        #[derive(Debug, Deserialize)]
        struct Machine {
            turbo: Turbo,
        }
        let turbo = |text: &str| toml::from_str::<Machine>(&format!("turbo = {text}")).map(|of| of.turbo);
        assert_eq!(turbo("true"), Ok(Turbo::Preset(true)));
        for text in ["1", "\"on\"", "[{ cores = 1, frequency = 1, power = 1 }]", "[true]"] {
            let error = turbo(text).unwrap_err().to_string();
            assert!(error.contains("write true, or bins such as"), "{text}: {error}");
        }
    }
}
