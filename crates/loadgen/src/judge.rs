//! Which figures of a run are the server's, and which the generator's own.
//!
//! Latency counts from the due time of a request, so it includes the generator's own lateness. That
//! keeps a stalled *server* from hiding, and lets a stalled *generator* pass for one. Both parts of
//! each request are known. So every latency is kept a second time without the generator's part: its
//! late sending, and its pause where its thread was kept from its CPU while the answer was under
//! way, since the answer may have been read that much too late.
//!
//! Invariants:
//! - A figure stands if it moves by at most a tenth of itself when the generator's part is left
//!   out. Each figure is judged alone: a generator that stopped once in a run spoils the maximum
//!   and p99.9, and the median may still be the server's.
//! - A figure never stops standing because the *server* was slow.
//! - The run is invalid when the median does not stand, or the percentile that it is run for.

use crate::Percentiles;
use crate::tally::{Tally, quantile};
use hdrhistogram::Histogram;
use machine::{Duration, Ratio};
use serde::{Deserialize, Serialize};

/// Which figures of the latencies are the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stands {
    pub p50: bool,
    pub p90: bool,
    pub p99: bool,
    pub p999: bool,
    pub p9999: bool,
    pub max: bool,
}

impl Stands {
    pub fn of(latency: &Percentiles, without_own: &Percentiles) -> Self {
        let figure = |of: fn(&Percentiles) -> Duration| stands(of(latency), of(without_own));
        Self {
            p50: figure(|p| p.p50),
            p90: figure(|p| p.p90),
            p99: figure(|p| p.p99),
            p999: figure(|p| p.p999),
            p9999: figure(|p| p.p9999),
            max: figure(|p| p.max),
        }
    }

    /// Every figure with its name, in the order in which they are shown.
    pub fn named(&self) -> [(&'static str, bool); 6] {
        [
            ("p50", self.p50),
            ("p90", self.p90),
            ("p99", self.p99),
            ("p99.9", self.p999),
            ("p99.99", self.p9999),
            ("max", self.max),
        ]
    }

    /// Names of the figures that do not stand.
    pub fn doubtful(&self) -> Vec<&'static str> {
        self.named().iter().filter(|(_, stands)| !stands).map(|(name, _)| *name).collect()
    }
}

/// True if the generator's part changes a figure by less than a tenth.
fn stands(latency: Duration, without_own: Duration) -> bool {
    let changed = (latency - without_own).as_nanos();
    changed as f64 <= CHANGE_TOLERATED * latency.as_nanos() as f64
}

/// A share (0 to 1) as people name it: p99.9.
pub(crate) fn name(share: f64) -> String {
    let percent = format!("{:.4}", share * 100.0);
    format!("p{}", percent.trim_end_matches('0').trim_end_matches('.'))
}

/// The verdict on a run: the share of requests sent late, and why the run is invalid, if it is.
/// `judged` is the percentile that it is run for, as a share.
pub(crate) fn judge(whole: &Tally, judged: f64) -> (Ratio, Vec<String>) {
    let mut reasons = Vec::new();
    let shares = if judged == MEDIAN { vec![MEDIAN] } else { vec![MEDIAN, judged] };
    for share in shares {
        let (with, without) = (quantile(&whole.latency, share), quantile(&whole.without_own, share));
        if !stands(with, without) {
            reasons.push(format!(
                "the {name} of {with} is the generator's own: it would be {without} had every request been \
                 sent, and every answer read, in time; lower the rate, or give the generator CPUs of its \
                 own",
                name = name(share)
            ));
        }
    }
    if whole.counts.unsent > 0 {
        reasons.push(format!(
            "{} requests were never sent because the server took no more, and no latency was counted for \
             them; lower the rate",
            whole.counts.unsent
        ));
    }
    if whole.latency.is_empty() {
        reasons.push(
            "nothing was answered while measuring; raise the rate or let the run last longer".to_owned(),
        );
    }
    (late_share(&whole.latency, &whole.lateness), reasons)
}

/// The share of requests sent later than a tenth of the p99.
fn late_share(latency: &Histogram<u64>, lateness: &Histogram<u64>) -> Ratio {
    if lateness.is_empty() {
        return Ratio::ZERO;
    }
    let tolerated = quantile(latency, 0.99).scale(CHANGE_TOLERATED);
    let late = lateness.count_between(tolerated.as_nanos() + 1, u64::MAX >> 1);
    Ratio::new(late as f64 / lateness.len() as f64)
}

/// The share of a figure that may be the generator's.
const CHANGE_TOLERATED: f64 = 0.1;
const MEDIAN: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A tally of requests: how long each took in all, and how much of that was the generator's, in
    /// microseconds.
    fn tally(requests: impl IntoIterator<Item = (u64, u64)>) -> Tally {
        let mut tally = Tally::new();
        for (latency, own) in requests {
            tally.latency.record(latency * 1000).unwrap();
            tally.lateness.record(own * 1000).unwrap();
            tally.without_own.record((latency - own) * 1000).unwrap();
        }
        tally
    }

    fn stands_of(tally: &Tally) -> Stands {
        Stands::of(&Percentiles::of(&tally.latency), &Percentiles::of(&tally.without_own))
    }

    #[test]
    fn a_punctual_generator_is_believed() {
        let whole = tally((0..10_000).map(|_| (100, 9)));
        assert!(judge(&whole, 0.99).1.is_empty(), "all late by less than a tenth");
        assert!(stands_of(&whole).doubtful().is_empty());
    }

    #[test]
    fn a_generator_that_is_late_throughout_spoils_every_figure() {
        let whole = tally((0..10_000).map(|_| (100, 12)));
        let (late, reasons) = judge(&whole, 0.99);
        assert_eq!((late.as_f64(), reasons.len()), (1.0, 2), "{reasons:?}");
        assert!(
            reasons[0].contains("the p50 of 100us") && reasons[0].contains("lower the rate"),
            "{reasons:?}"
        );
        assert!(reasons[1].contains("the p99 of 100us"), "{reasons:?}");
        assert_eq!(stands_of(&whole).doubtful().len(), 6);
    }

    #[test]
    fn a_generator_that_stopped_once_spoils_the_tail_and_not_the_median() {
        // 90 ms of 10 s, in which the requests pile up: 0.9 % of all, less than the 1 % above the
        // p99 would hide.
        let stopped = (0..10_000).map(|n| if n < 90 { (100 + 1000 * n, 1000 * n) } else { (100, 1) });
        let whole = tally(stopped);
        assert_eq!(stands_of(&whole).doubtful(), ["p99.9", "p99.99", "max"]);
        assert!(judge(&whole, 0.99).1.is_empty(), "p50 and p99 are the server's");
        let reasons = judge(&whole, 0.999).1;
        assert!(reasons.len() == 1 && reasons[0].contains("the p99.9 of"), "{reasons:?}");
    }

    #[test]
    fn a_run_without_answers_or_with_unsent_requests_is_not_believed() {
        assert!(judge(&Tally::new(), 0.99).1[0].contains("nothing was answered"));
        let mut left_out = tally((0..1000).map(|_| (100, 0)));
        left_out.counts.unsent = 3;
        assert!(judge(&left_out, 0.99).1[0].contains("3 requests were never sent"));
    }

    #[test]
    fn a_percentile_is_named_as_people_write_it() {
        assert_eq!([0.5, 0.99, 0.999, 0.9999].map(name), ["p50", "p99", "p99.9", "p99.99"]);
    }

    proptest! {
        /// A slow server never makes a figure fall, whatever its latencies are; and a generator's
        /// part that is large enough in every request always does.
        #[test]
        fn only_the_generators_part_is_held_against_a_run(
            server in prop::collection::vec(1_u64..100_000_000, 1..300),
        ) {
            let slow = tally(server.iter().map(|&latency| (latency, 0)));
            prop_assert!(stands_of(&slow).doubtful().is_empty());
            prop_assert!(judge(&slow, 0.99).1.is_empty());
            let late = tally(server.iter().map(|&latency| (2 * latency, latency)));
            prop_assert_eq!(stands_of(&late).doubtful().len(), 6);
            prop_assert_eq!(judge(&late, 0.99).1.len(), 2);
        }

        /// A figure does not stand exactly if it differs by over a tenth from the one without the
        /// generator's part.
        #[test]
        fn each_figure_is_judged_by_itself(
            requests in prop::collection::vec((1_u64..1_000_000, 0_u64..1_000_000), 1..300),
        ) {
            let whole = tally(requests.iter().map(|&(server, own)| (server + own, own)));
            let (with, without) = (Percentiles::of(&whole.latency), Percentiles::of(&whole.without_own));
            let differs = |a: Duration, b: Duration| (a - b).as_nanos() as f64 > 0.1 * a.as_nanos() as f64;
            let doubtful = stands_of(&whole).doubtful();
            let figures = |of: &Percentiles| [("p50", of.p50), ("p99", of.p99), ("max", of.max)];
            for ((name, a), (_, b)) in figures(&with).into_iter().zip(figures(&without)) {
                prop_assert_eq!(doubtful.contains(&name), differs(a, b), "{}: {} {}", name, a, b);
            }
            let alike = !differs(with.p50, without.p50) && !differs(with.p99, without.p99);
            prop_assert_eq!(judge(&whole, 0.99).1.is_empty(), alike);
        }
    }
}
