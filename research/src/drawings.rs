//! A figure as the paper shows it: curves over an axis, bars of variants, time series; the paper's
//! own numbers as empty marks where it prints any.

use super::board::Place;
use super::claim::Claim;
use super::metrics::Metric;
use super::{Figured, Reproduction};
use report::figures::{Bar, BarPart, Bars, Form, Part, Quantity, Tone, Unit};
use sim::Outcome;
use sim::outcome::Estimate;
use study::figures::Figure as Named;
use study::page::{Axis, Measured, Printed, against, lengths, over_time, residency, unit};

struct Run<'a> {
    index: usize,
    place: &'a Place,
    outcome: &'a Outcome,
}

/// A paper's values for a run.
struct Pin {
    metric: Metric,
    place: usize,
    value: f64,
}

pub fn of(figured: &Figured<'_>, reproduction: &Reproduction<'_>) -> Vec<Part> {
    let places = figured.board.places.iter().enumerate();
    let runs: Vec<Run<'_>> = places
        .filter_map(|(index, place)| {
            Some(Run { index, place, outcome: reproduction.runs.of(&place.planned)? })
        })
        .collect();
    let figure = &figured.study.figure;
    let mut drawings = Vec::new();
    if figure.y.iter().any(|name| name.starts_with("residency.")) {
        drawings.push(shares(&runs, &figure.x));
    }
    if figure.y.iter().any(|name| name.starts_with("frequency.")) {
        drawings.push(points(&runs));
    }
    for (name, of) in [("idle_histogram", "idle period"), ("active_histogram", "active period")] {
        if figure.y.iter().any(|wanted| wanted == name) {
            drawings.push(periods(&runs, name, of));
        }
    }
    let metrics: Vec<Metric> = figure.y.iter().filter_map(|name| name.parse().ok()).collect();
    let drawn_above =
        |metric: &Metric| matches!(metric, Metric::Figure(Named::Residency(_) | Named::Frequency(_)));
    let pins = pins(figured);
    for metric in metrics.iter().filter(|metric| !drawn_above(metric)) {
        match figure.x.as_str() {
            "time" => drawings.extend(time_series(&runs, metric)),
            "variant" => drawings.push(bars(&runs, metric, &pins)),
            axis => drawings.extend(curves(&runs, metric, axis, &pins)),
        }
    }
    if figured.study.name() == "carb/4" {
        drawings.splice(0..0, optimum(&runs));
    }
    drawings
}

/// The numbers that a paper prints for single runs.
fn pins(figured: &Figured<'_>) -> Vec<Pin> {
    let claims = figured.headlines.iter().chain(&figured.printed).map(|judged| judged.claim);
    let pin = |claim: &Claim| {
        let (place, value) = claim.pin(&figured.board)?;
        Some(Pin { metric: claim.metric().ok()?, place, value })
    };
    claims.filter_map(pin).collect()
}

/// Stacked shares of time, one bar a run.
fn shares(runs: &[Run<'_>], x: &str) -> Part {
    let name = |run: &Run<'_>| match run.place.axes.get(x) {
        Some(value) if run.place.variant.is_none() => match one_contestant(runs) {
            true => value.clone(),
            false => format!("{value}, {}", run.place.contestant),
        },
        _ => run.place.name(),
    };
    let rows: Vec<(String, &Outcome)> = runs.iter().map(|run| (name(run), run.outcome)).collect();
    residency(
        "Share of time in each state",
        "Mean of all CPUs; what is left to 100 % is not shown by any policy's choice.",
        &rows,
    )
}

fn one_contestant(runs: &[Run<'_>]) -> bool {
    runs.iter().all(|run| run.place.contestant == runs[0].place.contestant)
}

/// Stacked shares of working time, one bar a run.
fn points(runs: &[Run<'_>]) -> Part {
    let mut clocks: Vec<u64> =
        runs.iter().flat_map(|run| run.outcome.frequencies.iter().map(|(khz, _)| *khz)).collect();
    clocks.sort_unstable();
    clocks.dedup();
    let share = |run: &Run<'_>, clock: u64| {
        let found = run.outcome.frequencies.iter().find(|(khz, _)| *khz == clock);
        Some(Bar::new(found.map_or(0.0, |(_, share)| *share)))
    };
    let part = |(place, &clock): (usize, &u64)| BarPart {
        name: Unit::Megahertz.text(clock as f64 / 1e3),
        // Fast is dark.
        tone: Tone::Idle(place as f64 / (clocks.len().max(2) - 1) as f64),
        values: runs.iter().map(|run| share(run, clock)).collect(),
    };
    Bars {
        title: "Share of working time at each frequency".to_owned(),
        see: "The darker, the faster. Only time in which a core executes is counted.".to_owned(),
        quantity: Quantity::new("share of working time", Unit::Share),
        rows: runs.iter().map(|run| run.place.name()).collect(),
        parts: clocks.iter().enumerate().map(part).collect(),
        form: Form::Stacked,
    }
    .part()
}

fn periods(runs: &[Run<'_>], name: &str, of: &str) -> Part {
    let rows: Vec<_> = runs
        .iter()
        .map(|run| {
            let lengths = if name == "idle_histogram" {
                &run.outcome.idle_lengths
            } else {
                &run.outcome.active_lengths
            };
            (run.place.contestant.clone(), lengths)
        })
        .collect();
    lengths(&format!("Lengths of {of}s"), "", of, &rows)
}

/// One line for each contestant and value of the other axes.
fn curves(runs: &[Run<'_>], metric: &Metric, axis: &str, pins: &[Pin]) -> Option<Part> {
    let mut values: Vec<&str> = Vec::new();
    for value in runs.iter().filter_map(|run| run.place.axes.get(axis)) {
        if !values.contains(&value.as_str()) {
            values.push(value);
        }
    }
    let places = Axis::of(axis, &values);
    let x = |run: &Run<'_>| places.places.get(run.place.axes.get(axis)?.as_str()).copied();
    let names: Vec<String> = runs.iter().map(|run| run.place.name_without(axis)).collect();
    let measured: Vec<Measured<'_>> = (runs.iter().zip(&names))
        .filter_map(|(run, name)| Some(Measured { contestant: name, x: x(run)?, y: metric.of(run.outcome) }))
        .collect();
    let printed: Vec<Printed<'_>> = (pins.iter().filter(|pin| pin.metric == *metric))
        .filter_map(|pin| {
            let at = runs.iter().position(|run| run.index == pin.place)?;
            Some(Printed { contestant: &names[at], x: x(&runs[at])?, y: pin.value })
        })
        .collect();
    Some(against(&title(metric), "", places.quantity, quantity(metric), &measured, &printed, None))
}

/// CARB 4 as the paper has it: the optimum beside all cores, and how many cores it is.
fn optimum(runs: &[Run<'_>]) -> Vec<Part> {
    let (rate, cores, metric) = ("workload.rate", "server.workers", "p95".parse::<Metric>());
    let Ok(metric) = metric else { return Vec::new() };
    let mut rates: Vec<&str> = Vec::new();
    for value in runs.iter().filter_map(|run| run.place.axes.get(rate)) {
        if !rates.contains(&value.as_str()) {
            rates.push(value);
        }
    }
    let axis = Axis::of(rate, &rates);
    let (mut relative, mut counts) = (Vec::new(), Vec::new());
    for value in &rates {
        let here = || runs.iter().filter(|run| run.place.axes.get(rate).is_some_and(|rate| rate == value));
        let of = |run: &Run<'_>| metric.of(run.outcome);
        let count = |run: &Run<'_>| run.place.axes.get(cores).and_then(|text| text.parse::<u32>().ok());
        let all = here().find(|run| count(run) == Some(8)).and_then(of);
        for (name, least) in [("at least one core", 1), ("at least two, CARB's c_min", 2)] {
            let allowed = here().filter(|run| count(run) >= Some(least));
            let known = allowed.filter_map(|run| Some((of(run)?, count(run)?)));
            let Some((best, cores)) = known.min_by(|a, b| a.0.value.total_cmp(&b.0.value)) else { continue };
            let x = axis.places[value];
            let y = all.map(|all| Estimate { value: best.value / all.value, half_width: None });
            relative.push(Measured { contestant: name, x, y });
            counts.push(Measured {
                contestant: name,
                x,
                y: Some(Estimate { value: f64::from(cores), half_width: None }),
            });
        }
    }
    let rate = axis.quantity;
    vec![
        against(
            "95th percentile at the best number of cores, relative to eight",
            "",
            rate.clone(),
            Quantity::new("share of the 95th percentile with eight cores", Unit::Share),
            &relative,
            &[],
            None,
        ),
        against(
            "The best number of cores",
            "",
            rate,
            Quantity::new("cores", Unit::Count),
            &counts,
            &[],
            None,
        ),
    ]
}

/// Bars of variants, a part for each policy where variants share policies.
fn bars(runs: &[Run<'_>], metric: &Metric, pins: &[Pin]) -> Part {
    let shared = runs
        .iter()
        .any(|run| run.place.variant.as_ref().is_some_and(|variant| *variant != run.place.contestant));
    let row = |run: &Run<'_>| match &run.place.variant {
        Some(variant) if shared => variant.clone(),
        _ => run.place.name(),
    };
    let part = |run: &Run<'_>| if shared { run.place.policies.clone() } else { String::new() };
    let (mut rows, mut parts): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for run in runs {
        let (row, part) = (row(run), part(run));
        if !rows.contains(&row) {
            rows.push(row);
        }
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    let bar = |name: &str, of: &str| {
        let run = runs.iter().find(|run| row(run) == name && part(run) == of)?;
        let found = metric.of(run.outcome)?;
        let pin = pins.iter().find(|pin| pin.place == run.index && pin.metric == *metric);
        Some(Bar { value: found.value, spread: found.half_width, printed: pin.map(|pin| pin.value) })
    };
    let parts = parts.iter().enumerate().map(|(place, name)| BarPart {
        name: if name.is_empty() { metric.to_string() } else { name.clone() },
        tone: Tone::Contestant(place),
        values: rows.iter().map(|row| bar(row, name)).collect(),
    });
    let parts = parts.collect();
    Bars {
        title: title(metric),
        see: String::new(),
        quantity: quantity(metric),
        rows: rows.clone(),
        parts,
        form: Form::Grouped,
    }
    .part()
}

/// One drawing for each variant and value of the axes, one line for each policy.
fn time_series(runs: &[Run<'_>], metric: &Metric) -> Vec<Part> {
    let panel = |run: &Run<'_>| {
        let variant = run.place.variant.iter().filter(|variant| **variant != run.place.contestant).cloned();
        variant.chain(run.place.axes.values().cloned()).collect::<Vec<_>>().join(", ")
    };
    let mut panels: Vec<String> = Vec::new();
    for run in runs {
        if !panels.contains(&panel(run)) {
            panels.push(panel(run));
        }
    }
    let figure = |name: &String| {
        let here = runs.iter().filter(|run| panel(run) == *name);
        let outcomes: Vec<Outcome> = here
            .map(|run| {
                let contestant = run.place.policies.clone();
                Outcome { contestant, ..run.outcome.clone() }
            })
            .collect();
        let title = if name.is_empty() { title(metric) } else { format!("{}: {name}", title(metric)) };
        over_time(&title, "", quantity(metric), &outcomes, |point| {
            metric.of_point(point).map(|found| found.value)
        })
    };
    panels.iter().map(figure).collect()
}

/// The title of a metric above a drawing.
pub fn title(metric: &Metric) -> String {
    let name = metric.to_string();
    match name.as_str() {
        "throughput" => "Requests per second",
        "mean" => "Mean response time",
        "p50" => "Median response time",
        "p95" => "95th percentile",
        "p99" => "99th percentile",
        "p999" => "99.9th percentile",
        "mean_p95" => "Mean of the epochs' 95th percentiles",
        "core_watts" => "Power of the cores",
        "cpu_watts" => "Power of the processors",
        "server_watts" => "Power of the server",
        "joules_per_request" => "Energy per request",
        "awake_cores" => "Cores that are awake",
        "active_cores" => "Cores that take requests",
        "working" => "Share of time executing",
        "missed" => "Requests after their deadline",
        "premature" => "Sleeps shorter than worth it",
        "missed_deep" => "Sleeps long enough for a deeper state",
        "package_asleep" => "Share of time with a whole package asleep",
        _ => &name,
    }
    .to_owned()
}

fn quantity(metric: &Metric) -> Quantity {
    Quantity::new(&title(metric), unit(metric.unit()))
}
