//! The reference page of the policies is generated from the registry.

use policy::registry::{self, Description};
use sim::policies::REGISTRIES;
use std::fmt::Write as _;
use std::path::Path;

const REWRITE: &str = "ROOST_REWRITE=1 cargo test -p sim --test engine reference";

fn page() -> String {
    let entries = REGISTRIES.iter().flat_map(|registry| registry.iter());
    let policies: Vec<Description> = entries.map(|entry| entry.describe()).collect();
    let mut text = format!(
        "# Policies\n\nGenerated from the registry; `{REWRITE}` rewrites it.\n\
         `roost policies` prints the same. A line of policies joins words by ` + `, at most one for each\n\
         question; parameters stand in the scenario's table of the policy's word, such as\n\
         `[params.pegasus]`. A default is that of the first word where a scenario says nothing.\n",
    );
    for (question, policies) in registry::by_question(&policies) {
        let _ = write!(text, "\n## Decides {question}\n");
        policies.into_iter().for_each(|policy| section(&mut text, policy));
    }
    text
}

fn section(text: &mut String, policy: &Description) {
    let _ = write!(text, "\n### `{}`\n\n", policy.name);
    for word in &policy.words {
        let _ = writeln!(text, "- `{}`: {}", word.word, word.summary);
    }
    let _ = write!(text, "\n{}\n\n{}\n", wrapped(policy.help), wrapped(&policy.properties()));
    if !policy.parameters.is_empty() {
        text.push_str("\n| parameter | default | is |\n|---|---|---|\n");
    }
    for row in &policy.parameters {
        let (default, remark) = (row.default_text(), row.remark().replace('|', "\\|"));
        let _ = writeln!(text, "| `{}` | `{default}` | {remark} |", row.name);
    }
}

/// Lines of at most a hundred characters.
fn wrapped(text: &str) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > 100 {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines.push(line);
    lines.join("\n")
}

#[test]
fn the_reference_page_is_as_the_registry() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/policies.md");
    if std::env::var_os("ROOST_REWRITE").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
        std::fs::write(&path, page()).expect("the page can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page(), "docs/reference/policies.md is stale: `{REWRITE}` rewrites it");
}

#[test]
fn the_reference_page_has_every_word_and_every_parameter() {
    let page = page();
    for (_, word) in registry::all(REGISTRIES) {
        let word = word.word;
        assert!(page.contains(&format!("\n- `{word}`: ")), "{word}");
    }
    for entry in REGISTRIES.iter().flat_map(|registry| registry.iter()) {
        for row in entry.describe().parameters {
            assert!(page.contains(&format!("\n| `{}` | ", row.name)), "{}: {}", entry.name(), row.name);
        }
    }
}
