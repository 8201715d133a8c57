//! Keeps a running, unmodified service on a set of CPUs, and puts everything back.
//!
//! A policy that wakes no more cores than a service needs has to tell the kernel: these CPUs, and
//! no others. There are four ways to do so ([`ConfineActuator`]). The best that works here is
//! taken, in this order:
//!
//! 1. *systemd*, where it owns the tree of cgroups: the unit's `AllowedCPUs=`, as a runtime
//!    property.
//! 2. *cpuset v2*: the service's own cgroup.
//! 3. *cpuset v1*: the service's own cpuset, or one that we make for it (`roost-PROCESS`) inside
//!    the one where it is.
//! 4. *affinity*: each of its threads. It works everywhere, but a thread may undo it for itself,
//!    and where a service sets its threads' affinities while it runs, the two disagree ([`Drift`]).
//!
//! A cpuset also holds for future threads, and no thread can leave it. [`Confiner::drain_notices`]
//! says why a better way was passed over.
//!
//! ```text
//!   Confiner --- Threads  (threads.rs)   new ones, pinned ones               affinity/PROCESS:BEGAN/THREAD:BEGAN
//!      |     --- Cpuset   (cpuset.rs)    its group, shared or its own        .../cpuset.cpus, .../roost-PROCESS
//!      |     --- Unit     (unit.rs)      by systemd's name                   unit/NAME/AllowedCPUs
//!      '-- Journal: written before each change, undone on drop, and by `restore` after a SIGKILL
//! ```
//!
//! Terms:
//! - A thread is *pinned* if it may run on fewer CPUs than its process's others. It keeps those of
//!   its own that are among the new set, and gets the whole new set if none is.
//! - *Allowed*: the union of the CPUs of the service's threads when we came.
//! - A change is *foreign* if the present text is not the one that we left.
//!
//! Invariants:
//! - The service never gets a CPU that it was not allowed before, and is never left without one
//!   that is online.
//! - A foreign change is reported, and overwritten only by an explicit [`Confiner::confine`] or
//!   [`Confiner::reassert`]; then it is the text that comes back in the end.
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
use crate::root::Gaps;
use crate::system::sched_ext::sched_ext;
use crate::system::topology::online_cpus;
use cpuset::Cpuset;
use machine::CpuList;
use service_lock::ServiceLocks;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use threads::Threads;
use unit::Unit;

/// The means that keeps a service on its CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfineActuator {
    /// The affinity of each of its threads. Those of other users need CAP_SYS_NICE.
    Affinity,
    /// Its cgroup's `cpuset.cpus`.
    CpusetV2,
    /// Its cpuset's `cpuset.cpus`, in a tree of version 1.
    CpusetV1,
    /// Its unit's `AllowedCPUs=`.
    Systemd,
}

/// A notice where a scheduler in BPF is loaded that keeps threads where they are bound.
fn beside_sched_ext(root: &Root, cpus: &CpuList) -> Result<Option<String>, ConfineError> {
    let Some(scheduler) = sched_ext(root, &mut Gaps::default()) else { return Ok(None) };
    let name = scheduler.name.clone().unwrap_or_else(|| "without a name".to_owned());
    match scheduler.keeps_affinity(cpus) {
        Ok(()) => Ok(Some(format!(
            "beside the sched_ext scheduler {name}, which keeps threads where they are bound (tried); it \
             decides on which of these CPUs they wake up"
        ))),
        Err(found) => Err(ConfineError::Scheduler { name, found }),
    }
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

pub struct ConfineOptions {
    /// Our name, for a process that finds the service taken: `roost govern memcached`.
    pub holder: String,
    /// The means; `None`: the best that works here.
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

/// The effect of a call of [`Confiner::confine`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confined {
    pub threads: usize,
    /// Threads that were moved to other CPUs; where a cpuset does it, all or none.
    pub changed: usize,
    /// The CPUs that it may use now: those requested that are online.
    pub in_force: CpuList,
}

/// The changes since the last check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// New threads that were moved to their CPUs.
    pub confined: usize,
    /// Changes by other programs. They stay.
    pub foreign: Vec<Foreign>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Its object: `CPUs of thread 12 of process 10`, `/sys/fs/cgroup/shop/cpuset.cpus`.
    pub what: String,
    pub reads: String,
    pub ours: String,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, reads, ours } = self;
        write!(f, "{what}: reads `{reads}`, which another program set after our `{ours}`")
    }
}

/// This many checks lie between two searches for new processes that a cpuset keeps already.
const LOOKS_APART: u32 = 4;

/// Keeps one service on a set of CPUs. Drop puts everything back, so also when a panic unwinds;
/// `std::process::exit` drops nothing, so call [`Confiner::release`] before it.
#[derive(Debug)]
pub struct Confiner {
    root: Root,
    /// Each with the time at which it began.
    processes: BTreeMap<u32, u64>,
    only_user: Option<u32>,
    allowed: CpuList,
    means: Means,
    asked: Option<CpuList>,
    /// The number of checks so far.
    looks: u32,
    births: Births,
    /// The last process that was born when processes were last searched.
    youngest: Option<u64>,
    notices: Vec<String>,
    /// Dropped before the locks: no other process may have the service while it is not as it was.
    journal: Journal,
    _locks: ServiceLocks,
}

#[derive(Debug)]
enum Means {
    Threads(Threads),
    Cpuset(Cpuset),
    Unit(Unit),
}

impl Confiner {
    /// Locks the service, puts back the settings that a dead run left, and finds the actuator. A
    /// cpuset that has to be made is made here; the service may still use the CPUs that it had.
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
        let mut notices = restore_at_start(root)?;
        let allowed = allowed_of(&processes)?;
        notices.extend(beside_sched_ext(root, &allowed)?);
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

    pub fn actuator(&self) -> ConfineActuator {
        match &self.means {
            Means::Threads(_) => ConfineActuator::Affinity,
            Means::Cpuset(cpuset) => cpuset.actuator(),
            Means::Unit(_) => ConfineActuator::Systemd,
        }
    }

    /// The file or property that names the service's CPUs, where there is one, as the journal calls
    /// it.
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

    /// The known processes of the service: [`Self::check`] finds new ones.
    pub fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        self.processes.keys().copied()
    }

    /// The notices since the last call: the remains of a dead run, and why a better actuator is not
    /// taken. Each fact comes once.
    pub fn drain_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Keeps the service on `cpus`, and returns the outcome.
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

    /// Looks again: finds new processes and threads, confines those threads, and reports changes by
    /// other programs without touching them. The search for processes looks at every one of the
    /// machine, at some microseconds each, if any process was born since the last time. Where a
    /// cpuset keeps new ones anyway, it does so every fourth time.
    pub fn check(&mut self) -> Result<Drift, ConfineError> {
        // Read before the search: a process that is born meanwhile is found the next time.
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

    /// Puts the request in force again, over changes by other programs; theirs then come back on
    /// release. A process that was moved to another cgroup stays there. Without a request this does
    /// nothing.
    pub fn reassert(&mut self) -> Result<Confined, ConfineError> {
        match self.asked.clone() {
            Some(asked) => self.confine(&asked),
            None => Ok(Confined::default()),
        }
    }

    /// Puts everything back now, and returns one line for each change. Dropping does the same in
    /// silence. The service can be confined again after.
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

    /// Puts everything back after the service's cpuset has changed. A thread that could use all of
    /// `before`, the CPUs of the cpuset until now, may use all of those that it has now.
    pub fn follow(&mut self, before: &CpuList) {
        let free = match &self.means {
            Means::Threads(threads) => threads.that_had(&self.journal, before),
            Means::Cpuset(_) | Means::Unit(_) => Vec::new(),
        };
        self.release();
        for thread in free {
            // It may have ended.
            let _ = kernel::set_all_cpus(thread);
        }
    }

    /// Settles on `wanted`, or on the best that works, and notes why a better one does not.
    fn choose(&mut self, wanted: Option<ConfineActuator>) -> Result<(), ConfineError> {
        use ConfineActuator::{Affinity, CpusetV1, CpusetV2, Systemd};
        let tried = wanted.map_or_else(|| vec![Systemd, CpusetV2, CpusetV1, Affinity], |one| vec![one]);
        for &actuator in &tried {
            // A request by name owns this part of systemd's tree.
            let owned =
                if wanted.is_none() && actuator == CpusetV2 { place::of_systemd(&self.root) } else { None };
            let prepared = owned.map_or_else(|| self.prepared(actuator), Err);
            match prepared {
                Ok(means) => {
                    self.means = means;
                    return Ok(());
                }
                Err(reason) => {
                    // Resources of an attempt that failed.
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

    /// Drops processes that ended. Unless a process was born, no number has come to mean another.
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

/// The union of the CPUs that the threads of `service` may use now.
pub fn cpus_of(service: &Service) -> Result<CpuList, ConfineError> {
    // Another user's: only its port is visible.
    if service.processes.is_empty() {
        return Err(ConfineError::NoProcess { service: service.name.clone() });
    }
    let began = |&process: &u32| Some((process, kernel::began(process, process).ok()?));
    allowed_of(&service.processes.iter().filter_map(began).collect())
}

/// The union of the CPUs of these processes' threads.
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

fn threads_of(processes: &BTreeMap<u32, u64>) -> usize {
    processes.keys().map(|&process| kernel::count(process)).sum()
}
