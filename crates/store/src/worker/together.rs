//! Connections that are ready together: read, served and answered together.

use super::{BELL, Worker};
use crate::connection::{READ_SIZE, Turn};
use crate::session::first_key;
use machine::{Duration, Instant};
use rustix::event::epoll;

/// As many turns that come together are all served before the first is answered. Fewer are answered one
/// by one, as ever: at little load nothing is to be won.
const ANSWERED_LATER: usize = 4;

/// Answers wait for so long at the most, and for the turn that is served then.
const ANSWERED_WITHIN: Duration = Duration::from_micros(100);

/// A turn whose answers wait until the others that came with it are served.
pub(super) struct Unsent {
    slot: u32,
    requests: u32,
    answers: Vec<u8>,
    /// Time that was spent on it.
    busy: Duration,
}

impl Worker {
    /// Gives some connections their turns: first all are read, then the memory that their first
    /// requests will touch in the store is fetched into the cache, then all are served, and then
    /// answered. One by one, every request would wait for memory by itself.
    pub(super) fn take_turns(
        &mut self,
        events: &[epoll::Event],
        now: Instant,
        ready_since: Instant,
    ) -> Instant {
        let mut last = now;
        let mut received = std::mem::take(&mut self.received);
        // Connections with a rest come last: they may use the scratch space that holds the others'
        // bytes.
        let mut others: u32 = 0;
        let piece = READ_SIZE.min(self.scratch.input.len() / events.len());
        let mut ring = self.ring.take();
        let carried = match &mut ring {
            Some(ring) if events.len() >= ANSWERED_LATER => {
                let pieces = events.iter().zip(self.scratch.input.chunks_mut(piece)).enumerate();
                let wanted = pieces.filter_map(|(at, (event, into))| {
                    let connection = self.connections.get(event.data.u64() as usize)?;
                    let socket = connection.plain_socket().filter(|_| connection.is_plain())?;
                    Some((at, socket, into))
                });
                ring.receive(events.len(), wanted)
            }
            _ => &[],
        };
        for (at, event) in events.iter().enumerate() {
            let slot = event.data.u64() as u32;
            match self.connections.get_mut(slot as usize) {
                _ if event.data.u64() == BELL => {}
                Some(connection) if connection.is_plain() => {
                    let start = at * piece;
                    let came = match carried.get(at) {
                        Some(Some(came)) => connection.received(*came),
                        _ => connection.receive(
                            &mut self.scratch.input[start..start + piece],
                            self.shared.store.budget(),
                        ),
                    };
                    match came {
                        Ok(length) => received.push((slot, start..start + length)),
                        Err(turn) => last = self.after_turn(slot, 0, turn, false, ready_since),
                    }
                }
                _ => others |= 1 << at,
            }
        }
        self.ring = ring;
        let store = &self.shared.store;
        let keys = || received.iter().filter_map(|(_, part)| first_key(&self.scratch.input[part.clone()]));
        if received.len() > 1 {
            keys().for_each(|key| store.prefetch(key));
            keys().for_each(|key| store.prefetch_item(key));
        }
        let sends_later = received.len() >= ANSWERED_LATER;
        let mut answers_due = last + ANSWERED_WITHIN;
        for (slot, part) in received.drain(..) {
            if last >= answers_due {
                last = self.send_answers(last, ready_since);
                answers_due = last + ANSWERED_WITHIN;
            }
            let connection = &mut self.connections[slot as usize];
            let context = self.shared.turn_context(self.id, connection.id, last);
            let (requests, turn) = connection.take_received(part, &mut self.scratch, &context, sends_later);
            if turn == Turn::Unsent {
                last = self.shared.now();
                let answers = self.scratch.take_output(self.spare.pop());
                let busy = self.charge(last);
                self.unsent.push(Unsent { slot, requests, answers, busy });
            } else {
                last = self.after_turn(slot, requests, turn, false, ready_since);
            }
        }
        self.received = received;
        last = self.send_answers(last, ready_since);
        for (at, event) in events.iter().enumerate() {
            if others & (1 << at) != 0 {
                last = self.take_turn(event.data.u64() as u32, last, ready_since);
            }
        }
        if self.draining {
            self.finish_written(events);
        }
        last
    }

    /// Answers the turns that wait for it, and goes on with each as after any turn.
    fn send_answers(&mut self, now: Instant, ready_since: Instant) -> Instant {
        let mut last = now;
        let mut unsent = std::mem::take(&mut self.unsent);
        let mut ring = self.ring.take();
        let carried = match &mut ring {
            Some(ring) if unsent.len() >= ANSWERED_LATER => {
                let wanted = unsent.iter().enumerate().filter_map(|(at, one)| {
                    let socket = self.connections[one.slot as usize].plain_socket()?;
                    Some((at, socket, &*one.answers))
                });
                ring.send(unsent.len(), wanted)
            }
            _ => &[],
        };
        // All have left by one call, which is charged to them in equal parts.
        let share = match carried.len() as u64 {
            0 => Duration::ZERO,
            count => {
                last = self.shared.now();
                Duration::from_nanos(self.charge(last).as_nanos() / count)
            }
        };
        for (at, Unsent { slot, requests, answers, busy }) in unsent.drain(..).enumerate() {
            let connection = &mut self.connections[slot as usize];
            let context = self.shared.turn_context(self.id, connection.id, last);
            // An error is found again by a call of its own.
            let taken = carried.get(at).copied().flatten().and_then(Result::ok).unwrap_or(0);
            let turn = connection.send(&answers, taken, &context);
            self.spare.push(answers);
            last = self.shared.now();
            let busy = busy + share + self.charge(last);
            self.settle(slot, (requests, turn), false, ready_since, (last, busy));
        }
        self.ring = ring;
        self.unsent = unsent;
        last
    }
}
