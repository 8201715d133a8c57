//! One thread of the generator: its connections, its event loop.
//!
//! The loop composes what is due, writes each connection once, then waits for answers or for the next due
//! time. A timer alone wakes too late to send on time, so the wait ends `spin` early and the rest is polled.
//! The timer is a timerfd in the epoll set, because it takes nanoseconds on every kernel and is exempt from
//! the slack that the kernel adds to a thread's ordinary timeouts.

use crate::connection::{Address, Connection, Held, Pending, is_get};
use crate::source::{Due, Source};
use crate::tally::Tally;
use crate::wire::{Answer, compose_get, compose_set, parse};
use crate::{Error, Plan};
use machine::{Duration, Instant};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use workload::{Request, Requests, fill_value, value_matches};

/// What a lane counted between two boundaries of the run.
pub(crate) struct LaneInterval {
    pub lane: usize,
    pub number: usize,
    pub tally: Box<Tally>,
    pub cpu_time: Duration,
}

/// Where a lane reports its intervals to, and gets their emptied tallies back from: allocating in mid-run
/// would make the next requests late.
pub(crate) struct Reporter {
    pub lane: usize,
    pub reports: Sender<LaneInterval>,
    pub emptied: Receiver<Box<Tally>>,
    /// Ends of the intervals, in order.
    pub boundaries: Vec<Instant>,
    pub sent: usize,
    pub cpu_before: Duration,
}

/// What part of a phase counts.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub from: Instant,
    pub until: Instant,
}

/// What a phase counted within its window.
pub(crate) struct Measured {
    pub tally: Tally,
    /// Answers that came within the window, whenever their requests were due.
    pub answered_in_window: u64,
    pub cpu_time: Duration,
}

/// A thread's share of the generator.
pub(crate) struct Lane<'a> {
    plan: &'a Plan,
    requests: &'a Requests,
    number: u32,
    connections: Vec<Connection>,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the timer will fire.
    armed: Instant,
    input: Vec<u8>,
    key: Vec<u8>,
    dirty: Vec<usize>,
    under_way: u64,
    held: usize,
    last_heard: Instant,
    source: Source,
    window: Window,
    interval: Box<Tally>,
    measured: Measured,
    pub connections_lost: u32,
    pub remarks: Vec<String>,
    last_refusal: Option<String>,
    last_end: String,
}

impl<'a> Lane<'a> {
    /// Makes this lane's connections.
    pub fn connect(
        plan: &'a Plan,
        requests: &'a Requests,
        number: u32,
        address: &Address,
    ) -> Result<Self, Error> {
        let system = |doing| move |cause: Errno| Error::System { doing, cause: cause.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("creating an epoll set"))?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(system("creating a timer"))?;
        epoll::add(
            &epoll,
            &timer,
            epoll::EventData::new_u64(TIMER),
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )
        .map_err(system("watching a timer"))?;
        let own = (plan.connections + u32::from(plan.threads) - 1 - number) / u32::from(plan.threads);
        let mut connections = Vec::with_capacity(own as usize);
        for index in 0..own {
            let connection = Connection::open(address, plan.patience).map_err(|cause| Error::Connect {
                target: plan.target.clone(),
                connected: connections.len(),
                cause,
            })?;
            let data = epoll::EventData::new_u64(u64::from(index));
            epoll::add(&epoll, &connection, data, epoll::EventFlags::IN)
                .map_err(system("watching a connection"))?;
            connections.push(connection);
        }
        Ok(Self {
            plan,
            requests,
            number,
            connections,
            epoll,
            timer,
            armed: Instant::ZERO,
            input: vec![0; READ_BYTES],
            key: Vec::with_capacity(workload::KeySize::MAX),
            dirty: Vec::new(),
            under_way: 0,
            held: 0,
            last_heard: Instant::ZERO,
            source: Source::Closed { depth: 0, next: 0, step: 1, until: Instant::ZERO },
            window: Window { from: Instant::ZERO, until: Instant::ZERO },
            interval: Box::new(Tally::new()),
            measured: Measured::empty(),
            connections_lost: 0,
            remarks: Vec::new(),
            last_refusal: None,
            last_end: String::new(),
        })
    }

    /// Sends what `source` says until it is used up and answered, or the plan's drain time has passed.
    pub fn phase(
        &mut self,
        source: Source,
        window: Window,
        mut reporter: Option<Reporter>,
        stop: &AtomicBool,
    ) -> Result<Measured, Error> {
        self.source = source;
        self.window = window;
        self.measured = Measured::empty();
        self.interval.clear();
        self.advance();
        let mut now = host::now();
        self.last_heard = now;
        for at in 0..self.connections.len() {
            self.refill(at, now);
        }
        // Here and not in the lane, because rustix's events cannot move between threads.
        let mut events = Vec::with_capacity(EVENTS_PER_WAIT);
        let (mut cpu_from, mut cpu_until) = (None, None);
        loop {
            if let Some(reporter) = &mut reporter {
                while reporter.due().is_some_and(|boundary| now >= boundary) {
                    reporter.report(&mut self.interval);
                }
            }
            if now >= window.from && cpu_from.is_none() {
                cpu_from = Some(thread_cpu_time());
            }
            if now >= window.until && cpu_until.is_none() {
                cpu_until = Some(thread_cpu_time());
            }
            self.dispatch_due(now);
            self.flush_dirty();
            let done = self.under_way == 0 && self.held == 0 && self.source.is_exhausted(now);
            if (done && now >= window.until) || stop.load(Ordering::Relaxed) {
                break;
            }
            let drained_at = window.until + self.plan.drain;
            if self.source.is_exhausted(now) && self.is_timed() && now >= drained_at {
                break;
            }
            let silence = now.since(self.last_heard);
            if self.under_way > 0 && silence > self.plan.patience {
                let target = self.plan.target.clone();
                return Err(Error::Stalled { target, silence, waiting: self.under_way });
            }
            let boundary = reporter.as_ref().and_then(Reporter::due);
            self.wait(now, boundary, &mut events)?;
            self.read_ready(&mut events)?;
            now = host::now();
        }
        self.write_off(now);
        if let Some(mut reporter) = reporter {
            while reporter.sent <= reporter.boundaries.len() {
                reporter.report(&mut self.interval);
            }
        }
        let mut measured = std::mem::replace(&mut self.measured, Measured::empty());
        if let (Some(from), Some(until)) = (cpu_from, cpu_until) {
            measured.cpu_time = until - from;
        }
        Ok(measured)
    }

    /// The server's last error answer, for a message.
    pub fn last_refusal(&self) -> Option<&str> {
        self.last_refusal.as_deref()
    }

    /// True for phases that end by the clock.
    fn is_timed(&self) -> bool {
        !matches!(self.source, Source::Keys { .. })
    }

    fn advance(&mut self) {
        let lanes = u32::from(self.plan.threads);
        self.source.advance(self.requests, self.plan.connections, self.number, lanes);
    }

    /// Composes every scheduled request that is due.
    fn dispatch_due(&mut self, now: Instant) {
        for _ in 0..DISPATCH_BATCH {
            let Source::Open { next: Some(due), .. } = self.source else { return };
            if due.at > now {
                return;
            }
            self.dispatch(due, now);
            self.advance();
        }
    }

    fn dispatch(&mut self, due: Due, now: Instant) {
        let Due { at: due_at, index, connection: at } = due;
        let request = self.requests.request(index);
        let connection = &mut self.connections[at];
        if !connection.open {
            self.count(due_at, |counts| counts.lost += 1);
        } else if connection.held.is_empty() && has_room(connection, self.plan) {
            self.compose(at, due_at, request, false, now);
        } else if self.held < HELD_MAX {
            connection.held.push_back(Held { due: due_at, request });
            self.held += 1;
            self.count(due_at, |counts| counts.held += 1);
            self.record_lateness(due_at, now);
        } else {
            self.count(due_at, |counts| counts.unsent += 1);
        }
    }

    fn compose(&mut self, at: usize, due: Instant, request: Request, held: bool, now: Instant) {
        let connection = &mut self.connections[at];
        self.key.clear();
        self.requests.write_key(request.key, &mut self.key);
        if is_get(&request) {
            compose_get(&mut connection.out, &self.key);
        } else {
            let len = self.requests.value_len(request.key);
            compose_set(&mut connection.out, &self.key, len, |value| fill_value(&self.key, value));
        }
        connection.pending.push_back(Pending { due, request, held });
        connection.unsent += 1;
        if self.under_way == 0 {
            self.last_heard = now;
        }
        self.under_way += 1;
        if !connection.dirty && !connection.blocked {
            connection.dirty = true;
            self.dirty.push(at);
        }
    }

    /// Brings a connection back to what it should have under way: the depth of a closed loop, or the requests
    /// that were held.
    fn refill(&mut self, at: usize, now: Instant) {
        if let Some(depth) = self.source.depth() {
            while self.connections[at].open
                && self.connections[at].pending.len() < depth
                && self.connections[at].backlog_bytes() < OUT_BYTES_MAX
            {
                let Some(request) = self.source.follow(self.requests, now) else { return };
                self.compose(at, now, request, false, now);
            }
            return;
        }
        while has_room(&self.connections[at], self.plan) {
            let Some(held) = self.connections[at].held.pop_front() else { return };
            self.held -= 1;
            self.compose(at, held.due, held.request, true, now);
        }
    }

    fn flush_dirty(&mut self) {
        while let Some(at) = self.dirty.pop() {
            self.connections[at].dirty = false;
            self.flush(at);
        }
    }

    /// One write of everything composed for a connection.
    fn flush(&mut self, at: usize) {
        if !self.connections[at].open {
            return;
        }
        let now = host::now();
        self.note_sent(at, now);
        let connection = &mut self.connections[at];
        let result = send(&*connection, &connection.out[connection.written..], SendFlags::NOSIGNAL);
        match result {
            Ok(count) => connection.written += count,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(cause) => return self.close(at, &format!("writing failed: {}", std::io::Error::from(cause))),
        }
        if connection.backlog_bytes() == 0 {
            connection.out.clear();
            connection.written = 0;
        }
        let blocked = connection.backlog_bytes() > 0;
        if blocked != connection.blocked {
            connection.blocked = blocked;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, blocked);
            // The socket is in the set, so this cannot fail.
            let _ = epoll::modify(&self.epoll, &*connection, epoll::EventData::new_u64(at as u64), flags);
        }
    }

    /// Accounts for the requests that the coming write carries.
    fn note_sent(&mut self, at: usize, now: Instant) {
        let closed_loop = self.source.depth().is_some();
        let unsent = std::mem::take(&mut self.connections[at].unsent);
        let first = self.connections[at].pending.len() - unsent;
        for place in first..first + unsent {
            let pending = &mut self.connections[at].pending[place];
            if closed_loop {
                pending.due = now;
            }
            let Pending { due, held, .. } = *pending;
            self.count(due, |counts| counts.sent += 1);
            if !closed_loop && !held {
                self.record_lateness(due, now);
            }
        }
    }

    /// Waits for answers, or until something is to be done.
    fn wait(
        &mut self,
        now: Instant,
        boundary: Option<Instant>,
        events: &mut Vec<epoll::Event>,
    ) -> Result<(), Error> {
        let mut wake = now + STOP_CHECK;
        // Rounded, so that a busy loop sets its timer once in a while and not every time.
        wake = Instant::from_nanos(wake.as_nanos() / STOP_CHECK.as_nanos() * STOP_CHECK.as_nanos());
        if now < self.window.until {
            wake = wake.min(self.window.until);
        }
        if let Some(boundary) = boundary {
            wake = wake.min(boundary);
        }
        let mut polling = false;
        if let Source::Open { next: Some(due), .. } = self.source {
            let early = due.at - self.plan.spin;
            polling = early <= now;
            wake = wake.min(early);
        }
        if polling && self.under_way == 0 {
            // Nothing can come in; a system call would only delay the next request.
            std::hint::spin_loop();
            return Ok(());
        }
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = if polling || wake <= now {
            Some(&none)
        } else {
            if self.armed != wake {
                self.arm(wake)?;
            }
            None
        };
        match epoll::wait(&self.epoll, spare_capacity(events), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(cause) => Err(Error::System { doing: "waiting for answers", cause: cause.into() }),
        }
    }

    fn arm(&mut self, wake: Instant) -> Result<(), Error> {
        let nanos = wake.as_nanos();
        let it_value = Timespec { tv_sec: (nanos / NANOS) as i64, tv_nsec: (nanos % NANOS) as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        self.armed = wake;
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)
            .map(drop)
            .map_err(|cause| Error::System { doing: "setting a timer", cause: cause.into() })
    }

    fn read_ready(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Error> {
        for epoll::Event { flags, data } in events.drain(..) {
            if data.u64() == TIMER {
                continue;
            }
            let at = data.u64() as usize;
            if flags.contains(epoll::EventFlags::OUT) && self.connections[at].open {
                self.flush(at);
                let now = host::now();
                self.refill(at, now);
            }
            if self.connections[at].open
                && flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR)
            {
                self.read(at);
            }
        }
        if self.connections_lost as usize == self.connections.len() {
            return Err(Error::Closed {
                target: self.plan.target.clone(),
                answered: self.measured.tally.counts.answered,
                reason: self.last_end.clone(),
            });
        }
        Ok(())
    }

    fn read(&mut self, at: usize) {
        let mut input = std::mem::take(&mut self.input);
        loop {
            let count = match recv(&self.connections[at], &mut input[..], RecvFlags::empty()) {
                Ok((_, 0)) => {
                    self.close(at, "the server closed it");
                    break;
                }
                Ok((_, count)) => count,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(cause) => {
                    self.close(at, &format!("reading failed: {}", std::io::Error::from(cause)));
                    break;
                }
            };
            let now = host::now();
            self.last_heard = now;
            self.take_bytes(at, &input[..count], now);
            if count < input.len() || !self.connections[at].open {
                break;
            }
        }
        self.input = input;
    }

    fn take_bytes(&mut self, at: usize, bytes: &[u8], now: Instant) {
        let mut partial = std::mem::take(&mut self.connections[at].partial);
        if partial.is_empty() {
            let used = self.take_answers(at, bytes, now);
            partial.extend_from_slice(&bytes[used..]);
        } else {
            partial.extend_from_slice(bytes);
            let used = self.take_answers(at, &partial, now);
            partial.drain(..used);
        }
        if self.connections[at].open {
            self.connections[at].partial = partial;
            self.refill(at, now);
        }
    }

    /// Takes the whole answers at the beginning of `input`; says how many bytes they were.
    fn take_answers(&mut self, at: usize, input: &[u8], now: Instant) -> usize {
        let mut used = 0;
        while used < input.len() {
            let (answer, len) = match parse(&input[used..]) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(_) => {
                    let words =
                        String::from_utf8_lossy(&input[used..input.len().min(used + 60)]).into_owned();
                    self.close(at, &format!("it answered {words:?}, which is not memcached's protocol"));
                    break;
                }
            };
            let Some(pending) = self.connections[at].pending.pop_front() else {
                self.close(at, "it answered more than was asked");
                break;
            };
            used += len;
            self.under_way -= 1;
            self.take_answer(at, pending, &answer, now);
        }
        used
    }

    fn take_answer(&mut self, at: usize, pending: Pending, answer: &Answer<'_>, now: Instant) {
        let Pending { due, request, .. } = pending;
        match (answer, is_get(&request)) {
            (Answer::Value { key, value }, true) => {
                self.count(due, |counts| counts.hits += 1);
                if self.plan.verify {
                    self.verify(due, &request, key, value);
                }
            }
            (Answer::Miss, true) => self.count(due, |counts| counts.misses += 1),
            (Answer::Stored, false) => self.count(due, |counts| counts.stored += 1),
            (Answer::Refused(words), _) => {
                self.last_refusal = Some(String::from_utf8_lossy(words).into_owned());
                self.count(due, |counts| counts.refused += 1);
            }
            _ => {
                self.count(due, |counts| counts.lost += 1);
                return self.close(at, "it answered a read as a write, or a write as a read");
            }
        }
        self.count(due, |counts| counts.answered += 1);
        let latency = now.since(due).as_nanos();
        self.interval.latency.saturating_record(latency);
        if due >= self.window.from {
            self.measured.tally.latency.saturating_record(latency);
        }
        if now >= self.window.from && now < self.window.until {
            self.measured.answered_in_window += 1;
        }
    }

    fn verify(&mut self, due: Instant, request: &Request, key: &[u8], value: &[u8]) {
        self.key.clear();
        self.requests.write_key(request.key, &mut self.key);
        let wrong = if key != self.key {
            format!("asked for `{}`, it answered `{}`", self.key.escape_ascii(), key.escape_ascii())
        } else if !value_matches(key, value) {
            format!("the value of `{}` ({} bytes) is not the one stored", key.escape_ascii(), value.len())
        } else {
            return;
        };
        self.count(due, |counts| counts.corrupt += 1);
        if self.remarks.len() < REMARKS_MAX {
            self.remarks.push(wrong);
        }
    }

    fn close(&mut self, at: usize, reason: &str) {
        let connection = &mut self.connections[at];
        if !connection.open {
            return;
        }
        connection.open = false;
        connection.partial = Vec::new();
        connection.out = Vec::new();
        connection.written = 0;
        connection.unsent = 0;
        let _ = epoll::delete(&self.epoll, &*connection);
        let pending = std::mem::take(&mut connection.pending);
        let held = std::mem::take(&mut connection.held);
        self.under_way -= pending.len() as u64;
        self.held -= held.len();
        for due in pending.iter().map(|pending| pending.due).chain(held.iter().map(|held| held.due)) {
            self.count(due, |counts| counts.lost += 1);
        }
        self.connections_lost += 1;
        reason.clone_into(&mut self.last_end);
        if self.remarks.len() < REMARKS_MAX {
            self.remarks.push(format!("a connection ended early: {reason}"));
        }
    }

    /// Counts what is still under way, at the age that it has reached.
    fn write_off(&mut self, now: Instant) {
        for at in 0..self.connections.len() {
            let pending = std::mem::take(&mut self.connections[at].pending);
            let held = std::mem::take(&mut self.connections[at].held);
            for due in pending.iter().map(|pending| pending.due).chain(held.iter().map(|held| held.due)) {
                self.count(due, |counts| counts.unanswered += 1);
                let age = now.since(due).as_nanos();
                self.interval.latency.saturating_record(age);
                if due >= self.window.from {
                    self.measured.tally.latency.saturating_record(age);
                }
            }
        }
        self.under_way = 0;
        self.held = 0;
    }

    fn count(&mut self, due: Instant, change: impl Fn(&mut crate::Counts)) {
        change(&mut self.interval.counts);
        if due >= self.window.from {
            change(&mut self.measured.tally.counts);
        }
    }

    fn record_lateness(&mut self, due: Instant, now: Instant) {
        let late = now.since(due).as_nanos();
        self.interval.lateness.saturating_record(late);
        if due >= self.window.from {
            self.measured.tally.lateness.saturating_record(late);
        }
    }
}

impl Measured {
    fn empty() -> Self {
        Self { tally: Tally::new(), answered_in_window: 0, cpu_time: Duration::ZERO }
    }
}

impl Reporter {
    /// When the next interval ends.
    fn due(&self) -> Option<Instant> {
        self.boundaries.get(self.sent).copied()
    }

    fn report(&mut self, interval: &mut Box<Tally>) {
        let empty = self.emptied.try_recv().unwrap_or_else(|_| Box::new(Tally::new()));
        let cpu = thread_cpu_time();
        let report = LaneInterval {
            lane: self.lane,
            number: self.sent,
            tally: std::mem::replace(interval, empty),
            cpu_time: cpu - self.cpu_before,
        };
        self.cpu_before = cpu;
        self.sent += 1;
        // Nobody listens any more when the run was given up.
        let _ = self.reports.send(report);
    }
}

/// True if a request that is due may be sent now.
fn has_room(connection: &Connection, plan: &Plan) -> bool {
    connection.open
        && !connection.blocked
        && connection.pending.len() < plan.outstanding_max as usize
        && connection.backlog_bytes() < OUT_BYTES_MAX
}

/// CPU time that the calling thread has used.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::from_nanos(time.tv_sec as u64 * NANOS + time.tv_nsec as u64)
}

const NANOS: u64 = 1_000_000_000;
/// The timer's mark in the epoll set; connections are numbered from 0.
const TIMER: u64 = u64::MAX;
/// Answers are looked for at least this often, however many requests are due: the sockets' buffers must not fill.
const DISPATCH_BATCH: usize = 256;
/// Connections taken from one wait.
const EVENTS_PER_WAIT: usize = 256;
/// Bytes taken by one read.
const READ_BYTES: usize = 64 << 10;
/// Bytes composed for one connection beyond which further requests wait.
const OUT_BYTES_MAX: usize = 256 << 10;
/// Held requests of one lane (24 bytes each) beyond which further ones are not sent at all.
const HELD_MAX: usize = 1 << 20;
/// How soon a lane notices that the run was stopped.
const STOP_CHECK: Duration = Duration::from_millis(100);
/// As many remarks as a person reads.
const REMARKS_MAX: usize = 3;
