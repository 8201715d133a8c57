//! Two policies with one seed meet the same noise, whatever else is drawn.

use super::run;
use toml::Value;

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// Nanoseconds of CPU time that all noise took, of ten CPUs.
fn noise_ns(policies: &str, more: &[(&str, Value)]) -> f64 {
    let noise = "every = \"1ms\"\nlength = { exponential = \"100us\" }\non = \"any\"";
    let noise = Value::Array(vec![Value::Table(noise.parse().expect("a table"))]);
    let mut set = vec![
        ("machine.tick", text("never")),
        ("machine.timer", text("1000s")),
        ("run.utilisation", Value::Float(0.3)),
        ("run.requests", Value::Integer(300_000)),
        ("workload.service", Value::Table("deterministic = \"10us\"".parse().expect("a table"))),
    ];
    set.extend_from_slice(more);
    let quiet = run(&set, policies, 3);
    set.push(("server.noise", noise));
    let noisy = run(&set, policies, 3);
    let worked = |outcome: &sim::Outcome| outcome.working * 10.0 * outcome.length_s * 1e9;
    worked(&noisy) - worked(&quiet)
}

#[test]
fn the_noise_is_the_same_under_two_policies() {
    let drawn =
        [("pick", ("server.pick", text("random"))), ("dispatch", ("server.dispatch", text("random")))];
    for (what, key) in drawn {
        // About a thousand pieces of 100 us: of another thousand the sum would differ by some 4 %.
        let [poll, deep] = ["poll", "deep"].map(|policies| noise_ns(policies, std::slice::from_ref(&key)));
        assert!(poll > 5e7, "{what}: {poll} ns of noise");
        // The run's end may cut a piece or two.
        assert!((poll - deep).abs() < 3e5, "{what}: {poll} and {deep} ns of noise");
    }
}
