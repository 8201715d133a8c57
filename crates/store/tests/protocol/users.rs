//! A store with users: nothing is served before a pair of theirs, in the words of memcached's `-Y`.

use crate::endpoint::{Endpoint as _, InProcess, Memcached};
use crate::script::Script;
use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt as _;
use store::session::Users;

const HELLO: &[u8] = b"set any 0 0 16\r\nshop open sesame\r\n";

fn file() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    std::fs::write(&path, "other:secret\nshop:open sesame\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    (folder, path)
}

fn with_users() -> InProcess {
    let (_folder, path) = file();
    let mut server = InProcess::repeatable();
    server.users = Some(Users::load(&path).unwrap());
    server
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_stranger_changes_and_learns_nothing() {
    let mut server = with_users();
    let mut known = |stream: &[u8]| text(&server.answer(&[HELLO, stream]));
    assert_eq!(known(b"set key 0 0 5\r\nvalue\r\nset any 0 0 1\r\nx\r\n"), "STORED\r\nSTORED\r\nSTORED\r\n");
    let refused = "CLIENT_ERROR unauthenticated\r\n";
    for (stream, answer) in [
        (&b"get key\r\n"[..], refused.to_owned()),
        (b"mg key v\r\n", refused.to_owned()),
        (b"stats\r\n", refused.to_owned()),
        (b"flush_all\r\n", refused.to_owned()),
        (b"delete key\r\n", refused.to_owned()),
        (b"add key 0 0 4\r\nevil\r\nms key 4\r\nevil\r\n", refused.repeat(2)),
        (b"set key 0 0 4\r\nevil\r\n", "CLIENT_ERROR bad authentication token format\r\n".to_owned()),
        (b"set key 0 0 9\r\nshop evil\r\n", "CLIENT_ERROR authentication failure\r\n".to_owned()),
        (
            b"set k 0 0 16 noreply\r\nshop open sesamE\r\n",
            "CLIENT_ERROR authentication failure\r\n".to_owned(),
        ),
        (&[&b"set "[..], &[b'k'; 251], b" 0 0 4\r\nevil\r\n"].concat(), refused.to_owned()),
        (b"set k 0 0 16\r\nshop open sesameXX", "CLIENT_ERROR bad command line termination\r\n".to_owned()),
    ] {
        let found = text(&server.answer(&[stream, HELLO]));
        assert_eq!(found, format!("{answer}STORED\r\n"), "{}", text(stream));
    }
    let long = [&b"set k 0 0 2000\r\n"[..], &[b'x'; 2000], b"\r\n"].concat();
    assert_eq!(text(&server.answer(&[&long, HELLO])), "CLIENT_ERROR auth token too long\r\nSTORED\r\n");
    let found = text(&server.answer(&[HELLO, b"get key any k\r\n"]));
    assert_eq!(
        found, "STORED\r\nVALUE key 0 5\r\nvalue\r\nVALUE any 0 1\r\nx\r\nEND\r\n",
        "a greeting stores nothing"
    );
    let counts = (server.counters.auth_cmds.value(), server.counters.auth_errors.value());
    assert_eq!(counts, (14, 13));
    let (answers, closed) = server.converse(&[b"quit\r\n"]);
    assert!(closed && answers.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn cuts_and_turns_change_nothing_before_a_greeting_either(seed: u64, cuts: u64, max_requests in 1u32..20) {
        let strangers = b"get a\r\nset b 0 0 3\r\na b\r\nadd c 0 0 2\r\nxy\r\nset d 0 0 3000\r\n";
        let script = Script::random(seed % 1_000_000, "cuts", crate::script::Kind::WellFormed, 20).requests.concat();
        let stream = [strangers, &[b'y'; 3002][..], HELLO, &script].concat();
        let whole = with_users().converse(&[&stream]);
        let mut server = with_users();
        server.max_requests = max_requests;
        let cut = server.converse(&Script::pieces(&stream, cuts));
        prop_assert_eq!(text(&whole.0), text(&cut.0));
    }
}

/// Streams on which both are of one mind: memcached throws no value away that is none of a `set`, and reads
/// it as commands.
#[test]
fn memcached_says_the_same() {
    let (_folder, path) = file();
    let path = path.to_string_lossy();
    let mut memcached = match Memcached::start_with(&["-Y", &path]) {
        Ok(memcached) => memcached,
        Err(reason) => return println!("SKIPPED beside memcached: {reason}"),
    };
    let mut server = with_users();
    for stream in [
        &b"get key\r\n"[..],
        b"stats\r\n",
        b"mg key v\r\n",
        b"set key 0 0 4\r\nevil\r\n",
        b"set key 0 0 9\r\nshop evil\r\n",
        b"set key 0 0 10\r\nother evil\r\n",
        b"set k 5 77 16\r\nshop open sesamE\r\n",
        b"set k 0 0 16\r\nshop open sesameXX",
        b"set other 0 0 12\r\nother secret\r\nset a 0 0 1\r\nx\r\nget a\r\n",
    ] {
        let pieces: [&[u8]; 3] = [stream, HELLO, b"get nothing\r\n"];
        assert_eq!(text(&server.answer(&pieces)), text(&memcached.answer(&pieces)), "{}", text(stream));
    }
}
