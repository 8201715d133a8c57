//! `park = "all"` and `move_interrupts = true`: what is not governed leaves the CPUs that services have left.
//!
//! A service alone on its cores does not make the others sleep: work queues, other services and new interrupts go on waking them.
//! So everybody else is told to be on the CPUs that some service has and on those that no service could have
//! (`host::Surroundings` says who can be told, and who cannot).
//!
//! What always holds: before a service gets a CPU everybody else may be there, and only after it has left one must they leave.
//! A service that lives inside a slice that is told, too, is so never narrower than its policy wants.

use host::{LockError, Root, Scope, Surroundings};
use machine::{CpuId, CpuList};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A handle that all services of a daemon share.
#[derive(Clone, Debug)]
pub struct Park(Arc<Mutex<Held>>);

#[derive(Debug)]
struct Held {
    root: Root,
    around: Surroundings,
    services: BTreeMap<String, Claim>,
    /// Where everybody else is now.
    awake: CpuList,
}

/// What a service has.
#[derive(Clone, Debug, Default)]
struct Claim {
    /// It could have these.
    allowed: CpuList,
    /// It has these, or is about to.
    active: CpuList,
    /// The cpuset or unit that is its own, and nobody's surroundings.
    place: Option<String>,
}

impl Park {
    /// Nobody is told anything yet.
    pub fn open(root: &Root, name: &str, scope: Scope) -> Result<Self, LockError> {
        let around = Surroundings::open(root, name, scope)?;
        let held = Held { root: root.clone(), around, services: BTreeMap::new(), awake: CpuList::default() };
        Ok(Self(Arc::new(Mutex::new(held))))
    }

    /// Who is told.
    pub fn scope(&self) -> Scope {
        self.held().around.scope()
    }

    /// `service` could have `allowed`, and has all of them; its own cpuset is at `place`.
    pub fn join(&self, service: &str, allowed: &CpuList, place: Option<String>) {
        let claim = Claim { allowed: allowed.clone(), active: allowed.clone(), place };
        let mut held = self.held();
        held.services.insert(service.to_owned(), claim);
        held.tell();
    }

    /// `service` has these now, or is about to.
    pub fn claim(&self, service: &str, active: &CpuList) {
        let mut held = self.held();
        if let Some(claim) = held.services.get_mut(service) {
            claim.active = active.clone();
            held.tell();
        }
    }

    /// `service` is no more.
    pub fn leave(&self, service: &str) {
        let mut held = self.held();
        held.services.remove(service);
        held.tell();
    }

    /// What there is to say since the last call.
    pub fn drain_notices(&self) -> Vec<String> {
        self.held().around.drain_notices()
    }

    /// Everybody back to where they were, one line per thing.
    pub fn release(&self) -> Vec<String> {
        let mut held = self.held();
        held.services.clear();
        held.awake = CpuList::default();
        held.around.release()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn tell(&mut self) {
        let online = host::online_cpus(&self.root).unwrap_or_default();
        let awake = awake(&online, self.services.values());
        if awake == self.awake {
            return;
        }
        self.awake = awake.clone();
        if awake == online {
            self.around.release();
            return;
        }
        let own: BTreeSet<String> = self.services.values().filter_map(|claim| claim.place.clone()).collect();
        self.around.keep_on(&awake, &own);
    }
}

/// All but what services could have and none has. Never nothing.
fn awake<'a>(online: &CpuList, claims: impl Iterator<Item = &'a Claim> + Clone) -> CpuList {
    let of = |cpus: fn(&Claim) -> &CpuList| -> BTreeSet<CpuId> {
        claims.clone().flat_map(|claim| cpus(claim).0.iter().copied()).collect()
    };
    let parked = &of(|claim| &claim.allowed) - &of(|claim| &claim.active);
    let left = &online.0 - &parked;
    if left.is_empty() { online.clone() } else { CpuList(left) }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn everybody_else_is_where_some_service_is_or_none_could_be() {
        let (folder, root) = machine();
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap().trim().to_owned();
        let (queues, rest) = ("sys/devices/virtual/workqueue/cpumask", "sys/fs/cgroup/rest/cpuset.cpus");
        let park = Park::open(&root, "a test", Scope { everybody: true, interrupts: false }).unwrap();
        let own = Some("sys/fs/cgroup/shop/cpuset.cpus".to_owned());
        park.join("shop", &"4-7".parse().unwrap(), own);
        park.join("cache", &"6-7".parse().unwrap(), None);
        assert_eq!((read(queues), read(rest)), ("ff".into(), String::new()), "nothing is parked");
        park.claim("shop", &"4".parse().unwrap());
        assert_eq!(read(rest), "0-4,6-7", "another service has 6 and 7");
        park.claim("cache", &"6".parse().unwrap());
        assert_eq!((read(queues), read(rest)), ("5f".into(), "0-4,6".into()));
        assert_eq!(read("sys/fs/cgroup/shop/cpuset.cpus"), "4-7", "a service's own is not ours to tell");
        park.leave("shop");
        assert_eq!(read(rest), "0-6");
        park.release();
        assert_eq!((read(queues), read(rest)), ("ff".into(), String::new()));
    }

    #[test]
    fn nobody_is_ever_told_to_be_nowhere() {
        let claim = Claim { allowed: "0-7".parse().unwrap(), ..Claim::default() };
        let online: CpuList = "0-7".parse().unwrap();
        assert_eq!(awake(&online, [claim].iter()), online);
    }
}
