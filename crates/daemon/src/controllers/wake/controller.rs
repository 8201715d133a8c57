//! The planner as a controller: a thread that checks on it now and then.

use super::{WakeConfig, WakeDaemon, WakeHandle};
use crate::controllers::{Controller, ControllerStatus, Machine, Refusal, Seen};
use machine::Instant;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The interval of looking for lost windows and of publishing the state.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub struct Wake {
    /// `None` after the release.
    daemon: Option<WakeDaemon>,
    handle: WakeHandle,
    notices: Vec<String>,
    sender: Sender<()>,
    told: Receiver<()>,
}

impl Controller for Wake {
    type Config = WakeConfig;

    fn open(machine: &Machine, config: &WakeConfig) -> Result<Self, Refusal> {
        let options = config.options()?;
        let (daemon, mut notices) = WakeDaemon::open(&options, machine)?;
        let handle = daemon.handle();
        if let Some(address) = daemon.udp_address() {
            notices.push(format!("datagrams at {address}"));
        }
        let calibration = handle.status().calibration.text();
        notices.extend(calibration.lines().map(str::to_owned));
        notices.push(format!("listening at {}", machine.callers.socket().display()));
        let (sender, told) = channel();
        Ok(Self { daemon: Some(daemon), handle, notices, sender, told })
    }

    fn ender(&self) -> Box<dyn Fn() + Send> {
        let sender = self.sender.clone();
        Box::new(move || {
            // The loop may have ended.
            let _ = sender.send(());
        })
    }

    fn run(&mut self, show: &mut dyn FnMut(&mut Self)) -> Result<Option<String>, Refusal> {
        loop {
            show(self);
            match self.told.recv_timeout(LOOK_EVERY) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return Ok(None),
            }
            if let Some(daemon) = &mut self.daemon {
                self.notices.extend(daemon.look_after());
            }
        }
    }

    fn status(&self, _now: Instant) -> ControllerStatus {
        ControllerStatus::Wake(Box::new(self.handle.status()))
    }

    fn drain_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn release(&mut self) -> Vec<String> {
        // Closes all windows and returns the limits.
        self.daemon = None;
        Vec::new()
    }

    fn seen(&self) -> Seen<'_> {
        Seen::Wake(&self.handle)
    }
}
