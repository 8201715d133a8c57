//! Connections on workers, placed by the policies that the live store runs: Peafowl, CARB, or
//! none.
//!
//! This is the live server's director and acceptor in simulated time: the same calls in the same
//! order, with messages and transfers that take as long as they were measured to take. A connection
//! on its way keeps its requests; when it lands they are served by the worker that took it.

use super::event_queue::NEVER;
use super::metrics::histogram;
use super::task::Task;
use super::{Closed, Engine, Later, Setup};
use hdrhistogram::Histogram;
use machine::{
    Command, ConnId, CpuId, Duration, IdleLimit, Instant, Rate, Ratio, Reading, ServiceReading, WorkerId,
};
use policy::active_idle::{ActiveIdle, Mode};
use policy::joint::Answered;
use policy::kind::Placed;
use policy::peafowl::{
    Answer, ConnectionLoad, Departure, LearnedLimit, Order, Params, Sample, Verdict, Worker,
};
use policy::{Moved, Scheduling, Why};
use workload::Jobs;

/// From one thread's mailbox to another's. 10 us [D]: half of a transfer.
const MESSAGE_NS: u64 = 10_000;

/// A message that arrives later.
#[derive(Clone, Debug)]
pub(super) enum Post {
    Report,
    Letter {
        worker: usize,
        order: Order,
    },
    /// A worker's order has waited long enough.
    WorkerTimer {
        worker: usize,
    },
    /// The scheduler wants to be called.
    SchedulingTimer,
    /// The scheduler hears of a completed transfer, of a refusal, of a worker without connections.
    Moved(Moved),
    Refused(WorkerId),
    Released(WorkerId),
    /// A connection arrives at the worker that takes it.
    Land {
        source: usize,
        target: usize,
        why: Why,
        departure: Departure,
    },
}

pub(super) struct Placement {
    params: Params,
    scheduling: Scheduling,
    active_idle: ActiveIdle,
    workers: Vec<Desk>,
    /// The worker that serves each connection; `None` while it is on its way.
    serves: Vec<Option<u16>>,
    /// Requests that came for connections on their way.
    waiting: Vec<Task>,
    /// Where the policy learns from counts.
    counts: Option<Counts>,
    moves: u64,
    sent_home: u64,
    /// When the scheduler is called next.
    timer_ns: u64,
}

struct Desk {
    policy: Worker,
    responses: Histogram<u32>,
    worked_ns: u64,
}

/// The requests of all workers since the last report, by bucket of [`Answered`].
struct Counts {
    work: Vec<u32>,
    responses: Vec<u32>,
}

impl Counts {
    fn new() -> Self {
        Self { work: vec![0; Answered::BUCKETS], responses: vec![0; Answered::BUCKETS] }
    }

    fn count(&mut self, work: Duration, response: Duration) {
        self.work[Answered::bucket(work)] += 1;
        self.responses[Answered::bucket(response)] += 1;
    }

    fn take(&mut self) -> Answered {
        let Self { work, responses } = std::mem::replace(self, Self::new());
        Answered::new(work.into_iter(), responses.into_iter(), true)
    }
}

impl Placement {
    pub fn new(setup: &Setup, jobs: &Jobs) -> Option<Self> {
        if setup.dispatch != super::Dispatch::Connections {
            return None;
        }
        let places: Vec<_> = (0..setup.workers as u16).map(|id| (WorkerId(id), CpuId(id))).collect();
        let Placed { scheduling, params } = setup.policies.placement(setup, &places)?;
        let params = scheduling.worker_params(params);
        let halt = setup.platform.cstates.shallowest_halt().unwrap_or(Duration::from_micros(1));
        let shallowest: Vec<_> = places.iter().map(|&(_, cpu)| (cpu, halt)).collect();
        let learned = setup.learned_limit.map(|limit| {
            let mut learned = LearnedLimit::default();
            learned.observe(limit, true, &params);
            learned
        });
        let active_idle = if scheduling.is_planned() { Mode::Stock } else { setup.active_idle };
        let connections = setup.closed.as_ref().map_or(jobs.connections(), Closed::connections);
        let desk = |id| Desk {
            policy: Worker::new(params, id, learned),
            // Two digits do for a percentile that is compared with a goal.
            responses: histogram(2),
            worked_ns: 0,
        };
        Some(Self {
            active_idle: ActiveIdle::new(active_idle, &places, shallowest),
            workers: places.iter().map(|&(id, _)| desk(id)).collect(),
            serves: vec![None; connections as usize],
            waiting: Vec::new(),
            counts: scheduling.is_planned().then(Counts::new),
            moves: 0,
            sent_home: 0,
            timer_ns: NEVER,
            scheduling,
            params,
        })
    }
}

impl Engine {
    pub(super) fn begin_placing(&mut self) {
        let Some(placement) = &mut self.placement else { return };
        let now = Instant::from_nanos(self.now);
        for conn in 0..placement.serves.len() as u32 {
            let place = placement.scheduling.place(now);
            let worker = place.serve.index();
            let load = ConnectionLoad::new(now);
            placement.workers[worker].policy.handle_arrival(
                now,
                conn,
                ConnId(u64::from(conn)),
                place.home,
                load,
            );
            placement.serves[conn as usize] = Some(worker as u16);
        }
        let period = placement.params.report_period.as_nanos();
        self.events.add(self.now + period, Later::Placement(Post::Report));
        self.obey_scheduler();
    }

    /// The worker that serves the request's connection now; `None` while it is on its way.
    pub(super) fn seat_of(&self, task: &Task) -> Option<usize> {
        match &self.placement {
            None => Some(self.nth_active(task.connection as usize)),
            Some(placement) => placement.serves[task.connection as usize].map(usize::from),
        }
    }

    /// The worker that serves the request's connection; a connection on its way keeps it.
    #[inline]
    pub(super) fn worker_of(&mut self, task: &Task) -> Option<usize> {
        let Some(placement) = &mut self.placement else {
            return Some(self.nth_active(task.connection as usize));
        };
        match placement.serves[task.connection as usize] {
            Some(worker) => Some(usize::from(worker)),
            None => {
                placement.waiting.push(*task);
                None
            }
        }
    }

    /// A worker has answered a request.
    #[inline]
    pub(super) fn served(&mut self, core: usize, task: &Task, response_ns: u64) {
        let Some(placement) = &mut self.placement else { return };
        // A connection that has moved on meanwhile is none of this worker's. A stolen request is its
        // worker's, although another served it.
        let Some(owner) = placement.serves[task.connection as usize].map(usize::from) else { return };
        if owner != core && self.setup.stealing.is_none() {
            return;
        }
        let core = owner;
        let desk = &mut placement.workers[core];
        desk.responses.saturating_record(response_ns);
        let now = Instant::from_nanos(self.now);
        // At the nominal clock: a slower one, and whatever else kept the core, is the rest of its
        // busy time.
        let work = Duration::from_nanos(task.compute_ns + task.memory_ns);
        if let Some(counts) = &mut placement.counts {
            counts.count(work, Duration::from_nanos(response_ns));
        }
        let waiting = self.cores[core].queue.len() as u32;
        if desk.policy.watches_backlog(waiting) {
            desk.policy.handle_backlog(now, waiting);
        }
        if let Verdict::Send { target, why } = desk.policy.handle_served(now, task.connection, 1, work) {
            self.send(core, task.connection, target.index(), why);
        }
    }

    fn send(&mut self, source: usize, conn: u32, target: usize, why: Why) {
        let Some(placement) = &mut self.placement else { return };
        let now = Instant::from_nanos(self.now);
        let desk = &mut placement.workers[source];
        let departure = desk.policy.handle_departure(now, conn, true);
        placement.serves[conn as usize] = None;
        placement.moves += 1;
        placement.sent_home += u64::from(why.is_sent_home());
        if desk.policy.connections() == 0 {
            let released = Post::Released(WorkerId(source as u16));
            self.events.add(self.now + MESSAGE_NS, Later::Placement(released));
        }
        // The requests that wait here for the connection go with it.
        let queue = &mut self.cores[source].queue;
        if queue.iter().any(|task| task.connection == conn) {
            placement.waiting.extend(queue.iter().filter(|task| task.connection == conn));
            queue.retain(|task| task.connection != conn);
        }
        let land = Post::Land { source, target, why, departure };
        self.events.add(self.now + self.setup.transfer.as_nanos(), Later::Placement(land));
    }

    pub(super) fn place(&mut self, post: Post) {
        let Some(placement) = &mut self.placement else { return };
        let now = Instant::from_nanos(self.now);
        match post {
            Post::Report => return self.report(),
            Post::Letter { worker, order } => {
                let policy = &mut placement.workers[worker].policy;
                if policy.handle_order(now, order) == Answer::Refused {
                    let refused = Post::Refused(WorkerId(worker as u16));
                    self.events.add(self.now + MESSAGE_NS, Later::Placement(refused));
                } else if let Some(due) = policy.poll_timeout() {
                    let due = due.as_nanos().max(self.now);
                    self.events.add(due, Later::Placement(Post::WorkerTimer { worker }));
                }
                return;
            }
            Post::WorkerTimer { worker } => {
                let policy = &mut placement.workers[worker].policy;
                policy.handle_timeout(now);
                if let Some(transfer) = policy.poll_transfer() {
                    self.send(worker, transfer.slot, transfer.target.index(), transfer.why);
                }
                return;
            }
            Post::Land { source, target, why, departure } => {
                let conn = departure.conn.0 as u32;
                let policy = &mut placement.workers[target].policy;
                policy.handle_arrival(now, conn, departure.conn, departure.home, departure.load);
                placement.serves[conn as usize] = Some(target as u16);
                let (source, target) = (WorkerId(source as u16), WorkerId(target as u16));
                let moved = Moved { source, target, why, load: departure.rate };
                self.events.add(self.now + MESSAGE_NS, Later::Placement(Post::Moved(moved)));
                let (source, target) = (source.index(), target.index());
                if self.chronicle.is_some() {
                    self.tell_of_move(source, target, why);
                }
                return self.hand_over(conn, target);
            }
            Post::SchedulingTimer => {
                placement.timer_ns = NEVER;
                if placement.scheduling.poll_timeout().is_some_and(|due| due <= now) {
                    placement.scheduling.handle_timeout(now);
                }
            }
            Post::Moved(moved) => placement.scheduling.handle_moved(now, &moved),
            Post::Refused(worker) => placement.scheduling.handle_refused(worker),
            Post::Released(worker) => placement.scheduling.handle_released(now, worker),
        }
        self.obey_scheduler();
    }

    /// A connection has landed: the requests that came for it meanwhile are the new worker's.
    fn hand_over(&mut self, conn: u32, worker: usize) {
        let Some(placement) = &mut self.placement else { return };
        if placement.waiting.is_empty() {
            return;
        }
        let (here, elsewhere): (Vec<Task>, Vec<Task>) =
            placement.waiting.drain(..).partition(|task| task.connection == conn);
        placement.waiting = elsewhere;
        for task in here {
            self.enqueue(worker, task);
        }
    }

    fn report(&mut self) {
        let Some(placement) = &mut self.placement else { return };
        let now = Instant::from_nanos(self.now);
        let period = placement.params.report_period;
        let mut reading = Reading::default();
        let mut all = histogram::<u32>(2);
        for (core, desk) in placement.workers.iter_mut().enumerate() {
            let worked_ns = self.hardware.working_ns(core, self.now);
            let busy = Ratio::of(Duration::from_nanos(worked_ns - desk.worked_ns), period);
            desk.worked_ns = worked_ns;
            let requests = desk.responses.len() as u32;
            let tail = (requests > 0).then(|| Duration::from_nanos(desk.responses.value_at_quantile(0.99)));
            reading.workers.push(desk.policy.handle_report(now, &Sample { busy, tail, requests }));
            let movable = desk.policy.movable();
            placement.scheduling.handle_movable(WorkerId(core as u16), movable);
            all.add(&desk.responses).ok();
            desk.responses.reset();
        }
        let seen = !all.is_empty();
        let at = |q: f64| seen.then(|| Duration::from_nanos(all.value_at_quantile(q)));
        reading.service = ServiceReading {
            rate: Some(Rate::of(all.len(), period)),
            mean: seen.then(|| Duration::from_nanos(all.mean() as u64)),
            p95: at(0.95),
            p99: at(0.99),
            tail: None,
        };
        if let Some(counts) = &mut placement.counts {
            placement.scheduling.handle_answered(now, &counts.take());
        }
        placement.scheduling.handle_reading(now, &reading);
        let guidance = placement.scheduling.guidance();
        for worker in 0..placement.workers.len() {
            let order = Order::Guidance(guidance);
            self.events.add(self.now + MESSAGE_NS, Later::Placement(Post::Letter { worker, order }));
        }
        self.events.add(self.now + period.as_nanos(), Later::Placement(Post::Report));
        self.obey_scheduler();
    }

    /// So many workers shall be awake: the connections of the others move. False if no policy
    /// places connections.
    pub(super) fn place_on(&mut self, wanted: usize) -> bool {
        let Some(placement) = &mut self.placement else { return false };
        placement.scheduling.set_wanted(Instant::from_nanos(self.now), wanted as u16);
        self.obey_scheduler();
        true
    }

    /// Carries out the scheduler's commands.
    fn obey_scheduler(&mut self) {
        let mut changed = false;
        while let Some(command) =
            self.placement.as_mut().and_then(|placement| placement.scheduling.poll_command())
        {
            match command {
                Command::MoveConnection { source, target, pick } => {
                    let order = Order::Move { target, pick };
                    let letter = Post::Letter { worker: source.index(), order };
                    self.events.add(self.now + MESSAGE_NS, Later::Placement(letter));
                }
                Command::Activate(worker) => {
                    self.active.insert(worker.index());
                    changed = true;
                }
                Command::Deactivate(worker) => {
                    self.active.remove(worker.index());
                    changed = true;
                }
                Command::LimitIdle { cpu, limit } => self.limit_idle_of(cpu, limit),
                // Schedulers move connections instead of services.
                Command::SetActiveCpus(_) | Command::SetFrequency { .. } | Command::SetUncore(_) => {}
            }
        }
        self.active_count = self.active.len();
        let Some(placement) = &mut self.placement else { return };
        if let Some(due) = placement.scheduling.poll_timeout() {
            let due = due.as_nanos().max(self.now + 1);
            if due < placement.timer_ns {
                placement.timer_ns = due;
                self.events.add(due, Later::Placement(Post::SchedulingTimer));
            }
        }
        if changed || self.now == 0 {
            let active = placement.scheduling.active();
            for command in placement.active_idle.handle_active(&active) {
                let Command::LimitIdle { cpu, limit } = command else { continue };
                self.limit_idle_of(cpu, limit);
            }
        }
    }

    fn limit_idle_of(&mut self, cpu: CpuId, limit: IdleLimit) {
        let limit_ns = match limit {
            // That a sleep be deep is no bound on latency.
            IdleLimit::None | IdleLimit::Deepest => u64::MAX,
            IdleLimit::ExitLatency(latency) => latency.as_nanos(),
        };
        self.limit_idle(cpu.index(), limit_ns);
    }

    /// Transfers, and how many of them a worker ordered by itself.
    pub(crate) fn transfers(&self) -> Option<(u64, u64)> {
        self.placement.as_ref().map(|placement| (placement.moves, placement.sent_home))
    }
}
