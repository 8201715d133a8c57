//! Which CPUs are needed on this machine, by whom, and what follows for everybody else.
//!
//! Each process that runs a service on CPUs of its choice says which it has *active*, and if others shall leave the CPUs that it
//! has left, which those could be ([`Claim`]). One process keeps the register, and it alone tells the surroundings where to be and
//! takes CPUs offline, for all who asked for that:
//!
//! ```text
//!   roost govern ---------------- holds active.lock --> Register --> Surroundings, Hotplug   (while somebody asks for that)
//!   roost govern, another ------- Lease ----------------^   claims: active, could, whom it concerns, what goes offline
//!   roost serve ----------------- Lease ----------------'
//! ```
//!
//! What always holds:
//! - A CPU that anybody has active is parked for nobody, and a claim is in force when [`ActiveCpus::claim`] returns: a process
//!   that claims a CPU before it goes there, and gives it up after it has left, never is where its surroundings may not be, and
//!   the CPU is online.
//! - Who takes the register over from a process that was killed, or that others asked, parks nothing for [`GRACE`]: those whose
//!   claims were lost with it have to come first.

use super::desk::{Desk, Held, Who};
use super::laws::{Claim, going, needed, open_to};
use super::lease::{Lease, socket_beside};
use super::wire::{Answer, Ask, Needed};
use super::{Asked, Backoff, Wish, now_unix_s};
use crate::hotplug::Hotplug;
use crate::journal::restore_at_start;
use crate::lock::{LockError, Refusal, run_folder, take};
use crate::root::Root;
use crate::surroundings::{Surroundings, Whereabouts};
use machine::{CpuList, Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::BorrowedFd;

/// The CPUs that the parts of this process need, among those of all others.
#[derive(Debug)]
pub struct ActiveCpus {
    root: Root,
    name: String,
    place: Place,
    /// Who keeps the register does not answer, and is not asked all the time.
    backoff: Backoff,
    /// By part, since when.
    parts: BTreeMap<String, (Claim, u64)>,
    notices: Vec<String>,
}

#[derive(Debug)]
enum Place {
    /// The register is kept here.
    Here(Desk<Register>),
    /// Another keeps it.
    There(Lease),
    /// Whoever kept it has gone, and nobody has taken it yet.
    Nowhere,
}

impl ActiveCpus {
    /// Keeps the register, or finds who does. An error names a process that keeps it and takes no claims.
    pub fn open(root: &Root, name: &str) -> Result<Self, LockError> {
        let mut active = Self {
            root: root.clone(),
            name: name.to_owned(),
            place: Place::Nowhere,
            backoff: Backoff::default(),
            parts: BTreeMap::new(),
            notices: Vec::new(),
        };
        active.take(false)?;
        Ok(active)
    }

    /// `part` of this process claims this instead of what it claimed before, in force on return; or why it is not. Where it is
    /// not, it is tried again at each [`Self::look_after`].
    pub fn claim(&mut self, part: &str, claim: &Claim) -> Result<(), String> {
        if self.parts.get(part).is_some_and(|(before, _)| before == claim) {
            return Ok(());
        }
        self.parts.insert(part.to_owned(), (claim.clone(), now_unix_s()));
        self.tell()
    }

    /// `part` needs nothing any more.
    pub fn withdraw(&mut self, part: &str) {
        if self.parts.remove(part).is_some() {
            // Where it cannot be said, it is withdrawn with the connection.
            let _ = self.tell();
        }
    }

    /// The CPUs that anybody needs, and those that others than this process do: who would park a CPU for all, or take it
    /// offline, keeps to the rest. An error: nobody knows just now, so every CPU may be needed.
    pub fn needed(&mut self) -> Result<Needed, String> {
        match &mut self.place {
            Place::Here(desk) => Ok(desk.held().needed(0)),
            Place::There(lease) => match lease.ask(Ask::Needed) {
                Ok(Answer::Needed(needed)) => Ok(needed),
                other => Err(unheard(lease, other)),
            },
            Place::Nowhere => Err(NOBODY.to_owned()),
        }
    }

    /// Takes over where who kept the register has gone. To be called now and then: nobody else notices.
    pub fn look_after(&mut self) {
        let (has_gone, hangs) = match &self.place {
            Place::There(lease) => (lease.has_ended(), lease.hangs),
            Place::Nowhere => (true, false),
            Place::Here(desk) => return desk.held().look_after(),
        };
        if has_gone && hangs {
            self.backoff.wait();
        }
        if !has_gone {
            return;
        }
        self.place = Place::Nowhere;
        if self.backoff.is_waiting() {
            return;
        }
        // An error: somebody is about to; ask again next time.
        if self.take(true).is_ok() {
            self.notices.push(
                "who kept the register of CPUs that are needed has gone, and it is seen to anew".to_owned(),
            );
            if let Err(reason) = self.tell() {
                self.notices.push(reason);
            }
        }
    }

    /// Readable when the process that keeps the register ends: then it is time for [`Self::look_after`].
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        match &self.place {
            Place::There(lease) => Some(lease.bell()),
            Place::Here(_) | Place::Nowhere => None,
        }
    }

    /// True while nobody keeps the register: then [`Self::look_after`] is to be called soon again.
    pub fn is_waiting(&self) -> bool {
        matches!(self.place, Place::Nowhere)
    }

    /// Who needs which CPUs.
    pub fn asked(&self) -> Vec<Asked> {
        match &self.place {
            Place::Here(desk) => {
                let held = desk.held();
                let others = held.claims.iter().filter(|(who, _)| who.connection != 0);
                let others = others.map(|(who, (claim, since))| (&who.name, who.process, claim, *since));
                let open = held.open_to_everybody();
                let told = self.own().chain(others).flat_map(|of| told(of, Some(&open), None));
                told.collect()
            }
            Place::There(lease) => {
                self.own().flat_map(|of| told(of, None, Some(lease.holder.clone()))).collect()
            }
            Place::Nowhere => self.own().flat_map(|of| told(of, None, None)).collect(),
        }
    }

    /// What there is to say since the last call.
    pub fn drain_notices(&mut self) -> Vec<String> {
        let mut notices = std::mem::take(&mut self.notices);
        if let Place::Here(desk) = &self.place {
            notices.extend(desk.held().drain_notices());
        }
        notices
    }

    /// Needs nothing any more, one line per thing that was put back; what others claim stays.
    pub fn release(&mut self) -> Vec<String> {
        self.parts.clear();
        let _ = self.tell();
        match &self.place {
            Place::Here(desk) => std::mem::take(&mut desk.held().put_back),
            Place::There(_) | Place::Nowhere => Vec::new(),
        }
    }

    fn own(&self) -> impl Iterator<Item = (&String, u32, &Claim, u64)> {
        self.parts.iter().map(|(part, (claim, since))| (part, std::process::id(), claim, *since))
    }

    /// Says what all parts need together.
    fn tell(&mut self) -> Result<(), String> {
        let claim = Claim::of_all(self.parts.values().map(|(claim, _)| claim));
        match &mut self.place {
            Place::Here(desk) => desk.held().claim(&Who::ourselves(&self.name), claim),
            Place::There(lease) => match lease.ask(Ask::Active(claim)) {
                Ok(Answer::Needed(_)) => {
                    self.backoff = Backoff::default();
                    Ok(())
                }
                other => Err(unheard(lease, other)),
            },
            Place::Nowhere => Err(NOBODY.to_owned()),
        }
    }

    fn take(&mut self, over: bool) -> Result<(), LockError> {
        let path = run_folder(&self.root)?.join("active.lock");
        // Who kept it last was asked by others, or was killed: they may not have noticed yet.
        let has_text = fs::metadata(&path).is_ok_and(|file| file.len() > 0);
        let quiet_until = (over || has_text).then(|| crate::now() + GRACE);
        self.place = match take(&path, &self.name) {
            Ok(lock) => {
                let register = Register::open(&self.root, &self.name, lock, quiet_until);
                Place::Here(Desk::open(&self.root, register, Register::announce)?)
            }
            Err(Refusal::Unavailable(cause)) => return Err(LockError::Unavailable { path, cause }),
            Err(Refusal::Taken(holder)) => {
                let lease = socket_beside(&path)
                    .and_then(|socket| Lease::open(socket, holder.clone(), &self.name).ok())
                    .ok_or(LockError::Register { holder, path })?;
                self.notices.push(format!(
                    "{} keeps the register of CPUs that are needed, and is asked",
                    lease.holder
                ));
                Place::There(lease)
            }
        };
        Ok(())
    }
}

fn unheard(lease: &Lease, answer: std::io::Result<Answer>) -> String {
    let holder = &lease.holder;
    match answer {
        Ok(Answer::Refused(reason)) => {
            format!("{holder}, which keeps the register of CPUs that are needed, refuses: {reason}")
        }
        Ok(other) => format!("{holder} answers something else: {other:?}"),
        Err(cause) => {
            format!("{holder} keeps the register of CPUs that are needed, and does not answer: {cause}")
        }
    }
}

/// A claim, for those who want to know: what is active, and what is left of what could be.
fn told(
    (asker, process, claim, since_unix_s): (&String, u32, &Claim, u64),
    open: Option<&CpuList>,
    held_by: Option<String>,
) -> Vec<Asked> {
    let asked = |cpus: BTreeSet<_>, wish, together| Asked {
        cpus: CpuList(cpus),
        asker: asker.clone(),
        process,
        wish,
        since_unix_s,
        together,
        held_by: held_by.clone(),
    };
    let mut all = Vec::new();
    if !claim.active.0.is_empty() {
        all.push(asked(claim.active.0.clone(), Wish::Active, open.map(|_| Wish::Active)));
    }
    if claim.scope.is_nobody() {
        return all;
    }
    let left = &claim.could.0 - &claim.active.0;
    let parts = match open {
        None => vec![(left, None)],
        Some(open) => vec![(&left - &open.0, Some(Wish::Parked)), (&left & &open.0, Some(Wish::Active))],
    };
    all.extend(
        parts
            .into_iter()
            .filter(|(cpus, _)| !cpus.is_empty())
            .map(|(cpus, is)| asked(cpus, Wish::Parked, is)),
    );
    all
}

/// All claims, and what follows from them.
#[derive(Debug)]
struct Register {
    root: Root,
    name: String,
    claims: BTreeMap<Who, (Claim, u64)>,
    /// Nothing is parked before then.
    quiet_until: Option<Instant>,
    /// There from the first time that somebody else is to be told.
    around: Option<Surroundings>,
    /// What they were told last.
    told: Whereabouts,
    /// While somebody wants CPUs offline.
    hotplug: Option<Hotplug>,
    /// What was put back since it was asked.
    put_back: Vec<String>,
    notices: Vec<String>,
    lock: Option<File>,
}

impl Register {
    fn open(root: &Root, name: &str, lock: File, quiet_until: Option<Instant>) -> Self {
        // Who kept it before may have been killed.
        let notices = restore_at_start(root);
        Self {
            root: root.clone(),
            name: name.to_owned(),
            claims: BTreeMap::new(),
            quiet_until,
            around: None,
            told: Whereabouts::default(),
            hotplug: None,
            put_back: Vec::new(),
            notices,
            lock: Some(lock),
        }
    }

    fn announce(&mut self, line: &str) {
        // One that cannot be written is not: the lock holds all the same.
        let _ = self.lock.as_mut().map(|lock| writeln!(lock, "{line}"));
    }

    fn claim(&mut self, who: &Who, claim: Claim) -> Result<(), String> {
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

    fn needed(&self, connection: u64) -> Needed {
        let others = self.claims.iter().filter(|(who, _)| who.connection != connection);
        Needed {
            by_all: needed(self.claims.values().map(|(claim, _)| claim)),
            by_others: needed(others.map(|(_, (claim, _))| claim)),
            offline: self.taken(),
        }
    }

    fn look_after(&mut self) {
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

    fn open_to_everybody(&self) -> CpuList {
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
        let now = Whereabouts {
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
    fn tell_surroundings(&mut self, now: Whereabouts) -> Result<(), String> {
        if now == self.told || (now.is_nowhere() && self.told.is_nowhere()) {
            return Ok(());
        }
        if now.is_nowhere() {
            self.put_back.extend(self.around.iter_mut().flat_map(Surroundings::release));
        } else {
            let around = match &mut self.around {
                Some(around) => around,
                none => none
                    .insert(Surroundings::open(&self.root, &self.name).map_err(|error| error.to_string())?),
            };
            around.keep_on(&now);
        }
        self.told = now;
        Ok(())
    }

    fn drain_notices(&mut self) -> Vec<String> {
        let around = self.around.as_mut().map(Surroundings::drain_notices).unwrap_or_default();
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

const NOBODY: &str = "nobody keeps the register of CPUs that are needed just now; it is taken over soon";
