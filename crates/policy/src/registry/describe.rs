//! An entry as plain data: for lists, reference pages and machines.

use super::{Bounds, Entry, Maturity, Parameter, Question, Runs, Surroundings, Unit};
use crate::check::find;
use serde::Serialize;
use serde_json::Value;

/// A policy as the registry lists it.
#[derive(Clone, Debug, Serialize)]
pub struct Description {
    pub name: &'static str,
    pub words: Vec<WordDescription>,
    pub decides: Vec<Question>,
    /// Only where the line names no other policy for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decides_unless_named: Vec<Question>,
    pub runs: Runs,
    pub maturity: Maturity,
    pub needs_goal: bool,
    pub origin: &'static str,
    pub help: &'static str,
    pub parameters: Vec<ParameterDescription>,
}

#[derive(Clone, Debug, Serialize)]
pub struct WordDescription {
    pub word: &'static str,
    pub summary: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub struct ParameterDescription {
    /// The parameter's name, dotted below tables.
    pub name: String,
    pub unit: String,
    pub bounds: String,
    /// Of the first word, where a scenario says nothing; `null` if there is none.
    pub default: Value,
    pub meaning: &'static str,
    /// The place that the default comes from.
    pub source: &'static str,
    /// The part of the scenario that the value follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follows: Option<&'static str>,
    /// The meaning of a key that is left out and has no default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<&'static str>,
}

impl Entry {
    pub fn describe(&self) -> Description {
        let word = |word: &super::Word| WordDescription { word: word.word, summary: word.summary };
        let defaults = self.words.first().map(|word| (word.settings)(&Surroundings::default()));
        let mut parameters = Vec::new();
        rows(self.shape.parameters, "", &defaults.unwrap_or_default(), &mut parameters);
        Description {
            name: self.name(),
            words: self.words.iter().map(word).collect(),
            decides: std::iter::once(self.question).chain(self.also.iter().copied()).collect(),
            decides_unless_named: self.unless_named.to_vec(),
            runs: self.runs,
            maturity: self.maturity,
            needs_goal: self.needs_goal,
            origin: self.origin,
            help: self.help,
            parameters,
        }
    }
}

fn rows(table: &[Parameter], prefix: &str, defaults: &Value, found: &mut Vec<ParameterDescription>) {
    for row in table {
        let name = format!("{prefix}{}", row.name);
        if let Unit::Table(inner) = row.unit {
            rows(inner, &format!("{name}."), defaults, found);
            continue;
        }
        found.push(ParameterDescription {
            unit: row.unit.text(),
            bounds: row.bounds_text(),
            default: find(defaults, &name).cloned().unwrap_or_default(),
            meaning: row.meaning,
            source: row.source,
            follows: row.given,
            left_out: row.absent,
            name,
        });
    }
}

impl Unit {
    fn text(self) -> String {
        match self {
            Self::Time => "time".into(),
            Self::Kilohertz => "kHz".into(),
            Self::Microwatts => "uW".into(),
            Self::RequestsPerSecond => "requests/s".into(),
            Self::Share => "share".into(),
            Self::Number => "number".into(),
            Self::Count => "count".into(),
            Self::Percent => "%".into(),
            Self::Flag => "true or false".into(),
            Self::OneOf(words) => words.join(", "),
            Self::List => "list".into(),
            Self::Table(_) => "table".into(),
        }
    }
}

impl Parameter {
    fn bounds_text(&self) -> String {
        let mut text = match self.bounds {
            Bounds::Any => String::new(),
            Bounds::AboveZero => "above 0".into(),
            Bounds::ZeroOrMore => "0 or more".into(),
            Bounds::Within(least, most) => format!("{least} to {most}"),
            Bounds::AboveZeroTo(most) => format!("above 0, up to {most}"),
            Bounds::AroundOne => "a pair around 1".into(),
            Bounds::AtLeast(least) => format!("at least {least}"),
        };
        if let Some(other) = self.not_above {
            let and = if text.is_empty() { "" } else { ", " };
            text += &format!("{and}up to `{other}`");
        }
        text
    }
}

/// All policies by the first question that each answers, in the order of the registry.
pub fn by_question(policies: &[Description]) -> Vec<(Question, Vec<&Description>)> {
    let mut questions: Vec<Question> = policies.iter().map(|policy| policy.decides[0]).collect();
    questions.sort();
    questions.dedup();
    let of = |question| policies.iter().filter(|policy| policy.decides[0] == question).collect();
    questions.into_iter().map(|question| (question, of(question))).collect()
}

impl Description {
    /// Its question, where it runs and where it comes from, as sentences.
    pub fn properties(&self) -> String {
        let decides: Vec<String> = self.decides.iter().map(Question::to_string).collect();
        let goal = if self.needs_goal { " Needs a goal." } else { "" };
        format!(
            "Decides {}. Runs {}; {}.{goal} From: {}.",
            decides.join(", "),
            self.runs,
            self.maturity,
            self.origin
        )
    }
}

impl ParameterDescription {
    pub fn default_text(&self) -> String {
        if self.default.is_null() { "none".to_owned() } else { self.default.to_string() }
    }

    /// Unit, bounds and meaning, and where the default comes from.
    pub fn remark(&self) -> String {
        let mut text = self.unit.clone();
        if !self.bounds.is_empty() {
            text = format!("{text}, {}", self.bounds);
        }
        text = format!("{text}: {}", self.meaning);
        if let Some(follows) = self.follows {
            text = format!("{text}; follows {follows}");
        }
        if let Some(left_out) = self.left_out {
            text = format!("{text}; left out: {left_out}");
        }
        if self.source.is_empty() { text } else { format!("{text} ({})", self.source) }
    }
}
