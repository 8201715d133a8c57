//! A server's own telemetry as a reading: its own count as the rate, its own histogram or summary
//! as the tail.
//!
//! ```text
//!   epoch        |----------------------------|-------- change --|-----------------------------|
//!   answers     a0                           a1                 base                          a2
//!   readings                            a0 to a1: rate, tail                          base to a2: rate, tail
//! ```
//!
//! Answers come from a thread that is told when to ask ([`Asker`]); nothing here waits for one. An
//! epoch whose answer is not there has no rate.
//!
//! What always holds:
//! - A rate is never made of an answer that did not come, nor of counters that fell.
//! - A tail is of requests that came since the CPUs last changed, and of as many as its percentile
//!   needs.
//! - The goal and the percentile may lie in one bucket, and then their order is unknown. The
//!   reading is the bucket's end, so that a goal never counts as kept on a guess. The last bucket
//!   has no end, and no tail: with a goal, the reading is twice its bound, since the goal is surely
//!   missed.

use crate::controllers::cores::sources::TelemetrySource;
use machine::{CpuList, Duration, Goal, Instant, Rate, ServiceReading};
use observe::scrape::{Answer, Asker, Names, Reading, Source, Tail, percentile};
use std::collections::VecDeque;
use std::fmt;

pub struct ServiceTelemetry {
    named: String,
    names: Names,
    asker: Asker,
    epoch: Duration,
    goal: Option<Goal>,
    told: Told,
}

/// The sum of its answers; no sockets, no clock.
#[derive(Debug, Default)]
struct Told {
    last: Option<(Instant, Reading)>,
    /// Answers before this belong to how things were.
    since: Instant,
    /// The histograms of the last epochs.
    epochs: VecDeque<Vec<(f64, f64)>>,
    /// Since the last reading: requests, and the time in which they came.
    fresh: Option<(f64, Duration)>,
    recent: Option<Duration>,
}

impl ServiceTelemetry {
    /// Asks a first time. An error names the fault and the text to write.
    pub fn open(
        source: &TelemetrySource,
        port: Option<u16>,
        goal: Option<Goal>,
        epoch: Duration,
        now: Instant,
        notices: &mut Vec<String>,
    ) -> Result<Self, String> {
        let called = ["rate", "tail"];
        let (named, names) = match source {
            TelemetrySource::Prometheus { url, rate, tail } => {
                (url.clone(), Names { rate: Some(rate.clone()), tail: tail.clone(), called })
            }
            TelemetrySource::Requests | TelemetrySource::Memcached { .. } => {
                let address = match source {
                    TelemetrySource::Memcached { address: Some(address), .. } => address.clone(),
                    _ => format!("127.0.0.1:{}", port.unwrap_or_default()),
                };
                (format!("memcached:{address}"), Names { called, ..Names::default() })
            }
        };
        let mut own = Self {
            asker: asker(&named, &names, goal)?,
            named,
            names,
            epoch,
            goal,
            told: Told { since: now, ..Told::default() },
        };
        match own.asker.first(FIRST) {
            Some((_, Err(failure))) => return Err(format!("{}: {failure}", own.named)),
            Some((at, Ok(reading))) => {
                if matches!(reading.tail, Some(Tail::Recent(_))) {
                    notices.push(
                        "its tail is a summary, which remembers longer than an epoch: decisions \
                         follow it late, a \
                         histogram's would not"
                            .to_owned(),
                    );
                }
                own.told.take(at, Ok(reading));
            }
            None => notices.push(format!("{} does not answer yet", own.named)),
        }
        own.asker.next(now + own.wait());
        Ok(own)
    }

    /// The reading since the last call.
    pub fn read(&mut self, now: Instant, notices: &mut Vec<String>) -> ServiceReading {
        for (at, answer) in self.asker.answers() {
            if let Err(why) = &answer {
                notices.push(format!("{}: {why}", self.named));
            }
            self.told.take(at, answer);
        }
        self.asker.next(now + self.wait());
        self.told.reading(self.goal)
    }

    pub fn forget(&mut self, now: Instant) {
        self.told.forget(now);
        self.asker.next(now);
        // The epoch begins anew with this.
        self.asker.next(now + self.wait());
    }

    /// Another goal. A summary is asked for another quantile, by another thread.
    pub fn set_goal(&mut self, goal: Option<Goal>) {
        if quantile(self.goal) != quantile(goal)
            && let Ok(asker) = asker(&self.named, &self.names, goal)
        {
            self.asker = asker;
        }
        self.goal = goal;
    }

    /// Epochs are so long from now on.
    pub fn set_epoch(&mut self, epoch: Duration) {
        self.epoch = epoch;
    }

    /// Its thread keeps to these.
    pub fn stay_on(&self, cpus: &CpuList) {
        self.asker.stay_on(cpus);
    }

    /// From now until it is asked, so that its answer is there when the epoch ends.
    fn wait(&self) -> Duration {
        self.epoch - self.asker.lead().min(self.epoch / 2)
    }
}

impl fmt::Display for ServiceTelemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named)
    }
}

fn asker(named: &str, names: &Names, goal: Option<Goal>) -> Result<Asker, String> {
    let source = Source::named(named, names.clone(), quantile(goal));
    let source = source.map_err(|failure| format!("{named}: {failure:#}"))?;
    Asker::start(source).map_err(|error| format!("no thread to ask {named}: {error}"))
}

/// Without a goal policies look at the 95th percentile.
fn quantile(goal: Option<Goal>) -> f64 {
    goal.map_or(0.95, |goal| goal.quantile)
}

impl Told {
    fn take(&mut self, at: Instant, answer: Answer) {
        let Ok(now) = answer else {
            // The next reading covers this time too, but that is an epoch too late.
            self.fresh = None;
            return;
        };
        if let Some((then, before)) = &self.last {
            if at <= *then {
                return;
            }
            match now.since(before) {
                // The lost part of the old counters is unknown.
                None => {
                    self.fresh = None;
                    self.epochs.clear();
                }
                Some(grown) if *then >= self.since => {
                    let (requests, span) = self.fresh.unwrap_or_default();
                    self.fresh = Some((requests + grown.requests, span + at.since(*then)));
                    self.epochs.push_back(grown.buckets);
                    if self.epochs.len() > EPOCHS {
                        self.epochs.pop_front();
                    }
                }
                Some(_) => {}
            }
        }
        self.recent = match &now.tail {
            Some(Tail::Recent(time)) => Some(*time),
            Some(Tail::Buckets(_)) | None => None,
        };
        self.last = Some((at, now));
    }

    fn reading(&mut self, goal: Option<Goal>) -> ServiceReading {
        let Some((requests, span)) = self.fresh.take().filter(|(_, span)| !span.is_zero()) else {
            return ServiceReading::default();
        };
        // A summary still tells of requests that came long ago.
        let recent = self.recent.filter(|_| requests > 0.0);
        let at = |quantile: f64, samples: u64, goal: Option<Duration>| {
            tail(&self.enough(samples as f64)?, quantile, goal)
        };
        ServiceReading {
            rate: Some(Rate::per_second(requests / span.as_secs_f64())),
            mean: None,
            p95: at(0.95, 200, None).or(recent.filter(|_| goal.is_none())),
            p99: at(0.99, 1_000, None),
            tail: goal.and_then(|goal| at(goal.quantile, goal.samples(), Some(goal.latency)).or(recent)),
        }
    }

    fn forget(&mut self, now: Instant) {
        self.since = now;
        self.epochs.clear();
        self.fresh = None;
    }

    /// The histograms of as many of the last epochs as hold so many requests.
    fn enough(&self, samples: f64) -> Option<Vec<(f64, f64)>> {
        let mut together: Vec<(f64, f64)> = Vec::new();
        for epoch in self.epochs.iter().rev().filter(|epoch| !epoch.is_empty()) {
            if together.is_empty() {
                together.clone_from(epoch);
            } else if epoch.len() == together.len() {
                together.iter_mut().zip(epoch).for_each(|(sum, epoch)| sum.1 += epoch.1);
            }
            if together.last().is_some_and(|last| last.1 >= samples) {
                return Some(together);
            }
        }
        None
    }
}

fn tail(buckets: &[(f64, f64)], quantile: f64, goal: Option<Duration>) -> Option<Duration> {
    let time = match percentile(buckets, quantile)? {
        Ok(time) => time,
        Err(longest) => return goal.map(|goal| (longest * 2).max(goal * 2)),
    };
    let Some(goal) = goal.filter(|goal| time <= *goal) else { return Some(time) };
    let bound = buckets.iter().map(|(bound, _)| *bound).find(|bound| *bound >= time.as_secs_f64());
    // Rounded to nanoseconds the percentile may lie a hair beyond its bucket's end.
    match bound.filter(|bound| *bound > goal.as_secs_f64() * (1.0 + 1e-9)) {
        Some(bound) if time < goal && bound.is_finite() => Some(Duration::from_secs_f64(bound)),
        _ => Some(time),
    }
}

/// The first answer is waited for no longer than this: other services are governed meanwhile.
const FIRST: Duration = Duration::from_millis(200);

/// So many epochs are kept, as of the kernel's times.
const EPOCHS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn goal() -> Option<Goal> {
        Some("2ms@p99".parse().unwrap())
    }

    /// So many requests until now, all but a share of which took at most a millisecond, the others
    /// up to `worst` seconds.
    fn page(requests: f64, slow: f64, worst: f64) -> Answer {
        let tail =
            Tail::Buckets(vec![(0.001, requests - slow), (worst, requests), (f64::INFINITY, requests)]);
        Ok(Reading { requests, tail: Some(tail), ..Reading::default() })
    }

    #[test]
    fn an_epoch_is_what_came_between_two_answers() {
        let mut told = Told::default();
        told.take(at(1), page(500.0, 0.0, 0.004));
        assert_eq!(told.reading(goal()), ServiceReading::default(), "one answer is no rate");
        told.take(at(2), page(2_500.0, 0.0, 0.004));
        let reading = told.reading(goal());
        assert_eq!(reading.rate, Some(Rate::per_second(2_000.0)));
        assert!(reading.tail.unwrap() <= Duration::from_millis(1));
        assert_eq!(told.reading(goal()).rate, None, "nothing came since");
        told.take(at(3), page(2_500.0, 0.0, 0.004));
        assert_eq!(told.reading(goal()).rate, Some(Rate::ZERO), "silence is a rate of zero");
    }

    #[test]
    fn an_answer_that_is_missing_is_no_rate_and_the_next_one_is_of_all_the_time() {
        let mut told = Told::default();
        told.take(at(1), page(0.0, 0.0, 0.004));
        told.take(at(2), Err("no whole answer within 1s".into()));
        assert_eq!(told.reading(goal()).rate, None);
        told.take(at(3), page(400.0, 0.0, 0.004));
        assert_eq!(told.reading(goal()).rate, Some(Rate::per_second(200.0)));
        // A restart.
        told.take(at(4), page(7.0, 0.0, 0.004));
        assert_eq!(told.reading(goal()).rate, None);
        told.take(at(5), page(9.0, 0.0, 0.004));
        assert_eq!(told.reading(goal()).rate, Some(Rate::per_second(2.0)));
    }

    #[test]
    fn nothing_spans_a_change() {
        let mut told = Told::default();
        told.take(at(1), page(0.0, 0.0, 0.004));
        told.forget(at(2));
        // Slow requests were slow before the change.
        told.take(at(3), page(5_000.0, 5_000.0, 0.004));
        told.take(at(4), page(7_000.0, 5_000.0, 0.004));
        let reading = told.reading(goal());
        assert_eq!(reading.rate, Some(Rate::per_second(2_000.0)));
        assert!(reading.tail.unwrap() <= Duration::from_millis(1), "{reading:?}");
    }

    #[test]
    fn a_goal_inside_of_a_bucket_is_never_said_to_be_kept() {
        // The percentile lies between 1 and 4 ms, and so does the goal.
        let buckets = [(0.001, 980.0), (0.004, 1_000.0), (f64::INFINITY, 1_000.0)];
        let at = |goal_us| tail(&buckets, 0.985, Some(Duration::from_micros(goal_us))).unwrap();
        assert_eq!(at(3_000), Duration::from_millis(4));
        assert!(at(1_000) > Duration::from_millis(1), "missed is missed");
        assert!(at(4_000) < Duration::from_millis(4), "kept whatever it was");
        // Beyond the last bucket.
        let beyond = [(0.001, 10.0), (f64::INFINITY, 1_000.0)];
        assert_eq!(tail(&beyond, 0.99, None), None);
        assert_eq!(tail(&beyond, 0.99, Some(Duration::from_millis(5))), Some(Duration::from_millis(10)));
    }

    #[test]
    fn a_summary_tells_nothing_of_an_epoch_without_requests() {
        let recent = |requests| {
            let tail = Some(Tail::Recent(Duration::from_millis(3)));
            Ok(Reading { requests, tail, ..Reading::default() })
        };
        let mut told = Told::default();
        told.take(at(1), recent(5.0));
        told.take(at(2), recent(9.0));
        assert_eq!(told.reading(goal()).tail, Some(Duration::from_millis(3)));
        told.take(at(3), recent(9.0));
        assert_eq!(told.reading(goal()).tail, None);
    }

    proptest! {
        /// Whatever a server answers, a rate is finite and not negative, and a tail that keeps the
        /// goal lies in buckets that do.
        #[test]
        fn no_answers_make_it_panic_or_lie(
            answers in prop::collection::vec((0_u64..100, 0.0..1e9_f64, prop::collection::vec(0.0..1e6_f64, 3), 0_u8..5), 0..40),
        ) {
            let mut told = Told::default();
            for (seconds, requests, counts, kind) in answers {
                let bounds = [0.001, 0.01, f64::INFINITY];
                let answer = match kind {
                    0 => Err("silent".to_owned()),
                    1 => Ok(Reading { requests, ..Reading::default() }),
                    _ => {
                        let tail = Some(Tail::Buckets(bounds.into_iter().zip(counts).collect()));
                        Ok(Reading { requests, tail, ..Reading::default() })
                    }
                };
                if kind == 4 {
                    told.forget(at(seconds));
                }
                told.take(at(seconds), answer);
                let reading = told.reading(goal());
                if let Some(rate) = reading.rate {
                    prop_assert!(rate.as_per_second().is_finite() && rate >= Rate::ZERO);
                }
                if let Some(tail) = reading.tail {
                    prop_assert!(tail <= Duration::from_millis(1) || tail > Duration::from_millis(2), "{tail}");
                }
            }
        }
    }
}
