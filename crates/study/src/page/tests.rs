//! Pages of runs made by hand: texts that a page must have, and texts that it must never have.

use super::{Facts, Swept};
use machine::EnergySource;
use sim::Outcome;
use sim::outcome::{ClassCount, Estimate, Lengths, Point, Power, Responses, StateShare, Verdict};

fn outcome(contestant: &str, watts: f64, p99_ns: f64) -> Outcome {
    let estimate = |value: f64| Some(Estimate { value, half_width: Some(value * 0.01) });
    let point = |n: u32| Point {
        until_s: f64::from(n + 1),
        rate: 1e3 * f64::from(n + 1),
        mean_ns: Some(p99_ns / 4.0),
        p95_ns: Some(p99_ns / 2.0),
        p99_ns: (n != 3).then_some(p99_ns),
        cpu_watts: watts,
        core_watts: watts / 2.0,
        active: 4.0,
        awake: 2.0,
        mhz: Some(2_100.0),
        asleep: vec![0.2, 0.3],
        spread: None,
    };
    let state = |name: &str, share: f64| StateShare {
        name: name.to_owned(),
        share,
        sleeps_per_s: 100.0,
        premature: 0.1,
        missed_deep: 0.1,
    };
    let lengths = Lengths { from_ns: vec![512, 1_024], per_s: vec![10.0, 5.0], time_share: vec![0.2, 0.3] };
    Outcome {
        contestant: contestant.to_owned(),
        policies: contestant.to_owned(),
        seed: 1,
        verdict: Verdict::Complete,
        replications: 1,
        requests: 1_000,
        length_s: 10.0,
        rate: 100.0,
        most_in_system: 7,
        responses: Responses {
            mean_ns: estimate(p99_ns / 4.0),
            p50_ns: estimate(p99_ns / 5.0),
            p95_ns: estimate(p99_ns / 2.0),
            p99_ns: estimate(p99_ns),
            p999_ns: None,
            others: Vec::new(),
        },
        power: Power {
            source: EnergySource::Modelled("m".to_owned()),
            cores_watts: watts / 2.0,
            uncore_watts: watts / 2.0,
            rest_watts: 30.0,
            cpu_watts: watts,
            server_watts: watts + 30.0,
            cpu_half_width_watts: Some(watts * 0.01),
            joules_per_request: 0.001,
        },
        working: 0.4,
        waking: 0.1,
        polling: 0.0,
        awake: 2.0,
        active: 4.0,
        package_asleep: 0.0,
        transitions_per_s: 200.0,
        states: vec![state("C1", 0.2), state("C6", 0.3)],
        frequencies: vec![(2_100_000, 1.0)],
        clocks: Vec::new(),
        classes: vec![ClassCount { name: "all".to_owned(), requests: 1_000, missed: None }],
        transfers: None,
        foreseen: None,
        idle_lengths: lengths.clone(),
        active_lengths: lengths,
        points: (0..8).map(point).collect(),
        response_portions: None,
        power_portions: None,
    }
}

fn unstable(contestant: &str) -> Outcome {
    Outcome {
        verdict: Verdict::Unstable,
        responses: Responses::default(),
        ..outcome(contestant, 123.0, 777e6)
    }
}

fn run_page(facts: &Facts, outcomes: &[Outcome]) -> String {
    super::run_page(facts, outcomes).json()
}

fn sweep_page(facts: &Facts, cells: &[Swept<'_>]) -> String {
    super::sweep_page(facts, cells).json()
}

fn facts() -> Facts {
    Facts { title: "A title".to_owned(), goal: Some("300us@p99".parse().unwrap()), ..Facts::default() }
}

#[test]
fn the_summary_names_who_draws_least_of_those_that_keep_the_goal() {
    let runs = [outcome("menu", 60.0, 200e3), outcome("slow", 20.0, 900e3), outcome("thrifty", 45.0, 290e3)];
    let page = run_page(&facts(), &runs);
    let lead = "Of those that keep the goal, thrifty draws the least power: 45.0\u{a0}W\u{a0}\u{b1}1\u{a0}% \
                at a p99 of 290\u{a0}us\u{a0}\u{b1}1\u{a0}%, 25.0 % less than menu";
    assert!(page.contains(lead), "{page}");
    let free = run_page(&Facts { goal: None, ..facts() }, &runs);
    assert!(free.contains("\"summary\":\"slow draws the least power"), "{free}");
    let none = run_page(&facts(), &runs[1..2]);
    assert!(none.contains("\"summary\":\"slow draws 20.0"), "{none}");
    let all_slow = run_page(&facts(), &[runs[1].clone(), outcome("slower", 10.0, 950e3)]);
    assert!(all_slow.contains("No contestant keeps the goal. slow comes closest"), "{all_slow}");
}

#[test]
fn a_gain_within_the_intervals_is_said_to_be_one() {
    let page = run_page(&facts(), &[outcome("menu", 60.0, 200e3), outcome("teo", 59.5, 200e3)]);
    assert!(page.contains("(the interval of their difference holds zero)"), "{page}");
}

#[test]
fn a_winner_is_named_only_where_the_intervals_part() {
    let free = Facts { goal: None, ..facts() };
    let page = run_page(
        &free,
        &[outcome("shallow", 69.2, 200e3), outcome("teo", 69.22, 290e3), outcome("deep", 80.0, 400e3)],
    );
    assert!(page.contains("shallow and teo draw the least power, within noise"), "{page}");
    assert!(!page.contains("shallow draws the least power"), "{page}");
    assert!(page.contains("shallow and teo, within noise"), "a card says it too: {page}");
    let parted = run_page(&free, &[outcome("shallow", 69.2, 200e3), outcome("teo", 75.0, 290e3)]);
    assert!(parted.contains("shallow draws the least power") && !parted.contains("within noise"), "{parted}");
}

#[test]
fn a_replayed_trace_has_no_interval_of_sampling() {
    let page = run_page(&Facts { is_trace: true, ..facts() }, &[outcome("menu", 60.0, 200e3)]);
    assert!(page.contains("of the machine") && page.contains("noise only"), "{page}");
    assert!(!run_page(&facts(), &[outcome("menu", 60.0, 200e3)]).contains("noise only"));
}

#[test]
fn an_unstable_contestant_is_named_and_has_no_figure() {
    let page = run_page(&facts(), &[outcome("menu", 60.0, 200e3), unstable("overrun")]);
    assert!(page.contains("overrun: unstable."), "{page}");
    assert!(!page.contains("123 W") && !page.contains("777"), "{page}");
    let alone = run_page(&facts(), &[unstable("overrun")]);
    assert!(alone.contains("No contestant has figures") && !alone.contains("123 W"), "{alone}");
    assert!(run_page(&facts(), &[]).contains("A title"));
}

#[test]
fn power_and_tail_are_drawn_against_a_load_that_changes() {
    let changing = outcome("menu", 60.0, 200e3);
    assert!(run_page(&facts(), std::slice::from_ref(&changing)).contains("Tail against load"));
    let mut steady = changing;
    steady.points.iter_mut().for_each(|point| point.rate = 5e3);
    assert!(!run_page(&facts(), &[steady]).contains("Tail against load"));
}

#[test]
fn a_grid_is_lines_over_one_axis_and_maps_over_two() {
    let runs = [outcome("menu", 60.0, 200e3), outcome("teo", 50.0, 210e3), unstable("teo")];
    let cell = |rate: &'static str, cores: &'static str, outcome| Swept {
        axes: vec![("workload.rate", rate), ("server.workers", cores)],
        outcome,
    };
    let one = [
        cell("10k", "4", &runs[0]),
        cell("20k", "4", &runs[0]),
        cell("10k", "4", &runs[1]),
        cell("20k", "4", &runs[2]),
    ];
    let line = sweep_page(&facts(), &one);
    assert!(line.contains("Power of cores and uncore against workload.rate"), "{line}");
    assert!(
        line.contains("1 of 4 cells are unstable") && line.contains("goal: p99 of at most 300us"),
        "{line}"
    );
    let two = [cell("10k", "4", &runs[0]), cell("20k", "8", &runs[0]), cell("10k", "8", &runs[2])];
    let map = sweep_page(&facts(), &two);
    assert!(map.contains("\"heat_map\"") && map.contains("unstable"), "{map}");
    let none = sweep_page(&facts(), &[cell("10k", "4", &runs[0]), cell("10k", "4", &runs[1])]);
    assert!(none.contains("2 contestants at one place"), "{none}");
    assert!(sweep_page(&facts(), &[]).contains("A title"));
}
