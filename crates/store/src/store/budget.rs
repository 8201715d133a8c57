//! The one account behind `--memory-limit`.
//!
//! Segments, index, large values and connection buffers all draw on it before they touch a page, so
//! the sum of pages that the server may touch is known at any instant and never above the limit. It
//! counts permission, not use: a segment is charged whole when it is handed out, and pages that
//! were never written cost less than their charge.
//!
//! Connection buffers have a share of their own, an eighth, behind which the items are safe:
//! clients that send half of many values, or read no answers, run out of memory among themselves.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes granted out of a limit. Shared by every shard and every connection.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicUsize,
    used: AtomicUsize,
    connections: AtomicUsize,
}

/// The part of the limit that all connection buffers may take together.
const CONNECTION_SHARE: usize = 8;

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit: AtomicUsize::new(limit), used: AtomicUsize::new(0), connections: AtomicUsize::new(0) }
    }

    /// Another limit, unless more than that is charged already.
    pub(super) fn set_limit(&self, limit: usize) -> bool {
        let before = self.limit.swap(limit, Ordering::SeqCst);
        let fits = self.used.load(Ordering::SeqCst) <= limit;
        if !fits {
            self.limit.store(before, Ordering::SeqCst);
        }
        fits
    }

    /// Takes `bytes` out of the limit, all or nothing. A caller that is refused must do without, or
    /// give up some of its own first.
    #[must_use]
    pub fn try_charge(&self, bytes: usize) -> bool {
        // Relaxed: the counter guards no other memory; only its own total matters.
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|&sum| sum <= self.limit())
            })
            .is_ok()
    }

    /// Gives back `bytes` that were charged before.
    pub fn release(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes released, but only {before} were charged");
    }

    /// Takes `bytes` for a connection's buffer, within the share of all connections.
    #[must_use]
    pub fn try_charge_connection(&self, bytes: usize) -> bool {
        let share = self.limit() / CONNECTION_SHARE;
        let add = |held: usize| held.checked_add(bytes).filter(|&sum| sum <= share);
        if self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return false;
        }
        let fits = self.try_charge(bytes);
        if !fits {
            self.connections.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Gives back `bytes` of a connection's buffer.
    pub fn release_connection(&self, bytes: usize) {
        let before = self.connections.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes of connections released, but only {before} were charged");
        self.release(bytes);
    }

    /// The part of the connections' share that is free, from 0 to 1.
    pub fn connection_room(&self) -> f64 {
        let share = self.limit() / CONNECTION_SHARE;
        1.0 - (self.connections.load(Ordering::Relaxed) as f64 / share.max(1) as f64).min(1.0)
    }

    /// Bytes charged now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that may be charged in all: `--memory-limit`.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_would_pass_the_limit_and_takes_nothing_then() {
        let budget = Budget::new(100);
        assert!(budget.try_charge(60));
        assert!(!budget.try_charge(41));
        assert!(!budget.try_charge(usize::MAX));
        assert_eq!(budget.used(), 60);
        assert!(budget.try_charge(40));
        budget.release(100);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    #[should_panic(expected = "released")]
    fn releasing_more_than_was_charged_is_a_bug() {
        let budget = Budget::new(100);
        assert!(budget.try_charge(1));
        budget.release(2);
    }

    #[test]
    fn threads_never_pass_the_limit_together() {
        let budget = Budget::new(1000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for i in 1..500 {
                        if budget.try_charge(i) {
                            assert!(budget.used() <= budget.limit());
                            budget.release(i);
                        }
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }
}
