//! Crescendo: a request begins slowly and gains speed the longer it stays, so that the long ones
//! still make it.
//!
//! **The problem.** The length of a request is not known in advance. Rubik runs each as if it
//! were the longest that the goal speaks of; Hurry-up runs all slowly and the ones that have stayed
//! for a threshold at full speed, and the threshold has to be found. The cheapest way lies
//! between the two and follows from the distribution of work: speed is spent where few requests get
//! to.
//!
//! **The approach.** A core's time has a price in watts, and the core runs in the operating point in
//! which work costs least at that price (`schedule`). Three parts make the price:
//! - *The head*: of the schedules of least energy along its work (PACE) the cheapest with which the
//!   longest request that the goal speaks of, having done as much and being as old, would still be in
//!   time, has a price of time. So a request that had to wait gets a faster schedule, as does one whose
//!   clock came late.
//! - *Requests that wait* behind the head have prices of time as well, for the time that the mean
//!   work before them leaves. A delay now delays all that are still to come in the same busy period as
//!   well: so the price of waiting is its mean over one target. Where a clock takes as long to change
//!   as a request takes, the next decision comes too late: there the operating point is at least the one
//!   that Rubik asks for.
//! - *The package*: it is awake until the last core has nothing to do. Of the busy cores each has an
//!   equal part in that, as far as it is their work that keeps the package awake: as if all work took
//!   a little less, by so much as the last request of a busy period stayed of the time that the period lasted
//!   (a sample-path derivative; Ho and Cao 1983). Gaps too short for the package are no end of a period.
//!
//! A request that calls a device, or whose shards are searched in rounds, has *phases*, each with work of
//! its own. The next ones take time as well, on average so much (`phases`): a phase has that much less.
//! An [`ErrorBudget`] moves the goal, so that as many requests miss it as it allows.
//!
//! **Invariants.** Until enough requests are known, and for a request that cannot make it any more
//! or is beyond the quantile, the fastest operating point; an older head or a longer queue never
//! lowers the operating point.

mod busy;
mod params;
mod phases;
mod schedule;
mod server;

pub use params::{ENTRY, Params};
pub use server::Server;

use super::rubik::{Head, Rubik};
use super::{PointIndex, PointTable};
use busy::Busy;
use machine::{Duration, Instant, TurboBin};
use phases::{Learned, Phases};
use policy::error_budget::ErrorBudget;
use policy::kind::{Ends, PHASES, Request, Waiting};
use schedule::Ladder;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub point: PointIndex,
    /// When to ask again if nothing happens before.
    pub review: Option<Instant>,
}

/// One for any number of cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Crescendo {
    params: Params,
    points: PointTable,
    turbo: Vec<TurboBin>,
    cores: u16,
    rubik: Rubik,
    phases: Phases,
    memory_ns: f64,
    began: Option<Instant>,
    budget: ErrorBudget,
    busy: Busy,
    known: Option<Known>,
    waiting: Price,
}

/// Learned from the requests of one window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Known {
    phases: [Option<Learned>; PHASES],
    /// Each for up to so many busy cores.
    ladders: Vec<(u16, Ladder)>,
    /// Real time for computing at the nominal clock.
    slowness: f64,
    /// Power of the package that would end if all cores had done their work.
    package_watts: f64,
}

/// The mean price of requests that wait.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Price {
    watts: f64,
    at: Instant,
}

impl Price {
    fn record(&mut self, now: Instant, watts: f64, over_ns: f64) -> f64 {
        let kept = (-(now.since(self.at).as_nanos() as f64) / over_ns.max(1.0)).exp();
        *self = Self { watts: kept * self.watts + (1.0 - kept) * watts, at: now };
        self.watts
    }
}

impl Crescendo {
    /// For so many cores, whose fastest operating point is as fast as the bins say.
    pub fn new(params: Params, cores: u16, points: &PointTable, turbo: &[TurboBin]) -> Self {
        Self {
            params,
            points: *points,
            turbo: turbo.to_vec(),
            cores,
            rubik: Rubik::new(params.rubik(), points),
            phases: Phases::default(),
            memory_ns: 0.0,
            began: None,
            budget: ErrorBudget::new(1.0),
            busy: Busy::new(params.package_after),
            known: None,
            waiting: Price { watts: 0.0, at: Instant::ZERO },
        }
    }

    /// A request is done, or a piece of one.
    pub fn handle_completion(&mut self, now: Instant, request: &Request) {
        let age = now.since(request.arrived);
        self.rubik.handle_work(now, request.compute, request.memory);
        self.began.get_or_insert(now);
        self.phases.record(request, age);
        self.memory_ns += request.memory.as_nanos() as f64;
        self.busy.handle_completion(age);
        if request.ends == Ends::Request {
            self.rubik.handle_answer(now, age);
            self.budget.record(age, self.params.rubik.target);
        }
    }

    /// So many cores work from now on. True if the others are to be asked again.
    pub fn handle_busy(&mut self, now: Instant, cores: u16) -> bool {
        let is_priced = self.known.as_ref().is_some_and(|known| known.package_watts > 0.0);
        self.busy.change(now, cores) && is_priced
    }

    /// When to call [`Self::handle_timeout`]; never while no request completes.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.rubik.poll_timeout()
    }

    /// Ends the windows that are over.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.rubik.handle_timeout(now);
        self.budget.end_epoch(now, &self.params.terms());
        self.rubik.set_target(self.params.rubik.target.scale(self.budget.aim()));
        let enough = u64::from(self.params.rubik.samples_min.max(1));
        let window = self.began.map_or(Duration::ZERO, |began| now.since(began));
        if self.phases.pieces() >= enough && window >= self.params.rubik.rebuild_every {
            self.rebuild();
        }
    }

    /// For a core that executes `head` and then, in this order, the requests in `waiting`. A core with
    /// nothing to do gets the slowest operating point.
    pub fn choose(
        &mut self,
        now: Instant,
        head: Option<Head>,
        waiting: impl IntoIterator<Item = Waiting>,
    ) -> Choice {
        let fastest = Choice { point: self.points.fastest(), review: None };
        match head {
            Some(head) => self.cheapest(now, head, waiting).unwrap_or(fastest),
            None => Choice { point: self.points.slowest(), review: None },
        }
    }

    /// `None` where time is worth every price.
    fn cheapest(
        &mut self,
        now: Instant,
        head: Head,
        waiting: impl IntoIterator<Item = Waiting>,
    ) -> Option<Choice> {
        let Known { phases, slowness, package_watts, .. } = self.known.as_ref()?;
        let phase = |phase: u8| phases.get(usize::from(phase)).and_then(Option::as_ref);
        let Learned { schedules, follows, .. } = phase(head.phase)?;
        let delay_ns = self.params.rubik.dvfs_delay.as_nanos() as f64;
        let target_ns = self.rubik.corrected_target().as_nanos() as f64;
        let left_ns = |arrived: Instant, follows: Duration| {
            target_ns - delay_ns - (now.since(arrived) + follows).as_nanos() as f64
        };
        let place = schedules.place(head.done_compute.as_nanos() as f64)?;
        let ladder = self.known.as_ref()?.ladder(self.busy.cores());
        let mut others_watts = package_watts / f64::from(self.busy.cores().max(1));
        // Without those that wait: it falls by steps as others_watts rises, and one more request could slow the
        // core down.
        let lambda = schedules.price(place, left_ns(head.arrived, *follows), others_watts, ladder)?;
        let mut waiting = waiting.into_iter().peekable();
        let mut least = self.points.slowest();
        if waiting.peek().is_some() && schedules.parts() == 1 {
            // As if each had come so much earlier.
            let earlier = |arrived: Instant, follows: Duration| {
                Instant::from_nanos(arrived.as_nanos().saturating_sub(follows.as_nanos()))
            };
            let head = Head { arrived: earlier(head.arrived, *follows), ..head };
            let follows = |other: &Waiting| phase(other.phase).map_or(Duration::ZERO, |phase| phase.follows);
            let waiting = waiting.map(|other| earlier(other.arrived, follows(&other)));
            least = self.rubik.choose(now, Some(head), waiting);
        } else if schedules.parts() > 1 {
            let highest = ladder.highest();
            let (mut ahead_ns, mut watts) = (schedules.rest_ns(place) * slowness, 0.0);
            for other in waiting {
                let price = phase(other.phase).and_then(|phase| {
                    phase.schedules.price_of_waiting(left_ns(other.arrived, phase.follows) - ahead_ns)
                });
                watts += price.unwrap_or(highest);
                ahead_ns += phase(other.phase).map_or(0.0, |phase| phase.mean_ns);
                if watts >= highest {
                    break;
                }
            }
            others_watts += self.waiting.record(now, watts.min(highest), WAITING_TARGETS * target_ns);
        }
        let planned = ladder.point(others_watts + schedules.watts(place, lambda));
        let point = planned.max(least);
        // Faster than planned, the next step comes sooner by as much at most.
        let faster = self.points.speed(planned) / self.points.speed(point);
        let lasts_ns = schedules.lasts_ns(place, lambda, others_watts, ladder) * faster;
        let lasts = Duration::from_nanos(lasts_ns.max(1.0) as u64).max(self.least_part() / 4);
        Some(Choice { point, review: (point != self.points.fastest()).then(|| now + lasts) })
    }

    /// Shorter parts than so many changes of the clock are not worth planning.
    fn least_part(&self) -> Duration {
        self.params.rubik.dvfs_delay * CHANGES_IN_PART
    }

    fn rebuild(&mut self) {
        let computed_ns = self.phases.computed_ns().max(1.0);
        let memory = self.memory_ns / computed_ns;
        let seen = self.busy.take();
        let slowness = if seen.cores_ns > 0.0 { seen.cores_ns / computed_ns } else { 1.0 + memory };
        let package_watts = self.params.shared.as_watts() * seen.critical;
        let table = self.points.fastest();
        let nominal = self.points.khz(table).0 as f64;
        let ladder = |speed, power| Ladder::new(&self.points, self.params.asleep, memory, (speed, power));
        let bin = |bin: &TurboBin| (bin.cores, ladder(bin.frequency.0 as f64 / nominal, bin.power));
        let mut ladders: Vec<(u16, Ladder)> = self.turbo.iter().map(bin).collect();
        if ladders.last().is_none_or(|(cores, _)| *cores < self.cores) {
            ladders.push((u16::MAX, ladder(1.0, self.points.power(table))));
        }
        let all_busy = &ladders[ladders.len() - 1].1;
        let least_ns = self.least_part().as_nanos() as f64;
        let others_watts = package_watts / f64::from(self.cores.max(1));
        let price = (others_watts, all_busy);
        let phases = self.phases.take(self.params.quantile(), least_ns, slowness, price);
        let any = phases.iter().any(Option::is_some);
        self.known = any.then_some(Known { phases, ladders, slowness, package_watts });
        (self.memory_ns, self.began) = (0.0, None);
    }
}

impl Known {
    fn ladder(&self, busy: u16) -> &Ladder {
        let place = self.ladders.partition_point(|(cores, _)| *cores < busy);
        &self.ladders[place.min(self.ladders.len() - 1)].1
    }
}

/// A part of the work takes at least so many times as long as the clock takes to change \[D\]; with
/// fewer the request is over before its clock has followed.
const CHANGES_IN_PART: u64 = 4;

/// The price of waiting is its mean over so many targets \[D\]: with 10 to 200 the power of Hurry-up's figure
/// 13 is the same within 1.3 %.
const WAITING_TARGETS: f64 = 20.0;

#[cfg(test)]
mod closed_loop;
#[cfg(test)]
mod properties;
