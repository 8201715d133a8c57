//! Requests and required answers, in a table: the facts of the protocol that a reader wants to look
//! up.
//!
//! Every row is put to a session; the rows whose words have not changed since are also put to the
//! memcached at hand, so that the table cannot describe a protocol without an implementation.

use crate::compare::difference;
use crate::endpoint::{Endpoint, InProcess, Memcached};

/// A fact, the bytes sent on one connection, the bytes that come back.
type Exchange = (&'static str, &'static str, &'static str);

const EXCHANGES: &[Exchange] = &[
    (
        "a value comes back as it was stored",
        "set a 7 0 3\r\nabc\r\nget a\r\n",
        "STORED\r\nVALUE a 7 3\r\nabc\r\nEND\r\n",
    ),
    (
        "a value may hold line endings",
        "set a 0 0 4\r\n\r\n\r\n\r\nget a\r\n",
        "STORED\r\nVALUE a 0 4\r\n\r\n\r\n\r\nEND\r\n",
    ),
    ("a value may be empty", "set a 0 0 0\r\n\r\nget a\r\n", "STORED\r\nVALUE a 0 0\r\n\r\nEND\r\n"),
    ("a bare newline ends a line", "set a 0 0 1\nx\r\nget a\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    (
        "a missing key is left out",
        "set a 0 0 1\r\nx\r\nget b a c\r\n",
        "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    ),
    (
        "a key asked for twice comes twice",
        "set a 0 0 1\r\nx\r\nget a a\r\n",
        "STORED\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    ),
    ("noreply is silent", "set a 0 0 1 noreply\r\nx\r\ndelete a noreply\r\nget a\r\n", "END\r\n"),
    ("add wants no old value", "add a 0 0 1\r\nx\r\nadd a 0 0 1\r\ny\r\n", "STORED\r\nNOT_STORED\r\n"),
    (
        "replace wants an old value",
        "replace a 0 0 1\r\nx\r\nset a 0 0 1\r\nx\r\nreplace a 0 0 1\r\ny\r\n",
        "NOT_STORED\r\nSTORED\r\nSTORED\r\n",
    ),
    (
        "append and prepend keep flags",
        "set a 5 0 1\r\nb\r\nappend a 9 9 1\r\nc\r\nprepend a 9 9 1\r\na\r\nget a\r\n",
        "STORED\r\nSTORED\r\nSTORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\n",
    ),
    (
        "append wants an old value",
        "append a 0 0 1\r\nx\r\nprepend a 0 0 1\r\nx\r\n",
        "NOT_STORED\r\nNOT_STORED\r\n",
    ),
    ("cas wants an old value", "cas a 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n"),
    (
        "cas with another number stores nothing",
        "set a 0 0 1\r\nx\r\ncas a 0 0 1 999999999\r\ny\r\nget a\r\n",
        "STORED\r\nEXISTS\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    ),
    (
        "delete forgets",
        "set a 0 0 1\r\nx\r\ndelete a\r\ndelete a\r\nget a\r\n",
        "STORED\r\nDELETED\r\nNOT_FOUND\r\nEND\r\n",
    ),
    ("incr begins again at zero", "set a 0 0 20\r\n18446744073709551615\r\nincr a 2\r\n", "STORED\r\n1\r\n"),
    ("decr stops at zero", "set a 0 0 1\r\n5\r\ndecr a 9\r\n", "STORED\r\n0\r\n"),
    (
        "a number that grows becomes longer",
        "set a 3 0 2\r\n99\r\nincr a 1\r\nget a\r\n",
        "STORED\r\n100\r\nVALUE a 3 3\r\n100\r\nEND\r\n",
    ),
    (
        "a number that shrinks keeps its room",
        "set a 3 0 3\r\n100\r\ndecr a 1\r\nget a\r\n",
        "STORED\r\n99\r\nVALUE a 3 3\r\n99 \r\nEND\r\n",
    ),
    (
        "only numbers count",
        "set a 0 0 1\r\nx\r\nincr a 1\r\nincr b 1\r\n",
        "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nNOT_FOUND\r\n",
    ),
    ("an amount is a number", "incr a x\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"),
    (
        "touch keeps the value",
        "set a 0 0 1\r\nx\r\ntouch a 100\r\ntouch b 100\r\nget a\r\n",
        "STORED\r\nTOUCHED\r\nNOT_FOUND\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    ),
    (
        "a negative expiry has passed",
        "set a 0 -1 1\r\nx\r\nget a\r\nset b 0 0 1\r\nx\r\ntouch b -1\r\nget b\r\n",
        "STORED\r\nEND\r\nSTORED\r\nTOUCHED\r\nEND\r\n",
    ),
    ("an expiry long ago has passed", "set a 0 1000000000 1\r\nx\r\nget a\r\n", "STORED\r\nEND\r\n"),
    (
        "gat touches and tells",
        "set a 0 0 1\r\nx\r\ngat -1 a\r\nget a\r\n",
        "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\nEND\r\n",
    ),
    ("gat wants a number", "gat x a\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
    (
        "a flush forgets everything before it and nothing after",
        "set a 0 0 1\r\nx\r\nflush_all\r\nget a\r\nset a 0 0 1\r\ny\r\nget a\r\n",
        "STORED\r\nOK\r\nEND\r\nSTORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n",
    ),
    (
        "a flush to come forgets nothing yet",
        "set a 0 0 1\r\nx\r\nflush_all 100\r\nget a\r\n",
        "STORED\r\nOK\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    ),
    ("verbosity is accepted", "verbosity 1\r\n", "OK\r\n"),
    ("an unknown command is an error", "frobnicate\r\n", "ERROR\r\n"),
    ("unknown statistics are an error", "stats frobnicate\r\n", "ERROR\r\n"),
    (
        "mg tells what it is asked",
        "set a 5 0 3\r\nabc\r\nmg a s v f t Oq k\r\n",
        "STORED\r\nVA 3 s3 f5 t-1 Oq ka\r\nabc\r\n",
    ),
    ("mg without v tells no value", "set a 5 0 3\r\nabc\r\nmg a\r\nmg a f\r\n", "STORED\r\nHD\r\nHD f5\r\n"),
    (
        "mg may be quiet about a miss",
        "mg a v\r\nmg a v q\r\nmg a v k Ox\r\nmn\r\n",
        "EN\r\nEN ka Ox\r\nMN\r\n",
    ),
    (
        "mg knows whether it is the first to look",
        "set a 0 0 1\r\nx\r\nmg a h\r\nmg a h\r\n",
        "STORED\r\nHD h0\r\nHD h1\r\n",
    ),
    (
        "mg may look without being noticed",
        "set a 0 0 1\r\nx\r\nmg a h u\r\nmg a h\r\n",
        "STORED\r\nHD h0\r\nHD h0\r\n",
    ),
    (
        "mg touches in the order of its flags",
        "set a 0 0 1\r\nx\r\nmg a t T100\r\nmg a T200 t\r\n",
        "STORED\r\nHD t-1\r\nHD t200\r\n",
    ),
    (
        "mg creates an item and one client wins",
        "mg a N100 v t\r\nmg a N100 v t\r\n",
        "VA 0 t100 W\r\n\r\nVA 0 t100 Z\r\n\r\n",
    ),
    (
        "mg lets one client recache",
        "ms a 1 T100\r\nx\r\nmg a R30\r\nmg a R300\r\nmg a R300\r\n",
        "HD\r\nHD\r\nHD W\r\nHD Z\r\n",
    ),
    (
        "a stale item is won once",
        "set a 0 0 1\r\nx\r\nmd a I T50\r\nmg a v t\r\nmg a v\r\n",
        "STORED\r\nHD\r\nVA 1 t50 X W\r\nx\r\nVA 1 Z X\r\nx\r\n",
    ),
    ("a base64 key names the same item", "set foo 0 0 1\r\nx\r\nmg Zm9v b v\r\n", "STORED\r\nVA 1\r\nx\r\n"),
    (
        "ms has modes",
        "ms a 1 ME\r\nx\r\nms a 1 ME\r\ny\r\nms a 1 MA\r\nz\r\nms a 1 MP\r\nw\r\nms b 1 MR\r\ny\r\nget a\r\n",
        "HD\r\nNS\r\nHD\r\nHD\r\nNS\r\nVALUE a 0 3\r\nwxz\r\nEND\r\n",
    ),
    ("ms may be quiet about success alone", "ms a 1 q\r\nx\r\nms a 1 q ME\r\nx\r\nmn\r\n", "NS\r\nMN\r\n"),
    ("md compares", "ms a 1\r\nx\r\nmd a C99999999\r\nmd a q\r\nmd a Oz\r\n", "HD\r\nEX\r\nNF Oz\r\n"),
    (
        "ma counts",
        "set a 0 0 2\r\n10\r\nma a\r\nma a v D5\r\nma a v MD D100\r\nma b\r\nma b N0 J7 v\r\n",
        "STORED\r\nHD\r\nVA 2\r\n16\r\nVA 1\r\n0\r\nNF\r\nVA 1\r\n7\r\n",
    ),
    ("a flag counts once", "mg a v v\r\n", "CLIENT_ERROR duplicate flag\r\n"),
    ("a flag must be known", "mg a y\r\n", "CLIENT_ERROR invalid flag\r\n"),
];

/// Rows that only memcacheds since the reference answer so.
const RECENT: &[Exchange] = &[
    ("ms stores and tells", "ms a 1 T0 F9 k Oq s\r\nx\r\nmg a f v\r\n", "HD ka Oq s1\r\nVA 1 f9\r\nx\r\n"),
    (
        "a value of the wrong length is refused and its rest is a command",
        "set a 0 0 2\r\nabcd\r\nget a\r\n",
        "CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nEND\r\n",
    ),
    (
        "ms takes a number of the client's choice",
        "ms a 1 E5000000000000 c\r\nx\r\nmg a c\r\n",
        "HD c5000000000000\r\nHD c5000000000000\r\n",
    ),
    (
        "ms compares",
        "ms a 1 E5000000001000\r\nx\r\nms a 1 C5000000000000\r\ny\r\nms a 1 C5000000001000 c E5000000002000\r\ny\r\n",
        "HD\r\nEX\r\nHD c5000000002000\r\n",
    ),
    (
        "a late value serves until the fresh one comes",
        "ms a 1 E5000000001000\r\nx\r\nmd a I E5000000002000\r\nms a 1 I C5000000001000\r\ny\r\nmg a v\r\n",
        "HD\r\nHD\r\nHD\r\nVA 1 X W\r\ny\r\n",
    ),
    (
        "md may leave a tombstone",
        "ms a 1 F5 T100\r\nx\r\nmd a x\r\nmg a v f t\r\n",
        "HD\r\nHD\r\nVA 0 f0 t-1\r\n\r\n",
    ),
    (
        "mg leaves out a value that the client has",
        "ms a 1 E5000000001000\r\nx\r\nmg a v C5000000001000\r\nmg a v C5\r\n",
        "HD\r\nHD\r\nVA 1\r\nx\r\n",
    ),
    ("a retrieval wants a key", "get\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("an empty line is badly formed", "\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("a store wants five words", "set a 0 0\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("a client may not stop the server", "shutdown\r\n", "SERVER_ERROR: shutdown not enabled\r\n"),
];

/// Puts a row to a server that holds nothing, as far as clients can tell.
fn put(endpoint: &mut dyn Endpoint, request: &str) -> String {
    endpoint.answer(&[b"flush_all\r\n"]);
    String::from_utf8(endpoint.answer(&[request.as_bytes()])).expect("the table holds text")
}

fn rows() -> impl Iterator<Item = &'static Exchange> {
    EXCHANGES.iter().chain(RECENT)
}

#[test]
fn a_session_answers_as_the_table_says() {
    for (fact, request, expected) in rows() {
        // A store of its own for each row.
        let answer = String::from_utf8(InProcess::repeatable().answer(&[request.as_bytes()])).expect("text");
        assert_eq!(&answer, expected, "{fact}: {request:?}");
    }
}

#[test]
fn memcached_answers_as_the_table_says() {
    let mut memcached = match Memcached::start() {
        Ok(memcached) => memcached,
        Err(reason) => {
            eprintln!("SKIPPED: no memcached to check the table against ({reason})");
            return;
        }
    };
    let recent = if memcached.is_reference() { RECENT } else { &[] };
    for (fact, request, expected) in EXCHANGES.iter().chain(recent) {
        let answer = put(&mut memcached, request);
        if let Some(difference) = difference(expected.as_bytes(), answer.as_bytes()) {
            panic!("{fact}: {request:?}: {difference}");
        }
    }
}

#[test]
fn a_number_that_was_seen_can_be_compared_with() {
    let check = |endpoint: &mut dyn Endpoint| {
        let answer =
            String::from_utf8(endpoint.answer(&[b"set seen 0 0 1\r\nx\r\ngets seen\r\n"])).expect("text");
        let unique: u64 =
            answer.split([' ', '\r']).nth(5).and_then(|word| word.trim().parse().ok()).expect("a number");
        let stream = format!("cas seen 0 0 1 {unique}\r\ny\r\ncas seen 0 0 1 {unique}\r\nz\r\nget seen\r\n");
        let answer = endpoint.answer(&[stream.as_bytes()]);
        assert_eq!(answer, b"STORED\r\nEXISTS\r\nVALUE seen 0 1\r\ny\r\nEND\r\n");
    };
    check(&mut InProcess::new());
    if let Ok(mut memcached) = Memcached::start() {
        check(&mut memcached);
    }
}

#[test]
fn what_we_answer_differently_on_purpose() {
    for (reason, request, expected) in [
        (
            "memcached ends this error with a second empty line",
            &[&b"get a "[..], &[b'k'; 251], b"\r\n"].concat()[..],
            &b"CLIENT_ERROR bad command line format\r\n"[..],
        ),
        (
            "memcached ignores what follows the key since its parser was rewritten",
            b"set a 0 0 1\r\nx\r\ndelete a b\r\ndelete a 0\r\n",
            b"STORED\r\nCLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\nDELETED\r\n",
        ),
        (
            "memcached has counted before it refuses",
            b"set n 0 0 1\r\n5\r\nma n Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\nget n\r\n",
            b"STORED\r\nCLIENT_ERROR opaque token too long\r\nVALUE n 0 1\r\n5\r\nEND\r\n",
        ),
        (
            "memcached loses the expiry where the number becomes longer",
            b"set n 0 0 1\r\n9\r\nma n T100\r\nmg n v t\r\n",
            b"STORED\r\nHD\r\nVA 2 t100\r\n10\r\n",
        ),
        (
            "memcached answers in the encoding in which the item was stored",
            b"set foo 0 0 1\r\nx\r\nmg Zm9v b k\r\nmg foo k\r\n",
            b"STORED\r\nHD kZm9v b\r\nHD kfoo\r\n",
        ),
        (
            "memcached decodes here only if a fourth word follows",
            b"set foo 0 0 1\r\nx\r\nme Zm8= b\r\n",
            b"STORED\r\nEN\r\n",
        ),
        (
            "memcached shows a time to live that has passed as four thousand million seconds",
            b"set a 0 0 1\r\nx\r\nmg a T-1 t\r\n",
            b"STORED\r\nHD t0\r\n",
        ),
        (
            "slabs and crawler are memcached's own",
            b"slabs reassign 1 2\r\nlru_crawler enable\r\ncache_memlimit 1000000\r\n",
            b"CLIENT_ERROR slab reassignment disabled\r\nCLIENT_ERROR lru crawler disabled\r\n\
              MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n",
        ),
    ] {
        let answer = InProcess::repeatable().answer(&[request]);
        assert_eq!(String::from_utf8_lossy(&answer), String::from_utf8_lossy(expected), "{reason}");
    }
}

#[test]
fn the_version_names_the_protocol_that_is_spoken() {
    let answer = InProcess::repeatable().answer(&[b"version\r\n"]);
    assert!(answer.starts_with(b"VERSION 1.6."), "{:?}", String::from_utf8_lossy(&answer));
}

#[test]
fn monitoring_finds_its_names() {
    let mut endpoint = InProcess::repeatable();
    let stream = b"set a 0 0 1\r\nx\r\nget a b\r\nincr a 1\r\ndelete zz\r\ntouch zz 1\r\ncas a 0 0 1 1\r\ny\r\nstats\r\n";
    let answer = String::from_utf8(endpoint.answer(&[stream])).expect("text");
    let stat = |name: &str| {
        let found =
            answer.lines().find_map(|line| line.strip_prefix("STAT ")?.strip_prefix(name)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {name} in {answer}")).to_owned()
    };
    for (name, value) in [
        ("cmd_get", "2"),
        ("get_hits", "1"),
        ("get_misses", "1"),
        ("cmd_set", "2"),
        ("delete_misses", "1"),
        ("cmd_touch", "1"),
        ("touch_misses", "1"),
        ("incr_misses", "0"),
        ("curr_items", "1"),
        ("pointer_size", "64"),
    ] {
        assert_eq!(stat(name), value, "{name}");
    }
    for name in [
        "pid",
        "uptime",
        "time",
        "version",
        "rusage_user",
        "rusage_system",
        "curr_connections",
        "total_connections",
        "cmd_flush",
        "cmd_meta",
        "decr_hits",
        "cas_badval",
        "bytes",
        "total_items",
        "evictions",
        "limit_maxbytes",
        "threads",
        "bytes_read",
        "bytes_written",
        "reclaimed",
        "hash_bytes",
        "max_connections",
    ] {
        stat(name);
    }
    let answer =
        endpoint.answer(&[b"stats items\r\nstats slabs\r\nstats sizes\r\nstats settings\r\nstats reset\r\n"]);
    let answer = String::from_utf8(answer).expect("text");
    for part in
        ["STAT items:", ":number 1", ":used_chunks 1", "STAT active_slabs 1", "num_threads", "RESET\r\n"]
    {
        assert!(answer.contains(part), "no {part:?} in {answer}");
    }
}
