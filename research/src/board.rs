//! A figure's runs and where each stands: its place on the axes, its variant, its policies.

use anyhow::Result;
use sim::{Document, Outcome};
use std::collections::BTreeMap;
use study::grid::{self, Planned};

#[derive(Clone, Debug)]
pub struct Place {
    pub axes: BTreeMap<String, String>,
    /// Who, in full: `bigtable: menu`.
    pub contestant: String,
    /// The part before the colon, or all of it where the variant has policies of its own.
    pub variant: Option<String>,
    pub policies: String,
    pub planned: Planned,
}

impl Place {
    /// A policy of Roost's own: no part of the paper's results or claims.
    pub fn is_ours(&self) -> bool {
        self.policies.split('+').any(|word| word.trim() == OURS)
    }
}

/// The word for the policy that no paper has.
const OURS: &str = "joint";

#[derive(Clone, Debug)]
pub struct Board {
    /// In the order of the grid.
    pub places: Vec<Place>,
}

impl Board {
    /// The runs of a figure's scenario.
    pub fn new(document: &Document) -> Result<Self> {
        let has_variants = document.table().get("variant").is_some();
        let places = grid::cells(document, &Default::default())?.into_iter().map(|planned| {
            let contestant = planned.key.contestant.clone();
            let policies = planned.run.task.contestant.policies.clone();
            let variant = has_variants.then(|| {
                let ending = format!(": {policies}");
                contestant.strip_suffix(&ending).unwrap_or(&contestant).to_owned()
            });
            Place { axes: planned.key.axes.clone(), contestant, variant, policies, planned }
        });
        Ok(Self { places: places.collect() })
    }
}

/// The outcomes of a board's runs, place by place; `None` where one has not been made.
pub type Outcomes<'a> = [Option<&'a Outcome>];
