//! Sensitivity as the frequency policy of a driver that counts the work of its CPUs: one policy for
//! each physical core.

use super::{Params, Progress, Sensitivity};
use crate::frequency::PointTable;
use crate::kind::{Decision, FrequencyPolicy, Making, Policy, Readings, Seen};
use machine::{CpuId, Duration, Instant};
use std::collections::VecDeque;

/// The policies of all physical cores of a driver that counts the work of their threads.
pub struct PerCore {
    points: PointTable,
    cores: Vec<Core>,
    due: Option<Instant>,
    decisions: VecDeque<Decision>,
}

#[derive(Clone)]
struct Core {
    policy: Sensitivity,
    work_done: f64,
    working: Duration,
}

impl PerCore {
    pub(super) fn new(making: &Making<'_>) -> Self {
        Self::of(making.params(), making.points(), making.cores())
    }

    fn of(params: Params, points: PointTable, cores: usize) -> Self {
        let core = Core { policy: Sensitivity::new(params), work_done: 0.0, working: Duration::ZERO };
        let due = Some(Instant::ZERO + core.policy.period()).filter(|_| cores > 0);
        Self { points, cores: vec![core; cores], due, decisions: VecDeque::new() }
    }
}

impl Policy for PerCore {
    fn readings(&self) -> Readings {
        Readings { cpus: true, quantile: None }
    }

    fn handle_timeout(&mut self, now: Instant, seen: &Seen<'_>) {
        let count = self.cores.len();
        for ((index, core), first) in self.cores.iter_mut().enumerate().zip(seen.cpus) {
            let threads = || (index..seen.cpus.len()).step_by(count);
            let work_done: f64 = threads().map(|cpu| seen.cpus[cpu].work_done).sum();
            let progress = Progress {
                instructions: work_done - core.work_done,
                speed: self.points.speed(first.point),
                busy: first.core_working - core.working,
            };
            let point = core.policy.handle_step(&self.points, &progress);
            (core.work_done, core.working) = (work_done, first.core_working);
            self.decisions
                .extend(threads().map(|cpu| Decision::OperatingPoint { cpu: CpuId(cpu as u16), point }));
        }
        self.due = self.cores.first().map(|core| now + core.policy.period());
    }

    fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}

impl FrequencyPolicy for PerCore {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::PointIndex;
    use crate::frequency::points::tests::nine_points;
    use crate::kind::CpuTotals;
    use machine::Ratio;

    /// One core of two threads whose work does not mind the clock, step by step; of each step the
    /// part of it in which thread 0 and thread 1 work, together or one after the other.
    fn points_of(steps: u64, parts: [u64; 2], together: bool) -> Vec<[PointIndex; 2]> {
        let points = nine_points();
        let params = Params { slack: Ratio::new(0.1), ..Params::default() };
        let mut policy = PerCore::of(params, points, 1);
        let mut totals = [CpuTotals { point: points.fastest(), ..CpuTotals::default() }; 2];
        let any = if together { parts[0].max(parts[1]) } else { parts[0] + parts[1] };
        let mut chosen = Vec::new();
        for step in 1..=steps {
            for (cpu, part) in totals.iter_mut().zip(parts) {
                cpu.working += Duration::from_micros(part);
                cpu.core_working += Duration::from_micros(any);
                cpu.work_done += part as f64;
            }
            let now = Instant::ZERO + Duration::from_millis(step);
            policy.handle_timeout(now, &Seen { cpus: &totals, ..Seen::default() });
            let mut of_step = [PointIndex(0); 2];
            while let Some(Decision::OperatingPoint { cpu, point }) = policy.poll_decision() {
                of_step[cpu.index()] = point;
                totals[cpu.index()].point = point;
            }
            chosen.push(of_step);
        }
        chosen
    }

    #[test]
    fn the_threads_of_a_core_are_one_policy() {
        // An idle sibling, one that works beside, and one that takes turns: the same work per busy
        // time in every operating point, so the slowest operating point will do.
        for (parts, together) in [([800, 0], true), ([800, 800], true), ([400, 400], false)] {
            let chosen = points_of(60, parts, together);
            assert!(chosen.iter().all(|[one, other]| one == other), "{parts:?}: {chosen:?}");
            assert_eq!(chosen.last(), Some(&[PointIndex(0); 2]), "{parts:?}");
        }
    }
}
