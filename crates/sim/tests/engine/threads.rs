//! Threads that share one queue, each with connections of its own.

use super::queues::{found, near, table};
use super::{document, run};
use sim::exact::ResponseTime;
use toml::Value;

fn served(threads: &str, utilisation: f64) -> Vec<(&'static str, Value)> {
    vec![
        ("workload.connections", Value::Integer(10_000)),
        ("server.threads", table(threads)),
        ("run.utilisation", Value::Float(utilisation)),
        ("run.requests", Value::Integer(100_000)),
    ]
}

#[test]
fn one_thread_is_one_server_on_ten_cores() {
    let [mean, _] = found(&served("count = 1", 0.07), "poll");
    near(mean, ResponseTime::mmk(1, 0.7, 1.0).mean(), "one thread");
}

#[test]
fn a_thread_for_each_connection_is_one_queue_for_all() {
    // Of 10,000 hardly two requests have the same thread.
    let [mean, _] = found(&served("count = 10000", 0.8), "poll");
    near(mean, ResponseTime::mmk(10, 8.0, 1.0).mean(), "many threads");
}

#[test]
fn a_turn_costs_before_and_after_its_requests() {
    // None meets another: each is a turn of its own, answered before the end of it.
    let mut set = served("count = 4\nbefore = \"3us\"\nafter = \"5us\"", 0.01);
    set.push(("workload.arrivals", Value::String("uniform".to_owned())));
    set.push(("workload.service", table("deterministic = \"10us\"")));
    let outcome = run(&set, "poll", 1);
    let mean = outcome.responses.mean_ns.expect("a mean").value;
    assert!((mean / 13e3 - 1.0).abs() < 1e-3, "{mean} ns");
    assert!((outcome.working / 0.018 - 1.0).abs() < 0.01, "{}", outcome.working);
}

#[test]
fn requests_of_a_turn_share_its_cost() {
    // Two at once on one connection: one turn, 3 + 10 and 3 + 20 us.
    let mut set = served("count = 4\nbefore = \"3us\"\nafter = \"5us\"", 0.01);
    set.push(("workload.arrivals", Value::String("uniform".to_owned())));
    set.push(("workload.batch", Value::Integer(2)));
    set.push(("workload.connections", Value::Integer(1)));
    set.push(("workload.service", table("deterministic = \"10us\"")));
    let outcome = run(&set, "poll", 1);
    let mean = outcome.responses.mean_ns.expect("a mean").value;
    assert!((mean / 18e3 - 1.0).abs() < 1e-3, "{mean} ns");
    assert!((outcome.working / 0.014 - 1.0).abs() < 0.01, "{}", outcome.working);
}

#[test]
fn no_thread_waits_for_longer_than_slices() {
    // One core has more than it can do of one thread, and little of the other three.
    let mut set = served("count = 4", 0.95);
    set.push(("machine.cores", Value::Integer(1)));
    let outcome = run(&set, "poll", 1);
    let p99 = outcome.responses.p99_ns.expect("a p99").value;
    // A queue in order has 0.92 ms; slices of 0.7 ms add three at the most.
    assert!(p99 < 3.1e6, "{p99} ns");
}

#[test]
fn threads_need_a_shared_queue() {
    let mut set = served("count = 4", 0.5);
    set.push(("server.dispatch", Value::String("random".to_owned())));
    let error = document(&set).setup("poll", 1).expect_err("an error").to_string();
    assert!(error.contains("server.threads") && error.contains("\"shared\""), "{error}");
    let error = document(&served("count = 0", 0.5)).setup("poll", 1).expect_err("an error").to_string();
    assert!(error.contains("server.threads.count"), "{error}");
}
