//! The proof that the programs are at work, and the alarm that they give between two readings.
//!
//! A counter stands still for a service without requests and for a detached program alike. So there
//! is a *heart*: a connection of ours with ourselves over the loopback, one byte to and fro for
//! each reading, which the programs see as they see the service's requests and count apart. Each
//! beat goes the whole way, from the kernel's event to the map that is read, so a missing beat
//! means that the service's requests would be missing too. The existence of a link would prove less
//! (a kernel may hold one whose event never comes), and a program's run count (`run_cnt`) is zero
//! unless the administrator pays for `bpf_stats_enabled`.
//!
//! ```text
//!   reading n     reply to the byte of n-1, counted as a beat      send a byte      read the map: has it grown?
//! ```
//!
//! The alarm is a threshold in the program: a number of arrivals within one window of 4.2 ms,
//! reported at most once in an epoch through a ring buffer that wakes a thread of ours. The
//! threshold comes from user space; nothing here decides one.

use super::{BpfError, RequestWay};
use crate::probes::Fields;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use machine::{Duration, Instant};
use std::io::{self, Read as _, Write as _};
use std::mem::size_of;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// The facts of an epoch beside the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// The programs saw our last beat; `None` where we have no heart, since there is no loopback.
    pub is_alive: Option<bool>,
    /// The most arrivals in one window since [`super::RequestProgram::expect`] was called; zero
    /// before the first call.
    pub peak: u64,
}

/// Far more arrived within a window than was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestAlarm {
    /// Its call of [`super::RequestProgram::expect`]; an older one is no news.
    pub epoch: u64,
    /// The time of the arrival that triggered it.
    pub at: Instant,
    pub arrivals: u64,
}

/// Arrivals in windows of [`ALARM_WINDOW`], since the first call of
/// [`super::RequestProgram::count_windows`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowCounts {
    pub arrivals: u64,
    /// The squares of the differences between the counts of neighbouring windows, added up.
    pub squares: u64,
}

/// Arrivals are counted in windows of this length.
pub const ALARM_WINDOW: Duration = Duration::from_nanos(1 << 22);

/// A connection with ourselves.
#[derive(Debug)]
pub(super) struct Heart {
    server: TcpStream,
    client: TcpStream,
}

impl Heart {
    pub(super) fn open() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let own = client.local_addr()?;
        // A stranger may be faster.
        let server = loop {
            let (server, peer) = listener.accept()?;
            if peer == own {
                break server;
            }
        };
        for stream in [&server, &client] {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
        }
        Ok(Self { server, client })
    }

    /// The programs know it by this.
    pub(super) fn name(&self, way: RequestWay) -> u32 {
        match way {
            RequestWay::Calls => std::process::id(),
            RequestWay::Sockets | RequestWay::Packets => {
                self.server.local_addr().map_or(0, |address| address.port().into())
            }
        }
    }

    /// Replies to the byte of the last time, and sends another. Nothing waits: a late byte is for
    /// the next time.
    pub(super) fn beat(&mut self) {
        let mut bytes = [0; 64];
        if self.server.read(&mut bytes).is_ok_and(|read| read > 0) {
            let _ = self.server.write(b".");
        }
        while self.client.read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
        // A full buffer belongs to a connection that has stopped, which the missing beats show.
        let _ = self.client.write(b".");
    }
}

/// The maps beside the counts.
#[derive(Debug)]
pub(super) struct PulseMaps {
    pub(super) rules: MapHandle,
    pub(super) pulses: MapHandle,
    /// `None`: this kernel has no ring buffers.
    pub(super) alarms: Option<MapHandle>,
}

/// The content of the kernel's `struct pulse`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) beats: u64,
    pub(super) epoch: u64,
    pub(super) peak: u64,
    pub(super) windows: WindowCounts,
}

impl PulseMaps {
    pub(super) fn read(&self) -> Option<Counted> {
        let bytes = self.pulses.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()??;
        counted(&bytes)
    }

    /// The kernel's `struct rule`, whole.
    pub(super) fn rule(&self, epoch: u64, arrivals: u64, batch: u64) -> Result<(), BpfError> {
        let bytes: Vec<u8> = [epoch, arrivals, batch].iter().flat_map(|field| field.to_ne_bytes()).collect();
        self.rules
            .update(&0_u32.to_ne_bytes(), &bytes, MapFlags::ANY)
            .map_err(|error| BpfError::Refused { program: "alarm".to_owned(), reason: format!("{error:#}") })
    }
}

fn counted(bytes: &[u8]) -> Option<Counted> {
    if bytes.len() != 9 * size_of::<u64>() {
        return None;
    }
    let mut fields = Fields(bytes);
    let (beats, epoch, _window, _count, peak) =
        (fields.u64(), fields.u64(), fields.u64(), fields.u64(), fields.u64());
    let (_rung, arrivals, _before, squares) = (fields.u64(), fields.u64(), fields.u64(), fields.u64());
    Some(Counted { beats, epoch, peak, windows: WindowCounts { arrivals, squares } })
}

pub(super) fn alarm(bytes: &[u8]) -> Option<RequestAlarm> {
    if bytes.len() < 3 * size_of::<u64>() {
        return None;
    }
    let mut fields = Fields(bytes);
    Some(RequestAlarm {
        epoch: fields.u64(),
        at: Instant::ZERO + Duration::from_nanos(fields.u64()),
        arrivals: fields.u64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heart_beats_without_waiting_for_anybody() {
        let mut heart = Heart::open().unwrap();
        assert!(heart.name(RequestWay::Sockets) > 0);
        assert_eq!(heart.name(RequestWay::Calls), std::process::id());
        let began = std::time::Instant::now();
        (0..1000).for_each(|_| heart.beat());
        assert!(began.elapsed() < std::time::Duration::from_secs(2));
    }

    #[test]
    fn what_is_no_struct_of_ours_is_nothing() {
        assert_eq!(counted(&[0; 71]), None);
        assert_eq!(alarm(&[0; 23]), None);
        let bytes: Vec<u8> =
            [7_u64, 3, 9, 4, 5, 2, 11, 4, 25].iter().flat_map(|field| field.to_ne_bytes()).collect();
        let windows = WindowCounts { arrivals: 11, squares: 25 };
        assert_eq!(counted(&bytes), Some(Counted { beats: 7, epoch: 3, peak: 5, windows }));
        let heard = alarm(&bytes).unwrap();
        assert_eq!(
            (heard.epoch, heard.at.since(Instant::ZERO), heard.arrivals),
            (7, Duration::from_nanos(3), 9)
        );
    }
}
