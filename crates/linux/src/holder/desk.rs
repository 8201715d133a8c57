//! The socket at which others ask for what this process holds.
//!
//! A thread waits for connections and one for each of them; they sleep in the kernel until somebody asks. All of them and the
//! owner change what is held under one lock, for the time of one change.
//!
//! What always holds, whatever a peer does:
//! - Only the holder's own user and root are heard: the socket's mode and the kernel's word on the peer (SO_PEERCRED) both say so.
//! - Nobody has the lock while waiting for a peer. A line that was begun is waited for a second, an answer that is not read as
//!   long; then the peer is hung up on. One that asks without a pause is answered a thousand times a second and not more often.
//! - What was asked over a connection is withdrawn when it ends, however it ends.

use super::lease::ASKED_AT;
use super::wire::{Answer, Ask, LINE_MAX, line, request};
use crate::files::safe_folder::{SafeError, SafeFolder};
use crate::lock::{LockError, run_folder};
use crate::root::Root;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Who {
    /// Of this holder's connections so far; 0 is the holder itself.
    pub(super) connection: u64,
    /// As the kernel says.
    pub(super) process: u32,
    /// As it calls itself.
    pub(super) name: String,
}

impl Who {
    /// The holder itself, which asks like everybody else.
    pub(super) fn ourselves(name: &str) -> Self {
        Self { connection: 0, process: std::process::id(), name: name.to_owned() }
    }
}

/// What is held, for who asks.
pub(super) trait Held: Send + 'static {
    /// Does what is asked.
    fn hear(&mut self, who: &Who, ask: Ask) -> Answer;
    /// Withdraws what was asked over this connection.
    fn forget(&mut self, connection: u64);
    /// Gives everything back: it is another's from now on.
    fn end(&mut self);
}

/// What is held, and the socket.
#[derive(Debug)]
pub(super) struct Desk<H: Held> {
    shared: Arc<Shared<H>>,
    /// `None` where no socket can be made: then others are refused, as if there were none.
    socket: Option<PathBuf>,
}

#[derive(Debug)]
struct Shared<H> {
    held: Mutex<H>,
    peers: Mutex<Peers>,
}

#[derive(Debug, Default)]
struct Peers {
    has_ended: bool,
    /// Who asks, with what wakes the thread that waits for them.
    connections: Vec<(u64, UnixStream)>,
    so_far: u64,
}

impl<H: Held> Desk<H> {
    /// Listens; `announce` adds a line to the locks' files, for whoever comes second.
    pub(super) fn open(
        root: &Root,
        mut held: H,
        announce: impl FnOnce(&mut H, &str),
    ) -> Result<Self, LockError> {
        let folder = run_folder(root)?;
        let number = HOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("holder-{}-{number}.sock", std::process::id());
        remove_sockets_of_the_dead(&folder);
        let listener = listen(&folder, &name);
        if listener.is_ok() {
            announce(&mut held, &format!("{ASKED_AT}{name}"));
        }
        let socket = folder.join(name);
        let shared = Arc::new(Shared { held: Mutex::new(held), peers: Mutex::default() });
        let answering = listener.and_then(|listener| {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("holder".to_owned());
            thread.spawn(move || Shared::accept(&shared, &listener))
        });
        Ok(Self { socket: answering.is_ok().then_some(socket), shared })
    }

    /// What is held, for the time of one change.
    pub(super) fn held(&self) -> MutexGuard<'_, H> {
        self.shared.held()
    }

    /// For another thread of this process that changes it too.
    pub(super) fn handle(&self) -> Handle<H> {
        Handle(Arc::clone(&self.shared))
    }
}

/// What a desk holds, seen from another thread; it does not keep the desk open.
#[derive(Debug)]
pub(super) struct Handle<H>(Arc<Shared<H>>);

impl<H: Held> Handle<H> {
    /// What is held, for the time of one change.
    pub(super) fn held(&self) -> MutexGuard<'_, H> {
        self.0.held()
    }

    /// The same for who must not sleep.
    pub(super) fn held_soon(&self) -> MutexGuard<'_, H> {
        crate::lock_spinning(&self.0.held)
    }
}

impl<H: Held> Drop for Desk<H> {
    fn drop(&mut self) {
        // Those who asked see it by their connection, after all is free: then they may take it.
        self.shared.held().end();
        let mut peers = self.shared.peers();
        peers.has_ended = true;
        for (_, stream) in &peers.connections {
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(peers);
        if let Some(socket) = &self.socket {
            // The thread that accepts looks up, finds that all has ended, and ends.
            let _ = UnixStream::connect(socket);
            let _ = fs::remove_file(socket);
        }
    }
}

impl<H: Held> Shared<H> {
    /// A panic in one thread leaves a state that the others can go on with: each change is one call.
    fn held(&self) -> MutexGuard<'_, H> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(shared: &Arc<Self>, listener: &UnixListener) {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Out of descriptors, say, and at once again if asked at once.
                std::thread::sleep(AFTER_TROUBLE);
                continue;
            };
            let peer =
                socket_peercred(&stream).ok().filter(|peer| peer.uid.is_root() || peer.uid == geteuid());
            let (Some(peer), Ok(other_end)) = (peer, stream.try_clone()) else { continue };
            let mut peers = shared.peers();
            if peers.has_ended {
                return;
            }
            if peers.connections.len() >= CONNECTIONS_MAX {
                continue;
            }
            peers.so_far += 1;
            let connection = peers.so_far;
            peers.connections.push((connection, other_end));
            drop(peers);
            let attending = Arc::clone(shared);
            let thread = std::thread::Builder::new().name("asker".to_owned());
            let process = peer.pid.as_raw_nonzero().get().unsigned_abs();
            if thread.spawn(move || attending.attend(connection, process, stream)).is_err() {
                shared.forget(connection);
            }
        }
    }

    /// Answers until the peer goes, dawdles or sends nonsense, and then forgets what it asked for.
    fn attend(&self, connection: u64, process: u32, stream: UnixStream) {
        let _ = stream.set_write_timeout(Some(PATIENCE));
        let (mut reader, mut said, mut pace) = (BufReader::new(stream), Vec::new(), Pace::default());
        while read_line(&mut reader, &mut said).is_ok_and(|came| came) {
            pace.wait();
            let asked = request(&said);
            let is_understood = asked.is_ok();
            let answer = match asked {
                Ok(asked) => self.held().hear(&Who { connection, process, name: asked.asker }, asked.ask),
                Err(reason) => Answer::Refused(reason),
            };
            if reader.get_mut().write_all(&line(&answer)).is_err() || !is_understood {
                break;
            }
        }
        self.forget(connection);
    }

    fn forget(&self, connection: u64) {
        self.peers().connections.retain(|(known, _)| *known != connection);
        self.held().forget(connection);
    }
}

/// A line, however long it takes to begin; false at the end. What was begun must be there within [`PATIENCE`].
fn read_line(reader: &mut BufReader<UnixStream>, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let mut until = None;
    loop {
        let came = reader.fill_buf()?;
        if came.is_empty() {
            // A last line without its end is one that was cut off.
            return Ok(false);
        }
        let end = came.iter().position(|&byte| byte == b'\n');
        let length = end.map_or(came.len(), |at| at + 1);
        line.extend_from_slice(&came[..length]);
        reader.consume(length);
        if line.len() > LINE_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if end.is_some() {
            if until.is_some() {
                reader.get_ref().set_read_timeout(None)?;
            }
            return Ok(true);
        }
        let until = *until.get_or_insert_with(|| Instant::now() + PATIENCE);
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        reader.get_ref().set_read_timeout(Some(left))?;
    }
}

/// How often a peer is answered: at once for the CPUs of a large machine, and then once in a millisecond.
#[derive(Debug)]
struct Pace {
    free: u32,
    last: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self { free: BURST, last: Instant::now() }
    }
}

impl Pace {
    fn wait(&mut self) {
        let earned = u32::try_from(self.last.elapsed().as_millis()).unwrap_or(BURST).min(BURST);
        if earned > 0 {
            self.free = (self.free + earned).min(BURST);
            self.last = Instant::now();
        }
        match self.free.checked_sub(1) {
            Some(free) => self.free = free,
            None => {
                std::thread::sleep(Duration::from_millis(1));
                self.last = Instant::now();
            }
        }
    }
}

/// What a SIGKILL leaves. A process of the number may live again and be another: then its socket stays a little longer.
fn remove_sockets_of_the_dead(folder: &Path) {
    let process =
        |name: &str| name.strip_prefix("holder-")?.strip_suffix(".sock")?.split('-').next()?.parse().ok();
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let process: Option<u32> = file.file_name().to_str().and_then(process);
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            let _ = fs::remove_file(file.path());
        }
    }
}

fn listen(folder: &Path, name: &str) -> io::Result<UnixListener> {
    // A process of this number may have been killed once: its socket gives way.
    let listener = SafeFolder::open(folder).and_then(|folder| folder.listen(name, 0o600, BACKLOG));
    listener.map_err(SafeError::into_io)
}

/// Programs that ask while one of them is being accepted.
const BACKLOG: i32 = 128;

/// Until the next is accepted, where one could not be.
const AFTER_TROUBLE: Duration = Duration::from_millis(100);

/// More at a time are refused: a machine has a few such programs.
const CONNECTIONS_MAX: usize = 64;

/// For a line that was begun, and for an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(1);

/// So many requests are answered at once: a large machine's CPUs, all of which change.
const BURST: u32 = 256;

/// How many holders this process has had.
static HOLDERS: AtomicU32 = AtomicU32::new(0);
