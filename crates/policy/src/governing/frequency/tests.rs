use super::*;
use machine::{Microwatts, OperatingPoint, PointKind};
use proptest::prelude::*;

const EPOCH: Duration = Duration::from_millis(100);

fn points() -> PointTable {
    let point = |&mhz: &u64| OperatingPoint {
        frequency: Kilohertz(mhz * 1_000),
        power: Microwatts::from_watts(10.0 * (mhz as f64 / 2_600.0).powi(3)),
        kind: PointKind::Pstate,
    };
    [1_000, 1_400, 1_700, 2_000, 2_300, 2_600].iter().map(point).collect::<Vec<_>>().try_into().unwrap()
}

/// Two threads a core.
fn topology(cores: u16) -> CpuTopology {
    let cores = (0..cores).map(|core| vec![CpuId(core), CpuId(core + cores)]).collect();
    CpuTopology { cores, points: Some(points()), ..CpuTopology::default() }
}

fn sensitivity(slack: f64) -> Frequency {
    Frequency::Sensitivity(sensitivity::Params {
        step: EPOCH,
        slack: Ratio::new(slack),
        ..sensitivity::Params::default()
    })
}

/// The reading of a core's first thread that computes for this share of its time, under the cap
/// that is in force.
fn works(frequency: &ServiceFrequency, cpu: CpuId, busy: f64, computing: f64) -> CpuReading {
    let clock = match frequency.in_force().get(&cpu) {
        Some(FrequencyLimit::AtMost(clock) | FrequencyLimit::Exactly(clock)) => *clock,
        _ => Kilohertz(2_600_000),
    };
    let slower = 2_600_000.0 / clock.0 as f64;
    CpuReading {
        cpu,
        busy: Some(Ratio::new(busy)),
        residency: None,
        premature: None,
        instructions: Some(Rate::per_second(1e9 / (computing * slower + 1.0 - computing))),
        clock: Some(clock),
    }
}

fn epochs(
    frequency: &mut ServiceFrequency,
    topology: &CpuTopology,
    active: u16,
    count: u32,
    computing: &[f64],
) -> Vec<Command> {
    let mut all = Vec::new();
    for _ in 0..count {
        let work = |(threads, &computing): (&Vec<CpuId>, &f64)| works(frequency, threads[0], 0.5, computing);
        let cpus = topology.cores.iter().zip(computing).map(work).collect();
        let reading = Reading { cpus, ..Reading::default() };
        frequency.handle_epoch(Instant::ZERO, topology, active, &reading, 3);
        all.extend(frequency.limits(topology, active).into_iter().map(|(command, _)| command));
    }
    all
}

fn cap(frequency: &ServiceFrequency, cpu: u16) -> u64 {
    freedom(frequency.in_force().get(&CpuId(cpu)).copied().unwrap_or(FrequencyLimit::None))
}

#[test]
fn each_core_runs_as_slow_as_its_work_allows_and_its_threads_alike() {
    let topology = topology(2);
    let mut frequency = ServiceFrequency::new(sensitivity(0.05), &topology);
    assert_eq!(frequency.limits(&topology, 2), []);
    epochs(&mut frequency, &topology, 2, 20, &[0.0, 1.0]);
    assert_eq!((cap(&frequency, 0), cap(&frequency, 2)), (1_000_000, 1_000_000), "it only waits for memory");
    assert_eq!(
        (cap(&frequency, 1), cap(&frequency, 3)),
        (u64::MAX, u64::MAX),
        "5 % is less than any step costs"
    );
    // Parked: as the active one.
    let changed = frequency.limits(&topology, 1);
    assert_eq!((changed.len(), cap(&frequency, 1), cap(&frequency, 3)), (2, 1_000_000, 1_000_000));
    assert!(changed.iter().all(|(_, why)| *why == ClockWhy::Parked));
    assert_eq!(frequency.limits(&topology, 1), []);
    assert_eq!(frequency.withdraw().len(), 4);
    assert_eq!(frequency.withdraw(), []);
}

#[test]
fn first_trials_come_one_after_the_other() {
    let topology = topology(4);
    let mut frequency = ServiceFrequency::new(sensitivity(0.0), &topology);
    let mut tried = [0; 4];
    for epoch in 0..12 {
        epochs(&mut frequency, &topology, 4, 1, &[1.0; 4]);
        let slow: Vec<u16> = (0..4).filter(|&cpu| cap(&frequency, cpu) != u64::MAX).collect();
        assert!(slow.len() <= 1, "epoch {epoch}: {slow:?}");
        slow.iter().for_each(|&cpu| tried[usize::from(cpu)] += 1);
    }
    assert_eq!(tried, [1; 4]);
}

#[test]
fn a_core_whose_counters_fall_silent_is_free_and_an_idle_one_is_not_dark() {
    let topology = topology(1);
    let mut frequency = ServiceFrequency::new(sensitivity(0.2), &topology);
    epochs(&mut frequency, &topology, 1, 20, &[0.0]);
    assert_eq!(cap(&frequency, 0), 1_000_000);
    let told = |frequency: &mut ServiceFrequency, busy: f64| {
        let silent = CpuReading { instructions: None, clock: None, ..works(frequency, CpuId(0), busy, 0.0) };
        let reading = Reading { cpus: vec![silent], ..Reading::default() };
        frequency.handle_epoch(Instant::ZERO, &topology, 1, &reading, 3);
        frequency.limits(&topology, 1)
    };
    for _ in 0..10 {
        assert_eq!(told(&mut frequency, 0.0), [], "the work of an idle CPU is not counted");
    }
    assert_eq!((told(&mut frequency, 0.5), told(&mut frequency, 0.5)), (vec![], vec![]));
    let changed = told(&mut frequency, 0.5);
    assert!(changed.iter().all(|(_, why)| *why == ClockWhy::Dark), "{changed:?}");
    assert_eq!((changed.len(), cap(&frequency, 0)), (2, u64::MAX));
}

#[test]
fn pegasus_slows_all_while_there_is_room_and_an_alarm_frees_them() {
    let topology = topology(2);
    let goal: Goal = "500us@p99".parse().unwrap();
    let mut frequency =
        ServiceFrequency::new(Frequency::Pegasus(goal, pegasus::Params::default()), &topology);
    let told = |frequency: &mut ServiceFrequency, second: u64, tail: Option<u64>, rate: f64| {
        let tail = tail.map(Duration::from_micros);
        let service =
            ServiceReading { rate: Some(Rate::per_second(rate)), tail, ..ServiceReading::default() };
        let now = Instant::ZERO + Duration::from_secs(second);
        frequency.handle_epoch(now, &topology, 2, &Reading { service, ..Reading::default() }, 3);
        frequency.limits(&topology, 2)
    };
    for second in 0..20 {
        told(&mut frequency, second, Some(100), 1e4);
    }
    let slow = cap(&frequency, 0);
    assert!(slow < 2_300_000 && (1..4).all(|cpu| cap(&frequency, cpu) == slow));
    // Too few requests, or none, are no reason for anything.
    assert_eq!((told(&mut frequency, 20, None, 3.0), told(&mut frequency, 21, None, 0.0)), (vec![], vec![]));
    // A stricter goal is violated at once.
    frequency.set_goal("60us@p99".parse().unwrap());
    assert_eq!(told(&mut frequency, 22, Some(100), 1e4).len(), 4);
    assert_eq!(cap(&frequency, 0), u64::MAX);
    frequency.forget(&topology);
    frequency.set_goal(goal);
    for second in 30..50 {
        told(&mut frequency, second, Some(100), 1e4);
    }
    assert_eq!(cap(&frequency, 3), slow);
    frequency.handle_alarm(Instant::ZERO + Duration::from_secs(51), &topology);
    assert_eq!((frequency.limits(&topology, 2).len(), cap(&frequency, 3)), (4, u64::MAX));
}

#[test]
fn a_cap_of_a_person_needs_no_table_and_the_others_do_nothing_without() {
    let bare = CpuTopology { points: None, ..topology(1) };
    let mut frequency = ServiceFrequency::new(Frequency::Cap(Kilohertz(1_500_000)), &bare);
    assert_eq!((frequency.limits(&bare, 1).len(), cap(&frequency, 1)), (2, 1_500_000));
    let mut frequency = ServiceFrequency::new(sensitivity(0.2), &bare);
    assert_eq!(epochs(&mut frequency, &bare, 1, 20, &[0.0]), []);
}

#[test]
fn modes_read_as_a_person_writes_them() {
    for mode in ["stock", "sensitivity", "pegasus", "1700MHz"] {
        assert_eq!(mode.parse::<FrequencyMode>().unwrap().to_string(), mode);
    }
    assert_eq!("1.7GHz".parse(), Ok(FrequencyMode::Cap(Kilohertz(1_700_000))));
    for wrong in ["fast", "1700", "", "-1GHz"] {
        assert!(wrong.parse::<FrequencyMode>().unwrap_err().contains("such as 1700MHz"), "{wrong}");
    }
}

proptest! {
    /// With any slack and any work: once learned, the cap is the lowest operating point whose true
    /// loss is within the slack.
    #[test]
    fn what_is_settled_on_costs_no_more_than_the_slack(slack in 0.0..0.5_f64, computing in 0.0..1.0_f64) {
        let topology = topology(1);
        let mut frequency = ServiceFrequency::new(sensitivity(slack), &topology);
        epochs(&mut frequency, &topology, 1, 40, &[computing]);
        let clock = cap(&frequency, 0).min(2_600_000) as f64;
        let loss = |clock: f64| 1.0 - 1.0 / (computing * 2_600_000.0 / clock + 1.0 - computing);
        prop_assert!(loss(clock) <= slack + 1e-6, "{} at {}", loss(clock), clock);
        let slower = points().iter().map(|point| points().khz(point).0 as f64).rfind(|&khz| khz < clock);
        if let Some(slower) = slower {
            prop_assert!(loss(slower) >= slack - 1e-6, "{} at {}", loss(slower), slower);
        }
    }

    /// Nonsense in every field of a reading makes no cap that is not of the table, and none
    /// that is told twice.
    #[test]
    fn whatever_is_read_caps_are_points(
        readings in prop::collection::vec(
            (
                0u16..4,
                prop::option::of(0.0..=1.0_f64),
                prop::option::of(0.0..1e12_f64),
                prop::option::of(any::<u64>()),
                1u16..3,
            ),
            1..200,
        ),
    ) {
        let topology = topology(2);
        let mut frequency = ServiceFrequency::new(sensitivity(0.1), &topology);
        for (cpu, busy, rate, clock, active) in readings {
            let reading = CpuReading {
                cpu: CpuId(cpu),
                busy: busy.map(Ratio::new),
                residency: None,
                premature: None,
                instructions: rate.map(Rate::per_second),
                clock: clock.map(Kilohertz),
            };
            let before = frequency.in_force().clone();
            let reading = Reading { cpus: vec![reading], ..Reading::default() };
            frequency.handle_epoch(Instant::ZERO, &topology, active, &reading, 3);
            for (command, _) in frequency.limits(&topology, active) {
                let Command::SetFrequency { cpu, limit } = command else { panic!("{command:?}") };
                prop_assert_ne!(before.get(&cpu).copied().unwrap_or(FrequencyLimit::None), limit);
                if let FrequencyLimit::AtMost(clock) = limit {
                    prop_assert!(points().iter().any(|point| points().khz(point) == clock && point < points().fastest()));
                }
            }
            for threads in &topology.cores {
                let caps = [0, 1].map(|thread| cap(&frequency, threads[thread].0));
                prop_assert_eq!(caps[0], caps[1], "threads share a clock");
            }
        }
    }
}
