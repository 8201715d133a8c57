//! A scenario as a tree of keys, before it has types.
//!
//! Files that a scenario names lie beside it. Their paths become absolute when the tree gets types,
//! so that a scenario in force, as a run's folder keeps it, can be run again from anywhere.

use super::{Scenario, ScenarioError, shared};
use std::fs;
use std::path::{Path, PathBuf, absolute};
use toml::{Table, Value};

/// Quantities that are not published, by key: one table for all papers.
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

    /// The same table with one numeric value multiplied: it shows how much the result owes to that
    /// value. `None` if it is not a number or a number with a unit.
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

#[derive(Clone, Debug)]
pub struct Document {
    path: PathBuf,
    table: Table,
    used: Vec<String>,
}

/// The mark of a value that stands in the table of ESTIMATEs.
const ESTIMATE: &str = "estimate:";

impl Document {
    /// Reads a file and fills in ESTIMATEs.
    pub fn read(path: &Path, estimates: &Estimates) -> Result<Self, ScenarioError> {
        let text = fs::read_to_string(path)
            .map_err(|cause| ScenarioError::Unreadable { path: path.to_owned(), cause })?;
        Self::parse(path, &text, estimates)
    }

    /// A file's tree with its base under it; ESTIMATEs and shared values are still names.
    pub fn written(path: &Path) -> Result<Table, ScenarioError> {
        shared::with_base(path, read_table(path)?, read_table)
    }

    /// The same of a text; `path` is its name in errors.
    pub fn parse(path: &Path, text: &str, estimates: &Estimates) -> Result<Self, ScenarioError> {
        // Once with types, so that an error has its line in the file; a document with estimates in
        // it cannot be, nor one that names files.
        let own = parse_table(path, text)?;
        let is_joined = own.contains_key("base") || own.contains_key("shared");
        let table = shared::put_shared(path, shared::with_base(path, own, read_table)?)?;
        let mut document = Self { path: path.to_owned(), table: Table::new(), used: Vec::new() };
        let mut root = Value::Table(table);
        document.fill("", &mut root, estimates)?;
        if let Value::Table(table) = root {
            document.table = table;
        }
        if !is_joined && document.used.is_empty() && document.placed() == document.table {
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

    /// The file that it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

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

    /// The tree as a typed scenario.
    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        // Through text, because a path to the key comes with the error that way.
        let text = toml::to_string(&self.placed()).map_err(|cause| ScenarioError::Malformed {
            path: self.path.clone(),
            cause: cause.to_string(),
        })?;
        toml::from_str(&text)
            .map_err(|cause| ScenarioError::Malformed { path: self.path.clone(), cause: cause.to_string() })
    }
}

impl Document {
    /// The tree with absolute paths of files. Axes of a sweep stay as they are: they are values
    /// that tables show.
    fn placed(&self) -> Table {
        let mut table = self.table.clone();
        let folder = self.path.parent().unwrap_or(Path::new(""));
        for (name, value) in &mut table {
            if name != "sweep" {
                place_files(name, value, folder);
            }
        }
        table
    }
}

/// Makes the paths of files below a key absolute.
fn place_files(key: &str, value: &mut Value, folder: &Path) {
    // A path that is no UTF-8 cannot be written in TOML: it stays as it is, and is not found.
    let absolute = |path: &str| Some(absolute(folder.join(path)).ok()?.to_str()?.to_owned());
    match value {
        Value::Table(table) => {
            let is_empirical = table.get("distribution").and_then(Value::as_str) == Some("empirical");
            for (name, value) in table.iter_mut() {
                match value {
                    Value::String(path) if is_empirical && name == "file" => {
                        *path = absolute(path).unwrap_or_else(|| path.clone());
                    }
                    value => place_files(&format!("{key}.{name}"), value, folder),
                }
            }
        }
        Value::Array(values) => {
            values
                .iter_mut()
                .enumerate()
                .for_each(|(at, value)| place_files(&format!("{key}.{at}"), value, folder));
        }
        // A variant sets a key by its dotted name.
        Value::String(path) if key.ends_with("workload.trace") => {
            *path = absolute(path).unwrap_or_else(|| path.clone());
        }
        Value::String(shape) if key.ends_with("workload.shape") => {
            if let Some(path) = shape.strip_prefix(CSV).and_then(absolute) {
                *shape = format!("{CSV}{path}");
            }
        }
        _ => {}
    }
}

/// The mark of a shape that stands in a file.
const CSV: &str = "csv:";

fn parse_table(path: &Path, text: &str) -> Result<Table, ScenarioError> {
    text.parse::<Table>()
        .map_err(|cause| ScenarioError::Malformed { path: path.to_owned(), cause: cause.to_string() })
}

fn read_table(path: &Path) -> Result<Table, ScenarioError> {
    let text = fs::read_to_string(path)
        .map_err(|cause| ScenarioError::Unreadable { path: path.to_owned(), cause })?;
    parse_table(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Mean rate and mean service time in a folder that is not the working directory.
    fn loaded(workload: &str, files: &[(&str, &str)]) -> Result<(f64, f64), ScenarioError> {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
        let path = folder.path().join("scenario.toml");
        fs::write(&path, format!("[machine]\npreset = \"xeon-silver-4116\"\n[workload]\n{workload}\n"))
            .unwrap();
        let document = Document::read(&path, &Estimates::default())?;
        let contestant = document.contestants()?.remove(0);
        let (_, jobs) = contestant.document.setup("menu", 1)?;
        // The scenario in force means the same elsewhere.
        let again = toml::to_string(&document.scenario()?).unwrap();
        let again = Document::parse(Path::new("/elsewhere/run.toml"), &again, &Estimates::default())?;
        let (_, same) = again.setup("menu", 1)?;
        assert_eq!(jobs.mean_rate(), same.mean_rate());
        Ok((jobs.mean_rate().as_per_second(), jobs.mean_service().as_secs_f64()))
    }

    const LAW: &str = "service = { distribution = \"empirical\", file = \"law.cdf\", unit = \"ms\" }";

    #[test]
    fn files_lie_beside_the_scenario() {
        let law = ("law.cdf", "1 0\n3 1\n");
        assert_eq!(loaded(&format!("rate = 50\n{LAW}"), &[law]).unwrap(), (50.0, 0.002));
        let day = ("day.csv", "0,100\n10,100\n20,100\n");
        assert_eq!(loaded(&format!("shape = \"csv:day.csv\"\n{LAW}"), &[law, day]).unwrap().0, 100.0);
        let classes = format!("rate = 50\n[[workload.class]]\nname = \"a\"\n{LAW}");
        assert_eq!(loaded(&classes, &[law]).unwrap().1, 0.002);
        let trace = ("trace.csv", "0,a,1ms\n1,a,1ms\n");
        assert!(loaded("trace = \"trace.csv\"", &[trace]).is_ok());
        let missing = loaded(&format!("rate = 50\n{LAW}"), &[]).unwrap_err().to_string();
        assert!(missing.contains("law.cdf") && missing.contains("scenario.toml"), "{missing}");
    }
}
