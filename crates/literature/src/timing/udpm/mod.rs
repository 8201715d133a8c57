//! uDPM: sleep as long as the queue can bear, and run no faster than the queue needs [R Chou et
//! al., HPCA 2019; C].
//!
//! As with [`super::dyn_sleep`], a core that runs out of work sleeps deeply at once and wakes just
//! in time. But slack can be spent on sleep or on a slower clock, so with each arrival at a
//! sleeping core all gears are compared, each with the wake-up that its own tails allow, and the
//! one with the least average power is planned:
//!
//! ```text
//!   since                        begin          up
//!     |        asleep              |  waking     |switch|   busy: n mean service times     |
//!     |        sleep power         |          the gear's power (switch: mean of both)      |   / total time
//! ```
//!
//! Only gears that leave more than [`Params::least_sleep`], and the exit latency, until the core is
//! up take part. If none does, it is the fastest; in the exact form the gear already planned stays
//! as long as it keeps all deadlines. A change of gear costs [`Params::switch`] of every request's
//! slack. While a core is busy, an arrival whose tail behind the whole queue is beyond the goal has
//! the gear raised at the next completion: to the slowest gear that keeps all deadlines
//! ([`Form::Exact`]), or for which n tails of one are within the goal ([`Form::Published`]). A gear
//! is lowered by the next sleep only.
//!
//! Which core an arrival goes to is for [`super::reschedule`] to say.
//!
//! Invariants, in the exact form: a core is up by every deadline, at the gear planned, that was
//! still at least one exit latency away when its request arrived; a new request never delays a
//! wake-up; a busy core's gear never falls. Until service times are known, no request is delayed
//! and the clock is the fastest.

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
use policy::frequency::{GearIndex, GearTable};
use policy::kind::Make;
use policy::registry::{Entry, Question, Word, settings};
use serde::{Deserialize, Serialize};
use tails::Tails;

/// With more requests than this at a busy core that is behind, it gets the fastest gear without
/// counting further. The need of 64 requests is the same, whichever of them is looked at \[D\].
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
        Some(Box::new(UDpm::new(params, making.gears(), sleep, making.cpus(), Instant::ZERO)))
    }),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeAt {
    /// When it must begin. The core is up one exit latency later.
    pub begin: Instant,
    /// The gear to run in from then on.
    pub gear: GearIndex,
}

/// Wake-ups and gears of all cores of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UDpm {
    params: Params,
    tails: Tails,
    gears: GearTable,
    sleep: SleepState,
    cores: Vec<Core>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Core {
    asleep: bool,
    in_system: u32,
    since: Instant,
    arrived: Option<Instant>,
    /// The gear it ran in last, or runs in.
    gear: GearIndex,
    plan: Option<WakeAt>,
    /// An arrival was beyond the goal.
    raise: bool,
    /// One deadline for each of the gears.
    deadlines: Vec<Deadline>,
}

impl Core {
    fn fall_asleep(&mut self, now: Instant) {
        (self.asleep, self.since, self.plan, self.raise) = (true, now, None, false);
        self.deadlines.fill(Deadline::new(now));
    }
}

impl UDpm {
    /// All cores sleep since `now`, in the fastest gear.
    pub fn new(params: Params, gears: GearTable, sleep: SleepState, cores: usize, now: Instant) -> Self {
        let core = Core {
            asleep: true,
            in_system: 0,
            since: now,
            arrived: None,
            gear: gears.fastest(),
            plan: None,
            raise: false,
            deadlines: vec![Deadline::new(now); gears.count()],
        };
        let tails = Tails::new(params.tails, gears.speed(gears.slowest()));
        Self { params, tails, gears, sleep, cores: vec![core; cores] }
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
        let Self { params, tails, gears, .. } = self;
        let at = &mut self.cores[core];
        at.in_system += 1;
        at.arrived = Some(now);
        if at.asleep {
            for (deadline, gear) in at.deadlines.iter_mut().zip(gears.iter()) {
                deadline.add(params.form, now, params.goal, tails, gears.speed(gear));
            }
            let plan = self.plan(&self.cores[core], now, None);
            self.cores[core].plan = Some(plan);
            return Some(plan);
        }
        let tail = behind(params, tails, at.in_system, gears.speed(at.gear));
        at.raise |= tail.is_none_or(|tail| tail > params.goal);
        None
    }

    /// A core is up, for whatever reason, and runs in the gear planned if there was a plan.
    pub fn handle_awake(&mut self, core: usize) {
        let core = &mut self.cores[core];
        core.asleep = false;
        core.gear = core.plan.take().map_or(core.gear, |plan| plan.gear);
    }

    /// A core has nothing to do and sleeps. Said by itself when the last request of a core
    /// completes; to be said by the driver when it was awake for another reason.
    pub fn handle_idle(&mut self, core: usize, now: Instant) {
        self.cores[core].fall_asleep(now);
    }

    /// A core has completed a request, which needed this much: compute at nominal speed, and
    /// memory. `waiting` are the arrivals of those that are left, the next first; if there is none
    /// the core goes to sleep. Says which gear to change to, if any.
    pub fn handle_completion(
        &mut self,
        core: usize,
        now: Instant,
        needed: (Duration, Duration),
        waiting: impl Iterator<Item = Instant> + Clone,
    ) -> Option<GearIndex> {
        self.tails.handle_completion(now, needed.0, needed.1);
        let Self { params, tails, gears, .. } = self;
        let at = &mut self.cores[core];
        at.in_system = at.in_system.saturating_sub(1);
        if at.in_system == 0 {
            at.fall_asleep(now);
            return None;
        }
        if !std::mem::take(&mut at.raise) {
            return None;
        }
        let holds = |gear: GearIndex| {
            let speed = gears.speed(gear);
            if params.form == Form::Published {
                return behind(params, tails, at.in_system, speed).is_some_and(|tail| tail <= params.goal);
            }
            let start = if gear == at.gear { now } else { now + params.switch };
            let in_time = |(place, arrived): (u32, Instant)| {
                tails.tail(place, speed).is_some_and(|tail| start + tail <= arrived + params.goal)
            };
            at.in_system <= COUNTED && (1..).zip(waiting.clone()).all(in_time)
        };
        let faster = gears.iter().skip(at.gear.index());
        let gear = faster.into_iter().find(|&gear| holds(gear)).unwrap_or(gears.fastest());
        let changed = gear != at.gear;
        at.gear = gear;
        changed.then_some(gear)
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
