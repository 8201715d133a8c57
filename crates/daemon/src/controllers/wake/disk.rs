//! Wake-ups for disk operations, without a message from any program. The kernel reports an
//! operation that goes to a disk. Its time is predicted from earlier operations of its kind, size
//! and depth. The CPU that waits for it is awake in time, and so is the CPU that takes the disk's
//! interrupts.
//!
//! A thread on the CPU that issued the operation gets the report: that CPU is awake then and about
//! to wait. A fast disk answers before the CPU could be woken again, so its window opens at once
//! and the CPU does not sleep at all. For a slower disk the CPU sleeps first.
//!
//! Completions teach which CPU takes the interrupts: a queue's interrupts mostly stay on one CPU.
//!
//! Invariants: at most [`UNDER_WAY_MAX`] operations are remembered. An operation whose completion
//! was lost is forgotten when its name is used again.

use super::plan::Shared;
use super::{PrincipalKind, Roll};
use linux::probes::{BlockEvent, BlockProgram, BpfError, Notifier};
use machine::{CpuId, CpuList};
use policy::wake_plan::{Device, DeviceParams, Issued, Operation, Principal, Record, RequestId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// More than any disk's queue holds.
const UNDER_WAY_MAX: usize = 1024;

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
    /// Watches `device`, or all disks, for threads that wait on these CPUs.
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

    /// The records of the predictions for reads and for writes.
    pub fn records(&self) -> [Record; 2] {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        [Operation::Read, Operation::Write].map(|operation| {
            known.devices.values().fold(Record::default(), |mut sum, disk| {
                sum += disk.model.record(operation);
                sum
            })
        })
    }

    /// The number of events that found no room in a buffer.
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
