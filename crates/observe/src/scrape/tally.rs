//! The sum of a service's answers.
//!
//! A service counts since its start, so two answers give the change between them, and a missing
//! answer loses nothing: the next one covers its time too. Only a restart breaks the chain. Then
//! the interval in which it fell is left out, with its time, because the lost part of the old
//! counter is unknown.
//!
//! *Properties*: the rate is never negative, and never made of an answer that did not come. Without
//! two answers of one run there is no rate at all; that is not the same as 0/s, which is a service
//! that tells us of its idleness.

use super::Scraped;
use super::source::Source;
use hdrhistogram::Histogram;
use machine::{Duration, Instant, Rate};

/// One answer of a service, or why it gave none.
pub type Answer = Result<Reading, String>;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    pub requests: f64,
    /// Time since its start, where it tells.
    pub uptime: Option<Duration>,
    pub connections: Option<u64>,
    pub tail: Option<Tail>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Grown {
    pub requests: f64,
    /// How many of them were at most as long as each bound; empty where it tells no histogram, or
    /// another one than before.
    pub buckets: Vec<(f64, f64)>,
}

impl Reading {
    /// The change since `before`; `None` if its counters fell, as after a restart.
    pub fn since(&self, before: &Self) -> Option<Grown> {
        if self.requests < before.requests || self.uptime < before.uptime {
            return None;
        }
        let mut buckets = Vec::new();
        add_between(&mut buckets, before.tail.as_ref(), self.tail.as_ref());
        Some(Grown { requests: self.requests - before.requests, buckets })
    }
}

/// A tail, as services tell it.
#[derive(Clone, Debug, PartialEq)]
pub enum Tail {
    /// The 99th percentile of late.
    Recent(Duration),
    /// A histogram since the start: bounds in seconds, rising, and how many were at most as long.
    Buckets(Vec<(f64, f64)>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub rate: Rate,
    /// The 99th percentile, where it tells one.
    pub p99: Option<Duration>,
    pub connections: Option<u64>,
}

#[derive(Debug)]
pub struct Tally {
    last: Option<(Instant, Reading)>,
    requests: f64,
    span: Duration,
    restarts: u32,
    asked: u32,
    missed: u32,
    first_miss: Option<String>,
    /// The change between the last two answers; none after a missing one.
    step: Option<Step>,
    recent: Histogram<u64>,
    buckets: Vec<(f64, f64)>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            last: None,
            requests: 0.0,
            span: Duration::ZERO,
            restarts: 0,
            asked: 0,
            missed: 0,
            first_miss: None,
            step: None,
            recent: Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("bounds that fit"),
            buckets: Vec::new(),
        }
    }
}

impl Tally {
    /// Takes an answer; one that is not later than the last says nothing new.
    pub fn take(&mut self, at: Instant, answer: Answer) {
        self.asked = self.asked.saturating_add(1);
        let now = match answer {
            Ok(now) => now,
            Err(why) => {
                self.missed = self.missed.saturating_add(1);
                self.first_miss.get_or_insert(why);
                self.step = None;
                return;
            }
        };
        if let Some(Tail::Recent(time)) = now.tail {
            self.recent.saturating_record(time.as_nanos());
        }
        if let Some((then, before)) = &self.last {
            if at <= *then {
                return;
            }
            let Some(grown) = now.since(before) else {
                self.restarts += 1;
                self.step = None;
                self.last = Some((at, now));
                return;
            };
            self.requests += grown.requests;
            self.span += at.since(*then);
            self.step = Some(Step::between(at.since(*then), before, &now));
            add_between(&mut self.buckets, before.tail.as_ref(), now.tail.as_ref());
        }
        self.last = Some((at, now));
    }

    /// The last change; `None` if its last answer is missing, or was its first.
    pub fn step(&self) -> Option<Step> {
        self.step
    }

    /// Requests that came between its answers.
    pub fn requests(&self) -> f64 {
        self.requests
    }

    pub fn told(&self, source: &Source) -> Scraped {
        let mut notes = vec![source.meaning()];
        let p99 = match percentile(&self.buckets, SHARE) {
            Some(Ok(time)) => Some(time),
            Some(Err(bound)) => {
                notes.push(format!("its 99th percentile lies beyond its longest bucket, {bound}"));
                None
            }
            None if self.recent.is_empty() => None,
            None => Some(Duration::from_nanos(self.recent.value_at_quantile(0.5))),
        };
        if self.restarts > 0 {
            notes.push(format!(
                "its counters fell {}, as after a restart; these intervals are left out",
                times(self.restarts)
            ));
        }
        if let Some(why) = &self.first_miss {
            let rest = if self.span.is_zero() {
                "so there is no rate"
            } else {
                "the rate is from the other answers"
            };
            notes.push(format!("it did not answer {} of {} times ({why}): {rest}", self.missed, self.asked));
        }
        Scraped {
            source: source.to_string(),
            rate: (!self.span.is_zero()).then(|| Rate::per_second(self.requests / self.span.as_secs_f64())),
            p99,
            connections: self.last.as_ref().and_then(|(_, last)| last.connections),
            notes,
        }
    }
}

impl Step {
    fn between(span: Duration, before: &Reading, now: &Reading) -> Self {
        let p99 = match &now.tail {
            Some(Tail::Recent(time)) => Some(*time),
            Some(Tail::Buckets(_)) => {
                let mut buckets = Vec::new();
                add_between(&mut buckets, before.tail.as_ref(), now.tail.as_ref());
                percentile(&buckets, SHARE).and_then(Result::ok)
            }
            None => None,
        };
        let rate = Rate::per_second((now.requests - before.requests) / span.as_secs_f64());
        Self { rate, p99, connections: now.connections }
    }
}

/// Adds each bucket's growth between two readings of one histogram.
fn add_between(sum: &mut Vec<(f64, f64)>, before: Option<&Tail>, now: Option<&Tail>) {
    let (Some(Tail::Buckets(before)), Some(Tail::Buckets(now))) = (before, now) else { return };
    let is_same =
        |other: &[(f64, f64)]| other.len() == now.len() && other.iter().zip(now).all(|(a, b)| a.0 == b.0);
    if sum.is_empty() {
        sum.extend(now.iter().map(|(bound, _)| (*bound, 0.0)));
    }
    // Buckets that changed have no difference.
    if is_same(before) && is_same(sum) {
        for ((sum, now), before) in sum.iter_mut().zip(now).zip(before) {
            sum.1 += (now.1 - before.1).max(0.0);
        }
    }
}

/// Where a share of a histogram's values lies, taken as evenly spread within its bucket; the error
/// is the longest bound, if it lies beyond that. `None` if there are no values.
pub fn percentile(buckets: &[(f64, f64)], share: f64) -> Option<Result<Duration, Duration>> {
    let total = buckets.last()?.1;
    if total <= 0.0 {
        return None;
    }
    let wanted = share * total;
    let (mut from, mut below) = (0.0, 0.0);
    for &(bound, count) in buckets {
        if count >= wanted {
            if bound.is_infinite() {
                return Some(Err(Duration::from_secs_f64(from)));
            }
            let part = if count > below { (wanted - below) / (count - below) } else { 1.0 };
            return Some(Ok(Duration::from_secs_f64(from + (bound - from) * part.clamp(0.0, 1.0))));
        }
        (from, below) = (bound, count);
    }
    Some(Err(Duration::from_secs_f64(from)))
}

fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

const SHARE: f64 = 0.99;
/// No service answers later than after an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source() -> Source {
        super::super::source::tests::source("memcached:127.0.0.1:1", None, None).unwrap()
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn counted(requests: f64) -> Answer {
        Ok(Reading { requests, ..Reading::default() })
    }

    fn told(answers: impl IntoIterator<Item = (u64, Answer)>) -> Scraped {
        let mut tally = Tally::default();
        answers.into_iter().for_each(|(seconds, answer)| tally.take(at(seconds), answer));
        tally.told(&source())
    }

    #[test]
    fn a_rate_is_what_came_between_answers() {
        assert_eq!(told([(1, counted(50.0)), (3, counted(250.0))]).rate, Some(Rate::per_second(100.0)));
        assert_eq!(told([(1, counted(50.0)), (3, counted(50.0))]).rate, Some(Rate::ZERO));
        assert_eq!(told([(1, counted(50.0))]).rate, None);
        // An answer that comes late is of a time that was counted.
        let late = told([(1, counted(0.0)), (3, counted(200.0)), (2, counted(300.0)), (3, counted(400.0))]);
        assert_eq!(late.rate, Some(Rate::per_second(100.0)));
    }

    #[test]
    fn of_late_is_between_the_last_two_answers_and_nothing_after_a_silence() {
        let tail = |requests: f64, at_most_1ms: f64| {
            let tail =
                Some(Tail::Buckets(vec![(0.001, at_most_1ms), (0.002, requests), (f64::INFINITY, requests)]));
            Ok(Reading { requests, tail, connections: Some(3), ..Reading::default() })
        };
        let mut tally = Tally::default();
        tally.take(at(1), tail(100.0, 0.0));
        assert_eq!(tally.step(), None);
        tally.take(at(2), tail(1_100.0, 1_000.0));
        let step = tally.step().unwrap();
        assert_eq!((step.rate, step.connections), (Rate::per_second(1_000.0), Some(3)));
        assert_eq!(step.p99, Some(Duration::from_micros(990)), "of these, not of all since its start");
        tally.take(at(3), Err("late".into()));
        assert_eq!(tally.step(), None);
        tally.take(at(5), tail(1_300.0, 1_200.0));
        assert_eq!(tally.step().unwrap().rate, Rate::per_second(200.0 / 3.0));
        tally.take(at(6), tail(5.0, 5.0));
        assert_eq!((tally.step(), tally.requests()), (None, 1_200.0), "after a restart");
    }

    #[test]
    fn the_interval_of_a_restart_is_left_out() {
        let fell = told([(1, counted(100.0)), (2, counted(200.0)), (3, counted(7.0)), (5, counted(207.0))]);
        assert_eq!(fell.rate, Some(Rate::per_second(100.0)));
        assert!(fell.notes.iter().any(|note| note.contains("fell once")), "{fell:?}");
        // One that has overtaken its old count shows by its uptime.
        let young = |seconds, requests| {
            Ok(Reading { requests, uptime: Some(Duration::from_secs(seconds)), ..Reading::default() })
        };
        assert_eq!(told([(1, young(900, 5.0)), (2, young(0, 5_000.0))]).rate, None);
    }

    #[test]
    fn an_answer_that_is_missing_is_told_once_and_costs_nothing() {
        let silent = || Err("it said nothing for 1s".to_owned());
        let seen = told([(1, counted(0.0)), (2, silent()), (3, silent()), (4, counted(300.0))]);
        assert_eq!(seen.rate, Some(Rate::per_second(100.0)));
        let notes: Vec<_> = seen.notes.iter().filter(|note| note.contains("did not answer")).collect();
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("2 of 4 times (it said nothing for 1s)"), "{notes:?}");
    }

    #[test]
    fn a_tail_is_of_the_time_between_and_never_invented() {
        let tail = |seconds: u64, counts: [f64; 3]| {
            let bounds = [0.001, 0.002, f64::INFINITY];
            let tail = Some(Tail::Buckets(bounds.into_iter().zip(counts).collect()));
            (seconds, Ok(Reading { requests: counts[2], tail, ..Reading::default() }))
        };
        // Of the hundred between, half lie in each bucket; those before do not count.
        let seen = told([tail(1, [0.0, 0.0, 900.0]), tail(2, [50.0, 100.0, 1_000.0])]);
        assert_eq!(seen.p99, Some(Duration::from_micros(1_980)));
        let beyond = told([tail(1, [0.0; 3]), tail(2, [50.0, 60.0, 100.0])]);
        assert_eq!(beyond.p99, None);
        assert!(beyond.notes.iter().any(|note| note.contains("beyond its longest bucket")), "{beyond:?}");
        assert_eq!(told([tail(1, [5.0; 3]), tail(2, [5.0; 3])]).p99, None);
        let recent = |seconds: u64, micros| {
            let tail = Some(Tail::Recent(Duration::from_micros(micros)));
            (seconds, Ok(Reading { tail, ..Reading::default() }))
        };
        let middle = told([recent(1, 90), recent(2, 9_000), recent(3, 100)]).p99.unwrap();
        assert!((99_000..101_000).contains(&middle.as_nanos()), "{middle}");
    }

    proptest! {
        #[test]
        fn no_answers_give_a_rate_below_zero_or_beyond_the_fastest(
            answers in prop::collection::vec((0_u64..50, 0.0..1e12, any::<bool>()), 0..20),
        ) {
            let of = |(seconds, requests, came)| {
                (seconds, if came { counted(requests) } else { Err("late".into()) })
            };
            if let Some(rate) = told(answers.into_iter().map(of)).rate {
                prop_assert!((0.0..=1e12).contains(&rate.as_per_second()));
            }
        }

        #[test]
        fn a_percentile_lies_within_the_bounds(
            mut counts in prop::collection::vec(0.0..1e6, 1..9),
            share in 0.0..=1.0,
        ) {
            counts.sort_by(f64::total_cmp);
            let buckets: Vec<_> = counts.iter().enumerate().map(|(n, count)| (n as f64 + 1.0, *count)).collect();
            if let Some(Ok(time)) = percentile(&buckets, share) {
                prop_assert!(time.as_secs_f64() <= counts.len() as f64);
            }
        }
    }
}
