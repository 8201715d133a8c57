//! From a word of a line to its registry entry and its parameters.

use super::{Chosen, PolicyError, queues};
use crate::Goal;
use crate::engine::Dispatch;
use machine::{Duration, Platform};
use policy::check::Wrong;
use policy::registry::{self, Entry, Refused, Registry, Surroundings, Word};
use serde_json::Value;
use std::collections::BTreeMap;
use toml::Table;

/// All that a word's parameters are made of.
pub(super) struct Reader<'a> {
    pub registries: &'a [&'a Registry],
    pub params: &'a BTreeMap<String, Table>,
    pub goal: Option<Goal>,
    pub platform: &'a Platform,
    pub tick: Option<Duration>,
    pub dispatch: Dispatch,
    pub steals: bool,
}

impl Reader<'_> {
    /// Each table of parameters is one of a policy that takes some.
    pub fn check_tables(&self) -> Result<(), PolicyError> {
        for name in self.params.keys() {
            let key = format!("params.{name}");
            let (entry, _) = self.find(name, &key)?;
            let plain = table_of(name);
            if plain != name {
                return Err(PolicyError {
                    key,
                    problem: format!("`{name}` has the parameters of `{plain}`"),
                    fix: format!("write them below [params.{plain}]"),
                });
            }
            if entry.shape.parameters.is_empty() {
                return Err(PolicyError {
                    key,
                    problem: format!("`{name}` takes no parameters"),
                    fix: format!("leave the table [params.{name}] out"),
                });
            }
        }
        Ok(())
    }

    fn find(&self, word: &str, key: &str) -> Result<(&'static Entry, &'static Word), PolicyError> {
        registry::find(self.registries, word).ok_or_else(|| {
            let words: Vec<&str> = registry::all(self.registries).map(|(_, word)| word.word).collect();
            PolicyError {
                key: key.to_owned(),
                problem: format!("no policy is called `{word}`"),
                fix: format!("one of: {}", words.join(", ")),
            }
        })
    }

    /// The word with its parameters, checked.
    pub fn word(&self, word: &str) -> Result<Chosen, PolicyError> {
        let (entry, known) = self.find(word, "policies")?;
        let packs = self.dispatch == Dispatch::Connections;
        if packs && let Some(fix) = entry.not_by_connection {
            return Err(PolicyError {
                key: "policies".into(),
                problem: format!(
                    "`{word}` counts cores for work that any of them can take, and connections have workers"
                ),
                fix: fix.into(),
            });
        }
        if entry.needs_goal && self.goal.is_none() {
            return Err(PolicyError {
                key: "goal".into(),
                problem: format!("{word} works towards a latency goal, and there is none"),
                fix: "add one, such as goal = \"300us@p99\"".into(),
            });
        }
        let around = Surroundings {
            goal: self.goal,
            platform: Some(self.platform),
            tick: self.tick,
            queues: queues(self.dispatch, self.steals),
        };
        let settings = self.with(word, entry, (known.settings)(&around))?;
        Ok(Chosen { word: word.to_owned(), entry, settings })
    }

    /// `settings` with the keys that the scenario gives for them; a key within a key replaces only
    /// that.
    fn with(&self, word: &str, entry: &Entry, mut settings: Value) -> Result<Value, PolicyError> {
        let word = table_of(word);
        let Some(overrides) = self.params.get(word) else { return Ok(settings) };
        if let Some(key) = not_finite(overrides) {
            return Err(PolicyError {
                key: format!("params.{word}.{key}"),
                problem: "is not finite".into(),
                fix: "write a number".into(),
            });
        }
        let overrides = serde_json::to_value(overrides).expect("a table of TOML is plain data");
        drop_other_forms(&mut settings, &overrides, entry);
        merge(&mut settings, overrides);
        entry.shape.check(&settings).map_err(|refused| match refused {
            Refused::Wrong(Wrong { key, problem, fix }) => {
                PolicyError { key: format!("params.{word}.{key}"), problem, fix }
            }
            Refused::Unreadable(problem) => PolicyError {
                key: format!("params.{word}"),
                problem,
                fix: "see the parameters of the policy in docs/reference/policies.md".into(),
            },
        })?;
        Ok(settings)
    }
}

/// The table of a word's parameters: the versions of a kernel's policy, `teo@7.0`, share one.
pub(crate) fn table_of(word: &str) -> &str {
    word.split_once('@').map_or(word, |(plain, _)| plain)
}

/// The first number that is none, dotted; parameters are finite, whatever they mean.
fn not_finite(table: &Table) -> Option<String> {
    fn search(value: &toml::Value) -> Option<String> {
        match value {
            toml::Value::Float(number) => (!number.is_finite()).then(String::new),
            toml::Value::Table(table) => not_finite(table).map(|key| format!(".{key}")),
            toml::Value::Array(values) => {
                values.iter().enumerate().find_map(|(at, value)| Some(format!(".{at}{}", search(value)?)))
            }
            _ => None,
        }
    }
    table.iter().find_map(|(name, value)| Some(format!("{name}{}", search(value)?)))
}

/// A parameter that is written in one of several forms (`threshold.fixed`) keeps none of another.
fn drop_other_forms(base: &mut Value, overrides: &Value, entry: &Entry) {
    let forms = entry.shape.parameters.iter().filter_map(|row| row.name.split_once('.'));
    for (name, form) in forms {
        if overrides.get(name).is_some_and(|given| given.get(form).is_none())
            && let Some(Value::Object(forms)) = base.get_mut(name)
        {
            forms.remove(form);
        }
    }
}

fn merge(base: &mut Value, overrides: Value) {
    match (base, overrides) {
        (Value::Object(base), Value::Object(overrides)) => {
            for (key, value) in overrides {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, value) => *base = value,
    }
}
