//! Requests that wait for a device, one client after the other.

use crate::task;
use sim::scenario::Estimates;
use sim::{Document, Outcome};

/// One client on one CPU, whose requests compute for 20 us and wait for 540, more or less; the deep
/// state takes 100 us to leave.
fn run(policies: &str, requests: u32) -> Outcome {
    let text = format!(
        "[machine]\npreset = \"a10-6800k\"\n[server]\nworkers = 1\n[server.clients]\ncount = 1\ntimer = true\n\
         think = {{ deterministic = \"1us\" }}\n[server.device]\n\
         latency = {{ distribution = \"uniform\", from = \"515us\", to = \"565us\" }}\n\
         interrupt = \"3us\"\non = \"same\"\n[workload]\nservice = {{ deterministic = \"20us\" }}\n\
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
