//! The peers of the control socket, all at once: no peer waits for another's line, and root waits
//! for none.
//!
//! ```text
//!  accept --room of its kind?--> asks --a line--> queued --> waits --the daemon--> told --> closed
//!              no: the oldest that has asked nothing ends        a stranger's question at a time
//! ```
//!
//! Terms. *Ours* are root and the daemon's own user, by the kernel's word (SO_PEERCRED); all others
//! are *strangers*.
//!
//! Invariants, for any behaviour of strangers:
//! - They take no place, no descriptor of the reserve and no turn of ours; of their questions the
//!   daemon has one at a time.
//! - Each user has its own places, so a user that fills them harms only itself.
//! - Each peer has bounded bytes and a bounded time; a failed accept is not tried again without a
//!   pause or a descriptor more.

use super::{Answer, Ask, Caller, Callers, FILES_MAX, LEASE_PATIENCE, PATIENCE, QUESTION_MAX, question};
use crate::controllers::wake::wire::is_for_planner;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// The process that asked, as the kernel knew it when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    pub user: u32,
    /// Its number; 0 if it lives in another namespace.
    pub process: u32,
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}, process {}", self.user, self.process)
    }
}

/// The way back to a peer.
#[derive(Debug)]
pub struct Reply {
    asker: Asker,
    /// The number of the lease, where one is asked for.
    lease: u64,
    sender: Option<Sender<Answer>>,
    bell: Arc<OwnedFd>,
}

#[derive(Debug)]
pub enum Heard {
    /// A question, and the way back.
    Question(Ask, Reply),
    /// The connection of a lease, granted or not yet, has ended.
    LeaseEnded(u64),
}

impl Reply {
    /// The number under which [`Heard::LeaseEnded`] tells of its end.
    pub fn lease(&self) -> u64 {
        self.lease
    }

    pub fn asker(&self) -> Asker {
        self.asker
    }

    /// Tells it. One that has left is not told.
    pub fn send(self, answer: Answer) {
        if let Some(sender) = &self.sender {
            let _ = sender.send(answer);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.sender = None;
        // Full only if it has rung four thousand million times unheard.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

#[derive(Debug)]
enum State {
    /// So much of its line is here.
    Asks(Vec<u8>),
    /// A stranger whose turn has not come.
    Queued(Ask),
    Waits(Receiver<Answer>),
    /// So much of its answer is left.
    Told(Vec<u8>),
    Leased,
}

#[derive(Debug)]
struct Peer {
    stream: UnixStream,
    asker: Asker,
    is_ours: bool,
    state: State,
    until: Instant,
    /// Files that came with its question.
    files: Vec<File>,
    /// Its lease, asked for or granted.
    lease: Option<u64>,
    is_granted: bool,
    goes_on: bool,
}

impl Peer {
    fn tell(&mut self, now: Instant, answer: &Answer) {
        let mut text = serde_json::to_vec(answer).expect("plain data");
        text.push(b'\n');
        self.state = State::Told(text);
        self.until = now + PATIENCE;
        self.is_granted = matches!(answer, Answer::Leased(_) | Answer::Combined(_));
        self.goes_on = matches!(answer, Answer::Combined(_));
    }

    /// The events of its socket to wait for.
    fn interest(&self) -> PollFlags {
        match self.state {
            State::Asks(_) => PollFlags::IN,
            State::Told(_) => PollFlags::OUT,
            // That it hangs up is always told.
            State::Queued(_) | State::Waits(_) | State::Leased => PollFlags::empty(),
        }
    }
}

pub(super) struct Peers<F> {
    listener: UnixListener,
    bell: Arc<OwnedFd>,
    hear: F,
    callers: Callers,
    /// In the order in which they came.
    peers: Vec<Peer>,
    reserve: Vec<File>,
    /// Until then none is accepted.
    resting: Option<Instant>,
    /// The number of the last lease.
    leases: u64,
}

impl<F: Fn(Heard) -> bool> Peers<F> {
    pub(super) fn new(listener: UnixListener, callers: Callers, hear: F) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (peers, reserve) = (Vec::new(), Vec::new());
        Ok(Self { listener, bell, hear, callers, peers, reserve, resting: None, leases: 0 })
    }

    pub(super) fn run(mut self) {
        loop {
            self.fill_reserve();
            let begun = self.wait();
            let now = Instant::now();
            self.accept(now);
            // Our own users first; among equals the first to arrive.
            self.peers.sort_by_key(|peer| !peer.is_ours);
            let mut gone = Vec::new();
            for place in 0..self.peers.len() {
                if !self.attend(place, now) {
                    gone.push(place);
                }
            }
            for place in gone.into_iter().rev() {
                self.remove(place);
            }
            self.hand_over(now);
            // Peers that come without a pause cost so many turns and no more.
            std::thread::sleep(TURN.saturating_sub(begun.elapsed()));
        }
    }

    /// Until something is to be done. When it began to be done.
    fn wait(&mut self) -> Instant {
        let now = Instant::now();
        self.resting = self.resting.filter(|until| *until > now);
        let due = self.peers.iter().map(|peer| peer.until).chain(self.resting).min();
        let mut watched = vec![PollFd::new(&*self.bell, PollFlags::IN)];
        if self.resting.is_none() {
            watched.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        watched.extend(self.peers.iter().map(|peer| PollFd::new(&peer.stream, peer.interest())));
        let left = due.map(|due| due.saturating_duration_since(now));
        let left = left.and_then(|left| rustix::time::Timespec::try_from(left).ok());
        if poll(&mut watched, left.as_ref()).is_err_and(|cause| cause != Errno::INTR) {
            // Out of memory, say, and at once again if asked at once.
            std::thread::sleep(AFTER_TROUBLE);
        }
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        Instant::now()
    }

    fn accept(&mut self, now: Instant) {
        if self.resting.is_some() {
            return;
        }
        for _ in 0..BATCH {
            match self.listener.accept() {
                Ok((stream, _)) => self.welcome(stream, now),
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return,
                Err(cause) if is_out_of_descriptors(&cause) => {
                    let stranger = self.peers.iter().position(|peer| !peer.is_ours);
                    if let Some(stranger) = stranger {
                        self.remove(stranger);
                    } else if self.reserve.pop().is_none() {
                        self.resting = Some(now + AFTER_TROUBLE);
                        return;
                    }
                }
                Err(_) => {
                    self.resting = Some(now + AFTER_TROUBLE);
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, stream: UnixStream, now: Instant) {
        let Ok(peer) = socket_peercred(&stream) else { return };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let asker =
            Asker { user: peer.uid.as_raw(), process: peer.pid.as_raw_nonzero().get().unsigned_abs() };
        let is_ours = peer.uid.is_root() || peer.uid == geteuid();
        if self.is_crowded(is_ours, asker.user) && !self.make_room(is_ours, asker.user) {
            let full = Answer::Refused("too many ask at once: try again".to_owned());
            let text = serde_json::to_string(&full).expect("plain data") + "\n";
            let _ = send(&stream, text.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            return;
        }
        let state = State::Asks(Vec::new());
        let until = now + QUESTION_TIME;
        self.peers.push(Peer {
            stream,
            asker,
            is_ours,
            state,
            until,
            files: Vec::new(),
            lease: None,
            is_granted: false,
            goes_on: false,
        });
    }

    fn is_crowded(&self, is_ours: bool, user: u32) -> bool {
        let of_kind = self.peers.iter().filter(|peer| peer.is_ours == is_ours);
        let of_user = of_kind.clone().filter(|peer| peer.asker.user == user).count();
        if is_ours {
            of_kind.count() >= OURS_MAX
        } else {
            of_kind.count() >= STRANGERS_MAX || of_user >= USER_MAX
        }
    }

    /// Ends the oldest of the user with the most connections that has asked nothing yet. False if
    /// there is none.
    fn make_room(&mut self, is_ours: bool, user: u32) -> bool {
        let mut users = BTreeMap::from([(user, 1)]);
        for peer in self.peers.iter().filter(|peer| peer.is_ours == is_ours) {
            *users.entry(peer.asker.user).or_insert(0) += 1;
        }
        let most = users.iter().max_by_key(|&(&other, &count)| (count, other == user)).map(|(&user, _)| user);
        let silent = |peer: &Peer| {
            peer.is_ours == is_ours
                && Some(peer.asker.user) == most
                && peer.lease.is_none()
                && matches!(peer.state, State::Asks(_))
        };
        let place = self.peers.iter().position(silent);
        place.map(|place| self.peers.remove(place)).is_some()
    }

    fn remove(&mut self, place: usize) {
        if let Some(lease) = self.peers.remove(place).lease {
            // A daemon that is about to end puts everything back anyway.
            let _ = (self.hear)(Heard::LeaseEnded(lease));
        }
    }

    fn attend(&mut self, place: usize, now: Instant) -> bool {
        let peer = &mut self.peers[place];
        if let State::Asks(line) = &mut peer.state {
            match read(&peer.stream, line, peer.is_ours.then_some(&mut peer.files)) {
                Ok(false) if peer.goes_on && line.is_empty() => {
                    peer.until = now + LOOK_AT_LEASES;
                    return true;
                }
                Ok(false) if now < peer.until => {
                    if peer.goes_on {
                        peer.until = peer.until.min(now + QUESTION_TIME);
                    }
                    return true;
                }
                Ok(true) if peer.goes_on && line.is_empty() => return false,
                Ok(false) => {
                    let cause = "the question cannot be read: it did not come in time".to_owned();
                    peer.tell(now, &Answer::Refused(cause));
                }
                Ok(true) => {
                    let line = std::mem::take(line);
                    if is_for_planner(&line) {
                        return self.hand_to_planner(place, line, now);
                    }
                    self.take(place, &line, now);
                }
                Err(_) => return false,
            }
        }
        let peer = &mut self.peers[place];
        if let State::Waits(receiver) = &peer.state {
            match receiver.try_recv() {
                Ok(answer) => peer.tell(now, &answer),
                Err(TryRecvError::Empty) if now < peer.until => {}
                Err(_) => peer.tell(now, &Answer::Refused("the daemon is about to end".to_owned())),
            }
        }
        match &mut peer.state {
            State::Told(left) => {
                let is_going_on = now < peer.until && write(&peer.stream, left);
                if !is_going_on && left.is_empty() && peer.is_granted {
                    peer.state = if peer.goes_on { State::Asks(Vec::new()) } else { State::Leased };
                    peer.until = now + LOOK_AT_LEASES;
                    return true;
                }
                is_going_on
            }
            State::Leased => {
                peer.until = now + LOOK_AT_LEASES;
                !has_left(&peer.stream)
            }
            State::Queued(_) | State::Waits(_) => now < peer.until && !has_left(&peer.stream),
            State::Asks(_) => true,
        }
    }

    fn take(&mut self, place: usize, line: &[u8], now: Instant) {
        let peer = &mut self.peers[place];
        let ask =
            std::str::from_utf8(line).map_err(|_| "the question cannot be read: it is no text".to_owned());
        match ask.and_then(question) {
            Err(refused) => peer.tell(now, &Answer::Refused(refused)),
            Ok(Ask::Set { .. }) if !peer.is_ours => {
                let why = "only the daemon's own user and root may change something: use sudo";
                peer.tell(now, &Answer::Denied(why.to_owned()));
            }
            Ok(mut ask) if peer.is_ours => {
                let files = std::mem::take(&mut peer.files);
                let taken = if let Ask::Lease(part) = &mut ask { part.take_files(files) } else { Ok(()) };
                match taken {
                    Ok(()) => self.ask(place, ask, now),
                    Err(refused) => peer.tell(now, &Answer::Refused(refused)),
                }
            }
            Ok(ask) => {
                peer.state = State::Queued(ask);
                peer.until = now + PATIENCE;
            }
        }
    }

    /// False if the connection is the planner's from now on. The planner decides which users it
    /// hears.
    fn hand_to_planner(&mut self, place: usize, sent: Vec<u8>, now: Instant) -> bool {
        let peer = &mut self.peers[place];
        let copy = peer.stream.try_clone().map_err(|_| "the daemon has no descriptors left: try again");
        let handed = copy.and_then(|stream| self.callers.hand_over(Caller { stream, sent }));
        if let Err(reason) = handed {
            peer.tell(now, &Answer::Refused(reason.to_owned()));
        }
        handed.is_err()
    }

    /// The daemon gets the next question of a stranger, if it has none.
    fn hand_over(&mut self, now: Instant) {
        if self.peers.iter().any(|peer| !peer.is_ours && matches!(peer.state, State::Waits(_))) {
            return;
        }
        let queued = |(place, peer): (usize, &Peer)| match &peer.state {
            State::Queued(ask) => Some((place, ask.clone())),
            _ => None,
        };
        if let Some((place, ask)) = self.peers.iter().enumerate().find_map(queued) {
            self.ask(place, ask, now);
        }
    }

    fn ask(&mut self, place: usize, ask: Ask, now: Instant) {
        let peer = &mut self.peers[place];
        let (sender, receiver) = channel();
        let mut patience = PATIENCE;
        if matches!(ask, Ask::Lease(_)) {
            patience = LEASE_PATIENCE;
        }
        if matches!(ask, Ask::Lease(_) | Ask::Knobs(_)) && peer.lease.is_none() {
            self.leases += 1;
            peer.lease = Some(self.leases);
        }
        let lease = peer.lease.unwrap_or_default();
        let reply = Reply { asker: peer.asker, lease, sender: Some(sender), bell: Arc::clone(&self.bell) };
        peer.state = State::Waits(receiver);
        peer.until = now + patience;
        if !(self.hear)(Heard::Question(ask, reply)) {
            peer.tell(now, &Answer::Refused("the daemon is about to end".to_owned()));
        }
    }

    fn fill_reserve(&mut self) {
        while self.reserve.len() < RESERVE {
            let Ok(file) = File::open("/dev/null") else { return };
            self.reserve.push(file);
        }
    }
}

/// Takes the bytes that are there, and files if they are taken. True when the line is complete, or as
/// long as a line may be.
fn read(mut stream: &UnixStream, line: &mut Vec<u8>, mut files: Option<&mut Vec<File>>) -> io::Result<bool> {
    let mut bytes = [0; 512];
    while line.len() < QUESTION_MAX && !line.contains(&b'\n') {
        let came = match &mut files {
            Some(files) => receive(stream, &mut bytes, files),
            None => stream.read(&mut bytes),
        };
        match came {
            Ok(0) => return Ok(true),
            Ok(length) => line.extend_from_slice(&bytes[..length]),
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(true)
}

fn receive(stream: &UnixStream, bytes: &mut [u8], files: &mut Vec<File>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut along = RecvAncillaryBuffer::new(&mut space);
    let came = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut along, RecvFlags::CMSG_CLOEXEC)?;
    for message in along.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights.map(File::from));
        }
    }
    files.truncate(FILES_MAX);
    Ok(came.bytes)
}

/// False when all is written, or it takes nothing any more.
fn write(stream: &UnixStream, left: &mut Vec<u8>) -> bool {
    match send(stream, left, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(length) => {
            left.drain(..length);
            !left.is_empty()
        }
        Err(cause) => matches!(cause, Errno::AGAIN | Errno::INTR),
    }
}

fn has_left(stream: &UnixStream) -> bool {
    let mut watched = [PollFd::new(stream, PollFlags::empty())];
    let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&at_once)).is_ok_and(|count| count > 0)
}

fn is_out_of_descriptors(cause: &io::Error) -> bool {
    matches!(Errno::from_io_error(cause), Some(Errno::MFILE | Errno::NFILE))
}

/// Connections of ours at a time.
const OURS_MAX: usize = 32;
const STRANGERS_MAX: usize = 32;
const USER_MAX: usize = 8;
/// Accepted before those who are there are looked at again.
const BATCH: usize = 128;
/// Descriptors that are kept for when the process has no others.
const RESERVE: usize = 2;
const TURN: Duration = Duration::from_millis(1);
/// Between two looks whether a connection with a lease is still there, where its end was not told.
const LOOK_AT_LEASES: Duration = Duration::from_secs(3600);
const QUESTION_TIME: Duration = Duration::from_secs(1);
/// Until the next is accepted, where one could not be.
const AFTER_TROUBLE: Duration = Duration::from_millis(50);
