//! Text for the terminal: all figures; the runs of a figure; the verdicts on the claims.

use super::corrections::Effect;
use super::judged::{Judged, Tally, Verdict};
use super::library::Library;
use super::metrics::Metric;
use super::{Board, Figured, Reproduction, Request, corrections, runs, sensitivity};
use report::table::Table;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use study::grid::Planned;

/// Every figure, or those of some papers; with the cost of `--sensitivity` and `--corrections` where
/// these are asked for.
pub fn list(library: &Library, request: &Request) -> anyhow::Result<String> {
    let (names, compared) = (&request.names, request.compared());
    let names = if names.is_empty() { library.names()? } else { library.select(names)? };
    let undo = &request.undo;
    let only_undone = if undo.is_empty() { None } else { Some(library.select(undo)?) };
    let mut table = Table::new(
        1,
        ["", "runs", "requests", "minutes", "varied", "undone", "  title"].map(str::to_owned).to_vec(),
    );
    let mut seen = BTreeSet::new();
    let mut all = [0.0; 3];
    for (paper, name) in names {
        let mut study = library.study(paper, &name, &library.estimates)?;
        study.document = request.length(&study.document)?;
        let board = Board::new(&study.document)?;
        let own: Vec<&Planned> = board.places.iter().map(|place| &place.planned).collect();
        let (title, runs) = (study.figure.title.clone(), own.len());
        let mut minutes = |planned: Vec<&Planned>| -> f64 {
            let new = planned.into_iter().filter(|planned| seen.insert(planned.key.scenario.clone()));
            new.map(runs::requests).sum::<f64>() / REQUESTS_PER_CORE_MINUTE
        };
        let requests: f64 = own.iter().map(|planned| runs::requests(planned)).sum();
        let mut cost = [minutes(own), 0.0, 0.0];
        let length = |document: &sim::Document| compared.length(document);
        let mut shorter = library.study(paper, &name, &library.estimates)?;
        shorter.document = length(&shorter.document)?;
        if request.sensitivity {
            let claims = super::claims(&library.headlines, &study);
            cost[1] = minutes(sensitivity::Plan::new(library, &shorter, claims, length)?.runs());
        }
        let is_undone = super::is_among(&study, only_undone.as_ref());
        if is_undone && (request.corrections || only_undone.is_some()) {
            let board = Board::new(&shorter.document)?;
            let studies = [(shorter, board)];
            for correction in &library.corrections {
                cost[2] += minutes(corrections::Plan::new(library, correction, &studies, length)?.runs());
            }
        }
        let row = [study.name(), runs.to_string(), format!("{:.1}M", requests / 1e6)];
        let costs = cost.iter().map(|minutes| format!("{minutes:.1}"));
        table.row(row.into_iter().chain(costs).chain([format!("  {title}")]).collect());
        all.iter_mut().zip(cost).for_each(|(all, cost)| *all += cost);
    }
    let [own, varied, undone] = all;
    let note = "\nminutes of one core; a run that several figures show stands with the first of them";
    Ok(format!("{}{note}\nin all {own:.0}, {varied:.0} varied, {undone:.0} undone\n", table.text()))
}

/// One core simulates so much in a minute: 4 million requests a second with connections and a
/// policy, see `roost-bench sim`.
const REQUESTS_PER_CORE_MINUTE: f64 = 60.0 * 4e6;

/// A table of runs that is longer is for `results.json`, and so are the tables of so many figures.
const ROWS_SHOWN: usize = 40;
const FIGURES_SHOWN: usize = 5;

pub fn text(reproduction: &Reproduction<'_>) -> String {
    let mut text = String::new();
    let figures = reproduction.figures.len();
    for figured in &reproduction.figures {
        let study = &figured.study;
        let rows = figured.board.places.len();
        if figures <= FIGURES_SHOWN || figured.contest.is_some() {
            let _ = writeln!(text, "\n{} {}: {}", study.paper.short, study.figure.name, study.figure.title);
        }
        match figures {
            1 => text += &runs_of(figured, reproduction),
            2..=FIGURES_SHOWN if rows <= ROWS_SHOWN => text += &runs_of(figured, reproduction),
            2..=FIGURES_SHOWN => {
                let _ = writeln!(text, "{rows} runs; see results.json");
            }
            _ => {}
        }
        if let Some((contest, bouts)) = &figured.contest {
            let won = bouts.iter().filter(|bout| bout.is_won).count();
            let word = if figured.is_won() { "won" } else { "not won" };
            let _ = writeln!(
                text,
                "ours: {} against {}: {won} of {} rounds, {word}",
                contest.ours,
                contest.own,
                bouts.len()
            );
        }
    }
    let printed: Vec<&Judged<'_>> =
        reproduction.figures.iter().flat_map(|figured| &figured.printed).collect();
    let [first, added] = [false, true].map(|added| reproduction.claims(added));
    for (heading, judged) in [
        ("what the papers claim", &first),
        ("claims added later", &added),
        ("other numbers and directions", &printed),
    ] {
        if !judged.is_empty() {
            let _ = write!(text, "\n{heading}\n{}", claims(judged));
        }
    }
    let causes: Vec<String> = (first.iter().chain(&added))
        .filter(|judged| matches!(judged.verdict(), Verdict::Missed | Verdict::NotReproducible))
        .filter_map(|judged| Some(format!("{}: {}\n", judged.claim.id, judged.remarks().pop()?)))
        .collect();
    if !causes.is_empty() {
        let _ = write!(text, "\nmisses\n{}", causes.concat());
    }
    let (tally, apart) = (Tally::of(first.into_iter()), Tally::of(added.into_iter()));
    if tally.counted() > 0 {
        let _ = writeln!(text, "\n{} of {} claims met", tally.met, tally.counted());
    }
    if tally.refuted > 0 {
        let _ = writeln!(text, "{} refuted by the authors' data: count neither way", tally.refuted);
    }
    if apart.counted() > 0 {
        let _ = writeln!(text, "{} of {} claims added later met", apart.met, apart.counted());
    }
    for effect in &reproduction.effects {
        text += &corrected(effect, reproduction);
    }
    if reproduction.is_short {
        text += "\nshort: wider intervals than a whole run's, and long stories faster\n";
    }
    if reproduction.is_quick {
        text += "\nquick: far too few requests; nothing here is a result\n";
    }
    text
}

/// The effect of one correction alone, or how to compare builds.
fn corrected(effect: &Effect<'_>, reproduction: &Reproduction<'_>) -> String {
    let correction = effect.correction;
    let mut text = format!("\ncorrection {}: {}\n", correction.id, correction.change);
    if let Some(elsewhere) = effect.elsewhere() {
        let _ = writeln!(text, "{elsewhere}");
        return text;
    }
    let mut table = Table::new(1, ["", "all corrected", "without it", "verdict"].map(str::to_owned).to_vec());
    for moved in &effect.moved {
        let Some(claim) = reproduction.library.claim(&moved.claim) else { continue };
        let number = |value: &Result<f64, String>| {
            value.as_ref().map_or_else(Clone::clone, |&value| claim.text(value))
        };
        table.row(vec![
            moved.claim.clone(),
            number(&moved.with),
            number(&moved.without),
            moved.word().to_owned(),
        ]);
    }
    text + &table.text()
}

fn runs_of(figured: &Figured<'_>, reproduction: &Reproduction<'_>) -> String {
    let metrics: Vec<Metric> = figured.study.figure.y.iter().filter_map(|name| name.parse().ok()).collect();
    let header = std::iter::once(String::new()).chain(metrics.iter().map(ToString::to_string));
    let mut table = Table::new(1, header.collect());
    for place in &figured.board.places {
        let Some(outcome) = reproduction.runs.of(&place.planned) else { continue };
        if outcome.verdict == sim::outcome::Verdict::Unstable {
            table.remark(place.name(), "unstable");
            continue;
        }
        let text = |metric: &Metric| {
            metric.of(outcome).map_or_else(|| "-".to_owned(), |found| metric.unit().estimate_text(&found))
        };
        table.row(std::iter::once(place.name()).chain(metrics.iter().map(text)).collect());
    }
    table.text()
}

fn claims(judged: &[&Judged<'_>]) -> String {
    let mut table = Table::new(1, ["", "paper", "ours", "interval", "verdict"].map(str::to_owned).to_vec());
    for judged in judged {
        table.row(vec![
            judged.claim.id.clone(),
            judged.claim.paper_text(),
            judged.ours(),
            judged.interval(),
            judged.verdict_text().to_owned(),
        ]);
    }
    table.text()
}
