//! `roost-bench uprobe`: the cost of a call that is watched by uprobes (`observe::functions`).
//!
//! This program runs itself again as a child that calls one small function many times and says how
//! long that took, with probes of each kind and without. The figure is the difference of a round, by
//! call. An enter and an exit are two traps, each with a program of ours behind it.

use crate::exit::{Exit, coded};
use crate::harness::figure::{Figure, Of};
use crate::harness::{Measured, Output, Run};
use anyhow::{Context as _, Result};
use linux::EndsWithParent as _;
use linux::Root;
use observe::functions::{FunctionError, FunctionName, FunctionWatch};
use slots::Enable;
use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

/// Measure the cost of a call that is watched by uprobes
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench uprobe
  roost-bench uprobe --pairs 60 --out benches/runs/2026-11-22-intel-xeon-2cpu")]
pub struct Args {
    /// Rounds, each with a block without probes and a block with each kind of them
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(4..))]
    pairs: u32,
    /// Calls in a block
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1000..))]
    calls: u32,
    /// Seed of the blocks' order
    #[arg(long, value_name = "N", default_value_t = 20_261_122)]
    seed: u64,
    #[command(flatten)]
    output: Output,
    /// Be the program that is watched
    #[arg(long, hide = true)]
    child: bool,
}

/// Whether a kind of probes counts calls and times, and its action.
const KINDS: [(&str, Option<(bool, Enable)>); 4] = [
    ("without", None),
    ("slots", Some((false, Enable::On))),
    ("slots and exit times", Some((false, Enable::OnWithExitTimes))),
    ("slots, calls and times counted (roost hot)", Some((true, Enable::On))),
];

pub fn run(args: &Args) -> Result<ExitCode> {
    if args.child {
        return serve();
    }
    let mut watched = Watched::start()?;
    let mut run = Run::begin("uprobe", &args.output, args.seed)?;
    watched.ask(args.calls)?;
    run.rounds("", args.pairs, &KINDS.map(|(name, _)| name), |&name, _| {
        let probes = KINDS.iter().find(|(kind, _)| *kind == name).and_then(|(_, probes)| *probes);
        let watch = probes.map(|(tallies, enable)| watched.watch(tallies, enable)).transpose()?;
        let nanos = watched.ask(args.calls)?;
        watch.map_or(Ok(()), |watch| check(&watch, args.calls))?;
        Ok(Measured::of([("call", nanos)]))
    })?;
    run.end(&KINDS.map(|(name, probes)| {
        Figure::new("call", "ns", if probes.is_some() { Of::Added(name, "without") } else { Of::One(name) })
    }))
}

/// Every call must have been seen, or the figure is of something else.
fn check(watch: &FunctionWatch, calls: u32) -> Result<()> {
    let [enters, exits, unfit] = watch.probed();
    if (enters, exits, unfit) == (calls.into(), calls.into(), 0) {
        return Ok(());
    }
    Err(coded(Exit::Invalid, format!("of {calls} calls {enters} enters and {exits} exits were seen")))
}

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

    /// Gives nanoseconds for each call.
    fn ask(&mut self, calls: u32) -> Result<f64> {
        writeln!(self.input, "{calls}").context("asking the child")?;
        let mut line = String::new();
        self.output.read_line(&mut line).context("the child's answer")?;
        line.trim().parse().with_context(|| format!("the child said {line:?}"))
    }

    fn watch(&self, tallies: bool, enable: Enable) -> Result<FunctionWatch> {
        let name = FunctionName {
            binary: std::env::current_exe()?.to_string_lossy().into_owned(),
            symbol: concat!(module_path!(), "::called").to_owned(),
        };
        let watch =
            FunctionWatch::attach(&Root::system(), self.process.id(), &[name], tallies).map_err(|error| {
                match error {
                    FunctionError::Bpf(why) => coded(Exit::Unsupported, why),
                    error => error.into(),
                }
            })?;
        watch.reader()?.enable(enable)?;
        Ok(watch)
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

#[inline(never)]
fn called(number: u32) -> u32 {
    black_box(number).wrapping_mul(31)
}
