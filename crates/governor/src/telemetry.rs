//! What a service does, epoch by epoch.
//!
//! The kernel's programs of `host::bpf` count requests and their times. An epoch of a quiet service holds few of them, and a
//! percentile of few is chance: a p99 wants a thousand (ten beyond it). So the tail is taken over as many of the last epochs as
//! it needs, and is *missing* where even a minute holds too few. A missing tail holds the policy; it is never zero.
//!
//! What always holds:
//! - No tail spans a change of the service's CPUs: [`Window::forget`] begins anew.
//! - A service that is alive and asked nothing has a rate of zero. One that cannot be seen has none.
//! - To each response the mean delay of the CPU that took the interrupt is added, since it lies before the socket. Percentiles
//!   of two parts do not add up; the mean of the smaller part is the closest that can be said.

use hdrhistogram::Histogram;
use host::Root;
use host::bpf::{BpfError, RequestWay};
use host::service::Service;
use machine::{Duration, Goal, Instant, ServiceReading};
use observe::requests::{RequestPattern, RequestWatch, percentile};
use std::collections::VecDeque;

/// Watches one service.
#[derive(Debug)]
pub struct Telemetry {
    watch: RequestWatch,
    window: Window,
}

impl Telemetry {
    /// Begins to watch. The second part says which better ways this kernel refused.
    pub fn open(
        root: &Root,
        service: &Service,
        goal: Option<Goal>,
        now: Instant,
    ) -> (Result<Self, BpfError>, Vec<(RequestWay, BpfError)>) {
        let (watch, refused) = RequestWatch::open(root, service, now);
        (watch.map(|watch| Self { watch, window: Window::new(goal) }), refused)
    }

    /// By what means it sees.
    pub fn way(&self) -> RequestWay {
        self.watch.total().way
    }

    /// Another goal from now on.
    pub fn set_goal(&mut self, goal: Option<Goal>) {
        self.window.goal = goal;
    }

    /// What happened since the last call, as a policy is told.
    pub fn read(&mut self, now: Instant) -> ServiceReading {
        let pattern = self.watch.read(now);
        self.window.take(&pattern)
    }

    /// What happened until now belongs to how things were: the next reading begins here.
    pub fn forget(&mut self, now: Instant) {
        self.watch.read(now);
        self.window.forget();
    }
}

/// The response times of the last epochs.
#[derive(Debug)]
pub struct Window {
    goal: Option<Goal>,
    epochs: VecDeque<Histogram<u64>>,
}

impl Window {
    /// Empty.
    pub fn new(goal: Option<Goal>) -> Self {
        Self { goal, epochs: VecDeque::new() }
    }

    /// Takes in an epoch, and tells it.
    pub fn take(&mut self, pattern: &RequestPattern) -> ServiceReading {
        let rate = Some(pattern.rate());
        // Where only the server's own work can be seen, that is what there is; `Telemetry::way` says so.
        let Some(times) = pattern.response.as_ref().or(pattern.service.as_ref()) else {
            return ServiceReading { rate, ..ServiceReading::default() };
        };
        self.epochs.push_back(times.clone());
        if self.epochs.len() > EPOCHS {
            self.epochs.pop_front();
        }
        let before = pattern.interrupt.as_ref().filter(|times| !times.is_empty());
        let before = before.map_or(Duration::ZERO, |times| Duration::from_nanos(times.mean() as u64));
        let at = |quantile: f64, samples: u64| {
            let enough = self.enough(samples)?;
            Some(percentile(&enough, quantile * 100.0)? + before)
        };
        ServiceReading {
            rate,
            mean: (!times.is_empty()).then(|| Duration::from_nanos(times.mean() as u64) + before),
            p95: at(0.95, 200),
            p99: at(0.99, 1_000),
            tail: self.goal.and_then(|goal| at(goal.quantile, goal.samples())),
        }
    }

    /// The service's CPUs have changed.
    pub fn forget(&mut self) {
        self.epochs.clear();
    }

    /// The times of as many of the last epochs as hold so many of them.
    fn enough(&self, samples: u64) -> Option<Histogram<u64>> {
        let mut together: Option<Histogram<u64>> = None;
        for epoch in self.epochs.iter().rev() {
            match &mut together {
                None => together = Some(epoch.clone()),
                Some(together) => together.add(epoch).expect("all have the same bounds"),
            }
            if together.as_ref().is_some_and(|together| together.len() >= samples) {
                return together;
            }
        }
        None
    }
}

/// So many epochs are kept: what is a minute old says nothing about now.
const EPOCHS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Rate;

    fn epoch(times_us: impl IntoIterator<Item = u64>) -> RequestPattern {
        let mut response = Histogram::new_with_bounds(1, 60_000_000_000, 2).unwrap();
        times_us.into_iter().for_each(|us| response.record(us * 1000).unwrap());
        RequestPattern {
            elapsed: Duration::from_secs(1),
            way: RequestWay::Sockets,
            requests: response.len(),
            merged: 0,
            unfit: 0,
            response: Some(response),
            service: None,
            waiting: None,
            interrupt: None,
            wakes_hidden: 0,
        }
    }

    fn window() -> Window {
        Window::new(Some("500us@p99".parse().unwrap()))
    }

    #[test]
    fn a_tail_is_missing_until_there_are_enough_and_then_spans_no_more_than_it_needs() {
        let mut window = window();
        for _ in 0..9 {
            let reading = window.take(&epoch((0..100).map(|_| 100)));
            assert_eq!((reading.rate, reading.tail), (Some(Rate::per_second(100.0)), None));
        }
        assert!(window.take(&epoch((0..100).map(|_| 100))).tail.is_some());
        // A thousand at once: the slow ones before are past.
        window.take(&epoch((0..500).map(|_| 9_000)));
        let tail = window.take(&epoch((0..1000).map(|_| 100))).tail.unwrap();
        assert!(tail < Duration::from_micros(110), "{tail}");
    }

    #[test]
    fn a_change_begins_anew() {
        let mut window = window();
        window.take(&epoch((0..2000).map(|_| 100)));
        window.forget();
        assert_eq!(window.take(&epoch((0..900).map(|_| 100))).tail, None);
    }

    #[test]
    fn silence_is_a_rate_of_zero_and_no_tail() {
        let mut window = window();
        let reading = window.take(&epoch([]));
        assert_eq!(reading, ServiceReading { rate: Some(Rate::ZERO), ..ServiceReading::default() });
    }

    #[test]
    fn the_interrupts_delay_is_added() {
        let mut window = window();
        let mut slow = epoch((0..1000).map(|_| 100));
        slow.interrupt = epoch([50; 10]).response;
        let tail = window.take(&slow).tail.unwrap();
        assert!((Duration::from_micros(148)..Duration::from_micros(153)).contains(&tail), "{tail}");
    }
}
