//! ESTIMATEs, one at a time, 30 % more and 30 % less.
//!
//! A value of the table is varied where scenarios read it, so it changes wherever a figure uses it.
//! One that lives in a machine's preset has no value in the table but a `place`: that is varied on
//! the machine as the figure has it, its own changes included.

use super::board::Board;
use super::library::{Library, Study};
use anyhow::Result;
use machine::{Duration, Platform};
use report::exit::usage;
use sim::Document;
use std::collections::BTreeSet;
use study::grid::{self, Planned};
use study::options;
use toml::{Table, Value};

#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    pub key: String,
    /// Where it lives, if not in the table.
    place: Option<Place>,
}

#[derive(Clone, Debug, PartialEq)]
struct Place {
    preset: String,
    path: String,
}

/// The entries that a figure uses: those that its scenario names, and those of its machine and
/// load.
pub fn used(library: &Library, study: &Study) -> Result<Vec<Estimate>> {
    let named: BTreeSet<&String> = study.document.estimates().iter().collect();
    let mut used: Vec<Estimate> =
        named.into_iter().map(|key| Estimate { key: key.clone(), place: None }).collect();
    let board = Board::new(&study.document)?;
    let presets: BTreeSet<String> = (board.places.iter())
        .flat_map(|place| {
            let scenario = &place.planned.run.scenario;
            let shape = serde_json::to_value(&scenario.workload.shape).ok();
            let shape = shape.and_then(|shape| shape.as_str().map(str::to_owned));
            Platform::ancestry(&scenario.machine.preset).into_iter().chain(shape)
        })
        .collect();
    for (key, preset, path) in library.in_presets() {
        let is_varied = presets.contains(&preset) && !library.is_replaced(&key);
        if is_varied && !(path == "uncore" && names_own_uncore(&board)) {
            used.push(Estimate { key, place: Some(Place { preset, path }) });
        }
    }
    Ok(used)
}

/// The scenario gives the uncore itself.
fn names_own_uncore(board: &Board) -> bool {
    board.places.iter().all(|place| place.planned.run.scenario.machine.uncore_watts.is_some())
}

impl Estimate {
    /// The board of a figure with this one multiplied by `factor`, its runs as long as `length`
    /// makes them.
    pub fn vary(
        &self,
        library: &Library,
        study: &Study,
        factor: f64,
        length: impl Fn(&Document) -> Result<Document>,
    ) -> Result<Board> {
        let name = &study.figure.name;
        let Some(place) = &self.place else {
            let varied = library.estimates.varied(&self.key, factor);
            let varied = varied.ok_or_else(|| usage(format!("{} is no number", self.key)))?;
            return Board::new(&length(&library.study(study.paper, name, &varied)?.document)?);
        };
        let mut board = Board::new(&study.document)?;
        for on_board in &mut board.places {
            let planned = &mut on_board.planned;
            if place.applies_to(planned) {
                let mut contestant = planned.run.task.contestant.clone();
                contestant.document = place.vary(&contestant.document, factor)?;
                planned.run = options::task(contestant)?;
                planned.key.scenario = grid::scenario_digest(&planned.run)?;
            }
        }
        Ok(board)
    }
}

impl Place {
    fn applies_to(&self, planned: &Planned) -> bool {
        let scenario = &planned.run.scenario;
        let shape = serde_json::to_value(&scenario.workload.shape).ok();
        Platform::ancestry(&scenario.machine.preset).contains(&self.preset)
            || shape.is_some_and(|shape| shape == self.preset.as_str())
    }

    /// A scenario with this place of its machine or load multiplied.
    fn vary(&self, document: &Document, factor: f64) -> Result<Document> {
        let scenario = document.scenario().map_err(usage)?;
        let platform = document.platform(&scenario).map_err(usage)?;
        let set = |key: &str, value: Value| document.with(key, &value).map_err(usage);
        let unknown = || usage(format!("papers/estimates.toml: place = \"{}\" is not known", self.path));
        let parts: Vec<&str> = self.path.split('.').collect();
        match parts[..] {
            ["uncore"] => set("machine.uncore_watts", watts(platform.uncore, factor)),
            ["rest"] => set("machine.rest_watts", watts(platform.rest, factor)),
            ["shared_thread_speed"] => {
                set("machine.shared_thread_speed", (platform.shared_thread_speed * factor).into())
            }
            ["package", "power"] => {
                let package = platform.package.ok_or_else(unknown)?;
                set("machine.package_watts", watts(package.power, factor))
            }
            ["cstates", name, what] => {
                let state = platform.cstates.0.iter().find(|state| state.name == name).ok_or_else(unknown)?;
                let power = state.power.ok_or_else(unknown)?;
                match what {
                    "power" => set(&format!("machine.cstate.{name}.watts"), watts(power, factor)),
                    "exit_latency" => set(
                        &format!("machine.cstate.{name}.exit_latency"),
                        time(state.exit_latency.scale(factor)),
                    ),
                    _ => Err(unknown()),
                }
            }
            ["frequencies", "points", "*", "power"] => points(document, &platform, factor),
            ["mean"] => {
                let contestant = "menu";
                let (_, jobs) = document.setup(contestant, scenario.run.seed).map_err(usage)?;
                let peak = jobs.profile().ok_or_else(unknown)?.peak().as_per_second();
                set("workload.rate", (peak * factor).into())
            }
            _ => Err(unknown()),
        }
    }
}

fn watts(power: machine::Microwatts, factor: f64) -> Value {
    Value::Float(power.0 as f64 * 1e-6 * factor)
}

fn time(length: Duration) -> Value {
    Value::String(format!("{}ns", length.as_nanos()))
}

/// All operating points, the turbo clocks among them.
fn points(document: &Document, platform: &Platform, factor: f64) -> Result<Document> {
    let scaled = |power: machine::Microwatts| machine::Microwatts((power.0 as f64 * factor).round() as u64);
    let mut frequencies = platform.frequencies.clone();
    for point in &mut frequencies.points {
        point.power = scaled(point.power);
    }
    let table = Value::Table(Table::try_from(&frequencies)?);
    let mut document = document.with("machine.frequencies", &table).map_err(usage)?;
    if !platform.turbo.is_empty() {
        let bin = |bin: &machine::TurboBin| {
            let mut table = Table::new();
            table.insert("cores".to_owned(), i64::from(bin.cores).into());
            table.insert("khz".to_owned(), bin.frequency.0.cast_signed().into());
            table.insert("watts".to_owned(), watts(bin.power, factor));
            Value::Table(table)
        };
        let bins = platform.turbo.iter().map(bin).collect();
        document = document.with("machine.turbo", &Value::Array(bins)).map_err(usage)?;
    }
    Ok(document)
}
