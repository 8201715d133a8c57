//! The answer to wrong words on the command line: one clear error that names the fix, and exit code
//! 2.

use crate::fixture::{ROOST, Server};
use std::process::Command;

/// Runs `roost` and returns its exit code and what it wrote to stderr.
fn roost(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(ROOST).args(arguments).output().expect("roost runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn bad_flags_end_with_code_2_and_name_the_fix() {
    let table: &[(&[&str], &str)] = &[
        (&["serve", "--memory-limit", "lots"], "such as 64m or 1g"),
        (&["serve", "--memory-limit", "1k"], "at least"),
        (&["serve", "--cpus", "3-1"], "such as 0-3,8"),
        (&["serve", "--cpus", "4000"], "allowed here"),
        (&["serve", "--workers", "0"], "at least 1"),
        (&["serve", "--listen", "nowhere"], "such as 127.0.0.1"),
        (&["serve", "--policy", "peacock"], "peafowl"),
        (&["serve", "--latency-goal", "fast"], "such as 500us@p99"),
        (&["serve", "--max-item-size", "1"], "at least"),
        (&["serve", "--memory-limit", "64m", "--max-item-size", "16m"], "--max-item-size to 8192k"),
        (&["serve", "--memory-limit", "99999999999999999999g"], "more than this machine has"),
        (&["serve", "--memory-limit", "4000t"], "more than this machine has"),
        (&["serve", "--no-such-flag"], "--help"),
        (&["load", "127.0.0.1:1", "--shape", "csv:Cargo.toml"], "Cargo.toml"),
        (&["load", "https://h/", "--rate", "1"], "http://127.0.0.1:9200/"),
        (&["load", "http://h/?q={words}", "--rate", "1"], "--words FILE"),
        (&["load", "http://h/", "--rate", "1", "--words", "Cargo.toml"], "{words}"),
        (&["load", "http://h/", "--rate", "1", "--words", "/nonexistent"], "most frequent first"),
        (&["load", "http://h/{words}", "--words", "Cargo.toml", "--keywords", "19"], "12-18"),
        (&["load", "http://h/", "--rate", "1", "--body", "@/nonexistent"], "--body @/nonexistent"),
        (&["load", "http://127.0.0.1:1/", "--rate", "1", "--timeout", "1ms"], "at least 100ms"),
        (&["stage"], "--to http://HOST:PORT"),
        (&["stage", "--to", "127.0.0.1:1"], "http://HOST:PORT"),
        (&["stage", "--to", "http://h:1", "--goal", "fast"], "such as 300us@p99"),
        (&["stage", "--to", "http://h:1", "--class", "a;colour=red"], "NAME;path=/BEGINNING"),
        (&["stage", "--to", "http://h:1", "--listen", "192.0.2.1:1"], "--listen"),
        (&["stage", "--config", "/nonexistent"], "TOML file"),
        (&["report", "Cargo.toml"], "docs/formats.md"),
    ];
    for (arguments, hint) in table {
        let (code, text) = roost(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {text}");
        assert!(text.contains(hint), "{arguments:?} should mention `{hint}`: {text}");
    }
}

#[test]
fn a_taken_port_is_named_with_its_fix() {
    let server = Server::start(&[]);
    let (code, text) = roost(&["serve", "--port", &server.port.to_string()]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("is taken") && text.contains("--port"), "{text}");
}
