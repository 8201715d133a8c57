//! One client: its socket, its place in the protocol, the rest in either direction.
//!
//! A connection is plain data that one worker owns at a time. Moving it moves everything: unread
//! bytes stay in the socket, unparsed bytes in `input`, half-written answers in `output`, a
//! half-done command in the session. Answers therefore stay in order and none is lost (the
//! published Peafowl code left the pending write event behind, and half of its connections stalled
//! for good).
//!
//! ```text
//!             read               serve                 write
//!   socket ----------> scratch ----------> scratch ------------> socket
//!               input <-'  left over          '-> output  what the socket did not take
//! ```
//!
//! While `output` holds anything the connection is *held back*: nothing is read from it and nothing
//! served, so a client that does not read costs one answer's worth of memory, and after the stall
//! limit its connection.
//!
//! Invariants:
//! - An answer leaves behind all earlier ones. The bytes out are those of a server with unlimited
//!   memory, but for values that were refused while they were incomplete, or a prefix of them and a
//!   close.
//! - A request that was received whole is answered while the connection lives.
//! - A turn writes [`TURN_BYTES`] at the most, unless there is no memory to keep the rest of an
//!   answer.
//! - A turn serves nothing more once [`TURN_TIME`] has passed: at the most a slice of requests, or
//!   one that copied much.
//! - Memory is charged as bytes arrive, never on a client's announcement.

use crate::buffer::Buffer;
use crate::session::{Context, Ending, Next, Session};
use crate::store::Budget;
use machine::{ConnId, Duration, Instant, WorkerId};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::ops::Range;
pub(crate) use transport::Socket;
use transport::Transport;

mod transport;

/// Bytes that one read takes at the most when nothing larger is expected.
pub(crate) const READ_SIZE: usize = 64 * 1024;

/// The least that is read behind an incomplete request.
const READ_PIECE: usize = READ_SIZE / 16;

/// Requests served before other connections get their turn: about half a millisecond of work where
/// they are small.
const TURN_REQUESTS: u32 = 512;

/// Time served before other connections get their turn, whatever the requests weigh.
const TURN_TIME: Duration = Duration::from_micros(500);

/// Requests between two looks at the clock. A look costs some 25 ns, a request half a microsecond.
const SLICE_REQUESTS: u32 = 32;

/// Bytes written before other connections get their turn. A client that asks for many large values
/// would else keep its worker for as long as the socket takes them, which on loopback is for ever.
pub(crate) const TURN_BYTES: usize = 256 * 1024;

/// A turn that has written so much does not serve again: another call may answer as much.
const TURN_BYTES_ENOUGH: usize = TURN_BYTES / 2;

/// Bytes of a turn's answers that may wait for the turns of other connections.
const SENT_LATER: usize = 16 * 1024;

/// Answers gathered before they are written, bytes.
const WRITE_SIZE: usize = 64 * 1024;

pub(crate) struct TurnContext<'a> {
    pub(crate) session: Context<'a>,
    pub(crate) began: Instant,
    pub(crate) clock: &'a dyn Fn() -> Instant,
}

impl TurnContext<'_> {
    fn budget(&self) -> &Budget {
        self.session.store.budget()
    }

    /// Whether other connections have waited long enough.
    fn is_over(&self) -> bool {
        (self.clock)().since(self.began) >= TURN_TIME
    }
}

#[derive(Debug)]
pub(crate) struct Connection<T = Socket> {
    socket: T,
    pub(crate) id: ConnId,
    pub(crate) home: WorkerId,
    session: Session,
    input: Buffer,
    output: Buffer,
    /// Bytes that the request at the head of `input` needs in all, where known.
    wanted: usize,
    /// The last turn ended before `input` was looked at to its end: it may hold whole requests.
    unserved: bool,
    /// When `output` last began to wait without any of it being taken.
    pub(crate) held_since: Option<Instant>,
    /// When bytes of an incomplete request last came.
    partial_since: Option<Instant>,
    /// Since when its transport lacks the rest of something, before any byte of a request, and the bytes
    /// received by then.
    incomplete_since: Option<(Instant, u64)>,
    /// Whether its worker counts it among those that may stall.
    pub(crate) is_watched: bool,
    /// Bytes received so far.
    received: u64,
    /// Bytes written in this turn.
    written: usize,
    /// Close as soon as `output` is written.
    closing: bool,
}

/// The result of a connection's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Everything that was there is served and answered.
    Idle,
    /// More input waits: give it another turn without asking the kernel.
    Again,
    /// The client does not take its answers: wait until the socket is writable.
    Held,
    /// Finished, by its own wish or by its own fault.
    Closed,
    /// Everything that was there is served, and the answers lie in the scratch output, for
    /// [`Connection::send`].
    Unsent,
}

/// Space that a worker lends to the connection whose turn it is.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) input: Box<[u8]>,
    pub(crate) output: Vec<u8>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { input: vec![0; 4 * READ_SIZE].into_boxed_slice(), output: Vec::with_capacity(WRITE_SIZE) }
    }

    /// Takes the answers out, and leaves that buffer for the next ones.
    pub(crate) fn take_output(&mut self, spare: Option<Vec<u8>>) -> Vec<u8> {
        let mut spare = spare.unwrap_or_default();
        spare.clear();
        spare.shrink_to(WRITE_SIZE);
        std::mem::replace(&mut self.output, spare)
    }

    /// Forgets the answers, and gives memory back after an unusually large one.
    fn clear_output(&mut self) {
        self.output.clear();
        self.output.shrink_to(4 * WRITE_SIZE);
    }
}

impl<T: Transport> Connection<T> {
    pub(crate) fn new(socket: T, id: ConnId, home: WorkerId) -> Self {
        Self {
            socket,
            id,
            home,
            session: Session::new(),
            input: Buffer::default(),
            output: Buffer::default(),
            wanted: 0,
            unserved: false,
            held_since: None,
            partial_since: None,
            incomplete_since: None,
            is_watched: false,
            received: 0,
            written: 0,
            closing: false,
        }
    }

    /// Whether the socket must become writable before anything else can happen.
    pub(crate) fn is_held(&self) -> bool {
        !self.output.is_empty()
    }

    /// Whether requests may be here that the kernel knows nothing of.
    pub(crate) fn has_unserved(&self) -> bool {
        self.unserved && !self.input.is_empty()
    }

    /// Changes whenever bytes came or requests were served.
    pub(crate) fn progress(&self) -> (u64, usize) {
        (self.received, self.input.len())
    }

    /// Since when nothing has moved that must: the client takes no answers, or sends no more of a
    /// request.
    pub(crate) fn stalled_since(&self) -> Option<Instant> {
        self.held_since.or(self.partial_since).or(self.incomplete_since.map(|(since, _)| since))
    }

    /// Whether bytes are here, or half of them, that the kernel knows nothing of: true if it needs another
    /// turn without asking the kernel.
    pub(crate) fn look_at_rest(&mut self, now: Instant) -> bool {
        if self.is_held() || !self.socket.is_incomplete() {
            self.incomplete_since = None;
        } else if self.incomplete_since.is_none_or(|(_, received)| received != self.received) {
            self.incomplete_since = Some((now, self.received));
        }
        self.socket.has_more()
    }

    /// Whether the client went before it could ask anything.
    pub(crate) fn is_stranger(&self) -> bool {
        self.socket.is_stranger()
    }

    /// Whether the client has said `watch`, and is sent events.
    pub(crate) fn is_watching(&self) -> bool {
        self.session.listener().is_some()
    }

    /// Sends the events that wait for it. None if there are none, or earlier ones are not sent yet.
    pub(crate) fn send_events(&mut self, scratch: &mut Scratch, context: &TurnContext<'_>) -> Option<Turn> {
        self.written = 0;
        let listener = self.session.listener().filter(|_| self.output.is_empty())?;
        listener.take(&mut scratch.output);
        if scratch.output.is_empty() {
            return None;
        }
        let turn = self.write(&scratch.output, context);
        scratch.clear_output();
        Some(turn)
    }

    /// Why the conversation ended, if the protocol ended it.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.session.ending()
    }

    /// Reads the client's bytes and answers them. Returns the number of requests served.
    pub(crate) fn take_turn(&mut self, scratch: &mut Scratch, context: &TurnContext<'_>) -> (u32, Turn) {
        self.written = 0;
        if self.is_held() {
            match self.flush(context) {
                Turn::Idle => {}
                turn => return (0, turn),
            }
            if self.closing {
                return (0, Turn::Closed);
            }
        }
        // Before anything is read: the socket may be at its end, and these requests came before
        // that.
        if self.has_unserved() {
            return self.serve_left_over(scratch, context);
        }
        if !self.input.is_empty() {
            return self.read_more(scratch, context);
        }
        match self.receive(&mut scratch.input[..READ_SIZE], context.budget()) {
            Ok(received) => self.take_received(0..received, scratch, context, false),
            Err(turn) => (0, turn),
        }
    }

    /// Nothing is left over in either direction: new bytes can be served from the place they were
    /// read to.
    pub(crate) fn is_plain(&self) -> bool {
        self.input.is_empty() && self.output.is_empty()
    }

    /// Reads once. The error is how the turn ends when there is nothing to serve.
    pub(crate) fn receive(&mut self, into: &mut [u8], budget: &Budget) -> Result<usize, Turn> {
        let came = self.socket.receive(into, budget);
        self.received(came)
    }

    /// The same, of bytes that were read for it from its [`Self::plain_socket`].
    pub(crate) fn received(&mut self, came: Result<usize, Errno>) -> Result<usize, Turn> {
        match came {
            Ok(0) => Err(Turn::Closed),
            Ok(length) => {
                self.received += length as u64;
                Ok(length)
            }
            Err(Errno::AGAIN | Errno::INTR) => Err(Turn::Idle),
            Err(_) => Err(Turn::Closed),
        }
    }

    /// Serves received bytes in that part of the scratch input of a connection that was plain. With
    /// `sends_later` the answers may be left in the scratch output: [`Turn::Unsent`].
    pub(crate) fn take_received(
        &mut self,
        part: Range<usize>,
        scratch: &mut Scratch,
        context: &TurnContext<'_>,
        sends_later: bool,
    ) -> (u32, Turn) {
        self.written = 0;
        let budget = context.budget();
        let (mut at, mut requests) = (part.start, 0);
        loop {
            let rest = &scratch.input[at..part.end];
            let (served, used, turn) = self.serve(rest, &mut scratch.output, context, sends_later);
            requests += served;
            if turn == Turn::Unsent {
                return (requests, turn);
            }
            scratch.clear_output();
            at += used;
            let rest = &scratch.input[at..part.end];
            if turn == Turn::Closed || rest.is_empty() {
                return (requests, turn);
            }
            if self.input.append(rest, budget) {
                self.note_partial(context.began);
                return (requests, turn);
            }
            // There is no memory to keep the rest.
            match turn {
                // It lies in the scratch space, where it can be served at once: at most the bytes
                // of one read. A dump is more than its bytes.
                Turn::Again if !self.session.is_listing() => {}
                Turn::Idle => {
                    let turn = self.refuse(rest, &mut scratch.output, context);
                    scratch.clear_output();
                    return (requests, turn);
                }
                // Its answers would have to wait, for the client or for other clients' turns.
                Turn::Again | Turn::Held | Turn::Closed | Turn::Unsent => return (requests, Turn::Closed),
            }
        }
    }

    /// Gives a connection with left-over input another turn without reading first.
    pub(crate) fn serve_left_over(
        &mut self,
        scratch: &mut Scratch,
        context: &TurnContext<'_>,
    ) -> (u32, Turn) {
        self.written = 0;
        let input = std::mem::take(&mut self.input);
        let (requests, used, turn) = self.serve(input.as_slice(), &mut scratch.output, context, false);
        scratch.clear_output();
        self.input = input;
        self.input.consume(used, context.budget());
        self.note_partial(context.began);
        (requests, turn)
    }

    /// Ends the connection: its buffers go back to the budget, the socket is closed by the drop.
    pub(crate) fn close(mut self, budget: &Budget) {
        self.input.release(budget);
        self.output.release(budget);
        self.socket.close(budget);
    }

    /// Notes whether an incomplete request waits for the rest of its bytes, some of which have just
    /// come.
    fn note_partial(&mut self, now: Instant) {
        self.partial_since = (!self.unserved && !self.input.is_empty()).then_some(now);
    }

    /// Reads behind an incomplete request. Nothing is served until the whole request is there, so
    /// that a value of a megabyte that comes in small pieces is not parsed once per piece. Room is
    /// made for as much again as has come: a client that announces a megabyte and sends nothing is
    /// charged for nothing.
    fn read_more(&mut self, scratch: &mut Scratch, context: &TurnContext<'_>) -> (u32, Turn) {
        let budget = context.budget();
        let have = self.input.len();
        let more = self.wanted.saturating_sub(have).max(READ_PIECE).min(have.max(READ_PIECE));
        if !self.input.reserve(more, budget) {
            let kept = self.input.as_slice().to_vec();
            self.input.release(budget);
            self.partial_since = None;
            let turn = self.refuse(&kept, &mut scratch.output, context);
            scratch.clear_output();
            return (0, turn);
        }
        match self.socket.receive_behind(self.input.spare(), budget) {
            Ok(0) => (0, Turn::Closed),
            Ok(length) => {
                self.received += length as u64;
                if self.input.len() < self.wanted {
                    self.note_partial(context.began);
                    return (0, Turn::Idle);
                }
                self.serve_left_over(scratch, context)
            }
            Err(Errno::AGAIN | Errno::INTR) => (0, Turn::Idle),
            Err(_) => (0, Turn::Closed),
        }
    }

    /// There is no memory to keep `rest`, an incomplete request to which nothing waits to be
    /// answered before: the session refuses the value that it begins and swallows it as it comes.
    /// Anything else than the head of a value cannot be refused that way and costs the connection.
    fn refuse(&mut self, rest: &[u8], output: &mut Vec<u8>, context: &TurnContext<'_>) -> Turn {
        if self.is_held() || !self.session.refuse_value(rest, output, &context.session) {
            return Turn::Closed;
        }
        let (_, used, turn) = self.serve(rest, output, context, false);
        if used == rest.len() { turn } else { Turn::Closed }
    }

    /// Serves `input` until it is used up, the client stops reading, or the turn is over.
    /// Returns requests served, bytes used, and how the turn ended.
    fn serve(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
        context: &TurnContext<'_>,
        sends_later: bool,
    ) -> (u32, usize, Turn) {
        let (mut requests, mut used) = (0, 0);
        self.wanted = 0;
        loop {
            let slice = SLICE_REQUESTS.min(TURN_REQUESTS - requests);
            let served = self.session.serve(&input[used..], output, &context.session, slice);
            requests += served.requests;
            used += served.consumed;
            let goes_on = matches!(served.next, Next::Write | Next::Yield)
                && requests < TURN_REQUESTS
                && self.written + output.len() < TURN_BYTES_ENOUGH
                && !context.is_over();
            if goes_on && served.next == Next::Yield {
                continue;
            }
            self.unserved = !matches!(served.next, Next::Read { .. });
            if let Next::Read { wanted } = served.next
                && sends_later
                && used == input.len()
                && self.may_wait(output)
            {
                self.wanted = wanted;
                return (requests, used, Turn::Unsent);
            }
            let wrote = self.write(output, context);
            output.clear();
            match (served.next, wrote) {
                (Next::Close, Turn::Held) => {
                    self.closing = true;
                    return (requests, used, Turn::Held);
                }
                (Next::Close, _) | (_, Turn::Closed) => return (requests, used, Turn::Closed),
                (Next::Read { wanted }, turn) => {
                    self.wanted = wanted;
                    return (requests, used, turn);
                }
                (_, Turn::Held) => return (requests, used, Turn::Held),
                _ if goes_on => {}
                _ => {
                    context.session.counters.conn_yields.raise(1);
                    return (requests, used, Turn::Again);
                }
            }
        }
    }

    /// Writes answers; keeps the bytes that the socket does not take, and those beyond a turn's
    /// share.
    fn write(&mut self, answers: &[u8], context: &TurnContext<'_>) -> Turn {
        debug_assert!(!self.is_held(), "what waits goes first");
        let mut rest = answers;
        while !rest.is_empty() {
            let is_over = self.written >= TURN_BYTES;
            if is_over && self.keep(rest, context) {
                return Turn::Held;
            }
            let most = if is_over { rest.len() } else { rest.len().min(TURN_BYTES - self.written) };
            match self.socket.send(&rest[..most], context.budget()) {
                Ok(length) => {
                    self.written += length;
                    rest = &rest[length..];
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.keep(rest, context) => return Turn::Held,
                // With no memory to keep the answer there is no way to answer in order: the client,
                // which is not reading, loses its connection.
                Err(_) => return Turn::Closed,
            }
        }
        Turn::Idle
    }

    /// Whether the answers of a turn may be sent after the turns of others: they are few and all.
    fn may_wait(&self, answers: &[u8]) -> bool {
        self.written == 0 && !answers.is_empty() && answers.len() <= SENT_LATER
    }

    /// Sends the answers of a turn that ended with [`Turn::Unsent`], of which the socket has `taken` the
    /// first bytes already; returns how it ends now.
    pub(crate) fn send(&mut self, answers: &[u8], taken: usize, context: &TurnContext<'_>) -> Turn {
        self.written += taken;
        self.write(&answers[taken..], context)
    }

    /// Keeps `answers` until the socket takes them; `false` if there is no memory for that.
    fn keep(&mut self, answers: &[u8], context: &TurnContext<'_>) -> bool {
        let kept = self.output.append(answers, context.budget());
        if kept {
            self.held_since = Some(context.began);
        }
        kept
    }

    /// Writes the rest of earlier answers, as much as a turn may.
    fn flush(&mut self, context: &TurnContext<'_>) -> Turn {
        while self.is_held() {
            if self.written >= TURN_BYTES {
                return Turn::Held;
            }
            let waiting = self.output.as_slice();
            let most = waiting.len().min(TURN_BYTES - self.written);
            match self.socket.send(&waiting[..most], context.budget()) {
                Ok(length) => {
                    self.written += length;
                    self.output.consume(length, context.budget());
                    self.held_since = Some(context.began);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Turn::Held,
                Err(_) => return Turn::Closed,
            }
        }
        self.held_since = None;
        Turn::Idle
    }
}

impl<T: AsFd> Connection<T> {
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    /// The socket, where it carries the bytes as they are.
    pub(crate) fn plain_socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.socket {
            Socket::Plain(socket) => Some(socket.as_fd()),
            Socket::Tls(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
