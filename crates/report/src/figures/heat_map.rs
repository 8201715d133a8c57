//! Values over two things, as colours with the numbers in them.
//!
//! The scale goes one way from light to dark (dark to light on a dark page), so that its order is
//! seen without seeing a hue. A cell that has no value, or whose value means nothing, has no colour
//! of the scale: it is hatched and named.

use super::Quantity;
use serde::{Deserialize, Serialize};

/// A grid of values, one for each contestant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeatMap {
    pub title: String,
    pub see: String,
    pub x: Labels,
    pub y: Labels,
    pub quantity: Quantity,
    /// Grids of one scale, each with its name: for each value of `y`, one cell for each value of
    /// `x`.
    pub panels: Vec<(String, Vec<Vec<Cell>>)>,
}

/// The values of an axis, as text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Labels {
    pub name: String,
    /// Its values, from the corner outwards.
    pub values: Vec<String>,
}

/// In JSON a number, a word or `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    Value(f64),
    /// None, for a reason of a word: `unstable`.
    Marked(String),
    Missing,
}
