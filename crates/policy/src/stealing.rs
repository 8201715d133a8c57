//! Work stealing: which of a worker's requests idle workers may serve.
//!
//! Connections tie requests to workers, so one worker's queue grows while another has nothing to do.
//! ZygOS (SOSP 2017) and Shenango (NSDI 2019) let idle workers look into the others' queues. To hand a
//! request over costs CPU time, and a worker that serves several at once saves some. So a worker keeps
//! the requests that it comes to soon, and offers those that would wait for longer.
//!
//! Terms:
//! - *turn*: a worker's work on one connection whose requests wait.
//! - `after`: a turn that others may take would wait for longer than this.
//!
//! Properties:
//! - A worker keeps at least one turn, and one alone with `after` of zero.
//! - Longer turns, or a smaller `after`, never let it keep more.

use machine::Duration;

/// The weight of the newest turn in the mean length of a turn: the last fifty count.
const NEWEST: f64 = 0.02;

/// The rule of one worker: how many turns it keeps for itself.
#[derive(Clone, Copy, Debug)]
pub struct Stealing {
    after: Duration,
    turn_ns: Option<f64>,
}

impl Stealing {
    pub fn new(after: Duration) -> Self {
        Self { after, turn_ns: None }
    }

    /// A turn is over, for which a worker worked so long.
    pub fn handle_turn(&mut self, busy: Duration) {
        let busy_ns = busy.as_nanos() as f64;
        let mean = self.turn_ns.get_or_insert(busy_ns);
        *mean += NEWEST * (busy_ns - *mean);
    }

    /// How many turns in a row a worker takes itself. Before it has seen a turn it keeps all, unless
    /// `after` is zero.
    pub fn kept(&self) -> usize {
        if self.after == Duration::ZERO {
            return 1;
        }
        let turns = self.turn_ns.map_or(f64::INFINITY, |turn| self.after.as_nanos() as f64 / turn);
        // A number too large for the type is its largest.
        (turns as usize).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_turn_that_is_kept_waits_for_no_longer_and_the_next_would(
            after_us in 0_u64..1_000,
            turn_us in 1_u64..1_000,
            turns in 1_usize..200,
        ) {
            let (after, turn) = (Duration::from_micros(after_us), Duration::from_micros(turn_us));
            let mut stealing = Stealing::new(after);
            (0..turns).for_each(|_| stealing.handle_turn(turn));
            let kept = stealing.kept() as u64;
            prop_assert!(turn * (kept - 1) <= after && after < turn * kept);
        }

        #[test]
        fn longer_turns_never_let_a_worker_keep_more(
            after_us in 0_u64..1_000,
            turns in proptest::collection::vec((1_u64..1_000, 0_u64..1_000), 1..100),
        ) {
            let mut stealing = [Stealing::new(Duration::from_micros(after_us)); 2];
            for (turn, longer) in turns {
                stealing[0].handle_turn(Duration::from_micros(turn));
                stealing[1].handle_turn(Duration::from_micros(turn + longer));
            }
            prop_assert!(stealing[1].kept() <= stealing[0].kept());
        }
    }

    #[test]
    fn before_it_has_seen_a_turn_a_worker_keeps_all() {
        assert_eq!(Stealing::new(Duration::from_micros(20)).kept(), usize::MAX);
        assert_eq!(Stealing::new(Duration::ZERO).kept(), 1);
    }
}
