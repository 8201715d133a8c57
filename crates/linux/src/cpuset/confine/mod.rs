//! Keeps a running, unmodified service on a set of CPUs, and puts everything back.
//!
//! A policy that wakes no more cores than a service needs has to say to the kernel: these CPUs, and no others. There
//! are four ways to say it, [`ConfineActuator`], of which the best that works here is taken, in this order:
//!
//! 1. *systemd*, where it owns the tree of cgroups: the unit's `AllowedCPUs=`, as a runtime property.
//! 2. *cpuset v2*: the service's own cgroup.
//! 3. *cpuset v1*: the service's own cpuset, or one that we make for it (`roost-PROCESS`) inside the one where it is.
//! 4. *affinity*: each of its threads. It works everywhere, but a thread may undo it for itself, and where a service
//!    sets its threads' affinities while it runs, the two disagree ([`Drift`]).
//!
//! A cpuset holds for threads that do not exist yet and cannot be left. What passed over a better way is told by
//! [`Confiner::drain_notices`].
//!
//! ```text
//!   Confiner --- Threads  (threads.rs)   who is new, who was pinned          affinity/PROCESS:BEGAN/THREAD:BEGAN
//!      |     --- Cpuset   (cpuset.rs)    where it lives, is it its own       .../cpuset.cpus, .../roost-PROCESS
//!      |     --- Unit     (unit.rs)      whom systemd calls so               unit/NAME/AllowedCPUs
//!      '-- Journal: written before each change, undone on drop, and by `restore` after a SIGKILL
//! ```
//!
//! Terms. A thread is *pinned* if it may run on fewer CPUs than its process's others: it keeps those of its own that are
//! among the new set, and gets the whole new set if none is. *Allowed* is what the threads of the service had when we
//! came, together. A change is *foreign* if what is there is not what we left there.
//!
//! What always holds:
//! - The service never gets a CPU that it was not allowed before, and is never left without one that is online.
//! - A foreign change is reported, and overwritten only by an explicit [`Confiner::confine`] or
//!   [`Confiner::reassert`]; then it is what comes back in the end.
//! - A thread that ends while we look at it is no error.
//! - One Roost process confines a service: there is a lock per process, held until the end.
//! - This process is never part of the service, though it may descend from it.

mod cpuset;
mod error;
mod masks;
mod place;
mod service_lock;
mod threads;
mod unit;

pub use error::ConfineError;

use crate::Root;
use crate::journal::{Checkpoint, Journal, restore_at_start};
use crate::processes::cpu_time::Births;
use crate::processes::service::Service;
use crate::processes::threads as kernel;
use crate::system::topology::online_cpus;
use cpuset::Cpuset;
use machine::CpuList;
use service_lock::ServiceLocks;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use threads::Threads;
use unit::Unit;

/// By what a service is kept on its CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfineActuator {
    /// The affinity of each of its threads. Others' need CAP_SYS_NICE.
    Affinity,
    /// Its cgroup's `cpuset.cpus`.
    CpusetV2,
    /// Its cpuset's `cpuset.cpus`, in a tree of version 1.
    CpusetV1,
    /// Its unit's `AllowedCPUs=`.
    Systemd,
}

impl fmt::Display for ConfineActuator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Affinity => "affinity",
            Self::CpusetV2 => "cpuset v2",
            Self::CpusetV1 => "cpuset v1",
            Self::Systemd => "AllowedCPUs= by systemd",
        })
    }
}

/// How to open a [`Confiner`].
pub struct ConfineOptions {
    /// Who we are, for whoever finds the service taken: `roost govern memcached`.
    pub holder: String,
    /// By what; `None`: the best that works here.
    pub actuator: Option<ConfineActuator>,
    /// Only processes of this user: the service has no others, and children of other users are
    /// left alone.
    pub only_user: Option<u32>,
    /// Called between the steps of each change; for tests that end the process there.
    pub checkpoint: Option<Checkpoint>,
}

impl ConfineOptions {
    /// The best actuator that works, in the name of `holder`.
    pub fn new(holder: impl Into<String>) -> Self {
        Self { holder: holder.into(), actuator: None, only_user: None, checkpoint: None }
    }
}

/// What a call of [`Confiner::confine`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confined {
    /// Threads of the service.
    pub threads: usize,
    /// Threads that were moved to other CPUs; where a cpuset does it, all or none.
    pub changed: usize,
    /// The CPUs that it may use now, as the kernel tells: those asked for that are online.
    pub in_force: CpuList,
}

/// What has changed since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Threads that were not where they should be because they are new, and are now.
    pub confined: usize,
    /// What somebody else changed. It stays as it is.
    pub foreign: Vec<Foreign>,
}

/// Something that somebody else changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// What: `CPUs of thread 12 of process 10`, `/sys/fs/cgroup/shop/cpuset.cpus`.
    pub what: String,
    /// What is there.
    pub reads: String,
    /// What we had left there.
    pub ours: String,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, reads, ours } = self;
        write!(f, "{what}: reads `{reads}`, which somebody else set after our `{ours}`")
    }
}

/// So many looks lie between two searches for new processes that a cpuset keeps already.
const LOOKS_APART: u32 = 4;

/// Keeps one service on a set of CPUs. Dropping it puts everything back, so also when a panic unwinds;
/// `std::process::exit` drops nothing, so call [`Confiner::release`] before it.
#[derive(Debug)]
pub struct Confiner {
    root: Root,
    /// Each with the time at which it began.
    processes: BTreeMap<u32, u64>,
    only_user: Option<u32>,
    allowed: CpuList,
    means: Means,
    /// What is asked for now.
    asked: Option<CpuList>,
    /// How often it was looked for what changed.
    looks: u32,
    births: Births,
    /// Who was born last when processes were last looked for.
    youngest: Option<u64>,
    notices: Vec<String>,
    /// Dropped before the locks: nobody else may have the service while it is not as it was.
    journal: Journal,
    _locks: ServiceLocks,
}

/// The actuator at work.
#[derive(Debug)]
enum Means {
    Threads(Threads),
    Cpuset(Cpuset),
    Unit(Unit),
}

impl Confiner {
    /// Locks the service, puts back what a dead run left, and finds the actuator. A cpuset that has to be made is made
    /// here; the service may still use the CPUs that it had.
    pub fn open(root: &Root, service: &Service, options: ConfineOptions) -> Result<Self, ConfineError> {
        let own = std::process::id();
        let named: BTreeSet<u32> =
            service.processes.iter().copied().filter(|&process| process != own).collect();
        let began = |process: u32| Some((process, kernel::began(process, process).ok()?));
        if let Some(user) = options.only_user
            && let Some(process) = not_own(&named, user)
        {
            return Err(ConfineError::NotOwn { process, user });
        }
        let family = place::family(&named)?.into_iter();
        let family =
            family.filter(|&process| options.only_user.is_none_or(|user| kernel::is_of(process, user)));
        let processes: BTreeMap<u32, u64> = family.filter_map(began).collect();
        if processes.is_empty() {
            return Err(ConfineError::NoProcess { service: service.name.clone() });
        }
        let locks = ServiceLocks::take(root, &processes, &options.holder)?;
        let notices = restore_at_start(root)?;
        let allowed = allowed_of(&processes)?;
        let journal = Journal::begin(root, &options.holder, options.checkpoint)?;
        let means = Means::Threads(Threads::default());
        let (root, asked, _locks) = (root.clone(), None, locks);
        let (looks, births, youngest) = (0, Births::open(), None);
        let mut confiner = Self {
            root,
            processes,
            only_user: options.only_user,
            allowed,
            means,
            asked,
            looks,
            births,
            youngest,
            notices,
            journal,
            _locks,
        };
        confiner.choose(options.actuator)?;
        Ok(confiner)
    }

    /// By what the service is kept.
    pub fn actuator(&self) -> ConfineActuator {
        match &self.means {
            Means::Threads(_) => ConfineActuator::Affinity,
            Means::Cpuset(cpuset) => cpuset.actuator(),
            Means::Unit(_) => ConfineActuator::Systemd,
        }
    }

    /// The file or property that names the service's CPUs, where there is one, as the journal calls it.
    pub fn place(&self) -> Option<String> {
        match &self.means {
            Means::Threads(_) => None,
            Means::Cpuset(cpuset) => Some(cpuset.cpus_file()),
            Means::Unit(unit) => Some(unit.path().to_owned()),
        }
    }

    /// The CPUs that the service might use before us. It is never given others.
    pub fn allowed(&self) -> &CpuList {
        &self.allowed
    }

    /// The processes of the service, as far as they are known: [`Self::check`] finds new ones.
    pub fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        self.processes.keys().copied()
    }

    /// What there is to say since the last call: what a dead run had left, and why a better actuator is not taken.
    /// Each fact comes once.
    pub fn drain_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Keeps the service on `cpus`, and says what came of it.
    pub fn confine(&mut self, cpus: &CpuList) -> Result<Confined, ConfineError> {
        if cpus.0.is_empty() {
            return Err(ConfineError::Empty);
        }
        crate::check_allowed(cpus, &self.allowed)?;
        let online = online_cpus(&self.root)?;
        if cpus.0.is_disjoint(&online.0) {
            return Err(ConfineError::NoneOnline { asked: cpus.clone(), online });
        }
        self.asked = Some(cpus.clone());
        let (journal, processes) = (&mut self.journal, &self.processes);
        match &mut self.means {
            Means::Threads(threads) => threads.confine(&self.root, journal, processes, cpus, &online),
            Means::Cpuset(cpuset) => cpuset.confine(journal, processes, cpus),
            Means::Unit(unit) => unit.confine(journal, processes, cpus),
        }
    }

    /// Looks again: finds processes and threads that are new, confines those threads, and reports what somebody else
    /// changed without touching it. To find processes it looks at every one of the machine, at some microseconds each, if
    /// anybody was born since the last time; where a cpuset keeps those that are born anyway, it does so every fourth time.
    pub fn check(&mut self) -> Result<Drift, ConfineError> {
        // Read before anybody is looked for: who is born meanwhile is found the next time.
        let youngest = self.births.youngest();
        let somebody_was_born = youngest.is_none() || youngest != self.youngest;
        self.forget_ended(somebody_was_born)?;
        let are_kept = !matches!(self.means, Means::Threads(_));
        if somebody_was_born && (!are_kept || self.looks.is_multiple_of(LOOKS_APART)) {
            self.find_processes()?;
            self.youngest = youngest;
        }
        self.looks = self.looks.wrapping_add(1);
        let Some(asked) = &self.asked else { return Ok(Drift::default()) };
        let (journal, processes) = (&mut self.journal, &self.processes);
        match &mut self.means {
            Means::Threads(threads) => {
                let online = online_cpus(&self.root)?;
                threads.check(&self.root, journal, processes, asked, &online)
            }
            Means::Cpuset(cpuset) => cpuset.check(journal, processes),
            Means::Unit(unit) => unit.check(journal, processes),
        }
    }

    /// Puts what is asked for in force again, over what somebody else changed; theirs then comes back on release. A
    /// process that somebody moved to another cgroup stays there. Nothing is done while nothing is asked for.
    pub fn reassert(&mut self) -> Result<Confined, ConfineError> {
        match self.asked.clone() {
            Some(asked) => self.confine(&asked),
            None => Ok(Confined::default()),
        }
    }

    /// Puts everything back now, and says what was done, one line for each thing. Dropping does the same in silence.
    /// The service can be confined again after.
    pub fn release(&mut self) -> Vec<String> {
        self.asked = None;
        let done = self.journal.put_back_all();
        let lines = done.iter().filter(|undone| undone.is_news()).map(ToString::to_string).collect();
        match &mut self.means {
            Means::Threads(threads) => *threads = Threads::default(),
            Means::Cpuset(cpuset) => cpuset.forget(),
            Means::Unit(unit) => unit.forget(),
        }
        lines
    }

    /// Settles on `wanted`, or on the best that works, and tells why a better one does not.
    fn choose(&mut self, wanted: Option<ConfineActuator>) -> Result<(), ConfineError> {
        use ConfineActuator::{Affinity, CpusetV1, CpusetV2, Systemd};
        let tried = wanted.map_or_else(|| vec![Systemd, CpusetV2, CpusetV1, Affinity], |one| vec![one]);
        for &actuator in &tried {
            // Whoever names it has been given this part of systemd's tree.
            let owned =
                if wanted.is_none() && actuator == CpusetV2 { place::of_systemd(&self.root) } else { None };
            let prepared = owned.map_or_else(|| self.prepared(actuator), Err);
            match prepared {
                Ok(means) => {
                    self.means = means;
                    return Ok(());
                }
                Err(reason) => {
                    // What it took before it failed.
                    self.journal.put_back_all();
                    if wanted.is_some() {
                        return Err(ConfineError::Unsupported { actuator, reason });
                    }
                    self.notices.push(format!("not by {actuator}: {reason}"));
                }
            }
        }
        let reason = std::mem::take(&mut self.notices).join("; ");
        Err(ConfineError::Unsupported { actuator: Affinity, reason })
    }

    fn prepared(&mut self, actuator: ConfineActuator) -> Result<Means, String> {
        let (root, processes) = (&self.root, &self.processes);
        Ok(match actuator {
            ConfineActuator::Affinity => {
                threads::may_change(processes)?;
                Means::Threads(Threads::default())
            }
            ConfineActuator::CpusetV2 => {
                let mut cpuset = Cpuset::v2(root, processes)?;
                cpuset.enter(&mut self.journal, processes).map_err(|error| error.to_string())?;
                Means::Cpuset(cpuset)
            }
            ConfineActuator::CpusetV1 => {
                let mut cpuset = Cpuset::v1(root, processes)?;
                cpuset.enter(&mut self.journal, processes).map_err(|error| error.to_string())?;
                Means::Cpuset(cpuset)
            }
            ConfineActuator::Systemd => Means::Unit(Unit::of(root, processes, &mut self.journal)?),
        })
    }

    /// Drops processes that ended. Unless somebody was born, no number has come to mean another process.
    fn forget_ended(&mut self, somebody_was_born: bool) -> Result<(), ConfineError> {
        let lives = |process: u32, began: u64| {
            if somebody_was_born {
                kernel::began(process, process).is_ok_and(|now| now == began)
            } else {
                kernel::lives(process)
            }
        };
        self.processes.retain(|&process, &mut began| lives(process, began));
        if self.processes.is_empty() {
            // All that were known have ended; one that was born since the last look may live.
            return Err(ConfineError::Ended);
        }
        Ok(())
    }

    /// Adds processes that descend from ours.
    fn find_processes(&mut self) -> Result<(), ConfineError> {
        for process in place::family(&self.processes.keys().copied().collect())? {
            if self.only_user.is_some_and(|user| !kernel::is_of(process, user)) {
                continue;
            }
            if let Ok(began) = kernel::began(process, process) {
                self.processes.entry(process).or_insert(began);
            }
        }
        Ok(())
    }
}

/// The first of these processes that is not of this user.
pub fn not_own(processes: &BTreeSet<u32>, user: u32) -> Option<u32> {
    processes.iter().copied().find(|&process| !kernel::is_of(process, user))
}

/// The CPUs that the threads of `service` may use now, all together.
pub fn cpus_of(service: &Service) -> Result<CpuList, ConfineError> {
    // Another user's: seen by its port and by nothing else.
    if service.processes.is_empty() {
        return Err(ConfineError::NoProcess { service: service.name.clone() });
    }
    let began = |&process: &u32| Some((process, kernel::began(process, process).ok()?));
    allowed_of(&service.processes.iter().filter_map(began).collect())
}

/// What the threads of these processes may use, all together.
fn allowed_of(processes: &BTreeMap<u32, u64>) -> Result<CpuList, ConfineError> {
    let mut allowed = CpuList::default();
    for &process in processes.keys() {
        for thread in kernel::of_process(process).map_err(ConfineError::Threads)? {
            match kernel::cpus(thread) {
                Ok(cpus) => allowed.0.extend(cpus.0),
                Err(cause) if kernel::is_gone(&cause) => {}
                Err(cause) => return Err(ConfineError::Threads(cause)),
            }
        }
    }
    if allowed.0.is_empty() { Err(ConfineError::Ended) } else { Ok(allowed) }
}

/// How many threads the service has.
fn threads_of(processes: &BTreeMap<u32, u64>) -> usize {
    processes.keys().map(|&process| kernel::count(process)).sum()
}
