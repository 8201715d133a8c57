//! Seeing an overload before the next report does.
//!
//! A burst must have all the workers it needs within about two milliseconds, so a worker judges itself at every
//! request, in a few nanoseconds. It keeps two leaky buckets: each request pours one in, and time drains them at a
//! multiple of the limit. A bucket above its depth is an overload; it ends when the bucket is half empty again.
//!
//! ```text
//!            drain        depth   sees
//!   burst    1.25 limit      40   twice the limit after ~54 requests, ten times after ~46
//!   swell    1.00 limit     150   a load little above the limit, after 150 / (excess) seconds
//! ```
//!
//! A bucket is scale free: depth is in requests, and the chance that Poisson arrivals at a fraction r of the drain
//! fill it falls as exp(-theta depth), where r (e^theta - 1) = theta, whatever the rate. For pipelined requests,
//! which come in lumps, the depth grows with the size-weighted mean lump, by which the noise grows.
//!
//! **Stalls.** When the CPU was taken away for a while, the requests that arrived meanwhile come all at once and look
//! like a burst. The gap before them gives them away: at the known load it should have held `load x gap` requests.
//! That many are credited, and the credit fades within [`Params::stall_memory`]. At low load gaps are natural and the
//! credit is a fraction of one request, so that a true burst is seen at once.

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
    credit_fade_per_ns: f64,
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
        self.credit_fade_per_ns = 1.0 / params.stall_memory.as_nanos().max(1) as f64;
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
        // What the gap should have held at the known load, and what is left of earlier credit.
        let fade = (1.0 - gap_ns * self.credit_fade_per_ns).max(0.0);
        let earned = -self.load_per_ns * gap_ns;
        let burst =
            self.burst.drain_per_ns > 0.0 && self.burst.pour(requests, gap_ns, earned, fade, self.lump);
        let swell =
            self.swell.drain_per_ns > 0.0 && self.swell.pour(requests, gap_ns, earned, fade, self.lump);
        burst | swell
    }
}
