//! From due requests to bytes on the socket: composing, holding back, one write for each
//! connection.

use super::Lane;
use crate::Plan;
use crate::connection::{Backlogged, Connection, Pending};
use crate::protocol::{Asks, Protocol};
use crate::source::{Due, Source};
use crate::system::Wants;
use machine::{Duration, Instant};
use rustix::fd::AsFd as _;
use rustix::io::Errno;

impl<A: Asks> Lane<'_, A> {
    pub(super) fn advance(&mut self) {
        let lanes = u32::from(self.plan.threads);
        self.source.advance(&self.protocol, self.plan.connections, self.number, lanes);
    }

    /// Composes every scheduled request that is due.
    pub(super) fn dispatch_due(&mut self, now: Instant) {
        for _ in 0..DISPATCH_BATCH {
            let Source::Open { next: Some(due), .. } = self.source else { return };
            if due.at > now {
                return;
            }
            self.dispatch(due, now);
            self.advance();
        }
    }

    pub(super) fn dispatch(&mut self, due: Due, now: Instant) {
        let Due { at: due_at, index, connection: meant } = due;
        let request = self.protocol.request(index);
        let (at, queue) = (self.carrier(meant), self.queue(meant));
        if A::Protocol::POOLED && !self.connections[at].open {
            self.renew(at);
        }
        if !self.connections[at].open {
            self.count(due_at, |counts| counts.lost += 1);
        } else if self.waiting[queue].is_empty() && has_room(&self.connections[at], self.plan) {
            self.compose(at, Backlogged { due: due_at, request, late: Duration::ZERO }, false, now);
        } else if self.backlogged < BACKLOG_MAX {
            self.waiting[queue].push_back(Backlogged { due: due_at, request, late: now.since(due_at) });
            self.backlogged += 1;
            self.count(due_at, |counts| counts.backlogged += 1);
            self.record_lateness(due_at, now);
        } else {
            self.count(due_at, |counts| counts.unsent += 1);
        }
    }

    /// The connection that shall carry a request meant for this one: of a pool the next that is
    /// idle; or closed, and can be made anew; or has room behind others.
    fn carrier(&self, meant: usize) -> usize {
        if !A::Protocol::POOLED {
            return meant;
        }
        let count = self.connections.len();
        let from_there = || (meant..count).chain(0..meant);
        let is_idle = |at: &usize| {
            let connection = &self.connections[*at];
            connection.pending.is_empty() && has_room(connection, self.plan)
        };
        let has_room = |at: &usize| has_room(&self.connections[*at], self.plan);
        from_there()
            .find(is_idle)
            .or_else(|| from_there().find(|at| !self.connections[*at].open))
            .or_else(|| from_there().find(has_room))
            .unwrap_or(meant)
    }

    /// Where requests wait that are meant for this connection.
    pub(super) fn queue(&self, at: usize) -> usize {
        if A::Protocol::POOLED { 0 } else { at }
    }

    fn compose(
        &mut self,
        at: usize,
        asked: Backlogged<<A::Protocol as Protocol>::Request>,
        backlogged: bool,
        now: Instant,
    ) {
        let Backlogged { due, request, late } = asked;
        let connection = &mut self.connections[at];
        self.protocol.compose(&request, &mut connection.out);
        if connection.pending.is_empty() {
            connection.owes_since = now;
        }
        connection.pending.push_back(Pending { due, request, backlogged, late });
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

    /// Fills a connection up: to the depth of a closed loop, or with the backlogged requests.
    pub(super) fn refill(&mut self, at: usize, now: Instant) {
        if let Some(depth) = self.source.depth() {
            while self.connections[at].open
                && self.connections[at].pending.len() < depth
                && self.connections[at].backlog_bytes() < OUT_BYTES_MAX
            {
                let Some(request) = self.source.follow(&self.protocol, now) else { return };
                self.compose(at, Backlogged { due: now, request, late: Duration::ZERO }, false, now);
            }
            return;
        }
        let queue = self.queue(at);
        while has_room(&self.connections[at], self.plan) {
            let Some(backlogged) = self.waiting[queue].pop_front() else { return };
            self.backlogged -= 1;
            self.compose(at, backlogged, true, now);
        }
    }

    pub(super) fn flush_dirty(&mut self) {
        while let Some(at) = self.dirty.pop() {
            self.connections[at].dirty = false;
            self.flush(at);
        }
    }

    /// One write of everything composed for a connection.
    pub(super) fn flush(&mut self, at: usize) {
        if !self.connections[at].open || self.connections[at].connecting {
            return;
        }
        let now = os::now();
        self.note_sent(at, now);
        let connection = &mut self.connections[at];
        let result = connection.send();
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
            let wants = if blocked { Wants::Room } else { Wants::Answers };
            self.readiness.change(connection.as_fd(), at, wants);
        }
    }

    /// Accounts for the requests that the coming write carries.
    pub(super) fn note_sent(&mut self, at: usize, now: Instant) {
        let closed_loop = self.source.depth().is_some();
        let unsent = std::mem::take(&mut self.connections[at].unsent);
        let first = self.connections[at].pending.len() - unsent;
        for place in first..first + unsent {
            let pending = &mut self.connections[at].pending[place];
            if closed_loop {
                pending.due = now;
            }
            if !closed_loop && !pending.backlogged {
                pending.late = now.since(pending.due);
            }
            let Pending { due, backlogged, .. } = *pending;
            self.count(due, |counts| counts.sent += 1);
            if !closed_loop && !backlogged {
                self.record_lateness(due, now);
            }
        }
    }
}

/// True if a request that is due may be sent now.
fn has_room<A, P: Protocol>(connection: &Connection<P>, plan: &Plan<A>) -> bool {
    connection.open
        && !connection.blocked
        && connection.pending.len() < plan.outstanding_max as usize
        && connection.backlog_bytes() < OUT_BYTES_MAX
}

/// Answers are looked for at least this often, however many requests are due: the sockets' buffers
/// must not fill.
const DISPATCH_BATCH: usize = 256;
/// Bytes composed for one connection beyond which further requests wait.
const OUT_BYTES_MAX: usize = 256 << 10;
/// Backlogged requests of one lane (24 bytes each) beyond which further ones are not sent at all.
const BACKLOG_MAX: usize = 1 << 20;
