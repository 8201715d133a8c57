//! `roost-bench serve`: our store beside memcached, and beside other stores that are on the machine.
//!
//! Each round starts every contestant afresh, on the same CPUs with the same idle limits and the
//! same requests from the same generator, and takes the same figures of each. The servers' CPU time
//! per request is the figure to trust: throughput is often the generator's.

use super::contestant::{Contestant, Stable, Who};
use crate::exit::{Exit, coded, usage};
use crate::harness::figure::{Figure, Of, Target};
use crate::harness::{Measured, Output, Run, SEED};
use crate::rivals::{Program, Rival};
use anyhow::Result;
use clap::ValueEnum;
use linux::{IdleControl, IdleOptions, LimitState, Root};
use loadgen::{Interval, Items, Outcome, Pace, Plan};
use machine::{CpuId, CpuList, Duration, IdleLimit, Rate, Ratio};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use workload::{ArrivalKind, Profile, Workload};

/// Our store beside memcached and others: CPU time per request, throughput, tail, memory, idle wake-ups
///
/// Exit code 5: a target was missed. 6: too few valid runs to tell.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench serve --peer /usr/local/bin/memcached              five rounds, some ten minutes
  roost-bench serve --peer ./memcached --quick                   one short round, to see that it works
  roost-bench serve --peer ./memcached --server-cpus 0-3 --load-cpus 6,7
  roost-bench serve --peer ./memcached --peer ./pogocache --peer valkey-server --idle stock
  roost-bench serve --peer ./memcached --tls testdata/stage/localhost.pem testdata/stage/localhost.key.pem

Build a peer: https://memcached.org/downloads, then ./configure && make. Versions before 1.6.35 send one packet
for each pipelined get; beating them at depth 16 proves nothing, so they are refused unless --allow-old-peer.")]
pub struct Args {
    /// The memcached binary; once more for each other store: Pogocache, Valkey, Redis
    #[arg(long = "peer", value_name = "PATH", required = true)]
    peers: Vec<PathBuf>,
    /// Rounds, each of which measures every contestant once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// One short round: shows that it works, proves nothing
    #[arg(long)]
    quick: bool,
    /// CPUs for the servers, one worker for each [default: the first that is allowed]
    #[arg(long, value_name = "LIST")]
    server_cpus: Option<CpuList>,
    /// CPUs for the generator, one thread for each [default: the last that is allowed]
    #[arg(long, value_name = "LIST")]
    load_cpus: Option<CpuList>,
    /// Idle limits under which each pair is measured
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Idle::Stock, Idle::Limited])]
    idle: Vec<Idle>,
    /// Speak TLS, with this certificate and its key (PEM); the certificate is its own authority, and has
    /// the name localhost. The peer is one that was built with --enable-tls
    #[arg(long, num_args = 2, value_names = ["CERT", "KEY"])]
    tls: Option<Vec<PathBuf>>,
    /// Take a memcached older than 1.6.35
    #[arg(long)]
    allow_old_peer: bool,
    #[command(flatten)]
    output: Output,
}

/// How deep the servers' CPUs may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Idle {
    /// As the kernel likes
    Stock,
    /// No deeper than the shallowest halt
    Limited,
    /// Not at all: polling
    Poll,
}

struct Lengths {
    warm: Duration,
    closed: Duration,
    open: Duration,
    idle: Duration,
    /// Items before and after, for the slope of memory.
    items: (u64, u64),
}

/// Measures, writes the folder, prints the table.
pub fn run(args: &Args) -> Result<ExitCode> {
    let found = programs(args)?;
    let (server_cpus, load_cpus) = cpus(args)?;
    let mut run = Run::begin("serve", &args.output, SEED)?;
    let mut stable = Stable::of(found.memcached, server_cpus, MEMORY_MIB, run.folder())?;
    stable.rivals = found.rivals;
    let rivals = stable.rivals.keys().map(|&rival| Who::Rival(rival));
    let contestants: Vec<Who> = CONTESTANTS.into_iter().chain(rivals).collect();
    let lengths = if args.quick { QUICK } else { FULL };
    let tls = match args.tls.as_deref() {
        Some([certificate, key]) => {
            let client = tls::Client::new(certificate, "localhost").map_err(usage)?;
            let (certificate, key) = (certificate.clone(), key.clone());
            Some((tls::Identity { certificate, key, clients: None }, client))
        }
        _ => None,
    };
    let mut bench = Bench { stable, tls, load_cpus, lengths, notes: Vec::new() };
    let rounds = if args.quick { 1 } else { args.rounds };
    // Before anything is measured: another process may hold the CPUs, and a limit without effect is
    // left out.
    let mut idles = Vec::new();
    for idle in &args.idle {
        if bench.limit(*idle)?.is_some() {
            idles.push(*idle);
        }
    }
    let open_rate = bench.open_rate()?;
    for idle in idles {
        let Some(_limits) = bench.limit(idle)? else { continue };
        run.rounds(&idle.case(), rounds, &contestants, |&who, _| bench.block(who, open_rate))?;
    }
    // The scheduler keeps its items as the store without it does.
    let keepers: Vec<Who> = contestants.iter().copied().filter(|&who| who != Who::Peafowl).collect();
    run.rounds(MEMORY, 1, &keepers, |&who, _| bench.memory(who))?;
    found.versions.into_iter().for_each(|version| run.remark(version));
    run.remark(format!("servers on CPU {}, generator on CPU {}", bench.stable.cpus, bench.load_cpus));
    run.remark(format!(
        "{CONNECTIONS} connections, GET 90 / SET 10, {KEYS} keys of 20 B with values of 100 B; open loop at \
         {open_rate}"
    ));
    bench.notes.into_iter().for_each(|note| run.remark(note));
    if args.tls.is_some() {
        run.remark("all of them, and the generator, speak TLS");
    }
    run.end(&figures(args.tls.is_some(), &contestants))
}

/// The programs that were named with `--peer`.
struct Programs<'a> {
    memcached: &'a Path,
    rivals: BTreeMap<Rival, PathBuf>,
    /// One line for each of the programs.
    versions: Vec<String>,
}

fn programs(args: &Args) -> Result<Programs<'_>> {
    let (mut memcached, mut rivals, mut versions) = (None, BTreeMap::new(), Vec::new());
    for binary in &args.peers {
        match Program::of(binary)? {
            Program::Memcached(version @ (major, minor, patch)) => {
                if version < PEER_OLDEST && !args.allow_old_peer {
                    return Err(usage(format!(
                        "--peer {} is memcached {major}.{minor}.{patch}, which sends one packet for each \
                         pipelined get; take 1.6.35 or later, or say --allow-old-peer",
                        binary.display()
                    )));
                }
                if memcached.replace(&**binary).is_some() {
                    return Err(usage("--peer names memcached twice; leave one out"));
                }
                versions.push(format!("peer: memcached {major}.{minor}.{patch}"));
            }
            Program::Rivals(..) if args.tls.is_some() => {
                return Err(usage(format!(
                    "--peer {}: with --tls only memcached is measured; leave it out",
                    binary.display()
                )));
            }
            Program::Rivals(found, version) => {
                let name = found[0].name();
                if found.iter().any(|&rival| rivals.insert(rival, binary.clone()).is_some()) {
                    return Err(usage(format!("--peer names {name} twice; leave one out")));
                }
                versions.push(format!("{name} {version}"));
            }
        }
    }
    let memcached =
        memcached.ok_or_else(|| usage("the targets are multiples of memcached: add --peer MEMCACHED"))?;
    Ok(Programs { memcached, rivals, versions })
}

const CONTESTANTS: [Who; 3] = [Who::Peer, Who::AllAwake, Who::Peafowl];
const MEMORY: &str = "memory";

/// Targets hold at stock idle; elsewhere the figures are reported.
fn figures(is_tls: bool, contestants: &[Who]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for idle in [Idle::Stock, Idle::Limited, Idle::Poll] {
        let at = |target: f64| (idle == Idle::Stock).then_some(target);
        let [shallow, deep] = if is_tls { [1.05, 1.05] } else { [0.78, 0.55] };
        figures.extend(beside_peer("cpu_us_depth_1", "us", idle, [at(shallow), None]));
        figures.extend(beside_peer("cpu_us_depth_16", "us", idle, [at(deep), None]));
        figures.extend(beside_peer("rate_depth_1", "/s", idle, [None, None]));
        figures.extend(beside_peer("rate_depth_16", "/s", idle, [None, None]));
        figures.extend(beside_peer("open_p99_us", "us", idle, [at(1.0), at(1.25)]));
        figures.extend(contestants.iter().flat_map(|&who| beside_rival(who, idle)));
        for &who in contestants {
            let wakeups = Figure::new("idle_wakeups", "/s", Of::One(who.name())).in_case(idle.case());
            let is_judged = idle == Idle::Stock && matches!(who, Who::AllAwake | Who::Peafowl);
            figures.push(if is_judged { wakeups.at_most(3.0) } else { wakeups });
        }
    }
    for &who in contestants {
        let bytes = Figure::new("bytes_per_item", "B", Of::One(who.name()));
        figures.push(if who == Who::AllAwake { bytes.at_most(160.0) } else { bytes });
    }
    figures
}

/// Of roost as multiples of a rival, and of the rival itself. Targets hold for Pogocache in its
/// better way, so in each.
fn beside_rival(who: Who, idle: Idle) -> Vec<Figure> {
    let Who::Rival(rival) = who else { return Vec::new() };
    let is_judged = idle == Idle::Stock && matches!(rival, Rival::Pogocache | Rival::PogocacheEpoll);
    let of = |(metric, unit): (&'static str, &'static str)| {
        let ratio = Figure::new(metric, unit, Of::Ratio(Who::AllAwake.name(), who.name()));
        let is_cpu = metric.starts_with("cpu");
        let ratio = if is_judged && is_cpu { ratio.at_most(1.0) } else { ratio };
        [ratio, Figure::new(metric, unit, Of::One(who.name()))].map(|figure| figure.in_case(idle.case()))
    };
    let metrics = [
        ("cpu_us_depth_1", "us"),
        ("cpu_us_depth_16", "us"),
        ("rate_depth_1", "/s"),
        ("rate_depth_16", "/s"),
        ("open_p99_us", "us"),
    ];
    metrics.into_iter().flat_map(of).collect()
}

/// Of roost and of its scheduler, each with its target, as multiples of the peer.
fn beside_peer(
    metric: &'static str,
    unit: &'static str,
    idle: Idle,
    targets: [Option<f64>; 2],
) -> impl Iterator<Item = Figure> {
    let [peer, ours, scheduler] = CONTESTANTS.map(Who::name);
    let ratios = [ours, scheduler].into_iter().zip(targets).map(move |(who, target)| Figure {
        target: target.map(Target::AtMost),
        ..Figure::new(metric, unit, Of::Ratio(who, peer))
    });
    let each = CONTESTANTS.map(|who| Figure::new(metric, unit, Of::One(who.name())));
    ratios.chain(each).map(move |figure| figure.in_case(idle.case()))
}

impl Idle {
    fn case(self) -> String {
        format!("{self:?} idle").to_lowercase()
    }
}

/// The common state of all measurements.
struct Bench {
    stable: Stable,
    tls: Option<(tls::Identity, tls::Client)>,
    load_cpus: CpuList,
    lengths: Lengths,
    notes: Vec<String>,
}

impl Bench {
    /// The rate of the open loop, the same for all: half of the peer's maximum, or less if the
    /// generator cannot send that on time.
    fn open_rate(&mut self) -> Result<Rate> {
        let peer = self.start(Who::Peer)?;
        let fill = loadgen::fill(&self.plan(&peer, Pace::Closed { depth: 1 }, self.lengths.warm))?;
        let most = self.load(&peer, Pace::Closed { depth: 16 }, self.lengths.closed)?.achieved;
        self.notes.push(format!(
            "the peer reached {most} at depth 16 with {} of {} keys kept",
            fill.hits, fill.checked
        ));
        let half = most.scale(0.5);
        let mut rate = half;
        for _ in 0..OPEN_RATE_TRIES {
            if self.load(&peer, open(rate)?, self.lengths.open)?.valid {
                if rate < half {
                    self.notes
                        .push(format!("the generator cannot send half of that on time here: {rate} it can"));
                }
                return Ok(rate);
            }
            rate = rate.scale(0.7);
        }
        self.notes.push(format!(
            "the generator was late at every rate down to {rate}: this machine is busy with other things"
        ));
        Ok(rate)
    }

    fn start(&self, who: Who) -> Result<Contestant> {
        self.stable.start_with(who, self.tls.as_ref().map(|(identity, _)| identity))
    }

    /// One contestant, from its start to its idling.
    fn block(&self, who: Who, open_rate: Rate) -> Result<Measured> {
        let contestant = self.start(who)?;
        loadgen::fill(&self.plan(&contestant, Pace::Closed { depth: 1 }, self.lengths.warm))?;
        self.load(&contestant, Pace::Closed { depth: 16 }, self.lengths.warm)?;
        let mut metrics = Vec::new();
        for (depth, cpu, throughput) in
            [(1, "cpu_us_depth_1", "rate_depth_1"), (16, "cpu_us_depth_16", "rate_depth_16")]
        {
            let before = contestant.cpu_time()?;
            let outcome = self.load(&contestant, Pace::Closed { depth }, self.lengths.closed)?;
            let used = contestant.cpu_time()? - before;
            metrics.push((cpu, used.as_secs_f64() * 1e6 / outcome.counts.answered.max(1) as f64));
            metrics.push((throughput, outcome.achieved.as_per_second()));
        }
        let outcome = self.load(&contestant, open(open_rate)?, self.lengths.open)?;
        let p99_us = outcome.latency.p99.as_secs_f64() * 1e6;
        // A late generator spoils this metric of the block and no other.
        metrics.push(("open_p99_us", if outcome.valid { p99_us } else { f64::NAN }));
        metrics.extend((!outcome.valid).then_some(("open_p99_us_invalid", p99_us)));
        // No client is connected any more; the remaining end of the last connections is not
        // idling.
        std::thread::sleep(SETTLE);
        let sleeps = contestant.sleeps()?;
        std::thread::sleep(self.lengths.idle.into());
        let sleeps = (contestant.sleeps()? - sleeps) as f64 / self.lengths.idle.as_secs_f64();
        metrics.push(("idle_wakeups", sleeps));
        Ok(Measured::of(metrics))
    }

    /// Bytes of memory that each further item takes.
    fn memory(&mut self, who: Who) -> Result<Measured> {
        let (few, many) = self.lengths.items;
        let mut resident = [0u64; 2];
        for (bytes, items) in resident.iter_mut().zip([few, many]) {
            let contestant = self.start(who)?;
            let mut plan = self.plan(&contestant, Pace::Closed { depth: 1 }, self.lengths.warm);
            plan.asks.workload.keys = items;
            let fill = loadgen::fill(&plan)?;
            if fill.hits < fill.checked {
                let lost = fill.checked - fill.hits;
                self.notes.push(format!(
                    "{} lost {lost} of {} keys at {items} items",
                    who.name(),
                    fill.checked
                ));
            }
            *bytes = contestant.resident_bytes()?;
        }
        let slope = (resident[1] as f64 - resident[0] as f64) / (many - few) as f64;
        Ok(Measured::of([("bytes_per_item", slope)]))
    }

    /// Puts the servers' CPUs under a limit while the returned guard lives; none where it would
    /// change nothing.
    fn limit(&mut self, idle: Idle) -> Result<Option<Option<IdleControl>>> {
        if idle == Idle::Stock {
            return Ok(Some(None));
        }
        let cpus = self.stable.cpus.clone();
        let mut control = IdleControl::open(&Root::system(), &cpus, IdleOptions::new("roost-bench serve"))
            .map_err(|error| coded(Exit::Refused, error))?;
        for cpu in &cpus.0 {
            let limit = match idle {
                Idle::Poll => IdleLimit::ExitLatency(Duration::ZERO),
                _ => control.active_limit(*cpu),
            };
            let state = control.apply(*cpu, limit);
            if !matches!(state, LimitState::InForce { has_effect: true, .. }) {
                let note = format!("not measured at {idle:?} idle: on {cpu} the limit is {state}");
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
                return Ok(None);
            }
        }
        Ok(Some(Some(control)))
    }

    fn plan(&self, contestant: &Contestant, pace: Pace, length: Duration) -> Plan {
        Plan {
            tls: self.tls.as_ref().map(|(_, client)| client.clone()),
            connections: CONNECTIONS,
            threads: self.load_cpus.0.len() as u16,
            cpus: Some(self.load_cpus.clone()),
            length,
            // Warming is a run of its own, so that the server's CPU time covers exactly the
            // requests counted.
            warmup: Duration::ZERO,
            asks: Items {
                dialect: contestant.dialect(),
                ..Items::of(Workload { keys: KEYS, gets: Ratio::new(0.9), ..Workload::default() })
            },
            ..Plan::new(contestant.target(), pace)
        }
    }

    fn load(&self, contestant: &Contestant, pace: Pace, length: Duration) -> Result<Outcome> {
        let mut nobody = |_: &Interval<'_>| ControlFlow::Continue(());
        let outcome = loadgen::run(&self.plan(contestant, pace, length), &mut nobody)?;
        if outcome.is_broken() {
            return Err(coded(Exit::Failed, format!("a server failed under load:\n{outcome}")));
        }
        Ok(outcome)
    }
}

fn open(rate: Rate) -> Result<Pace> {
    Ok(Pace::Open { arrivals: ArrivalKind::Poisson, profile: Profile::constant(rate)? })
}

/// The servers' CPUs and the generator's.
fn cpus(args: &Args) -> Result<(CpuList, CpuList)> {
    let allowed = linux::allowed_cpus().map_err(usage)?;
    let only = |cpu: Option<&CpuId>| CpuList(cpu.copied().into_iter().collect());
    let servers = args.server_cpus.clone().unwrap_or_else(|| only(allowed.0.first()));
    let load = args.load_cpus.clone().unwrap_or_else(|| only(allowed.0.last()));
    linux::check_allowed(&servers, &allowed).map_err(|error| usage(format!("--server-cpus: {error}")))?;
    linux::check_allowed(&load, &allowed).map_err(|error| usage(format!("--load-cpus: {error}")))?;
    if let Some(both) = servers.0.intersection(&load.0).next() {
        return Err(usage(format!(
            "{both} cannot serve and load at once: choose --server-cpus and --load-cpus apart, on \
             a machine with at least two CPUs"
        )));
    }
    Ok((servers, load))
}

/// The first memcached that answers pipelined gets in one packet.
const PEER_OLDEST: (u32, u32, u32) = (1, 6, 35);
/// Enough for four million items of either.
const MEMORY_MIB: u64 = 2048;
const CONNECTIONS: u32 = 32;
const KEYS: u64 = 100_000;
/// Half of the peer's maximum, and then 0.7 of it each time.
const OPEN_RATE_TRIES: u32 = 4;
const SETTLE: std::time::Duration = std::time::Duration::from_millis(500);
const FULL: Lengths = Lengths {
    warm: Duration::from_millis(500),
    closed: Duration::from_secs(3),
    open: Duration::from_secs(5),
    idle: Duration::from_secs(5),
    items: (1_000_000, 4_000_000),
};
const QUICK: Lengths = Lengths {
    warm: Duration::from_millis(200),
    closed: Duration::from_millis(500),
    open: Duration::from_millis(500),
    idle: Duration::from_millis(500),
    items: (100_000, 400_000),
};
