//! The counts of a worker's sessions.
//!
//! Every worker counts for itself, and only its own thread writes: a load and a store, no locked
//! instruction. A reader sums over the workers. Counters only grow; `stats reset` is the reader's
//! business, which remembers the sums at that instant and subtracts them from then on
//! ([`Totals::since`]).

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$meaning:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        #[repr(align(128))] // Two cache lines: adjacent-line prefetch moves as much at a time.
        pub struct Counters {
            $($(#[$meaning])* pub $name: Counter,)*
        }

        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$meaning])* pub $name: u64,)*
        }

        impl Totals {
            pub fn add(&mut self, counters: &Counters) {
                $(self.$name = self.$name.wrapping_add(counters.$name.value());)*
            }

            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(earlier.$name),)* }
            }

            /// Each counter under memcached's name for it.
            pub(super) fn each(&self, mut emit: impl FnMut(&str, u64)) {
                $(emit(stringify!($name), self.$name);)*
            }
        }
    };
}

counters! {
    cmd_get,
    /// Values stored or offered for storing.
    cmd_set,
    cmd_flush,
    /// Items given, or meant to be given, a new expiry.
    cmd_touch,
    cmd_meta,
    get_hits,
    /// Keys asked for and not found.
    get_misses,
    /// Deletions that found nothing to delete.
    delete_misses,
    delete_hits,
    incr_misses,
    incr_hits,
    decr_misses,
    decr_hits,
    /// Conditional stores that found no item.
    cas_misses,
    cas_hits,
    /// Conditional stores that found an item changed meanwhile.
    cas_badval,
    touch_hits,
    touch_misses,
    /// Connections that have said a user and the password.
    auth_cmds,
    /// Commands of clients that had not, or had said a wrong one.
    auth_errors,
    /// Clients of the binary protocol, which were told so and closed.
    binary_refused,
    /// Connections that ended before TLS stood.
    ssl_handshake_errors,
    store_too_large,
    /// Values refused for want of memory.
    store_no_memory,
    /// Bytes of requests served.
    bytes_read,
    /// Bytes of answers composed.
    bytes_written,
    /// Turns that ended with requests left, because other connections waited.
    conn_yields,
}

/// A number that one thread raises and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Raises it. Only the worker that owns it may: two writers would lose counts.
    #[inline]
    pub fn raise(&self, by: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_sum_over_workers_and_begin_anew_after_a_reset() {
        let workers = [Counters::default(), Counters::default()];
        workers[0].cmd_get.raise(3);
        workers[1].cmd_get.raise(4);
        let sum = || {
            let mut totals = Totals::default();
            workers.iter().for_each(|counters| totals.add(counters));
            totals
        };
        let at_reset = sum();
        assert_eq!(at_reset.cmd_get, 7);
        workers[1].cmd_get.raise(1);
        assert_eq!(sum().since(&at_reset), Totals { cmd_get: 1, ..Totals::default() });
    }
}
