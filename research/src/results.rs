//! Everything that came out, as one JSON document: figures with their runs, claims, contests,
//! sensitivities.

use super::contest::Bout;
use super::corrections::Effect;
use super::judged::{Judged, Tally};
use super::sensitivity::Sensitivity;
use super::{Figured, Reproduction};
use serde::Serialize;
use sim::Outcome;
use std::collections::BTreeMap;

#[derive(Serialize)]
pub struct Results<'a> {
    format: u32,
    version: &'static str,
    /// Too few requests to be trusted.
    quick: bool,
    /// Wider intervals than a whole run's.
    short: bool,
    /// The claims of the first list, those added to it, and how each list came out.
    tally: Tally,
    tally_added: Tally,
    figures: Vec<FigureResult<'a>>,
    /// The effect of each correction alone, if that was asked for.
    corrections: &'a [Effect<'a>],
    untried: Vec<ClaimResult<'a>>,
}

#[derive(Serialize)]
struct FigureResult<'a> {
    paper: &'a str,
    figure: &'a str,
    title: &'a str,
    paper_says: &'a [String],
    assumptions: Vec<String>,
    estimates: Vec<String>,
    headlines: Vec<ClaimResult<'a>>,
    printed: Vec<ClaimResult<'a>>,
    contest: Option<ContestResult<'a>>,
    sensitivities: &'a [Sensitivity],
    runs: Vec<RunResult<'a>>,
}

#[derive(Serialize)]
struct ClaimResult<'a> {
    id: &'a str,
    says: &'a str,
    conditions: &'a str,
    form: super::claim::Form,
    paper: Option<f64>,
    bar: Option<[f64; 2]>,
    added: bool,
    ours: Option<f64>,
    half_width: Option<f64>,
    deviation: Option<f64>,
    verdict: super::judged::Verdict,
    remarks: Vec<String>,
}

#[derive(Serialize)]
struct ContestResult<'a> {
    ours: &'a str,
    own: &'a str,
    is_won: bool,
    rounds: &'a [Bout],
}

#[derive(Serialize)]
struct RunResult<'a> {
    axes: &'a BTreeMap<String, String>,
    contestant: &'a str,
    policies: &'a str,
    outcome: Option<&'a Outcome>,
}

const FORMAT: u32 = 2;

impl<'a> Results<'a> {
    pub fn new(reproduction: &'a Reproduction<'_>) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            quick: reproduction.is_quick,
            tally: Tally::of(reproduction.claims(false).into_iter()),
            tally_added: Tally::of(reproduction.claims(true).into_iter()),
            corrections: &reproduction.effects,
            short: reproduction.is_short,
            untried: reproduction.untried.iter().map(ClaimResult::new).collect(),
            figures: reproduction
                .figures
                .iter()
                .map(|figure| FigureResult::new(reproduction, figure))
                .collect(),
        }
    }
}

impl<'a> FigureResult<'a> {
    fn new(reproduction: &'a Reproduction<'_>, figured: &'a Figured<'_>) -> Self {
        let study = &figured.study;
        let runs = figured.board.places.iter().map(|place| RunResult {
            axes: &place.axes,
            contestant: &place.contestant,
            policies: &place.policies,
            outcome: reproduction.runs.of(&place.planned),
        });
        Self {
            paper: study.paper.name,
            figure: &study.figure.name,
            title: &study.figure.title,
            paper_says: &study.figure.paper_says,
            assumptions: study.assumptions(),
            estimates: study.estimates(),
            headlines: figured.headlines.iter().map(ClaimResult::new).collect(),
            printed: figured.printed.iter().map(ClaimResult::new).collect(),
            contest: figured.contest.as_ref().map(|(contest, rounds)| ContestResult {
                ours: &contest.ours,
                own: &contest.own,
                is_won: figured.is_won(),
                rounds,
            }),
            sensitivities: &figured.sensitivities,
            runs: runs.collect(),
        }
    }
}

impl<'a> ClaimResult<'a> {
    fn new(judged: &'a Judged<'_>) -> Self {
        let claim = judged.claim;
        let found = judged.found.as_ref().ok();
        Self {
            id: &claim.id,
            says: &claim.says,
            conditions: &claim.conditions,
            form: claim.form,
            paper: claim.value,
            bar: claim.missing.is_none().then(|| claim.bar()),
            added: claim.added,
            ours: found.map(|found| found.value),
            half_width: found.and_then(|found| found.half_width),
            deviation: found.and_then(|found| claim.deviation(found.value)),
            verdict: judged.verdict(),
            remarks: judged.remarks(),
        }
    }
}
