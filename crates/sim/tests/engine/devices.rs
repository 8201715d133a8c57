//! Requests that wait for a device, one client after the other.

use crate::task;
use sim::scenario::Estimates;
use sim::{Document, Outcome};

/// One client on one CPU, whose requests compute for 20 us and wait for 540, more or less; the deep
/// state takes 100 us to leave.
fn run(policies: &str, requests: u32) -> Outcome {
    run_on("\"same\"", policies, requests)
}

/// Whose device answers to these CPUs.
fn run_on(on: &str, policies: &str, requests: u32) -> Outcome {
    let text = format!(
        "goal = \"1ms@p99\"\n[machine]\npreset = \"a10-6800k\"\n[server]\nworkers = 1\n\
         [server.clients]\ncount = 1\ntimer = true\nthink = {{ deterministic = \"1us\" }}\n\
         [server.device]\nlatency = {{ distribution = \"uniform\", from = \"515us\", to = \"565us\" }}\n\
         interrupt = \"3us\"\non = {on}\n[workload]\nservice = {{ deterministic = \"20us\" }}\n\
         [params.menu]\ntick = \"1ns\"\n[run]\nrequests = {requests}\n"
    );
    let document = Document::parse("device.toml".as_ref(), &text, &Estimates::default()).expect("a scenario");
    task(document, policies, 1).run().unwrap_or_else(|error| panic!("{policies}: {error}"))
}

fn median_us(outcome: &Outcome) -> f64 {
    outcome.responses.p50_ns.expect("a median").value / 1e3
}

#[test]
fn who_is_kept_awake_for_an_answer_does_not_go_to_sleep_just_before_it() {
    let awake = median_us(&run("poll + anticipate-kernels", 12_000));
    let stock = median_us(&run("deep", 12_000));
    let foreseen = median_us(&run("deep + anticipate-kernels", 12_000));
    assert!(stock > awake + 80.0, "nothing to win: {stock} us, {awake} awake");
    assert!(foreseen < awake + 5.0, "{foreseen} us, {awake} awake, {stock} without");
}

#[test]
fn a_closed_loop_has_a_history_and_an_interval_for_its_power() {
    let outcome = run("menu", 20_000);
    assert!((64..=512).contains(&outcome.points.len()), "{} samples", outcome.points.len());
    let half_width = outcome.power.cpu_half_width_watts.expect("an interval");
    assert!(half_width < 0.05 * outcome.power.cpu_watts, "{half_width} W");
}

#[test]
fn an_interrupt_of_a_parked_cpu_goes_to_the_one_that_serves() {
    let [same, away, steered] =
        [("\"same\"", "deep"), ("{ cpu = 2 }", "deep"), ("{ cpu = 2 }", "deep + steer")]
            .map(|(on, policies)| run_on(on, policies, 6_000));
    let medians = [&same, &away, &steered].map(median_us);
    assert!(medians[1] > medians[0] + 80.0, "another exit from the deep state: {medians:?} us");
    assert_eq!(steered.responses, same.responses);
    assert_eq!(steered.power.cores_watts, same.power.cores_watts);
}

#[test]
fn answers_to_one_client_are_spread_over_all_cpus() {
    let us = |on: &str| median_us(&run_on(on, "deep", 6_000));
    let [same, spread, active] = ["\"same\"", "\"spread\"", "\"active\""].map(us);
    assert!(spread > same + 80.0, "most wake a CPU that sleeps deeply: {spread} us, {same} on the same CPU");
    assert_eq!(active, same, "one CPU serves");
}

#[test]
fn a_late_answer_finds_the_cpu_awake() {
    let p99_us = |policies: &str| run(policies, 40_000).responses.p99_ns.expect("a tail").value / 1e3;
    let (awake, stock) = (p99_us("poll + anticipate-kernels"), p99_us("deep + anticipate-kernels-paper"));
    let overtime = p99_us("deep + anticipate-kernels");
    assert!(stock > awake + 60.0, "one in twenty comes after its window: {stock} us, {awake} awake");
    assert!(overtime < awake + 10.0, "{overtime} us, {awake} awake, {stock} without");
}

/// The pause of a microsecond between two requests is a timer that the CPU knows of.
#[test]
fn a_plan_of_a_deep_state_does_not_enter_it_for_a_timer_that_is_near() {
    let rates =
        ["menu + anticipate-kernels", "joint + anticipate-kernels"].map(|line| run(line, 40_000).rate);
    assert!(rates[1] > rates[0] * 0.98, "{rates:?} requests/s");
}

/// Each client's pause is a timer of the CPU that it was armed on, however many there are, and parked or not.
#[test]
fn no_cpu_polls_for_a_timer_that_is_over_nor_naps_through_it() {
    let text = "goal = \"1ms@p99\"\n[machine]\npreset = \"xeon-e5-2620-v3\"\n[server]\nworkers = 8\n\
                [server.clients]\ncount = 12\ntimer = true\nthink = { exponential = \"400us\" }\n\
                [workload]\nservice = { exponential = \"60us\" }\n[run]\nrequests = 60_000\n";
    let document = Document::parse("timers.toml".as_ref(), text, &Estimates::default()).expect("a scenario");
    let outcome = task(document.clone(), "joint", 1).run().expect("it runs");
    assert!(outcome.polling < 0.01, "{} of all time", outcome.polling);
    let refused = task(document, "powernap", 1).run().unwrap_err().to_string();
    assert!(refused.contains("leave server.clients.timer out"), "{refused}");
}

/// Ten cores with clocks; each request computes, waits for a device for about 600 us, and computes again.
/// The tail in targets, and the power.
fn at_a_goal(policies: &str, target_us: f64, requests: u32) -> (f64, f64) {
    let text = format!(
        "goal = \"{target_us}us@p99\"\n[machine]\npreset = \"peafowl-simulation\"\n\
         [server.device]\nlatency = {{ distribution = \"uniform\", from = \"500us\", to = \"700us\" }}\n\
         interrupt = \"3us\"\n[workload]\nrate = \"150k\"\nservice = {{ exponential = \"20us\" }}\n\
         [run]\nrequests = {requests}\n"
    );
    let document = Document::parse("device.toml".as_ref(), &text, &Estimates::default()).expect("a scenario");
    let outcome = task(document, policies, 1).run().unwrap_or_else(|error| panic!("{policies}: {error}"));
    (outcome.responses.p99_ns.expect("a tail").value / 1e3 / target_us, outcome.power.cpu_watts)
}

#[test]
fn a_plan_spends_what_a_device_leaves_of_the_goal_and_no_more() {
    for (target_us, most_watts) in [(1_000.0, 21.5), (1_500.0, 18.5)] {
        let (tail, watts) = at_a_goal("joint-plan", target_us, 3_000_000);
        assert!((0.94..=1.02).contains(&tail), "{target_us} us: {tail} targets");
        assert!(watts < most_watts, "{target_us} us: {watts} W");
    }
}

/// The phase before the call has not all of the goal, and is no answer that was in time.
#[test]
fn a_pace_by_request_leaves_the_device_its_time() {
    let (tail, watts) = at_a_goal("crescendo", 1_000.0, 3_000_000);
    assert!((0.97..=1.02).contains(&tail), "{tail} targets");
    assert!(watts < 22.0, "{watts} W");
}

/// The load jumps while requests wait for their first phase, and connections move with them.
#[test]
fn a_thread_that_spins_is_answered_where_its_connection_has_moved_to() {
    let text = "goal = \"300us@p99\"\n[machine]\npreset = \"xeon-silver-4116-no-pc6\"\nsockets = 1\n\
         cores = 6\n[server]\ndispatch = \"connections\"\nworkers = 6\n\
         [server.device]\nlatency = { exponential = \"60us\" }\ninterrupt = \"1us\"\nwait = \"spin\"\n\
         [workload]\nconnections = 100\nrate = \"10k\"\nshape = \"steps:2k,40k\"\n\
         service = { exponential = \"10us\" }\n[run]\nrequests = 40_000\n";
    let document = Document::parse("device.toml".as_ref(), text, &Estimates::default()).expect("a scenario");
    for policies in ["joint-store", "joint + powersave", "carb"] {
        let outcome = task(document.clone(), policies, 1).run().expect("a run");
        assert_eq!(outcome.requests, 40_000, "{policies}");
    }
}
