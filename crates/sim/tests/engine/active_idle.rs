//! How the CPUs of active workers idle, and those of parked ones.

use super::{document, run, task};
use sim::Outcome;
use toml::Value;

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// Ten workers that Peafowl packs at a tenth of their load, for two seconds after it has learned
/// their limit.
fn packed(active_idle: Option<&str>) -> Outcome {
    let mut set = vec![
        ("machine.tick", text("never")),
        ("server.dispatch", text("connections")),
        ("server.learned_limit", text("80k")),
        ("workload.connections", Value::Integer(64)),
        ("params.peafowl-paper.block", text("100ms")),
        ("params.peafowl-paper.report_period", text("10ms")),
        ("run.utilisation", Value::Float(0.1)),
        ("run.requests", Value::Integer(200_000)),
    ];
    set.extend(active_idle.map(|mode| ("server.active_idle", text(mode))));
    run(&set, "peafowl-paper + menu", 1)
}

fn asleep_in(outcome: &Outcome, name: &str) -> f64 {
    outcome.states.iter().find(|state| state.name == name).expect("the state").share
}

#[test]
fn active_workers_poll_and_parked_ones_sleep() {
    let outcome = packed(Some("poll"));
    let active = outcome.active / 10.0;
    assert!(active < 0.6, "{active} of the workers are active");
    // An active worker is never asleep, and a parked one never polls.
    let awake = outcome.working + outcome.polling;
    assert!((awake - active).abs() < 0.05, "{awake} of the time awake, {active} active");
    assert!(asleep_in(&outcome, "C6") > 0.9 * (1.0 - active), "parked workers sleep deep");
    assert!(asleep_in(&outcome, "C1") < 0.02, "polling workers do not halt");
}

#[test]
fn active_workers_halt_unless_the_scenario_says_otherwise() {
    let outcome = packed(None);
    assert_eq!(outcome.polling, 0.0);
    assert!(asleep_in(&outcome, "C1") > 0.05, "active workers halt");
    let mut halting = packed(Some("halt"));
    halting.contestant.clone_from(&outcome.contestant);
    assert_eq!(halting, outcome);
    let stock = packed(Some("stock"));
    assert!(stock.polling == 0.0 && asleep_in(&stock, "C1") < asleep_in(&outcome, "C1"));
}

#[test]
fn a_service_without_connections_has_no_active_workers_to_speak_of() {
    let error = |key: &str, value: &str| {
        let document = document(&[("server.dispatch", text("random")), (key, text(value))]);
        task(document, "menu", 1).run().unwrap_err().to_string()
    };
    let refused = error("server.active_idle", "poll");
    assert!(refused.contains("server.active_idle") && refused.contains("hint:"), "{refused}");
    assert!(error("server.active_idle", "spin").contains("`spin`"));
}
