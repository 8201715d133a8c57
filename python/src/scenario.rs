//! A scenario as Python gives it, with the changes of a call.

use crate::errors::{raised, wrong};
use crate::own::Names;
use crate::values;
use anyhow::Result;
use pyo3::exceptions::{PyTypeError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyString};
use report::exit::usage;
use sim::Document;
use sim::scenario::Estimates;
use std::ffi::CString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use study::options::{self, Options};
use toml::Table;

/// As errors call a scenario that is in no file.
const NAME: &str = "scenario";

/// The arguments that all simulations have.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Asked<'py> {
    scenario: Bound<'py, PyAny>,
    policies: Vec<String>,
    set: Bound<'py, PyMapping>,
    own: Bound<'py, PyMapping>,
    threads: Option<usize>,
}

impl Asked<'_> {
    /// The names that lines of policies may use while it lives.
    pub fn names(&self) -> PyResult<Names> {
        Names::of(&self.own)
    }

    /// The document with the keys of `set`.
    pub fn document(&self) -> PyResult<Document> {
        let mut document = read(&self.scenario)?;
        for (key, value) in &self.changes()? {
            document = options::set(&document, key, value).map_err(raised)?;
        }
        Ok(document)
    }

    /// Warns if a run plays only the beginning of its load's shape.
    pub fn warn_of_shape(&self, py: Python<'_>, document: &Document) -> PyResult<()> {
        let Some(short) = options::short_shape(document).map_err(raised)? else { return Ok(()) };
        // Of the line that called the package.
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &CString::new(short)?, 2)
    }

    pub fn has_policies(&self) -> bool {
        !self.policies.is_empty()
    }

    pub fn changes(&self) -> PyResult<Table> {
        values::table(&self.set, "")
    }

    /// The document with this call's contestants instead of its own, and room to reach its precision
    /// in.
    pub fn complete(&self, document: Document) -> PyResult<Document> {
        let changes = self.changes()?;
        let document = self.options()?.complete(document).map_err(raised)?;
        // A parameter in the call is meant for a contestant that runs.
        document.check_used(changes.into_iter().map(|(key, _)| key)).map_err(usage).map_err(raised)?;
        Ok(document)
    }

    pub fn threads(&self) -> PyResult<usize> {
        Ok(self.options()?.threads())
    }

    fn options(&self) -> PyResult<Options> {
        let threads = self.threads.map(|threads| {
            NonZeroUsize::new(threads)
                .ok_or_else(|| wrong("threads = 0\n\nhint: from 1 on; None for all CPUs"))
        });
        let threads = threads.transpose()?;
        Ok(Options { policies: self.policies.clone(), changes: Vec::new(), threads, json: true })
    }
}

/// A document for another process: where files that it names are looked for, and its text.
pub fn packed(document: &Document) -> PyResult<(PathBuf, String)> {
    let path = std::path::absolute(document.path()).map_err(|error| raised(error.into()))?;
    Ok((path, toml::to_string(document.table()).map_err(|error| raised(error.into()))?))
}

/// The document that another process has packed.
pub fn unpacked(path: &Path, text: &str) -> PyResult<Document> {
    Document::parse(path, text, &Estimates::default()).map_err(usage).map_err(raised)
}

fn read(scenario: &Bound<'_, PyAny>) -> PyResult<Document> {
    let none = Options { policies: vec![], changes: vec![], threads: None, json: true };
    let read = |path: &Path| none.document(Some(path));
    if let Ok(text) = scenario.cast::<PyString>() {
        let text: String = text.extract()?;
        // No name of a file has a line's end, and a scenario needs three keys.
        return if text.contains('\n') { parsed(&text) } else { read(Path::new(&text)) }.map_err(raised);
    }
    if let Ok(mapping) = scenario.cast::<PyMapping>() {
        let table = values::table(mapping, "")?;
        return of_table(&table).map_err(raised);
    }
    if let Some(path) = values::path(scenario) {
        return read(&path).map_err(raised);
    }
    let kind = scenario.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "the scenario is of the type `{kind}`: give a dict (roost.Scenario helps to write it), the path of a \
         TOML file, or its text"
    )))
}

fn parsed(text: &str) -> Result<Document> {
    options::checked(Document::parse(Path::new(NAME), text, &Estimates::default()))
}

fn of_table(table: &Table) -> Result<Document> {
    let text = toml::to_string(table)?;
    parsed(&text).map_err(|error| match by_key(&text, &error.to_string()) {
        Some(message) => usage(message),
        None => error,
    })
}

/// The message of an error that has a place in a text which the caller never saw: it names the key
/// instead.
fn by_key(text: &str, message: &str) -> Option<String> {
    let place = message.strip_prefix(NAME)?.strip_prefix(": TOML parse error at line ")?;
    let line: usize = place.split(',').next()?.parse().ok()?;
    // Below the excerpt.
    let said = message.split("^\n").nth(1)?.trim_start();
    let above: Vec<&str> = text.lines().take(line).collect();
    let section = above.iter().rev().find(|line| line.starts_with('['));
    let section = section.map(|section| section.trim_matches(['[', ']']));
    let key = above.last().and_then(|line| line.split_once(" = ")).map(|(key, _)| key);
    let names: Vec<&str> = [section, key].into_iter().flatten().collect();
    let at = if names.is_empty() { String::new() } else { format!("{}: ", names.join(".")) };
    Some(format!("{NAME}: {at}{said}"))
}
