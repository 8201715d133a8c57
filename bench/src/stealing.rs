//! The case *stealing* of `roost-bench scheduler`: the CPU time that a stolen request costs.
//!
//! - *bursts*: sixteen requests come together, all for one of two workers. Each round has a store
//!   whose other worker steals and one whose workers do not. The added CPU time of the workers, over
//!   the requests that were stolen, is the cost of one.
//! - *little load*: 2,000 requests a second at both workers, so that hardly any request waits.
//!
//! The client of the bursts sends at real-time priority from the busy worker's CPU, so that a burst is
//! there before the worker looks, and is asleep while both work.

use crate::harness::figure::{By, Figure, Of};
use crate::harness::{Measured, Run};
use crate::may_be_realtime;
use crate::scheduler::{config, open, plan, started};
use anyhow::{Context as _, Result};
use machine::{CpuId, Duration, Rate};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::ops::ControlFlow;
use store::{Config, Policy, Server};

const BURSTS: &str = "stealing, bursts";
const LITTLE: &str = "stealing, little load";

/// Whether turns are stolen, and those of which wait.
const KEPT: (&str, Option<Duration>) = ("kept", None);
const AT_ONCE: (&str, Option<Duration>) = ("at once", Some(Duration::ZERO));
const LATE: (&str, Option<Duration>) = ("after 20us", Some(Duration::from_micros(20)));

const ROUNDS: u32 = 20;
/// Connections of the busy worker, one request of each a burst.
const BURST: usize = 16;
const BURSTS_A_BLOCK: u32 = 500;
/// A burst is served in this time.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(1);
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
/// Of the CPU time of a request at little load.
const LITTLE_TARGET: f64 = 1.02;

pub fn figures() -> Vec<Figure> {
    let of = |case: &str, metric, unit, of| Figure::new(metric, unit, of).in_case(case);
    let mut figures = Vec::new();
    for (treatment, steals) in [KEPT, AT_ONCE, LATE] {
        let one = Of::One(treatment);
        figures.extend([of(BURSTS, "cpu_us", "us", one), of(BURSTS, "tail_us", "us", one)]);
        if steals.is_some() {
            figures.push(of(BURSTS, "stolen_share", "", one));
            figures.push(of(BURSTS, "stolen_cost_us", "us", one));
        }
    }
    for (treatment, _) in [AT_ONCE, LATE] {
        figures.push(of(LITTLE, "stolen_share", "", Of::One(treatment)));
        let added = of(LITTLE, "cpu_us", "us", Of::Ratio(treatment, KEPT.0)).at_most(LITTLE_TARGET);
        figures.push(Figure { by: By::Quartiles, ..added });
    }
    figures
}

pub fn measure(run: &mut Run, allowed: &[CpuId]) -> Result<()> {
    if !may_be_realtime() {
        run.remark("stealing: without real-time priority a burst may come in parts");
    }
    let treatments = [KEPT, AT_ONCE, LATE];
    let names = treatments.map(|(name, _)| name);
    let steals =
        |name: &str| treatments.iter().find(|(known, _)| *known == name).and_then(|(_, after)| *after);
    let mut blocks: Vec<(u32, &str, Block)> = Vec::new();
    run.rounds(BURSTS, ROUNDS, &names, |&name, round| {
        let block = bursts(&allowed[..2], steals(name))?;
        blocks.push((round, name, block));
        Ok(block.measured())
    })?;
    for &(round, name, stolen) in &blocks {
        let kept = blocks.iter().find(|(other, name, _)| *other == round && *name == KEPT.0);
        if let (Some((.., kept)), true) = (kept, name != KEPT.0) {
            let cost = (stolen.cpu_us - kept.cpu_us) / stolen.share;
            // A difference of few is that of two blocks, not theirs.
            let measured = Measured::of([("stolen_cost_us", cost)]).valid(stolen.share > 0.1);
            run.block(BURSTS, round, name, measured)?;
        }
    }
    run.rounds(LITTLE, ROUNDS, &names, |&name, _| Ok(little_load(&allowed[..2], steals(name))?.measured()))
}

/// The figures of a block, for each request.
#[derive(Clone, Copy)]
struct Block {
    cpu_us: f64,
    /// The 99th percentile from ready to replied, of the worker whose connections they are.
    tail_us: Option<f64>,
    share: f64,
}

impl Block {
    fn measured(self) -> Measured {
        let metrics = [("cpu_us", self.cpu_us), ("stolen_share", self.share)].into_iter();
        Measured::of(metrics.chain(self.tail_us.map(|tail| ("tail_us", tail))))
    }
}

fn server(cpus: &[CpuId], steal_after: Option<Duration>) -> Result<Server> {
    started(Config { steal_after, ..config(cpus.to_vec(), Policy::AllAwake) })
}

fn bursts(cpus: &[CpuId], steal_after: Option<Duration>) -> Result<Block> {
    let server = server(cpus, steal_after)?;
    let address = server.addresses()[0];
    let client = std::thread::scope(|scope| {
        let client = scope.spawn(|| -> Result<u64> {
            linux::pin_current_thread(cpus[0]).context("pinning the client")?;
            let _ = linux::schedule_fifo();
            let mut clients = Vec::new();
            for _ in 0..2 * BURST {
                let client = TcpStream::connect(address).context("connecting")?;
                client.set_nodelay(true).context("a client's socket")?;
                client.set_read_timeout(Some(PATIENCE)).context("a client's socket")?;
                clients.push(client);
            }
            // They were dealt out in turn: every second is the first worker's.
            let mut clients: Vec<TcpStream> = clients.into_iter().step_by(2).collect();
            clients[0].write_all(b"set key 0 0 100\r\n").context("sending")?;
            clients[0].write_all(&[b'x'; 100]).context("sending")?;
            clients[0].write_all(b"\r\n").context("sending")?;
            clients[0].read_exact(&mut [0; 8]).context("an answer")?;
            let before = store::workers_cpu().context("the kernel keeps no schedstat")?;
            for _ in 0..BURSTS_A_BLOCK {
                for client in &mut clients {
                    client.write_all(b"get key\r\n").context("sending")?;
                }
                std::thread::sleep(PAUSE);
                for client in &mut clients {
                    client
                        .read_exact(&mut [0; "VALUE key 0 100\r\n\r\nEND\r\n".len() + 100])
                        .context("an answer")?;
                }
            }
            let after = store::workers_cpu().context("the kernel keeps no schedstat")?;
            Ok((after - before).as_nanos())
        });
        client.join().expect("the client's thread")
    })?;
    let requests = f64::from(BURSTS_A_BLOCK) * BURST as f64;
    ended(server, client as f64 / 1e3 / requests, requests)
}

fn little_load(cpus: &[CpuId], steal_after: Option<Duration>) -> Result<Block> {
    const LENGTH: Duration = Duration::from_secs(3);
    let server = server(cpus, steal_after)?;
    let pace = open(Rate::per_second(2e3), LENGTH)?;
    let mut cpu = Vec::new();
    let outcome = loadgen::run(&plan(&server, cpus, 32, pace, LENGTH), &mut |_| {
        cpu.extend(store::workers_cpu().map(|cpu| (cpu, server.status().requests)));
        ControlFlow::Continue(())
    })?;
    let (Some((from, first)), Some((to, last))) = (cpu.first(), cpu.last()) else {
        anyhow::bail!("the kernel keeps no schedstat");
    };
    let requests = (last - first) as f64;
    ended(server, (*to - *from).as_secs_f64() * 1e6 / requests, outcome.counts.answered as f64)
}

fn ended(server: Server, cpu_us: f64, requests: f64) -> Result<Block> {
    let status = server.status();
    server.stop().context("stopping the store")?;
    let tail = status.workers.iter().filter_map(|worker| worker.tail).max();
    let stolen: u64 = status.workers.iter().map(|worker| worker.stolen).sum();
    let tail_us = tail.map(|tail| tail.as_secs_f64() * 1e6);
    Ok(Block { cpu_us, tail_us, share: stolen as f64 / requests })
}
