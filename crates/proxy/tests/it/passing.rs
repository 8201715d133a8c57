//! The requests that come through, and their form.

use crate::fixture::{Client, Upstream, proxy, say};
use proxy::{Config, Server};
use std::io::{Read as _, Write as _};

fn plain(config: &mut Config) {
    config.hold = false;
}

#[test]
fn requests_and_answers_keep_what_is_theirs_and_lose_what_is_a_connections() {
    let server = Upstream::start(|_, stream| {
        let answer = "HTTP/1.1 201 Made\r\nX-Kept: 1\r\nConnection: X-Gone, keep-alive\r\nX-Gone: \
                      1\r\nKeep-Alive: timeout=5\r\n\
                      Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 4\r\n\r\nmade";
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let proxy = proxy(&[&server], plain);
    let mut client = Client::to(&proxy);
    for _ in 0..2 {
        client.write(
            "POST /a%20b?c=d HTTP/1.1\r\nHost: a.example:81\r\nConnection: X-Private\r\nX-Private: \
             1\r\nX-Kept: 2\r\n\
             X-Forwarded-For: 1.2.3.4\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        );
        let answer = client.read().unwrap();
        assert_eq!((answer.status, answer.text()), (201, "made"));
        assert_eq!((answer.header("x-kept"), answer.header("x-gone")), (Some("1"), None));
        let cookies = answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        assert_eq!(cookies.count(), 2);
    }
    let got = server.got();
    assert_eq!(got.len(), 2);
    assert_eq!((got[0].line.as_str(), got[0].body.as_slice()), ("POST /a%20b?c=d HTTP/1.1", &b"abcde"[..]));
    for (name, value) in [
        ("host", Some("a.example:81")),
        ("x-kept", Some("2")),
        ("x-private", None),
        ("transfer-encoding", None),
        ("content-length", Some("5")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-forwarded-proto", Some("http")),
        ("x-forwarded-host", Some("a.example:81")),
        ("via", Some("1.1 roost")),
    ] {
        assert_eq!(got[1].header(name), value, "{name}");
    }
}

#[test]
fn what_the_head_of_a_request_asks_for_is_sent_on_for_head_and_http_1_0() {
    let server = Upstream::start(|got, stream| {
        let body = if got.line.starts_with("HEAD") { "" } else { "x" };
        stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{body}").as_bytes()).is_ok()
    });
    let proxy = proxy(&[&server], plain);
    let mut client = Client::to(&proxy);
    client.write("HEAD /h HTTP/1.1\r\nHost: a\r\n\r\nGET /g HTTP/1.0\r\n\r\n");
    let mut text = String::new();
    client.reader.read_to_string(&mut text).unwrap();
    let (first, second) = text.split_once("\r\n\r\n").unwrap();
    assert!(
        first.starts_with("HTTP/1.1 200") && first.to_ascii_lowercase().contains("content-length: 1"),
        "{text}"
    );
    assert!(second.starts_with("HTTP/1.0 200") && second.ends_with("\r\n\r\nx"), "{text}");
    assert_eq!(server.paths(), ["/h", "/g"]);
}

#[test]
fn a_client_that_expects_leave_to_send_its_body_gets_it() {
    let server = Upstream::start(|got, stream| say(stream, 200, &got.body));
    let proxy = proxy(&[&server], plain);
    let mut client = Client::to(&proxy);
    client.write("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    assert_eq!(client.read().unwrap().status, 100);
    client.write("body");
    assert_eq!(client.read().unwrap().text(), "body");
    assert_eq!(server.got()[0].header("expect"), None);
}

#[test]
fn long_answers_and_streams_pass_through_as_they_come() {
    // Each piece is sent when the client has got the one before.
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let server = Upstream::start(move |_, stream| {
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
            )
            .unwrap();
        for _ in 0..3 {
            stream.write_all(b"5\r\nevent\r\n").unwrap();
            told.lock().unwrap().recv().unwrap();
        }
        stream.write_all(b"0\r\n\r\n").is_ok()
    });
    let proxy =
        proxy(&[&server], |config| config.period = Some(proxy::Period(machine::Duration::from_millis(1))));
    let mut client = Client::to(&proxy);
    client.ask("/");
    let mut seen = Vec::new();
    while seen.windows(5).filter(|piece| piece == b"event").count() < 3 {
        let before = seen.windows(5).filter(|piece| piece == b"event").count();
        let mut byte = [0];
        client.reader.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
        if seen.windows(5).filter(|piece| piece == b"event").count() > before {
            tell.send(()).unwrap();
        }
    }
    let long = Upstream::start(|_, stream| say(stream, 200, &vec![b'x'; 3 << 20]));
    let proxy = crate::fixture::proxy(&[&long], plain);
    let answer = Client::to(&proxy).get("/").unwrap();
    assert!(answer.is_whole && answer.body.len() == 3 << 20);
    crate::fixture::until(&proxy, "it is counted", |status| status.counts().answered == 1);
}

#[test]
fn a_connection_may_become_something_else() {
    let server = Upstream::start(|got, stream| {
        assert_eq!(got.header("upgrade"), Some("shout"));
        stream.write_all(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n").unwrap();
        let mut word = [0; 5];
        while stream.read_exact(&mut word).is_ok() {
            stream.write_all(&word.to_ascii_uppercase()).unwrap();
        }
        false
    });
    let proxy = proxy(&[&server], |config| config.upgrades = vec!["shout".to_owned()]);
    let mut client = Client::to(&proxy);
    client.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n");
    let answer = client.read().unwrap();
    assert_eq!((answer.status, answer.header("upgrade")), (101, Some("shout")));
    for _ in 0..3 {
        client.write("hello");
        let mut word = [0; 5];
        client.reader.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"HELLO");
    }
}

#[test]
fn hosts_and_paths_have_servers_of_their_own() {
    let named = |name: &'static str| Upstream::start(move |_, stream| say(stream, 200, name.as_bytes()));
    let (one, other) = (named("one"), named("other"));
    let proxy = proxy(&[&one], |config| {
        config.hold = false;
        config.servers[0].path = Some("/one/".to_owned());
        config.servers.push(Server { host: Some("Other.example".to_owned()), ..Server::at(&other.url()) });
    });
    let mut client = Client::to(&proxy);
    assert_eq!(client.get("/one/x").unwrap().text(), "one");
    assert_eq!(client.get("/two").unwrap().status, 404);
    client.write("GET http://other.example:99/one/ HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_eq!(client.read().unwrap().text(), "other");
    assert_eq!(other.got()[0].header("host"), Some("other.example:99"));
}
