//! Threads of other programs: they run where no request does.

use super::queues::{found, near, table};
use super::{document, run};
use sim::exact::ResponseTime;
use toml::Value;

fn service(dispatch: &str, noise: &str) -> Vec<(&'static str, Value)> {
    let mut set = vec![
        ("server.dispatch", Value::String(dispatch.to_owned())),
        ("run.requests", Value::Integer(100_000)),
        ("run.utilisation", Value::Float(0.5)),
    ];
    if !noise.is_empty() {
        set.push(("server.noise", Value::Array(vec![table(noise)])));
    }
    set
}

const THREAD: &str = "every = \"10us\"\nlength = { exponential = \"500us\" }\non = \"scheduled\"";

#[test]
fn a_thread_that_never_sleeps_leaves_a_cpu_less() {
    let set =
        service("shared", "every = \"1ns\"\nlength = { deterministic = \"1000s\" }\non = \"scheduled\"");
    // Polling CPUs need no time to begin. Slices of 2.8 ms are 280 service times: few requests gain
    // by their ends.
    let [mean, _] = found(&set, "poll");
    near(mean, ResponseTime::mmk(9, 5.0, 1.0).mean(), "beside a thread");
}

#[test]
fn a_thread_makes_way_at_the_end_of_its_slice() {
    // One CPU of two has the service's queue; both have a thread that never sleeps.
    let thread = || table("every = \"1ns\"\nlength = { deterministic = \"1000s\" }\non = \"scheduled\"");
    let set = vec![
        ("machine.cores", Value::Integer(2)),
        ("server.noise", Value::Array(vec![thread(), thread()])),
        ("workload.arrivals", Value::String("uniform".to_owned())),
        ("workload.service", table("deterministic = \"10us\"")),
        ("run.utilisation", Value::Float(0.0005)),
        ("run.requests", Value::Integer(5_000)),
    ];
    // A request comes at any time of a slice of 1.4 ms: it waits for half of one at the mean, for the
    // first of two that end at their own times a third.
    let mean_ns = run(&set, "poll", 1).responses.mean_ns.expect("a mean").value;
    assert!((400_000.0..800_000.0).contains(&mean_ns), "{mean_ns} ns");
}

#[test]
fn a_thread_has_its_time_although_it_is_preempted() {
    // It works for 500 us and sleeps for 10 us: 98 % of a CPU, on ten that are half busy.
    let busy = |noise: &str| 10.0 * run(&service("shared", noise), "poll", 1).working;
    let taken = busy(THREAD) - busy("");
    assert!((taken - 500.0 / 510.0).abs() < 0.03, "{taken} CPUs");
}

#[test]
fn a_thread_keeps_an_idle_cpu_awake() {
    // The one CPU that it works on sleeps in its gaps alone: nine are left.
    let mut set = service("shared", THREAD);
    set.push(("run.utilisation", Value::Float(0.01)));
    set.push(("run.requests", Value::Integer(20_000)));
    let awake = run(&set, "deep", 1).awake;
    // One for the thread; 10,000 requests a second take 10 us each and 133 us out of C6.
    assert!((awake - 2.43).abs() < 0.15, "{awake} CPUs awake");
}

#[test]
fn work_of_so_much_a_request_follows_the_load() {
    // 0.1 a request of 100 us each: 10 us for each request's 10.
    for on in ["each", "any", "scheduled"] {
        let busy = |utilisation: f64| {
            let noise = format!("per_request = 0.1\nlength = {{ exponential = \"100us\" }}\non = \"{on}\"");
            let mut set = service("shared", &noise);
            set.push(("run.utilisation", Value::Float(utilisation)));
            run(&set, "poll", 1).working
        };
        for utilisation in [0.02, 0.04] {
            let found = busy(utilisation) / utilisation;
            assert!((found / 2.0 - 1.0).abs() < 0.05, "{on} at {utilisation}: {found}");
        }
    }
}

#[test]
fn how_often_it_comes_is_said_once() {
    for (noise, word) in [
        ("length = \"1us\"", "either"),
        ("every = \"1ms\"\nper_request = 1\nlength = \"1us\"", "either"),
        ("per_request = 0\nlength = \"1us\"", "above 0"),
        ("every = \"0s\"\nlength = \"1us\"", "every = 0"),
    ] {
        let noise = noise.replace("\"1us\"", "{ deterministic = \"1us\" }");
        let error = document(&service("shared", &noise)).setup("poll", 1).expect_err("an error");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn what_is_scheduled_cannot_be_deferred() {
    let error = document(&service("shared", &format!("{THREAD}\ndeferrable = true"))).setup("poll", 1);
    let error = error.expect_err("an error").to_string();
    assert!(error.contains("deferrable") && error.contains("leave one of the two out"), "{error}");
}
