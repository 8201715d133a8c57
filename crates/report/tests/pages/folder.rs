//! The folder: written files read back, and faults are named.

use crate::sample;
use report::run::{FRAMES, ReadError, Run, RunInfo, SUMMARY};
use std::fs;
use std::path::Path;

fn write(folder: &Path) -> Run {
    let run = sample::run(1);
    fs::write(folder.join("run.toml"), toml::to_string(&run.info).unwrap()).unwrap();
    let lines = run.frames.iter().map(|frame| serde_json::to_string(frame).unwrap() + "\n");
    fs::write(folder.join(FRAMES), lines.collect::<String>()).unwrap();
    fs::write(folder.join(SUMMARY), serde_json::to_string_pretty(&run.summary).unwrap()).unwrap();
    run
}

#[test]
fn a_run_reads_back_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let run = write(folder.path());
    assert_eq!(Run::read(folder.path()).unwrap(), run);
}

/// Builds before 0.1.0 wrote `asked_per_s` and `reached_per_s`.
#[test]
fn the_earlier_names_of_the_rates_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let run = write(folder.path());
    for file in [FRAMES, SUMMARY] {
        let text = fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(text.contains("offered_per_s") && text.contains("achieved_per_s"), "{file}");
        let earlier = text.replace("offered_per_s", "asked_per_s").replace("achieved_per_s", "reached_per_s");
        fs::write(folder.path().join(file), earlier).unwrap();
    }
    assert_eq!(Run::read(folder.path()).unwrap(), run);
}

#[test]
fn a_run_cut_short_reads_up_to_the_cut() {
    let folder = tempfile::tempdir().unwrap();
    let run = write(folder.path());
    let frames = folder.path().join("frames.jsonl");
    let bytes = fs::read(&frames).unwrap();
    fs::write(&frames, &bytes[..bytes.len() - 20]).unwrap();
    fs::remove_file(folder.path().join("summary.json")).unwrap();
    let read = Run::read(folder.path()).unwrap();
    assert_eq!(read.frames, run.frames[..run.frames.len() - 1]);
    assert_eq!(read.summary, None);
    assert_eq!(
        read.remarks,
        [
            "The last line of frames.jsonl was being written when the run ended; it is left out.",
            "The run was cut short: there is no summary.json."
        ]
    );
    assert!(read.page().html().contains("cut short"));
}

#[test]
fn every_cut_of_the_frames_reads_without_an_error() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let frames = folder.path().join("frames.jsonl");
    let bytes = fs::read(&frames).unwrap();
    for cut in (0..bytes.len().min(6_000)).step_by(97) {
        fs::write(&frames, &bytes[..cut]).unwrap();
        Run::read(folder.path()).unwrap();
    }
}

#[test]
fn errors_name_the_file_the_line_and_the_fix() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let message = || Run::read(path).unwrap_err().to_string().replace(&path.display().to_string(), "RUN");

    assert_eq!(
        message(),
        "RUN is no run folder: it has no run.toml; name a folder that a run of Roost wrote"
    );

    let run = write(path);
    let toml = fs::read_to_string(path.join("run.toml")).unwrap();
    let spoil = |from: &str, to: &str| {
        assert!(toml.contains(from));
        fs::write(path.join("run.toml"), toml.replace(from, to)).unwrap();
    };
    spoil("format = 1", "format = 7");
    assert_eq!(
        message(),
        "RUN/run.toml has format 7, this version reads format 1; use the Roost that wrote it (0.1.0)"
    );
    spoil("kernel =", "kernal =");
    let line = toml.lines().position(|line| line.starts_with("kernel")).unwrap() + 1;
    assert!(
        message().starts_with(&format!("RUN/run.toml, line {line}: unknown field `kernal`")),
        "{}",
        message()
    );
    spoil("format = 1", "format = ");
    assert!(message().starts_with("RUN/run.toml, line 1: "), "{}", message());
    fs::write(path.join("run.toml"), &toml).unwrap();

    let frames = fs::read_to_string(path.join("frames.jsonl")).unwrap();
    let spoilt: Vec<String> = frames
        .lines()
        .enumerate()
        .map(|(n, line)| if n == 16 { line.replace("\"at_ns\"", "\"at\"") } else { line.to_owned() })
        .collect();
    fs::write(path.join("frames.jsonl"), spoilt.join("\n") + "\n").unwrap();
    assert!(message().starts_with("RUN/frames.jsonl, line 17: unknown field `at`"), "{}", message());
    assert!(message().ends_with("correct or delete that line, or record the run again"), "{}", message());
    fs::write(path.join("frames.jsonl"), b"\xff\xfe\n").unwrap();
    assert!(message().starts_with("RUN/frames.jsonl, line 1: "), "{}", message());
    fs::write(path.join("frames.jsonl"), frames).unwrap();

    fs::write(path.join("summary.json"), "{\n\"phases\": [\n{\"nome\": 1}]}").unwrap();
    assert!(message().starts_with("RUN/summary.json, line 3: unknown field `nome`"), "{}", message());
    fs::remove_file(path.join("summary.json")).unwrap();
    fs::create_dir(path.join("summary.json")).unwrap();
    assert!(matches!(Run::read(path), Err(ReadError::Unreadable { .. })));
    assert_eq!(run.info.format, RunInfo::FORMAT);
}

#[test]
fn what_is_missing_is_absent_from_the_file_never_zero() {
    let frame = report::run::Frame { phase: "a".to_owned(), ..Default::default() };
    assert_eq!(serde_json::to_string(&frame).unwrap(), r#"{"phase":"a","at_ns":0}"#);
    let phase = report::run::Phase { name: "a".to_owned(), ..Default::default() };
    assert_eq!(serde_json::to_string(&phase).unwrap(), r#"{"name":"a","what":""}"#);
}
