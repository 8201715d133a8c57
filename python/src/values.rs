//! Values of Python as the keys of a scenario.

use crate::errors::wrong;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use std::path::PathBuf;
use toml::{Table, Value};

/// Deeper than any scenario. A list that holds itself has no end.
const DEPTH_MAX: usize = 32;

/// A mapping as a table; `key` is where it stands. Entries that are `None` are left out.
pub fn table(mapping: &Bound<'_, PyMapping>, key: &str) -> PyResult<Table> {
    table_at(mapping, key, 0)
}

fn table_at(mapping: &Bound<'_, PyMapping>, key: &str, depth: usize) -> PyResult<Table> {
    let mut table = Table::new();
    for item in mapping.items()?.iter() {
        let (name, of): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        let Ok(name) = name.extract::<String>() else {
            let at = if key.is_empty() { "the scenario" } else { key };
            return Err(wrong(format!(
                "{at}: the key {name} is no text\n\nhint: keys of a scenario are texts"
            )));
        };
        let below = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        if let Some(value) = value_at(&of, &below, depth + 1)? {
            table.insert(name, value);
        }
    }
    Ok(table)
}

fn value_at(of: &Bound<'_, PyAny>, key: &str, depth: usize) -> PyResult<Option<Value>> {
    if depth > DEPTH_MAX {
        return Err(wrong(format!(
            "{key}: tables and lists more than {DEPTH_MAX} deep\n\nhint: does one of them hold itself?"
        )));
    }
    if of.is_none() {
        return Ok(None);
    }
    // True and False are integers as well.
    if let Ok(truth) = of.cast::<PyBool>() {
        return Ok(Some(Value::Boolean(truth.is_true())));
    }
    if of.is_instance_of::<PyInt>() {
        let number = of.extract::<i64>().map_err(|_| {
            wrong(format!("{key} = {of}: it does not fit into 64 bits\n\nhint: write a smaller number"))
        })?;
        return Ok(Some(Value::Integer(number)));
    }
    if let Ok(number) = of.cast::<PyFloat>() {
        return Ok(Some(Value::Float(number.extract()?)));
    }
    if let Ok(text) = of.cast::<PyString>() {
        return Ok(Some(Value::String(text.extract()?)));
    }
    if let Ok(mapping) = of.cast::<PyMapping>() {
        return Ok(Some(Value::Table(table_at(mapping, key, depth)?)));
    }
    if of.is_instance_of::<PyList>() || of.is_instance_of::<PyTuple>() {
        let mut values = Vec::new();
        for (place, item) in of.try_iter()?.enumerate() {
            values.extend(value_at(&item?, &format!("{key}.{place}"), depth + 1)?);
        }
        return Ok(Some(Value::Array(values)));
    }
    // Scalars and arrays of numpy, a path.
    for method in ["tolist", "item", "__fspath__"] {
        if of.hasattr(method)? {
            return value_at(&of.call_method0(method)?, key, depth + 1);
        }
    }
    let kind = of.get_type().name()?;
    Err(wrong(format!(
        "{key}: a value of the type `{kind}`\n\nhint: write a number, a text such as \"50k\" or \"10us\", \
         a list or a dict"
    )))
}

/// A path, or `None` if it is none.
pub fn path(of: &Bound<'_, PyAny>) -> Option<PathBuf> {
    if of.is_instance_of::<PyString>() { None } else { of.extract().ok() }
}
