//! The memory that slow clients, tunnels and odd heads may take of a proxy.

use crate::fixture::{Client, Upstream, proxy, say, until};
use machine::Duration;
use std::io::{Read as _, Write as _};

fn long() -> Upstream {
    Upstream::start(|got, stream| match got.path() {
        "/long" => {
            let piece = vec![b'x'; 1 << 16];
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n").is_ok()
                && (0..160).all(|_| stream.write_all(&piece).is_ok())
        }
        path => say(stream, 200, path.as_bytes()),
    })
}

#[test]
fn who_does_not_read_is_charged_does_not_count_as_load_and_is_closed() {
    let server = long();
    let proxy = proxy(&[&server], |config| {
        config.goal = "100ms@p99.9".parse().unwrap();
        config.period = Some(proxy::Period(Duration::from_millis(1)));
        config.limits.client = Duration::from_secs(5);
    });
    let clients: Vec<Client> = (0..40)
        .map(|_| {
            let mut client = Client::to(&proxy);
            client.ask("/long");
            client
        })
        .collect();
    let status = until(&proxy, "all are charged", |status| status.memory >= 40 << 16);
    assert!(status.memory <= 40 << 18, "{status:?}");
    until(&proxy, "none is in service", |status| {
        status.servers[0].in_service == 0 && status.servers[0].held == 0 && server.got().len() == 40
    });
    let status = until(&proxy, "all are closed", |status| status.connections == 0);
    assert_eq!(status.memory, 0);
    until(&proxy, "the server's connections come back", |_| server.connections().1 == 0);
    drop(clients);
    assert_eq!(Client::to(&proxy).get("/short").unwrap().text(), "/short");
}

fn shouting() -> Upstream {
    Upstream::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").unwrap();
        let mut word = [0; 5];
        while stream.read_exact(&mut word).is_ok() {
            stream.write_all(&word.to_ascii_uppercase()).unwrap();
        }
        false
    })
}

const WEBSOCKET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn a_tunnel_keeps_its_place_among_the_connections_until_it_ends() {
    let server = shouting();
    let proxy = proxy(&[&server], |config| config.limits.connections = 2);
    let mut tunnels = [Client::to(&proxy), Client::to(&proxy)];
    for tunnel in &mut tunnels {
        tunnel.write(WEBSOCKET);
        assert_eq!(tunnel.read().unwrap().status, 101);
    }
    let mut third = Client::to(&proxy);
    third.write(WEBSOCKET);
    let mut word = [0; 5];
    for _ in 0..50 {
        for tunnel in &mut tunnels {
            tunnel.write("hello");
            tunnel.reader.read_exact(&mut word).unwrap();
            assert_eq!(&word, b"HELLO");
        }
    }
    assert_eq!((server.got().len(), proxy.status().connections), (2, 2));
    drop(tunnels);
    assert_eq!(third.read().unwrap().status, 101);
}

#[test]
fn a_silent_tunnel_ends_by_itself_and_with_the_proxy() {
    let server = shouting();
    let short = proxy(&[&server], |config| config.limits.tunnel = Duration::from_millis(100));
    let mut tunnel = Client::to(&short);
    tunnel.write(WEBSOCKET);
    assert_eq!(tunnel.read().unwrap().status, 101);
    tunnel.reader.get_ref().set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    assert_eq!(tunnel.reader.read(&mut [0; 1]).unwrap(), 0);
    until(&short, "its place is free", |status| status.connections == 0);
    let proxy = proxy(&[&server], |_| {});
    let mut tunnel = Client::to(&proxy);
    tunnel.write(WEBSOCKET);
    assert_eq!(tunnel.read().unwrap().status, 101);
    assert!(proxy.status().connections == 1);
    let (all_answered, status) = proxy.stop();
    assert!(all_answered && status.connections == 0);
}

#[test]
fn names_that_a_server_may_fold_into_forwarding_headers_end_here() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| config.hold = false);
    let mut client = Client::to(&proxy);
    client.write(
        "GET / HTTP/1.1\r\nHost: a\r\nX_Forwarded_For: 6.6.6.6\r\nX-Forwarded_Host: b\r\nX-Forwarded-Port: 1\r\n\
         X_Real_IP: 6\r\nContent_Length: 5\r\nTransfer_Encoding: chunked\r\nX_Own: kept\r\n\r\n",
    );
    assert_eq!(client.read().unwrap().status, 200);
    let got = server.got().remove(0);
    for name in ["x_forwarded_for", "x-forwarded_host", "x-forwarded-port", "x_real_ip", "content_length"] {
        assert_eq!(got.header(name), None, "{name}");
    }
    assert_eq!((got.header("transfer_encoding"), got.header("x_own")), (None, Some("kept")));
    assert_eq!(got.header("x-forwarded-for"), Some("127.0.0.1"));
}

#[test]
fn only_configured_upgrades_reach_a_server() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| config.hold = false);
    for wanted in ["x, h2c", "h2c", "HTTP/2.0", "shout", "websocket, h2c"] {
        let mut client = Client::to(&proxy);
        client.write(format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {wanted}\r\n\
             HTTP2-Settings: AAMAAABk\r\n\r\n"
        ));
        assert_eq!(client.read().unwrap().status, 200, "{wanted}");
        let got = server.got().pop().unwrap();
        assert_eq!((got.header("upgrade"), got.header("connection")), (None, None), "{wanted}");
        assert_eq!(got.header("http2-settings"), None);
    }
}

#[test]
fn a_websocket_counts_as_any_request_for_the_health_of_its_server() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let unserved = free.local_addr().unwrap();
    drop(free);
    let server = shouting();
    let proxy = proxy(&[&server], |config| {
        config.servers.insert(0, proxy::Server::at(&format!("http://{unserved}")));
    });
    for _ in 0..4 {
        let mut client = Client::to(&proxy);
        client.write(WEBSOCKET);
        assert_eq!(client.read().unwrap().status, 101);
    }
    assert!(proxy.status().servers[0].failures >= 1 && !proxy.status().servers[0].is_up);
}

#[test]
fn odd_request_lines_are_refused() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| config.hold = false);
    for line in ["GET a HTTP/1.1", "TRACE / HTTP/1.1", "get / HTTP/1.1", "Post / HTTP/1.1"] {
        let mut client = Client::to(&proxy);
        client.write(format!("{line}\r\nHost: a\r\n\r\n"));
        let answer = client.read();
        assert!(
            answer.as_ref().is_none_or(|answer| (400..502).contains(&answer.status)),
            "{line}: {answer:?}"
        );
        assert!(server.got().is_empty(), "{line}");
    }
}

#[test]
fn two_lengths_are_one_for_the_server() {
    let server = Upstream::start(|got, stream| say(stream, 200, &got.body));
    let proxy = proxy(&[&server], |config| config.hold = false);
    let mut both = Client::to(&proxy);
    both.write(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    let answer = both.read().unwrap();
    assert_eq!((answer.text(), answer.header("connection")), ("abc", Some("close")));
    let mut twice = Client::to(&proxy);
    twice.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(twice.read().unwrap().text(), "abc");
    for got in server.got() {
        let lengths = got.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        assert_eq!((lengths.count(), got.header("content-length")), (1, Some("3")));
    }
}
