//! The page of an observation (`roost observe --metrics`): how each CPU sleeps, its wakers, how
//! often the choice of a state was wrong, and how the watched service answers.
//!
//! Counters and histograms are since the observation began, so Prometheus takes rates of them as it
//! likes. Lengths have one bucket to a doubling here, a quarter of the kept ones: a page of 64 CPUs
//! stays below 4000 lines.

use super::{Buckets, METRICS, Names, Page, Route};
use anyhow::Result;
use hdrhistogram::Histogram;
use machine::{EnergyReading, LengthHistogram};
use observe::requests::RequestPattern;
use observe::scrape::Now;
use observe::sleep::{Findings, Known, SleepPattern};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// The content of the page: the last observation.
#[derive(Clone, Debug)]
pub struct Seen {
    /// How the CPUs slept since the beginning.
    pub pattern: SleepPattern,
    /// The measured facts about the states beside the advertised ones.
    pub known: Known,
    /// The service's requests, where one is watched.
    pub requests: Option<RequestPattern>,
    /// The service's own telemetry, where it is asked.
    pub own: Option<Now>,
    /// Energy since the beginning.
    pub energy: Option<EnergyReading>,
}

/// The place of the observation's last result, for any reader.
pub type Board = Arc<Mutex<Option<Seen>>>;

/// Begins to answer at `address`; returns the address with the port that was chosen.
pub fn serve(address: SocketAddr, names: &Names, board: Board) -> Result<SocketAddr> {
    let compose = move || {
        let seen = board.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        seen.map(super::page)
    };
    super::serve(address, names, vec![Route { path: "/metrics", kind: METRICS, compose: Arc::new(compose) }])
}

impl Collector for Seen {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut page = Page(&mut encoder);
        self.sleeps(&mut page)?;
        self.mispredictions(&mut page)?;
        if let Some(requests) = &self.requests {
            answers(requests, &mut page)?;
        }
        if let Some(own) = &self.own {
            own_word(own, &mut page)?;
        }
        if let Some(energy) = &self.energy {
            page.counter(
                "energy",
                "Energy used since the observation began; the source label says whether it was measured.",
                Some(Unit::Joules),
                [([("source", energy.source.to_string())], energy.used.as_joules())],
            )?;
        }
        Ok(())
    }
}

impl Seen {
    fn sleeps(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let cpus = &self.pattern.cpus;
        let label = |cpu: &observe::sleep::CpuPattern| ("cpu", cpu.cpu.0.to_string());
        page.histogram(
            "idle_length",
            "Lengths of idle periods that have ended, whatever the state.",
            Unit::Seconds,
            cpus.iter().map(|cpu| {
                let mut all = LengthHistogram::default();
                cpu.idle.iter().for_each(|lengths| all.add(lengths));
                ([label(cpu)], of_lengths(&all))
            }),
        )?;
        page.histogram(
            "active_length",
            "Lengths of active periods that have ended.",
            Unit::Seconds,
            cpus.iter().map(|cpu| ([label(cpu)], of_lengths(&cpu.active))),
        )?;
        let states = || {
            cpus.iter().flat_map(move |cpu| {
                cpu.idle.iter().enumerate().map(move |(state, lengths)| {
                    let known = cpu.table.0.get(state).map(|state| state.name.clone());
                    let name = known.unwrap_or_else(|| format!("state{state}"));
                    ([label(cpu), ("state", name)], lengths)
                })
            })
        };
        page.counter(
            "idle_state",
            "Time in each idle state as requested, over the periods that have ended.",
            Some(Unit::Seconds),
            states().map(|(labels, lengths)| (labels, lengths.time().as_secs_f64())),
        )?;
        page.counter(
            "idle_state_entries",
            "Idle periods in each state as requested.",
            None,
            states().map(|(labels, lengths)| (labels, lengths.count() as f64)),
        )?;
        let woken = cpus.iter().filter_map(|cpu| Some((cpu, cpu.wakers?))).flat_map(|(cpu, wakers)| {
            let by = [
                ("timer", wakers.timer),
                ("device", wakers.device),
                ("cpu", wakers.ipi),
                ("unseen", wakers.unseen),
            ];
            by.map(|(waker, count)| ([label(cpu), ("waker", waker.to_owned())], count as f64))
        });
        page.counter("wakeups", "Wake-ups, by the waker that ended the idle period.", None, woken)?;
        page.counter(
            "observe_lost_events",
            "Events that were lost on the way, so that periods are missing.",
            None,
            [([], self.pattern.lost as f64)],
        )
    }

    fn mispredictions(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let findings = Findings::of(&self.pattern, &self.known);
        let wrong = findings.cpus.iter().flat_map(|cpu| {
            cpu.slept.states.iter().flat_map(move |state| {
                let kinds = [("premature", state.premature), ("missed_deep", state.missed_deep)];
                kinds.into_iter().filter_map(move |(kind, part)| {
                    let labels = [
                        ("cpu", cpu.cpu.0.to_string()),
                        ("state", state.name.clone()),
                        ("kind", kind.to_owned()),
                    ];
                    Some((labels, part?.count as f64))
                })
            })
        });
        page.counter(
            "idle_mispredicted",
            "Idle periods shorter than their state's target residency (premature), or long enough \
             for a deeper state that was allowed (missed_deep).",
            None,
            wrong,
        )
    }
}

fn answers(requests: &RequestPattern, page: &mut Page<'_, '_>) -> fmt::Result {
    let way = || [("way", requests.way.to_string())];
    page.counter(
        "observed_requests",
        "Requests of the watched service that were answered.",
        None,
        [(way(), requests.requests as f64)],
    )?;
    page.counter(
        "observed_merged",
        "Data that came while a request of its connection was under way, and was taken as part of it.",
        None,
        [(way(), requests.merged as f64)],
    )?;
    let times = [
        ("observed_response", "From the socket ready, or the packet, to the reply.", &requests.response),
        ("observed_service", "From the request taken to the reply.", &requests.service),
        (
            "observed_waiting",
            "From the socket ready to the request taken: queue and wake-up.",
            &requests.waiting,
        ),
        (
            "observed_interrupt",
            "From the end of an idle CPU's state to its network work.",
            &requests.interrupt,
        ),
    ];
    for (name, help, times) in times {
        let values = times.iter().map(|times| (way(), of_times(times)));
        page.histogram(name, help, Unit::Seconds, values)?;
    }
    Ok(())
}

/// A gauge is left out while the service does not answer: Prometheus then shows a gap and no old
/// figure.
fn own_word(own: &Now, page: &mut Page<'_, '_>) -> fmt::Result {
    let source = || [("source", own.source.clone())];
    page.counter(
        "scraped_requests",
        "Requests by the service's own count while it was watched.",
        None,
        [(source(), own.requests)],
    )?;
    let p99 = own.step.and_then(|step| step.p99).map(|p99| (source(), p99.as_secs_f64()));
    page.gauge("scraped_p99", "The service's own 99th percentile.", Some(Unit::Seconds), p99)?;
    let connections = own.step.and_then(|step| step.connections).map(|open| (source(), open as f64));
    page.gauge("scraped_connections", "The service's own count of its connections.", None, connections)
}

fn of_lengths(lengths: &LengthHistogram) -> Buckets {
    const PER_DOUBLING: usize = 4;
    let last = LengthHistogram::BUCKETS - 1;
    let mut buckets = vec![(LengthHistogram::bounds(0).1.as_secs_f64(), lengths.counts[0])];
    for first in (1..last).step_by(PER_DOUBLING) {
        let end = first + PER_DOUBLING - 1;
        let count = lengths.counts[first..=end].iter().sum();
        buckets.push((LengthHistogram::bounds(end).1.as_secs_f64(), count));
    }
    buckets.push((f64::INFINITY, lengths.counts[last]));
    Buckets { sum: lengths.time().as_secs_f64(), buckets }
}

/// From a microsecond on, two buckets to a doubling: 1, 1.4, 2, ... up to 16 s.
fn of_times(times: &Histogram<u64>) -> Buckets {
    const DOUBLINGS: u32 = 24;
    let mut buckets = Vec::new();
    let mut below = 0;
    for half in 0..=2 * DOUBLINGS {
        let bound_ns = 1_000.0 * f64::from(half).mul_add(0.5, 0.0).exp2();
        let count = times.count_between(0, bound_ns as u64);
        buckets.push((bound_ns / 1e9, count - below));
        below = count;
    }
    buckets.push((f64::INFINITY, times.len() - below));
    Buckets { sum: times.mean() * times.len() as f64 / 1e9, buckets }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use linux::probes::RequestWay;
    use machine::{CpuId, Cstate, CstateKind, CstateTable, Duration};
    use observe::scrape::Step;
    use observe::sleep::{CpuPattern, SleepSource, Wakers};

    pub fn seen() -> Seen {
        let state = |name: &str, kind, exit, residency| Cstate {
            name: name.to_owned(),
            kind,
            exit_latency: Duration::from_micros(exit),
            true_exit_latency: None,
            entry_latency: None,
            target_residency: Duration::from_micros(residency),
            power: None,
        };
        let mut deep = LengthHistogram::default();
        deep.record(Duration::from_micros(50));
        deep.record(Duration::from_millis(5));
        let mut active = LengthHistogram::default();
        active.record(Duration::from_micros(10));
        let cpu = CpuPattern {
            cpu: CpuId(3),
            table: CstateTable(vec![
                state("POLL", CstateKind::Polling, 0, 0),
                state("C6", CstateKind::Halting, 133, 600),
            ]),
            idle: vec![LengthHistogram::default(), deep],
            active,
            wakers: Some(Wakers { timer: 1, device: 0, ipi: 1, unseen: 0 }),
        };
        let pattern = SleepPattern {
            elapsed: Duration::from_secs(1),
            source: SleepSource::Bpf,
            cpus: vec![cpu],
            lost: 0,
        };
        Seen { pattern, known: Known::default(), requests: None, own: None, energy: None }
    }

    /// With all that a page can show.
    pub fn everything() -> Seen {
        let mut times = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 2).unwrap();
        times.record(40_000).unwrap();
        let requests = RequestPattern {
            elapsed: Duration::from_secs(1),
            way: RequestWay::ALL[0],
            requests: 1,
            timed: 1,
            merged: 0,
            unfit: 0,
            response: Some(times.clone()),
            service: Some(times.clone()),
            waiting: Some(times.clone()),
            interrupt: Some(times),
            wakes_hidden: 0,
        };
        let energy = EnergyReading {
            used: machine::Microjoules(5),
            source: machine::EnergySource::Measured("rapl".to_owned()),
        };
        let step = Step {
            rate: machine::Rate::per_second(5.0),
            p99: Some(Duration::from_millis(1)),
            connections: Some(4),
        };
        let own = Now { source: "memcached:127.0.0.1:1".to_owned(), step: Some(step), requests: 12.0 };
        Seen { requests: Some(requests), own: Some(own), energy: Some(energy), ..seen() }
    }

    #[test]
    fn the_page_says_how_long_and_how_wrong() {
        let page = super::super::page(seen());
        for line in [
            "roost_idle_length_seconds_count{cpu=\"3\"} 2",
            "roost_idle_state_seconds_total{cpu=\"3\",state=\"C6\"} 0.00505",
            "roost_idle_state_entries_total{cpu=\"3\",state=\"C6\"} 2.0",
            "roost_idle_mispredicted_total{cpu=\"3\",state=\"C6\",kind=\"premature\"} 1.0",
            "roost_wakeups_total{cpu=\"3\",waker=\"timer\"} 1.0",
            "# UNIT roost_idle_length_seconds seconds",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
        assert!(page.ends_with("# EOF\n"));
    }

    #[test]
    fn a_service_that_is_silent_keeps_its_count_and_loses_its_gauges() {
        let mut seen = everything();
        let page = super::super::page(seen.clone());
        let said = "{source=\"memcached:127.0.0.1:1\"}";
        for line in ["requests_total", "p99_seconds", "connections"] {
            assert!(page.contains(&format!("roost_scraped_{line}{said}")), "no {line} in\n{page}");
        }
        seen.own.as_mut().unwrap().step = None;
        let page = super::super::page(seen);
        assert!(page.contains(&format!("roost_scraped_requests_total{said} 12.0")), "{page}");
        assert!(!page.contains("scraped_p99_seconds{") && !page.contains("scraped_connections{"), "{page}");
    }

    #[test]
    fn buckets_add_up_and_their_bounds_rise() {
        let mut times = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 2).unwrap();
        for nanos in [500, 1_500, 40_000, 9_000_000, 50_000_000_000] {
            times.record(nanos).unwrap();
        }
        for Buckets { sum, buckets } in [of_times(&times), of_lengths(&LengthHistogram::default())] {
            assert!(buckets.windows(2).all(|pair| pair[0].0 < pair[1].0));
            assert!(buckets.last().unwrap().0.is_infinite() && sum >= 0.0);
        }
        assert_eq!(of_times(&times).buckets.iter().map(|(_, count)| count).sum::<u64>(), 5);
        assert_eq!(of_times(&times).buckets[0].1, 1);
    }
}
