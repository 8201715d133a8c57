//! Which function of a service is its *hot function*: the one whose enter and exit tell that a
//! request is being worked on, and for how long already.
//!
//! The problem: Hurry-up (section IV-B) reads it off a flame graph by eye, as the topmost frame of
//! the right package. A share of the CPU time alone does not choose: of a thread that serves
//! requests, the loop that it lives in has the most. The loop, the request and the request's parts
//! differ in how often each is *called*: the loop never, the parts many times, and the function
//! that is wanted once for each request (once a shard, where a search is divided among shards).
//!
//! The approach, in two steps, because counting costs the service something and sampling does not:
//! 1. [`shortlist`]: from a profile, the functions that hold most of the request threads' time.
//! 2. [`rank`]: with the calls of those few counted, the *innermost* of those that are called once
//!    a request (or a shard) and still hold nearly as much as the best of them.
//!
//! Terms:
//! - *Share*: of the CPU time of the threads that serve requests, the part spent in the function or
//!   in its callees.
//! - *Depth*: frames between the thread's first and the function, on average. A deeper one is the
//!   inner one.
//! - *Calls per request*: from outside; recursion is one call.
//!
//! Invariants ([`rank`]): each candidate comes once; the order that they are given in does
//! not matter; a function that is called too often, too seldom or was not counted never stands
//! before one that fits; the first, if any fits, has at least [`ENOUGH`] of the largest share among
//! those that fit, and none of those lies deeper.

mod least_energy;

pub use least_energy::{ClockCost, LeastEnergy, Work, even_share, least_energy};

use machine::Ratio;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;

/// How far from a whole number of calls a request may be: requests are counted at sockets, calls in
/// functions, and neither begins nor ends with the measurement.
pub const TOLERANCE: f64 = 0.15;
/// An inner function is as good as the best if it holds this part of the best one's share
/// (`jvm.md`: 90 %).
pub const ENOUGH: f64 = 0.9;
/// Below this share a function is no candidate: to speed up a function that a thread hardly runs
/// gains nothing.
pub const LEAST_SHARE: f64 = 0.1;
/// More calls than this are parts of a request, and no shards.
pub const SHARDS_MAX: u32 = 64;

/// A function as a profile shows it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profiled {
    /// Of the request threads' CPU time.
    pub share: Ratio,
    /// Number of frames before it, on average.
    pub depth: f64,
}

/// A function of the shortlist, with its counted calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    pub profiled: Profiled,
    /// Calls for each request; `None` if they could not be counted.
    pub calls_per_request: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Called once a request, or once a shard of it, with nearly all of the work in it.
    Hot {
        /// Calls for each request: 1, or the number of shards.
        calls: u32,
    },
    /// Called as often, but much of the work is elsewhere.
    Part {
        /// Calls for each request.
        calls: u32,
    },
    /// Called more often than requests come.
    TooOften,
    /// Called less often: a loop that requests pass through, or other work.
    TooSeldom,
    /// Its calls could not be counted.
    NotCounted,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hot { calls: 1 } => f.pad("hot: once a request"),
            Self::Hot { calls } => f.pad(&format!("hot: {calls} calls a request, as with {calls} shards")),
            Self::Part { .. } => f.pad("a part of the work"),
            Self::TooOften => f.pad("called too often"),
            Self::TooSeldom => f.pad("called too seldom"),
            Self::NotCounted => f.pad("not counted"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// Index of the function in the input.
    pub index: usize,
    pub verdict: Verdict,
}

/// The functions whose calls are to be counted: of those with [`LEAST_SHARE`] the `most` with the
/// largest shares, the inner ones first among equals. Places in `profiled`.
pub fn shortlist(profiled: &[Profiled], most: usize) -> Vec<usize> {
    let mut chosen: Vec<usize> =
        (0..profiled.len()).filter(|&at| profiled[at].share.as_f64() >= LEAST_SHARE).collect();
    chosen.sort_by(|&one, &other| by_share(&profiled[one], &profiled[other]).then(one.cmp(&other)));
    chosen.truncate(most);
    chosen
}

/// The candidates, best first. `shards`: calls for each request that are right; `None` to find that
/// out.
pub fn rank(candidates: &[Candidate], shards: Option<u32>) -> Vec<Ranked> {
    let calls = shards.or_else(|| likely_shards(candidates)).unwrap_or(1).max(1);
    let best = candidates
        .iter()
        .filter(|candidate| fits(candidate, calls))
        .map(|candidate| candidate.profiled.share.as_f64())
        .fold(0.0, f64::max);
    let verdict = |candidate: &Candidate| match candidate.calls_per_request {
        None => Verdict::NotCounted,
        Some(_) if fits(candidate, calls) => {
            if candidate.profiled.share.as_f64() >= ENOUGH * best {
                Verdict::Hot { calls }
            } else {
                Verdict::Part { calls }
            }
        }
        Some(found) if found > f64::from(calls) => Verdict::TooOften,
        Some(_) => Verdict::TooSeldom,
    };
    let mut ranked: Vec<Ranked> = candidates
        .iter()
        .enumerate()
        .map(|(index, candidate)| Ranked { index, verdict: verdict(candidate) })
        .collect();
    ranked.sort_by(|one, other| {
        let (a, b) = (&candidates[one.index].profiled, &candidates[other.index].profiled);
        let within = match one.verdict {
            Verdict::Hot { .. } => b.depth.total_cmp(&a.depth).then(by_share(a, b)),
            _ => by_share(a, b),
        };
        class(one.verdict).cmp(&class(other.verdict)).then(within).then(one.index.cmp(&other.index))
    });
    ranked
}

/// The fewest calls for each request that a function of much work has.
fn likely_shards(candidates: &[Candidate]) -> Option<u32> {
    let shares = || candidates.iter().filter(|candidate| candidate.calls_per_request.is_some());
    let most = shares().map(|candidate| candidate.profiled.share.as_f64()).fold(0.0, f64::max);
    let heavy = |candidate: &&Candidate| candidate.profiled.share.as_f64() >= most / 2.0;
    (1..=SHARDS_MAX).find(|&calls| shares().filter(heavy).any(|candidate| fits(candidate, calls)))
}

/// Whether it is called so many times a request. A number without end or sense fits nothing.
fn fits(candidate: &Candidate, calls: u32) -> bool {
    let wanted = f64::from(calls);
    // The tolerance is of the count, but never so wide that the next whole number is within it.
    let off = (TOLERANCE * wanted).min(0.3);
    candidate.calls_per_request.is_some_and(|found| (found - wanted).abs() <= off)
}

/// The greater share first, then the inner function.
fn by_share(one: &Profiled, other: &Profiled) -> Ordering {
    other.share.as_f64().total_cmp(&one.share.as_f64()).then(other.depth.total_cmp(&one.depth))
}

fn class(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Hot { .. } => 0,
        Verdict::Part { .. } => 1,
        Verdict::NotCounted => 2,
        Verdict::TooSeldom => 3,
        Verdict::TooOften => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidate(share: f64, depth: f64, calls: Option<f64>) -> Candidate {
        Candidate { profiled: Profiled { share: Ratio::new(share), depth }, calls_per_request: calls }
    }

    /// A search server's stack: the pool's loop, two wrappers, the function, a callee called once,
    /// a callee called often.
    fn search_server() -> Vec<Candidate> {
        vec![
            candidate(0.99, 1.0, Some(0.0)),
            candidate(0.98, 4.0, Some(1.02)),
            candidate(0.97, 6.0, Some(1.0)),
            candidate(0.94, 9.0, Some(1.0)),
            candidate(0.60, 12.0, Some(1.0)),
            candidate(0.90, 11.0, Some(7.3)),
        ]
    }

    #[test]
    fn the_innermost_that_is_called_once_and_holds_nearly_all_is_first() {
        let ranked = rank(&search_server(), None);
        let order: Vec<usize> = ranked.iter().map(|place| place.index).collect();
        assert_eq!(order, [3, 2, 1, 4, 0, 5]);
        assert_eq!(ranked[0].verdict, Verdict::Hot { calls: 1 });
        assert_eq!(ranked[3].verdict, Verdict::Part { calls: 1 });
        assert_eq!(ranked[4].verdict, Verdict::TooSeldom);
        assert_eq!(ranked[5].verdict, Verdict::TooOften);
    }

    #[test]
    fn with_five_shards_five_calls_are_right_and_a_person_may_say_so() {
        let sharded =
            [candidate(0.9, 3.0, Some(4.96)), candidate(0.3, 1.0, Some(1.0)), candidate(0.9, 2.0, Some(0.0))];
        assert_eq!(rank(&sharded, None)[0], Ranked { index: 0, verdict: Verdict::Hot { calls: 5 } });
        assert_eq!(rank(&sharded, Some(1))[0], Ranked { index: 1, verdict: Verdict::Hot { calls: 1 } });
        assert!(rank(&sharded, Some(7)).iter().all(|place| !matches!(place.verdict, Verdict::Hot { .. })));
        assert_eq!(Verdict::Hot { calls: 5 }.to_string(), "hot: 5 calls a request, as with 5 shards");
    }

    #[test]
    fn what_was_not_counted_and_half_calls_fit_nothing() {
        for calls in [None, Some(0.5), Some(1.4), Some(f64::NAN), Some(f64::INFINITY), Some(-1.0), Some(70.0)]
        {
            let ranked = rank(&[candidate(1.0, 1.0, calls)], None);
            assert!(!matches!(ranked[0].verdict, Verdict::Hot { .. } | Verdict::Part { .. }), "{calls:?}");
        }
        assert_eq!(rank(&[], None), []);
    }

    #[test]
    fn a_shortlist_is_of_large_shares_the_inner_first_among_equals() {
        let profiled = [(0.5, 1.0), (0.9, 1.0), (0.9, 5.0), (0.05, 9.0)]
            .map(|(share, depth)| Profiled { share: Ratio::new(share), depth });
        assert_eq!(shortlist(&profiled, 9), [2, 1, 0]);
        assert_eq!(shortlist(&profiled, 1), [2]);
    }

    fn any_candidate() -> impl Strategy<Value = Candidate> {
        let calls = prop_oneof![
            Just(None),
            Just(Some(1.0)),
            (0u32..8).prop_map(|calls| Some(f64::from(calls))),
            (0.0..70.0f64).prop_map(Some),
            any::<f64>().prop_map(Some),
        ];
        (0.0..=1.0f64, 0u32..40, calls)
            .prop_map(|(share, depth, calls)| candidate(share, f64::from(depth), calls))
    }

    proptest! {
        #[test]
        fn each_comes_once_and_misfits_come_last(
            candidates in prop::collection::vec(any_candidate(), 0..30),
            shards in prop::option::of(1u32..9),
        ) {
            let ranked = rank(&candidates, shards);
            let mut places: Vec<usize> = ranked.iter().map(|place| place.index).collect();
            places.sort_unstable();
            prop_assert_eq!(places, (0..candidates.len()).collect::<Vec<_>>());
            prop_assert!(ranked.windows(2).all(|pair| class(pair[0].verdict) <= class(pair[1].verdict)));
        }

        #[test]
        fn the_first_holds_enough_and_no_deeper_one_does(
            candidates in prop::collection::vec(any_candidate(), 1..30),
        ) {
            let ranked = rank(&candidates, None);
            if let Verdict::Hot { calls } = ranked[0].verdict {
                let first = &candidates[ranked[0].index].profiled;
                let fits = |candidate: &&Candidate| fits(candidate, calls);
                let fitting = || candidates.iter().filter(fits).map(|candidate| candidate.profiled);
                let best = fitting().map(|profiled| profiled.share.as_f64()).fold(0.0, f64::max);
                prop_assert!(first.share.as_f64() >= ENOUGH * best);
                let enough = |other: Profiled| other.share.as_f64() >= ENOUGH * best;
                prop_assert!(fitting().all(|other| other.depth <= first.depth || !enough(other)));
            }
        }

        #[test]
        fn the_order_that_they_come_in_does_not_matter(
            candidates in prop::collection::vec(any_candidate(), 1..12),
            turn in 0usize..12,
        ) {
            let mut turned = candidates.clone();
            turned.rotate_left(turn % candidates.len());
            let named = |of: &[Candidate]| -> Vec<String> {
                rank(of, None).iter().map(|place| format!("{:?} {}", of[place.index], place.verdict)).collect()
            };
            prop_assert_eq!(named(&candidates), named(&turned));
        }

        #[test]
        fn a_misfit_more_changes_nothing_before_it(
            candidates in prop::collection::vec(any_candidate(), 1..12),
            share in 0.0..=1.0f64,
        ) {
            let mut more = candidates.clone();
            more.push(candidate(share, 3.0, Some(0.0)));
            let fitting = |of: &[Candidate]| -> Vec<Ranked> {
                let mut ranked = rank(of, Some(1));
                ranked.retain(|place| matches!(place.verdict, Verdict::Hot { .. } | Verdict::Part { .. }));
                ranked
            };
            prop_assert_eq!(fitting(&candidates), fitting(&more));
        }
    }
}
