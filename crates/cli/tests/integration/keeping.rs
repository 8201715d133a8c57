//! `roost serve --items`: the items over an upgrade, and after the ways in which a run may end.

use crate::fixture::{ROOST, Server, signal, skipped};
use std::process::Command;

#[test]
fn items_survive_an_upgrade_and_no_stale_one_a_kill() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("items");
    let flags = ["--items", file.to_str().unwrap()];
    let server = Server::start(&flags);
    let mut client = server.connect();
    assert_eq!(client.set("kept", "a value"), "STORED");
    assert_eq!(client.ask("set brief 0 1 1\r\nx"), "STORED");
    let large = "x".repeat(900_000);
    assert_eq!(client.set("large", &large), "STORED");
    let id = client.ask("mg kept c");
    assert!(id.starts_with("HD c"), "{id}");
    assert!(!file.exists());
    let mut second = Command::new(ROOST);
    second.args(["serve", "--port", "0", "--idle-actuator", "none"]).args(flags);
    let second = second.output().expect("roost runs");
    assert_eq!(second.status.code(), Some(4), "{}", String::from_utf8_lossy(&second.stderr));
    assert_eq!(server.terminate().0, Some(0));
    assert!(file.exists());
    // Past the second in which the brief one expires.
    std::thread::sleep(std::time::Duration::from_millis(2100));

    let server = Server::start(&flags);
    assert!(!file.exists());
    let mut client = server.connect();
    assert_eq!(client.value("kept").as_deref(), Some("a value"));
    assert_eq!(client.value("large"), Some(large));
    assert_eq!(client.value("brief"), None);
    assert_eq!(client.ask("mg kept c"), id);
    assert_eq!(client.ask("set kept 0 0 7\r\nanother"), "STORED");
    signal(server.pid(), "KILL");
    drop(server);

    let server = Server::start(&flags);
    assert_eq!(server.connect().value("kept"), None, "it is older than the last change");
    assert_eq!(server.end_by("USR1").0, Some(0));
}

#[test]
fn a_start_that_fails_loses_no_items() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("items");
    let server = Server::start(&["--items", file.to_str().unwrap()]);
    assert_eq!(server.connect().set("kept", "a value"), "STORED");
    assert_eq!(server.terminate().0, Some(0));
    let before = std::fs::read(&file).expect("the items");

    let other = Server::start(&[]);
    let taken = other.port.to_string();
    let record = file.join("record");
    let record = record.to_str().unwrap();
    for (wrong, told) in
        [(&["--port", &taken][..], taken.as_str()), (&["--port", "0", "--record", record], record)]
    {
        let output = Command::new(ROOST)
            .args(["serve", "--idle-actuator", "none", "--items", file.to_str().unwrap()])
            .args(wrong)
            .output()
            .expect("roost runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(told), "{wrong:?}: {error}");
        assert!(std::fs::read(&file).expect("the items") == before, "{wrong:?}");
    }
}

#[test]
fn a_full_disk_is_told_and_leaves_no_half_file() {
    if !rustix::process::geteuid().is_root() {
        return skipped("items on a full disk", "a file system of its own takes root");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = "set -e; mount -t tmpfs -o size=64k none \"$1\"
        exec 3< <(exec \"$2\" serve --port 0 --idle-actuator none --items \"$1/items\" 2> \"$3\")
        server=$!; read -r line <&3; port=${line##*:}
        exec 4<> /dev/tcp/127.0.0.1/$port
        printf 'set key 0 0 100000\\r\\n%0100000d\\r\\n' 0 >&4; read -r answer <&4; echo \"$answer\"
        kill $server; code=0; wait $server || code=$?; echo \"code $code\"; ls -A \"$1\"";
    let output = Command::new("unshare")
        .args(["--mount", "bash", "-c", script, "bash"])
        .args([folder.path().as_os_str(), ROOST.as_ref(), "/dev/stderr".as_ref()])
        .output()
        .expect("unshare runs");
    let [out, told] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert_eq!(out, "STORED\r\ncode 1\nitems.lock\n", "{told}");
    assert!(told.contains("the items are not kept in") && told.contains("No space left"), "{told}");
}

#[test]
fn another_users_file_is_refused_and_left() {
    if !rustix::process::geteuid().is_root() {
        return skipped("a file of another user", "to make one takes root");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("items");
    std::fs::write(&file, "roostit1").expect("a file");
    std::os::unix::fs::chown(&file, Some(65534), None).expect("its owner");
    let output = Command::new(ROOST)
        .args(["serve", "--port", "0", "--idle-actuator", "none", "--items"])
        .arg(&file)
        .output()
        .expect("roost runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("of this user's own") && file.exists(), "{told}");
}
