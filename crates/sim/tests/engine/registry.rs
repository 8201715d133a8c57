//! The registries agree with the code.

use super::{document, task};
use machine::{Duration, Platform};
use policy::registry::{self, Entry, Parameter, Queues, Surroundings, Unit, Word};
use serde_json::Value;
use sim::policies::REGISTRIES;
use std::collections::BTreeSet;

/// Every row's dotted name, without those of tables.
fn rows(parameters: &[Parameter], prefix: &str, found: &mut Vec<(String, Parameter)>) {
    for row in parameters {
        let name = format!("{prefix}{}", row.name);
        match row.unit {
            Unit::Table(inner) => rows(inner, &format!("{name}."), found),
            _ => found.push((name, *row)),
        }
    }
}

/// Every value's dotted name.
fn leaves(values: &Value, prefix: &str, found: &mut BTreeSet<String>) {
    match values {
        Value::Object(inner) => {
            inner.iter().for_each(|(name, value)| leaves(value, &format!("{prefix}{name}."), found));
        }
        Value::Null => {}
        _ => drop(found.insert(prefix.trim_end_matches('.').to_owned())),
    }
}

fn leaves_of(word: &Word, around: &Surroundings<'_>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    leaves(&(word.settings)(around), "", &mut found);
    found
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    REGISTRIES.iter().flat_map(|registry| registry.iter().copied())
}

#[test]
fn a_word_means_one_policy() {
    let words: Vec<&str> = registry::all(REGISTRIES).map(|(_, word)| word.word).collect();
    let distinct: BTreeSet<&str> = words.iter().copied().collect();
    assert_eq!(words.len(), distinct.len());
    for entry in entries() {
        assert!(!entry.help.is_empty() && !entry.origin.is_empty(), "{}", entry.name());
        assert!(!entry.help.contains("  "), "{}: {}", entry.name(), entry.help);
    }
}

#[test]
fn every_parameter_has_a_row_and_every_row_a_parameter() {
    for entry in entries() {
        let mut known = Vec::new();
        rows(entry.shape.parameters, "", &mut known);
        let named: BTreeSet<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
        let mut seen = BTreeSet::new();
        for word in entry.words {
            let values = (word.settings)(&Surroundings::default());
            entry.shape.check(&values).unwrap_or_else(|error| panic!("{}: {error}", word.word));
            leaves(&values, "", &mut seen);
        }
        for name in &seen {
            assert!(named.contains(name.as_str()), "{} has no row for {name}", entry.name());
        }
        for (name, row) in &known {
            let is_optional =
                row.absent.is_some() || name.contains("allowance.") || name.contains("machine.");
            let is_seen = seen.contains(name);
            assert!(is_seen || is_optional, "{} has a row for {name} and no value", entry.name());
        }
    }
}

#[test]
fn what_the_surroundings_change_is_what_the_rows_say_that_they_do() {
    let platform = Platform::by_name("xeon-silver-4116").unwrap();
    let goal = Some("1234us@p95".parse().unwrap());
    for queues in [Queues::PerCore, Queues::Connections] {
        let around = Surroundings {
            goal,
            platform: Some(&platform),
            tick: Some(Duration::from_micros(1_234)),
            queues,
        };
        for entry in entries() {
            let mut known = Vec::new();
            rows(entry.shape.parameters, "", &mut known);
            for word in entry.words {
                let (plain, there) = ((word.settings)(&Surroundings::default()), (word.settings)(&around));
                for name in leaves_of(word, &Surroundings::default()) {
                    let value = |values: &Value| policy::check::find(values, &name).cloned();
                    let row = known.iter().find(|(known, _)| *known == name).map(|(_, row)| row);
                    if value(&plain) != value(&there) {
                        assert!(row.is_some_and(|row| row.given.is_some()), "{}: {name}", word.word);
                    }
                }
            }
        }
    }
}

#[test]
fn another_form_of_a_parameter_replaces_the_form_of_the_default() {
    let params = |text: &str| toml::Value::Table(text.parse().unwrap());
    for (word, given) in [
        ("hurry-up", "threshold = { fixed = \"350ms\" }"),
        ("hurry-up-paper", "threshold = { learned = { calls = 100 } }"),
        ("carb", "rate_step = { absolute = 5000.0 }"),
        ("carb-paper", "rate_jump = { of_peak = 0.1 }"),
    ] {
        let document = document(&[]).with(&format!("params.{word}"), &params(given)).unwrap();
        let run = task(document, word, 1).run();
        assert!(run.is_ok(), "{word}: {}", run.unwrap_err());
    }
}
