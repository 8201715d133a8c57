//! `park = "all"`, `move_interrupts = true` and `actuator = "hotplug"`: what is not governed leaves the CPUs that services have left,
//! or those CPUs themselves are taken away.
//!
//! A service alone on its cores does not make the others sleep: work queues, other services and new interrupts go on waking them.
//! So everybody else is told to be on the CPUs that some service has and on those that no service could have
//! (`host::Surroundings` says who can be told, and who cannot).
//!
//! A CPU goes offline (`host::Hotplug`) if a service with that actuator could have it and no service has it: what services want of CPUs
//! that are online combines as the union.
//!
//! What always holds: before a service gets a CPU it is online and everybody else may be there, and only after it has left one must
//! they leave, and it go offline. A service that lives inside a slice that is told, too, is so never narrower than its policy wants.

use host::{Hotplug, HotplugError, Root, Scope, Surroundings};
use machine::{CpuId, CpuList};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How far parking goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Who else is told.
    pub others: Scope,
    /// Some service's parked CPUs go offline.
    pub hotplug: bool,
}

/// A handle that all services of a daemon share.
#[derive(Clone, Debug)]
pub struct Park(Arc<Mutex<Held>>);

#[derive(Debug)]
struct Held {
    root: Root,
    reach: Reach,
    /// `None` where nobody else is told anything.
    around: Option<Surroundings>,
    /// `None` where no CPU is taken offline.
    hotplug: Option<Hotplug>,
    services: BTreeMap<String, Claim>,
    /// Where everybody else is now.
    awake: CpuList,
}

/// What a service has.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// It could have these.
    pub allowed: CpuList,
    /// It has these, or is about to.
    pub active: CpuList,
    /// Those of its CPUs that nobody has go offline.
    pub hotplug: bool,
    /// The cpuset or unit that is its own, and nobody's surroundings.
    pub place: Option<String>,
}

impl Park {
    /// Nobody is told anything yet.
    pub fn open(root: &Root, name: &str, reach: Reach) -> Result<Self, HotplugError> {
        let around = (reach.others != Scope::default()).then(|| Surroundings::open(root, name, reach.others));
        let hotplug = reach.hotplug.then(|| Hotplug::open(root, name, None));
        let held = Held {
            root: root.clone(),
            reach,
            around: around.transpose()?,
            hotplug: hotplug.transpose()?,
            services: BTreeMap::new(),
            awake: CpuList::default(),
        };
        Ok(Self(Arc::new(Mutex::new(held))))
    }

    /// How far it goes.
    pub fn reach(&self) -> Reach {
        self.held().reach
    }

    /// `service` is among those who claim CPUs.
    pub fn join(&self, service: &str, claim: Claim) {
        let mut held = self.held();
        held.services.insert(service.to_owned(), claim);
        held.tell();
    }

    /// CPUs that are offline by us.
    pub fn taken(&self) -> CpuList {
        self.held().taken()
    }

    /// All CPUs are online while `act` runs: a service that is looked at tells which it may use, and an offline one is none.
    pub fn with_all_online<T>(&self, act: impl FnOnce() -> T) -> T {
        let mut held = self.held();
        if let Some(hotplug) = &mut held.hotplug {
            hotplug.keep_offline(&CpuList::default());
        }
        held.awake = CpuList::default();
        drop(held);
        act()
    }

    /// Whoever is to be told or taken away, after [`Self::with_all_online`].
    pub fn resume(&self) {
        self.held().tell();
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
        let mut held = self.held();
        let others = held.around.as_mut().map(Surroundings::drain_notices).unwrap_or_default();
        others
            .into_iter()
            .chain(held.hotplug.as_mut().map(Hotplug::drain_notices).unwrap_or_default())
            .collect()
    }

    /// Everybody back to where they were, one line per thing.
    pub fn release(&self) -> Vec<String> {
        let mut held = self.held();
        held.services.clear();
        held.awake = CpuList::default();
        let back = held.hotplug.as_mut().map(Hotplug::release).unwrap_or_default();
        back.into_iter().chain(held.around.as_mut().map(Surroundings::release).unwrap_or_default()).collect()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn taken(&self) -> CpuList {
        self.hotplug.as_ref().map(Hotplug::taken).unwrap_or_default()
    }

    fn tell(&mut self) {
        let taken = self.taken();
        let online = host::online_cpus(&self.root).unwrap_or_default();
        let there = CpuList(&online.0 | &taken.0);
        let awake = awake(&there, self.services.values());
        if awake == self.awake {
            return;
        }
        self.awake = awake.clone();
        let going = going(&there, &awake, self.services.values());
        // Those that come back before anybody is sent there, and the others only after everybody has left.
        if let Some(hotplug) = &mut self.hotplug {
            hotplug.keep_offline(&CpuList(&going.0 & &taken.0));
        }
        if let Some(around) = &mut self.around {
            if awake == there {
                around.release();
            } else {
                let own: BTreeSet<String> =
                    self.services.values().filter_map(|claim| claim.place.clone()).collect();
                around.keep_on(&awake, &own);
            }
        }
        if let Some(hotplug) = &mut self.hotplug {
            hotplug.keep_offline(&going);
        }
    }
}

/// What services that ask for that could have, and none has.
fn going<'a>(there: &CpuList, awake: &CpuList, claims: impl Iterator<Item = &'a Claim>) -> CpuList {
    let could = claims.filter(|claim| claim.hotplug).flat_map(|claim| claim.allowed.0.iter().copied());
    let parked = &could.collect::<BTreeSet<CpuId>>() - &awake.0;
    CpuList(&parked & &there.0)
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
        let reach = Reach { others: Scope { everybody: true, interrupts: false }, hotplug: false };
        let park = Park::open(&root, "a test", reach).unwrap();
        let own = Some("sys/fs/cgroup/shop/cpuset.cpus".to_owned());
        let all = |text: &str, place| {
            let allowed: CpuList = text.parse().unwrap();
            Claim { active: allowed.clone(), allowed, place, hotplug: false }
        };
        park.join("shop", all("4-7", own));
        park.join("cache", all("6-7", None));
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

    #[test]
    fn only_what_a_service_gives_up_and_no_other_has_goes_offline() {
        let cpus = |text: &str| text.parse::<CpuList>().unwrap();
        let claim = |allowed: &str, active: &str, hotplug| Claim {
            allowed: cpus(allowed),
            active: cpus(active),
            place: None,
            hotplug,
        };
        let there = cpus("0-7");
        for (claims, goes) in [
            (vec![claim("2-7", "2", true)], Some("3-7")),
            (vec![claim("2-7", "2", false)], None),
            (vec![claim("2-7", "2", true), claim("0-7", "5-6", false)], Some("3-4,7")),
            (vec![claim("0-3", "0", true), claim("4-7", "4", false)], Some("1-3")),
            (vec![claim("0-9", "0", true)], Some("1-7")),
            (vec![claim("0-7", "0-7", true)], None),
        ] {
            let awake = awake(&there, claims.iter());
            let goes = goes.map(cpus).unwrap_or_default();
            assert_eq!(going(&there, &awake, claims.iter()), goes, "{claims:?}");
        }
    }
}
