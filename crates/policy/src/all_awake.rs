//! No policy: every worker is awake and serves its own connections, as memcached does. The base of
//! every comparison.

use crate::Placement;
use crate::registry::{Entry, Maturity, Runs, Word};
use crate::worker_table::WorkerTable;
use machine::{CpuId, WorkerId};
use serde::{Deserialize, Serialize};

/// All workers awake; connections are placed round robin and stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllAwake {
    table: WorkerTable,
}

pub static ENTRY: Entry = Entry {
    words: &[Word::bare("all-awake", "all of them, always")],
    help: "No policy: every worker is awake and serves its own connections, as memcached does. The base \
           of every comparison.",
    runs: Runs::Live,
    maturity: Maturity::Production,
    origin: "memcached",
    is_constant: true,
    ..Entry::PLAIN
};

impl AllAwake {
    pub fn new(workers: &[(WorkerId, CpuId)]) -> Self {
        Self { table: WorkerTable::new(workers) }
    }

    /// A new connection is served at home.
    pub fn place(&mut self) -> Placement {
        let home = self.table.next_home();
        let home = self.table.entries[home].id;
        Placement { home, serve: home }
    }

    pub fn active(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.table.active_workers()
    }
}
