//! Servers of HTTP/2 that misbehave frame by frame, as no library lets one.

use crate::fixture::{Client, proxy};
use machine::Duration;
use proxy::{Config, Proxy, Server};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The bytes on a connection.
enum Heard {
    /// A whole request, on this stream.
    Request(u32),
    /// Whether a peer is there, with the reply.
    Ping(Vec<u8>),
}

/// Writes its answers, for the number of a connection, from 1, and the received bytes.
type Script = dyn Fn(usize, Heard) -> Vec<u8> + Send + Sync;

/// The server; its threads end with their connections.
struct Scripted {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    pings: Arc<AtomicUsize>,
}

impl Scripted {
    fn start(script: impl Fn(usize, Heard) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let script: Arc<Script> = Arc::new(script);
        let [connections, requests, pings] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let server = Self {
            address,
            connections: connections.clone(),
            requests: requests.clone(),
            pings: pings.clone(),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let number = connections.fetch_add(1, Ordering::SeqCst) + 1;
                let (script, requests, pings) = (script.clone(), requests.clone(), pings.clone());
                std::thread::spawn(move || {
                    // A peer that is gone ends it.
                    let _ = converse(stream, |heard| {
                        let counted = if matches!(heard, Heard::Ping(_)) { &pings } else { &requests };
                        counted.fetch_add(1, Ordering::SeqCst);
                        script(number, heard)
                    });
                });
            }
        });
        server
    }

    fn counts(&self) -> (usize, usize, usize) {
        let [connections, requests, pings] =
            [&self.connections, &self.requests, &self.pings].map(|count| count.load(Ordering::SeqCst));
        (connections, requests, pings)
    }

    /// A proxy before it that holds nothing.
    fn proxy(&self, change: impl FnOnce(&mut Config)) -> Proxy {
        let server = Server { http2: true, ..Server::at(&format!("http://{}", self.address)) };
        proxy(&[], |config| {
            config.hold = false;
            config.servers = vec![server];
            change(config);
        })
    }
}

fn converse(mut stream: TcpStream, mut hear: impl FnMut(Heard) -> Vec<u8>) -> std::io::Result<()> {
    stream.read_exact(&mut [0; PREFACE])?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let number = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload)?;
        let answer = match kind {
            DATA | HEADERS if flags & END_STREAM != 0 => hear(Heard::Request(number)),
            SETTINGS if flags & ACK == 0 => frame(SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => hear(Heard::Ping(payload)),
            _ => Vec::new(),
        };
        stream.write_all(&answer)?;
    }
}

/// RFC 9113, 4.1.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// An answer without a body: HPACK has `:status: 200` as its eighth.
fn ok(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &[0x88])
}

fn reset(stream: u32, reason: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &reason.to_be_bytes())
}

fn pong(payload: &[u8]) -> Vec<u8> {
    frame(PING, ACK, 0, payload)
}

const PREFACE: usize = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;

/// A client that waits for minutes and no longer.
fn client(proxy: &Proxy) -> Client {
    let client = Client::to(proxy);
    client.reader.get_ref().set_read_timeout(Some(std::time::Duration::from_secs(120))).unwrap();
    client
}

fn post(client: &mut Client) -> Option<u16> {
    client.write("POST /order HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nhi");
    client.read().map(|answer| answer.status)
}

#[test]
fn a_post_that_a_server_refused_unseen_is_sent_again_and_one_that_it_began_is_not() {
    for (reason, status, times) in [(REFUSED_STREAM, 200, 2), (INTERNAL_ERROR, 502, 1)] {
        let is_first = Mutex::new(true);
        let server = Scripted::start(move |_, heard| match heard {
            Heard::Ping(payload) => pong(&payload),
            Heard::Request(stream) => {
                let first = std::mem::replace(&mut *is_first.lock().unwrap(), false);
                if first { reset(stream, reason) } else { ok(stream) }
            }
        });
        let proxy = server.proxy(|_| {});
        assert_eq!(post(&mut client(&proxy)), Some(status), "reason {reason}");
        assert_eq!(server.counts().1, times, "reason {reason}");
    }
}

#[test]
fn a_connection_on_which_an_answer_did_not_come_in_time_is_asked_nothing_more() {
    let server = Scripted::start(|connection, heard| match heard {
        Heard::Ping(payload) => pong(&payload),
        Heard::Request(_) if connection == 1 => Vec::new(),
        Heard::Request(stream) => ok(stream),
    });
    let proxy = server.proxy(|config| config.limits.answer = Duration::from_secs(10));
    let mut client = client(&proxy);
    assert_eq!(client.get("/lost").unwrap().status, 504);
    assert_eq!(client.get("/next").unwrap().status, 200, "by another connection");
    let (connections, requests, _) = server.counts();
    assert_eq!((connections, requests), (2, 2));
}

#[test]
fn a_server_that_owes_an_answer_is_asked_whether_it_is_there_and_has_its_time() {
    let owed = Mutex::new(None);
    let server = Scripted::start(move |_, heard| match heard {
        Heard::Request(stream) => {
            *owed.lock().unwrap() = Some(stream);
            Vec::new()
        }
        // It shows that it is there, and that it has done.
        Heard::Ping(payload) => pong(&payload)
            .into_iter()
            .chain(owed.lock().unwrap().take().map(ok).unwrap_or_default())
            .collect(),
    });
    let proxy = server.proxy(|config| config.limits.answer = Duration::from_secs(600));
    assert_eq!(client(&proxy).get("/slow").expect("an answer").status, 200);
    let (connections, requests, pings) = server.counts();
    assert_eq!((connections, requests), (1, 1), "nothing was sent again");
    assert!(pings >= 1);
}

#[test]
fn a_connection_that_has_died_without_a_word_is_given_up_long_before_its_requests_are() {
    let server = Scripted::start(|connection, heard| match heard {
        // As where a cable was cut.
        _ if connection == 1 => Vec::new(),
        Heard::Ping(payload) => pong(&payload),
        Heard::Request(stream) => ok(stream),
    });
    let proxy = server.proxy(|config| config.limits.answer = Duration::from_secs(600));
    let answer = client(&proxy).get("/").expect("an answer");
    assert_eq!(answer.status, 200, "what is safe to repeat was sent again");
    let (connections, requests, _) = server.counts();
    assert_eq!((connections, requests), (2, 2));
}
