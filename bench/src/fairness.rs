//! `roost-bench fairness`: the cost of one client's large answers to the others.
//!
//! A worker that copies 200 values for one client answers no other client meanwhile, unless it
//! gives turns by bytes. Each pair starts our store and memcached in turn, with the same values,
//! the same clients that get all of them over and over, and the same probes, which ask for nothing
//! (`mn`) every 2 ms. Probes are connected before the clients, twice as many as there are workers,
//! so that each worker has some. A probe's latency counts from when it was to be sent, so that one
//! long wait is not one sample.
//!
//! Moves are off with `--policy all-awake` and on with the scheduler.

use super::append;
use super::contestant::{Contestant, Stable, Who, version_of};
use crate::exit::{Exit, usage};
use crate::machine_facts::this_machine;
use crate::{harness, run_folder};
use anyhow::{Context as _, Result, anyhow, ensure};
use machine::CpuList;
use serde::Serialize;
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
/// Exit code 5: the bar was missed.
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
    /// Folder for raw data and summary [default: benches/runs/DATE-fairness]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// The load on both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Case {
    clients: usize,
    value_bytes: usize,
    moves: bool,
}

/// The latencies of a run's probes, microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Seen {
    probes: usize,
    p50_us: f64,
    p99_us: f64,
    /// Lists of values that were answered whole.
    lists: u64,
}

/// A line of the raw data.
#[derive(Clone, Debug, Serialize)]
struct Pair {
    pair: u32,
    case: Case,
    peer: Seen,
    ours: Seen,
}

/// One figure of one case.
#[derive(Clone, Debug, Serialize)]
struct Row {
    case: Case,
    figure: &'static str,
    peer_us: f64,
    ours_us: f64,
    /// The median of the pairs' ratios.
    ratio: f64,
    met: bool,
}

#[derive(Debug, Serialize)]
struct Summary {
    conditions: Vec<String>,
    bar: f64,
    rows: Vec<Row>,
}

/// Measures, writes the folder, prints the table.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (major, minor, patch) = version_of(&args.peer)?;
    let allowed = linux::allowed_cpus().map_err(usage)?;
    let cpus = args.server_cpus.clone().unwrap_or_else(|| allowed.clone());
    linux::check_allowed(&cpus, &allowed).map_err(|error| usage(format!("--server-cpus: {error}")))?;
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).context("reading the date")?;
    let date = report::run::utc(now.as_secs());
    let folder =
        args.out.clone().unwrap_or_else(|| PathBuf::from(format!("benches/runs/{}-fairness", &date[..10])));
    run_folder::create(&folder)?;
    if folder.join(RAW).exists() {
        return Err(usage(format!(
            "{} holds a run already\nhint: name another folder with --out",
            folder.display()
        )));
    }
    let ours = crate::product::roost()?;
    let stable =
        Stable { peer: args.peer.clone(), ours, cpus, memory_mib: MEMORY_MIB, folder: folder.clone() };
    let (pairs, length) = if args.quick { (1, QUICK) } else { (args.pairs, FULL) };
    let mut measured = Vec::new();
    for pair in 0..pairs {
        for case in cases() {
            eprintln!("pair {} of {pairs}: {case}", pair + 1);
            let ours = if case.moves { Who::Peafowl } else { Who::AllAwake };
            let run = |who| measure(&stable, who, case, length);
            // The order changes from round to round, so that a drift affects both.
            let (peer, ours) = if pair % 2 == 0 {
                let peer = run(Who::Peer)?;
                (peer, run(ours)?)
            } else {
                let ours = run(ours)?;
                (run(Who::Peer)?, ours)
            };
            let line = Pair { pair, case, peer, ours };
            append(&folder, RAW, &line)?;
            measured.push(line);
        }
    }
    let conditions = vec![
        format!("date: {date}"),
        format!("machine: {}", harness::describe(&this_machine())),
        format!("peer: memcached {major}.{minor}.{patch}; ours: roost {}", env!("CARGO_PKG_VERSION")),
        format!("servers on CPU {}; {pairs} pairs of {:.1} s", stable.cpus, length.as_secs_f64()),
        format!("clients get {KEYS} values at once; {} probes", probes(&stable)),
    ];
    let summary = Summary { conditions, bar: BAR, rows: judge(&measured) };
    let json = serde_json::to_string_pretty(&summary)?;
    run_folder::write(&folder, "summary.json", |file| writeln!(file, "{json}"))?;
    if args.json {
        println!("{json}");
    } else {
        print!("{summary}");
        println!("raw data: {}", folder.display());
    }
    let met = summary.rows.iter().all(|row| row.met);
    Ok(if met { ExitCode::SUCCESS } else { Exit::GoalMissed.into() })
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for moves in [false, true] {
        for value_bytes in [100_000, 1_000_000] {
            cases.extend([1, 2].map(|clients| Case { clients, value_bytes, moves }));
        }
    }
    cases
}

/// Probes on every worker.
fn probes(stable: &Stable) -> usize {
    2 * stable.cpus.0.len()
}

/// One server under one case.
fn measure(stable: &Stable, who: Who, case: Case, length: Duration) -> Result<Seen> {
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
    let (p50_us, p99_us) = (quantile(&latencies, 0.5), quantile(&latencies, 0.99));
    Ok(Seen { probes: latencies.len(), p50_us, p99_us, lists })
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

/// The smallest that so large a share does not exceed.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

/// Each figure of each case that was measured.
fn judge(pairs: &[Pair]) -> Vec<Row> {
    let mut rows = Vec::new();
    for case in cases() {
        let pairs: Vec<&Pair> = pairs.iter().filter(|pair| pair.case == case).collect();
        if pairs.is_empty() {
            continue;
        }
        for figure in ["p50", "p99"] {
            let of = |seen: &Seen| if figure == "p50" { seen.p50_us } else { seen.p99_us };
            let over = |value: fn(&Pair) -> &Seen| median(pairs.iter().map(|pair| of(value(pair))).collect());
            let ratio = median(pairs.iter().map(|pair| of(&pair.ours) / of(&pair.peer)).collect());
            rows.push(Row {
                case,
                figure,
                peer_us: over(|pair| &pair.peer),
                ours_us: over(|pair| &pair.ours),
                ratio,
                met: ratio <= BAR,
            });
        }
    }
    rows
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clients, value_bytes, moves } = self;
        let moves = if *moves { "on" } else { "off" };
        f.pad(&format!("{clients} x {} KB, moves {moves}", value_bytes / 1000))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for condition in &self.conditions {
            writeln!(f, "{condition}")?;
        }
        writeln!(f, "\n{:<24} {:>4} {:>12} {:>12} {:>8}  bar", "", "", "peer us", "ours us", "ratio")?;
        for Row { case, figure, peer_us, ours_us, ratio, met } in &self.rows {
            let met = if *met { "met" } else { "MISSED" };
            writeln!(
                f,
                "{case:<24} {figure:>4} {peer_us:>12.0} {ours_us:>12.0} {ratio:>7.2}x  <= {:.2}x {met}",
                self.bar
            )?;
        }
        Ok(())
    }
}

/// Keys that a client asks for at once.
const KEYS: usize = 200;
/// Between two requests of a probe.
const EVERY: Duration = Duration::from_millis(2);
/// The bound on ours as a multiple of the peer's.
const BAR: f64 = 1.2;
const MEMORY_MIB: u64 = 1024;
const FULL: Duration = Duration::from_secs(3);
const QUICK: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(30);
const RAW: &str = "raw.jsonl";
const STORED: &[u8; 8] = b"STORED\r\n";
const END: &[u8; 5] = b"END\r\n";
const NOTHING: &[u8; 4] = b"MN\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(pair: u32, peer: f64, ours: f64) -> Pair {
        let case = Case { clients: 2, value_bytes: 100_000, moves: true };
        let seen = |p99_us| Seen { probes: 100, p50_us: 10.0, p99_us, lists: 1 };
        Pair { pair, case, peer: seen(peer), ours: seen(ours) }
    }

    #[test]
    fn the_bar_is_judged_by_the_median_of_the_pairs_ratios() {
        let rows = judge(&[pair(0, 100.0, 110.0), pair(1, 10.0, 90.0), pair(2, 1000.0, 1150.0)]);
        assert_eq!(rows.len(), 2, "one case was measured");
        assert_eq!((rows[0].figure, rows[0].ratio, rows[0].met), ("p50", 1.0, true));
        assert_eq!((rows[1].figure, rows[1].met), ("p99", true));
        assert!((rows[1].ratio - 1.15).abs() < 1e-9, "{rows:?}");
        let rows = judge(&[pair(0, 100.0, 130.0), pair(1, 100.0, 90.0), pair(2, 100.0, 121.0)]);
        assert!(!rows[1].met, "1.21 is over the bar: {rows:?}");
    }

    #[test]
    fn quantiles_are_samples_that_were_seen() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((quantile(&sorted, 0.5), quantile(&sorted, 0.99)), (50.0, 99.0));
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0, 10.0]), 2.5);
    }
}
