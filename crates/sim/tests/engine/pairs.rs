//! Contestants with one seed, compared pair by pair.

use super::{document, run, run_many, task};
use sim::Outcome;
use sim::exact::ResponseTime;
use sim::statistics::{Interval, Portion, Quantile, Quantity};
use toml::Value;

const P99: Quantity = Quantity::Quantile(Quantile::P99);

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// Runs of M/M/1 at 50,000 requests per second with services of so many microseconds.
fn runs(service_us: f64, seeds: std::ops::RangeInclusive<u64>) -> Vec<Outcome> {
    let service = format!("exponential = \"{service_us}us\"").parse().expect("a table");
    let document = document(&[
        ("machine.cores", Value::Integer(1)),
        ("workload.service", Value::Table(service)),
        ("run.utilisation", Value::Float(0.05 * service_us)),
    ]);
    run_many(&seeds.map(|seed| task(document.clone(), "poll", seed)).collect::<Vec<_>>(), 2)
}

#[test]
fn two_servers_with_scaled_services_differ_as_their_formulas_do() {
    let exact = |service_us: f64| ResponseTime::mm1(0.05, 1.0 / service_us);
    let (fast, slow) = (exact(9.0), exact(10.0));
    let truths = [(fast.mean() - slow.mean()) * 1e3, (fast.quantile(0.99) - slow.quantile(0.99)) * 1e3];
    let seeds = 40;
    let (mut covered, mut narrower) = ([0; 2], [0.0; 2]);
    for (ours, theirs) in runs(9.0, 1..=seeds).iter().zip(runs(10.0, 1..=seeds)) {
        for (at, quantity) in [Quantity::Mean, P99].into_iter().enumerate() {
            let Some(found) = ours.response_difference(&theirs, quantity) else { continue };
            assert_eq!(found.portion, Portion::Batch);
            covered[at] += usize::from(found.absolute.covers(truths[at]));
            let alone = [ours, &theirs].map(|run| run.responses.at(quantity).unwrap().half_width.unwrap());
            let unpaired = (alone[0].powi(2) + alone[1].powi(2)).sqrt();
            assert!(found.absolute.half_width < unpaired, "{quantity}: {found:?}, not +-{unpaired}");
            narrower[at] += found.absolute.half_width / unpaired / seeds as f64;
        }
    }
    // Of 40 that are right with 95 %, 34 or more are right in 99.7 of 100 such tests.
    assert!(covered.iter().all(|&count| count >= 34), "{covered:?} of {seeds}");
    assert!(narrower.iter().all(|&share| share < 0.6), "{narrower:?}");
}

#[test]
fn work_that_is_the_same_has_a_known_power_difference() {
    // Polling cores draw the same power whatever they do, so another rest is all the difference.
    let set = [("run.requests", Value::Integer(60_000))];
    let more = [set[0].clone(), ("machine.uncore_watts", Value::Float(40.0))];
    let (ours, theirs) = (run(&more, "poll", 1), run(&set, "poll", 1));
    let found = ours.power_difference(&theirs, "cpu_watts").unwrap();
    let truth = 40.0 - theirs.power.uncore_watts;
    assert!((found.absolute.estimate - truth).abs() < 1e-6, "{found:?} for {truth}");
    assert!(found.absolute.half_width < 1e-6 && found.portion == Portion::Stretch, "{found:?}");
    let server = ours.power_difference(&theirs, "server_watts").unwrap();
    assert!(server.relative.unwrap().estimate < found.relative.unwrap().estimate);
    let cores = ours.power_difference(&theirs, "core_watts").unwrap();
    assert_eq!(cores.absolute, Interval { estimate: 0.0, half_width: 0.0 });
}

#[test]
fn a_policy_against_itself_differs_by_exactly_nothing() {
    let nothing = Interval { estimate: 0.0, half_width: 0.0 };
    let story = [("run.horizon", text("whole")), ("run.utilisation", Value::Float(0.5))];
    let steady = [("run.requests", Value::Integer(60_000))];
    for (set, portion) in [(&steady[..], Portion::Stretch), (&story, Portion::Replication)] {
        let (ours, theirs) = (run(set, "menu", 7), run(set, "menu", 7));
        let power = ours.power_difference(&theirs, "cpu_watts").unwrap();
        assert_eq!((power.absolute, power.relative, power.portion), (nothing, Some(nothing), portion));
        for quantity in [Quantity::Mean, Quantity::Quantile(Quantile::P50), P99] {
            let found = ours.response_difference(&theirs, quantity).unwrap();
            assert_eq!((found.absolute, found.relative), (nothing, Some(nothing)), "{quantity}");
        }
    }
}

#[test]
fn other_seeds_and_other_kinds_of_runs_have_no_pairs() {
    let set = [("run.requests", Value::Integer(60_000))];
    let story = [("run.horizon", text("whole")), ("run.requests", Value::Integer(60_000))];
    let (one, other, whole) = (run(&set, "menu", 1), run(&set, "menu", 2), run(&story, "menu", 1));
    assert_eq!(one.response_difference(&other, Quantity::Mean), None);
    assert_eq!(one.power_difference(&other, "cpu_watts"), None);
    assert_eq!(one.response_difference(&whole, Quantity::Mean), None);
    assert_eq!(one.power_difference(&whole, "cpu_watts"), None);
}
