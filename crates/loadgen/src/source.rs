//! Where the next request comes from.
//!
//! In an open loop all threads walk the same schedule and each takes the requests of its own
//! connections. Drawing an arrival costs some 20 ns, and the stream does not depend on the number
//! of threads.

use crate::protocol::Protocol;
use machine::{Duration, Instant};
use workload::{Arrival, Arrivals};

/// Requests and when they are due, in order of time.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    warm: Option<Arrivals>,
    measured: Arrivals,
    warmup: Duration,
    /// Number of the first request of the measured part.
    first_measured: u64,
}

impl Schedule {
    /// Arrivals of `measured` after those of `warm`, which are cut off at `warmup`.
    pub fn new(warm: Option<Arrivals>, measured: Arrivals, warmup: Duration) -> Self {
        Self { warm, measured, warmup, first_measured: 0 }
    }
}

impl Iterator for Schedule {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        if let Some(arrival) = self.warm.as_mut().and_then(Iterator::next) {
            if arrival.at < self.warmup {
                self.first_measured = arrival.index + 1;
                return Some(arrival);
            }
            self.warm = None;
        }
        let arrival = self.measured.next()?;
        Some(Arrival { index: arrival.index + self.first_measured, at: arrival.at + self.warmup })
    }
}

/// A request of this thread that is due at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub at: Instant,
    pub index: u64,
    /// Which of this thread's connections carries it.
    pub connection: usize,
}

/// The requests of a thread in one phase.
pub(crate) enum Source<R> {
    /// The schedule's requests and their times. `next` is this thread's next one.
    Open { schedule: Box<Schedule>, start: Instant, end: Duration, next: Option<Due> },
    /// As answers come back, requests `next`, `next + step`, ... until the given moment.
    Closed { depth: usize, next: u64, step: u64, until: Instant },
    /// As answers come back, `next` and the `rest` of a list.
    Listed { depth: usize, next: Option<R>, rest: Box<dyn Iterator<Item = R> + Send> },
}

impl<R: Copy> Source<R> {
    /// These requests, `depth` under way at a time.
    pub fn listed(depth: usize, mut requests: impl Iterator<Item = R> + Send + 'static) -> Self {
        Self::Listed { depth, next: requests.next(), rest: Box::new(requests) }
    }

    /// Requests under way per connection that this source keeps up; none if it goes by the clock.
    pub fn depth(&self) -> Option<usize> {
        match self {
            Self::Open { .. } => None,
            Self::Closed { depth, .. } | Self::Listed { depth, .. } => Some(*depth),
        }
    }

    /// The next request of a closed loop.
    pub fn follow<P: Protocol<Request = R>>(&mut self, protocol: &P, now: Instant) -> Option<R> {
        match self {
            Self::Closed { next, step, until, .. } if now < *until => {
                let request = protocol.request(*next);
                *next += *step;
                Some(request)
            }
            Self::Listed { next, rest, .. } => std::mem::replace(next, rest.next()),
            _ => None,
        }
    }

    /// True if nothing more will be sent.
    pub fn is_exhausted(&self, now: Instant) -> bool {
        match self {
            Self::Open { next, .. } => next.is_none(),
            Self::Closed { until, .. } => now >= *until,
            Self::Listed { next, .. } => next.is_none(),
        }
    }

    /// Moves on to this thread's next scheduled request. Connection c of all belongs to thread c %
    /// lanes.
    pub fn advance<P: Protocol<Request = R>>(
        &mut self,
        protocol: &P,
        connections: u32,
        lane: u32,
        lanes: u32,
    ) {
        let Self::Open { schedule, start, end, next } = self else { return };
        *next = schedule.take_while(|arrival| arrival.at < *end).find_map(|arrival| {
            let connection = protocol.connection(arrival.index, connections);
            (connection % lanes == lane).then(|| Due {
                at: *start + arrival.at,
                index: arrival.index,
                connection: (connection / lanes) as usize,
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Items;
    use crate::protocol::Asks as _;
    use machine::Rate;
    use workload::{ArrivalKind, Profile, Request};

    fn source() -> Source<Request> {
        let arrivals =
            |rate| Arrivals::new(ArrivalKind::Poisson, Profile::constant(Rate::per_second(rate)).unwrap(), 5);
        let warmup = Duration::from_millis(100);
        let schedule = Schedule::new(Some(arrivals(1000.0)), arrivals(5000.0), warmup);
        Source::Open {
            schedule: Box::new(schedule),
            start: Instant::ZERO,
            end: Duration::from_secs(1),
            next: None,
        }
    }

    fn drain(lane: u32, lanes: u32) -> Vec<(u64, u64, u32)> {
        let protocol = Items::default().protocol().unwrap();
        let mut source = source();
        let mut taken = Vec::new();
        loop {
            source.advance(&protocol, 12, lane, lanes);
            let Source::Open { next: Some(due), .. } = &source else { return taken };
            taken.push((due.index, due.at.as_nanos(), due.connection as u32 * lanes + lane));
        }
    }

    #[test]
    fn threads_share_one_stream_whatever_their_number() {
        let whole = drain(0, 1);
        for lanes in [2, 3, 12] {
            let mut parts: Vec<_> = (0..lanes).flat_map(|lane| drain(lane, lanes)).collect();
            parts.sort_unstable();
            assert_eq!(parts, whole, "{lanes}");
        }
    }

    #[test]
    fn the_warm_up_comes_first_and_requests_are_numbered_through() {
        let whole = drain(0, 1);
        assert!(whole.iter().enumerate().all(|(n, (index, ..))| n as u64 == *index));
        assert!(whole.windows(2).all(|w| w[0].1 <= w[1].1));
        let warm = whole.iter().filter(|(_, at, _)| *at < 100_000_000).count();
        assert!((60..140).contains(&warm), "{warm}");
        assert!((4_200..4_800).contains(&(whole.len() - warm)), "{}", whole.len());
    }
}
