//! A flame graph (Gregg): sampled stacks, the outermost function at the bottom, each as wide as the
//! share of samples it is in.

use serde::{Deserialize, Serialize};

/// Stacks, outermost first, with how often each was met.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Flame {
    pub title: String,
    pub see: String,
    pub stacks: Vec<(Vec<String>, u64)>,
    /// A function to be told apart: its boxes have another colour and a frame.
    pub marked: Option<String>,
}
