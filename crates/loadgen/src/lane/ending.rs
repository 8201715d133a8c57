//! Ends of connections and of requests: requests lost with a connection, connections made anew,
//! requests that timed out.

use super::{Lane, REMARKS_MAX};
use crate::connection::{Asked, Connection, Pending};
use crate::plan::TIMEOUT_MIN;
use crate::protocol::{Asks, Protocol};
use crate::system::Wants;
use machine::Instant;
use rustix::fd::AsFd as _;
use rustix::net::sockopt::socket_error;

impl<A: Asks> Lane<'_, A> {
    /// Drops a connection and the requests under way on it. A pool makes a new one when it needs
    /// one. An idle connection that ends is not reported: servers end idle connections as they
    /// please.
    pub(super) fn close(&mut self, at: usize, reason: &str) {
        if !self.connections[at].open {
            return;
        }
        let lost = self.take_pending(at);
        for asked in &lost {
            self.count(asked.due, |counts| counts.lost += 1);
        }
        if !A::Protocol::POOLED || !lost.is_empty() {
            self.connections_lost += 1;
            if self.remarks.len() < REMARKS_MAX {
                self.remark(format!("a connection ended early: {reason}"));
            }
        }
        self.leave(at, reason);
    }

    /// The requests under way on a connection, which is then empty.
    fn take_pending(&mut self, at: usize) -> Vec<Asked> {
        let connection = &mut self.connections[at];
        connection.unsent = 0;
        let pending = std::mem::take(&mut connection.pending);
        self.under_way -= pending.len() as u64;
        pending.iter().map(Pending::asked).collect()
    }

    /// Drops a connection, and makes it anew if requests wait for it.
    fn leave(&mut self, at: usize, reason: &str) {
        reason.clone_into(&mut self.last_end);
        let connection = &mut self.connections[at];
        connection.open = false;
        connection.connecting = false;
        connection.partial = Vec::new();
        connection.out = Vec::new();
        connection.written = 0;
        self.readiness.forget(connection.as_fd());
        let queue = self.queue(at);
        if !A::Protocol::POOLED {
            self.lose_waiting(queue);
        } else if !self.waiting[queue].is_empty() || self.source.depth().is_some() {
            self.renew(at);
        }
    }

    /// Begins to make a closed connection anew.
    pub(super) fn renew(&mut self, at: usize) {
        let renewed = Connection::reopen(&self.address).and_then(|connection| {
            self.readiness.watch(connection.as_fd(), at, Wants::Room)?;
            Ok(connection)
        });
        match renewed {
            Ok(connection) => {
                // The list of those to be written may name this place still.
                let dirty = self.connections[at].dirty;
                self.connections[at] = connection;
                self.connections[at].dirty = dirty;
                self.connections_renewed += 1;
            }
            Err(cause) => self.give_up_on(at, &cause),
        }
    }

    /// A connection could not be made anew.
    fn give_up_on(&mut self, at: usize, cause: &std::io::Error) {
        self.connections[at].open = false;
        self.connections[at].connecting = false;
        self.connections_lost += 1;
        self.is_refused = true;
        self.last_end = format!("connecting anew failed: {cause}");
        if self.remarks.len() < REMARKS_MAX {
            self.remark(self.last_end.clone());
        }
        self.lose_waiting_if_alone();
    }

    /// True if there is no connection left, nor a hope of one.
    pub(super) fn is_alone(&self) -> bool {
        (!A::Protocol::POOLED || self.is_refused)
            && self.connections.iter().all(|connection| !connection.open)
    }

    /// A pool without a connection has no carrier for the requests that wait.
    fn lose_waiting_if_alone(&mut self) {
        if self.is_alone() {
            self.lose_waiting(0);
        }
    }

    fn lose_waiting(&mut self, queue: usize) {
        let waiting = std::mem::take(&mut self.waiting[queue]);
        self.backlogged -= waiting.len();
        for backlogged in waiting {
            self.count(backlogged.due, |counts| counts.lost += 1);
        }
    }

    /// The server has said yes or no to a connection that is made anew.
    pub(super) fn settle_connection(&mut self, at: usize) {
        let refused = match socket_error(self.connections[at].as_fd()) {
            Ok(Ok(())) => None,
            Ok(Err(cause)) | Err(cause) => Some(std::io::Error::from(cause)),
        };
        if let Some(cause) = refused {
            self.readiness.forget(self.connections[at].as_fd());
            return self.give_up_on(at, &cause);
        }
        self.is_refused = false;
        let connection = &mut self.connections[at];
        connection.connecting = false;
        connection.blocked = false;
        self.readiness.change(connection.as_fd(), at, Wants::Answers);
        let now = os::now();
        self.refill(at, now);
    }

    /// Gives up requests that are older than the plan allows, and their connection with them: a
    /// late answer would be taken for another request's.
    pub(super) fn expire(&mut self, now: Instant) {
        let Some(timeout) = self.plan.timeout else { return };
        if now < self.next_look {
            return;
        }
        self.next_look = now + TIMEOUT_MIN;
        for at in 0..self.connections.len() {
            let connection = &self.connections[at];
            let is_owing = connection.open && !connection.pending.is_empty();
            if !is_owing || now.since(connection.owes_since) < timeout {
                continue;
            }
            for asked in self.take_pending(at) {
                self.count(asked.due, |counts| counts.timed_out += 1);
                self.record_latency(asked, now);
            }
            self.remark(format!("an answer had not come after {timeout}"));
            self.leave(at, "an answer did not come in time");
        }
    }

    /// Counts the requests still under way at the age that they have reached.
    pub(super) fn write_off(&mut self, now: Instant) {
        let mut left = Vec::new();
        for at in 0..self.connections.len() {
            left.append(&mut self.take_pending(at));
        }
        for queue in &mut self.waiting {
            left.extend(
                queue.drain(..).map(|backlogged| Asked { due: backlogged.due, late: backlogged.late }),
            );
        }
        for asked in left {
            self.count(asked.due, |counts| counts.unanswered += 1);
            self.record_latency(asked, now);
        }
        self.backlogged = 0;
    }
}
