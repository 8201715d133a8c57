//! `roost-bench uprobe`: the cost of a call that is watched by uprobes (`observe::functions`).
//!
//! This program runs itself again as a child that calls one small function many times and says how
//! long that took. Blocks with and without probes come in pairs, the order drawn from a seed, so
//! that a pair differs by the probes alone; the figure is the difference of a pair, by call. An
//! enter and an exit are two traps, each with a program of ours behind it.

use crate::exit::{Exit, coded};
use crate::machine_facts::this_machine;
use crate::table::{Table, print};
use anyhow::{Context as _, Result};
use linux::EndsWithParent as _;
use linux::Root;
use observe::functions::{FunctionError, FunctionName, FunctionWatch};
use serde::Serialize;
use slots::Enable;
use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use workload::Random;

/// Measure the cost of a call that is watched by uprobes
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench uprobe
  roost-bench uprobe --pairs 60 --out benches/runs/2026-11-22-intel-xeon-2cpu")]
pub struct Args {
    /// Pairs of blocks, one with probes and one without, for each kind
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(4..))]
    pairs: u32,
    /// Calls in a block
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1000..))]
    calls: u32,
    /// Seed of the blocks' order
    #[arg(long, value_name = "N", default_value_t = 20_261_122)]
    seed: u64,
    /// Append the results as lines of JSON to uprobe.jsonl in this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Be the program that is watched
    #[arg(long, hide = true)]
    child: bool,
}

/// The action of the probes.
const KINDS: [(&str, bool, Enable); 3] = [
    ("slots", false, Enable::On),
    ("slots and exit times", false, Enable::OnWithExitTimes),
    ("slots, calls and times counted (roost hot)", true, Enable::On),
];

#[derive(Debug, Serialize)]
struct Results {
    started: String,
    machine: report::run::Machine,
    kind: &'static str,
    calls: u32,
    seed: u64,
    /// Of each pair, a call without probes and with, in the order in which they were measured.
    pairs_ns: Vec<[f64; 2]>,
    /// The middle of the pairs' differences, and where the middle half of them ends.
    added_ns: [f64; 3],
}

/// Does it.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.child {
        return serve();
    }
    let mut watched = Watched::start()?;
    let mut order = Random::new(args.seed, 0);
    let mut all = Vec::new();
    watched.ask(args.calls)?;
    for (kind, tallies, enable) in KINDS {
        let mut pairs_ns = Vec::new();
        for _ in 0..args.pairs {
            let mut pair = [0.0; 2];
            let first = usize::from(order.unit() < 0.5);
            for with in [first, 1 - first] {
                pair[with] = if with == 1 {
                    let watch = watched.watch(tallies)?;
                    watch.reader()?.enable(enable)?;
                    let nanos = watched.ask(args.calls)?;
                    check(&watch, args.calls)?;
                    nanos
                } else {
                    watched.ask(args.calls)?
                };
            }
            pairs_ns.push(pair);
        }
        let mut added: Vec<f64> = pairs_ns.iter().map(|pair| pair[1] - pair[0]).collect();
        added.sort_by(f64::total_cmp);
        let at = |share: f64| added[((added.len() - 1) as f64 * share).round() as usize];
        let results = Results {
            started: crate::run_folder::started()?,
            machine: this_machine(),
            kind,
            calls: args.calls,
            seed: args.seed,
            added_ns: [at(0.5), at(0.25), at(0.75)],
            pairs_ns,
        };
        if let Some(folder) = &args.out {
            super::append(folder, "uprobe.jsonl", &results)?;
        }
        all.push(results);
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["what is kept", "added to a call", "half of the pairs", "pairs"];
    let mut table = Table::new(1, head.map(str::to_owned).to_vec());
    for results in &all {
        let [middle, low, high] = results.added_ns;
        let half = format!("{low:.0} to {high:.0} ns");
        table.row(vec![
            results.kind.to_owned(),
            format!("{middle:.0} ns"),
            half,
            results.pairs_ns.len().to_string(),
        ]);
    }
    print(&table.text())?;
    Ok(ExitCode::SUCCESS)
}

/// Every call must have been seen, or the figure is of something else.
fn check(watch: &FunctionWatch, calls: u32) -> Result<()> {
    let [enters, exits, unfit] = watch.probed();
    if (enters, exits, unfit) == (calls.into(), calls.into(), 0) {
        return Ok(());
    }
    Err(coded(Exit::Invalid, format!("of {calls} calls {enters} enters and {exits} exits were seen")))
}

/// The child.
struct Watched {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Watched {
    fn start() -> Result<Self> {
        let own = crate::product::own()?;
        let mut process = Command::new(own)
            .args(["uprobe", "--child"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .context("running this program again")?;
        let (input, output) =
            (process.stdin.take().context("piped")?, process.stdout.take().context("piped")?);
        Ok(Self { process, input, output: BufReader::new(output) })
    }

    /// Nanoseconds a call.
    fn ask(&mut self, calls: u32) -> Result<f64> {
        writeln!(self.input, "{calls}").context("asking the child")?;
        let mut line = String::new();
        self.output.read_line(&mut line).context("the child's answer")?;
        line.trim().parse().with_context(|| format!("the child said {line:?}"))
    }

    fn watch(&self, tallies: bool) -> Result<FunctionWatch> {
        let name = FunctionName {
            binary: std::env::current_exe()?.to_string_lossy().into_owned(),
            symbol: concat!(module_path!(), "::called").to_owned(),
        };
        FunctionWatch::attach(&Root::system(), self.process.id(), &[name], tallies).map_err(|error| {
            match error {
                FunctionError::Bpf(why) => coded(Exit::Unsupported, why),
                error => error.into(),
            }
        })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Calls as often as each line says, and answers with nanoseconds a call.
fn serve() -> Result<ExitCode> {
    for line in std::io::stdin().lines() {
        let calls: u32 = line.context("a line")?.trim().parse().context("a number of calls")?;
        let began = linux::now();
        for call in 0..calls {
            black_box(called(black_box(call)));
        }
        println!("{}", linux::now().since(began).as_nanos() as f64 / f64::from(calls));
    }
    Ok(ExitCode::SUCCESS)
}

/// The function that is watched.
#[inline(never)]
fn called(number: u32) -> u32 {
    black_box(number).wrapping_mul(31)
}
