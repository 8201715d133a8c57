//! The stage itself: the requests that are held, and when they go.

use super::{Coming, Mode, Params, Tails};
use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A request, as the driver numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StagedId(pub u64);

/// The verdict on a request that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Hold,
    /// A burst begins with it: all that is staged is to be had from [`Stager::poll_release`], this
    /// one last.
    ReleaseNow,
}

/// A request that goes: to be handed back when it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    pub id: StagedId,
    pub arrived: Instant,
    /// The time when its burst began.
    pub released: Instant,
    /// The time when it should be complete.
    pub deadline: Instant,
    /// Number of requests in its burst.
    pub burst: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Bursts that began because the period ended.
    pub by_period: u64,
    /// Bursts that began because a deadline was in danger.
    pub by_deadline: u64,
    /// Bursts that began because the stage was full.
    pub by_full: u64,
    /// Bursts that began early so as not to meet another server's.
    pub by_giving_way: u64,
    /// Bursts that began because the driver wanted no more staging.
    pub by_drain: u64,
    /// Requests that were complete in time.
    pub in_time: u64,
    /// Requests that had been held and missed their deadline.
    pub held_and_missed: u64,
    /// Requests that had not been held and missed their deadline.
    pub passed_and_missed: u64,
    /// Requests that were withdrawn while they were held.
    pub withdrawn: u64,
    /// Time for which requests were held, all together.
    pub held: Duration,
}

impl Record {
    /// Number of bursts, for whatever reason they began.
    pub fn bursts(&self) -> u64 {
        self.by_period + self.by_deadline + self.by_full + self.by_giving_way + self.by_drain
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Staged {
    id: StagedId,
    arrived: Instant,
    deadline: Instant,
}

/// A burst that is being handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Burst {
    /// How many of the first staged requests are still to go.
    left: u32,
    began: Instant,
    size: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stager {
    params: Params,
    /// Sorted by the time of arrival.
    staged: VecDeque<Staged>,
    burst: Option<Burst>,
    /// The end of the period, in the modes that have one.
    period_end: Option<Instant>,
    /// When a burst begins while the tail is unknown, where deadlines count.
    blind_due: Option<Instant>,
    earliest_deadline: Option<Instant>,
    in_service: u32,
    tails: Tails,
    margin_ns: f64,
    record: Record,
}

impl Stager {
    pub fn new(params: Params) -> Self {
        // Room for a burst of the usual size; a larger one allocates once.
        let room = params.max_staged.min(1024) as usize;
        Self {
            params,
            staged: VecDeque::with_capacity(room),
            burst: None,
            period_end: None,
            blind_due: None,
            earliest_deadline: None,
            in_service: 0,
            tails: Tails::new(params.history, params.first),
            margin_ns: 0.0,
            record: Record::default(),
        }
    }

    /// A request arrived, which should be complete at `deadline`.
    pub fn handle_arrival(&mut self, now: Instant, id: StagedId, deadline: Instant) -> Verdict {
        let request = Staged { id, arrived: now, deadline };
        self.staged.push_back(request);
        self.count_in(request);
        if self.staged.len() >= self.params.max_staged as usize {
            self.begin(now);
            self.record.by_full += 1;
            return Verdict::ReleaseNow;
        }
        if self.release_if_due(now) { Verdict::ReleaseNow } else { Verdict::Hold }
    }

    /// A request is not wanted any more. False if it is not staged: it went, or never was.
    pub fn handle_withdrawn(&mut self, now: Instant, id: StagedId) -> bool {
        let going = self.burst.map_or(0, |burst| burst.left as usize);
        let Some(place) = self.staged.iter().skip(going).position(|request| request.id == id) else {
            return false;
        };
        self.staged.remove(going + place);
        self.record.withdrawn += 1;
        // With the request its deadline has gone.
        self.forget_dues();
        for place in going..self.staged.len() {
            self.count_in(self.staged[place]);
        }
        self.release_if_due(now);
        true
    }

    /// A request that was released is complete.
    pub fn handle_completed(&mut self, now: Instant, release: &Release) {
        self.in_service = self.in_service.saturating_sub(1);
        self.tails.handle_completed(release.burst, now.since(release.released));
        let was_held = release.released > release.arrived;
        let step = self.params.margin_step.as_nanos() as f64;
        let tolerated = 1.0 - self.params.quantile.as_f64();
        if now <= release.deadline {
            self.record.in_time += 1;
            // As much narrower as keeps the balance when just the tolerated share misses.
            self.margin_ns -= step * tolerated;
        } else if was_held {
            self.record.held_and_missed += 1;
            self.margin_ns += step * (1.0 - tolerated);
        } else {
            // No margin could have helped.
            self.record.passed_and_missed += 1;
        }
        self.margin_ns = self.margin_ns.clamp(0.0, self.params.max_margin.as_nanos() as f64);
        self.release_if_due(now);
    }

    /// A request that was released will not be completed: nothing is learned from it.
    pub fn handle_failed(&mut self, now: Instant, _release: &Release) {
        self.in_service = self.in_service.saturating_sub(1);
        // A smaller burst need not be a faster one: less may be known of it.
        self.release_if_due(now);
    }

    /// All that is staged shall go, now: the service is to stop, or staging is.
    pub fn handle_drain(&mut self, now: Instant) {
        if self.held() > 0 {
            self.begin(now);
            self.record.by_drain += 1;
        }
    }

    /// All that is staged shall go before its time, so as not to meet another server's burst
    /// ([`super::timetable`]).
    pub fn handle_give_way(&mut self, now: Instant) {
        if self.held() > 0 {
            self.begin(now);
            self.record.by_giving_way += 1;
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.release_if_due(now);
    }

    /// When to call `handle_timeout`. Completions may move it either way.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due()
    }

    pub fn poll_release(&mut self) -> Option<Release> {
        let burst = self.burst.as_mut()?;
        let request = self.staged.pop_front()?;
        let release = Release {
            id: request.id,
            arrived: request.arrived,
            released: burst.began.max(request.arrived),
            deadline: request.deadline,
            burst: burst.size,
        };
        burst.left -= 1;
        if burst.left == 0 {
            self.burst = None;
        }
        self.record.held += release.released.since(release.arrived);
        Some(release)
    }

    /// The next burst, as the timetable of several stages needs it; `None` if nothing is staged.
    /// Where there are periods, their phases keep bursts apart, and this one is not to be moved.
    pub fn coming(&self) -> Option<Coming> {
        let due = self.due()?;
        let span = match self.params.mode {
            Mode::Deadline => self.tails.tail(self.size()).unwrap_or(Duration::ZERO),
            Mode::Period | Mode::Guarded => Duration::ZERO,
        };
        Some(Coming { due, floor: self.blind_due.map_or(due, |blind| blind.min(due)), span })
    }

    /// How many requests are held, those that are going left out.
    pub fn held(&self) -> usize {
        self.staged.len() - self.burst.map_or(0, |burst| burst.left as usize)
    }

    /// How long requests take in bursts.
    pub fn tails(&self) -> &Tails {
        &self.tails
    }

    /// How long before its deadline a request goes if `size` would then be in service: tail and
    /// margin.
    pub fn lead(&self, size: u32) -> Option<Duration> {
        Some(self.tails.tail(size)? + Duration::from_nanos(self.margin_ns as u64))
    }

    pub fn record(&self) -> Record {
        self.record
    }

    /// The size that a burst would have if it began now.
    fn size(&self) -> u32 {
        self.in_service.saturating_add(self.held() as u32)
    }

    fn due(&self) -> Option<Instant> {
        match (self.period_end, self.in_danger()) {
            (Some(end), Some(danger)) => Some(end.min(danger)),
            (end, danger) => end.or(danger),
        }
    }

    /// When a deadline will be in danger; `None` if nothing is staged, or deadlines do not count.
    fn in_danger(&self) -> Option<Instant> {
        let blind = self.blind_due?;
        let size = self.size();
        let Some((lead, deadline)) = self.lead(size).zip(self.earliest_deadline) else { return Some(blind) };
        let due = deadline - lead;
        Some(if self.tails.knows(size) { due } else { due.min(blind) })
    }

    fn count_in(&mut self, request: Staged) {
        let earlier =
            |known: Option<Instant>, other: Instant| Some(known.map_or(other, |known| known.min(other)));
        if self.params.mode != Mode::Deadline {
            let (period, phase) = (self.params.period.as_nanos().max(1), self.params.phase.as_nanos());
            // Periods of a phase end at phase, phase + period, ...; the first end after the arrival
            // is meant.
            let phase = phase % period;
            let arrived = request.arrived.as_nanos();
            let end = match arrived.checked_sub(phase) {
                Some(after) => {
                    (after / period).saturating_add(1).saturating_mul(period).saturating_add(phase)
                }
                None => phase,
            };
            self.period_end = earlier(self.period_end, Instant::from_nanos(end));
        }
        if self.params.mode != Mode::Period {
            let time = request.deadline.since(request.arrived);
            let blind = request.arrived + time.scale(self.params.first_share.as_f64());
            self.blind_due = earlier(self.blind_due, blind);
            self.earliest_deadline = earlier(self.earliest_deadline, request.deadline);
        }
    }

    fn forget_dues(&mut self) {
        (self.period_end, self.blind_due, self.earliest_deadline) = (None, None, None);
    }

    fn release_if_due(&mut self, now: Instant) -> bool {
        if self.due().is_none_or(|due| due > now) {
            return false;
        }
        if self.period_end.is_some_and(|end| end <= now) {
            self.record.by_period += 1;
        } else {
            self.record.by_deadline += 1;
        }
        self.begin(now);
        true
    }

    /// A burst begins with all that is staged. The rest of the one before goes with it.
    fn begin(&mut self, now: Instant) {
        let size = self.size();
        self.in_service = size;
        self.burst = Some(Burst { left: self.staged.len() as u32, began: now, size });
        self.forget_dues();
    }
}

#[cfg(test)]
mod tests;
