//! From bytes on the socket to latencies: reading, matching answers to requests.

use super::{Lane, REMARKS_MAX};
use crate::Error;
use crate::connection::Asked;
use crate::protocol::{Answer, Asks, Kind, Protocol, Taken};
use crate::system::{Events, Ready};
use machine::{Duration, Instant};
use rustix::io::Errno;

impl<A: Asks> Lane<'_, A> {
    pub(super) fn read_ready(&mut self, events: &mut Events) -> Result<(), Error> {
        for Ready { at, readable, writable } in events.take() {
            if self.connections[at].connecting {
                self.settle_connection(at);
                continue;
            }
            if writable && self.connections[at].open {
                self.flush(at);
                let now = os::now();
                self.refill(at, now);
            }
            if readable && self.connections[at].open {
                self.read(at);
            }
        }
        if self.is_alone() {
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
            let count = match self.connections[at].receive(&mut input) {
                Ok(0) => {
                    self.end(at);
                    break;
                }
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(cause) => {
                    self.close(at, &format!("reading failed: {}", std::io::Error::from(cause)));
                    break;
                }
            };
            let now = os::now();
            self.last_heard = now;
            let is_same = self.take_bytes(at, &input[..count], now);
            if !is_same || count < input.len() && !self.connections[at].has_more() {
                break;
            }
        }
        self.input = input;
    }

    /// The server sends no more on this connection. That may be how an answer ends.
    fn end(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        if !connection.pending.is_empty()
            && let Some(answer) = self.protocol.end(&mut connection.reading)
        {
            let now = os::now();
            self.take_answer(at, answer, now);
        }
        self.close(at, "the server closed it");
    }

    /// False if the connection has ended, or been made anew, meanwhile.
    fn take_bytes(&mut self, at: usize, bytes: &[u8], now: Instant) -> bool {
        let mut partial = std::mem::take(&mut self.connections[at].partial);
        let is_same = if partial.is_empty() {
            let used = self.take_answers(at, bytes, now);
            partial.extend_from_slice(&bytes[used.unwrap_or(bytes.len())..]);
            used.is_some()
        } else {
            partial.extend_from_slice(bytes);
            let used = self.take_answers(at, &partial, now);
            partial.drain(..used.unwrap_or(partial.len()));
            used.is_some()
        };
        if is_same {
            self.connections[at].partial = partial;
            self.refill(at, now);
        }
        is_same
    }

    /// Takes as much as it can from the beginning of `input`; returns the number of bytes, or
    /// nothing if the connection has ended meanwhile.
    fn take_answers(&mut self, at: usize, input: &[u8], now: Instant) -> Option<usize> {
        let mut used = 0;
        while used < input.len() {
            let connection = &mut self.connections[at];
            let Some(pending) = connection.pending.front() else {
                self.close(at, "the server answered more than was asked");
                return None;
            };
            let (due, request) = (pending.due, pending.request);
            match self.protocol.take(&request, &mut connection.reading, &input[used..]) {
                Ok(Taken::Nothing) => break,
                Ok(Taken::Part(bytes, wrong)) => {
                    used += bytes;
                    if let Some(wrong) = wrong {
                        self.count(due, |counts| counts.corrupt += 1);
                        self.remark(wrong);
                    }
                }
                Ok(Taken::Answer(bytes, answer)) => {
                    used += bytes;
                    let is_last = answer.is_last;
                    self.take_answer(at, answer, now);
                    if is_last {
                        self.close(at, "the server said that it would close it");
                        return None;
                    }
                }
                Err(garbled) => {
                    self.close(at, &garbled);
                    return None;
                }
            }
        }
        Some(used)
    }

    /// Counts the answer to the first unanswered request of a connection.
    fn take_answer(&mut self, at: usize, answer: Answer, now: Instant) {
        let connection = &mut self.connections[at];
        let Some(pending) = connection.pending.pop_front() else { return };
        connection.owes_since = now;
        self.under_way -= 1;
        let asked = pending.asked();
        let due = asked.due;
        match answer.kind {
            Kind::Hit => self.count(due, |counts| counts.hits += 1),
            Kind::Miss => self.count(due, |counts| counts.misses += 1),
            Kind::Stored => self.count(due, |counts| counts.stored += 1),
            Kind::Good => self.count(due, |counts| counts.good += 1),
            Kind::Refused(words) => {
                self.last_refusal = Some(words);
                self.count(due, |counts| counts.refused += 1);
            }
            Kind::Status(status, begins) => {
                self.count(due, |counts| {
                    counts.refused += 1;
                    if status < 500 { counts.client_errors += 1 } else { counts.server_errors += 1 }
                });
                if self.remarks.len() < REMARKS_MAX {
                    self.remark(format!("HTTP status {status}: {begins}"));
                }
            }
        }
        self.count(due, |counts| counts.answered += 1);
        self.record_latency(asked, now);
        if let Some(took) = answer.took {
            self.interval.took.saturating_record(took.as_nanos());
            if due >= self.window.from {
                self.measured.tally.took.saturating_record(took.as_nanos());
            }
        }
        if now >= self.window.from && now < self.window.until {
            self.measured.answered_in_window += 1;
        }
    }

    pub(super) fn record_latency(&mut self, asked: Asked, now: Instant) {
        let latency = now.since(asked.due);
        // A closed loop has no due times: the generator's speed is part of the measurement.
        let own = match self.source.depth() {
            Some(_) => Duration::ZERO,
            None => asked.late + self.pause_since(asked.due + asked.late),
        };
        self.interval.latency.saturating_record(latency.as_nanos());
        if asked.due >= self.window.from {
            self.measured.tally.latency.saturating_record(latency.as_nanos());
            self.measured.tally.without_own.saturating_record((latency - own).as_nanos());
        }
    }

    /// Keeps remarks for the user, a few at most.
    pub(super) fn remark(&mut self, remark: String) {
        if self.remarks.len() < REMARKS_MAX {
            self.remarks.push(remark);
        }
    }
}
