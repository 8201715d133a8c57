//! The answers that the root waits for: of each request the slowest one so far, from leaves that
//! run one after the other and side by side.
//!
//! A maximum does not depend on the order in which its parts come, so threads share one array of
//! atomic cells and the result is the same whatever their number. A cell holds nanoseconds as a
//! 32-bit floating-point number: positive ones are ordered as their bits are, times from
//! nanoseconds to days fit, and the error of 6 in 10^8 is far below a bucket of the histograms that
//! follow.
//!
//! Beside the answer of all leaves it keeps the slowest of the first one, ten, hundred ... of them
//! in the order of the request's [`Choice`](super::choice::Choice): the answer that the root would
//! have waited for had it waited for fewer, at the same load of every leaf. That is the tail at
//! scale in one run. Memory: 4 bytes for each request and each of these steps.

use std::sync::atomic::{AtomicU32, Ordering};

/// The slowest answers.
#[derive(Debug)]
pub(super) struct Answers {
    /// Numbers of leaves waited for.
    steps: Vec<u32>,
    /// By step: of the leaves that it adds to the step before, the slowest, by request.
    slowest: Vec<Box<[AtomicU32]>>,
}

impl Answers {
    /// No server has answered any of `requests` requests, at most [`REQUESTS_MAX`], yet.
    pub fn new(requests: u64, fanout: u32) -> Self {
        let steps = steps(fanout);
        let cells = || (0..requests).map(|_| AtomicU32::new(0)).collect();
        Self { slowest: steps.iter().map(|_| cells()).collect(), steps }
    }

    /// The time that a leaf at this place of the request's order shows when it answers; `None` if
    /// it is not asked.
    #[inline]
    pub fn ticket(&self, request: u64, place: u32) -> Option<u32> {
        let step = self.steps.iter().position(|&leaves| place < leaves)?;
        Some((step as u32) << REQUEST_BITS | request as u32)
    }

    #[inline]
    pub fn answered(&self, ticket: u32, response_ns: u64) {
        let (step, request) = (ticket >> REQUEST_BITS, ticket & ((1 << REQUEST_BITS) - 1));
        let cell = &self.slowest[step as usize][request as usize];
        let bits = (response_ns as f32).to_bits();
        // Most answers are not the slowest: a look is cheaper than an exchange.
        if bits > cell.load(Ordering::Relaxed) {
            cell.fetch_max(bits, Ordering::Relaxed);
        }
    }

    /// The response times of a request, in nanoseconds, by number of leaves waited for.
    pub fn responses_ns(&self, request: u64) -> impl Iterator<Item = u64> {
        let at = move |cells: &[AtomicU32]| f32::from_bits(cells[request as usize].load(Ordering::Relaxed));
        self.slowest.iter().scan(0.0, move |slowest: &mut f32, cells| {
            *slowest = slowest.max(at(cells));
            Some(*slowest as u64)
        })
    }
}

/// Numbers of leaves that a root may wait for: 1, 10, 100 ... below the fan-out, and the fan-out.
pub(super) fn steps(fanout: u32) -> Vec<u32> {
    let tens = std::iter::successors(Some(1u32), |tens| tens.checked_mul(10));
    tens.take_while(|&tens| tens < fanout).chain([fanout]).collect()
}

const REQUEST_BITS: u32 = 28;
/// The most requests of one run [D]: 256 MiB for each step.
pub(super) const REQUESTS_MAX: u64 = 1 << 26;
const _: () = assert!(REQUESTS_MAX <= 1 << REQUEST_BITS);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steps_are_powers_of_ten_and_the_fan_out() {
        for (fanout, expected) in
            [(1, &[1][..]), (2, &[1, 2]), (10, &[1, 10]), (64, &[1, 10, 64]), (1000, &[1, 10, 100, 1000])]
        {
            assert_eq!(steps(fanout), expected);
        }
        assert!(steps(u32::MAX).len() <= 1 << (32 - REQUEST_BITS));
    }

    #[test]
    fn who_is_not_asked_has_no_ticket() {
        let answers = Answers::new(3, 20);
        assert!(answers.ticket(2, 19).is_some());
        assert_eq!(answers.ticket(2, 20), None);
    }

    #[test]
    fn memory_is_four_bytes_a_request_and_step() {
        let answers = Answers::new(1000, 1000);
        let bytes: usize = answers.slowest.iter().map(|cells| size_of_val(&**cells)).sum();
        assert_eq!(bytes, 4 * 4 * 1000);
    }

    proptest! {
        #[test]
        fn the_slowest_of_the_first_leaves_is_kept_whatever_the_order(
            times in prop::collection::vec(0u64..1 << 40, 30), shift in 0usize..30,
        ) {
            let answers = Answers::new(2, 30);
            for turn in 0..30 {
                let place = (turn * 7 + shift) % 30;
                answers.answered(answers.ticket(1, place as u32).unwrap(), times[place]);
            }
            let kept: Vec<u64> = answers.responses_ns(1).collect();
            for (&leaves, kept) in answers.steps.iter().zip(kept) {
                let slowest = times[..leaves as usize].iter().copied().max().unwrap() as f64;
                prop_assert!((kept as f64 - slowest).abs() <= 1.0 + slowest * 1e-7);
            }
            prop_assert_eq!(answers.responses_ns(0).max(), Some(0));
        }
    }
}
