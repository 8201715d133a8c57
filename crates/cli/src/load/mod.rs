//! `roost load`: the arguments become a plan for the generator, its intervals a line on the
//! terminal, its outcome a table.

mod http;
mod keys;

use crate::exit::{Exit, coded, usage};
use crate::print::over;
use anyhow::{Context as _, Result};
use loadgen::{Asks, Dialect, HdrLog, Interval, Outcome, Pace, Part, Plan, Progress, Target, Url};
use machine::{CpuList, Duration, Rate};
use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use workload::{ArrivalKind, Popularity, Shape, SpecError};

/// Open-loop load with latency counted from the intended send time
///
/// Requests are sent when they are due, whatever the server does, and latency counts from then. A
/// figure is marked `late` if over a tenth of it is the generator's own lateness. The run is
/// INVALID when that is so of the median or of the 99th percentile.
///
/// An HTTP server is loaded over kept-alive connections of HTTP/1.1. A request takes any free
/// connection; if none is free it waits, and its latency counts on. {words} in the URL and in the
/// body stands for the keywords of the query. The server's own time in the answers of
/// Elasticsearch, OpenSearch (took) and Solr (QTime) is shown next to the latency.
#[derive(clap::Args, Debug)]
#[command(after_long_help = include_str!("../../help/load.txt"))]
pub struct Args {
    /// A memcached server, such as `roost serve`, as HOST:PORT or unix:PATH; Redis or Valkey, as
    /// redis:HOST:PORT or redis:unix:PATH; or an HTTP server, as http://HOST:PORT/PATH?QUERY
    #[arg(value_name = "TARGET", default_value = "127.0.0.1:11211", value_parser = parse_server)]
    server: Server,
    #[command(flatten)]
    load: Load,
    #[command(flatten, next_help_heading = "Keys")]
    keys: keys::KeyOptions,
    #[command(flatten, next_help_heading = "HTTP")]
    http: http::HttpOptions,
}

#[derive(Clone, Debug)]
enum Server {
    Keys(Target, Dialect),
    Http(Url),
}

fn parse_server(text: &str) -> Result<Server, loadgen::Error> {
    if let Some(target) = text.strip_prefix("redis:") {
        // Clients of Redis are configured with URLs.
        let target = target.strip_prefix("//").unwrap_or(target).trim_end_matches('/').parse()?;
        Ok(Server::Keys(target, Dialect::Redis))
    } else if text.contains("://") {
        text.parse().map(Server::Http)
    } else {
        Ok(Server::Keys(text.parse()?, Dialect::Memcached))
    }
}

#[derive(clap::Args, Debug)]
struct Load {
    /// Requests per second, such as 800, 50k or 1.2M; the highest rate of a shape
    #[arg(long, value_name = "RATE", value_parser = workload::parse_rate)]
    rate: Option<Rate>,
    /// How the rate changes over time, see below
    #[arg(long, value_name = "SHAPE", default_value = "constant")]
    shape: Shape,
    /// Play a shape that has times of its own this many times as fast
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 1.0,
        value_parser = parse_compression,
        help_heading = "Advanced",
        hide_short_help = true
    )]
    compress: f64,
    /// poisson, gpareto (ETC's burstier gaps), etc (the same, as fitted to each hour), uniform
    /// (evenly spaced), h2:CV (hyperexponential gaps with that deviation, such as h2:1.5), or
    /// closed or `closed:N`: the next request when one of N (1) on its connection was answered
    #[arg(long, value_name = "KIND", default_value = "poisson")]
    arrivals: Arrivals,
    /// How long to measure [default: the shape's own length, or 10s]
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Duration>,
    /// How long to send load before measuring
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1s",
        help_heading = "Advanced",
        hide_short_help = true
    )]
    warmup: Duration,
    /// Connections, up to 20000
    #[arg(long, value_name = "N", default_value_t = 32)]
    connections: u32,
    /// CPUs such as 6,7, each with a thread that is pinned to it and has its share of the
    /// connections; preferably ones that the server does not use [default: one thread, not pinned]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,
    /// The same seed sends the same requests at the same times
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Advanced", hide_short_help = true)]
    seed: u64,
    /// How long before a request is due a thread stops sleeping and polls
    #[arg(
        long,
        value_name = "TIME",
        default_value_t = loadgen::SPIN_DEFAULT,
        help_heading = "Advanced",
        hide_short_help = true
    )]
    spin: Duration,
    /// Send at real-time priority 1, so that a server on the same CPUs does not delay it; root or
    /// CAP_SYS_NICE
    #[arg(long, help_heading = "Advanced", hide_short_help = true)]
    realtime: bool,
    /// How often each key or word is asked for: uniform or zipf:S
    /// [default: uniform for keys, zipf:1 for words]
    #[arg(long, value_name = "LAW", help_heading = "Advanced", hide_short_help = true)]
    popularity: Option<Popularity>,
    /// Write all latencies as an HdrHistogram log
    #[arg(long, value_name = "FILE", help_heading = "Advanced", hide_short_help = true)]
    hdr: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// A run is invalid if this quantile, or the median, is the generator's own.
const JUDGED: f64 = 0.99;

/// When the next request is sent.
#[derive(Clone, Copy, Debug)]
enum Arrivals {
    Open(ArrivalKind),
    /// So many requests of each connection are under way.
    Closed(u32),
}

impl FromStr for Arrivals {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let depth = match text.strip_prefix("closed") {
            Some("") => Some(1),
            Some(depth) => depth.strip_prefix(':').and_then(|depth| depth.parse().ok()),
            None => None,
        };
        depth.map_or_else(|| text.parse().map(Self::Open), |depth| Ok(Self::Closed(depth)))
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let refused = |flag: &str, of: &str| usage(format!("{flag} is for {of}\nhint: leave it out"));
    match (&args.server, args.keys.given(), args.http.given()) {
        (Server::Keys(..), _, Some(flag)) => Err(refused(flag, "an HTTP server, named by a URL")),
        (Server::Http(_), Some(flag), _) => Err(refused(flag, "a server of keys")),
        (Server::Keys(target, dialect), ..) => {
            send(&args.load, &args.keys.plan(&args.load, target, *dialect)?)
        }
        (Server::Http(url), ..) => send(&args.load, &args.http.plan(&args.load, url)?),
    }
}

fn send<A: Asks>(load: &Load, plan: &Plan<A>) -> Result<ExitCode> {
    let mut log = match &load.hdr {
        Some(path) => {
            Some(HdrLog::create(path).map_err(|cause| usage(format!("--hdr {}: {cause}", path.display())))?)
        }
        None => None,
    };
    let mut logged = Ok(());
    let mut view = ProgressLine::new();
    let outcome = loadgen::run(plan, &mut |interval: &Interval<'_>| {
        if interval.progress.part != Part::Drain {
            view.show(interval.progress);
        }
        if let Some(log) = &mut log {
            logged = log.record(interval);
        }
        if logged.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    view.clear();
    let outcome =
        outcome.map_err(|error| if error.is_usage() { usage(error) } else { coded(Exit::Failed, error) })?;
    logged.context("writing the HdrHistogram log")?;
    if load.json {
        crate::json::print(1, &outcome)?;
    } else {
        print!("{outcome}");
    }
    if let Some(hint) = missed(&outcome) {
        eprintln!("{hint}");
    }
    if outcome.stands.doubtful().is_empty() {
        return Ok(exit_code(&outcome));
    }
    eprintln!(
        "hint: more --cpus of its own, a longer --spin, or --realtime where the \
         server shares its CPUs make a generator punctual"
    );
    Ok(exit_code(&outcome))
}

/// The remedy if most of the reads found no item: a store of misses answers fast, and tells little.
fn missed(outcome: &Outcome) -> Option<String> {
    let (hits, misses) = (outcome.counts.hits, outcome.counts.misses);
    (misses > hits && outcome.preload.is_none()).then(|| {
        format!(
            "hint: {misses} of {} reads found no value, so this measured misses; --preload stores every key first",
            hits + misses
        )
    })
}

/// A wrong answer is worse than an invalid measurement, and that worse than a missing answer: a
/// generator that was late may not have waited long enough.
fn exit_code(outcome: &Outcome) -> ExitCode {
    if outcome.is_broken() {
        Exit::Failed.into()
    } else if !outcome.valid {
        Exit::Invalid.into()
    } else if outcome.counts.unanswered > 0 {
        Exit::Failed.into()
    } else {
        ExitCode::SUCCESS
    }
}

impl Load {
    fn length(&self) -> Duration {
        self.length.or_else(|| self.shape.length(self.compress)).unwrap_or(LENGTH_DEFAULT)
    }

    fn pace(&self) -> Result<Pace> {
        match self.arrivals {
            Arrivals::Closed(_) if self.rate.is_some() || self.shape != Shape::constant() => Err(usage(
                "--arrivals closed sends as fast as the server answers: leave out --rate and --shape",
            )),
            Arrivals::Closed(depth) => Ok(Pace::Closed { depth }),
            Arrivals::Open(arrivals) => {
                if let Some(short) = workload::shape_played::short(&self.shape, self.length(), self.compress)
                {
                    eprintln!("--shape: {}", short.text("--compress "));
                }
                let profile = self.shape.profile(self.rate, self.length(), self.compress).map_err(usage)?;
                Ok(Pace::Open { arrivals, profile })
            }
        }
    }

    /// A plan with these in it.
    fn in_force<A>(&self, plan: Plan<A>) -> Plan<A> {
        Plan {
            connections: self.connections,
            threads: self.cpus.as_ref().map_or(1, |cpus| cpus.0.len() as u16),
            cpus: self.cpus.clone(),
            length: self.length(),
            warmup: self.warmup,
            interval: PROGRESS_EVERY,
            spin: self.spin,
            realtime: self.realtime,
            judged: JUDGED,
            ..plan
        }
    }
}

fn parse_compression(text: &str) -> Result<f64, SpecError> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        _ => Err(SpecError::Compression(text.to_owned())),
    }
}

/// Progress on standard error: one line that is overwritten on a terminal, line after line
/// elsewhere.
struct ProgressLine {
    width: Option<usize>,
}

impl ProgressLine {
    fn new() -> Self {
        let stderr = std::io::stderr();
        let width = if stderr.is_terminal() {
            Some(crate::table::width(&stderr).unwrap_or(80).max(40))
        } else {
            None
        };
        Self { width }
    }

    fn show(&mut self, progress: &Progress) {
        let line = progress.to_string();
        match self.width {
            Some(width) => over(std::io::stderr(), &line.chars().take(width - 1).collect::<String>()),
            None => eprintln!("{line}"),
        }
    }

    fn clear(&mut self) {
        if self.width.is_some() {
            over(std::io::stderr(), "");
        }
    }
}

const LENGTH_DEFAULT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_loop_says_how_many_requests_are_under_way() {
        let depth = |text: &str| match text.parse() {
            Ok(Arrivals::Closed(depth)) => Some(depth),
            Ok(Arrivals::Open(_)) | Err(_) => None,
        };
        assert_eq!((depth("closed"), depth("closed:16")), (Some(1), Some(16)));
        for text in ["closed16", "closed:", "closed:x", "poisson"] {
            assert_eq!(depth(text), None, "{text}");
        }
    }
}
