//! The first minute of the README, and then all the load that there is: no worker does all the work
//! beside one that sleeps.

use loadgen::{Items, Pace, Plan, Target};
use machine::{Duration, Rate};
use policy::peafowl::Params;
use std::ops::ControlFlow;
use store::status::Status;
use store::{Config, Log, Policy, Server};
use workload::{ArrivalKind, Profile, Segment};

/// As long as a worker may be busy all the time beside one that sleeps. It takes a fifth of a
/// second on a machine with time to spare; this is for one that has none.
const LONG: Duration = Duration::from_secs(8);

/// Runs the load until `is_over` says so of a status, or the plan ends; true if it said so.
fn until(server: &Server, plan: &Plan, mut is_over: impl FnMut(&Status) -> bool) -> bool {
    let mut over = false;
    loadgen::run(plan, &mut |_| {
        over = over || is_over(&server.status());
        if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    over
}

#[test]
fn a_preload_does_not_let_one_worker_do_all_the_work_afterwards() {
    let cpus: Vec<_> = linux::allowed_cpus().unwrap().0.into_iter().collect();
    let workers = cpus.into_iter().cycle().take(2).collect();
    let config = Config {
        log: Log::new(|line| println!("{line}")),
        ..Config::on_loopback(workers, Policy::Peafowl(Params::live()))
    };
    let server = Server::start(config, || ()).unwrap();
    let target = Target::Tcp(server.addresses()[0].to_string());

    // `roost load --rate 20k --preload`, until the connections have been packed onto one worker.
    let rate = Rate::per_second(5e3);
    let length = Duration::from_secs(30);
    let profile = Profile::new(&[Segment { length, from: rate, to: rate }]).unwrap();
    let light = Plan {
        connections: 32,
        length,
        interval: Duration::from_millis(100),
        asks: Items { preload: true, ..Items::default() },
        ..Plan::new(target.clone(), Pace::Open { arrivals: ArrivalKind::Poisson, profile })
    };
    let packed = until(&server, &light, |now| {
        now.requests > 10_000 && now.workers.iter().filter(|worker| worker.active).count() == 1
    });
    println!("packed after the preload: {packed}");

    // `--arrivals closed --connections 32`.
    let full = Plan {
        connections: 32,
        length: Duration::from_secs(40),
        interval: Duration::from_millis(100),
        ..Plan::new(target, Pace::Closed { depth: 1 })
    };
    let mut before: Option<Status> = None;
    let (mut alone, mut together) = (Duration::ZERO, Duration::ZERO);
    let mut longest = Duration::ZERO;
    let both = until(&server, &full, |now| {
        if let Some(before) = before.replace(now.clone()) {
            let length = now.uptime - before.uptime;
            let busiest = now
                .workers
                .iter()
                .zip(&before.workers)
                .map(|(now, before)| (now.busy - before.busy).as_secs_f64() / length.as_secs_f64().max(1e-9))
                .fold(0.0, f64::max);
            let awake = now.workers.iter().filter(|worker| worker.active).count();
            if awake == 2 {
                together += length;
                alone = Duration::ZERO;
            } else if busiest > 0.9 {
                alone += length;
            } else {
                alone = Duration::ZERO;
            }
            longest = longest.max(alone);
        }
        together > Duration::from_secs(3)
    });
    let workers = server.status().workers;
    println!("busy beside a sleeper for {longest} at the longest: {workers:?}");
    assert!(both, "the second worker never came to help: {workers:?}");
    assert!(longest < LONG, "one worker was busy all the time for {longest} beside one that slept");
    server.stop().unwrap();
}
