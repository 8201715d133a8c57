//! A scenario as a tree of keys, before it has types.

use super::{Scenario, ScenarioError};
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Quantities that nobody publishes, by key: one table for all papers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimates(Table);

impl Estimates {
    /// Reads the table: every entry a table with a `value`.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        Ok(Self(read_table(path)?))
    }

    /// The value of a key, which may be dotted.
    pub fn value(&self, key: &str) -> Option<&Value> {
        let mut table = &self.0;
        for part in key.split('.') {
            table = table.get(part)?.as_table()?;
        }
        table.get("value")
    }

    /// The same table with one numeric value multiplied: what the result owes to it. `None` if it is not a number or a
    /// number with a unit.
    pub fn varied(&self, key: &str, factor: f64) -> Option<Self> {
        let varied = match self.value(key)? {
            Value::Float(number) => Value::Float(number * factor),
            Value::Integer(number) => Value::Integer((*number as f64 * factor).round() as i64),
            Value::String(text) => {
                let digits = text.find(|c: char| c.is_ascii_alphabetic()).filter(|&at| at > 0)?;
                let (number, unit) = text.split_at(digits);
                Value::String(format!("{}{unit}", number.trim().parse::<f64>().ok()? * factor))
            }
            _ => return None,
        };
        let mut estimates = self.clone();
        let mut table = &mut estimates.0;
        for part in key.split('.') {
            table = table.get_mut(part)?.as_table_mut()?;
        }
        table.insert("value".to_owned(), varied);
        Some(estimates)
    }

    /// Every key.
    pub fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        collect_keys(&self.0, "", &mut keys);
        keys
    }
}

fn collect_keys(table: &Table, prefix: &str, keys: &mut Vec<String>) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Table(inner) if inner.contains_key("value") => keys.push(key),
            Value::Table(inner) => collect_keys(inner, &key, keys),
            _ => {}
        }
    }
}

/// A scenario file, read.
#[derive(Clone, Debug)]
pub struct Document {
    path: PathBuf,
    table: Table,
    used: Vec<String>,
}

/// What marks a value that stands in the table of ESTIMATEs.
const ESTIMATE: &str = "estimate:";

impl Document {
    /// Reads a file and fills in ESTIMATEs.
    pub fn read(path: &Path, estimates: &Estimates) -> Result<Self, ScenarioError> {
        let text = fs::read_to_string(path)
            .map_err(|cause| ScenarioError::Unreadable { path: path.to_owned(), cause })?;
        Self::parse(path, &text, estimates)
    }

    /// The same of a text; `path` is what errors call it.
    pub fn parse(path: &Path, text: &str, estimates: &Estimates) -> Result<Self, ScenarioError> {
        // Once with types, so that an error has its line in the file; a document with estimates in it cannot be.
        let table: Table = parse_table(path, text)?;
        let mut document = Self { path: path.to_owned(), table: Table::new(), used: Vec::new() };
        let mut root = Value::Table(table);
        document.fill("", &mut root, estimates)?;
        if let Value::Table(table) = root {
            document.table = table;
        }
        if document.used.is_empty() {
            toml::from_str::<Scenario>(text).map_err(|cause| ScenarioError::Malformed {
                path: path.to_owned(),
                cause: cause.to_string(),
            })?;
        }
        Ok(document)
    }

    fn fill(&mut self, key: &str, value: &mut Value, estimates: &Estimates) -> Result<(), ScenarioError> {
        let below = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
        match value {
            Value::Table(table) => {
                for (name, value) in table.iter_mut() {
                    self.fill(&below(name), value, estimates)?;
                }
            }
            Value::Array(values) => {
                for (place, value) in values.iter_mut().enumerate() {
                    self.fill(&below(&place.to_string()), value, estimates)?;
                }
            }
            Value::String(text) => {
                let Some(name) = text.strip_prefix(ESTIMATE).map(|name| name.trim().to_owned()) else {
                    return Ok(());
                };
                let found = estimates.value(&name).cloned().ok_or_else(|| ScenarioError::Wrong {
                    path: self.path.clone(),
                    key: key.to_owned(),
                    problem: format!("no ESTIMATE is called `{name}`"),
                    fix: "add it to papers/estimates.toml, with a reason, or write the value itself".into(),
                })?;
                *value = found;
                self.used.push(name);
            }
            _ => {}
        }
        Ok(())
    }

    /// The ESTIMATEs that it uses.
    pub fn estimates(&self) -> &[String] {
        &self.used
    }

    /// Where it was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tree.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The same document with one key set; dotted, tables are made on the way, arrays take numbers.
    pub fn with(&self, key: &str, value: &Value) -> Result<Self, ScenarioError> {
        let mut changed = self.clone();
        let refused = |problem: String| ScenarioError::Wrong {
            path: self.path.clone(),
            key: key.to_owned(),
            problem,
            fix: "write a dotted key of the scenario, such as workload.rate".into(),
        };
        let mut parts: Vec<&str> = key.split('.').collect();
        let Some(last) = parts.pop().filter(|last| !last.is_empty()) else {
            return Err(refused("the key is empty".into()));
        };
        let mut root = Value::Table(std::mem::take(&mut changed.table));
        let mut place = &mut root;
        for part in parts {
            place = match place {
                Value::Table(table) => {
                    table.entry(part.to_owned()).or_insert_with(|| Value::Table(Table::new()))
                }
                Value::Array(values) => {
                    let index: usize =
                        part.parse().map_err(|_| refused(format!("`{part}` is no place in a list")))?;
                    values.get_mut(index).ok_or_else(|| refused(format!("the list has no place {index}")))?
                }
                _ => return Err(refused(format!("`{part}` lies below a plain value"))),
            };
        }
        match place {
            Value::Table(table) => {
                table.insert(last.to_owned(), value.clone());
            }
            Value::Array(values) => {
                let slot = last.parse::<usize>().ok().and_then(|index| values.get_mut(index));
                *slot.ok_or_else(|| refused(format!("the list has no place `{last}`")))? = value.clone();
            }
            _ => return Err(refused(format!("`{last}` lies below a plain value"))),
        }
        if let Value::Table(table) = root {
            changed.table = table;
        }
        Ok(changed)
    }

    /// With types.
    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        // Through text, because a path to the key comes with the error that way.
        let text = toml::to_string(&self.table).map_err(|cause| ScenarioError::Malformed {
            path: self.path.clone(),
            cause: cause.to_string(),
        })?;
        toml::from_str(&text)
            .map_err(|cause| ScenarioError::Malformed { path: self.path.clone(), cause: cause.to_string() })
    }
}

fn parse_table(path: &Path, text: &str) -> Result<Table, ScenarioError> {
    text.parse::<Table>()
        .map_err(|cause| ScenarioError::Malformed { path: path.to_owned(), cause: cause.to_string() })
}

fn read_table(path: &Path) -> Result<Table, ScenarioError> {
    let text = fs::read_to_string(path)
        .map_err(|cause| ScenarioError::Unreadable { path: path.to_owned(), cause })?;
    parse_table(path, &text)
}
