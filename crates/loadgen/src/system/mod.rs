//! The system below the generator: readiness of sockets with a time that ends the waiting,
//! connections that are begun, threads on CPUs of their own.
//!
//! ```text
//!                  Linux                      elsewhere
//!   Readiness      epoll, a timerfd           the crate `polling` (kqueue, Windows' AFD)
//!   connections    rustix                     the crate `socket2`
//!   a lane's CPU   pinned, real-time          as the system likes; asked for, an error
//! ```

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::*;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;

/// The events for which a connection is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    Answers,
    /// The same, or to be written.
    Room,
}

/// A connection at which something can be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub at: usize,
    /// Bytes, its end, or an error.
    pub readable: bool,
    pub writable: bool,
}
