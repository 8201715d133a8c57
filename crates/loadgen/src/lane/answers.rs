//! From bytes on the socket to latencies: reading, matching answers to requests, ends of connections.

use super::{Lane, REMARKS_MAX, TIMER};
use crate::Error;
use crate::connection::{Pending, is_get};
use machine::Instant;
use memcache::client::{Answer, Reading, parse};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use workload::{Request, value_matches};

impl Lane<'_> {
    pub(super) fn read_ready(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Error> {
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

    pub(super) fn read(&mut self, at: usize) {
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

    pub(super) fn take_bytes(&mut self, at: usize, bytes: &[u8], now: Instant) {
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
    pub(super) fn take_answers(&mut self, at: usize, input: &[u8], now: Instant) -> usize {
        let mut used = 0;
        while used < input.len() && self.connections[at].open {
            let (answer, length) = match parse(&input[used..]) {
                Ok(Reading::Answer { answer, length }) => (answer, length),
                Ok(Reading::Partial { .. }) => break,
                Err(garbled) => {
                    self.close(at, &garbled.to_string());
                    break;
                }
            };
            used += length;
            self.take_answer(at, answer, now);
        }
        used
    }

    pub(super) fn take_answer(&mut self, at: usize, answer: Answer<'_>, now: Instant) {
        let Some(pending) = self.connections[at].pending.front_mut() else {
            return self.close(at, "the server answered more than was asked");
        };
        let Pending { due, request, found, .. } = *pending;
        match (answer, is_get(&request)) {
            (Answer::Value { key, value, .. }, true) if !found => {
                pending.found = true;
                if self.plan.verify {
                    self.verify(due, &request, key, value);
                }
                // Its end is still to come.
                return;
            }
            (Answer::End, true) => {
                self.count(due, |counts| if found { counts.hits += 1 } else { counts.misses += 1 });
            }
            (Answer::Stored, false) => self.count(due, |counts| counts.stored += 1),
            (Answer::Error(words), _) if !found => {
                self.last_refusal = Some(String::from_utf8_lossy(words).into_owned());
                self.count(due, |counts| counts.refused += 1);
            }
            (other, _) => {
                return self.close(at, &format!("the server answered {:?} with {other:?}", request.op));
            }
        }
        self.connections[at].pending.pop_front();
        self.under_way -= 1;
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

    pub(super) fn verify(&mut self, due: Instant, request: &Request, key: &[u8], value: &[u8]) {
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

    pub(super) fn close(&mut self, at: usize, reason: &str) {
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
    pub(super) fn write_off(&mut self, now: Instant) {
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
}
