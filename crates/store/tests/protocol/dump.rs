//! Listing the items: each once, in memcached's words.

use crate::endpoint::{Endpoint, InProcess, Memcached};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// The lines but for their end, in order, without the values that are a server's own.
fn lines(answer: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(answer).into_owned();
    let plain = |word: &str| match word.split_once('=') {
        Some((name @ ("la" | "cas" | "cls" | "size"), _)) => format!("{name}="),
        Some(("exp", second)) if second != "-1" => "exp=".to_owned(),
        _ => word.to_owned(),
    };
    let line = |line: &str| line.split_ascii_whitespace().map(plain).collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = text.lines().map(line).collect();
    assert!(
        lines.pop().is_some_and(|end| end == "END" || end == "EN") && text.starts_with("OK\r\n"),
        "{text}"
    );
    lines.sort();
    lines
}

#[test]
fn dumps_are_those_of_memcached() {
    let items = b"set plain 7 0 1\r\nx\r\nset a/b:c~d%20 0 0 3\r\nabc\r\nset later 0 100000 1\r\nx\r\n\
        set gone 0 -1 1\r\nx\r\nms AAECIA== 2 b\r\nhi\r\nget plain\r\n";
    let dumps = ["metadump", "mgdump"].map(|name| format!("lru_crawler {name} hash\r\n"));
    let mut server = InProcess::new();
    server.answer(&[&items[..]]);
    let [meta, keys] = dumps.each_ref().map(|dump| lines(&server.answer(&[dump.as_bytes()])));
    assert_eq!(keys, ["OK", "mg AAECIA== b", "mg a/b:c~d%20", "mg later", "mg plain"]);
    assert!(
        meta.iter().any(|line| line == "key=plain exp=-1 la= cas= fetch=yes cls= size= flags=7"),
        "{meta:?}"
    );
    assert!(meta.iter().any(|line| line.starts_with("key=a%2Fb%3Ac~d%2520 exp=-1 ")), "{meta:?}");
    match Memcached::start_with(&["-o", "lru_crawler"]) {
        Err(reason) => println!("SKIPPED beside memcached: {reason}"),
        Ok(memcached) if !memcached.is_reference() => println!("SKIPPED beside memcached: it is too old"),
        Ok(mut memcached) => {
            memcached.answer(&[&items[..]]);
            // Nothing behind the command: memcached forgets the rest of its input.
            let theirs = dumps.map(|dump| {
                let mut socket = TcpStream::connect(memcached.address()).expect("it accepts");
                socket.write_all(dump.as_bytes()).expect("it reads");
                let (mut answer, mut byte) = (Vec::new(), [0]);
                while !answer.ends_with(b"\nEND\r\n") && !answer.ends_with(b"\nEN\r\n") {
                    socket.read_exact(&mut byte).expect("it answers");
                    answer.push(byte[0]);
                }
                lines(&answer)
            });
            assert_eq!([meta, keys], theirs, "memcached's are the right ones");
        }
    }
}

#[test]
fn classes_are_those_of_the_statistics_and_a_dump_may_be_switched_off() {
    let mut server = InProcess::repeatable();
    let large = format!("set large 0 0 5000\r\n{}\r\nset small 0 0 1\r\nx\r\n", "x".repeat(5000));
    server.answer(&[large.as_bytes()]);
    let mut ask = |text: &str| String::from_utf8_lossy(&server.answer(&[text.as_bytes()])).into_owned();
    assert_eq!(ask("lru_crawler mgdump 13\r\n"), "OK\r\nmg large\r\nEN\r\n");
    assert_eq!(ask("lru_crawler mgdump 5,13\r\n").lines().count(), 4);
    for bad in ["0", "32", "x", "1,", "noreply"] {
        assert_eq!(ask(&format!("lru_crawler metadump {bad}\r\n")), "BADCLASS invalid class id\r\n");
    }
    assert_eq!(ask("lru_crawler enable\r\n"), "CLIENT_ERROR lru crawler disabled\r\n");
    server.limits.dump = false;
    let mut ask = |text: &str| String::from_utf8_lossy(&server.answer(&[text.as_bytes()])).into_owned();
    assert_eq!(ask("lru_crawler metadump all\r\n"), "ERROR metadump not allowed\r\n");
    assert_eq!(ask("lru_crawler mgdump all\r\n"), "ERROR key dump not allowed\r\n");
}

#[test]
fn a_client_that_reads_slowly_and_others_that_wait_change_nothing() {
    let mut server = InProcess::repeatable();
    let sets: String = (0..3_000).map(|key| format!("set key{key} 0 0 1\r\nx\r\n")).collect();
    server.answer(&[sets.as_bytes()]);
    let ask = b"lru_crawler metadump all\r\nlru_crawler mgdump all\r\nmn\r\n";
    let whole = server.answer(&[&ask[..]]);
    assert_eq!(whole.iter().filter(|&&byte| byte == b'\n').count(), 6_000 + 2 * 2 + 1);
    for (out_high_water, max_requests) in [(1, u32::MAX), (3_000, 1), (1 << 17, 2)] {
        (server.limits.out_high_water, server.max_requests) = (out_high_water, max_requests);
        assert_eq!(server.answer(&ask.chunks(1).collect::<Vec<_>>()), whole);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The index grows and shrinks by thousands of items between the turns of a dump.
    #[test]
    fn items_that_stay_are_listed_once_while_others_come_and_go(
        before in 1..6_000u32, after in 1..12_000u32, stays in 2..7u32, turns in 1..40usize
    ) {
        let server = InProcess::repeatable();
        let put = |key: u32| {
            let key = format!("key{key}");
            let new = store::store::NewItem { flags: 0, exptime: 0, value: &[&b"x"[..]], cas: None };
            server.store.entry(key.as_bytes(), 2).put(new).expect("room");
        };
        (0..before).for_each(put);
        let mut cursor = store::store::Cursor::default();
        let mut listed: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        let mut walk = |most: usize| {
            let mut count = |key: &[u8]| *listed.entry(key.to_vec()).or_default() += 1;
            !(0..most).all(|_| server.store.walk(&mut cursor, 2, |one| count(one.key)))
        };
        let mut is_over = walk(turns);
        (before..before + after).for_each(put);
        is_over = is_over || walk(turns);
        for key in (0..before + after).filter(|key| key % stays != 0) {
            server.store.entry(format!("key{key}").as_bytes(), 2).remove();
        }
        while !is_over {
            is_over = walk(1_000);
        }
        for key in (0..before).filter(|key| key % stays == 0) {
            prop_assert_eq!(listed.get(format!("key{key}").as_bytes()), Some(&1), "key{}", key);
        }
        prop_assert!(listed.values().all(|&times| times == 1));
    }
}
