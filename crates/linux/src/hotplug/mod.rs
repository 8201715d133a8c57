//! Takes CPUs offline and brings them back, and puts back the settings that this destroys.
//!
//! A CPU that is offline runs nothing at all and never wakes: no timer, no interrupt, no thread of
//! the kernel's own. No other way gains as much on a parked CPU, and none costs more. The whole
//! machine stands still for moments while a CPU goes; going takes some 50 ms and coming 20
//! (measured on a VM, `bpf-and-wakeups.md`); and the kernel throws away settings of others. So it
//! is offered and never chosen.
//!
//! The kernel destroys the following; the remedy comes after the colon.
//! - `cpuset.cpus` of version 1 loses the CPU for good, and the threads of a cpuset that has no
//!   other move up: we narrow it before, through the journal. A cpuset that has no other CPU keeps
//!   it online.
//! - A thread that chose this CPU alone gets all others (`select_fallback_rq`): we set those
//!   before, through the journal.
//! - Before 6.2, each thread of a cpuset that loses or gets a CPU forgets its choice: the choice is
//!   written down, and set again after.
//! - An interrupt that may go to this CPU alone may go to all others: we set that before. The
//!   kernel chooses the CPU of its mask afterwards.
//! - Forbidden idle states and the frequency's settings go with the CPU, and are perhaps fresh
//!   after: they are written down, and set again if the file had gone (`belongings.rs`).
//!
//! So we make nearly all changes ourselves and the journal knows them, which tells another
//! program's change from the kernel's. Not put back: which of its CPUs an interrupt goes to, a
//! register of the CPU's own (duty cycle), the bandwidth server of a thread under `SCHED_DEADLINE`;
//! and a thread that chose a CPU in the moment between our last look and its going.
//!
//! Terms:
//! - A CPU is *taken* if we took it offline.
//! - The CPUs that *stay* are those online then.
//!
//! Invariants:
//! - One Roost process does this: there is a lock, held until the end. A CPU that another Roost
//!   process needs stays online.
//! - Nothing goes offline before all that this destroys is in the journal; on every way out CPUs
//!   come back first.
//! - A CPU that another program took offline stays so; one of ours that another program brought
//!   back is theirs.
//! - The threads of a core go together or not at all.
//! - A CPU that cannot go (no `online` file, the last one, a refusal) stays online; that is told
//!   once and is no error.

mod able_to_go;
mod belongings;

use crate::journal::{Checkpoint, Journal, restore_at_start};
use crate::knob::switch_of;
use crate::lock::{FileLock, LockError, Refusal, run_folder, take};
use crate::processes::threads::{kernel_release, remembers_pins};
use crate::root::{FileError, Root};
use crate::system::topology::{online_cpus, topology};
use machine::{CpuId, CpuList};
use std::collections::{BTreeMap, BTreeSet};

/// Takes CPUs offline. Drop brings them back and puts everything back, so also when a panic
/// unwinds.
#[derive(Debug)]
pub struct Hotplug {
    root: Root,
    /// CPUs that share a core, as they were when it began: an offline CPU does not say.
    cores: Vec<BTreeSet<CpuId>>,
    taken: BTreeSet<CpuId>,
    /// CPUs that another program brought back.
    theirs: BTreeSet<CpuId>,
    /// Settings that went with each taken CPU and may not come back.
    lost: BTreeMap<CpuId, Vec<String>>,
    /// A thread forgets the CPUs that it chose when a CPU of its cpuset comes or goes.
    forgets_pins: bool,
    /// The CPUs that each held thread could have of its cpuset, where it is in one.
    within: BTreeMap<String, CpuList>,
    told: BTreeSet<String>,
    notices: Vec<String>,
    /// Dropped before the lock.
    journal: Journal,
    _lock: FileLock,
}

/// Why CPUs cannot be taken offline.
#[derive(Debug, thiserror::Error)]
pub enum HotplugError {
    /// Another process does, or no lock can be kept.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// This machine's CPUs stay.
    #[error(
        "no CPU can be taken offline here: {0}\nhint: leave actuator = \"hotplug\" out; cpusets \
         and affinities park CPUs as well"
    )]
    Unsupported(String),
}

impl From<FileError> for HotplugError {
    fn from(error: FileError) -> Self {
        Self::Unsupported(error.to_string())
    }
}

impl Hotplug {
    /// An error if no CPU of this machine can be taken offline by this user.
    pub fn supported(root: &Root) -> Result<(), HotplugError> {
        let online = online_cpus(root)?;
        let mut switches = online.0.iter().map(|&cpu| switch_of(cpu));
        let Some(switch) = switches.find(|switch| root.has(switch) == Some(true)) else {
            let reason = "the kernel shows no `online` file of any CPU (CONFIG_HOTPLUG_CPU)";
            return Err(HotplugError::Unsupported(reason.to_owned()));
        };
        // Seen on 6.1 after a kill: pins of strangers' threads came back narrower than they had
        // been, or not at all.
        let release = root.text("proc/sys/kernel/osrelease").unwrap_or_else(|_| kernel_release());
        if !remembers_pins(&release) {
            let reason =
                "a kernel before 6.2 forgets which CPUs threads chose, and not each choice could be put back";
            return Err(HotplugError::Unsupported(reason.to_owned()));
        }
        match root.may_write(&switch) {
            Some(false) => {
                Err(HotplugError::Unsupported(format!("/{switch} may not be written: run as root")))
            }
            _ => Ok(()),
        }
    }

    /// Takes the lock, puts back the settings that a dead run left, and finds the CPUs that share a
    /// core. `checkpoint` is called between the steps of each change.
    pub fn open(root: &Root, holder: &str, checkpoint: Option<Checkpoint>) -> Result<Self, HotplugError> {
        Self::supported(root)?;
        let path = run_folder(root)?.join("hotplug.lock");
        let lock = take(&path, holder).map_err(|refusal| match refusal {
            Refusal::Taken(holder) => LockError::Hotplug { holder, path: path.clone() },
            other => other.at(path.clone()),
        })?;
        let notices = restore_at_start(root)?;
        let topology = topology(root)?;
        let core = |cpu: CpuId| topology.siblings(cpu).collect::<BTreeSet<_>>();
        let cores: BTreeSet<BTreeSet<CpuId>> = topology.0.iter().map(|cpu| core(cpu.id)).collect();
        Ok(Self {
            root: root.clone(),
            cores: cores.into_iter().collect(),
            taken: BTreeSet::new(),
            theirs: BTreeSet::new(),
            lost: BTreeMap::new(),
            forgets_pins: !remembers_pins(&kernel_release()),
            within: BTreeMap::new(),
            told: BTreeSet::new(),
            notices,
            journal: Journal::begin(root, holder, checkpoint)?,
            _lock: lock,
        })
    }

    /// The CPUs that we took offline.
    pub fn taken(&self) -> CpuList {
        CpuList(self.taken.clone())
    }

    /// Takes these CPUs offline, and brings the others of ours back. [`Self::taken`] has those that
    /// went, [`Self::drain_notices`] why another did not.
    pub fn keep_offline(&mut self, wanted: &CpuList) {
        if let Err(error) = self.try_keep_offline(&wanted.0) {
            self.tell(format!("CPUs stay online: {error}"));
        }
    }

    /// The notices since the last call; each fact comes once.
    pub fn drain_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Brings all CPUs back and puts everything back now, one line per thing that is news. Dropping
    /// does the same in silence.
    pub fn release(&mut self) -> Vec<String> {
        if let Ok(online) = online_cpus(&self.root) {
            self.note_before_forgetting(&online.0);
        }
        let done = self.journal.put_back_all();
        self.lost.clear();
        self.within.clear();
        // One that could not be brought back is held still.
        let held = self.journal.held();
        self.taken.retain(|&cpu| held.contains_key(&switch_of(cpu)));
        done.iter().filter(|undone| undone.is_news()).map(ToString::to_string).collect()
    }

    fn try_keep_offline(&mut self, wanted: &BTreeSet<CpuId>) -> Result<(), FileError> {
        let online = online_cpus(&self.root)?.0;
        self.leave_to_others(&online);
        self.theirs.retain(|cpu| wanted.contains(cpu));
        let back: Vec<CpuId> = self.taken.difference(wanted).copied().collect();
        if !back.is_empty() {
            self.note_before_forgetting(&online);
            for cpu in back {
                self.bring_back(cpu);
            }
            self.arrange(&online_cpus(&self.root)?);
        }

        let online = online_cpus(&self.root)?.0;
        let going = self.able_to_go(wanted, &online);
        if going.is_empty() {
            return Ok(());
        }
        let staying = CpuList(&online - &going);
        let stuck = self.arrange(&staying);
        let cores: Vec<BTreeSet<CpuId>> = self.cores.iter().map(|core| core & &going).collect();
        for core in cores.iter().filter(|core| !core.is_empty() && core.is_disjoint(&stuck)) {
            self.take_core(core);
        }
        // Some may have stayed; and an old kernel has made threads forget.
        if self.forgets_pins || !going.is_subset(&self.taken) {
            self.arrange(&online_cpus(&self.root)?);
        }
        Ok(())
    }

    /// Later choices of others are lost when CPUs come back, on kernels that make threads forget.
    fn note_before_forgetting(&mut self, online: &BTreeSet<CpuId>) {
        if self.forgets_pins && !self.taken.is_empty() {
            self.arrange(&CpuList(online.clone()));
        }
    }

    /// Those that another program has brought back.
    fn leave_to_others(&mut self, online: &BTreeSet<CpuId>) {
        for cpu in self.taken.intersection(online).copied().collect::<Vec<_>>() {
            self.taken.remove(&cpu);
            self.theirs.insert(cpu);
            // Reads as it should, so this only forgets; its lost settings belong to the program
            // that brought it back.
            let _ = self.journal.put_back(&switch_of(cpu));
            for path in self.lost.remove(&cpu).unwrap_or_default() {
                let _ = self.journal.forget(&path);
            }
            self.notices.push(format!("{cpu} was brought back by another program: it stays online"));
        }
    }

    /// All threads of a core, or none.
    fn take_core(&mut self, core: &BTreeSet<CpuId>) {
        for &cpu in core {
            self.expect_losses(cpu);
            let refused = match self.journal.set(&switch_of(cpu), OFFLINE) {
                Ok(reads) if reads == OFFLINE => {
                    self.taken.insert(cpu);
                    continue;
                }
                Ok(reads) => format!("it reads `{reads}` after `{OFFLINE}` was written"),
                Err(error) => error.to_string(),
            };
            self.forget_losses(cpu);
            self.tell(format!("{cpu} stays online: {refused}"));
            for &sibling in core.intersection(&self.taken.clone()) {
                self.bring_back(sibling);
            }
            return;
        }
    }

    fn bring_back(&mut self, cpu: CpuId) {
        let vanished = self.vanished(cpu);
        for path in &vanished {
            if let Err(error) = self.journal.expect_fresh(path) {
                self.tell(error.to_string());
            }
        }
        if let Err(error) = self.journal.put_back(&switch_of(cpu)) {
            self.tell(format!("{cpu} stays offline: {error}"));
            return;
        }
        self.taken.remove(&cpu);
        self.replace_losses(cpu, &vanished);
    }

    fn tell(&mut self, notice: String) {
        if self.told.insert(notice.clone()) {
            self.notices.push(notice);
        }
    }
}

/// The text of the file of a CPU that is away.
const OFFLINE: &str = "0";

#[cfg(test)]
mod tests;
