//! The trial on a small machine of our own: a client that waits and computes, an updater in bursts,
//! a freezer that costs something.

use super::super::{Event, GroupId, Params, Quiescence, QuiescenceCommand, Role, Task, TaskId, Wait};
use super::*;
use machine::Ratio;
use proptest::prelude::*;

const CRITICAL: GroupId = GroupId(1);
const UPDATER: GroupId = GroupId(2);
const CLIENT: Task = Task { id: TaskId(7), group: CRITICAL };
/// One step of the machine: 100 us.
const STEP: Duration = Duration::from_micros(100);

/// The work of an updater, in steps.
#[derive(Clone, Copy, Debug)]
struct Updater {
    /// Longest burst; the shortest is a fifth of it.
    burst: u64,
    /// Share of the time that it would run.
    load: f64,
}

/// Each CPU has one program: the client, the updater, the freezer.
struct Machine {
    policy: Quiescence,
    updater: Updater,
    /// The cost of each freeze and each thaw, in steps of a CPU.
    cost: u64,
    /// And the client's loss by each thaw.
    delay: u64,
    step: u64,
    idle: Duration,
    frozen: bool,
    /// Steps of work that the updater has, and until it has more.
    work: u64,
    sleep: u64,
    freezer: u64,
    client: Client,
    seed: u64,
    fetches: u64,
    frozen_steps: u64,
}

enum Client {
    Waits(u64),
    Works(u64),
}

const WAIT: u64 = 1_000;
const WORK: u64 = 100;

impl Machine {
    fn new(updater: Updater, cost: u64, delay: u64, payoff: PayoffParams) -> Self {
        let params = Params { payoff, max_share: Ratio::new(0.99), ..Params::default() };
        let roles = [(CRITICAL, Role::Critical), (UPDATER, Role::Background)];
        let mut policy = Quiescence::new(params, roles);
        policy.handle_event(Instant::ZERO, &Event::Unblock { task: CLIENT });
        Self {
            policy,
            updater,
            cost,
            delay,
            step: 0,
            idle: Duration::ZERO,
            frozen: false,
            work: 0,
            sleep: 1,
            freezer: 0,
            client: Client::Works(WORK),
            seed: 1,
            fetches: 0,
            frozen_steps: 0,
        }
    }

    fn now(&self) -> Instant {
        Instant::ZERO + STEP * self.step
    }

    fn random(&mut self, below: u64) -> u64 {
        // Knuth's MMIX.
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below.max(1)
    }

    fn tell(&mut self, event: &Event) {
        let now = self.now();
        self.policy.handle_idle(self.idle);
        self.policy.handle_event(now, event);
        self.obey();
    }

    fn obey(&mut self) {
        while let Some(command) = self.policy.poll_command() {
            self.freezer += self.cost;
            self.frozen = matches!(command, QuiescenceCommand::Freeze(_));
            if let (Client::Works(left), false) = (&mut self.client, self.frozen) {
                *left += self.delay;
            }
        }
    }

    fn one_step(&mut self) {
        let client_runs = matches!(self.client, Client::Works(_));
        let updater_runs = self.work > 0 && !self.frozen;
        let freezer_runs = self.freezer > 0;
        if !client_runs && !updater_runs && !freezer_runs {
            self.idle += STEP;
        }
        self.frozen_steps += u64::from(self.frozen);
        self.freezer -= u64::from(freezer_runs);
        self.step += 1;
        if updater_runs {
            self.work -= 1;
        }
        // Time to sleep passes for the frozen too; work that is due runs later.
        if self.work == 0 && self.updater.load > 0.0 {
            self.sleep = self.sleep.saturating_sub(1);
            if self.sleep == 0 {
                let burst = self.updater.burst / 5 + self.random(self.updater.burst * 4 / 5);
                let load = self.updater.load;
                self.work = burst.max(1);
                self.sleep = (burst as f64 * (1.0 - load) / load) as u64 + 1;
            }
        }
        if self.policy.poll_timeout().is_some_and(|due| due <= self.now()) {
            let now = self.now();
            self.policy.handle_idle(self.idle);
            self.policy.handle_timeout(now);
            self.obey();
        }
        match &mut self.client {
            Client::Waits(left) | Client::Works(left) if *left > 1 => *left -= 1,
            Client::Waits(_) => {
                self.client = Client::Works(WORK);
                self.tell(&Event::Unblock { task: CLIENT });
            }
            Client::Works(_) => {
                self.fetches += 1;
                self.client = Client::Waits(WAIT);
                let on = Wait::Io { expected: Some(STEP * WAIT) };
                self.tell(&Event::Block { task: CLIENT, on });
            }
        }
    }

    fn run(&mut self, seconds: u64) -> Verdict {
        for _ in 0..seconds * 10_000 {
            self.one_step();
        }
        self.policy.verdict()
    }
}

const STEADY: Updater = Updater { burst: 50, load: 0.3 };

fn verdict(updater: Updater, cost: u64, delay: u64) -> Verdict {
    Machine::new(updater, cost, delay, PayoffParams::default()).run(30)
}

#[test]
fn an_updater_that_wakes_the_machine_all_the_time_is_worth_freezing() {
    for load in [0.1, 0.3, 0.6] {
        let found = verdict(Updater { load, ..STEADY }, 2, 0);
        assert_eq!(found.pays, Some(true), "{load}: {found:?}");
        let (gain, most) = (found.gain.unwrap(), found.gain_at_most.unwrap());
        assert!(gain > load * 0.5 && gain < most + 0.02, "{load}: {found:?}");
        assert!(found.slowdown.unwrap() < 0.005, "{found:?}");
    }
}

#[test]
fn where_all_sleep_anyway_nothing_is_ever_frozen() {
    let mut machine = Machine::new(Updater { load: 0.0, ..STEADY }, 2, 0, PayoffParams::default());
    let found = machine.run(30);
    assert_eq!((found.pays, found.gain, found.pairs), (Some(false), None, 0), "{found:?}");
    assert_eq!(machine.frozen_steps, 0);
}

#[test]
fn freezing_that_costs_more_than_it_gains_is_left_off() {
    // Half of each wait goes by with freezing and thawing, which is not known beforehand.
    let found = verdict(Updater { load: 0.1, ..STEADY }, 250, 0);
    assert_eq!(found.pays, Some(false), "{found:?}");
    assert!(found.gain.unwrap() < 0.0, "{found:?}");
}

#[test]
fn who_slows_the_critical_leaves_off_whatever_is_gained() {
    // 2 % of a cycle of 110 ms.
    let found = verdict(STEADY, 2, 22);
    assert_eq!(found.pays, Some(false), "{found:?}");
    assert!(found.gain.unwrap() > 0.15 && found.slowdown.unwrap() > 0.015, "{found:?}");
}

#[test]
fn it_is_tried_again_ever_more_rarely_and_sooner_if_the_machine_changes() {
    let payoff = PayoffParams { retry_min: Duration::from_secs(5), ..PayoffParams::default() };
    let mut machine = Machine::new(STEADY, 2, 0, payoff);
    machine.run(120);
    let found = machine.policy.verdict();
    assert_eq!(found.pays, Some(true));
    // 5, 10, 20, 40 s apart.
    assert!((3..=5).contains(&found.trials), "{found:?}");
    // That there is nothing left to freeze is not seen before the next trial, and does no harm.
    machine.updater.load = 0.0;
    let found = machine.run(90);
    assert_eq!(found.pays, Some(false), "{found:?}");
    // The next trial would be in minutes.
    for _ in 0..6 {
        machine.run(60);
    }
    let rare = machine.policy.verdict();
    assert!(rare.again.unwrap().since(machine.now()) > Duration::from_secs(15), "{rare:?}");
    machine.updater.load = 0.5;
    machine.sleep = 1;
    let left = rare.again.unwrap().since(machine.now());
    let mut found = rare;
    let mut seconds = 0;
    while found.trials == rare.trials {
        found = machine.run(1);
        seconds += 1;
        assert!(Duration::from_secs(seconds) < left, "sooner than without the change: {left:?}");
    }
    assert_eq!(found.pays, Some(true), "{found:?}");
}

#[test]
fn a_restless_machine_is_no_reason_to_try_all_the_time_what_slows_the_critical() {
    let payoff = PayoffParams { retry_min: Duration::from_secs(5), ..PayoffParams::default() };
    let mut machine = Machine::new(STEADY, 2, 22, payoff);
    for minute in 0..60 {
        // By far more than a tenth of the time.
        machine.updater.load = if minute % 2 == 0 { 0.2 } else { 0.6 };
        let found = machine.run(10);
        assert_ne!(found.pays, Some(true), "{found:?}");
    }
    let found = machine.policy.verdict();
    // 5, 5, 5, 10, 20, 40, ... s apart; without the doubling more than forty.
    assert!((5..=12).contains(&found.trials), "{found:?}");
}

#[test]
fn without_readings_of_idle_time_nothing_is_held_back() {
    let mut payoff = Payoff::new(PayoffParams::default());
    for ms in 0..10_000 {
        payoff.handle_waiting(Instant::from_nanos(ms * 1_000_000), ms % 2 == 0);
        assert!(payoff.may_freeze() && payoff.is_on());
    }
    assert_eq!(payoff.verdict(), Verdict::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_answer_is_right_wherever_the_difference_is_plain(
        gain in -0.3_f64..0.3,
        noise in 0.0_f64..0.02,
        slowdown in 0.0_f64..0.03,
        seed in 1_u64..1_000_000,
    ) {
        // Far enough from both bars for the noise of 16 turns.
        prop_assume!((gain - 0.02).abs() > 0.03 && (slowdown - 0.01).abs() > 0.006);
        let mut payoff = Payoff::new(PayoffParams::default());
        let (mut now, mut idle, mut random) = (Instant::ZERO, Duration::ZERO, seed);
        let mut noise = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            noise * ((random >> 33) as f64 / f64::from(1 << 31) * 2.0 - 1.0)
        };
        let mut on_for = Duration::ZERO;
        while payoff.verdict().pays.is_none() {
            payoff.handle_idle(idle);
            payoff.handle_block(now, CLIENT.id);
            payoff.handle_waiting(now, true);
            let is_on = payoff.may_freeze();
            let cycle = Duration::from_millis(110);
            let wait = Duration::from_millis(100);
            let work = Duration::from_millis(10) + if is_on { cycle.scale(slowdown) } else { Duration::ZERO };
            payoff.handle_unblock(now + wait, CLIENT.id);
            payoff.handle_waiting(now + wait, false);
            let share = 0.5 + if is_on { gain } else { 0.0 } + noise();
            now = now + wait + work;
            idle += (wait + work).scale(share);
            on_for += if is_on { wait } else { Duration::ZERO };
            prop_assert!(now < Instant::from_nanos(60_000_000_000), "it comes to an end");
        }
        prop_assert_eq!(payoff.verdict().pays, Some(gain > 0.02 && slowdown < 0.01), "{:?}", payoff.verdict());
        // Undecided, one turn is as likely as the other.
        prop_assert!(on_for <= now.since(Instant::ZERO).scale(0.6));
        let text = serde_json::to_string(&payoff).unwrap();
        prop_assert_eq!(serde_json::from_str::<Payoff>(&text).unwrap(), payoff);
    }
}
