//! One thread of the generator: its connections, its event loop.
//!
//! ```text
//!   phase() --> dispatch_due() --> flush_dirty() --> wait() --> read_ready() --+
//!      ^         sending.rs                        waiting.rs    answers.rs    |
//!      +-----------------------------------------------------------------------+
//!   ending.rs: closed, made anew, given up; report.rs: interval tallies out
//! ```

mod answers;
mod ending;
mod report;
mod sending;
mod waiting;

pub(crate) use report::{LaneInterval, Reporter};

use crate::connection::{Address, Backlogged, Connection};
use crate::protocol::{Asks, Protocol};
use crate::source::Source;
use crate::system::{Events, Readiness, Wants, thread_cpu_time};
use crate::tally::Tally;
use crate::{Error, Plan};
use machine::{Duration, Instant};
use rustix::fd::AsFd as _;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

/// The part of a phase that counts.
#[derive(Clone, Copy)]
pub struct Window {
    pub from: Instant,
    pub until: Instant,
}

/// The counts of a phase within its window.
pub struct Measured {
    pub(crate) tally: Tally,
    /// Answers that came within the window, whenever their requests were due.
    pub answered_in_window: u64,
    pub cpu_time: Duration,
}

/// A thread's share of the generator.
pub struct Lane<'a, A: Asks> {
    plan: &'a Plan<A>,
    protocol: A::Protocol,
    number: u32,
    address: Address,
    /// Before the connections that it watches: it goes first.
    readiness: Readiness,
    connections: Vec<Connection<A::Protocol>>,
    /// The waiting requests: a queue for each connection, or one for all of a pool.
    waiting: Vec<VecDeque<Backlogged<<A::Protocol as Protocol>::Request>>>,
    input: Vec<u8>,
    dirty: Vec<usize>,
    under_way: u64,
    backlogged: usize,
    last_heard: Instant,
    /// The last time that this thread did not run although it had something to do: from when, until
    /// when.
    paused: (Instant, Instant),
    /// When to look next for requests that are over their time.
    next_look: Instant,
    source: Source<<A::Protocol as Protocol>::Request>,
    window: Window,
    interval: Box<Tally>,
    measured: Measured,
    pub connections_lost: u32,
    pub connections_renewed: u32,
    /// The last connection that was made anew was refused.
    is_refused: bool,
    pub remarks: Vec<String>,
    last_refusal: Option<String>,
    last_end: String,
}

impl<'a, A: Asks> Lane<'a, A> {
    pub(crate) fn connect(
        plan: &'a Plan<A>,
        protocol: A::Protocol,
        number: u32,
        address: &Address,
    ) -> Result<Self, Error> {
        let mut readiness = Readiness::new()?;
        let own = (plan.connections + u32::from(plan.threads) - 1 - number) / u32::from(plan.threads);
        let mut connections = Vec::with_capacity(own as usize);
        for index in 0..own {
            let connection =
                Connection::open(address, plan.tls.as_ref(), plan.patience).map_err(|cause| {
                    Error::Connect { target: plan.target.clone(), connected: connections.len(), cause }
                })?;
            readiness
                .watch(connection.as_fd(), index as usize, Wants::Answers)
                .map_err(|cause| Error::System { doing: "watching a connection", cause })?;
            connections.push(connection);
        }
        Ok(Self {
            plan,
            protocol,
            number,
            address: address.clone(),
            waiting: (0..if A::Protocol::POOLED { 1 } else { own }).map(|_| VecDeque::new()).collect(),
            connections,
            readiness,
            input: vec![0; READ_BYTES],
            dirty: Vec::new(),
            under_way: 0,
            backlogged: 0,
            last_heard: Instant::ZERO,
            paused: (Instant::ZERO, Instant::ZERO),
            next_look: Instant::ZERO,
            source: Source::Closed { depth: 0, next: 0, step: 1, until: Instant::ZERO },
            window: Window { from: Instant::ZERO, until: Instant::ZERO },
            interval: Box::new(Tally::new()),
            measured: Measured::empty(),
            connections_lost: 0,
            connections_renewed: 0,
            is_refused: false,
            remarks: Vec::new(),
            last_refusal: None,
            last_end: String::new(),
        })
    }

    /// Sends the requests of `source` until all are answered, or the plan's drain time has passed.
    pub(crate) fn phase(
        &mut self,
        source: Source<<A::Protocol as Protocol>::Request>,
        window: Window,
        mut reporter: Option<Reporter>,
        stop: &AtomicBool,
    ) -> Result<Measured, Error> {
        self.source = source;
        self.window = window;
        self.measured = Measured::empty();
        self.interval.clear();
        self.advance();
        let mut now = os::now();
        self.last_heard = now;
        for at in 0..self.connections.len() {
            self.refill(at, now);
        }
        // Here and not in the lane, because they cannot move between threads.
        let mut events = Events::new();
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
            self.expire(now);
            self.dispatch_due(now);
            self.flush_dirty();
            let done = self.under_way == 0 && self.backlogged == 0 && self.source.is_exhausted(now);
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
            let expected = self.wait(now, boundary, &mut events)?;
            self.note_pause(expected.max(now), os::now());
            self.read_ready(&mut events)?;
            now = os::now();
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
        !matches!(self.source, Source::Listed { .. })
    }

    fn count(&mut self, due: Instant, change: impl Fn(&mut crate::Counts)) {
        change(&mut self.interval.counts);
        if due >= self.window.from {
            change(&mut self.measured.tally.counts);
        }
    }

    /// This thread should have gone on at `expected`, and did so at `now`. Answers that arrived
    /// meanwhile are read late.
    fn note_pause(&mut self, expected: Instant, now: Instant) {
        if now.since(expected) >= PAUSE_MIN {
            self.paused = (expected, now);
        }
    }

    /// How much of the last pause lies after `sent`: so much later than it came may an answer have
    /// been read.
    fn pause_since(&self, sent: Instant) -> Duration {
        self.paused.1.since(self.paused.0.max(sent))
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

const READ_BYTES: usize = 64 << 10;
/// A thread that goes on so much later than it meant to was kept from its CPU: no round of the loop
/// takes as long.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// As many remarks as a person reads.
const REMARKS_MAX: usize = 3;
