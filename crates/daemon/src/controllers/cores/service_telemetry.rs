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
        let named = source.named(port);
        let names = match source {
            TelemetrySource::Prometheus { rate, tail, .. } => {
                Names { rate: Some(rate.clone()), tail: tail.clone(), called }
            }
            TelemetrySource::Requests | TelemetrySource::Own { .. } => Names { called, ..Names::default() },
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
            // Another source: it has its own count of our questions.
            self.told.last = None;
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
mod tests;
