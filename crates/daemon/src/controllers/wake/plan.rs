//! The planner and its windows, under one lock. A thread that holds the lock may ask, and carries
//! out the consequences at once.

use super::caller::Predictors;
use super::helper::{Helper, Set};
use super::{Act, PrincipalInfo, PrincipalKind};
use linux::arbiter::IdleWindow;
use machine::{CpuId, Duration, Instant, LengthHistogram};
use policy::wake_plan::{
    CpuCosts, Params, Payer, Planner, Prediction, Principal, Refused, Request, RequestId, WakeCommand,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// The plan, shared by the loop that hears callers and the threads that open windows.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<Mutex<Plan>>);

impl Shared {
    pub fn new(plan: Plan) -> Self {
        Self(Arc::new(Mutex::new(plan)))
    }

    /// Locks the plan for reading.
    pub fn look(&self) -> impl Deref<Target = Plan> + '_ {
        linux::lock_spinning(&self.0)
    }

    /// Changes the plan. Helpers are called afterwards, once each, without the lock. So a caller
    /// that reports the end of one event and the time of the next in one change calls a helper
    /// while its CPU is still awake for the first. And a helper that preempts its caller finds the
    /// lock free.
    pub fn change<T>(&self, work: impl FnOnce(&mut Plan) -> T) -> T {
        let mut plan = linux::lock_spinning(&self.0);
        let done = work(&mut plan);
        let mut called = plan.set_timers();
        drop(plan);
        if called.len() > 1 {
            // A helper on this CPU preempts this thread at once, and the others would be called
            // after it. It comes last.
            let here = rustix::thread::sched_getcpu();
            called.sort_by_key(|helper| helper.cpu.index() == here);
        }
        called.iter().for_each(|helper| helper.ring());
        done
    }
}

/// The planner, its windows and their state.
#[derive(Debug)]
pub(super) struct Plan {
    planner: Planner,
    cpus: BTreeMap<CpuId, Planned>,
    pub predictors: Predictors,
    pub principals: BTreeMap<Principal, PrincipalInfo>,
    /// Principals without a connection, in the order in which they went.
    pub gone: VecDeque<Principal>,
    pub tally: PlanTally,
    pub notices: Vec<String>,
}

#[derive(Debug)]
struct Planned {
    window: Option<IdleWindow>,
    helper: Arc<Helper>,
    /// The recent lateness of its windows: the time from the helper's timer to the open window.
    late: VecDeque<Duration>,
    since_learned: usize,
    lateness: LengthHistogram,
    opened: u64,
    is_open: bool,
    /// Its window was closed early, while its helper's timer stands at the planned end.
    is_cut_short: bool,
    /// Its helper has to look at once.
    is_called: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PlanTally {
    pub accepted: u64,
    pub refused: u64,
    pub came: u64,
    pub writes_failed: u64,
}

/// The work of one CPU's helper.
#[derive(Clone, Debug)]
pub(super) struct CpuLook {
    pub cpu: CpuId,
    pub costs: CpuCosts,
    pub is_open: bool,
    pub opened: u64,
    pub lateness: LengthHistogram,
}

/// The payer of all callers that know the token: no user has this number.
const TOKEN: u64 = 1 << 32;
/// The number of windows whose lateness is kept for a CPU: enough for a 99th percentile.
const LATE_KEPT: usize = 200;
/// The number of new windows after which the exit latency is learned again.
const LEARN_EVERY: usize = 50;
/// A lateness beyond this is no exit latency: the host or a real-time thread had the CPU.
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
                is_cut_short: false,
                is_called: false,
            };
            (cpu, planned)
        };
        Self {
            planner: Planner::new(params, costs),
            cpus: windows.into_iter().map(planned).collect(),
            predictors,
            principals: BTreeMap::new(),
            gone: VecDeque::new(),
            tally: PlanTally::default(),
            notices: Vec::new(),
        }
    }

    /// Adds a new principal. All names of one user share its allowance, and so do all names that
    /// know the token.
    pub fn enter(&mut self, principal: Principal, info: PrincipalInfo) {
        let payer = match (info.kind, info.user) {
            (PrincipalKind::Local, Some(user)) => Payer::Shared(user.into()),
            (PrincipalKind::Local | PrincipalKind::Remote, _) => Payer::Shared(TOKEN),
            (PrincipalKind::Device, _) => Payer::Alone(principal),
        };
        self.planner.handle_entered(principal, payer);
        self.principals.insert(principal, info);
    }

    /// Removes a principal: its requests are withdrawn and its account is closed.
    pub fn depart(&mut self, now: Instant, principal: Principal) {
        self.planner.handle_departed(now, principal);
        self.principals.remove(&principal);
        self.obey(now, None);
    }

    /// Asks for one CPU to be ready.
    pub fn request(&mut self, now: Instant, request: &Request) -> Result<RequestId, Refused> {
        let answer = self.planner.handle_request(now, request);
        match answer {
            Ok(_) => self.tally.accepted += 1,
            Err(_) => self.tally.refused += 1,
        }
        self.obey(now, None);
        answer
    }

    /// Asks for each of these CPUs to be ready at the predicted time. After a refusal the event
    /// itself wakes the CPU, as without Roost.
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

    /// Ends a request whose event came. False if the request had ended.
    pub fn came(&mut self, now: Instant, id: RequestId) -> bool {
        let stood = self.planner.handle_came(now, id);
        self.tally.came += u64::from(stood);
        self.obey(now, None);
        stood
    }

    /// Withdraws a request. False if the request had ended.
    pub fn withdraw(&mut self, now: Instant, id: RequestId) -> bool {
        let stood = self.planner.handle_withdrawn(now, id);
        self.obey(now, None);
        stood
    }

    /// Runs in the helper of `cpu`: opens or closes its window if the time has come. `due` is the
    /// time of its timer.
    pub fn attend(&mut self, now: Instant, cpu: CpuId, due: Option<Instant>) {
        // The timer that ends a window finds the CPU awake, so it says nothing about waking.
        let due = due.filter(|_| self.cpus.get(&cpu).is_some_and(|planned| !planned.is_open));
        self.planner.handle_timeout(now);
        self.obey(now, Some(cpu));
        self.open_if_due(cpu);
        // Not before the window is open: until then this thread delays the thread that is woken
        // there.
        if let Some(due) = due {
            self.learn(cpu, linux::now().since(due));
        }
    }

    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    pub fn looks(&self) -> Vec<CpuLook> {
        let look = |(&cpu, planned): (&CpuId, &Planned)| {
            Some(CpuLook {
                cpu,
                costs: self.planner.costs_of(cpu)?,
                is_open: planned.is_open,
                opened: planned.opened,
                lateness: planned.lateness.clone(),
            })
        };
        self.cpus.iter().filter_map(look).collect()
    }

    pub fn helpers(&self) -> Vec<Arc<Helper>> {
        self.cpus.values().map(|planned| Arc::clone(&planned.helper)).collect()
    }

    /// Closes every window for good.
    pub fn release(&mut self) {
        self.cpus.values_mut().for_each(|planned| planned.window = None);
    }

    /// CPUs whose window could not be opened and has to be opened again.
    pub fn lost_windows(&self) -> Vec<CpuId> {
        self.cpus.iter().filter(|(_, planned)| planned.window.is_none()).map(|(&cpu, _)| cpu).collect()
    }

    /// Adds a window for such a CPU, and opens it if its time has come.
    pub fn give_window(&mut self, cpu: CpuId, mut window: IdleWindow) {
        let Some(planned) = self.cpus.get_mut(&cpu) else { return };
        if planned.is_open
            && let Err(reason) = window.open()
        {
            self.tally.writes_failed += 1;
            self.notices.push(reason);
            return;
        }
        planned.window = Some(window);
    }

    /// Carries out the planner's commands. `here`: the CPU whose helper runs this.
    fn obey(&mut self, now: Instant, here: Option<CpuId>) {
        while let Some(command) = self.planner.poll_command() {
            match command {
                // Its own helper opens it, so that the CPU wakes. A helper whose time has come is
                // about to.
                WakeCommand::KeepAwake { cpu, .. } if Some(cpu) != here => {
                    if let Some(planned) = self.cpus.get_mut(&cpu).filter(|planned| !planned.is_open) {
                        // Its time stays in the past until it has looked. A helper that is about to
                        // sleep must not take the window's end for its time.
                        planned.is_cut_short = false;
                        if !planned.helper.is_due(now) {
                            let _ = planned.helper.set(Some(now), Set::Anew);
                            planned.is_called = true;
                        }
                    }
                }
                WakeCommand::KeepAwake { cpu, .. } => self.open_if_due(cpu),
                WakeCommand::MaySleep { cpu } => self.close(now, cpu),
            }
        }
        if let Some((cpu, planned)) = here.and_then(|cpu| Some((cpu, self.cpus.get_mut(&cpu)?))) {
            planned.is_cut_short = false;
            let _ = planned.helper.set(self.planner.due_of(cpu), Set::Itself);
        }
    }

    /// Sets each helper to the start or end of its CPU's next window. Returns the helpers to call,
    /// which sleep until another time.
    fn set_timers(&mut self) -> Vec<Arc<Helper>> {
        let mut called = Vec::new();
        for (&cpu, planned) in &mut self.cpus {
            // A CPU whose window was cut short is awake now. Later its timer would wake it for
            // nothing.
            let how = if std::mem::take(&mut planned.is_cut_short) { Set::Anew } else { Set::IfSooner };
            if planned.helper.set(self.planner.due_of(cpu), how) | std::mem::take(&mut planned.is_called) {
                called.push(Arc::clone(&planned.helper));
            }
        }
        called
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

    fn close(&mut self, now: Instant, cpu: CpuId) {
        let Some(planned) = self.cpus.get_mut(&cpu) else { return };
        planned.helper.spin_until.store(0, Ordering::Release);
        // At the end of a window its helper is about to look by itself.
        planned.is_cut_short |= planned.is_open && !planned.helper.is_due(now);
        planned.is_open = false;
        if let Some(window) = &mut planned.window
            && let Err(reason) = window.close()
        {
            self.tally.writes_failed += 1;
            self.notices.push(reason);
            // Dropping the window tries again. If that fails too, the arbiter puts the limit back
            // at its end.
            planned.window = None;
        }
    }

    /// The exit latency is measured: the 99th percentile of the time from a helper's timer until
    /// its window was open, in the idle states that this CPU uses.
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

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Microwatts;

    const CPUS: [CpuId; 2] = [CpuId(0), CpuId(1)];
    const WHO: Principal = Principal(1);

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1_000)
    }

    /// CPUs that take 100 us to wake, and their helpers without threads.
    fn plan() -> (Shared, Vec<Arc<Helper>>) {
        let costs = CPUS.map(|cpu| CpuCosts {
            cpu,
            exit_latency: Duration::from_micros(100),
            min_sleep: Duration::from_micros(1),
            power: Microwatts::from_watts(1.0),
        });
        let helpers: Vec<_> = CPUS.iter().map(|&cpu| Helper::new(cpu, Act::Spin, None)).collect();
        let windows = helpers.iter().map(|helper| (helper.cpu, None, Arc::clone(helper))).collect();
        (Shared::new(Plan::new(Params::paper(), &costs, windows, Predictors::default())), helpers)
    }

    fn request(cpu: CpuId, ready: u64) -> Request {
        Request { principal: WHO, cpu, ready: at(ready), stay: Duration::from_micros(400) }
    }

    #[test]
    fn an_end_and_the_next_beginning_in_one_breath_ring_a_helper_once() {
        let (shared, helpers) = plan();
        let helper = &helpers[0];
        let id = shared.change(|plan| plan.request(at(0), &request(CPUS[0], 1_000)).unwrap());
        assert_eq!((helper.rung(), helper.is_due(at(899)), helper.is_due(at(900))), (1, false, true));
        shared.change(|plan| plan.attend(at(900), CPUS[0], Some(at(900))));
        assert!(shared.look().looks()[0].is_open);
        assert_eq!(helper.rung(), 1, "it sets its own timer");
        shared.change(|plan| {
            plan.came(at(1_010), id);
            plan.request(at(1_010), &request(CPUS[0], 11_000)).unwrap();
        });
        assert_eq!(helper.rung(), 2);
        assert_eq!((helper.is_due(at(10_899)), helper.is_due(at(10_900))), (false, true));
        assert!(!shared.look().looks()[0].is_open);
    }

    #[test]
    fn a_helper_whose_time_has_come_is_not_rung_by_another() {
        let (shared, helpers) = plan();
        shared.change(|plan| {
            CPUS.iter().for_each(|&cpu| _ = plan.request(at(0), &request(cpu, 1_000)).unwrap());
        });
        assert_eq!(helpers[1].rung(), 1);
        // The first helper runs before the other, and the planner's commands concern both.
        shared.change(|plan| plan.attend(at(905), CPUS[0], Some(at(900))));
        assert_eq!((helpers[1].rung(), shared.look().looks()[1].is_open), (1, false));
        shared.change(|plan| plan.attend(at(907), CPUS[1], Some(at(900))));
        assert!(shared.look().looks().iter().all(|look| look.is_open));
        // A helper that sleeps is called.
        let (shared, helpers) = plan();
        shared.change(|plan| plan.request(at(0), &request(CPUS[1], 50)).unwrap());
        assert!(helpers[1].rung() > 0 && helpers[1].is_due(at(0)));
    }

    #[test]
    fn a_window_that_ends_and_opens_again_in_one_breath_is_looked_at() {
        let (shared, helpers) = plan();
        let id = shared.change(|plan| plan.request(at(0), &request(CPUS[0], 1_000)).unwrap());
        shared.change(|plan| plan.attend(at(900), CPUS[0], Some(at(900))));
        let rung = helpers[0].rung();
        shared.change(|plan| {
            plan.came(at(1_010), id);
            plan.request(at(1_010), &request(CPUS[0], 1_020)).unwrap();
        });
        // A helper that had not slept yet has missed the call: its time alone keeps it from
        // sleeping.
        assert!(helpers[0].is_due(at(1_010)) && helpers[0].rung() == rung + 1);
        shared.change(|plan| plan.attend(at(1_012), CPUS[0], None));
        assert!(shared.look().looks()[0].is_open && !helpers[0].is_due(at(1_012)));
    }

    #[test]
    fn windows_that_end_at_once_are_ended_by_each_ones_own_timer() {
        let (shared, helpers) = plan();
        shared.change(|plan| {
            CPUS.iter().for_each(|&cpu| _ = plan.request(at(0), &request(cpu, 1_000)).unwrap());
        });
        for cpu in CPUS {
            shared.change(|plan| plan.attend(at(900), cpu, Some(at(900))));
        }
        let rung = helpers[1].rung();
        shared.change(|plan| plan.attend(at(1_400), CPUS[0], Some(at(1_400))));
        assert_eq!((helpers[1].rung(), helpers[1].is_due(at(1_400))), (rung, true));
        assert!(shared.look().looks().iter().all(|look| !look.is_open));
        shared.change(|plan| plan.attend(at(1_403), CPUS[1], Some(at(1_400))));
        assert!(!helpers[1].is_due(at(u64::MAX / 2_000)));
    }

    #[test]
    fn a_window_that_was_cut_short_leaves_no_timer() {
        let (shared, helpers) = plan();
        let id = shared.change(|plan| plan.request(at(0), &request(CPUS[0], 1_000)).unwrap());
        shared.change(|plan| plan.attend(at(900), CPUS[0], Some(at(900))));
        shared.change(|plan| plan.came(at(1_010), id));
        assert_eq!(helpers[0].rung(), 2);
        assert!(!helpers[0].is_due(at(u64::MAX / 2_000)), "it would wake the CPU for nothing");
    }
}
