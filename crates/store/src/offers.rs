//! Connections whose requests wait for a busy worker, offered to workers that have nothing to do.
//!
//! ```text
//!   owner: offers those it comes to late ----> its list ----> thief: takes their turns
//!          takes back those that are left <----'                |
//!          follows each turn's end <------- its mailbox --------'
//! ```
//!
//! Invariants:
//! - A connection is its worker's, in one list, or in one thief's hands for one turn.
//! - An owner takes back all that is left before it waits for more, so nothing depends on a thief
//!   that comes late or never.
//! - A thief that has looked at the lists in vain, and then sleeps, is seen asleep by an owner that
//!   offers after that look ([`Mailbox`](crate::mailbox::Mailbox) has the handshake).

use crate::connection::{Connection, Turn};
use machine::{Duration, Instant, WorkerId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A connection that has an event, and its slot at its worker.
pub(crate) struct Offer {
    pub(crate) slot: u32,
    pub(crate) connection: Box<Connection>,
    /// Since when its request may have waited.
    pub(crate) ready_since: Instant,
}

/// A connection that comes back from the thief, and how its turn went.
pub(crate) struct Returned {
    pub(crate) offer: Offer,
    pub(crate) requests: u32,
    pub(crate) turn: Turn,
    pub(crate) busy: Duration,
    pub(crate) served_at: Instant,
}

/// A list for each worker: of its connections that others may serve.
#[derive(Default)]
pub(crate) struct Offers {
    lists: Vec<List>,
    /// Connections in all lists together, so that one look tells whether there are any.
    total: AtomicUsize,
}

#[derive(Default)]
#[repr(align(128))] // Two cache lines: adjacent-line prefetch moves as much at a time.
struct List {
    waiting: Mutex<VecDeque<Offer>>,
    length: AtomicUsize,
    /// Whether the worker is active, and so may steal.
    may_steal: AtomicBool,
    /// Turns that the worker took for others. It alone writes.
    stolen: AtomicU64,
}

impl Offers {
    pub(crate) fn new(workers: usize) -> Self {
        Self { lists: (0..workers).map(|_| List::default()).collect(), total: AtomicUsize::new(0) }
    }

    /// Whether anything is offered by workers that the thief may help. Before it sleeps a thief has to
    /// ask after it was said to be asleep.
    pub(crate) fn are_any(&self, may_help: impl Fn(WorkerId) -> bool) -> bool {
        self.total.load(Ordering::SeqCst) > 0
            && (0..).map(WorkerId).zip(&self.lists).any(|(owner, list)| list.length() > 0 && may_help(owner))
    }

    pub(crate) fn may_steal(&self, worker: WorkerId) -> bool {
        self.lists[worker.index()].may_steal.load(Ordering::Relaxed)
    }

    pub(crate) fn set_thieves(&self, active: &[WorkerId]) {
        for (id, list) in (0..).map(WorkerId).zip(&self.lists) {
            list.may_steal.store(active.contains(&id), Ordering::Relaxed);
        }
    }

    pub(crate) fn put(&self, owner: WorkerId, offers: &mut Vec<Offer>) {
        let list = &self.lists[owner.index()];
        let mut waiting = list.lock();
        self.total.fetch_add(offers.len(), Ordering::SeqCst);
        waiting.extend(offers.drain(..));
        list.length.store(waiting.len(), Ordering::SeqCst);
    }

    /// The owner's own offers, the oldest first, so many at the most.
    pub(crate) fn take_back(&self, owner: WorkerId, most: usize, into: &mut Vec<Offer>) {
        let list = &self.lists[owner.index()];
        let mut waiting = list.lock();
        let taken = most.min(waiting.len());
        into.extend(waiting.drain(..taken));
        list.length.store(waiting.len(), Ordering::SeqCst);
        self.total.fetch_sub(taken, Ordering::SeqCst);
    }

    /// The oldest offers of the longest list, of those workers that the thief may help: so many at the
    /// most, and half of them, so that its worker has some as well.
    pub(crate) fn steal(
        &self,
        thief: WorkerId,
        may_help: impl Fn(WorkerId) -> bool,
        most: usize,
        into: &mut Vec<Offer>,
    ) -> Option<WorkerId> {
        let all = (0..).map(WorkerId).zip(&self.lists);
        let helped = all.filter(|&(owner, _)| may_help(owner));
        let (owner, list) = helped.max_by_key(|(_, list)| list.length())?;
        let mut waiting = list.lock();
        let taken = most.min(waiting.len().div_ceil(2));
        into.extend(waiting.drain(..taken));
        list.length.store(waiting.len(), Ordering::SeqCst);
        self.total.fetch_sub(taken, Ordering::SeqCst);
        let stolen = &self.lists[thief.index()].stolen;
        stolen.store(stolen.load(Ordering::Relaxed) + taken as u64, Ordering::Relaxed);
        (taken > 0).then_some(owner)
    }

    pub(crate) fn stolen(&self, thief: WorkerId) -> u64 {
        self.lists[thief.index()].stolen.load(Ordering::Relaxed)
    }
}

impl List {
    fn length(&self) -> usize {
        self.length.load(Ordering::SeqCst)
    }

    /// A thread that panicked held it for a few moves of pointers, which do not panic.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Offer>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
