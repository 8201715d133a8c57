//! The page of the papers' figures.

use super::contest::{Bout, Contest};
use super::corrections::{Effect, Moved};
use super::judged::{Judged, Tally};
use super::library::PAPERS;
use super::metrics::Metric;
use super::sensitivity::Sensitivity;
use super::{Figured, Reproduction, drawings};
use report::figures::{Card, Page, Part, Row, Section, Table};
use std::collections::BTreeSet;
use study::figures::Unit;
use study::page::{Facts, head};

pub fn page(reproduction: &Reproduction<'_>, started: &str) -> Page {
    let figures = &reproduction.figures;
    let names: Vec<String> = figures.iter().map(|figured| figured.study.name()).collect();
    let mut machines = Vec::new();
    for place in figures.iter().flat_map(|figured| &figured.board.places) {
        let platform = &place.planned.run.platform;
        if !machines.iter().any(|known: &machine::Platform| known.name == platform.name) {
            machines.push(platform.clone());
        }
    }
    let estimates: BTreeSet<String> = figures.iter().flat_map(|figured| figured.study.estimates()).collect();
    let mut page = head(&Facts {
        title: "The papers' figures, simulated".to_owned(),
        name: if names.len() > 6 { "roost-papers".to_owned() } else { names.join(", ") },
        command: report::run_folder::command(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: started.to_owned(),
        seed: 1,
        machines,
        estimates: estimates.iter().map(|key| reproduction.library.about(key)).collect(),
        ..Facts::default()
    });
    page.folded.clear();
    if reproduction.is_quick {
        page.alarms.push(
            "Made with --quick: far too few requests, stories cut short. Nothing here is a result."
                .to_owned(),
        );
    }
    if reproduction.is_short {
        page.alarms.push(
            "Made with --short: intervals are wider than a whole run's, and long stories faster.".to_owned(),
        );
    }
    let [first, added] = [false, true].map(|added| reproduction.claims(added));
    let (tally, tally_added) = (Tally::of(first.iter().copied()), Tally::of(added.iter().copied()));
    let claims = if tally.counted() == 0 {
        "No claim of these figures can be judged by numbers.".to_owned()
    } else {
        format!(
            "{} of {} claims are met: the sign is right and the size within 30 %.",
            tally.met,
            tally.counted()
        )
    };
    page.summary = format!(
        "{claims} Each figure has the paper's own words; where it prints numbers they are empty marks or \
         stand beside ours. A quantity that is not published is an ESTIMATE from one table that no figure \
         overrides."
    );
    page.cards = cards(figures, tally, tally_added);
    page.sections.extend(all_claims(&first, &added));
    page.sections.extend(replaced(reproduction));
    page.sections.extend(corrected(reproduction));
    for paper in PAPERS {
        let of_paper = figures.iter().filter(|figured| figured.study.paper.name == paper.name);
        for (place, figured) in of_paper.enumerate() {
            let mut section = section(figured, reproduction);
            if place == 0 {
                section.parts.insert(0, Part::Text(format!("{}.", paper.cited)));
            }
            page.sections.push(section);
        }
    }
    page
}

fn cards(figures: &[Figured<'_>], tally: Tally, added: Tally) -> Vec<Card> {
    let contests = figures.iter().filter(|figured| figured.contest.is_some()).count();
    let won = figures.iter().filter(|figured| figured.is_won()).count();
    let printed = || figures.iter().flat_map(|figured| &figured.printed);
    let others = Tally::of(printed());
    let card = |what: &str, figure: String, remark: &str| Card {
        what: what.to_owned(),
        figure,
        remark: remark.to_owned(),
        met: None,
    };
    let mut cards = Vec::new();
    // Of nothing there is nothing to say.
    let share = |tally: Tally| format!("{} of {}", tally.met, tally.counted());
    if tally.counted() > 0 {
        cards.push(card("claims met", share(tally), "sign right, size within 30 %"));
    }
    if added.counted() > 0 {
        cards.push(card("claims added later, met", share(added), "counted apart"));
    }
    if tally.refuted > 0 {
        let remark = "by the authors' own raw numbers; count neither way";
        cards.push(card("claims refuted", tally.refuted.to_string(), remark));
    }
    if others.counted() > 0 {
        cards.push(card("other numbers and directions met", share(others), ""));
    }
    if tally.checks + others.checks > 0 {
        let checks = (tally.checks + others.checks).to_string();
        cards.push(card("set-up checks", checks, "give back what was put in; not counted"));
    }
    if contests > 0 {
        cards.push(card(
            "figures that joint wins",
            format!("{won} of {contests}"),
            "lower power, no higher tail",
        ));
    }
    cards
}

/// Every claim with its verdict, on top of all figures.
fn all_claims(first: &[&Judged<'_>], added: &[&Judged<'_>]) -> Option<Section> {
    let tables = [("Claims", first), ("Claims added later, counted apart", added)];
    let tables = tables.into_iter().filter(|(_, judged)| !judged.is_empty());
    let parts: Vec<Part> = tables.map(|(title, judged)| Part::Table(claims(title, judged))).collect();
    let text = "Met: the sign is right and the size within 30 %, or within the printed range. Refuted by \
                data: the authors' own raw numbers contradict it; it counts neither way. Not reproducible: \
                a part is missing here; it counts as missed. A miss names its cause and the command that \
                tests it, or says that the cause is not yet tested.";
    (!parts.is_empty()).then(|| Section { title: "All claims".to_owned(), text: text.to_owned(), parts })
}

/// The ESTIMATEs whose place a source outside Roost has taken.
fn replaced(reproduction: &Reproduction<'_>) -> Option<Section> {
    let rows: Vec<Row> = (reproduction.library.replaced().into_iter())
        .map(|(key, source)| Row { name: key, cells: vec![source], ..Row::default() })
        .collect();
    let head = ["ESTIMATE", "replaced by"].map(str::to_owned).to_vec();
    (!rows.is_empty()).then(|| Section {
        title: "ESTIMATEs that a source has replaced".to_owned(),
        text: "No figure uses these any more; the source and not a result took their place.".to_owned(),
        parts: vec![Part::Table(Table { title: String::new(), head, rows })],
    })
}

/// The effect of each correction alone.
fn corrected(reproduction: &Reproduction<'_>) -> Option<Section> {
    let mut parts = Vec::new();
    for effect @ Effect { correction, moved } in &reproduction.effects {
        let mut about = format!("{}: {}. Source: {}.", correction.id, correction.change, correction.source);
        if let Some(elsewhere) = effect.elsewhere() {
            about += &format!(" To see its effect: {elsewhere}.");
        }
        parts.push(Part::Text(about));
        let row = |moved: &Moved| {
            let claim = reproduction.library.claim(&moved.claim)?;
            let number = |value: &Result<f64, String>| {
                value.as_ref().map_or_else(Clone::clone, |&value| claim.text(value))
            };
            let cells = vec![number(&moved.with), number(&moved.without), moved.word().to_owned()];
            Some(Row { name: moved.claim.clone(), cells, ..Row::default() })
        };
        let rows: Vec<Row> = moved.iter().filter_map(row).collect();
        if !rows.is_empty() {
            let head = ["claim", "all corrected", "without this one", ""].map(str::to_owned).to_vec();
            parts.push(Part::Table(Table { title: String::new(), head, rows }));
        }
    }
    (!parts.is_empty()).then(|| Section {
        title: "Each correction alone".to_owned(),
        text:
            "All corrections but one, against all of them, from the same seeds, both in the form of --short."
                .to_owned(),
        parts,
    })
}

fn section(figured: &Figured<'_>, reproduction: &Reproduction<'_>) -> Section {
    let study = &figured.study;
    let says = study.figure.paper_says.iter().map(|says| format!("\u{201c}{says}\u{201d}"));
    let mut parts: Vec<Part> = drawings::of(figured, reproduction);
    if !figured.headlines.is_empty() {
        let verdict = |judged: &Judged<'_>| format!("{}: {}", judged.claim.id, judged.verdict_text());
        let verdicts: Vec<String> = figured.headlines.iter().map(verdict).collect();
        parts.push(Part::Text(format!(
            "Claims, with their numbers in the table on top: {}.",
            verdicts.join("; ")
        )));
    }
    if !figured.printed.is_empty() {
        let printed: Vec<&Judged<'_>> = figured.printed.iter().collect();
        parts.push(Part::Table(claims("Other numbers and directions", &printed)));
    }
    if let Some((contest, bouts)) = &figured.contest {
        parts.push(Part::Table(bouts_table(contest, bouts, figured.is_won())));
    }
    for sensitivity in &figured.sensitivities {
        parts.extend(sensitivity_table(figured, sensitivity).map(Part::Table));
    }
    parts.push(Part::Text(format!("Assumed: {}.", study.assumptions().join("; "))));
    let estimates = study.estimates();
    if !estimates.is_empty() {
        parts.push(Part::Text(format!("ESTIMATEs: {}.", estimates.join(", "))));
    }
    Section {
        title: format!("{} {}: {}", study.paper.short, study.figure.name, study.figure.title),
        text: format!("The paper: {}.", says.collect::<Vec<_>>().join("; ")),
        parts,
    }
}

fn claims(title: &str, judged: &[&Judged<'_>]) -> Table {
    let row = |judged: &&Judged<'_>| {
        let claim = judged.claim;
        let conditions = (!claim.conditions.is_empty()).then(|| claim.conditions.clone());
        let said = std::iter::once(claim.says.clone()).chain(conditions).collect::<Vec<_>>().join("; ");
        let remark = std::iter::once(said).chain(judged.remarks()).collect::<Vec<_>>().join(". ");
        let cells =
            vec![claim.paper_text(), judged.ours(), judged.interval(), judged.verdict_text().to_owned()];
        Row { name: claim.id.clone(), remark, cells, look: None }
    };
    Table {
        title: title.to_owned(),
        head: ["claim", "paper", "ours", "95 % interval", "verdict"].map(str::to_owned).to_vec(),
        rows: judged.iter().map(row).collect(),
    }
}

fn bouts_table(contest: &Contest, bouts: &[Bout], is_won: bool) -> Table {
    let unit = contest.power.parse::<Metric>().map_or(Unit::Watts, |metric| metric.unit());
    let row = |bout: &Bout| {
        let [power, tail] = bout.pairs_text();
        let cells = vec![
            unit.estimate_text(&bout.power[0]),
            unit.estimate_text(&bout.power[1]),
            power,
            bout.floor_text(unit),
            Unit::Nanoseconds.estimate_text(&bout.tail[0]),
            Unit::Nanoseconds.estimate_text(&bout.tail[1]),
            tail,
            if bout.is_won { "won" } else { "not won" }.to_owned(),
        ];
        Row { name: bout.run.clone(), cells, ..Row::default() }
    };
    let word = if is_won { "won" } else { "not won" };
    let differences = contest.differences().replace('`', "");
    let stop = if differences.is_empty() { "" } else { "." };
    Table {
        title: format!(
            "Roost's own, {}, with the tail of {} as its goal: {word}{stop}{differences}",
            contest.ours, contest.own
        ),
        head: ["", "power", "ours", "in pairs", "floor, ours above it", "tail", "ours", "in pairs", ""]
            .map(str::to_owned)
            .to_vec(),
        rows: bouts.iter().map(row).collect(),
    }
}

/// Rows of each table; the rest is in results.json.
const ROWS: usize = 6;

fn sensitivity_table(figured: &Figured<'_>, found: &Sensitivity) -> Option<Table> {
    let claim = figured.headlines.iter().find(|judged| judged.claim.id == found.claim)?.claim;
    let text = |value: &Result<f64, String>| match value {
        Ok(value) => claim.text(*value),
        Err(problem) => problem.clone(),
    };
    let rows = found.moved.iter().take(ROWS).map(|moved| Row {
        name: moved.estimate.clone(),
        cells: vec![
            text(&moved.with[0]),
            text(&moved.with[1]),
            if moved.turns { "turns the verdict" } else { "" }.to_owned(),
        ],
        ..Row::default()
    });
    Some(Table {
        title: format!(
            "What {} rests on: {} in the short form; with each ESTIMATE 30 % less and 30 % more",
            claim.id,
            text(&found.base)
        ),
        head: ["", "-30 %", "+30 %", ""].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    })
}
