//! A flag by which a caller ends its runs before their time, from any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs that were given a clone of it end within some thousands of events of [`set`](Self::set),
/// with [`ScenarioError::Stopped`](crate::ScenarioError::Stopped).
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
