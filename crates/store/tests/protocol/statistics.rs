//! Figures that operators size a cache by, under memcached's names and beside memcached's own.

use crate::endpoint::{Endpoint, InProcess, Memcached};

fn figure(server: &mut dyn Endpoint, group: &str, name: &str) -> Option<u64> {
    let answer = server.answer(&[format!("stats{group}\r\n").as_bytes()]);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let line = answer.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.and_then(|value| value.parse().ok())
}

#[test]
fn requests_that_find_an_item_gone_are_counted_by_the_reason() {
    fn of(server: &mut dyn Endpoint) -> [u64; 2] {
        server.answer(&[b"set old 0 1 1\r\nx\r\nset a 0 0 1\r\nx\r\nset b 0 0 1\r\nx\r\nget a none\r\n"]);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while server.answer(&[b"get old\r\n"]) != b"END\r\n" {
            assert!(std::time::Instant::now() < until, "it does not expire");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        // A flush of memcached's takes items that are older than a second of its clock.
        std::thread::sleep(std::time::Duration::from_millis(1_200));
        server.answer(&[b"get old\r\nflush_all\r\nget a\r\nget b\r\nget b\r\n"]);
        ["get_expired", "get_flushed"].map(|name| figure(server, "", name).expect("a figure"))
    }
    assert_eq!(of(&mut InProcess::new()), [1, 2]);
    match Memcached::start() {
        Ok(mut memcached) => assert_eq!(of(&mut memcached), [1, 2], "memcached"),
        Err(reason) => println!("SKIPPED beside memcached: {reason}"),
    }
}

#[test]
fn the_eviction_age_is_that_of_the_last_evicted() {
    let mut server = InProcess::repeatable();
    let value = "x".repeat(100_000);
    for place in 0..1_500 {
        let stream = format!("set key{place} 0 1000 {}\r\n{value}\r\n", value.len());
        assert_eq!(server.answer(&[stream.as_bytes()]), b"STORED\r\n");
    }
    // 100,000 bytes and the head are in the class of 2^17.
    let mut of = |name: &str| figure(&mut server, " items", &format!("items:17:{name}")).expect("a figure");
    let evicted = of("evicted");
    assert!(evicted > 500, "{evicted} of 1500 times 0.1 MB in 64 MiB");
    assert_eq!(
        (of("evicted_nonzero"), of("evicted_time")),
        (evicted, 0),
        "all have an expiry; the clock stands"
    );
    assert_eq!(figure(&mut server, "", "time_in_listen_disabled_us"), Some(0));
}
