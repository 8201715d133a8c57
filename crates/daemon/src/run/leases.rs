//! Leases: services that another command has this daemon govern, for as long as its connection
//! lasts.
//!
//! Terms.
//! - *lease*: services and controllers that came over one connection to the control socket.
//! - *own users*: root and the daemon's user; they may have any process governed.
//! - *listed users*: `users` of the configuration; they may have their own processes kept on CPUs,
//!   and nothing that affects another user.
//!
//! Properties:
//! - A lease is granted when all of it has taken hold, and else leaves nothing behind.
//! - However its command ends, its connection closes, and then the others' requests are in force.
//! - A name that is governed already, and a process of another user, is refused.

use super::{Answer, Asker, Daemon, FIRST_WAIT, Lease, Owner, Part, Reply, ServiceConfig};
use crate::config::Target;
use crate::controllers::cores::TelemetrySource;
use crate::controllers::{Hosted, Refusal, RefusalKind};
use crate::park::Parking;
use linux::{ConfineActuator, Root};
use policy::governing::{FrequencyMode, IdleMode};

impl Daemon {
    /// The name of a client, for people.
    pub(super) fn owner(&self, owner: Owner) -> String {
        match owner {
            Owner::Config => super::Running::of(std::process::id()).to_string(),
            Owner::Lease(lease) => {
                self.leases.get(&lease).map_or_else(String::new, |lease| lease.asker.to_string())
            }
        }
    }

    /// Takes up a lease, or says why not.
    pub(super) fn lease(&mut self, mut part: Part, reply: Reply) {
        let (lease, asker) = (reply.lease(), reply.asker());
        if let Err(refusal) = self.admitted(&mut part, asker) {
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

    /// The only user whose processes may be governed for this owner; `None`: any.
    pub(super) fn only_user(&self, owner: Owner) -> Option<u32> {
        match owner {
            Owner::Config => None,
            Owner::Lease(lease) => {
                let user = self.leases.get(&lease).map(|lease| lease.asker.user)?;
                (!is_own(user)).then_some(user)
            }
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
            self.hold_uncore().map_err(refused)?;
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

    /// Its controller `at` is not to be had, or has ended: in good order if `refused` is `None`.
    pub(super) fn lease_lost(&mut self, lease: u64, at: usize, why: String, refused: Option<RefusalKind>) {
        let reply = self.leases.get_mut(&lease).and_then(|kept| kept.pending.take());
        match reply {
            Some((reply, _)) => {
                self.end_lease(lease, &why);
                let kind = refused.unwrap_or(RefusalKind::Failed);
                reply.send(Answer::NotLeased(Refusal { kind, message: why }));
            }
            // It is in `status` as withdrawn, until its command ends.
            None => self.controllers[at].withdraw(why, refused),
        }
    }

    /// Ends the leases that the configuration in force does not admit.
    pub(super) fn end_leases_not_admitted(&mut self) {
        let ended: Vec<u64> = self
            .leases
            .iter()
            .filter(|(_, lease)| self.may_ask(lease.asker.user).is_err())
            .map(|(&lease, _)| lease)
            .collect();
        for lease in ended {
            self.end_lease(lease, "the configuration does not admit its user any more");
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

    /// Refuses users that are not listed, and listed ones where others are affected.
    fn may_ask(&self, user: u32) -> Result<(), Refusal> {
        if is_own(user) {
            return Ok(());
        }
        if !self.config.users.contains(&user) {
            return Err(Refusal::held(format!(
                "user {user} may have nothing governed\nhint: use sudo, or add it to users in the daemon's \
                 configuration"
            )));
        }
        if self.config.park != Parking::Service || self.config.move_interrupts {
            return Err(Refusal::held(
                "this daemon keeps others off a service's CPUs (park or move_interrupts), so only \
                 root has services governed\nhint: use sudo",
            ));
        }
        Ok(())
    }

    fn admitted(&self, part: &mut Part, asker: Asker) -> Result<(), Refusal> {
        if part.is_empty() {
            return Err(Refusal::usage("nothing is named that could be governed"));
        }
        self.may_ask(asker.user)?;
        if !is_own(asker.user) {
            limit_to_own(&self.root, part, asker.user)?;
        }
        for table in part.tables() {
            table.check()?;
        }
        if let Some((name, owner)) = self.held_name(part) {
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
        Ok(())
    }

    /// The first name of this part that the daemon governs already, and for which owner.
    fn held_name(&self, part: &Part) -> Option<(String, Owner)> {
        let held = |name: &String| {
            let slot = self.slots.iter().find(|slot| slot.config.name == *name).map(|slot| slot.owner);
            let hosted = self.controllers.iter().find(|hosted| hosted.table.name() == *name);
            slot.or(hosted.map(|hosted| hosted.owner))
        };
        part.names().iter().find_map(|name| Some((name.clone(), held(name)?)))
    }

    /// The first name of this part that a lease has, and the process that asked for it.
    pub(super) fn leased_name(&self, part: &Part) -> Option<(String, Asker)> {
        let names = part.names();
        self.leases.values().find_map(|lease| {
            let leased = lease.part.names();
            let name = names.iter().find(|name| leased.contains(name))?;
            Some((name.clone(), lease.asker))
        })
    }
}

/// True for root and the daemon's own user.
pub(super) fn is_own(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// Leaves of `part` only requests that affect no process of another user: services by process or
/// port, kept on their CPUs thread by thread. Idle limits, frequencies, offline CPUs, frozen
/// cgroups and wake-ups affect every process of a CPU or cgroup; pages that are fetched as root may
/// not be the user's to read.
fn limit_to_own(root: &Root, part: &mut Part, user: u32) -> Result<(), Refusal> {
    let refused = |what: &str| {
        Err(Refusal::held(format!(
            "{what} affects other users, so it is root's to ask for\nhint: use sudo, or leave it out"
        )))
    };
    if !part.tables().is_empty() {
        return refused("freezing work, choosing a frequency or waking CPUs");
    }
    for service in &mut part.services {
        if !matches!(service.target, Target::Port(_) | Target::Pid(_)) {
            return refused("a service by its cgroup or unit");
        }
        if service.policy.is_own() {
            return refused("a policy of one's own");
        }
        if service.idle.any(|mode| mode != IdleMode::Stock) {
            return refused("idle");
        }
        if service.frequency != FrequencyMode::Stock {
            return refused("frequency");
        }
        if service.telemetry != TelemetrySource::Requests {
            return refused("telemetry other than \"requests\"");
        }
        match service.actuator {
            _ if service.hotplug => return refused("actuator = \"hotplug\""),
            None | Some(ConfineActuator::Affinity) => service.actuator = Some(ConfineActuator::Affinity),
            Some(_) => return refused("an actuator other than \"affinity\""),
        }
        let found = service.target.find(root).map_err(Refusal::usage)?;
        if let Some(process) = linux::not_own(&found.processes, user) {
            return Err(Refusal::held(format!("process {process} is not user {user}'s own")));
        }
    }
    Ok(())
}
