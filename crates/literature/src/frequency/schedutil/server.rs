//! schedutil as the frequency policy of a machine: a governor for each CPU.

use super::Schedutil;
use crate::frequency::{GearIndex, GearTable};
use machine::{CpuId, Instant};
use policy::kind::{Decision, FrequencyPolicy, Making, Policy, Readings, Request, Seen, Watch};
use std::collections::VecDeque;

pub struct PerCpu {
    gears: GearTable,
    cpus: Vec<Schedutil>,
    due: Option<Instant>,
    decisions: VecDeque<Decision>,
}

impl PerCpu {
    pub(super) fn new(making: &Making<'_>) -> Self {
        let cpus = vec![Schedutil::new(making.params()); making.cpus()];
        let due = cpus.first().map(|governor| Instant::ZERO + governor.period());
        Self { gears: making.gears(), cpus, due, decisions: VecDeque::new() }
    }

    #[inline]
    fn change(&mut self, now: Instant, cpu: usize, running: bool, gear: GearIndex) -> Option<GearIndex> {
        let speed = self.gears.speed(gear);
        self.cpus[cpu].handle_change(now, &self.gears, running, speed)
    }
}

impl Policy for PerCpu {
    fn readings(&self) -> Readings {
        Readings { cpus: true, quantile: None }
    }

    fn handle_timeout(&mut self, now: Instant, seen: &Seen<'_>) {
        for (cpu, totals) in seen.cpus.iter().enumerate().filter(|(_, totals)| totals.is_working) {
            if let Some(gear) = self.change(now, cpu, true, totals.gear) {
                self.decisions.push_back(Decision::Gear { cpu: CpuId(cpu as u16), gear });
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
    fn handle_start(&mut self, now: Instant, cpu: usize, _: &Request, gear: GearIndex) -> Option<GearIndex> {
        self.change(now, cpu, true, gear)
    }

    #[inline]
    fn handle_idle(&mut self, now: Instant, cpu: usize, gear: GearIndex) -> Option<GearIndex> {
        self.change(now, cpu, false, gear)
    }
}
