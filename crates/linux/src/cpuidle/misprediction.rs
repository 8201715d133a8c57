//! The share of a CPU's sleeps that ended too early, by the kernel's own count.
//!
//! cpuidle counts for each state its requests (`usage`) and the sleeps that were certainly too
//! short for its target residency (`above`; `Documentation/admin-guide/pm/cpuidle.rst`, kernels
//! since 5.1). The twin `below`, too shallow, counts nothing where deeper states are forbidden, so
//! it is not used: a program that bounds depth would read its own effect.
//!
//! Invariants:
//! - A share is over the sleeps since the last reading. It is `None` without sleeps, where the
//!   kernel does not count, and over a reset of the counts.
//! - The files stay open: they are read every second.

use crate::cpuidle::idle_table;
use crate::root::{Root, cpu_folder};
use machine::{CpuId, CpuList, CstateKind, Ratio};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

#[derive(Debug)]
pub struct IdleMisprediction {
    cpus: BTreeMap<CpuId, Watched>,
}

#[derive(Debug)]
struct Watched {
    /// `usage` and `above` of each state that halts.
    states: Vec<(File, File)>,
    last: Option<(u64, u64)>,
}

impl IdleMisprediction {
    /// Begins to watch. A CPU whose kernel does not count is left out.
    pub fn start(root: &Root, cpus: &CpuList) -> Self {
        let watch = |&cpu: &CpuId| {
            let table = idle_table(root, cpu).ok()?;
            let halting = (0..).zip(&table.0).filter(|(_, state)| state.kind == CstateKind::Halting);
            let open = |state: usize, file: &str| {
                File::open(root.path(&format!("{}/cpuidle/state{state}/{file}", cpu_folder(cpu)))).ok()
            };
            let states: Option<Vec<(File, File)>> =
                halting.map(|(state, _)| Some((open(state, "usage")?, open(state, "above")?))).collect();
            let states = states.filter(|states| !states.is_empty())?;
            let mut watched = Watched { states, last: None };
            watched.last = watched.sums();
            Some((cpu, watched))
        };
        Self { cpus: cpus.0.iter().filter_map(watch).collect() }
    }

    /// True if no CPU's premature sleeps are counted.
    pub fn is_blind(&self) -> bool {
        self.cpus.is_empty()
    }

    /// The share since the last call, of each CPU that slept.
    pub fn read(&mut self) -> BTreeMap<CpuId, Ratio> {
        let share = |(&cpu, watched): (&CpuId, &mut Watched)| {
            let now = watched.sums();
            let (before, now) = (std::mem::replace(&mut watched.last, now)?, now?);
            let slept = now.0.checked_sub(before.0).filter(|&slept| slept > 0)?;
            let premature = now.1.checked_sub(before.1)?;
            Some((cpu, Ratio::new(premature as f64 / slept as f64)))
        };
        self.cpus.iter_mut().filter_map(share).collect()
    }
}

impl Watched {
    fn sums(&self) -> Option<(u64, u64)> {
        self.states.iter().try_fold((0u64, 0u64), |(usage, above), files| {
            Some((usage.wrapping_add(count(&files.0)?), above.wrapping_add(count(&files.1)?)))
        })
    }
}

fn count(file: &File) -> Option<u64> {
    let mut bytes = [0; 24];
    let length = file.read_at(&mut bytes, 0).ok()?;
    std::str::from_utf8(&bytes[..length]).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    fn set(machine: &FakeMachine, state: u8, usage: u64, above: u64) {
        let folder = format!("sys/devices/system/cpu/cpu1/cpuidle/state{state}");
        machine.write(&format!("{folder}/usage"), &format!("{usage}\n"));
        machine.write(&format!("{folder}/above"), &format!("{above}\n"));
    }

    fn machine() -> FakeMachine {
        let machine = FakeMachine::intel_server(2);
        (0..4).for_each(|state| set(&machine, state, 0, 0));
        machine
    }

    #[test]
    fn polling_is_no_sleep_and_a_share_is_since_the_last_reading() {
        let machine = machine();
        let mut sleeps = IdleMisprediction::start(machine.root(), &"1".parse().unwrap());
        assert_eq!(sleeps.read(), BTreeMap::new(), "no CPU slept");
        set(&machine, 0, 900, 900);
        set(&machine, 1, 60, 0);
        set(&machine, 3, 40, 25);
        assert_eq!(sleeps.read(), BTreeMap::from([(CpuId(1), Ratio::new(0.25))]));
        set(&machine, 3, 140, 25);
        assert_eq!(sleeps.read(), BTreeMap::from([(CpuId(1), Ratio::new(0.0))]));
    }

    #[test]
    fn a_reset_is_no_share_and_what_is_not_counted_is_left_out() {
        let machine = machine();
        set(&machine, 3, 100, 50);
        let mut sleeps = IdleMisprediction::start(machine.root(), &"0-1".parse().unwrap());
        set(&machine, 3, 7, 1);
        assert_eq!(sleeps.read(), BTreeMap::new());
        set(&machine, 3, 17, 6);
        assert_eq!(sleeps.read(), BTreeMap::from([(CpuId(1), Ratio::new(0.5))]));
        set(&machine, 3, 27, 0);
        machine.write("sys/devices/system/cpu/cpu1/cpuidle/state3/above", "many\n");
        assert_eq!(sleeps.read(), BTreeMap::new());
        assert!(!sleeps.is_blind());
        assert!(
            IdleMisprediction::start(machine.root(), &"0".parse().unwrap()).is_blind(),
            "cpu0 has no such file"
        );
    }
}
