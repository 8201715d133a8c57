//! The delay that the proxy adds when it holds nothing: the same requests to the same server,
//! directly and through it.
//!
//! The server answers at once, so that only the added delay shows. At the rate chosen no request
//! queues, and caches stay warm. At a lower one each request finds them cold and the CPU asleep,
//! and costs more: the rate belongs to the figure. The generator has to share CPUs with the proxy:
//! one thread on the first, at real-time priority where it may. It polls for longer before each
//! request than a CPU takes to wake; else it would send when the others happen to pause. The
//! proxy's CPU time is that of its threads, by the scheduler (`schedstat`), over the requests that
//! it passed on. The time of TCP over loopback on its behalf is in it.

use super::child::Running;
use super::plan;
use crate::contestant::cpu_time;
use crate::exit::usage;
use crate::harness::figure::{Figure, Of};
use crate::harness::{Measured, Run};
use anyhow::Result;
use loadgen::{Counts, Part, Plan};
use machine::{CpuList, Duration, Rate};
use std::ops::ControlFlow;
use workload::{ArrivalKind, Words};

const ROUNDS: u32 = 12;
const LENGTH: Duration = Duration::from_secs(4);
/// A CPU of a virtual machine takes 40 to 130 us to wake; with the default of 50 no round was
/// valid.
const SPIN: Duration = Duration::from_micros(150);
const ADDED_TARGET_US: f64 = 150.0;
const CPU_TARGET_US: f64 = 50.0;
const CASE: &str = "nothing held";

pub fn measure(run: &mut Run, rate: Rate) -> Result<()> {
    let server = Running::service(&[])?;
    let proxy = Running::plain_proxy(&[&server.address], &[])?;
    let realtime = crate::may_be_realtime();
    run.rounds(CASE, ROUNDS, &["direct", "proxy"], |&treatment, _| {
        let is_proxy = treatment == "proxy";
        let before = cpu_time(proxy.process())?;
        let seen = load(if is_proxy { &proxy.address } else { &server.address }, rate, realtime)?;
        // All requests that it passed on, those of the warm-up too.
        let cpu_us = (cpu_time(proxy.process())? - before).as_secs_f64() * 1e6 / seen.passed.max(1) as f64;
        let mut metrics = vec![("p50_us", seen.p50_us), ("p99_us", seen.p99_us)];
        metrics.extend(is_proxy.then_some(("cpu_us_per_request", cpu_us)));
        Ok(Measured::of(metrics).valid(seen.valid))
    })?;
    let how = if realtime { ", at real-time priority" } else { "" };
    let rate = rate.as_per_second();
    run.remark(format!("{CASE}: {rate:.0} requests/s, evenly spaced{how}, to a server that answers at once"));
    Ok(())
}

pub fn figures() -> Vec<Figure> {
    let of = |metric, of| Figure::new(metric, "us", of).in_case(CASE);
    vec![
        of("p50_us", Of::Added("proxy", "direct")).at_most(ADDED_TARGET_US),
        of("p99_us", Of::Added("proxy", "direct")),
        of("p50_us", Of::One("direct")),
        of("p50_us", Of::One("proxy")),
        of("cpu_us_per_request", Of::One("proxy")).at_most(CPU_TARGET_US),
    ]
}

struct Seen {
    p50_us: f64,
    p99_us: f64,
    passed: u64,
    valid: bool,
}

fn load(address: &str, rate: Rate, realtime: bool) -> Result<Seen> {
    let url = format!("http://{address}/").parse()?;
    // Evenly spaced, for two that are due at once would each wait for the other's `send`.
    let plan = plan(url, Words::new([]), ArrivalKind::Uniform, rate, LENGTH)?;
    let first = linux::allowed_cpus().map_err(usage)?.0.into_iter().take(1).collect();
    let plan = Plan { connections: 8, realtime, spin: SPIN, cpus: Some(CpuList(first)), ..plan };
    let mut warm = Counts::default();
    let outcome = loadgen::run(&plan, &mut |interval| {
        if interval.progress.part == Part::Warmup {
            warm += interval.progress.counts;
        }
        ControlFlow::Continue(())
    })?;
    let us = |time: Duration| time.as_nanos() as f64 / 1e3;
    Ok(Seen {
        p50_us: us(outcome.latency.p50),
        p99_us: us(outcome.latency.p99),
        passed: outcome.counts.answered + warm.answered,
        valid: outcome.valid && !outcome.is_broken(),
    })
}
