//! Power beyond the tables of a machine: its bound, and the leakage of warm silicon.

use super::{document, run};
use sim::Outcome;
use toml::Value;

/// One socket of twelve cores, all of them always at work, in 60 s.
fn loaded(set: &[(&str, &str)], policies: &str) -> Outcome {
    let table = |text: &str| toml::from_str::<toml::Table>(&format!("v = {text}")).unwrap()["v"].clone();
    let mut keys: Vec<(&str, Value)> = vec![
        ("machine.preset", table("\"xeon-gold-6126\"")),
        ("machine.cores", table("12")),
        ("machine.turbo", table("true")),
        ("server.clients.count", table("24")),
        ("server.clients.think", table("{ deterministic = \"1us\" }")),
        ("workload.service", table("{ deterministic = \"20ms\" }")),
        ("run.length", table("\"60s\"")),
        ("run.utilisation", table("0.5")),
    ];
    keys.extend(set.iter().map(|(key, value)| (*key, table(value))));
    run(&keys, policies, 1)
}

#[test]
fn a_steady_load_stands_at_the_bound() {
    let free = loaded(&[], "menu");
    assert!(free.power.cpu_watts > 160.0, "{} W", free.power.cpu_watts);
    for (watts, policies) in [(125.0, "menu"), (90.0, "menu"), (75.0, "menu + ondemand")] {
        let capped = loaded(&[("machine.cap.watts", &format!("{watts:.1}"))], policies);
        let off = capped.power.cpu_watts / watts - 1.0;
        assert!(off.abs() < 0.02, "{watts} W: {} W", capped.power.cpu_watts);
        assert!(capped.rate < free.rate, "slower for it");
    }
}

#[test]
fn the_clock_at_the_bound_is_the_one_whose_power_fits() {
    // 12 cores at P = 25 W + 12 p(f): the fastest operating point whose power fits below 80 W; the
    // rate of fixed work is proportional to the clock.
    let all = loaded(&[("machine.turbo", "false")], "menu");
    let capped = loaded(&[("machine.turbo", "false"), ("machine.cap.watts", "80.0")], "menu");
    let points = machine::Platform::by_name("xeon-gold-6126").unwrap().frequencies.points;
    let fits = |point: &&machine::OperatingPoint| 25.0 + 12.0 * point.power.as_watts() <= 80.0;
    let point = points.iter().rev().find(fits).expect("an operating point fits");
    let clock = point.frequency.0 as f64;
    let found = capped.rate / all.rate * 2_600_000.0;
    assert!((clock..clock + 100_000.0).contains(&found), "{found} kHz, {clock} fits");
}

#[test]
fn a_slower_uncore_takes_less_and_makes_memory_time_longer() {
    // At half its fastest clock: 25 W (1 - 0.6 / 2) = 17.5 W, and half of the memory time twice.
    let keys = [("machine.turbo", "false"), ("workload.memory", "0.4")];
    let fast = loaded(&keys, "menu");
    let slow = loaded(&[&keys[..], &[("machine.uncore_clock", "\"1.2GHz\"")]].concat(), "menu");
    assert!((fast.power.uncore_watts - 25.0).abs() < 1e-6 && (slow.power.uncore_watts - 17.5).abs() < 1e-6);
    let longer = fast.rate / slow.rate;
    assert!((longer / (0.6 + 0.4 * 1.5) - 1.0).abs() < 0.01, "{longer}");
    // Requests that wait for no memory feel nothing, and the fastest clock is the machine as it is.
    let keys = [("machine.uncore_clock", "\"1.2GHz\"")];
    assert_eq!(loaded(&[], "menu").responses, loaded(&keys, "menu").responses);
    let keys = [("machine.uncore_clock", "\"2.4GHz\""), ("workload.memory", "0.4")];
    assert_eq!(loaded(&[keys[1]], "menu").power, loaded(&keys, "menu").power);
}

#[test]
fn a_bound_that_is_never_reached_changes_nothing() {
    let free = loaded(&[], "menu + ondemand");
    let bound = loaded(&[("machine.cap.watts", "500.0")], "menu + ondemand");
    assert_eq!((free.power, free.responses), (bound.power, bound.responses));
}

#[test]
fn warm_silicon_takes_the_closed_form() {
    let cold = loaded(&[], "menu").power;
    let warm = loaded(&[("machine.warming", "0.003")], "menu").power;
    // The package asleep takes 30 % of 20 % of 125 W.
    let asleep = 7.5;
    let beyond = cold.cpu_watts - asleep;
    let wanted = asleep + beyond / (1.0 - 0.003 * beyond);
    assert!((warm.cpu_watts - wanted).abs() < 1e-6, "{} W, not {wanted}", warm.cpu_watts);
    assert!((warm.cores_watts / cold.cores_watts - 1.0 / (1.0 - 0.003 * beyond)).abs() < 1e-9);
}

#[test]
fn a_bound_holds_for_warm_silicon_too() {
    let keys = [("machine.warming", "0.003"), ("machine.cap.watts", "110.0")];
    let capped = loaded(&keys, "menu");
    assert!((capped.power.cpu_watts / 110.0 - 1.0).abs() < 0.02, "{} W", capped.power.cpu_watts);
}

#[test]
fn each_clock_has_the_time_for_which_it_was_asked_for() {
    let fixed = loaded(&[("params.fixed.khz", "1600000")], "menu + fixed");
    let share = |khz: u64| fixed.clocks.iter().find(|clock| clock.0 == khz).map_or(0.0, |clock| clock.1);
    assert!(share(1_600_000) > 0.9999 && share(1_000_000) == 0.0, "{:?}", fixed.clocks);
    let sum: f64 = fixed.clocks.iter().map(|clock| clock.1).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
}

/// Twelve cores at 30 % load, 40 % of the work waiting for memory, for two minutes.
fn with_goal(goal: &str, policies: &str) -> Outcome {
    let keys = [
        ("machine.preset", Value::from("xeon-gold-6126")),
        ("machine.cores", Value::from(12)),
        ("machine.turbo", Value::from(false)),
        ("machine.package", Value::from(false)),
        ("workload.service", toml::toml! { exponential = "100us" }.into()),
        ("workload.memory", Value::from(0.4)),
        ("run.utilisation", Value::from(0.3)),
        ("run.length", Value::from("120s")),
        ("run.requests", Value::from(100_000_000)),
        ("goal", Value::from(goal)),
    ];
    run(&keys, policies, 1)
}

#[test]
fn an_uncore_by_the_goal_slows_down_while_there_is_room_and_else_not_at_all() {
    let p99_ns = |outcome: &Outcome| outcome.responses.p99_ns.unwrap().value;
    let stock = with_goal("5ms@p99", "menu");
    assert!((stock.power.uncore_watts - 25.0).abs() < 1e-6, "{}", stock.power.uncore_watts);
    // Twelve steps of two seconds, then 17.5 W; and 0.6 + 0.4 x 1.5 of the time.
    let roomy = with_goal("5ms@p99", "menu + uncore");
    assert!((17.5..19.0).contains(&roomy.power.uncore_watts), "{}", roomy.power.uncore_watts);
    let longer = p99_ns(&roomy) / p99_ns(&stock);
    assert!((1.1..1.25).contains(&longer), "{longer}");
    // Nine tenths of the goal is not within comfort.
    let tight = with_goal(&format!("{:.0}us@p99", p99_ns(&stock) / 0.9e3), "menu + uncore");
    assert_eq!((tight.power.uncore_watts, p99_ns(&tight)), (stock.power.uncore_watts, p99_ns(&stock)));
    // Between them it stops at a clock in between, and keeps the goal.
    let goal_us = p99_ns(&stock) / 1e3 * 1.25;
    let some = with_goal(&format!("{goal_us:.0}us@p99"), "menu + uncore");
    assert!((18.0..24.9).contains(&some.power.uncore_watts), "{}", some.power.uncore_watts);
    assert!(p99_ns(&some) < goal_us * 1e3);
}

#[test]
fn what_cannot_be_is_refused_with_its_key() {
    for (key, value, part) in [
        ("machine.cap.watts", "20.0", "beside its cores"),
        ("machine.cap.watts", "-1.0", "give zero or more"),
        ("machine.cap", "{ watts = 125.0, window = \"0s\" }", "such as 1s"),
        ("machine.cap", "{ watts = 125.0, span = \"1s\" }", "span"),
        ("machine.warming", "0.1", "feed itself"),
        ("machine.warming", "-0.001", "small share"),
        ("machine.uncore_clock", "\"3GHz\"", "1200MHz to 2400MHz"),
        ("machine.uncore_clock", "\"fast\"", "such as \"1.6GHz\""),
    ] {
        let value = toml::from_str::<toml::Table>(&format!("v = {value}")).unwrap()["v"].clone();
        let document = document(&[("machine.preset", Value::from("xeon-gold-6126")), (key, value)]);
        let refused = document.setup("menu", 1).expect_err(key).to_string();
        assert!(refused.contains(part), "{key}: {refused}");
    }
    for (preset, clock, part) in [
        ("xeon-gold-6126", Some("2GHz"), "leave machine.uncore_clock out"),
        ("epyc-7763", None, "this machine's has one"),
    ] {
        let mut keys = vec![("machine.preset", Value::from(preset)), ("goal", Value::from("1ms@p99"))];
        keys.extend(clock.map(|clock| ("machine.uncore_clock", Value::from(clock))));
        let refused = document(&keys).setup("menu + uncore", 1).expect_err(preset).to_string();
        assert!(refused.contains(part), "{preset}: {refused}");
    }
}

#[test]
fn no_policy_that_keeps_the_goal_is_below_the_floor() {
    let lines = [
        "poll",
        "shallow",
        "deep",
        "menu",
        "teo@7.0",
        "all-awake + menu",
        "carb-goal + menu",
        "menu + rubik",
        "joint",
        "menu + ondemand",
        "menu + powersave",
        "clairvoyant-energy",
        "clairvoyant-prewake",
        "lavd-compaction + teo",
    ];
    let mut kept = 0;
    for utilisation in [0.03, 0.3, 0.7] {
        for line in lines {
            let mut keys = vec![("run.utilisation", Value::Float(utilisation))];
            if line.starts_with("clairvoyant") {
                keys.push(("server.dispatch", Value::String("random".to_owned())));
            }
            let task = super::task(document(&keys), line, 3);
            let outcome = task.run().unwrap_or_else(|error| panic!("{line}: {error}"));
            let floor = task.floor(outcome.rate).unwrap();
            if outcome.responses.p99_ns.is_some_and(|p99| p99.value > 300e3) {
                continue;
            }
            kept += 1;
            let power = &outcome.power;
            // Of the drawn requests and of those that were simulated the mean work differs.
            for (found, least) in [
                (power.cores_watts, floor.cores_watts),
                (power.cpu_watts, floor.cpu_watts),
                (power.server_watts, floor.server_watts),
            ] {
                assert!(found > 0.99 * least, "{line} at {utilisation}: {found} W, floor {least} W");
            }
        }
    }
    assert!(kept > 20, "{kept} keep the goal");
}
