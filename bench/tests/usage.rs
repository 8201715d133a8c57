//! A fault in a command line is reported, with its fix and exit code 2.

use std::process::{Command, Stdio};

const BENCH: &str = env!("CARGO_BIN_EXE_roost-bench");

fn bench(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(BENCH).args(arguments).stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_real_server_needs_its_group() {
    // Any file is a program here: nothing is started before the options agree.
    let (code, text) = bench(&["--roost", BENCH, "stage", "--server", "http://127.0.0.1:1/"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("--cgroup"), "{text}");
}

#[test]
fn without_the_products_program_no_bench_begins() {
    let (code, text) = bench(&["stage", "--only", "overhead", "--roost", "/nonexistent/roost"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("--roost /nonexistent/roost"), "{text}");
}

#[test]
fn the_planners_means_are_named_as_roost_names_them() {
    let (code, text) = bench(&["wake", "--act", "shouting"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("polling") && text.contains("spin"), "{text}");
}
