//! From what is due to bytes on the socket: composing, holding back, one write for each connection.

use super::Lane;
use crate::Plan;
use crate::connection::{Connection, Held, Pending, is_get};
use crate::source::{Due, Source};
use machine::Instant;
use memcache::client::compose;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use workload::{Request, fill_value};

impl Lane<'_> {
    pub(super) fn advance(&mut self) {
        let lanes = u32::from(self.plan.threads);
        self.source.advance(self.requests, self.plan.connections, self.number, lanes);
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

    pub(super) fn compose(&mut self, at: usize, due: Instant, request: Request, held: bool, now: Instant) {
        let connection = &mut self.connections[at];
        self.key.clear();
        self.requests.write_key(request.key, &mut self.key);
        if is_get(&request) {
            compose::get(&mut connection.out, &self.key);
        } else {
            self.value.resize(self.requests.value_len(request.key), 0);
            fill_value(&self.key, &mut self.value);
            compose::set(&mut connection.out, &self.key, 0, 0, &self.value);
        }
        connection.pending.push_back(Pending { due, request, held, found: false });
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
    pub(super) fn refill(&mut self, at: usize, now: Instant) {
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

    pub(super) fn flush_dirty(&mut self) {
        while let Some(at) = self.dirty.pop() {
            self.connections[at].dirty = false;
            self.flush(at);
        }
    }

    /// One write of everything composed for a connection.
    pub(super) fn flush(&mut self, at: usize) {
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
    pub(super) fn note_sent(&mut self, at: usize, now: Instant) {
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
}

/// True if a request that is due may be sent now.
fn has_room(connection: &Connection, plan: &Plan) -> bool {
    connection.open
        && !connection.blocked
        && connection.pending.len() < plan.outstanding_max as usize
        && connection.backlog_bytes() < OUT_BYTES_MAX
}

/// Answers are looked for at least this often, however many requests are due: the sockets' buffers must not fill.
const DISPATCH_BATCH: usize = 256;
/// Bytes composed for one connection beyond which further requests wait.
const OUT_BYTES_MAX: usize = 256 << 10;
/// Held requests of one lane (24 bytes each) beyond which further ones are not sent at all.
const HELD_MAX: usize = 1 << 20;
