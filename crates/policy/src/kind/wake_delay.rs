//! Policies that let requests wait at a sleeping core.
//!
//! Under these a core that runs out of work sleeps in the deepest state at once, and an arrival
//! does not wake it: the policy says when the wake-up must begin. Each core has its own queue.

use crate::frequency::PointIndex;
use machine::{Duration, Instant};
use std::any::Any;

/// When a sleeping core wakes for the requests that wait at it.
pub trait WakeDelayPolicy: Any {
    /// The core for a request that would by itself go to `home`. `draw` makes a random number of
    /// the driver's.
    fn route(&self, home: usize, _now: Instant, _draw: &mut dyn FnMut() -> u64) -> usize {
        home
    }

    /// A request has come to a core. The time at which its wake-up must begin, which replaces the
    /// last one; `None` if it is awake.
    fn handle_arrival(&mut self, core: usize, now: Instant) -> Option<Instant>;

    /// The P-state that a core is to wake up in, if one is planned.
    fn wake_point(&self, _core: usize) -> Option<PointIndex> {
        None
    }

    /// A core is up, for whatever reason.
    fn handle_awake(&mut self, core: usize);

    /// A core has nothing to do and sleeps.
    fn handle_idle(&mut self, core: usize, now: Instant);

    /// A core has completed a request, which needed this much: compute at nominal speed, and
    /// memory. `waiting` tells by their places when the requests that are left arrived. The P-state
    /// to change to, if any.
    fn handle_completion(
        &mut self,
        core: usize,
        now: Instant,
        needed: (Duration, Duration),
        waiting: &dyn Fn(usize) -> Option<Instant>,
    ) -> Option<PointIndex>;

    fn poll_timeout(&self) -> Option<Instant>;

    fn handle_timeout(&mut self, now: Instant);
}
