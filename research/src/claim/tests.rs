//! The judge's own tests: bars, arithmetic, verdicts.

use super::*;
use crate::judged::{Judged, Tally, Verdict};
use sim::Document;
use sim::scenario::Estimates;
use std::path::Path;

fn estimate(value: f64, half_width: f64) -> Estimate {
    Estimate { value, half_width: Some(half_width) }
}

fn claim(text: &str) -> Claim {
    let head = "id = \"x\"\npaper = \"p\"\nfigure = \"1\"\nsays = \"\"\nconditions = \"\"\n";
    toml::from_str(&format!("{head}{text}")).unwrap()
}

#[test]
fn the_bar_is_thirty_percent_with_the_right_sign() {
    let saving = claim(
        "metric = \"cpu_watts\"\nform = \"change\"\nsubject = {}\nagainst = { policy = \"menu\" }\n\
         value = -0.20",
    );
    for (ours, is_met) in
        [(-0.20, true), (-0.26, true), (-0.14, true), (-0.27, false), (-0.13, false), (0.20, false)]
    {
        assert_eq!(saving.holds(ours), is_met, "{ours}");
    }
    assert!((saving.deviation(-0.25).unwrap() + 0.25).abs() < 1e-12, "a quarter more is saved than printed");
    let best = claim(
        "metric = \"p95\"\nform = \"argmin\"\nsubject = {}\nover = \"server.workers\"\nvalue = 2\n\
         tolerance = 0.0",
    );
    assert!(best.holds(2.0) && !best.holds(3.0));
    let range = claim("metric = \"p99\"\nform = \"value\"\nsubject = {}\nwithin = [300, 1e9]");
    assert!(range.holds(300.0) && !range.holds(299.0));
}

#[test]
fn intervals_are_carried_along_by_hand() {
    let quotient = ratio(estimate(8.0, 0.3), estimate(2.0, 0.1));
    assert!((quotient.value - 4.0).abs() < 1e-12);
    // Relative 0.0375 and 0.05: together 0.0625.
    assert!((quotient.half_width.unwrap() - 0.25).abs() < 1e-12);
    let shares = points(estimate(11.0, 0.3), estimate(10.0, 0.4), estimate(20.0, 0.0));
    assert!((shares.value - 0.05).abs() < 1e-12 && (shares.half_width.unwrap() - 0.025).abs() < 1e-12);
    assert_eq!(ratio(Estimate { value: 1.0, half_width: None }, estimate(1.0, 0.1)).half_width, None);
}

#[test]
fn claims_that_cannot_be_computed_are_refused() {
    for text in [
        "metric = \"p99\"\nform = \"value\"\nsubject = {}",
        "metric = \"p99\"\nform = \"change\"\nsubject = {}\nvalue = 0.1",
        "metric = \"p99\"\nform = \"value\"\nsubject = {}\nover = \"median\"\nvalue = 1",
        "metric = \"p99\"\nform = \"argmin\"\nsubject = {}\nvalue = 1",
        "metric = \"p98\"\nform = \"value\"\nsubject = {}\nvalue = 1",
        "metric = \"p99\"\nform = \"value\"\nsubject = {}\nvalue = 1\ntested = \"roost-papers\"",
        "metric = \"p99\"\nform = \"value\"\nsubject = {}\nvalue = 1\nmissing = \"a scheduler\"",
        "metric = \"p99\"\nform = \"excess\"\nsubject = {}\nvalue = 1",
    ] {
        assert!(claim(text).check().is_err(), "{text}");
    }
}

/// A store under two policies at two goals, and the verdict of a claim on made-up powers.
fn judged(text: &str, watts: &[f64]) -> (Verdict, Option<f64>, Vec<String>) {
    let scenario = "policies = [\"menu\", \"shallow\"]\n[machine]\npreset = \"xeon-silver-4116\"\n\
                    [workload]\nrate = \"100k\"\nservice = { exponential = \"10us\" }\n\
                    [sweep]\ngoal = [\"300us@p99\", \"600us@p99\"]\n[run]\nrequests = 2000\n\
                    replications = 1";
    let document = Document::parse(Path::new("x.toml"), scenario, &Estimates::default()).unwrap();
    let board = Board::new(&document).unwrap();
    assert_eq!(board.places.len(), 4);
    let task = board.places[0].planned.run.task.clone();
    let outcome = sim::runner::run_all(&[task], 1, &Default::default(), |_, _| {}).remove(0).unwrap();
    let outcomes: Vec<sim::Outcome> = (watts.iter())
        .map(|&watts| {
            let mut outcome = outcome.clone();
            outcome.power.cpu_watts = watts;
            outcome
        })
        .collect();
    let outcomes: Vec<Option<&sim::Outcome>> = outcomes.iter().map(Some).collect();
    let claim = claim(&format!("metric = \"cpu_watts\"\n{text}"));
    claim.check().unwrap();
    let judged = Judged::new(&claim, true, &board, &outcomes);
    (judged.verdict(), judged.found.as_ref().ok().map(|found| found.value), judged.remarks())
}

/// Menu against shallow, at both goals.
const SAVING: &str = "form = \"change\"\nsubject = { policy = \"menu\" }\n\
                      against = { policy = \"shallow\" }\nover = \"mean\"\nvalue = -0.40\n";

/// Menu and shallow, at 300 and at 600 us: half as much, three quarters as much.
const WATTS: [f64; 4] = [10.0, 20.0, 15.0, 20.0];

#[test]
fn one_number_in_several_panels_is_one_claim_their_mean() {
    let (verdict, value, _) = judged(SAVING, &WATTS);
    // -50 % and -25 %: -37.5 %.
    assert_eq!(verdict, Verdict::Met);
    assert!((value.unwrap() + 0.375).abs() < 1e-12);
    let (verdict, ..) = judged(SAVING, &[10.0, 20.0, 20.0, 20.0]);
    assert_eq!(verdict, Verdict::Missed, "-25 % is below the bar of -28 %");
}

#[test]
fn the_larger_by_the_smaller_less_one_and_the_saving_beside_it() {
    let text = "form = \"excess\"\nsubject = { policy = \"menu\", goal = \"300us@p99\" }\n\
                against = { policy = \"shallow\" }\nvalue = 0.28\n";
    let (verdict, value, remarks) = judged(text, &[66.70, 85.35, 1.0, 1.0]);
    assert_eq!(verdict, Verdict::Met);
    assert!((value.unwrap() - 0.2796).abs() < 1e-4);
    assert!(remarks.iter().any(|remark| remark.contains("21.9 %")), "{remarks:?}");
}

#[test]
fn a_refuted_claim_counts_neither_way_and_a_missing_part_counts_as_missed() {
    let refuted = format!("{SAVING}refuted = \"35.25 kJ in 1,267 s\"");
    for watts in [WATTS, [20.0; 4]] {
        let (verdict, _, remarks) = judged(&refuted, &watts);
        assert_eq!(verdict, Verdict::Refuted);
        assert!(remarks.iter().any(|remark| remark.contains("35.25 kJ")), "{remarks:?}");
    }
    let claims = ["refuted = \"raw numbers\"", "check = \"its own input\""].map(|field| {
        claim(&format!("metric = \"p99\"\nform = \"value\"\nsubject = {{}}\nvalue = 1\n{field}"))
    });
    let missing = claim("form = \"change\"\nvalue = 2.3\nmissing = \"a scheduler\"");
    missing.check().unwrap();
    let judged: Vec<Judged<'_>> = claims.iter().chain([&missing]).map(Judged::untried).collect();
    assert_eq!(judged[2].verdict(), Verdict::NotReproducible);
    assert!(judged[2].remarks()[0].contains("a scheduler"));
    let tally = Tally::of(judged.iter());
    assert_eq!(tally, Tally { met: 0, missed: 1, refuted: 1, checks: 1 });
    assert_eq!(tally.counted(), 1);
}

#[test]
fn a_miss_says_whether_its_cause_was_tested() {
    let missed = [20.0; 4];
    let cause = |fields: &str| judged(&format!("{SAVING}{fields}"), &missed).2.pop().unwrap();
    assert_eq!(cause(""), "cause not yet tested");
    assert_eq!(cause("why_not = \"the uncore\""), "not yet tested; supposed: the uncore");
    let tested = cause("why_not = \"the uncore\"\ntested = \"roost-papers x --sensitivity\"");
    assert_eq!(tested, "cause: the uncore; tested by: roost-papers x --sensitivity");
}
