//! `watch`: events, as told to the clients that watch them.

use crate::fixture::{Client, ConfigFile, Server};
use std::time::{Duration, Instant};

/// A line without its time and number, and without the numbers of connections, ports and classes.
fn event(line: &str) -> String {
    let words = line.split(' ').filter(|word| {
        !["ts=", "gid=", "cfd=", "rport=", "clsid="].iter().any(|beginning| word.starts_with(beginning))
    });
    words.collect::<Vec<_>>().join(" ")
}

fn watch(server: &Server, kinds: &str) -> Client {
    let mut watcher = server.connect();
    assert_eq!(watcher.ask(&format!("watch {kinds}")), "OK");
    watcher
}

#[test]
fn watchers_are_told_what_clients_do() {
    let server = Server::start(&["--memory-limit", "64m", "--workers", "2"]);
    let mut watcher = watch(&server, "fetchers mutations deletions connevents");
    let mut client = server.connect();
    client.ask("set a/b 7 100 3\r\nabc");
    client.ask("add a/b 0 0 1\r\nx");
    client.ask("cas other 0 0 1 9\r\nx");
    client.ask("ms meta 2 MA\r\nhi");
    client.ask("gets none");
    client.ask("mg a/b v");
    client.ask("delete a/b");
    client.ask("delete a/b");
    client.ask("ms meta 2\r\nhi");
    client.ask("md meta q\r\nmn");
    client.ask("set huge 0 0 2000000\r\n");
    drop(client);
    for expected in [
        "type=conn_new rip=127.0.0.1 transport=tcp",
        "type=item_store key=a%2Fb status=stored cmd=set ttl=100 size=3",
        "type=item_store key=a%2Fb status=not_stored cmd=add ttl=0 size=1",
        "type=item_store key=other status=not_found cmd=cas ttl=0 size=1",
        "type=item_store key=meta status=not_stored cmd=append ttl=0 size=2",
        "type=item_get key=none status=not_found size=0",
        "type=item_get key=a%2Fb status=found size=3",
        "type=deleted key=a%2Fb cmd=delete size=3",
        "type=item_store key=meta status=stored cmd=set ttl=0 size=2",
        "type=deleted key=meta cmd=md size=2",
        "type=item_store key=huge status=too_large cmd=set ttl=0 size=0",
        "type=conn_close rip=127.0.0.1 transport=tcp reason=normal",
    ] {
        assert_eq!(event(&watcher.line()), expected);
    }
    let mut other = server.connect();
    assert_eq!(other.stat("", "log_watchers").as_deref(), Some("1"));
    // Its own requests are not answered any more.
    watcher.send("get a\r\nquit\r\n");
    assert_eq!(event(&watcher.line()), "type=conn_new rip=127.0.0.1 transport=tcp");
    drop(watcher);
    let began = Instant::now();
    while other.stat("", "log_watchers").as_deref() != Some("0") {
        assert!(began.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn evictions_are_told_and_a_slow_watcher_misses_some_and_is_told_how_many() {
    // On a slow machine it would be closed before it begins to read.
    let config = ConfigFile::new("[limits]\nstall = \"1h\"\n");
    let server = Server::start(&["--memory-limit", "16m", "--config", &config]);
    let mut slow = watch(&server, "evictions mutations");
    let mut client = server.connect();
    let value = "x".repeat(1000);
    let (mut next, mut last) = (0_u64, 0);
    let mut set = |client: &mut Client| {
        let sets =
            (next..next + 200).map(|number| format!("set key-{number} 0 0 1000 noreply\r\n{value}\r\n"));
        client.send(sets.collect::<String>());
        next += 200;
        next - 1
    };
    let mut number_of = |line: &str| {
        let number = line.split(' ').find_map(|word| word.strip_prefix("gid="));
        let number: u64 = number.and_then(|number| number.parse().ok()).expect("a number of the line");
        assert!(number > last, "{line}");
        last = number;
        number
    };
    // It keeps up: each line is read before the queue can be full.
    let mut evicted = 0;
    while evicted == 0 {
        let end = format!("key=key-{} ", set(&mut client));
        loop {
            let line = slow.line();
            assert!(number_of(&line) < 1_000_000, "nothing was evicted");
            if line.contains(" type=eviction ") {
                evicted += 1;
                assert!(line.contains(" key=key-") && line.contains(" fetch=no ttl=-1 la="), "{line}");
            } else if line.contains(&end) {
                break;
            }
        }
    }
    let mut other = server.connect();
    let began = Instant::now();
    while other.stat("", "log_watcher_skipped").as_deref() == Some("0") {
        assert!(began.elapsed() < Duration::from_secs(120), "nothing was skipped");
        for _ in 0..20 {
            set(&mut client);
        }
    }
    let skipped = loop {
        let line = slow.line();
        match line.strip_prefix("skipped=") {
            Some(count) => break count.parse::<u64>().expect("a number"),
            None => _ = number_of(&line),
        }
    };
    assert!(skipped > 0);
}

#[test]
fn watching_is_limited_and_can_be_switched_off() {
    let server = Server::start(&["--memory-limit", "64m"]);
    let watchers: Vec<Client> = (0..20).map(|_| watch(&server, "")).collect();
    let mut client = server.connect();
    assert_eq!(client.ask("watch"), "WATCHER_TOO_MANY log watcher limit reached");
    assert_eq!(client.ask("watch gossip"), "ERROR");
    assert_eq!(client.set("k", "v"), "STORED", "it is a client as before");
    drop(watchers);
    let began = Instant::now();
    while client.stat("", "log_watchers").as_deref() != Some("0") {
        assert!(began.elapsed() < Duration::from_secs(60));
    }
    assert_eq!(client.ask("watch"), "OK");

    let config = ConfigFile::new("[limits]\nwatch = false\n");
    let server = Server::start(&["--config", &config]);
    let mut client = server.connect();
    assert_eq!(client.ask("watch gossip"), "CLIENT_ERROR watch commands not allowed");
    assert_eq!(client.set("k", "v"), "STORED");
}
