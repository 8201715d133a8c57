//! A network card that does not interrupt while its server takes requests (IRQ suspension, Linux 6.13).
//!
//! A busy server is interrupted for packets that it would have asked for a moment later. With this, a
//! thread that waits in `epoll_wait` first lets the kernel look for packets in the queue itself. As long
//! as it finds some, the queue's interrupt stays off; when it finds none, the interrupt is on again, and
//! the thread sleeps.
//!
//! ```text
//!   the queue's settings (NicSuspension)      the thread's epoll set (prefer_busy_poll)
//!   irq-suspend-timeout  how long a busy      asked first at each wait
//!                        thread may stay away
//!   gro-flush-timeout    until packets are looked for without interrupt, after the last look
//!   defer-hard-irqs      so many looks that find nothing, then the interrupt is on
//! ```
//!
//! Source: `Documentation/networking/napi.rst`, "IRQ suspension"; the method is that of Cai, Martin and
//! Karsten, *Kernel vs. User-Level Networking: Don't Throw Out the Stack with the Interrupts*,
//! SIGMETRICS 2024.
//!
//! Invariants:
//! - One Roost process does this to a device: there is a lock, held until the end.
//! - Every setting is journalled first and put back: on drop, and by [`restore`](crate::restore) after a
//!   SIGKILL.

pub(crate) mod napi;

use crate::journal::{ChangeError, Checkpoint, Journal, restore_at_start};
use crate::knob::{is_device, napi_of};
use crate::lock::{FileLock, LockError, Refusal, run_folder, take};
use crate::processes::threads::kernel_release;
use crate::root::{FileError, Root};
use machine::Duration;
use napi::{NapiSetting, name_of, queues_of};
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use std::io;
use std::os::fd::AsFd;

/// When the queues of a device interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuspendTimes {
    /// For so long a thread that takes events may stay away from the queue without an interrupt.
    pub suspend: Duration,
    /// So long after a look that found packets the kernel looks again by itself.
    pub flush: Duration,
    /// So many looks that find nothing, and the interrupt is on.
    pub looks: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// Another process has the device, or no lock can be kept.
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("{0:?} is no name of a network device\nhint: `ip link` lists them")]
    NoName(String),
    #[error(
        "{device} has no queue whose interrupts the kernel ({release}) can put off\nhint: `ip link` lists \
         the devices; that takes Linux 6.13 or later, a device that is up, and a driver with NAPI, which the \
         loopback device and a bridge have not"
    )]
    NoQueue { device: String, release: String },
    #[error("interrupts of {device} cannot be put off: {reason}\nhint: that takes root, or CAP_NET_ADMIN")]
    Refused { device: String, reason: String },
}

/// A device whose interrupts are put off.
#[derive(Debug)]
pub struct NicSuspension {
    queues: usize,
    // Dropped before the lock.
    journal: Journal,
    _lock: FileLock,
}

impl NicSuspension {
    /// Takes the device's lock, puts back the settings that a dead run left, and sets all its queues.
    /// `checkpoint` is called between the steps of each change.
    pub fn open(
        root: &Root,
        device: &str,
        times: SuspendTimes,
        holder: &str,
        checkpoint: Option<Checkpoint>,
    ) -> Result<Self, NicError> {
        if !is_device(device) {
            return Err(NicError::NoName(device.to_owned()));
        }
        let lacking = || NicError::NoQueue { device: device.to_owned(), release: kernel_release() };
        let refused = |reason: String| NicError::Refused { device: device.to_owned(), reason };
        let unread = |cause: io::Error| match cause.kind() {
            io::ErrorKind::NotFound => lacking(),
            _ => refused(cause.to_string()),
        };
        // By one name, whichever was said: the lock and the journal go by it.
        let own = if *root == Root::system() { name_of(device).map_err(unread)? } else { device.to_owned() };
        let device = own.as_str();
        let queues = ids_of(root, device).map_err(unread)?;
        if queues.is_empty() {
            return Err(lacking());
        }
        let path = run_folder(root)?.join(format!("nic-{device}.lock"));
        let lock = take(&path, holder).map_err(|refusal| match refusal {
            Refusal::Taken(holder) => {
                LockError::Card { device: device.to_owned(), holder, path: path.clone() }
            }
            other => other.at(path.clone()),
        })?;
        restore_at_start(root)?;
        let journal = Journal::begin(root, holder, checkpoint)?;
        let mut suspension = Self { queues: queues.len(), journal, _lock: lock };
        for id in queues {
            for setting in NapiSetting::ALL {
                let value = match setting {
                    NapiSetting::GroFlushTimeout => times.flush.as_nanos(),
                    NapiSetting::DeferHardIrqs => u64::from(times.looks),
                    NapiSetting::IrqSuspendTimeout => times.suspend.as_nanos(),
                };
                let path = napi_of(device, id, setting);
                suspension.journal.set(&path, &value.to_string()).map_err(|error| match error {
                    ChangeError::File(FileError::Missing { .. }) => lacking(),
                    other => refused(other.to_string()),
                })?;
            }
        }
        Ok(suspension)
    }

    pub fn queues(&self) -> usize {
        self.queues
    }
}

/// The queues' numbers. On a made-up machine each is a folder.
fn ids_of(root: &Root, device: &str) -> io::Result<Vec<u32>> {
    if *root == Root::system() {
        return Ok(queues_of(device)?.into_iter().map(|queue| queue.id).collect());
    }
    let names = root.names(&format!("napi/{device}")).map_err(|_| io::ErrorKind::NotFound)?;
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// The kernel's `struct epoll_params`, from `include/uapi/linux/eventpoll.h`.
#[repr(C)]
struct EpollParams {
    busy_poll_usecs: u32,
    busy_poll_budget: u16,
    prefer_busy_poll: u8,
    pad: u8,
}

// `EPIOCSPARAMS`.
const SET_PARAMS: Opcode = opcode::write::<EpollParams>(0x8a, 0x01);

/// Packets that one look takes at the most, the kernel's own number (`NAPI_POLL_WEIGHT`).
const BUDGET: u16 = 64;

/// A wait on this epoll set first looks for packets in the queue of its sockets, for `busy_poll` or, if that
/// is zero, once. Linux 6.9.
pub fn prefer_busy_poll(epoll: impl AsFd, busy_poll: Duration) -> io::Result<()> {
    let params = EpollParams {
        busy_poll_usecs: u32::try_from(busy_poll.as_micros()).unwrap_or(u32::MAX),
        busy_poll_budget: BUDGET,
        prefer_busy_poll: 1,
        pad: 0,
    };
    // SAFETY: the opcode takes a pointer to a `struct epoll_params` and only reads it.
    unsafe { ioctl(epoll, Setter::<SET_PARAMS, EpollParams>::new(params)) }?;
    Ok(())
}

#[cfg(test)]
mod tests;
