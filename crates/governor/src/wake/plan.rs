//! The planner and what carries its plan out, under one lock: whoever holds it may ask, and does at once what follows.

use super::caller::Predictors;
use super::helper::{Helper, Set};
use super::{Act, PrincipalInfo};
use host::holder::IdleWindow;
use machine::{CpuId, Duration, Instant, LengthHistogram};
use policy::wake_plan::{
    CpuCosts, Params, Planner, Prediction, Principal, Refused, Request, RequestId, WakeCommand,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The plan, shared by the loop that hears and the threads that open windows.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<Mutex<Plan>>);

impl Shared {
    pub fn new(plan: Plan) -> Self {
        Self(Arc::new(Mutex::new(plan)))
    }

    /// A panic in one thread leaves a plan that the others can go on with: each change is one call.
    pub fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is planned and what is in force.
#[derive(Debug)]
pub(super) struct Plan {
    planner: Planner,
    cpus: BTreeMap<CpuId, Planned>,
    pub predictors: Predictors,
    pub principals: BTreeMap<Principal, PrincipalInfo>,
    pub tally: PlanTally,
    pub notices: Vec<String>,
}

/// One CPU.
#[derive(Debug)]
struct Planned {
    window: Option<IdleWindow>,
    helper: Arc<Helper>,
    /// How late its helper's timer was, lately.
    late: VecDeque<Duration>,
    since_learned: usize,
    lateness: LengthHistogram,
    opened: u64,
    is_open: bool,
}

/// Counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PlanTally {
    pub accepted: u64,
    pub refused: u64,
    pub came: u64,
    pub writes_failed: u64,
}

/// What one CPU's helper did.
#[derive(Clone, Debug)]
pub(super) struct CpuLook {
    pub cpu: CpuId,
    pub costs: CpuCosts,
    pub is_open: bool,
    pub opened: u64,
    pub lateness: LengthHistogram,
    pub asked_of: Option<String>,
}

/// Lateness is remembered for so many windows of a CPU: enough for a 99th percentile.
const LATE_KEPT: usize = 200;
/// And learned from after so many new ones.
const LEARN_EVERY: usize = 50;
/// A lateness beyond this is no exit latency: the CPU was the host's, or somebody's real-time thread's.
const LATE_MAX: Duration = Duration::from_millis(1);

impl Plan {
    pub fn new(
        params: Params,
        costs: &[CpuCosts],
        windows: Vec<(CpuId, Option<IdleWindow>, Arc<Helper>)>,
        predictors: Predictors,
    ) -> Self {
        let planned = |(cpu, window, helper)| {
            let planned = Planned {
                window,
                helper,
                late: VecDeque::with_capacity(LATE_KEPT),
                since_learned: 0,
                lateness: LengthHistogram::default(),
                opened: 0,
                is_open: false,
            };
            (cpu, planned)
        };
        Self {
            planner: Planner::new(params, costs),
            cpus: windows.into_iter().map(planned).collect(),
            predictors,
            principals: BTreeMap::new(),
            tally: PlanTally::default(),
            notices: Vec::new(),
        }
    }

    /// One CPU shall be ready.
    pub fn request(&mut self, now: Instant, request: &Request) -> Result<RequestId, Refused> {
        let answer = self.planner.handle_request(now, request);
        match answer {
            Ok(_) => self.tally.accepted += 1,
            Err(_) => self.tally.refused += 1,
        }
        self.obey(now, None);
        answer
    }

    /// Each of these CPUs shall be ready when that is foreseen to happen. What is refused is woken by the event itself, as without us.
    pub fn foresee(
        &mut self,
        now: Instant,
        principal: Principal,
        cpus: impl Iterator<Item = CpuId>,
        since: Instant,
        prediction: Option<Prediction>,
    ) -> Vec<RequestId> {
        let Some(prediction) = prediction else { return Vec::new() };
        cpus.filter_map(|cpu| self.request(now, &prediction.request(principal, cpu, since)).ok()).collect()
    }

    /// The event came. False if the request was over.
    pub fn came(&mut self, now: Instant, id: RequestId) -> bool {
        let stood = self.planner.handle_came(now, id);
        self.tally.came += u64::from(stood);
        self.obey(now, None);
        stood
    }

    /// It is taken back.
    pub fn withdraw(&mut self, now: Instant, id: RequestId) -> bool {
        let stood = self.planner.handle_withdrawn(now, id);
        self.obey(now, None);
        stood
    }

    /// The helper of `cpu` runs there: opens or closes its window, if it is time. `due` is what its timer was set to.
    pub fn attend(&mut self, now: Instant, cpu: CpuId, due: Option<Instant>) {
        // The timer that ends a window finds the CPU awake, and says nothing of waking.
        if let Some(due) = due
            && self.cpus.get(&cpu).is_some_and(|planned| !planned.is_open)
        {
            self.learn(cpu, now.since(due));
        }
        self.planner.handle_timeout(now);
        self.obey(now, Some(cpu));
        self.open_if_due(cpu);
    }

    /// What it knows and has counted.
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Each CPU.
    pub fn looks(&self) -> Vec<CpuLook> {
        let look = |(&cpu, planned): (&CpuId, &Planned)| {
            Some(CpuLook {
                cpu,
                costs: self.planner.costs_of(cpu)?,
                is_open: planned.is_open,
                opened: planned.opened,
                lateness: planned.lateness.clone(),
                asked_of: planned.window.as_ref().and_then(|window| window.asked_of().map(str::to_owned)),
            })
        };
        self.cpus.iter().filter_map(look).collect()
    }

    /// The helpers, to be ended.
    pub fn helpers(&self) -> Vec<Arc<Helper>> {
        self.cpus.values().map(|planned| Arc::clone(&planned.helper)).collect()
    }

    /// Closes every window for good.
    pub fn release(&mut self) {
        self.cpus.values_mut().for_each(|planned| planned.window = None);
    }

    /// CPUs whose window could not be opened, and is wanted anew.
    pub fn lost_windows(&self) -> Vec<CpuId> {
        self.cpus.iter().filter(|(_, planned)| planned.window.is_none()).map(|(&cpu, _)| cpu).collect()
    }

    /// A window for one of those.
    pub fn give_window(&mut self, cpu: CpuId, window: IdleWindow) {
        if let Some(planned) = self.cpus.get_mut(&cpu) {
            planned.window = Some(window);
        }
        self.open_if_due(cpu);
    }

    /// Does what the planner says. `here`: the CPU on whose helper this runs.
    fn obey(&mut self, now: Instant, here: Option<CpuId>) {
        while let Some(command) = self.planner.poll_command() {
            match command {
                // Its own helper opens it, so that the CPU wakes.
                WakeCommand::KeepAwake { cpu, .. } if Some(cpu) != here => {
                    if let Some(planned) = self.cpus.get(&cpu).filter(|planned| !planned.is_open) {
                        planned.helper.call(now);
                    }
                }
                WakeCommand::KeepAwake { cpu, .. } => self.open_if_due(cpu),
                WakeCommand::MaySleep { cpu } => {
                    self.close(cpu);
                    if let Some(planned) = self.cpus.get(&cpu).filter(|_| Some(cpu) != here) {
                        // Its timer stands at the end of the window. The CPU is awake now: later it would be woken for nothing.
                        planned.helper.set(self.planner.due_of(cpu), Set::Anew);
                    }
                }
            }
        }
        for (&cpu, planned) in &self.cpus {
            let how = if Some(cpu) == here { Set::Itself } else { Set::IfSooner };
            planned.helper.set(self.planner.due_of(cpu), how);
        }
    }

    fn open_if_due(&mut self, cpu: CpuId) {
        let Some(planned) = self.cpus.get_mut(&cpu) else { return };
        let Some(until) = self.planner.awake_until(cpu) else { return };
        planned.helper.spin_until.store(until.as_nanos(), Ordering::Release);
        if planned.is_open {
            return;
        }
        planned.is_open = true;
        planned.opened += 1;
        if planned.helper.act == Act::Spin {
            return;
        }
        if let Some(window) = &mut planned.window
            && let Err(reason) = window.open()
        {
            self.tally.writes_failed += 1;
            self.notices.push(reason);
            planned.window = None;
        }
    }

    fn close(&mut self, cpu: CpuId) {
        let Some(planned) = self.cpus.get_mut(&cpu) else { return };
        planned.helper.spin_until.store(0, Ordering::Release);
        planned.is_open = false;
        if let Some(window) = &mut planned.window
            && let Err(reason) = window.close()
        {
            self.tally.writes_failed += 1;
            self.notices.push(reason);
            // Dropping it tries again, and the holder's restoring is the last resort.
            planned.window = None;
        }
    }

    /// What waking takes is what it took: the 99th percentile of a helper's own timers, in the states that this CPU really sleeps in.
    fn learn(&mut self, cpu: CpuId, late: Duration) {
        let Some(planned) = self.cpus.get_mut(&cpu) else { return };
        planned.lateness.record(late);
        if late > LATE_MAX {
            return;
        }
        if planned.late.len() == LATE_KEPT {
            planned.late.pop_front();
        }
        planned.late.push_back(late);
        planned.since_learned += 1;
        if planned.late.len() < LATE_KEPT / 2 || planned.since_learned < LEARN_EVERY {
            return;
        }
        planned.since_learned = 0;
        let mut sorted: Vec<Duration> = planned.late.iter().copied().collect();
        sorted.sort_unstable();
        self.planner.handle_exit_latency(cpu, observe::probe::percentile(&sorted, 99));
    }
}
