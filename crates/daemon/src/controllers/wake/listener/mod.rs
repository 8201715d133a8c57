//! The loop that hears callers: rings and datagrams here, lines in `lines`.

mod lines;

use super::caller::Caller;
use super::daemon::WakeHandle;
use super::remote::{DATAGRAM_MAX, Unheard};
use super::status::Asked;
use super::wire::{self, WakeAnswer};
use super::{Roll, WakeError, WakeOptions};
use crate::control::Arrivals;
use machine::{CpuId, CpuList};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use slots::wake::Ring;
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::PoisonError;

/// The most connections at a time; further ones are refused.
const CONNECTIONS_MAX: usize = 256;
/// Connections reserved for root and for this process's own user.
const CONNECTIONS_KEPT: usize = 64;
/// The most connections of one other user.
const CONNECTIONS_OF_USER: usize = 64;
/// Lines, datagrams and bytes that are taken from one peer before the next gets its turn.
const TURN: usize = 64;
/// Entries of a ring that are taken under one lock.
const BREATH: usize = 8;

/// The descriptors of the loop, as numbers in epoll's data. Connections follow.
const STOP: u64 = 0;
const ARRIVALS: u64 = 1;
const UDP: u64 = 2;
const FIRST: u64 = 16;

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    line: Vec<u8>,
    user: u32,
    caller: Option<Caller>,
    ids: u64,
    ring: Option<(Ring, OwnedFd)>,
}

#[derive(Debug)]
pub(super) struct Listening {
    handle: WakeHandle,
    roll: Roll,
    epoll: OwnedFd,
    arrivals: Arrivals,
    home: Option<CpuId>,
    udp: Option<UdpSocket>,
    users: Vec<u32>,
    default_cpus: CpuList,
    connections: BTreeMap<u64, Connection>,
    next: u64,
    /// Counts of rings that are gone.
    before: Asked,
}

/// The number of a connection's stream, or of its ring's doorbell.
fn token(connection: u64, is_bell: bool) -> EventData {
    EventData::new_u64(FIRST + 2 * connection + u64::from(is_bell))
}

impl Listening {
    pub(super) fn open(
        options: &WakeOptions,
        arrivals: Arrivals,
        handle: WakeHandle,
        roll: Roll,
    ) -> Result<Self, WakeError> {
        let udp = options.udp.map(|address| {
            let told = |cause| WakeError::Taken { place: address.to_string(), cause };
            let socket = UdpSocket::bind(address).map_err(told)?;
            socket.set_nonblocking(true).map_err(told)?;
            Ok::<_, WakeError>(socket)
        });
        let udp = udp.transpose()?;
        let failed = |cause: Errno| WakeError::Failed(format!("cannot listen: {cause}"));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        epoll::add(&epoll, &handle.0.stop, EventData::new_u64(STOP), EventFlags::IN).map_err(failed)?;
        let bell = arrivals.bell();
        epoll::add(&epoll, bell, EventData::new_u64(ARRIVALS), EventFlags::IN).map_err(failed)?;
        if let Some(udp) = &udp {
            epoll::add(&epoll, udp, EventData::new_u64(UDP), EventFlags::IN).map_err(failed)?;
        }
        Ok(Self {
            handle,
            roll,
            epoll,
            arrivals,
            home: options.home,
            udp,
            users: options.users.clone(),
            default_cpus: options.remote_cpus.clone(),
            connections: BTreeMap::new(),
            next: 0,
            before: Asked::default(),
        })
    }

    /// The address for datagrams.
    pub(super) fn udp_address(&self) -> Option<SocketAddr> {
        self.udp.as_ref()?.local_addr().ok()
    }

    pub(super) fn run(mut self) {
        // Pinned, or each message wakes any CPU that happens to sleep. If pinning is refused, the
        // loop runs anywhere.
        if let Some(home) = self.home {
            let _ = linux::pin_current_thread(home);
        }
        let mut events = Vec::with_capacity(TURN);
        loop {
            // From here on an entry either rings the doorbell or is found below.
            let mut is_said = false;
            for (ring, _) in self.connections.values().filter_map(|connection| connection.ring.as_ref()) {
                is_said |= ring.sleep();
            }
            let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
            events.clear();
            let longest = is_said.then_some(&at_once);
            let waited = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), longest);
            if self.handle.has_ended() {
                break;
            }
            for (ring, _) in self.connections.values().filter_map(|connection| connection.ring.as_ref()) {
                ring.wake();
            }
            if waited.is_err_and(|cause| cause != Errno::INTR) {
                // Out of memory, for example, and so again if repeated at once.
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            // Rings first: their windows are near.
            self.hear_rings();
            for event in &events {
                match event.data.u64() {
                    STOP => {}
                    ARRIVALS => self.accept(),
                    UDP => self.hear_datagrams(),
                    number => {
                        let (connection, is_bell) = ((number - FIRST) / 2, (number - FIRST) % 2 == 1);
                        if is_bell {
                            self.hush(connection);
                        } else if !self.hear_lines(connection) {
                            self.end(connection);
                        }
                    }
                }
            }
            self.count();
        }
        for connection in self.connections.keys().copied().collect::<Vec<_>>() {
            self.end(connection);
        }
    }

    /// Takes the entries of all rings, at most one ring's worth of each.
    fn hear_rings(&mut self) {
        let shared = self.handle.0.shared.clone();
        for connection in self.connections.values_mut() {
            let (Some((ring, _)), Some(caller)) = (&mut connection.ring, &mut connection.caller) else {
                continue;
            };
            let mut turn = 0;
            // In batches, so that a helper whose time has come does not wait for a ring's worth.
            while shared.change(|plan| {
                (0..BREATH).all(|_| {
                    // A refusal is counted, here and in the ring.
                    let said = ring.take(&mut turn);
                    said.map(|said| caller.hear(plan, linux::now(), said)).is_some()
                })
            }) {}
            if turn > 0 {
                ring.tell(caller.accepted, caller.refused);
            }
        }
    }

    fn hush(&self, connection: u64) {
        if let Some((_, bell)) = self.connections.get(&connection).and_then(|known| known.ring.as_ref()) {
            let _ = rustix::io::read(bell, &mut [0_u8; 8]);
        }
    }

    /// True if this user may open one more connection.
    fn has_room(&self, user: u32, is_ours: bool) -> bool {
        let ours = |user: u32| user == 0 || user == geteuid().as_raw();
        let others = self.connections.values().filter(|connection| !ours(connection.user));
        let of_user = others.clone().filter(|connection| connection.user == user).count();
        self.connections.len() < CONNECTIONS_MAX
            && (is_ours
                || of_user < CONNECTIONS_OF_USER && others.count() < CONNECTIONS_MAX - CONNECTIONS_KEPT)
    }

    fn accept(&mut self) {
        while let Some(arrived) = self.arrivals.take() {
            let stream = arrived.stream;
            let Ok(peer) = socket_peercred(&stream) else { continue };
            let user = peer.uid.as_raw();
            let is_ours = peer.uid.is_root() || peer.uid == geteuid();
            let is_known = is_ours || self.users.contains(&user);
            let refusal = match () {
                () if !is_known => Some(format!(
                    "user {user} may not ask: add users = [{user}] to [wake] in its configuration"
                )),
                () if !self.has_room(user, is_ours) => {
                    let count = if is_ours { CONNECTIONS_MAX } else { CONNECTIONS_OF_USER };
                    Some(format!("{count} are connected already: end some"))
                }
                () => None,
            };
            if let Some(reason) = refusal {
                let _ = rustix::io::write(&stream, &wire::line(&WakeAnswer::Refused(reason)));
                continue;
            }
            let number = self.next;
            if stream.set_nonblocking(true).is_err()
                || epoll::add(&self.epoll, &stream, token(number, false), EventFlags::IN | EventFlags::RDHUP)
                    .is_err()
            {
                continue;
            }
            self.next += 1;
            let connection = Connection { stream, line: Vec::new(), user, caller: None, ids: 0, ring: None };
            self.connections.insert(number, connection);
            if !self.hear_bytes(number, &arrived.sent) {
                self.end(number);
            }
        }
    }

    fn hear_datagrams(&mut self) {
        let (Some(udp), Some(remote)) = (&self.udp, &self.handle.0.remote) else { return };
        let mut bytes = [0; DATAGRAM_MAX + 1];
        for _ in 0..TURN {
            let Ok((length, peer)) = udp.recv_from(&mut bytes) else { return };
            if length > DATAGRAM_MAX {
                continue;
            }
            let text = match remote.hear(&bytes[..length], None) {
                Ok(id) => format!("ok {id}"),
                Err(Unheard::Refused(reason)) => reason,
                Err(Unheard::Token) => continue,
            };
            let mut end = text.len().min(length);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let _ = udp.send_to(&text.as_bytes()[..end], peer);
        }
    }

    fn end(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else { return };
        let _ = epoll::delete(&self.epoll, &connection.stream);
        if let Some((ring, bell)) = &connection.ring {
            let _ = epoll::delete(&self.epoll, bell);
            add(&mut self.before, ring);
        }
        if let Some(mut caller) = connection.caller {
            self.handle.0.shared.change(|plan| {
                let now = linux::now();
                caller.depart(plan, now);
                self.roll.leave(plan, caller.principal, now);
            });
        }
    }

    fn count(&self) {
        let mut asked = self.before;
        asked.connections = self.connections.len() as u64;
        for (ring, _) in self.connections.values().filter_map(|connection| connection.ring.as_ref()) {
            add(&mut asked, ring);
        }
        *self.handle.0.asked.lock().unwrap_or_else(PoisonError::into_inner) = asked;
    }
}

/// Adds a ring's counts. Its client may have made them up.
fn add(asked: &mut Asked, ring: &Ring) {
    let tally = ring.tally();
    asked.too_late = asked.too_late.saturating_add(tally.too_late);
    asked.full = asked.full.saturating_add(tally.full);
    asked.rung = asked.rung.saturating_add(tally.rung);
    asked.nonsense = asked.nonsense.saturating_add(tally.nonsense);
}
