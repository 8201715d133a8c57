//! The compiled part of the Python package `roost`.
//!
//! The package is a way to call `study` and `sim`, as the command is: nothing about a simulation is
//! decided here. Scenarios come in as dicts, paths or texts, and tables go out by Arrow's interface.
//! The other half is `python/roost/`: the functions that people call, with their documentation, data
//! frames, plots.
//!
//! ```text
//!   scenario.rs   a scenario and the changes of a call
//!   values.rs     values of Python as keys of a scenario
//!   supervise.rs  simulations beside Python: signals, progress, panics
//!   run.rs        contestants side by side
//!   tables.rs     tables for pandas, polars, DuckDB
//!   errors.rs     exceptions
//! ```

mod errors;
mod run;
mod scenario;
mod supervise;
mod tables;
mod values;

/// The compiled part of the package; `python/roost/_roost.pyi` has its types.
#[pyo3::pymodule]
mod _roost {
    #[pymodule_export]
    use super::run::{Run, look_at_run, run};
    #[pymodule_export]
    use super::supervise::_fail_a_check;
    #[pymodule_export]
    use super::tables::Table;
}
