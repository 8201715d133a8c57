//! The threads that leave a CPU and come to it: the scheduler's own record of where a thread really
//! ran.
//!
//! A mask that reads as it was written says where a thread *may* run. Its last switch away from a
//! CPU shows that it has left.
//!
//! perf delivers nearly all of them. Of those away from the idle task some are missing on the
//! kernels tried (6.18, in a virtual machine), of the others one in thousands, and nothing reports
//! it. So do not derive from this when a thread *came*.

use super::rings::{PerfError, RawEvent, Rings, word};
use machine::{CpuId, CpuList, Instant};

/// A switch from one thread to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The time, by the monotonic clock.
    pub at: Instant,
    pub cpu: CpuId,
    /// The thread that went; 0 is the idle task.
    pub from: u32,
    pub to: u32,
}

/// `sched:sched_switch` of some CPUs.
#[derive(Debug)]
pub struct Switches(Rings);

impl Switches {
    pub fn open(cpus: &CpuList) -> Result<Self, PerfError> {
        Ok(Self(Rings::open("sched/sched_switch", cpus)?))
    }

    /// Returns all pending switches, and the number of lost events.
    pub fn drain(&mut self, mut seen: impl FnMut(Switch)) -> u64 {
        let mut lost = 0;
        self.0.drain(|event| match event {
            RawEvent::Sample { at, cpu, fields } => {
                if let Some((from, to)) = threads(fields) {
                    seen(Switch { at, cpu, from, to });
                }
            }
            RawEvent::Lost { events, .. } => lost += events,
        });
        lost
    }
}

/// A name of 16 bytes, number, priority and state (8 bytes) of the thread that goes; name and
/// number of the thread that comes (`include/trace/events/sched.h`).
fn threads(fields: &[u8]) -> Option<(u32, u32)> {
    Some((word(fields, 24)?, word(fields, 56)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_kernels_format_says() {
        let mut raw = [0; 64];
        raw[24] = 5;
        raw[56] = 9;
        assert_eq!(threads(&raw), Some((5, 9)));
        assert_eq!(threads(&raw[..59]), None);
        let format = "/sys/kernel/tracing/events/sched/sched_switch/format";
        let Ok(format) = std::fs::read_to_string(format) else {
            return eprintln!("skipped: {format} cannot be read");
        };
        for field in ["prev_pid;\toffset:24;", "next_pid;\toffset:56;"] {
            assert!(format.contains(field), "{field}: {format}");
        }
    }

    /// A CPU where no other thread runs.
    const IDLE: u32 = 0;

    #[test]
    fn who_comes_is_who_goes_next() {
        let cpus = crate::allowed_cpus().unwrap();
        let mut switches = match Switches::open(&cpus) {
            Ok(switches) => switches,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let mut runs = std::collections::BTreeMap::new();
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let (mut left, mut lost, mut missing) = (0, 0, 0);
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let (mut seen, mut gaps) = (Vec::new(), Vec::new());
            lost += switches.drain(|switch| seen.push(switch));
            for switch in seen {
                if let Some(before) = runs.insert(switch.cpu, switch.to)
                    && before != switch.from
                {
                    gaps.push((before, switch));
                }
                left += u32::from(switch.from == own);
            }
            gaps.retain(|(before, _)| *before != IDLE);
            missing += gaps.len();
        }
        assert!(missing <= 5 || lost > 0, "{missing} events are missing, and nothing is said to be lost");
        assert!(left >= 15, "this thread slept twenty times, and left {left} times");
    }
}
