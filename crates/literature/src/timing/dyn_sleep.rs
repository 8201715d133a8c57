//! DynSleep: each core sleeps for as long as the requests in its queue can wait [R Chou et al.,
//! ISLPED 2016; C].
//!
//! A core that runs out of work enters the deepest idle state at once. Requests that arrive
//! meanwhile wait. With each, the core's wake-up is planned anew, for the earliest deadline of all
//! that wait (see [`super`] for terms and forms), and it is only ever moved to an earlier time.
//! Once up, the core serves until its queue is empty. The clock stays where it is.
//!
//! Invariants, in the exact form: the core is up by every deadline that was at least one
//! exit latency away when its request arrived, and a new request never delays the wake-up. Until
//! service times are known, no request is delayed.

use super::{Deadline, Form, SleepState, tails};
use machine::{Duration, Instant};
use policy::check::Check;
use policy::frequency::PointIndex;
use policy::kind::{Make, WakeDelayPolicy};
use policy::registry::{Entry, Parameter, Question, Surroundings, Word, one_of, settings, table, time};
use serde::{Deserialize, Serialize};
use tails::Tails;

pub static ENTRY: Entry = Entry {
    words: &[
        Word::new("dynsleep", "a sleeping core wakes as late as the goal allows", |around| {
            settings(Params::around(around, Form::Exact))
        }),
        Word::new("dynsleep-published", "the same with the deadline of the published code", |around| {
            settings(Params::around(around, Form::Published))
        }),
    ],
    question: Question::Waking,
    also: &[Question::Idle],
    help: "A core that runs out of work sleeps in the deepest state at once. Requests that arrive \
           meanwhile wait, and the core is up for the earliest deadline among them. Needs a queue per \
           core.",
    origin: "DynSleep (Chou et al., ISLPED 2016), recalled",
    needs_goal: true,
    make: Make::WakeDelay(|making| {
        let (params, sleep) = (making.params(), making.deepest_advertised()?);
        Some(Box::new(DynSleep::new(params, sleep, 1.0, making.cpus(), Instant::ZERO)))
    }),
    ..Entry::of::<Params>()
};

impl Params {
    fn around(around: &Surroundings<'_>, form: Form) -> Self {
        let plain = Self::default();
        Self { goal: around.latency_or(plain.goal), form, tails: tails::Params::around(around) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub goal: Duration,
    pub form: Form,
    pub tails: tails::Params,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("goal", "L: the tail of the response time that shall hold")
            .above_zero()
            .given("the goal")
            .source("the strictest goal of Peafowl, section 4.3"),
        one_of("form", "which deadline counts", &["exact", "published"])
            .source("ours; published is the authors' code"),
        table("tails", "how service times are learned", tails::Params::PARAMETERS),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self { goal: Duration::from_micros(300), form: Form::Exact, tails: tails::Params::default() }
    }
}

/// The wake-ups of all cores of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DynSleep {
    params: Params,
    tails: Tails,
    speed: f64,
    sleep: SleepState,
    cores: Vec<Core>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Core {
    in_system: u32,
    /// Of a core that sleeps.
    deadline: Option<Deadline>,
    wake: Option<Instant>,
}

impl DynSleep {
    /// All cores sleep since `now`; awake, they run at this share of the nominal speed.
    pub fn new(params: Params, sleep: SleepState, speed: f64, cores: usize, now: Instant) -> Self {
        let core = Core { in_system: 0, deadline: Some(Deadline::new(now)), wake: None };
        Self { params, tails: Tails::new(params.tails, speed), speed, sleep, cores: vec![core; cores] }
    }

    /// A request has come to a core. Says when its wake-up must begin, which replaces the last
    /// answer; `None` if it is awake.
    pub fn handle_arrival(&mut self, core: usize, now: Instant) -> Option<Instant> {
        let core = &mut self.cores[core];
        core.in_system += 1;
        let deadline = core.deadline.as_mut()?;
        deadline.add(self.params.form, now, self.params.goal, &self.tails, self.speed);
        let begin = (deadline.up_by - self.sleep.exit_latency).max(now);
        core.wake = Some(core.wake.map_or(begin, |planned| planned.min(begin)));
        core.wake
    }

    /// A core is up, for whatever reason.
    pub fn handle_awake(&mut self, core: usize) {
        let core = &mut self.cores[core];
        (core.deadline, core.wake) = (None, None);
    }

    /// A core has nothing to do and sleeps. Said by itself when the last request of a core
    /// completes; to be said by the driver when it was awake for another reason.
    pub fn handle_idle(&mut self, core: usize, now: Instant) {
        let core = &mut self.cores[core];
        (core.deadline, core.wake) = (Some(Deadline::new(now)), None);
    }

    /// A core has completed a request, which needed this much: compute at nominal speed, and
    /// memory. True if it was the last, so that the core goes to sleep.
    pub fn handle_completion(
        &mut self,
        core: usize,
        now: Instant,
        compute: Duration,
        memory: Duration,
    ) -> bool {
        self.tails.handle_completion(now, compute, memory);
        let left = &mut self.cores[core].in_system;
        *left = left.saturating_sub(1);
        let last = *left == 0;
        if last {
            self.handle_idle(core, now);
        }
        last
    }

    /// When the wake-up of a core must begin; `None` if it is awake or nothing waits for it.
    pub fn wake(&self, core: usize) -> Option<Instant> {
        self.cores[core].wake
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

impl WakeDelayPolicy for DynSleep {
    fn handle_arrival(&mut self, core: usize, now: Instant) -> Option<Instant> {
        self.handle_arrival(core, now)
    }

    fn handle_awake(&mut self, core: usize) {
        self.handle_awake(core);
    }

    fn handle_idle(&mut self, core: usize, now: Instant) {
        self.handle_idle(core, now);
    }

    fn handle_completion(
        &mut self,
        core: usize,
        now: Instant,
        (compute, memory): (Duration, Duration),
        _: &dyn Fn(usize) -> Option<Instant>,
    ) -> Option<PointIndex> {
        self.handle_completion(core, now, compute, memory);
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout(now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::udpm::{self, UDpm};
    use super::*;
    use crate::frequency::points::tests::points_at;
    use machine::Microwatts;
    use proptest::prelude::*;

    const EXIT: Duration = Duration::from_micros(50);
    const SLEEP: SleepState = SleepState { exit_latency: EXIT, power: Microwatts(100_000), wake_joules: 0.0 };

    fn us(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    /// One core, asleep, goal 300 us; every request takes 20 us.
    fn core(form: Form) -> DynSleep {
        let tails = tails::Params { least: 1, ..tails::Params::default() };
        let params = Params { form, tails, ..Params::default() };
        let mut policy = DynSleep::new(params, SLEEP, 1.0, 1, Instant::ZERO);
        policy.handle_arrival(0, us(0));
        policy.handle_awake(0);
        assert!(policy.handle_completion(0, us(0), Duration::from_micros(20), Duration::ZERO));
        policy.handle_timeout(us(0));
        policy
    }

    #[test]
    fn a_core_wakes_for_the_earliest_deadline() {
        let mut policy = core(Form::Exact);
        assert_eq!(policy.wake(0), None, "it sleeps, and is not needed");
        // Up at 100 + 300 - 20, so begin 50 before.
        assert_eq!(policy.handle_arrival(0, us(100)), Some(us(330)));
        // 200 + 300 - 40 is later, and so are the deadlines of three more.
        for _ in 2..6 {
            assert_eq!(policy.handle_arrival(0, us(200)), Some(us(330)));
        }
        // The sixth and seventh are due at 205 + 300 - 120 = 385 and 365: begin at 315.
        assert_eq!(policy.handle_arrival(0, us(205)), Some(us(330)));
        assert_eq!(policy.handle_arrival(0, us(205)), Some(us(315)));
        for _ in 8..13 {
            policy.handle_arrival(0, us(210));
        }
        // The thirteenth, due at 215 + 300 - 260 less 50: past, so wake now. One that comes later
        // does not change that.
        assert_eq!(policy.handle_arrival(0, us(215)), Some(us(215)));
        assert_eq!(policy.handle_arrival(0, us(220)), Some(us(215)));
        policy.handle_awake(0);
        assert_eq!((policy.wake(0), policy.handle_arrival(0, us(270))), (None, None));
    }

    #[test]
    fn the_published_form_wakes_for_the_mean() {
        let mut policy = core(Form::Published);
        // 100 + 300 - 20 / 2 - 50: its own deadline would be 330.
        assert_eq!(policy.handle_arrival(0, us(100)), Some(us(340)));
        // mean(100, 200) + 300 - 2 x 20 / 2 = 430, less 50: not earlier, so not moved.
        assert_eq!(policy.handle_arrival(0, us(200)), Some(us(340)));
    }

    #[test]
    fn nobody_is_delayed_before_service_times_are_known() {
        for form in [Form::Exact, Form::Published] {
            let mut policy =
                DynSleep::new(Params { form, ..Params::default() }, SLEEP, 1.0, 2, Instant::ZERO);
            assert_eq!(policy.handle_arrival(1, us(70)), Some(us(70)));
            assert_eq!((policy.wake(0), policy.wake(1)), (None, Some(us(70))));
        }
    }

    proptest! {
        #[test]
        fn it_is_udpm_with_a_single_point(
            published in any::<bool>(),
            gaps in prop::collection::vec(0_u64..200_000, 1..30),
            service in prop::collection::vec((0_u64..60_000, 0_u64..20_000), 20),
        ) {
            let form = if published { Form::Published } else { Form::Exact };
            let tails = tails::Params { least: 20, ..tails::Params::default() };
            let params = Params { form, tails, ..Params::default() };
            let mut policy = DynSleep::new(params, SLEEP, 1.0, 1, Instant::ZERO);
            let params = udpm::Params { form, tails, least_sleep: Duration::ZERO, ..udpm::Params::default() };
            let mut twin = UDpm::new(params, points_at(&[2_000]), SLEEP, 1, Instant::ZERO);
            for &(compute, memory) in &service {
                let needed = (Duration::from_nanos(compute), Duration::from_nanos(memory));
                policy.handle_completion(0, Instant::ZERO, needed.0, needed.1);
                twin.handle_completion(0, Instant::ZERO, needed, std::iter::empty());
            }
            policy.handle_timeout(Instant::ZERO);
            twin.handle_timeout(Instant::ZERO);
            let mut now = Instant::ZERO;
            for gap in gaps {
                now += Duration::from_nanos(gap);
                let (wake, plan) = (policy.handle_arrival(0, now), twin.handle_arrival(0, now));
                prop_assert_eq!(wake, plan.map(|plan| plan.begin));
            }
            let text = serde_json::to_string(&policy).unwrap();
            prop_assert_eq!(serde_json::from_str::<DynSleep>(&text).unwrap(), policy);
        }
    }
}
