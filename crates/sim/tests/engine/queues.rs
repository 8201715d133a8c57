//! One server with other services than exponential ones, and figures that are no response times.

use super::{document, run_many, task};
use sim::Document;
use sim::exact::{ResponseTime, erlang_c, pollaczek_khinchine, set_up_delay};
use sim::outcome::Verdict;
use sim::scenario::Estimates;
use toml::Value;

/// The mean response time where requests of an exponential service with mean `service` come in
/// batches to one server at load `load`; `size` and `size_squared` are the first two moments of a
/// batch's size (M^X/M/1: Gross and Harris, *Fundamentals of Queueing Theory*, section 3.1).
fn batch_arrivals(load: f64, service: f64, size: f64, size_squared: f64) -> f64 {
    assert!(load > 0.0 && load < 1.0, "the queue is not stable: load {load}");
    service * (1.0 + size_squared / size) / (2.0 * (1.0 - load))
}

pub(crate) fn table(text: &str) -> Value {
    Value::Table(text.parse().expect("a table"))
}

/// The means over twelve seeds of mean and p99, in services of 10 us, with their standard errors.
pub(crate) fn found(set: &[(&str, Value)], policies: &str) -> [(f64, f64); 2] {
    let tasks: Vec<_> = (1..=12).map(|seed| task(document(set), policies, seed)).collect();
    let outcomes = run_many(&tasks, 2);
    let over_seeds = |figure: &dyn Fn(&sim::Outcome) -> f64| {
        let values: Vec<f64> = outcomes.iter().map(figure).collect();
        let mean = values.iter().sum::<f64>() / 12.0;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 11.0;
        (mean, (variance / 12.0).sqrt())
    };
    [
        over_seeds(&|outcome| outcome.responses.mean_ns.expect("a mean").value / 1e4),
        over_seeds(&|outcome| outcome.responses.p99_ns.expect("a p99").value / 1e4),
    ]
}

pub(crate) fn near((found, error): (f64, f64), exact: f64, what: &str) {
    // Four standard errors; a test that errs less than this proves nothing, so the error is bounded
    // too.
    assert!(error < 0.04 * exact, "{what}: {found} +-{error} says nothing of {exact}");
    assert!((found - exact).abs() <= 4.0 * error, "{what}: {found} +-{error}, not {exact}");
}

fn one_server(service: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("machine.cores", Value::Integer(1)),
        ("workload.service", table(service)),
        ("run.utilisation", Value::Float(0.7)),
        ("run.requests", Value::Integer(100_000)),
    ]
}

#[test]
fn constant_services_wait_half_as_long() {
    let exact = ResponseTime::md1(0.7, 1.0);
    let [mean, p99] = found(&one_server("deterministic = \"10us\""), "poll");
    near(mean, exact.mean(), "mean");
    near(p99, exact.quantile(0.99), "p99");
}

#[test]
fn services_of_two_stages_answer_by_their_transform() {
    let exact = ResponseTime::me21(0.7, 1.0);
    let erlang = "distribution = \"erlang\"\nmean = \"10us\"\nstages = 2";
    let [mean, p99] = found(&one_server(erlang), "poll");
    near(mean, exact.mean(), "mean");
    near(p99, exact.quantile(0.99), "p99");
}

#[test]
fn services_of_two_branches_answer_by_their_transform() {
    let first = (1.0 + 0.6f64.sqrt()) / 2.0;
    let exact = ResponseTime::mh21(0.7, first, [2.0 * first, 2.0 * (1.0 - first)]);
    let branches = "distribution = \"hyperexponential\"\nmean = \"10us\"\nscv = 4.0";
    let [mean, p99] = found(&one_server(branches), "poll");
    near(mean, exact.mean(), "mean");
    near(p99, exact.quantile(0.99), "p99");
}

#[test]
fn the_mean_needs_two_moments_of_the_service_and_no_more() {
    // Pollaczek and Khinchine: a lognormal of cv 1.5 has a second moment of 3.25.
    let lognormal = "distribution = \"lognormal\"\nmean = \"10us\"\ncv = 1.5";
    let [mean, _] = found(&one_server(lognormal), "poll");
    near(mean, pollaczek_khinchine(0.7, 1.0, 3.25), "mean");
}

#[test]
fn requests_of_a_batch_wait_for_each_other() {
    for (batch, squared) in [(Value::Integer(4), 16.0), (table("geometric = 4.0"), 28.0)] {
        let mut set = one_server("exponential = \"10us\"");
        set.push(("run.requests", Value::Integer(400_000)));
        set.push(("workload.batch", batch));
        let [mean, _] = found(&set, "poll");
        near(mean, batch_arrivals(0.7, 1.0, 4.0, squared), "mean");
    }
}

#[test]
fn a_set_up_time_is_added_as_welch_says() {
    let state = table(
        "name = \"C1\"\nkind = \"halting\"\nexit_latency = 30000\ntarget_residency = 30000\npower = 1000000",
    );
    let mut set = one_server("exponential = \"10us\"");
    set.push(("machine.cstates", Value::Array(vec![state])));
    set.push(("machine.package", Value::Boolean(false)));
    set.push(("machine.tick_cost", Value::String("0us".to_owned())));
    let [mean, _] = found(&set, "shallow");
    near(mean, 1.0 / 0.3 + set_up_delay(0.7, 3.0, 9.0), "mean");
}

#[test]
fn as_many_wait_as_erlang_says() {
    // A request that finds a core idle ends one idle period; one that waits ends none.
    let set = [("run.requests", Value::Integer(100_000))];
    let tasks: Vec<_> = (1..=12).map(|seed| task(document(&set), "poll", seed)).collect();
    let waited: Vec<f64> = run_many(&tasks, 2)
        .iter()
        .map(|outcome| 1.0 - outcome.idle_lengths.per_s.iter().sum::<f64>() / outcome.rate)
        .collect();
    let mean = waited.iter().sum::<f64>() / 12.0;
    let variance = waited.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / 11.0;
    near((mean, (variance / 12.0).sqrt()), erlang_c(10, 8.0), "share of those who wait");
}

#[test]
fn a_queue_near_its_limit_is_stable_and_one_beyond_it_is_not() {
    let at = |utilisation: f64| {
        let set = [("run.utilisation", Value::Float(utilisation)), ("run.requests", Value::Integer(600_000))];
        let tasks: Vec<_> = (1..=4).map(|seed| task(document(&set), "poll", seed)).collect();
        run_many(&tasks, 2).iter().map(|outcome| outcome.verdict).collect::<Vec<_>>()
    };
    assert_eq!(at(1.05), [Verdict::Unstable; 4]);
    assert!(at(0.95).iter().all(|verdict| *verdict != Verdict::Unstable));
}

#[test]
fn work_done_is_the_work_that_was_asked_for() {
    for policies in ["poll", "menu", "teo-feedback", "deep"] {
        let document = document(&[]);
        let (_, jobs) = document.setup(policies, 7).expect("a scenario");
        let asked_ns: u64 = jobs.take(60_000).map(|job| (job.compute + job.memory).as_nanos()).sum();
        let outcome = task(document, policies, 7).run().expect("a run");
        let ticks = outcome.states.iter().any(|state| state.sleeps_per_s > 0.0);
        let done_ns = outcome.working * 10.0 * outcome.length_s * 1e9;
        let interrupts = done_ns / asked_ns as f64 - 1.0;
        // Ticks and timers of idle cores work too: 2 us each, at most 255 a second and core.
        assert!(interrupts > -1e-9, "{policies}: {interrupts}");
        assert!(interrupts < if ticks { 1e-3 } else { 1e-9 }, "{policies}: {interrupts}");
    }
}

/// A daemon that takes a core fifty times a second lengthens the queue, and is no jump of the load.
#[test]
fn work_that_comes_often_wakes_no_parked_cores() {
    let text = "goal = \"120us@p95\"\n[machine]\npreset = \"xeon-e5-2630-v3\"\n\
         [server]\noutside = \"40us\"\n[[server.noise]]\nevery = \"20ms\"\n\
         length = { exponential = \"1ms\" }\non = \"any\"\n[workload]\nrate = \"15k\"\n\
         service = { distribution = \"lognormal\", mean = \"25us\", cv = 0.5 }\n\
         [run]\nrequests = 600_000\n";
    let document = Document::parse("daemon.toml".as_ref(), text, &Estimates::default()).expect("a scenario");
    let outcome = task(document, "joint", 1).run().expect("it runs");
    let tail_us = outcome.responses.p95_ns.expect("a tail").value / 1e3;
    assert!((110.0..=121.0).contains(&tail_us), "{tail_us} us");
    assert!(outcome.active < 3.0, "{} cores", outcome.active);
}
