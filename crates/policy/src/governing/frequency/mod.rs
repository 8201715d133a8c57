//! How fast the CPUs of a governed service may run.
//!
//! The kernel's own governor sees how busy a CPU is, and not whether that matters. Two policies
//! know better, one by the work that a core gets done and one by the latency that the service's
//! clients see: [`Sensitivity`] for each core, [`Pegasus`] for all of them; they are the
//! simulator's very own. Their answer is asked for as a *cap*: below it the kernel still chooses,
//! so nothing here makes a machine faster, or hotter, than it was.
//!
//! Terms. A *core* is a physical core with all its threads: they share a clock, so their
//! instructions are added, and the core was busy while any of them was. That share is not seen;
//! threads that come and go by chance are assumed, 1 - (1 - a)(1 - b). *Free* is no cap: the
//! fastest operating point, and turbo above it. A core is *dark* when its work was not counted.
//!
//! Invariants:
//! - A cap is asked for when it changes and not otherwise, and is an operating point of the table
//!   or the value that a person wrote.
//! - A parked CPU has the freest cap of the active ones: other work there is no worse off than the
//!   service, and where CPUs share a clock, parked ones do not keep it fast.
//! - A core that is dark for `lost_after` epochs is free, and learns anew when it is seen again.
//! - At most one core at a time makes its first trial in the slowest operating point: they begin
//!   two epochs apart.
//!
//! Where it fails: a step is an epoch here, not the paper's millisecond. A trial costs a core an
//! epoch in its slowest operating point out of every hundred, and at epochs of a second some client
//! meets it; short epochs make it cheap.

mod mode;

pub use mode::FrequencyMode;

use super::CpuTopology;
use crate::frequency::sensitivity::Progress;
use crate::frequency::{Pegasus, PointIndex, PointTable, Sensitivity, pegasus, sensitivity};
use machine::{
    Command, CpuId, CpuReading, Duration, FrequencyLimit, Goal, Instant, Kilohertz, Rate, Ratio, Reading,
    ServiceReading,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The same with all that it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frequency {
    /// No cap of ours.
    #[default]
    Stock,
    Cap(Kilohertz),
    /// By each core's sensitivity; `step` is the epoch.
    Sensitivity(sensitivity::Params),
    /// By the service's latency; `target` is the goal's.
    Pegasus(Goal, pegasus::Params),
}

/// Why a clock was capped or freed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockWhy {
    Configured,
    /// The speed that the core loses to a slower clock; unknown until it was tried.
    Sensitivity(Option<Ratio>),
    /// Nothing is counted any more.
    Dark,
    /// The share of full power that keeps the latency inside its goal.
    Power(Ratio),
    /// It is parked, and has the cap of the active ones.
    Parked,
}

impl fmt::Display for ClockWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured => f.write_str("configured"),
            Self::Sensitivity(None) => f.write_str("to see what the core loses to a slower clock"),
            Self::Sensitivity(Some(of)) => {
                write!(f, "the core follows its clock by {:.0} %", of.as_f64() * 100.0)
            }
            Self::Dark => f.write_str("its instructions are not counted any more"),
            Self::Power(cap) => write!(f, "{:.0} % of full power keep the goal", cap.as_f64() * 100.0),
            Self::Parked => f.write_str("parked: as the active ones"),
        }
    }
}

/// The policy of one core under [`Frequency::Sensitivity`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Core {
    policy: Sensitivity,
    point: PointIndex,
    /// Epochs until it may make its first trial.
    begins_in: u32,
    /// Epochs in a row in which it worked and nothing was counted.
    dark: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Choice {
    #[default]
    Constant,
    Each(Vec<Core>),
    All(Box<Pegasus>, PointIndex),
}

/// The clocks of the CPUs of one service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceFrequency {
    mode: Frequency,
    choice: Choice,
    /// By CPU; a CPU that is not here is free.
    in_force: BTreeMap<CpuId, FrequencyLimit>,
}

impl ServiceFrequency {
    /// No cap yet. Without operating points nothing but a person's cap can be asked for.
    pub fn new(mode: Frequency, topology: &CpuTopology) -> Self {
        Self { mode, choice: choice(mode, topology), in_force: BTreeMap::new() }
    }

    /// The goal; none where latency does not decide.
    pub fn goal(&self) -> Option<Goal> {
        match self.mode {
            Frequency::Pegasus(goal, _) => Some(goal),
            Frequency::Stock | Frequency::Cap(_) | Frequency::Sensitivity(_) => None,
        }
    }

    /// Another goal, where latency decides; the findings stay.
    pub fn set_goal(&mut self, goal: Goal) {
        if let Frequency::Pegasus(own, _) = &mut self.mode {
            *own = goal;
        }
        if let Choice::All(pegasus, _) = &mut self.choice {
            pegasus.set_target(goal.latency);
        }
    }

    /// Another mode from now on; the same again changes nothing.
    pub fn set_mode(&mut self, mode: Frequency, topology: &CpuTopology) {
        match (self.mode, mode) {
            (old, new) if old == new => {}
            (Frequency::Pegasus(_, old), Frequency::Pegasus(goal, new)) if old == new => self.set_goal(goal),
            _ => {
                self.mode = mode;
                self.forget(topology);
            }
        }
    }

    /// The learned state belongs to the conditions that it was learned in.
    pub fn forget(&mut self, topology: &CpuTopology) {
        self.choice = choice(self.mode, topology);
    }

    /// The caps in force, by CPU.
    pub fn in_force(&self) -> &BTreeMap<CpuId, FrequencyLimit> {
        &self.in_force
    }

    /// An epoch is over, in which so many cores were active. Dark for `lost_after` of them means
    /// free.
    pub fn handle_epoch(
        &mut self,
        now: Instant,
        topology: &CpuTopology,
        active: u16,
        reading: &Reading,
        lost_after: u32,
    ) {
        let Some(points) = &topology.points else { return };
        match &mut self.choice {
            Choice::Constant => {}
            Choice::All(pegasus, point) => {
                *point = pegasus.handle_epoch(now, points, latency(&reading.service))
            }
            Choice::Each(cores) => {
                let Frequency::Sensitivity(params) = self.mode else { return };
                for (core, threads) in cores.iter_mut().zip(&topology.cores).take(active.into()) {
                    if core.begins_in > 0 {
                        core.begins_in -= 1;
                        continue;
                    }
                    match progress(points, params.step, params.min_busy, threads, &reading.cpus) {
                        Some(progress) => {
                            core.dark = 0;
                            core.point = core.policy.handle_step(points, &progress);
                        }
                        None => {
                            core.dark = core.dark.saturating_add(1);
                            if core.dark >= lost_after {
                                core.policy = Sensitivity::new(params);
                                core.point = points.fastest();
                            }
                        }
                    }
                }
            }
        }
    }

    /// Full speed is needed at once. The next epoch decides again.
    pub fn handle_alarm(&mut self, now: Instant, topology: &CpuTopology) {
        let Some(points) = &topology.points else { return };
        match &mut self.choice {
            Choice::Constant => {}
            Choice::All(pegasus, point) => {
                *point = pegasus.handle_epoch(now, points, pegasus::Latency::Unknown)
            }
            Choice::Each(cores) => cores.iter_mut().for_each(|core| core.point = points.fastest()),
        }
    }

    /// The commands that are due when so many cores are active.
    pub fn limits(&mut self, topology: &CpuTopology, active: u16) -> Vec<(Command, ClockWhy)> {
        let caps: Vec<(FrequencyLimit, ClockWhy)> =
            (0..topology.cores.len()).map(|core| self.cap(topology, core)).collect();
        let of_active = &caps[..usize::from(active).min(caps.len())];
        let freest = of_active.iter().map(|(cap, _)| *cap).max_by_key(|cap| freedom(*cap));
        let mut changed = Vec::new();
        for (at, (threads, (cap, why))) in topology.cores.iter().zip(&caps).enumerate() {
            let (cap, why) = if at < usize::from(active) {
                (*cap, why.clone())
            } else {
                (freest.unwrap_or(FrequencyLimit::None), ClockWhy::Parked)
            };
            for &cpu in threads {
                changed.extend(self.change(cpu, cap, why.clone()));
            }
        }
        // A CPU that may run faster is told first: on a clock that is shared, no step between is
        // slower than both ends.
        changed.sort_by_key(|(command, _)| match command {
            Command::SetFrequency { limit, .. } => std::cmp::Reverse(freedom(*limit)),
            _ => std::cmp::Reverse(u64::MAX),
        });
        changed
    }

    /// The commands that withdraw every cap in force.
    pub fn withdraw(&mut self) -> Vec<Command> {
        let free = |(cpu, _)| Command::SetFrequency { cpu, limit: FrequencyLimit::None };
        std::mem::take(&mut self.in_force).into_iter().map(free).collect()
    }

    fn change(&mut self, cpu: CpuId, limit: FrequencyLimit, why: ClockWhy) -> Option<(Command, ClockWhy)> {
        let before = match limit {
            FrequencyLimit::None => self.in_force.remove(&cpu),
            cap => self.in_force.insert(cpu, cap),
        };
        (before.unwrap_or(FrequencyLimit::None) != limit)
            .then_some((Command::SetFrequency { cpu, limit }, why))
    }

    /// The cap of one core while it is active.
    fn cap(&self, topology: &CpuTopology, core: usize) -> (FrequencyLimit, ClockWhy) {
        let of = |point: PointIndex| match &topology.points {
            Some(points) if point < points.fastest() => FrequencyLimit::AtMost(points.khz(point)),
            _ => FrequencyLimit::None,
        };
        match (&self.choice, self.mode) {
            (Choice::Constant, Frequency::Cap(clock)) => {
                (FrequencyLimit::AtMost(clock), ClockWhy::Configured)
            }
            (Choice::Constant, _) => (FrequencyLimit::None, ClockWhy::Configured),
            (Choice::All(pegasus, point), _) => (of(*point), ClockWhy::Power(pegasus.cap())),
            (Choice::Each(cores), _) => {
                cores.get(core).map_or((FrequencyLimit::None, ClockWhy::Configured), |core| {
                    let sensitivity = core.policy.sensitivity().map(Ratio::new);
                    let why = if core.dark > 0 { ClockWhy::Dark } else { ClockWhy::Sensitivity(sensitivity) };
                    (of(core.point), why)
                })
            }
        }
    }
}

fn choice(mode: Frequency, topology: &CpuTopology) -> Choice {
    let Some(points) = &topology.points else { return Choice::Constant };
    match mode {
        Frequency::Stock | Frequency::Cap(_) => Choice::Constant,
        Frequency::Pegasus(goal, params) => {
            let pegasus = Pegasus::new(pegasus::Params { target: goal.latency, ..params });
            Choice::All(Box::new(pegasus), points.fastest())
        }
        Frequency::Sensitivity(params) => {
            let core = |number: usize| Core {
                policy: Sensitivity::new(params),
                point: points.fastest(),
                begins_in: 2 * number as u32,
                dark: 0,
            };
            Choice::Each((0..topology.cores.len()).map(core).collect())
        }
    }
}

/// The controller's input after an epoch.
fn latency(service: &ServiceReading) -> pegasus::Latency {
    match (service.rate, service.tail) {
        (None, _) => pegasus::Latency::Unknown,
        (Some(Rate::ZERO), _) => pegasus::Latency::NoRequests,
        (Some(_), Some(tail)) => pegasus::Latency::Measured(tail),
        // Too few to tell a percentile by: as little is learned as from none.
        (Some(_), None) => pegasus::Latency::NoRequests,
    }
}

/// The work of a core in an epoch; `None` if it worked and nothing was counted, or nothing is known
/// at all.
fn progress(
    points: &PointTable,
    step: Duration,
    min_busy: Duration,
    threads: &[CpuId],
    cpus: &[CpuReading],
) -> Option<Progress> {
    let nominal = points.khz(points.fastest()).0 as f64;
    let (mut known, mut idle, mut instructions, mut busy_counted, mut cycles) = (false, 1.0, 0.0, 0.0, 0.0);
    for reading in cpus.iter().filter(|reading| threads.contains(&reading.cpu)) {
        let Some(busy) = reading.busy else { continue };
        known = true;
        let busy = busy.as_f64();
        idle *= 1.0 - busy;
        if let (Some(rate), Some(clock)) = (reading.instructions, reading.clock) {
            instructions += rate.as_per_second() * busy * step.as_secs_f64();
            cycles += clock.0 as f64 * busy;
            busy_counted += busy;
        }
    }
    let busy = step.scale(1.0 - idle);
    if !known {
        return None;
    }
    if busy < min_busy {
        return Some(Progress { instructions: 0.0, speed: 1.0, busy });
    }
    (busy_counted > 0.0).then(|| Progress { instructions, speed: cycles / busy_counted / nominal, busy })
}

/// Greater is faster.
fn freedom(limit: FrequencyLimit) -> u64 {
    match limit {
        FrequencyLimit::None => u64::MAX,
        FrequencyLimit::AtMost(clock) | FrequencyLimit::Exactly(clock) => clock.0,
    }
}

#[cfg(test)]
mod tests;
