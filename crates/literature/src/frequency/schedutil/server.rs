//! schedutil as the frequency policy of a machine: a governor for each CPU.

use super::Schedutil;
use crate::frequency::{PointIndex, PointTable};
use machine::{CpuId, Instant};
use policy::kind::{Decision, FrequencyPolicy, Making, Policy, Readings, Request, Seen, Watch};
use std::collections::VecDeque;

pub struct PerCpu {
    points: PointTable,
    cpus: Vec<Schedutil>,
    due: Option<Instant>,
    decisions: VecDeque<Decision>,
}

impl PerCpu {
    pub(super) fn new(making: &Making<'_>) -> Self {
        let cpus = vec![Schedutil::new(making.params()); making.cpus()];
        let due = cpus.first().map(|governor| Instant::ZERO + governor.period());
        Self { points: making.points(), cpus, due, decisions: VecDeque::new() }
    }

    #[inline]
    fn change(&mut self, now: Instant, cpu: usize, running: bool, point: PointIndex) -> Option<PointIndex> {
        let speed = self.points.speed(point);
        self.cpus[cpu].handle_change(now, &self.points, running, speed)
    }
}

impl Policy for PerCpu {
    fn readings(&self) -> Readings {
        Readings { cpus: true, quantile: None }
    }

    fn handle_timeout(&mut self, now: Instant, seen: &Seen<'_>) {
        for (cpu, totals) in seen.cpus.iter().enumerate().filter(|(_, totals)| totals.is_working) {
            if let Some(point) = self.change(now, cpu, true, totals.point) {
                self.decisions.push_back(Decision::OperatingPoint { cpu: CpuId(cpu as u16), point });
            }
        }
        self.due = self.cpus.first().map(|governor| now + governor.period());
    }

    #[inline]
    fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}

impl FrequencyPolicy for PerCpu {
    fn watches(&self) -> Watch {
        Watch::Work
    }

    #[inline]
    fn handle_start(
        &mut self,
        now: Instant,
        cpu: usize,
        _: &Request,
        point: PointIndex,
    ) -> Option<PointIndex> {
        self.change(now, cpu, true, point)
    }

    #[inline]
    fn handle_idle(&mut self, now: Instant, cpu: usize, point: PointIndex) -> Option<PointIndex> {
        self.change(now, cpu, false, point)
    }
}
