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
use crate::exit::{Exit, usage};
use crate::machine_facts::this_machine;
use crate::table::print;
use anyhow::{Context as _, Result, bail};
use linux::EndsWithParent as _;
use machine::{CpuList, Duration};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde_json::Value;
use service::Manner;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
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
    /// Append the result as a line of JSON to hurry-up.jsonl in this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// The measurements.
#[derive(Debug, Serialize)]
struct Results {
    started: String,
    machine: report::run::Machine,
    load_before: String,
    threads: u32,
    realtime: bool,
    seconds: f64,
    /// With no thread inside: switches to a thread of the governor, and its looks.
    quiet_switches: u64,
    quiet_looks: u64,
    held: Cost,
    calls: Cost,
    /// From entering until the write had returned.
    enters: Delay,
}

/// Percent of one core.
#[derive(Debug, Serialize)]
struct Cost {
    governor_percent: f64,
    /// The cost of its programs in the kernel, in the time of the switched thread.
    programs_percent: f64,
    looks_per_second: f64,
    writes: u64,
}

#[derive(Debug, Serialize)]
struct Delay {
    count: u64,
    p50_us: f64,
    p99_us: f64,
}

/// Percent of one core, with every thread inside; the programs are counted beside it.
const CPU_BAR: f64 = 3.0;
/// us, p99.
const DELAY_BAR: f64 = 1_000.0;
/// The time from the start to the measurement, in which first learning settles.
const SETTLING: std::time::Duration = std::time::Duration::from_millis(1_500);
/// In this time other processes have disturbed the governor as often as it permits while no thread
/// is inside.
const REST: std::time::Duration = std::time::Duration::from_secs(20);

/// Does it.
pub fn run(args: &Args) -> Result<ExitCode> {
    let _statistics = Statistics::on();
    let cpus = linux::allowed_cpus().map_err(usage)?;
    let load_before = fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned();
    let (quiet_switches, quiet_looks) = quiet(args, &cpus)?;
    let held = cost(args, &cpus, Manner::Held)?;
    let calls = cost(args, &cpus, Manner::Calls)?;
    let enters = enters(args, &cpus)?;
    let results = Results {
        started: crate::run_folder::started()?,
        machine: this_machine(),
        load_before,
        threads: args.threads,
        realtime: !args.ordinary,
        seconds: args.length.as_secs_f64(),
        quiet_switches,
        quiet_looks,
        held,
        calls,
        enters,
    };
    if let Some(folder) = &args.out {
        super::append(folder, "hurry-up.jsonl", &results)?;
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&results)?))?;
    } else {
        print(&table(&results))?;
    }
    Ok(if is_met(&results).iter().all(|met| *met) { ExitCode::SUCCESS } else { Exit::GoalMissed.into() })
}

fn is_met(results: &Results) -> [bool; 4] {
    [
        results.quiet_switches == 0,
        results.held.governor_percent <= CPU_BAR,
        results.calls.governor_percent <= CPU_BAR,
        results.enters.count > 0 && results.enters.p99_us <= DELAY_BAR,
    ]
}

fn quiet(args: &Args, cpus: &CpuList) -> Result<(u64, u64)> {
    let mut pair = Pair::start(args, cpus, Manner::Quiet, &[])?;
    sleep(REST);
    let before = pair.switches()?;
    sleep(args.length.into());
    let switches = pair.switches()? - before;
    let looks = pair.end()?["looks"].as_u64().context("looks")?;
    Ok((switches, looks))
}

fn cost(args: &Args, cpus: &CpuList, manner: Manner) -> Result<Cost> {
    let mut pair = Pair::start(args, cpus, manner, &[])?;
    let (cpu, programs, began) = (pair.cpu_time()?, program_time(pair.governor.id())?, linux::now());
    sleep(args.length.into());
    let seconds = linux::now().since(began).as_secs_f64();
    let percent = |after: Duration, before: Duration| (after - before).as_secs_f64() / seconds * 100.0;
    let governor_percent = percent(pair.cpu_time()?, cpu);
    let programs_percent = percent(program_time(pair.governor.id())?, programs);
    let last = pair.end()?;
    let looks = last["looks"].as_u64().context("looks")?;
    let length_ms = last["at_ms"].as_f64().context("at_ms")?;
    Ok(Cost {
        governor_percent,
        programs_percent,
        looks_per_second: looks as f64 / length_ms * 1e3,
        writes: last["writes"].as_u64().context("writes")?,
    })
}

fn enters(args: &Args, cpus: &CpuList) -> Result<Delay> {
    // Every call is heavy at once, so that each enter raises a clock, however busy its CPU was
    // before.
    let mut pair = Pair::start(args, cpus, Manner::Enters, &["--threshold", "0ms"])?;
    sleep(args.enters.into());
    let last = pair.end()?;
    let delay = |at: usize| last["delay_us"][at].as_f64().context("no enter led to a write");
    Ok(Delay { count: last["delays"].as_u64().context("delays")?, p50_us: delay(0)?, p99_us: delay(1)? })
}

/// A service and its governor.
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
            governor.arg("--realtime");
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

    /// To the nanosecond, of all its threads.
    fn cpu_time(&self) -> Result<Duration> {
        let mut nanos = 0;
        for task in
            fs::read_dir(format!("/proc/{}/task", self.governor.id())).context("the governor has ended")?
        {
            let text = fs::read_to_string(task?.path().join("schedstat"))?;
            nanos +=
                text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).context("schedstat")?;
        }
        Ok(Duration::from_nanos(nanos))
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

fn table(results: &Results) -> String {
    let [quiet, held, calls, enters] = is_met(results).map(|met| if met { "met" } else { "MISSED" });
    let kind = if results.realtime { "at real-time priority 1" } else { "as an ordinary thread" };
    let mut text =
        format!("{} threads, the governor {kind}; load before: {}\n", results.threads, results.load_before);
    let _ = writeln!(
        text,
        "quiet   {} switches to the governor's threads in {:.0} s, the first {} s of rest apart; \
         bar 0: {quiet}",
        results.quiet_switches,
        results.seconds,
        REST.as_secs()
    );
    for (name, cost, verdict) in [("held", &results.held, held), ("calls", &results.calls, calls)] {
        let _ = writeln!(
            text,
            "{name:7} {:.2} % of a core, {:.0} looks/s, {} writes; its programs in the kernel \
             {:.2} % beside; bar {CPU_BAR} %: {verdict}",
            cost.governor_percent, cost.looks_per_second, cost.writes, cost.programs_percent
        );
    }
    let Delay { count, p50_us, p99_us } = results.enters;
    let _ = writeln!(
        text,
        "enters  {count}: p50 {p50_us:.0} us, p99 {p99_us:.0} us until the write had returned; bar \
         {DELAY_BAR:.0} us: {enters}"
    );
    text +=
        "clocks are files in memory: the delay is the scheduler's and the governor's, not that of hardware\n";
    text
}
