use super::super::figures;
use report::distinct;
use report::figures::{
    Areas, Bar, BarPart, Bars, Bucket, Form, Layer, Limit, Lines, Panel, Part, Point, Quantity, Style, Tone,
    Unit,
};
use sim::Outcome;
use sim::outcome::{Estimate, Lengths, Point as Stretch, Verdict};

/// A contestant's result at one place of an axis.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    pub contestant: &'a str,
    pub x: f64,
    /// `None` is a gap.
    pub y: Option<Estimate>,
}

/// A paper's value for a contestant at one place of an axis.
#[derive(Clone, Copy, Debug)]
pub struct Printed<'a> {
    pub contestant: &'a str,
    pub x: f64,
    pub y: f64,
}

/// Contestants over an axis, with their intervals; a paper's numbers as empty marks in the same
/// colours.
pub fn against(
    title: &str,
    see: &str,
    x: Quantity,
    y: Quantity,
    measured: &[Measured<'_>],
    printed: &[Printed<'_>],
    limit: Option<Limit>,
) -> Part {
    // Nothing lies between two categories.
    let style = if x.names.is_empty() { Style::Line } else { Style::Marks };
    let mut lines = Lines { limit, ..Lines::new(title, see, x, y) };
    for name in distinct(measured.iter().map(|point| point.contestant)) {
        let points = measured.iter().filter(|point| point.contestant == name).map(|point| Point {
            x: point.x,
            y: point.y.map(|y| y.value),
            spread: point.y.and_then(|y| y.half_width),
            spread_x: None,
        });
        lines.add(name, style, points);
    }
    for name in distinct(printed.iter().map(|point| point.contestant)) {
        let points = printed.iter().filter(|point| point.contestant == name);
        lines.add(name, Style::Printed, points.map(|point| Point::new(point.x, Some(point.y))));
    }
    lines.part()
}

/// Something over simulated time, one line per contestant.
pub fn over_time(
    title: &str,
    see: &str,
    y: Quantity,
    outcomes: &[Outcome],
    value: impl Fn(&Stretch) -> Option<f64>,
) -> Part {
    let mut lines = Lines::new(title, see, Quantity::new("simulated time", Unit::Seconds), y);
    for outcome in outcomes {
        let points = stretches(outcome).map(|(middle, stretch)| Point::new(middle, value(stretch)));
        lines.add(outcome.contestant.clone(), Style::Line, points);
    }
    lines.part()
}

/// The stretches of a run, each with the middle of its time. The last is left out where the run's
/// end cut it short: the rates of a moment in which requests only leave would stand out for
/// nothing.
pub fn stretches(outcome: &Outcome) -> impl Iterator<Item = (f64, &Stretch)> {
    let ends = || outcome.points.iter().map(|stretch| stretch.until_s);
    let begins = || std::iter::once(0.0).chain(ends());
    let length = ends().zip(begins()).map(|(end, begin)| end - begin).fold(0.0, f64::max);
    let stretches = outcome
        .points
        .iter()
        .zip(begins())
        .filter(move |(stretch, begin)| has_figures(outcome) && stretch.until_s - begin > length / 2.0);
    stretches.map(|(stretch, begin)| ((begin + stretch.until_s) / 2.0, stretch))
}

/// Where CPU time goes, one bar to 100 % for each run.
pub fn residency(title: &str, see: &str, runs: &[(String, &Outcome)]) -> Part {
    let states = states(runs.iter().map(|(_, outcome)| *outcome));
    let part = |name: &str, tone: Tone, share: &dyn Fn(&Outcome) -> f64| {
        BarPart::new(name, tone, runs.iter().map(|(_, run)| has_figures(run).then(|| Bar::new(share(run)))))
    };
    let mut parts = vec![
        part(WORKING, Tone::Busy, &|run| run.working),
        part(WAKING, AWAKE_TONES[0], &|run| run.waking),
        part(POLLING, AWAKE_TONES[1], &|run| run.polling),
    ];
    parts.retain(|part| part.name == WORKING || part.values.iter().flatten().any(|bar| bar.value > 0.0));
    for (place, state) in states.iter().enumerate() {
        let share = |run: &Outcome| {
            let found = run.states.iter().find(|share| share.name == *state);
            found.map_or(0.0, |share| share.share)
        };
        parts.push(part(state, depth(place, states.len()), &share));
    }
    Bars {
        title: title.to_owned(),
        see: see.to_owned(),
        quantity: Quantity::new("share of all CPU time", Unit::Share),
        rows: runs.iter().map(|(name, _)| name.clone()).collect(),
        parts,
        form: Form::Stacked,
    }
    .part()
}

/// The share of CPU time in each idle state over simulated time, one panel per contestant.
pub fn residency_over_time(title: &str, see: &str, outcomes: &[Outcome]) -> Part {
    let states = states(outcomes.iter());
    let panel = |outcome: &Outcome| {
        let share = |state: &str, stretch: &Stretch| {
            let place = outcome.states.iter().position(|share| share.name == state);
            place.and_then(|place| stretch.asleep.get(place).copied()).unwrap_or(0.0)
        };
        let awake = |stretch: &Stretch| (1.0 - stretch.asleep.iter().sum::<f64>()).max(0.0);
        let mut layers = vec![stretches(outcome).map(|(_, stretch)| Some(awake(stretch))).collect()];
        layers.extend(
            states
                .iter()
                .map(|state| stretches(outcome).map(|(_, stretch)| Some(share(state, stretch))).collect()),
        );
        Panel {
            name: outcome.contestant.clone(),
            x: stretches(outcome).map(|(middle, _)| Some(middle)).collect(),
            layers,
        }
    };
    let layer = |(place, state): (usize, &&str)| Layer {
        name: (*state).to_owned(),
        tone: depth(place, states.len()),
    };
    let awake = Layer { name: "awake".to_owned(), tone: Tone::Busy };
    Areas {
        title: title.to_owned(),
        see: see.to_owned(),
        x: Quantity::new("simulated time", Unit::Seconds),
        y: Quantity::new("share of all CPU time", Unit::Share),
        layers: std::iter::once(awake).chain(states.iter().enumerate().map(layer)).collect(),
        panels: outcomes.iter().map(panel).collect(),
    }
    .part()
}

/// Where time goes by the length of periods, each a period of `of`.
pub fn lengths(title: &str, see: &str, of: &str, runs: &[(String, &Lengths)]) -> Part {
    let buckets = |lengths: &Lengths| {
        let ends = lengths.from_ns.iter().zip(&lengths.time_share);
        ends.map(|(&from_ns, &share)| Bucket { from_ns: from_ns as f64, to_ns: 2.0 * from_ns as f64, share })
            .collect()
    };
    report::figures::Lengths {
        title: title.to_owned(),
        see: see.to_owned(),
        of: of.to_owned(),
        share_of: "all CPU time".to_owned(),
        series: runs.iter().map(|(name, lengths)| (name.clone(), buckets(lengths))).collect(),
    }
    .part()
}

/// The unit of a figure by name, for axes.
pub fn unit(unit: figures::Unit) -> Unit {
    match unit {
        figures::Unit::Nanoseconds => Unit::Nanoseconds,
        figures::Unit::Watts => Unit::Watts,
        figures::Unit::Joules => Unit::Joules,
        figures::Unit::Share => Unit::Share,
        figures::Unit::PerSecond => Unit::PerSecond,
        figures::Unit::Count => Unit::Count,
    }
}

/// An unstable queue has none.
pub fn has_figures(outcome: &Outcome) -> bool {
    outcome.verdict != Verdict::Unstable
}

/// Each once, in the order in which they come.
/// Idle states of any of the runs, shallow to deep.
fn states<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Vec<&'a str> {
    distinct(outcomes.flat_map(|outcome| outcome.states.iter().map(|state| state.name.as_str())))
}

fn depth(place: usize, count: usize) -> Tone {
    Tone::Idle(if count > 1 { place as f64 / (count - 1) as f64 } else { 1.0 })
}

const WORKING: &str = "working";
const WAKING: &str = "waking up";
const POLLING: &str = "polling";
/// Awake for nothing: in colours that stand out from work and sleep.
const AWAKE_TONES: [Tone; 2] = [Tone::Contestant(0), Tone::Contestant(1)];
