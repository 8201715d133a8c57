//! Staged bursts inside the store (the CPU sleeps paper, section 3), for services whose clients may
//! wait: a worker leaves requests in their sockets for a while, and serves them together.
//!
//! Nothing has to be held for that: while a worker waits, it watches its bell alone. Requests that
//! come meanwhile cause no wake-up and lie in the sockets. When `policy::staging` says so, the
//! worker looks at all of them at once. Periods are counted on the monotonic clock, so all workers
//! serve side by side.
//!
//! The first request that came is the one that waits longest, so it stands for all of them on the
//! stage, with the goal as its deadline. A burst's time from its beginning until all sockets are
//! empty is its completion, and is learned. A burst that takes too long for the goal is followed by
//! one that waits less, and under high load by none that waits at all.
//!
//! Invariants: with nothing to serve, a worker blocks without a timer, as ever; mail is opened at
//! once; and a worker that is to stop does not wait.

use machine::{Duration, Goal, Instant};
use policy::staging::{Mode, Params, Release, StagedId, Stager};
use rustix::event::{Timespec, epoll};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;

/// The time that requests may take, and their release.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// A request is answered within this, waiting included.
    pub goal: Goal,
    /// They go this often at the least; without it, when the goal is in danger.
    pub period: Option<Duration>,
}

impl Stage {
    fn params(&self) -> Params {
        let params = Params { quantile: machine::Ratio::new(self.goal.quantile), ..Params::default() };
        match self.period {
            Some(period) => Params { mode: Mode::Guarded, period, ..params },
            None => params,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Holding {
    goal: Duration,
    stager: Stager,
    /// Watches the bell, and no socket.
    quiet: OwnedFd,
    next: u64,
    /// The burst that is being served.
    burst: Option<Release>,
}

impl Holding {
    pub(crate) fn new(stage: &Stage, bell: BorrowedFd<'_>) -> io::Result<Self> {
        let quiet = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &quiet,
            bell,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )?;
        Ok(Self {
            goal: stage.goal.latency,
            stager: Stager::new(stage.params()),
            quiet,
            next: 0,
            burst: None,
        })
    }

    /// True while a burst is served: new requests go with it.
    pub(crate) fn is_serving(&self) -> bool {
        self.burst.is_some()
    }

    /// The first request has come.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.stager.handle_arrival(now, StagedId(self.next), now + self.goal);
        self.next += 1;
    }

    /// When its burst begins; `None` when it has.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Instant> {
        self.stager.handle_timeout(now);
        self.take_burst();
        self.stager.poll_timeout().filter(|_| self.burst.is_none())
    }

    /// It begins, whatever the time: the worker is to stop.
    pub(crate) fn let_go(&mut self, now: Instant) {
        self.stager.handle_drain(now);
        self.take_burst();
    }

    pub(crate) fn end(&mut self, now: Instant) {
        if let Some(burst) = self.burst.take() {
            self.stager.handle_completed(now, &burst);
        }
    }

    /// Blocks until the bell rings or the time has come.
    pub(crate) fn wait(&self, length: Duration) -> io::Result<()> {
        let nanos = length.as_nanos();
        let timeout =
            Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1);
        match epoll::wait(&self.quiet, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn take_burst(&mut self) {
        // One request stands for all, so there is one release.
        if let Some(release) = self.stager.poll_release() {
            self.burst = Some(release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fd::AsFd as _;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn holding(period: Option<u64>) -> Holding {
        let stage = Stage { goal: "100ms@p99".parse().unwrap(), period: period.map(Duration::from_millis) };
        let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        Holding::new(&stage, bell.as_fd()).unwrap()
    }

    #[test]
    fn the_first_request_says_when_all_go() {
        let mut holding = holding(Some(40));
        holding.begin(at(10));
        assert_eq!(holding.due(at(10)), Some(at(40)));
        assert!(!holding.is_serving());
        assert_eq!(holding.due(at(40)), None);
        assert!(holding.is_serving());
        holding.end(at(41));
        holding.begin(at(45));
        assert_eq!(holding.due(at(45)), Some(at(80)));
    }

    #[test]
    fn bursts_that_take_long_are_begun_earlier_and_in_the_end_at_once() {
        let mut holding = holding(None);
        let mut waits = Vec::new();
        for round in 0..60 {
            let came = at(round * 1_000);
            holding.begin(came);
            let due = holding.due(came);
            waits.push(due.map_or(Duration::ZERO, |due| due.since(came)));
            let began = due.unwrap_or(came);
            assert_eq!(holding.due(began), None);
            holding.end(began + Duration::from_millis(if round < 30 { 40 } else { 120 }));
        }
        assert_eq!((waits[0].as_millis(), waits[25].as_millis()), (50, 60));
        assert_eq!(waits[59], Duration::ZERO);
    }

    #[test]
    fn who_is_to_stop_waits_for_nothing() {
        let mut holding = holding(None);
        holding.begin(at(0));
        holding.let_go(at(1));
        assert!(holding.is_serving() && holding.due(at(1)).is_none());
    }
}
