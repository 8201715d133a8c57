//! `roost-bench hurry-up`: the cost of `roost govern hurry-up`, and the delay until a request that
//! entered has its clock.
//!
//! The governor is the real one, a child at real-time priority. The service is a child as well,
//! whose threads write slots as any server does. The clocks are files in memory, one for each CPU
//! of this machine, for it may have none. So the delay is that of everything but the hardware, and
//! the table says so. `lab/run hurry-up` shows the effect of the writes on a real kernel.
//!
//! | part | the service | figure |
//! |---|---|---|
//! | quiet | no thread inside | switches to a thread of the governor |
//! | held | every thread inside, in one call | CPU time of the governor and its programs |
//! | calls | every thread inside, in calls of 5 ms | the same |
//! | enters | all CPUs busy outside; a thread enters now and then | from its time until the write's return |

pub mod service;

use super::programs::{Statistics, program_time};
use crate::contestant::cpu_time;
use crate::exit::usage;
use crate::harness::figure::{Figure, Of};
use crate::harness::{Measured, Output, Run, SEED};
use anyhow::{Context as _, Result, bail};
use linux::EndsWithParent as _;
use machine::{CpuList, Duration};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use service::Manner;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;

/// Measure the cost of hurry-up, and the delay until a request that entered has its clock
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench hurry-up                                      all four parts, two minutes
  roost-bench hurry-up --out benches/runs/2026-11-22-intel-xeon-2cpu")]
pub struct Args {
    /// How long each part is measured
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    length: Duration,
    /// How long enters are timed
    #[arg(long, value_name = "TIME", default_value = "30s")]
    enters: Duration,
    /// Threads of the service
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=200))]
    threads: u32,
    /// Run the governor as an ordinary thread
    #[arg(long)]
    ordinary: bool,
    #[command(flatten)]
    output: Output,
}

/// Percent of one core, with every thread inside; the programs are counted beside it.
const CPU_TARGET: f64 = 3.0;
const DELAY_TARGET_US: f64 = 1_000.0;
/// The time from the start to the measurement, in which first learning settles.
const SETTLING: std::time::Duration = std::time::Duration::from_millis(1_500);
/// In this time other processes have disturbed the governor as often as it permits while no thread
/// is inside.
const REST: std::time::Duration = std::time::Duration::from_secs(20);

pub fn run(args: &Args) -> Result<ExitCode> {
    let _statistics = Statistics::on();
    let cpus = linux::allowed_cpus().map_err(usage)?;
    let mut run = Run::begin("hurry-up", &args.output, SEED)?;
    let case = format!("{} threads", args.threads);
    run.block(&case, 0, QUIET, quiet(args, &cpus)?)?;
    run.block(&case, 0, HELD, cost(args, &cpus, Manner::Held)?)?;
    run.block(&case, 0, CALLS, cost(args, &cpus, Manner::Calls)?)?;
    run.block(&case, 0, ENTERS, enters(args, &cpus)?)?;
    let kind = if args.ordinary { "as an ordinary thread" } else { "at real-time priority 1" };
    run.remark(format!("the governor ran {kind}; {QUIET}: after {} s of rest", REST.as_secs()));
    run.remark(
        "clocks are files in memory: the delay is the scheduler's and the governor's, not that of hardware",
    );
    let mut figures = vec![Figure::new("switches", "", Of::One(QUIET)).at_most(0.0)];
    for manner in [HELD, CALLS] {
        let of = |metric, unit| Figure::new(metric, unit, Of::One(manner));
        figures.push(of("governor_percent", "% of a core").at_most(CPU_TARGET));
        figures.extend([of("programs_percent", "% of a core"), of("looks_per_s", "/s"), of("writes", "")]);
    }
    figures.push(Figure::new("delay_p50_us", "us", Of::One(ENTERS)));
    figures.push(Figure::new("delay_p99_us", "us", Of::One(ENTERS)).at_most(DELAY_TARGET_US));
    figures.push(Figure::new("enters", "", Of::One(ENTERS)).at_least(1.0));
    run.end(&figures)
}

const QUIET: &str = "quiet";
const HELD: &str = "held";
const CALLS: &str = "calls";
const ENTERS: &str = "enters";

fn quiet(args: &Args, cpus: &CpuList) -> Result<Measured> {
    let mut pair = Pair::start(args, cpus, Manner::Quiet, &[])?;
    sleep(REST);
    let before = pair.switches()?;
    sleep(args.length.into());
    let switches = pair.switches()? - before;
    let looks = pair.end()?["looks"].as_f64().context("looks")?;
    Ok(Measured::of([("switches", switches as f64), ("looks", looks)]))
}

fn cost(args: &Args, cpus: &CpuList, manner: Manner) -> Result<Measured> {
    let mut pair = Pair::start(args, cpus, manner, &[])?;
    let governor = pair.governor.id();
    let (cpu, programs, began) = (cpu_time(governor)?, program_time(governor)?, linux::now());
    sleep(args.length.into());
    let seconds = linux::now().since(began).as_secs_f64();
    let percent = |after: Duration, before: Duration| (after - before).as_secs_f64() / seconds * 100.0;
    let governor_percent = percent(cpu_time(governor)?, cpu);
    // Beside that of its threads: the time of the switched thread.
    let programs_percent = percent(program_time(governor)?, programs);
    let last = pair.end()?;
    let field = |name: &'static str| last[name].as_f64().context(name);
    Ok(Measured::of([
        ("governor_percent", governor_percent),
        ("programs_percent", programs_percent),
        ("looks_per_s", field("looks")? / field("at_ms")? * 1e3),
        ("writes", field("writes")?),
    ]))
}

fn enters(args: &Args, cpus: &CpuList) -> Result<Measured> {
    // Every call is heavy at once, so that each enter raises a clock, however busy its CPU was
    // before.
    let mut pair = Pair::start(args, cpus, Manner::Enters, &["--threshold", "0ms"])?;
    sleep(args.enters.into());
    let last = pair.end()?;
    let delay = |at: usize| last["delay_us"][at].as_f64().context("no enter led to a write");
    let count = last["delays"].as_f64().context("delays")?;
    Ok(Measured::of([("enters", count), ("delay_p50_us", delay(0)?), ("delay_p99_us", delay(1)?)]))
}

struct Pair {
    service: Child,
    governor: Child,
    folder: tempfile::TempDir,
}

impl Pair {
    fn start(args: &Args, cpus: &CpuList, manner: Manner, flags: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).context("a folder")?;
        make_clocks(folder.path(), cpus)?;
        let roost = crate::product::roost()?;
        let slots = folder.path().join("slots");
        let manner = clap::ValueEnum::to_possible_value(&manner).context("its name")?;
        let mut service = Command::new(crate::product::own()?)
            .args(["hurry-up-service", "--manner", manner.get_name(), "--threads"])
            .arg(args.threads.to_string())
            .arg("--slots")
            .arg(&slots)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .context("the service")?;
        let mut line = String::new();
        BufReader::new(service.stdout.take().context("piped")?).read_line(&mut line)?;
        let mut governor = Command::new(&roost);
        governor.args(["govern", "hurry-up", "--take-over", "--slots"]).arg(&slots).args(flags);
        governor.arg("--root").arg(folder.path()).arg("--out").arg(folder.path().join("run"));
        if !args.ordinary {
            let file = folder.path().join("hurry-up.toml");
            std::fs::write(&file, "[[hurry_up]]\nrealtime = true\n").context("its configuration")?;
            governor.arg("--config").arg(file);
        }
        let governor = governor
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .context("the governor")?;
        let pair = Self { service, governor, folder };
        sleep(SETTLING);
        Ok(pair)
    }

    /// How often threads of the governor were switched to.
    fn switches(&self) -> Result<u64> {
        let mut switches = 0;
        for task in
            fs::read_dir(format!("/proc/{}/task", self.governor.id())).context("the governor has ended")?
        {
            let status = fs::read_to_string(task?.path().join("status"))?;
            let field = |name: &str| {
                status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
            };
            switches += field("voluntary_ctxt_switches:").context("switches")?;
            switches += field("nonvoluntary_ctxt_switches:").context("switches")?;
        }
        Ok(switches)
    }

    /// Ends both, and returns the governor's last status.
    fn end(&mut self) -> Result<Value> {
        let governor = Pid::from_child(&self.governor);
        kill_process(governor, Signal::TERM).context("the governor has ended by itself")?;
        let mut said = String::new();
        if let Some(mut stderr) = self.governor.stderr.take() {
            stderr.read_to_string(&mut said)?;
        }
        let status = self.governor.wait()?;
        if !status.success() {
            bail!("the governor failed: {said}");
        }
        if said.contains("ordinary thread") {
            eprintln!("{said}");
        }
        let path = self.folder.path().join("run/hurry-up.json");
        let text = fs::read_to_string(&path).with_context(|| format!("{}: {said}", path.display()))?;
        let told: Value = serde_json::from_str(&text)?;
        Ok(told["last"].clone())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for child in [&mut self.governor, &mut self.service] {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A clock for each CPU, with the frequencies of the paper's processor, under `userspace`.
fn make_clocks(root: &Path, cpus: &CpuList) -> Result<()> {
    for cpu in &cpus.0 {
        let folder = root.join(format!("sys/devices/system/cpu/cpufreq/policy{}", cpu.0));
        fs::create_dir_all(&folder)?;
        for (file, text) in [
            ("affected_cpus", cpu.0.to_string().as_str()),
            ("cpuinfo_min_freq", "1000000"),
            ("cpuinfo_max_freq", "2600000"),
            ("scaling_min_freq", "1000000"),
            ("scaling_max_freq", "2600000"),
            ("scaling_setspeed", "2600000"),
            ("scaling_governor", "userspace"),
            ("scaling_available_governors", "userspace performance"),
            ("scaling_available_frequencies", "2600000 2300000 2000000 1700000 1400000 1000000"),
        ] {
            fs::write(folder.join(file), format!("{text}\n"))?;
        }
    }
    fs::create_dir_all(root.join("run"))?;
    Ok(())
}
