//! The director's last decision, for readers: the active workers and since when, the idle limits in
//! force.

use machine::{CpuId, Duration, IdleLimit, Instant, WorkerId};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct View {
    workers: Vec<Activity>,
    limits: BTreeMap<CpuId, (IdleLimit, bool)>,
}

#[derive(Clone, Copy, Debug)]
struct Activity {
    active: bool,
    since: Instant,
    /// Time active before `since`.
    before: Duration,
}

impl View {
    pub(crate) fn new(workers: usize, now: Instant) -> Self {
        let activity = Activity { active: true, since: now, before: Duration::ZERO };
        Self { workers: vec![activity; workers], limits: BTreeMap::new() }
    }

    /// These workers, and no others, are active from now on.
    pub(crate) fn set_active(&mut self, active: &[WorkerId], now: Instant) {
        for (at, worker) in self.workers.iter_mut().enumerate() {
            let becomes = active.iter().any(|id| id.index() == at);
            if becomes != worker.active {
                worker.before = worker.awake(now);
                worker.active = becomes;
                worker.since = now;
            }
        }
    }

    /// This limit was asked for, and holds or does not.
    pub(crate) fn set_limit(&mut self, cpu: CpuId, limit: IdleLimit, in_force: bool) {
        self.limits.insert(cpu, (limit, in_force));
    }

    pub(crate) fn is_active(&self, worker: WorkerId) -> bool {
        self.workers[worker.index()].active
    }

    /// Time that a worker has been active since the start.
    pub(crate) fn awake(&self, worker: WorkerId, now: Instant) -> Duration {
        self.workers[worker.index()].awake(now)
    }

    /// The limit that was asked for, and whether it holds; `None` if nothing was asked.
    pub(crate) fn limit(&self, cpu: CpuId) -> Option<(IdleLimit, bool)> {
        self.limits.get(&cpu).copied()
    }
}

impl Activity {
    fn awake(&self, now: Instant) -> Duration {
        if self.active { self.before + now.since(self.since) } else { self.before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awake_time_counts_active_spans_only() {
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let mut view = View::new(2, at(0));
        view.set_active(&[WorkerId(0)], at(10));
        view.set_active(&[WorkerId(0)], at(15));
        view.set_active(&[WorkerId(0), WorkerId(1)], at(20));
        assert_eq!(view.awake(WorkerId(0), at(30)), Duration::from_secs(30));
        assert_eq!(view.awake(WorkerId(1), at(30)), Duration::from_secs(20));
        assert!(view.is_active(WorkerId(1)));
    }
}
