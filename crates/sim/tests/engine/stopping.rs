//! A caller ends its runs before their time.

use super::{document, task};
use sim::fleet::Fleet;
use sim::runner::run_all;
use sim::{Document, ScenarioError, Stop};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A scenario that takes hours to compute.
fn long() -> Document {
    document(&[("run.requests", toml::Value::Integer(100_000_000_000)), ("run.samples", 0.into())])
}

fn short() -> Document {
    document(&[("run.requests", toml::Value::Integer(2_000))])
}

#[test]
fn runs_end_when_the_caller_says_so() {
    let stop = Stop::default();
    let set = Mutex::new(None);
    // The second is under way on its thread when the first ends, the third has not begun.
    let tasks = [task(short(), "menu", 1), task(long(), "poll", 1), task(long(), "teo", 1)];
    let results = run_all(&tasks, 2, &stop, |place, _| {
        if place == 0 {
            *set.lock().unwrap() = Some(Instant::now());
            stop.set();
        }
    });
    let took = set.lock().unwrap().expect("the first ended").elapsed();
    assert!(results[0].is_ok());
    assert!(results[1..].iter().all(|result| matches!(result, Err(ScenarioError::Stopped))), "{results:?}");
    // A debug build on a busy machine: hours if the flag were not read.
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_run_that_ended_before_is_kept() {
    let tasks = [task(short(), "menu", 1), task(long(), "menu", 1)];
    let stop = Stop::default();
    let done = Mutex::new(Vec::new());
    let results = run_all(&tasks, 1, &stop, |place, result| {
        done.lock().unwrap().push(place);
        // Nothing stands between the flag and the next run's first event.
        if result.is_ok() {
            stop.set();
        }
    });
    assert_eq!(results[0].as_ref().unwrap(), &task(short(), "menu", 1).run().unwrap());
    assert!(matches!(results[1], Err(ScenarioError::Stopped)));
    assert_eq!(*done.lock().unwrap(), [0, 1], "each is told, however it ended");
}

#[test]
fn a_fleet_ends_when_the_caller_says_so() {
    let fleet: toml::Table = "servers = 4\nfanout = 2".parse().unwrap();
    let document = document(&[("fleet", fleet.into()), ("run.requests", 1_000_000.into())]);
    let contestant = task(document, "menu", 1).contestant;
    let fleet = Fleet::new(&contestant, 1).unwrap();
    // After its first server.
    assert!(matches!(fleet.run(1, || fleet.stop.set()), Err(ScenarioError::Stopped)));
}
