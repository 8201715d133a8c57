//! Which ESTIMATE moves a claim most: each that its figure uses is varied by 30 % to either side,
//! and only the runs that the claim needs are made again, with the same seed, so that the same
//! requests arrive and differences are not chance.

use super::board::Board;
use super::claim::Claim;
use super::library::{Library, Study};
use super::runs::Runs;
use super::vary::{self, Estimate};
use anyhow::Result;
use serde::Serialize;
use sim::Document;

pub const FACTORS: [f64; 2] = [0.7, 1.3];

/// The change of a claim's number.
#[derive(Clone, Debug, Serialize)]
pub struct Moved {
    pub estimate: String,
    /// The number with 30 % less and 30 % more of it; or why it cannot be had.
    pub with: [Result<f64, String>; 2],
    /// The larger of the two changes, in absolute terms; zero if there is none.
    pub by: f64,
    /// The verdict would be another.
    pub turns: bool,
}

/// One claim's table, the strongest first.
#[derive(Clone, Debug, Serialize)]
pub struct Sensitivity {
    pub claim: String,
    /// Its number without a variation, from runs of the same length.
    pub base: Result<f64, String>,
    /// The effect of each ESTIMATE on it.
    pub moved: Vec<Moved>,
}

/// The runs for the tables of a figure: the unvaried board, and one for each ESTIMATE and factor.
pub struct Plan<'a> {
    claims: Vec<&'a Claim>,
    base: Board,
    varied: Vec<(Estimate, [Result<Board, String>; 2])>,
}

impl<'a> Plan<'a> {
    /// Of a figure and the claims that are computed from it. `length` gives a document the length
    /// of the study's.
    pub fn new(
        library: &Library,
        study: &Study,
        claims: Vec<&'a Claim>,
        length: impl Fn(&Document) -> Result<Document>,
    ) -> Result<Self> {
        let base = Board::new(&study.document)?;
        let board = |estimate: &Estimate, factor| {
            // A value that the machine cannot have (a sleep that takes more than work) is told and
            // not run.
            estimate.vary(library, study, factor, &length).map_err(|error| reason(&error))
        };
        let varied = vary::used(library, study)?.into_iter().map(|estimate| {
            let boards = FACTORS.map(|factor| board(&estimate, factor));
            (estimate, boards)
        });
        Ok(Self { claims, base, varied: varied.collect() })
    }

    /// Every run that the claims need.
    pub fn runs(&self) -> Vec<&study::grid::Planned> {
        let boards = self.varied.iter().flat_map(|(_, boards)| boards.iter().flatten());
        let needs = |board: &'_ Board| -> Vec<usize> {
            let mut places: Vec<usize> =
                self.claims.iter().flat_map(|claim| claim.needs(board).unwrap_or_default()).collect();
            places.sort_unstable();
            places.dedup();
            places
        };
        std::iter::once(&self.base)
            .chain(boards)
            .flat_map(|board| needs(board).into_iter().map(|place| &board.places[place].planned))
            .collect()
    }

    /// The tables, from runs that have been made.
    pub fn tables(&self, runs: &Runs) -> Vec<Sensitivity> {
        self.claims.iter().map(|claim| self.table(claim, runs)).collect()
    }

    fn table(&self, claim: &Claim, runs: &Runs) -> Sensitivity {
        let evaluate = |board: &Board| {
            let outcomes: Vec<_> = board.places.iter().map(|place| runs.of(&place.planned)).collect();
            claim.evaluate(board, &outcomes).map(|found| found.value)
        };
        let base = evaluate(&self.base);
        let mut moved: Vec<Moved> = (self.varied.iter())
            .map(|(estimate, boards)| {
                let with = [0, 1].map(|at| boards[at].as_ref().map_err(Clone::clone).and_then(evaluate));
                let change = |value: &Result<f64, String>| match (value, &base) {
                    (Ok(value), Ok(base)) => (value - base).abs(),
                    _ => 0.0,
                };
                let by = with.iter().map(change).fold(0.0, f64::max);
                let turns = base.as_ref().is_ok_and(|&base| {
                    with.iter().flatten().any(|&value| claim.holds(value) != claim.holds(base))
                });
                Moved { estimate: estimate.key.clone(), with, by, turns }
            })
            .collect();
        moved.sort_by(|a, b| b.by.total_cmp(&a.by));
        Sensitivity { claim: claim.id.clone(), base, moved }
    }
}

/// The last line of an error's message: the problem, without the file.
fn reason(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let line = text.lines().next().unwrap_or_default();
    line.split_once(".toml: ").map_or(line, |(_, rest)| rest).to_owned()
}
