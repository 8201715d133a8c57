//! `roost-bench fairness`: the cost of one client's large answers to the others.
//!
//! A worker that copies 200 values for one client answers no other client meanwhile, unless it
//! gives turns by bytes. Each pair starts our store and memcached, with the same values,
//! the same clients that get all of them over and over, and the same probes, which ask for nothing
//! (`mn`) every 2 ms. Probes are connected before the clients, twice as many as there are workers,
//! so that each worker has some. A probe's latency counts from when it was to be sent, so that one
//! long wait is not one sample.
//!
//! Moves are off with `--policy all-awake` and on with the scheduler.

use super::contestant::{Contestant, Stable, Who};
use crate::exit::usage;
use crate::harness::figure::{Figure, Of, quantile};
use crate::harness::{Measured, Output, Run, SEED};
use anyhow::{Context as _, Result, anyhow, ensure};
use machine::CpuList;
use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

/// Measure the cost of one client's large answers to the others, beside memcached
///
/// Exit code 5: the target was missed.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench fairness --peer /usr/bin/memcached            nine pairs, some ten minutes
  roost-bench fairness --peer /usr/bin/memcached --quick    one short pair: shows that it works, proves nothing")]
pub struct Args {
    /// The memcached binary
    #[arg(long, value_name = "PATH")]
    peer: PathBuf,
    /// Pairs for each case
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=99))]
    pairs: u32,
    /// One short pair
    #[arg(long)]
    quick: bool,
    /// CPUs for the servers, one worker for each [default: all that are allowed]
    #[arg(long, value_name = "LIST")]
    server_cpus: Option<CpuList>,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    clients: usize,
    value_bytes: usize,
    moves: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let (major, minor, patch) = crate::rivals::memcached_version(&args.peer)?;
    let allowed = linux::allowed_cpus().map_err(usage)?;
    let cpus = args.server_cpus.clone().unwrap_or_else(|| allowed.clone());
    linux::check_allowed(&cpus, &allowed).map_err(|error| usage(format!("--server-cpus: {error}")))?;
    let mut run = Run::begin("fairness", &args.output, SEED)?;
    let folder = run.folder().to_owned();
    let stable = Stable::of(&args.peer, cpus, MEMORY_MIB, &folder)?;
    let (pairs, length) = if args.quick { (1, QUICK) } else { (args.pairs, FULL) };
    for case in cases() {
        run.rounds(&case.to_string(), pairs, &[PEER, OURS], |&treatment, _| {
            let ours = if case.moves { Who::Peafowl } else { Who::AllAwake };
            measure(&stable, if treatment == PEER { Who::Peer } else { ours }, case, length)
        })?;
    }
    run.remark(format!("peer: memcached {major}.{minor}.{patch}; servers on CPU {}", stable.cpus));
    run.remark(format!("clients get {KEYS} values at once; {} probes for {length:?}", probes(&stable)));
    let mut figures = Vec::new();
    for metric in ["p50_us", "p99_us"] {
        figures.push(Figure::new(metric, "us", Of::Ratio(OURS, PEER)).at_most(TARGET));
        figures.extend([PEER, OURS].map(|one| Figure::new(metric, "us", Of::One(one))));
    }
    run.end(&figures)
}

const PEER: &str = "memcached";
const OURS: &str = "ours";

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for moves in [false, true] {
        for value_bytes in [100_000, 1_000_000] {
            cases.extend([1, 2].map(|clients| Case { clients, value_bytes, moves }));
        }
    }
    cases
}

fn probes(stable: &Stable) -> usize {
    2 * stable.cpus.0.len()
}

fn measure(stable: &Stable, who: Who, case: Case, length: Duration) -> Result<Measured> {
    let server = stable.start(who)?;
    fill(&mut connect(&server)?, case.value_bytes)?;
    let probes = (0..probes(stable)).map(|_| connect(&server)).collect::<Result<Vec<_>>>()?;
    let clients = (0..case.clients).map(|_| connect(&server)).collect::<Result<Vec<_>>>()?;
    let over = &AtomicBool::new(false);
    let (mut latencies, lists) = scope(|scope| {
        let clients: Vec<_> = clients
            .into_iter()
            .map(|client| scope.spawn(move || get_lists(client, case.value_bytes, over)))
            .collect();
        let probes: Vec<_> =
            probes.into_iter().map(|probe| scope.spawn(move || ask_nothing(probe, length))).collect();
        let seen = join(probes);
        over.store(true, Ordering::Relaxed);
        let lists = join(clients);
        anyhow::Ok((seen?.concat(), lists?.into_iter().sum::<u64>()))
    })?;
    ensure!(lists > 0, "{} answered no list of values within {length:?}", who.name());
    latencies.sort_by(f64::total_cmp);
    Ok(Measured::of([
        ("probes", latencies.len() as f64),
        ("p50_us", quantile(&latencies, 0.5)),
        ("p99_us", quantile(&latencies, 0.99)),
        // Lists of values that were answered whole.
        ("lists", lists as f64),
    ]))
}

/// Waits for all of them, whichever failed.
fn join<T>(threads: Vec<ScopedJoinHandle<'_, Result<T>>>) -> Result<Vec<T>> {
    let ended: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
    ended.into_iter().map(|ended| ended.unwrap_or_else(|_| Err(anyhow!("a thread panicked")))).collect()
}

fn connect(server: &Contestant) -> Result<TcpStream> {
    let port = server.port().context("the server's port")?;
    let stream = TcpStream::connect(("127.0.0.1", port)).context("connecting")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn fill(stream: &mut TcpStream, value_bytes: usize) -> Result<()> {
    let value = vec![b'v'; value_bytes];
    for key in 0..KEYS {
        write!(stream, "set k{key:03} 0 0 {value_bytes}\r\n")?;
        stream.write_all(&value)?;
        stream.write_all(b"\r\n")?;
        let mut answer = [0; STORED.len()];
        stream.read_exact(&mut answer)?;
        ensure!(answer == *STORED, "a value was not stored: {:?}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

/// Gets all values over and over. How often.
fn get_lists(mut stream: TcpStream, value_bytes: usize, over: &AtomicBool) -> Result<u64> {
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key:03}")).collect();
    let request = format!("get {}\r\n", keys.join(" "));
    let whole = answer_bytes(value_bytes);
    let mut buffer = vec![0; 256 << 10];
    let mut lists = 0;
    while !over.load(Ordering::Relaxed) {
        stream.write_all(request.as_bytes())?;
        let (mut left, mut end) = (whole, [0; END.len()]);
        while left > 0 {
            let most = left.min(buffer.len());
            let came = stream.read(&mut buffer[..most]).context("reading values")?;
            ensure!(came > 0, "the server closed a client that reads");
            let kept = came.min(END.len());
            end.rotate_left(kept);
            end[END.len() - kept..].copy_from_slice(&buffer[came - kept..came]);
            left -= came;
        }
        ensure!(end == *END, "not every value was there");
        lists += 1;
    }
    Ok(lists)
}

/// Bytes of the answer to a list of all keys.
fn answer_bytes(value_bytes: usize) -> usize {
    KEYS * (format!("VALUE k000 0 {value_bytes}\r\n").len() + value_bytes + 2) + END.len()
}

/// Latencies in microseconds of a request for nothing every [`EVERY`].
fn ask_nothing(mut stream: TcpStream, length: Duration) -> Result<Vec<f64>> {
    // Without the right to a priority the probes share the lateness of everything else, on both
    // servers alike.
    let _ = linux::schedule_fifo();
    let mut latencies = Vec::new();
    let began = Instant::now();
    let mut due = began;
    while due - began < length {
        sleep(due.saturating_duration_since(Instant::now()));
        stream.write_all(b"mn\r\n")?;
        let mut answer = [0; NOTHING.len()];
        stream.read_exact(&mut answer).context("reading a probe's answer")?;
        ensure!(answer == *NOTHING, "a probe was answered {:?}", String::from_utf8_lossy(&answer));
        latencies.push(due.elapsed().as_secs_f64() * 1e6);
        due += EVERY;
    }
    Ok(latencies)
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clients, value_bytes, moves } = self;
        let moves = if *moves { "on" } else { "off" };
        f.pad(&format!("{clients} x {} KB, moves {moves}", value_bytes / 1000))
    }
}

/// Keys that a client asks for at once.
const KEYS: usize = 200;
/// Between two requests of a probe.
const EVERY: Duration = Duration::from_millis(2);
/// The bound on ours as a multiple of the peer's.
const TARGET: f64 = 1.2;
const MEMORY_MIB: u64 = 1024;
const FULL: Duration = Duration::from_secs(3);
const QUICK: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(30);
const STORED: &[u8; 8] = b"STORED\r\n";
const END: &[u8; 5] = b"END\r\n";
const NOTHING: &[u8; 4] = b"MN\r\n";
