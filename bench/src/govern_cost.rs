//! `roost-bench govern-cost`: the cost of governing a large machine.
//!
//! A server with 128 CPUs is made up: its files lie in memory, and this process advances their
//! counts once an epoch, as a kernel would. The daemon is the real one, a child with that folder as
//! its machine: it reads every CPU, runs the loop on premature sleeps, and sets idle limits; a
//! tenth of the CPUs changes its limit each epoch. Beside it stands a real memcached under load,
//! whose requests the daemon counts by its programs in the kernel. It records, and is scraped once
//! an epoch.
//!
//! Counted are the CPU time of all threads of the daemon, the time of its programs in the kernel
//! (`kernel.bpf_stats_enabled`, put back in the end), and the most memory that it ever had. A file
//! in memory is read somewhat faster than one of sysfs, whose text the kernel makes at each
//! reading: the table says so.

use super::contestant::{Stable, Who, cpu_time};
use super::programs::{Statistics, program_time};
use crate::exit::usage;
use crate::harness::figure::{Figure, Of};
use crate::harness::{Measured, Output, Run, SEED};
use anyhow::{Context as _, Result, bail};
use linux::EndsWithParent as _;
use loadgen::{Items, Pace, Plan};
use machine::{Duration, Rate};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use workload::{ArrivalKind, Shape, Workload};

/// Measure the cost of governing a machine of many CPUs
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench govern-cost                        128 CPUs, five minutes
  roost-bench govern-cost --cpus 16 --for 30s --out benches/runs/2026-11-22-intel-xeon-2cpu")]
pub struct Args {
    /// The memcached
    #[arg(long, value_name = "FILE", default_value = "memcached")]
    peer: PathBuf,
    /// CPUs of the machine that is made up
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(2..=1024))]
    cpus: u16,
    /// How long it is measured
    #[arg(long = "for", value_name = "TIME", default_value = "300s")]
    length: Duration,
    /// Requests to the real server beside it
    #[arg(long, value_name = "RATE", default_value = "5k", value_parser = workload::parse_rate)]
    rate: Rate,
    #[command(flatten)]
    output: Output,
}

/// Percent of one core, programs included.
const CPU_TARGET: f64 = 0.5;
const MEMORY_TARGET_MIB: f64 = 40.0;

pub fn run(args: &Args) -> Result<ExitCode> {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).context("a folder")?;
    let machine = Machine::make(folder.path(), args.cpus)?;
    let stable = Stable::of(&args.peer, linux::allowed_cpus().map_err(usage)?, 64, folder.path())?;
    let server = stable.start(Who::Peer)?;
    machine.show_process(server.process())?;
    let _statistics = Statistics::on();
    let daemon = Daemon::start(&stable.ours, folder.path(), server.port().context("no TCP port")?)?;
    machine.show_process(daemon.child.id())?;
    let plan = Plan {
        connections: 16,
        length: args.length + Duration::from_secs(5),
        asks: Items::of(Workload { keys: 1_000, ..Workload::default() }),
        ..Plan::new(
            server.target(),
            Pace::Open {
                arrivals: ArrivalKind::Poisson,
                profile: Shape::constant().profile(Some(args.rate), args.length, 1.0).map_err(usage)?,
            },
        )
    };
    loadgen::fill(&plan)?;
    let mut run = Run::begin("govern-cost", &args.output, SEED)?;
    let over = AtomicBool::new(false);
    let (measured, outcome) = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            loadgen::run(&plan, &mut |_| {
                if over.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        });
        let measured = measure(args, &daemon, &machine);
        over.store(true, Ordering::Relaxed);
        (measured, load.join().expect("the generator does not panic"))
    });
    let (mut measured, outcome) = (measured?, outcome?);
    measured.push(("requests_per_second", outcome.achieved.as_per_second()));
    run.block(&format!("{} CPUs", args.cpus), 0, GOVERNED, Measured::of(measured))?;
    daemon.stop()?;
    run.remark("the machine's files lie in memory: those of sysfs cost somewhat more to read");
    let of = |metric, unit| Figure::new(metric, unit, Of::One(GOVERNED));
    run.end(&[
        of("cpu_percent", "% of a core").at_most(CPU_TARGET),
        of("daemon_percent", "% of a core"),
        of("programs_percent", "% of a core"),
        of("peak_mib", "MiB").at_most(MEMORY_TARGET_MIB),
        of("changes_per_epoch", "limits"),
        of("requests_per_second", "/s"),
        of("scraped_bytes", "B"),
        of("recorded_bytes_per_epoch", "B"),
    ])
}

const GOVERNED: &str = "governed";

/// Epochs pass, counts advance, and a client scrapes.
fn measure(args: &Args, daemon: &Daemon, machine: &Machine) -> Result<Vec<(&'static str, f64)>> {
    let second = std::time::Duration::from_secs(1);
    let mut next = std::time::Instant::now();
    let mut turn = |epoch: u64| -> Result<usize> {
        next += second;
        std::thread::sleep(next.saturating_duration_since(std::time::Instant::now()));
        machine.advance(epoch)?;
        daemon.scrape()
    };
    // The cost of the start is no cost per epoch.
    for epoch in 0..5 {
        turn(epoch)?;
    }
    let epochs = args.length.as_nanos() / 1_000_000_000;
    let began = std::time::Instant::now();
    let before = (cpu_time(daemon.child.id())?, program_time(daemon.child.id())?);
    let (changes_before, recorded_before) = (daemon.changes()?, daemon.recorded()?);
    let mut scraped = 0;
    for epoch in 0..epochs {
        scraped = turn(5 + epoch)?;
        if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            crate::print::over(std::io::stderr(), &format!("{} of {epochs} s", epoch + 1));
        }
    }
    eprintln!();
    let elapsed = began.elapsed().as_secs_f64();
    let percent = |now: Duration, before: Duration| (now - before).as_secs_f64() / elapsed * 100.0;
    let daemon_percent = percent(cpu_time(daemon.child.id())?, before.0);
    let programs_percent = percent(program_time(daemon.child.id())?, before.1);
    let changes = daemon.changes()? - changes_before;
    let recorded = daemon.recorded()? - recorded_before;
    Ok(vec![
        ("seconds", elapsed),
        ("changes_per_epoch", changes as f64 / epochs as f64),
        ("scraped_bytes", scraped as f64),
        ("recorded_bytes_per_epoch", recorded as f64 / epochs as f64),
        ("daemon_percent", daemon_percent),
        ("programs_percent", programs_percent),
        ("cpu_percent", daemon_percent + programs_percent),
        ("peak_mib", peak_memory(daemon.child.id())?),
    ])
}

/// The daemon that is measured. It ends when this is dropped.
struct Daemon {
    child: Child,
    folder: PathBuf,
    metrics: String,
}

impl Daemon {
    fn start(ours: &Path, folder: &Path, port: u16) -> Result<Self> {
        let config = folder.join("roost.toml");
        fs::write(
            &config,
            format!(
                "epoch = \"1s\"\nsocket = \"{0}/govern.sock\"\nmetrics = \"127.0.0.1:0\"\nrecord = \"{0}/record\"\n\
                 audit = \"{0}/audit.jsonl\"\n[[service]]\nname = \"cache\"\nport = {port}\npolicy = \"fixed\"\n\
                 idle = \"feedback\"\nactuator = \"affinity\"\n",
                folder.display()
            ),
        )?;
        fs::create_dir_all(folder.join("record"))?;
        let log = folder.join("govern.log");
        let child = Command::new(ours)
            .args(["daemon", "--take-over", "--config"])
            .arg(&config)
            .arg("--root")
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .ends_with_parent()
            .spawn()
            .context("starting the daemon")?;
        let mut daemon = Self { child, folder: folder.to_owned(), metrics: String::new() };
        let asked = std::time::Instant::now();
        while asked.elapsed() < std::time::Duration::from_secs(20) {
            let said = fs::read_to_string(&log)?;
            let place = said
                .lines()
                .find_map(|line| line.strip_prefix("metrics on http://")?.strip_suffix("/metrics"));
            if let (Some(place), true) = (place, folder.join("govern.sock").exists()) {
                daemon.metrics = place.to_owned();
                return Ok(daemon);
            }
            if daemon.child.try_wait()?.is_some() {
                bail!("the daemon ended:\n{said}");
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        bail!("the daemon did not begin:\n{}", fs::read_to_string(&log)?)
    }

    fn scrape(&self) -> Result<usize> {
        let mut stream = TcpStream::connect(&self.metrics).context("the daemon's metrics")?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer.len())
    }

    fn changes(&self) -> Result<usize> {
        Ok(fs::read_to_string(self.folder.join("audit.jsonl")).context("the daemon's audit")?.lines().count())
    }

    fn recorded(&self) -> Result<u64> {
        let files = fs::read_dir(self.folder.join("record")).context("the daemon's recording")?;
        Ok(files.flatten().filter_map(|file| Some(file.metadata().ok()?.len())).sum())
    }

    fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the daemon ended with {status}:\n{}", fs::read_to_string(self.folder.join("govern.log"))?);
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Names, exit latencies and target residencies of Skylake-SP, in us.
const STATES: [(&str, u64, u64); 4] = [("POLL", 0, 0), ("C1", 2, 2), ("C1E", 10, 20), ("C6", 133, 600)];
/// A CPU's sleeps are premature in one epoch of so many: its limit goes down then, and up again
/// after some good ones. Two changes in twenty epochs are a tenth of the CPUs in each.
const PERIOD: u64 = 20;
/// Sleeps of each state in an epoch.
const SLEEPS: u64 = 1000;

/// A machine that is made up.
struct Machine {
    root: PathBuf,
    /// Of each CPU and each state: usage, time, above.
    counts: Vec<Vec<[File; 3]>>,
    stat: File,
}

impl Machine {
    /// Two sockets, two threads to a core.
    fn make(root: &Path, cpus: u16) -> Result<Self> {
        let write = |path: &Path, text: &str| -> std::io::Result<()> {
            fs::create_dir_all(path.parent().expect("it is below the root"))?;
            fs::write(path, text)
        };
        let system = root.join("sys/devices/system/cpu");
        write(&system.join("online"), &format!("0-{}\n", cpus - 1))?;
        write(&system.join("cpuidle/current_driver"), "intel_idle\n")?;
        write(&system.join("cpuidle/current_governor"), "menu\n")?;
        let mut counts = Vec::new();
        for cpu in 0..cpus {
            let folder = system.join(format!("cpu{cpu}"));
            write(&folder.join("power/pm_qos_resume_latency_us"), "0\n")?;
            write(&folder.join("topology/core_id"), &format!("{}\n", cpu / 2))?;
            write(&folder.join("topology/physical_package_id"), &format!("{}\n", 2 * cpu / cpus))?;
            let mut of_cpu = Vec::new();
            for (index, (name, latency, residency)) in STATES.iter().enumerate() {
                let state = folder.join(format!("cpuidle/state{index}"));
                for (file, text) in [
                    ("name", (*name).to_owned()),
                    ("latency", latency.to_string()),
                    ("residency", residency.to_string()),
                    ("default_status", "enabled".to_owned()),
                ] {
                    write(&state.join(file), &format!("{text}\n"))?;
                }
                for file in ["time", "usage", "above", "below", "rejected", "disable"] {
                    write(&state.join(file), "0\n")?;
                }
                let open = |file: &str| File::options().write(true).open(state.join(file));
                of_cpu.push([open("usage")?, open("time")?, open("above")?]);
            }
            counts.push(of_cpu);
        }
        // The processes and their sockets are the real ones.
        fs::create_dir_all(root.join("proc"))?;
        for name in ["net", "mounts", "self", "sys", "version", "cmdline"] {
            symlink(Path::new("/proc").join(name), root.join("proc").join(name))?;
        }
        for name in ["kernel", "fs"] {
            symlink(Path::new("/sys").join(name), root.join("sys").join(name))?;
        }
        fs::create_dir_all(root.join("run"))?;
        fs::write(root.join("proc/stat"), "")?;
        let stat = File::options().write(true).open(root.join("proc/stat"))?;
        let machine = Self { root: root.to_owned(), counts, stat };
        machine.advance(0)?;
        Ok(machine)
    }

    /// This process can be seen there.
    fn show_process(&self, process: u32) -> Result<()> {
        let name = process.to_string();
        Ok(symlink(Path::new("/proc").join(&name), self.root.join("proc").join(&name))?)
    }

    /// An epoch has passed: every CPU slept in every state and was busy for a tenth of the time.
    fn advance(&self, epoch: u64) -> Result<()> {
        let mut stat = String::from("cpu  0 0 0 0 0 0 0\n");
        for (cpu, states) in (0u64..).zip(&self.counts) {
            let premature = (epoch + cpu) / PERIOD * SLEEPS;
            for [usage, time, above] in states {
                let put = |file: &File, value: u64| file.write_all_at(format!("{value}\n").as_bytes(), 0);
                put(usage, (epoch + 1) * SLEEPS)?;
                put(time, (epoch + 1) * 900_000 / STATES.len() as u64)?;
                put(above, premature)?;
            }
            let idle = (epoch + 1) * 90;
            writeln!(stat, "cpu{cpu} {} 0 0 {idle} 0 0 0 0 0 0", (epoch + 1) * 10)?;
        }
        Ok(self.stat.write_all_at(stat.as_bytes(), 0)?)
    }
}

/// The most memory that a process had, in MiB.
fn peak_memory(process: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM in its status")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().context("VmHWM is no number")?;
    Ok(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::Root;

    #[test]
    fn the_machine_reads_as_one_and_a_tenth_of_its_cpus_is_premature() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::make(folder.path(), 40).unwrap();
        let root = Root::at(folder.path());
        let cpus = linux::online_cpus(&root).unwrap();
        assert_eq!(cpus.0.len(), 40);
        assert_eq!(linux::idle_table(&root, machine::CpuId(39)).unwrap().0.len(), STATES.len());
        let mut sleeps = linux::IdleMisprediction::start(&root, &cpus);
        let mut premature = 0;
        for epoch in 1..=PERIOD {
            machine.advance(epoch).unwrap();
            premature += sleeps.read().values().filter(|share| share.as_f64() > 0.25).count();
        }
        assert_eq!(premature, 40, "each CPU once in a period");
    }
}
