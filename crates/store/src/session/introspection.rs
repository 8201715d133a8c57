//! The whole server's figures for `stats`.

use super::Totals;

/// Facts about the server that no store and no worker knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// Client connections at the most.
    pub max_connections: u32,
    pub connections: u32,
    pub connections_total: u64,
    /// Client connections refused because there were too many.
    pub connections_rejected: u64,
    /// How often accepting had to pause.
    pub accept_pauses: u64,
    /// Time of all these pauses, in microseconds.
    pub accept_paused_us: u64,
    pub accepting: bool,
    pub workers: u32,
}

/// The view of the server that `stats` shows.
pub trait Introspection {
    /// Counters summed over all workers, since the start or the last [`Introspection::reset`].
    fn totals(&self) -> Totals;

    /// Begins counting anew (`stats reset`).
    fn reset(&self);

    fn facts(&self) -> ServerFacts;

    /// Emits name and value of every statistic in `group`, such as `settings`, `conns` or `roost`;
    /// `false` if there is no such group.
    fn stats_group(&self, group: &[u8], emit: &mut dyn FnMut(&str, &str)) -> bool;
}

/// Of a session without a server around it: there is nothing to tell.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Introspection for Alone {
    fn totals(&self) -> Totals {
        Totals::default()
    }

    fn reset(&self) {}

    fn facts(&self) -> ServerFacts {
        ServerFacts::default()
    }

    fn stats_group(&self, _: &[u8], _: &mut dyn FnMut(&str, &str)) -> bool {
        false
    }
}
