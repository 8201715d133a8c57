//! Operations of disks, one by one: the time when the kernel gives one to a disk, and the time of
//! its completion.
//!
//! The reader runs on the CPU of the requesting thread: that CPU is awake, and any other would have
//! to wake, which takes as long as a fast disk's answer.
//!
//! Invariants:
//! - Only operations that a thread waits for (reads, synchronous writes) are reported.
//! - Only the begin of an operation wakes the reader, which finds ended ones beside it.
//! - A record that found no room is counted.

use super::{Attachment, BpfError, Fields, Notifier, Running, run};
use machine::{CpuId, CpuList, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    pub at: Instant,
    /// The kernel's name for the operation while it is under way.
    pub request: u64,
    /// The bytes, at the begin.
    pub bytes: u32,
    /// The kernel's number of the device.
    pub device: u32,
    /// At the begin, the CPU of the requesting thread; at the completion, that of the interrupt.
    pub cpu: CpuId,
    pub is_complete: bool,
    pub is_write: bool,
}

#[derive(Debug)]
pub struct BlockProgram {
    running: Running,
}

const OBJECT: &[u8] = include_bytes!("block.bpf.o");

/// The kernel's `struct operation`.
const BYTES: usize = 32;

/// A CPU's ring: eight hundred unread operations.
const RING_BYTES: u32 = 1 << 15;

impl BlockProgram {
    /// Begins to report on `device`, or on all; not on operations of this process.
    pub fn load(device: Option<u32>) -> Result<Self, BpfError> {
        let config = [device.unwrap_or(0).to_ne_bytes(), std::process::id().to_ne_bytes()].concat();
        let running = run("block", OBJECT, &[], |open| super::configure(open, &config), &Attachment::Own)?;
        Ok(Self { running })
    }

    /// Reports operations that begin on these CPUs, until the returned value is dropped: on each by
    /// a thread of this name with the CPU's number.
    pub fn hear(
        &self,
        name: &str,
        cpus: &CpuList,
        heard: impl FnMut(BlockEvent) + Clone + Send + 'static,
    ) -> Result<Vec<Notifier>, BpfError> {
        let refused = |reason: String| BpfError::Refused { program: "block".to_owned(), reason };
        let rings = self.running.map("operations").ok_or_else(|| refused("it has no rings".to_owned()))?;
        let hang = |&cpu: &CpuId| {
            let ring = super::give_ring(&rings, cpu, "operations", RING_BYTES).map_err(refused)?;
            let mut heard = heard.clone();
            Notifier::start_on(&format!("{name}/{}", cpu.0), Some(cpu), ring, move |bytes| {
                if let Some(event) = event(bytes) {
                    heard(event);
                }
            })
            .map_err(|error| refused(error.to_string()))
        };
        cpus.0.iter().map(hang).collect()
    }

    /// Records reported, and records lost for want of room.
    pub fn counted(&self) -> [u64; 2] {
        self.running.read().fold([0, 0], |[told, lost], (_, bytes)| {
            let mut fields = Fields(&bytes);
            [told + fields.u64(), lost + fields.u64()]
        })
    }
}

fn event(bytes: &[u8]) -> Option<BlockEvent> {
    if bytes.len() != BYTES {
        return None;
    }
    let mut fields = Fields(bytes);
    let (at, request) = (Instant::from_nanos(fields.u64()), fields.u64());
    let (length, device, cpu, kind) = (fields.u32(), fields.u32(), fields.u32(), fields.u32());
    Some(BlockEvent {
        at,
        request,
        bytes: length,
        device,
        cpu: CpuId(u16::try_from(cpu).ok()?),
        is_complete: kind & 0xffff == 2,
        is_write: kind >> 16 != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_synchronous_write_of_another_process_is_told_from_begin_to_end() {
        let program = match BlockProgram::load(None) {
            Ok(program) => program,
            Err(error) => return eprintln!("SKIPPED: {error}"),
        };
        let (sender, events) = channel();
        let cpus = crate::allowed_cpus().unwrap();
        let _bells = program.hear("operations", &cpus, move |event| _ = sender.send(event)).unwrap();
        let folder = tempfile::tempdir_in(".").unwrap();
        let file = folder.path().join("file");
        // A completion is read with the next begin.
        let (mut began, mut complete): (Vec<BlockEvent>, _) = (Vec::new(), None);
        for _ in 0..20 {
            // A child's: our own are not reported.
            let of = format!("of={}", file.display());
            let done = std::process::Command::new("dd")
                .args(["if=/dev/zero", &of, "bs=4096", "count=1", "oflag=direct,sync", "status=none"])
                .status()
                .unwrap();
            if !done.success() {
                return eprintln!("SKIPPED: no direct writes below {}", folder.path().display());
            }
            while let Ok(event) = events.recv_timeout(Duration::from_millis(200)) {
                if !event.is_complete {
                    began.push(event);
                } else if event.is_write
                    && began.iter().any(|begin| begin.request == event.request && begin.at <= event.at)
                {
                    // The disk also reads: `dd` itself, and other programs.
                    complete = Some(event);
                }
            }
            if complete.is_some() {
                break;
            }
        }
        let [told, lost] = program.counted();
        assert!(told >= 2 && lost == 0, "{told} {lost}");
        assert!(complete.is_some(), "{began:?}");
    }

    #[test]
    fn a_record_of_another_size_is_none() {
        assert_eq!(event(&[0; BYTES - 1]), None);
        assert!(event(&[0; BYTES]).is_some_and(|event| !event.is_complete));
    }
}
