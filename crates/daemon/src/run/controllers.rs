//! Controllers with a thread of their own, from the loop's side: opened, heard, withdrawn, ended.
//!
//! Properties:
//! - The end of a controller ends no other, and no service.
//! - All of them have put their changes back before a service is released.

use super::{Answer, Asker, Daemon, Event, Set, Snapshot};
use crate::audit::{Entry, now_unix_s};
use crate::controllers::cores::EpochReport;
use crate::controllers::{Happened, Hosted, Machine, Owner, Refusal, RefusalKind};
use std::sync::mpsc::Receiver;

impl Daemon {
    fn machine(&self) -> Machine {
        Machine {
            root: self.root.clone(),
            dry_run: self.dry_run,
            record: self.config.record.clone(),
            audit: self.config.audit.clone(),
            frequency: self.config.clock_means(),
            ends: std::sync::Arc::default(),
            arbiter: self.arbiter.clone(),
            callers: self.callers.clone(),
        }
    }

    pub(super) fn open_controllers(&mut self) {
        let (now, machine) = (linux::now(), self.machine());
        for hosted in &mut self.controllers {
            if hosted.due().is_some_and(|due| due <= now) {
                let observer = self.observer.as_ref().filter(|_| hosted.owner == Owner::Config);
                self.runs += 1;
                hosted.open(self.runs, &machine, &self.events, observer);
            }
        }
    }

    /// Handles an event of a run. One that was paused, or whose lease has ended, is still
    /// heard to the end, and changes nothing.
    pub(super) fn controller_tells(&mut self, run: u64, happened: Happened) {
        let at = self.controllers.iter().position(|hosted| hosted.is_run(run));
        match (happened, at) {
            (Happened::Notice(line), _) => self.say_once(&line),
            (Happened::Opened, Some(at)) => {
                self.controllers[at].opened();
                if let Owner::Lease(lease) = self.controllers[at].owner {
                    self.has_taken_hold(lease);
                }
            }
            (Happened::Refused(refusal), Some(at)) => self.controller_ended(at, Err(refusal), false),
            (Happened::Ended { outcome, lines, is_final }, at) => {
                lines.iter().for_each(|line| self.say(line));
                if let Some(at) = at {
                    self.controller_ended(at, outcome, is_final);
                }
            }
            (Happened::Opened | Happened::Refused(_), None) => {}
        }
    }

    /// No controller may keep a CPU to itself, and none ends the others.
    pub(super) fn end_realtime(&mut self) {
        let ended = match linux::end_realtime() {
            Ok(1) => "it runs as an ordinary thread from now on".to_owned(),
            Ok(ended) => format!("{ended} threads run as ordinary ones from now on"),
            Err(cause) => format!("which thread it was cannot be seen: {cause}"),
        };
        self.say(&format!("a real-time thread computed for 100 ms without a pause: {ended}"));
    }

    fn controller_ended(&mut self, at: usize, outcome: Result<Option<String>, Refusal>, is_final: bool) {
        let hosted = &mut self.controllers[at];
        if outcome == Ok(None) {
            // It was told to, and the loop knows why.
            return hosted.join();
        }
        hosted.join();
        let (owner, name) = (hosted.owner, hosted.table.name());
        let refusal = outcome.clone().err();
        let why = match outcome {
            Ok(line) => line.unwrap_or_default(),
            Err(refusal) => refusal.message,
        };
        if let Owner::Lease(lease) = owner {
            self.say(&format!("{name}: {why}"));
            return self.lease_lost(lease, at, why, refusal.map(|refusal| refusal.kind));
        }
        if self.strict {
            if refusal.is_none() {
                self.say(&why);
            }
            self.finished = Some(refusal.map_or(Ok(()), Err));
            return;
        }
        self.say_once(&format!("{name}: {why}"));
        let kind = refusal.map(|refusal| refusal.kind);
        let hosted = &mut self.controllers[at];
        if is_final || kind == Some(RefusalKind::Unsupported) {
            hosted.withdraw(why, kind);
        } else {
            hosted.wait_for(why);
        }
    }

    /// Pauses or resumes the controller of that name; `None` if there is none.
    pub(super) fn set_controller(&mut self, name: &str, set: Set, asker: Asker) -> Option<Answer> {
        let hosted = self.controllers.iter_mut().find(|hosted| hosted.table.name() == name)?;
        let new = match set {
            Set::Pause => {
                hosted.pause(format!("by {asker}"));
                "paused"
            }
            Set::Resume => {
                hosted.resume();
                "resumed"
            }
            Set::Goal(_) => return Some(Answer::Refused(format!("{name} keeps no goal"))),
        };
        let entry = Entry {
            at_unix_s: now_unix_s(),
            service: name.to_owned(),
            what: "set".to_owned(),
            old: "-".to_owned(),
            new: new.to_owned(),
            why: "asked for".to_owned(),
            by: format!("roost set ({asker})"),
        };
        self.tell(EpochReport { entries: vec![entry], ..EpochReport::default() });
        Some(Answer::Done)
    }

    /// The state of everything, for the page of metrics.
    pub(super) fn snapshot(&self) -> Snapshot {
        let services = self.slots.iter().filter_map(|slot| match &slot.state {
            super::State::Governed { governed, .. } => Some(governed.status()),
            super::State::Waiting { .. } | super::State::Withdrawn { .. } => None,
        });
        let running = self.controllers.iter();
        Snapshot {
            services: services.collect(),
            controllers: running.filter_map(|hosted| Some((hosted.table.name(), hosted.status()?))).collect(),
            lent: self.park.as_ref().and_then(crate::park::Park::lent),
        }
    }

    /// Ends those of which `is` holds, and waits until they have put everything back.
    pub(super) fn drop_controllers(&mut self, is: impl Fn(&Hosted) -> bool) {
        let (mut gone, rest): (Vec<Hosted>, _) =
            std::mem::take(&mut self.controllers).into_iter().partition(|hosted| is(hosted));
        self.controllers = rest;
        gone.iter().for_each(Hosted::end);
        gone.iter_mut().for_each(Hosted::join);
    }

    /// Releases all of them, and returns a line for each thing put back.
    pub(super) fn end_controllers(&mut self, events: &Receiver<Event>) -> Vec<String> {
        self.drop_controllers(|_| true);
        let mut told = Vec::new();
        for event in events.try_iter() {
            match event {
                Event::Controller(_, Happened::Ended { lines, .. }) => told.extend(lines),
                Event::Controller(_, Happened::Notice(line)) => told.push(line),
                _ => {}
            }
        }
        told
    }
}
