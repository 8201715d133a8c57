//! Records that a program in the kernel sends at once: through a ring buffer that wakes a thread of
//! ours.

use libbpf_rs::{MapHandle, RingBufferBuilder};
use machine::CpuId;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Reads a ring buffer on a thread of its own until it is dropped.
///
/// The thread sleeps until the kernel wakes it. It has no timer, and may wake a parked CPU: its
/// records are urgent.
#[derive(Debug)]
pub struct Notifier {
    /// Its other end hangs up when this is dropped.
    _held: OwnedFd,
}

impl Notifier {
    /// Calls `heard` with the bytes of each record of `ring`, on a thread of this name.
    pub(super) fn start(
        name: &str,
        ring: MapHandle,
        heard: impl FnMut(&[u8]) + Send + 'static,
    ) -> io::Result<Self> {
        Self::start_on(name, None, ring, heard)
    }

    /// The same, on a CPU; on any, where that one is not available.
    pub(super) fn start_on(
        name: &str,
        cpu: Option<CpuId>,
        ring: MapHandle,
        mut heard: impl FnMut(&[u8]) + Send + 'static,
    ) -> io::Result<Self> {
        let (let_go, held) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            if let Some(cpu) = cpu {
                let _ = crate::pin_current_thread(cpu);
            }
            let mut builder = RingBufferBuilder::new();
            let take = |bytes: &[u8]| {
                heard(bytes);
                0
            };
            let ring = builder.add(&ring, take).map(drop).and_then(|()| builder.build());
            // Without it no record comes at once, and the regular readings must do.
            let Ok(ring) = ring else { return };
            // SAFETY: the ring's own descriptor, which lives as long as the ring does.
            let rung = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) };
            loop {
                let mut ends = [PollFd::new(&rung, PollFlags::IN), PollFd::new(&let_go, PollFlags::empty())];
                match poll(&mut ends, None) {
                    Ok(_) => {}
                    Err(Errno::INTR) => continue,
                    Err(_) => return,
                }
                if !ends[1].revents().is_empty() || ring.consume().is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { _held: held })
    }
}
