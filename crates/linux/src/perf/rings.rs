//! A tracepoint's events through perf's ring buffers, a buffer for each CPU.
//!
//! A reader that comes too late loses events; the kernel says how many, and so do we. It also skips
//! events when there are too many within a tick (`kernel.perf_event_max_sample_rate`), and says
//! only that it did.
//!
//! Invariants: events of one CPU come in the order of their time; a loss comes in its place.

use crate::root::{FileError, Root};
use machine::{CpuId, CpuList, Instant};
use perf_event::data::Record;
use perf_event::events::Tracepoint;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use std::fmt;
use std::io;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum PerfError {
    /// The event's number is in tracefs.
    #[error(
        "{event} was not found: {cause}\nhint: as root: mount -t tracefs tracefs \
         /sys/kernel/tracing (only root may read \
         there)"
    )]
    NoEvent {
        /// `power/cpu_idle`.
        event: &'static str,
        cause: FileError,
    },
    /// The kernel refuses this user, or all users.
    #[error("{cpu}: the kernel does not hand out its events: {cause}\nhint: run as root or with CAP_PERFMON")]
    Refused { cpu: CpuId, cause: io::Error },
}

pub(super) enum RawEvent<'a> {
    Sample {
        at: Instant,
        cpu: CpuId,
        /// All fields, behind the eight bytes that every event begins with.
        fields: &'a [u8],
    },
    Lost {
        cpu: CpuId,
        events: u64,
    },
}

pub(super) struct Rings {
    buffers: Vec<(CpuId, Sampler)>,
}

impl fmt::Debug for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rings").field("cpus", &self.buffers.len()).finish()
    }
}

/// A page for the buffer's state and 1 MiB for events: 20,000 of them, a fifth of a second at
/// 100,000 a second.
const PAGES: usize = 256 * 4096;

impl Rings {
    /// Starts to collect `event`, a folder such as `power/cpu_idle`, on these CPUs.
    pub(super) fn open(event: &'static str, cpus: &CpuList) -> Result<Self, PerfError> {
        let number = |folder: &str| {
            Root::system().parse::<u64>(&format!("{folder}/events/{event}/id"), "an event's number")
        };
        let number = number("sys/kernel/tracing").or_else(|_| number("sys/kernel/debug/tracing"));
        let tracepoint = Tracepoint::with_id(number.map_err(|cause| PerfError::NoEvent { event, cause })?);
        let open = |&cpu: &CpuId| {
            let refused = |cause| PerfError::Refused { cpu, cause };
            let mut counter = Builder::new(tracepoint)
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

    /// Returns all pending records, CPU by CPU.
    pub(super) fn drain(&mut self, mut seen: impl FnMut(RawEvent<'_>)) {
        for (cpu, buffer) in &mut self.buffers {
            while let Some(record) = buffer.next_record() {
                match record.parse_record() {
                    Ok(Record::Sample(sample)) => {
                        if let (Some(time), Some(fields)) = (sample.time(), sample.raw()) {
                            seen(RawEvent::Sample { at: Instant::from_nanos(time), cpu: *cpu, fields });
                        }
                    }
                    Ok(Record::Lost(lost)) => seen(RawEvent::Lost { cpu: *cpu, events: lost.lost }),
                    // Too many within a tick: the kernel skips some and does not say how many. One
                    // at least.
                    Ok(Record::Throttle(_)) => seen(RawEvent::Lost { cpu: *cpu, events: 1 }),
                    _ => {}
                }
            }
        }
    }
}

/// The four bytes from `at` on.
pub(super) fn word(fields: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(fields.get(at..at + 4)?.try_into().ok()?))
}
