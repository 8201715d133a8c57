//! A minute of checked values while connections are moved a thousand times a second.

use crate::fixture::skipped;
use loadgen::{Items, Pace, Plan, Target};
use machine::{CpuList, Duration, Rate, WorkerId};
use policy::peafowl::Params;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::{Config, Log, Policy, Server};
use workload::{ArrivalKind, Profile, Segment, ValueSize, Workload};

const MOVES_PER_S: u64 = 1000;

fn config(workers: usize, policy: Policy) -> Config {
    let cpus: Vec<_> = linux::allowed_cpus().unwrap().0.into_iter().collect();
    Config {
        log: Log::new(|line| println!("{line}")),
        ..Config::on_loopback(cpus.into_iter().cycle().take(workers).collect(), policy)
    }
}

/// 60 s, 512 connections, every value checked, moves forced at 1000/s while the scheduler does its
/// own, half of the time with turns that idle workers steal: no answer is lost, none is wrong, none
/// comes out of order (a reordered answer is a wrong value, or an answer to nothing).
#[test]
fn values_stay_right_while_connections_move() {
    let seconds = std::env::var("ROOST_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    for steal_after in [None, Some(Duration::ZERO)] {
        soak(seconds / 2, steal_after);
    }
}

fn soak(seconds: u64, steal_after: Option<Duration>) {
    let length = Duration::from_secs(seconds);
    let policy = Policy::Peafowl(Params::default().scaled(30.0));
    let server = Server::start(Config { steal_after, ..config(6, policy) }, || ()).unwrap();
    let level = |share: f64, rate: f64| Segment {
        length: length.scale(share),
        from: Rate::per_second(rate),
        to: Rate::per_second(rate),
    };
    let profile =
        Profile::new(&[level(0.3, 12e3), level(0.3, 1e3), level(0.1, 10e3), level(0.3, 1e3)]).unwrap();
    let pace = Pace::Open { arrivals: ArrivalKind::Poisson, profile };
    let plan = Plan {
        connections: 512,
        length,
        cpus: None::<CpuList>,
        drain: Duration::from_secs(30),
        patience: Duration::from_secs(60),
        asks: Items {
            workload: Workload {
                seed: 42,
                keys: 20_000,
                value_size: ValueSize::Fixed(1500),
                ..Workload::default()
            },
            preload: true,
            verify: true,
            ..Items::default()
        },
        ..Plan::new(Target::Tcp(server.addresses()[0].to_string()), pace)
    };
    let ended = AtomicBool::new(false);
    let ordered = AtomicU64::new(0);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0_u64.. {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                let source = WorkerId((n % 6) as u16);
                let target = WorkerId(((n + 1 + n / 6 % 5) % 6) as u16);
                server.order_move(source, target);
                ordered.store(n + 1, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_micros(1_000_000 / MOVES_PER_S));
            }
        });
        let outcome = loadgen::run(&plan, &mut |_| ControlFlow::Continue(()));
        ended.store(true, Ordering::Relaxed);
        outcome
    })
    .unwrap();
    let status = server.status();
    let (moved, stolen) = (&status.transfers, status.workers.iter().map(|w| w.stolen).sum::<u64>());
    let counts = outcome.counts;
    println!(
        "soak: {} requests, {} moves of {} ordered, {} guests sent home, {stolen} turns stolen, seed 42",
        counts.answered,
        moved.ordered,
        ordered.load(Ordering::Relaxed),
        moved.send_home
    );
    assert_eq!(outcome.connections_lost, 0, "{:?}", outcome.remarks);
    assert_eq!(counts.corrupt, 0, "{:?}", outcome.remarks);
    assert_eq!(counts.unanswered + counts.lost, 0, "{:?}", outcome.remarks);
    assert_eq!(counts.misses, 0, "everything was stored first and fits");
    assert!(moved.ordered > seconds * 100, "only {} moves: nothing was tested", moved.ordered);
    server.stop().unwrap();
}

/// The published code lost the pending write event of a moved connection: half of its clients
/// stalled for good.
#[test]
fn answers_that_wait_for_a_slow_reader_survive_moves() {
    const GETS: usize = 300;
    let server = Server::start(config(2, Policy::AllAwake), || ()).unwrap();
    let mut client = crate::fixture::Client::connect(server.addresses()[0].port());
    let value = "v".repeat(100_000);
    assert_eq!(client.set("big", &value), "STORED");
    client.send("get big\r\n".repeat(GETS));
    let answer = format!("VALUE big 0 {}\r\n{value}\r\nEND\r\n", value.len());
    let mut left = GETS * answer.len();
    let mut chunk = vec![0; 64 * 1024];
    let mut moves = 0;
    while left > 0 {
        // Reads a little, so that the connection is held back nearly always, and moves it
        // meanwhile.
        if left > answer.len() * GETS / 2 {
            let source = WorkerId((moves % 2) as u16);
            server.order_move(source, WorkerId(1 - source.0));
            server.order_move(WorkerId(1 - source.0), source);
            moves += 1;
            std::thread::sleep(std::time::Duration::from_millis(15));
        }
        let length = client.stream.read(&mut chunk).expect("answers go on after a move");
        assert!(length > 0, "closed with {left} bytes to come");
        let at = GETS * answer.len() - left;
        for (n, byte) in chunk[..length].iter().enumerate() {
            assert_eq!(*byte, answer.as_bytes()[(at + n) % answer.len()], "byte {} of the answers", at + n);
        }
        left -= length;
    }
    let moved = server.status().transfers.ordered;
    assert!(moved > 20, "only {moved} moves: nothing was tested");
    server.stop().unwrap();
}

/// A live run, recorded and replayed: the same commands; one reading changed: other commands.
#[test]
fn a_recorded_run_replays_to_the_same_commands() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(4, Policy::Peafowl(Params::default().scaled(30.0)));
    config.record = Some(folder.path().to_owned());
    let server = Server::start(config, || ()).unwrap();
    let level = |millis, rate: f64| Segment {
        length: Duration::from_millis(millis),
        from: Rate::per_second(rate),
        to: Rate::per_second(rate),
    };
    let profile =
        Profile::new(&[level(1500, 8e3), level(1500, 400.0), level(500, 6e3), level(1500, 400.0)]).unwrap();
    let plan = Plan {
        connections: 32,
        length: Duration::from_secs(5),
        ..Plan::new(
            Target::Tcp(server.addresses()[0].to_string()),
            Pace::Open { arrivals: ArrivalKind::Poisson, profile },
        )
    };
    loadgen::run(&plan, &mut |_| ControlFlow::Continue(())).unwrap();
    server.stop().unwrap();

    let read = |instance: &str| {
        let mut paths: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(instance))
            .collect();
        paths.sort();
        paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect::<String>()
    };
    for worker in 0..4 {
        let log = read(&format!("worker-{worker}."));
        let replayed = policy::log::replay::<policy::peafowl::Worker>(&log).unwrap();
        assert!(replayed.steps > 10, "worker {worker}: {} steps", replayed.steps);
    }
    let log = read("scheduler.");
    let replayed = policy::log::replay::<policy::Scheduling>(&log).unwrap();
    let moves = log.matches("move_connection").count();
    println!("replay: {} steps of the scheduler, {moves} moves ordered", replayed.steps);
    if moves == 0 {
        return skipped(
            "changing one reading",
            "this machine was too busy for the scheduler to move anything",
        );
    }
    // The last reading before the first move, with another load: the replay must notice.
    let first_move = log.lines().position(|line| line.contains("move_connection")).expect("counted above");
    let readings = log.lines().take(first_move + 1).enumerate();
    let line = readings.filter(|(_, line)| line.contains(r#""input":{"reading""#)).last().map(|(at, _)| at);
    let line = line.expect("a move follows from a reading");
    let changed: String = log
        .lines()
        .enumerate()
        .map(|(at, text)| {
            let text = if at == line { text.replace("\"load\":", "\"load\":99999") } else { text.to_owned() };
            text + "\n"
        })
        .collect();
    let divergence = policy::log::replay::<policy::Scheduling>(&changed);
    assert!(divergence.is_err(), "a scheduler that is told of a hundred times the load does the same");
}
