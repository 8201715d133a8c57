//! A scenario file and the command line's changes to it.
//!
//! Everything is read and checked before the first request is simulated: after [`task`] only a
//! trace that turns out broken in its middle can still stop a run.

use super::changes::Change;
use super::folder::Place;
use super::modules;
use crate::exit::usage;
use anyhow::Result;
use sim::runner::Task;
use sim::scenario::{Contestant, Estimates};
use sim::{Document, Scenario, ScenarioError, policies};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;
use toml::Value;

/// The part that `run` and `sweep` have in common.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Contestants instead of the scenario's, such as "peafowl + teo"; may be given again
    #[arg(long = "policy", value_name = "POLICIES")]
    pub policies: Vec<String>,
    /// Set a key of the scenario, such as workload.rate=50k, run.requests=1M, run.seed=7,
    /// run.precision=1%@p99; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub changes: Vec<String>,
    /// Runs at the same time; results do not depend on it. `None`: one per CPU that this process may use
    #[arg(skip)]
    pub threads: Option<NonZeroUsize>,
    /// Print one JSON document instead of tables
    #[arg(long)]
    pub json: bool,
}

/// With a precision to reach and no limit of one's own, a run gives up after so many requests: a
/// p99.9 at high load needs some ten million for 1 %.
const REQUESTS_FOR_PRECISION: i64 = 100_000_000;

impl Options {
    /// The document of `path` with the changes of the command line.
    pub fn document(&self, path: Option<&Path>) -> Result<Document> {
        let path = path.ok_or_else(|| usage(NO_SCENARIO))?;
        checked(Document::read(path, &estimates_for(path)?))
    }

    /// The document of `path` with every `--set`. Several values for one are refused: `why`, and the
    /// `hint` is about a value.
    pub fn changed(&self, path: Option<&Path>, why: &str, hint: &str) -> Result<Document> {
        let mut document = self.document(path)?;
        for Change { key, values } in self.changes()? {
            let [value] = &values[..] else {
                return Err(usage(format!(
                    "--set {key}: {why}\n\nhint: {hint} that has commas in it: --set '{key}=\"a,b\"'"
                )));
            };
            document = set(&document, &key, value)?;
        }
        Ok(document)
    }

    /// Every `--set`, parsed.
    pub fn changes(&self) -> Result<Vec<Change>> {
        self.changes.iter().map(|text| text.parse().map_err(usage)).collect()
    }

    /// `document` with `--policy`'s contestants instead of its own, a published trace in Roost's own
    /// form, and room to reach its precision in.
    pub fn complete(&self, document: Document) -> Result<Document> {
        let mut document = super::traces::imported(document)?;
        modules::load(self.policies.iter(), Path::new(""))?;
        if self.policies.is_empty() {
            modules::load_named(&document)?;
        } else {
            let lines = self.policies.iter().cloned().map(Value::String).collect();
            document = document.with("policies", &Value::Array(lines)).map_err(usage)?;
            // Variants stay, each with all of the policies.
            if let Some(Value::Array(mut variants)) = document.table().get("variant").cloned() {
                for variant in variants.iter_mut().filter_map(Value::as_table_mut) {
                    variant.remove("policies");
                }
                document = document.with("variant", &Value::Array(variants)).map_err(usage)?;
            }
        }
        // A parameter on the command line is meant for a contestant that runs.
        let given = self.changes()?.into_iter().map(|change| change.key);
        document.check_used(given).map_err(usage)?;
        let run = document.table().get("run").and_then(Value::as_table);
        if run.is_some_and(|run| run.contains_key("precision") && !run.contains_key("requests")) {
            document =
                document.with("run.requests", &Value::Integer(REQUESTS_FOR_PRECISION)).map_err(usage)?;
        }
        Ok(document)
    }

    /// How many runs at the same time.
    pub fn threads(&self) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.map_or_else(all, NonZeroUsize::get)
    }
}

/// A document as it was read, the parameters of its policies checked.
pub fn checked(read: Result<Document, ScenarioError>) -> Result<Document> {
    let document = read.map_err(|error| usage(with_nearest(error.to_string().trim_end())))?;
    // Of the contestants in the file: `--policy` may leave some of them out.
    document.check_params().map_err(usage)?;
    Ok(document)
}

/// `document` with one key changed; an error names the flag.
pub fn set(document: &Document, key: &str, value: &Value) -> Result<Document> {
    let changed = document.with(key, value).map_err(usage)?;
    // Typed at once, so that a key that does not exist is blamed on the flag and not on the file.
    match changed.scenario() {
        Ok(_) => Ok(changed),
        Err(error) => Err(usage(format!("--set {key}={value}: {}", with_nearest(said(&error.to_string()))))),
    }
}

/// A message about a key that is not known, with the known key that is most like it.
pub fn with_nearest(message: &str) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match &quoted[..] {
        [unknown, known @ ..] if message.contains("unknown field") => {
            let likely = nearest(unknown, known.iter().copied());
            likely.map_or_else(
                || message.to_owned(),
                |name| format!("{message}\n\nhint: did you mean `{name}`?"),
            )
        }
        _ => message.to_owned(),
    }
}

/// The sentence of a message of the TOML reader, without the excerpt of a file that was never
/// written so.
fn said(message: &str) -> &str {
    message.trim_end().lines().last().unwrap_or(message)
}

/// The contestants of a document, every one of them checked as far as can be without running it.
pub fn contestants(document: &Document) -> Result<Vec<Contestant>> {
    let contestants = document.contestants().map_err(usage)?;
    let mut names = BTreeSet::new();
    for contestant in &contestants {
        if !names.insert(&contestant.name) {
            return Err(usage(format!(
                "{}: there are two contestants called `{}`\n\nhint: give each policy once, each variant a \
                 name of its own",
                document.path().display(),
                contestant.name
            )));
        }
        known_words(document.path(), &contestant.policies)?;
    }
    Ok(contestants)
}

/// The run of a contestant, checked.
pub fn task(contestant: Contestant) -> Result<Checked> {
    let scenario = contestant.document.scenario().map_err(usage)?;
    let (setup, _) = contestant.document.setup(&contestant.policies, scenario.run.seed).map_err(usage)?;
    let seed = scenario.run.seed;
    Ok(Checked { task: Task { contestant, seed }, platform: setup.platform, scenario })
}

#[derive(Clone, Debug)]
pub struct Checked {
    pub task: Task,
    pub platform: machine::Platform,
    pub scenario: Scenario,
}

/// Every word of a line of policies is one; else the error names the nearest.
fn known_words(path: &Path, line: &str) -> Result<()> {
    for word in line.split('+').map(str::trim) {
        if policies::words().any(|known| known == word) {
            continue;
        }
        let path = path.display();
        let all = policies::words().collect::<Vec<_>>().join(", ");
        let likely = nearest(word, policies::words());
        let hint = likely.map_or_else(String::new, |name| format!("did you mean `{name}`? "));
        return Err(usage(format!(
            "{path}: policies: `{line}`: no policy is called `{word}`\n\nhint: {hint}There are {all}"
        )));
    }
    Ok(())
}

/// The name that is most like `word`, if one is like it at all.
pub fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let alike = names.map(|name| (strsim::jaro_winkler(word, name), name));
    alike.filter(|(likeness, _)| *likeness > 0.7).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// The table of ESTIMATEs that a scenario's `estimate:` values mean: `estimates.toml` in its folder
/// or one above.
fn estimates_for(scenario: &Path) -> Result<Estimates> {
    let Ok(place) = scenario.canonicalize() else { return Ok(Estimates::default()) };
    let found =
        place.ancestors().skip(1).map(|folder| folder.join("estimates.toml")).find(|path| path.is_file());
    found.map_or_else(|| Ok(Estimates::default()), |path| Estimates::read(&path).map_err(usage))
}

/// The message where no scenario was named.
const NO_SCENARIO: &str = "\
no scenario was named

hint: roost sim run scenarios/mmk.toml
      scenarios/ has one for each kind of service; a scenario may be as short as this:
          policies = [\"menu\", \"teo\", \"deep\"]
          [machine]
          preset = \"xeon-silver-4116\"
          [workload]
          service = { exponential = \"10us\" }
          [run]
          utilisation = 0.3
      docs/scenarios.md has every key";

/// Says on standard error how much of a load's shape a run plays, where that is not all of it.
pub fn tell_of_shape(document: &Document) -> Result<()> {
    if let Some(short) = short_shape(document)? {
        eprintln!("{short}");
    }
    Ok(())
}

/// How much of a load's shape a run plays, where that is not all of it: the beginning of a day is no
/// day.
pub fn short_shape(document: &Document) -> Result<Option<String>> {
    let scenario = document.scenario().map_err(usage)?;
    let shape = scenario.workload.shape.shape().map_err(usage)?;
    let compression = scenario.workload.compression;
    // Whatever is wrong besides is told when the runs are made.
    let contestant = document.contestants().ok().and_then(|contestants| contestants.into_iter().next());
    let setup = contestant.and_then(|of| of.document.setup(&of.policies, scenario.run.seed).ok());
    let profile = setup.as_ref().and_then(|(_, jobs)| jobs.profile());
    let by_requests = profile.map(|profile| profile.time_of(scenario.run.requests as f64));
    let by_length = scenario.run.length.map(|length| length.0);
    let Some(run) = by_requests.into_iter().chain(by_length).min() else { return Ok(None) };
    Ok(workload::shape_played::short(&shape, run, compression).map(|short| {
        let said = short.text("workload.compression = ");
        let requests = scenario.run.requests;
        let cause = match by_length {
            Some(length) if length <= run => String::new(),
            _ => format!(" (run.requests = {requests} end it by then)"),
        };
        format!("{}: workload.shape: {said}{cause}", document.path().display())
    }))
}

/// Where a run's folder goes: as named, or `runs/sim-NAME-DATE-TIME`. All runs of a kind have the
/// file `mark`.
pub fn folder(out: Option<&Path>, document: &Document, started: &str, mark: &str) -> Result<Place> {
    Place::of(out, &run_name(document, started), mark)
}

/// `sim-NAME-DATE-TIME`.
fn run_name(document: &Document, started: &str) -> String {
    let stem = document.path().file_stem().unwrap_or_default().to_string_lossy();
    format!("sim-{stem}-{}", started.replace(" UTC", "").replace([' ', ':'], "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_has_a_nearest_and_a_strange_one_has_none() {
        let nearest = |word| nearest(word, policies::words());
        assert_eq!(nearest("tio"), Some("teo"));
        assert_eq!(nearest("menue"), Some("menu"));
        assert_eq!(nearest("peafwol"), Some("peafowl"));
        assert_eq!(nearest("xyz"), None);
    }

    #[test]
    fn an_unknown_key_is_told_its_nearest() {
        let message = "unknown field `dispach`, expected one of `dispatch`, `pick`";
        assert!(with_nearest(message).ends_with("did you mean `dispatch`?"));
        for other in ["unknown field `zzz`, expected `pick`", "invalid type: string `a`", ""] {
            assert_eq!(with_nearest(other), other);
        }
    }
}
