//! Waiting for answers or for the next due time.
//!
//! A sleeping thread is woken some tens of microseconds after its timer, more on a virtual machine,
//! and would send late by that much. So the sleep ends the plan's `spin` early and the rest is
//! polled. The timer is a timerfd in the epoll set: it takes nanoseconds on every kernel
//! (epoll_pwait2 needs Linux 5.11) and is exempt from the slack that the kernel adds to a thread's
//! ordinary timeouts.

use super::Lane;
use crate::Error;
use crate::protocol::Asks;
use crate::source::Source;
use machine::{Duration, Instant};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

impl<A: Asks> Lane<'_, A> {
    /// Waits for answers, or until something is to be done: returns when that is.
    pub(super) fn wait(
        &mut self,
        now: Instant,
        boundary: Option<Instant>,
        events: &mut Vec<epoll::Event>,
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
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = if polling || wake <= now {
            Some(&none)
        } else {
            if self.armed != wake {
                self.arm(wake)?;
            }
            None
        };
        match epoll::wait(&self.epoll, spare_capacity(events), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(wake),
            Err(cause) => Err(Error::System { doing: "waiting for answers", cause: cause.into() }),
        }
    }

    pub(super) fn arm(&mut self, wake: Instant) -> Result<(), Error> {
        let nanos = wake.as_nanos();
        let it_value = Timespec { tv_sec: (nanos / NANOS) as i64, tv_nsec: (nanos % NANOS) as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        self.armed = wake;
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)
            .map(drop)
            .map_err(|cause| Error::System { doing: "setting a timer", cause: cause.into() })
    }
}

const NANOS: u64 = 1_000_000_000;
/// How soon a lane notices that the run was stopped.
const STOP_CHECK: Duration = Duration::from_millis(100);
