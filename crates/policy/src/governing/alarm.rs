//! How much may arrive before the epoch's end is too far away.
//!
//! **Problem.** A service that was parked for its silence and gets all its requests at once has few
//! cores until the epoch ends, a second later. A program in the kernel can count arrivals in short
//! windows and ring at a threshold; which one? Too low, and a load that is merely lumpy never
//! sleeps; too high, and no core is woken.
//!
//! **Approach** \[ours; CARB's r_th between epochs\]. Compare like with like: not with the mean
//! rate, since requests come in lumps, but with the highest window of each of the last epochs.
//! Twice as much as ever lately is news. A peak that comes again within [`REMEMBERED`] epochs is
//! usual for this service: its tail has told, at the end of those epochs, whether the cores were
//! enough for it, and ringing at each lump would keep all cores awake for ever.
//!
//! Invariants:
//! - No threshold before an epoch was seen, and none where there is nothing to wake.
//! - It is at least [`FLOOR`], and at least [`JUMP`] times the highest window remembered: a load
//!   whose windows stay below twice their highest so far never rings.

use std::collections::VecDeque;

/// The highest windows of the last epochs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadSpikeDetector {
    peaks: VecDeque<u64>,
}

/// The settings of the program in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// So many arrivals in one window ring; `None`: nothing does.
    pub arrivals: Option<u64>,
    /// A CPU adds its arrivals to the window so many at a time.
    pub batch: u64,
}

impl LoadSpikeDetector {
    /// An epoch is over, and its highest window held so many arrivals. `wanted`: there are cores
    /// that an alarm would wake.
    pub fn handle_epoch(&mut self, peak: u64, wanted: bool) -> Expected {
        self.peaks.push_back(peak);
        if self.peaks.len() > REMEMBERED {
            self.peaks.pop_front();
        }
        let highest = self.peaks.iter().copied().max().unwrap_or(0);
        let arrivals = highest.saturating_mul(JUMP).max(FLOOR);
        Expected { arrivals: wanted.then_some(arrivals), batch: (arrivals / BATCHES).max(1) }
    }
}

/// Epochs whose highest windows are remembered.
pub const REMEMBERED: usize = 30;

/// Windows of a steady load differ by chance: with m arrivals in the mean the highest of thousands
/// is about m + 4 sqrt(m), so twice the highest is beyond all chance, and still reached within a
/// window by a load that doubles and a half.
pub const JUMP: u64 = 2;

/// In a window of 4.2 ms this is 7600 requests a second: less than one core of a server whose
/// requests take a tenth of a millisecond. Below it the end of the epoch is early enough, and a
/// health check that asks for ten pages at once is no alarm.
pub const FLOOR: u64 = 32;

/// CPUs share one counter, and add to it in parts of the threshold so small that it is met within a
/// sixty-fourth for each.
const BATCHES: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_service_that_was_silent_rings_at_the_floor() {
        let mut detector = LoadSpikeDetector::default();
        assert_eq!(detector.handle_epoch(0, true), Expected { arrivals: Some(FLOOR), batch: 1 });
    }

    #[test]
    fn nothing_is_wanted_where_nobody_can_be_woken() {
        let mut detector = LoadSpikeDetector::default();
        assert_eq!(detector.handle_epoch(500, false).arrivals, None);
        // But it was seen.
        assert_eq!(detector.handle_epoch(0, true).arrivals, Some(1000));
    }

    #[test]
    fn a_burst_is_news_again_after_a_while() {
        let mut detector = LoadSpikeDetector::default();
        detector.handle_epoch(400, true);
        for _ in 1..REMEMBERED {
            assert_eq!(detector.handle_epoch(0, true).arrivals, Some(800));
        }
        assert_eq!(detector.handle_epoch(0, true).arrivals, Some(FLOOR));
    }

    proptest! {
        /// Whatever its windows are, a load that repeats within the memory never rings once its
        /// highest was seen.
        #[test]
        fn a_load_that_repeats_never_rings(lump in prop::collection::vec(0_u64..1_000_000, 1..REMEMBERED)) {
            let mut detector = LoadSpikeDetector::default();
            for &peak in &lump {
                detector.handle_epoch(peak, true);
            }
            for &peak in lump.iter().cycle().take(200) {
                let expected = detector.handle_epoch(peak, true);
                // The next epoch is of the same kind, and even three quarters more would be too
                // little.
                let next = lump.iter().max().unwrap();
                prop_assert!(expected.arrivals.unwrap() > next + next / 2 + next / 4 || *next < FLOOR);
                prop_assert!(expected.batch >= 1 && expected.batch * 32 <= expected.arrivals.unwrap());
            }
        }

        /// Three times the highest ever seen rings, unless it is too little to matter.
        #[test]
        fn what_is_far_more_rings(peaks in prop::collection::vec(0_u64..1 << 40, 1..90)) {
            let mut detector = LoadSpikeDetector::default();
            let mut expected = None;
            for &peak in &peaks {
                expected = detector.handle_epoch(peak, true).arrivals;
            }
            let highest = peaks.iter().max().unwrap();
            prop_assert!(expected.unwrap() <= (highest * 3).max(FLOOR));
        }

        #[test]
        fn no_peak_is_too_much(peak in any::<u64>(), wanted in any::<bool>()) {
            let expected = LoadSpikeDetector::default().handle_epoch(peak, wanted);
            prop_assert_eq!(expected.arrivals.is_some(), wanted);
        }
    }
}
