//! Idle workers that take requests from others.

use super::queues::{found, near, table};
use super::{document, run};
use sim::exact::ResponseTime;
use toml::Value;

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn partitioned(cost: &str) -> Vec<(&'static str, Value)> {
    let mut set = vec![
        ("server.dispatch", text("connections")),
        ("workload.connections", Value::Integer(512)),
        ("run.requests", Value::Integer(100_000)),
    ];
    if !cost.is_empty() {
        set.push(("server.stealing", table(&format!("cost = \"{cost}\""))));
    }
    set
}

#[test]
fn workers_that_steal_for_nothing_answer_as_one_queue_for_all() {
    for load in [0.5, 0.8] {
        let mut set = partitioned("0s");
        set.push(("run.utilisation", Value::Float(load)));
        let [mean, _] = found(&set, "poll");
        near(mean, ResponseTime::mmk(10, 10.0 * load, 1.0).mean(), &format!("at {load}"));
    }
}

#[test]
fn where_no_request_waits_nothing_is_stolen() {
    // A request of 10 us every 20 us: none ever meets another.
    let trickle = |cost: &str| {
        let mut set = partitioned(cost);
        set.push(("workload.arrivals", text("uniform")));
        set.push(("workload.service", table("deterministic = \"10us\"")));
        set.push(("run.utilisation", Value::Float(0.05)));
        set
    };
    assert_eq!(run(&trickle("5us"), "poll", 1), run(&trickle(""), "poll", 1));
}

/// The mean response time of pairs of requests on one connection, 10 us each, in nanoseconds.
fn mean_of_pairs(stealing: &str) -> f64 {
    let mut set = partitioned("");
    set.extend([
        ("server.stealing", table(stealing)),
        ("machine.cores", Value::Integer(2)),
        ("workload.connections", Value::Integer(1)),
        ("workload.arrivals", text("uniform")),
        ("workload.batch", Value::Integer(2)),
        ("workload.service", table("deterministic = \"10us\"")),
        ("run.utilisation", Value::Float(0.1)),
    ]);
    run(&set, "poll", 1).responses.mean_ns.expect("a mean").value
}

#[test]
fn a_stolen_request_takes_its_cost_longer() {
    // The second of each pair is taken by the other core.
    let mean = mean_of_pairs("cost = \"2us\"");
    assert!((mean / 11e3 - 1.0).abs() < 1e-3, "{mean} ns");
}

#[test]
fn a_request_that_its_worker_comes_to_in_time_is_not_stolen() {
    for (after, expected) in [("5us", 11e3), ("15us", 15e3)] {
        let mean = mean_of_pairs(&format!("cost = \"2us\"\nafter = \"{after}\""));
        assert!((mean / expected - 1.0).abs() < 1e-3, "after {after}: {mean} ns");
    }
}

#[test]
fn stealing_shortens_the_tail_of_placed_connections() {
    let tail = |cost: &str| {
        let mut set = partitioned(cost);
        set.push(("run.utilisation", Value::Float(0.6)));
        run(&set, "peafowl", 1).responses.p99_ns.expect("a p99").value
    };
    let (with, without) = (tail("500ns"), tail(""));
    assert!(with < 0.8 * without, "{with} ns, {without} without");
}

/// The plan is for one queue: for one by core it would keep far more speed and cores than its goal
/// needs.
#[test]
fn a_joint_plan_spends_the_time_that_stealing_saves() {
    let run = |dispatch: &str| {
        let mut set = partitioned("1us");
        if dispatch == "shared" {
            set.retain(|(key, _)| *key != "server.stealing");
        }
        set.extend([
            ("server.dispatch", text(dispatch)),
            ("workload.service", table("exponential = \"10us\"")),
            ("run.requests", Value::Integer(400_000)),
            ("run.utilisation", Value::Float(0.4)),
            ("goal", text("300us@p99")),
        ]);
        let outcome = run(&set, "joint-plan", 1);
        (outcome.power.cores_watts, outcome.responses.p99_ns.expect("a p99").value)
    };
    let ((stolen, p99), (shared, _)) = (run("connections"), run("shared"));
    assert!(stolen < 1.05 * shared, "{stolen} W, {shared} with one queue");
    assert!(p99 < 1.03 * 300e3, "{p99} ns");
}

#[test]
fn stealing_that_cannot_be_is_refused_with_the_fix() {
    let steals = ("server.stealing", table("cost = \"1us\""));
    let connections = ("server.dispatch", text("connections"));
    let device = ("server.device", table("latency = { exponential = \"50us\" }\ninterrupt = \"1us\""));
    for (set, policies, says) in [
        (vec![steals.clone()], "menu", "server.dispatch = \"connections\""),
        (vec![steals.clone(), connections.clone(), device], "menu", "beside a device"),
        (vec![steals.clone(), connections.clone()], "clairvoyant", "others steal from it"),
        (vec![steals, connections.clone()], "dynsleep", "others steal from it"),
        (vec![("server.stealing", table("")), connections], "menu", "missing field `cost`"),
    ] {
        let error = document(&set).setup(policies, 1);
        let error = error.err().map_or_else(String::new, |error| error.to_string());
        assert!(error.contains("server") && error.contains(says), "{policies}: {error}");
    }
}
