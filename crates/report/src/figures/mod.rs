//! A page as data: texts, tables and figures, each figure given its content in plain numbers with a
//! [`Unit`]. `page.json` of a run's folder is a [`Page`]; [`crate::html`] is its one template.
//!
//! The problem: the price of each policy is a question about dozens of numbers with intervals. An
//! answer is believed when it can be seen at a glance, read off exactly, and read by people who
//! cannot see colours or drawings at all. The approach: few kinds of figures; the same ink and the
//! same form of mark for the same contestant in all figures of a page; the numbers themselves
//! folded below each drawing.
//!
//! Invariants:
//! - A value that is missing, not a number or infinite is `null` in the JSON and a gap in the
//!   drawing, never zero.
//! - Every axis has a unit, and every figure says whether it was measured or modelled.
//! - Equal inputs give equal bytes.
//!
//! ```text
//!   unit.rs      numbers with their unit, and whether they were measured
//!   lines.rs     values over something: lines with bands, marks with intervals, a paper's points beside ours
//!   bars.rs      lengths to compare, side by side or stacked
//!   areas.rs     how a whole is divided, over something
//!   lengths.rs   where time goes, by the length of periods
//!   heat_map.rs  values over two things
//!   flame.rs     sampled stacks
//!   table.rs     rows and columns
//!   page.rs      all of it
//! ```

mod areas;
mod bars;
mod flame;
mod heat_map;
mod lengths;
mod lines;
mod page;
mod table;
mod unit;

pub use areas::{Areas, Layer, Panel};
pub use bars::{Bar, BarPart, Bars, Form, Tone};
pub use flame::Flame;
pub use heat_map::{Cell, HeatMap, Labels};
pub use lengths::{Bucket, Lengths};
pub use lines::{Limit, Lines, Point, Series, Style};
pub use page::{Card, Page, Part, Section};
pub use table::{Row, Table};
pub use unit::{Basis, Quantity, Scale, Unit};
