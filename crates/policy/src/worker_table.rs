//! The workers as a policy that places connections sees them, and the words it exchanges with its
//! driver.
//!
//! A reading arrives once per report period; between two of them the picture is kept right by
//! completed transfers, new connections and closes. A worker may therefore be believed to have a
//! connection more or less than it has, for a moment; nothing here relies on an exact count, and
//! the next reading corrects it.

use machine::{Command, ConnId, CpuId, Duration, Instant, Rate, Reading, WorkerId};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Why a connection went to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    Ordered,
    /// Sent home: requests came faster than the limit, seen between two reports.
    Burst,
    /// Sent home: the load as reported is above the limit.
    Overload,
    /// Sent home: the worker's tail is above the latency goal.
    Tail,
}

impl Why {
    /// True if a worker sent a guest home by itself.
    pub fn is_sent_home(self) -> bool {
        self != Self::Ordered
    }
}

/// A transfer that was completed: the target serves the connection now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    pub source: WorkerId,
    pub target: WorkerId,
    pub why: Why,
    /// The connection's load when it left.
    pub load: Rate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub home: WorkerId,
    /// The worker that serves it for now.
    pub serve: WorkerId,
}

/// Figures of the whole store that every worker needs; the driver hands them on after each reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Guidance {
    /// The limit of a worker that has learned none: the mean of the others'.
    pub fallback_limit: Option<Rate>,
    /// The mean load of the active workers, while an imbalance is being relieved or may be.
    pub share: Option<Rate>,
    /// More waiting requests than this at one worker are a jump of the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog: Option<u32>,
}

/// A connection whose move would bring its worker closest to the mean load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Movable {
    pub conn: ConnId,
    pub load: Rate,
}

/// One worker as its last report and the moves since then show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub id: WorkerId,
    pub cpu: CpuId,
    pub active: bool,
    /// It has reported since the start.
    pub seen: bool,
    pub connections: u32,
    pub load: Rate,
    pub heaviest: Rate,
    pub limit: Option<Rate>,
    /// A connection may be under way to it until then.
    pub expecting_until: Instant,
}

/// An order to move a connection that is under way. There is never more than one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingMigration {
    pub source: usize,
    pub target: usize,
    pub deadline: Instant,
}

impl PendingMigration {
    pub fn is_answered_by(&self, table: &WorkerTable, moved: &Moved) -> bool {
        moved.why == Why::Ordered
            && table.entries[self.source].id == moved.source
            && table.entries[self.target].id == moved.target
    }
}

/// All workers in the order in which they were named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorkerTable {
    pub entries: Vec<Entry>,
    next_home: usize,
}

impl WorkerTable {
    /// Begins with all active, without connections.
    pub fn new(workers: &[(WorkerId, CpuId)]) -> Self {
        let entry = |&(id, cpu): &(WorkerId, CpuId)| Entry {
            id,
            cpu,
            active: true,
            seen: false,
            connections: 0,
            load: Rate::ZERO,
            heaviest: Rate::ZERO,
            limit: None,
            expecting_until: Instant::ZERO,
        };
        assert!(!workers.is_empty(), "a store has at least one worker");
        Self { entries: workers.iter().map(entry).collect(), next_home: 0 }
    }

    pub fn place_of(&self, worker: WorkerId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.id == worker)
    }

    pub fn active(&self) -> usize {
        self.entries.iter().filter(|entry| entry.active).count()
    }

    pub fn active_workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.entries.iter().filter(|entry| entry.active).map(|entry| entry.id)
    }

    /// The entry of the next home, round robin.
    pub fn next_home(&mut self) -> usize {
        let home = self.next_home;
        self.next_home = (home + 1) % self.entries.len();
        home
    }

    /// The least loaded entry of those that `admits`; ties go to the one with fewer connections,
    /// then to the first.
    pub fn least_loaded(&self, admits: impl Fn(usize, &Entry) -> bool) -> Option<usize> {
        (0..self.entries.len())
            .filter(|&at| admits(at, &self.entries[at]))
            .min_by(|&a, &b| self.by_load(a, b))
    }

    /// Orders two entries by load, then by connections; equals keep their order.
    pub fn by_load(&self, a: usize, b: usize) -> std::cmp::Ordering {
        let (a, b) = (&self.entries[a], &self.entries[b]);
        a.load.as_per_second().total_cmp(&b.load.as_per_second()).then(a.connections.cmp(&b.connections))
    }

    /// Takes over the workers' reports. A worker with connections is active, whatever was thought.
    pub fn handle_reading(&mut self, reading: &Reading, commands: &mut VecDeque<Command>) {
        for report in &reading.workers {
            let Some(at) = self.place_of(report.worker) else { continue };
            let entry = &mut self.entries[at];
            entry.seen = true;
            entry.connections = report.connections;
            entry.load = report.load;
            entry.heaviest = report.heaviest;
            entry.limit = report.limit;
            if report.connections > 0 {
                self.activate(at, commands);
            }
        }
    }

    /// Takes over a completed transfer. The target is active from now on.
    pub fn handle_moved(&mut self, moved: &Moved, commands: &mut VecDeque<Command>) {
        if let Some(at) = self.place_of(moved.source) {
            let entry = &mut self.entries[at];
            entry.connections = entry.connections.saturating_sub(1);
            entry.load = entry.load - moved.load;
        }
        if let Some(at) = self.place_of(moved.target) {
            let entry = &mut self.entries[at];
            entry.connections += 1;
            entry.load += moved.load;
            self.activate(at, commands);
        }
    }

    /// The last connection of a worker closed.
    pub fn handle_released(&mut self, worker: WorkerId) {
        if let Some(at) = self.place_of(worker) {
            self.entries[at].connections = 0;
            self.entries[at].load = Rate::ZERO;
        }
    }

    /// When active workers without connections may rest.
    pub fn expectations(&self) -> impl Iterator<Item = Instant> + '_ {
        self.entries
            .iter()
            .filter(|entry| entry.active && entry.connections == 0)
            .map(|entry| entry.expecting_until)
    }

    /// A connection is under way to this worker.
    pub fn expect(&mut self, at: usize, now: Instant, grace: Duration) {
        self.entries[at].expecting_until = self.entries[at].expecting_until.max(now + grace);
    }

    /// A new connection goes to this worker.
    pub fn admit(&mut self, at: usize, now: Instant, grace: Duration, commands: &mut VecDeque<Command>) {
        self.entries[at].connections += 1;
        self.expect(at, now, grace);
        self.activate(at, commands);
    }

    pub fn activate(&mut self, at: usize, commands: &mut VecDeque<Command>) {
        if !self.entries[at].active {
            self.entries[at].active = true;
            commands.push_back(Command::Activate(self.entries[at].id));
        }
    }

    pub fn deactivate(&mut self, at: usize, commands: &mut VecDeque<Command>) {
        if self.entries[at].active {
            self.entries[at].active = false;
            commands.push_back(Command::Deactivate(self.entries[at].id));
        }
    }
}
