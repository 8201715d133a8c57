//! Which CPUs are needed on this machine, which asker needs them, and the consequences for other
//! tasks.
//!
//! Each service that chooses its CPUs says which ones it has *active*. If other tasks shall leave
//! the CPUs that it has left, it also says which CPUs it could use ([`Claim`]). An action on a CPU
//! for the whole machine, such as moving other tasks away or taking the CPU offline, belongs here:
//! [`Register::tell`] runs whenever a claim changes, before the claim is answered.
//!
//! Properties:
//! - A CPU that any claim has active is parked for no task. A claim is in force when
//!   [`ActiveCpus::claim`] returns. So a service that claims a CPU before it moves there, and
//!   withdraws the claim after it has left, never runs on a CPU that its surroundings may not use,
//!   and that CPU is online.
//! - If other processes asked the last arbiter, or limit CPUs alone, nothing is parked for
//!   [`GRACE`]: their claims have to come first.

use super::arbiter_lock::ArbiterLock;
use super::laws::{Claim, going, needed, open_to};
use super::{Asked, Asker, Wish, now_unix_s};
use crate::cpuset::isolation::{CpuIsolation, Placement};
use crate::hotplug::Hotplug;
use crate::journal::restore_at_start;
use crate::lock::{LockError, needed_by_others};
use machine::{CpuList, Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The CPUs that are needed. Clones of this handle share one state.
#[derive(Clone, Debug)]
pub struct ActiveCpus(Arc<Mutex<Register>>);

/// CPUs that must be awake, online and not shut off from any task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needed {
    /// CPUs that any claim has active.
    pub by_all: CpuList,
    /// CPUs that claims of other askers have active.
    pub by_others: CpuList,
    /// CPUs that nothing needs and that this process took offline.
    pub offline: CpuList,
}

impl ActiveCpus {
    pub(super) fn new(lock: ArbiterLock) -> Self {
        Self(Arc::new(Mutex::new(Register {
            lock,
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

    /// Takes the lock, and puts back the changes of a holder that was killed.
    pub fn hold(&self) -> Result<(), LockError> {
        self.register().hold()
    }

    /// Replaces the claim of `asker`. The claim is in force on return; an error says why it is not.
    pub fn claim(&self, asker: impl Into<Asker>, claim: &Claim) -> Result<(), String> {
        self.register().claim(asker.into(), claim)
    }

    /// Removes the claim of `asker`.
    pub fn withdraw(&self, asker: impl Into<Asker>) {
        let mut register = self.register();
        if register.claims.remove(&asker.into()).is_some()
            && let Err(reason) = register.tell()
        {
            register.notices.push(reason);
        }
    }

    pub fn needed(&self, asker: impl Into<Asker>) -> Needed {
        self.register().needed(&asker.into())
    }

    /// Parks CPUs once the grace period is over.
    pub fn look_after(&self) {
        self.register().look_after();
    }

    /// The claims, each with the part or process that made it.
    pub fn asked(&self) -> Vec<Asked> {
        let register = self.register();
        let open = register.open_to_all();
        register.claims.iter().flat_map(|(asker, (claim, since))| told(asker, claim, *since, &open)).collect()
    }

    /// Takes the notices since the last call.
    pub fn drain_notices(&self) -> Vec<String> {
        self.register().drain_notices()
    }

    /// Removes the claims of parts of this process; claims of leases stay. Returns one line for
    /// each thing that was put back.
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

#[derive(Debug)]
struct Register {
    lock: ArbiterLock,
    is_open: bool,
    claims: BTreeMap<Asker, (Claim, u64)>,
    /// Nothing is parked before this time.
    quiet_until: Option<Instant>,
    /// Opened when other tasks are moved for the first time.
    around: Option<CpuIsolation>,
    /// The placement of other tasks that is in force.
    told: Placement,
    /// Open while a claim wants CPUs offline.
    hotplug: Option<Hotplug>,
    /// Lines for [`ActiveCpus::release`].
    put_back: Vec<String>,
    notices: Vec<String>,
}

impl Register {
    fn hold(&mut self) -> Result<(), LockError> {
        if self.is_open {
            return Ok(());
        }
        self.lock.take()?;
        // The last holder may have been killed.
        self.notices.extend(restore_at_start(self.lock.root())?);
        if self.lock.is_inherited() || !needed_by_others(self.lock.root()).is_empty() {
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
        let concerns_others = !claim.scope.is_empty() || !claim.offline.0.is_empty();
        if *claim == Claim::default() {
            self.claims.remove(&asker);
        } else {
            self.claims.insert(asker, (claim.clone(), now_unix_s()));
        }
        // The claim stands in any case. An asker that wants other tasks to leave must know if they
        // did not.
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

    /// Parks CPUs once the grace period is over.
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

    /// The CPUs that are online, or would be if this process had taken none offline.
    fn there(&self) -> CpuList {
        CpuList(&crate::online_cpus(self.lock.root()).unwrap_or_default().0 | &self.taken().0)
    }

    fn open_to_all(&self) -> CpuList {
        open_to(&self.there(), self.claims.values().map(|(claim, _)| claim), |scope| !scope.is_empty())
    }

    /// Carries out the consequences of all claims. CPUs come back online before other tasks are
    /// sent there, and go offline after all tasks have left.
    fn tell(&mut self) -> Result<(), String> {
        let there = self.there();
        let claims = || self.claims.values().map(|(claim, _)| claim);
        let is_quiet = self.quiet_until.is_some();
        let going = if is_quiet { CpuList::default() } else { going(&there, claims()) };
        // If all CPUs are open, other tasks go back to their earlier place.
        let narrower = |cpus: CpuList| (cpus != there && !is_quiet).then_some(cpus);
        let now = Placement {
            all_tasks: narrower(open_to(&there, claims(), |scope| scope.all_tasks)),
            interrupts: narrower(open_to(&there, claims(), |scope| scope.interrupts)),
            isolated: narrower(open_to(&there, claims(), |scope| scope.isolated))
                .map(|open| CpuList(&there.0 - &open.0)),
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
                Hotplug::open(self.lock.root(), self.lock.name(), None).map_err(|error| error.to_string())?,
            ),
        };
        hotplug.keep_offline(going);
        Ok(())
    }

    /// Moves other tasks if their placement has changed.
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
                    CpuIsolation::open(self.lock.root(), self.lock.name())
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
        // Both end before the lock does, so that no other arbiter moves tasks while these changes
        // are in force. CPUs come back online first.
        self.hotplug = None;
        self.around = None;
        if self.is_open && self.claims.keys().all(|asker| asker.lease == 0) {
            self.lock.leave_clean();
        }
    }
}

/// A claim as `status` shows it: the active CPUs, and the CPUs that it could use and has left.
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
    if !claim.scope.is_empty() {
        let left = &claim.could.0 - &claim.active.0;
        parts.push((&left - &open.0, Wish::Parked, Wish::Parked));
        parts.push((&left & &open.0, Wish::Parked, Wish::Active));
    }
    let there = parts.into_iter().filter(|(cpus, ..)| !cpus.is_empty());
    there.map(|(cpus, wish, together)| asked(cpus, wish, together)).collect()
}

/// One epoch of most daemons and two of its looks: a living process has made its claim by then.
const GRACE: Duration = Duration::from_secs(3);
