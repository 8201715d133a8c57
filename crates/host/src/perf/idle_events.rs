//! The kernel's events, read one by one through perf's ring buffers: for machines that take no BPF programs.
//!
//! Each CPU has a buffer of its own. Who does not read it in time loses events; the kernel says how many, and so do we.
//!
//! What always holds: events of one CPU come in the order of their time; a loss is told where it happened.

use crate::root::{FileError, Root};
use machine::{CpuId, CpuList, Instant};
use perf_event::data::Record;
use perf_event::events::Tracepoint;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use std::fmt;
use std::io;
use thiserror::Error;

/// Why events cannot be read.
#[derive(Debug, Error)]
pub enum PerfError {
    /// The event's number is in tracefs.
    #[error(
        "power:cpu_idle was not found: {0}\nhint: as root: mount -t tracefs tracefs /sys/kernel/tracing (only root may \
         read there)"
    )]
    NoEvent(FileError),
    /// The kernel does not let this user, or not at all.
    #[error("{cpu}: the kernel does not hand out its events: {cause}\nhint: run as root or with CAP_PERFMON")]
    Refused {
        /// For which CPU.
        cpu: CpuId,
        /// What it said.
        cause: io::Error,
    },
}

/// What happened on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleEvent {
    /// It went into the state of this number, or left its state.
    Change {
        /// When, by the monotonic clock.
        at: Instant,
        /// Where.
        cpu: CpuId,
        /// The state asked for; `None`: awake.
        state: Option<usize>,
    },
    /// Nobody read in time.
    Lost {
        /// Where.
        cpu: CpuId,
        /// How many events.
        events: u64,
    },
}

/// `power:cpu_idle` of some CPUs.
pub struct IdleEvents {
    buffers: Vec<(CpuId, Sampler)>,
}

impl fmt::Debug for IdleEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleEvents").field("cpus", &self.buffers.len()).finish()
    }
}

/// A page for the buffer's state and 1 MiB for events: 20,000 of them, a fifth of a second at 100,000 a second.
const PAGES: usize = 256 * 4096;

impl IdleEvents {
    /// Starts to collect.
    pub fn open(cpus: &CpuList) -> Result<Self, PerfError> {
        let number = |folder: &str| {
            Root::system().parse::<u64>(&format!("{folder}/events/power/cpu_idle/id"), "an event's number")
        };
        let event = number("sys/kernel/tracing").or_else(|_| number("sys/kernel/debug/tracing"));
        let event = Tracepoint::with_id(event.map_err(PerfError::NoEvent)?);
        let open = |&cpu: &CpuId| {
            let refused = |cause| PerfError::Refused { cpu, cause };
            let mut counter = Builder::new(event)
                .any_pid()
                .one_cpu(cpu.index())
                .include_kernel()
                .sample_period(1)
                .sample(SampleFlag::TIME | SampleFlag::RAW)
                .clockid(Clock::MONOTONIC)
                .build()
                .map_err(refused)?;
            counter.enable().map_err(refused)?;
            Ok((cpu, counter.sampled(PAGES).map_err(refused)?))
        };
        Ok(Self { buffers: cpus.0.iter().map(open).collect::<Result<_, _>>()? })
    }

    /// Hands out all that has come in.
    pub fn drain(&mut self, mut seen: impl FnMut(IdleEvent)) {
        for (cpu, buffer) in &mut self.buffers {
            while let Some(record) = buffer.next_record() {
                match record.parse_record() {
                    Ok(Record::Sample(sample)) => {
                        let change = sample.time().zip(sample.raw().and_then(change));
                        if let Some((time, (state, about))) = change {
                            seen(IdleEvent::Change { at: Instant::from_nanos(time), cpu: about, state });
                        }
                    }
                    Ok(Record::Lost(lost)) => seen(IdleEvent::Lost { cpu: *cpu, events: lost.lost }),
                    _ => {}
                }
            }
        }
    }
}

/// The event's own fields, behind the eight bytes that all events begin with: state and CPU.
fn change(raw: &[u8]) -> Option<(Option<usize>, CpuId)> {
    const AWAKE: u32 = u32::MAX;
    let field = |from: usize| Some(u32::from_ne_bytes(raw.get(from..from + 4)?.try_into().ok()?));
    let (state, cpu) = (field(8)?, field(12)?);
    Some(((state != AWAKE).then_some(state as usize), CpuId(u16::try_from(cpu).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_kernels_format_says() {
        let mut raw = vec![0; 20];
        raw[8] = 3;
        raw[12] = 7;
        assert_eq!(change(&raw), Some((Some(3), CpuId(7))));
        raw[8..12].fill(0xff);
        assert_eq!(change(&raw), Some((None, CpuId(7))));
        assert_eq!(change(&raw[..14]), None);
    }

    #[test]
    fn the_events_of_this_machine_alternate() {
        let cpus = crate::allowed_cpus().unwrap();
        let mut events = match IdleEvents::open(&cpus) {
            Ok(events) => events,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let mut last = std::collections::BTreeMap::new();
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            events.drain(|event| match event {
                IdleEvent::Change { at, cpu, state } => {
                    if let Some((before, asleep)) = last.insert(cpu, (at, state.is_some())) {
                        assert!(at >= before, "{cpu}: {at:?} after {before:?}");
                        assert_ne!(asleep, state.is_some(), "{cpu}: two entries or two exits in a row");
                    }
                }
                IdleEvent::Lost { .. } => panic!("a buffer of a megabyte ran over in 2 ms"),
            });
        }
    }
}
