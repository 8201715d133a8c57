//! `roost plan` on a kept recording, a changed scenario, and recordings of no use.

use crate::fixture::{ROOST, repository};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const RECORDING: &str = include_str!("recording.json");

fn plan(folder: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(ROOST);
    let output = command.arg("plan").arg(folder).args(["--requests", "3000"]).args(more).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A recording of perf's, and the process in it that is a memcached.
fn recorded_by_perf() -> (PathBuf, &'static str) {
    (repository().join("crates/observe/testdata/recordings/service.perf.data"), "17103")
}

#[test]
fn a_file_of_perf_becomes_a_recording_that_tells_its_estimates() {
    let (file, process) = recorded_by_perf();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("made");
    let out = ["--out", place.to_str().unwrap()];
    let (code, said, error) = plan(&file, &[&["--pid", process][..], &out].concat());
    // Without response times nothing tells how good the model is.
    assert_eq!(code, Some(6), "{said}{error}");
    assert!(said.contains("each wake-up of the service's threads counts as one"), "{said}");
    assert!(said.contains("the number of busy CPUs is missing"), "one CPU has no event at all: {said}");
    let read = |name: &str| fs::read_to_string(place.join(name)).unwrap();
    let recording: Value = serde_json::from_str(&read("recording.json")).unwrap();
    assert_eq!(recording["arrivals"]["rate_per_s"]["source"], "ESTIMATE", "{recording}");
    assert_eq!(
        (&recording["service"]["name"], recording["machine"]["cores"].as_u64()),
        (&"memcached".into(), Some(2))
    );
    assert!(recording["responses"]["p99_us"].is_null() && recording["machine"]["governor"].is_null());
    let scenario = read("scenario.toml");
    assert!(
        !scenario.contains("measured: the kernel's topology") && !scenario.contains("none that"),
        "{scenario}"
    );
    // The folder is a recording from now on.
    let (code, said, error) = plan(&place, &["--json"]);
    assert_eq!(code, Some(6), "{said}{error}");
    assert!(place.join("plan/report.html").exists());
}

#[test]
fn a_file_of_perf_is_refused_with_its_fix() {
    let (file, process) = recorded_by_perf();
    let folder = folder_with(RECORDING);
    let nothing = folder.path().join("nothing");
    let out = ["--out", nothing.to_str().unwrap()];
    let text = folder.path().join("recording.json");
    for (path, more, told) in [
        (file.as_path(), &[][..], "--pid"),
        (&file, &["--pid", "999999"], "no process 999999"),
        (&file, &["--pid", process, "--for", "1s"], "cannot be used with"),
        (&file, &["--port", "11211"], "cannot be used with"),
        (folder.path(), &["--pid", process], "leave --pid out"),
        (&text, &["--pid", process], "perf record -"),
    ] {
        let (code, said, error) = plan(path, &[more, &out].concat());
        assert_eq!(code, Some(2), "{said}{error}");
        assert!(error.contains(told), "no {told} in {error}");
        assert!(!nothing.exists(), "nothing is left");
    }
}

fn folder_with(recording: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("recording.json"), recording).unwrap();
    folder
}

#[test]
fn a_plan_leaves_its_scenario_and_takes_it_again_as_it_was_changed() {
    let folder = folder_with(RECORDING);
    let (_, out, error) = plan(folder.path(), &["--goal", "5ms@p99", "--price", "0.30/kWh"]);
    for words in ["model against measurement", "2 cores, idle as now", "at 2 times the load", "a year"] {
        assert!(out.contains(words), "no {words} in {out}{error}");
    }
    for file in ["scenario.toml", "plan/plan.json", "plan/report.html", "plan/run.toml"] {
        assert!(folder.path().join(file).exists(), "{file}");
    }
    assert!(!out.contains("differs from the recording"), "{out}");
    let path = folder.path().join("scenario.toml");
    let scenario = fs::read_to_string(&path).unwrap();
    fs::write(&path, scenario.replace("cores = 2 ", "cores = 4 ").replace("workers = 2 ", "workers = 4 "))
        .unwrap();
    let (_, out, error) = plan(folder.path(), &[]);
    assert!(
        out.contains("differs from the recording") && out.contains("4 cores, idle as now"),
        "{out}{error}"
    );
    // The goal of the file holds.
    assert!(out.contains("5ms@p99") || out.contains("5.00ms@p99"), "{out}");
    fs::write(&path, scenario.replace("[workload]", "[worklode]")).unwrap();
    let (code, _, error) = plan(folder.path(), &[]);
    assert!(code == Some(2) && error.contains("worklode"), "{error}");
}

#[test]
fn a_goal_that_none_keeps_is_told_with_the_best_that_can_be_had() {
    let folder = folder_with(RECORDING);
    let (code, out, error) = plan(folder.path(), &["--goal", "2us@p99", "--json"]);
    // Six where the model misses the recorded run, too.
    assert!(matches!(code, Some(5 | 6)), "{code:?} {out}{error}");
    let document: Value = serde_json::from_str(&out).unwrap();
    assert!(document["nearest"].is_string() && document["best"].is_null(), "{out}");
    assert!(document["words"].to_string().contains("No policy keeps"), "{out}");
}

#[test]
fn the_best_becomes_layers_of_another_scheduler_or_a_reason() {
    let folder = folder_with(RECORDING);
    let file = folder.path().join("plan/layers.json");
    let (_, out, error) = plan(folder.path(), &["--goal", "5ms@p99", "--as", "scx_layered"]);
    assert!(out.contains(&format!("scx_layered f:{}", file.display())), "{out}{error}");
    let layers: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(layers[0]["matches"], serde_json::json!([[{ "PcommPrefix": "memcached" }]]), "{layers}");
    assert_eq!(layers[0]["kind"]["Confined"]["cpus_range"], serde_json::json!([2, 2]), "{layers}");
    assert_eq!(layers[1]["matches"], serde_json::json!([[]]), "the last takes all others: {layers}");
    let (code, _, error) = plan(folder.path(), &["--goal", "2us@p99", "--as", "scx_layered"]);
    assert!(code == Some(5) && error.contains("no policy keeps the goal"), "{code:?} {error}");
    assert!(!file.exists(), "that of the earlier plan is gone");
}

#[test]
fn recordings_of_no_use_are_told_with_their_fix() {
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut recording: Value = serde_json::from_str(RECORDING).unwrap();
        change(&mut recording);
        recording.to_string()
    };
    for (recording, told) in [
        (RECORDING[..RECORDING.len() / 2].to_owned(), "cut off"),
        (changed(&|bad| bad["arrivals"]["requests"] = 0.into()), "under its load"),
        (changed(&|bad| bad["format"] = 99.into()), "format 99"),
        (changed(&|bad| drop(bad.as_object_mut().unwrap().remove("service"))), "--port"),
        (changed(&|bad| bad["machine"]["cores"] = 0.into()), "without CPUs"),
        (changed(&|bad| bad["machine"]["cores"] = 60_000.into()), "at most 256"),
        (changed(&|bad| bad["others"][0]["per_s"]["value"] = (-1).into()), "per_s.value is -1"),
        (changed(&|bad| bad["arrivals"]["rate_per_s"]["value"] = 1e300.into()), "rate_per_s.value is 1e"),
    ] {
        let folder = folder_with(&recording);
        let (code, out, error) = plan(folder.path(), &[]);
        assert_eq!(code, Some(2), "{out}{error}");
        assert!(error.contains(told), "no {told} in {error}");
        assert!(!folder.path().join("scenario.toml").exists(), "nothing is left");
    }
    let endless = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/zero", endless.path().join("recording.json")).unwrap();
    let (code, _, error) = plan(endless.path(), &[]);
    assert!(code == Some(2) && error.contains("no longer than 64 MiB"), "{error}");
    let nothing = tempfile::tempdir().unwrap();
    let (code, _, error) = plan(nothing.path(), &[]);
    assert!(code == Some(2) && error.contains("roost observe"), "{error}");
    let other = changed(&|other| other["machine"]["kernel"] = "5.4.0-other".into());
    let (_, out, _) = plan(folder_with(&other).path(), &[]);
    assert!(out.contains("recorded on another machine or kernel"), "{out}");
}
