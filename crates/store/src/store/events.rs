//! The store's events, for clients that watch them (`watch`): a line each, as memcached 1.6.45
//! writes them.
//!
//! While no client watches a kind of event, one of that kind costs one load ([`Events::are_wanted`]).
//! Else the thread on which it happens composes its line and appends it to the queue of each client
//! that watches. The worker of such a client sends its queue on every few milliseconds.
//!
//! Invariants:
//! - An event waits for no client. A line that finds a queue full is left out there and counted, and
//!   that client is told `skipped=N`.
//! - A queue is charged to the memory of connections, and given back when its [`Listener`] is
//!   dropped, however the connection ends.
//! - Numbers of lines (`gid`) grow, in each queue as well.
//! - The lock is taken within a shard's, never the other way round.

use super::Budget;
use memcache::{Escaped, Refusal, Topics};
use slab::Slab;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Watchers at the most, as in memcached.
const LISTENERS_MOST: usize = 20;

/// Bytes of lines that wait for one watcher at the most.
const QUEUE: usize = 128 << 10;

/// An event, with the parts of its line. A client is the number of its connection, a size the bytes
/// of a value, a class that of `stats items`.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    Retrieved {
        key: &'a [u8],
        is_found: bool,
        class: usize,
        size: usize,
        client: u64,
    },
    Stored {
        key: &'a [u8],
        status: &'static str,
        command: &'static str,
        /// Seconds to live; 0 for ever.
        ttl: u32,
        class: usize,
        size: usize,
        client: u64,
    },
    Deleted {
        key: &'a [u8],
        command: &'static str,
        class: usize,
        size: usize,
    },
    Evicted {
        key: &'a [u8],
        fetched: bool,
        /// Seconds to live; -1 for ever.
        ttl: i64,
        unused_s: u32,
        class: usize,
        size: usize,
    },
    /// A connection from `tcp:ADDRESS` or `unix`.
    Opened {
        peer: &'a str,
        client: u64,
    },
    Closed {
        peer: &'a str,
        reason: &'static str,
        client: u64,
    },
}

#[derive(Debug)]
pub struct Events {
    budget: Arc<Budget>,
    /// The kinds that any client watches.
    wanted: AtomicU8,
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    all: Slab<Queue>,
    last_number: u64,
    counts: EventCounts,
}

#[derive(Debug)]
struct Queue {
    topics: Topics,
    lines: Vec<u8>,
    skipped: u64,
}

/// Bytes of lines sent to watchers, and lines left out, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    pub watchers: usize,
    pub sent: u64,
    pub skipped: u64,
}

/// A client's place among those that watch; its end ends the watching.
#[derive(Debug)]
pub struct Listener {
    events: Arc<Events>,
    key: usize,
}

impl Events {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, wanted: AtomicU8::new(0), queues: Mutex::default() }
    }

    /// Whether a client watches one of these kinds.
    #[inline]
    pub fn are_wanted(&self, topics: Topics) -> bool {
        self.wanted.load(Ordering::Relaxed) & topics.bits() != 0
    }

    /// Leaves the event's line with each client that watches its kind.
    #[cold]
    pub fn tell(&self, event: &Event<'_>) {
        let topic = event.topic();
        let mut queues = self.lock();
        // Under the lock, so that times grow with the numbers.
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        queues.last_number += 1;
        let (seconds, micros) = (unix.as_secs(), unix.subsec_micros());
        let line = format!("ts={seconds}.{micros:06} gid={} {event}\n", queues.last_number);
        let mut skipped = 0;
        for (_, queue) in queues.all.iter_mut().filter(|(_, queue)| queue.topics.meet(topic)) {
            if queue.lines.len() + line.len() <= QUEUE {
                queue.lines.extend_from_slice(line.as_bytes());
            } else {
                queue.skipped += 1;
                skipped += 1;
            }
        }
        queues.counts.skipped += skipped;
    }

    /// Another client watches these kinds of events.
    pub fn listen(self: &Arc<Self>, topics: Topics) -> Result<Listener, Refusal> {
        let mut queues = self.lock();
        if queues.all.len() >= LISTENERS_MOST {
            return Err(Refusal::TooManyWatchers);
        }
        if !self.budget.try_charge_connection(QUEUE) {
            return Err(Refusal::WatcherFailed);
        }
        let key = queues.all.insert(Queue { topics, lines: Vec::new(), skipped: 0 });
        self.note_wanted(&queues);
        Ok(Listener { events: Arc::clone(self), key })
    }

    pub fn counts(&self) -> EventCounts {
        let queues = self.lock();
        EventCounts { watchers: queues.all.len(), ..queues.counts }
    }

    fn note_wanted(&self, queues: &Queues) {
        let all = queues.all.iter().fold(Topics::default(), |all, (_, queue)| all.and(queue.topics));
        self.wanted.store(all.bits(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    /// Appends the lines that wait, and how many came after them and were left out.
    pub fn take(&self, into: &mut Vec<u8>) {
        let mut queues = self.events.lock();
        let before = into.len();
        let queue = &mut queues.all[self.key];
        into.append(&mut queue.lines);
        match std::mem::take(&mut queue.skipped) {
            0 => {}
            skipped => into.extend_from_slice(format!("skipped={skipped}\n").as_bytes()),
        }
        queues.counts.sent += (into.len() - before) as u64;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut queues = self.events.lock();
        queues.all.remove(self.key);
        self.events.note_wanted(&queues);
        self.events.budget.release_connection(QUEUE);
    }
}

impl Event<'_> {
    const fn topic(&self) -> Topics {
        match self {
            Self::Retrieved { .. } => Topics::FETCHERS,
            Self::Stored { .. } => Topics::MUTATIONS,
            Self::Deleted { .. } => Topics::DELETIONS,
            Self::Evicted { .. } => Topics::EVICTIONS,
            Self::Opened { .. } | Self::Closed { .. } => Topics::CONNEVENTS,
        }
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Retrieved { key, is_found, class, size, client } => {
                let (key, status) = (Escaped(key), if is_found { "found" } else { "not_found" });
                write!(f, "type=item_get key={key} status={status} clsid={class} cfd={client} size={size}")
            }
            Self::Stored { key, status, command, ttl, class, size, client } => {
                let key = Escaped(key);
                write!(f, "type=item_store key={key} status={status} cmd={command} ttl={ttl} ")?;
                write!(f, "clsid={class} cfd={client} size={size}")
            }
            Self::Deleted { key, command, class, size } => {
                let key = Escaped(key);
                write!(f, "type=deleted key={key} cmd={command} clsid={class} size={size}")
            }
            Self::Evicted { key, fetched, ttl, unused_s, class, size } => {
                let (key, fetched) = (Escaped(key), if fetched { "yes" } else { "no" });
                write!(f, "type=eviction key={key} fetch={fetched} ttl={ttl} la={unused_s} ")?;
                write!(f, "clsid={class} size={size}")
            }
            Self::Opened { peer, client } => {
                f.write_str("type=conn_new ")?;
                write_peer(f, peer)?;
                write!(f, " cfd={client}")
            }
            Self::Closed { peer, reason, client } => {
                f.write_str("type=conn_close ")?;
                write_peer(f, peer)?;
                write!(f, " reason={reason} cfd={client}")
            }
        }
    }
}

fn write_peer(f: &mut fmt::Formatter<'_>, peer: &str) -> fmt::Result {
    match peer.strip_prefix("tcp:").and_then(|address| address.parse::<SocketAddr>().ok()) {
        Some(address) => write!(f, "rip={} rport={} transport=tcp", address.ip(), address.port()),
        None => f.write_str("rip=unix rport=0 transport=local"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Arc<Events> {
        Arc::new(Events::new(Arc::new(Budget::new(64 << 20))))
    }

    fn retrieved(key: &[u8]) -> Event<'_> {
        Event::Retrieved { key, is_found: false, class: 0, size: 0, client: 3 }
    }

    fn taken(listener: &Listener) -> String {
        let mut lines = Vec::new();
        listener.take(&mut lines);
        String::from_utf8(lines).unwrap()
    }

    #[test]
    fn each_watcher_has_the_lines_of_its_kinds_in_order() {
        let events = events();
        assert!(!events.are_wanted(Topics::FETCHERS));
        let one = events.listen(Topics::FETCHERS).unwrap();
        let other = events.listen(Topics::FETCHERS.and(Topics::CONNEVENTS)).unwrap();
        events.tell(&retrieved(b"a b"));
        events.tell(&Event::Opened { peer: "tcp:[::1]:77", client: 4 });
        events.tell(&Event::Closed { peer: "unix", reason: "normal", client: 5 });
        let (one_has, other_has) = (taken(&one), taken(&other));
        assert!(other_has.starts_with(&one_has));
        assert!(one_has.starts_with("ts=1"), "{one_has}");
        let behind = one_has.split_once(' ').unwrap().1;
        assert_eq!(behind, "gid=1 type=item_get key=a%20b status=not_found clsid=0 cfd=3 size=0\n");
        assert!(other_has.contains(" gid=2 type=conn_new rip=::1 rport=77 transport=tcp cfd=4\n"));
        assert!(
            other_has.ends_with(" type=conn_close rip=unix rport=0 transport=local reason=normal cfd=5\n")
        );
        assert_eq!(taken(&one), "");
        drop(other);
        assert!(events.are_wanted(Topics::FETCHERS) && !events.are_wanted(Topics::CONNEVENTS));
        drop(one);
        assert!(!events.are_wanted(Topics::FETCHERS));
        assert_eq!(events.budget.used(), 0);
    }

    #[test]
    fn a_watcher_that_takes_nothing_misses_lines_and_is_told_how_many() {
        let events = events();
        let listener = events.listen(Topics::FETCHERS).unwrap();
        for _ in 0..10_000 {
            events.tell(&retrieved(&[b'k'; 200]));
        }
        let lines = taken(&listener);
        let (lines, last) = lines.trim_end().rsplit_once('\n').unwrap();
        let skipped: usize = last.strip_prefix("skipped=").unwrap().parse().unwrap();
        assert_eq!(lines.lines().count() + skipped, 10_000);
        assert!(lines.len() < QUEUE && lines.len() > QUEUE - 400);
        assert_eq!(events.counts().skipped, skipped as u64);
        events.tell(&retrieved(b"later"));
        assert!(taken(&listener).contains(" gid=10001 "));
    }

    #[test]
    fn watchers_are_few_and_within_the_memory_of_connections() {
        let events = events();
        let all: Vec<Listener> =
            (0..LISTENERS_MOST).map(|_| events.listen(Topics::EVICTIONS).unwrap()).collect();
        assert_eq!(events.listen(Topics::EVICTIONS).unwrap_err(), Refusal::TooManyWatchers);
        assert_eq!((events.counts().watchers, events.budget.used()), (20, 20 * QUEUE));
        drop(all);
        let small = Arc::new(Events::new(Arc::new(Budget::new(8 * QUEUE))));
        let _first = small.listen(Topics::EVICTIONS).unwrap();
        assert_eq!(small.listen(Topics::EVICTIONS).unwrap_err(), Refusal::WatcherFailed);
    }
}
