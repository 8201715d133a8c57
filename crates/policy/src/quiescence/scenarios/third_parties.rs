//! A third party that itself waits for the background.

use super::super::chain::{Chain, Own, Part, Program};
use super::super::*;

/// Work 1 ms, then ask a third party that waits 60 ms and asks the background for 3 ms of its CPU.
fn chain_of_three() -> Vec<Program> {
    let parts = vec![Part::Elsewhere(600), Part::Asks { group: 0, steps: 30 }];
    vec![Program { work: 10, parts, jitter: 4 }]
}

/// As the updater of the shipped example: 30 % of a CPU in bursts of 1 to 5 ms.
const BUSY: Own = Own { burst: 50, load: 0.3 };

#[test]
fn what_a_third_party_asks_of_the_background_is_not_frozen_at_the_criticals_expense() {
    for seed in 1..6 {
        let mut quiet = Chain::new(Params::default(), &chain_of_three(), &[BUSY], seed).never_freezing();
        let mut chain = Chain::new(Params::default(), &chain_of_three(), &[BUSY], seed);
        quiet.run(60);
        let found = chain.run(60);
        assert_eq!((found.pays, found.why), (Some(false), Some(Reason::Longer)), "{seed}: {found:?}");
        assert_eq!(found.pairs, 1, "{seed}: the trial is at its expense: {found:?}");
        // After the trial.
        let (p50, p99, cycles) = chain.figures(0, 30);
        let (p50_quiet, p99_quiet, cycles_quiet) = quiet.figures(0, 30);
        let within = |with: u64, without: u64| with as f64 <= without as f64 * 1.02;
        assert!(within(p50, p50_quiet) && within(p99, p99_quiet), "{seed}: {p50} {p99}");
        assert!(within(cycles_quiet as u64, cycles as u64), "{seed}: {cycles}");
    }
}

#[test]
fn a_third_party_that_asks_nobody_of_the_background_hinders_no_gain() {
    let program = Program { work: 10, parts: vec![Part::Elsewhere(630)], jitter: 4 };
    let mut chain = Chain::new(Params::default(), &[program], &[BUSY], 1);
    let found = chain.run(60);
    assert_eq!(found.pays, Some(true), "{found:?}");
    assert!(found.gain.unwrap() > 0.1, "{found:?}");
}
