//! Views for a terminal: `roost top`, the live views of `roost demo`, `roost observe` and
//! `roost stage`.
//!
//! The problem: an operator who tunes a scheduler wants to see at a glance which workers are awake,
//! how near each is to its limit, and the effect on the tail. The view has to fit a serial console
//! of 80 by 24 as well as a wall. The approach: views are plain structs that draw themselves into
//! any ratatui frame, so tests draw them into memory; [`Screen`] is the only thing here that
//! touches a real terminal, and gives it back on every way out.
//!
//! Invariants: a view draws on any size without a panic (lines that do not fit are left out from
//! the bottom, with a remark), shows a dash for a missing value, and says everything in words that
//! it also says in colour.

mod demo;
mod screen;
mod sleep;
mod stage;
mod table;
mod top;
mod workers;

pub use demo::{DemoView, Planned};
pub use screen::{Screen, Wish};
pub use sleep::{CpuSleeps, LengthBar, OwnWord, RequestNow, SleepView};
pub use stage::{ClassNow, ServerNow, StageView};
pub use table::{folded, outcome, page};
pub use top::{Moved, TopView};
