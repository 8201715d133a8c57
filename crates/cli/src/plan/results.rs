//! The JSON document of a plan, and its folder.

use super::layers::LAYERS;
use super::simulate::Plan;
use super::source::Source;
use super::{Args, page};
use crate::run_folder::{self, Kind, Place};
use anyhow::Result;
use machine::Goal;
use report::money::Year;
use report::run::RunInfo;
use serde::Serialize;
use sim::outcome::{Estimate, Verdict};
use sim::plan::ranking::WORTH_A_CHANGE;
use sim::plan::{Choice, Fidelity, Ranked};
use std::io::Write as _;
use std::path::{Path, PathBuf};

pub const FORMAT: u32 = 1;
pub const PLAN: &str = "plan.json";
const KIND: Kind = Kind { name: "plan", mark: PLAN };

#[derive(Clone, Debug, Serialize)]
pub struct Document {
    pub format: u32,
    pub service: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    pub notes: Vec<String>,
    /// The recorded run: model against measurement.
    pub fidelity: Fidelity,
    pub candidates: Vec<Row>,
    pub sensitivity: Vec<Load>,
    /// The name of the best that keeps the goal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<String>,
    /// The line that carries it out; absent where the service is best left as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// Where none keeps the goal: the one that comes nearest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
    pub words: Vec<String>,
    /// The table that power is modelled with.
    pub power_source: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub name: String,
    pub policies: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unable: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keeps_goal: Option<bool>,
    pub is_stable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<Estimate>,
    pub cpu_watts: Estimate,
    pub server_watts: f64,
    pub awake_cores: f64,
    /// CPU time of work, in CPUs.
    pub busy_cpus: f64,
    pub wakes_per_s: f64,
    /// Of all servers; absent without a price or a carbon intensity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub year: Option<Year>,
    /// Against the service as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_a_year: Option<Year>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Load {
    /// The load of this run, as a multiple of the scenario's.
    pub load: f64,
    pub candidates: Vec<Row>,
}

impl Document {
    pub fn of(args: &Args, source: &Source, plan: &Plan) -> Self {
        let rows = |ranked: &[Ranked]| -> Vec<Row> {
            let now = ranked.first().map(|now| now.outcome.power.server_watts);
            ranked.iter().map(|ranked| row(args, ranked, now)).collect()
        };
        let name = |place: usize| plan.ranked[place].candidate.name.clone();
        let best = match plan.choice {
            Choice::Best(place) => Some(place),
            _ => None,
        };
        let nearest = match plan.choice {
            Choice::NoneKeeps { nearest } => nearest.map(|(place, _)| place),
            _ => None,
        };
        let line = best.and_then(|place| plan.ranked[place].candidate.line.clone());
        let service = source.recording.service.as_ref().map(|service| service.name.clone());
        Self {
            format: FORMAT,
            service: service.unwrap_or_default(),
            goal: source.goal,
            notes: source.notes.iter().cloned().chain(plan.holds_tails.then(|| TAIL.to_owned())).collect(),
            fidelity: plan.fidelity.clone(),
            candidates: rows(&plan.ranked),
            sensitivity: (plan.sensitivity.iter())
                .map(|(load, ranked)| Load { load: *load, candidates: rows(ranked) })
                .collect(),
            best: best.map(name),
            line: line.map(|line| format!("roost {line}")),
            nearest: nearest.map(name),
            words: words(args, source, plan),
            power_source: plan.recorded.power.source.to_string(),
        }
    }
}

const TAIL: &str = "the recorded tail is longer than the model's, whose queueing does not explain it: no \
                    predicted tail goes below the recorded one";

fn row(args: &Args, ranked: &Ranked, now: Option<f64>) -> Row {
    let (candidate, outcome) = (&ranked.candidate, &ranked.outcome);
    let tariff = args.electricity.tariff();
    let power = &outcome.power;
    let cpus: f64 = outcome.awake / (1.0 - asleep(outcome)).max(1e-9);
    let is_stable = outcome.verdict != Verdict::Unstable;
    Row {
        name: candidate.name.clone(),
        policies: candidate.policies.clone(),
        line: candidate.line.as_ref().map(|line| format!("roost {line}")),
        unable: candidate.unable.clone(),
        keeps_goal: ranked.keeps_goal,
        is_stable,
        p50_ns: outcome.responses.p50_ns,
        p99_ns: outcome.responses.p99_ns,
        cpu_watts: Estimate { value: power.cpu_watts, half_width: power.cpu_half_width_watts },
        server_watts: power.server_watts,
        awake_cores: outcome.awake,
        busy_cpus: cpus * outcome.working,
        wakes_per_s: outcome.idle_periods_per_s(),
        year: (tariff.is_given() && is_stable).then(|| tariff.year(power.server_watts)),
        // The service as it is saves nothing.
        saved_a_year: now
            .filter(|_| tariff.is_given() && is_stable && candidate.line.is_some())
            .map(|now| tariff.year(now - power.server_watts)),
    }
}

/// Share of CPU time in idle states.
fn asleep(outcome: &sim::Outcome) -> f64 {
    outcome.states.iter().map(|state| state.share).sum()
}

fn words(args: &Args, source: &Source, plan: &Plan) -> Vec<String> {
    let mut words = Vec::new();
    if !plan.fidelity.is_worth_something() {
        words.push("These predictions are worth little: the model misses the recorded run itself.".into());
        words.extend(plan.fidelity.reasons.iter().map(|reason| format!("{reason}.")));
    }
    match (&plan.choice, source.goal) {
        (Choice::Best(place), Some(goal)) => {
            let best = &plan.ranked[*place];
            let watts = best.outcome.power.server_watts;
            let now = plan.ranked.first().map_or(watts, |now| now.outcome.power.server_watts);
            let tariff = args.electricity.tariff();
            let saved = if tariff.is_given() {
                format!("; a year saves {}", tariff.year(now - watts))
            } else {
                String::new()
            };
            words.push(match &best.candidate.line {
                Some(line) => format!(
                    "Best within {goal}: {} ({:.1} W of {:.1} W now, modelled{saved}). Type: roost {line}",
                    best.candidate.name, watts, now
                ),
                None => format!(
                    "Best within {goal}: the service as it is ({watts:.1} W, modelled): nothing saves \
                     {:.1} %.",
                    WORTH_A_CHANGE * 100.0
                ),
            });
        }
        (Choice::NoneKeeps { nearest }, Some(goal)) => words.push(match nearest {
            Some((place, tail)) => {
                let nearest = &plan.ranked[*place].candidate;
                let line = nearest.line.as_ref().map_or_else(String::new, |line| format!(": roost {line}"));
                format!(
                    "No policy keeps {goal}. The best that can be had is {} by {}{line}",
                    machine::Duration::from_nanos(*tail as u64),
                    nearest.name
                )
            }
            None => format!("No policy keeps {goal}, and none serves this load at all."),
        }),
        _ => words.push("No goal was said, so nothing is the best: add --goal 500us@p99, say.".into()),
    }
    words
}

/// The plan's folder: made before anything is simulated, so that one that cannot be had costs no time.
pub fn folder(args: &Args, source: &Source) -> Result<PathBuf> {
    let own = source.folder.join("plan");
    let out = match &args.out {
        Some(out) if !source.is_made => out.clone(),
        _ => own,
    };
    Place::of(Some(&out), "plan", PLAN)?.make()
}

/// Writes the folder, and returns the lines that name its page and its `layers`.
pub fn write(
    place: &Path,
    source: &Source,
    document: &Document,
    plan: &Plan,
    layers: Option<&str>,
) -> Result<String> {
    run_folder::clear(place, &[LAYERS])?;
    let json = serde_json::to_string_pretty(document)?;
    run_folder::write(place, PLAN, |file| writeln!(file, "{json}"))?;
    let info = RunInfo {
        name: run_folder::name_of(place),
        config: source.document.table().clone(),
        ..KIND.info(run_folder::started()?, format!("A plan for {}", document.service), &page::METHOD)
    };
    run_folder::write_info(place, &info)?;
    let mut told = run_folder::write_report(place, &page::page(&info, document, plan))?;
    if let Some(layers) = layers {
        run_folder::write(place, LAYERS, |file| writeln!(file, "{layers}"))?;
        let path = place.join(LAYERS);
        told.push_str(&format!("\nlayers: scx_layered f:{}", path.display()));
    }
    Ok(told)
}
