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
//!   own.rs        policies that are written in Python
//!   supervise.rs  simulations beside Python: signals, progress, panics
//!   run.rs        contestants side by side
//!   sweep.rs      the same in each cell of a grid
//!   fleet.rs      servers behind a root
//!   folder.rs     the folder of a run
//!   figure.rs     a paper's figure
//!   tables.rs     tables for pandas, polars, DuckDB
//!   errors.rs     exceptions
//! ```

mod errors;
mod figure;
mod fleet;
mod folder;
mod own;
mod run;
mod scenario;
mod supervise;
mod sweep;
mod tables;
mod values;

/// The compiled part of the package; `python/roost/_roost.pyi` has its types.
#[pyo3::pymodule]
mod _roost {
    #[pymodule_export]
    use super::figure::{Figures, figure};
    #[pymodule_export]
    use super::fleet::{Fleet, fleet, fleet_at, fleets_elsewhere, fleets_joined};
    #[pymodule_export]
    use super::folder::{Folder, load_run};
    #[pymodule_export]
    use super::own::{Commands, Knobs, Reading};
    #[pymodule_export]
    use super::run::{Run, run};
    #[pymodule_export]
    use super::supervise::_fail_a_check;
    #[pymodule_export]
    use super::sweep::{Elsewhere, Sweep, cells_at, sweep};
    #[pymodule_export]
    use super::tables::Table;

    /// Built without optimising, as tests are: no timing of it means anything.
    #[pymodule_export]
    const IS_DEBUG: bool = cfg!(debug_assertions);
}
