//! How many requests come, and how irregularly.
//!
//! Arrivals are counted in *blocks* of sixteen. The spread of the blocks' lengths gives the
//! irregularity: for n gaps in a row, var(sum) / (n mean^2) is the squared coefficient of variation
//! of a gap if gaps are independent, and more if short ones come together; so bursts of a dozen
//! requests show where the gaps alone would not tell. It costs one addition per arrival and a few
//! per block. The last one to two blocks tell the rate of this moment.
//!
//! Four blocks in a row tell how high the rate was at its peak.
//!
//! Rate and irregularity are kept from window to window, the older counting half, for as long as
//! the rate does not change by more than chance explains; when it does, the older is forgotten.

use machine::Instant;
use serde::{Deserialize, Serialize};

/// Gaps in a block \[D\]: bursts shorter than this are seen as such.
const BLOCK: u32 = 16;
/// Blocks that a peak lasts \[D\]: 64 arrivals, 12 % of chance.
const PEAK_BLOCKS: u32 = 4;
/// A rate has changed when it is off by so many standard deviations \[D\].
const SURPRISE: f64 = 4.0;
/// The most irregular that a plan is made for; beyond it is a load that switches on and off, which
/// is for the surge \[D\].
const MOST_SCV: f64 = 4.0;
/// A window has so many arrivals, unless they stop \[D\]: they tell a rate to 12 %. A search engine
/// with four requests a second has as many in sixteen seconds.
const WINDOW_LEAST: f64 = 64.0;
/// A load has stopped if nothing came for so many mean gaps \[D\].
const SILENCE: f64 = 30.0;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Arrivals {
    in_block: u32,
    last: Instant,
    block_began: Instant,
    /// The block before it began; not there after a pause.
    before_began: Option<Instant>,
    /// Of the peak that is being measured, and the highest rate in this window.
    peak_blocks: u32,
    peak_began: Instant,
    peak: f64,
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
    /// The same plus its uncertainty and its trend: the rate to be prepared for.
    pub prepared: f64,
    /// Irregularity of the arrivals; 1 for Poisson.
    pub scv: f64,
    /// The rate of the last window alone.
    pub latest: f64,
    /// That differs from the windows before by more than chance.
    pub changed: bool,
    /// The highest rate within it.
    pub peak: f64,
}

impl Arrivals {
    pub fn new(now: Instant) -> Self {
        let (window, older) = (Counts::default(), Counts::default());
        Self {
            in_block: 0,
            last: now,
            block_began: now,
            before_began: None,
            peak_blocks: 0,
            peak_began: now,
            peak: 0.0,
            began: now,
            carried: 0,
            window,
            older,
        }
    }

    #[inline]
    pub fn record(&mut self, now: Instant) {
        self.last = now;
        self.in_block += 1;
        if self.in_block >= BLOCK {
            self.end_block(now);
        }
    }

    /// So many came since the last time: their gaps are not known.
    pub fn record_all(&mut self, now: Instant, count: u64) {
        if count > 0 {
            self.window.arrivals += count as f64;
            self.last = now;
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
        self.peak_blocks += 1;
        if self.peak_blocks == PEAK_BLOCKS {
            let span_ns = now.since(self.peak_began).as_nanos().max(1) as f64;
            self.peak = self.peak.max(f64::from(PEAK_BLOCKS * BLOCK) / span_ns);
            (self.peak_blocks, self.peak_began) = (0, now);
        }
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

    /// There was a window before this one.
    pub fn are_known(&self) -> bool {
        self.older.arrivals > 0.0
    }

    /// So few came that the window should go on: nothing says that they have stopped.
    pub fn are_too_few(&self, now: Instant) -> bool {
        let count = self.count();
        let rate = match self.are_known() {
            true => self.older.rate(),
            // A handful tells no rate.
            false if count < f64::from(BLOCK) => 0.0,
            false => count / self.last.since(self.began).as_nanos().max(1) as f64,
        };
        count < WINDOW_LEAST && !self.is_silent(now, rate)
    }

    /// How many came in this window.
    pub fn count(&self) -> f64 {
        let by_blocks = self.window.blocks * f64::from(BLOCK) + f64::from(self.in_block);
        self.window.arrivals + by_blocks - f64::from(self.carried)
    }

    /// The load is another: the blocks before are forgotten, but for the latest ones.
    pub fn restart(&mut self, now: Instant) {
        (self.window, self.older) = (Counts::default(), Counts::default());
        (self.began, self.carried) = (now, self.in_block);
    }

    /// As `restart`, after a pause.
    pub fn resume(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// Ends the window; `z` standard deviations are added to the rate to be prepared for.
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
        let peak = std::mem::take(&mut self.peak);
        let deviation = (all.arrivals.max(1.0) * scv).sqrt() / all.span_ns;
        Load {
            rate,
            prepared: rate + trend.max(0.0) + z * deviation,
            scv,
            latest: window.rate(),
            changed,
            peak,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;
    use machine::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    /// Arrivals for `millis` from `from` on with gaps of this mean, drawn by `gap` from a mean of
    /// 1; then the window ends.
    fn window(
        arrivals: &mut Arrivals,
        from: Instant,
        millis: u64,
        mean_us: f64,
        mut gap: impl FnMut() -> f64,
    ) -> Load {
        let mut at_ns = 0.0;
        loop {
            at_ns += mean_us * 1e3 * gap();
            if at_ns >= millis as f64 * 1e6 {
                return arrivals.close(from + Duration::from_millis(millis), 2.0);
            }
            arrivals.record(from + Duration::from_nanos(at_ns as u64));
        }
    }

    #[test]
    fn rate_and_irregularity_are_those_of_the_process() {
        // Poisson, regular, and four at a time.
        let mut random = Random::new(1);
        let mut erlang = Random::new(2);
        let (mut dozen, mut bursts) = (0, Random::new(3));
        let poisson =
            window(&mut Arrivals::new(Instant::ZERO), Instant::ZERO, 500, 10.0, || random.exponential());
        let regular = window(&mut Arrivals::new(Instant::ZERO), Instant::ZERO, 500, 10.0, || {
            (0..4).map(|_| erlang.exponential()).sum::<f64>() / 4.0
        });
        let bursty = window(&mut Arrivals::new(Instant::ZERO), Instant::ZERO, 500, 10.0, || {
            dozen += 1;
            if dozen % 4 == 0 { 4.0 * bursts.exponential() } else { 0.0 }
        });
        for (load, scv) in [(poisson, 1.0), (regular, 0.25), (bursty, 4.0)] {
            assert!((load.rate * 10e3 - 1.0).abs() < 0.03, "{load:?}");
            assert!((load.scv / scv - 1.0).abs() < 0.12, "{load:?} for {scv}");
            assert!(load.prepared > load.rate && load.prepared < load.rate * 1.05, "{load:?}");
        }
    }

    #[test]
    fn a_change_is_known_from_chance_and_forgets_what_was() {
        let mut random = Random::new(4);
        let mut arrivals = Arrivals::new(Instant::ZERO);
        let mut changes = 0;
        for second in 0..50 {
            let load =
                window(&mut arrivals, Instant::ZERO + SECOND * second, 1_000, 100.0, || random.exponential());
            changes += u32::from(load.changed);
        }
        assert_eq!(changes, 0);
        let now = Instant::ZERO + SECOND * 50;
        let load = window(&mut arrivals, now, 1_000, 80.0, || random.exponential());
        assert!(load.changed && (load.rate * 80e3 - 1.0).abs() < 0.05, "{load:?}");
        assert!(load.prepared > load.rate * 1.15, "a load that rises is expected to rise on: {load:?}");
        let load = window(&mut arrivals, now + SECOND, 1_000, 100.0, || random.exponential());
        assert!(load.changed && load.prepared < load.rate * 1.05, "{load:?}");
    }

    #[test]
    fn the_present_rate_and_the_peak_are_seen_within_a_few_blocks() {
        let mut arrivals = Arrivals::new(Instant::ZERO);
        assert_eq!(arrivals.at_present(Instant::ZERO), None);
        let mut now = Instant::ZERO;
        let mut go = |count: u64, gap_us: u64| {
            for _ in 0..count {
                now += Duration::from_micros(gap_us);
                arrivals.record(now);
            }
            arrivals.at_present(now).map(|(rate, count)| ((rate * 1e9).round() as u32, count))
        };
        assert_eq!(go(15, 100), None);
        assert_eq!(go(49, 100), Some((10_000, 16)));
        assert_eq!(go(40, 10), Some((100_000, 24)));
        assert_eq!(go(88, 10), Some((100_000, 16)));
        let load = arrivals.close(now, 0.0);
        assert_eq!((load.peak * 1e9).round(), 100_000.0);
    }

    #[test]
    fn silence_is_thirty_gaps_without_a_request() {
        let mut arrivals = Arrivals::new(Instant::ZERO);
        arrivals.record(Instant::from_nanos(1_000));
        let rate = 1e-4;
        assert!(!arrivals.is_silent(Instant::from_nanos(300_000), rate));
        assert!(arrivals.is_silent(Instant::from_nanos(302_000), rate));
        assert!(!arrivals.is_silent(Instant::from_nanos(302_000), 0.0));
    }
}
