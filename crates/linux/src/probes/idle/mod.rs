//! `cpu_idle`, counted in the kernel: idle and active periods by length, state and waker, for every
//! CPU.
//!
//! Invariants:
//! - Each CPU writes its own counts; a reading may catch it in the middle of an event, so a count
//!   and its time differ by that one period.
//! - In every state, periods that have ended equal the growth of cpuidle's `usage` and `rejected`,
//!   give or take one; their time agrees with its `time`.
//! - Where the kernel has no cpuidle driver, its plain halt shows as state 1.

use super::{Attachment, BpfError, Fields, Running, run};
use machine::{CpuId, Duration, Instant, LengthHistogram};
use std::mem::size_of;

/// The ends of idle periods, by the first interrupt that came:
/// `[timer, device, other CPU, none seen]`.
pub type Wakers = [u64; 4];

/// The counts of one CPU since the program was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleCounts {
    pub cpu: CpuId,
    /// Idle periods that have ended, by the number of the requested state.
    pub idle: Vec<LengthHistogram>,
    pub active: LengthHistogram,
    /// The wakers of the idle ones.
    pub wakers: Wakers,
    /// Events that cannot follow each other, so one between was missed.
    pub odd: u64,
    pub now: IdleNow,
}

/// The present activity of a CPU, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleNow {
    /// No event yet: a CPU that is offline, or has not changed between idle and active since.
    Unknown,
    Active(Instant),
    /// In the state of this number.
    Idle(usize, Instant),
}

#[derive(Debug)]
pub struct IdleProgram {
    running: Running,
    sees_wakers: bool,
}

/// As many as cpuidle allows (`CPUIDLE_STATE_MAX`).
const STATES: usize = 10;
const BYTES: usize = (STATES + 1) * 2 * LengthHistogram::BUCKETS * size_of::<u64>()
    + 4 * size_of::<u64>()
    + 3 * size_of::<u64>()
    + 2 * size_of::<u32>();

/// Programs and the events without which they are left out.
const OPTIONAL: [(&str, &str); 7] = [
    ("by_timer", "local_timer_entry"),
    ("by_device", "irq_handler_entry"),
    ("by_reschedule", "reschedule_entry"),
    ("by_call", "call_function_entry"),
    ("by_single_call", "call_function_single_entry"),
    ("by_ipi", "ipi_entry"),
    // For a test.
    ("bucket_of", ""),
];

const OBJECT: &[u8] = include_bytes!("idle.bpf.o");

impl IdleProgram {
    /// Starts to count. `wakers` costs a little at every interrupt.
    pub fn load(wakers: bool) -> Result<Self, BpfError> {
        let mut sees_wakers = false;
        let running = run(
            "idle",
            OBJECT,
            &OPTIONAL,
            |open| {
                for mut program in open.progs_mut() {
                    let optional = OPTIONAL.iter().any(|(name, _)| program.name() == *name);
                    if optional && !wakers {
                        program.set_autoload(false);
                    }
                    sees_wakers |= optional && program.autoload();
                }
            },
            &Attachment::Own,
        )?;
        Ok(Self { running, sees_wakers })
    }

    pub fn sees_wakers(&self) -> bool {
        self.sees_wakers
    }

    /// The counts of every CPU since the program was loaded, in order of number. CPUs without an
    /// event are left out.
    pub fn read(&self) -> Vec<IdleCounts> {
        let counts = |(cpu, bytes): (u32, Vec<u8>)| counts(CpuId(u16::try_from(cpu).ok()?), &bytes);
        self.running.read().filter_map(counts).filter(|counts| counts.now != IdleNow::Unknown).collect()
    }
}

/// The kernel's `struct cpu_idle`.
fn counts(cpu: CpuId, bytes: &[u8]) -> Option<IdleCounts> {
    if bytes.len() != BYTES {
        return None;
    }
    let mut fields = Fields(bytes);
    let mut lengths = || {
        let mut lengths = LengthHistogram::default();
        lengths.counts.iter_mut().for_each(|count| *count = fields.u64());
        lengths.times.iter_mut().for_each(|time| *time = Duration::from_nanos(fields.u64()));
        lengths
    };
    let idle = (0..STATES).map(|_| lengths()).collect();
    let active = lengths();
    let wakers = [fields.u64(), fields.u64(), fields.u64(), fields.u64()];
    let since = Instant::from_nanos(fields.u64());
    let now = match (fields.u32(), fields.u32()) {
        (1, _) => IdleNow::Active(since),
        (2, state) => IdleNow::Idle(state as usize, since),
        _ => IdleNow::Unknown,
    };
    let _awaited = fields.u64();
    Some(IdleCounts { cpu, idle, active, wakers, odd: fields.u64(), now })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::needs::Need;
    use crate::probes::unless_lacking;
    use libbpf_rs::{ObjectBuilder, ProgramInput, ProgramType};

    #[test]
    fn the_kernel_and_we_agree_on_every_bucket() {
        if unless_lacking(IdleProgram::load(false)).is_none() {
            return;
        }
        if !Need::Calls.is_met() {
            return println!("SKIPPED: this kernel lacks {}", Need::Calls.words());
        }
        let mut open = ObjectBuilder::default().open_memory(OBJECT).unwrap();
        for mut program in open.progs_mut() {
            let wanted = program.name() == "bucket_of";
            program.set_autoload(wanted);
        }
        let object = open.load().unwrap();
        let program = object.progs_mut().find(|program| program.name() == "bucket_of").unwrap();
        assert_eq!(program.prog_type(), ProgramType::Syscall);
        let mut lengths = vec![0, 1, 1023, u64::MAX, 1 << 40];
        for bucket in 0..LengthHistogram::BUCKETS {
            let (from, _) = LengthHistogram::bounds(bucket);
            lengths.extend([from.as_nanos().saturating_sub(1), from.as_nanos(), from.as_nanos() + 1]);
        }
        for nanos in lengths {
            let mut asked = [nanos.to_ne_bytes(), [0; 8]].concat();
            let input = ProgramInput { context_in: Some(&mut asked), ..ProgramInput::default() };
            program.test_run(input).unwrap();
            let answer = u64::from_ne_bytes(asked[8..].try_into().unwrap());
            assert_eq!(answer, LengthHistogram::bucket_of(Duration::from_nanos(nanos)) as u64, "{nanos} ns");
        }
    }

    #[test]
    fn sleeps_on_one_cpu_are_seen_with_their_length() {
        let Some(program) = unless_lacking(IdleProgram::load(true)) else { return };
        let cpu = *crate::allowed_cpus().unwrap().0.first().unwrap();
        let of_cpu = |program: &IdleProgram| program.read().into_iter().find(|counts| counts.cpu == cpu);
        let nap = move || {
            crate::pin_current_thread(cpu).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(3));
        };
        // The first event of a CPU begins its record.
        std::thread::spawn(nap).join().unwrap();
        let Some(before) = of_cpu(&program) else {
            return eprintln!("skipped: {cpu} was not idle once while it was watched");
        };
        std::thread::spawn(move || (0..20).for_each(|_| nap())).join().unwrap();
        let after = of_cpu(&program).unwrap();
        let idle = |counts: &IdleCounts| counts.idle.iter().map(LengthHistogram::count).sum::<u64>();
        let active = after.active.since(&before.active);
        // On a machine where others keep this CPU busy it may not be idle at all, but never more
        // often than events came.
        assert!(idle(&after) >= idle(&before));
        assert!(active.count().abs_diff(idle(&after) - idle(&before)) <= 1);
        let woken = |counts: &IdleCounts| counts.wakers.iter().sum::<u64>();
        if program.sees_wakers() {
            assert!((woken(&after) - woken(&before)).abs_diff(idle(&after) - idle(&before)) <= 1);
        }
        assert_eq!(after.odd, 0);
    }

    #[test]
    fn a_struct_of_another_size_is_no_reading() {
        assert_eq!(counts(CpuId(0), &[0; BYTES - 8]), None);
        assert_eq!(counts(CpuId(0), &[0; BYTES]).unwrap().now, IdleNow::Unknown);
    }
}
