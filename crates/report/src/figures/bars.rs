//! Lengths to compare: one row of bars for each name, side by side or stacked.

use super::Quantity;
use super::unit::or_nan;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bars {
    pub title: String,
    #[serde(default)]
    pub see: String,
    pub quantity: Quantity,
    /// The rows' names, top to bottom.
    #[serde(default)]
    pub rows: Vec<String>,
    #[serde(default)]
    pub parts: Vec<BarPart>,
    #[serde(default)]
    pub form: Form,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BarPart {
    pub name: String,
    pub tone: Tone,
    /// Its length in each row; `None` where it is not known.
    pub values: Vec<Option<Bar>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bar {
    #[serde(deserialize_with = "or_nan")]
    pub value: f64,
    /// How far it may be off to either side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// A paper's figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub printed: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    #[default]
    Grouped,
    /// One after the other, together the whole.
    Stacked,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tone {
    /// The colour of the contestant with this place.
    Contestant(usize),
    Busy,
    /// Sleep, from 0, hardly asleep, to 1, as deep as can be.
    Idle(#[serde(deserialize_with = "or_nan")] f64),
}

impl BarPart {
    pub fn new(name: impl Into<String>, tone: Tone, values: impl IntoIterator<Item = Option<Bar>>) -> Self {
        Self { name: name.into(), tone, values: values.into_iter().collect() }
    }
}

impl Bar {
    pub fn new(value: f64) -> Self {
        Self { value, spread: None, printed: None }
    }
}
