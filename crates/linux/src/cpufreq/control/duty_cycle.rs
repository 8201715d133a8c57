//! Duty cycles: the clock of a core stops for a part of the time, by `IA32_CLOCK_MODULATION`.
//!
//! This is the oldest way to slow an Intel processor down. It works without cpufreq, and below the
//! slowest frequency. The voltage stays, so power falls with the speed and not with its cube: a
//! lower frequency saves more. Speeds are eighths of full speed, sixteenths where the processor has
//! the finer steps (CPUID.06H:EAX bit 5, which `/dev/cpu/N/cpuid` shows; without the module
//! `cpuid`, eighths).
//!
//! | bit of the register | is |
//! |---|---|
//! | 4 | the modulation is on |
//! | 3 to 1 | eighths for which the clock runs, 1 to 7 |
//! | 3 to 0 | sixteenths, 1 to 15, with the finer steps |
//!
//! Each hyperthread has a register, and one core has one clock: some processors take the greater of
//! both, others the smaller. So both get the same value, and a core of which another process has a
//! thread is left alone.
//!
//! The cost: the first write of a register *taints the kernel* until the next boot, whichever
//! program writes it and even if the value is put back. So it takes the user's consent. A read or
//! write interrupts its CPU and wakes it if it sleeps. So other programs' changes are looked for
//! once a minute. Where the firmware or the ACPI driver slows a hot core down by the same register,
//! the slower of the two stays.

use super::domain::{Domain, Means, Order, Speeds, Trouble};
use super::state::{FrequencyActuator, FrequencyState};
use crate::cpufreq::nominal_clock;
use crate::journal::{ChangeError, Journal};
use crate::knob::{bits_of, duty_cycle_of, registers_of, text_of};
use crate::root::{FileError, Root};
use crate::system::topology::{online_cpus, topology_of};
use machine::{CpuId, CpuList, Kilohertz};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

#[derive(Debug)]
pub(super) struct DutyCycle {
    cpus: Vec<CpuId>,
    /// The steps of full speed.
    steps: u8,
}

impl DutyCycle {
    pub(super) fn put_in_force(
        &self,
        journal: &mut Journal,
        order: &Order<'_>,
    ) -> Result<FrequencyState, Trouble> {
        let &Order { speeds, limit, clock } = order;
        let nominal = speeds.hardware.1;
        let asked = (clock.0 as f64 / nominal.0 as f64 * f64::from(self.steps)).round() as u8;
        let asked = asked.clamp(1, self.steps);
        let mut slowest = asked;
        for cpu in &self.cpus {
            let file = duty_cycle_of(cpu.0);
            let earlier = journal.earlier(&file)?;
            let before = bits_of(&earlier).map_or(self.steps, |bits| decoded(bits, self.steps));
            if before <= asked {
                journal.put_back(&file)?;
                slowest = slowest.min(before);
                continue;
            }
            let wanted = text_of(encoded(asked, self.steps));
            let reads = journal.set(&file, &wanted)?;
            if reads != wanted {
                return Err(Trouble::Told(format!(
                    "IA32_CLOCK_MODULATION of {cpu} reads {reads} after {wanted} was written: the \
                     firmware holds it, or a hypervisor"
                )));
            }
        }
        Ok(FrequencyState::InForce {
            limit,
            reads: part_of(nominal, slowest, self.steps),
            by: FrequencyActuator::DutyCycle,
            setting: Some(format!("duty cycle {} %", 100.0 * f64::from(slowest) / f64::from(self.steps))),
            kept_stricter: slowest < asked,
        })
    }

    pub(super) fn free(&self, journal: &mut Journal) -> Result<(), ChangeError> {
        self.cpus.iter().try_for_each(|cpu| journal.put_back(&duty_cycle_of(cpu.0)))
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.cpus.iter().any(|cpu| duty_cycle_of(cpu.0) == path)
    }

    pub(super) fn explain(error: &FileError) -> Option<String> {
        match error {
            FileError::Missing { path } => Some(format!("{} is not there: modprobe msr", path.display())),
            FileError::Unreadable { path, cause } | FileError::Unwritable { path, cause, .. }
                if cause.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                Some(format!(
                    "{}: {cause}; run as root with CAP_SYS_RAWIO; no user may while the kernel is \
                     locked down (secure boot) or \
                     booted with msr.allow_writes=off",
                    path.display()
                ))
            }
            _ => None,
        }
    }
}

/// The clock runs for this many steps of `steps`.
fn decoded(bits: u64, steps: u8) -> u8 {
    if bits & ON == 0 {
        return steps;
    }
    let field = if steps == FINE { bits & 0xf } else { bits >> 1 & 0x7 };
    // Zero is reserved: its effect is unknown, and nothing slower exists.
    (field as u8).max(1)
}

fn encoded(step: u8, steps: u8) -> u64 {
    let step = u64::from(step);
    match steps {
        all if step >= u64::from(all) => 0,
        FINE => ON | step,
        _ => ON | step << 1,
    }
}

fn part_of(nominal: Kilohertz, step: u8, steps: u8) -> Kilohertz {
    Kilohertz(nominal.0 * u64::from(step) / u64::from(steps))
}

/// The cores with a CPU among `cpus`, or the reason that they have no duty cycle.
pub(super) fn domains(root: &Root, cpus: &CpuList) -> Result<Vec<Domain>, String> {
    let about = root.text("proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        about.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then_some(value.trim())
        })
    };
    let vendor = field("vendor_id").unwrap_or("unknown");
    if vendor != "GenuineIntel" {
        return Err(format!(
            "the duty cycle is set by a register of Intel's processors, and this one is of \
             {vendor}\nhint: leave duty-cycle out"
        ));
    }
    if !field("flags").unwrap_or_default().split_whitespace().any(|flag| flag == "acpi") {
        return Err("this processor, or its hypervisor, offers no clock modulation (CPUID shows no \
            ACPI bit)\nhint: leave \
             duty-cycle out, or use bare metal"
            .to_owned());
    }
    let online = online_cpus(root).map_err(|error| error.to_string())?;
    let mut cores: BTreeMap<(u16, u16), Vec<CpuId>> = BTreeMap::new();
    for cpu in topology_of(root, &online).0 {
        cores.entry((cpu.package, cpu.core)).or_default().push(cpu.id);
    }
    let mut found = Vec::new();
    for threads in cores.into_values() {
        if threads.iter().all(|cpu| !cpus.0.contains(cpu)) {
            continue;
        }
        for cpu in threads.iter().filter(|cpu| cpus.0.contains(cpu)) {
            if root.has(&registers_of(cpu.0)) != Some(true) {
                let path = registers_of(cpu.0);
                return Err(format!("/{path} is not there\nhint: load its driver (modprobe msr)"));
            }
        }
        let first = threads[0];
        let Some(nominal) = nominal_clock(root, first) else {
            return Err(format!(
                "nothing says at which clock {first} runs (no cpufreq, and no `@ 2.60GHz` in its \
                 name in /proc/cpuinfo)\nhint: \
                 leave duty-cycle out"
            ));
        };
        let steps = if has_fine_steps(root, first) { FINE } else { COARSE };
        let speeds = Speeds {
            cpus: CpuList(threads.iter().copied().collect()),
            hardware: (part_of(nominal, 1, steps), nominal),
            base: None,
            steps: (1..=steps).map(|step| part_of(nominal, step, steps)).collect(),
        };
        found.push(Domain::new(Means::DutyCycle(DutyCycle { cpus: threads, steps }), speeds));
    }
    found.sort_by(|one, other| one.speeds.cpus.0.cmp(&other.speeds.cpus.0));
    Ok(found)
}

/// CPUID.06H:EAX bit 5. The device answers at a leaf's number with its four registers.
fn has_fine_steps(root: &Root, cpu: CpuId) -> bool {
    let mut registers = [0; 16];
    let path = root.path(&format!("dev/cpu/{}/cpuid", cpu.0));
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut registers, THERMAL_LEAF));
    read.is_ok() && registers[0] & 1 << 5 != 0
}

const ON: u64 = 1 << 4;
const COARSE: u8 = 8;
const FINE: u8 = 16;
const THERMAL_LEAF: u64 = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;
    use crate::{FrequencyControl, FrequencyError, FrequencyOptions};
    use FrequencyLimit::{AtMost, Exactly, None as Free};
    use machine::FrequencyLimit;

    const MODULATION: u64 = 0x19A;
    const MHZ: fn(u64) -> Kilohertz = |mhz| Kilohertz(mhz * 1_000);

    /// Four CPUs, two to a core, at 2.4 GHz, without cpufreq.
    fn machine() -> FakeMachine {
        let machine = FakeMachine::intel_server(4);
        machine.write(
            "proc/cpuinfo",
            "vendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) CPU E5-2665 0 @ \
             2.40GHz\nflags\t\t: fpu acpi mmx\n",
        );
        for cpu in 0..4 {
            machine.write(
                &format!("sys/devices/system/cpu/cpu{cpu}/topology/core_id"),
                &format!("{}\n", cpu % 2),
            );
            machine.set_register(cpu, MODULATION, 0xff00);
        }
        machine
    }

    fn options() -> FrequencyOptions {
        FrequencyOptions {
            actuator: Some(FrequencyActuator::DutyCycle),
            allow_msr: true,
            ..FrequencyOptions::new("a test")
        }
    }

    fn open(machine: &FakeMachine, cpus: &str) -> FrequencyControl {
        FrequencyControl::open(machine.root(), &cpus.parse().unwrap(), options()).unwrap()
    }

    fn registers(machine: &FakeMachine) -> Vec<u64> {
        (0..4).map(|cpu| machine.register(cpu, MODULATION)).collect()
    }

    #[test]
    fn steps_are_what_the_processor_reads() {
        for (step, steps, bits) in
            [(1, 8, 0x12), (5, 8, 0x1a), (7, 8, 0x1e), (8, 8, 0), (1, 16, 0x11), (15, 16, 0x1f), (16, 16, 0)]
        {
            assert_eq!(encoded(step, steps), bits, "{step} of {steps}");
            assert_eq!(decoded(bits, steps), step, "{bits:#x} of {steps}");
        }
        assert_eq!((decoded(0x10, 8), decoded(0x10, 16), decoded(0x0e, 8)), (1, 1, 8));
    }

    #[test]
    fn a_cap_is_the_duty_of_both_threads_and_goes_with_its_owner() {
        let machine = machine();
        let mut control = open(&machine, "0-3");
        control.limit(CpuId(0), AtMost(MHZ(1_600)));
        assert_eq!(registers(&machine), [0xff00; 4], "its other thread is asked nothing and wants all");
        let state = control.limit(CpuId(2), AtMost(MHZ(1_000)));
        // 1600 of 2400 MHz are five eighths, rounded down.
        assert_eq!(state.to_string(), "duty cycle 62.5 %, for at most 1500MHz");
        assert_eq!(registers(&machine), [0xff1a, 0xff00, 0xff1a, 0xff00]);
        control.limit(CpuId(0), AtMost(MHZ(300)));
        assert_eq!(registers(&machine), [0xff16, 0xff00, 0xff16, 0xff00]);
        assert_eq!(control.limit(CpuId(0), Free), FrequencyState::Free);
        assert_eq!(registers(&machine), [0xff00; 4]);
        control.limit(CpuId(1), Exactly(MHZ(1_000)));
        control.limit(CpuId(3), Exactly(MHZ(1_000)));
        assert_eq!(registers(&machine), [0xff00, 0xff18, 0xff00, 0xff18], "a speed rounds up");
        drop(control);
        assert_eq!(registers(&machine), [0xff00; 4]);
    }

    #[test]
    fn the_finer_steps_are_used_where_they_are() {
        let machine = machine();
        let leaf = machine.path("dev/cpu/0/cpuid");
        let file = File::create(&leaf).unwrap();
        file.write_all_at(&[0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], THERMAL_LEAF).unwrap();
        let control = open(&machine, "0-3");
        let steps: Vec<usize> = control.speeds().map(|speeds| speeds.steps.len()).collect();
        assert_eq!(steps, [16, 8]);
        assert_eq!(control.speeds().next().unwrap().hardware, (MHZ(150), MHZ(2_400)));
    }

    #[test]
    fn a_core_that_is_slowed_already_stays_as_slow() {
        let machine = machine();
        (0..4).for_each(|cpu| machine.set_register(cpu, MODULATION, 0x14));
        let mut control = open(&machine, "0-3");
        control.limit(CpuId(0), AtMost(MHZ(1_600)));
        let state = control.limit(CpuId(2), AtMost(MHZ(1_600)));
        assert!(
            matches!(state, FrequencyState::InForce { kept_stricter: true, reads, .. } if reads == MHZ(600)),
            "{state}"
        );
        assert_eq!(registers(&machine), [0x14; 4]);
    }

    #[test]
    fn somebody_elses_change_is_seen_once_a_minute_and_stays() {
        let machine = machine();
        let mut control = open(&machine, "0-3");
        for cpu in [0, 2] {
            control.limit(CpuId(cpu), AtMost(MHZ(1_200)));
        }
        assert_eq!(control.drift(), []);
        machine.set_register(2, MODULATION, 0x12);
        assert_eq!(control.drift(), [], "no CPU is woken for it so soon");
        control.looked_at_registers = None;
        let drift = control.drift();
        assert_eq!(drift[0].to_string(), "clock_modulation of CPU 0,2 reads 0x12 where we had set 0x18");
        let lines = control.release();
        assert_eq!(registers(&machine), [0xff00, 0xff00, 0x12, 0xff00]);
        assert!(
            lines.iter().any(|line| line.contains("duty cycle of CPU 2 (MSR 0x19a): left alone")),
            "{lines:?}"
        );
    }

    #[test]
    fn a_core_that_is_half_ours_is_left_alone() {
        let machine = machine();
        let mut control = open(&machine, "0-1,3");
        let state = control.limit(CpuId(0), AtMost(MHZ(1_200)));
        assert!(state.to_string().contains("CPU 2 is not ours"), "{state}");
        assert_eq!(registers(&machine), [0xff00; 4]);
    }

    #[test]
    fn without_leave_or_means_it_is_refused_with_what_to_do() {
        let machine = machine();
        let refused = |machine: &FakeMachine, options| {
            FrequencyControl::open(machine.root(), &"0-3".parse().unwrap(), options).unwrap_err().to_string()
        };
        let error = refused(&machine, FrequencyOptions { allow_msr: false, ..options() });
        assert!(error.contains("taints the kernel") && error.contains("allow_msr = true"), "{error}");
        machine.remove("dev/cpu/3");
        let error = refused(&machine, options());
        assert!(error.contains("/dev/cpu/3/msr is not there") && error.contains("modprobe msr"), "{error}");
        for (about, told) in [
            ("vendor_id : AuthenticAMD\nflags : acpi\n", "this one is of AuthenticAMD"),
            ("vendor_id : GenuineIntel\nflags : fpu mmx\n", "no ACPI bit"),
            ("", "of unknown"),
        ] {
            machine.write("proc/cpuinfo", about);
            let error = refused(&machine, options());
            assert!(error.contains(told) && error.contains("hint:"), "{error}");
        }
        machine.set_register(3, MODULATION, 0);
        machine.write("proc/cpuinfo", "vendor_id : GenuineIntel\nmodel name : Some CPU\nflags : acpi\n");
        assert!(refused(&machine, options()).contains("at which clock"));
        assert!(matches!(
            FrequencyControl::open(machine.root(), &"0".parse().unwrap(), options()),
            Err(FrequencyError::Lacking { by: FrequencyActuator::DutyCycle, .. })
        ));
    }

    #[test]
    fn a_register_that_cannot_be_written_is_told_with_its_reasons() {
        let denied = FileError::Unwritable {
            path: "dev/cpu/0/msr".into(),
            value: "0x1a".into(),
            cause: rustix::io::Errno::PERM.into(),
        };
        assert!(DutyCycle::explain(&denied).is_some_and(|told| told.contains("msr.allow_writes=off")));
        let machine = machine();
        let mut control = open(&machine, "0-3");
        control.limit(CpuId(0), AtMost(MHZ(1_200)));
        machine.remove("dev/cpu/0/msr");
        let state = control.limit(CpuId(2), AtMost(MHZ(1_200)));
        assert!(state.to_string().contains("modprobe msr"), "{state}");
    }
}
