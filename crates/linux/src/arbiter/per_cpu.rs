//! A knob of which each CPU has one. This process holds it and sets it to the combination of all
//! requests.

use super::arbiter_lock::{ArbiterLock, yields};
use super::laws::Wishes;
use super::{Asked, Asker, Wish, grouped, now_unix_s};
use crate::lock::LockError;
use crate::root::Root;
use machine::{CpuId, CpuList};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A knob of which each CPU has one, and that several askers want set.
pub trait Knob: fmt::Debug + Sized + Send + 'static {
    /// The content of a request.
    type Limit: Copy + PartialEq + fmt::Debug + Send;
    /// The result of setting the knob.
    type State;
    /// The interface that sets the knob.
    type Means: Copy + Default + PartialEq + fmt::Debug + Send;
    /// The reason why the knob cannot be held.
    type Error: From<LockError>;

    /// The name in messages.
    const NAME: &str;

    /// True if CPUs are held all at once or not at all, because some of them share one knob.
    const IS_SHARED: bool;

    /// Locks these CPUs for `name`.
    fn open(root: &Root, cpus: &CpuList, name: &str, means: Self::Means) -> Result<Self, Self::Error>;
    /// The lock that another process has, if that is the error.
    fn taken(error: Self::Error) -> Result<Taken, Self::Error>;
    /// Sets the combined limit of this CPU; `None`: no request is left.
    fn put(&mut self, cpu: CpuId, limit: Option<Self::Limit>) -> Self::State;
    /// The combination of all requests; `None` without any.
    fn together(asked: impl Iterator<Item = Self::Limit>) -> Option<Self::Limit>;
    /// The limit as a request; `None` if it withdraws the request.
    fn say(limit: Self::Limit) -> Option<Self::Limit>;
    /// The state of a limit that is not set.
    fn refused(reason: String) -> Self::State;
    fn is_refused(state: &Self::State) -> bool;
    /// The limit as `status` shows it.
    fn wish(limit: Self::Limit) -> Wish;
    /// Takes the notices since the last call.
    fn drain_notices(&mut self) -> Vec<String>;
    /// Puts everything back, and returns one line per file.
    fn restore(&mut self) -> Vec<String>;
}

/// A lock that another process has.
#[derive(Debug)]
pub struct Taken {
    pub cpu: CpuId,
    /// The name that the holder gave.
    pub holder: String,
    pub path: PathBuf,
}

/// One knob of some CPUs, for all parts of this process. Clones of this handle share one state.
/// Dropping the last clone puts everything back.
#[derive(Debug)]
pub struct Shared<K: Knob>(Arc<Inner<K>>);

impl<K: Knob> Clone for Shared<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<K: Knob> {
    lock: ArbiterLock,
    /// Held while locks are taken, which takes long. `held` is locked for the time of one change
    /// only.
    taking: Mutex<()>,
    held: Mutex<Held<K>>,
}

#[derive(Debug)]
pub(super) struct Held<K: Knob> {
    means: K::Means,
    own: Vec<(CpuList, K)>,
    /// CPUs whose holder is about to release them.
    pending: CpuList,
    /// The CPUs that are held for each asker.
    holds: BTreeMap<Asker, CpuList>,
    wishes: Wishes<Asker, K::Limit>,
    notices: Vec<String>,
}

impl<K: Knob> Shared<K> {
    pub(super) fn new(lock: ArbiterLock) -> Self {
        Self::with_means(lock, K::Means::default())
    }

    pub(super) fn with_means(lock: ArbiterLock, means: K::Means) -> Self {
        let held = Held {
            means,
            own: Vec::new(),
            pending: CpuList::default(),
            holds: BTreeMap::new(),
            wishes: Wishes::default(),
            notices: Vec::new(),
        };
        Self(Arc::new(Inner { lock, taking: Mutex::default(), held: Mutex::new(held) }))
    }

    /// Locks these CPUs as well, all of them or none, for `asker` until [`Self::withdraw`]. CPUs
    /// whose holder yields are pending. The error names the process that holds a CPU.
    pub fn hold(&self, asker: impl Into<Asker>, cpus: &CpuList) -> Result<(), K::Error> {
        let _taking = self.taking();
        self.0.lock.take()?;
        let (all, means) = {
            let held = self.held();
            (held.cpus(), held.means)
        };
        if !cpus.0.is_subset(&all.0) {
            if K::IS_SHARED && !all.0.is_empty() {
                self.hold_anew(&CpuList(&all.0 | &cpus.0), means)?;
            } else {
                let taken = self.take(&CpuList(&cpus.0 - &all.0), means)?;
                self.held().keep(taken);
            }
        }
        self.held().holds.entry(asker.into()).or_default().0.extend(&cpus.0);
        Ok(())
    }

    /// Sets the knob through another interface from now on: the limits in force are put back and
    /// set anew. If the new interface cannot be had, the old one is used again.
    pub fn use_means(&self, means: K::Means) -> Result<(), K::Error> {
        let _taking = self.taking();
        let (cpus, before) = {
            let held = self.held();
            (held.cpus(), held.means)
        };
        if before == means {
            return Ok(());
        }
        if cpus.0.is_empty() {
            self.held().means = means;
            return Ok(());
        }
        self.hold_anew(&cpus, means)
    }

    /// True if all of these CPUs are held or pending.
    pub fn is_for(&self, cpus: &CpuList) -> bool {
        cpus.0.is_subset(&self.held().cpus().0)
    }

    /// Replaces the request of `asker` for `cpu`.
    pub fn limit(&self, asker: impl Into<Asker>, cpu: CpuId, limit: K::Limit) -> K::State {
        self.held().limit(&asker.into(), cpu, K::say(limit))
    }

    /// Withdraws all requests of `asker`, and holds no CPU for it.
    pub fn withdraw(&self, asker: impl Into<Asker>) {
        let asker = asker.into();
        let mut held = self.held();
        for (cpu, asker) in held.wishes.cpus_of(|known| *known == asker) {
            held.limit(&asker, cpu, None);
        }
        held.holds.remove(&asker);
        let still: CpuList = CpuList(held.holds.values().flat_map(|cpus| cpus.0.iter().copied()).collect());
        let mut gone = Vec::new();
        held.own.retain_mut(|(cpus, knob)| {
            let stays = !cpus.0.is_disjoint(&still.0);
            if !stays {
                gone.extend(knob.drain_notices());
            }
            stays
        });
        held.pending.0.retain(|cpu| still.0.contains(cpu));
        held.notices.extend(gone);
    }

    /// Takes CPUs that their holder has released, and sets their requests.
    pub fn look_after(&self) {
        if !self.is_waiting() {
            return;
        }
        let _taking = self.taking();
        let (pending, means) = {
            let mut held = self.held();
            (std::mem::take(&mut held.pending), held.means)
        };
        match self.take(&pending, means) {
            Ok(taken) => {
                let mut held = self.held();
                let now = taken.own.iter().flat_map(|(cpus, _)| cpus.0.iter().copied()).collect::<Vec<_>>();
                held.keep(taken);
                held.put_all(|cpu| now.contains(&cpu));
            }
            // Another process was quicker. The next call tries again.
            Err(_) => self.held().pending.0.extend(pending.0),
        }
    }

    /// True while CPUs are pending.
    pub fn is_waiting(&self) -> bool {
        !self.held().pending.0.is_empty()
    }

    /// True if the holder of this CPU is about to release it. The requests are set then.
    pub fn is_pending(&self, cpu: CpuId) -> bool {
        self.held().pending.0.contains(&cpu)
    }

    /// The CPUs for which `asker` has a request.
    pub fn cpus_of(&self, asker: impl Into<Asker>) -> CpuList {
        let asker = asker.into();
        let cpus = self.held().wishes.cpus_of(|known| *known == asker);
        CpuList(cpus.into_iter().map(|(cpu, _)| cpu).collect())
    }

    pub fn asked(&self) -> Vec<Asked> {
        let held = self.held();
        let asked = held.wishes.iter().map(|(cpu, asker, limit, since_unix_s)| Asked {
            cpus: CpuList([cpu].into()),
            asker: asker.name.clone(),
            process: asker.process,
            wish: K::wish(limit),
            since_unix_s,
            together: K::together(held.wishes.of(cpu))
                .filter(|_| !held.pending.0.contains(&cpu))
                .map(K::wish),
        });
        grouped(asked)
    }

    /// Takes the notices since the last call.
    pub fn drain_notices(&self) -> Vec<String> {
        let mut held = self.held();
        let own: Vec<String> = held.own.iter_mut().flat_map(|(_, knob)| knob.drain_notices()).collect();
        held.notices.drain(..).chain(own).collect()
    }

    /// Withdraws all requests, puts everything back, and returns one line per file.
    pub fn release(&self) -> Vec<String> {
        let mut held = self.held();
        for cpu in held.wishes.cpus() {
            for (_, asker) in held.wishes.cpus_of(|_| true).into_iter().filter(|(of, _)| *of == cpu) {
                held.limit(&asker, cpu, None);
            }
        }
        held.own.iter_mut().flat_map(|(_, knob)| knob.restore()).collect()
    }

    /// Withdraws the requests of `asker`, and returns the lines only if there is no other asker.
    pub fn release_of(&self, asker: impl Into<Asker>) -> Vec<String> {
        let asker = asker.into();
        let is_last = self.held().wishes.iter().all(|(_, known, ..)| *known == asker);
        let lines = if is_last { self.release() } else { Vec::new() };
        self.withdraw(asker);
        lines
    }

    pub(super) fn lock(&self) -> &ArbiterLock {
        &self.0.lock
    }

    /// After a panic in one thread the others can go on: each change is one call.
    pub(super) fn held(&self) -> MutexGuard<'_, Held<K>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Self::held`], for a thread that must not sleep.
    pub(super) fn held_soon(&self) -> MutexGuard<'_, Held<K>> {
        crate::lock_spinning(&self.0.held)
    }

    fn taking(&self) -> MutexGuard<'_, ()> {
        self.0.taking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds all of `cpus` at once through `means`. If that fails, holds the earlier CPUs again.
    fn hold_anew(&self, cpus: &CpuList, means: K::Means) -> Result<(), K::Error> {
        let (gone, before) = {
            let mut held = self.held();
            let before = (held.cpus(), held.means);
            held.pending = CpuList::default();
            (std::mem::take(&mut held.own), before)
        };
        // Dropped before the locks are taken again.
        drop(gone);
        let (taken, error) = match self.take(cpus, means) {
            Ok(taken) => (Ok((taken, means)), None),
            Err(error) => (self.take(&before.0, before.1).map(|taken| (taken, before.1)), Some(error)),
        };
        let mut held = self.held();
        if let Ok((taken, means)) = taken {
            held.keep(taken);
            held.means = means;
            held.put_all(|_| true);
        }
        error.map_or(Ok(()), Err)
    }

    /// Locks the CPUs that are free. The error names a process that holds one and does not yield
    /// it.
    fn take(&self, cpus: &CpuList, means: K::Means) -> Result<Locked<K>, K::Error> {
        let lock = &self.0.lock;
        let (mut free, mut pending) = (cpus.clone(), Vec::new());
        let own = loop {
            if free.0.is_empty() {
                break None;
            }
            match K::open(lock.root(), &free, lock.name(), means) {
                Ok(knob) => break Some((free, knob)),
                Err(error) => {
                    let taken = K::taken(error)?;
                    if !yields(&taken.path) {
                        let Taken { cpu, holder, path } = taken;
                        return Err(LockError::Held { cpu, holder, path }.into());
                    }
                    free.0.remove(&taken.cpu);
                    pending.push(taken);
                }
            }
        };
        Ok(Locked { own, pending })
    }
}

/// The locked CPUs, and the CPUs of processes that yield.
struct Locked<K> {
    own: Option<(CpuList, K)>,
    pending: Vec<Taken>,
}

impl<K: Knob> Held<K> {
    /// CPUs that are held or pending.
    fn cpus(&self) -> CpuList {
        let own = self.own.iter().flat_map(|(cpus, _)| cpus.0.iter());
        CpuList(own.chain(&self.pending.0).copied().collect())
    }

    /// The knob of this CPU, if it is held.
    pub(super) fn knob(&mut self, cpu: CpuId) -> Option<&mut K> {
        self.own.iter_mut().find(|(cpus, _)| cpus.0.contains(&cpu)).map(|(_, knob)| knob)
    }

    pub(super) fn knobs(&mut self) -> impl Iterator<Item = &mut K> {
        self.own.iter_mut().map(|(_, knob)| knob)
    }

    fn keep(&mut self, taken: Locked<K>) {
        self.own.extend(taken.own);
        for Taken { cpu, holder, .. } in taken.pending {
            let notice = format!("{cpu}: {} are held by {holder}, which lets go", K::NAME);
            self.notices.push(notice);
            self.pending.0.insert(cpu);
        }
    }

    fn put_all(&mut self, is: impl Fn(CpuId) -> bool) {
        for cpu in self.wishes.cpus().into_iter().filter(|&cpu| is(cpu)) {
            self.put(cpu);
        }
    }

    fn put(&mut self, cpu: CpuId) -> K::State {
        let limit = K::together(self.wishes.of(cpu));
        match self.knob(cpu) {
            Some(knob) => knob.put(cpu, limit),
            None => K::refused(format!("{cpu} is not ours to limit")),
        }
    }

    fn limit(&mut self, asker: &Asker, cpu: CpuId, limit: Option<K::Limit>) -> K::State {
        let before = self.wishes.by(asker, cpu);
        self.wishes.set(asker, cpu, limit, now_unix_s());
        if self.pending.0.contains(&cpu) {
            return K::refused(format!("{cpu}: its holder is about to let go of it"));
        }
        let state = self.put(cpu);
        if K::is_refused(&state) && limit.is_some() {
            // A limit that cannot be set must not stand in the way of other requests.
            self.wishes.set(asker, cpu, before, now_unix_s());
            self.put(cpu);
        }
        state
    }
}
