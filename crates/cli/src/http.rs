//! The one HTTP server of this binary: the metrics pages and the announcements of `roost wake`.
//!
//! ```text
//!  accept --room?--> head (time limit) --Host ours?--> handler (time limit) --> answer (stall limit)
//!     |      `-- no: the connection that has said nothing for longest ends
//!     `-- no descriptor: one of the reserve is given up for it, and taken again when a connection ends
//! ```
//!
//! A page shares its process, its descriptors and its CPUs with its subject, and it must still
//! answer when these are short: then it is needed most. So it keeps descriptors in reserve, and
//! strangers cannot fill it: a connection that has asked for nothing gives way to one that is new.
//!
//! A browser can be made to read a page of this machine for a stranger, whose name then resolves to
//! 127.0.0.1 (DNS rebinding). The request's `Host` is the stranger's name. Addresses cannot be
//! resolved to something else, so they are ours always, as are `localhost` and this machine's own
//! name; other names must have been given.
//!
//! Invariants:
//! - At most [`Limits::connections`] are open, each for a bounded time unless it is read.
//! - No failed accept ends the server, and none is tried again without a pause or a descriptor
//!   more.
//! - An unused page costs nothing: without a connection there is no timer.

use axum::Router;
use axum::body::Body;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Request, Response, StatusCode, Version, header};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use proxy::Paced;
use rustix::io::Errno;
use std::convert::Infallible;
use std::fs::File;
use std::future::Future;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

/// The limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// At the same time.
    pub connections: usize,
    /// Until a request's head is there, and between requests.
    pub head: Duration,
    /// Until an answer begins: the request's body is read meanwhile.
    pub answer: Duration,
    /// For how long an answer may wait for its reader to take anything of it.
    pub stall: Duration,
    /// For the whole connection.
    pub whole: Option<Duration>,
    /// Another request may follow on the same connection.
    pub is_kept: bool,
}

impl Limits {
    /// For pages: one request a connection.
    pub const PAGE: Self = Self {
        connections: 64,
        head: Duration::from_secs(5),
        answer: Duration::from_secs(10),
        stall: Duration::from_secs(10),
        whole: Some(Duration::from_secs(30)),
        is_kept: false,
    };
    /// For callers that say something now and then, over a connection that is kept.
    pub const CALLERS: Self =
        Self { connections: 256, head: Duration::from_secs(60), whole: None, is_kept: true, ..Self::PAGE };
}

/// Under which names the server is asked.
#[derive(Clone, Debug)]
pub enum Hosts {
    /// Addresses, `localhost`, this machine's own name, and these.
    Named(Vec<String>),
    /// Any: each request proves by something else that it may ask.
    Any,
}

impl Hosts {
    /// Whether a `Host` header, or a request's authority, names this server.
    fn is_ours(&self, authority: &str) -> bool {
        let Self::Named(names) = self else { return true };
        let Ok(authority) = authority.parse::<Authority>() else { return false };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let host = host.strip_suffix('.').unwrap_or(host);
        let is = |name: &str| name.eq_ignore_ascii_case(host);
        host.parse::<IpAddr>().is_ok()
            || is("localhost")
            || rustix::system::uname().nodename().to_str().is_ok_and(is)
            || names.iter().any(|name| is(name))
    }
}

/// Answers at `listener` on a thread of that name, until `stop` is over.
pub fn serve(
    thread: &str,
    listener: TcpListener,
    router: Router,
    limits: Limits,
    hosts: Hosts,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let room = Room {
        router,
        limits,
        hosts: Arc::new(hosts),
        reserve: Reserve::default(),
        peers: Vec::new(),
        tasks: JoinSet::new(),
    };
    std::thread::Builder::new()
        .name(thread.to_owned())
        .spawn(move || runtime.block_on(room.run(listener, stop)))
}

/// The identity of an accepted connection.
struct Peer {
    since: Instant,
    has_asked: Arc<AtomicBool>,
    task: AbortHandle,
}

struct Room {
    router: Router,
    limits: Limits,
    hosts: Arc<Hosts>,
    reserve: Reserve,
    /// In the order in which they came.
    peers: Vec<Peer>,
    tasks: JoinSet<()>,
}

impl Room {
    async fn run(mut self, listener: tokio::net::TcpListener, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        self.reserve.fill();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = self.tasks.join_next() => {
                    self.tidy();
                    continue;
                }
                () = &mut stop => break,
            };
            match accepted {
                Ok((stream, _)) => self.welcome(stream).await,
                Err(error) if is_out_of_descriptors(&error) => {
                    if !self.reserve.give() && !self.make_room().await {
                        sleep(AFTER_TROUBLE).await;
                        self.tidy();
                    }
                }
                // The peer was gone before it was accepted, or memory is short.
                Err(_) => sleep(AFTER_TROUBLE).await,
            }
        }
        // Who is in the middle of an answer has a little time for its end.
        drop(listener);
        self.peers
            .iter()
            .filter(|peer| !peer.has_asked.load(Ordering::Relaxed))
            .for_each(|peer| peer.task.abort());
        let _ = timeout(FAREWELL, async { while self.tasks.join_next().await.is_some() {} }).await;
    }

    async fn welcome(&mut self, stream: TcpStream) {
        self.tidy();
        if self.peers.len() >= self.limits.connections && !self.make_room().await {
            return;
        }
        let has_asked = Arc::new(AtomicBool::new(false));
        let attended =
            attend(stream, self.router.clone(), self.limits, Arc::clone(&self.hosts), Arc::clone(&has_asked));
        let task = self.tasks.spawn(attended);
        self.peers.push(Peer { since: Instant::now(), has_asked, task });
    }

    /// Ends the connection that has asked for nothing for longest. False if all have asked.
    async fn make_room(&mut self) -> bool {
        let silent = |peer: &&Peer| !peer.has_asked.load(Ordering::Relaxed) && !peer.task.is_finished();
        let Some(oldest) = self.peers.iter().find(silent) else { return false };
        // Each has a moment to send its request, however many come.
        tokio::time::sleep_until(oldest.since + GRACE).await;
        if !oldest.has_asked.load(Ordering::Relaxed) {
            oldest.task.abort();
            let task = oldest.task.clone();
            while !task.is_finished() && self.tasks.join_next().await.is_some() {}
        }
        self.peers.retain(|peer| !peer.task.is_finished());
        self.peers.len() < self.limits.connections
    }

    fn tidy(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.peers.retain(|peer| !peer.task.is_finished());
        self.reserve.fill();
    }
}

async fn attend(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    hosts: Arc<Hosts>,
    has_asked: Arc<AtomicBool>,
) {
    // Small answers, each written at once.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let (router, hosts, has_asked) = (router.clone(), Arc::clone(&hosts), Arc::clone(&has_asked));
        async move {
            has_asked.store(true, Ordering::Relaxed);
            let answer = answer(request, router, limits, &hosts).await;
            if limits.is_kept {
                has_asked.store(false, Ordering::Relaxed);
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .keep_alive(limits.is_kept)
        .max_buf_size(BUFFER_MAX);
    let connection = protocol.serve_connection(TokioIo::new(Paced::new(stream, limits.stall)), service);
    // A peer's fault is its own loss.
    let _ = match limits.whole {
        Some(whole) => timeout(whole, connection).await.unwrap_or(Ok(())),
        None => connection.await,
    };
}

async fn answer(request: Request<Incoming>, router: Router, limits: Limits, hosts: &Hosts) -> Response<Body> {
    let in_header = request.headers().get_all(header::HOST).iter().map(HeaderValue::to_str);
    let named: Vec<_> = request
        .uri()
        .authority()
        .map(|authority| Ok(authority.as_str()))
        .into_iter()
        .chain(in_header)
        .collect();
    // Only a request of HTTP/1.0 may leave it out, and no browser sends such a one.
    let is_named = !named.is_empty() || request.version() == Version::HTTP_10;
    let is_ours = |name: &Result<&str, _>| name.as_ref().is_ok_and(|name| hosts.is_ours(name));
    if !is_named || !named.iter().all(is_ours) {
        let why = "this name is not known here: ask by address, or name it behind the address of --metrics\n";
        return (StatusCode::MISDIRECTED_REQUEST, [(header::CONNECTION, "close")], why).into_response();
    }
    match timeout(limits.answer, TowerToHyperService::new(router).call(request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(never)) => match never {},
        Err(_) => (StatusCode::REQUEST_TIMEOUT, [(header::CONNECTION, "close")]).into_response(),
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Descriptors that are kept for when the process has no others.
#[derive(Debug, Default)]
struct Reserve(Vec<File>);

impl Reserve {
    fn fill(&mut self) {
        while self.0.len() < RESERVE {
            let Ok(file) = File::open("/dev/null") else { return };
            self.0.push(file);
        }
    }

    /// One less is kept. False if there is none.
    fn give(&mut self) -> bool {
        self.0.pop().is_some()
    }
}

/// Of a request's head; and of an answer, before more of it is composed.
const BUFFER_MAX: usize = 16 << 10;
/// For accepting, and for a file that a page is composed of.
const RESERVE: usize = 4;
/// A new connection is not sent away before.
const GRACE: Duration = Duration::from_millis(100);
/// Until the next is accepted, where one could not be.
const AFTER_TROUBLE: Duration = Duration::from_millis(50);
/// How long the last of an answer may take to reach its reader when the server ends.
const FAREWELL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::{get, post};
    use std::io::{Read as _, Write as _};
    use std::net::SocketAddr;

    const SOON: Duration = Duration::from_millis(200);
    const PATIENCE: Duration = Duration::from_secs(60);

    fn room(limits: Limits, hosts: Hosts) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/large", get(|| async { "x".repeat(64 << 20) }))
            .route("/length", post(|body: String| async move { body.len().to_string() }));
        serve("tested", listener, router, limits, hosts, std::future::pending()).unwrap();
        address
    }

    fn connect(address: SocketAddr) -> std::net::TcpStream {
        let stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The bytes after this was sent, until the end of the connection.
    fn exchange(address: SocketAddr, sent: &str) -> String {
        let mut stream = connect(address);
        stream.write_all(sent.as_bytes()).unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    }

    fn ask(address: SocketAddr, host: &str) -> String {
        exchange(address, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    #[test]
    fn a_strangers_name_is_refused_and_addresses_and_given_names_are_not() {
        let address = room(Limits::PAGE, Hosts::Named(vec!["page.example".to_owned()]));
        let own = rustix::system::uname().nodename().to_str().unwrap().to_owned();
        for host in ["127.0.0.1", "127.0.0.1:80", "[::1]:9", "10.1.2.3", "LocalHost:1", "page.example", &own]
        {
            assert!(ask(address, host).starts_with("HTTP/1.1 200"), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "page.example.x:80", ""]
        {
            assert!(ask(address, host).starts_with("HTTP/1.1 421"), "{host}");
        }
        let absolute = "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n";
        assert!(exchange(address, absolute).starts_with("HTTP/1.1 421"));
        let two = "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
        assert!(!exchange(address, two).starts_with("HTTP/1.1 200"));
        assert!(!exchange(address, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"), "no name");
        assert!(exchange(address, "GET / HTTP/1.0\r\n\r\n").contains("200 OK"));
        let any = room(Limits::PAGE, Hosts::Any);
        assert!(ask(any, "evil.example").starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn silent_connections_give_way_to_one_that_asks() {
        let limits = Limits { connections: 4, head: PATIENCE, ..Limits::PAGE };
        let address = room(limits, Hosts::Any);
        let mut silent: Vec<_> = (0..40).map(|_| connect(address)).collect();
        // Half a head is no request.
        for stream in &mut silent {
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: local");
        }
        assert!(ask(address, "localhost").starts_with("HTTP/1.1 200"));
        // The others were ended: at most as many as are allowed are still open.
        let is_open = |stream: &mut std::net::TcpStream| {
            stream.set_nonblocking(true).unwrap();
            stream.read(&mut [0; 64]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        assert!(silent.iter_mut().filter_map(|stream| is_open(stream).then_some(())).count() <= 4);
    }

    #[test]
    fn slow_heads_slow_bodies_and_readers_that_do_not_read_end() {
        let limits = Limits { head: SOON, answer: SOON, stall: SOON, whole: None, ..Limits::PAGE };
        let address = room(limits, Hosts::Any);
        assert_eq!(exchange(address, "GET / HTTP/1.1\r\nHost: local"), "", "a head that never ends");
        let body = "POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc";
        assert!(exchange(address, body).starts_with("HTTP/1.1 408"));
        let mut reader = connect(address);
        reader.write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        // It is read once the server has given up: the bytes are those that the kernel held, and no
        // more.
        let mut text = [0; 1];
        reader.read_exact(&mut text).unwrap();
        let until = std::time::Instant::now() + PATIENCE;
        let closed = loop {
            // Writing to a connection that the other end has reset fails.
            if reader.write_all(b"x").is_err() {
                break true;
            }
            if std::time::Instant::now() > until {
                break false;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(closed, "nothing is read, and the connection lives");
    }

    #[test]
    fn a_kept_connection_asks_twice() {
        let address = room(Limits::CALLERS, Hosts::Any);
        let ask = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let last = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        assert_eq!(exchange(address, &format!("{ask}{ask}{last}")).matches("200 OK").count(), 3);
    }
}
