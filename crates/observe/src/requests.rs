//! Requests of an unmodified server: how many, how long, and how much of it was waiting.
//!
//! ```text
//!   interrupt CPU idle | its exit | network work | socket: queue + wake-up | the server's own work | reply
//!                      |-interrupt-|             |-------- waiting --------|------- service -------|
//!                                                |------------------- response --------------------|
//! ```
//!
//! Times are from the first byte in to the first byte out, by the programs of `linux::probes`, and
//! hold no time outside of this machine. A client that measures them itself sees more: its own
//! wake-up, the wire, and, if it keeps to a schedule, the time that a request waited to be sent.
//!
//! Invariants:
//! - A time that the way of watching cannot tell is `None`.
//! - `response = waiting + service` for each request, so for the means; not for percentiles.

use hdrhistogram::Histogram;
use linux::Root;
use linux::probes::{
    ALARM_WINDOW, BpfError, Notifier, Pulse, RequestAlarm, RequestCounts, RequestProgram, RequestTimes,
    RequestWay, Watched, WindowCounts,
};
use linux::service::Service;
use machine::{CpuId, Duration, Instant, Rate};
use std::collections::BTreeMap;

/// A service's requests over some time.
#[derive(Clone, Debug)]
pub struct RequestPattern {
    pub elapsed: Duration,
    pub way: RequestWay,
    pub requests: u64,
    /// The timed requests: percentiles rest on them. Where requests are many each timed one stands
    /// for several, so that the histograms hold all.
    pub timed: u64,
    /// Times that data came while a request of its connection was under way and was taken as part
    /// of it: clients that do not wait for replies, or long requests. Requests that a client sends in one
    /// piece are one, and are not told of.
    pub merged: u64,
    /// Times that there was no memory to follow a connection, so that its requests are missing.
    pub unfit: u64,
    pub response: Option<Histogram<u64>>,
    /// From taken to replied: the server's own work.
    pub service: Option<Histogram<u64>>,
    /// From ready to taken: the queue, and waking the server.
    pub waiting: Option<Histogram<u64>>,
    /// Before the socket: an idle CPU's way out of its state to its network work.
    pub interrupt: Option<Histogram<u64>>,
    /// Packets whose idle CPU told its waking only afterwards, so that it could not be timed.
    pub wakes_hidden: u64,
}

impl RequestPattern {
    pub fn rate(&self) -> Rate {
        Rate::of(self.requests, self.elapsed)
    }
}

/// A percentile of a histogram of nanoseconds; `None` if it holds nothing.
pub fn percentile(times: &Histogram<u64>, percent: f64) -> Option<Duration> {
    (!times.is_empty()).then(|| Duration::from_nanos(times.value_at_percentile(percent)))
}

/// Watches the requests of one service.
#[derive(Debug)]
pub struct RequestWatch {
    program: RequestProgram,
    since: Instant,
    last: BTreeMap<CpuId, RequestCounts>,
    total: RequestPattern,
    windows_since: Option<Instant>,
}

impl RequestWatch {
    /// Starts to watch `service`, and says why better ways were not taken.
    pub fn open(
        root: &Root,
        service: &Service,
        now: Instant,
    ) -> (Result<Self, BpfError>, Vec<(RequestWay, BpfError)>) {
        let watched = Watched {
            ports: service.ports.iter().copied().collect(),
            processes: service.processes.iter().copied().collect(),
        };
        let (program, failed) = RequestProgram::load(root, &watched);
        (program.map(|program| Self::with(program, now)), failed)
    }

    fn with(program: RequestProgram, now: Instant) -> Self {
        let total = nothing(program.way());
        Self { program, since: now, last: BTreeMap::new(), total, windows_since: None }
    }

    /// The requests since the last call, or since this was opened.
    pub fn read(&mut self, now: Instant) -> RequestPattern {
        let mut seen = nothing(self.program.way());
        seen.elapsed = now.since(self.since) - self.total.elapsed;
        for counts in self.program.read() {
            let before = self.last.get(&counts.cpu);
            take(&mut seen, before, &counts);
            self.last.insert(counts.cpu, counts);
        }
        add(&mut self.total, &seen);
        seen
    }

    /// Whether the programs are at work, and the peak since [`Self::expect`]; once an epoch.
    pub fn pulse(&mut self) -> Pulse {
        self.program.pulse()
    }

    /// So many arrivals within a window ring the bell from now on, once; the number that such an
    /// alarm bears.
    pub fn expect(&mut self, arrivals: Option<u64>, batch: u64) -> Result<u64, BpfError> {
        self.program.expect(arrivals, batch)
    }

    /// Counts arrivals in windows from now on. `rate`, the last that was seen, bounds the batch of a
    /// CPU: batches vary the counts of neighbours by less than a tenth of Poisson's variance.
    pub fn count_windows(&mut self, now: Instant, rate: Rate) -> Result<(), BpfError> {
        self.windows_since.get_or_insert(now);
        let a_cpu = rate.as_per_second() * ALARM_WINDOW.as_secs_f64() / self.last.len().max(1) as f64;
        self.program.count_windows((0.6 * a_cpu).sqrt() as u64)
    }

    /// The counts, and the number of windows that they are of; `None` before
    /// [`Self::count_windows`].
    pub fn windows(&self, now: Instant) -> Option<(WindowCounts, u64)> {
        let windows = now.since(self.windows_since?).as_nanos() / ALARM_WINDOW.as_nanos();
        Some((self.program.windows(), windows))
    }

    /// Calls `heard` at each alarm, on a thread of its own, until the bell is dropped.
    pub fn notifier(&self, heard: impl FnMut(RequestAlarm) + Send + 'static) -> Result<Notifier, BpfError> {
        self.program.notifier(heard)
    }

    /// Takes the programs off their events, as another process might; for tests that such a loss is
    /// noticed.
    pub fn sever(&mut self) {
        self.program.sever();
    }

    /// The sum of all readings so far.
    pub fn total(&self) -> &RequestPattern {
        &self.total
    }
}

fn nothing(way: RequestWay) -> RequestPattern {
    let here = |ways: &[RequestWay]| ways.contains(&way).then(times);
    RequestPattern {
        elapsed: Duration::ZERO,
        way,
        requests: 0,
        timed: 0,
        merged: 0,
        unfit: 0,
        response: here(&[RequestWay::Sockets, RequestWay::Packets]),
        service: here(&[RequestWay::Sockets, RequestWay::Calls]),
        waiting: here(&[RequestWay::Sockets]),
        interrupt: here(&[RequestWay::Sockets]),
        wakes_hidden: 0,
    }
}

/// From 256 ns to a minute, within a hundredth: the kernel's buckets are a sixtieth wide.
fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("the bounds and two digits are allowed")
}

fn take(seen: &mut RequestPattern, before: Option<&RequestCounts>, now: &RequestCounts) {
    let grown = |field: fn(&RequestCounts) -> u64| field(now).saturating_sub(before.map_or(0, field));
    seen.requests += grown(|counts| counts.requests);
    seen.timed += grown(|counts| counts.timed);
    seen.merged += grown(|counts| counts.merged);
    seen.unfit += grown(|counts| counts.unfit);
    seen.wakes_hidden += grown(|counts| counts.wakes_hidden);
    let record = |into: &mut Option<Histogram<u64>>, which: fn(&RequestCounts) -> Option<&RequestTimes>| {
        let (Some(into), Some(now)) = (into.as_mut(), which(now)) else { return };
        let before = before.and_then(which);
        for (bucket, &count) in now.counts.iter().enumerate() {
            let count = count.wrapping_sub(before.map_or(0, |before| before.counts[bucket]));
            if count > 0 {
                let (from, to) = RequestTimes::bounds(bucket);
                let to = to.min(from + from + Duration::from_nanos(256));
                let middle = from.as_nanos().midpoint(to.as_nanos());
                into.saturating_record_n(middle, count.into());
            }
        }
    };
    record(&mut seen.response, |counts| counts.response.as_ref());
    record(&mut seen.service, |counts| counts.service.as_ref());
    record(&mut seen.waiting, |counts| counts.waiting.as_ref());
    record(&mut seen.interrupt, |counts| counts.interrupt.as_ref());
}

fn add(total: &mut RequestPattern, seen: &RequestPattern) {
    total.elapsed += seen.elapsed;
    total.requests += seen.requests;
    total.timed += seen.timed;
    total.merged += seen.merged;
    total.unfit += seen.unfit;
    total.wakes_hidden += seen.wakes_hidden;
    let both = [
        (&mut total.response, &seen.response),
        (&mut total.service, &seen.service),
        (&mut total.waiting, &seen.waiting),
        (&mut total.interrupt, &seen.interrupt),
    ];
    for (total, seen) in both {
        if let (Some(total), Some(seen)) = (total.as_mut(), seen) {
            total.add(seen).expect("both have the same bounds");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(requests: u64, bucket: usize, count: u32) -> RequestCounts {
        let mut times = RequestTimes { counts: vec![0; RequestTimes::BUCKETS], total: Duration::ZERO };
        times.counts[bucket] = count;
        RequestCounts {
            cpu: CpuId(0),
            requests,
            timed: requests,
            merged: 1,
            unfit: 0,
            response: Some(times.clone()),
            service: Some(times.clone()),
            waiting: Some(times),
            interrupt: None,
            wakes_hidden: 0,
        }
    }

    #[test]
    fn a_reading_is_the_difference_to_the_one_before_even_where_counts_wrap() {
        let mut seen = nothing(RequestWay::Sockets);
        let (before, now) = (counts(10, 300, u32::MAX - 1), counts(15, 300, 3));
        take(&mut seen, Some(&before), &now);
        assert_eq!((seen.requests, seen.merged), (5, 0));
        let response = seen.response.unwrap();
        assert_eq!(response.len(), 5);
        let (from, to) = RequestTimes::bounds(300);
        let p50 = percentile(&response, 50.0).unwrap();
        assert!(p50 + p50.scale(0.01) >= from && p50 <= to + to.scale(0.01), "{from} {p50} {to}");
        assert_eq!(percentile(&times(), 50.0), None);
    }

    #[test]
    fn what_a_way_cannot_see_is_missing() {
        let mut seen = nothing(RequestWay::Packets);
        take(&mut seen, None, &counts(3, 9, 3));
        assert!(seen.response.is_some() && seen.service.is_none() && seen.waiting.is_none());
        let seen = nothing(RequestWay::Calls);
        assert!(seen.response.is_none() && seen.service.is_some());
    }

    #[test]
    fn times_beyond_all_bounds_are_counted_at_the_end() {
        let mut seen = nothing(RequestWay::Sockets);
        take(&mut seen, None, &counts(1, RequestTimes::BUCKETS - 1, 1));
        assert_eq!(seen.response.unwrap().len(), 1);
    }
}
