//! Suites and clients written by others. For each, a real memcached passes; so must we.

use crate::fixture::{Server, is_installed, repository, skipped};
use std::process::Command;

#[test]
fn memccapable_finds_all_27_ascii_tests_passing() {
    if !is_installed("memccapable") {
        return skipped("memccapable", "not installed (apt-get install libmemcached-tools)");
    }
    let server = Server::start(&["--memory-limit", "128m"]);
    let output = Command::new("memccapable")
        .args(["-h", "127.0.0.1", "-p", &server.port.to_string(), "-a"])
        .output()
        .expect("memccapable runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let passed = text.matches("[pass]").count();
    assert!(output.status.success() && passed == 27, "{passed} of 27 passed:\n{text}");
}

#[test]
fn pymemcache_passes_its_integration_tests() {
    let python = repository().join(".venv/bin/python");
    let suite = repository().join(".venv/sdist/pymemcache-4.0.0");
    if !suite.exists() {
        return skipped("pymemcache", "its suite is not there (scripts/setup test fetches it)");
    }
    let server = Server::start(&["--memory-limit", "128m"]);
    let output = Command::new(python)
        .args(["-m", "pytest", "-q", "-m", "integration", "--no-cov", "-p", "no:cacheprovider"])
        .args(["--server", "127.0.0.1", "--port", &server.port.to_string()])
        .args(["pymemcache/test", "-k", "not tls"])
        .current_dir(suite)
        .output()
        .expect("pytest runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let counted = text.lines().rev().find(|line| line.contains(" passed")).unwrap_or_default();
    println!("pymemcache: {}", counted.trim_matches('='));
}

#[test]
fn a_meta_client_gets_sets_leases_and_counts() {
    let python = repository().join(".venv/bin/python");
    if !python.exists() {
        return skipped("meta-memcache", "its environment is not there (scripts/setup test makes it)");
    }
    let server = Server::start(&["--memory-limit", "128m"]);
    let output = Command::new(python)
        .arg(repository().join("tests/meta_client.py"))
        .arg(server.port.to_string())
        .output()
        .expect("python runs");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
