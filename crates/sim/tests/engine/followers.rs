//! Threads that each request wakes: their share of a CPU and their turns, against M/D/inf.

use super::queues::table;
use super::{document, run};
use sim::Outcome;
use toml::Value;

const AWAKE_S: f64 = 40e-6;
const FOLLOWS: &str = "after_request = \"40us\"\non = \"scheduled\"";
const SENDS: &str = "after_request = \"40us\"\non = \"scheduled\"\nsends = true";

/// Requests of 10 us each on ten cores, beside that thread.
fn set(noise: &str, utilisation: f64) -> Vec<(&'static str, Value)> {
    let mut set = vec![
        ("server.dispatch", Value::String("shared".to_owned())),
        ("run.requests", Value::Integer(200_000)),
        ("run.utilisation", Value::Float(utilisation)),
    ];
    if !noise.is_empty() {
        set.push(("server.noise", Value::Array(vec![table(noise)])));
    }
    set
}

/// Share of a CPU that the thread has, and its turns a second.
fn share_and_turns(noise: &str, utilisation: f64, policy: &str) -> (f64, f64) {
    let with = run(&set(noise, utilisation), policy, 1);
    // Each request ends an idle period, and so does each turn.
    let rate = utilisation * 1e6;
    (10.0 * with.working - 10.0 * utilisation, with.idle_periods_per_s() - rate)
}

#[test]
fn a_thread_works_for_the_busy_periods_of_an_infinite_server() {
    for noise in [FOLLOWS, SENDS] {
        for utilisation in [0.005, 0.02, 0.05] {
            let rate = utilisation * 1e6;
            let asleep = (-rate * AWAKE_S).exp();
            let (share, turns) = share_and_turns(noise, utilisation, "poll");
            assert!((share / (1.0 - asleep) - 1.0).abs() < 0.02, "{noise} at {rate}/s: {share}");
            assert!((turns / (rate * asleep) - 1.0).abs() < 0.03, "{noise} at {rate}/s: {turns} turns");
        }
    }
}

#[test]
fn the_way_out_of_sleep_is_over_when_the_sender_wants_its_cpu() {
    // An exit from C6 takes 133 us: a thread that only listens has fewer turns by that.
    let asleep = (-20_000.0 * AWAKE_S).exp();
    let (sends, _) = share_and_turns(SENDS, 0.02, "deep");
    let (follows, _) = share_and_turns(FOLLOWS, 0.02, "deep");
    assert!((sends / (1.0 - asleep) - 1.0).abs() < 0.02, "{sends}");
    assert!(follows < 0.5 * sends, "{follows}");
}

fn lonely(noise: &str, cores: i64) -> Outcome {
    let mut set = set(noise, 0.001 / cores as f64 * 10.0);
    set.push(("machine.cores", Value::Integer(cores)));
    set.push(("workload.arrivals", Value::String("uniform".to_owned())));
    set.push(("workload.service", table("deterministic = \"10us\"")));
    set.push(("run.requests", Value::Integer(5_000)));
    run(&set, "poll", 1)
}

#[test]
fn a_request_counts_from_when_its_sender_has_a_cpu() {
    for (noise, cores, micros) in [
        // It is ready when its sender is, and waits for the CPU or finds another.
        (SENDS, 1, 50.0),
        (SENDS, 2, 10.0),
        // Of a thread that only listens none waits.
        (FOLLOWS, 1, 50.0),
        (FOLLOWS, 2, 10.0),
    ] {
        let mean = lonely(noise, cores).responses.mean_ns.expect("a mean").value;
        assert!((mean / (1e3 * micros) - 1.0).abs() < 0.01, "{noise} on {cores}: {mean} ns");
    }
}

#[test]
fn a_sender_without_a_cpu_sends_nothing() {
    // One CPU that the service itself could keep busy for 80 % of the time: a request that is due waits.
    let mut set = set(SENDS, 0.8);
    set.push(("machine.cores", Value::Integer(1)));
    let responses = run(&set, "poll", 1).responses;
    let mean = responses.mean_ns.expect("a mean").value;
    assert!(mean.is_finite() && mean > 40e3, "{mean} ns");
}

#[test]
fn a_follower_is_a_thread_that_one_key_describes() {
    for (noise, words) in [
        ("after_request = \"40us\"", ["after_request", "on = \"scheduled\""]),
        ("after_request = \"0s\"\non = \"scheduled\"", ["after_request: 0", "40us"]),
        ("after_request = \"1us\"\nevery = \"1ms\"\non = \"scheduled\"", ["a gap or a length", "leave out"]),
        ("every = \"1ms\"\non = \"scheduled\"", ["length: missing", "after_request"]),
        ("every = \"1ms\"\nlength = { deterministic = \"1us\" }\nsends = true", ["sends", "after_request"]),
    ] {
        let error = document(&set(noise, 0.1)).setup("poll", 1).expect_err("an error").to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{noise}: {error}");
    }
    let mut two = set("", 0.1);
    two.push(("server.noise", Value::Array(vec![table(SENDS), table(SENDS)])));
    let error = document(&two).setup("poll", 1).expect_err("an error").to_string();
    assert!(error.contains("server.noise.1.sends"), "{error}");
    let mut clients = set(SENDS, 0.1);
    clients.push(("server.clients.depth", Value::Integer(4)));
    let error = document(&clients).setup("poll", 1).expect_err("an error").to_string();
    assert!(error.contains("server.clients"), "{error}");
}
