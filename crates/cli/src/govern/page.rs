//! `report.html` of a governed run: whether the goal was kept, on how many cores, and how the
//! parked ones were used.
//!
//! Pure but for [`write()`]. An unknown figure is replaced by a sentence with the reason. No CPU is
//! called asleep that was not seen asleep.

use super::history::{History, Parked, Point, Told};
use crate::run_folder::{Kind, Place};
use anyhow::Result;
use machine::CpuId;
use report::figures::{
    Card, Limit, Lines, Page, Part, Point as Mark, Quantity, Row, Section, Series, Style, Table, Unit,
};
use report::run::RunInfo;

const METHOD: [&str; 4] = [
    "Rate and response times are what the kernel sees at the server's sockets: from a request's \
     first byte until the answer's first \
     byte, and the delay of the interrupted CPU before it. What a client adds is not in them. A \
     tail is taken over as many epochs \
     as it needs samples, and is missing where even a minute holds too few.",
    "Cores are those that the service may run on, as the kernel reads back.",
    "Parked CPUs: busy is all time that the CPU was not idle, for any process, from /proc/stat and \
     cpuidle; the idle states are those \
     that were asked for. Hardware and hypervisors may do less.",
    "Where there were too many epochs to draw, two become one: the mean of rate and cores, the larger tail.",
];

pub const KIND: Kind = Kind { name: "govern", mark: "epochs.json" };

/// Writes the run's folder, and says where its page is.
pub fn write(place: &Place, started: String, history: &History) -> Result<String> {
    let info = KIND.info(started, title(history), &METHOD);
    KIND.write(&place.make()?, &info, history, &page(&info, history))
}

fn title(history: &History) -> String {
    let names: Vec<&str> = history.services.keys().map(String::as_str).collect();
    format!("{} governed", names.join(", "))
}

pub fn page(info: &RunInfo, history: &History) -> Page {
    let mut page = Page::of(info);
    let several = history.services.len() > 1;
    for (name, told) in &history.services {
        page.summary += &summary(told);
        page.alarms.extend(alarm(told));
        page.cards.extend(cards(name, told, several));
        page.sections.push(over_time(name, told));
        page.sections.push(changes(told));
        page.sections.push(parked(told));
    }
    page
}

fn mean_cores(told: &Told) -> f64 {
    f64::from(told.last.cores.1) * told.awake.0 as f64 / told.awake.1.max(1) as f64
}

fn kept(told: &Told) -> Option<f64> {
    let (judged, kept) = told.judged;
    (judged > 0).then(|| kept as f64 / judged as f64)
}

fn summary(told: &Told) -> String {
    let status = &told.last;
    let goal = match (status.goal, kept(told)) {
        (Some(goal), Some(kept)) => {
            format!(
                "its goal of {goal} was kept in {} of the epochs that had enough requests to tell",
                Unit::Share.text(kept)
            )
        }
        (Some(goal), None) => {
            format!("whether its goal of {goal} was kept is not known: no epoch had enough requests")
        }
        (None, _) => "it had no goal".to_owned(),
    };
    format!(
        "{} ran on {:.2} of {} cores in the mean, and {goal}. It was governed by {}, {}. ",
        status.command,
        mean_cores(told),
        status.cores.1,
        status.policy,
        status.actuator.as_ref().map_or_else(
            || "in a dry run that touched nothing".to_owned(),
            |actuator| format!("kept on its cores by {actuator}")
        ),
    )
}

fn alarm(told: &Told) -> Option<String> {
    let open = told.points.iter().filter(|point| point.is_open).count();
    (open > 0).then(|| {
        let share = open as f64 / told.points.len() as f64;
        format!(
            "{}: in {} of the time it had all cores because something failed or a user paused it.",
            told.last.name,
            Unit::Share.text(share)
        )
    })
}

fn cards(name: &str, told: &Told, several: bool) -> Vec<Card> {
    let of = |what: &str| if several { format!("{name}: {what}") } else { what.to_owned() };
    let mut cards = vec![Card::new(
        of("cores awake"),
        format!("{:.2} of {}", mean_cores(told), told.last.cores.1),
        "mean over all epochs",
    )];
    if let (Some(goal), Some(kept)) = (told.last.goal, kept(told)) {
        cards.push(Card::new(
            of("goal kept"),
            Unit::Share.text(kept),
            format!("{goal}, of {} epochs that had enough requests", told.judged.0),
        ));
    }
    cards.push(Card::new(of("changes"), told.changes_so_far.to_string(), "of its cores"));
    cards
}

fn over_time(name: &str, told: &Told) -> Section {
    let time = || Quantity::new("time", Unit::Seconds);
    let series = |name: &str, style: Style, value: &dyn Fn(&Point) -> Option<f64>| {
        Series::new(name, style, told.points.iter().map(|point| Mark::new(point.at_s, value(point))))
    };
    let mut cores = Lines::new(
        "Cores awake",
        "What the service may run on. The rest is parked.",
        time(),
        Quantity::new("cores", Unit::Count),
    );
    cores.series.push(series("cores", Style::Steps, &|point| Some(point.cores)));
    cores.limit = Some(Limit::level("all", f64::from(told.last.cores.1)));
    let mut tail = Lines::new(
        "The tail",
        "Gaps are epochs without enough requests to tell.",
        time(),
        Quantity::new("response time", Unit::Nanoseconds).log(),
    );
    tail.series.push(series("tail", Style::Line, &|point| Some(point.tail_ns? as f64)));
    if told.points.iter().any(|point| point.goal.is_some()) {
        tail.limit = Some(goal_in_force(told));
    }
    let mut rate =
        Lines::new("Requests", "Answered per second.", time(), Quantity::new("requests", Unit::PerSecond));
    rate.series.push(series("requests", Style::Line, &|point| point.rate));
    let mut parts: Vec<Part> = [cores, tail, rate].map(Lines::part).to_vec();
    parts.extend(curve(told));
    Section::new(name, "", parts)
}

/// The goal as it was at each time.
fn goal_in_force(told: &Told) -> Limit {
    let mut names: Vec<String> = Vec::new();
    let mut changes: Vec<(f64, Option<f64>)> = Vec::new();
    // A point stands at the end of its time.
    let mut since = 0.0;
    for point in &told.points {
        let y = point.goal.map(|goal| goal.latency.as_nanos() as f64);
        if changes.last().is_none_or(|(_, before)| *before != y) {
            changes.push((since, y));
            names.extend(point.goal.map(|goal| goal.to_string()));
        }
        since = point.at_s;
    }
    let name = match &names[..] {
        [first, .., last] => format!("goal, from {first} to {last}"),
        _ => format!("goal {}", names.join("")),
    };
    Limit { name, y: changes.first().and_then(|(_, y)| *y), changes: changes.split_off(1.min(changes.len())) }
}

/// The parameters learned at the last load.
fn curve(told: &Told) -> Option<Part> {
    if told.last.curve.len() < 2 {
        return None;
    }
    let mut lines = Lines::new(
        "The tail by number of cores",
        "As the policy has learned it at the present load. It jumps to the fewest cores that keep the goal.",
        Quantity::new("cores", Unit::Count),
        Quantity::new("response time", Unit::Nanoseconds).log(),
    );
    let points = told.last.curve.iter();
    lines.add(
        "tail",
        Style::Line,
        points.map(|&(cores, tail)| Mark::new(f64::from(cores), Some(tail.as_nanos() as f64))),
    );
    lines.limit =
        told.last.goal.map(|goal| Limit::level(format!("goal {goal}"), goal.latency.as_nanos() as f64));
    Some(lines.part())
}

fn changes(told: &Told) -> Section {
    let title = format!("What was changed for {}", told.last.name);
    let mut text = String::new();
    if told.changes_so_far == 0 {
        text.push_str("Of its cores nothing: it kept all. ");
    }
    if told.changes.is_empty() {
        return Section::new(title, "Nothing: it kept all its cores.", Vec::new());
    }
    let cores = told.changes.iter().filter(|change| change.asked.is_none()).count() as u64;
    let left_out = told.changes_so_far - cores;
    if left_out > 0 {
        text.push_str(&format!("The last ones; {left_out} of its cores came before."));
    }
    let row = |change: &super::history::Change| {
        let why = change.asked.as_ref().unwrap_or(&change.why).clone();
        Row::new(Unit::Seconds.text(change.at_ms as f64 * 1e-3), [change.cpus.clone(), why])
    };
    let table = Table::new("", ["after", "CPUs", "why"], told.changes.iter().map(row));
    Section { title, text, parts: vec![Part::Table(table)] }
}

fn parked(told: &Told) -> Section {
    let title = format!("What the CPUs did that were parked for {}", told.last.name);
    if told.parked.is_empty() {
        return Section::new(title, "None was parked.", Vec::new());
    }
    let text = if told.states.is_empty() {
        "This kernel tells no idle states, so how deeply they slept is not known.".to_owned()
    } else {
        "The last columns are shares of the time that each was parked, by the idle state that it asked for."
            .to_owned()
    };
    let share = |sum: f64, of: u64| if of > 0 { Unit::Share.text(sum / of as f64) } else { "-".to_owned() };
    let row = |(cpu, parked): (&CpuId, &Parked)| {
        let mut cells = vec![parked.epochs.to_string(), share(parked.busy, parked.known)];
        cells.extend(
            (0..told.states.len())
                .map(|state| share(parked.residency.get(state).copied().unwrap_or_default(), parked.slept)),
        );
        Row::new(cpu.to_string(), cells)
    };
    let mut head = ["CPU", "epochs parked", "busy"].map(str::to_owned).to_vec();
    head.extend(told.states.iter().cloned());
    let table = Table::new("", head, told.parked.iter().map(row));
    Section { title, text, parts: vec![Part::Table(table)] }
}

#[cfg(test)]
mod tests {
    use super::super::history::tests::history;
    use super::*;

    fn info() -> RunInfo {
        KIND.info("2026-11-22".into(), "cache governed".into(), &METHOD)
    }

    #[test]
    fn the_page_says_whether_the_goal_was_kept_and_what_is_not_known() {
        let mut told = history(&[(8, 100), (2, 300), (2, 700), (3, 320)]);
        let json = page(&info(), &told).json();
        for words in ["75.0 %", "3.75 of 8", "goal 500us@p99", "None was parked", "it kept all its cores"] {
            assert!(json.contains(words), "{words}: {json}");
        }
        let cache = told.services.get_mut("cache").unwrap();
        cache.parked.insert(CpuId(7), Parked { epochs: 3, known: 2, busy: 0.5, ..Parked::default() });
        let json = page(&info(), &told).json();
        assert!(json.contains("how deeply they slept is not known") && json.contains("25.0 %"), "{json}");
    }

    #[test]
    fn the_goal_is_drawn_as_it_was_at_each_time_and_what_was_set_is_told() {
        let page_of = page(&info(), &super::super::history::tests::intervened());
        let Part::Lines(tail) = &page_of.sections[0].parts[1] else { panic!("the tail is a line") };
        let limit = tail.limit.as_ref().expect("the goal");
        assert_eq!((limit.y, &limit.changes[..]), (Some(500e3), &[(1.0, Some(3e6))][..]));
        let json = page_of.json();
        for words in
            ["goal, from 500us@p99 to 3.00ms@p99", "set: goal 500us@p99", "set: pause", "set: resume"]
        {
            assert!(json.contains(words), "{words}: {json}");
        }
        let steady = page(&info(), &history(&[(8, 100), (2, 300)])).json();
        assert!(steady.contains("goal 500us@p99") && !steady.contains("goal, from"), "{steady}");
    }

    #[test]
    fn a_run_without_enough_requests_is_not_called_kept() {
        let json = page(&info(), &history(&[(1, 0)])).json();
        assert!(json.contains("is not known") && !json.contains("goal kept"), "{json}");
    }
}
