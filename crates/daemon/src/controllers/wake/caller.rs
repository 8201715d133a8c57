//! The open requests of one caller: maps its request names to the planner's.
//!
//! Invariants: a caller has at most [`OUTSTANDING_MAX`] open requests; one more replaces the
//! oldest, which counts as never come. A name that is used twice means the later request. When the
//! caller goes, all its requests are withdrawn.

use super::plan::Plan;
use machine::{CpuId, Duration, Instant};
use policy::wake_plan::{
    Announced, Announcements, Armed, ClientId, KernelId, Kernels, Launched, Principal, Record, Refused,
    Request, RequestId, Timers,
};
use slots::wake::Said;
use std::collections::BTreeMap;

/// The predictors, shared by all callers.
#[derive(Debug)]
pub(super) struct Predictors {
    pub kernels: Kernels,
    pub arrivals: Kernels,
    pub timers: Timers,
    pub announcements: Announcements,
}

impl Default for Predictors {
    fn default() -> Self {
        Self {
            kernels: Kernels::new(Default::default()),
            arrivals: Kernels::new(Default::default()),
            timers: Timers::new(Default::default()),
            announcements: Announcements::new(Default::default()),
        }
    }
}

impl Predictors {
    /// Each predictor's record, by name.
    pub fn records(&self) -> [(&'static str, Record); 4] {
        [
            ("kernels", self.kernels.total()),
            ("arrivals", self.arrivals.total()),
            ("timers", self.timers.record()),
            ("announcements", self.announcements.total()),
        ]
    }
}

/// The most open requests of a caller.
pub(super) const OUTSTANDING_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Caller {
    pub principal: Principal,
    under_way: BTreeMap<u64, UnderWay>,
    /// The last arrival of each stream.
    streams: BTreeMap<u64, (Launched, Vec<RequestId>)>,
    /// In the order of arrival; a name may stand here after its request has ended.
    order: std::collections::VecDeque<u64>,
    pub accepted: u64,
    pub refused: u64,
    pub last_refusal: Option<Refused>,
}

#[derive(Debug)]
struct UnderWay {
    requests: Vec<RequestId>,
    slip: Slip,
}

#[derive(Debug)]
enum Slip {
    None,
    Kernel(Launched),
    Timer(Armed),
    Announced(Announced),
}

/// A time further from now than this is taken as this far.
const HOUR: Duration = Duration::from_secs(3_600);

/// The most streams of arrivals of one caller.
const STREAMS_MAX: usize = 32;

impl Caller {
    pub fn new(principal: Principal) -> Self {
        Self {
            principal,
            under_way: BTreeMap::new(),
            streams: BTreeMap::new(),
            order: std::collections::VecDeque::new(),
            accepted: 0,
            refused: 0,
            last_refusal: None,
        }
    }

    /// Carries out one message. A direct request that is refused is the error.
    pub fn hear(&mut self, plan: &mut Plan, now: Instant, said: Said) -> Result<(), Refused> {
        // A time in the future has not come, and one an hour ago teaches a predictor nothing.
        let past =
            |at: Instant| at.clamp(Instant::from_nanos(now.as_nanos().saturating_sub(HOUR.as_nanos())), now);
        let ahead = |at: Instant| at.min(now + HOUR);
        match said {
            Said::Wake { id, cpus, ready, stay } => {
                return self.wake(plan, now, id, cpus.iter(), ready, stay);
            }
            Said::Came { id } => self.ended(plan, now, id, now),
            Said::Ended { id, at } => self.ended(plan, now, id, past(at)),
            Said::Withdrawn { id } => self.withdrawn(plan, now, id),
            Said::Began { id, key, cpus, at } => {
                let at = past(at);
                let launched = plan.predictors.kernels.handle_launched(at, self.kernel(key));
                let requests = plan.foresee(now, self.principal, cpus.iter(), at, launched.prediction);
                self.keep(plan, now, id, UnderWay { requests, slip: Slip::Kernel(launched) });
            }
            Said::Armed { id, expiry, cpus, at } => {
                let at = past(at);
                let armed = plan.predictors.timers.handle_armed(at, ahead(expiry));
                let requests = plan.foresee(now, self.principal, cpus.iter(), at, Some(armed.prediction));
                self.keep(plan, now, id, UnderWay { requests, slip: Slip::Timer(armed) });
            }
            Said::Arrived { key, cpus, at } => self.arrived(plan, now, key, cpus.iter(), past(at)),
            Said::Follows { id, key, due, cpus, at } => {
                let at = past(at);
                let client = ClientId(self.kernel(key).0);
                let announced =
                    plan.predictors.announcements.handle_announced(at, client, ahead(due).since(at));
                let requests = plan.foresee(now, self.principal, cpus.iter(), at, announced.prediction);
                self.keep(plan, now, id, UnderWay { requests, slip: Slip::Announced(announced) });
            }
        }
        Ok(())
    }

    /// Withdraws all requests of the caller.
    pub fn depart(&mut self, plan: &mut Plan, now: Instant) {
        for id in self.under_way.keys().copied().collect::<Vec<_>>() {
            self.withdrawn(plan, now, id);
        }
        for (_, (_, requests)) in std::mem::take(&mut self.streams) {
            requests.into_iter().for_each(|request| _ = plan.withdraw(now, request));
        }
    }

    fn wake(
        &mut self,
        plan: &mut Plan,
        now: Instant,
        id: u64,
        cpus: impl Iterator<Item = CpuId>,
        ready: Instant,
        stay: Duration,
    ) -> Result<(), Refused> {
        let (mut requests, mut refused) = (Vec::new(), None);
        for cpu in cpus {
            match plan.request(now, &Request { principal: self.principal, cpu, ready, stay }) {
                Ok(request) => requests.push(request),
                Err(why) => refused = Some(why),
            }
        }
        if requests.is_empty() && refused.is_none() {
            // No CPU was named.
            refused = Some(Refused::UnknownCpu(CpuId(u16::MAX)));
        }
        if !requests.is_empty() {
            self.keep(plan, now, id, UnderWay { requests, slip: Slip::None });
        }
        match refused {
            None => {
                self.accepted += 1;
                Ok(())
            }
            Some(why) => {
                self.refused += 1;
                self.last_refusal = Some(why);
                Err(why)
            }
        }
    }

    fn ended(&mut self, plan: &mut Plan, now: Instant, id: u64, at: Instant) {
        let Some(UnderWay { requests, slip }) = self.under_way.remove(&id) else { return };
        match &slip {
            Slip::None => {}
            Slip::Kernel(launched) => plan.predictors.kernels.handle_done(at, launched),
            Slip::Timer(armed) => plan.predictors.timers.handle_fired(at, armed),
            Slip::Announced(announced) => plan.predictors.announcements.handle_arrived(at, announced),
        }
        requests.into_iter().for_each(|request| _ = plan.came(now, request));
    }

    fn withdrawn(&mut self, plan: &mut Plan, now: Instant, id: u64) {
        let Some(UnderWay { requests, slip }) = self.under_way.remove(&id) else { return };
        match &slip {
            Slip::None => {}
            Slip::Kernel(launched) => plan.predictors.kernels.handle_abandoned(launched),
            Slip::Timer(armed) => plan.predictors.timers.handle_disarmed(armed),
            Slip::Announced(announced) => plan.predictors.announcements.handle_given_up(announced),
        }
        requests.into_iter().for_each(|request| _ = plan.withdraw(now, request));
    }

    fn arrived(
        &mut self,
        plan: &mut Plan,
        now: Instant,
        key: u64,
        cpus: impl Iterator<Item = CpuId>,
        at: Instant,
    ) {
        if let Some((before, requests)) = self.streams.remove(&key) {
            plan.predictors.arrivals.handle_done(at, &before);
            requests.into_iter().for_each(|request| _ = plan.came(now, request));
        }
        if self.streams.len() >= STREAMS_MAX {
            return;
        }
        let next = plan.predictors.arrivals.handle_launched(at, self.kernel(key));
        let requests = plan.foresee(now, self.principal, cpus, at, next.prediction);
        self.streams.insert(key, (next, requests));
    }

    fn keep(&mut self, plan: &mut Plan, now: Instant, id: u64, under_way: UnderWay) {
        self.withdrawn(plan, now, id);
        self.order.push_back(id);
        self.under_way.insert(id, under_way);
        while self.under_way.len() > OUTSTANDING_MAX || self.order.len() > 2 * OUTSTANDING_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            // This drops a name early if it was used again. Few callers will miss it.
            self.withdrawn(plan, now, oldest);
        }
    }

    /// Keeps the keys of two callers apart.
    fn kernel(&self, key: u64) -> KernelId {
        KernelId(u64::from(self.principal.0) << 44 ^ key & ((1 << 44) - 1))
    }
}

#[cfg(test)]
mod tests;
