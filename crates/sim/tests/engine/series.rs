//! The time series: which stretches of a run it has, and how fine its figures are.

use super::queues::table;
use super::run;
use toml::Value;

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

#[test]
fn the_drain_after_the_load_is_no_sample() {
    // Ten samples fit into the load; the last requests are served after it.
    for (clients, length_s) in
        [("", 0.02), ("count = 40\nthink = { deterministic = \"1us\" }", 0.02), ("depth = 4", 0.02)]
    {
        let mut set = vec![
            ("run.length", text("20ms")),
            ("run.samples", Value::Integer(10)),
            ("run.horizon", text("whole")),
            ("run.utilisation", Value::Float(0.95)),
        ];
        if !clients.is_empty() {
            set.push(("server.clients", table(clients)));
        }
        let outcome = run(&set, "menu", 1);
        assert!(outcome.length_s > length_s, "{clients}: nothing was left at the end of the load");
        assert_eq!(outcome.points.len(), 10, "{clients}");
        let last = outcome.points.last().expect("ten points");
        assert!((last.until_s - length_s).abs() < 1e-9, "{clients}: {} s", last.until_s);
        let cpu = outcome.points.iter().map(|point| point.cpu_watts).sum::<f64>() / 10.0;
        assert!((cpu / outcome.power.cpu_watts - 1.0).abs() < 0.02, "{clients}: {cpu} W");
    }
}

#[test]
fn a_load_that_ends_with_its_requests_has_no_sample_after_the_last_one() {
    // Five requests within 40 us of 8 ms each on ten cores: the load is over before the second stretch.
    let set = [
        ("workload.service", table("deterministic = \"8ms\"")),
        ("workload.arrivals", text("uniform")),
        ("workload.batch", Value::Integer(5)),
        ("run.utilisation", Value::Float(0.5)),
        ("run.requests", Value::Integer(5)),
        ("run.samples", Value::Integer(2)),
    ];
    let outcome = run(&set, "poll", 1);
    assert!(outcome.length_s > 2.0 * outcome.points[0].until_s);
    let last = outcome.points.last().expect("a point");
    assert!(last.until_s < outcome.length_s, "{} of {} s", last.until_s, outcome.length_s);
}

#[test]
fn a_sleep_that_was_its_own_way_out_is_in_no_sample_twice() {
    // Samples every 50 us, and exits of 133 us that a sender books when they are over.
    let set = [
        ("server.dispatch", text("shared")),
        (
            "server.noise",
            Value::Array(vec![table("after_request = \"40us\"\non = \"scheduled\"\nsends = true")]),
        ),
        ("machine.cores", Value::Integer(2)),
        ("run.utilisation", Value::Float(0.02)),
        ("run.length", text("100ms")),
        ("run.samples", Value::Integer(2_000)),
        ("run.horizon", text("whole")),
    ];
    let outcome = run(&set, "deep", 1);
    for (state, share) in outcome.states.iter().enumerate() {
        let shares = outcome.points.iter().map(|point| point.asleep[state]);
        let mean = shares.inspect(|share| assert!((0.0..=1.0).contains(share), "{share}")).sum::<f64>()
            / outcome.points.len() as f64;
        assert!((mean - share.share).abs() < 0.01, "{mean} and {}", share.share);
    }
}

#[test]
fn percentiles_of_a_stretch_are_as_fine_as_figures() {
    let set = [
        ("workload.service", table("deterministic = \"10us\"")),
        ("workload.arrivals", text("uniform")),
        ("run.utilisation", Value::Float(0.1)),
    ];
    for point in run(&set, "poll", 1).points {
        for found in [point.p95_ns, point.p99_ns] {
            let found = found.expect("requests in each stretch") / 1e4;
            assert!((found - 1.0).abs() < 0.005, "{found}");
        }
    }
}
