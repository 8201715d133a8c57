//! CPUs that this process holds, and the socket at which others ask for them.
//!
//! A thread waits for connections and one for each of them; they sleep in the kernel until somebody asks. All of them and the
//! owner change the CPUs under one lock, for the time of one write.

use super::lease::ASKED_AT;
use super::{Asked, LINE_MAX, Wish, Wishes, combine};
use crate::idle_control::{IdleControl, IdleOptions, LimitState};
use crate::lock::{LockError, run_folder};
use crate::root::Root;
use machine::{CpuId, CpuList, IdleLimit};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Own {
    cpus: CpuList,
    held: Arc<Held>,
    /// `None` where no socket can be made: then others are refused, as if there were none.
    socket: Option<PathBuf>,
}

#[derive(Debug)]
struct Held {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None`: it has ended, and its CPUs are another's.
    control: Option<IdleControl>,
    wishes: Wishes,
    /// Who asks, with what wakes the thread that waits for them.
    connections: Vec<(u64, UnixStream)>,
    connections_so_far: u64,
}

/// Until the next is accepted, where one could not be.
const AFTER_TROUBLE: Duration = Duration::from_millis(100);

/// More at a time are refused: a machine has a few such programs.
const CONNECTIONS_MAX: usize = 64;

/// How many holders this process has had.
static HOLDERS: AtomicU32 = AtomicU32::new(0);

impl Own {
    pub(super) fn open(root: &Root, cpus: &CpuList, options: IdleOptions) -> Result<Self, LockError> {
        let mut control = IdleControl::open(root, cpus, options)?;
        let socket = run_folder(root)?.join(format!(
            "holder-{}-{}.sock",
            std::process::id(),
            HOLDERS.fetch_add(1, Ordering::Relaxed)
        ));
        remove_sockets_of_the_dead(&run_folder(root)?);
        let listener = listen(&socket);
        if let (Ok(_), Some(name)) = (&listener, socket.file_name()) {
            control.announce(&format!("{ASKED_AT}{}", name.to_string_lossy()));
        }
        let state = State {
            control: Some(control),
            wishes: Wishes::new(),
            connections: Vec::new(),
            connections_so_far: 0,
        };
        let held = Arc::new(Held { state: Mutex::new(state) });
        let answering = listener.and_then(|listener| {
            let held = Arc::clone(&held);
            let thread = std::thread::Builder::new().name("holder".to_owned());
            thread.spawn(move || Held::accept(&held, &listener))
        });
        let socket = answering.is_ok().then_some(socket);
        Ok(Self { cpus: cpus.clone(), held, socket })
    }

    pub(super) fn has(&self, cpu: CpuId) -> bool {
        self.cpus.0.contains(&cpu)
    }

    pub(super) fn limit(&self, asker: &str, cpu: CpuId, limit: IdleLimit) -> LimitState {
        self.held.lock().limit(asker, cpu, limit)
    }

    pub(super) fn asked_by_others(&self) -> Vec<Asked> {
        let state = self.held.lock();
        let others = state.wishes.iter().flat_map(|(&cpu, asked)| {
            asked.iter().map(move |(asker, &limit)| Asked { cpu, asker: asker.clone(), limit })
        });
        others.filter(|asked| asked.asker != super::OURSELVES).collect()
    }

    pub(super) fn drain_notices(&mut self) -> Vec<String> {
        self.held.lock().control.as_mut().map(IdleControl::drain_notices).unwrap_or_default()
    }

    pub(super) fn restore(&mut self) -> Vec<String> {
        self.held.lock().control.as_mut().map(IdleControl::restore).unwrap_or_default()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut state = self.held.lock();
        // Those who asked see it by their connection, after the CPUs are free: then they may take them.
        state.control = None;
        for (_, stream) in &state.connections {
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(state);
        if let Some(socket) = &self.socket {
            // The thread that accepts looks up, finds that all has ended, and ends.
            let _ = UnixStream::connect(socket);
            let _ = fs::remove_file(socket);
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

fn listen(socket: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(socket) {
        // A process of this number was killed once.
        Ok(()) => {}
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
        Err(cause) => return Err(cause),
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

impl State {
    fn limit(&mut self, asker: &str, cpu: CpuId, limit: IdleLimit) -> LimitState {
        let Some(control) = &mut self.control else {
            return LimitState::Refused { reason: "its holder is about to end".to_owned() };
        };
        if control.table(cpu).is_none() {
            return LimitState::Refused { reason: format!("{cpu} is not held here") };
        }
        control.apply(cpu, combine(&mut self.wishes, asker, cpu, limit))
    }
}

impl Held {
    /// A panic in one thread leaves a state that the others can go on with: each change is one call.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(held: &Arc<Self>, listener: &UnixListener) {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Out of descriptors, say, and at once again if asked at once.
                std::thread::sleep(AFTER_TROUBLE);
                continue;
            };
            let mut state = held.lock();
            if state.control.is_none() {
                return;
            }
            let may_ask =
                socket_peercred(&stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid());
            let Some(other_end) = stream.try_clone().ok().filter(|_| may_ask) else { continue };
            if state.connections.len() >= CONNECTIONS_MAX {
                continue;
            }
            let number = state.connections_so_far;
            state.connections_so_far += 1;
            state.connections.push((number, other_end));
            drop(state);
            let attending = Arc::clone(held);
            let thread = std::thread::Builder::new().name("asker".to_owned());
            if thread.spawn(move || attending.attend(number, stream)).is_err() {
                held.forget(number);
            }
        }
    }

    /// Answers until the peer goes or sends nonsense, and then forgets what it asked for.
    fn attend(&self, number: u64, stream: UnixStream) {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            match (&mut reader).take(LINE_MAX).read_until(b'\n', &mut line) {
                Ok(length) if length > 0 => {}
                _ => break,
            }
            let wish = parse(&line);
            let answer = match &wish {
                Ok(wish) => self.lock().limit(&format!("{} #{number}", wish.asker), wish.cpu, wish.limit),
                Err(reason) => LimitState::Refused { reason: reason.clone() },
            };
            let answer = serde_json::to_string(&answer).expect("plain data") + "\n";
            if reader.get_mut().write_all(answer.as_bytes()).is_err() || wish.is_err() {
                break;
            }
        }
        self.forget(number);
    }

    fn forget(&self, number: u64) {
        let mut state = self.lock();
        state.connections.retain(|(known, _)| *known != number);
        let suffix = format!(" #{number}");
        let asked: Vec<(CpuId, String)> = (state.wishes.iter())
            .flat_map(|(&cpu, asked)| asked.keys().map(move |asker| (cpu, asker.clone())))
            .filter(|(_, asker)| asker.ends_with(&suffix))
            .collect();
        for (cpu, asker) in asked {
            state.limit(&asker, cpu, IdleLimit::None);
        }
    }
}

/// What a line asks for.
fn parse(line: &[u8]) -> Result<Wish, String> {
    let wish: Wish = serde_json::from_slice(line).map_err(|error| {
        format!("not understood ({error}); write {{\"asker\":\"NAME\",\"cpu\":0,\"limit\":\"none\"}}")
    })?;
    // It is shown to people, in terminals too.
    if wish.asker.len() > 80 || wish.asker.contains(|c: char| c.is_control()) {
        return Err("an asker's name has up to 80 letters".to_owned());
    }
    Ok(wish)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for wrong in ["", "GET / HTTP/1.1", "{}", r#"{"asker":"x","cpu":-1,"limit":"none"}"#, "[1,2]"] {
            assert!(parse(wrong.as_bytes()).unwrap_err().contains("\"limit\":\"none\""), "{wrong}");
        }
        let named = |asker: &str| serde_json::json!({"asker": asker, "cpu": 1, "limit": "none"}).to_string();
        assert!(parse(named(&"x".repeat(81)).as_bytes()).is_err());
        assert!(parse(named("\x1b[2J").as_bytes()).is_err());
        let wish = parse(br#"{"asker":"serve","cpu":3,"limit":{"exit_latency":2000}}"#).unwrap();
        assert_eq!(
            (wish.cpu, wish.limit),
            (CpuId(3), IdleLimit::ExitLatency(machine::Duration::from_micros(2)))
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&line);
        }
    }
}
