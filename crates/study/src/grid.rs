//! The cells of a sweep: every value of every axis with every other, and every contestant in each.

use super::cells::{Key, digest};
use super::changes::Change;
use super::modules;
use super::options::{self, Checked};
use super::traces;
use crate::exit::usage;
use anyhow::Result;
use sim::{Document, Scenario, Stop};
use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};

#[derive(Clone, Debug)]
pub struct Planned {
    /// Its place among the grid's points, see [`Grid`].
    pub point: usize,
    pub key: Key,
    pub run: Checked,
}

/// More would be a typing error.
const MOST_CELLS: usize = 100_000;

/// Keys that name a run and its contestants and do not change its result: a change of them takes
/// nothing from finished cells.
const BESIDE_THE_RUN: [&str; 6] = ["title", "assumptions", "policies", "sweep", "figure", "variant"];

/// `document` with the changes of the command line: single values are set, several become an axis.
pub fn with_axes(mut document: Document, changes: Vec<Change>) -> Result<Document> {
    let mut axes = document.table().get("sweep").and_then(Value::as_table).cloned().unwrap_or_default();
    for Change { key, values } in changes {
        if let [value] = &values[..] {
            axes.remove(&key);
            document = options::set(&document, &key, value)?;
        } else {
            axes.insert(key, Value::Array(values));
        }
    }
    document.with("sweep", &Value::Table(axes)).map_err(usage)
}

/// The points of a sweep: each is one value of every axis, and has a cell of each contestant.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Without the axes: thousands of values would be read again for each cell.
    document: Document,
    axes: BTreeMap<String, Vec<Value>>,
    points: usize,
}

impl Grid {
    pub fn new(document: &Document) -> Result<Self> {
        let scenario = document.scenario().map_err(usage)?;
        check_axes(document, &scenario)?;
        // More than can be counted is too many as well.
        let points = scenario.sweep.values().map(Vec::len).fold(1, usize::saturating_mul);
        let document = document.with("sweep", &Value::Table(Table::new())).map_err(usage)?;
        if points.saturating_mul(document.contestants().map_err(usage)?.len()) > MOST_CELLS {
            return Err(usage(format!(
                "{}: sweep: more than {MOST_CELLS} cells\n\nhint: give the axes fewer values",
                document.path().display()
            )));
        }
        Ok(Self { document, axes: scenario.sweep, points })
    }

    /// The cells of a point, numbered from 0; the last axis turns fastest.
    pub fn cells(&self, point: usize) -> Result<Vec<Planned>> {
        if point >= self.points {
            return Err(usage(format!("{}: sweep: no point {point}", self.document.path().display())));
        }
        let (mut placed, mut axes, mut stride) = (self.document.clone(), BTreeMap::new(), self.points);
        for (key, values) in &self.axes {
            stride /= values.len();
            let value = &values[point / stride % values.len()];
            placed = options::set(&placed, key, value)?;
            axes.insert(key.clone(), value_text(value));
        }
        let placed = traces::imported(placed)?;
        let runs = options::contestants(&placed)?.into_iter().map(options::task);
        runs.map(|run| {
            let run = run?;
            let key = Key {
                axes: axes.clone(),
                contestant: run.task.contestant.name.clone(),
                seed: run.task.seed,
                scenario: scenario_digest(&run)?,
            };
            Ok(Planned { point, key, run })
        })
        .collect()
    }
}

/// Every cell, in the order of the grid, contestants in each point; those until `stop` is set.
pub fn cells(document: &Document, stop: &Stop) -> Result<Vec<Planned>> {
    let grid = Grid::new(document)?;
    let points = (0..grid.points).take_while(|_| !stop.is_set());
    Ok(points.map(|point| grid.cells(point)).collect::<Result<Vec<_>>>()?.concat())
}

/// An axis has values, each once, and no contestant overrides it.
fn check_axes(document: &Document, scenario: &Scenario) -> Result<()> {
    let wrong = |key: &str, problem: &str, fix: &str| {
        Err(usage(format!("{}: sweep.\"{key}\": {problem}\n\nhint: {fix}", document.path().display())))
    };
    for (key, values) in &scenario.sweep {
        if values.is_empty() {
            return wrong(key, "no values", "write them in brackets, such as [\"10k\", \"20k\"]");
        }
        let mut seen = BTreeSet::new();
        if let Some(value) = values.iter().find(|value| !seen.insert(value.to_string())) {
            return wrong(key, &format!("{value} is there twice"), "give each value once");
        }
        let overrides = |set: &String| set == key || set.starts_with(&format!("{key}."));
        if let Some(variant) = scenario.variant.iter().find(|variant| variant.set.keys().any(overrides)) {
            let problem = format!("the variant `{}` sets it as well", variant.name);
            return wrong(key, &problem, "leave it out of the variant, or out of the sweep");
        }
    }
    Ok(())
}

/// A value of an axis, as a file and a table show it.
fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Tells a run from every run that may come out otherwise.
pub fn scenario_digest(run: &Checked) -> Result<String> {
    let policies = &run.task.contestant.policies;
    Ok(digest(&format!("{policies}\n{}{}", modules::told(policies), substance(&run.scenario)?)))
}

/// The inputs of a run's figures, as text.
fn substance(scenario: &Scenario) -> Result<String> {
    let mut table = Table::try_from(scenario)?;
    BESIDE_THE_RUN.iter().for_each(|key| drop(table.remove(*key)));
    Ok(toml::to_string(&table)?)
}

/// The keys of which two scenarios differ so that cells of one are none of the other, with both
/// values.
pub fn differences(before: &Table, after: &Table) -> Vec<String> {
    let flat = |table: &Table| {
        let mut flat = BTreeMap::new();
        for (key, value) in table.iter().filter(|(key, _)| !BESIDE_THE_RUN.contains(&key.as_str())) {
            flatten(key, value, &mut flat);
        }
        flat
    };
    let (before, after) = (flat(before), flat(after));
    let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
    let shown = |value: Option<&String>| value.cloned().unwrap_or_else(|| "absent".to_owned());
    keys.filter(|key| before.get(*key) != after.get(*key))
        .map(|key| format!("{key} was {} and is {}", shown(before.get(key)), shown(after.get(key))))
        .collect()
}

fn flatten(key: &str, value: &Value, flat: &mut BTreeMap<String, String>) {
    match value {
        Value::Table(table) => {
            table.iter().for_each(|(name, value)| flatten(&format!("{key}.{name}"), value, flat));
        }
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(at, value)| flatten(&format!("{key}.{at}"), value, flat));
        }
        plain => {
            flat.insert(key.to_owned(), plain.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::scenario::Estimates;
    use std::path::Path;

    fn document(more: &str) -> Document {
        let text = format!(
            "policies = [\"menu\", \"teo\"]\n[machine]\npreset = \"xeon-silver-4116\"\n[workload]\nrate = \"10k\"\n\
             service = {{ exponential = \"10us\" }}\n{more}"
        );
        Document::parse(Path::new("x.toml"), &text, &Estimates::default()).unwrap()
    }

    fn keys(document: &Document) -> Vec<String> {
        let cells = cells(document, &Stop::default()).unwrap();
        cells
            .iter()
            .map(|cell| {
                format!(
                    "{} {}",
                    cell.key.axes.values().cloned().collect::<Vec<_>>().join(" "),
                    cell.key.contestant
                )
            })
            .collect()
    }

    #[test]
    fn the_grid_is_every_value_with_every_other() {
        let document = document("[sweep]\n\"run.seed\" = [1, 2]\n\"workload.rate\" = [\"10k\", \"20k\"]");
        let expected = [
            "1 10k menu",
            "1 10k teo",
            "1 20k menu",
            "1 20k teo",
            "2 10k menu",
            "2 10k teo",
            "2 20k menu",
            "2 20k teo",
        ];
        assert_eq!(keys(&document), expected);
    }

    #[test]
    fn a_point_alone_has_the_cells_that_it_has_among_all() {
        let document = document("[sweep]\n\"run.seed\" = [1, 2, 3]\n\"workload.rate\" = [\"10k\", \"20k\"]");
        let all: Vec<String> =
            cells(&document, &Stop::default()).unwrap().iter().map(|cell| cell.key.text()).collect();
        let grid = Grid::new(&document).unwrap();
        for point in 0..6 {
            let alone = grid.cells(point).unwrap();
            assert!(alone.iter().all(|cell| cell.point == point));
            let alone: Vec<String> = alone.iter().map(|cell| cell.key.text()).collect();
            assert_eq!(alone, all[2 * point..2 * point + 2]);
        }
        assert!(grid.cells(6).unwrap_err().to_string().contains("no point 6"));
    }

    #[test]
    fn a_flag_replaces_an_axis_and_adds_one() {
        let change = |key: &str, values: &[&str]| Change {
            key: key.into(),
            values: values.iter().map(|&value| Value::String(value.into())).collect(),
        };
        let document = document("[sweep]\n\"workload.rate\" = [\"10k\", \"20k\"]");
        let changes = vec![change("workload.rate", &["5k"]), change("machine.tick", &["1ms", "never"])];
        assert_eq!(
            keys(&with_axes(document, changes).unwrap()),
            ["1ms menu", "1ms teo", "never menu", "never teo"]
        );
    }

    #[test]
    fn each_cell_has_a_scenario_of_its_own_and_the_same_again() {
        let document = document("[sweep]\n\"workload.rate\" = [\"10k\", \"20k\"]");
        let digests = |document: &Document| -> Vec<String> {
            cells(document, &Stop::default()).unwrap().into_iter().map(|cell| cell.key.scenario).collect()
        };
        let first = digests(&document);
        assert_eq!(first, digests(&document.clone()));
        assert!(
            (0..4).all(|at| first.iter().filter(|digest| **digest == first[at]).count() == 1),
            "{first:?}"
        );
        let longer = document.with("run.requests", &Value::Integer(7)).unwrap();
        assert!(digests(&longer).iter().all(|digest| !first.contains(digest)));
    }

    #[test]
    fn an_axis_that_a_variant_overrides_is_refused() {
        let text = "[sweep]\n\"workload.rate\" = [\"10k\"]\n[[variant]]\nname = \"v\"\n\
                    set = { \"workload.rate\" = \"1k\" }";
        let error = cells(&document(text), &Stop::default()).unwrap_err().to_string();
        assert!(error.contains("the variant `v`"), "{error}");
        for (axis, problem) in [("[]", "no values"), ("[\"1k\", \"1k\"]", "twice")] {
            let error = cells(&document(&format!("[sweep]\n\"workload.rate\" = {axis}")), &Stop::default())
                .unwrap_err()
                .to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn differences_name_the_key_and_both_values() {
        let table = |text: &str| text.parse::<Table>().unwrap();
        let before =
            table("title = \"a\"\n[run]\nseed = 1\nrequests = 5\n[server]\nnoise = [{ every = \"1ms\" }]");
        let after = table("title = \"b\"\n[run]\nseed = 1\nrequests = 6\n[server]\nnoise = []");
        assert_eq!(
            differences(&before, &after),
            ["run.requests was 5 and is 6", "server.noise.0.every was \"1ms\" and is absent"]
        );
        assert!(differences(&before, &before).is_empty());
    }
}
