//! A command's part of a daemon that runs: governed while the command is connected.

use super::{Request, View, locked, refused};
use crate::exit::{Exit, coded, usage};
use crate::signals::EndSignals;
use ::daemon::{Answer, Ask, ControllerReport, ControllerState, LeaseRequest, Refusal, Running, Status, ask};
use anyhow::Result;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Between two looks at the daemon's `status`.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Has `daemon` govern the lease until a signal, the given time or the daemon's end.
pub(super) fn govern<V: View>(request: &Request<'_>, daemon: &Running, view: &Mutex<V>) -> Result<ExitCode> {
    if let Some(flag) = request.whole.first() {
        return Err(usage(format!(
            "{flag} is the daemon's to decide, and {daemon} runs\nhint: leave {flag} out, or stop the daemon"
        )));
    }
    let signals = EndSignals::watch()?;
    let socket = &request.config.socket;
    let unheard = |error| coded(Exit::Failed, error);
    let asked = LeaseRequest::connect(socket).map_err(unheard)?;
    let is_told = Arc::new(AtomicBool::new(false));
    let (flag, ender) = (Arc::clone(&is_told), asked.ender()?);
    signals.call(move || {
        flag.store(true, Ordering::Release);
        ender();
    })?;
    let taken = asked.take(&request.config.part());
    if is_told.load(Ordering::Acquire) {
        return Ok(ExitCode::SUCCESS);
    }
    let mut lease = taken.map_err(unheard)?.map_err(refused)?;
    let names = lease.names.clone();
    locked(view).say(&format!("{} governs {} while this runs", daemon, names.join(", ")));
    let until = request.length.map(|length| linux::now() + length);
    loop {
        let left = until.map(|until| until.since(linux::now()).into());
        let is_over = lease.is_over_within(left.map_or(POLL_EVERY, |left: Duration| left.min(POLL_EVERY)));
        if is_told.load(Ordering::Acquire) || until.is_some_and(|until| until <= linux::now()) {
            locked(view).end();
            return Ok(ExitCode::SUCCESS);
        }
        if is_over {
            locked(view).end();
            return Err(coded(Exit::Failed, format!("{daemon} has ended; all is as it was")));
        }
        let Ok(Answer::Status { mut governed, mut controllers, .. }) = ask(socket, &Ask::Status) else {
            continue;
        };
        governed.retain(|service: &Status| names.contains(&service.name));
        controllers.retain(|controller: &ControllerReport| names.contains(&controller.name));
        locked(view).polled(&governed, &controllers);
        let gone = controllers.iter().find(|one| one.state == ControllerState::Withdrawn);
        if let Some(ControllerReport { why, refused: kind, .. }) = gone {
            let message = why.clone().unwrap_or_default();
            locked(view).end();
            return match *kind {
                Some(kind) => Err(refused(Refusal { kind, message })),
                // As in a daemon of its own: its service has ended in good order.
                None => {
                    locked(view).say(&message);
                    Ok(ExitCode::SUCCESS)
                }
            };
        }
    }
}
