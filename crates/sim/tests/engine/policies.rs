//! Every word that a line of policies may have runs on a service that fits it.

use super::{document, run, task};
use policy::registry;
use sim::policies::REGISTRIES;
use toml::Value;

#[test]
fn every_policy_runs() {
    let text = |text: &str| Value::String(text.to_owned());
    let table = |text: &str| Value::Table(text.parse().expect("a table"));
    for (_, word) in registry::all(REGISTRIES) {
        let word = word.word;
        let mut set = vec![
            ("run.requests", Value::Integer(20_000)),
            ("run.utilisation", Value::Float(0.3)),
            ("workload.connections", Value::Integer(64)),
        ];
        match word {
            "peafowl" | "peafowl-paper" | "joint-store" => set.push(("server.dispatch", text("connections"))),
            word if word.starts_with("anticipate") || word == "quiesce" => set.push((
                "server.device",
                table("latency = { distribution = \"lognormal\", mean = \"100us\", cv = 0.05 }\ninterrupt = \"1us\""),
            )),
            "staged" | "staged-paper" => set.push(("goal", text("500ms@p99.9"))),
            word if ["clairvoyant", "udpm", "dynsleep"].iter().any(|start| word.starts_with(start)) => {
                set.push(("server.dispatch", text("random")));
            }
            _ => {}
        }
        let outcome = run(&set, word, 1);
        assert_eq!(outcome.requests, 20_000, "{word}");
        assert!(outcome.power.cores_watts > 0.0, "{word}");
    }
}

#[test]
fn a_line_that_makes_no_sense_is_refused_with_its_fix() {
    for (line, part) in [
        ("menu + teo", "both menu and teo"),
        ("menuu", "no policy is called `menuu`"),
        ("peafowl", "connections"),
        ("udpm + rubik", "which frequency is decided already"),
        ("anticipate", "[server.device]"),
        ("clairvoyant", "which core each request will go to"),
    ] {
        let error = task(document(&[]), line, 1).run().unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("hint:"), "{line}: {error}");
    }
    let no_goal = document(&[]).with("goal", &Value::String("0us@p99".to_owned())).unwrap();
    assert!(task(no_goal, "rubik", 1).run().is_err());
}

#[test]
fn a_goal_is_the_clients_and_policies_work_towards_what_it_leaves_for_the_server() {
    let text = |text: &str| Value::String(text.to_owned());
    let set = |outside: &str| {
        [
            ("server.dispatch", text("random")),
            ("server.outside", text(outside)),
            ("run.utilisation", Value::Float(0.4)),
            ("run.requests", Value::Integer(600_000)),
        ]
    };
    let p99_us = |outside: &str| {
        run(&set(outside), "shallow + rubik", 1).responses.p99_ns.expect("a tail").value / 1e3
    };
    let (near, far) = (p99_us("0s"), p99_us("100us"));
    // Aimed at 300 us on the server, the far one would have 330 and more.
    assert!((200.0..310.0).contains(&near) && (200.0..310.0).contains(&far), "{near} us, {far} from afar");
}

/// One core keeps the goal by the model and is cheapest, but wakes others so often that it draws a half
/// more than three cores which sleep more deeply. Other programs' work stands in its way as well.
#[test]
fn joint_learns_that_a_plan_costs_more_than_its_model_says() {
    let text = |text: &str| Value::String(text.to_owned());
    let table = |text: &str| Value::Table(text.parse().expect("a table"));
    let noise = table("every = \"20ms\"\nlength = { exponential = \"1ms\" }\non = \"any\"");
    for noise in [vec![noise], Vec::new()] {
        let service = "distribution = \"lognormal\"\nmean = \"25us\"\ncv = 0.6";
        let set = [
            ("goal", text("90us@p95")),
            ("machine.preset", text("xeon-e5-2630-v3")),
            ("machine.cores", Value::Integer(8)),
            ("server.pick", text("random")),
            ("server.noise", Value::Array(noise)),
            ("workload.service", table(service)),
            ("run.utilisation", Value::Float(0.0375)),
            ("run.requests", Value::Integer(200_000)),
        ];
        let outcome = run(&set, "joint", 1);
        let (p95_ns, watts) = (outcome.responses.p95_ns.expect("a tail").value, outcome.power.cores_watts);
        assert!(p95_ns < 90e3 * 1.03 && watts < 9.0, "{p95_ns} ns, {watts} W");
    }
}

#[test]
fn a_policy_with_a_goal_decides_from_afar_as_it_does_at_the_client() {
    let text = |text: &str| Value::String(text.to_owned());
    let of = |line: &str, dispatch: &str, (goal, outside): (&str, &str)| {
        let mut set = vec![
            ("goal", text(goal)),
            ("server.dispatch", text(dispatch)),
            ("server.outside", text(outside)),
            ("run.utilisation", Value::Float(0.2)),
            ("run.requests", Value::Integer(400_000)),
        ];
        if dispatch == "connections" {
            set.push(("workload.connections", Value::Integer(64)));
        }
        let outcome = run(&set, line, 1);
        (outcome.active, outcome.power.cpu_watts)
    };
    for (line, dispatch) in [
        ("joint", "shared"),
        ("joint-plan", "shared"),
        ("carb-goal", "shared"),
        ("joint", "connections"),
        ("peafowl + menu", "connections"),
        ("menu + uncore", "shared"),
        ("menu + pegasus", "shared"),
        ("menu + crescendo", "random"),
    ] {
        let far = of(line, dispatch, ("1300us@p99", "1ms"));
        assert_eq!(of(line, dispatch, ("300us@p99", "0s")), far, "{line}, {dispatch}");
    }
}

/// Nothing raises the clock of one core when its own queue grows.
#[test]
fn a_plan_of_many_queues_begins_with_a_clock_that_keeps_the_goal() {
    let text = |text: &str| Value::String(text.to_owned());
    for dispatch in ["connections", "random"] {
        let set = [
            ("goal", text("130us@p99")),
            ("machine.preset", text("peafowl-simulation")),
            ("server.dispatch", text(dispatch)),
            ("workload.connections", Value::Integer(512)),
            ("workload.arrivals", text("poisson")),
            ("workload.service", Value::Table("exponential = \"10us\"".parse().expect("a table"))),
            ("run.utilisation", Value::Float(0.4)),
            ("run.requests", Value::Integer(1_000_000)),
        ];
        let outcome = run(&set, "joint-plan", 1);
        let p99_us = outcome.responses.p99_ns.expect("a tail").value / 1e3;
        assert!(p99_us < 134.0, "{p99_us} us, {dispatch}");
    }
}

/// Its ten workers have requests that are as short as a change of the clock.
#[test]
fn a_store_has_the_pace_of_its_plan_and_other_services_have_that_of_each_request() {
    let text = |text: &str| Value::String(text.to_owned());
    let of = |line: &str, dispatch: &str| {
        let mut set = vec![
            ("goal", text("300us@p99")),
            ("machine.preset", text("xeon-silver-4116")),
            ("server.dispatch", text(dispatch)),
            ("run.utilisation", Value::Float(0.1)),
            ("run.requests", Value::Integer(60_000)),
        ];
        if dispatch == "connections" {
            set.push(("workload.connections", Value::Integer(512)));
        }
        let outcome = run(&set, line, 1);
        (outcome.responses, outcome.power.cpu_watts)
    };
    assert_eq!(of("joint", "connections"), of("joint-plan", "connections"));
    assert_eq!(of("joint", "random"), of("joint + crescendo", "random"));
    assert_ne!(of("joint", "random"), of("joint-plan", "random"));
}

/// Ten workers at 4.5 and 45 % of their capacity in turn, five times a second: their counts come ten times
/// a second, so a jump is seen by the queue that it makes.
#[test]
fn a_store_plan_keeps_its_goal_while_the_load_jumps_for_less_power() {
    let text = |text: &str| Value::String(text.to_owned());
    let service = "distribution = \"lognormal\"\nmean = \"15us\"\ncv = 1.5";
    let steps = format!("steps:{}", vec!["30k,300k"; 30].join(","));
    let set = [
        ("goal", text("300us@p99")),
        ("machine.preset", text("xeon-silver-4116")),
        ("machine.sockets", Value::Integer(1)),
        ("machine.cores", Value::Integer(10)),
        ("server.dispatch", text("connections")),
        ("server.workers", Value::Integer(10)),
        ("workload.connections", Value::Integer(512)),
        ("workload.service", Value::Table(service.parse().expect("a table"))),
        ("workload.shape", text(&steps)),
        ("run.utilisation", Value::Float(0.45)),
        ("run.length", text("12s")),
        ("run.requests", Value::Integer(10_000_000)),
    ];
    let of = |line: &str| {
        let outcome = run(&set, line, 1);
        (outcome.responses.p99_ns.expect("a tail").value, outcome.power.cpu_watts)
    };
    let (ours_ns, ours) = of("joint-store + menu");
    let (all_ns, all) = of("all-awake + menu");
    assert!(ours_ns < 300e3 * 1.05 && ours < 0.95 * all, "{ours_ns} ns, {ours} W; all {all_ns} ns, {all} W");
}

#[test]
fn the_power_of_a_story_has_the_interval_of_whole_runs() {
    let text = |text: &str| Value::String(text.to_owned());
    let set = [
        ("workload.shape", text("steps:400k,300k,200k,100k")),
        ("run.length", text("200ms")),
        ("run.samples", Value::Integer(20)),
        ("run.horizon", text("whole")),
        ("run.replications", Value::Integer(12)),
    ];
    // Power that falls from step to step is no warm-up.
    let mut document = document(&set);
    let run = document.table().get("run").and_then(Value::as_table).cloned().expect("a table");
    let kept = run.into_iter().filter(|(key, _)| key != "utilisation").collect();
    document = document.with("run", &Value::Table(kept)).expect("a table");
    let outcome = task(document, "menu", 1).run().expect("a run");
    assert_eq!(outcome.replications, 12);
    let half_width = outcome.power.cpu_half_width_watts.expect("an interval");
    assert!(half_width > 0.0 && half_width < 0.02 * outcome.power.cpu_watts, "{half_width} W");
}

/// The controller of `roost govern`, on eight cores with background work that preempts: under
/// steady load it finds a number and stays there, and the parked cores cost no goal.
#[test]
fn carb_with_a_goal_settles_under_steady_load_with_noise() {
    let text = |text: &str| Value::String(text.to_owned());
    let noise: toml::Table =
        "noise = [{ every = \"5ms\", length = { exponential = \"60us\" } }]".parse().expect("a table");
    for (load, cores) in [(0.15, 2..=5), (0.5, 5..=8)] {
        let set = [
            ("goal", text("400us@p99")),
            ("machine.cores", Value::Integer(8)),
            ("server.noise", noise["noise"].clone()),
            ("params.carb-goal.epoch", text("20ms")),
            ("run.utilisation", Value::Float(load)),
            ("run.requests", Value::Integer(800_000)),
            ("run.samples", Value::Integer(100)),
        ];
        let outcome = run(&set, "carb-goal + menu", 7);
        let active: Vec<f64> = outcome.points.iter().map(|point| point.active).collect();
        let same = |ten: &[f64]| ten.iter().all(|active| (active - ten[0]).abs() < 1e-6);
        let settled = active.windows(10).position(same);
        assert!(settled.is_some_and(|at| at < 50), "load {load}: {active:?}");
        let median = {
            let mut sorted = active.clone();
            sorted.sort_by(f64::total_cmp);
            sorted[sorted.len() / 2]
        };
        assert!(cores.contains(&(median as u32)), "load {load}: {median} of 8 cores, {active:?}");
        let all = run(&set, "menu", 7);
        assert!(
            outcome.power.cores_watts <= all.power.cores_watts * 1.02,
            "load {load}: parking costs power"
        );
        let tail = outcome.responses.p99_ns.expect("a tail").value;
        assert!(tail < 500_000.0, "load {load}: {tail} ns");
    }
}
