//! The accounts of all CPU time since the start: each moment of each CPU belongs to one account.
//!
//! The planner's ledger has the time for which CPUs were kept awake, by principal. The rest of the
//! time a CPU is awake for other work or asleep. Those times belong to the *unowned* and the *idle*
//! principal. A program in the kernel counts a CPU's sleep from `cpu_idle` events. If the kernel
//! refuses the program, cpuidle's residency takes its place.
//!
//! Invariant: the accounts sum to the time that passed on all CPUs. The other source checks them:
//! time awake by the accounts against time awake by cpuidle's residency, both without the sleep in
//! progress.
//!
//! Energy: time awake is charged the active power of a CPU, and sleep the power of its idle state,
//! both from this processor's table (modelled). If there is a meter, its total is divided in these
//! proportions.

use super::status::BooksCheck;
use linux::probes::{IdleNow, IdleProgram};
use linux::{EnergyMeter, Root, idle_table, state_counts};
use machine::{CpuId, CpuList, CstateKind, CstateTable, Duration, EnergySource, Instant, PowerModel};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Books {
    root: Root,
    cpus: CpuList,
    tables: BTreeMap<CpuId, CstateTable>,
    events: Option<IdleProgram>,
    began: Instant,
    before: BTreeMap<CpuId, Slept>,
    meter: Option<EnergyMeter>,
    pub model: PowerModel,
}

/// The sleep of one CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Slept {
    /// Sleeps that have ended, counted by events.
    events: Duration,
    /// The sleep in progress.
    ongoing: Duration,
    /// Sleeps that have ended, counted by cpuidle.
    cpuidle: Duration,
    /// Modelled energy of the sleeps.
    microjoules: f64,
}

/// Time and energy since the start.
#[derive(Clone, Debug)]
pub(super) struct Passed {
    /// Time on all CPUs together.
    pub all: Duration,
    pub asleep: Duration,
    pub idle_joules: f64,
    pub check: Option<BooksCheck>,
    /// Measured energy, if there is a meter.
    pub measured_joules: Option<f64>,
    pub source: EnergySource,
}

impl Books {
    /// To be called before any thread runs on the CPUs; [`Self::begin`] follows when all of them
    /// have been awake once. The text says why events are not counted.
    pub fn open(root: &Root, cpus: &CpuList, events: bool) -> (Self, Option<String>) {
        let (events, notice) = match events.then(|| IdleProgram::load(false)) {
            Some(Ok(program)) => (Some(program), None),
            Some(Err(error)) => (None, Some(format!("sleep is told by cpuidle's residency alone: {error}"))),
            None => (None, None),
        };
        let now = linux::now();
        let meter = EnergyMeter::open(root, cpus, now);
        let books = Self {
            root: root.clone(),
            cpus: cpus.clone(),
            tables: cpus.0.iter().map(|&cpu| (cpu, idle_table(root, cpu).unwrap_or_default())).collect(),
            events,
            began: now,
            before: BTreeMap::new(),
            meter: meter.is_measured().then_some(meter),
            model: PowerModel::for_processor(&linux::processor(root)),
        };
        (books, notice)
    }

    /// Starts the accounts now.
    pub fn begin(&mut self) {
        self.before = self.slept();
        self.began = linux::now();
        if let Some(meter) = &mut self.meter {
            meter.read(self.began);
        }
    }

    /// Reads the accounts since [`Self::begin`].
    pub fn read(&mut self) -> Passed {
        let slept = self.slept();
        let now = linux::now();
        let all = now.since(self.began) * self.cpus.0.len() as u64;
        let (mut asleep, mut ended, mut cpuidle, mut microjoules) =
            (Duration::ZERO, Duration::ZERO, Duration::ZERO, 0.0);
        for (cpu, now) in &slept {
            let before = self.before.get(cpu).copied().unwrap_or_default();
            asleep += (now.events + now.ongoing) - (before.events + before.ongoing);
            // A sleep that was in progress at the start has ended since, and is in both sums.
            ended += now.events - before.events;
            cpuidle += now.cpuidle - before.cpuidle;
            microjoules += now.microjoules - before.microjoules;
        }
        let has_residency = self.tables.values().any(|table| !table.0.is_empty());
        let check = has_residency.then(|| BooksCheck {
            accounts: all - ended,
            cpuidle: all - cpuidle,
            percent: (ended.as_secs_f64() - cpuidle.as_secs_f64()).abs() / all.as_secs_f64().max(1e-9)
                * 100.0,
            is_independent: self.events.is_some(),
        });
        let source = match &self.meter {
            Some(meter) => meter.source(),
            None => EnergySource::Modelled(self.model.name.clone()),
        };
        let measured = self.meter.as_mut().and_then(|meter| meter.read(now));
        Passed {
            all,
            asleep,
            idle_joules: microjoules / 1e6,
            check,
            measured_joules: measured.map(|reading| reading.used.0 as f64 / 1e6),
            source,
        }
    }

    fn slept(&self) -> BTreeMap<CpuId, Slept> {
        let mut all: BTreeMap<CpuId, Slept> =
            self.cpus.0.iter().map(|&cpu| (cpu, Slept::default())).collect();
        for (cpu, slept) in &mut all {
            let table = &self.tables[cpu];
            let halting =
                |state: usize| table.0.get(state).is_some_and(|state| state.kind == CstateKind::Halting);
            let counts = state_counts(&self.root, *cpu).unwrap_or_default();
            let ended = counts.iter().enumerate().filter(|(state, _)| halting(*state));
            for (state, counts) in ended {
                slept.cpuidle += counts.time;
                slept.microjoules += self.watts(&table.0[state]) * counts.time.as_secs_f64() * 1e6;
            }
            slept.events = slept.cpuidle;
        }
        let Some(events) = &self.events else { return all };
        let now = linux::now();
        for counts in events.read() {
            let Some(slept) = all.get_mut(&counts.cpu) else { continue };
            let table = &self.tables[&counts.cpu];
            // Without a table every state counts as the plain halt.
            let halts =
                |state: usize| table.0.get(state).is_none_or(|state| state.kind == CstateKind::Halting);
            slept.events = Duration::ZERO;
            for (_, lengths) in counts.idle.iter().enumerate().filter(|(state, _)| halts(*state)) {
                slept.events += lengths.time();
            }
            if let IdleNow::Idle(state, since) = counts.now
                && halts(state)
            {
                slept.ongoing = now.since(since);
            }
        }
        all
    }

    fn watts(&self, state: &machine::Cstate) -> f64 {
        let power = self.model.charged_as(state).and_then(|state| state.power).unwrap_or(self.model.active);
        power.as_watts()
    }
}
