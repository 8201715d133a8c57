//! Wake-ups whose time spreads.

use super::queues::table;
use super::{document, run};
use toml::Value;

fn lonely(spread: f64) -> Vec<(&'static str, Value)> {
    // A request of 10 us every 20 ms for ten cores: each finds a core in C6, whose exit takes 133 us.
    vec![
        ("workload.arrivals", Value::String("uniform".to_owned())),
        ("workload.service", table("deterministic = \"10us\"")),
        ("run.utilisation", Value::Float(0.00005)),
        ("run.requests", Value::Integer(20_000)),
        ("machine.tick", Value::String("never".to_owned())),
        ("machine.timer", Value::String("1000s".to_owned())),
        ("machine.waking_spread", Value::Float(spread)),
    ]
}

#[test]
fn wake_ups_are_lognormal_around_the_exit_latency() {
    for spread in [0.0, 0.5] {
        let responses = run(&lonely(spread), "deep", 1).responses;
        let [mean, p99] = [responses.mean_ns, responses.p99_ns].map(|found| found.expect("a figure").value);
        // The mean of a lognormal time is its median times exp(s^2 / 2), its p99 times exp(2.326 s).
        let near = |found: f64, factor: f64| (found / (10e3 + 133e3 * factor) - 1.0).abs() < 0.03;
        assert!(near(mean, (spread * spread / 2.0).exp()), "{spread}: mean {mean} ns");
        assert!(near(p99, (2.326 * spread).exp()), "{spread}: p99 {p99} ns");
    }
}

#[test]
fn a_spread_without_meaning_is_refused() {
    let error = document(&lonely(3.0)).setup("deep", 1).expect_err("an error").to_string();
    assert!(error.contains("machine.waking_spread") && error.contains("0 to 2"), "{error}");
}
