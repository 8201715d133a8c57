//! `roost load`: what was typed becomes a plan for the generator, its intervals a line on the terminal, its
//! outcome a table.

use crate::exit::{Exit, coded, usage};
use anyhow::{Context as _, Result};
use clap::Subcommand;
use loadgen::{Asks, Body, HdrLog, Interval, Items, Outcome, Pace, Part, Plan, Progress, Target, Url};
use machine::{CpuList, Duration, Rate, Ratio};
use std::io::{IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use workload::{ArrivalKind, KeySize, Keywords, Popularity, Shape, SpecError, ValueSize, Words, Workload};

/// Open-loop load with latency counted from the intended send time
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    protocol: Protocol,
}

/// What both help texts end with.
macro_rules! shapes {
    () => {
        "\
Shapes:
  constant                     --rate throughout
  ramp:A..B[..C]               straight from A to B (to C ...) over the run
  steps:A,B,C                  equal parts of the run; steps:A@10s,B@5s: own times, repeated
  burst                        Peafowl's figure 7: --rate, a fall to 5%, then 65% at once
  burst:A..B[@P+L]             A, then B at once; with @P+L: A for P, B for L, repeated
  diurnal[:A..B]               a sinus over 24 hours, from half of --rate (or A) to --rate (or B)
  etc, microsoft, nlanr        a day of published traces; decay: 24 falling steps
  etc-gaps                     a day of ETC's published gaps, with --arrivals etc
  google                       1M/s for 15 minutes, then 230k/s
  carb-slow, carb-fast         90 minutes of CARB's load, changing slowly or fast
  csv:FILE                     lines of seconds,rate; each rate holds until the next line"
    };
}

#[derive(Subcommand, Debug)]
enum Protocol {
    Memcache(Box<Memcache>),
    Http(Box<Http>),
}

/// Load a memcached server, such as `roost serve`
///
/// Requests are sent when they are due, whatever the server does, and latency counts from then. The run is INVALID
/// (exit code 6) when more than 1% of the requests were sent later than a tenth of the reported p99. Exit code 1: a
/// value was wrong, a connection lost or a request unanswered; 2: bad usage.
#[derive(clap::Args, Debug)]
#[command(after_help = concat!("\
Examples:
  roost load memcache --rate 50k --preload                        ten seconds of Poisson arrivals
  roost load memcache --rate 200k --cpus 6,7 --threads 2 --connections 512 --for 1m
  roost load memcache --shape etc --compress 3600 --rate 100k     ETC's day in 24 seconds
  roost load memcache --shape ramp:10k..1M --key-size etc --value-size etc --popularity zipf:0.99
  roost load memcache --arrivals closed --depth 16                as fast as the server answers
  roost load memcache --rate 20k --preload --verify --json        check every value\n\n", shapes!()))]
struct Memcache {
    /// The server: HOST:PORT or unix:PATH
    #[arg(long, value_name = "SERVER", default_value = "127.0.0.1:11211")]
    server: Target,
    #[command(flatten)]
    load: Load,
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: u64,
    /// How often each key is asked for: uniform or zipf:S
    #[arg(long, value_name = "LAW", default_value = "uniform")]
    popularity: Popularity,
    /// Bytes of a key, or etc or usr for the sizes of Facebook's pools
    #[arg(long, value_name = "SIZE", default_value = "20")]
    key_size: KeySize,
    /// Bytes of a value, or etc or usr
    #[arg(long, value_name = "SIZE", default_value = "100")]
    value_size: ValueSize,
    /// Share of requests that read; the others write
    #[arg(long, value_name = "SHARE", default_value = "0.9", value_parser = parse_share)]
    gets: Ratio,
    /// Store every key first, and check that the server kept them
    #[arg(long)]
    preload: bool,
    /// Check every value that is read, byte for byte; only this generator may have stored them
    #[arg(long)]
    verify: bool,
    /// Unanswered requests per connection beyond which further ones wait (their latency counts on)
    #[arg(long, value_name = "N", default_value_t = 1024)]
    outstanding: u32,
}

/// Load an HTTP server, such as a search engine with queries of keywords
///
/// As `roost load memcache`, over kept-alive connections of HTTP/1.1. A request takes whichever connection is free; if
/// none is it waits, and its latency counts on. {words} in the URL and in the body stands for the query's keywords. What
/// Elasticsearch, OpenSearch (took) and Solr (QTime) say of their own time is shown beside the latency. Exit code 6: the
/// run is INVALID, the generator was late; 1: a connection was lost, an answer had a status from 400 on or did not come; 2: bad usage.
#[derive(clap::Args, Debug)]
#[command(after_help = concat!("\
Examples:
  roost load http http://127.0.0.1:8080/ --rate 500               the same page, 500 times a second
  roost load http http://127.0.0.1:9200/pages/_search --words words.txt --rate 40 \\
      --body '{\"query\":{\"match\":{\"text\":\"{words}\"}}}'          queries of 1 to 18 keywords, as the Hurry-up paper mixes them
  roost load http 'http://127.0.0.1:8983/solr/pages/select?wt=json&q=text:({words})' --words words.txt \\
      --keywords heavy --rate 10                                  Solr, 12 to 18 keywords
  roost load http URL --words words.txt --arrivals closed --connections 4      as fast as 4 clients get answers\n\n", shapes!()))]
struct Http {
    /// What to ask for: http://HOST:PORT/PATH?QUERY
    #[arg(value_name = "URL")]
    url: Url,
    /// Send this with a POST: text, or @FILE
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// What the body is
    #[arg(long, value_name = "TYPE", default_value = "application/json", requires = "body", value_parser = parse_content_type)]
    content_type: String,
    #[command(flatten)]
    load: Load,
    /// Keywords of each query: paper (1 to 18), cloudsuite (1 to 16), light (3-4), heavy (12-18), or numbers such as 7 or 2-5
    #[arg(long, value_name = "MIX", default_value = "paper", requires = "words")]
    keywords: Keywords,
    /// A file of words, one to a line, most frequent first; best the index's own
    #[arg(long, value_name = "FILE")]
    words: Option<PathBuf>,
    /// How often each word is asked for: uniform or zipf:S
    #[arg(long, value_name = "LAW", default_value = "zipf:1")]
    popularity: Popularity,
    /// Requests on one connection at a time; above 1 they are pipelined, which few servers are used to
    #[arg(long, value_name = "N", default_value_t = 1)]
    outstanding: u32,
    /// Give a request up when the server owes its answer for this long
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: Duration,
}

/// What loads of every protocol have.
#[derive(clap::Args, Debug)]
struct Load {
    /// Requests per second, such as 800, 50k or 1.2M; the highest rate of a shape
    #[arg(long, value_name = "RATE", value_parser = workload::parse_rate)]
    rate: Option<Rate>,
    /// How the rate changes over time, see below
    #[arg(long, value_name = "SHAPE", default_value = "constant")]
    shape: Shape,
    /// Play a shape that has times of its own this many times as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_compression)]
    compress: f64,
    /// poisson, gpareto (ETC's burstier gaps), etc (the same, as fitted to each hour), uniform (evenly spaced), h2:CV
    /// (hyperexponential gaps with that deviation, such as h2:1.5), or closed: the next request when an earlier one was answered
    #[arg(long, value_name = "KIND", default_value = "poisson")]
    arrivals: Arrivals,
    /// Requests under way per connection, with --arrivals closed [default: 1]
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
    /// How long to measure [default: the shape's own length, or 10s]
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Duration>,
    /// How long to send load before measuring
    #[arg(long, value_name = "TIME", default_value = "1s")]
    warmup: Duration,
    /// Connections, up to 20000
    #[arg(long, value_name = "N", default_value_t = 32)]
    connections: u32,
    /// Threads, each with its share of the connections [default: one per CPU of --cpus, or 1]
    #[arg(long, value_name = "N")]
    threads: Option<u16>,
    /// CPUs to pin the threads to, such as 6,7; preferably ones that the server does not use
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,
    /// The same seed sends the same requests at the same times
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long before a request is due a thread stops sleeping and polls
    #[arg(long, value_name = "TIME", default_value_t = loadgen::SPIN_DEFAULT)]
    spin: Duration,
    /// How often to report progress
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Duration,
    /// Write all latencies as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// When the next request is sent.
#[derive(Clone, Copy, Debug)]
enum Arrivals {
    Open(ArrivalKind),
    Closed,
}

impl FromStr for Arrivals {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text == "closed" { Ok(Self::Closed) } else { text.parse().map(Self::Open) }
    }
}

/// Sends the load.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.protocol {
        Protocol::Memcache(args) => send(&args.load, &memcache(args)?),
        Protocol::Http(args) => send(&args.load, &http(args)?),
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
        println!("{}", serde_json::to_string_pretty(&outcome)?);
    } else {
        print!("{outcome}");
    }
    Ok(exit_code(&outcome))
}

/// A wrong answer is worse than an invalid measurement, and that worse than a missing answer: a generator that was
/// late may not have waited long enough.
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

fn memcache(args: &Memcache) -> Result<Plan> {
    let workload = Workload {
        seed: args.load.seed,
        keys: args.keys,
        popularity: args.popularity,
        key_size: args.key_size,
        value_size: args.value_size,
        gets: args.gets,
    };
    let plan = Plan::new(args.server.clone(), args.load.pace()?);
    Ok(args.load.in_force(Plan {
        asks: Items { workload, preload: args.preload, verify: args.verify },
        outstanding_max: args.outstanding,
        ..plan
    }))
}

fn http(args: &Http) -> Result<Plan<loadgen::Http>> {
    let body = match args.body.as_deref().map(|text| (text, text.strip_prefix('@'))) {
        Some((_, Some(file))) => {
            Some(std::fs::read_to_string(file).map_err(|cause| usage(format!("--body @{file}: {cause}")))?)
        }
        Some((text, None)) => Some(text.to_owned()),
        None => None,
    };
    let words = args.words.as_deref().map(Words::read).transpose().map_err(usage)?;
    let asks = loadgen::Http {
        seed: args.load.seed,
        url: args.url.clone(),
        body: body.map(|text| Body { text, content_type: args.content_type.clone() }),
        keywords: args.keywords.clone(),
        words: words.unwrap_or_else(|| Words::new([])),
        popularity: args.popularity,
    };
    match (asks.wants_words(), args.words.is_some()) {
        (true, false) => {
            return Err(usage("the URL or the body has {words} in it: name a word list with --words FILE"));
        }
        (false, true) => {
            return Err(usage(
                "--words is of no use without {words} in the URL or in --body, where they shall stand",
            ));
        }
        _ => {}
    }
    let plan = Plan::http(asks, args.load.pace()?);
    // The run gives up on a server that is silent for longer than each of its answers may take.
    let patience = plan.patience.max(args.timeout.scale(2.0));
    let plan = Plan { outstanding_max: args.outstanding, timeout: Some(args.timeout), patience, ..plan };
    Ok(args.load.in_force(plan))
}

impl Load {
    fn length(&self) -> Duration {
        self.length.or_else(|| self.shape.length(self.compress)).unwrap_or(LENGTH_DEFAULT)
    }

    fn pace(&self) -> Result<Pace> {
        match self.arrivals {
            Arrivals::Open(_) if self.depth.is_some() => Err(usage(
                "--depth goes with --arrivals closed; an open loop sends each request when it is due",
            )),
            Arrivals::Closed if self.rate.is_some() || self.shape != Shape::constant() => Err(usage(
                "--arrivals closed sends as fast as the server answers: leave out --rate and --shape",
            )),
            Arrivals::Closed => Ok(Pace::Closed { depth: self.depth.unwrap_or(1) }),
            Arrivals::Open(arrivals) => {
                let profile = self.shape.profile(self.rate, self.length(), self.compress).map_err(usage)?;
                Ok(Pace::Open { arrivals, profile })
            }
        }
    }

    /// A plan with these in it.
    fn in_force<A>(&self, plan: Plan<A>) -> Plan<A> {
        let cpus = self.cpus.as_ref().map_or(1, |cpus| cpus.0.len() as u16);
        Plan {
            connections: self.connections,
            threads: self.threads.unwrap_or(cpus),
            cpus: self.cpus.clone(),
            length: self.length(),
            warmup: self.warmup,
            interval: self.interval,
            spin: self.spin,
            ..plan
        }
    }
}

/// What a header's line can carry.
fn parse_content_type(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{}` is no media type: write one such as application/json", text.escape_default()))
    }
}

fn parse_share(text: &str) -> Result<Ratio, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(Ratio::new(share)),
        _ => Err(format!("`{text}` is no share: write a number from 0 to 1, such as 0.9")),
    }
}

fn parse_compression(text: &str) -> Result<f64, SpecError> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        _ => Err(SpecError::Compression(text.to_owned())),
    }
}

/// Progress on standard error: one line that is overwritten on a terminal, line after line elsewhere.
struct ProgressLine {
    width: Option<usize>,
}

impl ProgressLine {
    fn new() -> Self {
        let stderr = std::io::stderr();
        let width = if stderr.is_terminal() {
            let size = rustix::termios::tcgetwinsize(&stderr);
            Some(size.map_or(80, |size| usize::from(size.ws_col.max(40))))
        } else {
            None
        };
        Self { width }
    }

    fn show(&mut self, progress: &Progress) {
        let line = progress.to_string();
        let mut stderr = std::io::stderr().lock();
        // Progress that cannot be shown is no reason to end a measurement.
        let _ = match self.width {
            Some(width) => write!(stderr, "\r\x1b[2K{}", line.chars().take(width - 1).collect::<String>()),
            None => writeln!(stderr, "{line}"),
        };
        let _ = stderr.flush();
    }

    fn clear(&mut self) {
        if self.width.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}

const LENGTH_DEFAULT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args as _;

    #[test]
    fn the_help_has_every_shape_and_every_kind_of_arrivals_that_there_is() {
        let help = Memcache::augment_args(clap::Command::new("memcache")).render_long_help().to_string();
        // Errors about others list them all.
        let known = |error: SpecError| -> Vec<String> {
            let text = error.to_string();
            let (_, list) = text.split_once(": write ").expect("a list");
            let list = list.replace(" or ", ", ").replace(" with CV from 1 to 100, such as h2:1.5", "");
            list.split(", ")
                .map(|name| name.trim_matches([' ', ',']))
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let shapes = known("saw".parse::<Shape>().unwrap_err());
        let arrivals = known("saw".parse::<ArrivalKind>().unwrap_err());
        assert!(shapes.len() > 10 && arrivals.len() >= 5, "{shapes:?} {arrivals:?}");
        let (_, table) = help.split_once("Shapes:").expect("a table");
        for shape in shapes {
            let name = shape.split(':').next().unwrap_or(&shape);
            let is_there = table.split([' ', ',', ';', ':', '[', '\n']).any(|word| word == name);
            assert!(is_there, "{shape} is not in\n{help}");
        }
        for kind in arrivals {
            let is_there = help.split([' ', ',', '\n']).any(|word| word == kind);
            assert!(is_there, "{kind} is not in\n{help}");
        }
    }
}
