//! The refused requests, how, and that nothing of them reaches a server.

use crate::fixture::{Client, Upstream, held, hold_until_full, proxy, until};
use machine::Duration;
use std::io::Read as _;

#[test]
fn what_two_readers_could_read_differently_is_refused() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| config.hold = false);
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for (head, why) in [
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "two lengths",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
            "two lengths",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            "two lengths of one kind",
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc", "a signed length"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nabc", "a list of lengths"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
            "a coding after chunked",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            "a coding like chunked",
        ),
        ("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "chunked in HTTP/1.0"),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", "a space before the colon"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", "a folded line"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "two hosts"),
        ("GET / HTTP/1.1\r\n\r\n", "no host"),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "a host that is none"),
        ("GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", "a control character"),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", "a forward proxy's method"),
        ("nonsense\r\n\r\n", "nonsense"),
    ] {
        let before = server.paths().len();
        let mut client = Client::to(&proxy);
        client.write(format!("{head}{smuggled}"));
        let answer = client.read();
        // In no case is the hidden part read as a request.
        let mut rest = Vec::new();
        client.reader.get_ref().set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
        let ended = matches!(client.reader.read_to_end(&mut rest), Ok(0));
        let paths = server.paths().split_off(before);
        let is_refused = answer.as_ref().is_none_or(|answer| (400..502).contains(&answer.status));
        if why == "two lengths" {
            // RFC 9112, 6.1: chunked counts alone, and the connection ends after the answer.
            let told = answer.is_some_and(|answer| answer.header("connection") == Some("close"));
            assert!(is_refused || (told && ended && paths == ["/"]), "{why}: {paths:?}");
        } else {
            assert!(is_refused && paths.is_empty(), "{why}: {answer:?} {paths:?}");
        }
    }
}

#[test]
fn bodies_too_long_are_refused_however_they_are_framed() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| {
        config.hold = false;
        config.limits.body = 1000;
    });
    let mut client = Client::to(&proxy);
    client.write("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n");
    assert_eq!(client.read().unwrap().status, 413, "without being asked for its body");
    let mut client = Client::to(&proxy);
    client.write(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n{}\r\n",
        "x".repeat(1001)
    ));
    assert_eq!(client.read().unwrap().status, 413);
    let mut client = Client::to(&proxy);
    client.write(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{}", "x".repeat(1000)));
    assert_eq!(client.read().unwrap().status, 200);
    assert_eq!(server.got().len(), 1);
    assert_eq!(proxy.status().counts().refused, 2);
}

#[test]
fn when_memory_is_full_the_next_is_told_and_nobody_is_lost() {
    let server = Upstream::start(|got, stream| crate::fixture::say(stream, 200, &got.body));
    let proxy = proxy(&[&server], |config| {
        hold_until_full(config, 4);
        (config.limits.body, config.limits.memory, config.limits.whole_answer) = (1000, 2500, 0);
    });
    let body = |letter: &str| {
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{}", letter.repeat(1000))
    };
    let mut first = [Client::to(&proxy), Client::to(&proxy)];
    first[0].write(body("a"));
    first[1].write(body("b"));
    until(&proxy, "two are held", |status| held(status) == 2 && status.memory == 2000);
    let mut third = Client::to(&proxy);
    third.write(body("c"));
    let answer = third.read().unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    // Two without a body fill the stage.
    let mut last = [Client::to(&proxy), Client::to(&proxy)];
    last.iter_mut().for_each(|client| client.ask("/"));
    for (client, letter) in first.iter_mut().zip(["a", "b"]) {
        assert_eq!(client.read().unwrap().text(), letter.repeat(1000));
    }
    last.iter_mut().for_each(|client| assert_eq!(client.read().unwrap().status, 200));
    let status = until(&proxy, "all is given back", |status| status.memory == 0);
    assert_eq!((status.counts().no_memory, status.counts().answered), (1, 4));
}

#[test]
fn slow_clients_do_not_stay() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| {
        config.hold = false;
        config.limits.client = Duration::from_millis(100);
    });
    let mut silent = Client::to(&proxy);
    let mut half_a_head = Client::to(&proxy);
    half_a_head.write("GET / HTTP/1.1\r\nHost: a\r\nX-");
    let mut half_a_body = Client::to(&proxy);
    half_a_body.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    assert_eq!(silent.read(), None);
    let answer = half_a_head.read();
    assert!(answer.as_ref().is_none_or(|answer| answer.status == 408), "{answer:?}");
    assert_eq!(half_a_body.read().unwrap().status, 408);
    until(&proxy, "all have gone", |status| status.connections == 0);
    assert!(server.got().is_empty());
}

#[test]
fn heads_without_end_are_refused() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| config.hold = false);
    let mut client = Client::to(&proxy);
    client.write("GET / HTTP/1.1\r\nHost: a\r\n");
    let lines = format!("X-A: {}\r\n", "x".repeat(1000)).repeat(200);
    client.write(lines);
    let answer = client.read();
    assert!(answer.as_ref().is_none_or(|answer| answer.status == 431), "{answer:?}");
    assert!(server.got().is_empty());
}

#[test]
fn more_connections_than_allowed_wait_for_their_turn() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| {
        config.hold = false;
        config.limits.connections = 2;
    });
    let mut first = [Client::to(&proxy), Client::to(&proxy)];
    first.iter_mut().for_each(|client| assert_eq!(client.get("/").unwrap().status, 200));
    let mut third = Client::to(&proxy);
    third.ask("/third");
    // Time enough for the third, if it had its turn: the proxy has one thread.
    for _ in 0..50 {
        first.iter_mut().for_each(|client| assert_eq!(client.get("/").unwrap().status, 200));
    }
    assert!(proxy.status().connections == 2 && !server.paths().contains(&"/third".to_owned()));
    drop(first);
    assert_eq!(third.read().unwrap().text(), "/third");
}

#[test]
fn a_server_that_is_silent_is_given_up() {
    let server = Upstream::start(|_, _| {
        std::thread::park();
        false
    });
    let proxy = proxy(&[&server], |config| {
        config.hold = false;
        config.limits.answer = Duration::from_millis(50);
    });
    assert_eq!(Client::to(&proxy).get("/").unwrap().status, 504);
    assert_eq!(server.got().len(), 1, "it may be at work: it is not asked again");
    assert_eq!(proxy.status().counts().timed_out, 1);
}
