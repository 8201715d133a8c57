//! The client's side: composing requests and understanding answers, for the load generator and for
//! tests.

mod answer;
pub mod compose;

pub use answer::{Answer, Garbled, Reading, parse};
