//! The arguments of `roost observe`.

use super::sweep::Rates;
use ::observe::sleep::Without;
use machine::Duration;
use std::path::PathBuf;

/// See how a service sleeps: lengths, states, wrong choices, their cost, and the first thing to try
///
/// Watches this machine, or reads a recording of another. Nothing is changed, but by --verify and
/// --sweep.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../../help/observe.txt"))]
pub struct Args {
    /// Watch the requests of this process and its children
    #[arg(long, value_name = "PID", group = "service")]
    pub pid: Option<u32>,

    /// Watch the requests of all processes in this cgroup
    #[arg(long, value_name = "DIR", group = "service")]
    pub cgroup: Option<String>,

    /// Watch the requests of the service that listens on this TCP port
    #[arg(long, value_name = "PORT", group = "service")]
    pub port: Option<u16>,

    /// Watch the requests of this systemd unit
    #[arg(long, value_name = "NAME", group = "service")]
    pub unit: Option<String>,

    /// How long to watch; 0s: until a signal comes [default: 60s; for each point of a sweep 5s]
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Duration>,

    /// Then limit the CPUs' sleep to the shallowest state and free it again, in turns, and see
    /// whether tail and power change by no more than the verdict says: ten pairs of blocks of 3 s;
    /// needs a service and its load. Journalled, and put back
    #[arg(long, requires = "service", conflicts_with = "from")]
    pub verify: bool,

    /// Send our own load at several rates to the memcached or Roost on --port, with sleep as it is,
    /// always shallow, always deep and none, and plot tail, power and residency against it; --for
    /// is then the length of each point. Journalled, and put back
    #[arg(
        long,
        value_name = "rate=A..B",
        requires = "port",
        conflicts_with_all = ["verify", "live", "metrics", "from"]
    )]
    pub sweep: Option<Rates>,

    /// Draw the live view on this terminal, meanwhile; q ends it
    #[arg(long)]
    pub live: bool,

    #[command(flatten)]
    pub names: crate::metrics::Names,

    /// Ask the service for its own figures beside, once a second: memcached:HOST:PORT,
    /// roost:HOST:PORT, or the address of a Prometheus page, http://HOST:PORT/metrics
    #[arg(long, value_name = "SOURCE")]
    pub scrape: Option<String>,

    /// The counter of requests on that page; all its labels are added up
    #[arg(long, value_name = "NAME", requires = "scrape")]
    pub scrape_rate: Option<String>,

    /// The 99th percentile in seconds on that page: a histogram, a summary or a gauge
    #[arg(long, value_name = "NAME", requires = "scrape")]
    pub scrape_p99: Option<String>,

    /// Take wake latencies as measured on that machine instead of as advertised: the JSON of
    /// `roost doctor --json --probe`
    #[arg(long, value_name = "FILE", conflicts_with = "sweep")]
    pub wake_latency: Option<PathBuf>,

    /// Power in watts is in this file
    #[arg(long, value_name = "FILE", conflicts_with = "power_command")]
    pub power_file: Option<PathBuf>,

    /// Power in watts is printed by this shell command
    #[arg(long, value_name = "COMMAND")]
    pub power_command: Option<String>,

    /// Leave sources out: `wakers`, to cost less; `bpf`, or `events` (perf's as well), to see the
    /// figures of a lesser machine
    #[arg(long, value_name = "MEANS", value_enum)]
    pub without: Option<Source>,

    /// Read this recording instead: text of `perf script`, `trace-cmd report` or
    /// /sys/kernel/tracing/trace; `-` for standard input
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "service", "live", "metrics", "scrape", "power_file", "power_command", "without"
        ]
    )]
    pub from: Option<PathBuf>,

    /// The machine the recording comes from: `here`, or the name of one that Roost knows; a
    /// recording does not tell its idle states
    #[arg(long, value_name = "NAME", requires = "from")]
    pub machine: Option<String>,

    /// Folder for the run [default: runs/observe-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Print everything as JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// The sources that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Source {
    /// The wakers, which costs a little at every interrupt.
    Wakers,
    /// Programs in the kernel.
    Bpf,
    /// Those, and perf's events.
    Events,
}

impl Args {
    /// How long to watch; zero: until a signal comes.
    pub fn length(&self) -> Duration {
        const WATCH: Duration = Duration::from_secs(60);
        const POINT: Duration = Duration::from_secs(5);
        self.length.unwrap_or(if self.sweep.is_some() { POINT } else { WATCH })
    }

    pub fn without(&self) -> Without {
        match self.without {
            None => Without::Nothing,
            Some(Source::Wakers) => Without::Wakers,
            Some(Source::Bpf) => Without::Bpf,
            Some(Source::Events) => Without::Events,
        }
    }
}
