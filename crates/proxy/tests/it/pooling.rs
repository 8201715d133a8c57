//! Connections to servers: which one a request takes, and how long they are kept.

use crate::fixture::{Client, Upstream, hold_until_full, proxy, say, until};
use machine::Duration;
use proxy::Config;
use std::io::{Read as _, Write as _};
use std::sync::mpsc::channel;

fn plain(config: &mut Config) {
    config.hold = false;
}

#[test]
fn one_after_the_other_takes_one_connection_and_a_burst_as_many_as_it_has_requests() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], plain);
    let (mut one, mut other) = (Client::to(&proxy), Client::to(&proxy));
    for _ in 0..20 {
        assert_eq!(one.get("/a").unwrap().text(), "/a");
        assert_eq!(other.get("/b").unwrap().text(), "/b");
    }
    assert_eq!(server.connections(), (1, 1));
    // No client is answered before all have asked, so each has a connection of its own; and a
    // second burst takes the same.
    let (tell, told) = channel();
    let told = std::sync::Mutex::new(told);
    let server = Upstream::start(move |got, stream| {
        told.lock().unwrap().recv().unwrap();
        say(stream, 200, got.path().as_bytes())
    });
    let proxy = crate::fixture::proxy(&[&server], |config| hold_until_full(config, 6));
    let mut clients: Vec<Client> = (0..6).map(|_| Client::to(&proxy)).collect();
    for round in 1..=2 {
        clients.iter_mut().for_each(|client| client.ask("/x"));
        until(&proxy, "all are in service", |status| status.servers[0].in_service == 6);
        while server.got().len() < 6 * round {
            std::thread::yield_now();
        }
        (0..6).for_each(|_| tell.send(()).unwrap());
        clients.iter_mut().for_each(|client| assert_eq!(client.read().unwrap().text(), "/x"));
    }
    assert_eq!(server.connections(), (6, 6));
}

#[test]
fn what_nobody_needs_is_closed_after_a_while() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| {
        plain(config);
        config.limits.idle = Duration::from_millis(20);
    });
    let mut client = Client::to(&proxy);
    for round in 1..=2 {
        assert_eq!(client.get("/").unwrap().status, 200);
        until(&proxy, "it is closed", |_| server.connections() == (round, 0));
    }
}

#[test]
fn an_answer_that_nobody_reads_to_its_end_ends_its_connection() {
    let server = Upstream::start(|got, stream| match got.path() {
        "/long" => stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n")
            .and_then(|()| stream.write_all(&vec![b'x'; 9_000_000]))
            .is_ok(),
        path => say(stream, 200, path.as_bytes()),
    });
    let proxy = proxy(&[&server], plain);
    let mut leaves = Client::to(&proxy);
    leaves.ask("/long");
    let mut beginning = [0; 100];
    leaves.reader.read_exact(&mut beginning).unwrap();
    drop(leaves);
    until(&proxy, "it has left", |status| status.counts().gone == 1);
    assert_eq!(Client::to(&proxy).get("/short").unwrap().text(), "/short");
    until(&proxy, "only the other is open", |_| server.connections() == (2, 1));
}

#[test]
fn a_server_that_ends_its_connections_after_each_answer_is_asked_on_new_ones() {
    let server = Upstream::start(|got, stream| {
        say(stream, 200, got.path().as_bytes());
        false
    });
    let proxy = proxy(&[&server], plain);
    let mut client = Client::to(&proxy);
    for round in 1..=10 {
        assert_eq!(client.get("/").unwrap().status, 200);
        until(&proxy, "it has ended", |_| server.connections() == (round, 0));
    }
    assert_eq!(server.got().len(), 10);
}
