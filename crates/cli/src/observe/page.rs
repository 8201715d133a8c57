//! `report.html` of an observation: the verdict first, then the time by the length of periods in
//! the manner of the Tradeoffs paper's Figure 7, its states, the wrongly chosen sleeps, how often
//! the CPUs wake, and their wakers.
//!
//! Pure: findings in, a page out. `report` draws, and knows nothing of sleeps. An unknown has no
//! figure and a sentence why.

use super::answers::Answers;
use super::results::Observation;
use ::observe::sleep::{CpuSlept, LengthShare, Part as PartOf, Slept, StateSlept};
use ::observe::verdict::Class;
use machine::{CstateKind, Duration, Rate};
use observe::scrape::Scraped;
use report::figures::{
    Bar, BarPart, Bars, Bucket, Card, Form, Lengths, Lines, Page, Part, Point, Quantity, Row, Section,
    Series, Style, Table, Tone, Unit,
};
use report::run::RunInfo;
use serde::Serialize;

/// How a service answered for a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RequestPoint {
    /// The middle of the stretch, in seconds since the beginning.
    pub at_s: f64,
    /// Requests answered per second.
    pub per_s: f64,
    /// Response time in the middle.
    pub p50_ns: Option<f64>,
    pub p99_ns: Option<f64>,
}

/// How the figures are got.
pub const METHOD: [&str; 5] = [
    "A CPU is idle from the kernel's cpu_idle event that names a state until the one that says it \
     left, and active in between. The first and the last period of a CPU are not counted: one of \
     their ends was not seen.",
    "The state is the one that was asked for. Hardware and hypervisors may do less.",
    "Premature: the sleep ended before the target residency of its state. Missed deep: it lasted \
     for the target residency of the next deeper state that was allowed. Histograms have four \
     buckets to a doubling; one that a limit cuts is shared out evenly.",
    "Wake cost: sleeps times wake latency, measured or advertised as it says. Measured is from \
     the waker's call, or the timer's deadline, until the woken thread reads the clock (roost \
     doctor --probe), so the scheduler's part is in it.",
    "Bounds: all idle time in the deepest state against all of it in the shallowest that halts \
     (Tradeoffs paper, section III C). Power of states comes from a table and is modelled.",
];

pub fn page(info: &RunInfo, observation: &Observation) -> Page {
    let findings = &observation.findings;
    let machine = observation
        .machine
        .as_ref()
        .map_or("idle states not known".to_owned(), |name| format!("idle states: {name}"));
    let facts =
        [findings.source.clone(), format!("{} on {} CPUs", findings.elapsed, findings.cpus.len()), machine];
    let mut alarms = observation.notes.clone();
    if findings.lost > 0 {
        alarms.push(format!("{} events were lost; the periods around them are left out.", findings.lost));
    }
    let mut sections = vec![verdict(observation), lengths(&findings.all), residency(observation)];
    sections.push(choices(&findings.all));
    sections.push(waking(observation));
    sections.extend(requests(observation));
    sections
        .extend(observation.scraped.as_ref().map(|scraped| own_word(scraped, observation.answers.as_ref())));
    let mut page =
        Page { summary: summary(observation), alarms, cards: cards(observation), sections, ..Page::of(info) };
    page.facts.extend(facts);
    page.notes.extend(findings.unknown.iter().cloned());
    page
}

/// The verdict and the remedy.
fn summary(observation: &Observation) -> String {
    let verdict = &observation.verdict;
    let first = observation.words.first().cloned().unwrap_or_default();
    format!("{first} Try first: {}.", verdict.advice.policy)
}

fn cards(observation: &Observation) -> Vec<Card> {
    let all = &observation.findings.all;
    let mut cards = vec![
        Card::new("active", all.active.to_string(), "of the CPU time seen"),
        Card::new("sleeps", Unit::PerSecond.text(all.transitions_per_s.as_per_second()), "all CPUs together"),
    ];
    if let Some(slices) = all.slices {
        cards.push(Card::new(
            "slices below 1 ms",
            slices.short_of_all.to_string(),
            format!("of all time; {} of idle time", slices.short_of_idle),
        ));
    }
    if let Some(premature) = all.premature {
        cards.push(Card::new(
            "premature sleeps",
            premature.share.to_string(),
            format!("{} of them", premature.count),
        ));
    }
    if let Some(answers) = &observation.answers {
        let p99 = answers.response.or(answers.work).map_or("-".to_owned(), |times| times.p99.to_string());
        cards.push(Card::new(
            "requests",
            Unit::PerSecond.text(answers.rate.as_per_second()),
            format!("p99 {p99}"),
        ));
    }
    if let Some(power) = &observation.power {
        cards.push(Card::new("power", format!("{:.2} W", power.mean.as_watts()), power.source.clone()));
    }
    if let Some(tail) = observation.verdict.tail.as_ref().filter(|tail| tail.range.is_zero()) {
        cards.push(Card::new(
            "waking takes up to",
            tail.wake.to_string(),
            format!("from {}, as {}; nothing to choose", tail.shallowest, tail.source),
        ));
    } else if let Some(tail) = &observation.verdict.tail {
        cards.push(Card::new(
            "tail can move by at most",
            tail.at_stake().to_string(),
            format!("{} against {}, as {}", tail.deepest, tail.shallowest, tail.source),
        ));
    }
    if let Some(power) = &observation.verdict.power {
        cards.push(Card::new(
            "power can move by at most",
            format!("{:.2} W", power.at_stake.as_watts()),
            power.source.to_string(),
        ));
    }
    cards
}

/// The advice, then its sources. The verdict stands at the top of the page.
fn verdict(observation: &Observation) -> Section {
    let advice = &observation.verdict.advice;
    let try_first = format!("Try first: {}. {}", advice.policy, advice.because);
    let rest = observation.words.iter().skip(1).filter(|sentence| **sentence != try_first);
    let title = match observation.verdict.judged.class {
        Class::CannotTell => "What can be said".to_owned(),
        class => class.to_string(),
    };
    Section { title, parts: rest.map(|sentence| Part::Text(sentence.clone())).collect(), text: try_first }
}

/// Figure 7: idle and active periods in one plot.
fn lengths(all: &Slept) -> Section {
    let title = "How long CPUs sleep and work";
    let (Some(idle), Some(active)) = (&all.idle_lengths, &all.active_lengths) else {
        return missing(title, "Counts have no lengths.");
    };
    let buckets = |lengths: &[LengthShare]| -> Vec<Bucket> {
        let bucket = |entry: &LengthShare| Bucket {
            from_ns: entry.from_ns as f64,
            to_ns: entry.to_ns as f64,
            share: entry.share.as_f64(),
        };
        lengths.iter().map(bucket).collect()
    };
    let see = "The share of all CPU time that is spent in periods of each length, all CPUs \
               together. What lies left of 1 ms is where the choice of a state goes wrong easily; \
               the active parts add up to the utilisation.";
    let figure = Lengths {
        title: "Time by the length of periods".to_owned(),
        see: see.to_owned(),
        of: "period".to_owned(),
        share_of: "all CPU time".to_owned(),
        series: vec![("asleep".to_owned(), buckets(idle)), ("active".to_owned(), buckets(active))],
    };
    section(title, vec![figure.part()])
}

fn each(cpus: &[CpuSlept]) -> impl Iterator<Item = (String, &Slept)> {
    let seen = cpus.iter().filter(|cpu| !cpu.slept.seen.is_zero());
    seen.take(ROWS).map(|cpu| (cpu.cpu.to_string(), &cpu.slept))
}

fn residency(observation: &Observation) -> Section {
    let title = "Which states the time goes to";
    let findings = &observation.findings;
    let all = std::iter::once(("all".to_owned(), &findings.all));
    let rows: Vec<(String, &Slept)> = all.chain(each(&findings.cpus)).collect();
    let states: Vec<&StateSlept> = findings.all.states.iter().collect();
    let part = |name: &str, tone: Tone, share: &dyn Fn(&Slept) -> f64| {
        BarPart::new(name, tone, rows.iter().map(|(_, slept)| Some(Bar::new(share(slept)))))
    };
    let mut parts = vec![part("active", Tone::Busy, &|slept| slept.active.as_f64())];
    for state in &states {
        let share = |slept: &Slept| {
            let same = |other: &&StateSlept| other.state == state.state && other.name == state.name;
            slept.states.iter().find(same).map_or(0.0, |state| state.share.as_f64())
        };
        parts.push(part(&state.name, tone(state, &states), &share));
    }
    parts.retain(|part| part.values.iter().flatten().any(|bar| bar.value > 0.0));
    let figure = Bars {
        title: "Residency by CPU".to_owned(),
        see: format!(
            "The state that was asked for; the fuller the green, the deeper. {}",
            left_out(findings.cpus.len())
        ),
        quantity: Quantity::new("share of the CPU time seen", Unit::Share),
        rows: rows.iter().map(|(name, _)| name.clone()).collect(),
        parts,
        form: Form::Stacked,
    };
    section(title, vec![figure.part()])
}

fn left_out(cpus: usize) -> String {
    if cpus > ROWS { format!("The first {ROWS} CPUs; sleeps.json has all.") } else { String::new() }
}

/// Spinning stands out from sleep; of the rest, the deeper the fuller.
fn tone(state: &StateSlept, states: &[&StateSlept]) -> Tone {
    if state.kind == Some(CstateKind::Polling) {
        return Tone::Contestant(1);
    }
    let halting: Vec<_> = states.iter().filter(|state| state.kind != Some(CstateKind::Polling)).collect();
    let place = halting.iter().position(|other| other.state == state.state && other.name == state.name);
    Tone::Idle(match (place, halting.len()) {
        (Some(place), 2..) => place as f64 / (halting.len() - 1) as f64,
        _ => 1.0,
    })
}

fn choices(all: &Slept) -> Section {
    let title = "Sleeps chosen wrongly";
    let used: Vec<&StateSlept> = all.states.iter().filter(|state| state.sleeps > 0).collect();
    let table = Part::Table(states_table(all));
    if used.iter().all(|state| state.premature.is_none()) {
        let why = "How long a sleep should have lasted is not known, so none can be called wrong.";
        let mut section = missing(title, why);
        section.parts.push(table);
        return section;
    }
    // Of all sleeps, not of the state's own: all of four is less than a tenth of a thousand.
    let share = |of: Option<PartOf>| of.map(|part| Bar::new(part.count as f64 / all.sleeps.max(1) as f64));
    let part = |name: &str, place: usize, of: fn(&StateSlept) -> Option<PartOf>| {
        BarPart::new(name, Tone::Contestant(place), used.iter().map(|state| share(of(state))))
    };
    let see = "Sleeps that were too short for their state (waking cost more than sleeping saved), \
               and those that were long enough for a deeper one, as shares of all sleeps; in the \
               table below, of the state's own.";
    let figure = Bars {
        title: "Premature and missed by state".to_owned(),
        see: see.to_owned(),
        quantity: Quantity::new("share of all sleeps", Unit::Share),
        rows: used.iter().map(|state| state.name.clone()).collect(),
        parts: vec![
            part("premature", 0, |state| state.premature),
            part("missed deep", 1, |state| state.missed_deep),
        ],
        form: Form::Grouped,
    };
    Section::new(title, "", vec![figure.part(), table])
}

/// The wake-up latency, and its source.
fn wake(state: &StateSlept) -> String {
    let halts = state.kind != Some(CstateKind::Polling);
    state.wake.filter(|_| halts).map_or_else(
        || "-".to_owned(),
        |wake| format!("{} {}", Unit::Nanoseconds.text(wake.usual.as_nanos() as f64), wake.source),
    )
}

fn states_table(all: &Slept) -> Table {
    let dash = || "-".to_owned();
    let part =
        |part: Option<PartOf>| part.map_or_else(dash, |part| format!("{} ({})", part.count, part.share));
    let length = |length: Option<Duration>| {
        length.map_or_else(dash, |length| Unit::Nanoseconds.text(length.as_nanos() as f64))
    };
    let row = |state: &StateSlept| Row {
        name: state.name.clone(),
        remark: if state.forbidden { "forbidden".to_owned() } else { String::new() },
        cells: vec![
            state.share.to_string(),
            state.sleeps.to_string(),
            length(state.mean),
            length(state.target_residency),
            part(state.premature),
            part(state.missed_deep),
            wake(state),
        ],
        ..Row::default()
    };
    let head =
        ["", "residency", "sleeps", "mean", "target residency", "premature", "missed deep", "wake latency"];
    Table::new("", head, all.states.iter().map(row))
}

fn waking(observation: &Observation) -> Section {
    let rows: Vec<(String, &Slept)> = each(&observation.findings.cpus).collect();
    let names = || rows.iter().map(|(name, _)| name.clone()).collect();
    let rates = BarPart::new(
        "sleeps",
        Tone::Contestant(0),
        rows.iter().map(|(_, slept)| Some(Bar::new(slept.transitions_per_s.as_per_second()))),
    );
    let transitions = Bars {
        title: "Sleeps per second".to_owned(),
        see: format!("Each is one way down and one way up again. {}", cost(observation)),
        quantity: Quantity::new("sleeps", Unit::PerSecond),
        rows: names(),
        parts: vec![rates],
        form: Form::Grouped,
    };
    let mut figures = vec![transitions.part()];
    if observation.findings.all.wakers.is_some() {
        let part = |name: &str, tone: Tone, of: &dyn Fn(&::observe::sleep::Wakers) -> u64| {
            let share = |(_, slept): &(String, &Slept)| {
                let wakers = slept.wakers.filter(|wakers| wakers.total() > 0)?;
                Some(Bar::new(of(&wakers) as f64 / wakers.total() as f64))
            };
            BarPart::new(name, tone, rows.iter().map(share))
        };
        let mut parts = vec![
            part("its timer", Tone::Contestant(0), &|wakers| wakers.timer),
            part("a device", Tone::Contestant(1), &|wakers| wakers.device),
            part("another CPU", Tone::Contestant(2), &|wakers| wakers.ipi),
            part("no interrupt seen", Tone::Contestant(3), &|wakers| wakers.unseen),
        ];
        parts.retain(|part| part.values.iter().flatten().any(|bar| bar.value > 0.0));
        let see = "The first interrupt while a CPU slept or just after. Devices are outside work, \
                   other CPUs are work handed on, timers are the service's own or the kernel's.";
        let woken = Bars {
            title: "What woke the CPUs".to_owned(),
            see: see.to_owned(),
            quantity: Quantity::new("share of the sleeps", Unit::Share),
            rows: names(),
            parts,
            form: Form::Stacked,
        };
        figures.push(woken.part());
    }
    section("How often they wake, and why", figures)
}

fn cost(observation: &Observation) -> String {
    observation.findings.all.wake_cost.map_or_else(String::new, |cost| {
        format!("With {} latencies, waking takes {} of the CPU time.", cost.source, cost.share)
    })
}

fn requests(observation: &Observation) -> Option<Section> {
    let points = &observation.requests;
    if points.is_empty() {
        return None;
    }
    let time = || Quantity::new("time", Unit::Seconds);
    let series = |name: &str, value: &dyn Fn(&RequestPoint) -> Option<f64>| {
        Series::new(name, Style::Line, points.iter().map(|point| Point::new(point.at_s, value(point))))
    };
    let mut rate =
        Lines::new("Requests", "Answered per second.", time(), Quantity::new("requests", Unit::PerSecond));
    rate.series.push(series("requests", &|point| Some(point.per_s)));
    let mut response = Lines::new(
        "Response time",
        "From the first byte in the socket to the first byte of the answer.",
        time(),
        Quantity::new("response time", Unit::Nanoseconds).log(),
    );
    response.series.push(series("p50", &|point| point.p50_ns));
    response.series.push(series("p99", &|point| point.p99_ns));
    let mut section = section("Requests", vec![rate.part(), response.part()]);
    if let Some(answers) = &observation.answers {
        section.text = format!(
            "{}: {} requests, seen at {}. Response is waiting (the socket's queue, and waking the \
             server) and service (its own work) together; an interrupted CPU's own way out of \
             idle lies before it. What a client adds is not in it.",
            answers.service, answers.requests, answers.way
        );
        section.parts.insert(0, Part::Table(answers_table(answers)));
    }
    Some(section)
}

fn answers_table(answers: &Answers) -> Table {
    let head = ["time", "mean", "p50", "p95", "p99", "p99.9", "max"];
    let rows = answers.rows().map(|(name, times)| {
        let cells = [times.mean, times.p50, times.p95, times.p99, times.p999, times.max];
        let cells = cells.map(|time| Unit::Nanoseconds.text(time.as_nanos() as f64));
        Row::new(name, cells)
    });
    Table::new("", head, rows)
}

/// The service's own figures, and beside them the kernel's.
fn own_word(scraped: &Scraped, answers: Option<&Answers>) -> Section {
    let dash = || "-".to_owned();
    let rate = |rate: Option<Rate>| rate.map_or_else(dash, |rate| Unit::PerSecond.text(rate.as_per_second()));
    let time = |time: Option<Duration>| {
        time.map_or_else(dash, |time| Unit::Nanoseconds.text(time.as_nanos() as f64))
    };
    let mut rows = vec![Row::new(
        scraped.source.clone(),
        vec![
            rate(scraped.rate),
            time(scraped.p99),
            scraped.connections.map_or_else(dash, |open| open.to_string()),
        ],
    )];
    rows.extend(answers.map(|answers| {
        let p99 = answers.response.map(|times| times.p99);
        Row::new("the kernel", [rate(Some(answers.rate)), time(p99), dash()])
    }));
    let head = ["says", "requests", "p99", "connections"];
    let notes = scraped.notes.iter().map(|note| Part::Text(format!("{}.", sentence(note))));
    Section::new(
        "What the service says of itself",
        "Two counts of the same from two sides: where they differ, one of them misses something.",
        std::iter::once(Table::new("", head, rows).part()).chain(notes).collect(),
    )
}

/// With a capital letter.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn section(title: &str, figures: Vec<Part>) -> Section {
    Section::new(title, "", figures)
}

fn missing(title: &str, why: &str) -> Section {
    Section::new(title, why, Vec::new())
}

/// More rows than this are for a file, not for a reader.
const ROWS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use ::observe::requests::RequestPattern;
    use ::observe::sleep::{CpuPattern, Findings, Known, SleepPattern, SleepSource, Wakers};
    use ::observe::verdict::{Evidence, Verdict};
    use machine::{CpuId, CstateTable, LengthHistogram, Platform};

    fn observation(source: SleepSource, table: CstateTable, cpus: u16) -> Observation {
        let mut idle = vec![LengthHistogram::default(); 3];
        let mut active = LengthHistogram::default();
        for n in 0..3_000 {
            idle[1 + n % 2].record(Duration::from_micros(200 + 7 * n as u64));
            active.record(Duration::from_micros(90));
        }
        let cpu = |cpu| CpuPattern {
            cpu: CpuId(cpu),
            table: table.clone(),
            idle: idle.clone(),
            active: active.clone(),
            wakers: (cpu == 0).then_some(Wakers { timer: 3, device: 0, ipi: 9, unseen: 0 }),
        };
        let elapsed = Duration::from_secs(40);
        let pattern = SleepPattern { elapsed, source, cpus: (0..cpus).map(cpu).collect(), lost: 7 };
        let evidence = Evidence::of(Findings::of(&pattern, &Known::default()));
        let verdict = Verdict::of(&evidence);
        Observation {
            title: "How <CPUs> slept".into(),
            layout: None,
            machine: Some("a <b>machine</b>".into()),
            notes: vec!["It breaks off.".into()],
            words: verdict.words(),
            findings: evidence.findings,
            verdict,
            requests: Vec::new(),
            answers: None,
            scraped: None,
            power: None,
            work: Vec::new(),
            hardware: Vec::new(),
            verified: None,
        }
    }

    fn sandybridge() -> CstateTable {
        Platform::by_name("tradeoffs").unwrap().cstates
    }

    fn json(observation: &Observation) -> String {
        let page = page(&RunInfo::default(), observation).json();
        assert!(!page.contains("NaN"), "{page}");
        page
    }

    #[test]
    fn everything_that_is_known_has_its_figure() {
        let mut seen = observation(SleepSource::Bpf, sandybridge(), 2);
        let point = |at| RequestPoint { at_s: f64::from(at), per_s: 1e3, p50_ns: Some(5e4), p99_ns: None };
        seen.requests = (0..9).map(point).collect();
        let page = json(&seen);
        for title in [
            "Time by the length of periods",
            "Residency by CPU",
            "Premature and missed by state",
            "Sleeps per second",
            "What woke the CPUs",
            "Response time",
        ] {
            assert!(page.contains(title), "no {title}");
        }
        assert!(page.contains("7 events were lost") && page.contains("It breaks off."), "{page}");
        // A waker that never was is not in the legend.
        assert!(!page.contains("no interrupt seen"), "{page}");
    }

    #[test]
    fn the_services_own_word_stands_beside_the_kernels_or_alone() {
        let mut seen = observation(SleepSource::Bpf, sandybridge(), 2);
        seen.scraped = Some(Scraped {
            source: "roost:<host>:1".into(),
            rate: Some(Rate::per_second(1_234.0)),
            p99: None,
            connections: Some(7),
            notes: vec!["it did not answer 1 of 9 times (late)".into()],
        });
        let alone = json(&seen);
        for words in ["What the service says of itself", "roost:<host>:1", "It did not answer 1 of 9 times"] {
            assert!(alone.contains(words), "no {words}");
        }
        let kernel = "\"name\":\"the kernel\"";
        assert!(!alone.contains(kernel), "{alone}");
        let times = hdrhistogram::Histogram::<u64>::new(3).unwrap();
        let kernel = RequestPattern {
            elapsed: Duration::from_secs(1),
            way: linux::probes::RequestWay::ALL[0],
            requests: 1_200,
            timed: 1_200,
            merged: 0,
            unfit: 0,
            response: Some(times),
            service: None,
            waiting: None,
            interrupt: None,
            wakes_hidden: 0,
        };
        seen.answers = Some(Answers::of("x".into(), &kernel));
        assert!(json(&seen).contains("\"name\":\"the kernel\""));
    }

    #[test]
    fn what_is_not_known_is_said_in_its_place() {
        let counts = json(&observation(SleepSource::Counts, sandybridge(), 2));
        assert!(
            counts.contains("Counts have no lengths.") && counts.contains("Residency by CPU"),
            "{counts}"
        );
        let tableless = json(&observation(SleepSource::Bpf, CstateTable::default(), 2));
        assert!(
            tableless.contains("none can be called wrong") && tableless.contains("state 2"),
            "{tableless}"
        );
        let nothing = json(&observation(SleepSource::Bpf, sandybridge(), 0));
        assert!(nothing.contains("Cannot tell"), "{nothing}");
    }

    #[test]
    fn a_machine_of_many_cpus_says_which_are_left_out() {
        let many = json(&observation(SleepSource::Bpf, sandybridge(), 90));
        assert!(many.contains("cpu63") && !many.contains("cpu64"), "{many}");
        assert!(many.contains("sleeps.json has all"), "{many}");
        let all_shown = json(&observation(SleepSource::Bpf, sandybridge(), 64));
        assert!(!all_shown.contains("sleeps.json has all"), "{all_shown}");
    }
}
