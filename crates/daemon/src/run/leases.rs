//! Leases: what another command has this daemon govern, for as long as its connection lasts.
//!
//! Terms.
//! - *lease*: services and controllers that came over one connection to the control socket.
//! - *own users*: root and the daemon's user; they may have any process governed.
//! - *listed users*: `users` of the configuration; they may have their own processes governed.
//!
//! Properties:
//! - A lease is granted when all of it has taken hold, and else leaves nothing behind.
//! - However its command ends, its connection closes, and what the rest wants is in force then.
//! - A name that is governed already, and a process of another user, is refused.

use super::{Answer, Asker, Daemon, FIRST_WAIT, Lease, Owner, Part, Reply, ServiceConfig};
use crate::controllers::{Hosted, Refusal, Table};
use linux::Root;
use linux::freezer::processes_of;
use std::collections::BTreeSet;

impl Daemon {
    /// What asked for something, for people.
    pub(super) fn owner(&self, owner: Owner) -> String {
        match owner {
            Owner::Config => super::Running::of(std::process::id()).to_string(),
            Owner::Lease(lease) => {
                self.leases.get(&lease).map_or_else(String::new, |lease| lease.asker.to_string())
            }
        }
    }

    /// Takes up a lease, or says why not.
    pub(super) fn lease(&mut self, part: Part, reply: Reply) {
        let (lease, asker) = (reply.lease(), reply.asker());
        if let Err(refusal) = self.admitted(&part, asker) {
            return reply.send(Answer::NotLeased(refusal));
        }
        let tables = part.tables();
        let (names, services) = (part.names(), part.services.clone());
        self.say(&format!("{}: governed for {asker} while it is connected", names.join(", ")));
        self.leases.insert(lease, Lease { part, asker, pending: None });
        for table in &tables {
            self.controllers.push(Hosted::new(table.clone(), Owner::Lease(lease)));
        }
        if let Err(refusal) = self.take_services(services, lease) {
            self.end_lease(lease, &refusal.message);
            return reply.send(Answer::NotLeased(refusal));
        }
        if tables.is_empty() {
            return reply.send(Answer::Leased(names));
        }
        if let Some(kept) = self.leases.get_mut(&lease) {
            kept.pending = Some((reply, tables.len()));
        }
    }

    fn take_services(&mut self, services: Vec<ServiceConfig>, lease: u64) -> Result<(), Refusal> {
        let refused = |error| Refusal::from(error);
        let before = self.config.clone();
        for service in services {
            self.config.services.push(service.clone());
            self.hold().map_err(refused)?;
            let clocks =
                super::knobs::wanted_clocks(&self.root, &self.config, &self.cpus_there()).map_err(refused)?;
            if self.clocks.as_ref().is_some_and(|held| !held.is_for(&clocks)) {
                self.hold_clocks_anew(&before);
            } else {
                self.hold_clocks().map_err(refused)?;
            }
            self.hold_park().map_err(refused)?;
            match self.opened(service, Owner::Lease(lease)) {
                Err(not_there) => return Err(super::StartError::from(not_there.error).into()),
                found => {
                    let slot = self.slot_of(found, FIRST_WAIT);
                    self.slots.push(slot);
                }
            }
        }
        Ok(())
    }

    /// One more of its controllers has taken hold.
    pub(super) fn has_taken_hold(&mut self, lease: u64) {
        let Some(kept) = self.leases.get_mut(&lease) else { return };
        match kept.pending.take() {
            Some((reply, 1)) => reply.send(Answer::Leased(kept.part.names())),
            Some((reply, left)) => kept.pending = Some((reply, left - 1)),
            None => {}
        }
    }

    /// One of its controllers is not to be had, or has ended.
    pub(super) fn refuse_lease(&mut self, lease: u64, refusal: Refusal) {
        let reply = self.leases.get_mut(&lease).and_then(|kept| kept.pending.take());
        match reply {
            Some((reply, _)) => {
                self.end_lease(lease, &refusal.message);
                reply.send(Answer::NotLeased(refusal));
            }
            // It runs on in `status` as withdrawn, until its command ends.
            None => {
                for hosted in self.controllers.iter_mut().filter(|one| one.owner == Owner::Lease(lease)) {
                    hosted.withdraw(refusal.message.clone());
                }
            }
        }
    }

    /// Lets go of all that came over that connection.
    pub(super) fn end_lease(&mut self, lease: u64, why: &str) {
        let Some(kept) = self.leases.remove(&lease) else { return };
        let names = kept.part.names();
        let owner = Owner::Lease(lease);
        self.drop_controllers(|hosted| hosted.owner == owner);
        let (gone, rest) = std::mem::take(&mut self.slots).into_iter().partition(|slot| slot.owner == owner);
        self.slots = rest;
        let gone: Vec<super::Slot> = gone;
        gone.into_iter().for_each(|slot| self.let_go(slot));
        self.config.services.retain(|service| !kept.part.services.contains(service));
        let why = why.lines().next().unwrap_or_default();
        self.say(&format!("{}: let go, {why}", names.join(", ")));
    }

    fn admitted(&self, part: &Part, asker: Asker) -> Result<(), Refusal> {
        if part.is_empty() {
            return Err(Refusal::usage("nothing is named that could be governed"));
        }
        let is_own = asker.user == 0 || asker.user == rustix::process::geteuid().as_raw();
        if !is_own && !self.config.users.contains(&asker.user) {
            return Err(Refusal::held(format!(
                "user {} may have nothing governed\nhint: use sudo, or add it to users in the daemon's \
                 configuration",
                asker.user
            )));
        }
        for table in part.tables() {
            table.check()?;
        }
        let held = |name: &String| {
            let slot = self.slots.iter().find(|slot| slot.config.name == *name).map(|slot| slot.owner);
            let hosted = self.controllers.iter().find(|hosted| hosted.table.name() == *name);
            slot.or(hosted.map(|hosted| hosted.owner))
        };
        if let Some((name, owner)) = part.names().iter().find_map(|name| Some((name.clone(), held(name)?))) {
            return Err(Refusal::held(format!("{name} is governed already, by {}", self.owner(owner))));
        }
        for service in &part.services {
            let found = service.target.find(&self.root).map_err(Refusal::usage)?;
            for slot in &self.slots {
                if let super::State::Governed { governed, .. } = &slot.state
                    && !governed.processes().is_disjoint(&found.processes)
                {
                    let (name, owner) = (&slot.config.name, self.owner(slot.owner));
                    return Err(Refusal::held(format!("{name} is governed already, by {owner}")));
                }
            }
        }
        if is_own { Ok(()) } else { owned_by(&self.root, part, asker.user) }
    }
}

/// Refuses processes of other users.
fn owned_by(root: &Root, part: &Part, user: u32) -> Result<(), Refusal> {
    let mut processes: BTreeSet<u32> = BTreeSet::new();
    for service in &part.services {
        processes.extend(service.target.find(root).map_err(Refusal::usage)?.processes);
    }
    for table in part.tables() {
        match table {
            Table::Quiesce(config) => {
                for unit in config.critical.iter().chain(&config.background) {
                    processes.extend(processes_of(root, unit).map_err(Refusal::usage)?);
                }
            }
            Table::HurryUp(config) => match config.pid {
                Some(pid) => processes.extend([pid]),
                None => return Err(Refusal::usage("name the process with --pid: it must be your own")),
            },
            Table::Wake(_) => {
                return Err(Refusal::held("the planner of wake-ups is for all users: it is root's to start"));
            }
        }
    }
    use std::os::unix::fs::MetadataExt as _;
    let is_own = |pid: &&u32| {
        std::fs::metadata(root.path(&format!("proc/{pid}"))).is_ok_and(|process| process.uid() == user)
    };
    match processes.iter().find(|pid| !is_own(pid)) {
        None => Ok(()),
        Some(pid) => Err(Refusal::held(format!("process {pid} is not user {user}'s own"))),
    }
}
