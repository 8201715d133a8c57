//! Waking CPUs before a device answers (the CPU sleeps paper, section 2).
//!
//! When a request calls the device, a predictor says when the answer will come, and the planner
//! turns that into a time for which the CPUs on its way are kept awake: the one that takes the
//! device's interrupt, and the one whose thread waits. They wake early enough to be up, poll until
//! the event comes, and may sleep again if it does not come in time.

use super::event_queue::NEVER;
use super::{Doing, Engine, Later, Setup};
use machine::{CpuId, Duration, Instant};
use policy::kind;
use policy::kind::idle::WakeCause;
use policy::wake_plan::{self, CpuCosts, Planner, Predictor, Principal, RequestId, WakeCommand};

/// Planner, predictor, and the calls under way.
pub(super) struct PreWake {
    planner: Planner,
    predictor: Predictor,
    /// The time that the planner subtracts, if it is the same for each state.
    exit_latency: Option<Duration>,
    overtime: f64,
    /// Indexed by the place of the request.
    calls: Vec<Option<Call>>,
    timer_ns: u64,
}

struct Call {
    call: wake_plan::Call,
    windows: [Option<RequestId>; 2],
}

/// The paper's reads; the simulated device does not depend on it.
const BYTES: u64 = 4096;

impl PreWake {
    pub fn new(setup: &Setup) -> Option<Self> {
        let kind::Anticipation { planner, exit_latency, overtime, predictor } =
            setup.policies.anticipation(setup)?;
        let platform = &setup.platform;
        let deepest = platform.cstates.0.last()?;
        let awake = platform.frequencies.points.last()?.power;
        let costs = |cpu: usize| CpuCosts {
            cpu: CpuId(cpu as u16),
            exit_latency: exit_latency.unwrap_or(deepest.real_exit_latency()),
            min_sleep: platform.cstates.0.first().map_or(Duration::ZERO, |state| state.target_residency),
            power: awake,
        };
        let costs: Vec<CpuCosts> = (0..platform.cpus()).map(costs).collect();
        let planner = Planner::new(planner, &costs);
        Some(Self { planner, predictor, exit_latency, overtime, calls: Vec::new(), timer_ns: NEVER })
    }
}

impl Engine {
    /// A request calls the device: `handler` takes the interrupt, `core` waits.
    pub(super) fn foresee_device(&mut self, request: u32, core: usize, handler: usize) {
        let now = Instant::from_nanos(self.now);
        let states = [handler, core].map(|cpu| self.sleepers.deepest_of(self.active.contains(cpu)));
        let Some(pre_wake) = &mut self.pre_wake else { return };
        let (call, prediction) = pre_wake.predictor.handle_call(now, BYTES);
        let mut windows = [None; 2];
        if let Some(prediction) = prediction {
            let cpus: &[usize] = if core == handler { &[core] } else { &[handler, core] };
            for ((window, &cpu), state) in windows.iter_mut().zip(cpus).zip(states) {
                let cpu = CpuId(cpu as u16);
                let (exit_ns, residency) = self.sleepers.costs_of(state);
                if pre_wake.exit_latency.is_none() {
                    pre_wake.planner.handle_exit_latency(cpu, Duration::from_nanos(exit_ns));
                }
                let mut wanted = prediction.request(Principal(0), cpu, now);
                wanted.stay += residency.scale(pre_wake.overtime);
                // Refused: it will be woken by the event itself, as without us.
                *window = pre_wake.planner.handle_request(now, &wanted).ok();
            }
        }
        let place = request as usize;
        if place >= pre_wake.calls.len() {
            pre_wake.calls.resize_with(place + 1, || None);
        }
        pre_wake.calls[place] = Some(Call { call, windows });
        self.obey_planner();
    }

    pub(super) fn device_answered(&mut self, request: u32) {
        let now = Instant::from_nanos(self.now);
        let Some(pre_wake) = &mut self.pre_wake else { return };
        let Some(call) = pre_wake.calls.get_mut(request as usize).and_then(Option::take) else { return };
        pre_wake.predictor.handle_answer(now, &call.call);
        for id in call.windows.into_iter().flatten() {
            pre_wake.planner.handle_came(now, id);
        }
        self.obey_planner();
    }

    pub(super) fn anticipate(&mut self) {
        let now = Instant::from_nanos(self.now);
        let Some(pre_wake) = &mut self.pre_wake else { return };
        if self.now >= pre_wake.timer_ns {
            pre_wake.timer_ns = NEVER;
        }
        pre_wake.planner.handle_timeout(now);
        self.obey_planner();
    }

    fn obey_planner(&mut self) {
        while let Some(pre_wake) = &mut self.pre_wake
            && let Some(command) = pre_wake.planner.poll_command()
        {
            match command {
                WakeCommand::KeepAwake { cpu, until, .. } => {
                    let cpu = cpu.index();
                    self.cores[cpu].awake_until = until.as_nanos();
                    match self.cores[cpu].doing {
                        Doing::Asleep => self.signal(cpu, WakeCause::Timer),
                        Doing::Polling => self.events.set(cpu, until.as_nanos()),
                        _ => {}
                    }
                }
                WakeCommand::MaySleep { cpu } => {
                    let cpu = cpu.index();
                    self.cores[cpu].awake_until = 0;
                    if self.cores[cpu].doing == Doing::Polling {
                        self.idle_timer(cpu);
                    }
                }
            }
        }
        let Some(pre_wake) = &mut self.pre_wake else { return };
        if let Some(due) = pre_wake.planner.poll_timeout() {
            let due = due.as_nanos().max(self.now + 1);
            if due < pre_wake.timer_ns {
                pre_wake.timer_ns = due;
                self.events.add(due, Later::PreWake);
            }
        }
    }

    /// How often predictions were right; `None` without them.
    pub(crate) fn prediction_record(&self) -> Option<policy::wake_plan::Record> {
        self.pre_wake.as_ref().map(|pre_wake| pre_wake.predictor.record())
    }
}
