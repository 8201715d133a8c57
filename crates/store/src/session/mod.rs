//! A client's conversation with the store: bytes in, bytes out.
//!
//! A [`Session`] belongs to one connection and knows nothing of sockets, threads or buffers. The
//! connection's owner hands it received bytes and gets back how many were used and what to do next;
//! unused bytes are the owner's to keep. Because a session is plain data of a few words, a
//! connection moves between workers with its conversation, in the middle of a command if need be.
//!
//! ```text
//!                    +--------------------- newline -------------------+
//!                    v                                                 |
//!   bytes --> [ Command ] -- get, more keys than fit --> [ Keys ] -- key too long --> [ SkipLine ]
//!               |     ^      the turn or the line                                          |
//!     value refused   +-- all bytes gone --[ Swallow ]            newline: to Command <----+
//!               +----------------------------^
//! ```
//!
//! A client that has said `watch` is sent events from then on; its bytes are thrown away.
//!
//! A value is stored only when all of it has arrived, so there is no state for a half-read one: the
//! command line stays unused and is parsed again.
//!
//! Invariants:
//! - The answers depend on the bytes alone, never on how they were cut or how often the session was
//!   interrupted.
//! - Every call makes progress: it uses bytes, or says what it waits for, or is over the high-water
//!   mark.
//! - The output grows past the high-water mark by one answer at the most.

mod anticipation;
mod change;
mod clock;
mod context;
mod counters;
mod dump;
mod introspection;
mod meta;
mod retrieve;
mod served;
mod stats;
mod storing;
mod users;
mod watching;

pub use anticipation::first_key;
pub use context::{Context, Limits};
pub use counters::{Counter, Counters, Totals};
pub use introspection::{Alone, Introspection, ServerFacts};
pub use served::{Ending, Next, Served};
pub use stats::VERSION;
pub use users::{Users, UsersError};

use crate::store::Listener;
use dump::Walk;
use memcache::line::BINARY_MAGIC;
use memcache::request::Refused;
use memcache::{Head, Line, Refusal, Request, Topics, head, reply};
use retrieve::KeyList;

#[derive(Debug, Default)]
pub struct Session {
    state: State,
    /// Whether a byte has been seen yet; the first one tells the protocol.
    begun: bool,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Command,
    /// Before the client has said which user it is, where the store has users.
    Greeting,
    /// Within the keys of a retrieval.
    Keys(KeyList),
    /// Within a list of the items.
    Walk(Walk),
    /// It is sent events, and not answered any more.
    Watching(Listener),
    /// Within a line that was answered with an error.
    SkipLine,
    /// Within a refused value, of which so many bytes are still to come.
    Swallow(usize),
    Ended(Ending),
}

enum Step {
    /// Bytes used; go on.
    Used(usize),
    /// Bytes used; the session stops for now.
    Stop(usize, Next),
}

struct Turn<'c, 'a> {
    out: &'c mut Vec<u8>,
    context: &'c Context<'a>,
    requests: u32,
    max_requests: u32,
    /// A request was served that may take as long as hundreds of others do.
    took_long: bool,
}

impl Turn<'_, '_> {
    /// The obstacle to serving another request in this turn, if there is one.
    #[inline]
    fn obstacle(&self) -> Option<Next> {
        if self.requests >= self.max_requests || self.took_long {
            Some(Next::Yield)
        } else if self.out.len() >= self.context.limits.out_high_water {
            Some(Next::Write)
        } else {
            None
        }
    }
}

impl Session {
    /// A conversation that has not begun.
    pub const fn new() -> Self {
        Self { state: State::Command, begun: false }
    }

    /// Whether it lists the items, which takes many turns.
    pub(crate) const fn is_listing(&self) -> bool {
        matches!(self.state, State::Walk(_))
    }

    /// Its place among those that watch events, if it does.
    pub(crate) const fn listener(&self) -> Option<&Listener> {
        match &self.state {
            State::Watching(listener) => Some(listener),
            _ => None,
        }
    }

    /// Why the session ended, once [`Next::Close`] was returned.
    pub const fn ending(&self) -> Option<Ending> {
        match self.state {
            State::Ended(ending) => Some(ending),
            _ => None,
        }
    }

    /// Serves requests from `input` and appends the answers to `out`. Ends when the input is used
    /// up or ends within a request, when `out` passes the high-water mark, when `max_requests` are
    /// served, or after one that may take long: `append` and `prepend`, which copy the old value,
    /// `stats`, and a part of a dump.
    pub fn serve(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        context: &Context<'_>,
        max_requests: u32,
    ) -> Served {
        let before = out.len();
        let mut turn = Turn { out, context, requests: 0, max_requests, took_long: false };
        let mut consumed = 0;
        let next = loop {
            match self.step(&input[consumed..], &mut turn) {
                Step::Used(bytes) => consumed += bytes,
                Step::Stop(bytes, next) => {
                    consumed += bytes;
                    break next;
                }
            }
        };
        let written = turn.out.len() - before;
        context.counters.bytes_read.raise(consumed as u64);
        context.counters.bytes_written.raise(written as u64);
        Served { consumed, requests: turn.requests, next }
    }

    /// Refuses the value that `input`, left over by the last call, begins: there is no memory to
    /// wait for it. The client is told `SERVER_ERROR out of memory storing object`, and the command
    /// with all of its value is thrown away by the calls of [`Session::serve`] that follow,
    /// beginning with `input` itself. `false`, and nothing done, if `input` does not begin with a
    /// command that a value follows.
    pub fn refuse_value(&mut self, input: &[u8], out: &mut Vec<u8>, context: &Context<'_>) -> bool {
        let (State::Command, Head::Line(line)) = (&self.state, head(input)) else {
            return false;
        };
        let length = match memcache::parse(line) {
            Request::Store(request) => {
                storing::give_up(&request, Refusal::OutOfMemory, out, context);
                request.length
            }
            Request::MetaSet(request) => {
                meta::give_up(&request, Refusal::OutOfMemory, out, context);
                request.length
            }
            _ => return false,
        };
        self.state = State::Swallow(line.length + length + reply::LINE_ENDING.len());
        true
    }

    #[inline]
    fn step(&mut self, input: &[u8], turn: &mut Turn<'_, '_>) -> Step {
        if input.is_empty() && !matches!(self.state, State::Ended(_)) {
            return Step::Stop(0, Next::Read { wanted: 0 });
        }
        match &mut self.state {
            State::Command => self.command(input, turn),
            State::Greeting => self.greeting(input, turn),
            State::Keys(list) => {
                let step = list.serve(input, turn);
                self.leave_list(step)
            }
            State::Walk(walk) => {
                let step = walk.serve(turn);
                if let Step::Used(_) = step {
                    self.state = State::Command;
                }
                step
            }
            State::SkipLine => match memchr::memchr(b'\n', input) {
                Some(end) => {
                    self.state = State::Command;
                    Step::Used(end + 1)
                }
                None => Step::Used(input.len()),
            },
            State::Swallow(left) => {
                let used = input.len().min(*left);
                *left -= used;
                if *left == 0 {
                    self.state = State::Command;
                }
                Step::Used(used)
            }
            State::Watching(_) => Step::Used(input.len()),
            State::Ended(_) => Step::Stop(0, Next::Close),
        }
    }

    #[inline]
    fn command(&mut self, input: &[u8], turn: &mut Turn<'_, '_>) -> Step {
        if let Some(next) = turn.obstacle() {
            return Step::Stop(0, next);
        }
        if !self.begun {
            if input[0] == BINARY_MAGIC {
                return self.binary(input, turn);
            }
            self.begun = true;
            if turn.context.users.is_some() {
                self.state = State::Greeting;
                return Step::Used(0);
            }
        }
        match head(input) {
            Head::Line(line) => self.line(line, input, turn),
            Head::Partial => Step::Stop(0, Next::Read { wanted: 0 }),
            Head::Long => match memcache::request::Retrieve::opening(input) {
                Some((request, used)) => {
                    self.state = State::Keys(KeyList::new(&request));
                    Step::Used(used)
                }
                None => self.end(0, Ending::LineTooLong),
            },
        }
    }

    /// A client of the binary protocol is told so in its own words: the status *unknown command*.
    #[cold]
    fn binary(&mut self, input: &[u8], turn: &mut Turn<'_, '_>) -> Step {
        const HEADER: usize = 24;
        const TOLD: &[u8] = b"the binary protocol is not served: use the text or the meta protocol";
        if input.len() < HEADER {
            return Step::Stop(0, Next::Read { wanted: HEADER });
        }
        turn.out.extend_from_slice(&[0x81, input[1], 0, 0, 0, 0, 0, 0x81, 0, 0, 0, TOLD.len() as u8]);
        // The client's opaque, and no unique number.
        turn.out.extend_from_slice(&input[12..16]);
        turn.out.extend_from_slice(&[0; 8]);
        turn.out.extend_from_slice(TOLD);
        turn.context.counters.binary_refused.raise(1);
        self.end(HEADER, Ending::BinaryProtocol)
    }

    /// A client of a store with users: a `set` whose value is a pair of theirs, `quit`, or an error.
    #[cold]
    fn greeting(&mut self, input: &[u8], turn: &mut Turn<'_, '_>) -> Step {
        let Some(users) = turn.context.users else {
            self.state = State::Command;
            return Step::Used(0);
        };
        if let Some(next) = turn.obstacle() {
            return Step::Stop(0, next);
        }
        let line = match head(input) {
            Head::Line(line) => line,
            Head::Partial => return Step::Stop(0, Next::Read { wanted: 0 }),
            Head::Long => return self.end(0, Ending::LineTooLong),
        };
        let (said, answer) = match memcache::parse(line) {
            Request::Quit => return self.end(line.length, Ending::Quit),
            Request::Http => return self.end(line.length, Ending::Http),
            Request::Store(request) if is_set(&request) && request.length <= LONGEST_PAIR => {
                let whole = line.length + request.length + reply::LINE_ENDING.len();
                let Some(value) = input.get(line.length..whole) else {
                    return Step::Stop(0, Next::Read { wanted: whole });
                };
                let answer = match value.strip_suffix(reply::LINE_ENDING).map(|pair| users.knows(pair)) {
                    Some(Some(true)) => reply::STORED,
                    Some(Some(false)) => b"CLIENT_ERROR authentication failure\r\n",
                    Some(None) => b"CLIENT_ERROR bad authentication token format\r\n",
                    None => b"CLIENT_ERROR bad command line termination\r\n",
                };
                (whole, answer)
            }
            other => {
                let (value, answer) = match other {
                    Request::Store(request) if is_set(&request) => {
                        (request.length + reply::LINE_ENDING.len(), TOO_LONG)
                    }
                    Request::Store(request) => (request.length + reply::LINE_ENDING.len(), UNKNOWN),
                    Request::MetaSet(request) => (request.length + reply::LINE_ENDING.len(), UNKNOWN),
                    Request::Refused(refused) => (refused.value, UNKNOWN),
                    _ => (0, UNKNOWN),
                };
                // A value follows that no user has said: the client is asked again behind it.
                self.begun = value == 0;
                self.swallow(0, value);
                (line.length, answer)
            }
        };
        turn.requests += 1;
        turn.out.extend_from_slice(answer);
        if answer == reply::STORED {
            self.state = State::Command;
            turn.context.counters.auth_cmds.raise(1);
        } else {
            turn.context.counters.auth_errors.raise(1);
        }
        Step::Used(said)
    }

    #[inline]
    fn line(&mut self, line: Line<'_>, input: &[u8], turn: &mut Turn<'_, '_>) -> Step {
        let behind = &input[line.length..];
        let context = turn.context;
        match memcache::parse(line) {
            Request::Retrieve(request) => {
                // The list is served from the input, as one that came in pieces is: a pause looks
                // the same in both.
                let keys_at = line.text.len() - request.keys.len();
                let mut list = KeyList::new(&request);
                match list.serve(&input[keys_at..], turn) {
                    Step::Used(used) => return Step::Used(keys_at + used),
                    Step::Stop(used, next) => {
                        self.state = State::Keys(list);
                        return Step::Stop(keys_at + used, next);
                    }
                }
            }
            Request::Store(request) => {
                return match Self::value(
                    line.length,
                    request.length,
                    storing::item_size(&request),
                    behind,
                    turn,
                ) {
                    Ok(value) => {
                        turn.took_long = request.verb.extends();
                        storing::store(&request, value, turn.out, context);
                        Step::Used(line.length + request.length + reply::LINE_ENDING.len())
                    }
                    Err(Unready::Wait(step)) => step,
                    Err(Unready::Refused(refusal)) => {
                        storing::give_up(&request, refusal, turn.out, context);
                        self.swallow(line.length, request.length + reply::LINE_ENDING.len())
                    }
                };
            }
            Request::MetaSet(request) => {
                return match Self::value(line.length, request.length, meta::item_size(&request), behind, turn)
                {
                    Ok(value) => {
                        turn.took_long = request.verb.extends();
                        meta::set(&request, value, turn.out, context);
                        Step::Used(line.length + request.length + reply::LINE_ENDING.len())
                    }
                    Err(Unready::Wait(step)) => step,
                    Err(Unready::Refused(refusal)) => {
                        meta::give_up(&request, refusal, turn.out, context);
                        self.swallow(line.length, request.length + reply::LINE_ENDING.len())
                    }
                };
            }
            Request::Refused(Refused { refusal, noreply, value }) => {
                turn.requests += 1;
                if !noreply {
                    reply::refusal(turn.out, refusal);
                }
                return self.swallow(line.length, value);
            }
            Request::Quit => return self.end(line.length, Ending::Quit),
            Request::Http => return self.end(line.length, Ending::Http),
            Request::Dump(dump) => match Walk::new(&dump, line.length, context) {
                Ok(walk) => {
                    turn.out.extend_from_slice(reply::OK);
                    self.state = State::Walk(walk);
                    return Step::Used(0);
                }
                Err(refusal) => reply::refusal(turn.out, refusal),
            },
            Request::Watch(topics) => match self.watch(topics, context) {
                Ok(()) => turn.out.extend_from_slice(reply::OK),
                Err(refusal) => reply::refusal(turn.out, refusal),
            },
            request => {
                turn.took_long = matches!(request, Request::Stats { .. });
                serve_line(&request, turn.out, context);
            }
        }
        turn.requests += 1;
        Step::Used(line.length)
    }

    fn watch(&mut self, topics: Option<Topics>, context: &Context<'_>) -> Result<(), Refusal> {
        if !context.limits.watch {
            return Err(Refusal::NoWatch);
        }
        let topics = topics.ok_or(Refusal::UnknownCommand)?;
        self.state = State::Watching(context.store.events().listen(topics)?);
        Ok(())
    }

    /// The value behind a command line of `head` bytes: there, to be waited for, or refused for the
    /// size of the item that it would make.
    #[inline]
    fn value<'i>(
        head: usize,
        length: usize,
        item_size: usize,
        behind: &'i [u8],
        turn: &mut Turn<'_, '_>,
    ) -> Result<Value<'i>, Unready> {
        if item_size > turn.context.limits.max_item_size {
            turn.requests += 1;
            return Err(Unready::Refused(Refusal::TooLarge));
        }
        let whole = length + reply::LINE_ENDING.len();
        let Some(bytes) = behind.get(..whole) else {
            return Err(Unready::Wait(Step::Stop(0, Next::Read { wanted: head + whole })));
        };
        turn.requests += 1;
        let (value, ending) = bytes.split_at(length);
        Ok(if ending == reply::LINE_ENDING { Value::Whole(value) } else { Value::BadEnding })
    }

    /// Goes on behind a value of which nothing is wanted.
    fn swallow(&mut self, head: usize, value: usize) -> Step {
        if value > 0 {
            self.state = State::Swallow(value);
        }
        Step::Used(head)
    }

    /// Goes on behind a list of keys.
    fn leave_list(&mut self, step: Step) -> Step {
        if let (Step::Used(_), State::Keys(list)) = (&step, &self.state) {
            self.state = if list.failed() { State::SkipLine } else { State::Command };
        }
        step
    }

    fn end(&mut self, used: usize, ending: Ending) -> Step {
        self.state = State::Ended(ending);
        Step::Stop(used, Next::Close)
    }
}

fn is_set(request: &memcache::request::Store<'_>) -> bool {
    request.verb == memcache::request::Verb::Set && request.compare.is_none()
}

const UNKNOWN: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
const TOO_LONG: &[u8] = b"CLIENT_ERROR auth token too long\r\n";

/// Bytes of `USER PASSWORD`; memcached takes 16 KiB.
const LONGEST_PAIR: usize = 1024;

enum Value<'i> {
    Whole(&'i [u8]),
    /// Something else stands where its line ending should.
    BadEnding,
}

enum Unready {
    Wait(Step),
    Refused(Refusal),
}

/// Serves a request that is one line and gets one answer.
fn serve_line(request: &Request<'_>, out: &mut Vec<u8>, context: &Context<'_>) {
    match request {
        Request::Delete(request) => change::delete(request, out, context),
        Request::Arithmetic(request) => change::arithmetic(request, out, context),
        Request::Touch(request) => change::touch(request, out, context),
        Request::MetaGet(request) => meta::get(request, out, context),
        Request::MetaDelete(request) => meta::delete(request, out, context),
        Request::MetaArithmetic(request) => meta::arithmetic(request, out, context),
        Request::MetaDebug(request) => meta::debug(request, out, context),
        Request::MetaNoop => out.extend_from_slice(reply::META_NOOP),
        Request::FlushAll { delay, noreply } => change::flush_all(*delay, *noreply, out, context),
        Request::Version => stats::version(out),
        Request::CacheMemlimit { mebibytes, noreply } => {
            change::cache_memlimit(*mebibytes, *noreply, out, context);
        }
        Request::Verbosity { noreply: false } => out.extend_from_slice(reply::OK),
        Request::Stats { group } => stats::stats(*group, out, context),
        Request::Verbosity { noreply: true }
        | Request::Retrieve(_)
        | Request::Store(_)
        | Request::MetaSet(_)
        | Request::Quit
        | Request::Http
        | Request::Dump(_)
        | Request::Watch(_)
        | Request::Refused(_) => {}
    }
}
