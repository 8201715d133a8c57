//! `roost doctor` as a person or a program calls it: on this machine, on a recorded one, and on
//! nothing at all.

use crate::fixture::{IdleLimits, ROOST, repository, signal};
use linux::EndsWithParent as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

fn doctor(arguments: &[&str]) -> Output {
    Command::new(ROOST).arg("doctor").args(arguments).output().expect("roost runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn this_machine_has_a_page_and_facts() {
    let page = doctor(&[]);
    assert_eq!(page.status.code(), Some(0), "{}", text(&page.stderr));
    for section in ["Machine", "Idle states", "Who limits the C-states now", "Roost's policies here"] {
        assert!(text(&page.stdout).contains(section), "{section}");
    }
    let facts = doctor(&["--json"]);
    assert_eq!(facts.status.code(), Some(0));
    let json: serde_json::Value = serde_json::from_slice(&facts.stdout).expect("one JSON object");
    assert!(json["policies"].as_array().is_some_and(|policies| policies.len() >= 8));
    assert!(json["probe"].is_null() && json["cannot_see"].is_array());
}

#[test]
fn a_place_that_is_no_machine_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let (gone, words) = (folder.path().join("nowhere"), folder.path().join("words.txt"));
    fs::write(&words, "this is no recording\n").unwrap();
    for path in [&gone, &words] {
        let output = doctor(&["--root", path.to_str().unwrap()]);
        let complaint = text(&output.stderr);
        assert_eq!((output.status.code(), complaint.lines().count()), (Some(2), 1), "{complaint}");
        assert!(complaint.contains("--root") && complaint.contains("--record"), "{complaint}");
    }
    let both = doctor(&["--root", "/", "--probe"]);
    assert_eq!(both.status.code(), Some(2), "another machine cannot be measured from here");
    assert_eq!(doctor(&["--probe", "0s"]).status.code(), Some(2));
}

#[test]
fn a_recording_is_read_on_any_machine() {
    let recorded = repository().join("crates/observe/tests/testdata/arm-server.tree");
    let page = doctor(&["--root", recorded.to_str().unwrap()]);
    assert!(text(&page.stdout).contains("tuned (process 640) holds /dev/cpu_dma_latency"));
    // Other tests set idle limits, which are part of both.
    let _alone = IdleLimits::alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("this.txt");
    let said = doctor(&["--record", file.to_str().unwrap()]);
    assert!(said.status.success() && text(&said.stdout).contains("look it through"));
    let again = doctor(&["--root", file.to_str().unwrap(), "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&again.stdout).expect("one JSON object");
    let live: serde_json::Value =
        serde_json::from_slice(&doctor(&["--json"]).stdout).expect("one JSON object");
    assert_eq!((&json["cpus"], &json["idle"]), (&live["cpus"], &live["idle"]));
}

#[test]
fn a_probe_measures_and_leaves_the_machine_as_it_was() {
    let limits = || -> Vec<String> {
        let cpus = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
        cpus.filter_map(|cpu| fs::read_to_string(cpu.path().join("power/pm_qos_resume_latency_us")).ok())
            .collect()
    };
    let _alone = IdleLimits::alone();
    let before = limits();
    let output = doctor(&["--json", "--probe", "500ms"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(json["probe"]["batches"].as_array().is_some_and(|batches| !batches.is_empty()));
    assert_eq!(limits(), before);
}

#[test]
fn a_probe_that_is_interrupted_tells_what_it_has() {
    let _alone = IdleLimits::alone();
    let mut command = Command::new(ROOST);
    command.args(["doctor", "--probe", "10m"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.ends_with_parent().spawn().expect("roost runs");
    // The line comes when signals are caught.
    let mut line = String::new();
    BufReader::new(child.stderr.take().expect("piped")).read_line(&mut line).expect("a line");
    assert!(line.contains("measuring"), "{line}");
    signal(child.id(), "INT");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("stopped before its time"));
}
