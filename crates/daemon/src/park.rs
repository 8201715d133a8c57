//! The needs of services for the CPUs that they share with the rest of the machine: `park = "all"`,
//! `move_interrupts = true` and `actuator = "hotplug"`.
//!
//! Each service reports its CPUs, so that no other process parks them
//! (`linux::arbiter::ActiveCpus`). A service alone on its cores does not make the others sleep,
//! though: work queues, other services and new interrupts go on waking them. There are two
//! remedies, on request. All other processes move to the CPUs that some service has, of this daemon
//! or of another process, and to those that no service could have (`surroundings` of `host` lists
//! the processes that can be moved). Or a CPU that a service could have and none has goes offline
//! (`linux::Hotplug`).
//!
//! What always holds: before a service gets a CPU, the CPU is online and open to all other
//! processes. Only after the service has left it must they leave, and it goes offline. So a service
//! inside a slice that is moved, too, is never narrower than its policy wants.

use linux::arbiter::{ActiveCpus, Claim};
use linux::{LockError, Scope};
use machine::CpuList;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A handle that all services of a daemon share.
#[derive(Clone, Debug)]
pub struct Park(Arc<Mutex<Held>>);

#[derive(Debug)]
struct Held {
    register: ActiveCpus,
    scope: Scope,
    services: BTreeMap<String, Claim>,
    notices: Vec<String>,
}

impl Park {
    /// No process is moved yet; [`Self::concern`] names those to move.
    pub fn open(register: &ActiveCpus) -> Result<Self, LockError> {
        register.hold()?;
        let register = register.clone();
        let (scope, services, notices) = (Scope::default(), BTreeMap::new(), Vec::new());
        Ok(Self(Arc::new(Mutex::new(Held { register, scope, services, notices }))))
    }

    /// The processes that shall leave the parked CPUs.
    pub fn concern(&self, scope: Scope) {
        let mut held = self.held();
        held.scope = scope;
        for service in held.services.keys().cloned().collect::<Vec<_>>() {
            held.tell(&service);
        }
    }

    /// `service` claims CPUs from now on; [`Self::concern`] names the processes that have to make
    /// room.
    pub fn join(&self, service: &str, claim: Claim) {
        let mut held = self.held();
        held.services.insert(service.to_owned(), claim);
        held.tell(service);
    }

    /// `service` has these now, or is about to.
    pub fn claim(&self, service: &str, active: &CpuList) {
        let mut held = self.held();
        if let Some(claim) = held.services.get_mut(service) {
            claim.active = active.clone();
            held.tell(service);
        }
    }

    /// `service` is no more.
    pub fn leave(&self, service: &str) {
        let mut held = self.held();
        held.services.remove(service);
        held.register.withdraw(service);
    }

    /// CPUs that other services and processes need.
    pub fn needed_by_others(&self, service: &str) -> CpuList {
        self.held().register.needed(service).by_others
    }

    /// CPUs that are offline by us.
    pub fn offline(&self) -> CpuList {
        self.held().register.needed(LOOK).offline
    }

    /// All CPUs are online while `act` runs: a service that is looked at tells which it may use,
    /// and an offline one is none.
    pub fn with_all_online<T>(&self, all: &CpuList, act: impl FnOnce() -> T) -> T {
        let claim = Claim { active: all.clone(), ..Claim::default() };
        let told = self.held().register.claim(LOOK, &claim);
        let done = act();
        let mut held = self.held();
        held.notices.extend(told.err());
        held.register.withdraw(LOOK);
        done
    }

    /// The notices since the last call.
    pub fn drain_notices(&self) -> Vec<String> {
        self.held().notices.drain(..).collect()
    }

    /// Nothing is needed any more; one line per thing that was put back.
    pub fn release(&self) -> Vec<String> {
        let mut held = self.held();
        held.services.clear();
        held.register.release()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of this process for as long as a service is looked at; no service has such a name.
const LOOK: &str = "(a look at a service)";

impl Held {
    fn tell(&mut self, service: &str) {
        let Some(claim) = self.services.get(service) else { return };
        let claim = Claim { scope: self.scope, ..claim.clone() };
        if let Err(reason) = self.register.claim(service, &claim) {
            // The service goes where its policy wants all the same.
            self.notices.push(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::Root;
    use linux::arbiter::Arbiter;
    use std::fs;

    fn machine() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("sys/devices/system/cpu/online", "0-7\n"),
            ("sys/devices/virtual/workqueue/cpumask", "ff\n"),
            ("proc/irq/default_smp_affinity", "ff\n"),
            ("sys/fs/cgroup/rest/cgroup.type", "domain\n"),
            ("sys/fs/cgroup/rest/cpuset.cpus", "\n"),
            ("sys/fs/cgroup/shop/cgroup.type", "domain\n"),
            ("sys/fs/cgroup/shop/cpuset.cpus", "4-7\n"),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::at(folder.path());
        (folder, root)
    }

    #[test]
    fn all_tasks_else_is_where_some_service_is_or_none_could_be() {
        let (folder, root) = machine();
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap().trim().to_owned();
        let (queues, rest) = ("sys/devices/virtual/workqueue/cpumask", "sys/fs/cgroup/rest/cpuset.cpus");
        let park = Park::open(&Arbiter::new(&root, "a test").active).unwrap();
        park.concern(Scope { all_tasks: true, interrupts: false });
        let own = Some("sys/fs/cgroup/shop/cpuset.cpus".to_owned());
        let claim = |could: &str, active: &str, place: Option<String>| Claim {
            active: active.parse().unwrap(),
            could: could.parse().unwrap(),
            places: place.into_iter().collect(),
            ..Claim::default()
        };
        park.join("shop", claim("4-7", "4-7", own));
        park.join("cache", claim("6-7", "6-7", None));
        assert_eq!((read(queues), read(rest)), ("ff".into(), String::new()), "nothing is parked");
        park.claim("shop", &"4".parse().unwrap());
        assert_eq!(read(rest), "0-4,6-7", "another service has 6 and 7");
        park.claim("cache", &"6".parse().unwrap());
        assert_eq!((read(queues), read(rest)), ("5f".into(), "0-4,6".into()));
        assert_eq!(read("sys/fs/cgroup/shop/cpuset.cpus"), "4-7", "a service's own is not ours to tell");
        // The set of processes may change while it is in force.
        park.concern(Scope::default());
        assert_eq!((read(queues), read(rest)), ("ff".into(), String::new()));
        park.concern(Scope { all_tasks: true, interrupts: false });
        assert_eq!((read(queues), read(rest)), ("5f".into(), "0-4,6".into()));
        park.leave("shop");
        assert_eq!(read(rest), "0-6");
        park.release();
        assert_eq!((read(queues), read(rest)), ("ff".into(), String::new()));
    }
}
