//! The arguments of `roost observe`.

use super::sweep::Rates;
use crate::service_args::ServiceArgs;
use machine::Duration;
use std::path::{Path, PathBuf};

/// See how a service sleeps: lengths, states, wrong choices, their cost, and the first thing to try
///
/// Watches this machine, or reads a recording of another. Nothing is changed, but by --verify and
/// --sweep.
#[derive(clap::Args, Debug)]
#[command(after_long_help = include_str!("../../help/observe.txt"))]
pub struct Args {
    #[command(flatten)]
    pub service: ServiceArgs,

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
        conflicts_with_all = ["verify", "live", "metrics", "from", "wake_latency", "perfetto"]
    )]
    pub sweep: Option<Rates>,

    /// Draw the live view on this terminal, meanwhile; q ends it
    #[arg(long)]
    pub live: bool,

    #[command(flatten)]
    pub names: crate::metrics::Names,

    /// Ask the service for its own figures beside, once a second: memcached:HOST:PORT,
    /// redis:HOST:PORT, roost:HOST:PORT, nginx:HOST:PORT/PATH (its stub_status), envoy:HOST:PORT
    /// (its admin interface), or the address of a Prometheus page with the names of its counter of
    /// requests (all labels are added up) and of its 99th percentile in seconds (a histogram, a
    /// summary or a gauge): http://HOST:PORT/metrics,rate=NAME,p99=NAME
    #[arg(long, value_name = "SOURCE", help_heading = "Advanced", hide_short_help = true)]
    pub scrape: Option<String>,

    /// Take wake latencies as measured on that machine instead of as advertised: the JSON of
    /// `roost doctor --json --probe`
    #[arg(long, value_name = "FILE", help_heading = "Advanced", hide_short_help = true)]
    pub wake_latency: Option<PathBuf>,

    /// A meter: this shell command prints watts, such as `cat FILE`
    #[arg(long, value_name = "COMMAND", help_heading = "Advanced", hide_short_help = true)]
    pub meter: Option<String>,

    /// Read this recording instead: a file of `perf record` or `trace-cmd record`, or text of `perf
    /// script`, `trace-cmd report` or /sys/kernel/tracing/trace; `-` for text from standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["service", "live", "metrics", "scrape", "meter"])]
    pub from: Option<PathBuf>,

    /// The machine the recording comes from: `here`, or the name of one that Roost knows; a
    /// recording does not tell its idle states
    #[arg(long, value_name = "NAME", requires = "from", help_heading = "Advanced", hide_short_help = true)]
    pub machine: Option<String>,

    /// Write a trace of every sleep, and of each second's requests, power and clocks into this file,
    /// for ui.perfetto.dev
    #[arg(long, value_name = "FILE", help_heading = "Advanced", hide_short_help = true)]
    pub perfetto: Option<PathBuf>,

    /// Folder for the run [default: runs/observe-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Print everything as JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// The observation that a plan records first.
    pub fn for_plan(plan: &crate::plan::Args, out: &Path) -> Self {
        Self {
            service: plan.service.clone(),
            length: plan.length,
            verify: false,
            sweep: None,
            live: false,
            names: crate::metrics::Names::default(),
            scrape: None,
            wake_latency: plan.wake_latency.clone(),
            meter: None,
            from: None,
            machine: None,
            perfetto: None,
            out: Some(out.to_owned()),
            json: true,
        }
    }

    /// How long to watch; zero: until a signal comes.
    pub fn length(&self) -> Duration {
        const WATCH: Duration = Duration::from_secs(60);
        const POINT: Duration = Duration::from_secs(5);
        self.length.unwrap_or(if self.sweep.is_some() { POINT } else { WATCH })
    }
}
