//! `roost-bench nic`: the store at a network card that interrupts, that workers poll, and whose
//! interrupts are put off.
//!
//! The card is one end of a pair of virtual devices (veth) with a queue of its own, in a network
//! namespace with the store; the other end, in another, is the generator's. The store has the first
//! half of the CPUs and the generator the second. Each block starts a store and asks it at a share of
//! its capacity, found once by asking without pause. Counted are the CPUs' busy time
//! (`linux::UsageMeter`), the store's CPU time, and the kernel's passes over received packets
//! (`/proc/softirqs`, NET_RX), each by request. The generator sleeps until each request is due.
//!
//! A pair of devices has no wire and no interrupt line: the CPU that sends a packet also takes it. A card
//! interrupts the store's CPU, so while it shall interrupt, packets are steered there (RPS, which
//! interrupts one CPU from another). So this tells the cost of each way with virtual interrupts, and not
//! that of a card's own.

use crate::contestant::{Ends, cpu_time};
use crate::exit::{Exit, usage};
use crate::harness::figure::{By, Figure, Of};
use crate::harness::{Measured, Output, Run, SEED};
use anyhow::{Context as _, Result, bail};
use linux::{EndsWithParent as _, Root, UsageMeter};
use machine::{CpuId, CpuList, Duration};
use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// Compare the ways in which packets reach the store
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench nic                                   root, iproute2 and ethtool, some 15 minutes
  roost-bench nic --rounds 2 --for 3s --loads 0.5")]
pub struct Args {
    /// Loads, as shares of the measured capacity
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', default_value = "0.1,0.5")]
    loads: Vec<f64>,
    /// So many blocks of each way are run
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long each block is under load
    #[arg(long = "for", value_name = "TIME", default_value = "8s")]
    length: Duration,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Interrupts,
    BusyPolling,
    Suspended,
}

impl Way {
    const ALL: [Self; 3] = [Self::Interrupts, Self::BusyPolling, Self::Suspended];

    fn name(self) -> &'static str {
        match self {
            Self::Interrupts => "interrupts",
            Self::BusyPolling => "busy polling",
            Self::Suspended => "suspended",
        }
    }

    /// The store's configuration. Busy polling as the method's paper has it: 200 us, and as long until
    /// the kernel looks.
    fn parameters(self) -> Option<&'static str> {
        match self {
            Self::Interrupts => None,
            Self::BusyPolling => {
                Some("[nic]\nsuspend = \"0s\"\nflush = \"200us\"\nlooks = 100\nbusy_poll = \"200us\"\n")
            }
            Self::Suspended => Some(""),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let cpus: Vec<_> = linux::allowed_cpus().map_err(usage)?.0.into_iter().collect();
    if cpus.len() < 2 {
        return Err(usage("bench nic needs two CPUs: one for the store, and one for the generator"));
    }
    let (ours, theirs) = cpus.split_at(cpus.len() / 2);
    let bench = Bench {
        wire: Wire::make()?,
        store: CpuList(ours.iter().copied().collect()),
        generator: CpuList(theirs.iter().copied().collect()),
        folder: tempfile::tempdir().context("a folder for the store's configuration")?,
    };
    let mut run = Run::begin("nic", &args.output, SEED)?;
    let closed = bench.block(Way::Interrupts, None, args.length)?;
    let capacity = closed.iter().find(|(name, _)| *name == RATE).map_or(0.0, |(_, rate)| *rate);
    run.remark(format!("{capacity:.0} requests/s at most"));
    for share in &args.loads {
        let case = format!("{:.0} % of capacity", share * 100.0);
        run.rounds(&case, args.rounds, &Way::ALL, |&way, _| {
            Ok(Measured::of(bench.block(way, Some(capacity * share), args.length)?))
        })?;
    }
    let mut figures = Vec::new();
    for way in [Way::Suspended, Way::BusyPolling] {
        for (metric, unit) in [("cpu_us", "us"), ("store_us", "us"), ("p50_us", "us"), ("p99_us", "us")] {
            let of = Of::Ratio(way.name(), Way::Interrupts.name());
            figures.push(Figure { by: By::IntervalEnd, ..Figure::new(metric, unit, of) });
        }
    }
    for way in Way::ALL {
        for (metric, unit) in [("cpu_us", "us"), ("p99_us", "us"), ("passes", "a request")] {
            figures.push(Figure::new(metric, unit, Of::One(way.name())));
        }
    }
    run.end(&figures)
}

const RATE: &str = "requests_per_s";

struct Bench {
    wire: Wire,
    store: CpuList,
    generator: CpuList,
    folder: tempfile::TempDir,
}

impl Bench {
    /// A store, and a load of `rate` or without pause.
    fn block(&self, way: Way, rate: Option<f64>, length: Duration) -> Result<Vec<(&'static str, f64)>> {
        let (store, target) = self.start(way)?;
        let load = |rate: Option<f64>, length: Duration| -> Result<serde_json::Value> {
            let mut command = Command::new(crate::product::roost()?);
            command.args([
                "load",
                &target,
                "--connections",
                "32",
                "--keys",
                "10000",
                "--json",
                "--spin",
                "0s",
            ]);
            command.args(["--warmup", "0s", "--for", &format!("{}ms", length.as_millis())]);
            command.args(["--cpus", &self.generator.to_string()]);
            match rate {
                Some(rate) => command.args(["--rate", &format!("{rate:.0}")]),
                None => command.args(["--arrivals", "closed:1"]),
            };
            let output = command.stdin(Stdio::null()).ends_with_parent().output().context("roost load")?;
            serde_json::from_slice(&output.stdout).context("the document of roost load")
        };
        // It fills the store, and the queues' settings take hold.
        let filled = Command::new(crate::product::roost()?)
            .args([
                "load",
                &target,
                "--keys",
                "10000",
                "--preload",
                "--rate",
                "1000",
                "--for",
                "500ms",
                "--json",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if !filled.success() && filled.code() != Some(i32::from(Exit::Invalid as u8)) {
            bail!("the store could not be filled: {filled}");
        }
        let all = linux::allowed_cpus()?;
        let mut meter = UsageMeter::start(&Root::system(), &all, linux::now());
        let (passes, used) = (passes(), cpu_time(store.0.id())?);
        let found = load(rate, length)?;
        let busy: f64 =
            meter.read(linux::now()).iter().filter_map(|cpu| cpu.busy).map(|busy| busy.as_secs_f64()).sum();
        let used = cpu_time(store.0.id())? - used;
        let passes = self::passes() - passes;
        let number = |place: &str| found.pointer(place).and_then(serde_json::Value::as_f64);
        let requests =
            number("/counts/answered").filter(|count| *count > 0.0).context("no request was answered")?;
        let micros = |place: &str| number(place).map(|nanos| nanos / 1e3);
        let figures = [
            (RATE, number("/achieved_per_s")),
            ("cpu_us", Some(busy * 1e6 / requests)),
            ("store_us", Some(used.as_secs_f64() * 1e6 / requests)),
            ("passes", Some(passes as f64 / requests)),
            ("p50_us", micros("/latency/p50_ns")),
            ("p99_us", micros("/latency/p99_ns")),
        ];
        Ok(figures.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
    }

    fn start(&self, way: Way) -> Result<(Ends, String)> {
        let first = self.store.0.first().context("a CPU of the store")?;
        self.wire.steer((way == Way::Interrupts).then_some(*first))?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", NAMESPACE]).arg(crate::product::roost()?).args(["serve"]);
        command.args(["--listen", THERE, "--port", "0", "--policy", "all-awake", "--memory-limit", "256m"]);
        command.args([
            "--active-idle",
            "stock",
            "--idle-actuator",
            "none",
            "--cpus",
            &self.store.to_string(),
        ]);
        if let Some(parameters) = way.parameters() {
            let file = self.folder.path().join("serve.toml");
            crate::run_folder::write(self.folder.path(), "serve.toml", |to| {
                std::io::Write::write_all(to, parameters.as_bytes())
            })?;
            command.args(["--nic-suspend", INSIDE, "--config"]).arg(file);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).ends_with_parent();
        let mut child = Ends(command.spawn().context("starting the store")?);
        let stdout = child.0.stdout.take().context("its output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let place = line.trim().strip_prefix("listening on ").context("the store did not begin")?;
        Ok((child, place.to_owned()))
    }
}

/// Passes of all CPUs over received packets so far.
fn passes() -> u64 {
    let text = std::fs::read_to_string("/proc/softirqs").unwrap_or_default();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("NET_RX:")).unwrap_or_default();
    line.split_whitespace().filter_map(|count| count.parse::<u64>().ok()).sum()
}

/// The names of the devices and of the inner one's namespace, and the addresses.
const OUTSIDE: &str = "roost-out";
const INSIDE: &str = "roost-in";
const NAMESPACE: &str = "roost-nic";
const HERE: &str = "10.213.87.1";
const THERE: &str = "10.213.87.2";

/// A pair of devices, one of them in a namespace of its own; all go with this.
struct Wire;

impl Wire {
    fn make() -> Result<Self> {
        let wire = Self;
        // An earlier run was killed perhaps.
        wire.remove();
        for line in [
            format!("ip netns add {NAMESPACE}"),
            format!("ip link add {OUTSIDE} type veth peer name {INSIDE} netns {NAMESPACE}"),
            format!("ip address add {HERE}/30 dev {OUTSIDE}"),
            format!("ip link set {OUTSIDE} up"),
            format!("ip -n {NAMESPACE} address add {THERE}/30 dev {INSIDE}"),
            format!("ip -n {NAMESPACE} link set {INSIDE} up"),
            format!("ip -n {NAMESPACE} link set lo up"),
            // Only so has it a queue that can be polled, and are packets put there (`veth_xmit`).
            format!("ip netns exec {NAMESPACE} ethtool -K {INSIDE} gro on"),
            format!("ethtool -K {OUTSIDE} tso off"),
        ] {
            let mut words = line.split(' ');
            let program = words.next().unwrap_or_default();
            let output = Command::new(program).args(words).output();
            let output =
                output.map_err(|cause| usage(format!("{program}: {cause}; install iproute2 and ethtool")))?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(usage(format!("`{line}`: {said}\nhint: as root, on a kernel with veth")));
            }
        }
        Ok(wire)
    }

    /// Received packets interrupt this CPU, or are left where they came.
    fn steer(&self, cpu: Option<CpuId>) -> Result<()> {
        if let Some(cpu) = cpu.filter(|cpu| cpu.index() >= 32) {
            bail!("packets are steered to one of the first 32 CPUs, and {cpu} is none");
        }
        let mask = cpu.map_or(0, |cpu| 1_u32 << cpu.index());
        let line = format!("echo {mask:x} > /sys/class/net/{INSIDE}/queues/rx-0/rps_cpus");
        let status = Command::new("ip").args(["netns", "exec", NAMESPACE, "sh", "-c", &line]).status()?;
        if !status.success() {
            bail!("packets cannot be steered (RPS): {status}");
        }
        Ok(())
    }

    fn remove(&self) {
        // A process that still ends there keeps the namespace, and with it the pair.
        let _ = Command::new("ip").args(["link", "delete", OUTSIDE]).stderr(Stdio::null()).status();
        if Path::new("/run/netns").join(NAMESPACE).exists() {
            let _ = Command::new("ip").args(["netns", "delete", NAMESPACE]).status();
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.remove();
    }
}
