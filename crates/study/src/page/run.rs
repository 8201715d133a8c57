//! The page of contestants side by side.

use super::super::figures::Figure as Named;
use super::super::paired::difference;
use super::parts::{has_figures, lengths, over_time, residency, residency_over_time, stretches, unit};
use super::{Facts, Tail, head, pairs, tail};
use report::figures::{Card, Lines, Page, Part, Point, Quantity, Row, Section, Style, Table, Unit};
use sim::Outcome;
use sim::outcome::{Estimate, Verdict};

/// The page of `roost sim run`.
pub fn run_page(facts: &Facts, outcomes: &[Outcome]) -> Page {
    let tail = tail(facts.goal.as_ref());
    let mut page = head(facts);
    page.summary = summary(&tail, outcomes);
    page.alarms.extend(alarms(outcomes));
    page.cards = cards(&tail, outcomes);
    page.sections = vec![trade(&tail, outcomes)];
    page.sections.extend(pairs::section(&tail, outcomes, &facts.differences));
    page.sections.extend([time(outcomes), course(&tail, outcomes)]);
    page
}

const POWER: Named = Named::Plain("cpu_watts");

fn watts(outcome: &Outcome) -> Option<Estimate> {
    POWER.of(outcome)
}

fn text(unit: Unit, estimate: &Estimate) -> String {
    unit.text_with(estimate.value, estimate.half_width)
}

/// The same within a sentence: not torn apart at the end of a line.
fn told(unit: Unit, estimate: Option<Estimate>) -> String {
    estimate.map_or_else(|| "-".to_owned(), |found| text(unit, &found).replace(' ', "\u{a0}"))
}

/// Who draws least power, of those that keep the goal if there is one.
fn thriftiest<'a>(tail: &'a Tail, outcomes: &'a [Outcome]) -> Option<&'a Outcome> {
    least(keeping(tail, outcomes), watts)
}

fn least<'a>(
    outcomes: impl Iterator<Item = &'a Outcome>,
    of: impl Fn(&Outcome) -> Option<Estimate>,
) -> Option<&'a Outcome> {
    let known = outcomes.filter_map(|outcome| Some((of(outcome)?.value, outcome)));
    known.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, outcome)| outcome)
}

/// The best and those that may be as good: the interval of their difference, pair by pair, holds
/// zero; without pairs, their intervals meet.
fn leaders<'a>(
    best: &'a Outcome,
    others: impl Iterator<Item = &'a Outcome>,
    figure: &Named,
) -> Vec<&'a Outcome> {
    let end = |outcome: &Outcome, sign: f64| {
        let found = figure.of(outcome)?;
        Some(found.value + sign * found.half_width.unwrap_or(0.0))
    };
    let is_equal = |outcome: &&Outcome| match difference(figure, outcome, best) {
        _ if outcome.contestant == best.contestant => false,
        Some(difference) => !difference.is_above(),
        None => end(outcome, -1.0).zip(end(best, 1.0)).is_some_and(|(low, high)| low <= high),
    };
    std::iter::once(best).chain(others.filter(is_equal)).collect()
}

fn listed(outcomes: &[&Outcome]) -> String {
    let names: Vec<&str> = outcomes.iter().map(|outcome| outcome.contestant.as_str()).collect();
    match &names[..] {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Those that keep the goal, or all.
fn keeping<'a>(tail: &'a Tail, outcomes: &'a [Outcome]) -> impl Iterator<Item = &'a Outcome> {
    outcomes.iter().filter(|outcome| {
        let found = tail.figure.of(outcome);
        let limit = tail.limit.as_ref().and_then(|limit| limit.y);
        limit.is_none_or(|limit| found.is_some_and(|found| found.value <= limit))
    })
}

fn summary(tail: &Tail, outcomes: &[Outcome]) -> String {
    let stable: Vec<&Outcome> = outcomes.iter().filter(|outcome| has_figures(outcome)).collect();
    let Some(first) = stable.first() else {
        return "No contestant has figures: more requests arrived than any of them could serve.".to_owned();
    };
    let all = |outcome: &Outcome| {
        let (power, time) = (watts(outcome), tail.figure.of(outcome));
        format!("{} at a {} of {}", told(Unit::Watts, power), tail.name, told(Unit::Nanoseconds, time))
    };
    if outcomes.len() == 1 {
        return format!("{} draws {}.", first.contestant, all(first));
    }
    let Some(best) = thriftiest(tail, outcomes) else {
        let fastest = least(stable.iter().copied(), |outcome| tail.figure.of(outcome));
        let fastest = fastest.map_or_else(String::new, |fastest| {
            format!(" {} comes closest with {}.", fastest.contestant, all(fastest))
        });
        return format!("No contestant keeps the goal.{fastest}");
    };
    let among = if tail.limit.is_some() { "Of those that keep the goal, " } else { "" };
    let equal = leaders(best, keeping(tail, outcomes), &POWER);
    let mut summary = match &equal[..] {
        [] | [_] => format!("{among}{} draws the least power: {}", best.contestant, all(best)),
        [_, others @ ..] => {
            let others: Vec<String> =
                others.iter().map(|other| format!("{} {}", other.contestant, all(other))).collect();
            format!(
                "{among}{} draw the least power, within noise (the interval of their difference holds \
                 zero): {} {}, {}",
                listed(&equal),
                best.contestant,
                all(best),
                others.join(", ")
            )
        }
    };
    let is_told = |outcome: &Outcome| equal.iter().any(|told| told.contestant == outcome.contestant);
    if let (Some(ours), Some(firsts)) = (watts(best), watts(first))
        && !is_told(first)
    {
        let less = (1.0 - ours.value / firsts.value) * 100.0;
        summary.push_str(&format!(", {less:.1} % less than {}, which has {}", first.contestant, all(first)));
    }
    summary.push('.');
    if let Some(fastest) = least(stable.iter().copied(), |outcome| tail.figure.of(outcome))
        && !is_told(fastest)
        && first.contestant != fastest.contestant
    {
        let equal = leaders(fastest, stable.iter().copied(), &tail.figure);
        summary.push_str(&match &equal[..] {
            [_] => format!(" {} answers fastest: {}.", fastest.contestant, all(fastest)),
            _ => format!(
                " {} answer fastest, within noise: {} {}.",
                listed(&equal),
                fastest.contestant,
                all(fastest)
            ),
        });
    }
    summary
}

fn alarms(outcomes: &[Outcome]) -> Vec<String> {
    let of = |verdict: Verdict| -> Vec<&str> {
        let such = outcomes.iter().filter(|outcome| outcome.verdict == verdict);
        such.map(|outcome| outcome.contestant.as_str()).collect()
    };
    let say = |verdict: Verdict, what: &str| {
        let names = of(verdict);
        (!names.is_empty()).then(|| format!("{}: {what}", names.join(", ")))
    };
    let alarms = [
        say(
            Verdict::Unstable,
            "unstable. More arrives than can be served, so no figure would mean anything.",
        ),
        say(
            Verdict::Unsettled,
            "response times still changed in the middle of the run. Too few requests for intervals: run.requests.",
        ),
        say(
            Verdict::Imprecise,
            "the precision asked for was not reached with so many requests: run.requests.",
        ),
    ];
    alarms.into_iter().flatten().collect()
}

fn cards(tail: &Tail, outcomes: &[Outcome]) -> Vec<Card> {
    let card = |what: &str, unit: Unit, found: Option<Estimate>, best: &[&Outcome], met: Option<bool>| Card {
        what: what.to_owned(),
        figure: found.map_or_else(|| "-".to_owned(), |found| unit.text(found.value)),
        remark: if best.len() > 1 { format!("{}, within noise", listed(best)) } else { listed(best) },
        met,
    };
    let mut cards = Vec::new();
    let (what, met) = match tail.limit {
        Some(_) => ("least power that keeps the goal", Some(true)),
        None => ("least power", None),
    };
    match thriftiest(tail, outcomes) {
        Some(best) => {
            let equal = leaders(best, keeping(tail, outcomes), &POWER);
            cards.push(card(what, Unit::Watts, watts(best), &equal, met));
        }
        None => cards.extend(
            tail.limit.as_ref().map(|limit| Card::new(what, "none", limit.name.clone()).judged(Some(false))),
        ),
    }
    if let Some(fastest) = least(outcomes.iter(), |outcome| tail.figure.of(outcome)) {
        let what = format!("lowest {}", tail.name);
        let equal = leaders(fastest, outcomes.iter(), &tail.figure);
        cards.push(card(&what, Unit::Nanoseconds, tail.figure.of(fastest), &equal, None));
    }
    let joules = |outcome: &Outcome| Named::Plain("joules_per_request").of(outcome);
    if let Some(best) = least(outcomes.iter(), joules) {
        // Energy has no interval of its own: whose power cannot be told apart has no better energy
        // that could be.
        let equal = leaders(best, outcomes.iter(), &POWER);
        cards.push(card("least energy per request, whole server", Unit::Joules, joules(best), &equal, None));
    }
    cards
}

/// Power against tail, and every figure in a table.
fn trade(tail: &Tail, outcomes: &[Outcome]) -> Section {
    let x = Quantity::new("power of cores and uncore", Unit::Watts).linear();
    let y = Quantity::new(&tail.name, Unit::Nanoseconds).log();
    let see = "Further left costs less, further down answers faster. Bars are 95 % confidence intervals.";
    let mut lines = Lines { limit: tail.limit.clone(), ..Lines::new("Power against tail", see, x, y) };
    for outcome in outcomes {
        let point = watts(outcome).map(|power| {
            let time = tail.figure.of(outcome);
            Point {
                x: power.value,
                y: time.map(|time| time.value),
                spread: time.and_then(|time| time.half_width),
                spread_x: power.half_width,
            }
        });
        lines.add(outcome.contestant.clone(), Style::Marks, point);
    }
    let figure = lines.part();
    let parts = vec![figure, Part::Table(table(outcomes)), Part::Text(TABLE_REMARK.to_owned())];
    Section::new("What each contestant costs", "", parts)
}

const TABLE_REMARK: &str = "Power is that of cores and uncore, energy that of the whole server. Awake: mean \
                            number of CPUs that were not asleep. Late, where requests have deadlines: \
                            answered after them.";

/// Heads of the table, and the figures below them.
const COLUMNS: [(&str, &str); 9] = [
    ("power", "cpu_watts"),
    ("energy per request", "joules_per_request"),
    ("mean", "mean"),
    ("p50", "p50"),
    ("p95", "p95"),
    ("p99", "p99"),
    ("p99.9", "p999"),
    ("awake", "awake_cores"),
    ("late", "missed"),
];

fn table(outcomes: &[Outcome]) -> Table {
    let known = |name: &'static str| outcomes.iter().any(|outcome| Named::Plain(name).of(outcome).is_some());
    let columns: Vec<(&str, &'static str)> = COLUMNS.into_iter().filter(|(_, name)| known(name)).collect();
    let cell = |outcome: &Outcome, name: &'static str| {
        let figure = Named::Plain(name);
        figure.of(outcome).map_or_else(|| "-".to_owned(), |found| text(unit(figure.unit()), &found))
    };
    let remark = |outcome: &Outcome| match outcome.verdict {
        Verdict::Unstable => "unstable".to_owned(),
        _ if outcome.policies == outcome.contestant => String::new(),
        _ => outcome.policies.clone(),
    };
    let rows = outcomes.iter().enumerate().map(|(place, outcome)| Row {
        name: outcome.contestant.clone(),
        remark: remark(outcome),
        cells: columns.iter().map(|(_, name)| cell(outcome, name)).collect(),
        look: Some(place),
    });
    let head = std::iter::once(String::new()).chain(columns.iter().map(|(head, _)| (*head).to_owned()));
    Table::new("", head, rows)
}

fn time(outcomes: &[Outcome]) -> Section {
    let none = sim::outcome::Lengths { from_ns: Vec::new(), per_s: Vec::new(), time_share: Vec::new() };
    let runs: Vec<(String, &Outcome)> = outcomes.iter().map(|run| (run.contestant.clone(), run)).collect();
    let named = |of: fn(&Outcome) -> &sim::outcome::Lengths| -> Vec<(String, &sim::outcome::Lengths)> {
        let of = |outcome| if has_figures(outcome) { of(outcome) } else { &none };
        outcomes.iter().map(|outcome| (outcome.contestant.clone(), of(outcome))).collect()
    };
    let idle = "The share of all CPU time that is spent in idle periods of each length. Only what lies right \
                of a state's target residency is worth that state.";
    let active = "The same for the periods between sleeps. Long ones leave few wake-ups.";
    let figures = vec![
        residency("Where the CPUs spend their time", "The fuller the green, the deeper the sleep.", &runs),
        lengths("How long CPUs are idle", idle, "idle period", &named(|run| &run.idle_lengths)),
        lengths("How long CPUs are active", active, "active period", &named(|run| &run.active_lengths)),
    ];
    Section::new("Where time goes", "", figures)
}

/// Over time, and against the load where it changes.
fn course(tail: &Tail, outcomes: &[Outcome]) -> Section {
    let of_tail = |point: &sim::outcome::Point| if tail.name == "p95" { point.p95_ns } else { point.p99_ns };
    let tail_name = if tail.name == "p95" { "p95" } else { "p99" };
    let time = || Quantity::new(tail_name, Unit::Nanoseconds).log();
    let power = || Quantity::new("power of cores and uncore", Unit::Watts);
    let awake = Quantity::new("CPUs not asleep", Unit::Count);
    let coarse = "The tail of the requests answered in each stretch of time.";
    let mut figures = vec![
        over_time(
            "Load",
            "Requests answered.",
            Quantity::new("requests answered", Unit::PerSecond),
            outcomes,
            |point| Some(point.rate),
        ),
        over_time("Power", "Cores and uncore, modelled.", power(), outcomes, |point| Some(point.cpu_watts)),
        over_time("Tail", coarse, time(), outcomes, of_tail),
        over_time("Awake CPUs", "Mean over each stretch of time.", awake, outcomes, |point| {
            Some(point.awake)
        }),
        over_time(
            "Frequency",
            "Mean of the CPUs that worked.",
            Quantity::new("frequency", Unit::Megahertz),
            outcomes,
            |point| point.mhz,
        ),
        residency_over_time(
            "Sleep",
            "The share of CPU time in each idle state; the fuller the green, the deeper the sleep.",
            outcomes,
        ),
    ];
    if load_changes(outcomes) {
        let see = "Means of the stretches of time with about this load.";
        figures
            .push(against_load("Power against load", see, power(), outcomes, |point| Some(point.cpu_watts)));
        figures.push(against_load("Tail against load", see, time(), outcomes, of_tail));
    }
    Section::new("Over time", "", figures)
}

/// The load of the busiest stretch is well above that of the quietest.
fn load_changes(outcomes: &[Outcome]) -> bool {
    let rates = outcomes.iter().flat_map(|outcome| stretches(outcome).map(|(_, point)| point.rate));
    let (low, high) =
        rates.fold((f64::INFINITY, 0.0f64), |(low, high), rate| (low.min(rate), high.max(rate)));
    high > 1.5 * low
}

/// So many classes of load: few enough that each has many stretches.
const CLASSES: usize = 20;

fn against_load(
    title: &str,
    see: &str,
    y: Quantity,
    outcomes: &[Outcome],
    value: impl Fn(&sim::outcome::Point) -> Option<f64>,
) -> Part {
    let rates = outcomes.iter().flat_map(|outcome| stretches(outcome).map(|(_, point)| point.rate));
    let highest = rates.fold(0.0, f64::max);
    let mut lines = Lines::new(title, see, Quantity::new("requests answered", Unit::PerSecond), y);
    for outcome in outcomes {
        // Sum of rates, sum of values, number of stretches.
        let mut classes = [(0.0, 0.0, 0u32); CLASSES];
        for (_, point) in stretches(outcome) {
            let Some(found) = value(point) else { continue };
            let class = (point.rate / highest * CLASSES as f64) as usize;
            let (rates, values, count) = &mut classes[class.min(CLASSES - 1)];
            *rates += point.rate;
            *values += found;
            *count += 1;
        }
        let filled = classes.iter().filter(|(.., count)| *count > 0);
        let points = filled.map(|&(rates, values, count)| {
            Point::new(rates / f64::from(count), Some(values / f64::from(count)))
        });
        let name = outcome.contestant.clone();
        lines.add(name, Style::Line, points);
    }
    lines.part()
}
