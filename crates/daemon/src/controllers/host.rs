//! The thread of a controller: opened, run, released, and withdrawn alone whatever happens to it.
//!
//! ```text
//!   daemon's loop                          the controller's thread
//!     start ------------------------------> open -- Opened, or Refused ---> loop
//!     status <---- last state shown ------- run (show)
//!     end -- ender ----------------------->   |
//!     join <------------------------------- release, drop -- Ended -------> loop
//! ```

use super::{Controller, ControllerStatus, Machine, Refusal, RefusalKind, Seen, Table};
use crate::run::Event;
use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// A controller's own thread calls it with its state, and with `true` at its last state.
pub type Observer = Arc<Mutex<dyn FnMut(Seen<'_>, bool) + Send>>;

/// Which request made the daemon run a controller or govern a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The configuration, or the command line that started the daemon.
    Config,
    /// A connection to the control socket.
    Lease(u64),
}

/// A message from a controller's thread to the loop.
#[derive(Debug)]
pub enum Happened {
    Opened,
    Notice(String),
    Refused(Refusal),
    /// It ended: as it was told, or by itself with a line, or because of something.
    Ended {
        /// `Ok(None)`: it was told to.
        outcome: Result<Option<String>, Refusal>,
        lines: Vec<String>,
        /// It will not be opened again.
        is_final: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControllerState {
    Opening,
    Running,
    /// Its service is not there, or its knobs are not to be had; it is tried again.
    Waiting,
    /// An operator paused it, until it is resumed.
    Paused,
    /// It failed or its service ended, and it is not tried again.
    Withdrawn,
}

/// A controller, as `status` tells of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControllerReport {
    pub name: String,
    pub state: ControllerState,
    pub why: Option<String>,
    /// Why it was withdrawn; `None`: it was not, or its service ended in good order.
    pub refused: Option<RefusalKind>,
    /// The process that asked for it: the daemon itself, or that of a lease, with its user.
    pub owner: String,
    /// Its state in a few lines.
    pub text: String,
    /// Its state, as programs read it.
    pub status: serde_json::Value,
}

/// The state that the thread and the loop share.
#[derive(Default)]
struct Shared {
    status: Option<ControllerStatus>,
    ender: Option<Box<dyn Fn() + Send>>,
    is_told: Arc<AtomicBool>,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Host {
    name: String,
    run: u64,
    machine: Machine,
    shared: Arc<Mutex<Shared>>,
    events: Sender<Event>,
    observer: Option<Observer>,
    realtime: bool,
}

/// States are published this often at most; the last one before a rest always.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);

impl Host {
    pub(crate) fn start<C: Controller>(self, config: &C::Config) -> std::io::Result<JoinHandle<()>> {
        let config = config.clone();
        let thread: String = self.name.chars().take(15).collect();
        std::thread::Builder::new().name(thread).spawn(move || self.host::<C>(&config))
    }

    fn tell(&self, happened: Happened) {
        // The loop may have ended.
        let _ = self.events.send(Event::Controller(self.run, happened));
    }

    fn host<C: Controller>(self, config: &C::Config) {
        if self.realtime {
            let line = match linux::schedule_fifo_bounded() {
                Ok(()) => "runs at real-time priority 1, at most 100 ms at a stretch".to_owned(),
                Err(error) => format!("runs as an ordinary thread: {error}"),
            };
            self.tell(Happened::Notice(line));
        }
        let mut controller = match catch_unwind(AssertUnwindSafe(|| C::open(&self.machine, config))) {
            Ok(Ok(controller)) => controller,
            Ok(Err(refusal)) => return self.tell(Happened::Refused(refusal)),
            Err(_) => {
                let outcome = Err(Refusal::failed(PANICKED));
                return self.tell(Happened::Ended { outcome, lines: Vec::new(), is_final: true });
            }
        };
        let is_told = {
            let mut shared = lock(&self.shared);
            shared.ender = Some(controller.ender());
            shared.is_told.load(Ordering::Acquire)
        };
        let mut outcome = Ok(Ok(None));
        if !is_told {
            self.tell(Happened::Opened);
            let mut published = Instant::ZERO;
            outcome = catch_unwind(AssertUnwindSafe(|| {
                controller.run(&mut |controller| self.show(controller, &mut published))
            }));
        }
        lock(&self.shared).ender = None;
        let is_final = outcome.is_err();
        let outcome = outcome.unwrap_or_else(|_| Err(Refusal::failed(PANICKED)));
        // The remains of a panic may panic again; its changes have a journal in any case.
        let lines = catch_unwind(AssertUnwindSafe(|| {
            if !is_final && self.observer.is_some() {
                self.observe(controller.seen(), true);
            }
            let mut lines = controller.release();
            lines.extend(controller.drain_notices());
            lines
        }));
        let lines = lines.unwrap_or_default();
        let _ = catch_unwind(AssertUnwindSafe(move || drop(controller)));
        lock(&self.shared).status = None;
        self.tell(Happened::Ended { outcome, lines, is_final });
    }

    fn show<C: Controller>(&self, controller: &mut C, published: &mut Instant) {
        let now = linux::now();
        if now >= *published + PUBLISH_EVERY || controller.rests() {
            *published = now;
            lock(&self.shared).status = Some(controller.status(now));
        }
        self.observe(controller.seen(), false);
        for notice in controller.drain_notices() {
            self.tell(Happened::Notice(notice));
        }
    }

    fn observe(&self, seen: Seen<'_>, is_last: bool) {
        if let Some(observer) = &self.observer {
            (observer.lock().unwrap_or_else(PoisonError::into_inner))(seen, is_last);
        }
    }
}

const PANICKED: &str = "it panicked, which is a fault of Roost; its changes are put back";

/// A controller, from the loop's side.
pub(crate) struct Hosted {
    pub(crate) table: Table,
    pub(crate) owner: Owner,
    state: ControllerState,
    why: Option<String>,
    refused: Option<RefusalKind>,
    /// The number of the run whose events count; `None`: it was stopped, and later events of
    /// it change nothing.
    run: Option<u64>,
    shared: Arc<Mutex<Shared>>,
    thread: Option<JoinHandle<()>>,
    wait: Duration,
    due: Option<Instant>,
}

impl Hosted {
    pub(crate) fn new(table: Table, owner: Owner) -> Self {
        Self {
            table,
            owner,
            state: ControllerState::Waiting,
            why: None,
            refused: None,
            run: None,
            shared: Arc::default(),
            thread: None,
            wait: FIRST_WAIT,
            due: Some(Instant::ZERO),
        }
    }

    /// It has not taken hold yet, and may still do so.
    pub(crate) fn is_opening(&self) -> bool {
        self.state == ControllerState::Opening || self.due == Some(Instant::ZERO)
    }

    /// When it is to be opened again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// True if the run of this number is the one that counts.
    pub(crate) fn is_run(&self, run: u64) -> bool {
        self.run == Some(run)
    }

    /// Opens it, on a thread of its own. `run` is a number that no other run has.
    pub(crate) fn open(
        &mut self,
        run: u64,
        machine: &Machine,
        events: &Sender<Event>,
        observer: Option<&Observer>,
    ) {
        self.due = None;
        self.join();
        self.shared = Arc::default();
        self.run = Some(run);
        let realtime = match &self.table {
            Table::Quiesce(config) => config.realtime,
            Table::HurryUp(config) => config.realtime,
            // Its helpers choose their own priority.
            Table::Wake(_) => false,
        };
        let host = Host {
            name: self.table.name(),
            run,
            machine: Machine { ends: Arc::clone(&lock(&self.shared).is_told), ..machine.clone() },
            shared: Arc::clone(&self.shared),
            events: events.clone(),
            observer: observer.cloned(),
            realtime,
        };
        match self.table.start(host) {
            Ok(thread) => {
                self.thread = Some(thread);
                self.state = ControllerState::Opening;
            }
            Err(cause) => self.wait_for(format!("no thread can be started: {cause}")),
        }
    }

    pub(crate) fn opened(&mut self) {
        (self.state, self.why, self.wait) = (ControllerState::Running, None, FIRST_WAIT);
        self.refused = None;
    }

    /// It is tried again, ever more rarely.
    pub(crate) fn wait_for(&mut self, why: String) {
        (self.state, self.why) = (ControllerState::Waiting, Some(why));
        self.due = Some(linux::now() + self.wait);
        self.wait = (self.wait * 2).min(LAST_WAIT);
    }

    pub(crate) fn withdraw(&mut self, why: String, refused: Option<RefusalKind>) {
        (self.state, self.why, self.due) = (ControllerState::Withdrawn, Some(why), None);
        self.refused = refused;
    }

    /// Ends it, with its changes put back, until [`Self::resume`].
    pub(crate) fn pause(&mut self, why: String) {
        self.end();
        self.join();
        self.run = None;
        (self.state, self.why, self.due, self.refused) = (ControllerState::Paused, Some(why), None, None);
    }

    /// It is opened again, unless it runs.
    pub(crate) fn resume(&mut self) {
        if !matches!(self.state, ControllerState::Opening | ControllerState::Running) {
            (self.due, self.wait) = (Some(Instant::ZERO), FIRST_WAIT);
            self.state = ControllerState::Waiting;
        }
    }

    /// Tells it to end; [`Self::join`] waits until it has.
    pub(crate) fn end(&self) {
        let shared = lock(&self.shared);
        shared.is_told.store(true, Ordering::Release);
        if let Some(ender) = &shared.ender {
            ender();
        }
    }

    /// Waits until its thread has put everything back.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Its panics are caught.
            let _ = thread.join();
        }
    }

    pub(crate) fn status(&self) -> Option<ControllerStatus> {
        lock(&self.shared).status.clone()
    }

    pub(crate) fn report(&self, owner: String) -> ControllerReport {
        let status = self.status();
        ControllerReport {
            name: self.table.name(),
            state: self.state,
            why: self.why.clone(),
            refused: self.refused,
            owner,
            text: status.as_ref().map(ControllerStatus::text).unwrap_or_default(),
            status: status.and_then(|status| serde_json::to_value(status).ok()).unwrap_or_default(),
        }
    }
}

/// One that cannot be opened is tried again after this time, then after twice as long, and so on.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// And at the latest after this time.
const LAST_WAIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
