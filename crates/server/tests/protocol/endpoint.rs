//! Whoever can be asked: a session in this process, or a server behind a socket.

use server::session::{Context, Counters, Introspection, Limits, Next, ServerFacts, Session, Totals};
use server::store::{Store, StoreConfig};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Gives the answer to a stream of bytes sent in pieces on a connection of its own.
pub trait Endpoint {
    /// Sends `pieces`, then a question whose answer nobody else gets; returns everything answered before it, or
    /// everything answered until the connection was closed.
    fn answer(&mut self, pieces: &[&[u8]]) -> Vec<u8>;
}

/// Ends every stream: a miss with an opaque that marks its answer.
const QUESTION: &[u8] = b"mg sentinel-of-the-tests Oend-of-this-stream\r\n";
const ANSWER: &[u8] = b"EN Oend-of-this-stream\r\n";

/// A server in this process, without its sockets and threads.
pub struct InProcess {
    pub store: Store,
    pub limits: Limits,
    pub counters: Counters,
    /// Requests that a session may serve in one call.
    pub max_requests: u32,
    started: Instant,
    unix_offset: i64,
}

struct NoServer<'a>(&'a Counters);

impl Introspection for NoServer<'_> {
    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        totals.add(self.0);
        totals
    }

    fn reset(&self) {}

    fn facts(&self) -> ServerFacts {
        ServerFacts { workers: 1, accepting: true, ..ServerFacts::default() }
    }

    fn stats_group(&self, group: &[u8], emit: &mut dyn FnMut(&str, &str)) -> bool {
        let known = group == b"settings";
        if known {
            emit("num_threads", "1");
        }
        known
    }
}

impl InProcess {
    pub fn new() -> Self {
        Self::with_memory(256 << 20)
    }

    pub fn with_memory(memory_limit: usize) -> Self {
        let limits = Limits::default();
        let store =
            Store::new(StoreConfig { memory_limit, max_item_size: limits.max_item_size, shards: None })
                .expect("a store of this size opens");
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        Self {
            store,
            limits,
            counters: Counters::default(),
            max_requests: u32::MAX,
            started: Instant::now(),
            unix_offset: i64::try_from(unix).expect("before the year 292 billion") - 2,
        }
    }

    /// Puts a stream to a new session and returns the answers, and whether the session closed.
    ///
    /// # Panics
    /// If a call neither uses a byte nor says what it needs, the second of the properties that a session promises.
    pub fn converse(&mut self, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let mut session = Session::new();
        let (mut unused, mut answers) = (Vec::new(), Vec::new());
        for piece in pieces {
            unused.extend_from_slice(piece);
            loop {
                let mut out = Vec::new();
                let context = Context {
                    store: &self.store,
                    counters: &self.counters,
                    all: &NoServer(&self.counters),
                    now: 2 + u32::try_from(self.started.elapsed().as_secs()).expect("a short test"),
                    unix_offset: self.unix_offset,
                    limits: &self.limits,
                };
                let served = session.serve(&unused, &mut out, &context, self.max_requests);
                assert!(served.consumed <= unused.len() && served.requests <= self.max_requests);
                unused.drain(..served.consumed);
                answers.extend_from_slice(&out);
                match served.next {
                    Next::Read { wanted } => {
                        assert!(wanted == 0 || wanted > unused.len(), "it waits for what it has");
                        break;
                    }
                    Next::Write => assert!(!out.is_empty(), "nothing to write"),
                    Next::Yield => assert!(served.requests == self.max_requests, "the turn was not over"),
                    Next::Close => return (answers, true),
                }
            }
        }
        (answers, false)
    }
}

impl Endpoint for InProcess {
    fn answer(&mut self, pieces: &[&[u8]]) -> Vec<u8> {
        let (mut answers, _) = self.converse(&[pieces, &[QUESTION]].concat());
        strip_answer(&mut answers);
        answers
    }
}

fn strip_answer(answers: &mut Vec<u8>) -> bool {
    let answered = answers.ends_with(ANSWER);
    if answered {
        answers.truncate(answers.len() - ANSWER.len());
    }
    answered
}

/// A server behind a socket.
pub struct Remote {
    address: SocketAddr,
}

impl Remote {
    pub const fn new(address: SocketAddr) -> Self {
        Self { address }
    }
}

impl Endpoint for Remote {
    fn answer(&mut self, pieces: &[&[u8]]) -> Vec<u8> {
        let mut socket = TcpStream::connect(self.address).expect("the server accepts");
        socket.set_nodelay(true).expect("an option of TCP");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("an option of every socket");
        let mut sender = socket.try_clone().expect("a second handle");
        let stream: Vec<Vec<u8>> = pieces.iter().chain(&[QUESTION]).map(|piece| piece.to_vec()).collect();
        // A thread of its own: a server that is held back by unread answers stops reading.
        let sending = std::thread::spawn(move || {
            for piece in stream {
                if sender.write_all(&piece).is_err() {
                    return; // Closed by the server, which the answers show.
                }
            }
        });
        let (mut answers, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            match socket.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => answers.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!(
                    "no answer after {} bytes that end in {:?}: {error}",
                    answers.len(),
                    String::from_utf8_lossy(&answers[answers.len().saturating_sub(200)..])
                ),
            }
            if strip_answer(&mut answers) {
                break;
            }
        }
        drop(socket);
        sending.join().expect("the sender does not panic");
        answers
    }
}

/// A memcached that this test started, or the reason why there is none.
pub struct Memcached {
    process: Child,
    remote: Remote,
    pub version: Vec<u32>,
}

impl Memcached {
    pub fn start() -> Result<Self, String> {
        let path =
            std::env::var_os("ROOST_MEMCACHED").map_or_else(|| PathBuf::from("memcached"), PathBuf::from);
        // A port that was free a moment ago; memcached cannot be handed a socket.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = free.map_err(|error| format!("no free port: {error}"))?;
        let port = address.port().to_string();
        let mut process = Command::new(&path)
            .args(["-u", "root", "-l", "127.0.0.1", "-p", &port, "-U", "0", "-t", "2", "-m", "256"])
            // Its background threads hold on to an item for an instant, and a number that changes in that instant is
            // not padded: one run in some hundred thousand requests.
            .args(["-o", "no_lru_maintainer,no_lru_crawler,no_slab_reassign"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let deadline = Instant::now() + Duration::from_secs(10);
        let socket = loop {
            match TcpStream::connect(address) {
                Ok(socket) => break socket,
                Err(error) if Instant::now() > deadline => {
                    let _ = process.kill();
                    let _ = process.wait();
                    return Err(format!("{} does not listen: {error}", path.display()));
                }
                Err(_) => std::thread::yield_now(),
            }
        };
        let mut peer = Self { process, remote: Remote::new(address), version: Vec::new() };
        peer.version = version(&socket)?;
        Ok(peer)
    }
}

fn version(mut socket: &TcpStream) -> Result<Vec<u32>, String> {
    let mut line = String::new();
    socket
        .write_all(b"version\r\n")
        .and_then(|()| BufReader::new(socket).read_line(&mut line))
        .map_err(|error| error.to_string())?;
    let numbers = line.trim().strip_prefix("VERSION ").ok_or("it is no memcached")?;
    Ok(numbers.split('.').map_while(|number| number.parse().ok()).collect())
}

impl Endpoint for Memcached {
    fn answer(&mut self, pieces: &[&[u8]]) -> Vec<u8> {
        self.remote.answer(pieces)
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
