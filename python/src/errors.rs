//! Errors of the workspace as exceptions of Python.

use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use report::exit::{Exit, code_of, told};
use std::any::Any;
use std::process::ExitCode;

pyo3::import_exception!(roost.errors, ScenarioError);
pyo3::import_exception!(roost.errors, InternalError);
pyo3::import_exception!(roost.errors, PolicyError);

/// Bad input is a `ScenarioError`, a policy's fault a `PolicyError`, a file that cannot be had an
/// `OSError`, the rest a `RuntimeError`.
pub fn raised(error: anyhow::Error) -> PyErr {
    let text = told(&error);
    if code_of(&error) == ExitCode::from(Exit::Usage) {
        // A key that `set` names is blamed on the command's flag.
        return wrong(text.strip_prefix("--").map_or(text.clone(), str::to_owned));
    }
    if matches!(error.downcast_ref(), Some(sim::ScenarioError::Policy { .. })) {
        return PolicyError::new_err(text);
    }
    if error.chain().any(|cause| cause.is::<std::io::Error>()) {
        return PyOSError::new_err(text);
    }
    PyRuntimeError::new_err(text)
}

/// Bad input; the message names the key and the fix.
pub fn wrong(message: impl ToString) -> PyErr {
    ScenarioError::new_err(message.to_string())
}

/// A panic of the simulator: one of its own checks has failed.
pub fn panicked(panic: &(dyn Any + Send)) -> PyErr {
    let literal = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = literal.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    InternalError::new_err(format!(
        "a check inside the simulator has failed: {said}\n\nhint: the text above on standard error says \
         where; please report it with the scenario and the seed"
    ))
}
