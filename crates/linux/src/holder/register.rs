//! All claims to CPUs, and what follows from them for everybody else. `active.rs` says who keeps it.
//!
//! This is where a means belongs that acts on a CPU for the whole machine, as telling the surroundings and taking CPUs offline do:
//! [`Register::tell`] runs whenever a claim changes, and before it is answered.

use super::desk::{Held, Who};
use super::laws::{Claim, going, needed, open_to};
use super::now_unix_s;
use super::wire::{Answer, Ask, Needed};
use crate::cpuset::isolation::{CpuIsolation, Placement};
use crate::hotplug::Hotplug;
use crate::journal::restore_at_start;
use crate::lock::LockError;
use crate::root::Root;
use machine::{CpuList, Duration, Instant};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;

/// All claims, and what follows from them.
#[derive(Debug)]
pub(super) struct Register {
    root: Root,
    name: String,
    claims: BTreeMap<Who, (Claim, u64)>,
    /// Nothing is parked before then.
    quiet_until: Option<Instant>,
    /// There from the first time that somebody else is to be told.
    around: Option<CpuIsolation>,
    /// What they were told last.
    told: Placement,
    /// While somebody wants CPUs offline.
    hotplug: Option<Hotplug>,
    /// What was put back since it was asked.
    put_back: Vec<String>,
    notices: Vec<String>,
    lock: Option<File>,
}

impl Register {
    pub(super) fn open(
        root: &Root,
        name: &str,
        lock: File,
        quiet_until: Option<Instant>,
    ) -> Result<Self, LockError> {
        // Who kept it before may have been killed.
        let notices = restore_at_start(root)?;
        Ok(Self {
            root: root.clone(),
            name: name.to_owned(),
            claims: BTreeMap::new(),
            quiet_until,
            around: None,
            told: Placement::default(),
            hotplug: None,
            put_back: Vec::new(),
            notices,
            lock: Some(lock),
        })
    }

    pub(super) fn announce(&mut self, line: &str) {
        // One that cannot be written is not: the lock holds all the same.
        let _ = self.lock.as_mut().map(|lock| writeln!(lock, "{line}"));
    }

    pub(super) fn claim(&mut self, who: &Who, claim: Claim) -> Result<(), String> {
        if self.lock.is_none() {
            return Err("its holder is about to end".to_owned());
        }
        let concerns_others = !claim.scope.is_nobody() || !claim.offline.0.is_empty();
        if claim == Claim::default() {
            self.claims.remove(who);
        } else {
            self.claims.insert(who.clone(), (claim, now_unix_s()));
        }
        // It stands in any case; who wants others to be told must know if they are not.
        self.tell().or_else(|reason| if concerns_others { Err(reason) } else { Ok(()) })
    }

    pub(super) fn needed(&self, connection: u64) -> Needed {
        let others = self.claims.iter().filter(|(who, _)| who.connection != connection);
        Needed {
            by_all: needed(self.claims.values().map(|(claim, _)| claim)),
            by_others: needed(others.map(|(_, (claim, _))| claim)),
            offline: self.taken(),
        }
    }

    /// What others claim: who, of which process, what, and since when.
    pub(super) fn others(&self) -> impl Iterator<Item = (&String, u32, &Claim, u64)> {
        let others = self.claims.iter().filter(|(who, _)| who.connection != 0);
        others.map(|(who, (claim, since))| (&who.name, who.process, claim, *since))
    }

    /// What was put back since this was asked last.
    pub(super) fn take_put_back(&mut self) -> Vec<String> {
        std::mem::take(&mut self.put_back)
    }

    /// Parks what there is to park, once the others have had their time.
    pub(super) fn look_after(&mut self) {
        if self.quiet_until.is_some_and(|until| until <= crate::now()) {
            self.quiet_until = None;
            if let Err(reason) = self.tell() {
                self.notices.push(reason);
            }
        }
    }

    fn taken(&self) -> CpuList {
        self.hotplug.as_ref().map(Hotplug::taken).unwrap_or_default()
    }

    /// Those that are online, or would be without us.
    fn there(&self) -> CpuList {
        CpuList(&crate::online_cpus(&self.root).unwrap_or_default().0 | &self.taken().0)
    }

    pub(super) fn open_to_everybody(&self) -> CpuList {
        open_to(&self.there(), self.claims.values().map(|(claim, _)| claim), |scope| !scope.is_nobody())
    }

    /// Does what follows from all claims: CPUs come back before anybody is sent there, and go after everybody has left.
    fn tell(&mut self) -> Result<(), String> {
        let there = self.there();
        let claims = || self.claims.values().map(|(claim, _)| claim);
        let is_quiet = self.quiet_until.is_some();
        let going = if is_quiet { CpuList::default() } else { going(&there, claims()) };
        // Where all are open, everybody goes back to where they were.
        let narrower = |cpus: CpuList| (cpus != there && !is_quiet).then_some(cpus);
        let now = Placement {
            everybody: narrower(open_to(&there, claims(), |scope| scope.everybody)),
            interrupts: narrower(open_to(&there, claims(), |scope| scope.interrupts)),
            own: claims().flat_map(|claim| claim.places.iter().cloned()).collect(),
        };
        if let Some(hotplug) = &mut self.hotplug {
            hotplug.keep_offline(&CpuList(&going.0 & &hotplug.taken().0));
        }
        let told = self.tell_surroundings(now);
        told.and(self.take_offline(&going))
    }

    fn take_offline(&mut self, going: &CpuList) -> Result<(), String> {
        if self.claims.values().all(|(claim, _)| claim.offline.0.is_empty()) {
            let hotplug = self.hotplug.take();
            self.put_back.extend(hotplug.into_iter().flat_map(|mut hotplug| hotplug.release()));
            return Ok(());
        }
        let hotplug = match &mut self.hotplug {
            Some(hotplug) => hotplug,
            None if going.0.is_empty() => return Ok(()),
            none => {
                none.insert(Hotplug::open(&self.root, &self.name, None).map_err(|error| error.to_string())?)
            }
        };
        hotplug.keep_offline(going);
        Ok(())
    }

    /// Tells them where to be, where that has changed.
    fn tell_surroundings(&mut self, now: Placement) -> Result<(), String> {
        if now == self.told || (now.is_nowhere() && self.told.is_nowhere()) {
            return Ok(());
        }
        if now.is_nowhere() {
            self.put_back.extend(self.around.iter_mut().flat_map(CpuIsolation::release));
        } else {
            let around = match &mut self.around {
                Some(around) => around,
                none => none
                    .insert(CpuIsolation::open(&self.root, &self.name).map_err(|error| error.to_string())?),
            };
            around.keep_on(&now);
        }
        self.told = now;
        Ok(())
    }

    pub(super) fn drain_notices(&mut self) -> Vec<String> {
        let around = self.around.as_mut().map(CpuIsolation::drain_notices).unwrap_or_default();
        let hotplug = self.hotplug.as_mut().map(Hotplug::drain_notices).unwrap_or_default();
        self.notices.drain(..).chain(around).chain(hotplug).collect()
    }
}

impl Held for Register {
    fn hear(&mut self, who: &Who, ask: Ask) -> Answer {
        // A peer may call itself something else each time; it has one claim.
        let who = match self.claims.keys().find(|known| known.connection == who.connection) {
            Some(known) => known.clone(),
            None => who.clone(),
        };
        match ask {
            Ask::Active(claim) => match self.claim(&who, claim) {
                Ok(()) => Answer::Needed(self.needed(who.connection)),
                Err(reason) => Answer::Refused(reason),
            },
            Ask::Needed => Answer::Needed(self.needed(who.connection)),
            Ask::Idle { .. } | Ask::Clock { .. } => {
                Answer::Refused("this socket is for the CPUs that are needed".to_owned())
            }
        }
    }

    fn forget(&mut self, connection: u64) {
        self.claims.retain(|who, _| who.connection != connection);
        if self.lock.is_some()
            && let Err(reason) = self.tell()
        {
            self.notices.push(reason);
        }
    }

    fn end(&mut self) {
        // Both before the lock: nobody else may tell them something while ours is in force. CPUs come back first.
        self.hotplug = None;
        self.around = None;
        if let Some(lock) = self.lock.take()
            && self.claims.keys().all(|who| who.connection == 0)
        {
            // Whoever is next need not wait for anybody.
            let _ = lock.set_len(0);
        }
    }
}

/// An epoch of most daemons, and two of its looks: who is alive has claimed by then what it needs.
pub(super) const GRACE: Duration = Duration::from_secs(3);
