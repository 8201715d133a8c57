//! The needs of services for the CPUs that they share with the rest of the machine: `park`,
//! `move_interrupts = true` and `actuator = "hotplug"`; and the lending of CPUs that none needs (`lend`).
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
//! inside a slice that is moved, too, is never narrower than its policy wants. A borrower is told of
//! both afterwards: it yields to a service by itself, and a service does not wait for it.

use crate::audit::{Entry, now_unix_s};
use linux::arbiter::{ActiveCpus, Claim};
use linux::{Lending, LockError, Scope};
use machine::{CpuList, Duration};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The load that leaves the CPUs that a service has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Parking {
    #[default]
    Service,
    /// All other processes that can be moved as well: other cgroups or slices, the kernel's unbound
    /// work queues, new interrupts.
    All,
    /// All, by an isolated partition where the kernel has them: its own threads and the processes of the
    /// root cgroup as well. A CPU may come back later.
    Isolated,
}

impl Parking {
    /// The groups that leave, interrupts among them on request.
    pub fn scope(self, interrupts: bool) -> Scope {
        Scope { all_tasks: self != Self::Service, isolated: self == Self::Isolated, interrupts }
    }
}

/// A handle that all services of a daemon share.
#[derive(Clone, Debug)]
pub struct Park(Arc<Mutex<Held>>);

#[derive(Debug)]
struct Held {
    register: ActiveCpus,
    scope: Scope,
    services: BTreeMap<String, Claim>,
    lending: Option<Lending>,
    notices: Vec<String>,
}

/// The CPUs that a group of batch processes has, and has had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lent {
    pub to: String,
    /// None: it stands still until one is free.
    pub cpus: CpuList,
    /// CPU time that it has had; absent where the kernel does not count it.
    pub used: Option<Duration>,
}

/// A change of it: the CPUs before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LentAnew {
    pub to: String,
    pub old: CpuList,
    pub new: CpuList,
}

impl LentAnew {
    pub fn entry(self, why: &str, by: &str) -> Entry {
        let Self { to, old, new } = self;
        let told = |cpus: CpuList| if cpus.0.is_empty() { "none".to_owned() } else { cpus.to_string() };
        Entry {
            at_unix_s: now_unix_s(),
            service: to,
            what: "cpus lent".to_owned(),
            old: told(old),
            new: told(new),
            why: why.to_owned(),
            by: by.to_owned(),
        }
    }
}

impl Park {
    /// No process is moved yet; [`Self::concern`] names those to move.
    pub fn open(register: &ActiveCpus) -> Result<Self, LockError> {
        register.hold()?;
        let register = register.clone();
        let (scope, services, notices) = (Scope::default(), BTreeMap::new(), Vec::new());
        let lending = None;
        Ok(Self(Arc::new(Mutex::new(Held { register, scope, services, lending, notices }))))
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

    /// The CPUs that no service needs go to this group from [`Self::lend`] on, or to none. One line per
    /// thing of the group before that was put back.
    pub fn lend_to(&self, lending: Option<Lending>) -> Vec<String> {
        let mut held = self.held();
        let lines = held.lending.as_mut().map(Lending::release).unwrap_or_default();
        if let Some(lending) = &lending {
            let claim = Claim { places: lending.places(), ..Claim::default() };
            let told = held.register.claim(BORROWER, &claim);
            held.notices.extend(told.err());
        } else {
            held.register.withdraw(BORROWER);
        }
        held.lending = lending;
        lines
    }

    /// Lends the group all CPUs that no service needs. To be called after each change of a service's CPUs.
    pub fn lend(&self) -> Option<LentAnew> {
        self.held().lend()
    }

    /// The same, if the group is still there and holds none of these processes of services.
    pub fn lend_beside(&self, services: &BTreeSet<u32>) -> Option<LentAnew> {
        let mut held = self.held();
        let lending = held.lending.as_ref()?;
        let why = if lending.is_gone() {
            Some("it is gone, so it is lent nothing until it is back")
        } else if !lending.processes().is_disjoint(services) {
            Some("it holds a process of a service now, so it is lent nothing")
        } else {
            None
        };
        if let Some(why) = why {
            let notice = format!("{}: {why}", lending.group());
            held.notices.push(notice);
            drop(held);
            self.lend_to(None);
            return None;
        }
        held.lend()
    }

    pub fn lent(&self) -> Option<Lent> {
        let held = self.held();
        let lending = held.lending.as_ref()?;
        Some(Lent { to: lending.group().to_owned(), cpus: lending.lent().clone(), used: lending.used() })
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
        let mut held = self.held();
        let lending = held.lending.as_mut().map(Lending::drain_notices).unwrap_or_default();
        held.notices.drain(..).chain(lending).collect()
    }

    /// Nothing is needed any more; one line per thing that was put back.
    pub fn release(&self) -> Vec<String> {
        let mut lines = self.lend_to(None);
        let mut held = self.held();
        held.services.clear();
        lines.extend(held.register.release());
        lines
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of this process for as long as a service is looked at; no service has such a name.
const LOOK: &str = "(a look at a service)";
/// The part that names the places of a group that is lent CPUs.
const BORROWER: &str = "(a group that is lent CPUs)";

impl Held {
    fn lend(&mut self) -> Option<LentAnew> {
        let needed = self.register.needed(LOOK);
        let could = self.services.values().flat_map(|claim| claim.could.0.iter().copied());
        let free = could.filter(|cpu| !needed.by_all.0.contains(cpu) && !needed.offline.0.contains(cpu));
        let free = CpuList(free.collect());
        let lending = self.lending.as_mut()?;
        let old = lending.lent().clone();
        lending.lend(&free);
        let new = lending.lent().clone();
        (old != new).then(|| LentAnew { to: lending.group().to_owned(), old, new })
    }

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
        park.concern(Scope { all_tasks: true, ..Scope::default() });
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
        park.concern(Scope { all_tasks: true, ..Scope::default() });
        assert_eq!((read(queues), read(rest)), ("5f".into(), "0-4,6".into()));
        park.leave("shop");
        assert_eq!(read(rest), "0-6");
        park.release();
        assert_eq!((read(queues), read(rest)), ("ff".into(), String::new()));
    }

    const BATCH: &str = "sys/fs/cgroup/batch.slice";

    fn with_batch() -> (tempfile::TempDir, Root) {
        let (folder, root) = machine();
        for (file, text) in [
            ("cgroup.procs", "4242\n"),
            ("cgroup.type", "domain\n"),
            ("cgroup.freeze", "0\n"),
            ("cgroup.events", "populated 1\nfrozen 0\n"),
            ("cpuset.cpus", "\n"),
            ("cpu.idle", "0\n"),
            ("cpu.weight", "50\n"),
            ("cpu.stat", "usage_usec 1000\nuser_usec 900\n"),
        ] {
            let path = folder.path().join(BATCH).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir_all(folder.path().join("proc/self")).unwrap();
        fs::write(folder.path().join("proc/self/mounts"), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n").unwrap();
        fs::write(folder.path().join("sys/fs/cgroup/cgroup.controllers"), "cpuset cpu\n").unwrap();
        (folder, root)
    }

    #[test]
    fn batch_work_has_what_no_service_needs_and_its_own_settings_back() {
        let (folder, root) = with_batch();
        let read =
            |file: &str| fs::read_to_string(folder.path().join(BATCH).join(file)).unwrap().trim().to_owned();
        let state = || ["cpuset.cpus", "cpu.idle", "cpu.weight", "cgroup.freeze"].map(read);
        let before = state();
        let park = Park::open(&Arbiter::new(&root, "a test").active).unwrap();
        park.concern(Scope { all_tasks: true, ..Scope::default() });
        let claim = |could: &str, active: &str| Claim {
            active: active.parse().unwrap(),
            could: could.parse().unwrap(),
            ..Claim::default()
        };
        park.join("shop", claim("4-7", "4-7"));
        park.join("cache", claim("6-7", "6-7"));
        let lending = Lending::open(&root, "batch.slice", &BTreeSet::new(), "a test", None).unwrap();
        park.lend_to(Some(lending));
        assert_eq!(park.lend(), None, "all are needed");
        assert_eq!(
            (read("cgroup.freeze"), read("cpu.idle"), read("cpu.weight")),
            ("1".into(), "1".into(), "1".into())
        );
        park.claim("shop", &"4".parse().unwrap());
        let told = park.lend().unwrap();
        assert_eq!(
            (told.old.to_string(), told.new.to_string()),
            (String::new(), "5".to_owned()),
            "6 and 7 are another's"
        );
        assert_eq!((read("cpuset.cpus"), read("cgroup.freeze")), ("5".into(), "0".into()));
        // Other processes leave it; the borrower stays.
        let rest = fs::read_to_string(folder.path().join("sys/fs/cgroup/rest/cpuset.cpus")).unwrap();
        assert_eq!(rest.trim(), "0-4,6-7");
        park.claim("cache", &"6".parse().unwrap());
        assert_eq!(park.lend().unwrap().new.to_string(), "5,7");
        assert_eq!(park.lent().unwrap().used, Some(Duration::ZERO), "since it was taken hold of");
        // A service that moves in is never made to stand still.
        assert_eq!(park.lend_beside(&BTreeSet::from([4242])), None);
        assert!(park.drain_notices().iter().any(|notice| notice.contains("holds a process of a service")));
        assert_eq!(park.lent(), None);
        assert_eq!(state(), ["0-4,6", "0", "50", "0"], "it leaves the parked CPUs as all others");
        let lending = Lending::open(&root, "batch.slice", &BTreeSet::new(), "a test", None).unwrap();
        park.lend_to(Some(lending));
        park.lend();
        park.release();
        assert_eq!(state(), before);
    }
}
