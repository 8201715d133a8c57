//! The processor's own counts: the work of a CPU for its cycles, and the real time of its core in
//! each state.
//!
//! cpuidle counts the state that was *requested*. Some processors count the one that was *entered*
//! (`cstate_core`, at the rate of the time-stamp counter), which differs where the hardware demotes
//! a request or a sibling thread keeps the core awake.
//!
//! Invariants:
//! - A counter that had to share its place with others is scaled to the whole time, as perf does.
//! - A counter that a machine lacks is an error with the reason when opened, and never a zero.

use machine::{CpuId, CpuList, Ratio};
use perf_event::events::{Dynamic, Event, Hardware};
use perf_event::{Builder, Counter, ReadFormat};
use std::fmt;
use std::fs;

/// One CPU's work since counting began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuWork {
    pub cpu: CpuId,
    /// Cycles in which it was not halted.
    pub cycles: u64,
    /// Instructions that were completed.
    pub instructions: u64,
    /// Cycles that stalled on memory or another unit at the back end; few processors count them.
    pub stalled: Option<u64>,
}

impl CpuWork {
    /// Instructions per cycle; `None` for a CPU that did not run.
    pub fn per_cycle(&self) -> Option<f64> {
        (self.cycles > 0).then(|| self.instructions as f64 / self.cycles as f64)
    }

    /// The share of its cycles that it was stalled.
    pub fn stall_ratio(&self) -> Option<Ratio> {
        let stalled = self.stalled?;
        (self.cycles > 0).then(|| Ratio::new(stalled as f64 / self.cycles as f64))
    }
}

/// Cycles, instructions and stalls of some CPUs.
pub struct WorkCounters(Vec<OfCpu>);

type OfCpu = (CpuId, Counter, Counter, Option<Counter>);

fn of_cpu(cpu: CpuId) -> Result<OfCpu, String> {
    let cycles = counter(Hardware::CPU_CYCLES, cpu)?;
    let instructions = counter(Hardware::INSTRUCTIONS, cpu)?;
    Ok((cpu, cycles, instructions, counter(Hardware::STALLED_CYCLES_BACKEND, cpu).ok()))
}

impl fmt::Debug for WorkCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkCounters").field(&self.0.len()).finish()
    }
}

impl WorkCounters {
    pub fn open(cpus: &CpuList) -> Result<Self, String> {
        let opened: Result<Vec<_>, String> = cpus.0.iter().map(|&cpu| of_cpu(cpu)).collect();
        opened.map(Self).map_err(|error| format!("no cycles and instructions: {error}"))
    }

    /// Counts one CPU anew, from zero: while it was offline it lost its counters, and they stand
    /// still since. Where the kernel refuses, they go on standing still.
    pub fn open_again(&mut self, cpu: CpuId) {
        let known = self.0.iter_mut().find(|(known, ..)| *known == cpu);
        if let (Some(known), Ok(opened)) = (known, of_cpu(cpu)) {
            *known = opened;
        }
    }

    /// The work of every CPU since. CPUs whose counters cannot be read are left out.
    pub fn read(&mut self) -> Vec<CpuWork> {
        self.read_of(|_| true)
    }

    /// The same of these CPUs alone. The kernel reads a counter on its own CPU, which it interrupts
    /// for that: a sleeping one is better left alone.
    pub fn read_of(&mut self, wanted: impl Fn(CpuId) -> bool) -> Vec<CpuWork> {
        let work = |(cpu, cycles, instructions, stalled): &mut OfCpu| {
            Some(CpuWork {
                cpu: *cpu,
                cycles: value(cycles)?,
                instructions: value(instructions)?,
                stalled: stalled.as_mut().and_then(value),
            })
        };
        self.0.iter_mut().filter(|(cpu, ..)| wanted(*cpu)).filter_map(work).collect()
    }
}

/// The share of the time that a core was in a hardware state.
#[derive(Clone, Debug, PartialEq)]
pub struct StateShare {
    pub cpu: CpuId,
    /// The manual's name: `c6`.
    pub state: String,
    /// The share of the time since counting began.
    pub share: Ratio,
}

/// The hardware's counts of its own states.
pub struct HardwareResidency {
    cpus: Vec<Core>,
}

struct Core {
    cpu: CpuId,
    /// The unit of residency.
    clock: Counter,
    states: Vec<(String, Counter)>,
}

impl fmt::Debug for HardwareResidency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HardwareResidency").field("cpus", &self.cpus.len()).finish()
    }
}

impl HardwareResidency {
    /// Starts to count. Intel's processors offer this; most others, and virtual machines, do not.
    pub fn open(cpus: &CpuList) -> Result<Self, String> {
        const FOLDER: &str = "/sys/bus/event_source/devices/cstate_core/events";
        let entries =
            fs::read_dir(FOLDER).map_err(|_| "this processor does not count its cores' states".to_owned())?;
        let mut states: Vec<String> = entries
            .filter_map(|entry| {
                entry.ok()?.file_name().into_string().ok()?.strip_suffix("-residency").map(str::to_owned)
            })
            .collect();
        states.sort_unstable();
        let open = |&cpu: &CpuId| {
            let clock = counter(named("msr", "tsc")?, cpu)?;
            let state = |state: &String| {
                Ok((state.clone(), counter(named("cstate_core", &format!("{state}-residency"))?, cpu)?))
            };
            Ok(Core { cpu, clock, states: states.iter().map(state).collect::<Result<_, String>>()? })
        };
        Ok(Self { cpus: cpus.0.iter().map(open).collect::<Result<_, String>>()? })
    }

    /// Shares since counting began.
    pub fn read(&mut self) -> Vec<StateShare> {
        let mut shares = Vec::new();
        for Core { cpu, clock, states } in &mut self.cpus {
            let Some(clock) = value(clock).filter(|&ticks| ticks > 0) else { continue };
            for (state, counter) in states {
                if let Some(ticks) = value(counter) {
                    let share = Ratio::new((ticks as f64 / clock as f64).min(1.0));
                    shares.push(StateShare { cpu: *cpu, state: state.clone(), share });
                }
            }
        }
        shares
    }
}

fn named(unit: &str, event: &str) -> Result<Dynamic, String> {
    let told = |error: &dyn fmt::Display| format!("{unit}/{event}/: {error}");
    let mut builder = Dynamic::builder(unit).map_err(|error| told(&error))?;
    builder.event(event).map_err(|error| told(&error))?;
    builder.build().map_err(|error| told(&error))
}

fn counter(event: impl Event, cpu: CpuId) -> Result<Counter, String> {
    let opened = Builder::new(event)
        .any_pid()
        .one_cpu(cpu.index())
        .include_kernel()
        .include_hv()
        .read_format(ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING)
        .enabled(true)
        .build();
    opened.map_err(|error| match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::ACCESS.raw_os_error() => {
            "this user may not count\nhint: run as root or with CAP_PERFMON".to_owned()
        }
        _ => format!("{error} (virtual machines rarely have counters)"),
    })
}

/// The count, as if it had been counted all the time; `None` if it was not counted at all.
fn value(counter: &mut Counter) -> Option<u64> {
    let data = counter.read_full().ok()?;
    scaled(data.count(), data.time_enabled()?.as_nanos(), data.time_running()?.as_nanos())
}

fn scaled(count: u64, enabled_ns: u128, running_ns: u128) -> Option<u64> {
    (u128::from(count) * enabled_ns).checked_div(running_ns).and_then(|scaled| u64::try_from(scaled).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_shared_its_place_is_scaled_and_one_that_had_none_is_missing() {
        assert_eq!(scaled(1_000, 10, 10), Some(1_000));
        assert_eq!(scaled(1_000, 30, 10), Some(3_000));
        assert_eq!(scaled(0, 30, 0), None);
        assert_eq!(scaled(u64::MAX, u128::from(u64::MAX), u128::from(u64::MAX)), Some(u64::MAX));
    }

    #[test]
    fn a_cpu_that_did_not_run_has_no_ratio() {
        let work = CpuWork { cpu: CpuId(0), cycles: 0, instructions: 0, stalled: Some(0) };
        assert_eq!((work.per_cycle(), work.stall_ratio()), (None, None));
        let work = CpuWork { cycles: 200, instructions: 100, stalled: Some(50), ..work };
        assert_eq!((work.per_cycle(), work.stall_ratio()), (Some(0.5), Some(Ratio::new(0.25))));
    }

    #[test]
    fn this_machine_counts_or_says_why_not() {
        let cpus = crate::allowed_cpus().unwrap();
        match WorkCounters::open(&cpus) {
            Ok(mut counters) => {
                std::hint::black_box((0..1_000_000u64).fold(0, u64::wrapping_add));
                let work = counters.read();
                assert!(work.iter().any(|work| work.instructions > 100_000), "{work:?}");
            }
            Err(why) => eprintln!("skipped: {why}"),
        }
        match HardwareResidency::open(&cpus) {
            Ok(mut residency) => assert!(!residency.read().is_empty()),
            Err(why) => eprintln!("skipped: {why}"),
        }
    }
}
