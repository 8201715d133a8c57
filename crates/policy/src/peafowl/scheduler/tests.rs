use super::*;
use crate::Why;
use machine::{ConnId, Duration, Pick, Ratio, ServiceReading};

fn at_ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn scheduler(workers: u16, params: Params) -> Scheduler {
    let workers: Vec<_> = (0..workers).map(|id| (WorkerId(id), CpuId(id / 2))).collect();
    Scheduler::new(params, &workers)
}

/// Load, connections, limit of each worker.
fn reading(workers: &[(f64, u32, f64)]) -> Reading {
    let report = |(id, &(load, connections, limit)): (u16, &(f64, u32, f64))| WorkerReading {
        worker: WorkerId(id),
        connections,
        residents: connections,
        load: Rate::per_second(load),
        resident_load: Rate::per_second(load),
        limit: (limit > 0.0).then(|| Rate::per_second(limit)),
        heaviest: Rate::per_second(load / f64::from(connections.max(1))),
        rate: None,
        busy: Ratio::ZERO,
        tail: None,
    };
    Reading { workers: (0..).zip(workers).map(report).collect(), ..Reading::default() }
}

fn commands(scheduler: &mut Scheduler) -> Vec<Command> {
    std::iter::from_fn(|| scheduler.poll_command()).collect()
}

/// The same reading until a fit has lasted for long enough.
fn persist(scheduler: &mut Scheduler, from_ms: u64, reading: &Reading) -> Vec<Command> {
    (0..6).for_each(|period| scheduler.handle_reading(at_ms(from_ms + 100 * period), reading));
    commands(scheduler)
}

fn moves(source: u16, target: u16) -> Command {
    Command::MoveConnection { source: WorkerId(source), target: WorkerId(target), pick: Pick::NextServed }
}

fn moved(source: u16, target: u16, why: Why, load: f64) -> Moved {
    Moved { source: WorkerId(source), target: WorkerId(target), why, load: Rate::per_second(load) }
}

#[test]
fn the_least_loaded_gives_to_the_then_least_loaded() {
    let mut scheduler = scheduler(3, Params::default());
    let light = reading(&[(100.0, 4, 1000.0), (300.0, 4, 1000.0), (200.0, 4, 1000.0)]);
    assert_eq!(persist(&mut scheduler, 0, &light), [moves(0, 2)]);
    scheduler.handle_moved(at_ms(1000), &moved(0, 2, Why::Ordered, 150.0));
    assert_eq!(commands(&mut scheduler), [moves(0, 1)], "worker 2 has more now");
}

#[test]
fn nothing_is_packed_that_does_not_fit_with_headroom() {
    // 0.8 x 1000 x 2 = 1600 for the two that would remain.
    for (load, fits) in [(540.0, false), (530.0, true)] {
        let mut scheduler = scheduler(3, Params::default());
        let all = reading(&[(load, 10, 1000.0), (load, 10, 1000.0), (load, 10, 1000.0)]);
        assert_eq!(!persist(&mut scheduler, 0, &all).is_empty(), fits, "{load}");
    }
}

#[test]
fn the_printed_rules_pack_at_once_and_up_to_the_limit() {
    let mut scheduler = scheduler(2, Params::paper());
    scheduler.handle_reading(at_ms(0), &reading(&[(500.0, 10, 1000.0), (500.0, 10, 1000.0)]));
    assert_eq!(commands(&mut scheduler), [moves(0, 1)]);
}

#[test]
fn one_low_reading_among_high_ones_empties_nobody() {
    let mut scheduler = scheduler(2, Params::default());
    let (low, high) = ([(300.0, 5, 1000.0); 2], [(450.0, 5, 1000.0); 2]);
    for period in 0..100 {
        let now = if period % 4 == 0 { reading(&high) } else { reading(&low) };
        scheduler.handle_reading(at_ms(100 * period), &now);
    }
    assert_eq!(commands(&mut scheduler), []);
}

#[test]
fn a_connection_too_heavy_for_every_destination_stays() {
    let mut scheduler = scheduler(3, Params::default());
    let mut fat = reading(&[(350.0, 2, 1000.0), (600.0, 9, 1000.0), (600.0, 9, 1000.0)]);
    assert_eq!(persist(&mut scheduler, 0, &fat), [moves(0, 1)]);
    let mut scheduler = super::tests::scheduler(3, Params::default());
    fat.workers[0].heaviest = Rate::per_second(349.0);
    fat.workers[1].load = Rate::per_second(700.0);
    fat.workers[2].load = Rate::per_second(500.0);
    fat.workers[2].limit = Some(Rate::per_second(840.0));
    assert_eq!(persist(&mut scheduler, 0, &fat), [], "300 and 340 are free below the limits");
}

#[test]
fn both_ends_of_a_homecoming_are_barred_for_thirty_seconds() {
    let mut scheduler = scheduler(3, Params::default());
    let light = reading(&[(100.0, 4, 1000.0), (100.0, 4, 1000.0), (100.0, 4, 1000.0)]);
    scheduler.handle_reading(at_ms(0), &light);
    scheduler.handle_moved(at_ms(0), &moved(0, 1, Why::Burst, 10.0));
    assert_eq!(
        persist(&mut scheduler, 10, &light),
        [],
        "one is left, with nowhere to give and none to take from"
    );
    assert_eq!(scheduler.poll_timeout(), Some(at_ms(30_000)));
    scheduler.handle_timeout(at_ms(29_999));
    assert_eq!(commands(&mut scheduler), []);
    scheduler.handle_timeout(at_ms(30_000));
    assert_eq!(scheduler.poll_timeout(), Some(at_ms(30_500)), "it fits, and must do so for a while");
    scheduler.handle_timeout(at_ms(30_500));
    assert_eq!(commands(&mut scheduler), [moves(0, 1)], "no reading was needed");
}

#[test]
fn an_order_without_an_answer_is_forgotten() {
    let mut scheduler = scheduler(2, Params { fit_patience: Duration::ZERO, ..Params::default() });
    let light = reading(&[(100.0, 4, 1000.0), (100.0, 4, 1000.0)]);
    let orders: Vec<_> = (0..5)
        .map(|period| {
            scheduler.handle_reading(at_ms(100 * period), &light);
            commands(&mut scheduler).len()
        })
        .collect();
    assert_eq!(orders, [1, 0, 1, 0, 1], "one per 200 ms");
    // An answer that comes too late counts by its own content and answers no other order.
    scheduler.handle_moved(at_ms(450), &moved(1, 0, Why::Ordered, 10.0));
    assert_eq!(commands(&mut scheduler), []);
}

#[test]
fn a_refusal_waits_for_the_next_look() {
    let mut scheduler = scheduler(2, Params { fit_patience: Duration::ZERO, ..Params::default() });
    let light = reading(&[(100.0, 4, 1000.0), (100.0, 4, 1000.0)]);
    scheduler.handle_reading(at_ms(0), &light);
    assert_eq!(commands(&mut scheduler), [moves(0, 1)]);
    scheduler.handle_refused(WorkerId(1));
    assert!(scheduler.pending.is_some(), "the other's refusal is none of this order's");
    scheduler.handle_refused(WorkerId(0));
    assert_eq!(commands(&mut scheduler), []);
    scheduler.handle_reading(at_ms(100), &reading(&[(0.0, 0, 1000.0), (100.0, 4, 1000.0)]));
    assert_eq!(commands(&mut scheduler), [Command::Deactivate(WorkerId(0))]);
}

#[test]
fn new_connections_go_home_round_robin_or_to_the_least_loaded_active() {
    let mut scheduler = scheduler(3, Params::default());
    let homes: Vec<_> = (0..4).map(|_| scheduler.place(at_ms(0))).collect();
    assert!(homes.iter().all(|placement| placement.home == placement.serve));
    assert_eq!(homes.iter().map(|placement| placement.home.0).collect::<Vec<_>>(), [0, 1, 2, 0]);
    // Worker 1 was emptied; its next connection is served by the lighter of the others.
    scheduler
        .handle_reading(at_ms(100), &reading(&[(700.0, 9, 1000.0), (0.0, 0, 1000.0), (650.0, 9, 1000.0)]));
    assert_eq!(commands(&mut scheduler), [Command::Deactivate(WorkerId(1))]);
    assert_eq!(scheduler.place(at_ms(200)), Placement { home: WorkerId(1), serve: WorkerId(2) });
    assert_eq!(scheduler.place(at_ms(200)).serve, WorkerId(2));
    assert_eq!(scheduler.place(at_ms(200)).serve, WorkerId(0));
    // With no room anywhere it wakes its home.
    scheduler
        .handle_reading(at_ms(300), &reading(&[(950.0, 9, 1000.0), (0.0, 0, 1000.0), (950.0, 9, 1000.0)]));
    assert_eq!(scheduler.place(at_ms(300)), Placement { home: WorkerId(1), serve: WorkerId(1) });
    assert_eq!(commands(&mut scheduler), [Command::Activate(WorkerId(1))]);
}

#[test]
fn an_inactive_home_that_has_learned_nothing_is_woken() {
    let mut scheduler = scheduler(2, Params::default());
    scheduler.handle_timeout(at_ms(0));
    assert_eq!(commands(&mut scheduler), [Command::Deactivate(WorkerId(1))]);
    scheduler.place(at_ms(1));
    assert_eq!(scheduler.place(at_ms(2)), Placement { home: WorkerId(1), serve: WorkerId(1) });
    assert_eq!(commands(&mut scheduler), [Command::Activate(WorkerId(1))]);
    scheduler.handle_timeout(at_ms(20));
    assert_eq!(commands(&mut scheduler), [], "it is on its way");
}

#[test]
fn a_reading_older_than_a_placement_puts_nobody_to_sleep() {
    let mut scheduler = scheduler(2, Params::default());
    scheduler.place(at_ms(0));
    scheduler.place(at_ms(0));
    let stale = reading(&[(0.0, 0, 0.0), (0.0, 0, 0.0)]);
    scheduler.handle_reading(at_ms(1), &stale);
    assert_eq!(commands(&mut scheduler), [], "both connections may be on their way");
    assert_eq!(scheduler.poll_timeout(), Some(at_ms(50)));
    scheduler.handle_timeout(at_ms(50));
    assert_eq!(commands(&mut scheduler), [Command::Deactivate(WorkerId(1))]);
}

#[test]
fn workers_without_a_limit_take_the_mean_of_the_others() {
    let mut scheduler = scheduler(3, Params::default());
    assert_eq!(scheduler.guidance().fallback_limit, None);
    let some = reading(&[(100.0, 4, 1000.0), (100.0, 4, 0.0), (0.0, 0, 3000.0)]);
    scheduler.handle_reading(at_ms(0), &some);
    assert_eq!(scheduler.guidance().fallback_limit, Some(Rate::per_second(2000.0)));
}

#[test]
fn at_least_the_minimum_stays_active() {
    let mut scheduler = scheduler(4, Params { min_active: 2, ..Params::default() });
    let idle = reading(&[(0.0, 0, 0.0), (0.0, 0, 0.0), (0.0, 0, 0.0), (10.0, 2, 100.0)]);
    let commands = persist(&mut scheduler, 0, &idle);
    assert_eq!(commands, [Command::Deactivate(WorkerId(2)), Command::Deactivate(WorkerId(1))]);
    assert_eq!(scheduler.active().collect::<Vec<_>>(), [WorkerId(0), WorkerId(3)]);
}

#[test]
fn a_missed_goal_wakes_a_worker_on_the_idlest_cpu() {
    let params = Params { latency_goal: Some(Duration::from_micros(500)), ..Params::default() };
    // Workers 0 and 1 share a CPU, 2 and 3 another.
    let mut scheduler = scheduler(4, params);
    let mut slow = reading(&[(400.0, 8, 1000.0), (0.0, 0, 0.0), (0.0, 0, 0.0), (0.0, 0, 0.0)]);
    slow.service = ServiceReading { p99: Some(Duration::from_millis(2)), ..ServiceReading::default() };
    scheduler.handle_reading(at_ms(0), &slow);
    scheduler.handle_reading(at_ms(100), &slow);
    assert_eq!(scheduler.active().collect::<Vec<_>>(), [WorkerId(0)]);
    commands(&mut scheduler);
    scheduler.handle_reading(at_ms(200), &slow);
    assert_eq!(commands(&mut scheduler), [Command::Activate(WorkerId(2)), moves(0, 2)]);
    for step in 1..4 {
        scheduler.handle_moved(at_ms(200 + step), &moved(0, 2, Why::Ordered, 50.0));
        assert_eq!(commands(&mut scheduler), [moves(0, 2)], "half of the connections");
    }
    scheduler.handle_moved(at_ms(210), &moved(0, 2, Why::Ordered, 50.0));
    assert_eq!(commands(&mut scheduler), []);
    slow.service.p99 = Some(Duration::from_micros(100));
    slow.workers = reading(&[(200.0, 4, 1000.0), (0.0, 0, 0.0), (200.0, 4, 1000.0), (0.0, 0, 0.0)]).workers;
    assert_eq!(persist(&mut scheduler, 300, &slow), [], "and they are barred from being packed again");
}

#[test]
fn a_lasting_imbalance_is_relieved_by_the_connection_that_fits() {
    let mut scheduler = scheduler(2, Params::default());
    let crooked = reading(&[(9_000.0, 3, 10_000.0), (1_000.0, 3, 10_000.0)]);
    let heavy = Movable { conn: ConnId(42), load: Rate::per_second(3_500.0) };
    let mut relieved = None;
    for period in 0..80 {
        scheduler.handle_movable(WorkerId(0), Some(heavy).filter(|_| scheduler.guidance().share.is_some()));
        scheduler.handle_reading(at_ms(100 * period), &crooked);
        if let Some(command) = commands(&mut scheduler).pop() {
            relieved.get_or_insert((period, command));
        }
    }
    let this =
        Command::MoveConnection { source: WorkerId(0), target: WorkerId(1), pick: Pick::This(ConnId(42)) };
    assert_eq!(relieved, Some((50, this)), "after five seconds");
}

#[test]
fn an_imbalance_of_small_loads_is_noise() {
    let mut scheduler = scheduler(2, Params { fit_patience: Duration::from_secs(1000), ..Params::default() });
    let small = reading(&[(60.0, 3, 10_000.0), (20.0, 3, 10_000.0)]);
    for period in 0..200 {
        scheduler
            .handle_movable(WorkerId(0), Some(Movable { conn: ConnId(1), load: Rate::per_second(20.0) }));
        scheduler.handle_reading(at_ms(100 * period), &small);
    }
    assert_eq!(commands(&mut scheduler), []);
}

#[test]
fn readings_of_unknown_workers_are_ignored() {
    let mut scheduler = scheduler(1, Params::default());
    let strange = reading(&[(1.0, 1, 1.0), (5.0, 1, 1.0)]);
    assert_eq!(persist(&mut scheduler, 0, &strange), []);
    scheduler.handle_moved(at_ms(1), &moved(7, 9, Why::Ordered, 1.0));
    scheduler.handle_refused(WorkerId(9));
    scheduler.handle_released(at_ms(2), WorkerId(9));
}
