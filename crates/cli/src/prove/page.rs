//! The run's folder: its facts, a line for each block, the result, the page.

use super::Setup;
use super::options::Args;
use super::tell::{self, HEAD};
use crate::run_folder::{self, Kind};
use anyhow::Result;
use machine::EnergySource;
use report::figures::{
    Basis, Card, Limit, Lines, Page, Part, Point, Quantity, Row, Section, Style, Table, Unit,
};
use report::money::Year;
use report::run::RunInfo;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use study::prove::{Block, End, Figure, Outcome, Treatment, Verdict};

const BLOCKS: &str = "blocks.jsonl";
const SUMMARY: &str = "summary.json";
const KIND: Kind = Kind { name: "prove", mark: BLOCKS };

const METHOD: [&str; 4] = [
    "Two neighbouring blocks are a pair, one governed and one not, in an order drawn from the seed. \
     Of each figure the logarithm of the pair's ratio is taken; its interval is Student's over the \
     pairs. A run that could end early has wider intervals, which hold at any end (Jennison and \
     Turnbull 1989).",
    "The beginning of each block is not counted, whatever is seen in it. Pairs whose rates differ \
     by more than the stated share are left out and counted.",
    "Rate and tail are those that the kernel sees at the server's sockets, in ungoverned blocks by \
     the same programs. A client's network is not in them.",
    "Power is the mean over the counted part of a block. CPUs busy and awake are those of the whole \
     machine: busy with any process, awake in no idle state that halts.",
];

pub struct Folder {
    place: PathBuf,
    blocks: File,
    info: Option<RunInfo>,
    /// A line is missing in `blocks`.
    is_short: bool,
}

impl Folder {
    /// Made before the first block, while an error costs nothing; none with `--json` alone.
    pub fn begin(args: &Args, started: &str) -> Result<Option<Self>> {
        if args.json && args.out.is_none() {
            return Ok(None);
        }
        let place = KIND.place(args.out.as_deref(), started)?.make()?;
        run_folder::clear(&place, &[SUMMARY])?;
        let blocks = run_folder::begin(&place, BLOCKS)?;
        Ok(Some(Self { place, blocks, info: None, is_short: false }))
    }

    pub fn info(&mut self, setup: &Setup) -> Result<()> {
        let title = format!("{}: governed against ungoverned", setup.service);
        let mut info = KIND.info(setup.started.clone(), title, &METHOD);
        info.config = setup.config.clone();
        run_folder::write_info(&self.place, &info)?;
        self.info = Some(info);
        Ok(())
    }

    /// One line with one write, so that a kill leaves whole lines. A line for which there is no space
    /// is told, and tried once more at the end: the blocks cost more than the file.
    pub fn block(&mut self, block: &Block) {
        let written = line(block).and_then(|line| {
            let length = self.blocks.metadata()?.len();
            self.blocks.write_all(line.as_bytes()).or_else(|cause| {
                self.blocks.set_len(length)?;
                self.blocks.seek(SeekFrom::End(0))?;
                Err(cause)
            })
        });
        if let Err(cause) = written
            && !std::mem::replace(&mut self.is_short, true)
        {
            eprintln!(
                "cannot write {}: {cause}; the run goes on: free some space before it ends",
                self.place.join(BLOCKS).display()
            );
        }
    }

    /// The results of the blocks so far, for a run that is killed before its end.
    pub fn so_far(&self, setup: &Setup, blocks: &[Block], outcome: &Outcome, year: Option<&Year>) {
        // The end tells of a full disk.
        let _ = self.results(setup, blocks, outcome, year);
    }

    pub fn end(
        self,
        setup: &Setup,
        blocks: &[Block],
        outcome: &Outcome,
        year: Option<&Year>,
    ) -> Result<String> {
        if self.is_short {
            run_folder::write(&self.place, BLOCKS, |file| {
                blocks.iter().try_for_each(|block| file.write_all(line(block)?.as_bytes()))
            })?;
        }
        self.results(setup, blocks, outcome, year)
    }

    fn results(
        &self,
        setup: &Setup,
        blocks: &[Block],
        outcome: &Outcome,
        year: Option<&Year>,
    ) -> Result<String> {
        let document = crate::json::text(1, &tell::document(setup, outcome, year))?;
        run_folder::write(&self.place, SUMMARY, |file| file.write_all(document.as_bytes()))?;
        let Some(info) = &self.info else { return Ok(String::new()) };
        run_folder::write_report(&self.place, &page(info, setup, blocks, outcome, year))
    }
}

fn line(block: &Block) -> io::Result<String> {
    Ok(format!("{}\n", serde_json::to_string(block)?))
}

pub fn page(info: &RunInfo, setup: &Setup, blocks: &[Block], outcome: &Outcome, year: Option<&Year>) -> Page {
    let mut page = Page::of(info);
    page.summary = outcome.sentence.clone();
    page.facts.push(format!("seed {}", setup.seed));
    let is_modelled =
        matches!(setup.meters.first().map(|meter| &meter.source), Some(EnergySource::Modelled(_)));
    if is_modelled {
        page.alarms
            .push(format!("No meter measures power here: it is modelled. {}", setup.describes.join("; ")));
    }
    match &outcome.end {
        End::Broken(why) => page.alarms.push(format!(
            "The run ended after {} of {} blocks: {why}. The blocks that were to follow are missing.",
            outcome.blocks, setup.blocks
        )),
        End::Stopped => page.alarms.push(format!(
            "A signal ended the run after {} of {} blocks, or it goes on; its intervals are those that hold \
             at any end.",
            outcome.blocks, setup.blocks
        )),
        End::Whole | End::Narrow | End::Missed => {}
    }
    page.cards = cards(outcome, year);
    page.sections.push(changes(setup, outcome));
    page.sections.push(over_time(setup, blocks, is_modelled));
    page
}

/// Watts with two decimals, and a zero without a sign.
fn hundredths(watts: f64) -> f64 {
    (100.0 * watts).round() / 100.0 + 0.0
}

fn cards(outcome: &Outcome, year: Option<&Year>) -> Vec<Card> {
    let mut cards = Vec::new();
    if let Some(watts) = outcome.watts_saved {
        let ends = outcome.watts_saved_low.zip(outcome.watts_saved_high);
        cards.push(Card {
            what: "power saved".to_owned(),
            figure: format!("{:.2} W", hundredths(watts)),
            remark: ends.map_or_else(String::new, |(low, high)| {
                format!("{:.2} to {:.2} W, a server", hundredths(low), hundredths(high))
            }),
            met: (outcome.verdict != Verdict::NoDifference).then_some(outcome.verdict == Verdict::Saves),
        });
    }
    let (missed, known) = outcome.missed_governed;
    if known > 0 {
        cards.push(
            Card::new("goal kept", format!("{} of {known}", known - missed), "governed blocks")
                .judged(Some(outcome.verdict != Verdict::Missed)),
        );
    }
    cards.extend(year.map(|year| {
        let doubt = if tell::is_beyond_doubt(outcome) { "" } else { "; no saving is beyond doubt" };
        let figure = year.money_text().or_else(|| year.carbon_text()).unwrap_or_else(|| year.to_string());
        Card::new("saved in a year at this load", figure, format!("{year}{doubt}"))
    }));
    cards
}

fn changes(setup: &Setup, outcome: &Outcome) -> Section {
    let row = |[name, cells @ ..]: [String; 5]| Row::new(name, cells);
    let table = Table::new("", HEAD, tell::rows(setup, outcome).into_iter().map(row));
    Section::new(
        "Governed against ungoverned",
        format!("{}.", tell::pairs(setup, outcome)),
        if outcome.changes.is_empty() { Vec::new() } else { vec![Part::Table(table)] },
    )
}

fn over_time(setup: &Setup, blocks: &[Block], is_modelled: bool) -> Section {
    let lines = |title: &str, see: &str, quantity: Quantity, value: &dyn Fn(&Block) -> Option<f64>| {
        let mut lines = Lines::new(title, see, Quantity::new("time", Unit::Seconds), quantity);
        for treatment in [Treatment::Ungoverned, Treatment::Governed] {
            // A block that does not count is a gap.
            let points = blocks.iter().filter(|block| block.treatment == treatment);
            let point =
                |block: &Block| Point::new(block.began_s, value(block).filter(|_| block.void.is_none()));
            lines.add(treatment.to_string(), Style::Marks, points.map(point));
        }
        lines
    };
    let of = |figure: Figure| move |block: &Block| block.figures.get(&figure.to_string()).copied();
    let mut parts = Vec::new();
    if let Some(meter) = setup.meters.first() {
        let basis = if is_modelled { Basis::Modelled } else { Basis::Measured };
        let quantity = Quantity { basis: Some(basis), ..Quantity::new("power", Unit::Watts) };
        let power = of(Figure::Watts(meter.name.clone()));
        parts.push(lines("Power", "Each mark is a block.", quantity, &power).part());
    }
    let response = Quantity::new("response time", Unit::Nanoseconds).log();
    let mut tail = lines("The tail", "Each mark is a block.", response, &of(Figure::Tail));
    tail.limit = setup.goal.map(|goal| Limit::level(format!("goal {goal}"), goal.latency.as_nanos() as f64));
    parts.push(tail.part());
    if blocks.iter().any(|block| of(Figure::ClientTail)(block).is_some()) {
        let response = Quantity::new("response time", Unit::Nanoseconds).log();
        let see = "As its clients measure it. Each mark is a block.";
        parts.push(lines("The client tail", see, response, &of(Figure::ClientTail)).part());
    }
    let requests = Quantity::new("requests", Unit::PerSecond);
    parts.push(lines("Requests", "Answered per second.", requests, &|block| block.rate_per_s).part());
    let cpus = Quantity::new("CPUs", Unit::Count);
    parts.push(lines("CPUs awake", "In no idle state that halts.", cpus, &of(Figure::AwakeCpus)).part());
    Section::new("Block by block", "", parts)
}
