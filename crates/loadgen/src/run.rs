//! A run from beginning to end: connections, preload, load, verdict.
//!
//! Each stage is a scope of threads that ends before the next begins, so an error in one thread
//! needs no barrier to be freed from. During the load the calling thread merges the lanes'
//! intervals and shows them to the observer.

use crate::connection::Address;
use crate::judge::{Stands, judge};
use crate::lane::{Lane, LaneInterval, Measured, Reporter, Window};
use crate::outcome::{Interval, Outcome, Part, Percentiles, Preload, Progress, ThreadCost};
use crate::protocol::{Asks, store_all};
use crate::source::{Schedule, Source};
use crate::system::{self, thread_cpu_time};
use crate::tally::{Tally, quantile};
use crate::{Error, Pace, Plan};
use machine::{CpuId, Duration, Instant, Rate, Ratio};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use workload::{Arrivals, Profile};

/// Runs the plan. `observer` sees every interval as it ends and may stop the run; the outcome then
/// holds the measurements until that time.
pub fn run<A: Asks>(
    plan: &Plan<A>,
    observer: &mut dyn FnMut(&Interval<'_>) -> ControlFlow<()>,
) -> Result<Outcome, Error> {
    let mut lanes = lanes(plan)?;
    let preload = A::prepare(plan, &mut lanes)?;
    load(plan, &mut lanes, preload, observer)
}

/// Only stores every key of the plan's workload, and checks that the server kept them.
pub fn fill(plan: &Plan) -> Result<Preload, Error> {
    store_all(plan, &mut lanes(plan)?)
}

/// The lanes, each with its connections made.
fn lanes<A: Asks>(plan: &Plan<A>) -> Result<Vec<Lane<'_, A>>, Error> {
    let protocol = plan.asks.protocol()?;
    if let Some(cpus) = &plan.cpus {
        system::check_cpus(cpus)?;
    }
    plan.check()?;
    system::raise_descriptor_limit(plan.connections)?;
    let address = Address::find(&plan.target)?;
    let numbers = (0..u32::from(plan.threads)).collect();
    on_threads(plan, numbers, |_, number| Lane::connect(plan, protocol.clone(), number, &address))
}

/// Runs `work` on one pinned thread for each item. The first error counts; threads that panic pass
/// it on.
pub(crate) fn on_threads<A: Asks, T: Send, R: Send>(
    plan: &Plan<A>,
    items: Vec<T>,
    work: impl Fn(usize, T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = items
            .into_iter()
            .enumerate()
            .map(|(number, item)| {
                scope.spawn(move || {
                    system::settle(number, cpu_of(plan, number))?;
                    work(number, item)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn cpu_of<A>(plan: &Plan<A>, number: usize) -> Option<CpuId> {
    let cpus = plan.cpus.as_ref()?;
    cpus.0.iter().nth(number % cpus.0.len()).copied()
}

fn load<A: Asks>(
    plan: &Plan<A>,
    lanes: &mut [Lane<'_, A>],
    preload: Option<Preload>,
    observer: &mut dyn FnMut(&Interval<'_>) -> ControlFlow<()>,
) -> Result<Outcome, Error> {
    let start = os::now() + THREADS_READY;
    let from = start + plan.warmup;
    let window = Window { from, until: from + plan.length };
    let schedule = schedule(plan)?;
    let boundaries = boundaries(plan, start);
    let stop = AtomicBool::new(false);
    let (reports, received) = mpsc::channel();
    let mut intervals = Vec::new();
    let mut histogram = crate::tally::histogram();
    let count = lanes.len();
    let results = thread::scope(|scope| {
        let mut empties = Vec::new();
        let mut threads = Vec::new();
        for (number, lane) in lanes.iter_mut().enumerate() {
            let (empty, emptied) = mpsc::channel();
            for _ in 0..TALLIES_IN_FLIGHT {
                let _ = empty.send(Box::new(Tally::new()));
            }
            empties.push(empty);
            let (reports, boundaries) = (reports.clone(), boundaries.clone());
            let source = source(plan, schedule.clone(), start, window, number, count);
            let stop = &stop;
            threads.push(scope.spawn(move || {
                let work = || {
                    system::settle(number, cpu_of(plan, number))?;
                    let cpu_before = thread_cpu_time();
                    let reporter =
                        Reporter { lane: number, reports, emptied, boundaries, sent: 0, cpu_before };
                    while os::now() < start {
                        std::hint::spin_loop();
                    }
                    // Not before: this wait is a long one.
                    if plan.realtime {
                        system::take_realtime_priority()?;
                    }
                    lane.phase(source, window, Some(reporter), stop)
                };
                let result = work();
                if result.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                result
            }));
        }
        drop(reports);
        let merger = Merger { plan, start, boundaries: &boundaries, lanes: count };
        merger.follow(&received, &empties, |interval| {
            intervals.push(interval.progress.clone());
            if observer(&interval).is_break() {
                stop.store(true, Ordering::Relaxed);
            }
        });
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Vec<_>>()
    });
    let ended = os::now().min(window.until);
    let measured = results.into_iter().collect::<Result<Vec<Measured>, Error>>()?;
    let mut whole = Tally::new();
    for part in &measured {
        whole.add(&part.tally);
    }
    let _ = histogram.add(&whole.latency);
    let span = ended.since(from);
    let (late, invalid_because) = judge(&whole, plan.judged);
    let (latency, latency_without_own) =
        (Percentiles::of(&whole.latency), Percentiles::of(&whole.without_own));
    let threads = measured.iter().enumerate().map(|(number, part)| ThreadCost {
        cpu: cpu_of(plan, number),
        cpu_time: part.cpu_time,
        busy: Ratio::of(part.cpu_time, span),
    });
    Ok(Outcome {
        offered: offered(plan, plan.warmup, plan.warmup + span),
        achieved: Rate::of(measured.iter().map(|part| part.answered_in_window).sum(), span),
        measured: span,
        stands: Stands::of(&latency, &latency_without_own),
        latency,
        latency_without_own,
        lateness: Percentiles::of(&whole.lateness),
        took: Percentiles::of(&whole.took),
        late,
        counts: whole.counts,
        connections_lost: lanes.iter().map(|lane| lane.connections_lost).sum(),
        connections_renewed: lanes.iter().map(|lane| lane.connections_renewed).sum(),
        remarks: lanes
            .iter_mut()
            .flat_map(|lane| std::mem::take(&mut lane.remarks))
            .take(REMARKS_MAX)
            .collect(),
        preload,
        threads: threads.collect(),
        valid: invalid_because.is_empty(),
        invalid_because,
        intervals,
        histogram,
    })
}

/// The schedule of an open loop.
fn schedule<A: Asks>(plan: &Plan<A>) -> Result<Option<Schedule>, Error> {
    let Pace::Open { arrivals, profile } = &plan.pace else { return Ok(None) };
    let seed = plan.asks.seed();
    let warm = if plan.warmup.is_zero() {
        None
    } else {
        Some(Arrivals::new(*arrivals, Profile::constant(warm_rate(profile))?, !seed))
    };
    Ok(Some(Schedule::new(warm, Arrivals::new(*arrivals, profile.clone(), seed), plan.warmup)))
}

/// The rate before a profile begins: its first, or its mean if it begins with none.
fn warm_rate(profile: &Profile) -> Rate {
    let first = profile.rate_at(Duration::ZERO);
    if first.as_per_second() > 0.0 {
        return first;
    }
    let period = profile.period();
    Rate::per_second(profile.expected_by(period) / period.as_secs_f64())
}

fn source<A, R>(
    plan: &Plan<A>,
    schedule: Option<Schedule>,
    start: Instant,
    window: Window,
    number: usize,
    lanes: usize,
) -> Source<R> {
    match (&plan.pace, schedule) {
        (Pace::Closed { depth }, _) => {
            let (next, step) = (number as u64, lanes as u64);
            Source::Closed { depth: *depth as usize, next, step, until: window.until }
        }
        (Pace::Open { .. }, Some(schedule)) => {
            Source::Open { schedule: Box::new(schedule), start, end: plan.warmup + plan.length, next: None }
        }
        (Pace::Open { .. }, None) => unreachable!("an open loop has a schedule"),
    }
}

/// Ends of the intervals: every `interval` of the warm-up and of the measurement, and the end of
/// each.
fn boundaries<A>(plan: &Plan<A>, start: Instant) -> Vec<Instant> {
    let mut boundaries = Vec::new();
    for (begin, length) in [(start, plan.warmup), (start + plan.warmup, plan.length)] {
        let whole = length.as_nanos() / plan.interval.as_nanos();
        boundaries.extend((1..=whole).map(|n| begin + plan.interval * n));
        if length.as_nanos() % plan.interval.as_nanos() > 0 {
            boundaries.push(begin + length);
        }
    }
    boundaries
}

/// Mean rate that the plan asks for between two times since the load began.
fn offered<A>(plan: &Plan<A>, begin: Duration, end: Duration) -> Option<Rate> {
    let Pace::Open { profile, .. } = &plan.pace else { return None };
    if end <= begin {
        return Some(Rate::ZERO);
    }
    if begin < plan.warmup {
        return Some(warm_rate(profile));
    }
    let events = profile.expected_by(end - plan.warmup) - profile.expected_by(begin - plan.warmup);
    Some(Rate::per_second(events / (end - begin).as_secs_f64()))
}

struct Merger<'a, A> {
    plan: &'a Plan<A>,
    start: Instant,
    boundaries: &'a [Instant],
    lanes: usize,
}

/// The lanes' parts of one interval, until all have come.
struct Parts {
    tally: Box<Tally>,
    cpu_time: Duration,
    missing: usize,
}

impl<A> Merger<'_, A> {
    /// Until every lane has ended: merges their reports, interval by interval, in order.
    fn follow(
        &self,
        received: &mpsc::Receiver<LaneInterval>,
        empties: &[mpsc::Sender<Box<Tally>>],
        mut emit: impl FnMut(Interval<'_>),
    ) {
        let mut open: std::collections::BTreeMap<usize, Parts> = std::collections::BTreeMap::new();
        for report in received {
            let mut tally = report.tally;
            let parts = open.entry(report.number).or_insert_with(|| Parts {
                tally: Box::new(Tally::new()),
                cpu_time: Duration::ZERO,
                missing: self.lanes,
            });
            parts.tally.add(&tally);
            parts.cpu_time += report.cpu_time;
            parts.missing -= 1;
            tally.clear();
            let _ = empties[report.lane].send(tally);
            while let Some(first) = open.first_entry().filter(|first| first.get().missing == 0) {
                let (number, parts) = first.remove_entry();
                let progress = self.progress(number, &parts);
                let late_answers = number == self.boundaries.len();
                if late_answers && parts.tally.latency.is_empty() {
                    continue;
                }
                emit(Interval { progress: &progress, latencies: &parts.tally.latency });
            }
        }
    }

    fn progress(&self, number: usize, parts: &Parts) -> Progress {
        let end_of = |number: usize| self.boundaries.get(number).map(|end| end.since(self.start));
        let begin = number.checked_sub(1).and_then(end_of).unwrap_or(Duration::ZERO);
        // Beyond the last boundary only late answers come in.
        let end = end_of(number).unwrap_or_else(|| os::now().since(self.start));
        let part = match end_of(number) {
            Some(end) if end <= self.plan.warmup => Part::Warmup,
            Some(_) => Part::Measured,
            None => Part::Drain,
        };
        let latency = &parts.tally.latency;
        Progress {
            at: end,
            length: end - begin,
            part,
            offered: if part == Part::Drain { None } else { offered(self.plan, begin, end) },
            achieved: Rate::of(parts.tally.counts.answered, end - begin),
            latency: Percentiles::of(latency),
            lateness_p99: quantile(&parts.tally.lateness, 0.99),
            counts: parts.tally.counts,
            cpu_time: parts.cpu_time,
        }
    }
}

/// Time for the threads to be started and pinned before the first request is due.
const THREADS_READY: Duration = Duration::from_millis(5);
/// Tallies on their way between a lane and the merger, so that a lane never allocates one.
const TALLIES_IN_FLIGHT: usize = 3;
const REMARKS_MAX: usize = 3;
