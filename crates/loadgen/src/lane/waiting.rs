//! Waiting for answers or for the next due time.
//!
//! A sleeping thread is woken some tens of microseconds after its timer, more on a virtual machine,
//! and would send late by that much. So the sleep ends the plan's `spin` early and the rest is
//! polled.

use super::Lane;
use crate::Error;
use crate::protocol::Asks;
use crate::source::Source;
use crate::system::Events;
use machine::{Duration, Instant};

impl<A: Asks> Lane<'_, A> {
    /// Waits for answers, or until something is to be done: returns when that is.
    pub(super) fn wait(
        &mut self,
        now: Instant,
        boundary: Option<Instant>,
        events: &mut Events,
    ) -> Result<Instant, Error> {
        let mut wake = now + STOP_CHECK;
        // Rounded, so that a busy loop sets its timer once in a while and not every time.
        wake = Instant::from_nanos(wake.as_nanos() / STOP_CHECK.as_nanos() * STOP_CHECK.as_nanos());
        if now < self.window.until {
            wake = wake.min(self.window.until);
        }
        if let Some(boundary) = boundary {
            wake = wake.min(boundary);
        }
        let mut polling = false;
        if let Source::Open { next: Some(due), .. } = self.source {
            let early = due.at - self.plan.spin;
            polling = early <= now;
            wake = wake.min(early);
        }
        if polling && self.under_way == 0 {
            // Nothing can come in; a system call would only delay the next request.
            std::hint::spin_loop();
            return Ok(wake);
        }
        let until = if polling || wake <= now { None } else { Some(wake) };
        self.readiness.wait(until, events)?;
        Ok(wake)
    }
}

/// How soon a lane notices that the run was stopped.
const STOP_CHECK: Duration = Duration::from_millis(100);
