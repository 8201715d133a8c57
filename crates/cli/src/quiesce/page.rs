//! `report.html` of a run: how much of the time all CPUs slept together, and the units that stood still for it.
//!
//! Pure but for [`write()`]. All of it is measured; how much power that saves is not, for no meter is read here.

use crate::run_folder::{Kind, Place};
use crate::thinned::Thinned;
use anyhow::Result;
use daemon::quiesce::QuiesceStatus;
use machine::LengthHistogram;
use report::figures::{
    Bar, BarPart, Bars, Card, Form, Lines, Page, Part, Point as Mark, Quantity, Row, Section, Style, Table,
    Tone, Unit,
};
use report::run::RunInfo;
use serde::Serialize;

const METHOD: [&str; 5] = [
    "All CPUs of the domain are idle from the scheduler's switch of the last of them to its idle \
     task until the first switch away from one (sched_switch, counted in the kernel). This \
     program's own turns count as work.",
    "A group is frozen from the write to its freezer until the write that thaws it had returned.",
    "The time to freeze or thaw a group lasts until every task in it has stopped or goes on: the \
     median of nine trials at the start, or of the writes of the last fifteen cycles where those \
     take longer.",
    "A trial finds out whether freezing pays: turns of half a second and more with freezing and \
     without, each of whole cycles of wait and work.",
    "Power is measured or modelled, as the page says beside it. A model charges each CPU for \
     itself, and adds nothing for a package whose CPUs all sleep.",
];

pub const KIND: Kind = Kind { name: "quiesce", mark: "quiesce.json" };
/// Points of a figure; a longer run's are thinned.
pub const SAMPLES_MAX: usize = 2_000;

/// At one time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    at_s: f64,
    all_idle_s: f64,
    /// Of the first background unit.
    frozen_s: f64,
}

impl Sample {
    /// Of how things stand.
    pub fn of(status: &QuiesceStatus) -> Self {
        let frozen_s = status.background.first().map_or(0.0, |background| background.frozen_s);
        Self { at_s: status.at_ms / 1e3, all_idle_s: status.all_idle_s, frozen_s }
    }
}

#[derive(Debug, Serialize)]
struct Told {
    last: QuiesceStatus,
    samples: Thinned<Sample>,
    /// Of times in which all were idle: upper end in seconds, how many, their time in seconds.
    all_idle: Vec<(f64, u64, f64)>,
}

/// Writes the run's folder, and says where its page is.
pub fn write(
    place: &Place,
    started: String,
    last: QuiesceStatus,
    samples: Thinned<Sample>,
) -> Result<String> {
    let told = Told { all_idle: buckets(&last.all_idle), last, samples };
    let info = KIND.info(started, title(&told.last), &METHOD);
    KIND.write(&place.make()?, &info, &told, &page(&info, &told))
}

fn title(last: &QuiesceStatus) -> String {
    let names: Vec<&str> = last.critical.iter().map(|critical| critical.name.as_str()).collect();
    format!("{}: background work stands still while it waits", names.join(", "))
}

fn buckets(lengths: &LengthHistogram) -> Vec<(f64, u64, f64)> {
    let of = |bucket: usize| {
        let (_, to) = LengthHistogram::bounds(bucket);
        (to.as_secs_f64(), lengths.counts[bucket], lengths.times[bucket].as_secs_f64())
    };
    (0..LengthHistogram::BUCKETS).map(of).filter(|(_, count, _)| *count > 0).collect()
}

fn page(info: &RunInfo, told: &Told) -> Page {
    let mut page = Page {
        summary: summary(told),
        cards: cards(told),
        sections: vec![over_time(told), sleeps(told), payoff(told), groups(told), learned(told)],
        ..Page::of(info)
    };
    if told.last.is_dry {
        page.alarms.push(
            "A dry run: nothing was frozen. Times are those for which groups would have been.".to_owned(),
        );
    }
    page
}

fn summary(told: &Told) -> String {
    let last = &told.last;
    format!(
        "CPU {} were all idle at once for {} of {}. Waits of {} and longer were worth freezing \
         for: 20 times what freezing and thawing took.",
        last.cpus,
        Unit::Share.text(last.all_idle_share),
        Unit::Seconds.text(last.at_ms / 1e3),
        Unit::Seconds.text(last.min_wait_us / 1e6),
    )
}

fn cards(told: &Told) -> Vec<Card> {
    let last = &told.last;
    let mut cards = vec![Card::new(
        "all CPUs idle",
        Unit::Share.text(last.all_idle_share),
        format!("of the time; {} times", last.all_idle_times),
    )];
    for background in last.background.iter().take(3) {
        cards.push(Card::new(
            format!("{} frozen", background.name),
            Unit::Share.text(background.frozen_share),
            format!(
                "of the time; {} times, at most {}",
                background.freezes,
                Unit::Seconds.text(background.longest_ms / 1e3)
            ),
        ));
    }
    if let Some([p50, p99, _]) = last.thaw_us {
        cards.push(Card::new(
            "from going on to thawed",
            Unit::Seconds.text(p99 / 1e6),
            format!("p99; median {}", Unit::Seconds.text(p50 / 1e6)),
        ));
    }
    cards
}

fn over_time(told: &Told) -> Section {
    let mut lines = Lines::new(
        "All idle, and frozen, over time",
        "The share of each interval between two samples.",
        Quantity::new("time", Unit::Seconds),
        Quantity::new("share of the time", Unit::Share),
    );
    let first =
        told.last.background.first().map_or("frozen".to_owned(), |first| format!("{} frozen", first.name));
    for (name, of) in [
        ("all idle".to_owned(), (|sample: &Sample| sample.all_idle_s) as fn(&Sample) -> f64),
        (first, |sample| sample.frozen_s),
    ] {
        let shares = told.samples.kept().windows(2).filter_map(|pair| {
            let seconds = pair[1].at_s - pair[0].at_s;
            (seconds > 0.0).then(|| Mark::new(pair[1].at_s, Some((of(&pair[1]) - of(&pair[0])) / seconds)))
        });
        lines.add(name, Style::Line, shares);
    }
    Section::new("Over time", "", vec![lines.part()])
}

fn sleeps(told: &Told) -> Section {
    let mut lines = Lines::new(
        "How long all were idle at once",
        "The share of all idle time that lies in sleeps of at most this length.",
        Quantity::new("length", Unit::Seconds).log(),
        Quantity::new("share of the time", Unit::Share),
    );
    let all: f64 = told.all_idle.iter().map(|(_, _, time)| time).sum();
    let mut sum = 0.0;
    let points = told.all_idle.iter().filter(|(to, ..)| to.is_finite()).map(|&(to, _, time)| {
        sum += time;
        Mark::new(to, Some(sum / all.max(f64::MIN_POSITIVE)))
    });
    lines.add("all idle", Style::Steps, points);
    Section::new("Sleeps", "", vec![lines.part()])
}

fn payoff(told: &Told) -> Section {
    let (payoff, energy) = (&told.last.payoff, &told.last.energy);
    let ours = energy.watts_with.zip(energy.watts_without).filter(|(_, without)| *without > 0.0);
    let bar = |value: f64| Some(Bar::new(value));
    let bars = Bars {
        title: "Energy with quiescence, of that without".to_owned(),
        see: format!("Of the CPUs alone: {}.", energy.source),
        quantity: Quantity::new("energy, of that without", Unit::Share).by_source(&energy.source),
        rows: vec!["this run".to_owned()],
        parts: vec![
            BarPart::new("without", Tone::Contestant(0), vec![ours.and(bar(1.0))]),
            BarPart::new(
                "with quiescence",
                Tone::Contestant(1),
                vec![ours.and_then(|(with, without)| bar(with / without))],
            ),
        ],
        form: Form::Grouped,
    };
    let mut said = format!("Here: {}.", payoff.text());
    if ours.is_none() {
        said += " Of this run no energy is compared: it was all with quiescence, or all without, \
                 or it is not known which.";
    }
    Section::new("Does it pay", said, vec![bars.part()])
}

fn groups(told: &Told) -> Section {
    let head = [
        "unit",
        "by",
        "frozen",
        "times",
        "longest",
        "freeze + thaw",
        "left alone",
        "not standing when thawed",
    ];
    let rows = told.last.background.iter().map(|background| Row {
        name: background.unit.clone(),
        cells: vec![
            background.way.to_string(),
            Unit::Share.text(background.frozen_share),
            background.freezes.to_string(),
            Unit::Seconds.text(background.longest_ms / 1e3),
            background.cost_us.map_or("not measured".to_owned(), |us| Unit::Seconds.text(us / 1e6)),
            background.spared.clone().unwrap_or_else(|| (background.foreign + background.gone).to_string()),
            background.unconfirmed.to_string(),
        ],
        ..Row::default()
    });
    let table = Table::new("", head, rows);
    let record = told.last.record;
    let text = format!(
        "{} of {} freezes ended because a group had stood still for long enough. Groups were left \
         alone {} times because they had woken a critical thread. Events were lost {} times.",
        record.ended_by_bound, record.freezes, record.left_alone, record.losses
    );
    Section::new("What stood still", text, vec![Part::Table(table)])
}

fn learned(told: &Told) -> Section {
    let head = ["unit", "kind of wait", "place", "lasts at least", "believed"];
    let rows = told.last.sites.iter().map(|site| Row {
        name: site.unit.clone(),
        cells: vec![
            format!("{:?}", site.nature).to_lowercase(),
            format!("{:#x}", site.place),
            site.expected_ms.map_or("not known".to_owned(), |ms| Unit::Seconds.text(ms / 1e3)),
            if site.is_believed { "yes" } else { "no" }.to_owned(),
        ],
        ..Row::default()
    });
    let mut parts = vec![Table::new("Waits", head, rows).part()];
    if !told.last.graph.is_empty() {
        let rows = told.last.graph.iter().map(|edge| {
            let by = format!("{:?}", edge.by).to_lowercase();
            let cells = [edge.from.clone(), edge.to.clone(), by, edge.times.to_string()];
            Row::new(edge.request.to_string(), cells)
        });
        let title = "The ways that requests take, by the port to which they came";
        parts.push(Table::new(title, ["port", "from", "to", "by", "times"], rows).part());
    }
    Section::new("What was learned", "", parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quiesce::tests::status;

    #[test]
    fn the_title_calls_processes_by_their_programs() {
        assert_eq!(title(&status()), "search: background work stands still while it waits");
    }
}
