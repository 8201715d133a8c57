//! How many requests come, and how irregularly.
//!
//! Arrivals are counted in *blocks* of sixteen. The spread of the blocks' lengths gives the irregularity: for n gaps in
//! a row, var(sum) / (n mean^2) is the squared coefficient of variation of a gap if gaps are independent, and more if
//! short ones come together; so bursts of a dozen requests show where the gaps alone would not tell. What it costs is
//! one addition per arrival and a few per block. The last one to two blocks tell the rate of this moment.
//!
//! Rate and irregularity are kept from window to window, the older counting half, for as long as the rate does not
//! change by more than chance explains; when it does, the older is forgotten.

use machine::Instant;
use serde::{Deserialize, Serialize};

/// Gaps in a block [D]: bursts shorter than this are seen as such.
const BLOCK: u32 = 16;
/// A rate has changed when it is off by so many standard deviations [D].
const SURPRISE: f64 = 4.0;
/// The most irregular that a plan is made for; beyond it is a load that switches on and off, which is for the surge [D].
const MOST_SCV: f64 = 4.0;
/// A load has stopped if nothing came for so many mean gaps [D].
const SILENCE: f64 = 30.0;

/// What has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Arrivals {
    in_block: u32,
    last: Instant,
    block_began: Instant,
    /// The block before it began; not there after a pause.
    before_began: Option<Instant>,
    /// Of this window: when it began, and how much of the block was there already.
    began: Instant,
    carried: u32,
    window: Counts,
    older: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Counts {
    arrivals: f64,
    span_ns: f64,
    blocks: f64,
    block_ns: f64,
    block_ns_squared: f64,
}

impl Counts {
    fn rate(&self) -> f64 {
        self.arrivals / self.span_ns.max(1.0)
    }

    fn and_half_of(&self, older: &Self) -> Self {
        Self {
            arrivals: self.arrivals + 0.5 * older.arrivals,
            span_ns: self.span_ns + 0.5 * older.span_ns,
            blocks: self.blocks + 0.5 * older.blocks,
            block_ns: self.block_ns + 0.5 * older.block_ns,
            block_ns_squared: self.block_ns_squared + 0.5 * older.block_ns_squared,
        }
    }

    /// As if some blocks of a Poisson process had been seen besides.
    fn scv(&self) -> f64 {
        const PRIOR: f64 = 10.0;
        if self.blocks < 2.0 {
            return 1.0;
        }
        let mean = self.block_ns / self.blocks;
        let variance = (self.block_ns_squared / self.blocks - mean * mean).max(0.0);
        let scv = f64::from(BLOCK) * variance / (mean * mean).max(1.0);
        ((scv * self.blocks + PRIOR) / (self.blocks + PRIOR)).min(MOST_SCV)
    }
}

/// A load, in arrivals per nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Load {
    pub rate: f64,
    /// The same plus its uncertainty and its trend: what to be prepared for.
    pub prepared: f64,
    /// Irregularity; 1 for Poisson.
    pub scv: f64,
    /// The rate of the last window alone.
    pub latest: f64,
    /// That differs from the windows before by more than chance.
    pub changed: bool,
}

impl Arrivals {
    pub fn new(now: Instant) -> Self {
        let (window, older) = (Counts::default(), Counts::default());
        let (block_began, began) = (now, now);
        Self { in_block: 0, last: now, block_began, before_began: None, began, carried: 0, window, older }
    }

    /// One more.
    #[inline]
    pub fn record(&mut self, now: Instant) {
        self.last = now;
        self.in_block += 1;
        if self.in_block >= BLOCK {
            self.end_block(now);
        }
    }

    fn end_block(&mut self, now: Instant) {
        let length_ns = now.since(self.block_began).as_nanos() as f64;
        self.window.blocks += 1.0;
        self.window.block_ns += length_ns;
        self.window.block_ns_squared += length_ns * length_ns;
        self.in_block = 0;
        self.before_began = Some(self.block_began);
        self.block_began = now;
    }

    /// The rate of the last one to two blocks, and how many arrivals that is; `None` after a pause.
    pub fn at_present(&self, now: Instant) -> Option<(f64, u32)> {
        let since = self.before_began?;
        let count = BLOCK + self.in_block;
        Some((f64::from(count) / now.since(since).as_nanos().max(1) as f64, count))
    }

    /// At this rate something should have come long ago.
    pub fn is_silent(&self, now: Instant, rate: f64) -> bool {
        now.since(self.last).as_nanos() as f64 * rate > SILENCE
    }

    /// How many came in this window.
    pub fn count(&self) -> f64 {
        self.window.blocks * f64::from(BLOCK) + f64::from(self.in_block) - f64::from(self.carried)
    }

    /// The load is another: what came before is forgotten, but for the latest blocks.
    pub fn restart(&mut self, now: Instant) {
        (self.window, self.older) = (Counts::default(), Counts::default());
        (self.began, self.carried) = (now, self.in_block);
    }

    /// As `restart`, after a pause.
    pub fn resume(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// Ends the window; `z` standard deviations are added to what to be prepared for.
    pub fn close(&mut self, now: Instant, z: f64) -> Load {
        let mut window = self.window;
        window.arrivals = self.count();
        window.span_ns = now.since(self.began).as_nanos().max(1) as f64;
        let expected = self.older.rate() * window.span_ns;
        let chance = SURPRISE * (expected.max(window.arrivals).max(1.0) * window.scv().max(1.0)).sqrt();
        let known = self.older.span_ns > 0.0;
        let changed = known && (window.arrivals - expected).abs() > chance;
        let trend = if changed { (window.arrivals - expected) / window.span_ns } else { 0.0 };
        let all = if changed { window } else { window.and_half_of(&self.older) };
        (self.window, self.older) = (Counts::default(), all);
        (self.began, self.carried) = (now, self.in_block);
        let (rate, scv) = (all.rate(), all.scv());
        let deviation = (all.arrivals.max(1.0) * scv).sqrt() / all.span_ns;
        Load { rate, prepared: rate + trend.max(0.0) + z * deviation, scv, latest: window.rate(), changed }
    }
}
