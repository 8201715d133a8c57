//! How much memory bodies may take together. A request for more is refused, and never waits: a
//! request that waits for memory holds memory itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: u64,
    used: AtomicU64,
}

/// Some of it, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Budget,
    bytes: u64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self(Arc::new(Inner { limit, used: AtomicU64::new(0) }))
    }

    /// `None` if there is not as much left.
    pub(crate) fn take(&self, bytes: u64) -> Option<Share> {
        let mut share = Share { budget: self.clone(), bytes: 0 };
        share.grow_to(bytes).then_some(share)
    }

    /// Takes it even where there is not as much left: bytes that are here already can only be
    /// counted.
    pub(crate) fn count(&self, bytes: u64) -> Share {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
        Share { budget: self.clone(), bytes }
    }

    /// Bytes taken now.
    pub(crate) fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }
}

impl Share {
    /// Takes more until it is `bytes`. False, and nothing changed, if there is not as much left.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return true;
        }
        let Inner { limit, used } = &*self.budget.0;
        let fits = |used: u64| used.checked_add(more).filter(|sum| sum <= limit);
        let taken = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if taken {
            self.bytes += more;
        }
        taken
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_there_is_and_all_comes_back() {
        let budget = Budget::new(100);
        let mut first = budget.take(60).unwrap();
        assert!(budget.take(41).is_none() && !first.grow_to(101));
        assert!(first.grow_to(90) && first.grow_to(10));
        let second = budget.take(10).unwrap();
        assert!(budget.take(1).is_none() && budget.used() == 100);
        drop((first, second));
        assert!(budget.used() == 0 && budget.take(u64::MAX).is_none() && budget.take(100).is_some());
    }
}
