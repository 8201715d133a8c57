//! The page of an archive, for a person who did not see the run.

use super::{Archive, IdleSpan, Load, MeterKind, Share, State, seen};
use crate::prove::{Figure, Verdict, tenths};
use report::distinct;
use report::figures::{
    Bar, BarPart, Bars, Basis, Card, Page, Part, Quantity, Row, Section, Table, Tone, Unit,
};

impl Archive {
    pub fn page(&self) -> Page {
        let machine = &self.machine;
        let is_measured = machine.meters.first().is_some_and(|meter| meter.kind.is_measured());
        let processor = machine.processor.as_ref().map_or("a processor without a name", |name| name.as_str());
        let mut page = Page {
            name: "kit".to_owned(),
            title: format!("What this machine showed: {processor}"),
            summary: self.summary_sentence(),
            facts: vec![
                self.summary.date.to_string(),
                format!("Roost {}", self.summary.version),
                format!("{:.0} s of {} s planned", self.summary.took_s, self.summary.planned_s),
            ],
            basis: Some(if is_measured { Basis::Measured } else { Basis::Modelled }),
            ..Page::default()
        };
        // After a SIGKILL the archive is the one of the part before.
        let is_cut_off = self.summary.parts.iter().any(|part| part.state == State::NotBegun);
        if self.summary.ended_early || is_cut_off {
            page.alarms.push("A signal ended the run before its time: some parts are missing.".to_owned());
        }
        if !is_measured {
            page.alarms.push(
                "No meter measures power here. Watts are modelled from idle residency and a table of \
                 powers; they are no measurement."
                    .to_owned(),
            );
        }
        if machine.virtual_machine == Some(true) {
            page.alarms.push(
                "This is a virtual machine: its host decides what a halt does, and shows nothing of it."
                    .to_owned(),
            );
        }
        let busy = self.idle.iter().filter_map(|span| span.busy_cpus).fold(0.0, f64::max);
        if busy > AT_REST * f64::from(machine.cpus) {
            page.alarms.push(format!(
                "Up to {busy:.1} of {} CPUs were busy with other work while the machine was to be at rest: \
                 its idle power says little, and so do its wake-up times.",
                machine.cpus
            ));
        }
        page.cards = self.cards();
        page.sections = vec![self.seen_section(), self.machine_section(), self.parts_section()];
        page.sections.extend(self.idle_section());
        page.sections.extend(self.wakes_section());
        page.sections.extend(self.clocks_section());
        page.sections
            .extend(self.loads.iter().zip(1..).map(|(load, number)| self.load_section(load, number)));
        page.notes = METHOD.map(str::to_owned).to_vec();
        page
    }

    fn summary_sentence(&self) -> String {
        let done = self.summary.parts.iter().filter(|part| part.state == State::Done).count();
        let shown = seen::ROWS.iter().filter(|row| (row.of)(self).is_some()).count();
        format!(
            "{done} of {} parts were measured to their end. The machine showed {shown} of the {} things \
             that docs/hardware.md lists.",
            self.summary.parts.len(),
            seen::ROWS.len()
        )
    }

    fn cards(&self) -> Vec<Card> {
        let outcomes = self.loads.iter().filter_map(|load| Some((load, load.outcome(&self.machine)?)));
        outcomes
            .map(|(load, outcome)| {
                let power = self.machine.meters.first().map(|meter| Figure::Watts(meter.name.to_string()));
                let power = power.map(|figure| figure.to_string());
                let change = outcome.changes.iter().find(|change| Some(&change.figure) == power.as_ref());
                Card::new(
                    format!("power, governed, at {} of the peak", percent(load.share)),
                    change.map_or_else(|| "not known".to_owned(), |change| signed(change.change)),
                    interval(change.and_then(|change| change.low.zip(change.high))),
                )
                .judged(match outcome.verdict {
                    Verdict::Saves => Some(true),
                    Verdict::Costs | Verdict::Missed => Some(false),
                    Verdict::NoDifference | Verdict::Unproven => None,
                })
            })
            .collect()
    }

    fn seen_section(&self) -> Section {
        let row = |row: &seen::SeenRow| {
            (row.of)(self).map_or_else(
                || Row::new(row.name, ["not seen".to_owned()]),
                |cell| Row::new(row.name, [cell.to_string()]),
            )
        };
        let table = table(&["", "seen here"], seen::ROWS.iter().map(row).collect());
        Section::new("Seen here, and not", "", vec![table])
    }

    fn machine_section(&self) -> Section {
        let machine = &self.machine;
        let word =
            |word: &Option<super::Word>| word.as_ref().map_or("not known".to_owned(), |w| w.to_string());
        let mut rows = vec![
            Row::new("processor", [word(&machine.processor)]),
            Row::new("kernel", [word(&machine.kernel)]),
            Row::new(
                "CPUs",
                [format!("{} on {} cores, {} sockets", machine.cpus, machine.cores, machine.sockets)],
            ),
            Row::new("idle driver", [word(&machine.idle_driver)]),
            Row::new("idle governor", [word(&machine.idle_governor)]),
        ];
        for table in &machine.idle_tables {
            let states = table.states.iter().map(|state| {
                let off = if state.disabled == Some(true) { ", off" } else { "" };
                format!("{} ({}{off})", state.name, Unit::Nanoseconds.text(state.exit_latency_ns as f64))
            });
            let states: Vec<String> = states.collect();
            rows.push(Row::new(format!("idle states of {} CPUs", table.cpus), [states.join(", ")]));
        }
        for clock in &machine.clocks {
            let mhz = |khz: Option<u64>| khz.map_or("?".to_owned(), |khz| format!("{:.0}", khz as f64 / 1e3));
            let (low, high) = (mhz(clock.hardware_min_khz), mhz(clock.hardware_max_khz));
            let by = format!("{}, {}", word(&clock.driver), word(&clock.governor));
            rows.push(Row::new(
                format!("{} clock domains", clock.domains),
                [format!("{low} to {high} MHz ({by})")],
            ));
        }
        for meter in &machine.meters {
            rows.push(Row::new("meter", [format!("{} ({})", meter.name, kind(meter.kind))]));
        }
        for nic in &machine.nics {
            let speed = nic.mbit_per_s.map_or(String::new(), |mbit| format!(", {mbit} Mbit/s"));
            let queues = format!("{} receive, {} send queues{speed}", nic.rx_queues, nic.tx_queues);
            rows.push(Row::new("network card", [queues]));
        }
        if let Some((loaded, tried)) = machine.bpf_loaded {
            rows.push(Row::new("programs in the kernel", [format!("{loaded} of {tried} load")]));
        }
        Section::new("The machine", "", vec![table(&["", "value"], rows)])
    }

    fn parts_section(&self) -> Section {
        let rows = self.summary.parts.iter().map(|part| {
            let state = match part.state {
                State::Done => "done",
                State::EndedEarly => "ended early",
                State::Gap => "GAP",
                State::NotBegun => "not begun",
            };
            Row::new(
                part.part.name(),
                [state.to_owned(), part.why.as_ref().map_or(String::new(), |why| why.to_string())],
            )
        });
        Section::new("The run", "", vec![table(&["part", "state", "why"], rows.collect())])
    }

    fn idle_section(&self) -> Option<Section> {
        let meters = &self.machine.meters;
        let first = self.idle.first()?;
        let limits = self.limits();
        let mut parts = Vec::new();
        if let Some(meter) = meters.first() {
            let basis = if meter.kind.is_measured() { Basis::Measured } else { Basis::Modelled };
            let value = |limit: &&Option<super::Word>| mean(&self.idle, limit, 0).map(Bar::new);
            parts.push(
                Bars {
                    title: format!("Power of the machine at rest, by {}", meter.name),
                    see: "Shorter is better.".to_owned(),
                    quantity: Quantity { basis: Some(basis), ..Quantity::new("power", Unit::Watts) },
                    rows: limits.iter().map(|limit| limit_name(limit)).collect(),
                    parts: vec![BarPart::new("at rest", Tone::Idle(0.5), limits.iter().map(value))],
                    form: Default::default(),
                }
                .part(),
            );
        }
        let mut head = vec!["deepest state allowed".to_owned()];
        head.extend((0..first.watts.len()).filter_map(|at| Some(meters.get(at)?.name.to_string())));
        head.extend(["CPUs busy".to_owned(), "time by state".to_owned()]);
        let rows = self.idle.iter().map(|span| {
            let mut cells: Vec<String> = span.watts.iter().map(|watts| number(*watts, "W")).collect();
            cells.push(number(span.busy_cpus, ""));
            cells.push(shares(&span.states));
            Row::new(limit_name(&span.limited_to), cells)
        });
        parts.push(Table::new("Each span", head, rows).part());
        let text = "All CPUs are limited to one state after the other, forwards and then backwards, so that \
                    a drift is on both sides.";
        Some(Section::new("Idle power, by the deepest state allowed", text, parts))
    }

    /// The limits in the order in which they were first in force.
    pub(super) fn limits(&self) -> Vec<&Option<super::Word>> {
        distinct(self.idle.iter().map(|span| &span.limited_to))
    }

    fn wakes_section(&self) -> Option<Section> {
        let rows: Vec<Row> = self
            .wakes
            .iter()
            .map(|wakes| {
                let by = if wakes.by_other_cpu { "another CPU" } else { "a timer" };
                let time = |ns: u64| Unit::Nanoseconds.text(ns as f64);
                Row::new(
                    limit_name(&wakes.limited_to),
                    [by.to_owned(), time(wakes.sleep_ns), time(wakes.p50_ns), time(wakes.p99_ns)]
                        .into_iter()
                        .chain([shares(&wakes.states)]),
                )
            })
            .collect();
        let head = ["deepest state allowed", "woken by", "sleep", "p50", "p99", "states asked for"];
        (!rows.is_empty()).then(|| Section::new("Wake-up times, measured", "", vec![table(&head, rows)]))
    }

    fn clocks_section(&self) -> Option<Section> {
        let meters = &self.machine.meters;
        let fastest = self.clocks.iter().map(|span| span.turns_per_s).fold(0.0, f64::max);
        let mut head = vec!["clock at most".to_owned(), "speed".to_owned()];
        head.extend(meters.iter().map(|meter| meter.name.to_string()));
        let rows: Vec<Row> = self
            .clocks
            .iter()
            .map(|span| {
                let speed = if fastest > 0.0 { percent(span.turns_per_s / fastest) } else { "-".to_owned() };
                let watts = span.watts.iter().map(|watts| number(*watts, "W"));
                Row::new(
                    format!("{:.0} MHz", span.at_most_khz as f64 / 1e3),
                    [speed].into_iter().chain(watts),
                )
            })
            .collect();
        let text = "One CPU runs a fixed loop while all CPUs have that limit; the speed is of the fastest.";
        let table = Table::new("", head, rows);
        (!table.rows.is_empty()).then(|| Section::new("Clocks", text, vec![table.part()]))
    }

    fn load_section(&self, load: &Load, number: usize) -> Section {
        let title = format!(
            "Load {number}: {} requests/s, {} of the peak, goal {}",
            load.offered_per_s.round(),
            percent(load.share),
            load.goal
        );
        let Some(outcome) = load.outcome(&self.machine) else {
            return Section::new(&title, "No meter and no model of power.", Vec::new());
        };
        let rows = outcome.changes.iter().map(|change| {
            let text = |value: f64| figure_text(&change.figure, value);
            Row::new(
                figure_name(&change.figure),
                [
                    text(change.ungoverned),
                    text(change.governed),
                    signed(change.change),
                    interval(change.low.zip(change.high)),
                ],
            )
        });
        let head = ["", "ungoverned", "governed", "change", "95 % interval"];
        let pairs = format!(
            "{} {} pairs of blocks compared, {} left out.",
            outcome.sentence,
            outcome.pairs,
            outcome.pairs_unlike + outcome.pairs_void
        );
        Section::new(&title, &pairs, vec![table(&head, rows.collect())])
    }
}

/// A machine of which more is busy is not at rest. ESTIMATE: a tenth, as in the probe's remark.
const AT_REST: f64 = 0.1;

const METHOD: [&str; 3] = [
    "A block is compared as roost prove does (docs/prove.md): pairs of one governed and one ungoverned \
     block in a drawn order, and Student's interval over the pairs.",
    "The service is a roost serve of the kit's own, its generator a roost load on the same machine: both \
     are in the power and in the busy CPUs.",
    "Idle power is that of the whole machine at rest, with everything that runs on it.",
];

fn table(head: &[&str], rows: Vec<Row>) -> Part {
    let head = head.iter().map(|&head| head.to_owned());
    Table::new("", head, rows).part()
}

pub(super) fn limit_name(limit: &Option<super::Word>) -> String {
    limit.as_ref().map_or_else(|| "as it is".to_owned(), |state| state.to_string())
}

/// The mean power of the spans under this limit.
pub(super) fn mean(spans: &[IdleSpan], limit: &Option<super::Word>, meter: usize) -> Option<f64> {
    let of = spans.iter().filter(|span| span.limited_to == *limit);
    let watts: Vec<f64> = of.filter_map(|span| span.watts.get(meter).copied().flatten()).collect();
    (!watts.is_empty()).then(|| watts.iter().sum::<f64>() / watts.len() as f64)
}

fn shares(states: &[Share]) -> String {
    let shown = states.iter().filter(|state| state.share >= 0.001);
    shown.map(|state| format!("{} {}", state.state, percent(state.share))).collect::<Vec<_>>().join(", ")
}

fn number(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2} {unit}").trim_end().to_owned())
}

pub(super) fn percent(share: f64) -> String {
    format!("{} %", tenths(100.0 * share))
}

pub(super) fn signed(change: f64) -> String {
    format!("{:+.1} %", tenths(100.0 * change))
}

pub(super) fn interval(ends: Option<(f64, f64)>) -> String {
    ends.map_or_else(
        || "no interval".to_owned(),
        |(low, high)| format!("{:+.1} to {:+.1} %", tenths(100.0 * low), tenths(100.0 * high)),
    )
}

fn kind(kind: MeterKind) -> &'static str {
    match kind {
        MeterKind::Rapl => "RAPL",
        MeterKind::Sensor => "a sensor of the board or its supply",
        MeterKind::Command => "a command of --meter",
        MeterKind::Model => "MODELLED, no meter",
    }
}

fn figure_name(figure: &str) -> String {
    match figure.parse() {
        Ok(Figure::Watts(meter)) => format!("power ({meter})"),
        Ok(Figure::JoulesPerRequest(meter)) => format!("energy per request ({meter})"),
        Ok(Figure::Tail) => "tail".to_owned(),
        Ok(Figure::BusyCpus) => "CPUs busy".to_owned(),
        Ok(Figure::CpuPerRequest) => "CPU time per request".to_owned(),
        Ok(Figure::AwakeCpus) => "CPUs awake".to_owned(),
        Ok(Figure::Cores) => "cores given".to_owned(),
        _ => figure.to_owned(),
    }
}

fn figure_text(figure: &str, value: f64) -> String {
    match figure.parse() {
        Ok(Figure::Watts(_)) => format!("{value:.2} W"),
        Ok(Figure::JoulesPerRequest(_)) => format!("{:.2} uJ", value * 1e6),
        Ok(Figure::Tail) => Unit::Nanoseconds.text(value),
        Ok(Figure::CpuPerRequest) => Unit::Nanoseconds.text(value * 1e9),
        _ => format!("{value:.3}"),
    }
}
