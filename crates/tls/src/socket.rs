//! Plain bytes through a socket that carries sealed ones, without blocking.
//!
//! ```text
//!   receive   socket --> incoming --session--> opened --> the caller's space
//!   send      the caller's bytes --session--> outgoing --> socket
//! ```
//!
//! It behaves as the socket itself would, with two differences:
//! - After a `receive` more may be here that the kernel knows nothing of ([`TlsSocket::has_more`]), so a
//!   caller that waits for the kernel asks for that first.
//! - Bytes once sealed cannot be taken back. A `send` that the socket stops halfway says
//!   [`Errno::AGAIN`], and the next `send` has to begin with the same bytes; as many as were sealed are
//!   then taken without being sealed anew.
//!
//! Invariants:
//! - A connection at rest, with nothing left over in either direction, holds no buffer: they are lent by
//!   its thread.
//! - A call ends: of records that open nothing (empty ones, changes of keys, warnings) rustls takes some
//!   dozens on end, and then fails the session.
//! - It never holds more than one record that was opened, one read's worth of sealed bytes, and the
//!   bytes that one `send` sealed: some 100 KiB.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use std::cell::RefCell;

/// The other side breaks the rules of TLS.
#[cfg(not(windows))]
pub const BROKEN: Errno = Errno::PROTO;
/// The other side breaks the rules of TLS; Windows has no name for that.
#[cfg(windows)]
pub const BROKEN: Errno = Errno::PROTONOSUPPORT;

/// A side of the conversation: rustls has a type for each, and no trait.
pub trait Session {
    type Data: 'static;

    /// Takes sealed bytes and tells the next step; see [`rustls::unbuffered::UnbufferedConnectionCommon`].
    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Session for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

impl Session for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

/// The most that one read takes: two records of the largest size.
const READ: usize = 2 * (16 * 1024 + 256 + HEADER);
/// The most that one `send` seals: two records.
const CHUNK: usize = 32 * 1024;
/// Of a record: its kind, its version, its length.
const HEADER: usize = 5;
/// Sealing adds so much to a record at the most (RFC 8446, section 5.2), and its header.
const OVERHEAD: usize = 256 + HEADER;

/// A socket with a session of TLS on it, of the server's side or of the client's.
pub struct TlsSocket<S> {
    socket: OwnedFd,
    session: S,
    /// Sealed bytes that came, and from where on they are not yet opened: whole records, or part of one.
    incoming: Vec<u8>,
    start: usize,
    /// Bytes that were opened, and from where on they are not yet taken.
    opened: Vec<u8>,
    taken: usize,
    /// Sealed bytes, and from where on they are not yet in the socket.
    outgoing: Vec<u8>,
    written: usize,
    /// So many of the caller's bytes are in `outgoing`.
    sealed: usize,
    is_greeted: bool,
    /// The session has looked at all of `incoming`, and bytes that are left wait for their rest.
    is_looked_at: bool,
    /// The other side says no more.
    is_ended: bool,
    /// It broke the rules: the session is over, and asked nothing more (it would panic).
    is_failed: bool,
}

/// How far the session came with the bytes that are here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Bytes of the other side were opened.
    Opened,
    /// The other side has ended its part.
    Ended,
    /// It waits for bytes of the other side.
    Waits,
    /// It can seal: the chunk was, where there was one.
    Ready,
    /// The other side breaks the rules.
    Failed,
}

thread_local! {
    /// Buffers of this thread, lent to the connection that works.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Buffers that a thread keeps at the most.
const SPARES: usize = 4;

fn borrowed() -> Vec<u8> {
    SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(READ + OVERHEAD))
}

fn give_back(mut buffer: Vec<u8>) {
    buffer.clear();
    SPARE.with_borrow_mut(|spare| {
        if buffer.capacity() >= READ && spare.len() < SPARES {
            spare.push(buffer);
        }
    });
}

impl<S: Session> TlsSocket<S> {
    /// Nothing is said yet. `socket` does not block.
    pub fn new(socket: OwnedFd, session: S) -> Self {
        let (incoming, opened, outgoing) = Default::default();
        Self {
            socket,
            session,
            incoming,
            start: 0,
            opened,
            taken: 0,
            outgoing,
            written: 0,
            sealed: 0,
            is_greeted: false,
            is_looked_at: true,
            is_ended: false,
            is_failed: false,
        }
    }

    /// Both sides know each other; before that nothing can be sent.
    pub fn is_greeted(&self) -> bool {
        self.is_greeted
    }

    /// Bytes may be received, or the end or a fault, that the kernel knows nothing of.
    pub fn has_more(&self) -> bool {
        self.is_ended || self.is_failed || self.taken < self.opened.len() || self.may_open()
    }

    /// A record is here that the session has not looked at.
    fn may_open(&self) -> bool {
        let rest = &self.incoming[self.start..];
        let length = rest.get(3..HEADER).map(|length| u16::from_be_bytes([length[0], length[1]]));
        !self.is_looked_at && length.is_some_and(|length| rest.len() >= HEADER + usize::from(length))
    }

    /// The other side says no more.
    pub fn has_ended(&self) -> bool {
        self.is_ended
    }

    /// Memory that it holds between two calls.
    pub fn held(&self) -> usize {
        self.incoming.capacity() + self.opened.capacity() + self.outgoing.capacity()
    }

    /// Begins or goes on to make acquaintance, as far as that goes without waiting. True: it is done.
    pub fn greet(&mut self) -> Result<bool, Errno> {
        if !self.is_greeted {
            let told = self.read_on();
            self.tidy();
            match told {
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(self.is_greeted)
    }

    /// Bytes received into `into`; zero at the end of the stream.
    pub fn receive(&mut self, into: &mut [u8]) -> Result<usize, Errno> {
        let received = self.receive_untidy(into);
        self.tidy();
        received
    }

    fn receive_untidy(&mut self, into: &mut [u8]) -> Result<usize, Errno> {
        if self.taken == self.opened.len() && !self.read_on()? {
            return Ok(0);
        }
        let mut filled = 0;
        loop {
            let (rest, space) = (&self.opened[self.taken..], &mut into[filled..]);
            let length = rest.len().min(space.len());
            space[..length].copy_from_slice(&rest[..length]);
            self.taken += length;
            filled += length;
            // Small records come by the hundred in one read. A fault waits for the next call.
            let is_full = filled == into.len();
            if is_full || !self.may_open() || self.step(&[]) != Ok(Step::Opened) {
                return Ok(filled);
            }
        }
    }

    /// Opens one more record, of the bytes that are here or come now. False: none follows.
    fn read_on(&mut self) -> Result<bool, Errno> {
        loop {
            if self.is_ended {
                return Ok(false);
            }
            let step = self.step(&[])?;
            // Of the acquaintance; of the caller's bytes nothing is in it, for then it does not read.
            if self.sealed == 0 {
                match self.flush() {
                    Ok(()) | Err(Errno::AGAIN) => {}
                    Err(errno) => return Err(errno),
                }
            }
            match step {
                Step::Opened => return Ok(true),
                Step::Ended => {}
                Step::Failed => return Err(BROKEN),
                Step::Waits | Step::Ready => {
                    self.make_room()?;
                    let spare = rustix::buffer::spare_capacity(&mut self.incoming);
                    match recv(&self.socket, spare, RecvFlags::empty()) {
                        // Without a word of farewell: requests that came whole were served.
                        Ok((0, _)) => self.is_ended = true,
                        Ok(_) => {}
                        Err(errno) => return Err(errno),
                    }
                }
            }
        }
    }

    /// Room for a read behind the bytes that are left over: less than a record, or, of an acquaintance, the
    /// beginning of a message of up to 64 KiB.
    fn make_room(&mut self) -> Result<(), Errno> {
        if self.incoming.capacity() < READ {
            let mut larger = borrowed();
            larger.extend_from_slice(&self.incoming[self.start..]);
            give_back(std::mem::replace(&mut self.incoming, larger));
        } else {
            self.incoming.drain(..self.start);
        }
        self.start = 0;
        if self.incoming.len() == self.incoming.capacity() {
            if self.incoming.len() > 2 * READ {
                self.is_failed = true;
                return Err(BROKEN);
            }
            self.incoming.reserve(READ);
        }
        Ok(())
    }

    /// Bytes of `bytes` that were taken. After [`Errno::AGAIN`] the next call begins with the same bytes.
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let sent = self.send_untidy(bytes);
        self.tidy();
        sent
    }

    fn send_untidy(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        self.flush()?;
        if self.sealed > 0 {
            return Ok(std::mem::take(&mut self.sealed));
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        let chunk = &bytes[..bytes.len().min(CHUNK)];
        loop {
            match self.step(chunk)? {
                Step::Ready => break,
                // Bytes that were here already; the caller receives them later.
                Step::Opened | Step::Ended => {}
                Step::Waits | Step::Failed => return Err(Errno::NOTCONN),
            }
        }
        self.sealed = chunk.len();
        self.flush()?;
        Ok(std::mem::take(&mut self.sealed))
    }

    /// Runs the session over the incoming bytes until something is to be done. `chunk` is sealed once that
    /// can be.
    fn step(&mut self, chunk: &[u8]) -> Result<Step, Errno> {
        if self.is_failed {
            return Err(BROKEN);
        }
        loop {
            let (discard, step) = {
                let Self { session, incoming, start, opened, outgoing, .. } = self;
                let UnbufferedStatus { mut discard, state } = session.process(&mut incoming[*start..]);
                let step = match state {
                    Err(_) => Some(Step::Failed),
                    Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                        // Bytes of a client that has finished, though it may be before we seal any.
                        self.is_greeted = true;
                        if self.taken == opened.len() {
                            opened.clear();
                            self.taken = 0;
                        }
                        if opened.capacity() == 0 {
                            *opened = borrowed();
                        }
                        let before = opened.len();
                        while let Some(record) = traffic.next_record() {
                            let record = record.map_err(|_| BROKEN)?;
                            discard += record.discard;
                            opened.extend_from_slice(record.payload);
                        }
                        (opened.len() > before).then_some(Step::Opened)
                    }
                    Ok(ConnectionState::EncodeTlsData(mut data)) => {
                        encode(outgoing, |into| data.encode(into))?;
                        None
                    }
                    // They are in `outgoing`, which goes before all that follows.
                    Ok(ConnectionState::TransmitTlsData(data)) => {
                        data.done();
                        None
                    }
                    Ok(ConnectionState::PeerClosed) => {
                        self.is_ended = true;
                        Some(Step::Ended)
                    }
                    Ok(ConnectionState::BlockedHandshake) => Some(Step::Waits),
                    Ok(ConnectionState::WriteTraffic(traffic)) => {
                        self.is_greeted = true;
                        if !chunk.is_empty() {
                            seal(traffic, chunk, outgoing)?;
                        }
                        Some(Step::Ready)
                    }
                    // Both sides have ended; bytes before acquaintance are not asked for.
                    Ok(_) => return Err(Errno::CONNRESET),
                };
                (discard, step)
            };
            self.start += discard;
            match step {
                Some(Step::Failed) => {
                    self.is_failed = true;
                    self.say_why();
                    return Err(BROKEN);
                }
                Some(step) => {
                    self.is_looked_at = matches!(step, Step::Waits | Step::Ready);
                    return Ok(step);
                }
                None => {}
            }
        }
    }

    /// Writes sealed bytes, as many as the socket takes.
    fn flush(&mut self) -> Result<(), Errno> {
        while self.written < self.outgoing.len() {
            match send(&self.socket, &self.outgoing[self.written..], SendFlags::empty()) {
                Ok(length) => self.written += length,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.outgoing.clear();
        self.written = 0;
        Ok(())
    }

    /// Tells the other side the reason of a failure, if its socket takes that.
    fn say_why(&mut self) {
        let mut alert = Vec::new();
        let is_told = match self.session.process(&mut self.incoming[self.start..]).state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                encode(&mut alert, |into| data.encode(into)).is_ok()
            }
            _ => false,
        };
        if is_told && self.flush().is_ok() {
            let _ = send(&self.socket, &alert, SendFlags::empty());
        }
    }

    /// Ends our part in good order, if the socket takes that: then the other side knows that it lost
    /// nothing.
    pub fn say_farewell(&mut self) {
        if !self.is_greeted {
            return;
        }
        // Whatever is to be told or heard first.
        let is_ready = loop {
            match self.step(&[]) {
                Ok(Step::Ready) => break true,
                Ok(Step::Opened | Step::Ended) => self.taken = self.opened.len(),
                Ok(Step::Waits | Step::Failed) | Err(_) => break false,
            }
        };
        if self.flush().is_err() || !is_ready {
            return;
        }
        let mut last = [0; 64];
        let length = match self.session.process(&mut self.incoming[self.start..]).state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => traffic.queue_close_notify(&mut last).ok(),
            _ => None,
        };
        if let Some(length) = length {
            let _ = send(&self.socket, &last[..length], SendFlags::empty());
        }
    }

    /// Gives the thread's buffers back; a rest stays in a buffer of its own size.
    fn tidy(&mut self) {
        self.opened.drain(..self.taken);
        self.outgoing.drain(..self.written);
        self.incoming.drain(..self.start);
        (self.taken, self.written, self.start) = (0, 0, 0);
        for buffer in [&mut self.incoming, &mut self.opened, &mut self.outgoing] {
            if buffer.capacity() > buffer.len() {
                let rest = if buffer.is_empty() { Vec::new() } else { buffer.as_slice().to_vec() };
                give_back(std::mem::replace(buffer, rest));
            }
        }
    }
}

fn encode(
    outgoing: &mut Vec<u8>,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), Errno> {
    let at = outgoing.len();
    let needed = match encode(&mut []) {
        Err(EncodeError::InsufficientSize(error)) => error.required_size,
        _ => return Err(BROKEN),
    };
    outgoing.resize(at + needed, 0);
    encode(&mut outgoing[at..]).map_err(|_| BROKEN)?;
    Ok(())
}

fn seal<D>(mut traffic: WriteTraffic<'_, D>, chunk: &[u8], outgoing: &mut Vec<u8>) -> Result<(), Errno> {
    if outgoing.capacity() == 0 {
        *outgoing = borrowed();
    }
    let at = outgoing.len();
    outgoing.resize(at + chunk.len() + 2 * OVERHEAD, 0);
    let mut sealed = traffic.encrypt(chunk, &mut outgoing[at..]);
    if let Err(EncryptError::InsufficientSize(error)) = &sealed {
        outgoing.resize(at + error.required_size, 0);
        sealed = traffic.encrypt(chunk, &mut outgoing[at..]);
    }
    let length = sealed.map_err(|_| BROKEN)?;
    outgoing.truncate(at + length);
    Ok(())
}

impl<S> std::fmt::Debug for TlsSocket<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSocket").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl<S> AsFd for TlsSocket<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;
