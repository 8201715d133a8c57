//! Servers that fail, and the requests that are sent again.

use crate::fixture::{Client, Upstream, hold_until_full, proxy, say, until};
use machine::Duration;
use std::io::Write as _;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ends the connection in the way given, as often as given, and answers after that.
fn fails(times: u32, how: &'static [u8]) -> Upstream {
    let left = AtomicU32::new(times);
    Upstream::start(move |got, stream| {
        let fails = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if !fails {
            return say(stream, 200, got.path().as_bytes());
        }
        let _ = stream.write_all(how);
        let _ = stream.shutdown(Shutdown::Both);
        false
    })
}

fn plain(config: &mut proxy::Config) {
    config.hold = false;
    config.health.pause = Duration::from_millis(1);
}

#[test]
fn what_may_be_repeated_is_and_the_client_does_not_notice() {
    for how in
        [&b""[..], b"HTTP/1.1 200 OK\r\nContent-", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"]
    {
        let server = fails(2, how);
        let proxy = proxy(&[&server], plain);
        let answer = Client::to(&proxy).get("/again").unwrap();
        assert_eq!((answer.status, answer.text()), (200, "/again"), "{how:?}");
        assert_eq!((server.got().len(), proxy.status().counts().retried), (3, 2));
    }
}

#[test]
fn what_may_not_be_repeated_is_asked_once() {
    let server = fails(1, b"");
    let proxy = proxy(&[&server], plain);
    let mut client = Client::to(&proxy);
    for (method, status, asked) in [("POST", 502, 1), ("PATCH", 200, 2)] {
        client.write(format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"));
        assert_eq!(client.read().unwrap().status, status);
        assert_eq!(server.got().len(), asked);
    }
}

#[test]
fn repeating_has_an_end() {
    let server = fails(u32::MAX, b"");
    let proxy = proxy(&[&server], plain);
    assert_eq!(Client::to(&proxy).get("/").unwrap().status, 502);
    assert_eq!(server.got().len(), 3);
    let status = proxy.status();
    assert!(!status.servers[0].is_up && status.servers[0].failures == 3 && status.last_failure.is_some());
}

#[test]
fn an_answer_that_breaks_off_after_its_beginning_was_passed_on_ends_the_connection() {
    let server = fails(u32::MAX, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhalf");
    let proxy = proxy(&[&server], plain);
    let mut client = Client::to(&proxy);
    client.ask("/");
    let answer = client.read().unwrap();
    assert!(!answer.is_whole && server.got().len() == 1);
    until(&proxy, "it is counted", |status| status.counts().broke_off == 1);
}

#[test]
fn what_never_left_us_may_always_go_elsewhere() {
    let mut dead = Upstream::echo();
    let alive = Upstream::echo();
    dead.kill();
    let proxy = proxy(&[&dead, &alive], plain);
    let mut client = Client::to(&proxy);
    for _ in 0..4 {
        client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
        assert_eq!(client.read().unwrap().status, 200);
    }
    assert_eq!(alive.got().len(), 4);
    // Known to be down, it is not tried again and again.
    assert_eq!(proxy.status().counts().retried, 1);
}

#[test]
fn a_server_that_is_back_is_asked_again_and_one_that_is_well_is_not_knocked_at() {
    let act = Arc::new(|got: &crate::fixture::Got, stream: &mut std::net::TcpStream| {
        say(stream, 200, got.path().as_bytes())
    });
    let mut server = Upstream::start_at("127.0.0.1:0".parse().unwrap(), act.clone());
    let proxy = proxy(&[&server], |config| {
        plain(config);
        config.health.every = Duration::from_millis(5);
        config.health.path = Some("/health".to_owned());
    });
    let mut client = Client::to(&proxy);
    assert_eq!(client.get("/a").unwrap().status, 200);
    let address = server.address;
    server.kill();
    assert_eq!(client.get("/b").unwrap().status, 502);
    let server = Upstream::start_at(address, act);
    until(&proxy, "it is back", |status| status.servers[0].is_up);
    assert_eq!(server.paths(), ["/health"]);
    // For longer than several knocks would take.
    let began = std::time::Instant::now();
    while began.elapsed().as_millis() < 40 {
        assert_eq!(client.get("/c").unwrap().status, 200);
    }
    assert_eq!(server.paths().iter().filter(|path| *path == "/health").count(), 1);
}

#[test]
fn a_burst_with_a_failure_in_it_teaches_nothing() {
    let server = fails(1, b"");
    let proxy = proxy(&[&server], |config| {
        hold_until_full(config, 1);
        config.health.pause = Duration::from_millis(1);
    });
    let mut client = Client::to(&proxy);
    for in_time in [0, 1] {
        assert_eq!(client.get("/").unwrap().status, 200);
        let status = until(&proxy, "it is over", |status| status.servers[0].in_service == 0);
        assert_eq!(status.servers[0].stage.in_time, in_time);
    }
    assert_eq!(server.got().len(), 3);
}

#[test]
fn held_requests_outlive_their_server() {
    let act = Arc::new(|got: &crate::fixture::Got, stream: &mut std::net::TcpStream| {
        say(stream, 200, got.path().as_bytes())
    });
    let mut server = Upstream::start_at("127.0.0.1:0".parse().unwrap(), act.clone());
    let proxy = proxy(&[&server], |config| hold_until_full(config, 2));
    let mut clients = [Client::to(&proxy), Client::to(&proxy)];
    clients[0].ask("/0");
    until(&proxy, "one is held", |status| crate::fixture::held(status) == 1);
    let address = server.address;
    server.kill();
    let _server = Upstream::start_at(address, act);
    clients[1].ask("/1");
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.read().unwrap().text(), format!("/{number}"));
    }
}
