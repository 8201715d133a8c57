//! The papers' own figures, simulated, beside the printed ones.
//!
//! A figure is a scenario in `papers/`, and nothing in it may be chosen to please: an unpublished
//! quantity stands in one table of ESTIMATEs that was committed before the first run. The papers'
//! claims stand in `papers/headlines.toml`; a claim is met when its sign is right and its size is
//! within 30 %. A miss is printed as a miss.
//!
//! ```text
//!   authors/        real runs of the Hurry-up authors, and those that count
//!   library.rs      the folder papers/: figures, claims, ESTIMATEs
//!   board.rs        a figure's runs and where each stands
//!   runs.rs         runs made once and kept
//!   cost.rs         the cost of each figure's runs, told at the end
//!   metrics.rs      the compared quantities
//!   claim.rs        the claims of a paper, and our values
//!   judged.rs       the same in words
//!   corrections.rs  corrections of the scenarios, the effect of each alone
//!   contest.rs      Roost's own policy against each paper's
//!   vary.rs         an ESTIMATE 30 % more or less
//!   sensitivity.rs  which of them moves a claim most
//!   terminal.rs     text for the terminal at the end
//!   results.rs      results for programs
//!   drawings.rs     a figure as the paper shows it
//!   page.rs         report.html
//!   markdown.rs     docs/papers.md
//! ```

pub mod authors;
mod board;
mod claim;
mod contest;
pub mod corrections;
pub mod cost;
mod drawings;
mod judged;
pub mod library;
pub mod markdown;
mod metrics;
mod page;
pub mod results;
pub mod runs;
mod sensitivity;
pub mod terminal;
mod vary;

use anyhow::Result;
use board::Board;
use contest::{Bout, Contest, Round};
use corrections::Effect;
use cost::{Cost, Part};
use judged::Judged;
use library::{Library, Study};
use report::exit::usage;
use results::Results;
use runs::Runs;
use sensitivity::{Plan, Sensitivity};
use sim::Document;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;
use study::folder;
use study::progress::Progress;
use toml::Value;

#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Papers and figures: `carb`, `carb/4`, `all`.
    pub names: Vec<String>,
    /// Few requests: nothing that could be trusted.
    pub is_quick: bool,
    /// A tenth of the requests, a third of the repetitions, long stories in a third of their time:
    /// wider intervals.
    pub is_short: bool,
    /// Show the effect of each correction alone.
    pub corrections: bool,
    /// Show it only in these.
    pub undo: Vec<String>,
    /// Vary each ESTIMATE that a claim rests on.
    pub sensitivity: bool,
    /// Vary only in these.
    pub vary: Vec<String>,
    /// Runs at the same time; all CPUs without it.
    pub threads: Option<NonZeroUsize>,
    /// Nothing on standard error.
    pub is_silent: bool,
}

/// A figure and all that came of it.
pub struct Figured<'a> {
    pub study: Study,
    pub board: Board,
    pub headlines: Vec<Judged<'a>>,
    pub printed: Vec<Judged<'a>>,
    pub contest: Option<(&'a Contest, Vec<Bout>)>,
    /// Which ESTIMATE moves the claims; empty if that was not asked for.
    pub sensitivities: Vec<Sensitivity>,
}

impl Figured<'_> {
    /// Roost's own policy won every round.
    pub fn is_won(&self) -> bool {
        self.contest
            .as_ref()
            .is_some_and(|(_, bouts)| !bouts.is_empty() && bouts.iter().all(|bout| bout.is_won))
    }
}

pub struct Reproduction<'a> {
    /// The requested part of the papers.
    pub library: &'a Library,
    pub figures: Vec<Figured<'a>>,
    /// Claims of the papers in question whose figure nothing simulates.
    pub untried: Vec<Judged<'a>>,
    /// Corrections and their effects; empty if that was not asked for.
    pub effects: Vec<Effect<'a>>,
    pub runs: &'a Runs,
    /// Too few requests to be trusted.
    pub is_quick: bool,
    /// Wider intervals than a whole run's.
    pub is_short: bool,
    pub cost: Cost,
}

impl<'a> Reproduction<'a> {
    /// Every claim of these papers, in their order: those of the first list, or those added to it.
    pub fn claims(&self, added: bool) -> Vec<&Judged<'a>> {
        let judged = || self.figures.iter().flat_map(|figured| &figured.headlines).chain(&self.untried);
        let of_paper = |paper: &'static str| judged().filter(move |judged| judged.claim.paper == paper);
        let papers = library::PAPERS.iter().flat_map(|paper| of_paper(paper.name));
        papers.filter(|judged| judged.claim.added == added).collect()
    }
}

/// The figures that were named, with their runs.
fn plan(library: &Library, request: &Request) -> Result<Vec<(Study, Board)>> {
    let plan = |(paper, name): (library::Paper, String)| {
        let mut study = library.study(paper, &name, &library.estimates)?;
        study.document = request.length(&study.document)?;
        let board = Board::new(&study.document)?;
        Ok((study, board))
    };
    library.select(&request.names)?.into_iter().map(plan).collect()
}

impl Request {
    /// Runs whose difference alone counts: an ESTIMATE varied, a correction undone. The same requests
    /// arrive on both sides, so the short form is enough; both sides have its length.
    pub fn compared(&self) -> Self {
        Self { is_short: !self.is_quick, ..self.clone() }
    }

    /// A scenario with the length that was asked for.
    pub fn length(&self, document: &Document) -> Result<Document> {
        let run = document.scenario().map_err(usage)?.run;
        let (requests, replications) = match () {
            // Stories told once and not to their end.
            () if self.is_quick => (run.requests.min(QUICK_REQUESTS), 1),
            // A story cannot be told in part: its ends would be others. So it is told less often, or
            // faster where it is told once.
            () if self.is_short && run.length.is_some() => {
                (run.requests, run.replications.min(SHORT_REPLICATIONS))
            }
            () if self.is_short => {
                ((run.requests / SHORT_PART).max(run.requests.min(SHORT_LEAST)), run.replications)
            }
            () => return Ok(document.clone()),
        };
        let mut document =
            document.with("run.requests", &Value::Integer(requests.cast_signed())).map_err(usage)?;
        let once = run.length.filter(|length| run.replications == 1 && length.0 >= LONG_STORY);
        if let Some(length) = once.filter(|_| self.is_short) {
            let shorter = format!("{}ns", length.0.as_nanos() / u64::from(SHORT_STORY_PART));
            document = document.with("run.length", &Value::String(shorter)).map_err(usage)?;
        }
        document.with("run.replications", &Value::Integer(i64::from(replications))).map_err(usage)
    }
}

/// Enough for every estimate to exist.
const QUICK_REQUESTS: u64 = 12_000;

/// A short run has one in so many of a whole one's requests, and at least so many.
const SHORT_PART: u64 = 10;
const SHORT_LEAST: u64 = 20_000;

/// The fewest repetitions that give an interval which is of use.
const SHORT_REPLICATIONS: u32 = 3;

/// A story that is told once and takes so long is told in a third of its time: times of policies
/// that are not scaled with it weigh threefold.
const LONG_STORY: machine::Duration = machine::Duration::from_secs(600);
const SHORT_STORY_PART: u32 = 3;

/// Makes all open runs and judges them.
pub fn reproduce<'a>(
    library: &'a Library,
    runs: &'a mut Runs,
    request: &Request,
) -> Result<Reproduction<'a>> {
    let began = Instant::now();
    let planned = plan(library, request)?;
    // A wrong name is refused before the first run.
    let some = |names: &[String]| {
        if names.is_empty() { Ok(None) } else { library.select(names).map(Some) }
    };
    let (only_varied, only_undone) = (some(&request.vary)?, some(&request.undo)?);
    let compared = request.compared();
    let length = |document: &Document| compared.length(document);
    let varies = request.sensitivity || only_varied.is_some();
    let undoes = request.corrections || only_undone.is_some();
    let shorter = if varies || undoes { plan(library, &compared)? } else { Vec::new() };
    let mut plans: Vec<Option<Plan<'_>>> = Vec::new();
    if varies {
        for (study, _) in &shorter {
            let plan = is_among(study, only_varied.as_ref())
                .then(|| Plan::new(library, study, claims(&library.headlines, study), length));
            plans.push(plan.transpose()?);
        }
    }
    let mut undone: Vec<corrections::Plan<'_>> = Vec::new();
    // Their figures, as places among all that were planned.
    let meant: Vec<usize> =
        (0..planned.len()).filter(|&at| is_among(&planned[at].0, only_undone.as_ref())).collect();
    if undoes {
        let studies: Vec<(Study, Board)> = meant.iter().map(|&at| shorter[at].clone()).collect();
        for correction in &library.corrections {
            undone.push(corrections::Plan::new(library, correction, &studies, length)?);
        }
    }
    let contest_of = |study: &Study| library.contests.iter().find(|contest| contest.is_of(study));
    // All is planned but ours, whose goals are tails that are still to be found.
    let mut contests: Vec<Option<(&Contest, Vec<Round>)>> = Vec::new();
    for (study, board) in &planned {
        let rounds = |contest: &'a Contest| Ok::<_, anyhow::Error>((contest, contest.rounds(board)?));
        contests.push(contest_of(study).map(rounds).transpose()?);
    }
    challenge(&planned, &mut contests, runs)?;
    let theirs: Vec<_> = rounds_of(&contests).map(|round| round.theirs.clone()).collect();
    let own = || {
        let places = planned.iter().flat_map(|(_, board)| board.places.iter().map(|place| &place.planned));
        places.chain(&theirs)
    };
    let varied = || plans.iter().flatten().flat_map(Plan::runs);
    let corrected = || undone.iter().flat_map(corrections::Plan::runs);
    let to_come = runs.missing(own().chain(varied()).chain(corrected()));
    // Each as long as the paper's own.
    let is_open = |round: &&Round| round.ours.as_ref().is_none_or(|ours| runs.of(ours).is_none());
    let opponents: Vec<f64> =
        rounds_of(&contests).filter(is_open).map(|round| runs::requests(&round.theirs)).collect();
    let requests = to_come.iter().map(|planned| runs::requests(planned)).chain(opponents.iter().copied());
    let threads = request
        .threads
        .map_or_else(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get), NonZeroUsize::get);
    let number = to_come.len() + opponents.len();
    let progress = Progress::weighed(number, requests.sum(), threads, request.is_silent);
    let missing = runs.missing(own());
    runs.make(&missing, threads, &progress)?;
    // The paper's policy first: its tail is ours's goal.
    challenge(&planned, &mut contests, runs)?;
    let ours = || rounds_of(&contests).filter_map(|round| round.ours.as_ref());
    let missing = runs.missing(ours());
    runs.make(&missing, threads, &progress)?;
    let missing = runs.missing(varied());
    runs.make(&missing, threads, &progress)?;
    let missing = runs.missing(corrected());
    runs.make(&missing, threads, &progress)?;
    progress.end();
    let mut cost = Cost::new(planned.iter().map(|(study, _)| study.name()).collect());
    for (at, (_, board)) in planned.iter().enumerate() {
        cost.add(at, Part::Own, board.places.iter().map(|place| &place.planned), runs);
    }
    for (at, contest) in contests.iter().enumerate() {
        let rounds = contest.iter().flat_map(|(_, rounds)| rounds);
        let both = rounds.flat_map(|round| [Some(&round.theirs), round.ours.as_ref()]).flatten();
        cost.add(at, Part::Ours, both, runs);
    }
    for (at, plan) in plans.iter().enumerate() {
        cost.add(at, Part::Varied, plan.iter().flat_map(Plan::runs), runs);
    }
    for (figure, planned) in undone.iter().flat_map(corrections::Plan::runs_by_figure) {
        cost.add(meant[figure], Part::Undone, std::iter::once(planned), runs);
    }
    cost.end(began.elapsed());
    let runs: &Runs = runs;
    let mut effects: Vec<Effect> = undone.iter().map(|plan| plan.effect(runs)).collect();
    // Of figures that are not among these, nothing is known.
    effects.retain(|effect| {
        only_undone.is_some() || !effect.moved.is_empty() || effect.correction.elsewhere().is_some()
    });
    let mut tables: Vec<Vec<Sensitivity>> =
        plans.iter().map(|plan| plan.as_ref().map_or_else(Vec::new, |plan| plan.tables(runs))).collect();
    tables.resize_with(planned.len(), Vec::new);
    let mut figures = Vec::new();
    for (((study, board), contest), sensitivities) in planned.into_iter().zip(contests).zip(tables) {
        let outcomes: Vec<_> = board.places.iter().map(|place| runs.of(&place.planned)).collect();
        let judge = |all: &'a [claim::Claim], counts: bool| -> Vec<Judged<'a>> {
            claims(all, &study)
                .into_iter()
                .map(|claim| Judged::new(claim, counts, &board, &outcomes))
                .collect()
        };
        let (headlines, printed) = (judge(&library.headlines, true), judge(&library.printed, false));
        let contest = match contest {
            Some((contest, rounds)) => Some((contest, contest.bouts(&board, &rounds, runs)?)),
            None => None,
        };
        figures.push(Figured { study, board, headlines, printed, contest, sensitivities });
    }
    let untried = untried(library, &figures)?;
    let (is_quick, is_short) = (request.is_quick, request.is_short);
    Ok(Reproduction { library, figures, untried, effects, runs, is_quick, is_short, cost })
}

fn rounds_of<'a>(contests: &'a [Option<(&Contest, Vec<Round>)>]) -> impl Iterator<Item = &'a Round> {
    contests.iter().flatten().flat_map(|(_, rounds)| rounds)
}

/// Sets ours of all rounds whose other run has been made.
fn challenge(
    planned: &[(Study, Board)],
    contests: &mut [Option<(&Contest, Vec<Round>)>],
    runs: &Runs,
) -> Result<()> {
    for ((_, board), contest) in planned.iter().zip(contests) {
        if let Some((contest, rounds)) = contest {
            contest.challenge(board, rounds, runs)?;
        }
    }
    Ok(())
}

/// Claims without a scenario, of those papers of which all figures were asked for.
fn untried<'a>(library: &'a Library, figures: &[Figured<'_>]) -> Result<Vec<Judged<'a>>> {
    let names = library.names()?;
    let is_whole = |wanted: &str| {
        let of_paper = names.iter().filter(|(paper, _)| paper.name == wanted);
        of_paper.clone().count() > 0
            && of_paper.clone().all(|(paper, name)| {
                figures.iter().any(|figured| {
                    figured.study.paper.name == paper.name && figured.study.figure.name == *name
                })
            })
    };
    let has_figure = |claim: &claim::Claim| {
        names.iter().any(|(paper, name)| paper.name == claim.paper && *name == claim.figure)
    };
    let without = library.headlines.iter().filter(|claim| !has_figure(claim) && is_whole(&claim.paper));
    Ok(without.map(Judged::untried).collect())
}

/// Whether a figure is one of `only`; without these, every one is.
fn is_among(study: &Study, only: Option<&Vec<(library::Paper, String)>>) -> bool {
    only.is_none_or(|only| {
        only.iter().any(|(paper, name)| paper.name == study.paper.name && *name == study.figure.name)
    })
}

fn claims<'a>(all: &'a [claim::Claim], study: &Study) -> Vec<&'a claim::Claim> {
    all.iter().filter(|claim| claim.paper == study.paper.name && claim.figure == study.figure.name).collect()
}

pub fn write(reproduction: &Reproduction<'_>, place: &Path, started: &str) -> Result<()> {
    let json = serde_json::to_string(&Results::new(reproduction))?;
    folder::write(place, "results.json", |file| writeln!(file, "{json}"))?;
    folder::write_report(place, &page::page(reproduction, started)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library() -> Library {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../papers");
        Library::open(Some(&root)).unwrap()
    }

    #[test]
    fn every_claim_finds_its_runs_and_every_contest_its_opponent() {
        let library = library();
        let mut left: Vec<&claim::Claim> = library.headlines.iter().chain(&library.printed).collect();
        for (paper, name) in library.names().unwrap() {
            let study = library.study(paper, &name, &library.estimates).unwrap();
            let board = Board::new(&study.document).unwrap();
            let headlines = claims(&library.headlines, &study);
            let named = &study.figure.headlines;
            assert!(headlines.iter().all(|claim| named.contains(&claim.id)), "{}: {named:?}", study.name());
            assert_eq!(headlines.len(), named.len(), "{}: {named:?}", study.name());
            for claim in headlines.into_iter().chain(claims(&library.printed, &study)) {
                let needs = claim.needs(&board).unwrap_or_else(|problem| panic!("{}: {problem}", claim.id));
                assert!(!needs.is_empty(), "{}", claim.id);
                left.retain(|other| other.id != claim.id);
            }
            for contest in library.contests.iter().filter(|contest| contest.is_of(&study)) {
                let fights = board.places.iter().any(|place| place.policies == contest.own);
                assert!(fights, "{}: no run has {}", study.name(), contest.own);
            }
        }
        left.retain(|claim| claim.missing.is_none());
        assert!(left.is_empty(), "of figures that there are not: {left:?}");
    }

    #[test]
    fn a_figure_goes_by_several_names_and_no_other() {
        let library = library();
        let selected = |word: &str| {
            let names = library.select(&[word.to_owned()])?;
            Ok(names.iter().map(|(paper, figure)| format!("{}/{figure}", paper.name)).collect::<Vec<_>>())
        };
        for word in ["cpu-sleeps/bursts", "cpu-sleeps-bursts", "sleeps/bursts", "sleeps-bursts"] {
            assert_eq!(
                selected(word).unwrap_or_else(|error: anyhow::Error| panic!("{error}")),
                ["cpu-sleeps/bursts"]
            );
        }
        assert_eq!(selected("hurry-up-table1").unwrap(), ["hurry-up/table1"]);
        assert!(selected("sleeps").unwrap().len() > 4);
        for word in ["sleepsbursts", "sleeps-", "up/table1", "cpu-", ""] {
            assert!(selected(word).is_err(), "{word}");
        }
    }

    #[test]
    fn a_renamed_preset_keeps_its_estimates() {
        let library = library();
        for (figure, key) in [("peafowl/9", "preset.peafowl.c6"), ("tradeoffs/10", "preset.tradeoffs.points")]
        {
            let (paper, name) = library.select(&[figure.to_owned()]).unwrap().remove(0);
            let study = library.study(paper, &name, &library.estimates).unwrap();
            let used = vary::used(&library, &study).unwrap();
            assert!(used.iter().any(|estimate| estimate.key == key), "{figure}: {used:?}");
        }
    }

    #[test]
    fn every_correction_can_be_undone_where_it_says_and_names_claims_that_there_are() {
        let library = library();
        let planned =
            plan(&library, &Request { names: vec!["all".to_owned()], ..Request::default() }).unwrap();
        for correction in &library.corrections {
            for named in &correction.claims {
                let start = named.trim_end_matches('*');
                let is_one = |claim: &claim::Claim| claim.id.starts_with(start);
                let is_known = library.headlines.iter().chain(&library.printed).any(is_one);
                assert!(is_known, "{}: {named}", correction.id);
            }
            let plan =
                corrections::Plan::new(&library, correction, &planned, |document| Ok(document.clone()));
            let plan = plan.unwrap_or_else(|problem| panic!("{}: {problem:#}", correction.id));
            assert_eq!(plan.changes_all(), correction.has_keys().then_some(true), "{}", correction.id);
        }
    }

    #[test]
    fn no_figure_uses_an_estimate_that_was_replaced() {
        let library = library();
        for (paper, name) in library.names().unwrap() {
            let study = library.study(paper, &name, &library.estimates).unwrap();
            let stale: Vec<String> =
                study.estimates().into_iter().filter(|key| library.is_replaced(key)).collect();
            assert!(stale.is_empty(), "{}: {stale:?}", study.name());
        }
    }

    #[test]
    fn every_estimate_that_a_headline_rests_on_can_be_varied_or_says_why_not() {
        let library = library();
        let (paper, name) = library.select(&["cpu-sleeps/2".to_owned()]).unwrap().remove(0);
        let study = library.study(paper, &name, &library.estimates).unwrap();
        let used = vary::used(&library, &study).unwrap();
        let keys: Vec<&str> = used.iter().map(|estimate| estimate.key.as_str()).collect();
        for key in ["sleeps.gpu.cpu", "preset.gpu.points", "preset.gpu.exit", "preset.gpu.c2"] {
            assert!(keys.contains(&key), "{keys:?}");
        }
        let base = Board::new(&study.document).unwrap();
        for estimate in used {
            let varied = estimate.vary(&library, &study, 1.3, |document| Ok(document.clone())).unwrap();
            let digests = |board: &Board| -> Vec<String> {
                board.places.iter().map(|place| place.planned.key.scenario.clone()).collect()
            };
            assert_ne!(digests(&base), digests(&varied), "{} changes nothing", estimate.key);
        }
    }
}
