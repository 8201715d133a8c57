//! How deep a CPU may sleep (Peafowl, section 3.2): idle states are for the CPUs of inactive
//! workers only.
//!
//! An active worker sleeps between requests, for too short a time to gain anything from a deep
//! state, and the next request would pay for its exit. So the CPUs of active workers are limited to
//! their shallowest state that halts, or to polling; the others have no limit of ours. Several
//! workers may share a CPU: it is inactive only when all of them are.
//!
//! Invariants: a limit is asked for only when it changes; a CPU without any worker is never
//! named.

use machine::{Command, CpuId, Duration, IdleLimit, WorkerId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The behaviour of an active worker's CPU without work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It halts in its shallowest state.
    #[default]
    Halt,
    /// It spins, ready at once, at full power.
    Poll,
    /// The kernel's own governor decides; nothing is limited.
    Stock,
}

/// Where the state of an active worker's CPU comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Rule {
    Mode(Mode),
    /// A plan says how long its exit may take.
    Planned(Duration),
}

/// The idle limits of the CPUs that have workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActiveIdle {
    rule: Rule,
    workers: Vec<(WorkerId, CpuId)>,
    shallowest_halt: BTreeMap<CpuId, Duration>,
    in_force: BTreeMap<CpuId, IdleLimit>,
}

impl ActiveIdle {
    /// `shallowest_halt`: by CPU, the exit latency of its shallowest state that does not poll. A
    /// CPU that is missing there has no table and is never limited to a halt.
    pub fn new(
        mode: Mode,
        workers: &[(WorkerId, CpuId)],
        shallowest_halt: impl IntoIterator<Item = (CpuId, Duration)>,
    ) -> Self {
        Self {
            rule: Rule::Mode(mode),
            workers: workers.to_vec(),
            shallowest_halt: shallowest_halt.into_iter().collect(),
            in_force: workers.iter().map(|&(_, cpu)| (cpu, IdleLimit::None)).collect(),
        }
    }

    /// As [`Self::plan`] says, whatever the CPUs' states are.
    pub fn planned(workers: &[(WorkerId, CpuId)], exit_latency: Duration) -> Self {
        Self { rule: Rule::Planned(exit_latency), ..Self::new(Mode::Stock, workers, []) }
    }

    /// Active CPUs may sleep in states with this exit latency, from the next [`Self::handle_active`] on.
    pub fn plan(&mut self, exit_latency: Duration) {
        self.rule = Rule::Planned(exit_latency);
    }

    /// The set of active workers is this now: the commands that lead there.
    pub fn handle_active(&mut self, active: &[WorkerId]) -> Vec<Command> {
        let Self { rule, workers, shallowest_halt, in_force } = self;
        let mut commands = Vec::new();
        for (&cpu, current) in in_force {
            let is_active = workers.iter().any(|(worker, on)| *on == cpu && active.contains(worker));
            let limit = match rule {
                _ if !is_active => IdleLimit::None,
                Rule::Mode(Mode::Stock) => IdleLimit::None,
                Rule::Mode(Mode::Poll) => IdleLimit::ExitLatency(Duration::ZERO),
                Rule::Mode(Mode::Halt) => shallowest_halt
                    .get(&cpu)
                    .map_or(IdleLimit::None, |&exit_latency| IdleLimit::ExitLatency(exit_latency)),
                Rule::Planned(exit_latency) => IdleLimit::ExitLatency(*exit_latency),
            };
            if limit != *current {
                *current = limit;
                commands.push(Command::LimitIdle { cpu, limit });
            }
        }
        commands
    }

    /// The limits in force, by CPU.
    pub fn limits(&self) -> impl Iterator<Item = (CpuId, IdleLimit)> + '_ {
        self.in_force.iter().map(|(&cpu, &limit)| (cpu, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_PER_CPU: [(WorkerId, CpuId); 4] =
        [(WorkerId(0), CpuId(2)), (WorkerId(1), CpuId(2)), (WorkerId(2), CpuId(5)), (WorkerId(3), CpuId(5))];

    fn limits(mode: Mode) -> ActiveIdle {
        let two_us = Duration::from_micros(2);
        ActiveIdle::new(mode, &TWO_PER_CPU, [(CpuId(2), two_us), (CpuId(5), two_us), (CpuId(9), two_us)])
    }

    fn limit(cpu: u16, limit: IdleLimit) -> Command {
        Command::LimitIdle { cpu: CpuId(cpu), limit }
    }

    #[test]
    fn a_cpu_is_inactive_only_when_all_its_workers_are() {
        let mut idle = limits(Mode::Halt);
        let halt = IdleLimit::ExitLatency(Duration::from_micros(2));
        let all: Vec<_> = (0..4).map(WorkerId).collect();
        assert_eq!(idle.handle_active(&all), [limit(2, halt), limit(5, halt)]);
        assert_eq!(idle.handle_active(&[WorkerId(0), WorkerId(1), WorkerId(3)]), []);
        assert_eq!(idle.handle_active(&[WorkerId(1)]), [limit(5, IdleLimit::None)]);
        assert_eq!(idle.handle_active(&[WorkerId(0)]), []);
        assert_eq!(idle.handle_active(&[]), [limit(2, IdleLimit::None)]);
    }

    #[test]
    fn only_changes_are_asked_for_and_by_the_cpus_own_number() {
        // The published code wrote the files of CPU worker + 1.
        let mut idle = limits(Mode::Poll);
        let poll = IdleLimit::ExitLatency(Duration::ZERO);
        assert_eq!(idle.handle_active(&[WorkerId(2)]), [limit(5, poll)]);
        assert_eq!(idle.handle_active(&[WorkerId(2), WorkerId(3)]), []);
        assert_eq!(idle.limits().collect::<Vec<_>>(), [(CpuId(2), IdleLimit::None), (CpuId(5), poll)]);
    }

    #[test]
    fn stock_and_unknown_tables_ask_for_nothing() {
        assert_eq!(limits(Mode::Stock).handle_active(&[WorkerId(0), WorkerId(2)]), []);
        let mut no_table = ActiveIdle::new(Mode::Halt, &TWO_PER_CPU, []);
        assert_eq!(no_table.handle_active(&[WorkerId(0), WorkerId(2)]), []);
    }
}
