//! `roost-bench serve`: our store beside memcached.
//!
//! Each round starts every contestant afresh, in an order that turns from round to round, on the
//! same CPUs with the same idle limits and the same requests from the same generator, and takes the
//! same figures of each. The servers' CPU time per request is the figure to trust: throughput is
//! often the generator's.

use super::contestant::{Contestant, Stable, Who, version_of};
use super::verdict::{Figure, Record, Summary};
use crate::exit::{Exit, coded, usage};
use crate::machine_facts::this_machine;
use crate::{harness, run_folder};
use anyhow::Result;
use clap::ValueEnum;
use linux::{IdleControl, IdleOptions, LimitState, Root};
use loadgen::{Interval, Items, Outcome, Pace, Plan};
use machine::{CpuId, CpuList, Duration, IdleLimit, Rate, Ratio};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use workload::{ArrivalKind, Profile, Workload};

/// Our store beside a memcached: CPU time per request, throughput, tail, memory, idle wake-ups
///
/// Exit code 5: a bar was missed. 6: too few valid runs to tell.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench serve --peer /usr/local/bin/memcached              five rounds, some ten minutes
  roost-bench serve --peer ./memcached --quick                   one short round, to see that it works
  roost-bench serve --peer ./memcached --server-cpus 0-3 --load-cpus 6,7

Build a peer: https://memcached.org/downloads, then ./configure && make. Versions before 1.6.35 send one packet
for each pipelined get; beating them at depth 16 proves nothing, so they are refused unless --allow-old-peer.")]
pub struct Args {
    /// The memcached binary
    #[arg(long, value_name = "PATH")]
    peer: PathBuf,
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
    /// Take a memcached older than 1.6.35
    #[arg(long)]
    allow_old_peer: bool,
    /// Folder for raw data and summary [default: benches/runs/DATE-MACHINE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// How deep the servers' CPUs may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Idle {
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
    let version = version_of(&args.peer)?;
    if version < PEER_OLDEST && !args.allow_old_peer {
        let (major, minor, patch) = version;
        return Err(usage(format!(
            "--peer {} is memcached {major}.{minor}.{patch}, which sends one packet for each \
             pipelined get; take 1.6.35 or \
             later, or say --allow-old-peer",
            args.peer.display()
        )));
    }
    let (server_cpus, load_cpus) = cpus(args)?;
    let machine = this_machine();
    let date = run_folder::started()?;
    let folder = harness::folder(args.out.as_deref(), &date, &machine);
    run_folder::create(&folder)?;
    let stable = Stable {
        peer: args.peer.clone(),
        ours: crate::product::roost()?,
        cpus: server_cpus,
        memory_mib: MEMORY_MIB,
        folder: folder.clone(),
    };
    let mut bench = Bench {
        stable,
        load_cpus,
        lengths: if args.quick { QUICK } else { FULL },
        record: Record::create(&folder)?,
        notes: Vec::new(),
    };
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
    for round in 0..rounds {
        for idle in &idles {
            bench.round(round, *idle, open_rate)?;
        }
    }
    for who in [Who::Peer, Who::AllAwake] {
        bench.memory(who)?;
    }
    let mut summary = Summary::of(bench.record.figures());
    summary.conditions = [
        format!("date: {date}"),
        format!("machine: {}", harness::describe(&machine)),
        format!("peer: memcached {}.{}.{}", version.0, version.1, version.2),
        format!("ours: roost {}", env!("CARGO_PKG_VERSION")),
        format!("servers on CPU {}, generator on CPU {}", bench.stable.cpus, bench.load_cpus),
        format!(
            "{rounds} rounds; {CONNECTIONS} connections, GET 90 / SET 10, {KEYS} keys of 20 B \
                 with values of 100 B"
        ),
        format!("open loop at {open_rate}"),
    ]
    .into_iter()
    .chain(bench.notes)
    .collect();
    summary.write(&folder)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        print!("{summary}");
        println!("raw data: {}", folder.display());
    }
    Ok(summary.exit_code())
}

/// The common state of all measurements.
struct Bench {
    stable: Stable,
    load_cpus: CpuList,
    lengths: Lengths,
    record: Record,
    notes: Vec<String>,
}

impl Bench {
    /// The rate of the open loop, the same for all: half of the peer's maximum, or less if the
    /// generator cannot send that on time.
    fn open_rate(&mut self) -> Result<Rate> {
        let peer = self.stable.start(Who::Peer)?;
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

    /// Every contestant once, under one idle limit.
    fn round(&mut self, round: u32, idle: Idle, open_rate: Rate) -> Result<()> {
        let Some(_limits) = self.limit(idle)? else { return Ok(()) };
        let mut order = [Who::Peer, Who::AllAwake, Who::Peafowl];
        let first = round as usize % order.len();
        order.rotate_left(first);
        for who in order {
            eprintln!("round {}: {}, {idle:?} idle", round + 1, who.name());
            let contestant = self.stable.start(who)?;
            loadgen::fill(&self.plan(&contestant, Pace::Closed { depth: 1 }, self.lengths.warm))?;
            self.load(&contestant, Pace::Closed { depth: 16 }, self.lengths.warm)?;
            for (depth, cpu, throughput) in
                [(1, Figure::CpuDepth1, Figure::RateDepth1), (16, Figure::CpuDepth16, Figure::RateDepth16)]
            {
                let before = contestant.cpu_time()?;
                let outcome = self.load(&contestant, Pace::Closed { depth }, self.lengths.closed)?;
                let used = contestant.cpu_time()? - before;
                let per_request_us = used.as_secs_f64() * 1e6 / outcome.counts.answered.max(1) as f64;
                self.record.add(round, idle, who, cpu, per_request_us, true)?;
                self.record.add(round, idle, who, throughput, outcome.achieved.as_per_second(), true)?;
            }
            let outcome = self.load(&contestant, open(open_rate)?, self.lengths.open)?;
            let p99_us = outcome.latency.p99.as_secs_f64() * 1e6;
            self.record.add(round, idle, who, Figure::TailOpen, p99_us, outcome.valid)?;
            // No client is connected any more; the remaining end of the last connections is not
            // idling.
            std::thread::sleep(SETTLE);
            let sleeps = contestant.sleeps()?;
            std::thread::sleep(self.lengths.idle.into());
            let sleeps = (contestant.sleeps()? - sleeps) as f64 / self.lengths.idle.as_secs_f64();
            self.record.add(round, idle, who, Figure::IdleWakeups, sleeps, true)?;
        }
        Ok(())
    }

    /// Bytes of memory that each further item takes.
    fn memory(&mut self, who: Who) -> Result<()> {
        let (few, many) = self.lengths.items;
        let mut resident = [0u64; 2];
        for (bytes, items) in resident.iter_mut().zip([few, many]) {
            eprintln!("memory: {}, {items} items", who.name());
            let contestant = self.stable.start(who)?;
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
        self.record.add(0, Idle::Stock, who, Figure::BytesPerItem, slope, true)
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
            connections: CONNECTIONS,
            threads: self.load_cpus.0.len() as u16,
            cpus: Some(self.load_cpus.clone()),
            length,
            // Warming is a run of its own, so that the server's CPU time covers exactly the
            // requests counted.
            warmup: Duration::ZERO,
            asks: Items::of(Workload { keys: KEYS, gets: Ratio::new(0.9), ..Workload::default() }),
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
