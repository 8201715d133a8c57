//! Any bytes sent to the binary's HTTP server are answered in HTTP or not at all, and a page is for
//! its own names alone.

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::HeaderMap;
use axum::routing::{get, post};
use rustix::net::sockopt::set_socket_linger;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

#[allow(dead_code, reason = "the binary uses the rest")]
#[path = "../../crates/cli/src/http.rs"]
mod http;

pub fn run(bytes: &[u8]) {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    let mut stream = TcpStream::connect(ADDRESS.get_or_init(serve)).expect("the server lives");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    // A reset at the end: closed in the usual way, every port would be waiting for a minute.
    set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket");
    // It may close before it has read all.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        let is_over = error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(is_over, "no end of the answer within {PATIENCE:?}: {error}");
    }
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", String::from_utf8_lossy(&answer));
    let asked = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    if !may_name_us(&asked) {
        assert!(!answer.windows(6).any(|word| word == b"200 OK"), "{asked}");
    }
}

/// True if some name or address in it may be ours, or if HTTP/1.0 has leave to name none.
fn may_name_us(asked: &str) -> bool {
    let host = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    let rest = asked.replace("http/1.1", "");
    [OWN_NAME, "localhost", "http/1.0", &host].iter().any(|name| rest.contains(name))
        || rest.contains("::")
        || rest.as_bytes().windows(2).any(|pair| pair[0] == b'.' && pair[1].is_ascii_digit())
}

fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new()
        .route("/", get(|| async { "here" }))
        .route("/wake", post(|_: HeaderMap, body: Bytes| async move { body.len().to_string() }))
        .layer(DefaultBodyLimit::max(1024));
    let limits = http::Limits { head: SOON, answer: SOON, ..http::Limits::CALLERS };
    let hosts = http::Hosts::Named(vec![OWN_NAME.to_owned()]);
    http::serve("http", listener, router, limits, hosts, std::future::pending()).expect("a thread");
    address
}

const OWN_NAME: &str = "page.example";
const SOON: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(120);
