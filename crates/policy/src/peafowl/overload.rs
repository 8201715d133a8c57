//! Seeing an overload before the next report does.
//!
//! A burst must have all the workers it needs within about two milliseconds, so a worker judges
//! itself at every request, in a few nanoseconds. It keeps two leaky buckets: each request pours
//! one in, and time drains them at a multiple of the limit. A bucket above its depth is an
//! overload; it ends when the bucket is half empty again.
//!
//! ```text
//!            drain        depth   sees
//!   burst    1.25 limit      40   twice the limit after ~107 requests, ten times after ~46
//!   swell    1.00 limit     150   a load little above the limit, after 150 / (excess) seconds
//! ```
//!
//! A bucket is scale free: depth is in requests, and the chance that Poisson arrivals at a fraction
//! r of the drain fill it falls as exp(-theta depth), where r (e^theta - 1) = theta, whatever the
//! rate. For pipelined requests, which come in lumps, the depth grows with the size-weighted mean
//! lump, by which the noise grows.
//!
//! **Stalls.** When the CPU was taken away for a while, the requests that arrived meanwhile come
//! all at once and look like a burst. The gap before them gives them away: at the known load it
//! should have held `load x gap` requests. That many are credited, for no more than
//! [`Params::stall_memory`], within which the credit fades again. At low load the credit is small
//! whatever the gap, so that a true burst is seen at once.

use super::Params;
use machine::{Instant, Rate};
use serde::{Deserialize, Serialize};

/// The two buckets of one worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Detector {
    burst: Bucket,
    swell: Bucket,
    /// Mean number of requests served at once, each request counted alike.
    lump: f64,
    last: Instant,
    load_per_ns: f64,
    stall_memory_ns: f64,
    armed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Bucket {
    level: f64,
    drain_per_ns: f64,
    depth: f64,
    over: bool,
}

impl Bucket {
    #[inline]
    fn pour(&mut self, requests: f64, gap_ns: f64, earned: f64, fade: f64, lump: f64) -> bool {
        let floor = earned.min(self.level * fade);
        self.level = (self.level - self.drain_per_ns * gap_ns).max(floor) + requests;
        let depth = self.depth * lump;
        if self.level > depth {
            self.over = true;
            // No deeper, so that the end of the overload is seen as soon as its start.
            self.level = self.level.min(1.5 * depth);
        } else if self.over && self.level < 0.5 * depth {
            self.over = false;
        }
        self.over
    }
}

impl Detector {
    /// Sets the drains after the limit or the load changed.
    pub(super) fn arm(&mut self, limit: Option<Rate>, load: Rate, params: &Params) {
        let limit_per_ns = limit.map_or(0.0, |limit| limit.as_per_second() / 1e9);
        self.burst.drain_per_ns = params.burst_drain * limit_per_ns;
        self.burst.depth = params.burst_depth;
        self.swell.drain_per_ns = params.swell_drain * limit_per_ns;
        self.swell.depth = params.swell_depth;
        self.load_per_ns = load.as_per_second() / 1e9;
        self.stall_memory_ns = params.stall_memory.as_nanos().max(1) as f64;
        self.lump = self.lump.max(1.0);
        self.armed = limit_per_ns > 0.0;
    }

    /// `requests` were served at `now`; true if the worker is overloaded.
    #[inline]
    pub(super) fn record(&mut self, now: Instant, requests: u32) -> bool {
        if !self.armed {
            return false;
        }
        let gap_ns = now.since(self.last).as_nanos() as f64;
        self.last = self.last.max(now);
        let requests = f64::from(requests);
        self.lump = (self.lump + (requests - self.lump) * (requests / 256.0).min(1.0)).max(1.0);
        // The work that the gap should have held at the known load, and the rest of earlier credit.
        let stall_ns = gap_ns.min(self.stall_memory_ns);
        let fade = 1.0 - stall_ns / self.stall_memory_ns;
        let earned = -self.load_per_ns * stall_ns;
        let burst =
            self.burst.drain_per_ns > 0.0 && self.burst.pour(requests, gap_ns, earned, fade, self.lump);
        let swell =
            self.swell.drain_per_ns > 0.0 && self.swell.pour(requests, gap_ns, earned, fade, self.lump);
        burst | swell
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Duration;

    const LIMIT: f64 = 50_000.0;

    fn armed(load: f64) -> Detector {
        let mut detector = Detector::default();
        detector.arm(Some(Rate::per_second(LIMIT)), Rate::per_second(load), &Params::default());
        detector
    }

    /// Requests at a steady rate from `start`; how many until it trips.
    fn trips_after(detector: &mut Detector, start: Instant, rate: f64, lump: u32, most: u64) -> Option<u64> {
        (1..=most).find(|&count| {
            let elapsed = Duration::from_secs_f64(count as f64 * f64::from(lump) / rate);
            detector.record(start + elapsed, lump)
        })
    }

    fn at(secs: f64) -> Instant {
        Instant::ZERO + Duration::from_secs_f64(secs)
    }

    #[test]
    fn large_overloads_are_seen_within_some_fifty_requests() {
        assert!(trips_after(&mut armed(2_500.0), at(1.0), 2.0 * LIMIT, 1, 300).unwrap() < 250);
        assert!(trips_after(&mut armed(2_500.0), at(1.0), 6.0 * LIMIT, 1, 200).unwrap() < 115);
        assert!(trips_after(&mut armed(2_500.0), at(1.0), 10.0 * LIMIT, 1, 200).unwrap() < 105);
    }

    #[test]
    fn a_little_overload_is_seen_in_the_end() {
        // All that a nearly saturated worker can serve may be a tenth above its limit.
        assert!(trips_after(&mut armed(0.9 * LIMIT), at(1.0), 1.1 * LIMIT, 1, 5_000).is_some());
    }

    #[test]
    fn the_limit_itself_is_no_overload() {
        assert_eq!(trips_after(&mut armed(LIMIT), at(1.0), 0.999 * LIMIT, 1, 1_000_000), None);
        assert_eq!(trips_after(&mut armed(LIMIT), at(1.0), 0.999 * LIMIT, 64, 100_000), None);
    }

    #[test]
    fn an_overload_ends_when_the_load_does() {
        let mut detector = armed(0.5 * LIMIT);
        trips_after(&mut detector, at(1.0), 4.0 * LIMIT, 1, 1_000).unwrap();
        let end = detector.last;
        let calm = (1..1_000_u32).find(|&count| {
            !detector.record(end + Duration::from_secs_f64(f64::from(count) / (0.5 * LIMIT)), 1)
        });
        assert!(calm.unwrap() < 150, "{calm:?}");
    }

    #[test]
    fn without_a_limit_nothing_is_too_much() {
        let mut detector = Detector::default();
        detector.arm(None, Rate::ZERO, &Params::default());
        assert_eq!(trips_after(&mut detector, at(1.0), 1e9, 1, 10_000), None);
    }

    #[test]
    fn a_heap_after_a_stall_is_no_burst_but_the_same_heap_from_nowhere_is() {
        let heap = (0.005 * 0.7 * LIMIT) as u32;
        let mut busy = armed(0.7 * LIMIT);
        busy.record(at(1.0), 1);
        assert!(!(0..heap).any(|request| busy.record(at(1.005 + f64::from(request) * 5e-6), 1)));
        let mut calm = armed(0.02 * LIMIT);
        calm.record(at(1.0), 1);
        assert!((0..heap).any(|request| calm.record(at(1.005 + f64::from(request) * 5e-6), 1)));
    }

    #[test]
    fn a_long_silence_earns_no_more_than_a_stall() {
        let mut detector = armed(2_500.0);
        detector.record(at(1.0), 1);
        assert!(trips_after(&mut detector, at(3600.0), 6.0 * LIMIT, 1, 200).unwrap() < 110);
    }

    #[test]
    fn poisson_arrivals_at_nine_tenths_never_trip_it() {
        // Ten million requests, some singly, some in pipelines of sixteen.
        for lump in [1, 16] {
            let mut detector = armed(0.9 * LIMIT);
            let mut state = 0x1234_5678_9abc_def1_u64;
            let mut now = 0.0;
            for _ in 0..10_000_000 / lump {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let chance = (state >> 11) as f64 / (1_u64 << 53) as f64;
                now += -(1.0 - chance).ln() * f64::from(lump) / (0.9 * LIMIT);
                assert!(!detector.record(at(now), lump), "lump {lump}, at {now} s");
            }
        }
    }
}
