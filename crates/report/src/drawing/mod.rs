//! The parts of every drawing: inks on a sheet, axes, legends. Charts of a live run and figures of
//! a simulated one look alike because of it.

pub mod axis;
pub mod canvas;
pub mod sheet;
