//! Which CPUs are needed on this machine, by whom, and what follows for all other tasks.
//!
//! Each service on CPUs of its choice says which it has *active*, and if others shall leave the CPUs that it has left, which those
//! could be ([`Claim`]). This is where a means belongs that acts on a CPU for the whole machine, as telling the surroundings and
//! taking CPUs offline do: [`Register::tell`] runs whenever a claim changes, and before it is answered.
//!
//! Properties:
//! - A CPU that any claim has active is parked for no task, and a claim is in force when [`ActiveCpus::claim`] returns: a service
//!   that claims a CPU before it goes there, and gives it up after it has left, never is where its surroundings may not be, and
//!   the CPU is online.
//! - Where other processes asked the last arbiter, or limit CPUs alone, nothing is parked for [`GRACE`]: their claims have to come
//!   first.

use super::laws::{Claim, going, needed, open_to};
use super::seat::Seat;
use super::{Asked, Asker, Wish, now_unix_s};
use crate::cpuset::isolation::{CpuIsolation, Placement};
use crate::hotplug::Hotplug;
use crate::journal::restore_at_start;
use crate::lock::{LockError, needed_by_others};
use machine::{CpuList, Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The CPUs that are needed. A handle: clones share.
#[derive(Clone, Debug)]
pub struct ActiveCpus(Arc<Mutex<Register>>);

/// CPUs that must be awake, online and not shut off from any task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needed {
    /// By any claim: the union of all active sets.
    pub by_all: CpuList,
    /// By others than the asker.
    pub by_others: CpuList,
    /// Not needed, and offline by us: without us they were there.
    pub offline: CpuList,
}

impl ActiveCpus {
    pub(super) fn new(seat: Seat) -> Self {
        Self(Arc::new(Mutex::new(Register {
            seat,
            is_open: false,
            claims: BTreeMap::new(),
            quiet_until: None,
            around: None,
            told: Placement::default(),
            hotplug: None,
            put_back: Vec::new(),
            notices: Vec::new(),
        })))
    }

    /// Takes the seat, and puts back what a holder left that was killed.
    pub fn hold(&self) -> Result<(), LockError> {
        self.register().hold()
    }

    /// `asker` claims this instead of what it claimed before, in force on return; or why it is not.
    pub fn claim(&self, asker: impl Into<Asker>, claim: &Claim) -> Result<(), String> {
        self.register().claim(asker.into(), claim)
    }

    /// `asker` needs nothing any more.
    pub fn withdraw(&self, asker: impl Into<Asker>) {
        let mut register = self.register();
        if register.claims.remove(&asker.into()).is_some()
            && let Err(reason) = register.tell()
        {
            register.notices.push(reason);
        }
    }

    /// The CPUs that are needed.
    pub fn needed(&self, asker: impl Into<Asker>) -> Needed {
        self.register().needed(&asker.into())
    }

    /// Parks what there is to park, once the others have had their time.
    pub fn look_after(&self) {
        self.register().look_after();
    }

    /// What is needed, and by which part or process.
    pub fn asked(&self) -> Vec<Asked> {
        let register = self.register();
        let open = register.open_to_everybody();
        register.claims.iter().flat_map(|(asker, (claim, since))| told(asker, claim, *since, &open)).collect()
    }

    /// What there is to say since the last call.
    pub fn drain_notices(&self) -> Vec<String> {
        self.register().drain_notices()
    }

    /// Parts of this process need nothing any more, one line per thing that was put back; what leases claim stays.
    pub fn release(&self) -> Vec<String> {
        let mut register = self.register();
        register.claims.retain(|asker, _| asker.lease != 0);
        if let Err(reason) = register.tell() {
            register.notices.push(reason);
        }
        std::mem::take(&mut register.put_back)
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All claims, and what follows from them.
#[derive(Debug)]
struct Register {
    seat: Seat,
    /// The seat is taken.
    is_open: bool,
    claims: BTreeMap<Asker, (Claim, u64)>,
    /// Nothing is parked before then.
    quiet_until: Option<Instant>,
    /// There from the first time that others are to be told.
    around: Option<CpuIsolation>,
    /// What they were told last.
    told: Placement,
    /// While a claim wants CPUs offline.
    hotplug: Option<Hotplug>,
    /// What was put back since it was asked.
    put_back: Vec<String>,
    notices: Vec<String>,
}

impl Register {
    fn hold(&mut self) -> Result<(), LockError> {
        if self.is_open {
            return Ok(());
        }
        self.seat.take()?;
        // The last holder may have been killed.
        self.notices.extend(restore_at_start(self.seat.root())?);
        if self.seat.is_inherited() || !needed_by_others(self.seat.root()).is_empty() {
            self.quiet_until = Some(crate::now() + GRACE);
        }
        self.is_open = true;
        Ok(())
    }

    fn claim(&mut self, asker: Asker, claim: &Claim) -> Result<(), String> {
        self.hold().map_err(|error| error.to_string())?;
        if self.claims.get(&asker).is_some_and(|(before, _)| before == claim) {
            return Ok(());
        }
        let concerns_others = !claim.scope.is_nobody() || !claim.offline.0.is_empty();
        if *claim == Claim::default() {
            self.claims.remove(&asker);
        } else {
            self.claims.insert(asker, (claim.clone(), now_unix_s()));
        }
        // It stands in any case; an asker that wants others to be told must know if they are not.
        self.tell().or_else(|reason| if concerns_others { Err(reason) } else { Ok(()) })
    }

    fn needed(&self, asker: &Asker) -> Needed {
        let others = self.claims.iter().filter(|(known, _)| *known != asker);
        Needed {
            by_all: needed(self.claims.values().map(|(claim, _)| claim)),
            by_others: needed(others.map(|(_, (claim, _))| claim)),
            offline: self.taken(),
        }
    }

    /// Parks what there is to park, once the others have had their time.
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
        CpuList(&crate::online_cpus(self.seat.root()).unwrap_or_default().0 | &self.taken().0)
    }

    fn open_to_everybody(&self) -> CpuList {
        open_to(&self.there(), self.claims.values().map(|(claim, _)| claim), |scope| !scope.is_nobody())
    }

    /// Does what follows from all claims: CPUs come back before others are sent there, and go after all have left.
    fn tell(&mut self) -> Result<(), String> {
        let there = self.there();
        let claims = || self.claims.values().map(|(claim, _)| claim);
        let is_quiet = self.quiet_until.is_some();
        let going = if is_quiet { CpuList::default() } else { going(&there, claims()) };
        // Where all are open, all go back to where they were.
        let narrower = |cpus: CpuList| (cpus != there && !is_quiet).then_some(cpus);
        let now = Placement {
            everybody: narrower(open_to(&there, claims(), |scope| scope.everybody)),
            interrupts: narrower(open_to(&there, claims(), |scope| scope.interrupts)),
            own: claims().flat_map(|claim| claim.places.iter().cloned()).collect(),
        };
        if let Some(hotplug) = &mut self.hotplug {
            hotplug.keep_offline(&CpuList(&going.0 & &hotplug.taken().0));
        }
        let told = self.tell_others(now);
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
            none => none.insert(
                Hotplug::open(self.seat.root(), self.seat.name(), None).map_err(|error| error.to_string())?,
            ),
        };
        hotplug.keep_offline(going);
        Ok(())
    }

    /// Tells them where to be, where that has changed.
    fn tell_others(&mut self, now: Placement) -> Result<(), String> {
        if now == self.told || (now.is_nowhere() && self.told.is_nowhere()) {
            return Ok(());
        }
        if now.is_nowhere() {
            self.put_back.extend(self.around.iter_mut().flat_map(CpuIsolation::release));
        } else {
            let around = match &mut self.around {
                Some(around) => around,
                none => none.insert(
                    CpuIsolation::open(self.seat.root(), self.seat.name())
                        .map_err(|error| error.to_string())?,
                ),
            };
            around.keep_on(&now);
        }
        self.told = now;
        Ok(())
    }

    fn drain_notices(&mut self) -> Vec<String> {
        let around = self.around.as_mut().map(CpuIsolation::drain_notices).unwrap_or_default();
        let hotplug = self.hotplug.as_mut().map(Hotplug::drain_notices).unwrap_or_default();
        self.notices.drain(..).chain(around).chain(hotplug).collect()
    }
}

impl Drop for Register {
    fn drop(&mut self) {
        // Both before the seat: no other may tell them something while ours is in force. CPUs come back first.
        self.hotplug = None;
        self.around = None;
        if self.is_open && self.claims.keys().all(|asker| asker.lease == 0) {
            self.seat.leave_clean();
        }
    }
}

/// A claim, as `status` tells it: what is active, and what is left of what could be.
fn told(asker: &Asker, claim: &Claim, since_unix_s: u64, open: &CpuList) -> Vec<Asked> {
    let asked = |cpus: BTreeSet<_>, wish, together| Asked {
        cpus: CpuList(cpus),
        asker: asker.name.clone(),
        process: asker.process,
        wish,
        since_unix_s,
        together: Some(together),
    };
    let mut parts = vec![(claim.active.0.clone(), Wish::Active, Wish::Active)];
    if !claim.scope.is_nobody() {
        let left = &claim.could.0 - &claim.active.0;
        parts.push((&left - &open.0, Wish::Parked, Wish::Parked));
        parts.push((&left & &open.0, Wish::Parked, Wish::Active));
    }
    let there = parts.into_iter().filter(|(cpus, ..)| !cpus.is_empty());
    there.map(|(cpus, wish, together)| asked(cpus, wish, together)).collect()
}

/// An epoch of most daemons, and two of its looks: a living process has claimed by then what it needs.
const GRACE: Duration = Duration::from_secs(3);
