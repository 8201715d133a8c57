//! The parts that a session works with.

use super::{Counters, Introspection, Users};
use crate::store::Store;

/// How much a session may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest item, bytes, as memcached measures it: value, key, and 59 to 63 bytes around them.
    /// memcached's default is 1 MiB.
    pub max_item_size: usize,
    /// A session answers no further request while this much output waits, bytes. High enough that a
    /// batch of small answers goes out in one write, low enough that a client which does not read
    /// costs little.
    pub out_high_water: usize,
    /// Whether clients may list the items.
    pub dump: bool,
    /// Whether clients may watch events, by `watch`.
    pub watch: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_item_size: 1024 * 1024, out_high_water: 128 * 1024, dump: true, watch: true }
    }
}

#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub store: &'a Store,
    /// Those of the worker that calls.
    pub counters: &'a Counters,
    /// The figures of the whole server.
    pub all: &'a dyn Introspection,
    /// Seconds on the server's clock, which starts at 2.
    pub now: u32,
    /// Unix time less server time, seconds.
    pub unix_offset: i64,
    pub limits: &'a Limits,
    /// The number of the client's connection, for those that watch.
    pub client: u64,
    /// A client has to say which of these it is, where there are any.
    pub users: Option<&'a Users>,
}
