//! The delay that the proxy adds when it holds nothing: the same requests to the same server,
//! directly and through it, by turns.
//!
//! The server answers at once, so that only the added delay shows. At the rate chosen no request
//! queues, and caches stay warm. At a lower one each request finds them cold and the CPU asleep,
//! and costs more: the rate belongs to the figure. The generator has to share CPUs with the proxy:
//! one thread on the first, at real-time priority where it may. It polls for longer before each
//! request than a CPU takes to wake; else it would send when the others happen to pause. The
//! proxy's CPU time is that of its threads, by the scheduler (`schedstat`), over the requests that
//! it passed on. The time of TCP over loopback on its behalf is in it.

use super::child::Running;
use super::{plan, verdict};
use crate::contestant::cpu_time;
use crate::exit::usage;
use anyhow::Result;
use loadgen::{Counts, Part, Plan};
use machine::{CpuList, Duration, Rate};
use report::run::Verdict;
use serde::Serialize;
use std::ops::ControlFlow;
use workload::{ArrivalKind, Words};

/// The measurements: medians over the rounds.
#[derive(Debug, Serialize)]
pub struct Results {
    rounds: Vec<Round>,
    rate: f64,
    /// The generator sent at real-time priority.
    realtime: bool,
    /// Of the rounds' differences, the median, microseconds.
    added_p50_us: f64,
    /// Of the proxy, in the median round, microseconds.
    cpu_us_per_request: f64,
}

/// Direct and proxy, one after the other.
#[derive(Clone, Copy, Debug, Serialize)]
struct Round {
    direct_p50_us: f64,
    direct_p99_us: f64,
    proxy_p50_us: f64,
    proxy_p99_us: f64,
    proxy_cpu_us: f64,
    valid: bool,
}

const ROUNDS: u32 = 12;
const LENGTH: Duration = Duration::from_secs(4);
/// A CPU of a virtual machine takes 40 to 130 us to wake; with the default of 50 no round was
/// valid.
const SPIN: Duration = Duration::from_micros(150);
const ADDED_BAR_US: f64 = 150.0;
const CPU_BAR_US: f64 = 50.0;

pub fn measure(rate: Rate) -> Result<Results> {
    let server = Running::service(&[])?;
    let proxy = Running::proxy(&[&server.address], &["--no-hold"])?;
    let realtime = crate::may_be_realtime();
    let mut rounds = Vec::new();
    for number in 0..ROUNDS {
        eprintln!("overhead: round {} of {ROUNDS}", number + 1);
        let direct = load(&server.address, rate, realtime)?;
        let before = cpu_time(proxy.process())?;
        let through = load(&proxy.address, rate, realtime)?;
        // All requests that it passed on, those of the warm-up too.
        let cpu = (cpu_time(proxy.process())? - before).as_secs_f64() * 1e6 / through.passed.max(1) as f64;
        rounds.push(Round {
            direct_p50_us: direct.p50_us,
            direct_p99_us: direct.p99_us,
            proxy_p50_us: through.p50_us,
            proxy_p99_us: through.p99_us,
            proxy_cpu_us: cpu,
            valid: direct.valid && through.valid,
        });
    }
    let valid = || rounds.iter().filter(|round| round.valid);
    Ok(Results {
        added_p50_us: median(valid().map(|round| round.proxy_p50_us - round.direct_p50_us)),
        cpu_us_per_request: median(valid().map(|round| round.proxy_cpu_us)),
        rate: rate.as_per_second(),
        realtime,
        rounds,
    })
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

pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => (values[count / 2 - 1] + values[count / 2]) / 2.0,
    }
}

impl Results {
    pub fn verdicts(&self) -> [Verdict; 2] {
        let met = |found: f64, bar: f64| (!found.is_nan()).then_some(found <= bar);
        [
            verdict(
                "added to the median, nothing held",
                format!("{:.0} us", self.added_p50_us),
                "at most 150 us",
                met(self.added_p50_us, ADDED_BAR_US),
            ),
            verdict(
                "the proxy's CPU time per request",
                format!("{:.1} us", self.cpu_us_per_request),
                "at most 50 us",
                met(self.cpu_us_per_request, CPU_BAR_US),
            ),
        ]
    }

    /// Why it is worth nothing, if it is.
    pub fn invalid(&self) -> Option<String> {
        let valid = self.rounds.iter().filter(|round| round.valid).count();
        (2 * valid < self.rounds.len()).then(|| {
            format!(
                "Only {valid} of {} rounds are valid: the generator was late or answers were missing.",
                self.rounds.len()
            )
        })
    }

    pub fn text(&self) -> String {
        let mut table = crate::table::Table::new(
            1,
            ["nothing held", "direct p50", "p99", "proxy p50", "p99", "CPU/request"]
                .map(str::to_owned)
                .to_vec(),
        );
        for (number, round) in self.rounds.iter().enumerate() {
            let remark = if round.valid { "" } else { " (invalid)" };
            let numbers = [
                round.direct_p50_us,
                round.direct_p99_us,
                round.proxy_p50_us,
                round.proxy_p99_us,
                round.proxy_cpu_us,
            ];
            let cells = std::iter::once(format!("round {}{remark}", number + 1))
                .chain(numbers.iter().map(|us| format!("{us:.1} us")));
            table.row(cells.collect());
        }
        let how = if self.realtime { ", at real-time priority" } else { "" };
        format!(
            "{:.0} requests/s, evenly spaced{how}, to a server that answers at once\n{}",
            self.rate,
            table.text()
        )
    }
}
