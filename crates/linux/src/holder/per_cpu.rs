//! A knob of some CPUs, on behalf of this process and of those who ask it: held where it was free, asked for where it was not.

use super::desk::{Desk, Held, Who};
use super::laws::Wishes;
use super::lease::{Lease, socket_beside};
use super::wire::{Answer, Ask};
use super::{Asked, Backoff, Wish, grouped, now_unix_s};
use crate::lock::LockError;
use crate::root::Root;
use machine::{CpuId, CpuList};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

/// Something that each CPU has one of, and that several want set.
pub trait Knob: fmt::Debug + Sized + Send + 'static {
    /// What one may want.
    type Limit: Copy + PartialEq + fmt::Debug + Send;
    /// What became of it.
    type State;
    /// By what it is set.
    type Means: Copy + fmt::Debug;
    /// Why it cannot be held.
    type Error: From<LockError>;

    /// As people call it.
    const NAME: &str;

    /// Locks these CPUs for `name`.
    fn open(root: &Root, cpus: &CpuList, name: &str, means: Self::Means) -> Result<Self, Self::Error>;
    /// Who has which CPU's lock, if that is the error.
    fn taken(error: Self::Error) -> Result<Taken, Self::Error>;
    /// Adds a line to the locks' files.
    fn announce(&mut self, line: &str);
    /// Sets what all want of this CPU together; `None`: nobody wants anything.
    fn put(&mut self, cpu: CpuId, limit: Option<Self::Limit>) -> Self::State;
    /// What serves all who have a say; `None` if nobody has.
    fn together(asked: impl Iterator<Item = Self::Limit>) -> Option<Self::Limit>;
    /// What a limit is for who sets it; `None` if it means to have no say.
    fn say(limit: Self::Limit) -> Option<Self::Limit>;
    /// For who asks over a socket.
    fn ask(cpu: CpuId, limit: Option<Self::Limit>) -> Ask;
    /// And back; `None` if something else is asked.
    fn asked(ask: Ask) -> Option<(CpuId, Option<Self::Limit>)>;
    /// For who asked over a socket.
    fn answer(state: Self::State) -> Answer;
    /// And back.
    fn state(answer: Answer) -> Self::State;
    /// It is not set.
    fn refused(reason: String) -> Self::State;
    /// True if so.
    fn is_refused(state: &Self::State) -> bool;
    /// For who wants to know.
    fn wish(limit: Self::Limit) -> Wish;
    /// What there is to say since the last call.
    fn drain_notices(&mut self) -> Vec<String>;
    /// Everything back, one line per file.
    fn restore(&mut self) -> Vec<String>;
}

/// A lock that another process has.
#[derive(Debug)]
pub struct Taken {
    /// Of which CPU.
    pub cpu: CpuId,
    /// As it calls itself.
    pub holder: String,
    /// The lock's file.
    pub path: PathBuf,
}

/// A knob of some CPUs. Everything is put back when it is dropped.
#[derive(Debug)]
pub struct Holder<K: Knob> {
    pub(super) root: Root,
    pub(super) name: String,
    means: K::Means,
    pub(super) own: Vec<Own<K>>,
    pub(super) leases: Vec<(CpuList, Lease)>,
    /// CPUs whose holder has ended, and that nobody has taken yet.
    lost: CpuList,
    /// Who holds those does not answer, and is not asked all the time.
    backoff: Backoff,
    /// What the parts of this process ask for.
    wishes: Wishes<String, K::Limit>,
    notices: Vec<String>,
}

impl<K: Knob> Holder<K> {
    /// Locks those of `cpus` that are free, and connects to who holds the others. An error names a holder that takes no
    /// requests, such as a bench.
    pub fn open(root: &Root, cpus: &CpuList, name: &str, means: K::Means) -> Result<Self, K::Error> {
        let mut holder = Self {
            root: root.clone(),
            name: name.to_owned(),
            means,
            own: Vec::new(),
            leases: Vec::new(),
            lost: CpuList::default(),
            backoff: Backoff::default(),
            wishes: Wishes::default(),
            notices: Vec::new(),
        };
        holder.take(cpus)?;
        Ok(holder)
    }

    /// These CPUs as well.
    pub fn extend(&mut self, cpus: &CpuList) -> Result<(), K::Error> {
        let known = |cpu: &&CpuId| {
            self.own.iter().any(|own| own.cpus.0.contains(cpu))
                || self.leases.iter().any(|(cpus, _)| cpus.0.contains(cpu))
                || self.lost.0.contains(cpu)
        };
        let new = CpuList(cpus.0.iter().filter(|cpu| !known(cpu)).copied().collect());
        if new.0.is_empty() { Ok(()) } else { self.take(&new) }
    }

    /// `asker`, a part of this process, asks for this limit on `cpu` instead of what it asked for before.
    pub fn limit(&mut self, asker: &str, cpu: CpuId, limit: K::Limit) -> K::State {
        self.wishes.set(&asker.to_owned(), cpu, K::say(limit), now_unix_s());
        self.put(cpu)
    }

    /// `asker` has no say any more.
    pub fn withdraw(&mut self, asker: &str) {
        for (cpu, asker) in self.wishes.cpus_of(|who| who == asker) {
            self.wishes.set(&asker, cpu, None, 0);
            self.put(cpu);
        }
    }

    /// Takes over from holders that have ended. To be called now and then: nobody else notices.
    pub fn look_after(&mut self) {
        let (lost, backoff) = (&mut self.lost, &mut self.backoff);
        self.leases.retain(|(cpus, lease)| {
            let has_ended = lease.has_ended();
            if has_ended {
                lost.0.extend(&cpus.0);
                if lease.hangs {
                    backoff.wait();
                }
            }
            !has_ended
        });
        if self.lost.0.is_empty() || self.backoff.is_waiting() {
            return;
        }
        let lost = std::mem::take(&mut self.lost);
        match self.take(&lost) {
            Ok(()) => {
                self.notices.push(format!(
                    "CPU {lost}: the holder of their {} has gone, and they are seen to anew",
                    K::NAME
                ));
                for cpu in self.wishes.cpus().into_iter().filter(|cpu| lost.0.contains(cpu)) {
                    self.put(cpu);
                }
            }
            // Somebody is about to; ask again next time.
            Err(_) => self.lost = lost,
        }
    }

    /// Each readable when a process that is asked ends: then it is time for [`Self::look_after`].
    pub fn bells(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.leases.iter().map(|(_, lease)| lease.bell())
    }

    /// True while the holder of some CPU has gone and nobody has taken it: then [`Self::look_after`] is to be called soon again.
    pub fn is_waiting(&self) -> bool {
        !self.lost.0.is_empty()
    }

    /// The CPUs in which `asker` has a say.
    pub fn cpus_of(&self, asker: &str) -> CpuList {
        CpuList(self.wishes.cpus_of(|who| who == asker).into_iter().map(|(cpu, _)| cpu).collect())
    }

    /// Who asks for what, of the CPUs that are held here and of those that are asked for elsewhere.
    pub fn asked(&self) -> Vec<Asked> {
        let mut all = Vec::new();
        for (cpu, part, limit, since) in self.wishes.iter() {
            let own = self.own.iter().find(|own| own.cpus.0.contains(&cpu));
            let elsewhere = self.leases.iter().find(|(cpus, _)| cpus.0.contains(&cpu));
            all.push(Asked {
                cpus: CpuList([cpu].into()),
                asker: part.clone(),
                process: std::process::id(),
                wish: K::wish(limit),
                since_unix_s: since,
                together: own.and_then(|own| own.together(cpu)).map(K::wish),
                held_by: elsewhere.map(|(_, lease)| lease.holder.clone()),
            });
        }
        all.extend(self.own.iter().flat_map(Own::asked_by_others));
        grouped(all)
    }

    /// What others ask of the CPUs that are held here.
    pub fn asked_by_others(&self) -> Vec<Asked> {
        grouped(self.own.iter().flat_map(Own::asked_by_others).collect())
    }

    /// What there is to say since the last call.
    pub fn drain_notices(&mut self) -> Vec<String> {
        let own = self.own.iter().flat_map(|own| own.desk.held().drain_notices()).collect::<Vec<_>>();
        self.notices.drain(..).chain(own).collect()
    }

    /// Asks for nothing any more and puts everything back, one line per file; what others ask of us stays.
    pub fn release(&mut self) -> Vec<String> {
        let asked = self.wishes.cpus();
        self.wishes = Wishes::default();
        for cpu in asked {
            self.put(cpu);
        }
        if self.asked_by_others().is_empty() {
            self.own.iter().flat_map(|own| own.desk.held().restore()).collect()
        } else {
            Vec::new()
        }
    }

    /// Each knob that is held here, for what only its holder can do.
    pub(super) fn each_own<T>(&self, mut of: impl FnMut(&mut K) -> T) -> Vec<T> {
        self.own.iter().filter_map(|own| own.desk.held().knob.as_mut().map(&mut of)).collect()
    }

    /// Puts what this process wants of a CPU in force, or asks for it.
    fn put(&mut self, cpu: CpuId) -> K::State {
        let limit = K::together(self.wishes.of(cpu));
        if let Some(own) = self.own.iter().find(|own| own.cpus.0.contains(&cpu)) {
            return own.desk.held().limit(&Who::ourselves(&self.name), cpu, limit);
        }
        match self.leases.iter_mut().find(|(cpus, _)| cpus.0.contains(&cpu)) {
            Some((_, lease)) => match lease.ask(K::ask(cpu, limit)) {
                Ok(answer) => {
                    self.backoff = Backoff::default();
                    K::state(answer)
                }
                Err(cause) => {
                    K::refused(format!("{cpu} is held by {}, which does not answer: {cause}", lease.holder))
                }
            },
            None if self.lost.0.contains(&cpu) => {
                K::refused(format!("the holder of {cpu} has gone or does not answer; it is asked again soon"))
            }
            None => K::refused(format!("{cpu} is not ours to limit")),
        }
    }

    /// Locks what is free, and connects to who holds the rest; all of it or nothing.
    fn take(&mut self, cpus: &CpuList) -> Result<(), K::Error> {
        let (mut free, mut held) = (cpus.clone(), Vec::new());
        let own = loop {
            if free.0.is_empty() {
                break None;
            }
            match K::open(&self.root, &free, &self.name, self.means) {
                Ok(knob) => break Some(Own::open(&self.root, &free, knob)?),
                Err(error) => {
                    let taken = K::taken(error)?;
                    free.0.remove(&taken.cpu);
                    held.push(taken);
                }
            }
        };
        let mut leases: Vec<(CpuList, Lease)> = Vec::new();
        for Taken { cpu, holder, path } in held {
            let socket = socket_beside(&path);
            if let Some((cpus, _)) =
                leases.iter_mut().find(|(_, lease)| Some(&lease.socket) == socket.as_ref())
            {
                cpus.0.insert(cpu);
                continue;
            }
            let lease = socket.and_then(|socket| Lease::open(socket, holder.clone(), &self.name).ok());
            let Some(lease) = lease else { return Err(LockError::Held { cpu, holder, path }.into()) };
            leases.push((CpuList([cpu].into()), lease));
        }
        for (cpus, lease) in &leases {
            self.notices.push(format!(
                "CPU {cpus}: held by {}, which is asked for {}",
                lease.holder,
                K::NAME
            ));
        }
        self.own.extend(own);
        self.leases.extend(leases);
        Ok(())
    }
}

/// CPUs that this process holds.
#[derive(Debug)]
pub(super) struct Own<K: Knob> {
    pub(super) cpus: CpuList,
    pub(super) desk: Desk<Shared<K>>,
}

/// What all threads of this process change.
#[derive(Debug)]
pub(super) struct Shared<K: Knob> {
    cpus: CpuList,
    /// `None`: it has ended, and its CPUs are another's.
    pub(super) knob: Option<K>,
    wishes: Wishes<Who, K::Limit>,
}

impl<K: Knob> Own<K> {
    fn open(root: &Root, cpus: &CpuList, knob: K) -> Result<Self, LockError> {
        let shared = Shared { cpus: cpus.clone(), knob: Some(knob), wishes: Wishes::default() };
        let desk = Desk::open(root, shared, |shared, line| {
            shared.knob.iter_mut().for_each(|knob| knob.announce(line));
        })?;
        Ok(Self { cpus: cpus.clone(), desk })
    }

    fn together(&self, cpu: CpuId) -> Option<K::Limit> {
        K::together(self.desk.held().wishes.of(cpu))
    }

    fn asked_by_others(&self) -> Vec<Asked> {
        let held = self.desk.held();
        let others = held.wishes.iter().filter(|(_, who, ..)| who.connection != 0);
        let asked = others.map(|(cpu, who, limit, since)| Asked {
            cpus: CpuList([cpu].into()),
            asker: who.name.clone(),
            process: who.process,
            wish: K::wish(limit),
            since_unix_s: since,
            together: K::together(held.wishes.of(cpu)).map(K::wish),
            held_by: None,
        });
        asked.collect()
    }
}

impl<K: Knob> Shared<K> {
    fn limit(&mut self, who: &Who, cpu: CpuId, limit: Option<K::Limit>) -> K::State {
        let Some(knob) = &mut self.knob else {
            return K::refused("its holder is about to end".to_owned());
        };
        if !self.cpus.0.contains(&cpu) {
            return K::refused(format!("{cpu} is not held here"));
        }
        let before = self.wishes.by(who, cpu);
        self.wishes.set(who, cpu, limit, now_unix_s());
        let state = knob.put(cpu, K::together(self.wishes.of(cpu)));
        if K::is_refused(&state) && limit.is_some() {
            // Else what cannot be had would stand in the way of what the others ask for.
            self.wishes.set(who, cpu, before, now_unix_s());
            knob.put(cpu, K::together(self.wishes.of(cpu)));
        }
        state
    }

    fn drain_notices(&mut self) -> Vec<String> {
        self.knob.as_mut().map(K::drain_notices).unwrap_or_default()
    }

    fn restore(&mut self) -> Vec<String> {
        self.knob.as_mut().map(K::restore).unwrap_or_default()
    }
}

impl<K: Knob> Held for Shared<K> {
    fn hear(&mut self, who: &Who, ask: Ask) -> Answer {
        match K::asked(ask) {
            Some((cpu, limit)) => {
                // A peer may call itself something else each time; it has one say.
                let before = self.wishes.cpus_of(|known| known.connection == who.connection && known != who);
                for (of, who) in before.into_iter().filter(|(of, _)| *of == cpu) {
                    self.wishes.set(&who, of, None, 0);
                }
                K::answer(self.limit(who, cpu, limit))
            }
            None => Answer::Refused(format!("this socket is for {}", K::NAME)),
        }
    }

    fn forget(&mut self, connection: u64) {
        for (cpu, who) in self.wishes.cpus_of(|who| who.connection == connection) {
            self.limit(&who, cpu, None);
        }
    }

    fn end(&mut self) {
        self.knob = None;
    }
}
