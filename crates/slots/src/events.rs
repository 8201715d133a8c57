//! The optional ring of events: every enter and exit with its time, for traces and experiments. It
//! costs more than the slots (two readings of the clock, one shared counter) and a reader that is
//! too slow loses events, so nothing is decided from it.
//!
//! A writer takes a number from the header's `event_head`; the entry is that number modulo the
//! ring's length. It owns the entry between two stores of its ticket: *busy* first, number + 1
//! last. One that finds its entry busy, or newer than its own number, leaves it and counts the
//! event as lost: so no entry is ever a mixture of two events.

use crate::layout::{EVENT, event, header};
use crate::map::Map;
use machine::Instant;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Enter,
    Exit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: Instant,
    /// Which thread; -1 if the writer could not tell.
    pub tid: i32,
    pub method: u16,
    pub kind: EventKind,
    pub sequence: u32,
    /// Calls that the thread was in, afterwards.
    pub depth: u16,
}

/// The ring's events since the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// In the order in which writers took their numbers.
    pub events: Vec<Event>,
    /// Overwritten before they were read, or never written.
    pub lost: u64,
}

#[expect(
    clippy::too_many_arguments,
    reason = "one event's fields; a struct for one call would only rename them"
)]
pub(crate) fn record(
    map: &Map,
    ring: usize,
    length: u32,
    at_ns: u64,
    tid: i32,
    method: u16,
    kind: u16,
    state: crate::layout::State,
) {
    let number = map.word64(header::EVENT_HEAD).fetch_add(1, Relaxed);
    let entry = ring + (number & u64::from(length - 1)) as usize * EVENT;
    let ticket = map.word64(entry + event::TICKET);
    let old = ticket.load(Relaxed);
    let is_taken = old > number || ticket.compare_exchange(old, event::BUSY, Acquire, Relaxed).is_err();
    if is_taken {
        map.word64(header::EVENTS_LOST).fetch_add(1, Relaxed);
        return;
    }
    fence(Release);
    map.word64(entry + event::AT).store(at_ns, Relaxed);
    let what = u64::from(tid as u32) | u64::from(method) << 32 | u64::from(kind) << 48;
    map.word64(entry + event::WHAT).store(what, Relaxed);
    let state = u64::from(state.sequence) | u64::from(state.depth) << 32;
    map.word64(entry + event::STATE).store(state, Relaxed);
    ticket.store(number + 1, Release);
}

/// The event in an entry of that ticket; `None` if it is another's, unfinished, or of no known
/// kind.
pub(crate) fn parse(words: [u64; 4], ticket: u64) -> Option<Event> {
    let [found, at, what, state] = words;
    let kind = match (what >> 48) as u16 {
        event::ENTER => EventKind::Enter,
        event::EXIT => EventKind::Exit,
        _ => return None,
    };
    (found == ticket).then_some(Event {
        at: Instant::from_nanos(at),
        tid: what as u32 as i32,
        method: (what >> 32) as u16,
        kind,
        sequence: state as u32,
        depth: (state >> 32) as u16,
    })
}
