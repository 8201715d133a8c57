//! The proxy as its owner has it: started, looked at, stopped. It runs on one thread of its own.

use crate::config::{Config, ConfigError};
use crate::connections::Reception;
use crate::shared::Shared;
use crate::stage::Burst;
use crate::status::Status;
use crate::tls;
use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A proxy that runs. Dropped without [`Proxy::stop`], it ends in the same way.
#[derive(Debug)]
pub struct Proxy {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<bool>>,
}

/// Why a proxy does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(
        "cannot listen at {address}: {cause}\nhint: choose another with --listen (port 0 lets the system \
         choose)"
    )]
    Listen { address: SocketAddr, cause: io::Error },
    #[error("cannot record into {folder}: {cause}; name another folder")]
    Record { folder: PathBuf, cause: io::Error },
    #[error("starting the proxy: {0}")]
    System(#[from] io::Error),
}

impl Proxy {
    /// Begins to listen.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let shared = Arc::new(Shared::new(config)?);
        let acceptor = shared.config.tls.as_ref().map(tls::acceptor).transpose()?;
        let mut listeners = Vec::new();
        for &address in &shared.config.listen {
            let bound = TcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok((listener.local_addr()?, listener))
            });
            listeners.push(bound.map_err(|cause| StartError::Listen { address, cause })?);
        }
        let (addresses, listeners): (Vec<_>, Vec<_>) = listeners.into_iter().unzip();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let reception = Reception::new(shared.clone(), acceptor, stopped.clone());
        let thread = std::thread::Builder::new().name("stage".to_owned()).spawn({
            let shared = shared.clone();
            move || {
                let all_answered = runtime.block_on(run(shared, reception, listeners, stopped));
                // A name lookup may hang; it holds up no request.
                runtime.shutdown_background();
                all_answered
            }
        })?;
        Ok(Self { addresses, shared, stop, thread: Some(thread) })
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub fn status(&self) -> Status {
        Status::of(&self.shared)
    }

    /// The bursts since the last call, by the number of their server; the oldest of very many are
    /// left out.
    pub fn take_bursts(&self) -> Vec<VecDeque<Burst>> {
        self.shared.servers.iter().map(|behind| behind.stage.take_bursts()).collect()
    }

    /// A look from another thread, for as long as the proxy lives.
    pub fn watcher(&self) -> impl Fn() -> Option<Status> + Send + Sync + use<> {
        let shared = Arc::downgrade(&self.shared);
        move || shared.upgrade().map(|shared| Status::of(&shared))
    }

    /// True once it has ended by itself, which is a fault of ours.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Takes no more connections, releases all held requests, and waits until every accepted client
    /// is answered. Returns false if the time for that ([`crate::Limits::drain`]) was not enough;
    /// and the last status.
    pub fn stop(mut self) -> (bool, Status) {
        (self.end(), Status::of(&self.shared))
    }

    fn end(&mut self) -> bool {
        self.stop.send_replace(true);
        let Some(thread) = self.thread.take() else { return true };
        let all_answered = thread.join().unwrap_or(false);
        for behind in &self.shared.servers {
            if let Err(cause) = behind.stage.flush() {
                let _ = writeln!(
                    io::stderr(),
                    "roost: the recording's end is missing: {cause}; free some space and start again"
                );
            }
        }
        all_answered
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.end();
    }
}

async fn run(
    shared: Arc<Shared>,
    reception: Reception,
    listeners: Vec<TcpListener>,
    mut stop: watch::Receiver<bool>,
) -> bool {
    let stages: Vec<_> = shared.servers.iter().map(|behind| behind.stage.clone()).collect();
    let timetable = shared.timetable.clone();
    tokio::spawn(async move { timetable.keep(&stages).await });
    for listener in listeners {
        // A listening socket that does not block is all that it needs.
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listening socket");
        tokio::spawn(reception.clone().accept(listener));
    }
    drop(reception);
    // The sender lives in the `Proxy`, whose end is a stop too.
    let _ = stop.wait_for(|stop| *stop).await;
    shared.servers.iter().for_each(|behind| behind.stage.drain());
    let patience = Duration::from(shared.config.limits.drain);
    let began = Instant::now();
    while shared.connections.load(Ordering::Relaxed) > 0 {
        if began.elapsed() >= patience {
            return false;
        }
        tokio::time::sleep(DRAIN_LOOK).await;
    }
    true
}

/// How often the last connections are counted on the way out.
const DRAIN_LOOK: Duration = Duration::from_millis(5);
