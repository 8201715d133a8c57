//! uDPM: sleep as long as the queue can bear, and run no faster than the queue needs [R Chou et
//! al., HPCA 2019; C].
//!
//! As with [`super::dyn_sleep`], a core that runs out of work sleeps deeply at once and wakes just
//! in time. But slack can be spent on sleep or on a slower clock, so with each arrival at a
//! sleeping core all operating points are compared, each with the wake-up that its own tails allow,
//! and the one with the least average power is planned:
//!
//! ```text
//!   since                        begin          up                     all divided by total time
//!     |        asleep              |  waking     |switch|   busy: n mean service times     |
//!     |        sleep power         |       the point's power (switch: mean of both)         |
//! ```
//!
//! Only operating points that leave more than [`Params::least_sleep`], and the exit latency, until
//! the core is up take part. If none does, it is the fastest; in the exact form the operating point
//! already planned stays as long as it keeps all deadlines. A change of operating point costs
//! [`Params::switch`] of every request's slack. While a core is busy, an arrival whose tail behind
//! the whole queue is beyond the goal has the operating point raised at the next completion: to the
//! slowest operating point that keeps all deadlines ([`Form::Exact`]), or for which n tails of one
//! are within the goal ([`Form::Published`]). An operating point is lowered by the next sleep only.
//!
//! Which core an arrival goes to is for [`super::reschedule`] to say.
//!
//! Invariants, in the exact form: a core is up by every deadline, at the operating point planned,
//! that was still at least one exit latency away when its request arrived; a new request never
//! delays a wake-up; a busy core's operating point never falls. Until service times are known, no
//! request is delayed and the clock is the fastest.

mod choice;
#[cfg(test)]
mod closed_loop;
mod params;
#[cfg(test)]
mod properties;
mod server;

pub use params::Params;

use super::{Deadline, Form, SleepState, tails};
use choice::behind;
use machine::{Duration, Instant};
use policy::frequency::{PointIndex, PointTable};
use policy::kind::Make;
use policy::registry::{Entry, Question, Word, settings};
use serde::{Deserialize, Serialize};
use tails::Tails;

/// With more requests than this at a busy core that is behind, it gets the fastest operating point
/// without counting further. The need of 64 requests is the same, whichever of them is looked at
/// \[D\].
const COUNTED: u32 = 64;

pub static ENTRY: Entry = Entry {
    words: &[
        Word::new("udpm", "as `dynsleep`, with the frequency that costs least", |around| {
            settings(Params::around(around, Form::Exact))
        }),
        Word::new("udpm-published", "the same with the deadline of the published code", |around| {
            settings(Params::around(around, Form::Published))
        }),
    ],
    question: Question::Waking,
    also: &[Question::Idle, Question::Frequency],
    help: "As DynSleep, a core sleeps as long as its queue can bear. With each arrival at a sleeping core \
           all frequencies are compared, each with the wake-up that its own tails allow, and the one of \
           the least average power is planned. Needs a queue per core.",
    origin: "uDPM (Chou et al., HPCA 2019), recalled",
    needs_goal: true,
    make: Make::WakeDelay(|making| {
        let (params, sleep) = (making.params(), making.deepest_advertised()?);
        Some(Box::new(UDpm::new(params, making.points(), sleep, making.cpus(), Instant::ZERO)))
    }),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeAt {
    /// When it must begin. The core is up one exit latency later.
    pub begin: Instant,
    /// The operating point to run in from then on.
    pub point: PointIndex,
}

/// Wake-ups and operating points of all cores of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UDpm {
    params: Params,
    tails: Tails,
    points: PointTable,
    sleep: SleepState,
    cores: Vec<Core>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Core {
    asleep: bool,
    in_system: u32,
    since: Instant,
    arrived: Option<Instant>,
    /// The operating point it ran in last, or runs in.
    point: PointIndex,
    plan: Option<WakeAt>,
    /// An arrival was beyond the goal.
    raise: bool,
    /// One deadline for each of the operating points.
    deadlines: Vec<Deadline>,
}

impl Core {
    fn fall_asleep(&mut self, now: Instant) {
        (self.asleep, self.since, self.plan, self.raise) = (true, now, None, false);
        self.deadlines.fill(Deadline::new(now));
    }
}

impl UDpm {
    /// All cores sleep since `now`, in the fastest operating point.
    pub fn new(params: Params, points: PointTable, sleep: SleepState, cores: usize, now: Instant) -> Self {
        let core = Core {
            asleep: true,
            in_system: 0,
            since: now,
            arrived: None,
            point: points.fastest(),
            plan: None,
            raise: false,
            deadlines: vec![Deadline::new(now); points.count()],
        };
        let tails = Tails::new(params.tails, points.speed(points.slowest()));
        Self { params, tails, points, sleep, cores: vec![core; cores] }
    }

    /// Which core a request shall go to that would by itself go to `home`. `draw` is a random
    /// number of the driver's; the same numbers give the same choices.
    pub fn route(&self, home: usize, now: Instant, draw: u64) -> usize {
        let loads = (0..self.cores.len()).map(|core| self.load(core, now));
        self.params.reschedule.choose(home, self.is_critical(home, now), self.params.goal, draw, loads)
    }

    /// A request has come to a core. Says when its wake-up must begin, which replaces the last
    /// answer; `None` if it is awake.
    pub fn handle_arrival(&mut self, core: usize, now: Instant) -> Option<WakeAt> {
        let Self { params, tails, points, .. } = self;
        let at = &mut self.cores[core];
        at.in_system += 1;
        at.arrived = Some(now);
        if at.asleep {
            for (deadline, point) in at.deadlines.iter_mut().zip(points.iter()) {
                deadline.add(params.form, now, params.goal, tails, points.speed(point));
            }
            let plan = self.plan(&self.cores[core], now, None);
            self.cores[core].plan = Some(plan);
            return Some(plan);
        }
        let tail = behind(params, tails, at.in_system, points.speed(at.point));
        at.raise |= tail.is_none_or(|tail| tail > params.goal);
        None
    }

    /// A core is up, for whatever reason, and runs in the operating point planned if there was a
    /// plan.
    pub fn handle_awake(&mut self, core: usize) {
        let core = &mut self.cores[core];
        core.asleep = false;
        core.point = core.plan.take().map_or(core.point, |plan| plan.point);
    }

    /// A core has nothing to do and sleeps. Said by itself when the last request of a core
    /// completes; to be said by the driver when it was awake for another reason.
    pub fn handle_idle(&mut self, core: usize, now: Instant) {
        self.cores[core].fall_asleep(now);
    }

    /// A core has completed a request, which needed this much: compute at nominal speed, and
    /// memory. `waiting` are the arrivals of those that are left, the next first; if there is none
    /// the core goes to sleep. Says which operating point to change to, if any.
    pub fn handle_completion(
        &mut self,
        core: usize,
        now: Instant,
        needed: (Duration, Duration),
        waiting: impl Iterator<Item = Instant> + Clone,
    ) -> Option<PointIndex> {
        self.tails.handle_completion(now, needed.0, needed.1);
        let Self { params, tails, points, .. } = self;
        let at = &mut self.cores[core];
        at.in_system = at.in_system.saturating_sub(1);
        if at.in_system == 0 {
            at.fall_asleep(now);
            return None;
        }
        if !std::mem::take(&mut at.raise) {
            return None;
        }
        let holds = |point: PointIndex| {
            let speed = points.speed(point);
            if params.form == Form::Published {
                return behind(params, tails, at.in_system, speed).is_some_and(|tail| tail <= params.goal);
            }
            let start = if point == at.point { now } else { now + params.switch };
            let in_time = |(place, arrived): (u32, Instant)| {
                tails.tail(place, speed).is_some_and(|tail| start + tail <= arrived + params.goal)
            };
            at.in_system <= COUNTED && (1..).zip(waiting.clone()).all(in_time)
        };
        let faster = points.iter().skip(at.point.index());
        let point = faster.into_iter().find(|&point| holds(point)).unwrap_or(points.fastest());
        let changed = point != at.point;
        at.point = point;
        changed.then_some(point)
    }

    /// The wake-up of a core that is planned; `None` if it is awake or nothing waits for it.
    pub fn wake(&self, core: usize) -> Option<WakeAt> {
        self.cores[core].plan
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.tails.poll_timeout()
    }

    /// Learns, if it is time. Plans stay as they are.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.tails.handle_timeout(now);
    }
}

#[cfg(test)]
mod tests;
