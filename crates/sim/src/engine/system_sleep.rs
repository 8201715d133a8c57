//! The whole machine stops and sleeps, and goes on where it stopped: PowerNap and DreamWeaver.
//!
//! In a nap nothing runs: a core that was executing keeps its task and the rest of it, arrivals
//! queue, interrupts wait. Waking takes the deepest state's exit latency on every core.

use super::core_policy::Kind;
use super::cpu_set::CpuSet;
use super::known::{Naps, nap_policy};
use super::{Doing, Engine};
use machine::Instant;
use policy::kind::{NapOrder, NapPolicy, StallMark};
use std::collections::BTreeMap;

/// The policy, and since when each request is stalled.
pub(super) struct Nap {
    policy: Naps,
    /// Cores that have not come out of the nap yet.
    waking: CpuSet,
    /// Requests in the system by arrival, with how many there are of it.
    marks: BTreeMap<u64, (StallMark, u32)>,
}

impl Nap {
    pub fn new(policy: Box<dyn NapPolicy>) -> Self {
        Self { policy: policy.into(), waking: CpuSet::default(), marks: BTreeMap::new() }
    }

    pub fn enter(&mut self, now: Instant, arrived_ns: u64) {
        if let Some(mark) = nap_policy!(&self.policy, p => NapPolicy::mark(&**p, now)) {
            self.marks.entry(arrived_ns).or_insert((mark, 0)).1 += 1;
        }
    }

    pub fn leave(&mut self, arrived_ns: u64) {
        if let Some((_, count)) = self.marks.get_mut(&arrived_ns) {
            *count -= 1;
            if *count == 0 {
                self.marks.remove(&arrived_ns);
            }
        }
    }

    fn oldest(&self) -> Option<StallMark> {
        self.marks.first_key_value().map(|(_, &(mark, _))| mark)
    }
}

impl Engine {
    /// The number of requests in the system has changed, or the machine is awake again.
    pub(super) fn ask_nap_policy(&mut self, is_awake: bool) {
        let now = Instant::from_nanos(self.now);
        let in_system = self.metrics.in_system() as u32;
        let busy = in_system.min(self.setup.workers as u32) as u16;
        let Kind::Napping(nap) = &mut self.core_policy.kind else { return };
        let oldest = nap.oldest();
        let order = nap_policy!(
            &mut nap.policy,
            p => NapPolicy::handle_change(&mut **p, now, is_awake, in_system, busy, oldest)
        );
        self.obey_nap(order);
    }

    /// A stalled request must not wait any longer.
    pub(super) fn nap_timer(&mut self) {
        let now = Instant::from_nanos(self.now);
        let Kind::Napping(nap) = &mut self.core_policy.kind else { return };
        let order = nap_policy!(&mut nap.policy, p => NapPolicy::handle_timeout(&mut **p, now));
        self.obey_nap(order);
    }

    fn obey_nap(&mut self, order: Option<NapOrder>) {
        match order {
            Some(NapOrder::Nap) => self.nap(),
            Some(NapOrder::Wake) => self.end_nap(),
            None => {}
        }
        if let Kind::Napping(nap) = &self.core_policy.kind
            && let Some(due) = nap_policy!(&nap.policy, p => NapPolicy::poll_timeout(&**p))
        {
            self.counting_timer_at(due.as_nanos().max(self.now + 1));
        }
    }

    fn nap(&mut self) {
        let now = self.now;
        let deepest = (self.sleepers.table.len() - 1) as u8;
        for cpu in 0..self.hardware.cpus() {
            self.suspend_piece(cpu);
            let core = &mut self.cores[cpu];
            match core.doing {
                Doing::Asleep => self.idle.remove(usize::from(core.state) + 1, cpu),
                Doing::Polling => self.idle.remove(0, cpu),
                Doing::Working => {
                    let planned = core.ends.saturating_sub(core.began);
                    let ahead = core.ends.saturating_sub(now.max(core.began));
                    core.left *= if planned > 0 { ahead as f64 / planned as f64 } else { 0.0 };
                    core.halted = true;
                }
                // The interrupt begins anew.
                Doing::Interrupted | Doing::Program | Doing::Between | Doing::Waking | Doing::Napping => {}
            }
            if !matches!(core.doing, Doing::Asleep | Doing::Polling) {
                core.idle_since = now;
            }
            core.doing = Doing::Napping;
            core.state = deepest;
            self.hardware.sleep(cpu, deepest, now);
            self.events.clear(cpu);
        }
    }

    fn end_nap(&mut self) {
        let now = self.now;
        for cpu in 0..self.hardware.cpus() {
            if let Kind::Napping(nap) = &mut self.core_policy.kind {
                nap.waking.insert(cpu);
            }
            let exit = self.hardware.wake(cpu, now);
            self.cores[cpu].doing = Doing::Waking;
            self.events.set(cpu, now + exit);
        }
    }

    /// A core has come out of the nap; the last one says so to the policy.
    pub(super) fn nap_ended(&mut self, cpu: usize) {
        let now_ns = self.now;
        let length = now_ns - self.cores[cpu].idle_since;
        self.metrics.idle(length);
        if self.chronicle.is_some() {
            let core = &self.cores[cpu];
            self.tell_of_sleep(cpu, core.idle_since, Some(core.state), 0);
        }
        self.cores[cpu].idle_since = now_ns;
        if std::mem::take(&mut self.cores[cpu].halted) {
            self.resume_halted(cpu);
        } else {
            self.next_work(cpu);
        }
        let Kind::Napping(nap) = &mut self.core_policy.kind else { return };
        nap.waking.remove(cpu);
        if nap.waking.first().is_none() {
            self.ask_nap_policy(true);
        }
    }

    /// Whether this core is on its way out of a nap. Others may be out, asleep again, and on their way
    /// out of that.
    #[inline]
    pub(super) fn comes_from_nap(&self, cpu: usize) -> bool {
        matches!(&self.core_policy.kind, Kind::Napping(nap) if nap.waking.contains(cpu))
    }
}
