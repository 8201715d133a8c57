//! Clients that wait for replies, against closed forms.

use super::queues::{found, near, table};
use super::{document, run};
use toml::Value;

/// The mean response time of a closed loop: one server of exponential services with this mean, and so
/// many clients that each pause for an exponential time of mean `think` between a reply and the next
/// request (the machine repair model, M/M/1//N). By mean value analysis, exact for it (Reiser and
/// Lavenberg, J. ACM 27, 1980): a request finds the queue as the other clients alone would leave it.
fn machine_repair(clients: u32, think: f64, service: f64) -> f64 {
    let mut response = 0.0;
    let mut waiting = 0.0;
    for others in 0..clients {
        response = service * (1.0 + waiting);
        waiting = f64::from(others + 1) * response / (think + response);
    }
    response
}

#[test]
fn machines_are_repaired_as_the_birth_and_death_process_says() {
    // The chain of n broken machines: p(n) ~ N! / (N - n)! r^n; throughput (1 - p(0)) / service,
    // and the response from Little's law over the whole loop.
    for (clients, ratio) in [(1, 0.2), (6, 0.2), (20, 0.07)] {
        let mut weight = 1.0;
        let mut all = 1.0;
        for n in 0..clients {
            weight *= f64::from(clients - n) * ratio;
            all += weight;
        }
        let throughput = 1.0 - 1.0 / all;
        let expected = f64::from(clients) / throughput - 1.0 / ratio;
        let response = machine_repair(clients, 1.0 / ratio, 1.0);
        assert!((response - expected).abs() <= 1e-9, "{response}, not {expected}");
    }
}

fn on_one_core(clients: &str, service: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("machine.cores", Value::Integer(1)),
        ("server.clients", table(clients)),
        ("workload.service", table(service)),
        ("run.requests", Value::Integer(50_000)),
    ]
}

#[test]
fn a_closed_loop_is_the_machine_repair_model() {
    let exact = machine_repair(6, 5.0, 1.0);
    for clients in [
        "count = 6\nthink = { exponential = \"50us\" }",
        "count = 2\ndepth = 3\nthink = { exponential = \"50us\" }",
    ] {
        let [mean, _] = found(&on_one_core(clients, "exponential = \"10us\""), "poll");
        near(mean, exact, clients);
    }
}

/// Mean and 99th percentile of the response times, in services of 10 us.
fn of_cycles(set: &[(&str, Value)], clients: &str) -> (f64, f64) {
    let mut all = on_one_core(clients, "deterministic = \"10us\"");
    all.extend(set.iter().cloned());
    let responses = run(&all, "poll", 1).responses;
    let of = |estimate: Option<sim::outcome::Estimate>| estimate.expect("a figure").value / 1e4;
    (of(responses.mean_ns), of(responses.p99_ns))
}

fn is(found: f64, exact: f64) {
    assert!((found / exact - 1.0).abs() < 2e-3, "{found}, not {exact}");
}

#[test]
fn clients_in_step_queue_behind_each_other_and_spread_ones_do_not() {
    let four = |more: &str| format!("count = 4\ncycle = {{ deterministic = \"1ms\" }}\n{more}");
    // The first is answered after one service, the last after four.
    let (mean, p99) = of_cycles(&[], &four("in_step = true"));
    is(mean, 2.5);
    is(p99, 4.0);
    let (mean, _) = of_cycles(&[("machine.cores", Value::Integer(2))], &four("in_step = true"));
    is(mean, 1.5);
    let (mean, p99) = of_cycles(&[], &four("phases = \"even\""));
    is(mean, 1.0);
    is(p99, 1.0);
}

#[test]
fn random_phases_are_those_of_their_seed_and_stay() {
    let clients = "count = 3\ncycle = { deterministic = \"1ms\" }\nphases = \"random\"";
    let outcome = run(&on_one_core(clients, "deterministic = \"10us\""), "poll", 5);
    // Constant cycles and services repeat the same pattern for ever: three response times at most.
    assert!((outcome.rate / 3000.0 - 1.0).abs() < 1e-3, "{} requests/s", outcome.rate);
    assert_eq!(outcome, run(&on_one_core(clients, "deterministic = \"10us\""), "poll", 5));
}

#[test]
fn a_client_whose_answer_took_longer_than_its_cycle_sends_at_once() {
    // Four services of 10 us do not fit into 25 us: the server never rests, and each client waits for
    // the three others.
    let (mean, _) = of_cycles(&[], "count = 4\ncycle = { deterministic = \"25us\" }\nin_step = true");
    is(mean, 4.0);
}

/// One connection with Poisson arrivals at load 0.7.
fn on_one_connection(clients: &str) -> Vec<(&'static str, Value)> {
    let mut set = on_one_core(clients, "exponential = \"10us\"");
    set.push(("run.utilisation", Value::Float(0.7)));
    set.push(("run.requests", Value::Integer(100_000)));
    set
}

#[test]
fn the_server_sees_no_more_than_the_depth_and_clients_the_rest() {
    // The queue before sending and the one behind it are one M/M/1 queue, of which the server has
    // min(n, d) requests: by Little's law a request spends (1 - rho^d) / (1 - rho) services with it.
    for depth in [1, 3] {
        let [mean, _] = found(&on_one_connection(&format!("depth = {depth}")), "poll");
        near(mean, (1.0 - 0.7f64.powi(depth)) / 0.3, &format!("from sending, depth {depth}"));
        let due = format!("depth = {depth}\nmeasured = \"due\"");
        let [mean, _] = found(&on_one_connection(&due), "poll");
        near(mean, 1.0 / 0.3, &format!("from when it was due, depth {depth}"));
    }
}

#[test]
fn a_depth_that_is_never_reached_changes_nothing() {
    let set = [("workload.connections", Value::Integer(8))];
    let bounded = [set[0].clone(), ("server.clients", table("depth = 60000"))];
    assert_eq!(run(&set, "menu", 3), run(&bounded, "menu", 3));
}

#[test]
fn after_the_load_no_client_sends() {
    // Twice as much is due as can be served: half of it is sent in the time of the load.
    let mut set = on_one_connection("depth = 4");
    set.push(("run.length", Value::String("10ms".to_owned())));
    set.push(("run.utilisation", Value::Float(2.0)));
    set.push(("run.horizon", Value::String("whole".to_owned())));
    let outcome = run(&set, "poll", 1);
    assert!((800..1200).contains(&outcome.requests), "{} requests", outcome.requests);
    assert!(outcome.length_s < 10.3e-3, "{} s", outcome.length_s);
    // And of a closed loop, which is never without a request.
    let mut set = on_one_core("count = 4\nthink = { deterministic = \"1us\" }", "exponential = \"10us\"");
    set.push(("run.length", Value::String("10ms".to_owned())));
    let outcome = run(&set, "poll", 1);
    assert!((800..1200).contains(&outcome.requests), "{} requests", outcome.requests);
    assert!(outcome.length_s < 10.3e-3, "{} s", outcome.length_s);
}

#[test]
fn clients_on_placed_connections_are_served() {
    for clients in ["count = 40\nthink = { exponential = \"100us\" }", "depth = 1"] {
        let set = [
            ("server.dispatch", Value::String("connections".to_owned())),
            ("workload.connections", Value::Integer(16)),
            ("server.clients", table(clients)),
        ];
        for policies in ["peafowl", "poll", "dreamweaver"] {
            assert_eq!(run(&set, policies, 1).requests, 60_000, "{clients} under {policies}");
        }
    }
}

#[test]
fn clients_that_cannot_be_are_refused_with_the_fix() {
    let think = "think = { exponential = \"1ms\" }";
    let cycle = "cycle = { deterministic = \"1s\" }";
    for (clients, key, fix) in [
        ("count = 0".to_owned(), "count: 0", "at least one client"),
        ("depth = 0".to_owned(), "depth: 0", "at least one request"),
        (String::new(), "count: missing", "or depth"),
        ("count = 4".to_owned(), "think: missing", "cycle = { deterministic"),
        (format!("count = 4\n{think}\n{cycle}"), "cycle: stands beside think", "one of the two"),
        (format!("count = 4\n{think}\nin_step = true"), "in_step: needs a cycle", "in place of think"),
        (format!("count = 4\n{think}\nphases = \"even\""), "phases: needs a cycle", "in place of think"),
        (
            format!("count = 4\n{cycle}\nin_step = true\nphases = \"even\""),
            "phases: stands",
            "one of the two",
        ),
        (format!("count = 4\ndepth = 2\n{cycle}"), "depth: stands beside cycle", "one request outstanding"),
        (format!("count = 4\n{think}\nmeasured = \"due\""), "measured: `due`", "leave it out"),
        (format!("depth = 1\n{think}"), "think: belongs to a closed loop", "add count"),
        ("depth = 1\ntimer = true".to_owned(), "timer: belongs to a closed loop", "add count"),
        (format!("count = 2000\ndepth = 1000\n{think}"), "count: 2000 times depth 1000", "at most 1000000"),
    ] {
        let error = document(&[("server.clients", table(&clients))]).setup("menu", 1);
        let error = error.err().map_or_else(String::new, |error| error.to_string());
        assert!(
            error.contains(&format!("server.clients.{key}")) && error.contains(fix),
            "{clients}: {error}"
        );
    }
    let foreseen = document(&[
        ("server.clients", table("depth = 1")),
        ("server.dispatch", Value::String("random".to_owned())),
    ]);
    let error = foreseen.setup("clairvoyant", 1).err().map_or_else(String::new, |error| error.to_string());
    assert!(error.contains("server.clients"), "{error}");
}
