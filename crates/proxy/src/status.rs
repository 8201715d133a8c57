//! A proxy's counts, and its public state.

use crate::backend::Failed;
use crate::shared::Shared;
use hdrhistogram::Histogram;
use http::StatusCode;
use machine::{Duration, Goal};
use policy::staging::Record;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    pub goal: Goal,
    /// Whether anything is held at all.
    pub hold: bool,
    pub connections: u32,
    /// Bytes of all bodies in memory.
    pub memory: u64,
    pub memory_limit: u64,
    /// Servers, in the order of the configuration.
    pub servers: Vec<ServerStatus>,
    /// Classes, in the order of the configuration; last the requests of no class.
    pub classes: Vec<ClassStatus>,
    /// The last failure of a server, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerStatus {
    pub name: String,
    /// Whether it answered when it was last asked.
    pub is_up: bool,
    pub failures: u64,
    /// Requests that wait for its next burst.
    pub held: u64,
    /// Requests that it works on and that were held.
    pub in_service: u64,
    pub bursts: u64,
    pub stage: Record,
    /// How long before its deadline a request goes now, at the latest: a burst's measured tail and
    /// the margin; none while nothing is known.
    #[serde(rename = "lead_ns", skip_serializing_if = "Option::is_none")]
    pub lead: Option<Duration>,
    /// The time of the next burst; none while no request is held.
    #[serde(rename = "due_in_ns", skip_serializing_if = "Option::is_none")]
    pub due_in: Option<Duration>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClassStatus {
    pub name: String,
    pub counts: Counts,
    /// From a request's arrival to its answer's end.
    pub latency: Times,
    pub held: Times,
}

/// The outcomes of requests. `arrived` is the sum of the ends and of those under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub arrived: u64,
    /// A server's answer was passed on, whatever it said.
    pub answered: u64,
    /// Of those, later than their deadline.
    pub late: u64,
    /// Refused as malformed: 4xx.
    pub refused: u64,
    /// Refused for want of memory: 503.
    pub no_memory: u64,
    /// No server answered: 502.
    pub failed: u64,
    /// None answered in time: 504.
    pub timed_out: u64,
    /// The client left first.
    pub gone: u64,
    /// The answer broke off in the middle.
    pub broke_off: u64,
    pub retried: u64,
}

impl Counts {
    pub fn ended(&self) -> u64 {
        self.answered
            + self.refused
            + self.no_memory
            + self.failed
            + self.timed_out
            + self.gone
            + self.broke_off
    }

    pub fn add(&mut self, other: &Self) {
        let Self { arrived, answered, late, refused, no_memory, failed, timed_out, gone, broke_off, retried } =
            other;
        self.arrived += arrived;
        self.answered += answered;
        self.late += late;
        self.refused += refused;
        self.no_memory += no_memory;
        self.failed += failed;
        self.timed_out += timed_out;
        self.gone += gone;
        self.broke_off += broke_off;
        self.retried += retried;
    }
}

/// The shape of a distribution of times, in nanoseconds where it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    pub count: u64,
    #[serde(rename = "mean_ns")]
    pub mean: Duration,
    #[serde(rename = "p50_ns")]
    pub p50: Duration,
    #[serde(rename = "p99_ns")]
    pub p99: Duration,
    #[serde(rename = "p999_ns")]
    pub p999: Duration,
    /// The quantile that the goal names.
    #[serde(rename = "goal_ns")]
    pub goal: Duration,
    #[serde(rename = "max_ns")]
    pub max: Duration,
}

impl Times {
    fn of(histogram: &Histogram<u64>, quantile: f64) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |quantile| Duration::from_micros(histogram.value_at_quantile(quantile));
        Self {
            count: histogram.len(),
            mean: Duration::from_nanos((histogram.mean() * 1e3) as u64),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            goal: at(quantile),
            max: Duration::from_micros(histogram.max()),
        }
    }
}

impl Status {
    pub(crate) fn of(shared: &Shared) -> Self {
        let now = linux::now();
        let server = |behind: &crate::shared::Behind| {
            let look = behind.stage.look();
            ServerStatus {
                name: behind.backend.name.clone(),
                is_up: behind.backend.is_up(),
                failures: behind.backend.failures.load(Ordering::Relaxed),
                held: look.held as u64,
                in_service: look.in_service,
                bursts: look.bursts,
                stage: look.record,
                lead: look.lead,
                due_in: look.due.map(|due| due.since(now)),
            }
        };
        let quantile = shared.config.goal.quantile;
        Self {
            goal: shared.config.goal,
            hold: shared.config.hold,
            connections: shared.connections.load(Ordering::Relaxed),
            memory: shared.budget.used(),
            memory_limit: shared.config.limits.memory,
            servers: shared.servers.iter().map(server).collect(),
            classes: shared.books.classes.iter().map(|class| class.status(quantile)).collect(),
            last_failure: lock(&shared.books.last_failure).clone(),
        }
    }

    pub fn counts(&self) -> Counts {
        let mut all = Counts::default();
        self.classes.iter().for_each(|class| all.add(&class.counts));
        all
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Answered { latency: Duration, held: Duration, in_time: bool },
    Refused(StatusCode),
    BrokeOff,
    Gone,
}

#[derive(Debug)]
pub(crate) struct Books {
    classes: Vec<Class>,
    last_failure: Mutex<Option<String>>,
}

#[derive(Debug)]
struct Class {
    name: String,
    arrived: AtomicU64,
    retried: AtomicU64,
    ended: Mutex<Ended>,
}

#[derive(Debug)]
struct Ended {
    counts: Counts,
    latency: Histogram<u64>,
    held: Histogram<u64>,
}

impl Books {
    pub(crate) fn new(classes: impl Iterator<Item = String>) -> Self {
        let class = |name| Class {
            name,
            arrived: AtomicU64::new(0),
            retried: AtomicU64::new(0),
            ended: Mutex::new(Ended { counts: Counts::default(), latency: histogram(), held: histogram() }),
        };
        Self { classes: classes.map(class).collect(), last_failure: Mutex::new(None) }
    }

    pub(crate) fn arrived(&self, class: usize) {
        self.classes[class].arrived.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn retried(&self, class: usize) {
        self.classes[class].retried.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, server: &str, failed: &Failed) {
        let why = match failed {
            Failed::NotSent(why) | Failed::Broken(why) => why,
            Failed::Slow => "no answer in time",
        };
        *lock(&self.last_failure) = Some(format!("{server}: {why}"));
    }

    pub(crate) fn ended(&self, class: usize, end: End) {
        let Ended { counts, latency: latencies, held: holds } = &mut *lock(&self.classes[class].ended);
        match end {
            End::Answered { latency, held, in_time } => {
                counts.answered += 1;
                counts.late += u64::from(!in_time);
                latencies.saturating_record(latency.as_micros().max(1));
                holds.saturating_record(held.as_micros().max(1));
            }
            End::Refused(StatusCode::BAD_GATEWAY) => counts.failed += 1,
            End::Refused(StatusCode::GATEWAY_TIMEOUT) => counts.timed_out += 1,
            End::Refused(StatusCode::SERVICE_UNAVAILABLE) => counts.no_memory += 1,
            End::Refused(_) => counts.refused += 1,
            End::BrokeOff => counts.broke_off += 1,
            End::Gone => counts.gone += 1,
        }
    }
}

impl Class {
    fn status(&self, quantile: f64) -> ClassStatus {
        // Ends before arrivals: the count of requests under way is never below zero.
        let (counts, latency, held) = {
            let ended = lock(&self.ended);
            (ended.counts, Times::of(&ended.latency, quantile), Times::of(&ended.held, quantile))
        };
        let arrived = self.arrived.load(Ordering::Relaxed);
        let retried = self.retried.load(Ordering::Relaxed);
        ClassStatus { name: self.name.clone(), counts: Counts { arrived, retried, ..counts }, latency, held }
    }
}

/// Microseconds up to five minutes, to three figures.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 300_000_000, 3).expect("bounds that a histogram can have")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
