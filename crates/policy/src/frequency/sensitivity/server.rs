//! Sensitivity as the frequency policy of a driver that counts the work of its CPUs.

use super::{Progress, Sensitivity};
use crate::frequency::GearTable;
use crate::kind::{CpuTotals, Decision, FrequencyPolicy, Making, Policy, Readings, Seen};
use machine::{CpuId, Instant};
use std::collections::VecDeque;

/// The policies of all CPUs of a driver that counts their work.
pub struct PerCpu {
    gears: GearTable,
    cpus: Vec<(Sensitivity, CpuTotals)>,
    due: Option<Instant>,
    decisions: VecDeque<Decision>,
}

impl PerCpu {
    pub(super) fn new(making: &Making<'_>) -> Self {
        let cpus = vec![(Sensitivity::new(making.params()), CpuTotals::default()); making.cpus()];
        let due = cpus.first().map(|(policy, _)| Instant::ZERO + policy.period());
        Self { gears: making.gears(), cpus, due, decisions: VecDeque::new() }
    }
}

impl Policy for PerCpu {
    fn readings(&self) -> Readings {
        Readings { cpus: true, quantile: None }
    }

    fn handle_timeout(&mut self, now: Instant, seen: &Seen<'_>) {
        for ((cpu, (policy, last)), totals) in (0..).zip(&mut self.cpus).zip(seen.cpus) {
            let progress = Progress {
                instructions: totals.work_done - last.work_done,
                speed: self.gears.speed(totals.gear),
                busy: totals.working - last.working,
            };
            let gear = policy.handle_step(&self.gears, &progress);
            self.decisions.push_back(Decision::Gear { cpu: CpuId(cpu), gear });
            *last = *totals;
        }
        self.due = self.cpus.first().map(|(policy, _)| now + policy.period());
    }

    fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}

impl FrequencyPolicy for PerCpu {}
