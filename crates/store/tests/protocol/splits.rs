//! Whatever the network and the worker do to a conversation, the answers stay the same; whatever
//! the client does, the session goes on.

use crate::endpoint::InProcess;
use crate::script::{Kind, Script};
use memcache::KEY_MAX;
use proptest::prelude::*;

fn small() -> InProcess {
    InProcess::repeatable()
}

fn answers(server: &mut InProcess, pieces: &[&[u8]]) -> (String, bool) {
    let (answers, closed) = server.converse(pieces);
    (String::from_utf8_lossy(&answers).into_owned(), closed)
}

fn every(size: usize, stream: &[u8]) -> Vec<&[u8]> {
    stream.chunks(size.max(1)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn cuts_and_turns_change_nothing(
        seed: u64, cuts: u64, hostile: bool, max_requests in 1u32..20, out_high_water in 1usize..2000,
    ) {
        let kind = if hostile { Kind::Hostile } else { Kind::WellFormed };
        let stream = Script::random(seed % 1_000_000, "cuts", kind, 80).requests.concat();
        let whole = answers(&mut small(), &[&stream]);
        let mut server = small();
        server.max_requests = max_requests;
        server.limits.out_high_water = out_high_water;
        let cut = answers(&mut server, &Script::pieces(&stream, cuts));
        prop_assert_eq!(whole, cut, "seed {}, cuts {}", seed, cuts);
    }

    #[test]
    fn junk_is_answered_or_closed_and_nobody_is_stuck(
        junk in proptest::collection::vec(any::<u8>(), 0..4000), cuts: u64, max_requests in 1u32..4,
    ) {
        let whole = answers(&mut small(), &[&junk]);
        let mut server = small();
        server.max_requests = max_requests;
        prop_assert_eq!(whole, answers(&mut server, &Script::pieces(&junk, cuts)));
    }

    #[test]
    fn a_damaged_conversation_goes_on(seed: u64, at: prop::sample::Index, byte: u8, cuts: u64) {
        let mut stream = Script::random(seed % 1_000_000, "damage", Kind::WellFormed, 30).requests.concat();
        let place = at.index(stream.len());
        stream[place] = byte;
        let whole = answers(&mut small(), &[&stream]);
        prop_assert_eq!(whole, answers(&mut small(), &Script::pieces(&stream, cuts)));
    }
}

#[test]
fn one_byte_at_a_time_is_enough() {
    for seed in 0..3 {
        let stream = Script::random(seed, "bytes", Kind::Hostile, 60).requests.concat();
        let whole = answers(&mut small(), &[&stream]);
        assert_eq!(whole, answers(&mut small(), &every(1, &stream)), "seed {seed}");
    }
}

#[test]
fn a_list_of_keys_may_be_of_any_length_and_is_answered_in_parts() {
    let mut server = small();
    server.converse(&[b"set there 0 0 5\r\nvalue\r\n"]);
    let mut stream = b"get".to_vec();
    for number in 0..20_000 {
        stream.extend_from_slice(format!(" missing-{number} there").as_bytes());
    }
    stream.extend_from_slice(b"\r\nmn\r\n");
    server.limits.out_high_water = 1000;
    server.max_requests = 50;
    let (answer, closed) = server.converse(&every(1000, &stream));
    assert!(!closed);
    let expected = [&b"VALUE there 0 5\r\nvalue\r\n".repeat(20_000)[..], b"END\r\nMN\r\n"].concat();
    assert_eq!(answer, expected);
    assert_eq!(server.counters.cmd_get.value(), 40_000);
}

#[test]
fn a_key_too_long_in_a_long_list_ends_the_list_and_not_the_conversation() {
    let mut stream = [b"get".to_vec(), b" missing".repeat(400), vec![b' ']].concat();
    stream.extend_from_slice(&[b'k'; KEY_MAX + 1]);
    stream.extend_from_slice(&b" more".repeat(1000));
    stream.extend_from_slice(b"\r\nmn\r\n");
    let expected = ("CLIENT_ERROR bad command line format\r\nMN\r\n".to_owned(), false);
    for size in [1, 7, 1000, 100_000] {
        assert_eq!(answers(&mut small(), &every(size, &stream)), expected, "in pieces of {size}");
    }
}

#[test]
fn a_line_that_never_ends_costs_the_connection() {
    for size in [1, 1000, 10_000] {
        assert_eq!(answers(&mut small(), &every(size, &[b'x'; 10_000])), (String::new(), true));
    }
    let mut long = b"mg ".to_vec();
    long.resize(2048, b'x');
    assert_eq!(answers(&mut small(), &[&long]), (String::new(), false), "2048 bytes may still become a line");
}

#[test]
fn a_client_of_the_binary_protocol_is_told_so_in_it() {
    // A get with the opaque "abcd", cut after each byte.
    let get = [&b"\x80\x00\x00\x01\0\0\0\0\0\0\0\x01abcd"[..], &[0; 8], b"k"].concat();
    let mut server = small();
    let (answer, closed) = server.converse(&every(1, &get));
    let told = b"the binary protocol is not served: use the text or the meta protocol";
    let head = [0x81, 0, 0, 0, 0, 0, 0, 0x81, 0, 0, 0, told.len() as u8, b'a', b'b', b'c', b'd'];
    assert_eq!(answer, [&head[..], &[0; 8], told].concat());
    assert!(closed && server.counters.binary_refused.value() == 1);
    assert_eq!(answers(&mut small(), &[b"\x80\x00\x00\x01"]), (String::new(), false), "more may come");
    assert_eq!(answers(&mut small(), &[b"mn\r\n\x80\x00\r\n"]), ("MN\r\nERROR\r\n".into(), false));
}

#[test]
fn a_session_tells_why_it_ended() {
    use store::session::Ending;
    for (bytes, ending) in [
        (&b"quit\r\n"[..], Ending::Quit),
        (&[0x80; 24], Ending::BinaryProtocol),
        (b"GET / HTTP/1.1\r\n", Ending::Http),
        (&[b'a'; 3000], Ending::LineTooLong),
    ] {
        assert_eq!(small().ending(bytes), Some(ending));
    }
    assert_eq!(small().ending(b"mn\r\n"), None);
}

#[test]
fn quit_answers_what_came_before_and_nothing_after() {
    assert_eq!(answers(&mut small(), &[b"mn\r\nquit\r\nmn\r\n"]), ("MN\r\n".into(), true));
}

#[test]
fn a_value_too_large_is_thrown_away_as_it_comes_and_takes_the_old_one_with_it() {
    let large = 3 << 20;
    let mut stream = b"set a 0 0 1\r\nx\r\n".to_vec();
    stream.extend_from_slice(format!("set a 0 0 {large}\r\n").as_bytes());
    stream.resize(stream.len() + large, b'v');
    stream.extend_from_slice(b"\r\nget a\r\n");
    for size in [1 << 14, 1 << 30] {
        let expected = ("STORED\r\nSERVER_ERROR object too large for cache\r\nEND\r\n".to_owned(), false);
        assert_eq!(answers(&mut small(), &every(size, &stream)), expected);
    }
}

#[test]
fn a_value_without_memory_is_refused_and_thrown_away() {
    let mut server = small();
    server.converse(&[b"set a 0 0 1\r\nx\r\nset b 0 0 1\r\nx\r\n"]);
    let head = b"set a 0 0 10\r\n012";
    let rest = b"3456789\r\nget a b\r\n";
    let expected = "SERVER_ERROR out of memory storing object\r\nVALUE b 0 1\r\nx\r\nEND\r\n";
    assert_eq!(String::from_utf8_lossy(&server.converse_refusing(head, rest)), expected);
    assert_eq!(server.counters.store_no_memory.value(), 1);

    let silent = server.converse_refusing(b"set b 0 0 10 noreply\r\n012", b"3456789\r\nget b\r\n");
    assert_eq!(silent, b"END\r\n");
    let meta = server.converse_refusing(b"ms b 10 q\r\n", b"0123456789\r\nmn\r\n");
    assert_eq!(meta, b"SERVER_ERROR out of memory storing object\r\nMN\r\n");
}

#[test]
fn an_unfinished_line_is_no_value_to_refuse() {
    let mut server = small();
    for bytes in [&b"set a 0 0"[..], b"", b"get a", b"mg "] {
        assert!(!server.refuses(bytes), "{bytes:?}");
    }
}
