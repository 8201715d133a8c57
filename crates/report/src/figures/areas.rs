//! How a whole is divided, over something: layers on top of each other, a panel for each
//! contestant.

use super::Quantity;
use super::bars::Tone;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Areas {
    pub title: String,
    pub see: String,
    /// Along the bottom of all panels.
    pub x: Quantity,
    /// The divided quantity: shares of one.
    pub y: Quantity,
    /// The layers, from the ground up.
    pub layers: Vec<Layer>,
    pub panels: Vec<Panel>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    pub name: String,
    pub tone: Tone,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Panel {
    pub name: String,
    pub x: Vec<Option<f64>>,
    /// For each layer, its share at each place.
    pub layers: Vec<Vec<Option<f64>>>,
}
