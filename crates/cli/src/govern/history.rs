//! The epochs of a governed service, small enough to keep for weeks.
//!
//! Each epoch is a point. Where there are more points than a page can show, two neighbours become
//! one: the mean of the rate and the cores, the larger of the tails. So a missed goal stays
//! visible.

use daemon::{Governed, Status};
use machine::{CpuId, Duration, Goal, Instant, Rate};
use policy::governing::Mode;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
pub struct History {
    #[serde(skip)]
    began: Instant,
    pub services: BTreeMap<String, Told>,
}

#[derive(Debug, Serialize)]
pub struct Told {
    pub last: Status,
    pub points: Vec<Point>,
    /// So many epochs are one point.
    pub epochs_per_point: u32,
    /// Changes of its CPUs; the last ones where there were many.
    pub changes: Vec<Change>,
    pub changes_so_far: u64,
    /// Epochs with a goal and a known tail, and those of them that kept it.
    pub judged: (u64, u64),
    /// Core-epochs that it had, and that it could have had.
    pub awake: (u64, u64),
    /// The use of each CPU while it was parked.
    pub parked: BTreeMap<CpuId, Parked>,
    /// Names of the idle states of these CPUs, where the kernel has any.
    pub states: Vec<String>,
    #[serde(skip)]
    pending: Option<(Point, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Its end, in seconds since the beginning.
    pub at_s: f64,
    /// Requests per second.
    pub rate: Option<f64>,
    pub tail_ns: Option<u64>,
    pub cores: f64,
    pub goal: Option<Goal>,
    /// It had all cores because something failed, or because it was paused.
    pub is_open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// When, in milliseconds since the beginning.
    pub at_ms: u64,
    pub cpus: String,
    pub why: String,
    /// The value that a person set, where the policy did not choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
}

/// A person's change between two epochs: the goal, a pause, its end.
fn interventions(before: &Status, now: &Status) -> Vec<String> {
    let goal = |goal: Option<Goal>| goal.map_or_else(|| "none".to_owned(), |goal| goal.to_string());
    let mut set = Vec::new();
    if before.goal != now.goal {
        set.push(format!("set: goal {} -> {}", goal(before.goal), goal(now.goal)));
    }
    match (before.mode == Mode::Paused, now.mode == Mode::Paused) {
        (false, true) => set.push("set: pause".to_owned()),
        (true, false) => set.push("set: resume".to_owned()),
        _ => {}
    }
    set
}

/// Sums over the epochs in which a CPU was parked.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Parked {
    pub epochs: u64,
    /// Of them, with a known share of work.
    pub known: u64,
    /// The sum of the shares of work.
    pub busy: f64,
    /// The sums of the shares of each idle state.
    pub residency: Vec<f64>,
    pub slept: u64,
}

/// More points than this are merged.
const POINTS_MAX: usize = 4000;
/// More changes than this are counted only.
const CHANGES_MAX: usize = 200;

impl History {
    pub fn begin(now: Instant) -> Self {
        Self { began: now, services: BTreeMap::new() }
    }

    /// True if no epoch has ended.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// An epoch of a service has ended.
    pub fn take(&mut self, now: Instant, governed: &Governed) {
        let at = now.since(self.began);
        let status = governed.status();
        let told = self.services.entry(status.name.clone()).or_insert_with(|| Told::new(status.clone()));
        if told.states.is_empty() {
            let table = governed.idle_tables().map(|(_, table)| table).max_by_key(|table| table.0.len());
            told.states = table.iter().flat_map(|table| &table.0).map(|state| state.name.clone()).collect();
        }
        // Who was parked at the end of an epoch was so for most of it: changes come at its
        // beginning.
        for cpu in governed.last_cpus().iter().filter(|cpu| !told.last.cpus.0.contains(&cpu.cpu)) {
            let parked = told.parked.entry(cpu.cpu).or_default();
            parked.epochs += 1;
            if let Some(busy) = cpu.busy {
                parked.known += 1;
                parked.busy += busy.as_f64();
            }
            if let Some(residency) = &cpu.residency {
                parked.slept += 1;
                parked.residency.resize(residency.len().max(parked.residency.len()), 0.0);
                parked.residency.iter_mut().zip(residency).for_each(|(sum, share)| *sum += share.as_f64());
            }
        }
        told.intervene(at, &status);
        if let Some(change) = governed.last_change().filter(|change| change.epoch == status.epochs) {
            told.changes_so_far += 1;
            told.note(at, &status, change.why.clone(), None);
        }
        told.epoch(at, status);
    }
}

impl Told {
    fn new(status: Status) -> Self {
        Self {
            last: status,
            points: Vec::new(),
            epochs_per_point: 1,
            changes: Vec::new(),
            changes_so_far: 0,
            judged: (0, 0),
            awake: (0, 0),
            parked: BTreeMap::new(),
            states: Vec::new(),
            pending: None,
        }
    }

    /// The changes since the last epoch.
    fn intervene(&mut self, at: Duration, status: &Status) {
        for set in interventions(&self.last, status) {
            self.note(at, status, "asked for".to_owned(), Some(set));
        }
    }

    fn note(&mut self, at: Duration, status: &Status, why: String, asked: Option<String>) {
        if self.changes.len() >= CHANGES_MAX {
            self.changes.remove(0);
        }
        let at_ms = at.as_nanos() / 1_000_000;
        self.changes.push(Change { at_ms, cpus: status.cpus.to_string(), why, asked });
    }

    fn epoch(&mut self, at: Duration, status: Status) {
        let tail = status.service.tail.or(status.service.p99).or(status.service.p95);
        if let (Some(goal), Some(tail)) = (status.goal, status.service.tail) {
            self.judged.0 += 1;
            self.judged.1 += u64::from(tail <= goal.latency);
        }
        self.awake.0 += u64::from(status.cores.0);
        self.awake.1 += u64::from(status.cores.1);
        let point = Point {
            at_s: at.as_secs_f64(),
            rate: status.service.rate.map(Rate::as_per_second),
            tail_ns: tail.map(Duration::as_nanos),
            cores: f64::from(status.cores.0),
            goal: status.goal,
            is_open: status.mode != Mode::Searching,
        };
        self.last = status;
        let (merged, epochs) = match self.pending.take() {
            None => (point, 1),
            Some((before, epochs)) => (merge(before, epochs, point, 1), epochs + 1),
        };
        if epochs < self.epochs_per_point {
            self.pending = Some((merged, epochs));
            return;
        }
        self.points.push(merged);
        if self.points.len() > POINTS_MAX {
            let pairs = self.points.chunks(2);
            self.points =
                pairs.map(|pair| pair.iter().skip(1).fold(pair[0], |a, &b| merge(a, 1, b, 1))).collect();
            self.epochs_per_point *= 2;
        }
    }
}

/// Two stretches, of so many epochs each, as one.
fn merge(a: Point, of_a: u32, b: Point, of_b: u32) -> Point {
    let mean = |a: f64, b: f64| (a * f64::from(of_a) + b * f64::from(of_b)) / f64::from(of_a + of_b);
    Point {
        at_s: b.at_s,
        rate: match (a.rate, b.rate) {
            (Some(a), Some(b)) => Some(mean(a, b)),
            (a, b) => a.or(b),
        },
        tail_ns: a.tail_ns.max(b.tail_ns),
        cores: mean(a.cores, b.cores),
        goal: b.goal,
        is_open: a.is_open || b.is_open,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use machine::{CpuList, ServiceReading};

    pub fn status(cores: u16, tail_us: u64) -> Status {
        Status {
            cpus: CpuList((0..cores).map(CpuId).collect()),
            allowed: CpuList((0..8).map(CpuId).collect()),
            cores: (cores, 8),
            service: ServiceReading {
                rate: Some(Rate::per_second(1000.0)),
                tail: (tail_us > 0).then(|| Duration::from_micros(tail_us)),
                ..ServiceReading::default()
            },
            curve: vec![(2, Duration::from_micros(700)), (3, Duration::from_micros(320))],
            ..crate::metrics::govern::tests::status()
        }
    }

    pub fn history(epochs: &[(u16, u64)]) -> History {
        let mut told = Told::new(status(8, 100));
        for (second, &(cores, tail)) in (1..).zip(epochs) {
            told.epoch(Duration::from_secs(second), status(cores, tail));
        }
        History { began: Instant::from_nanos(0), services: [("cache".to_owned(), told)].into() }
    }

    #[test]
    fn what_was_missed_stays_to_be_seen_however_long_it_runs() {
        let epochs: Vec<(u16, u64)> =
            (0..20_000).map(|epoch| if epoch == 7_777 { (8, 9_000) } else { (2, 300) }).collect();
        let history = history(&epochs);
        let told = &history.services["cache"];
        assert!(
            told.points.len() <= POINTS_MAX + 1 && told.points.len() > POINTS_MAX / 4,
            "{}",
            told.points.len()
        );
        assert_eq!(told.points.iter().filter(|point| point.tail_ns == Some(9_000_000)).count(), 1);
        assert_eq!(told.judged, (20_000, 19_999));
        let mean = told.points.iter().map(|point| point.cores).sum::<f64>() / told.points.len() as f64;
        assert!((mean - 2.0).abs() < 0.01, "{mean}");
        assert!(told.points.windows(2).all(|pair| pair[0].at_s < pair[1].at_s));
    }

    /// Epochs of a service whose goal is set, and which is paused and resumed.
    pub fn intervened() -> History {
        let mut told = Told::new(status(8, 100));
        let goal = |text: &str| Some(text.parse().unwrap());
        let with = |text: &str, mode: Mode| Status { goal: goal(text), mode, ..status(4, 300) };
        let epochs = [
            with("500us@p99", Mode::Searching),
            with("3ms@p99", Mode::Searching),
            with("3ms@p99", Mode::Paused),
            with("3ms@p99", Mode::Searching),
        ];
        for (second, status) in (1..).zip(epochs) {
            told.intervene(Duration::from_secs(second), &status);
            told.epoch(Duration::from_secs(second), status);
        }
        History { began: Instant::from_nanos(0), services: [("cache".to_owned(), told)].into() }
    }

    #[test]
    fn what_a_person_set_is_among_the_changes_and_is_no_change_of_cores() {
        let history = intervened();
        let told = &history.services["cache"];
        let set: Vec<(u64, &str)> =
            told.changes.iter().map(|change| (change.at_ms, change.asked.as_deref().unwrap())).collect();
        assert_eq!(
            set,
            [(2_000, "set: goal 500us@p99 -> 3.00ms@p99"), (3_000, "set: pause"), (4_000, "set: resume")]
        );
        assert_eq!(told.changes_so_far, 0);
    }

    #[test]
    fn a_tail_that_is_missing_is_no_point_and_no_verdict() {
        let history = history(&[(1, 0), (1, 0)]);
        let told = &history.services["cache"];
        assert_eq!(told.judged, (0, 0));
        assert!(told.points.iter().all(|point| point.tail_ns.is_none()));
    }
}
