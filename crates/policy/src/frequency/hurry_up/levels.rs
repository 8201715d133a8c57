//! The frequency of a core, from all that there is to do on it.
//!
//! The problem: a clock belongs to a core, often to several cores together, and urgency belongs to
//! threads, which move, wait for their turn, and wait for each other. So a level is the maximum
//! over everything that can run:
//!
//! | on a CPU of the domain | needs |
//! |---|---|
//! | nothing | f_min |
//! | anything that runs | f_mid |
//! | a thread that is inside, and runs or waits for its turn | f_mid, f_max once it is late |
//! | the runtime's own work, while a thread that is inside waits for something | f_max |
//!
//! The last line is about a stop of the whole runtime. A thread that is inside when garbage is
//! collected, or when all threads are brought to a safepoint, cannot run, and its time goes on: the
//! stop that it waits for is as urgent as itself.
//!
//! A pause shorter than a *grace* is no stop: a core becomes idle, and a thread stops to count,
//! only then.
//!
//! Terms. A *domain* is the CPUs that can only change speed together: those that share a clock, and
//! siblings of one core.
//!
//! Invariants: a domain's level is the greatest that one of its CPUs needs; the order in
//! which needs are told leaves no trace.

use super::super::PointIndex;
use machine::{CpuId, Instant};
use serde::{Deserialize, Serialize};

/// How fast; a greater one is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// f_min.
    Min,
    /// f_mid.
    Mid,
    /// f_max.
    Max,
}

/// The work of a CPU, apart from threads that are inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    Idle,
    Other,
    /// Work that the service's runtime does for all its threads: collecting garbage, stopping them
    /// at a safepoint.
    Runtime,
}

/// The cores that this policy controls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Cores {
    /// Sorted by the number of the core.
    cores: Vec<Core>,
    /// The level of each domain.
    domains: Vec<Level>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Core {
    cpu: CpuId,
    domain: usize,
    work: Work,
    /// It is idle, and will count as such from then on.
    idle_from: Option<Instant>,
    commanded: Option<PointIndex>,
}

impl Cores {
    /// All idle. A CPU that is named twice belongs to the first domain.
    pub(super) fn new(domains: impl IntoIterator<Item = Vec<CpuId>>) -> Self {
        let mut cores = Vec::new();
        let mut count = 0;
        for (domain, cpus) in domains.into_iter().enumerate() {
            let core = |cpu| Core { cpu, domain, work: Work::Idle, idle_from: None, commanded: None };
            cores.extend(cpus.into_iter().map(core));
            count = domain + 1;
        }
        cores.sort_by_key(|core| (core.cpu, core.domain));
        cores.dedup_by_key(|core| core.cpu);
        Self { cores, domains: vec![Level::Min; count] }
    }

    pub(super) fn place(&self, cpu: CpuId) -> Option<usize> {
        self.cores.binary_search_by_key(&cpu, |core| core.cpu).ok()
    }

    pub(super) fn cpu(&self, core: usize) -> CpuId {
        self.cores[core].cpu
    }

    /// The work of the CPU. An idle one counts as such from `idle_from` on; one that is none of
    /// ours does nothing.
    pub(super) fn set_work(&mut self, cpu: CpuId, work: Work, idle_from: Instant) {
        let Some(place) = self.place(cpu) else { return };
        let core = &mut self.cores[place];
        match work {
            Work::Idle if core.work == Work::Idle => {}
            Work::Idle => core.idle_from = core.idle_from.or(Some(idle_from)),
            work => (core.work, core.idle_from) = (work, None),
        }
    }

    /// When the next core will count as idle.
    pub(super) fn next_idle(&self) -> Option<Instant> {
        self.cores.iter().filter_map(|core| core.idle_from).min()
    }

    /// Cores that have been idle for long enough are.
    pub(super) fn pause(&mut self, now: Instant) {
        for core in &mut self.cores {
            if core.idle_from.is_some_and(|from| from <= now) {
                (core.work, core.idle_from) = (Work::Idle, None);
            }
        }
    }

    /// Begins to find levels: from work alone, if that counts. `is_awaited`: a thread that is
    /// inside waits for something.
    pub(super) fn begin(&mut self, work_counts: bool, is_awaited: bool) {
        self.domains.fill(Level::Min);
        if !work_counts {
            return;
        }
        for core in &self.cores {
            let needs = match core.work {
                Work::Idle => Level::Min,
                Work::Runtime if is_awaited => Level::Max,
                Work::Other | Work::Runtime => Level::Mid,
            };
            let level = &mut self.domains[core.domain];
            *level = needs.max(*level);
        }
    }

    /// The core needs at least this.
    pub(super) fn raise(&mut self, core: usize, needs: Level) {
        let level = &mut self.domains[self.cores[core].domain];
        *level = needs.max(*level);
    }

    pub(super) fn levels(&self) -> impl Iterator<Item = (CpuId, Level)> + '_ {
        self.cores.iter().map(|core| (core.cpu, self.domains[core.domain]))
    }

    /// A core that is to run at another operating point than it was told last; from now on it was
    /// told.
    pub(super) fn poll_change(&mut self, paces: &[PointIndex; 3]) -> Option<(CpuId, PointIndex)> {
        let domains = &self.domains;
        let wanted = |core: &Core| paces[domains[core.domain] as usize];
        let core = self.cores.iter_mut().find(|core| core.commanded != Some(wanted(core)))?;
        let point = wanted(core);
        core.commanded = Some(point);
        Some((core.cpu, point))
    }
}
