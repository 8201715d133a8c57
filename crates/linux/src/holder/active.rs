//! Which CPUs are needed on this machine, by whom, and what follows for everybody else.
//!
//! Each process that runs a service on CPUs of its choice says which it has *active*, and if others shall leave the CPUs that it
//! has left, which those could be ([`Claim`]). One process keeps the register, and it alone tells the surroundings where to be and
//! takes CPUs offline, for all who asked for that:
//!
//! ```text
//!   roost govern ---------------- holds active.lock --> Register --> CpuIsolation, Hotplug   (while somebody asks for that)
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

use super::desk::{Desk, Who};
use super::laws::Claim;
use super::lease::{Lease, socket_beside};
use super::register::{GRACE, Register};
use super::wire::{Answer, Ask, Needed};
use super::{Asked, Backoff, Wish, now_unix_s};
use crate::lock::{LockError, Refusal, run_folder, take};
use crate::root::Root;
use machine::CpuList;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
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
                let others = held.others();
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
            Place::Here(desk) => desk.held().take_put_back(),
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
                let register = Register::open(&self.root, &self.name, lock, quiet_until)?;
                Place::Here(Desk::open(&self.root, register, Register::announce)?)
            }
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
            Err(refusal) => return Err(refusal.at(path)),
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

const NOBODY: &str = "nobody keeps the register of CPUs that are needed just now; it is taken over soon";
