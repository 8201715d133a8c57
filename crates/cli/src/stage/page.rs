//! `report.html` of a run: the held requests and how long, how long answers took, and how the
//! bursts came.
//!
//! Pure. All of it is measured by the proxy itself.

use super::cells::{self, Cells};
use super::folder::{Reading, Went};
use report::figures::{
    Card, Limit, Lines, Page, Part, Point, Quantity, Row, Section, Series, Style, Table, Unit,
};
use report::run::RunInfo;

pub fn page(info: &RunInfo, readings: &[Reading], bursts: &[Went]) -> Page {
    Page {
        summary: summary(readings),
        cards: cards(readings),
        sections: vec![over_time(readings), burst_section(readings, bursts), tables(readings)],
        ..Page::of(info)
    }
}

fn summary(readings: &[Reading]) -> String {
    let Some(Reading { at_s, status }) = readings.last() else { return "Nothing was seen.".to_owned() };
    let counts = status.counts();
    let bursts: u64 = status.servers.iter().map(|server| server.bursts).sum();
    format!(
        "In {} {} requests came, {} were answered, {} of them later than their deadline. They \
         went to {} in {} bursts. {} clients left before their answer.",
        Unit::Seconds.text(*at_s),
        counts.arrived,
        counts.answered,
        counts.late,
        match status.servers.len() {
            1 => "one server".to_owned(),
            count => format!("{count} servers"),
        },
        bursts,
        counts.gone,
    )
}

fn cards(readings: &[Reading]) -> Vec<Card> {
    let Some(Reading { status, .. }) = readings.last() else { return Vec::new() };
    let counts = status.counts();
    let late = counts.late as f64 / counts.answered.max(1) as f64;
    let tolerated = 1.0 - status.goal.quantile;
    let lost = counts.failed + counts.timed_out + counts.no_memory + counts.broke_off;
    let held: u64 = status.classes.iter().map(|class| class.held.count).sum();
    let mean = status.classes.iter().map(|class| class.held.mean.as_secs_f64() * class.held.count as f64);
    vec![
        Card::new(
            "answered later than their deadline",
            format!("{:.3} %", late * 100.0),
            format!("goal {}: at most {:.3} %", status.goal, tolerated * 100.0),
        )
        .judged((counts.answered > 0).then_some(late <= tolerated)),
        Card::new(
            "held, on average",
            Unit::Seconds.text(mean.sum::<f64>() / held.max(1) as f64),
            format!("of {held} answered requests"),
        ),
        Card::new("not answered by a server", lost.to_string(), "502, 503, 504, or broken off"),
    ]
}

fn over_time(readings: &[Reading]) -> Section {
    let time = || Quantity::new("time", Unit::Seconds);
    let series = |name: &str, of: &dyn Fn(&Reading) -> Option<f64>| {
        Series::new(name, Style::Steps, readings.iter().map(|reading| Point::new(reading.at_s, of(reading))))
    };
    let mut latency = Lines::new(
        "Time from arrival to answer so far",
        "The goal's quantile of each class over the whole run until then; the dashed line is the goal.",
        time(),
        Quantity::new("latency", Unit::Seconds),
    );
    let mut held = Lines::new(
        "Requests on the stage",
        "Held, and in service, when it was looked at, once a second.",
        time(),
        Quantity::new("requests", Unit::Count),
    );
    if let Some(last) = readings.last() {
        let goal = last.status.goal;
        latency.limit = Some(Limit::level(format!("goal {goal}"), goal.latency.as_secs_f64()));
        for (number, class) in last.status.classes.iter().enumerate() {
            latency.series.push(series(&class.name, &|reading| {
                let times = reading.status.classes.get(number)?.latency;
                (times.count > 0).then(|| times.goal.as_secs_f64())
            }));
        }
        let sum = |reading: &Reading, of: fn(&::proxy::ServerStatus) -> u64| {
            Some(reading.status.servers.iter().map(of).sum::<u64>() as f64)
        };
        held.series.push(series("held", &|reading| sum(reading, |server| server.held)));
        held.series.push(series("in service", &|reading| sum(reading, |server| server.in_service)));
    }
    Section::new("Over time", "", vec![latency.part(), held.part()])
}

fn burst_section(readings: &[Reading], bursts: &[Went]) -> Section {
    let mut sizes = Lines::new(
        "Bursts",
        "Each mark is a burst: when it went, and how many requests it let go.",
        Quantity::new("time", Unit::Seconds),
        Quantity::new("requests", Unit::Count),
    );
    let names = readings.last().map_or(&[][..], |last| &last.status.servers);
    for (number, server) in names.iter().enumerate() {
        let own = bursts.iter().filter(|went| went.server == number);
        let points = own.map(|went| Point::new(went.at_s, Some(f64::from(went.burst.released))));
        sizes.add(server.name.clone(), Style::Marks, points);
    }
    Section::new(
        "How requests went",
        "Bursts go at the period's end, before it when a deadline is in danger, when the \
         stage is full, and a little early so as not to meet another server's.",
        vec![sizes.part()],
    )
}

fn tables(readings: &[Reading]) -> Section {
    let table = |title: &str, cells: Cells| {
        Table::new(
            title,
            cells.head,
            (cells.rows.into_iter().enumerate()).map(|(place, mut row)| {
                let cells = row.split_off(1);
                Row { name: row.concat(), cells, look: Some(place), ..Row::default() }
            }),
        )
    };
    let parts = readings.last().map(|Reading { status, .. }| {
        [table("Classes of requests", cells::classes(status)), table("Servers", cells::servers(status))]
    });
    Section::new("All of it in numbers", "", parts.into_iter().flatten().map(Part::Table).collect())
}
