//! `roost-bench lend`: how soon a service runs on a CPU that batch work had, and when that stands still.
//!
//! A *give-back*: a thread of the service sleeps, its CPUs change to one that is lent, and it is woken, as
//! after an alarm. Measured is the time from before the change until the thread reads the clock on that
//! CPU. Treatments: the CPU was *idle* (a do-nothing control), *lent* to processes that never sleep, or
//! *shared* with them at their normal weight, as without lending. Gaps between give-backs are drawn, so
//! that ticks and slices fall anywhere.

use crate::exit::{Exit, coded};
use crate::harness::figure::{Figure, Of, quantile};
use crate::harness::{Measured, Output, Run, SEED};
use anyhow::{Context as _, Result};
use batch::Batch;
use linux::{Lending, Root};
use machine::{CpuId, CpuList, Duration, Instant};
use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::Thread;
use workload::Random;

#[path = "../../crates/linux/tests/it/batch.rs"]
#[allow(dead_code)]
pub mod batch;

/// Measure how soon a service has a lent CPU back
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  sudo roost-bench lend --out benches/runs/2026-11-27-lend
  sudo roost-bench lend --rounds 4 --events 100")]
pub struct Args {
    /// Rounds, each with a block of each treatment
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(4..))]
    rounds: u32,
    /// Give-backs in a block of one treatment
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(100..))]
    events: u32,
    #[command(flatten)]
    output: Output,
}

const TREATMENTS: [&str; 3] = ["idle", "lent", "shared"];

pub fn run(args: &Args) -> Result<ExitCode> {
    let cpus = linux::allowed_cpus()?;
    let (Some(&home), Some(&away)) = (cpus.0.first(), cpus.0.last().filter(|_| cpus.0.len() > 1)) else {
        return Err(coded(Exit::Unsupported, "lend needs two CPUs: one of the service's own, one to lend"));
    };
    let batch = Batch::begin(cpus.0.len())
        .ok_or_else(|| coded(Exit::Unsupported, "lend needs root, and control groups with cpu and cpuset"))?;
    let service = Service::begin();
    linux::pin_current_thread_to(&CpuList([home].into()))?;
    let mut random = Random::new(SEED, 1);
    let mut run = Run::begin("lend", &args.output, SEED)?;
    run.rounds("", args.rounds, &TREATMENTS, |&treatment, _| {
        let there = CpuList([away].into());
        let lent = CpuList(if treatment == "lent" { [away].into() } else { BTreeSet::new() });
        let mut lending = match treatment {
            "shared" => None,
            _ => {
                Some(Lending::open(&Root::system(), &batch.name, &BTreeSet::new(), "roost-bench lend", None)?)
            }
        };
        batch.write("cpuset.cpus", &if lending.is_some() { &cpus } else { &there }.to_string());
        let (mut waits, mut stops) = (Vec::new(), Vec::new());
        for _ in 0..args.events {
            service.place(home)?;
            if let Some(lending) = &mut lending {
                lending.lend(&lent);
            }
            std::thread::sleep(std::time::Duration::from_micros(2_000 + random.below(4_000)));
            let began = linux::now();
            service.place(away)?;
            service.wake();
            if let Some(lending) = &mut lending {
                lending.lend(&CpuList::default());
                while !lending.stands() && linux::now().since(began) < PATIENCE {
                    std::thread::yield_now();
                }
                stops.push(linux::now().since(began).as_secs_f64() * 1e6);
            }
            let ran = service.ran(began).context("the service's thread did not run within 10 s")?;
            waits.push(ran.since(began).as_secs_f64() * 1e6);
        }
        drop(lending);
        waits.sort_by(f64::total_cmp);
        stops.sort_by(f64::total_cmp);
        let mut figures = vec![("p50", quantile(&waits, 0.5)), ("p99", quantile(&waits, 0.99))];
        if treatment == "lent" {
            figures.push(("stands p99", quantile(&stops, 0.99)));
        }
        Ok(Measured::of(figures))
    })?;
    let mut figures: Vec<Figure> = TREATMENTS
        .iter()
        .flat_map(|&name| ["p50", "p99"].map(|metric| Figure::new(metric, "us", Of::One(name))))
        .collect();
    figures.push(Figure::new("p99", "us", Of::Added("lent", "idle")).at_most(1_000.0));
    figures.push(Figure::new("p99", "us", Of::Added("shared", "idle")));
    figures.push(Figure::new("stands p99", "us", Of::One("lent")));
    run.end(&figures)
}

const PATIENCE: Duration = Duration::from_secs(10);

/// A thread of a service, which tells the time at which it ran.
struct Service {
    thread: Thread,
    id: Pid,
    /// Nanoseconds; zero while it is to wait.
    told: Arc<AtomicU64>,
    wanted: Arc<AtomicU64>,
}

impl Service {
    fn begin() -> Self {
        let (told, wanted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (sender, id) = channel();
        let (tell, want) = (told.clone(), wanted.clone());
        let thread = std::thread::spawn(move || {
            let _ = sender.send(gettid());
            let mut done = 0;
            loop {
                std::thread::park();
                let wanted = want.load(Ordering::Acquire);
                if wanted != done {
                    tell.store(linux::now().as_nanos(), Ordering::Release);
                    done = wanted;
                }
            }
        });
        Self {
            thread: thread.thread().clone(),
            id: id.recv().expect("a thread that has begun"),
            told,
            wanted,
        }
    }

    fn place(&self, cpu: CpuId) -> Result<()> {
        let mut set = CpuSet::new();
        set.set(cpu.index());
        sched_setaffinity(Some(self.id), &set).context("placing the service's thread")
    }

    fn wake(&self) {
        self.told.store(0, Ordering::Release);
        self.wanted.fetch_add(1, Ordering::Release);
        self.thread.unpark();
    }

    fn ran(&self, began: Instant) -> Option<Instant> {
        while linux::now().since(began) < PATIENCE {
            match self.told.load(Ordering::Acquire) {
                0 => std::thread::yield_now(),
                nanos => return Some(Instant::from_nanos(nanos)),
            }
        }
        None
    }
}
