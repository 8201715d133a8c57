//! Figures of simulated runs of any kind: SVG drawings with a sentence about their message, and the
//! page that holds them.
//!
//! The problem: "which policy costs what" is a question about dozens of numbers with intervals. An
//! answer is believed when it can be seen at a glance, read off exactly, and read by people who
//! cannot see colours or drawings at all. The approach: few kinds of figures, each given its
//! content in plain numbers with a [`Unit`]; the same ink and the same form of mark for the same
//! contestant in all figures of a page; the numbers themselves folded below each drawing.
//!
//! Invariants:
//! - A value that is missing, not a number or infinite is a gap, never zero, and never reaches a
//!   coordinate.
//! - Every axis has a unit. Nothing is told by colour alone. Legends stand where no data can be.
//! - Equal inputs give equal bytes.
//!
//! ```text
//!   unit.rs      numbers with their unit, on axes and in tables
//!   lines.rs     values over something: lines with bands, marks with intervals, a paper's points beside ours
//!   series.rs    what of a series can be drawn, and with what
//!   labels.rs    names beside marks, where they cover nothing
//!   bars.rs      lengths to compare, side by side or stacked
//!   areas.rs     how a whole is divided, over something
//!   lengths.rs   where time goes, by the length of periods
//!   heat_map.rs  values over two things
//!   flame.rs     sampled stacks
//!   table.rs     rows and columns
//!   page.rs      all of it on one self-contained page
//! ```

mod areas;
mod bars;
mod flame;
mod heat_map;
mod labels;
mod lengths;
mod lines;
mod page;
mod series;
mod table;
mod unit;

pub use areas::{Areas, Layer, Panel};
pub use bars::{Bar, BarPart, Bars, Form, Tone};
pub use flame::Flame;
pub use heat_map::{Cell, HeatMap, Labels};
pub use lengths::{Bucket, Lengths};
pub use lines::{Limit, Lines};
pub use page::{Card, Page, Part, Section};
pub use series::{Point, Series, Style};
pub use table::{Row, Table};
pub use unit::{Quantity, Scale, Unit};

use crate::drawing::canvas::{Ink, PHASES, Shape, Stroke};

/// One figure, ready for a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub title: String,
    /// Its message, in a sentence or two.
    pub see: String,
    /// The SVG, or why there is none.
    pub drawing: Result<String, String>,
    /// Its numbers, where they are few enough to be read.
    pub values: Option<Table>,
}

/// More rows than this are for a file, not for a reader.
const ROWS_MAX: usize = 60;

/// How the contestant with this place looks in all figures: the twelve first can be told apart in
/// every one.
fn look(place: usize) -> (Ink, Stroke, Shape) {
    let round = place / PHASES;
    let stroke = if round.is_multiple_of(2) { Stroke::Solid } else { Stroke::Dashed };
    (Ink::Phase(place), stroke, Shape::of(place + round))
}

/// The least and the greatest of some numbers.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}
