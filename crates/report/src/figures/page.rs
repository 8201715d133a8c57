//! A page: question and result in a paragraph; verdicts; the figures, each with its message; and at
//! the end the sources: assumptions, ESTIMATEs, the machine's sources, the scenario, the command to
//! have it again.

use super::{Areas, Bars, Basis, Flame, HeatMap, Lines, Table};
use crate::run::RunInfo;
use serde::{Deserialize, Serialize};

/// A page. Empty parts are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Page {
    pub name: String,
    pub title: String,
    pub summary: String,
    /// Short facts below the title: version, date, seed.
    pub facts: Vec<String>,
    /// How the numbers of figures were got that do not say otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
    /// The reasons that make some of it worthless, or worth less.
    pub alarms: Vec<String>,
    /// Verdicts and the figures that matter most.
    pub cards: Vec<Card>,
    pub sections: Vec<Section>,
    pub assumptions: Vec<String>,
    /// Unpublished numbers that were estimated, each with its value.
    pub estimates: Vec<String>,
    pub notes: Vec<String>,
    /// Machines and other things with sources: a name, and the sources.
    pub sources: Vec<(String, Vec<String>)>,
    /// Long texts that most readers skip, each with its name.
    pub folded: Vec<(String, String)>,
    pub command: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Card {
    pub what: String,
    pub figure: String,
    pub remark: String,
    /// Whether that is met; `None` if nothing is held against it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Section {
    pub title: String,
    /// The message of all of them; nothing if empty.
    pub text: String,
    pub parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Text(String),
    Table(Table),
    Lines(Lines),
    Bars(Bars),
    Areas(Areas),
    HeatMap(HeatMap),
    Flame(Flame),
}

impl Card {
    /// A figure that nothing is held against.
    pub fn new(what: impl Into<String>, figure: impl Into<String>, remark: impl Into<String>) -> Self {
        Self { what: what.into(), figure: figure.into(), remark: remark.into(), met: None }
    }

    /// The same, and whether the bar in its remark is met.
    pub fn judged(self, met: Option<bool>) -> Self {
        Self { met, ..self }
    }
}

impl Section {
    pub fn new(title: impl Into<String>, text: impl Into<String>, parts: Vec<Part>) -> Self {
        Self { title: title.into(), text: text.into(), parts }
    }
}

impl Page {
    /// The page of a run with these facts.
    pub fn of(info: &RunInfo) -> Self {
        let mut facts = vec![info.started.clone(), format!("Roost {}", info.version)];
        facts.extend(info.machine.cpu_model.clone());
        Self {
            name: info.name.clone(),
            title: info.title.clone(),
            facts,
            notes: info.method.clone(),
            command: info.command.clone(),
            basis: Some(Basis::Measured),
            ..Self::default()
        }
    }

    /// A page that was written as JSON: the fields' names are the keys, and `docs/formats.md` has
    /// an example.
    pub fn read(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// The same as [`Page::read`] takes.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("a page is texts and numbers")
    }
}

macro_rules! parts {
    ($($kind:ident),*) => { $(
        impl $kind {
            pub fn part(self) -> Part {
                Part::$kind(self)
            }
        }

        impl From<$kind> for Part {
            fn from(piece: $kind) -> Self {
                Self::$kind(piece)
            }
        }
    )* };
}

parts!(Table, Lines, Bars, Areas, HeatMap, Flame);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_formats_is_read() {
        let docs = include_str!("../../../../docs/formats.md");
        let (_, after) = docs.split_once("## A page's figures").expect("the section");
        let (_, after) = after.split_once("```json\n").expect("an example");
        let (example, _) = after.split_once("\n```").expect("its end");
        let parts = example.replace("\n{", ",{");
        let page = Page::read(&format!("{{\"sections\":[{{\"parts\":[{parts}]}}]}}")).unwrap();
        assert_eq!(page.sections[0].parts.len(), 7);
        assert_eq!(Page::read(&page.json()).unwrap(), page);
    }

    #[test]
    fn a_misspelt_key_is_named() {
        let error = Page::read("{\"sections\":[{\"parts\":[{\"bars\":{\"titel\":\"x\"}}]}]}").unwrap_err();
        assert!(error.to_string().contains("titel"), "{error}");
    }
}
