//! Events for those that watch: the lines of memcached.

use crate::endpoint::{Endpoint, InProcess, Memcached};
use memcache::Topics;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// A line without the values that are a server's own.
fn plain(line: &str) -> String {
    let of_all = |word: &&str| !["ts=", "gid=", "cfd=", "clsid="].iter().any(|own| word.starts_with(own));
    let seconds = |word| if word != "ttl=0" && str::starts_with(word, "ttl=") { "ttl=some" } else { word };
    line.split(' ').filter(of_all).map(seconds).collect::<Vec<_>>().join(" ")
}

fn changes() -> Vec<u8> {
    let mut commands = b"set a/b 7 100 3\r\nabc\r\nadd a/b 0 0 1\r\nx\r\nadd n 0 0 1\r\nx\r\n\
        replace none 0 0 1\r\nx\r\nreplace n 0 0 2\r\nxy\r\nappend a/b 0 0 2\r\nde\r\nprepend none 0 0 1\r\nx\r\n\
        cas none 0 0 1 9\r\nx\r\ncas n 0 0 1 77777777\r\nx\r\nms m 2 T30\r\nhi\r\nms m 3 MA\r\nxyz\r\n\
        ms none 1 MR\r\nx\r\ndelete a/b\r\ndelete a/b\r\nmd m q\r\nmd m q\r\nms AAECIA== 2 b\r\nhi\r\n\
        md AAECIA== b\r\nset huge 0 0 1048576\r\n"
        .to_vec();
    commands.resize(commands.len() + 1_048_576, b'x');
    commands.extend_from_slice(b"\r\n");
    commands
}

#[test]
fn events_are_those_of_memcached() {
    // To store is to look as well, for memcached.
    let items = b"set k 0 0 2\r\nhi\r\nset empty 0 0 0\r\n\r\n";
    let looks = b"get k none empty\r\ngets k\r\ngat 100 k none\r\nmg k v\r\nmg none\r\nmg k t q\r\n".to_vec();
    for (kinds, topics, commands, least) in [
        ("mutations deletions", Topics::MUTATIONS.and(Topics::DELETIONS), changes(), 17),
        ("fetchers", Topics::FETCHERS, looks, 9),
    ] {
        let mut server = InProcess::new();
        server.answer(&[&items[..]]);
        let listener = server.store.events().listen(topics).expect("there is room for one");
        server.answer(&[&commands]);
        let mut lines = Vec::new();
        listener.take(&mut lines);
        let ours: Vec<String> = String::from_utf8(lines).expect("text").lines().map(plain).collect();
        assert!(ours.len() >= least, "{ours:#?}");
        match Memcached::start() {
            Err(reason) => println!("SKIPPED beside memcached: {reason}"),
            Ok(memcached) if !memcached.is_reference() => println!("SKIPPED beside memcached: it is too old"),
            Ok(mut memcached) => {
                memcached.answer(&[&items[..]]);
                let mut watcher = TcpStream::connect(memcached.address()).expect("it accepts");
                watcher.set_read_timeout(Some(Duration::from_secs(60))).expect("an option of every socket");
                watcher.write_all(format!("watch {kinds}\r\n").as_bytes()).expect("it reads");
                let mut theirs = BufReader::new(watcher).lines().map(|line| line.expect("a line"));
                assert_eq!(theirs.next().as_deref(), Some("OK"));
                memcached.answer(&[&commands]);
                let theirs: Vec<String> = theirs.take(ours.len()).map(|line| plain(&line)).collect();
                assert_eq!(ours, theirs, "memcached's are the right ones");
            }
        }
    }
}
