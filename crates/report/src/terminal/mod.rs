//! Views for a terminal: `roost top`, the live views of `roost demo`, `roost observe` and `roost stage`.
//!
//! The problem: who tunes a scheduler wants to see at a glance who is awake, how near each worker is to its limit,
//! and what that does to the tail, over a serial console of 80 by 24 as well as on a wall. The approach: views are
//! plain structs that draw themselves into any ratatui frame, so tests draw them into memory; [`Screen`] is the
//! only thing here that touches a real terminal, and gives it back on every way out.
//!
//! What always holds: a view draws on any size without a panic (what does not fit is left out from the bottom, and
//! said), shows a dash for what is missing, and says in words what it also says in colour.

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
pub use table::{folded, outcome};
pub use top::{Moved, TopView};
