//! A CPU's idle states as the governors see them.
//!
//! A governor asks one of two questions at every idle entry: which is the deepest state that may be
//! used, and which the deepest that will also pay. So the table holds just the figures that Linux
//! advertises of a state, exit latency and target residency, in a small array without a pointer,
//! and answers by looking through it.
//!
//! Invariants: every answer is a place in the table; as exit latencies rise with depth, no
//! state deeper than an answer has an exit latency within the limit and a residency within the
//! length.

use machine::{CstateTable, Duration};

/// More idle states than any driver has: cpuidle itself stops at ten \[K, `CPUIDLE_STATE_MAX`\].
pub const MAX_STATES: usize = 12;

/// Advertised exit latency and target residency of each idle state, shallow to deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleTable {
    states: [Advertised; MAX_STATES],
    len: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Advertised {
    exit_latency: Duration,
    target_residency: Duration,
}

impl IdleTable {
    /// The states in the order of `states`, which stays the numbering. A polling state has no place
    /// here: polling is a governor's answer when no state may be used
    /// ([`Sleep::Poll`](super::Sleep)).
    ///
    /// # Panics
    /// Without a state, or with more than [`MAX_STATES`].
    pub fn new(states: &CstateTable) -> Self {
        let len = states.0.len();
        assert!((1..=MAX_STATES).contains(&len), "{len} idle states: a CPU has 1 to {MAX_STATES}");
        let mut table = Self { states: [Advertised::default(); MAX_STATES], len };
        for (advertised, state) in table.states.iter_mut().zip(&states.0) {
            *advertised =
                Advertised { exit_latency: state.exit_latency, target_residency: state.target_residency };
        }
        table
    }

    /// How many states there are; at least one.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The place of the deepest state.
    #[inline]
    pub fn deepest(&self) -> usize {
        self.len - 1
    }

    /// How long waking from state `i` takes at worst, as advertised.
    #[inline]
    pub fn exit_latency(&self, i: usize) -> Duration {
        self.states[i].exit_latency
    }

    /// The shortest sleep for which state `i` saves energy against the one before it.
    #[inline]
    pub fn target_residency(&self, i: usize) -> Duration {
        self.states[i].target_residency
    }

    /// True if there is a state that may be used under `limit`. Under a limit of zero there is
    /// none, though a plain `HLT` may advertise no latency at all: to Linux, zero means polling.
    #[inline]
    pub fn halts_within(&self, limit: Duration) -> bool {
        !limit.is_zero() && self.states[0].exit_latency <= limit
    }

    /// The deepest state with an exit latency of at most `limit`; the shallowest if there is none.
    #[inline]
    pub fn deepest_within(&self, limit: Duration) -> usize {
        self.deepest_for(Duration::MAX, limit)
    }

    /// The deepest state that pays in a sleep of this length and has an exit latency of at most
    /// `limit`; the shallowest if there is none.
    #[inline]
    pub fn deepest_for(&self, length: Duration, limit: Duration) -> usize {
        let mut deepest = 0;
        for (at, state) in self.states[..self.len].iter().enumerate() {
            // No short cut: the states that fit differ from sleep to sleep, and a branch would be
            // guessed wrong.
            let fits = (state.target_residency <= length) & (state.exit_latency <= limit);
            deepest = if fits { at } else { deepest };
        }
        deepest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{Cstate, CstateKind};

    /// States of so many microseconds of exit latency and target residency.
    fn table(states: &[(u64, u64)]) -> IdleTable {
        let state = |&(exit_us, residency_us): &(u64, u64)| Cstate {
            name: String::new(),
            kind: CstateKind::Halting,
            exit_latency: Duration::from_micros(exit_us),
            true_exit_latency: None,
            entry_latency: None,
            target_residency: Duration::from_micros(residency_us),
            power: None,
        };
        IdleTable::new(&CstateTable(states.iter().map(state).collect()))
    }

    /// SandyBridge's C1, C3, C6 and C7, as the Tradeoffs paper prints them (section II).
    fn sandy_bridge() -> IdleTable {
        table(&[(1, 1), (80, 106), (104, 345), (109, 345)])
    }

    const US: fn(u64) -> Duration = Duration::from_micros;

    #[test]
    fn a_state_is_allowed_up_to_its_very_limit() {
        let table = sandy_bridge();
        for (limit_us, deepest) in [(0, 0), (1, 0), (79, 0), (80, 1), (104, 2), (108, 2), (109, 3)] {
            assert_eq!(table.deepest_within(US(limit_us)), deepest, "{limit_us} us");
        }
        assert_eq!(table.deepest_within(Duration::MAX), 3);
    }

    #[test]
    fn a_state_pays_from_its_very_residency() {
        let table = sandy_bridge();
        for (length_us, deepest) in [(0, 0), (105, 0), (106, 1), (344, 1), (345, 3)] {
            assert_eq!(table.deepest_for(US(length_us), Duration::MAX), deepest, "{length_us} us");
        }
        assert_eq!(table.deepest_for(US(345), US(108)), 2);
    }

    #[test]
    fn a_limit_of_zero_allows_no_halt_even_one_that_advertises_no_latency() {
        let hlt = table(&[(0, 0), (50, 100)]);
        assert!(!hlt.halts_within(Duration::ZERO));
        assert!(hlt.halts_within(Duration::from_nanos(1)));
        assert!(!sandy_bridge().halts_within(Duration::from_nanos(999)));
    }

    #[test]
    #[should_panic(expected = "0 idle states")]
    fn a_cpu_without_a_state_is_refused() {
        table(&[]);
    }
}
