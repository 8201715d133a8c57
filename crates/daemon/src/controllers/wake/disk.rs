//! Disks, without a word from any program: the kernel tells when an operation goes to a disk, its time is predicted from those before of its
//! kind, size and depth, and the CPU that waits for it is awake in time, and so is the one that takes the disk's interrupts.
//!
//! Who hears of an operation is a thread on the CPU that asked: that CPU is awake then, about to wait. A fast disk answers before it
//! could be woken again, so its window is opened at once and the CPU does not sleep at all; for slower ones it sleeps first.
//!
//! Which CPU takes them is learned from completions: a queue's interrupts mostly stay where they are.
//!
//! What always holds: at most [`UNDER_WAY_MAX`] operations are remembered, and one whose completion was lost is forgotten when its name is used
//! again or there is no room.

use super::plan::Shared;
use super::{PrincipalKind, Roll};
use linux::probes::{BlockEvent, BlockProgram, BpfError, Notifier};
use machine::{CpuId, CpuList};
use policy::wake_plan::{Device, DeviceParams, Issued, Operation, Principal, Record, RequestId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// More are not remembered: more than any disk's queue.
const UNDER_WAY_MAX: usize = 1024;

/// Disks that are watched.
#[derive(Debug)]
pub(super) struct Disks {
    known: Arc<Mutex<Known>>,
    program: BlockProgram,
    _notifiers: Vec<Notifier>,
}

#[derive(Debug)]
struct Known {
    principal: Principal,
    devices: BTreeMap<u32, Disk>,
    under_way: BTreeMap<u64, (u32, Issued, Vec<RequestId>)>,
}

#[derive(Debug)]
struct Disk {
    model: Device,
    interrupts: Option<CpuId>,
}

impl Disks {
    /// Watches `device`, or all, for whoever waits on these CPUs.
    pub fn open(device: Option<u32>, cpus: &CpuList, shared: Shared, roll: &Roll) -> Result<Self, BpfError> {
        let program = BlockProgram::load(device)?;
        let principal = shared.change(|plan| roll.enter(plan, PrincipalKind::Device, None, "disks"));
        let known = Known { principal, devices: BTreeMap::new(), under_way: BTreeMap::new() };
        let known = Arc::new(Mutex::new(known));
        let heard = Arc::clone(&known);
        let notifiers = program.hear("wake-disk", cpus, move |event| {
            heard.lock().unwrap_or_else(PoisonError::into_inner).hear(&shared, event);
        })?;
        Ok(Self { known, program, _notifiers: notifiers })
    }

    /// How the predictions fared: of reads, of writes.
    pub fn records(&self) -> [Record; 2] {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        [Operation::Read, Operation::Write].map(|operation| {
            known.devices.values().fold(Record::default(), |mut sum, disk| {
                sum += disk.model.record(operation);
                sum
            })
        })
    }

    /// Records that found no room.
    pub fn lost(&self) -> u64 {
        self.program.counted()[1]
    }
}

impl Known {
    fn hear(&mut self, shared: &Shared, event: BlockEvent) {
        let new = || Disk { model: Device::new(DeviceParams::default()), interrupts: None };
        let disk = self.devices.entry(event.device).or_insert_with(new);
        let now = linux::now();
        if event.is_complete {
            disk.interrupts = Some(event.cpu);
            let Some((device, issued, requests)) = self.under_way.remove(&event.request) else { return };
            if let Some(disk) = self.devices.get_mut(&device) {
                disk.model.handle_completed(event.at, &issued);
            }
            if !requests.is_empty() {
                shared.change(|plan| requests.into_iter().for_each(|request| _ = plan.came(now, request)));
            }
            return;
        }
        if let Some((_, stale, _)) = self.under_way.remove(&event.request) {
            disk.model.handle_abandoned(&stale);
        }
        if self.under_way.len() >= UNDER_WAY_MAX {
            return;
        }
        let operation = if event.is_write { Operation::Write } else { Operation::Read };
        let issued = disk.model.handle_issued(event.at, operation, u64::from(event.bytes));
        let interrupts = disk.interrupts.filter(|cpu| *cpu != event.cpu);
        let cpus = std::iter::once(event.cpu).chain(interrupts);
        let requests = if issued.prediction.is_some() {
            shared.change(|plan| plan.foresee(now, self.principal, cpus, event.at, issued.prediction))
        } else {
            Vec::new()
        };
        self.under_way.insert(event.request, (event.device, issued, requests));
    }
}
