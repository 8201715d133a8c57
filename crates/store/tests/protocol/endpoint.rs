//! A peer that answers: a session in this process, or a server behind a socket.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::session::{
    Context, Counters, Ending, Introspection, Limits, Next, Served, ServerFacts, Session, Totals, Users,
};
use store::store::{Store, StoreConfig};

/// Gives the answer to a stream of bytes sent in pieces on a connection of its own.
pub trait Endpoint {
    /// Sends `pieces`, then a question with a unique answer; returns everything answered before it,
    /// or everything answered until the connection was closed.
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
    pub users: Option<Users>,
    /// Requests that a session may serve in one call.
    pub max_requests: u32,
    /// When the clock began to go, if it does.
    started: Option<Instant>,
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
    /// As large as the memcached beside it, with a clock that goes.
    pub fn new() -> Self {
        Self::open(256 << 20, None, true)
    }

    /// One whose answers depend on the requests alone: its clock stands, and one shard gives all
    /// unique numbers.
    pub fn repeatable() -> Self {
        Self::open(64 << 20, Some(1), false)
    }

    fn open(memory_limit: usize, shards: Option<usize>, clock_goes: bool) -> Self {
        let limits = Limits::default();
        let store = Store::new(StoreConfig { memory_limit, max_item_size: limits.max_item_size, shards })
            .expect("a store of this size opens");
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        Self {
            store,
            limits,
            counters: Counters::default(),
            users: None,
            max_requests: u32::MAX,
            started: clock_goes.then(Instant::now),
            unix_offset: i64::try_from(unix).expect("before the year 292 billion") - 2,
        }
    }

    fn context<'a>(&'a self, all: &'a NoServer<'a>) -> Context<'a> {
        Context {
            store: &self.store,
            counters: &self.counters,
            all,
            now: 2 + self.started.map_or(0, |started| started.elapsed().as_secs() as u32),
            unix_offset: self.unix_offset,
            limits: &self.limits,
            client: 1,
            users: self.users.as_ref(),
        }
    }

    /// One call of [`Session::serve`], checked against a session's promise: it uses bytes, or says
    /// what it needs.
    fn serve(&self, session: &mut Session, input: &[u8], answers: &mut Vec<u8>) -> (usize, Next) {
        let all = NoServer(&self.counters);
        let context = self.context(&all);
        let mut out = Vec::new();
        let Served { consumed, requests, next } = session.serve(input, &mut out, &context, self.max_requests);
        assert!(consumed <= input.len() && requests <= self.max_requests);
        match next {
            Next::Read { wanted } => {
                assert!(wanted == 0 || wanted > input.len() - consumed, "it waits for what it has")
            }
            Next::Write => assert!(out.len() >= self.limits.out_high_water, "there is room for more"),
            Next::Yield => assert!(requests > 0, "it yields before it has served"),
            Next::Close => assert!(session.ending().is_some(), "it closes for no reason"),
        }
        answers.extend_from_slice(&out);
        (consumed, next)
    }

    /// Puts a stream to a new session and returns the answers, and whether the session closed.
    pub fn converse(&mut self, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let mut session = Session::new();
        let (mut unused, mut answers) = (Vec::new(), Vec::new());
        for piece in pieces {
            unused.extend_from_slice(piece);
            loop {
                let (consumed, next) = self.serve(&mut session, &unused, &mut answers);
                unused.drain(..consumed);
                match next {
                    Next::Read { .. } => break,
                    Next::Write | Next::Yield => {}
                    Next::Close => return (answers, true),
                }
            }
        }
        (answers, false)
    }

    /// Why a session that gets `bytes` ends.
    pub fn ending(&mut self, bytes: &[u8]) -> Option<Ending> {
        let mut session = Session::new();
        self.serve(&mut session, bytes, &mut Vec::new());
        session.ending()
    }

    /// Refuses the value that `head` begins, as a worker without memory does, then goes on with
    /// `rest`.
    pub fn converse_refusing(&mut self, head: &[u8], rest: &[u8]) -> Vec<u8> {
        let (mut session, mut answers) = (Session::new(), Vec::new());
        let (consumed, next) = self.serve(&mut session, head, &mut answers);
        assert!(consumed == 0 && matches!(next, Next::Read { wanted } if wanted > head.len()));
        assert!(self.refuse(&mut session, head, &mut answers));
        for piece in [head, rest] {
            let (consumed, _) = self.serve(&mut session, piece, &mut answers);
            assert_eq!(consumed, piece.len());
        }
        answers
    }

    /// Whether a new session finds a value to refuse in `bytes`.
    pub fn refuses(&mut self, bytes: &[u8]) -> bool {
        self.refuse(&mut Session::new(), bytes, &mut Vec::new())
    }

    fn refuse(&self, session: &mut Session, input: &[u8], answers: &mut Vec<u8>) -> bool {
        let all = NoServer(&self.counters);
        let context = self.context(&all);
        session.refuse_value(input, answers, &context)
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

/// The memcached whose behaviour is the reference. Older ones answer broken requests in other
/// words.
const REFERENCE: [u32; 3] = [1, 6, 45];

impl Memcached {
    /// Whether it is the reference or newer.
    pub fn is_reference(&self) -> bool {
        self.version[..] >= REFERENCE[..]
    }

    /// Whether its process has ended, which it does on some requests of its own accord.
    pub fn has_died(&mut self) -> bool {
        // The connection may be closed some moments before the process is gone.
        if TcpStream::connect(self.remote.address).is_ok() {
            return false;
        }
        self.process.wait().is_ok()
    }

    pub fn address(&self) -> SocketAddr {
        self.remote.address
    }

    pub fn start() -> Result<Self, String> {
        Self::start_with(&[])
    }

    pub fn start_with(more: &[&str]) -> Result<Self, String> {
        let path =
            std::env::var_os("ROOST_MEMCACHED").map_or_else(|| PathBuf::from("memcached"), PathBuf::from);
        // A port that was free a moment ago; memcached cannot be handed a socket.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = free.map_err(|error| format!("no free port: {error}"))?;
        let port = address.port().to_string();
        let mut process = Command::new(&path)
            .args(["-u", "root", "-l", "127.0.0.1", "-p", &port, "-U", "0", "-t", "2", "-m", "256"])
            .args(more)
            // Its background threads hold on to an item for an instant, and a number that changes
            // in that instant is not padded: one run in some hundred thousand requests.
            .args(["-o", if more.contains(&"-o") { "hashpower=16" } else { QUIET }])
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

const QUIET: &str = "no_lru_maintainer,no_lru_crawler,no_slab_reassign";

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
