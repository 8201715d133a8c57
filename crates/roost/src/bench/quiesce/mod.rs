//! `roost bench quiesce`: the shipped example, with and without quiescence.
//!
//! ```text
//!   client ----- asks ----> server, which answers after 100 ms       critical: the client
//!     ^------ 100 ms -------'
//!     `-- computes for 10 ms, asks again
//!   updater: bursts of 1 to 5 ms, 30 % of one CPU                    background, in a cgroup of its own
//! ```
//!
//! Blocks with `roost quiesce` running and without it take turns, the order turned about from round to round. Of each block: how long each
//! fetch took, from asking to the end of what is computed; how much of the time all CPUs were idle at once, by the scheduler's switches; the
//! updater's CPU time, which is its work; and the CPU time of `roost quiesce` itself. The connection is over loopback, where the other end is
//! on this machine: such a wait is believed only after eight that no background thread ended, so each block has a time to settle first.

pub mod parts;

use crate::exit::{Exit, coded, usage};
use crate::machine_facts::this_machine;
use crate::table::{Table, print};
use anyhow::{Context as _, Result, bail};
use host::Offspring as _;
use host::bpf::WaitProgram;
use host::{CgroupVersion, Gaps, Root};
use machine::{Duration, Instant};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

/// Measure what the shipped example sleeps with quiescence and without, and what that costs whom
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost bench quiesce
  roost bench quiesce --rounds 3 --sweep 0
  roost bench quiesce --out benches/runs/2026-11-22-intel-xeon-2cpu

Exit codes: 0 the bars are met, 5 they are not (critical responses within 1 %, all idle for at least 15 percentage points more of the time at the first \
load).")]
pub struct Args {
    /// How long the server takes for each answer
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    wait: Duration,
    /// CPU time of what the client computes after each answer
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    compute: Duration,
    /// Share of one CPU that the updater uses, in percent, for which the bars hold
    #[arg(long, value_name = "PERCENT", default_value_t = 30, value_parser = clap::value_parser!(u8).range(1..=90))]
    load: u8,
    /// Rounds at that load, each a block with and a block without
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: u32,
    /// Rounds at 10, 20, 40, 50 and 60 %
    #[arg(long, value_name = "N", default_value_t = 1)]
    sweep: u32,
    /// Length of a block
    #[arg(long, value_name = "TIME", default_value = "8s")]
    block: Duration,
    /// Before each block
    #[arg(long, value_name = "TIME", default_value = "2s")]
    settle: Duration,
    /// Handed on to `roost quiesce`: nothing is frozen for more than this share of the time
    #[arg(long, value_name = "SHARE", default_value_t = 0.75)]
    max_share: f64,
    /// Append each block as a line of JSON to quiesce.jsonl in this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// What was measured in a block.
#[derive(Clone, Debug, Serialize)]
struct Block {
    load_percent: u8,
    round: u32,
    quiesces: bool,
    seconds: f64,
    /// In the order of their ends.
    responses_ms: Vec<f64>,
    all_idle_share: f64,
    /// Times per second that all CPUs went idle.
    all_idle_per_s: f64,
    /// Of one CPU.
    updater_share: f64,
    /// Of one CPU, by `roost quiesce`.
    own_share: f64,
    /// By the account of `roost quiesce`: share of the time in which the updater stood still, freezes, what freezing and thawing take.
    frozen_share: f64,
    freezes: u64,
    cost_us: f64,
}

/// One load, compared.
#[derive(Clone, Debug, Serialize)]
struct Compared {
    load_percent: u8,
    rounds: usize,
    /// Medians over rounds, with lowest and highest.
    mean_ms: [Spread; 2],
    p99_ms: [Spread; 2],
    all_idle: [Spread; 2],
    updater: [Spread; 2],
    /// Median over rounds of the ratio of means, with and without.
    response_ratio: Spread,
    /// Of the difference, in percentage points.
    all_idle_gain: Spread,
    /// Share of the updater's work that is lost.
    updater_lost: Spread,
    own_share: Spread,
    frozen: Spread,
}

/// The median, and the lowest and highest.
#[derive(Clone, Copy, Debug, Serialize)]
struct Spread(f64, f64, f64);

#[derive(Debug, Serialize)]
struct Results {
    started: String,
    machine: report::run::Machine,
    load_before: String,
    wait_ms: f64,
    compute_ms: f64,
    max_share: f64,
    compared: Vec<Compared>,
}

/// With quiescence over without, at most.
const RESPONSE_BAR: f64 = 1.01;
/// Percentage points, at least.
const IDLE_BAR: f64 = 15.0;

/// Does it.
pub fn run(args: &Args) -> Result<ExitCode> {
    let load_before = fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned();
    let cpus = host::online_cpus(&Root::system())?;
    // The measuring program itself: of all CPUs, and of nobody's waits.
    let program = WaitProgram::load(&cpus, false).map_err(|error| coded(Exit::Unsupported, error))?;
    let mut blocks: Vec<Block> = Vec::new();
    let others = [10, 20, 40, 50, 60].into_iter().filter(|load| *load != args.load);
    let loads: Vec<(u8, u32)> =
        std::iter::once((args.load, args.rounds)).chain(others.map(|load| (load, args.sweep))).collect();
    for &(load, rounds) in &loads {
        for round in 0..rounds {
            let order = if round % 2 == 0 { [false, true] } else { [true, false] };
            for quiesces in order {
                let block =
                    Example::start(args, load, round)?.block(args, &program, load, round, quiesces)?;
                if let Some(folder) = &args.out {
                    super::append(folder, "quiesce.jsonl", &block)?;
                }
                blocks.push(block);
            }
        }
    }
    let compared = loads.iter().filter_map(|&(load, _)| Compared::of(&blocks, load)).collect();
    let results = Results {
        started: crate::run_folder::started()?,
        machine: this_machine(),
        load_before,
        wait_ms: args.wait.as_secs_f64() * 1e3,
        compute_ms: args.compute.as_secs_f64() * 1e3,
        max_share: args.max_share,
        compared,
    };
    if let Some(folder) = &args.out {
        super::append(folder, "quiesce-summary.jsonl", &results)?;
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&results)?))?;
    } else {
        print(&table(&results))?;
    }
    let first = results.compared.first().ok_or_else(|| usage("--rounds 0 measures nothing"))?;
    let is_met = first.response_ratio.0 <= RESPONSE_BAR && first.all_idle_gain.0 >= IDLE_BAR;
    Ok(if is_met { ExitCode::SUCCESS } else { Exit::GoalMissed.into() })
}

/// The programs of the example, at work.
struct Example {
    server: Child,
    client: Child,
    updater: Child,
    group: PathBuf,
    /// When each fetch began and ended.
    fetches: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl Example {
    fn start(args: &Args, load: u8, round: u32) -> Result<Self> {
        let group = group()?;
        let mut updater = part(&[
            "updater",
            "--load",
            &(f64::from(load) / 100.0).to_string(),
            "--seed",
            &(u64::from(round) + 1).to_string(),
        ])?;
        let joined = fs::write(group.join("cgroup.procs"), updater.id().to_string());
        let said = first_line(&mut updater)?.0;
        let mut server = part(&["server", "--wait", &args.wait.to_string()])?;
        let port = first_line(&mut server)?.0;
        let mut client = part(&["client", "--port", port.trim(), "--compute", &args.compute.to_string()])?;
        let (first, lines) = first_line(&mut client)?;
        let fetches = Arc::new(Mutex::new(Vec::new()));
        let filled = fetches.clone();
        thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let times = line
                    .split_once(' ')
                    .and_then(|(began, ended)| Some((began.parse().ok()?, ended.parse().ok()?)));
                filled.lock().expect("nobody panics while holding it").extend(times);
            }
        });
        let example = Self { server, client, updater, group, fetches };
        joined.with_context(|| format!("{}: the updater does not join", example.group.display()))?;
        if said.trim() != "ready" || first.is_empty() {
            bail!("the example's programs do not start");
        }
        Ok(example)
    }

    fn block(
        &self,
        args: &Args,
        program: &WaitProgram,
        load: u8,
        round: u32,
        quiesces: bool,
    ) -> Result<Block> {
        let mut quiescer =
            quiesces.then(|| Quiescer::start(args, self.client.id(), &self.group)).transpose()?;
        thread::sleep(args.settle.into());
        let began = host::now();
        let before = (program.all_idle(), cpu_time(self.updater.id())?);
        let own_before = quiescer.as_ref().map_or(Ok(Duration::ZERO), |own| cpu_time(own.child.id()))?;
        let told_before = quiescer.as_ref().and_then(Quiescer::told);
        thread::sleep(args.block.into());
        let own_after = quiescer.as_ref().map_or(Ok(Duration::ZERO), |own| cpu_time(own.child.id()))?;
        let after = (program.all_idle(), cpu_time(self.updater.id())?);
        let ended = host::now();
        let told_after = quiescer.as_ref().and_then(Quiescer::told);
        if let Some(quiescer) = &mut quiescer {
            quiescer.end()?;
        }
        let seconds = ended.since(began).as_secs_f64();
        let share = |time: Duration| time.as_secs_f64() / seconds;
        let fetches = self.fetches.lock().expect("nobody panics while holding it");
        let inside = |&&(from, to): &&(u64, u64)| {
            Instant::from_nanos(from) >= began && Instant::from_nanos(to) <= ended
        };
        let responses_ms = fetches.iter().filter(inside).map(|(from, to)| (to - from) as f64 / 1e6).collect();
        let number = |told: &Option<serde_json::Value>, name: &str| {
            told.as_ref().and_then(|told| told["background"][0][name].as_f64()).unwrap_or(0.0)
        };
        let at_ms = |told: &Option<serde_json::Value>| {
            told.as_ref().and_then(|told| told["at_ms"].as_f64()).unwrap_or(0.0)
        };
        let told_ms = at_ms(&told_after) - at_ms(&told_before);
        let frozen_s = number(&told_after, "frozen_s") - number(&told_before, "frozen_s");
        Ok(Block {
            load_percent: load,
            round,
            quiesces,
            seconds,
            responses_ms,
            all_idle_share: share(after.0.time - before.0.time),
            all_idle_per_s: (after.0.times - before.0.times) as f64 / seconds,
            updater_share: share(after.1 - before.1),
            own_share: share(own_after - own_before),
            frozen_share: if told_ms > 0.0 { frozen_s / told_ms * 1e3 } else { 0.0 },
            freezes: (number(&told_after, "freezes") - number(&told_before, "freezes")) as u64,
            cost_us: told_after.and_then(|told| told["cost_us"].as_f64()).unwrap_or(0.0),
        })
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.server, &mut self.updater] {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir(&self.group);
    }
}

/// `roost quiesce` for one block.
struct Quiescer {
    child: Child,
    last: Arc<Mutex<Option<serde_json::Value>>>,
}

impl Quiescer {
    fn start(args: &Args, client: u32, group: &std::path::Path) -> Result<Self> {
        // It ends by itself if the bench is killed.
        let length = args.settle + args.block + Duration::from_secs(30);
        let mut child = Command::new(std::env::current_exe().context("this program's own file")?)
            .args(["quiesce", "--json", "--realtime", "--critical", &client.to_string(), "--background"])
            .arg(group)
            .args(["--for", &length.to_string(), "--max-share", &args.max_share.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .context("roost quiesce")?;
        let last = Arc::new(Mutex::new(None));
        let (told, lines) = (last.clone(), child.stdout.take().context("piped")?);
        thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                *told.lock().expect("nobody panics while holding it") = serde_json::from_str(&line).ok();
            }
        });
        Ok(Self { child, last })
    }

    fn told(&self) -> Option<serde_json::Value> {
        self.last.lock().expect("nobody panics while holding it").clone()
    }

    fn end(&mut self) -> Result<()> {
        let ended_before = self.child.try_wait()?.is_some();
        if !ended_before {
            kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        }
        let status = self.child.wait()?;
        if ended_before || !status.success() {
            let mut said = String::new();
            if let Some(mut stderr) = self.child.stderr.take() {
                std::io::Read::read_to_string(&mut stderr, &mut said)?;
            }
            bail!("roost quiesce ended by itself ({status}): {said}");
        }
        Ok(())
    }
}

impl Drop for Quiescer {
    fn drop(&mut self) {
        // It ends well if it is told to; what it froze goes on then.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// A program of the example.
fn part(words: &[&str]) -> Result<Child> {
    Command::new(std::env::current_exe().context("this program's own file")?)
        .args(["bench", "quiesce-part"])
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .ends_with_parent()
        .spawn()
        .with_context(|| format!("starting the {}", words[0]))
}

fn first_line(child: &mut Child) -> Result<(String, BufReader<std::process::ChildStdout>)> {
    let mut lines = BufReader::new(child.stdout.take().context("piped")?);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    Ok((line, lines))
}

/// A cgroup for the updater, which can be frozen.
fn group() -> Result<PathBuf> {
    let root = Root::system();
    let found = host::cgroups(&root, &mut Gaps::default());
    let place = found.freezer.filter(|_| found.version != CgroupVersion::None);
    let place =
        place.ok_or_else(|| coded(Exit::Unsupported, "no cgroup tree with a freezer is mounted here"))?;
    let folder = PathBuf::from(place.path).join(format!("roost-bench-quiesce-{}", std::process::id()));
    match fs::create_dir(&folder) {
        Err(cause) if cause.kind() != std::io::ErrorKind::AlreadyExists => Err(coded(
            Exit::Unsupported,
            format!("cannot make the cgroup {}: {cause}\nhint: run as root", folder.display()),
        )),
        _ => Ok(folder),
    }
}

/// CPU time of a process's threads, to the nanosecond.
fn cpu_time(process: u32) -> Result<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{process}/task")).context("it has ended")? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        nanos += text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).context("schedstat")?;
    }
    Ok(Duration::from_nanos(nanos))
}

impl Compared {
    fn of(blocks: &[Block], load: u8) -> Option<Self> {
        let of = |quiesces: bool| -> Vec<&Block> {
            let mut blocks: Vec<&Block> = blocks
                .iter()
                .filter(|block| block.load_percent == load && block.quiesces == quiesces)
                .collect();
            blocks.sort_by_key(|block| block.round);
            blocks
        };
        let (off, on) = (of(false), of(true));
        if off.is_empty() {
            return None;
        }
        let both = |value: &dyn Fn(&Block) -> f64| {
            [&off, &on].map(|blocks| Spread::of(blocks.iter().map(|block| value(block)).collect()))
        };
        let pairs = |value: &dyn Fn(&Block, &Block) -> f64| {
            Spread::of(off.iter().zip(&on).map(|(off, on)| value(off, on)).collect())
        };
        let of_on = |value: &dyn Fn(&Block) -> f64| Spread::of(on.iter().map(|block| value(block)).collect());
        Some(Self {
            load_percent: load,
            rounds: off.len(),
            mean_ms: both(&mean),
            p99_ms: both(&|block| quantile(&block.responses_ms, 0.99)),
            all_idle: both(&|block| block.all_idle_share),
            updater: both(&|block| block.updater_share),
            response_ratio: pairs(&|off, on| mean(on) / mean(off)),
            all_idle_gain: pairs(&|off, on| (on.all_idle_share - off.all_idle_share) * 100.0),
            updater_lost: pairs(&|off, on| 1.0 - on.updater_share / off.updater_share),
            own_share: of_on(&|block| block.own_share),
            frozen: of_on(&|block| block.frozen_share),
        })
    }
}

fn mean(block: &Block) -> f64 {
    block.responses_ms.iter().sum::<f64>() / block.responses_ms.len() as f64
}

fn quantile(values: &[f64], quantile: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let (low, high) = (values.first().copied(), values.last().copied());
        let middle = values.len() / 2;
        let median = match values.len() {
            0 => f64::NAN,
            length if length % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        };
        Self(median, low.unwrap_or(f64::NAN), high.unwrap_or(f64::NAN))
    }

    fn text(self, factor: f64, digits: usize) -> String {
        let Self(median, low, high) = self;
        format!("{:.digits$} ({:.digits$}..{:.digits$})", median * factor, low * factor, high * factor)
    }
}

fn table(results: &Results) -> String {
    let head = [
        "updater",
        "rounds",
        "",
        "response ms",
        "p99 ms",
        "all idle %",
        "updater %",
        "frozen %",
        "own CPU %",
    ];
    let mut table = Table::new(3, head.map(str::to_owned).to_vec());
    for compared in &results.compared {
        for (at, word) in ["without", "with"].into_iter().enumerate() {
            let is_on = at == 1;
            let load = format!("{} %", compared.load_percent);
            table.row(vec![
                if is_on { String::new() } else { load },
                if is_on { String::new() } else { compared.rounds.to_string() },
                word.to_owned(),
                compared.mean_ms[at].text(1.0, 2),
                compared.p99_ms[at].text(1.0, 2),
                compared.all_idle[at].text(100.0, 1),
                compared.updater[at].text(100.0, 1),
                if is_on { compared.frozen.text(100.0, 1) } else { String::new() },
                if is_on { compared.own_share.text(100.0, 2) } else { String::new() },
            ]);
        }
        table.row(vec![
            String::new(),
            String::new(),
            "change".to_owned(),
            format!("x {}", compared.response_ratio.text(1.0, 4)),
            String::new(),
            format!("+{} pp", compared.all_idle_gain.text(1.0, 1)),
            format!("-{} %", compared.updater_lost.text(100.0, 0)),
        ]);
    }
    let mut text = format!("load before: {}; median (lowest..highest) over rounds\n", results.load_before);
    text += &table.text();
    text += "the paper, on a phone with an updater: 6 % less energy, no visible slowdown; no meter is read here, so only sleep is compared\n";
    if let Some(first) = results.compared.first() {
        let word = |met: bool| if met { "met" } else { "MISSED" };
        text += &format!(
            "at {} %: responses x {:.4}, bar {RESPONSE_BAR}: {}; all idle +{:.1} percentage points, bar {IDLE_BAR}: {}\n",
            first.load_percent,
            first.response_ratio.0,
            word(first.response_ratio.0 <= RESPONSE_BAR),
            first.all_idle_gain.0,
            word(first.all_idle_gain.0 >= IDLE_BAR)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(round: u32, quiesces: bool, response_ms: f64, idle: f64, updater: f64) -> Block {
        Block {
            load_percent: 30,
            round,
            quiesces,
            seconds: 1.0,
            responses_ms: vec![response_ms; 4],
            all_idle_share: idle,
            all_idle_per_s: 1.0,
            updater_share: updater,
            own_share: 0.001,
            frozen_share: 0.7,
            freezes: 3,
            cost_us: 30.0,
        }
    }

    #[test]
    fn rounds_are_compared_pair_by_pair_whatever_their_order() {
        let blocks = [
            block(0, false, 100.0, 0.5, 0.3),
            block(0, true, 101.0, 0.7, 0.1),
            block(1, true, 202.0, 0.9, 0.15),
            block(1, false, 200.0, 0.6, 0.3),
        ];
        let compared = Compared::of(&blocks, 30).unwrap();
        assert!((compared.response_ratio.0 - 1.01).abs() < 1e-9);
        assert!(
            (compared.all_idle_gain.0 - 25.0).abs() < 1e-9 && (compared.all_idle_gain.2 - 30.0).abs() < 1e-9
        );
        assert!((compared.updater_lost.1 - 0.5).abs() < 1e-9);
        assert!(Compared::of(&blocks, 40).is_none());
    }

    #[test]
    fn a_spread_is_median_lowest_and_highest() {
        let Spread(median, low, high) = Spread::of(vec![3.0, 1.0, 2.0, 10.0]);
        assert_eq!((median, low, high), (2.5, 1.0, 10.0));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.99), 4.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.0);
    }
}
