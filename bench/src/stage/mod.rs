//! `roost-bench stage`: the delay that the proxy adds when it holds nothing, the worth of holding,
//! and whether any request is lost.
//!
//! ```text
//!   overhead.rs   proxy against direct: the added median, CPU time per request
//!   bursts.rs     held against not held: the goal, and the server's idle stretches
//!   kills.rs      servers are killed over and over: every request is answered once or with a clean error
//!   service.rs    the stand-in for a search engine
//!   child.rs      the processes
//! ```

mod bursts;
mod child;
mod kills;
mod overhead;
pub mod service;

use crate::exit::usage;
use crate::harness::{Output, Run, SEED};
use anyhow::Result;
use loadgen::{Http, Pace, Plan, Url};
use machine::{Duration, Goal, Rate};
use std::path::PathBuf;
use std::process::ExitCode;
use workload::{ArrivalKind, Keywords, Popularity, Shape, Words};

/// Measure the staged-burst proxy: the delay it adds, the worth of holding, whether any request is
/// lost
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench stage                               the delay it adds, then held against not held,
                                                  with the stand-in; 6 minutes
  roost-bench stage --only overhead               the delay it adds alone; 3 minutes
  roost-bench stage --only bursts                 held against not held alone; 3 to 4 minutes
  roost-bench stage --only bursts --server 'http://127.0.0.1:9200/pages/_search?q={words}' \\
      --words words.txt --cgroup /sys/fs/cgroup/system.slice/elasticsearch.service
  roost-bench stage --kill-backends --for 600s    ten minutes with servers that are killed

Without --server a stand-in is asked whose service times are drawn from a measured law; figures of it say so.")]
pub struct Args {
    /// This part alone
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Kill the servers over and over, and count the outcomes of the requests; nothing else
    #[arg(long)]
    kill_backends: bool,
    /// How long the kills go on, or holding is measured in all rounds of `bursts` together; not
    /// holding, half of it
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Duration>,
    /// Rounds in which each manner has its turn
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Requests per second of `bursts`
    #[arg(long, value_name = "RATE", default_value = "100", value_parser = workload::parse_rate)]
    rate: Rate,
    /// Requests per second of `overhead`
    #[arg(long, value_name = "RATE", default_value = "2k", value_parser = workload::parse_rate)]
    overhead_rate: Rate,
    /// The service times
    #[arg(long, value_name = "TIME@pQ", default_value = "500ms@p99.9")]
    goal: Goal,
    /// How often they go
    #[arg(long, value_name = "TIME", default_value = "250ms")]
    period: Duration,
    /// The law of the stand-in's service times, by the name of a preset of `roost sim`
    #[arg(long, value_name = "NAME", default_value = "google-search")]
    service: String,
    /// The factor on each of them
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// A real server, as `roost load` is told it; needs --cgroup or --process
    #[arg(long, value_name = "URL")]
    server: Option<Url>,
    /// The words of {words} in it
    #[arg(long, value_name = "FILE", requires = "server")]
    words: Option<PathBuf>,
    /// Its cgroup, of version 2
    #[arg(long, value_name = "DIR", requires = "server")]
    cgroup: Option<PathBuf>,
    /// Its process, where it is one
    #[arg(long, value_name = "PID", requires = "server", conflicts_with = "cgroup")]
    process: Option<u32>,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The delay that the proxy adds when it holds nothing
    Overhead,
    /// The worth of holding
    Bursts,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if args.server.is_some() && args.cgroup.is_none() && args.process.is_none() {
        return Err(usage(
            "--server needs to know whose tasks are the server's: name its --cgroup or its --process",
        ));
    }
    let mut run = Run::begin("stage", &args.output, SEED)?;
    if args.kill_backends {
        kills::measure(&mut run, args.length.unwrap_or(Duration::from_secs(600)))?;
        return run.end(&kills::figures());
    }
    let mut figures = Vec::new();
    if args.only != Some(Part::Bursts) {
        overhead::measure(&mut run, args.overhead_rate)?;
        figures.extend(overhead::figures());
    }
    if args.only != Some(Part::Overhead) {
        bursts::measure(&mut run, args)?;
        figures.extend(bursts::figures(args));
    }
    run.end(&figures)
}

/// Requests to `url`, at random times around a rate.
fn plan(url: Url, words: Words, arrivals: ArrivalKind, rate: Rate, length: Duration) -> Result<Plan<Http>> {
    let asks = Http {
        seed: 1,
        url,
        body: None,
        keywords: Keywords::Paper,
        words,
        popularity: Popularity::Zipf(1.0),
    };
    let profile = Shape::constant().profile(Some(rate), length, 1.0).map_err(usage)?;
    let plan = Plan::http(asks, Pace::Open { arrivals, profile });
    // More than may be held at a time: a client waits for no other's answer.
    Ok(Plan {
        connections: 128,
        length,
        warmup: Duration::from_secs(2),
        drain: Duration::from_secs(3),
        ..plan
    })
}
