//! The policy on a store whose workers count their requests: reports in, commands out.
//!
//! The plan's number of workers is awake and has the connections; their CPUs may sleep as deep as the
//! plan says, those of the others as deep as the kernel likes. A worker at which more requests wait than
//! any plan allows sends its guests home at once, and so all workers are awake until the next plan. The
//! store's clock is the kernel's business: plans are made for one operating point.

use super::{Answered, Joint, Params, Queueing};
use crate::active_idle::ActiveIdle;
use crate::frequency::PointTable;
use crate::spread::Spread;
use crate::{Guidance, Moved, Placement, SleepState};
use machine::{Command, CpuId, Instant, OperatingPoint, Reading, WorkerId};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scheduler {
    joint: Joint,
    spread: Spread,
    idle: ActiveIdle,
    commands: VecDeque<Command>,
}

impl Scheduler {
    /// For CPUs that work in this operating point and have these idle states, shallow to deep. The policy
    /// begins with all workers awake and ready.
    ///
    /// # Panics
    /// Without a worker or an idle state.
    pub fn new(
        params: Params,
        workers: &[(WorkerId, CpuId)],
        point: OperatingPoint,
        states: &[SleepState],
    ) -> Self {
        let point = PointTable::from_points(&[point]).expect("one operating point is in order");
        let params = Params { queueing: Queueing::PerCore, graded: false, paced_elsewhere: false, ..params };
        let joint = Joint::new(params, workers.len() as u16, &point, states, Instant::ZERO);
        let idle = ActiveIdle::planned(workers, joint.exit());
        let mut scheduler = Self { joint, spread: Spread::new(workers), idle, commands: VecDeque::new() };
        scheduler.limit_idle();
        scheduler
    }

    pub fn handle_answered(&mut self, now: Instant, answered: &Answered) {
        if let Some(plan) = self.joint.handle_answered(now, answered) {
            self.spread.set_wanted(plan.active);
        }
    }

    pub fn handle_reading(&mut self, now: Instant, reading: &Reading) {
        self.spread.handle_reading(now, reading);
        self.follow();
    }

    pub fn handle_moved(&mut self, now: Instant, moved: &Moved) {
        if moved.why.is_sent_home()
            && let Some(plan) = self.joint.handle_backlog(now)
        {
            self.spread.set_wanted(plan.active);
        }
        self.spread.handle_moved(now, moved);
        self.follow();
    }

    /// `worker` could not carry out its order.
    pub fn handle_refused(&mut self, worker: WorkerId) {
        self.spread.handle_refused(worker);
    }

    /// The last connection of a worker closed.
    pub fn handle_released(&mut self, now: Instant, worker: WorkerId) {
        self.spread.handle_released(now, worker);
        self.follow();
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.spread.handle_timeout(now);
        self.follow();
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.spread.poll_timeout()
    }

    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    pub fn place(&mut self, now: Instant) -> Placement {
        let placement = self.spread.place(now);
        self.follow();
        placement
    }

    pub fn guidance(&self) -> Guidance {
        Guidance { backlog: self.joint.backlog(), ..Guidance::default() }
    }

    pub fn active(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.spread.active()
    }

    fn follow(&mut self) {
        self.commands.extend(std::iter::from_fn(|| self.spread.poll_command()));
        self.limit_idle();
    }

    /// A CPU is limited before connections come to it.
    fn limit_idle(&mut self) {
        self.idle.plan(self.joint.exit());
        let active: Vec<WorkerId> = self.spread.active().collect();
        let limits = self.idle.handle_active(&active);
        limits.into_iter().rev().for_each(|limit| self.commands.push_front(limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scheduling;
    use crate::Why;
    use crate::joint::simulated::states;
    use crate::log::{Recorded as _, SchedulingInput, replay, state_line, step_line};
    use machine::{Duration, IdleLimit, Kilohertz, Microwatts, PointKind, Rate, Ratio, WorkerReading};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const WORKERS: [(WorkerId, CpuId); 4] =
        [(WorkerId(0), CpuId(4)), (WorkerId(1), CpuId(5)), (WorkerId(2), CpuId(6)), (WorkerId(3), CpuId(7))];

    fn scheduling() -> Scheduling {
        let point = OperatingPoint {
            frequency: Kilohertz(1),
            power: Microwatts::from_watts(5.7),
            kind: PointKind::Pstate,
        };
        Scheduling::Joint(Box::new(Scheduler::new(Params::default(), &WORKERS, point, &states())))
    }

    fn answered(requests: u32, work_us: u64, response_us: u64) -> Answered {
        let counts = |us: u64| {
            let bucket = Answered::bucket(Duration::from_micros(us));
            (0..Answered::BUCKETS).map(move |at| if at == bucket { requests } else { 0 })
        };
        Answered::new(counts(work_us), counts(response_us), false)
    }

    fn reading(connections: [u32; 4]) -> Reading {
        let report = |(id, connections): (u16, u32)| WorkerReading {
            worker: WorkerId(id),
            connections,
            residents: 0,
            load: Rate::per_second(f64::from(connections) * 100.0),
            resident_load: Rate::ZERO,
            limit: None,
            rate: None,
            heaviest: Rate::per_second(100.0),
            busy: Ratio::ZERO,
            tail: None,
        };
        Reading { workers: (0..).zip(connections).map(report).collect(), ..Reading::default() }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Answered { requests: u32, work_us: u64, response_us: u64 },
        Moves { why: Why },
        Place,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let answered = (0_u32..50_000, 1_u64..500, 1_u64..5_000)
            .prop_map(|(requests, work_us, response_us)| Step::Answered { requests, work_us, response_us });
        let why = prop::sample::select(vec![Why::Ordered, Why::Burst]);
        prop::collection::vec(
            prop_oneof![6 => answered, 2 => why.prop_map(|why| Step::Moves { why }), 1 => Just(Step::Place)],
            1..60,
        )
    }

    proptest! {
        /// Whatever is told: one worker at least is active, active CPUs have the plan's limit and others
        /// none, and the record replays.
        #[test]
        fn active_cpus_are_limited_and_the_record_replays(steps in steps()) {
            let mut policy = scheduling();
            let mut lines = vec![state_line(&policy)];
            let mut connections = [2_u32; 4];
            let mut limits: BTreeMap<CpuId, IdleLimit> = BTreeMap::new();
            let mut active: Vec<bool> = vec![true; 4];
            let mut now = Instant::ZERO;
            for step in steps {
                now += Duration::from_millis(100);
                let inputs = match step {
                    Step::Answered { requests, work_us, response_us } => vec![
                        SchedulingInput::Answered(answered(requests, work_us, response_us)),
                        SchedulingInput::Reading(reading(connections)),
                    ],
                    Step::Moves { why } => {
                        let (source, target) = (WorkerId(0), WorkerId(3));
                        connections[0] = connections[0].saturating_sub(1);
                        connections[3] += 1;
                        let load = Rate::per_second(100.0);
                        vec![SchedulingInput::Moved(Moved { source, target, why, load })]
                    }
                    Step::Place => vec![SchedulingInput::Place],
                };
                for input in inputs {
                    let output = policy.apply(now, &input);
                    lines.push(step_line::<Scheduling>(now, &input, &output));
                    for command in &output.commands {
                        match *command {
                            Command::LimitIdle { cpu, limit } => drop(limits.insert(cpu, limit)),
                            Command::Activate(worker) => active[worker.index()] = true,
                            Command::Deactivate(worker) => active[worker.index()] = false,
                            Command::MoveConnection { source, target, .. } => prop_assert!(source != target),
                            _ => prop_assert!(false, "{command:?}"),
                        }
                    }
                }
                prop_assert!(active.contains(&true));
                let told: Vec<WorkerId> = policy.active();
                for (at, (worker, cpu)) in WORKERS.iter().enumerate() {
                    prop_assert_eq!(active[at], told.contains(worker));
                    let limit = limits.get(cpu).copied().unwrap_or(IdleLimit::None);
                    prop_assert_eq!(matches!(limit, IdleLimit::ExitLatency(_)), active[at], "{:?}", limit);
                }
            }
            let replayed = replay::<Scheduling>(&(lines.join("\n") + "\n")).unwrap();
            prop_assert_eq!(replayed.state, policy);
        }
    }
}
