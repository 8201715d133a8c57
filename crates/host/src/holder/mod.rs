//! Idle limits that several ask for: one process holds a CPU, and others ask it over its socket.
//!
//! The kernel has one slot per CPU for all of user space, so two programs that write it undo each other. Here the process that
//! came first holds the CPU's lock and writes; whoever comes second finds the lock taken, and in the lock's file the socket at
//! which its holder listens. What all of them ask of a CPU is combined as the kernel's own pm_qos does: the strictest wins. That every sleep be the deepest
//! ([`IdleLimit::Deepest`]) is a wish for power, and yields to anybody's bound on latency.
//!
//! ```text
//!   IdleHolder --- Own    (own.rs)     IdleControl + what everybody asks      run/roost/cpuN.lock
//!       |             '-- Listener     others ask here                        run/roost/holder-PROCESS-K.sock
//!       '--------- Lease  (lease.rs)   a connection to who holds the rest
//! ```
//!
//! A request is a line of JSON, `{"asker":"serve","cpu":3,"limit":{"exit_latency":2000}}` (nanoseconds, or `"none"`, `"deepest"`), and so is
//! the answer, a [`LimitState`]. It lasts as long as its connection: who ends, however it ends, asks for nothing any more.
//!
//! What always holds:
//! - What is in force on a CPU is the strictest of what is asked for and of the administrator's own. Withdrawing a request
//!   restores the combination of the rest, never a constant; a CPU of which nobody asks anything is as it was before us.
//! - When a holder ends, those who asked it take its CPUs themselves at the next [`IdleHolder::look_after`], and ask again for
//!   what they had.
//! - Only the holder's own user and root may ask: the socket's mode and the kernel's word on the peer both say so.

mod lease;
mod own;

use crate::cpuidle::idle_table;
use crate::idle_control::{IdleActuator, IdleOptions, LimitState};
use crate::journal::Checkpoint;
use crate::lock::LockError;
use crate::root::Root;
use lease::Lease;
use machine::{CpuId, CpuList, CstateTable, Duration, IdleLimit};
use own::Own;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A request to a holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    /// For people.
    asker: String,
    cpu: CpuId,
    limit: IdleLimit,
}

/// A line is no longer than this, either way.
const LINE_MAX: u64 = 1024;

/// What somebody asks of a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Of which.
    pub cpu: CpuId,
    /// Who.
    pub asker: String,
    /// What; never [`IdleLimit::None`].
    pub limit: IdleLimit,
}

/// The idle limits of some CPUs, on behalf of this process and of those who ask it. Everything is put back when it is dropped.
#[derive(Debug)]
pub struct IdleHolder {
    root: Root,
    name: String,
    actuator: IdleActuator,
    own: Vec<Own>,
    leases: Vec<Lease>,
    /// CPUs whose holder has ended, and that nobody has taken yet.
    lost: CpuList,
    /// What this process asks for.
    wishes: Wishes,
    notices: Vec<String>,
}

/// By CPU and asker.
type Wishes = BTreeMap<CpuId, BTreeMap<String, IdleLimit>>;

/// Notes that `asker` wants `limit` on `cpu`, and returns what all of them want together.
fn combine(wishes: &mut Wishes, asker: &str, cpu: CpuId, limit: IdleLimit) -> IdleLimit {
    let asked = wishes.entry(cpu).or_default();
    match limit {
        IdleLimit::None => asked.remove(asker),
        wish => asked.insert(asker.to_owned(), wish),
    };
    strictest(asked.values())
}

/// What serves everybody: the least latency that anybody asks for, and where nobody does, the deepest sleep.
fn strictest<'a>(asked: impl Iterator<Item = &'a IdleLimit>) -> IdleLimit {
    let rank = |limit: &&IdleLimit| match limit {
        IdleLimit::ExitLatency(latency) => (0, *latency),
        IdleLimit::Deepest => (1, Duration::ZERO),
        IdleLimit::None => (2, Duration::ZERO),
    };
    asked.min_by_key(rank).copied().unwrap_or(IdleLimit::None)
}

impl IdleHolder {
    /// Locks those of `cpus` that are free, and connects to who holds the others. An error names a holder that takes no
    /// requests, such as a bench.
    pub fn open(root: &Root, cpus: &CpuList, options: IdleOptions) -> Result<Self, LockError> {
        let mut holder = Self {
            root: root.clone(),
            name: options.holder.clone(),
            actuator: options.actuator,
            own: Vec::new(),
            leases: Vec::new(),
            lost: CpuList::default(),
            wishes: Wishes::new(),
            notices: Vec::new(),
        };
        holder.take(cpus, options.checkpoint)?;
        Ok(holder)
    }

    /// `asker`, a part of this process, asks for this limit on `cpu` instead of what it asked for before.
    pub fn limit(&mut self, asker: &str, cpu: CpuId, limit: IdleLimit) -> LimitState {
        let together = combine(&mut self.wishes, asker, cpu, limit);
        self.put(cpu, together)
    }

    /// `asker` asks for nothing any more.
    pub fn withdraw(&mut self, asker: &str) {
        let asked = |(&cpu, asked): (&CpuId, &BTreeMap<_, _>)| asked.contains_key(asker).then_some(cpu);
        for cpu in self.wishes.iter().filter_map(asked).collect::<Vec<_>>() {
            self.limit(asker, cpu, IdleLimit::None);
        }
    }

    /// Takes over from holders that have ended. To be called now and then: nobody else notices.
    pub fn look_after(&mut self) {
        let mut lost = std::mem::take(&mut self.lost);
        self.leases.retain(|lease| {
            let has_ended = lease.has_ended();
            if has_ended {
                lost.0.extend(&lease.cpus.0);
            }
            !has_ended
        });
        if lost.0.is_empty() {
            return;
        }
        match self.take(&lost, None) {
            Ok(()) => {
                self.notices.push(format!("CPU {lost}: their holder has ended, and they are taken over"));
                for cpu in lost.0 {
                    if let Some(asked) = self.wishes.get(&cpu).filter(|asked| !asked.is_empty()) {
                        let together = strictest(asked.values());
                        self.put(cpu, together);
                    }
                }
            }
            // Somebody is about to; ask again next time.
            Err(_) => self.lost = lost,
        }
    }

    /// The idle states of one of these CPUs; empty where the kernel has no cpuidle.
    pub fn table(&self, cpu: CpuId) -> CstateTable {
        idle_table(&self.root, cpu).unwrap_or_default()
    }

    /// What others ask of our CPUs.
    pub fn asked_by_others(&self) -> Vec<Asked> {
        self.own.iter().flat_map(Own::asked_by_others).collect()
    }

    /// What there is to say since the last call.
    pub fn drain_notices(&mut self) -> Vec<String> {
        let own = self.own.iter_mut().flat_map(Own::drain_notices).collect::<Vec<_>>();
        self.notices.drain(..).chain(own).collect()
    }

    /// Asks for nothing any more and puts everything back, one line per file; what others ask of us stays.
    pub fn release(&mut self) -> Vec<String> {
        for cpu in std::mem::take(&mut self.wishes).into_keys() {
            self.put(cpu, IdleLimit::None);
        }
        if self.asked_by_others().is_empty() {
            self.own.iter_mut().flat_map(Own::restore).collect()
        } else {
            Vec::new()
        }
    }

    /// Puts what this process wants of a CPU in force, or asks for it.
    fn put(&mut self, cpu: CpuId, limit: IdleLimit) -> LimitState {
        if let Some(own) = self.own.iter().find(|own| own.has(cpu)) {
            return own.limit(OURSELVES, cpu, limit);
        }
        let refused = |reason: String| LimitState::Refused { reason };
        match self.leases.iter_mut().find(|lease| lease.cpus.0.contains(&cpu)) {
            Some(lease) => {
                lease.ask(&Wish { asker: self.name.clone(), cpu, limit }).unwrap_or_else(|cause| {
                    refused(format!("{cpu} is held by {}, which does not answer: {cause}", lease.holder))
                })
            }
            None => refused(format!("{cpu} is not ours to limit")),
        }
    }

    /// Locks what is free, and connects to who holds the rest; all of it or nothing.
    fn take(&mut self, cpus: &CpuList, mut checkpoint: Option<Checkpoint>) -> Result<(), LockError> {
        let (mut free, mut held) = (cpus.clone(), Vec::new());
        let own = loop {
            if free.0.is_empty() {
                break None;
            }
            let options = IdleOptions {
                holder: self.name.clone(),
                actuator: self.actuator,
                // Locks come before changes: one that is refused here has not used it.
                checkpoint: if held.is_empty() { checkpoint.take() } else { None },
            };
            match Own::open(&self.root, &free, options) {
                Err(LockError::Held { cpu, holder, path }) => {
                    free.0.remove(&cpu);
                    held.push((cpu, holder, path));
                }
                other => break Some(other?),
            }
        };
        let mut leases: Vec<Lease> = Vec::new();
        for (cpu, holder, path) in held {
            let socket = lease::socket_beside(&path);
            if let Some(known) = leases.iter_mut().find(|lease| Some(&lease.socket) == socket.as_ref()) {
                known.cpus.0.insert(cpu);
                continue;
            }
            let lease = socket.and_then(|socket| Lease::open(socket, holder.clone(), cpu).ok());
            leases.push(lease.ok_or(LockError::Held { cpu, holder, path })?);
        }
        for lease in &leases {
            self.notices.push(format!(
                "CPU {}: held by {}, which is asked for idle limits",
                lease.cpus, lease.holder
            ));
        }
        self.own.extend(own);
        self.leases.extend(leases);
        Ok(())
    }
}

/// How this process's own wish is called among those of others, whose names carry a number.
const OURSELVES: &str = "this process";

#[cfg(test)]
mod tests;
