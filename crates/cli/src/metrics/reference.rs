//! docs/reference/metrics.md, made of the pages themselves.
//!
//! ```text
//!   # HELP name sentence    # TYPE name kind    name{label="..."} value   -->   a row of a table
//! ```

use observe::scrape::exposition::samples;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

const MAKE: &str = "ROOST_WRITE=1 cargo test -p roost --bin roost the_reference";

/// Everything that a page tells of each family, in its order.
fn table(page: &str) -> String {
    let mut kinds = BTreeMap::new();
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kinds.insert(name, kind);
        }
    }
    let mut text = "| metric | kind | labels | is |\n|---|---|---|---|\n".to_owned();
    for line in page.lines() {
        let Some((family, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let kind = kinds.get(family).copied().unwrap_or_default();
        let name = if kind == "counter" { format!("{family}_total") } else { family.to_owned() };
        let mut labels = BTreeSet::new();
        let mut is_there = false;
        for sample in samples(page).filter(|sample| {
            sample.name == name || sample.name.strip_suffix("_bucket").is_some_and(|begin| begin == name)
        }) {
            is_there = true;
            labels.extend(sample.labels.iter().map(|(label, _)| *label).filter(|label| *label != "le"));
        }
        let labels = match (is_there, labels.is_empty()) {
            (false, _) => "*".to_owned(),
            (true, true) => String::new(),
            _ => labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", "),
        };
        // The encoder ends each sentence with a point of its own.
        let help = help.trim_end_matches('.').replace('|', "\\|");
        writeln!(text, "| `{name}` | {kind} | {labels} | {help} |").unwrap();
    }
    text
}

#[test]
fn the_reference_of_metrics_is_that_of_the_pages() {
    let parts = [
        ("`roost daemon`, `roost govern`", super::govern::tests::everything()),
        ("The planner of wake-ups, on the daemon's page", super::daemon::tests::page_of_wake()),
        ("`roost observe`", super::page(super::sleep::tests::everything())),
        ("`roost serve`", super::store::tests::everything()),
        ("`roost stage`", super::stage::tests::empty()),
    ];
    let mut made = format!(
        "# Metrics\n\n`{MAKE}` makes this page\nof the pages of `--metrics`, in the OpenMetrics format. Times \
         are in seconds, energy in joules, memory\nin bytes, frequencies in hertz. A figure that was not seen \
         is missing and not zero. `*` stands for the\nlabels of a metric that is there only while a \
         controller, a server or a class is.\n"
    );
    for (title, page) in &parts {
        write!(made, "\n## {title}\n{}", table(page)).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    if std::env::var_os("ROOST_WRITE").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "docs/reference/metrics.md is stale: {MAKE}");
}
