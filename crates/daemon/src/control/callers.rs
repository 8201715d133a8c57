//! The way of the planner's callers from the control socket to the planner.
//!
//! A connection whose first line is a message to the planner (`controllers::wake::wire`) leaves the
//! control socket's thread with all bytes that came. From then on it belongs to the planner alone,
//! so that neither waits for the other.
//!
//! What always holds: at most [`QUEUE`] connections wait for the planner. Without a planner, or with
//! a full queue, a caller gets a refusal at once.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A caller's connection, and the bytes that it has sent.
#[derive(Debug)]
pub(crate) struct Caller {
    pub stream: UnixStream,
    pub sent: Vec<u8>,
}

/// Shared by the control socket and the planner.
#[derive(Clone, Debug)]
pub struct Callers {
    planner: Arc<Mutex<Option<Planner>>>,
    socket: PathBuf,
}

#[derive(Debug)]
struct Planner {
    queue: SyncSender<Caller>,
    bell: Arc<OwnedFd>,
}

/// The planner's end. Callers are refused again when it is dropped.
#[derive(Debug)]
pub(crate) struct Arrivals {
    callers: Callers,
    queue: Receiver<Caller>,
    bell: Arc<OwnedFd>,
}

impl Callers {
    /// Callers that connect to `socket`.
    pub fn at(socket: &Path) -> Self {
        Self { planner: Arc::default(), socket: socket.to_owned() }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Callers come here from now on. One planner runs at a time.
    pub(crate) fn open(&self) -> io::Result<Arrivals> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (sender, queue) = sync_channel(QUEUE);
        *self.planner() = Some(Planner { queue: sender, bell: Arc::clone(&bell) });
        Ok(Arrivals { callers: self.clone(), queue, bell })
    }

    /// The reason why the planner does not get it.
    pub(super) fn hand_over(&self, caller: Caller) -> Result<(), &'static str> {
        let planner = self.planner();
        let planner = planner.as_ref().ok_or("no planner of wake-ups runs: start one with `roost wake`")?;
        planner.queue.try_send(caller).map_err(|error| match error {
            TrySendError::Full(_) => "too many connect at once: try again",
            TrySendError::Disconnected(_) => "the planner of wake-ups is about to end",
        })?;
        // Full only after four thousand million callers that the planner did not take.
        let _ = rustix::io::write(&planner.bell, &1_u64.to_ne_bytes());
        Ok(())
    }

    fn planner(&self) -> MutexGuard<'_, Option<Planner>> {
        self.planner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arrivals {
    /// Readable when a caller has come.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// The next caller, if one has come.
    pub fn take(&self) -> Option<Caller> {
        let _ = rustix::io::read(&*self.bell, &mut [0_u8; 8]);
        self.queue.try_recv().ok()
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        let mut planner = self.callers.planner();
        // The next planner may have opened already.
        if planner.as_ref().is_some_and(|planner| Arc::ptr_eq(&planner.bell, &self.bell)) {
            *planner = None;
        }
    }
}

const QUEUE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> (Caller, UnixStream) {
        let (stream, peer) = UnixStream::pair().unwrap();
        (Caller { stream, sent: b"{\"hello\":{\"name\":\"a\"}}\n".to_vec() }, peer)
    }

    #[test]
    fn callers_come_to_the_planner_that_runs() {
        let callers = Callers::at("a.sock".as_ref());
        assert!(callers.hand_over(caller().0).unwrap_err().contains("roost wake"));
        let arrivals = callers.open().unwrap();
        assert!(arrivals.take().is_none());
        for _ in 0..QUEUE {
            callers.hand_over(caller().0).unwrap();
        }
        assert!(callers.hand_over(caller().0).unwrap_err().contains("too many"), "a bounded queue");
        for _ in 0..QUEUE {
            assert_eq!(arrivals.take().unwrap().sent, caller().0.sent);
        }
        assert!(arrivals.take().is_none());
        drop(arrivals);
        assert!(callers.hand_over(caller().0).unwrap_err().contains("roost wake"));
        let (first, second) = (callers.open().unwrap(), callers.open().unwrap());
        drop(first);
        callers.hand_over(caller().0).unwrap();
        assert!(second.take().is_some(), "the end of the first has not ended the second");
    }
}
