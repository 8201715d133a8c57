//! A worker: one thread, pinned to one CPU, that serves the connections it owns at the moment.
//!
//! ```text
//!            mailbox                 epoll                    ready
//!   director ------->  adopt/order   ------> take a turn  ------------> take another turn
//!   workers                |                     |
//!                          v                     v
//!                    policy::Worker  <---- requests served ----> verdict: stay, or go to another worker
//! ```
//!
//! Invariants:
//! - A connection belongs to exactly one worker, or is in exactly one mailbox. It moves between
//!   turns only.
//! - Nothing on the request path takes a lock but the store's own, for one key at a time.
//! - A worker without connections blocks without a time-out: it wakes for mail and for nothing
//!   else.
//! - The kernel is asked once per batch: a short read is not followed by another, and answers to
//!   all requests that one read brought leave in one write. Connections that are ready together share
//!   one call for their reads, and one for their answers.
//! - A connection whose answers wait gets no turn before they are sent.
//!
//! The *tail* that a worker reports is an upper bound on the time from "request in the socket" to
//! "answer written". It counts from the return of `epoll_wait` if that call slept, and else from
//! the return of the call before it, since the request may have arrived any time in between.

use crate::connection::{Connection, Scratch, Turn};
use crate::holding::{Holding, Stage};
use crate::mailbox::Mailbox;
use crate::recording::RecordedWorker;
use crate::reports::Reports;
use crate::session::Ending;
use crate::shared::{Mail, Notice, Published, Shared, Transfer};
use crate::slots::Slots;
use machine::{Duration, Instant, WorkerId};
use policy::peafowl::{Answer, ConnectionLoad, Order, Verdict};
use policy::{Moved, Why};
use ring::Ring;
use rustix::event::epoll;
use rustix::event::{Timespec, epoll::EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stealing::Lending;
use together::Unsent;

mod ring;
mod stealing;
mod together;

/// Events taken from the kernel at once.
const EVENTS: usize = 256;

/// Connections read and served before the first of them is answered. Enough to overlap their waits
/// for memory, and for clients that ask again to find the worker still busy: requests then come in
/// larger batches, which cost less. Few enough that the first hardly waits for the last.
const TOGETHER: usize = 16;

/// Marks the mailbox's bell among the epoll events; no slot number is that large.
const BELL: u64 = u64::MAX;

/// A wait longer than this slept; a shorter one found its events waiting.
const SLEPT: Duration = Duration::from_micros(5);

/// How often clients that do not go on are looked for, while there are any.
const STALL_CHECK: Duration = Duration::from_secs(1);

/// How often events go to the clients that watch them.
const SEND_EVENTS: Duration = Duration::from_millis(10);

/// While there are no events the pause doubles up to this, so that a client that watches an idle store
/// costs five wake-ups a second.
const SEND_EVENTS_MOST: Duration = Duration::from_millis(200);

/// A client has so long to go on, or the stall limit where that is less, even if connections have
/// no memory left: a packet that was lost thrice still comes in this time.
const LEAST_PATIENCE: Duration = Duration::from_secs(5);

/// How long a connection that goes on sending is served after the server was told to stop.
const DRAIN_MOST: Duration = Duration::from_secs(1);

pub(crate) struct Worker {
    id: WorkerId,
    shared: Arc<Shared>,
    guidance_seen: u64,
    epoll: OwnedFd,
    connections: Slots,
    policy: RecordedWorker,
    /// Slots of connections with input that the kernel knows nothing of.
    ready: Vec<u32>,
    held: u32,
    /// Connections with a stall to watch for: held back, or within a request of which no more has
    /// come.
    watched: u32,
    next_stall_check: Instant,
    scratch: Scratch,
    /// Slots whose requests were read, and where to; empty between turns.
    received: Vec<(u32, Range<usize>)>,
    /// Turns whose answers are not sent yet; empty between turns.
    unsent: Vec<Unsent>,
    /// Carries the bytes of connections that are served together, where the kernel lets it.
    ring: Option<Ring>,
    /// Buffers of answers that were sent, emptied for the next ones.
    spare: Vec<Vec<u8>>,
    reports: Reports,
    /// Until when this thread's time has been charged to a turn, or was spent waiting.
    charged_until: Instant,
    /// Slots whose first request after a send-home transfer has not been served yet.
    arriving: Vec<u32>,
    /// Where requests are served in bursts.
    holding: Option<Holding>,
    /// Slots of clients that watch events.
    watchers: Vec<u32>,
    next_events: Instant,
    events_pause: Duration,
    /// Where idle workers help busy ones.
    lending: Option<Lending>,
    draining: bool,
}

impl Worker {
    pub(crate) fn new(
        id: WorkerId,
        shared: Arc<Shared>,
        policy: RecordedWorker,
        stage: Option<&Stage>,
        busy_poll: Option<Duration>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if let Some(busy_poll) = busy_poll {
            linux::prefer_busy_poll(&epoll, busy_poll)?;
        }
        let bell = shared.port(id).mailbox.bell();
        epoll::add(&epoll, bell, epoll::EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)?;
        let holding = stage.map(|stage| Holding::new(stage, bell)).transpose()?;
        let now = shared.now();
        Ok(Self {
            id,
            epoll,
            connections: Slots::default(),
            policy,
            ready: Vec::new(),
            held: 0,
            watched: 0,
            next_stall_check: now,
            scratch: Scratch::new(),
            received: Vec::with_capacity(TOGETHER),
            unsent: Vec::with_capacity(TOGETHER),
            ring: None,
            spare: Vec::new(),
            reports: Reports::new(now),
            charged_until: now,
            arriving: Vec::new(),
            holding,
            watchers: Vec::new(),
            next_events: now,
            events_pause: SEND_EVENTS,
            lending: shared.stealing().map(Lending::new),
            draining: false,
            guidance_seen: 0,
            shared,
        })
    }

    /// Serves until told to stop.
    pub(crate) fn run(mut self) -> io::Result<()> {
        // It belongs to the thread that makes it. Without one the sockets are asked one by one.
        self.ring = Ring::new(TOGETHER as u32).ok();
        let shared = Arc::clone(&self.shared);
        shared.port(self.id).has_ring.store(self.ring.is_some(), Ordering::Relaxed);
        let mailbox = &shared.port(self.id).mailbox;
        let rest = shared.rest(self.id);
        let mut letters = Vec::new();
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        let mut asked = shared.now();
        let mut returned = asked;
        loop {
            self.open_letters(mailbox, &mut letters);
            if self.draining && self.connections.is_empty() {
                self.report(shared.now());
                return Ok(());
            }
            self.serve_ready();
            if events.iter().all(|event| event.data.u64() == BELL) {
                self.steal();
            }
            let now = self.run_timers();
            // Busy is all time outside the wait.
            self.reports.busy += now.since(returned);
            let may_sleep = mailbox.fall_asleep() && !self.may_steal();
            let timeout = self.timeout(now, may_sleep);
            asked = now.max(asked);
            rest.begin(now);
            events.clear();
            let waited =
                epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
            mailbox.wake_up();
            match waited {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let previous = returned;
            returned = shared.now();
            rest.end(returned, SLEPT);
            let mut ready_since = if returned.since(asked) > SLEPT { returned } else { previous };
            if let Some(held_since) = self.hold_back(&mut events, mailbox, &mut letters, returned)? {
                ready_since = held_since;
                // Time on the stage is no work.
                returned = shared.now();
            }
            self.charged_until = returned;
            if self.has_lent() {
                // One that came back while this worker slept may have an event.
                self.open_letters(mailbox, &mut letters);
            }
            if self.holding.is_none() {
                self.note_backlog(&events, returned);
                self.offer(&mut events, ready_since);
            }
            let mut last = returned;
            for some in events.chunks(TOGETHER) {
                last = self.take_turns(some, last, ready_since);
                // A connection that was sent here waits for a few turns at the most, not for all of
                // them. Its slot may be one of a connection that has just gone, and then an event
                // of that one finds it: a turn for nothing.
                self.open_letters(mailbox, &mut letters);
            }
            self.serve_offered(mailbox, &mut letters, last);
        }
    }

    /// With a stage: requests that have come wait until their burst begins, and `events` become
    /// those of all that have come by then. Says since when the first has waited. A burst goes on
    /// until nothing has come.
    fn hold_back(
        &mut self,
        events: &mut Vec<epoll::Event>,
        mailbox: &Mailbox<Mail>,
        letters: &mut Vec<Mail>,
        now: Instant,
    ) -> io::Result<Option<Instant>> {
        let Some(mut holding) = self.holding.take() else { return Ok(None) };
        let has_come = events.iter().any(|event| event.data.u64() != BELL);
        if !has_come {
            holding.end(now);
        }
        if !has_come || holding.is_serving() {
            self.holding = Some(holding);
            return Ok(None);
        }
        holding.begin(now);
        while let Some(due) = holding.due(self.shared.now()) {
            if self.draining {
                holding.let_go(self.shared.now());
                continue;
            }
            let now = self.run_timers();
            let next = self.policy.poll_timeout().map_or(due, |timer| due.min(timer));
            let may_sleep = mailbox.fall_asleep();
            let waited = if may_sleep { holding.wait(next.since(now)) } else { Ok(()) };
            mailbox.wake_up();
            waited?;
            self.open_letters(mailbox, letters);
        }
        self.holding = Some(holding);
        events.clear();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&at_once)) {
            Ok(_) | Err(Errno::INTR) => Ok(Some(now)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Tells the policy how many connections wait, if that is of interest to it.
    fn note_backlog(&mut self, events: &[epoll::Event], now: Instant) {
        // Of a full list all that is known is that more may wait.
        let waiting = if events.len() < EVENTS { events.len() } else { self.connections.len() };
        if self.policy.watches_backlog(waiting as u32) {
            self.policy.handle_backlog(now, waiting as u32);
        }
    }

    /// This thread's time since it was last charged to a turn, or waited.
    fn charge(&mut self, now: Instant) -> Duration {
        now.since(std::mem::replace(&mut self.charged_until, now))
    }

    /// While the server stops: connections whose answers were taken are served to their end.
    fn finish_written(&mut self, events: &[epoll::Event]) {
        for event in events.iter().filter(|event| event.data.u64() != BELL) {
            let slot = event.data.u64() as u32;
            if self.connections.get(slot as usize).is_some_and(|connection| !connection.is_held()) {
                self.drain_connection(slot);
            }
        }
    }

    /// Gives one connection its turn and follows the policy's answer. Returns the time afterwards.
    fn take_turn(&mut self, slot: u32, now: Instant, ready_since: Instant) -> Instant {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return now };
        let was_held = connection.is_held();
        let context = self.shared.turn_context(self.id, connection.id, now);
        let (requests, turn) = connection.take_turn(&mut self.scratch, &context);
        self.after_turn(slot, requests, turn, was_held, ready_since)
    }

    fn serve_ready(&mut self) {
        for slot in std::mem::take(&mut self.ready) {
            let Some(connection) = self.connections.get_mut(slot as usize) else { continue };
            if connection.is_held() {
                continue;
            }
            let now = self.shared.now();
            let context = self.shared.turn_context(self.id, connection.id, now);
            let (requests, turn) = if connection.has_unserved() {
                connection.serve_left_over(&mut self.scratch, &context)
            } else if connection.look_at_rest(now) {
                connection.take_turn(&mut self.scratch, &context)
            } else {
                continue;
            };
            self.after_turn(slot, requests, turn, false, now);
        }
    }

    fn after_turn(
        &mut self,
        slot: u32,
        requests: u32,
        turn: Turn,
        was_held: bool,
        ready_since: Instant,
    ) -> Instant {
        let now = self.shared.now();
        let busy = self.charge(now);
        self.settle(slot, (requests, turn), was_held, ready_since, (now, busy));
        now
    }

    /// Follows the end of a turn, on which the worker spent so much time until now.
    fn settle(
        &mut self,
        slot: u32,
        (requests, turn): (u32, Turn),
        was_held: bool,
        ready_since: Instant,
        (now, busy): (Instant, Duration),
    ) {
        let has_more = self.connections[slot as usize].look_at_rest(now);
        self.watch(slot);
        match turn {
            Turn::Closed => {
                self.close(slot, (was_held, false), now);
                return;
            }
            Turn::Held if !was_held => self.hold(slot, true),
            Turn::Idle | Turn::Again if was_held => self.hold(slot, false),
            _ => {}
        }
        if turn == Turn::Again || turn == Turn::Idle && has_more {
            self.ready.push(slot);
        }
        if requests == 0 {
            return;
        }
        self.note_turn(busy);
        self.note_watcher(slot);
        if !self.arriving.is_empty()
            && let Some(at) = self.arriving.iter().position(|&arriving| arriving == slot)
        {
            self.arriving.swap_remove(at);
            self.shared.first_served(self.id, now);
        }
        self.reports.served(requests, now.since(ready_since));
        if let Some(tally) = &self.shared.port(self.id).tally {
            tally.count(requests, busy, now.since(ready_since));
        }
        let verdict = self.policy.handle_served(now, slot, requests, busy);
        // While the server stops, the other worker may have gone already.
        if let Verdict::Send { target, why } = verdict
            && !self.draining
        {
            self.send_away(slot, target, why, now);
        }
    }

    fn open_letters(&mut self, mailbox: &Mailbox<Mail>, letters: &mut Vec<Mail>) {
        // Before received bytes: it may be a connection, whose limit depends on the others'.
        if let Some(guidance) = self.shared.new_guidance(&mut self.guidance_seen) {
            self.policy.handle_order(self.shared.now(), Order::Guidance(guidance));
        }
        mailbox.collect(letters);
        for letter in letters.drain(..) {
            self.open_letter(letter);
        }
    }

    fn open_letter(&mut self, letter: Mail) {
        match letter {
            Mail::Adopt { connection, load, transfer } => self.adopt(connection, load, transfer),
            Mail::Order(order) => {
                let now = self.shared.now();
                if self.policy.handle_order(now, order) == Answer::Refused {
                    self.shared.notify(Notice::Refused { at: now, worker: self.id });
                }
                self.transfer_due(now);
            }
            Mail::Report => self.report(self.shared.now()),
            Mail::Drain => self.drain(),
            Mail::Returned(returned) => self.take_in(returned),
        }
    }

    fn adopt(&mut self, connection: Box<Connection>, load: ConnectionLoad, transfer: Option<Transfer>) {
        let (id, home) = (connection.id, connection.home);
        let slot = self.connections.insert(connection) as u32;
        let interest = interest_of(&self.connections[slot as usize]);
        let data = epoll::EventData::new_u64(u64::from(slot));
        if epoll::add(&self.epoll, self.connections[slot as usize].socket(), data, interest).is_err() {
            // Out of kernel memory or watches: the client is told by the closed socket.
            let connection = self.connections.remove(slot as usize);
            self.discard(*connection, "error");
            self.left_with_none(self.shared.now());
            return;
        }
        self.held += u32::from(self.connections[slot as usize].is_held());
        let now = self.shared.now();
        if self.connections[slot as usize].look_at_rest(now) {
            self.ready.push(slot);
        }
        self.watch(slot);
        self.note_watcher(slot);
        self.policy.handle_arrival(now, slot, id, home, load);
        if let Some(transfer) = transfer {
            self.arrived(slot, &transfer);
        }
        if self.draining {
            self.drain();
        }
    }

    fn arrived(&mut self, slot: u32, transfer: &Transfer) {
        if transfer.why != Why::Ordered {
            self.arriving.push(slot);
        }
        // A request may have come while the worker did not watch: read at once instead of asking
        // the kernel.
        let read_at = self.shared.now();
        self.take_turn(slot, read_at, transfer.left_at);
        self.shared.transferred(self.id, transfer, read_at);
        let Transfer { source, why, rate: load, .. } = *transfer;
        self.shared
            .notify(Notice::Moved { at: read_at, moved: Moved { source, target: self.id, why, load } });
    }

    /// Moves a connection to another worker, with all that belongs to it.
    fn send_away(&mut self, slot: u32, target: WorkerId, why: Why, now: Instant) {
        if target == self.id || target.index() >= self.shared.worker_count() {
            return;
        }
        let left_at = self.shared.now();
        let departure = self.policy.handle_departure(now, slot, true);
        let mut connection = self.connections.remove(slot as usize);
        self.watched -= u32::from(std::mem::take(&mut connection.is_watched));
        connection.home = departure.home;
        let _ = epoll::delete(&self.epoll, connection.socket());
        self.held -= u32::from(connection.is_held());
        self.arriving.retain(|&arriving| arriving != slot);
        self.watchers.retain(|&watcher| watcher != slot);
        let transfer = Transfer { source: self.id, why, left_at, rate: departure.rate, to_sleeper: false };
        self.shared.hand_over(target, connection, departure.load, transfer);
        self.left_with_none(now);
    }

    /// Sends away the connections for which an order has waited in vain: a connection that asks
    /// nothing is never "just served".
    fn transfer_due(&mut self, now: Instant) {
        // One of those that are lent may be due; the last that comes back asks again.
        if self.has_lent() {
            return;
        }
        while let Some(due) = self.policy.poll_transfer(now) {
            self.send_away(due.slot, due.target, due.why, now);
        }
    }

    fn close(&mut self, slot: u32, (was_held, has_stalled): (bool, bool), now: Instant) {
        let departure = self.policy.handle_departure(now, slot, false);
        if departure.home != self.id {
            let order = Mail::Order(policy::peafowl::Order::ClosedAway);
            self.shared.port(departure.home).mailbox.post(order);
        }
        let connection = self.connections.remove(slot as usize);
        self.watched -= u32::from(connection.is_watched);
        let _ = epoll::delete(&self.epoll, connection.socket());
        self.held -= u32::from(was_held);
        self.arriving.retain(|&arriving| arriving != slot);
        self.watchers.retain(|&watcher| watcher != slot);
        let reason = match connection.ending() {
            _ if self.draining => "shutdown",
            Some(ending) if Ending::FAULTS.contains(&ending) => "error",
            _ if has_stalled => "idle_timeout",
            _ => "normal",
        };
        self.discard(*connection, reason);
        self.left_with_none(now);
    }

    fn discard(&self, connection: Connection, reason: &'static str) {
        let (id, ending) = (connection.id, connection.ending());
        if connection.is_stranger() {
            self.shared.port(self.id).counters.ssl_handshake_errors.raise(1);
        }
        connection.close(self.shared.store.budget());
        self.shared.connection_closed(id, reason);
        if let Some(ending) = ending {
            self.shared.log_ending(ending);
        }
    }

    fn left_with_none(&mut self, now: Instant) {
        if self.connections.is_empty() {
            self.report(now);
            self.shared.notify(Notice::Emptied { at: now, worker: self.id });
        }
    }

    /// Counts whether the connection may stall.
    fn watch(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        let may_stall = connection.stalled_since().is_some();
        let was_watched = std::mem::replace(&mut connection.is_watched, may_stall);
        self.watched = self.watched - u32::from(was_watched) + u32::from(may_stall);
    }

    fn note_watcher(&mut self, slot: u32) {
        if self.connections[slot as usize].is_watching() && !self.watchers.contains(&slot) {
            self.watchers.push(slot);
        }
    }

    fn send_events(&mut self, now: Instant) {
        self.events_pause = SEND_EVENTS_MOST.min(self.events_pause + self.events_pause);
        for slot in self.watchers.clone() {
            // One that no longer watches may be lent.
            let Some(connection) = self.connections.get_mut(slot as usize) else { continue };
            let context = self.shared.turn_context(self.id, connection.id, now);
            if let Some(turn) = connection.send_events(&mut self.scratch, &context) {
                self.events_pause = SEND_EVENTS;
                self.after_turn(slot, 0, turn, false, now);
            }
        }
        self.next_events = now + self.events_pause;
    }

    fn hold(&mut self, slot: u32, held: bool) {
        let connection = &self.connections[slot as usize];
        let data = epoll::EventData::new_u64(u64::from(slot));
        let _ = epoll::modify(&self.epoll, connection.socket(), data, interest_of(connection));
        if held { self.held += 1 } else { self.held -= 1 }
    }

    /// Stops taking requests: ready answers are still written, then every connection is closed.
    fn drain(&mut self) {
        self.draining = true;
        let idle: Vec<u32> = self
            .connections
            .iter()
            .filter(|(_, connection)| !connection.is_held())
            .map(|(slot, _)| slot as u32)
            .collect();
        for slot in idle {
            self.drain_connection(slot);
        }
    }

    /// Requests that are in the socket already are answered: the client sent them before it could
    /// know. Closed is the connection that has no more; with bytes unread the kernel would reset
    /// it, and lose answers on their way.
    fn drain_connection(&mut self, slot: u32) {
        let began = self.shared.now();
        loop {
            let now = self.shared.now();
            let Some(connection) = self.connections.get(slot as usize) else { return };
            let id = connection.id;
            let before = connection.progress();
            self.take_turn(slot, now, now);
            let Some(connection) = self.connections.get(slot as usize).filter(|c| c.id == id) else { return };
            if connection.is_held() {
                // It goes on when the client reads, and is closed when it does not.
                return;
            }
            // A client that goes on sending is not waited for.
            if connection.progress() == before || now.since(began) > DRAIN_MOST {
                self.close(slot, (false, false), now);
                return;
            }
        }
    }

    /// Runs due work and returns the time.
    fn run_timers(&mut self) -> Instant {
        let now = self.shared.now();
        if self.reports.requests > 0 && now.since(self.reports.last) >= self.shared.report_period() {
            self.report(now);
        }
        if self.policy.poll_timeout().is_some_and(|due| due <= now) {
            self.policy.handle_timeout(now);
            self.transfer_due(now);
        }
        if !self.watchers.is_empty() && self.next_events <= now {
            self.send_events(now);
        }
        if self.watched > 0 && self.next_stall_check <= now {
            self.next_stall_check = now + STALL_CHECK;
            self.close_stalled(now);
        }
        now
    }

    /// Ends connections on which nothing has moved for too long, the longest silent first. Their
    /// memory is taken from the share of all connections: the less of it is left, the sooner they
    /// give way.
    fn close_stalled(&mut self, now: Instant) {
        let mut stalled: Vec<(Instant, u32)> = self
            .connections
            .iter()
            .filter_map(|(slot, connection)| Some((connection.stalled_since()?, slot as u32)))
            .collect();
        stalled.sort_unstable();
        for (since, slot) in stalled {
            if now.since(since) <= self.patience() {
                break;
            }
            let was_held = self.connections[slot as usize].is_held();
            self.close(slot, (was_held, true), now);
        }
    }

    /// How long nothing may move on a connection where something must.
    fn patience(&self) -> Duration {
        if self.draining {
            return STALL_CHECK;
        }
        let limit = self.shared.limits.stall;
        let room = self.shared.store.budget().connection_room();
        Duration::from_nanos((limit.as_nanos() as f64 * room) as u64).max(LEAST_PATIENCE.min(limit))
    }

    /// How long to block: not at all, until the next timer, or for ever. Reports are no timer:
    /// while requests come they are made in passing, and in silence the director asks for one. So a
    /// worker under load never arms the kernel's timer, which would cost it a microsecond for each
    /// wait.
    fn timeout(&self, now: Instant, may_sleep: bool) -> Option<Timespec> {
        // A burst's end is when nothing more has come.
        let is_serving = self.holding.as_ref().is_some_and(Holding::is_serving);
        // One that stops is told by those that it has lent alone.
        let waits_for_lent = self.draining && self.has_lent();
        // The last connection may have been closed since the worker looked whether it has ended.
        let has_ended = self.draining && self.connections.is_empty();
        let wait = if !may_sleep || !self.ready.is_empty() || is_serving || waits_for_lent || has_ended {
            Duration::ZERO
        } else {
            let stall = (self.watched > 0).then_some(self.next_stall_check);
            let events = (!self.watchers.is_empty()).then_some(self.next_events);
            let due = [self.policy.poll_timeout(), stall, events].into_iter().flatten().min()?;
            due.since(now)
        };
        let nanos = wait.as_nanos();
        Some(Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 })
    }

    /// Tells the director, and the policy, how the last period went.
    fn report(&mut self, now: Instant) {
        let (requests, sample) = self.reports.finish(now);
        let (reading, movable) = self.policy.handle_report(now, sample);
        self.shared.port(self.id).publish(Published {
            at: now,
            reading: Some(reading),
            movable,
            learned: *self.policy.learned(),
            response: self.reports.response,
            busy: self.reports.busy_total,
            requests: self.reports.requests_total,
        });
        self.transfer_due(now);
        if requests > 0 {
            self.shared.rouse_director();
        }
    }
}

/// A connection whose answers wait is watched for room to write them, any other for requests.
fn interest_of(connection: &Connection) -> EventFlags {
    if connection.is_held() { EventFlags::OUT } else { EventFlags::IN }
}
