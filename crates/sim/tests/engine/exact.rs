//! Queues whose answer is known. No core sleeps (`poll`), so that nothing but the queue is
//! measured.

use super::{run, run_many, task};
use sim::exact::ResponseTime;
use toml::Value;

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// Of twelve seeds, how many intervals of mean and p99 hold the truth, in units of the mean service
/// time of 10 us.
fn covered(set: &[(&str, Value)], mean: f64, p99: f64) -> (usize, usize) {
    let tasks: Vec<_> = (1..=12).map(|seed| task(super::document(set), "poll", seed)).collect();
    let outcomes = run_many(&tasks, 2);
    let holds = |estimate: Option<sim::outcome::Estimate>, truth: f64| {
        let interval = estimate.and_then(|estimate| estimate.interval());
        // Without an interval the run said that it cannot tell; then the estimate must be near.
        match interval {
            Some(interval) => interval.covers(truth * 1e4),
            None => estimate.is_some_and(|estimate| (estimate.value / (truth * 1e4) - 1.0).abs() < 0.25),
        }
    };
    let count =
        |holds: &dyn Fn(&sim::Outcome) -> bool| outcomes.iter().filter(|outcome| holds(outcome)).count();
    (
        count(&|outcome| holds(outcome.responses.mean_ns, mean)),
        count(&|outcome| holds(outcome.responses.p99_ns, p99)),
    )
}

#[test]
fn ten_servers_and_one_queue_answer_as_erlang_says() {
    let exact = ResponseTime::mmk(10, 8.0, 1.0);
    assert!((exact.mean() - 1.20459).abs() < 1e-4 && (exact.quantile(0.99) - 4.94611).abs() < 1e-3);
    let (mean, p99) =
        covered(&[("run.requests", Value::Integer(100_000))], exact.mean(), exact.quantile(0.99));
    assert!(mean >= 10 && p99 >= 10, "mean {mean} and p99 {p99} of 12");
}

#[test]
fn one_server_answers_as_it_must() {
    let exact = ResponseTime::mm1(0.5, 1.0);
    let set = [
        ("machine.cores", Value::Integer(1)),
        ("run.utilisation", Value::Float(0.5)),
        ("run.requests", Value::Integer(100_000)),
    ];
    let (mean, p99) = covered(&set, exact.mean(), exact.quantile(0.99));
    assert!(mean >= 10 && p99 >= 10, "mean {mean} and p99 {p99} of 12");
}

#[test]
fn queues_drawn_at_random_are_ten_single_servers() {
    let exact = ResponseTime::mm1(0.5, 1.0);
    let set = [
        ("server.dispatch", text("random")),
        ("run.utilisation", Value::Float(0.5)),
        ("run.requests", Value::Integer(100_000)),
    ];
    let (mean, p99) = covered(&set, exact.mean(), exact.quantile(0.99));
    assert!(mean >= 10 && p99 >= 10, "mean {mean} and p99 {p99} of 12");
}

#[test]
fn a_server_that_must_wake_up_first_answers_as_the_queue_with_set_up_time() {
    // One core whose only sleep takes 20 us to leave: the mean of M/M/1 with deterministic set-up
    // is that of M/M/1 plus (2 D + lambda D^2) / (2 (1 + lambda D)) (Welch, "On a generalized M/G/1
    // queuing process in which the first customer of each busy period receives exceptional
    // service", Operations Research 12, 1964).
    let state =
        "name = \"C1\"\nkind = \"halting\"\nexit_latency = 20000\ntarget_residency = 20000\npower = 1000000";
    let states = Value::Array(vec![Value::Table(state.parse().expect("a table"))]);
    let set = [
        ("machine.cores", Value::Integer(1)),
        ("machine.cstates", states),
        ("machine.package", Value::Boolean(false)),
        ("run.utilisation", Value::Float(0.5)),
        ("run.requests", Value::Integer(400_000)),
    ];
    let (rate, setup) = (0.05, 20.0);
    let exact_us = 20.0 + (2.0 * setup + rate * setup * setup) / (2.0 * (1.0 + rate * setup));
    let outcome = run(&set, "shallow", 1);
    let mean = outcome.responses.mean_ns.expect("a mean");
    assert!((mean.value / 1e3 / exact_us - 1.0).abs() < 0.02, "{} for {exact_us}", mean.value / 1e3);
}

#[test]
fn more_than_the_machine_can_do_is_called_unstable_and_nearly_as_much_is_not() {
    let at = |utilisation: f64, requests: i64| {
        let set =
            [("run.utilisation", Value::Float(utilisation)), ("run.requests", Value::Integer(requests))];
        run(&set, "poll", 3)
    };
    let flooded = at(1.1, 300_000);
    assert_eq!(flooded.verdict, sim::outcome::Verdict::Unstable);
    assert_eq!(flooded.responses, sim::outcome::Responses::default(), "no figure of an unstable queue");
    assert_ne!(at(0.9, 200_000).verdict, sim::outcome::Verdict::Unstable);
}
