//! `roost demo`: its words and the files that it leaves, never how fast this machine is.

use crate::fixture::{IdleLimits, ROOST, signal};
use linux::EndsWithParent as _;
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The command, with a folder of its own for what it needs while it runs.
fn demo(place: &Path, flags: &[&str]) -> Command {
    let temporary = place.join("tmp");
    fs::create_dir_all(&temporary).unwrap();
    let mut command = Command::new(ROOST);
    command.args(["demo", "--out"]).arg(place.join("run")).args(flags).env("TMPDIR", temporary);
    command
}

fn assert_nothing_is_left(place: &Path) {
    let left: Vec<_> = fs::read_dir(place.join("tmp")).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The mark of a verdict, which has exactly one.
fn mark(verdict: &Value) -> &'static str {
    match (verdict.get("met").and_then(Value::as_bool), verdict.get("within_noise")) {
        (Some(true), None) => "met",
        (Some(false), None) => "missed",
        (None, Some(Value::Bool(true))) => "within noise",
        (None, None) => "not measured",
        other => panic!("{other:?} in {verdict}"),
    }
}

#[test]
fn a_short_demo_claims_only_with_intervals_and_leaves_a_report() {
    // It governs its store for a while.
    let _limits = IdleLimits::alone();
    let place = tempfile::tempdir().unwrap();
    let flags = ["--json", "--phase-length", "3s", "--rounds", "3", "--peak", "1k"];
    let Output { status, stdout, stderr } = demo(place.path(), &flags).output().unwrap();
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert!(matches!(status.code(), Some(0 | 5 | 6)), "{status}: {said}");
    assert!(said.lines().any(|line| line.starts_with("stock ")), "progress is told: {said}");

    let mut summary: Value = serde_json::from_slice(&stdout).expect("nothing but JSON");
    assert_eq!(summary.as_object_mut().unwrap().remove("format"), Some(1.into()));
    let texts = |list: &str, key: &str| -> Vec<String> {
        let entries = summary[list].as_array().into_iter().flatten();
        entries.map(|entry| entry[key].as_str().expect("a text").to_owned()).collect()
    };
    let phases = texts("phases", "name");
    assert_eq!(phases.first().map(String::as_str), Some("stock"));
    assert_eq!(phases.last().map(String::as_str), Some("scheduler"));
    let figures = texts("verdicts", "figure");
    assert_eq!(figures.len(), 5, "{figures:?}");
    let compared: Vec<&Value> = summary["compared"].as_array().into_iter().flatten().collect();
    for row in &compared {
        let [ratio, low, high] = ["ratio", "low", "high"].map(|key| row[key].as_f64().expect("a number"));
        assert!(0.0 <= low && low <= ratio && ratio <= high && low < high, "{row}");
    }
    for verdict in summary["verdicts"].as_array().unwrap() {
        let measured =
            compared.iter().any(|row| row["figure"] == verdict["figure"] && row["phase"] == "scheduler");
        assert_eq!(mark(verdict) != "not measured", measured, "{verdict}");
    }
    let is_missed = summary["verdicts"].as_array().unwrap().iter().any(|verdict| mark(verdict) == "missed");
    let expected = match summary.get("invalid") {
        Some(_) => 6,
        None if is_missed => 5,
        None => 0,
    };
    assert_eq!(status.code(), Some(expected), "{summary:#}");

    let run = place.path().join("run");
    let mut kept: Value =
        serde_json::from_str(&fs::read_to_string(run.join("summary.json")).unwrap()).unwrap();
    // The units of printed values are in their names.
    for phase in kept["phases"].as_array_mut().unwrap() {
        let energy = phase.get_mut("energy").and_then(Value::as_object_mut);
        if let Some(energy) = energy
            && let Some(used) = energy.remove("used")
        {
            energy.insert("used_uj".to_owned(), used);
        }
    }
    assert_eq!(kept, summary, "printed and kept are the same");
    for phase in &phases {
        for round in 1..=3 {
            assert!(run.join(format!("{phase}-{round}.hdr")).is_file(), "{phase} {round}");
        }
    }
    let page = fs::read_to_string(run.join("report.html")).unwrap();
    for text in figures.iter().chain(&phases) {
        assert!(page.contains(text), "{text}");
    }
    // The prediction beside the measurement, or the reason why there is none.
    let road = |remark: &&Value| {
        let text = remark.as_str().unwrap();
        text.starts_with("Observed, planned and governed") || text.contains("were left out: ")
    };
    assert_eq!(summary["remarks"].as_array().unwrap().iter().filter(road).count(), 1, "{summary:#}");
    for remark in summary["remarks"].as_array().unwrap() {
        assert!(page.contains(remark.as_str().unwrap()), "{remark}");
    }

    let told = Command::new(ROOST).arg("report").arg(&run).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(figures.iter().all(|figure| told.contains(figure)), "{told}");
    // The first line is the title, and a path is as long as it is.
    let rows = told.lines().skip(1).filter(|line| !line.contains('/'));
    let wide: Vec<&str> = rows.filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "wider than a terminal: {wide:#?}");
    assert_nothing_is_left(place.path());
}

/// A demo that runs, and a line that it has said on its standard error.
fn until_it_says(mut command: Command, beginning: &str) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).ends_with_parent().spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.starts_with(beginning) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended before it said {beginning:?}");
    }
    (child, lines)
}

#[test]
fn a_demo_that_is_told_to_end_leaves_nothing_behind_but_what_was_seen() {
    let _limits = IdleLimits::alone();
    let place = tempfile::tempdir().unwrap();
    let command = demo(place.path(), &["--phase-length", "10m", "--rounds", "3", "--peak", "1k"]);
    let (mut child, stderr) = until_it_says(command, "stock ");
    signal(child.id(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let rest: Vec<String> = stderr.lines().map_while(Result::ok).collect();
    assert!(rest.iter().any(|line| line.contains("stopped before the end")), "{rest:?}");
    assert_nothing_is_left(place.path());
    let told = Command::new(ROOST).arg("report").arg(place.path().join("run")).output().unwrap();
    assert_eq!(told.status.code(), Some(0), "what was seen can be read: {told:?}");
}

#[test]
fn a_demo_that_is_told_to_end_before_it_began_leaves_nothing_at_all() {
    let place = tempfile::tempdir().unwrap();
    let (mut child, _stderr) = until_it_says(demo(place.path(), &[]), "roost demo: measuring");
    signal(child.id(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_nothing_is_left(place.path());
    assert!(!place.path().join("run").exists());
}

#[test]
fn rounds_that_hold_no_day_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let refused = demo(place.path(), &["--phase-length", "2s", "--rounds", "3"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("at least 3.00s for 3 rounds"), "{said}");
}
