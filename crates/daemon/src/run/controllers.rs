//! Controllers with a thread of their own, from the loop's side: opened, heard, withdrawn, ended.
//!
//! Properties:
//! - What one of them does ends no other, and no service.
//! - All of them have put back what they changed before a service is released.

use super::{Answer, Asker, Daemon, Event, Finished, Set, Snapshot};
use crate::audit::{Entry, now_unix_s};
use crate::controllers::cores::News;
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
        }
    }

    /// Opens those that are due.
    pub(super) fn open_controllers(&mut self) {
        let (now, machine) = (linux::now(), self.machine());
        for hosted in &mut self.controllers {
            if hosted.due().is_some_and(|due| due <= now) {
                let observer = self.observer.as_ref().filter(|_| hosted.owner == Owner::Config);
                hosted.open(&machine, &self.events, observer);
            }
        }
    }

    pub(super) fn controller_tells(&mut self, name: &str, happened: Happened) {
        let Some(at) = self.controllers.iter().position(|hosted| hosted.table.name() == name) else {
            // Its lease has ended meanwhile.
            return;
        };
        match happened {
            Happened::Notice(line) => self.say_once(&line),
            Happened::Opened => {
                self.controllers[at].opened();
                if let Owner::Lease(lease) = self.controllers[at].owner {
                    self.has_taken_hold(lease);
                }
            }
            Happened::Refused(refusal) => self.controller_ended(at, Err(refusal), false),
            Happened::Ended { outcome, lines, is_final } => {
                lines.iter().for_each(|line| self.say(line));
                self.controller_ended(at, outcome, is_final);
            }
        }
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
            return self.refuse_lease(lease, refusal.unwrap_or_else(|| Refusal::failed(why)));
        }
        if self.strict {
            if refusal.is_none() {
                self.say(&why);
            }
            self.finished = Some(refusal);
            return;
        }
        self.say_once(&format!("{name}: {why}"));
        let is_unsupported = refusal.is_some_and(|refusal| refusal.kind == RefusalKind::Unsupported);
        let hosted = &mut self.controllers[at];
        if is_final || is_unsupported { hosted.withdraw(why) } else { hosted.wait_for(why) }
    }

    /// Pauses or resumes the controller of that name; `None` if there is none.
    pub(super) fn set_controller(&mut self, name: &str, set: Set, asker: Asker) -> Option<Answer> {
        let hosted = self.controllers.iter_mut().find(|hosted| hosted.table.name() == name)?;
        let new = match set {
            Set::Pause => {
                hosted.end();
                hosted.join();
                hosted.withdraw(format!("paused by {asker}"));
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
        self.tell(News { entries: vec![entry], ..News::default() });
        Some(Answer::Done)
    }

    /// The state of everything, for the page of metrics.
    pub(super) fn snapshot(&self) -> Snapshot {
        let services = self.slots.iter().filter_map(|slot| match &slot.state {
            super::State::Governed { governed, .. } => Some(governed.status()),
            super::State::Waiting { .. } => None,
        });
        let running = self.controllers.iter();
        Snapshot {
            services: services.collect(),
            controllers: running.filter_map(|hosted| Some((hosted.table.name(), hosted.status()?))).collect(),
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

    /// All of them; what was put back.
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

impl Finished {
    /// The outcome as a result, and what was put back.
    pub fn into_result(self) -> (Result<(), Refusal>, Vec<String>) {
        (self.outcome.map_or(Ok(()), Err), self.lines)
    }
}
