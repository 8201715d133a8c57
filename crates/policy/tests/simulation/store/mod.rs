//! A store of simulated workers. All chance comes from one seed; two runs with the same seed are
//! the same run.

mod checks;
mod events;
mod serving;

use events::{Event, Timed};
use machine::{
    Command, ConnId, CpuId, Duration, Instant, Rate, Ratio, Reading, ServiceReading, WorkerId, WorkerReading,
};
use policy::log::{Recorded, SchedulingInput, WorkerInput, WorkerOutput, state_line, step_line};
use policy::peafowl::{
    Answer, ConnectionLoad, LearnedLimit, Order, Params, Sample, Transfer, Verdict, Worker,
};
use policy::{Moved, Scheduling, Why};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

/// From one thread's mailbox to another.
const MESSAGE: Duration = Duration::from_micros(10);
/// From leaving one worker to being served by the other.
const TRANSFER: Duration = Duration::from_micros(20);

/// Requests that one turn serves at the most.
const TURN_REQUESTS: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    At { worker: usize, slot: u32 },
    Flying,
    Closed,
}

pub struct Client {
    pub place: Place,
    pub home: WorkerId,
    pub served: u64,
    /// The cost of one of its requests, if it differs from others'.
    pub cost: Option<Duration>,
    /// So many requests come at once.
    pub lump: u32,
    rate: f64,
    epoch: u32,
    pending: VecDeque<Instant>,
    closes: bool,
}

pub struct Entry {
    pub policy: Worker,
    slots: Vec<Option<usize>>,
    ready: VecDeque<usize>,
    serving: bool,
    worked: Duration,
    /// The length of the turn that is going on, and how many requests it serves.
    turn: Duration,
    in_turn: usize,
    /// Turns take so many times as long as their work: others have the CPU for the rest.
    pub stolen: f64,
    latencies: Vec<Duration>,
}

pub struct Store {
    pub now: Instant,
    pub params: Params,
    pub entries: Vec<Entry>,
    pub scheduling: Scheduling,
    pub active: BTreeSet<WorkerId>,
    pub clients: Vec<Client>,
    pub moves: Vec<(Instant, Moved)>,
    /// Clients that were sent home by themselves.
    pub homecomings: Vec<(Instant, usize)>,
    pub readings: Vec<WorkerReading>,
    /// The CPU time of one request at a worker. Zero: it is served at once.
    pub service_time: Duration,
    /// Requests before this instant find no worker awake, as when the machine was busy with
    /// something else.
    pub stalled_until: Instant,
    /// The transfers that get lost on the way, notice and all, counted from the next.
    pub lose_transfers: u32,
    /// One log per worker, then the scheduler's.
    pub logs: Vec<String>,
    recording: bool,
    events: BinaryHeap<Reverse<Timed>>,
    sequence: u64,
    chance: u64,
}

impl Client {
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }
}

impl Store {
    /// `workers` workers, `per_cpu` to a CPU, under Peafowl.
    pub fn new(params: Params, workers: u16, seed: u64) -> Self {
        let places: Vec<_> = (0..workers).map(|id| (WorkerId(id), CpuId(id))).collect();
        Self::with(params, Scheduling::peafowl(params, &places), workers, seed)
    }

    pub fn with(params: Params, scheduling: Scheduling, workers: u16, seed: u64) -> Self {
        let worker_params = scheduling.worker_params(params);
        let entry = |id| Entry {
            policy: Worker::new(worker_params, WorkerId(id), None),
            slots: Vec::new(),
            ready: VecDeque::new(),
            serving: false,
            worked: Duration::ZERO,
            turn: Duration::ZERO,
            in_turn: 0,
            stolen: 1.0,
            latencies: Vec::new(),
        };
        let active = scheduling.active().into_iter().collect();
        let mut store = Self {
            now: Instant::ZERO,
            params,
            entries: (0..workers).map(entry).collect(),
            scheduling,
            active,
            clients: Vec::new(),
            moves: Vec::new(),
            homecomings: Vec::new(),
            readings: Vec::new(),
            service_time: Duration::ZERO,
            stalled_until: Instant::ZERO,
            lose_transfers: 0,
            logs: vec![String::new(); usize::from(workers) + 1],
            recording: false,
            events: BinaryHeap::new(),
            sequence: 0,
            chance: seed,
        };
        store.at(Instant::ZERO + params.report_period, Event::Report);
        store
    }

    /// From now on every policy's log is kept.
    pub fn record(&mut self) {
        self.recording = true;
        for worker in 0..self.entries.len() {
            self.logs[worker] += &(state_line(&self.entries[worker].policy) + "\n");
        }
        let last = self.entries.len();
        self.logs[last] += &(state_line(&self.scheduling) + "\n");
    }

    /// Gives a worker a limit as if it had been learned, by one observation.
    pub fn teach(&mut self, limit: f64) {
        for (id, entry) in (0..).zip(&mut self.entries) {
            let mut learned = LearnedLimit::default();
            learned.observe(Rate::per_second(limit), true, &self.params);
            let params = self.scheduling.worker_params(self.params);
            assert_eq!(entry.policy.connections(), 0, "teach before clients come");
            entry.policy = Worker::new(params, WorkerId(id), Some(learned));
        }
    }

    /// A client connects that sends `rate` requests per second.
    pub fn connect(&mut self, rate: f64) -> usize {
        let output = self.tell_scheduling(SchedulingInput::Place);
        let placement = output.placement.expect("a placement is the answer");
        self.connect_at(rate, placement.home.index(), placement.serve.index())
    }

    /// A client that is home at one worker and served by another, as if it had been moved there.
    pub fn connect_at(&mut self, rate: f64, home: usize, serve: usize) -> usize {
        let client = self.clients.len();
        self.clients.push(Client {
            place: Place::Flying,
            home: WorkerId(home as u16),
            served: 0,
            cost: None,
            lump: 1,
            rate: 0.0,
            epoch: 0,
            pending: VecDeque::new(),
            closes: false,
        });
        self.arrive(client, serve, ConnectionLoad::new(self.now));
        self.set_rate(client, rate);
        client
    }

    pub fn set_rate(&mut self, client: usize, rate: f64) {
        let state = &mut self.clients[client];
        state.rate = rate;
        state.epoch += 1;
        let epoch = state.epoch;
        self.next_request(client, epoch);
    }

    pub fn set_rates(&mut self, rate: f64) {
        for client in 0..self.clients.len() {
            self.set_rate(client, rate);
        }
    }

    /// A client goes away. In mid-transfer it is noticed by the worker that takes it.
    pub fn close(&mut self, client: usize) {
        match self.clients[client].place {
            Place::At { worker, slot } => self.depart_for_good(client, worker, slot),
            Place::Flying => self.clients[client].closes = true,
            Place::Closed => {}
        }
    }

    pub fn run_for(&mut self, length: Duration) {
        self.run_until(self.now + length, |_| false);
    }

    /// Runs until `done`, checked after every event, or `end`; true if done.
    pub fn run_until(&mut self, end: Instant, done: impl Fn(&Self) -> bool) -> bool {
        while let Some(Reverse(Timed(at, _, _))) = self.events.peek() {
            if *at > end {
                break;
            }
            let Reverse(Timed(at, _, event)) = self.events.pop().expect("peeked");
            self.now = self.now.max(at);
            self.handle(event);
            if done(self) {
                return true;
            }
        }
        self.now = self.now.max(end);
        false
    }

    /// The workers that serve a connection.
    pub fn serving(&self) -> usize {
        self.entries.iter().filter(|entry| entry.policy.connections() > 0).count()
    }

    pub fn moves_by(&self, why: Why) -> usize {
        self.moves.iter().filter(|(_, moved)| moved.why == why).count()
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse(Timed(at, self.sequence, event)));
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.at(self.now + delay, event);
    }

    /// A number between 0 and 1, both left out (splitmix64).
    pub fn chance(&mut self) -> f64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.chance;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64 + 1e-17
    }

    fn next_request(&mut self, client: usize, epoch: u32) {
        let rate = self.clients[client].rate;
        if rate > 0.0 {
            let gap = -self.chance().ln() / rate;
            self.after(Duration::from_secs_f64(gap), Event::Request { client, epoch });
        }
    }

    fn tell_worker(&mut self, worker: usize, input: WorkerInput) -> WorkerOutput {
        let output = self.entries[worker].policy.apply(self.now, &input);
        if self.recording {
            self.logs[worker] += &(step_line::<Worker>(self.now, &input, &output) + "\n");
        }
        output
    }

    fn tell_scheduling(&mut self, input: SchedulingInput) -> policy::log::SchedulingOutput {
        let output = self.scheduling.apply(self.now, &input);
        if self.recording {
            let last = self.entries.len();
            self.logs[last] += &(step_line::<Scheduling>(self.now, &input, &output) + "\n");
        }
        for command in &output.commands {
            match *command {
                Command::MoveConnection { source, target, pick } => {
                    assert_ne!(source, target);
                    assert!(self.active.contains(&target), "the target of a move is awake");
                    let order = Order::Move { target, pick };
                    self.after(MESSAGE, Event::Letter { worker: source.index(), order });
                }
                Command::Activate(worker) => assert!(self.active.insert(worker), "{worker} was asleep"),
                Command::Deactivate(worker) => assert!(self.active.remove(&worker), "{worker} was awake"),
                Command::LimitIdle { .. }
                | Command::SetActiveCpus(_)
                | Command::SetFrequency { .. }
                | Command::SetUncore(_) => {
                    unreachable!("schedulers move connections and leave CPUs alone")
                }
            }
        }
        if let Some(due) = self.scheduling.poll_timeout() {
            self.at(due.max(self.now + Duration::from_nanos(1)), Event::SchedulingTimer);
        }
        output
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Request { client, epoch } => {
                if self.clients[client].epoch == epoch && self.clients[client].place != Place::Closed {
                    self.request(client);
                    self.next_request(client, epoch);
                }
            }
            Event::Serve { worker } => self.serve(worker),
            Event::Land { client, source, target, why, departure } => {
                self.clients[client].home = departure.home;
                self.arrive(client, target, departure.load);
                let (source, target) = (WorkerId(source as u16), WorkerId(target as u16));
                let moved = Moved { source, target, why, load: departure.rate };
                self.moves.push((self.now, moved));
                if why.is_sent_home() {
                    self.homecomings.push((self.now, client));
                }
                self.after(MESSAGE, Event::Notice(SchedulingInput::Moved(moved)));
                if self.clients[client].closes {
                    self.close(client);
                }
            }
            Event::Letter { worker, order } => {
                let output = self.tell_worker(worker, WorkerInput::Order(order));
                if output == WorkerOutput::Answer(Answer::Refused) {
                    let refused = SchedulingInput::Refused(WorkerId(worker as u16));
                    self.after(MESSAGE, Event::Notice(refused));
                }
                if let Some(due) = self.entries[worker].policy.poll_timeout() {
                    self.at(due.max(self.now), Event::WorkerTimer { worker });
                }
            }
            Event::Notice(input) => {
                self.tell_scheduling(input);
            }
            Event::WorkerTimer { worker } => {
                self.tell_worker(worker, WorkerInput::Timeout);
                let again = self.entries[worker].policy.poll_timeout();
                assert!(again.is_none_or(|due| due > self.now), "a driver would spin");
                let output = self.tell_worker(worker, WorkerInput::Transfer);
                if let WorkerOutput::Transfer(Some(Transfer { slot, target, why })) = output {
                    self.send(worker, slot, target.index(), why);
                }
            }
            Event::SchedulingTimer => {
                if self.scheduling.poll_timeout().is_some_and(|due| due <= self.now) {
                    self.tell_scheduling(SchedulingInput::Timeout);
                    let again = self.scheduling.poll_timeout();
                    assert!(again.is_none_or(|due| due > self.now), "a driver would spin");
                }
            }
            Event::Report => self.report(),
        }
    }
}
