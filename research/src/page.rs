//! The page of the papers' figures.

use super::contest::{Bout, Contest};
use super::judged::{Judged, Verdict};
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
    let judged = || figures.iter().flat_map(|figured| &figured.headlines);
    let count = |verdict| judged().filter(|judged| judged.verdict() == verdict).count();
    let (met, missed, checks) = (count(Verdict::Met), count(Verdict::Missed), count(Verdict::Check));
    let claims = if met + missed == 0 {
        "No claim of these figures can be judged by numbers.".to_owned()
    } else {
        format!("{met} of {} claims are met: the sign is right and the size within 30 %.", met + missed)
    };
    page.summary = format!(
        "{claims} Each figure has the paper's own words; where it prints numbers they are empty marks or \
         stand beside ours. A quantity that is not published is an ESTIMATE from one table that no figure \
         overrides."
    );
    page.cards = cards(figures, met, missed, checks);
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

fn cards(figures: &[Figured<'_>], met: usize, missed: usize, checks: usize) -> Vec<Card> {
    let contests = figures.iter().filter(|figured| figured.contest.is_some()).count();
    let won = figures.iter().filter(|figured| figured.is_won()).count();
    let printed = || figures.iter().flat_map(|figured| &figured.printed);
    let printed_met = printed().filter(|judged| judged.verdict() == Verdict::Met).count();
    let card = |what: &str, figure: String, remark: &str| Card {
        what: what.to_owned(),
        figure,
        remark: remark.to_owned(),
        met: None,
    };
    let mut cards = Vec::new();
    // Of nothing there is nothing to say.
    if met + missed > 0 {
        cards.push(card("claims met", format!("{met} of {}", met + missed), "sign right, size within 30 %"));
    }
    let of = printed().filter(|judged| judged.verdict() != Verdict::Check).count();
    if of > 0 {
        cards.push(card("other numbers and directions met", format!("{printed_met} of {of}"), ""));
    }
    if checks > 0 {
        cards.push(card("set-up checks", checks.to_string(), "give back what was put in; not counted"));
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

fn section(figured: &Figured<'_>, reproduction: &Reproduction<'_>) -> Section {
    let study = &figured.study;
    let says = study.figure.paper_says.iter().map(|says| format!("\u{201c}{says}\u{201d}"));
    let mut parts: Vec<Part> = drawings::of(figured, reproduction);
    for (title, judged) in
        [("What the paper claims", &figured.headlines), ("Other numbers and directions", &figured.printed)]
    {
        if !judged.is_empty() {
            parts.push(Part::Table(claims(title, judged)));
        }
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

fn claims(title: &str, judged: &[Judged<'_>]) -> Table {
    let row = |judged: &Judged<'_>| {
        let claim = judged.claim;
        let remarks = judged.remarks();
        let mut remark = format!("{}; {}", claim.says, claim.conditions);
        if !remarks.is_empty() {
            remark = format!("{remark}. {}", remarks.join(". "));
        }
        let ours = match &judged.spread()[..] {
            "-" => judged.ours(),
            spread => format!("{} {spread}", judged.ours()),
        };
        let cells = vec![claim.paper_text(), ours, judged.deviation(), judged.verdict_text().to_owned()];
        Row { name: claim.id.clone(), remark, cells, look: None }
    };
    Table {
        title: title.to_owned(),
        head: ["", "paper", "ours", "deviation", ""].map(str::to_owned).to_vec(),
        rows: judged.iter().map(row).collect(),
    }
}

fn bouts_table(contest: &Contest, bouts: &[Bout], is_won: bool) -> Table {
    let unit = contest.power.parse::<Metric>().map_or(Unit::Watts, |metric| metric.unit());
    let row = |bout: &Bout| Row {
        name: bout.run.clone(),
        cells: vec![
            unit.estimate_text(&bout.power[0]),
            unit.estimate_text(&bout.power[1]),
            Unit::Nanoseconds.estimate_text(&bout.tail[0]),
            Unit::Nanoseconds.estimate_text(&bout.tail[1]),
            if bout.is_won { "won" } else { "not won" }.to_owned(),
        ],
        ..Row::default()
    };
    let word = if is_won { "won" } else { "not won" };
    Table {
        title: format!("Roost's own, {}, with the tail of {} as its goal: {word}", contest.ours, contest.own),
        head: ["", "power", "ours", "tail", "ours", ""].map(str::to_owned).to_vec(),
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
            "What {} rests on: {} with each ESTIMATE 30 % less and 30 % more",
            claim.id,
            text(&found.base)
        ),
        head: ["", "-30 %", "+30 %", ""].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    })
}
