//! Keeps the cost of windows down under haltpoll, the kernel's idle governor of virtual machines.
//!
//! That governor polls for a while before it halts, as long as its parameters say. A machine that
//! does not poll by its settings (`guest_halt_poll_ns` is 0) still does so after each window: the
//! first poll of a CPU sets its length to a sixteenth of a tick, hundreds of microseconds
//! (`cpuidle_poll_time` in `drivers/cpuidle/cpuidle.c`), and every halt only halves it
//! (`adjust_poll_limit` in `drivers/cpuidle/governors/haltpoll.c`). With a growth of zero and a
//! long `guest_halt_poll_ns` the same function sets the length to `guest_halt_poll_grow_start` at
//! every halt. [`LENGTH_NS`] is the smallest value at which a window still is one long poll and not
//! many.
//!
//! Invariants:
//! - A machine whose administrator wants polling is left alone.
//! - The parameters go through the journal. The earlier values come back when the last window of
//!   this process ends, and by `roost restore`.

use super::IdleControl;
use crate::cpuidle::idle_driver;

/// The governor's parameters. Other parameters share the prefix and are not ours.
const FOLDER: &str = "sys/module/haltpoll/parameters";
/// The longest poll before a halt: 0 where the machine does not poll.
const LONGEST: &str = "guest_halt_poll_ns";
/// 10 us (ours). Each poll of a window ends after this time and the next begins; the CPU needs
/// about 1 us for that, in which a wake-up needs an interrupt. A CPU also polls for this time after
/// a window and before any other halt.
const LENGTH_NS: &str = "10000";

/// File and value, in the order of writing: the file that puts the others in force comes last.
const BOUNDS: [(&str, &str); 3] =
    [("guest_halt_poll_grow", "0"), ("guest_halt_poll_grow_start", LENGTH_NS), (LONGEST, "4000000000")];

/// True if it is a parameter that we change.
pub(crate) fn is_parameter(path: &str) -> bool {
    let name = path.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('/'));
    name.is_some_and(|name| BOUNDS.iter().any(|(known, _)| *known == name))
}

fn path_of(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

impl IdleControl {
    /// From now on a CPU polls only for a moment after a window. Without effect under other
    /// governors.
    pub(super) fn bound_polls(&mut self) {
        let is_set_not_to_poll = || self.root.text(&path_of(LONGEST)).is_ok_and(|text| text.trim() == "0");
        if idle_driver(&self.root).governor.as_deref() != Some("haltpoll") || !is_set_not_to_poll() {
            return;
        }
        let Ok(journal) = &mut self.journal else { return };
        let done = BOUNDS.iter().try_for_each(|(name, value)| journal.set(&path_of(name), value).map(drop));
        if let Err(error) = done {
            // Half of it would be another setting than either.
            self.free_polls();
            self.notices.push(format!(
                "under the kernel's idle governor haltpoll a CPU polls on after each window, some \
                 100 us, and that cannot be bounded: {}; \
                 under menu it halts at once: echo menu > /sys/devices/system/cpu/cpuidle/current_governor",
                error.reason()
            ));
        }
    }

    /// As it was.
    pub(super) fn free_polls(&mut self) {
        let Ok(journal) = &mut self.journal else { return };
        for (name, _) in BOUNDS.iter().rev() {
            // Values that cannot be put back now stay in the journal.
            let _ = journal.put_back(&path_of(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpuidle::control::IdleOptions;
    use crate::fake::FakeMachine;
    use machine::{CpuId, CpuList};

    const CPUS: [CpuId; 2] = [CpuId(0), CpuId(1)];
    const AS_IT_WAS: [&str; 3] = ["2", "50000", "0"];
    const BOUND: [&str; 3] = ["0", "10000", "4000000000"];

    fn machine(governor: &str, values: [&str; 3]) -> FakeMachine {
        let machine = FakeMachine::intel_server(2);
        machine.write("sys/devices/system/cpu/cpuidle/current_governor", &format!("{governor}\n"));
        for ((name, _), value) in BOUNDS.iter().zip(values) {
            machine.write(&path_of(name), &format!("{value}\n"));
        }
        machine
    }

    fn read(machine: &FakeMachine) -> [String; 3] {
        BOUNDS.map(|(name, _)| machine.root().text(&path_of(name)).unwrap().trim().to_owned())
    }

    fn control(machine: &FakeMachine) -> IdleControl {
        IdleControl::open(machine.root(), &CpuList(CPUS.into()), IdleOptions::new("test")).unwrap()
    }

    #[test]
    fn polls_are_bound_while_there_are_windows() {
        let machine = machine("haltpoll", AS_IT_WAS);
        let mut control = control(&machine);
        assert_eq!(read(&machine), AS_IT_WAS, "no window was requested");
        for cpu in CPUS {
            control.prepare_window(cpu).unwrap();
            assert_eq!(read(&machine), BOUND);
        }
        control.end_windows(CPUS[0]);
        assert_eq!(read(&machine), BOUND, "one CPU has windows still");
        control.end_windows(CPUS[1]);
        assert_eq!(read(&machine), AS_IT_WAS);
        control.prepare_window(CPUS[0]).unwrap();
        drop(control);
        assert_eq!(read(&machine), AS_IT_WAS);
    }

    #[test]
    fn who_is_killed_leaves_them_to_be_restored() {
        let machine = machine("haltpoll", AS_IT_WAS);
        let mut control = control(&machine);
        control.prepare_window(CPUS[0]).unwrap();
        let journals = machine.root().path("run/roost");
        let journal = std::fs::read_dir(&journals)
            .unwrap()
            .flatten()
            .find(|file| file.path().extension().is_some_and(|end| end == "journal"))
            .unwrap();
        // As a SIGKILL leaves it: the file without its lock.
        let dead = journals.join("dead.journal");
        std::fs::copy(journal.path(), &dead).unwrap();
        std::mem::forget(control);
        let restored = crate::restore(machine.root()).unwrap();
        assert_eq!((read(&machine), restored.put_back), (AS_IT_WAS.map(str::to_owned), 3), "{restored:?}");
    }

    #[test]
    fn a_machine_that_polls_by_wish_or_has_another_governor_is_left_alone() {
        let polls = ["2", "50000", "200000"];
        for (governor, values) in [("haltpoll", polls), ("menu", AS_IT_WAS)] {
            let machine = machine(governor, values);
            let mut control = control(&machine);
            control.prepare_window(CPUS[0]).unwrap();
            assert_eq!(read(&machine), values, "{governor}");
        }
    }

    #[test]
    fn what_an_administrator_sets_in_the_meantime_stays() {
        let machine = machine("haltpoll", AS_IT_WAS);
        let mut control = control(&machine);
        control.prepare_window(CPUS[0]).unwrap();
        machine.write(&path_of(LONGEST), "200000\n");
        control.end_windows(CPUS[0]);
        assert_eq!(read(&machine), ["2", "50000", "200000"]);
    }

    #[test]
    fn only_those_three_are_ours() {
        assert!(is_parameter("sys/module/haltpoll/parameters/guest_halt_poll_grow"));
        for other in ["guest_halt_poll_shrink", "../../../../etc/passwd", ""] {
            assert!(!is_parameter(&path_of(other)), "{other}");
        }
    }
}
