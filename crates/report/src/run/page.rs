//! A run of phases as a page: whether the bars were met, the figures, and every chart with the
//! phases in one colour each throughout.

use super::{CurvePoint, Frame, Phase, Run, RunInfo, StateShare, Summary, times};
use crate::figures::{
    Bar, BarPart, Bars, Card, Cell, Form, HeatMap, Labels, Lines, Page, Part, Point, Quantity, Row, Section,
    Series, Style, Table, Tone, Unit,
};
use crate::text::{MISSING, distinct, grouped, or_missing};
use machine::{Duration, EnergySource, Rate, WorkerId};

/// True if two lengths differ by no more than the last reading's place does.
pub(crate) fn equally_long(one: Duration, other: Duration) -> bool {
    let (short, long) = (one.min(other), one.max(other));
    (long - short).as_secs_f64() <= LENGTHS_APART * long.as_secs_f64()
}

/// Of the longer: phases end with the tick that sees their end.
const LENGTHS_APART: f64 = 0.02;

impl Run {
    pub fn page(&self) -> Page {
        let empty = Summary::default();
        let summary = self.summary.as_ref().unwrap_or(&empty);
        let mut page = Page { cards: cards(summary), folded: folded(&self.info), ..Page::of(&self.info) };
        let invalid = summary.invalid.iter().map(|why| format!("This measurement is invalid. {why}"));
        page.alarms = invalid.chain(self.remarks.iter().cloned()).collect();
        page.notes.push(
            "A dash stands where a figure was not recorded. Ratios compare with the first phase.".into(),
        );
        if !summary.phases.is_empty() {
            page.sections.push(results(summary));
        }
        if !self.frames.is_empty() {
            let tracks = tracks(&self.frames, summary);
            page.sections.push(over_time(&tracks));
        }
        if !summary.phases.is_empty() {
            page.sections.push(totals(summary));
        }
        page
    }
}

/// One card per bar, and one for the served requests.
fn cards(summary: &Summary) -> Vec<Card> {
    let mut cards: Vec<Card> = summary
        .verdicts
        .iter()
        .map(|verdict| {
            // An interval stands below its figure, in smaller letters.
            let (figure, interval) = match verdict.found.split_once(" (") {
                Some((figure, interval)) => (figure, format!("{}; ", interval.trim_end_matches(')'))),
                None => (verdict.found.as_str(), String::new()),
            };
            let mark = if verdict.met.is_none() { format!(": {}", verdict.mark()) } else { String::new() };
            Card::new(verdict.figure.clone(), figure, format!("{interval}{}{mark}", verdict.bar))
                .judged(verdict.met)
        })
        .collect();
    let served: Option<u64> = summary.phases.iter().map(|phase| phase.requests).sum();
    if let Some(served) = served.filter(|&served| served > 0) {
        let errors: Option<u64> = summary.phases.iter().map(|phase| phase.errors).sum();
        cards.push(Card::new(
            "requests answered",
            grouped(served),
            errors
                .map_or_else(|| "errors not counted".into(), |errors| format!("{} errors", grouped(errors))),
        ));
    }
    cards
}

fn results(summary: &Summary) -> Section {
    let mut parts = Vec::new();
    if !summary.compared.is_empty() {
        parts.push(compared(summary).part());
    }
    parts.extend(summary.remarks.iter().cloned().map(Part::Text));
    parts.push(phases(summary).part());
    parts.push(Part::Text(
        "Latency counts from when a request should have been sent. Awake is the time that workers were \
         active, summed over the workers. Ratios compare with the first phase, where both are equally long."
            .into(),
    ));
    Section::new("The phases beside each other", "", parts)
}

/// Each phase beside the first, with intervals.
fn compared(summary: &Summary) -> Table {
    let first = summary.phases.first().map_or("", |phase| &phase.name);
    let row = |row: &super::Compared| Row {
        name: row.figure.clone(),
        remark: row.phase.clone(),
        cells: vec![
            row.first.clone(),
            row.value.clone(),
            times(row.ratio),
            format!("{} to {}", times(row.low), times(row.high)),
            if row.is_within_noise() { "within noise".into() } else { String::new() },
        ],
        look: summary.phases.iter().position(|phase| phase.name == row.phase),
    };
    Table {
        head: vec![
            format!("against {first}"),
            first.to_owned(),
            "phase".into(),
            "ratio".into(),
            "99 % interval".into(),
            String::new(),
        ],
        rows: summary.compared.iter().map(row).collect(),
        ..Table::default()
    }
}

fn phases(summary: &Summary) -> Table {
    let first = &summary.phases[0];
    let row = |(place, phase): (usize, &Phase)| {
        let long_enough = phase.length.zip(first.length).is_none_or(|(one, other)| equally_long(one, other));
        // A ratio without an interval beside one that has it would be believed as much.
        let is_against = place > 0 && summary.compared.is_empty() && long_enough;
        let against = |text: String, value: Option<f64>, baseline: Option<f64>| match value.zip(baseline) {
            Some((value, baseline)) if is_against && baseline > 0.0 => {
                format!("{text} ({})", times(value / baseline))
            }
            _ => text,
        };
        let tail = |of: fn(&Phase) -> Option<Duration>| {
            let seconds = |phase| of(phase).map(Duration::as_secs_f64);
            against(or_missing(of(phase)), seconds(phase), seconds(first))
        };
        let awake = |phase: &Phase| phase.awake.map(Duration::as_secs_f64);
        let joules = |phase: &Phase| phase.energy.as_ref().map(|energy| energy.used.as_joules());
        let energy = phase
            .energy
            .as_ref()
            .map_or_else(|| MISSING.into(), |energy| format!("{} {}", energy.used, word(&energy.source)));
        Row {
            name: phase.name.clone(),
            remark: phase.what.clone(),
            cells: vec![
                or_missing(phase.achieved),
                tail(|phase| phase.p50),
                tail(|phase| phase.p99),
                tail(|phase| phase.p999),
                or_missing(phase.max),
                phase.errors.map_or_else(|| MISSING.into(), grouped),
                against(
                    awake(phase).map_or_else(|| MISSING.into(), |awake| format!("{awake:.1} s")),
                    awake(phase),
                    awake(first),
                ),
                against(energy, joules(phase), joules(first)),
                phase.transfers.map_or_else(|| MISSING.into(), grouped),
            ],
            look: Some(place),
        }
    };
    let head = ["phase", "requests/s", "p50", "p99", "p99.9", "max", "errors", "awake", "energy", "moved"];
    Table {
        head: head.map(str::to_owned).to_vec(),
        rows: summary.phases.iter().enumerate().map(row).collect(),
        ..Table::default()
    }
}

fn word(source: &EnergySource) -> &'static str {
    match source {
        EnergySource::Measured(_) => "measured",
        EnergySource::Modelled(_) => "modelled",
    }
}

struct Track<'a> {
    name: &'a str,
    frames: Vec<&'a Frame>,
}

/// Sorts a run by phase: those with a summary in its order, then those that only have frames, as
/// they began.
fn tracks<'a>(frames: &'a [Frame], summary: &'a Summary) -> Vec<Track<'a>> {
    let named = summary.phases.iter().map(|phase| phase.name.as_str());
    let names = distinct(named.chain(frames.iter().map(|frame| frame.phase.as_str())));
    let of = |name| Track { name, frames: frames.iter().filter(|frame| frame.phase == *name).collect() };
    names.into_iter().map(of).collect()
}

fn over_time(tracks: &[Track<'_>]) -> Section {
    let time = || Quantity::new("seconds since the phase began", Unit::Seconds);
    let chart = |title: &str, see: &str, y: Quantity, style: Style, of: &dyn Fn(&Frame) -> Option<f64>| {
        let mut lines = Lines::new(title, see, time(), y);
        for track in tracks {
            let points = track.frames.iter().map(|frame| Point::new(frame.at.as_secs_f64(), of(frame)));
            lines.add(track.name, style, points);
        }
        lines
    };
    let awake = chart(
        "Workers awake",
        "The room below the highest line is the saving.",
        Quantity::new("workers awake", Unit::Count),
        Style::Steps,
        &|frame| frame.workers_awake().map(|awake| awake as f64),
    );
    let latency = chart(
        "99th percentile latency over time",
        "p99 of each interval, counted from when the request should have been sent. Lines on top of each \
         other mean that sleeping cores cost the tail nothing.",
        Quantity::new("p99", Unit::Nanoseconds).log(),
        Style::Line,
        &|frame| frame.p99.map(|p99| p99.as_nanos() as f64),
    );
    let rate = |rate: Option<Rate>| rate.map(Rate::as_per_second);
    let mut load = chart(
        "Load",
        "The rate answered, and the schedule's rate, which is the same in all phases. Where the answered \
         rate leaves it, the store fell behind.",
        Quantity::new("requests", Unit::PerSecond),
        Style::Line,
        &|frame| rate(frame.achieved),
    );
    if let Some(track) = tracks.iter().find(|track| track.frames.iter().any(|frame| frame.offered.is_some()))
    {
        let points = track.frames.iter().map(|frame| Point::new(frame.at.as_secs_f64(), rate(frame.offered)));
        load.add("offered", Style::Steps, points);
    }
    let moved = Lines {
        series: tracks.iter().map(moved).collect(),
        ..Lines::new(
            "Connections moved between workers",
            "Peaks stand where the load changes: the scheduler packs connections when it falls and sends \
             them home when it rises. A level line above zero would be thrashing.",
            time(),
            Quantity::new("transfers", Unit::PerSecond),
        )
    };
    let mut parts: Vec<Part> = vec![awake.part()];
    parts.extend(shades(tracks).map(HeatMap::part));
    parts.extend([latency, load, moved].map(Lines::part));
    Section::new("Over time", "", parts)
}

/// Transfers per second since the frame before.
fn moved(track: &Track<'_>) -> Series {
    let mut before: Option<(Duration, u64)> = None;
    let point = |frame: &&Frame| {
        let rate = frame.transfers.and_then(|count| {
            let (at, earlier) = before.replace((frame.at, count))?;
            let span = frame.at - at;
            (!span.is_zero()).then(|| Rate::of(count.saturating_sub(earlier), span).as_per_second())
        });
        Point::new(frame.at.as_secs_f64(), rate)
    };
    Series::new(track.name.to_owned(), Style::Line, track.frames.iter().map(point))
}

/// The load of each worker, in as many stretches of time as a row has room for.
fn shades(tracks: &[Track<'_>]) -> Option<HeatMap> {
    let frames = || tracks.iter().flat_map(|track| &track.frames);
    let mut ids: Vec<WorkerId> =
        frames().flat_map(|frame| &frame.workers).map(|worker| worker.worker).collect();
    ids.sort_unstable();
    ids.dedup();
    let end = frames().map(|frame| frame.at).max()?.as_secs_f64();
    if ids.is_empty() || end <= 0.0 {
        return None;
    }
    let cell = |track: &Track<'_>, id: WorkerId, stretch: usize| {
        let (from, to) =
            (end * stretch as f64 / STRETCHES as f64, end * (stretch + 1) as f64 / STRETCHES as f64);
        let within = |frame: &&&Frame| frame.at.as_secs_f64() > from && frame.at.as_secs_f64() <= to;
        let seen: Vec<_> = track
            .frames
            .iter()
            .filter(within)
            .flat_map(|frame| &frame.workers)
            .filter(|worker| worker.worker == id)
            .collect();
        if seen.is_empty() {
            Cell::Missing
        } else if seen.iter().all(|worker| !worker.active) {
            Cell::Marked("asleep".into())
        } else {
            Cell::Value(
                seen.iter().map(|worker| worker.load.as_per_second()).sum::<f64>() / seen.len() as f64,
            )
        }
    };
    let panel = |track: &Track<'_>| {
        let row = |&id: &WorkerId| (0..STRETCHES).map(|stretch| cell(track, id, stretch)).collect();
        (track.name.to_owned(), ids.iter().map(row).collect())
    };
    let place = |stretch: usize| format!("{:.1} s", end * stretch as f64 / STRETCHES as f64);
    Some(HeatMap {
        title: "Load of each worker".into(),
        see: "Mean rate of its connections; hatched is asleep.".into(),
        x: Labels { name: "time since the phase began".into(), values: (0..STRETCHES).map(place).collect() },
        y: Labels { name: "worker".into(), values: ids.iter().map(|id| id.0.to_string()).collect() },
        quantity: Quantity::new("requests", Unit::PerSecond),
        panels: tracks.iter().map(panel).collect(),
    })
}

const STRETCHES: usize = 48;

fn totals(summary: &Summary) -> Section {
    let bar = |title: &str, see: &str, quantity: Quantity, of: &dyn Fn(&Phase) -> Option<f64>| {
        let part = |(place, phase): (usize, &Phase)| {
            BarPart::new(phase.name.clone(), Tone::Contestant(place), vec![of(phase).map(Bar::new)])
        };
        Bars {
            title: title.into(),
            see: see.into(),
            quantity,
            rows: vec![String::new()],
            parts: summary.phases.iter().enumerate().map(part).collect(),
            form: Form::Grouped,
        }
    };
    let sources = summary.phases.iter().filter_map(|phase| phase.energy.as_ref());
    let source = sources.map(|energy| energy.source.to_string()).next().unwrap_or_default();
    let joules = Quantity::new("energy of the workers' CPUs", Unit::Joules).by_source(&source);
    let mut parts = vec![
        distribution(summary).part(),
        bar(
            "Worker time awake",
            "Summed over the workers.",
            Quantity::new("worker-seconds", Unit::Seconds),
            &|phase| phase.awake.map(Duration::as_secs_f64),
        )
        .part(),
        bar("Energy", &source, joules, &|phase| phase.energy.as_ref().map(|energy| energy.used.as_joules()))
            .part(),
    ];
    parts.push(residency(summary).map_or_else(
        || Part::Text("This machine reports no idle residency (no cpuidle).".into()),
        Bars::part,
    ));
    Section::new("Each phase as a whole", "", parts)
}

fn distribution(summary: &Summary) -> Lines {
    // The first and the last share have no place on this axis.
    let placed = |point: &&CurvePoint| (0.5..1.0).contains(&point.share.as_f64());
    let point = |point: &CurvePoint| {
        Point::new(1.0 / (1.0 - point.share.as_f64()), Some(point.latency.as_nanos() as f64))
    };
    let series = |phase: &Phase| {
        Series::new(phase.name.clone(), Style::Line, phase.curve.iter().filter(placed).map(point))
    };
    Lines {
        series: summary.phases.iter().map(series).collect(),
        ..Lines::new(
            "Latency of the slowest",
            "At 10 stands the 90th percentile, at 100 the 99th, at 1k the 99.9th. A phase whose line lies \
             lower is better at every percentile where it does.",
            Quantity::new("one request of so many is slower", Unit::Count).log(),
            Quantity::new("latency", Unit::Nanoseconds).log(),
        )
    }
}

/// The share of time in each idle state, one bar per phase.
fn residency(summary: &Summary) -> Option<Bars> {
    let known: Vec<(&Phase, &Vec<StateShare>)> =
        summary.phases.iter().filter_map(|phase| Some((phase, phase.residency.as_ref()?))).collect();
    let states = distinct(known.iter().flat_map(|(_, shares)| *shares).map(|share| share.state.as_str()));
    let share = |shares: &[StateShare], state: &str| {
        shares.iter().find(|share| share.state == state).map(|share| Bar::new(share.share.as_f64()))
    };
    let busy = |shares: &[StateShare]| {
        Bar::new((1.0 - shares.iter().map(|share| share.share.as_f64()).sum::<f64>()).max(0.0))
    };
    let idle = |(place, state): (usize, &&str)| {
        let tone = Tone::Idle((place as f64 + 1.0) / states.len() as f64);
        BarPart::new(*state, tone, known.iter().map(|(_, shares)| share(shares, state)))
    };
    let executing = BarPart::new("executing", Tone::Busy, known.iter().map(|(_, shares)| Some(busy(shares))));
    (!known.is_empty()).then(|| Bars {
        title: "Where the CPUs spent their time".into(),
        see: "Mean over the workers' CPUs, as cpuidle counts it: the state asked for, not always the one \
              reached. The fuller the green, the deeper the sleep."
            .into(),
        quantity: Quantity::new("share of the CPUs' time", Unit::Share),
        rows: known.iter().map(|(phase, _)| phase.name.clone()).collect(),
        parts: std::iter::once(executing).chain(states.iter().enumerate().map(idle)).collect(),
        form: Form::Stacked,
    })
}

/// The machine and the configuration, for those who look for them.
fn folded(info: &RunInfo) -> Vec<(String, String)> {
    let machine = &info.machine;
    let facts = [
        ("host", machine.host.clone()),
        ("CPU", machine.cpu_model.clone()),
        ("CPUs online", machine.cpus.map(|cpus| cpus.to_string())),
        (
            "memory",
            machine.memory_bytes.map(|bytes| format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)),
        ),
        ("kernel", machine.kernel.clone()),
        ("hypervisor", machine.hypervisor.clone()),
        ("idle driver", machine.idle_driver.clone()),
        ("idle states", (!machine.idle_states.is_empty()).then(|| machine.idle_states.join(", "))),
    ];
    let facts = facts.map(|(name, value)| format!("{name}: {}", or_missing(value)));
    let mut folded = vec![("Machine".into(), facts.join("\n"))];
    if !info.config.is_empty() {
        let text = toml::to_string(&info.config).unwrap_or_else(|error| error.to_string());
        folded.push(("Configuration in force".into(), text));
    }
    folded
}
