use super::*;
use crate::carb;
use crate::log::{Recorded, replay, state_line, step_line};
use machine::{CpuReading, IdleLimit, Rate, Ratio, ServiceReading, Topology};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn topology(cores: u16) -> CpuTopology {
    let topology = Topology::uniform(1, cores, 1);
    let all = CpuList(topology.0.iter().map(|cpu| cpu.id).collect());
    let us = Duration::from_micros;
    let halts = all.0.iter().map(|&cpu| (cpu, vec![us(2), us(133)])).collect();
    CpuTopology { cores: cores_in_order(&topology, &all), halts, ..CpuTopology::default() }
}

/// The same, with clocks that can be chosen.
fn topology_with_clocks(cores: u16) -> CpuTopology {
    let point = |&mhz: &u64| machine::OperatingPoint {
        frequency: machine::Kilohertz(mhz * 1_000),
        power: machine::Microwatts(mhz.pow(3)),
        kind: machine::PointKind::Pstate,
    };
    let points = [1_000, 1_700, 2_600].iter().map(point).collect::<Vec<_>>();
    let uncore = [800_000, 900_000, 1_000_000].map(machine::Kilohertz).to_vec();
    CpuTopology { points: Some(points.try_into().unwrap()), uncore, ..topology(cores) }
}

fn goal() -> Goal {
    "500us@p99".parse().unwrap()
}

fn governed(idle: IdleMode) -> ServiceController {
    ServiceController::new(Params::new(Cores::Goal(goal(), GoalParams::default()), idle), topology(4))
}

fn seen(krps: f64, tail_us: u64) -> Input {
    let tail = Some(Duration::from_micros(tail_us));
    let service =
        ServiceReading { rate: Some(Rate::per_second(krps * 1e3)), tail, ..ServiceReading::default() };
    Input::Reading(Reading { service, ..Reading::default() })
}

fn tell(governing: &mut ServiceController, input: &Input) -> Vec<Decision> {
    governing.apply(Instant::ZERO, input)
}

fn cpus(text: &str) -> Command {
    Command::SetActiveCpus(text.parse().unwrap())
}

fn commands(decided: &[Decision]) -> Vec<Command> {
    decided.iter().map(|decided| decided.command.clone()).collect()
}

#[test]
fn it_parks_while_the_goal_is_kept_and_gives_all_when_sight_is_lost() {
    let mut governing = governed(IdleMode::Stock);
    let told: Vec<_> = (0..20).flat_map(|_| tell(&mut governing, &seen(10.0, 100))).collect();
    assert_eq!(commands(&told), [cpus("0-2"), cpus("0-1"), cpus("0")]);
    let dark = Input::Reading(Reading::default());
    assert_eq!(tell(&mut governing, &dark), []);
    assert_eq!(tell(&mut governing, &dark), []);
    let told = tell(&mut governing, &dark);
    assert_eq!(told, [Decision { command: cpus("0-3"), why: Why::Open(Failure::Lost { epochs: 3 }) }]);
    // Sight alone is not enough: the wait must be over.
    let told: Vec<_> = (0..9).flat_map(|_| tell(&mut governing, &seen(10.0, 100))).collect();
    assert_eq!((told.as_slice(), governing.active().to_string()), (&[][..], "0-3".to_owned()));
    let told: Vec<_> = (0..20).flat_map(|_| tell(&mut governing, &seen(10.0, 100))).collect();
    assert_eq!(commands(&told).last(), Some(&cpus("0")));
}

#[test]
fn an_alarm_gives_all_cores_where_that_is_more_and_is_not_wanted_otherwise() {
    let mut governing = governed(IdleMode::Stock);
    assert!(!governing.wants_alarm(), "it has all");
    (0..20).for_each(|_| drop(tell(&mut governing, &seen(10.0, 100))));
    assert!(governing.wants_alarm());
    assert_eq!(tell(&mut governing, &Input::Alarm), [Decision { command: cpus("0-3"), why: Why::Alarm }]);
    assert!(!governing.wants_alarm());
    (0..20).for_each(|_| drop(tell(&mut governing, &seen(10.0, 100))));
    assert!(governing.wants_alarm(), "it parks again");
    tell(&mut governing, &Input::Pause(true));
    assert!(!governing.wants_alarm());
    let fixed = ServiceController::new(Params::new(Cores::Fixed(1), IdleMode::Stock), topology(4));
    assert!(!fixed.wants_alarm());
}

#[test]
fn silence_is_no_failure() {
    let mut governing = governed(IdleMode::Stock);
    let service = ServiceReading { rate: Some(Rate::ZERO), ..ServiceReading::default() };
    let silent = Input::Reading(Reading { service, ..Reading::default() });
    let told: Vec<_> = (0..30).flat_map(|_| tell(&mut governing, &silent)).collect();
    assert_eq!(commands(&told), [cpus("0")]);
    assert_eq!(*governing.mode(), Mode::Searching);
}

#[test]
fn limits_follow_the_cores_and_go_when_it_fails_open() {
    let mut governing = governed(IdleMode::Shallow);
    let limit = |cpu, limit| Command::LimitIdle { cpu: CpuId(cpu), limit };
    let shallow = IdleLimit::ExitLatency(Duration::from_micros(2));
    let first = tell(&mut governing, &seen(10.0, 100));
    assert_eq!(commands(&first), [0, 1, 2, 3].map(|cpu| limit(cpu, shallow)));
    while governing.cores().0 > 3 {
        let told = tell(&mut governing, &seen(10.0, 100));
        if !told.is_empty() {
            assert_eq!(commands(&told), [limit(3, IdleLimit::None), cpus("0-2")]);
        }
    }
    // More: the room first.
    let told = tell(&mut governing, &Input::Alarm);
    assert_eq!(commands(&told), [cpus("0-3"), limit(3, shallow)]);
    let told = tell(&mut governing, &Input::Drift { what: "cpuset.cpus reads 0".into() });
    let mut expected = [0, 1, 2, 3].map(|cpu| limit(cpu, IdleLimit::None)).to_vec();
    expected.push(cpus("0-3"));
    assert_eq!(commands(&told), expected);
}

#[test]
fn refusals_count_in_a_row_and_the_wait_doubles() {
    let mut governing = governed(IdleMode::Stock);
    let refused = Input::Refused { reason: "read-only".into() };
    for input in [&refused, &refused, &Input::Applied, &refused, &refused] {
        assert_eq!(tell(&mut governing, input), []);
    }
    for wait in [10, 20, 40, 80, 160, 320, 640, 640] {
        while matches!(governing.mode(), Mode::Searching) {
            tell(&mut governing, &refused);
        }
        let Mode::Open { left, .. } = *governing.mode() else { unreachable!() };
        assert_eq!(left, wait);
        (0..wait).for_each(|_| drop(tell(&mut governing, &seen(10.0, 100))));
    }
}

#[test]
fn a_person_s_wish_comes_before_everything() {
    let mut governing = governed(IdleMode::Shallow);
    (0..20).for_each(|_| drop(tell(&mut governing, &seen(10.0, 100))));
    let told = tell(&mut governing, &Input::Pause(true));
    assert_eq!(told.last().unwrap(), &Decision { command: cpus("0-3"), why: Why::Paused });
    for input in [seen(10.0, 100), Input::Alarm, Input::Drift { what: "x".into() }] {
        assert_eq!(tell(&mut governing, &input), []);
    }
    tell(&mut governing, &Input::Pause(false));
    let told: Vec<_> = (0..20).flat_map(|_| tell(&mut governing, &seen(10.0, 100))).collect();
    assert_eq!(commands(&told).last(), Some(&cpus("0")));
}

#[test]
fn a_reload_keeps_what_was_learned_where_only_the_goal_changed() {
    let mut governing = governed(IdleMode::Stock);
    (0..30).for_each(|_| drop(tell(&mut governing, &seen(10.0, 100))));
    let curve = governing.curve();
    assert_eq!(curve.len(), 4, "{curve:?}");
    let other = Cores::Goal("900us@p99".parse().unwrap(), GoalParams::default());
    tell(&mut governing, &Input::Reload(Params::new(other, IdleMode::Stock)));
    assert_eq!(governing.curve(), curve);
    tell(&mut governing, &Input::Reload(Params::new(Cores::Fixed(2), IdleMode::Stock)));
    let told = tell(&mut governing, &seen(10.0, 100));
    assert_eq!(told, [Decision { command: cpus("0-1"), why: Why::Configured }]);
}

fn sensitivity_with(slack: f64) -> Frequency {
    // Stale at once, so that there are many trials.
    let params = crate::frequency::sensitivity::Params {
        step: Duration::from_secs(1),
        slack: Ratio::new(slack),
        stale_after: 3,
        ..Default::default()
    };
    Frequency::Sensitivity(params)
}

#[test]
fn clocks_go_free_with_the_rest_when_it_fails_open_or_a_person_wants_all() {
    let frequency = Frequency::Pegasus(goal(), Default::default());
    let params = Params { frequency, ..Params::new(Cores::All, IdleMode::Stock) };
    let mut governing = ServiceController::new(params, topology_with_clocks(2));
    assert_eq!(governing.goal(), Some(goal()));
    let free = [0, 1].map(|cpu| Command::SetFrequency { cpu: CpuId(cpu), limit: FrequencyLimit::None });
    let slow = |governing: &mut ServiceController| {
        let told: Vec<_> = (0..30).flat_map(|_| tell(governing, &seen(10.0, 100))).collect();
        assert!(told.iter().all(|decided| matches!(decided.why, Why::Clock(ClockWhy::Power(_)))), "{told:?}");
        assert_eq!(governing.clocks().len(), 2);
    };
    slow(&mut governing);
    let told = commands(&tell(&mut governing, &Input::Pause(true)));
    assert_eq!(told, [free[0].clone(), free[1].clone(), cpus("0-1")]);
    assert_eq!(tell(&mut governing, &seen(10.0, 100)), []);
    tell(&mut governing, &Input::Pause(false));
    slow(&mut governing);
    // The goal is the clock's, and how many cores there are stays as configured.
    tell(&mut governing, &Input::Goal("1ms@p99".parse().unwrap()));
    assert!(matches!(governing.params().cores, Cores::All) && governing.cores() == (2, 2));
    assert_eq!(commands(&tell(&mut governing, &Input::Alarm)), free);
    slow(&mut governing);
    let told = tell(&mut governing, &Input::Drift { what: "scaling_max_freq".into() });
    assert_eq!(commands(&told)[..2], free);
    assert!(governing.clocks().is_empty());
}

fn ordered(frequency: Frequency) -> ServiceController {
    let cores = Cores::Ordered(None);
    let params = Params { frequency, ..Params::new(cores, IdleMode::Stock) };
    ServiceController::new(params, topology_with_clocks(4))
}

#[test]
fn orders_from_outside_are_in_force_after_the_epoch() {
    let mhz = |mhz: u64| machine::Kilohertz(mhz * 1_000);
    let mut governing = ordered(Frequency::Cap(mhz(1_700)));
    let orders = |cores, idle_limit, clock| Input::Orders(Orders { cores, idle_limit, clock });
    let us = Duration::from_micros;
    assert_eq!(tell(&mut governing, &orders(Some(2), Some(us(10)), Some(mhz(1_000)))), []);
    let told = tell(&mut governing, &seen(10.0, 100));
    let limit = |cpu, limit| Command::LimitIdle { cpu: CpuId(cpu), limit };
    let shallow = IdleLimit::ExitLatency(us(10));
    let slow = |cpu| {
        let limit = FrequencyLimit::AtMost(mhz(1_000));
        Command::SetFrequency { cpu: CpuId(cpu), limit }
    };
    let expected = [limit(0, shallow), limit(1, shallow), cpus("0-1"), slow(0), slow(1), slow(2), slow(3)];
    assert_eq!(commands(&told), expected);
    assert_eq!(told[2].why, Why::Ordered);
    // Without another order all stays; no order is above the cap of a person.
    assert_eq!(tell(&mut governing, &seen(10.0, 100)), []);
    tell(&mut governing, &orders(None, Some(Duration::MAX), Some(mhz(9_000))));
    let told = commands(&tell(&mut governing, &seen(10.0, 100)));
    assert_eq!(told[..2], [limit(0, IdleLimit::None), limit(1, IdleLimit::None)]);
    let freed = |cpu| Command::SetFrequency { cpu: CpuId(cpu), limit: FrequencyLimit::AtMost(mhz(1_700)) };
    assert_eq!(told[2..], [0, 1, 2, 3].map(freed));
    // An alarm does not wait for an order, and a goal is the policy's own to read.
    assert_eq!(commands(&tell(&mut governing, &Input::Alarm)), [cpus("0-3")]);
    tell(&mut governing, &Input::Goal(goal()));
    assert_eq!((governing.goal(), governing.params().cores), (Some(goal()), Cores::Ordered(Some(goal()))));
}

#[test]
fn a_policy_from_outside_that_is_at_fault_leaves_all_cores_for_good() {
    let mut governing = ordered(Frequency::Stock);
    let one = Input::Orders(Orders { cores: Some(1), idle_limit: Some(Duration::ZERO), clock: None });
    tell(&mut governing, &one);
    assert_eq!(commands(&tell(&mut governing, &seen(10.0, 100))).last(), Some(&cpus("0")));
    let told = tell(&mut governing, &Input::Fault("it trapped".into()));
    assert_eq!(commands(&told), [Command::LimitIdle { cpu: CpuId(0), limit: IdleLimit::None }, cpus("0-3")]);
    assert_eq!(told[1].why.to_string(), "all cores, no limits: its policy is at fault: it trapped");
    for _ in 0..2_000 {
        assert_eq!(tell(&mut governing, &seen(10.0, 100)), []);
    }
}

fn any_orders() -> impl Strategy<Value = Orders> {
    let clock = prop::option::of((1..4_000_000_u64).prop_map(machine::Kilohertz));
    let limit =
        prop_oneof![0..400_u64, Just(u64::MAX)].prop_map(|us| Duration::from_nanos(us.saturating_mul(1_000)));
    (prop::option::of(0..9_u16), prop::option::of(limit), clock)
        .prop_map(|(cores, idle_limit, clock)| Orders { cores, idle_limit, clock })
}

fn any_input() -> impl Strategy<Value = Input> {
    let reading = (
        prop::option::weighted(0.8, 0.0..200.0_f64),
        prop::option::weighted(0.8, 1_u64..2_000),
        prop::collection::vec((0_u16..6, 0.0..1.0_f64, 0.0..1.0_f64, prop::option::of(1e8..1e10_f64)), 0..5),
    );
    let reading = reading.prop_map(|(krps, tail, cpus)| {
        let tail = tail.map(Duration::from_micros);
        let rate = krps.map(|krps| Rate::per_second(krps * 1e3));
        let service = ServiceReading { rate, tail, p95: tail, mean: tail, p99: tail };
        let cpus = cpus.into_iter().map(|(cpu, busy, premature, rate)| CpuReading {
            cpu: CpuId(cpu),
            busy: Some(Ratio::new(busy)),
            residency: None,
            premature: Some(Ratio::new(premature)),
            instructions: rate.map(Rate::per_second),
            clock: rate.map(|rate| machine::Kilohertz(rate as u64 / 4_000)),
        });
        Input::Reading(Reading { service, cpus: cpus.collect(), ..Reading::default() })
    });
    let goal = (100_u64..2_000).prop_map(|us| format!("{us}us@p99").parse::<Goal>().unwrap());
    let cores = prop_oneof![
        Just(Cores::All),
        (0_u16..9).prop_map(Cores::Fixed),
        Just(Cores::Slope(carb::Params::default())),
        Just(Cores::Slope(carb::Params::paper())),
        goal.clone().prop_map(|goal| Cores::Goal(goal, GoalParams::default())),
        Just(Cores::Ordered(None)),
    ];
    let mode = prop_oneof![
        Just(IdleMode::Stock),
        Just(IdleMode::Shallow),
        Just(IdleMode::Feedback),
        (0_u64..300).prop_map(|us| IdleMode::Limit(Duration::from_micros(us))),
    ];
    let frequency = prop_oneof![
        Just(Frequency::Stock),
        Just(Frequency::Cap(machine::Kilohertz(1_500_000))),
        (0.0..0.5_f64).prop_map(sensitivity_with),
        goal.clone().prop_map(|goal| Frequency::Pegasus(goal, Default::default())),
    ];
    prop_oneof![
        12 => reading,
        1 => Just(Input::Refused { reason: "read-only".into() }),
        1 => Just(Input::Drift { what: "cpuset.cpus".into() }),
        2 => Just(Input::Applied),
        1 => Just(Input::Alarm),
        4 => any_orders().prop_map(Input::Orders),
        1 => Just(Input::Fault("it trapped".into())),
        1 => goal.prop_map(Input::Goal),
        1 => any::<bool>().prop_map(Input::Pause),
        1 => (cores, mode, frequency).prop_map(|(cores, idle, frequency)| {
            Input::Reload(Params { frequency, ..Params::new(cores, idle) })
        }),
    ]
}

proptest! {
    /// The header's properties, kept by following the commands: the active CPUs are a prefix of the
    /// cores, only active CPUs are limited, and open or paused means all and none.
    #[test]
    fn whatever_happens_the_cpus_in_force_are_what_the_header_says(
        cores in 1_u16..6,
        inputs in prop::collection::vec(any_input(), 1..120),
    ) {
        let search = Cores::Goal(goal(), GoalParams::default());
        let params = Params {
            uncore: UncoreMode::Auto,
            uncore_goal: Some(goal()),
            ..Params::new(search, IdleMode::Feedback)
        };
        let mut governing = ServiceController::new(params, topology_with_clocks(cores));
        let mut uncore = FrequencyLimit::None;
        let all = governing.active();
        let mut active = all.clone();
        let mut limits: BTreeMap<CpuId, IdleLimit> = BTreeMap::new();
        let mut clocks: BTreeMap<CpuId, FrequencyLimit> = BTreeMap::new();
        for input in &inputs {
            for decided in tell(&mut governing, input) {
                match decided.command {
                    Command::SetActiveCpus(cpus) => active = cpus,
                    Command::LimitIdle { cpu, limit } => {
                        let before = limits.insert(cpu, limit).unwrap_or(IdleLimit::None);
                        prop_assert!(before != limit, "a command that changes nothing");
                    }
                    Command::SetFrequency { cpu, limit } => {
                        let before = clocks.insert(cpu, limit).unwrap_or(FrequencyLimit::None);
                        prop_assert!(before != limit, "a command that changes nothing");
                    }
                    Command::SetUncore(limit) => {
                        prop_assert!(std::mem::replace(&mut uncore, limit) != limit);
                    }
                    other => prop_assert!(false, "{other:?} is not for a service"),
                }
            }
            prop_assert_eq!(&active, &governing.active());
            let prefix: BTreeSet<CpuId> =
                topology(cores).cores.into_iter().take(active.0.len()).flatten().collect();
            prop_assert_eq!(&active.0, &prefix);
            prop_assert!(!active.0.is_empty());
            let limited = limits.iter().filter(|(_, limit)| **limit != IdleLimit::None);
            prop_assert!(limited.clone().all(|(cpu, _)| active.0.contains(cpu)));
            if *governing.mode() != Mode::Searching {
                prop_assert_eq!(&active, &all);
                prop_assert_eq!(limited.count(), 0);
                prop_assert!(clocks.values().all(|limit| *limit == FrequencyLimit::None));
                prop_assert_eq!(uncore, FrequencyLimit::None);
            }
            prop_assert_eq!(uncore, governing.uncore());
            clocks.retain(|_, limit| *limit != FrequencyLimit::None);
            prop_assert_eq!(&clocks, governing.clocks());
        }
    }

    /// A recorded run gives the same commands again, from any segment's state on.
    #[test]
    fn a_run_replays(
        inputs in prop::collection::vec(any_input(), 1..80),
        cut in any::<prop::sample::Index>(),
    ) {
        let governed = governed(IdleMode::Feedback);
        let params = Params {
            frequency: sensitivity_with(0.1),
            uncore: UncoreMode::Auto,
            uncore_goal: Some(goal()),
            ..governed.params().clone()
        };
        let mut governing = ServiceController::new(params, topology_with_clocks(4));
        let mut text = state_line(&governing) + "\n";
        let cut = cut.index(inputs.len());
        for (step, input) in inputs.iter().enumerate() {
            if step == cut {
                text += &(state_line(&governing) + "\n");
            }
            let at = Instant::ZERO + Duration::from_secs(step as u64);
            let output = governing.apply(at, input);
            text += &(step_line::<ServiceController>(at, input, &output) + "\n");
        }
        let replayed = replay::<ServiceController>(&text).unwrap();
        prop_assert_eq!(replayed.state, governing);
    }
}
