//! A sibling thread that never has work changes nothing: the machine with hyperthreads is the same
//! as the one without.

use super::queues::table;
use super::run;
use sim::Outcome;
use toml::Value;

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// Ten cores of one or two threads, with the same ten workers, and no timer that could wake a
/// sibling.
fn with_threads(threads: i64, policies: &str, more: &[(&str, Value)]) -> Outcome {
    let mut set = vec![
        ("machine.threads", Value::Integer(threads)),
        ("machine.tick", text("never")),
        ("machine.timer", text("1000s")),
        ("server.workers", Value::Integer(10)),
        ("server.dispatch", text("random")),
        ("workload.memory", Value::Float(0.3)),
        ("run.utilisation", Value::Float(0.3)),
        ("run.requests", Value::Integer(40_000)),
    ];
    set.extend_from_slice(more);
    run(&set, policies, 1)
}

#[test]
fn an_idle_sibling_asks_for_no_clock() {
    let slack = ("params.sensitivity.slack", Value::Float(0.2));
    let clocks = [
        "ondemand",
        "schedutil",
        "sensitivity",
        "hurry-up",
        "rubik",
        "crescendo",
        "adrenaline",
        "retail-like",
        "nmap-like",
        "ecofaas-like",
    ];
    for clock in clocks {
        let more: &[_] = if clock == "sensitivity" { std::slice::from_ref(&slack) } else { &[] };
        let line = format!("shallow + {clock}");
        let (one, two) = (with_threads(1, &line, more), with_threads(2, &line, more));
        assert_eq!(one.frequencies, two.frequencies, "{clock}: shares of the operating points");
        assert_eq!(one.responses, two.responses, "{clock}");
        assert!((one.power.cores_watts / two.power.cores_watts - 1.0).abs() < 1e-9, "{clock}: power");
    }
}

#[test]
fn entry_latency_costs_the_same_power_with_an_idle_sibling() {
    let state = "name = \"C6\"\nkind = \"halting\"\nexit_latency = 20000\nentry_latency = 30000\n\
                 target_residency = 100000\npower = 100000";
    let states = Value::Array(vec![Value::Table(state.parse().expect("a table"))]);
    let more = [("machine.cstates", states), ("machine.package", Value::Boolean(false))];
    let [one, two] = [1, 2].map(|threads| with_threads(threads, "deep", &more));
    assert_eq!(one.responses, two.responses);
    let (one, two) = (one.power.cores_watts, two.power.cores_watts);
    assert!((one / two - 1.0).abs() < 1e-6, "{one} W without hyperthreads, {two} W with them");
}

#[test]
fn idle_polling_is_no_busy_time_for_ondemand() {
    // The kernel's idle time counts the state POLL: cores at a tenth of their time cruise.
    let fastest = |policies: &str| {
        let outcome = with_threads(1, policies, &[("run.utilisation", Value::Float(0.1))]);
        outcome.frequencies.last().expect("an operating point").1
    };
    let (halting, polling) = (fastest("shallow + ondemand"), fastest("poll + ondemand"));
    assert!(halting < 0.3, "halting: {halting} of the work in the fastest operating point");
    assert!(polling < 0.3, "polling: {polling} of the work in the fastest operating point");
}

/// Eight cores with two threads each, at little load: with all CPUs asleep in C6 requests share cores, with one
/// thread of each they do not. No plan keeps the goal; the one that comes nearest leaves siblings out.
#[test]
fn whole_cores_are_taken_before_siblings() {
    let set = [
        ("machine.cores", Value::Integer(8)),
        ("machine.threads", Value::Integer(2)),
        ("server.dispatch", Value::String("shared".to_owned())),
        ("goal", Value::String("20ms@p99".to_owned())),
        ("workload.service", table("exponential = \"5ms\"")),
        ("run.utilisation", Value::Float(0.15)),
        ("run.requests", Value::Integer(100_000)),
    ];
    let [all, ours] = ["deep", "joint-plan"].map(|policies| run(&set, policies, 1));
    let p99_ns = |outcome: &Outcome| outcome.responses.p99_ns.expect("a tail").value;
    assert!(ours.active <= 8.5 && p99_ns(&ours) < p99_ns(&all), "{} CPUs, {ours:?}", ours.active);
}
