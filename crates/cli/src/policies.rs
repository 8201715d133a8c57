//! `roost policies`: every policy with its parameters, from the registry.

use crate::exit::usage;
use crate::table::{Table, print};
use anyhow::Result;
use policy::registry::{self, Description};
use sim::policies::REGISTRIES;
use std::fmt::Write as _;
use std::process::ExitCode;

/// List the policies: where each runs, and its parameters
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../help/policies.txt"))]
pub struct Args {
    /// Only this policy, with its parameters
    #[arg(value_name = "WORD")]
    word: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut policies = described();
    if let Some(word) = &args.word {
        policies.retain(|policy| policy.words.iter().any(|known| known.word == word));
        if policies.is_empty() {
            return Err(usage(format!("no policy is called `{word}`; `roost policies` lists them")));
        }
    }
    if args.json {
        crate::json::print(1, &serde_json::json!({ "policies": policies }))?;
    } else if args.word.is_some() {
        policies.iter().try_for_each(|policy| print(&details(policy)))?;
    } else {
        print(&list(&policies))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn described() -> Vec<Description> {
    REGISTRIES.iter().flat_map(|registry| registry.iter()).map(|entry| entry.describe()).collect()
}

fn list(policies: &[Description]) -> String {
    let mut text = String::new();
    for (question, policies) in registry::by_question(policies) {
        let header = [&question.to_string(), "runs", "maturity", "is"].map(str::to_owned);
        let mut table = Table::new(4, header.to_vec());
        for policy in policies {
            for word in &policy.words {
                table.row(vec![
                    word.word.to_owned(),
                    policy.runs.to_string(),
                    policy.maturity.to_string(),
                    word.summary.to_owned(),
                ]);
            }
        }
        text += &table.text();
        text.push('\n');
    }
    text + "A line of policies joins words by ` + `, one for each question: `peafowl + teo + pegasus`.\n"
}

fn details(policy: &Description) -> String {
    let mut text = String::new();
    for word in &policy.words {
        let _ = writeln!(text, "{}: {}", word.word, word.summary);
    }
    let _ = writeln!(text, "\n{}\n\n{}", policy.help, policy.properties());
    if !policy.parameters.is_empty() {
        let _ = writeln!(text, "\n[params.{}]", policy.name);
    }
    for row in &policy.parameters {
        let _ = writeln!(text, "{} = {}  # {}", row.name, row.default_text(), row.remark());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_listed_and_has_its_details() {
        let policies = described();
        let list = list(&policies);
        for word in sim::policies::words() {
            assert!(list.lines().any(|line| line.starts_with(word)), "{word}");
            let named = |policy: &&Description| policy.words.iter().any(|known| known.word == word);
            let policy = policies.iter().find(named).expect("it is in the registry");
            let details = details(policy);
            assert!(details.contains(policy.help), "{word}");
            assert!(policy.parameters.iter().all(|row| details.contains(&row.name)), "{word}");
        }
    }
}
