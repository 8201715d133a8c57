//! Parts that scenarios share: a base file beside the scenario, and values with a name.
//!
//! `base = "load.toml"` joins two trees of keys; where both have a key that is no table, the scenario's
//! own holds. `[shared]` names values, and a text `shared:NAME` stands for one. Both are gone from the
//! tree when it gets types, so that a scenario in force needs no other file.

use super::ScenarioError;
use std::path::{Component, Path};
use toml::{Table, Value};

/// The mark of a value that the scenario or its base names.
const SHARED: &str = "shared:";

/// The tree with its base under it. `read` gets a table from a file.
pub(super) fn with_base(
    path: &Path,
    mut own: Table,
    read: impl Fn(&Path) -> Result<Table, ScenarioError>,
) -> Result<Table, ScenarioError> {
    let wrong = |problem: String, fix: &str| wrong(path, "base", problem, fix);
    let Some(base) = own.remove("base") else { return Ok(own) };
    let beside = base.as_str().map(Path::new).filter(|name| {
        let mut parts = name.components();
        matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
    });
    let Some(name) = beside else {
        let fix = "name a file in the scenario's folder, such as base = \"load.toml\"";
        return Err(wrong(base.to_string(), fix));
    };
    let mut under = read(&path.with_file_name(name))?;
    if under.contains_key("base") {
        let problem = format!("{} has a base of its own", name.display());
        return Err(wrong(problem, "name that one, or join the two"));
    }
    put_over(&mut under, own);
    Ok(under)
}

/// The tree with all shared values in their places.
pub(super) fn put_shared(path: &Path, mut table: Table) -> Result<Table, ScenarioError> {
    let shared = match table.remove("shared") {
        None => Table::new(),
        Some(Value::Table(shared)) => shared,
        Some(_) => {
            return Err(wrong(path, "shared", "is no table".into(), "write [shared] and NAME = VALUE"));
        }
    };
    let mut root = Value::Table(table);
    put_in("", &mut root, &shared).map_err(|(key, name)| {
        let fix = "add it to [shared], here or in the base";
        wrong(path, &key, format!("no shared value is called `{name}`"), fix)
    })?;
    let Value::Table(table) = root else { unreachable!("it was made of a table") };
    Ok(table)
}

fn wrong(path: &Path, key: &str, problem: String, fix: &str) -> ScenarioError {
    ScenarioError::Wrong { path: path.to_owned(), key: key.to_owned(), problem, fix: fix.to_owned() }
}

/// Puts the keys of `own` over those of `under`.
fn put_over(under: &mut Table, own: Table) {
    for (name, value) in own {
        match (under.get_mut(&name), value) {
            (Some(Value::Table(under)), Value::Table(own)) => put_over(under, own),
            (_, value) => {
                under.insert(name, value);
            }
        }
    }
}

/// Puts shared values in the places of their names. The error is a key and a name that nothing has.
fn put_in(key: &str, value: &mut Value, shared: &Table) -> Result<(), (String, String)> {
    let below = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
    match value {
        Value::Table(table) => {
            table.iter_mut().try_for_each(|(name, value)| put_in(&below(name), value, shared))
        }
        Value::Array(values) => values
            .iter_mut()
            .enumerate()
            .try_for_each(|(place, value)| put_in(&below(&place.to_string()), value, shared)),
        Value::String(text) => {
            let Some(name) = text.strip_prefix(SHARED) else { return Ok(()) };
            let found = shared.get(name).ok_or_else(|| (key.to_owned(), name.to_owned()))?;
            *value = found.clone();
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined_text(own: &str, base: &str) -> Result<Table, String> {
        let read = |path: &Path| {
            assert_eq!(path, Path::new("papers/load.toml"));
            Ok(base.parse().expect("a table"))
        };
        let own = own.parse().expect("a table");
        let path = Path::new("papers/1.toml");
        let result = with_base(path, own, read).and_then(|table| put_shared(path, table));
        result.map_err(|error| error.to_string())
    }

    #[test]
    fn the_scenarios_own_keys_lie_over_the_bases() {
        let base = "title = \"base\"\nlist = [1, 2]\n[machine]\ncores = 2\nthreads = 1\n";
        let found = joined_text("base = \"load.toml\"\nlist = [3]\n[machine]\ncores = 4\n", base).unwrap();
        let wanted = "title = \"base\"\nlist = [3]\n[machine]\ncores = 4\nthreads = 1\n";
        assert_eq!(found, wanted.parse::<Table>().unwrap());
    }

    #[test]
    fn shared_values_stand_in_their_places_and_nowhere_else() {
        let base = "[shared]\nlow = [{ name = \"a\" }]\nspare = \"estimate:unused\"\n";
        let own =
            "base = \"load.toml\"\n[[variant]]\nname = \"x\"\nset.\"workload.class\" = \"shared:low\"\n";
        let found = joined_text(own, base).unwrap();
        let wanted = "[[variant]]\nname = \"x\"\nset.\"workload.class\" = [{ name = \"a\" }]\n";
        assert_eq!(found, wanted.parse::<Table>().unwrap());
    }

    #[test]
    fn a_wrong_base_or_name_is_told_with_its_key_and_the_fix() {
        for (own, base, parts) in [
            ("base = \"../load.toml\"", "", ["base", "in the scenario's folder"]),
            ("base = 3", "", ["base", "in the scenario's folder"]),
            ("base = \"load.toml\"", "base = \"x.toml\"", ["load.toml", "join the two"]),
            ("a.b = \"shared:mix\"", "", ["a.b", "`mix`"]),
            ("shared = 3", "", ["shared", "NAME = VALUE"]),
        ] {
            let told = joined_text(own, base).unwrap_err();
            assert!(parts.iter().all(|part| told.contains(part)), "{own}: {told}");
        }
    }
}
