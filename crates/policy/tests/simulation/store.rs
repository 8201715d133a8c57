//! A store of simulated workers. All chance comes from one seed; two runs with the same seed are
//! the same run.

use machine::{
    Command, ConnId, CpuId, Duration, Instant, Rate, Ratio, Reading, ServiceReading, WorkerId, WorkerReading,
};
use policy::log::{Recorded, SchedulingInput, WorkerInput, WorkerOutput, state_line, step_line};
use policy::peafowl::{
    Answer, ConnectionLoad, Departure, LearnedLimit, Order, Params, Sample, Transfer, Verdict, Worker,
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

#[derive(Clone, Debug, PartialEq)]
enum Event {
    Request { client: usize, epoch: u32 },
    Serve { worker: usize },
    Land { client: usize, source: usize, target: usize, why: Why, departure: Departure },
    Letter { worker: usize, order: Order },
    Notice(SchedulingInput),
    WorkerTimer { worker: usize },
    SchedulingTimer,
    Report,
}

/// Events are ordered by time, then by arrival; their kind does not matter.
struct Timed(Instant, u64, Event);
impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Timed {}
impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

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

pub struct Seat {
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
    pub seats: Vec<Seat>,
    pub scheduling: Scheduling,
    pub active: BTreeSet<WorkerId>,
    pub clients: Vec<Client>,
    pub moves: Vec<(Instant, Moved)>,
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
        let seat = |id| Seat {
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
            seats: (0..workers).map(seat).collect(),
            scheduling,
            active,
            clients: Vec::new(),
            moves: Vec::new(),
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
        for worker in 0..self.seats.len() {
            self.logs[worker] += &(state_line(&self.seats[worker].policy) + "\n");
        }
        let last = self.seats.len();
        self.logs[last] += &(state_line(&self.scheduling) + "\n");
    }

    /// Gives a worker a limit as if it had been learned, by one observation.
    pub fn teach(&mut self, limit: f64) {
        for (id, seat) in (0..).zip(&mut self.seats) {
            let mut learned = LearnedLimit::default();
            learned.observe(Rate::per_second(limit), true, &self.params);
            let params = self.scheduling.worker_params(self.params);
            assert_eq!(seat.policy.connections(), 0, "teach before clients come");
            seat.policy = Worker::new(params, WorkerId(id), Some(learned));
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
        self.seats.iter().filter(|seat| seat.policy.connections() > 0).count()
    }

    /// Every open connection is with exactly one worker or on its way, every worker that serves is
    /// active.
    pub fn check(&self) {
        let mut found = vec![0; self.clients.len()];
        for (worker, seat) in self.seats.iter().enumerate() {
            for (slot, client) in seat.slots.iter().enumerate() {
                let Some(client) = *client else { continue };
                found[client] += 1;
                let place = Place::At { worker, slot: slot as u32 };
                assert_eq!(self.clients[client].place, place, "the books agree");
            }
            let here = seat.slots.iter().flatten().count();
            assert_eq!(here, seat.policy.connections() as usize, "the policy counts its connections");
        }
        for (client, state) in self.clients.iter().enumerate() {
            let expected = i32::from(matches!(state.place, Place::At { .. }));
            assert_eq!(found[client], expected, "client {client} is {:?}", state.place);
        }
        assert!(self.active.len() >= usize::from(self.params.min_active), "some worker is awake");
    }

    /// After quiet: no connection flies, workers that serve are active and no others but the
    /// minimum.
    pub fn check_settled(&self) {
        self.check();
        assert!(
            self.clients.iter().all(|client| client.place != Place::Flying),
            "no connection is lost on the way"
        );
        for (id, seat) in (0..).map(WorkerId).zip(&self.seats) {
            let serves = seat.policy.connections() > 0;
            assert!(!serves || self.active.contains(&id), "{id} serves but is inactive");
        }
        assert_eq!(
            self.active,
            self.scheduling.active().into_iter().collect(),
            "the commands tell the state"
        );
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
        let output = self.seats[worker].policy.apply(self.now, &input);
        if self.recording {
            self.logs[worker] += &(step_line::<Worker>(self.now, &input, &output) + "\n");
        }
        output
    }

    fn tell_scheduling(&mut self, input: SchedulingInput) -> policy::log::SchedulingOutput {
        let output = self.scheduling.apply(self.now, &input);
        if self.recording {
            let last = self.seats.len();
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
                Command::LimitIdle { .. } | Command::SetActiveCpus(_) | Command::SetFrequency { .. } => {
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
                if let Some(due) = self.seats[worker].policy.poll_timeout() {
                    self.at(due.max(self.now), Event::WorkerTimer { worker });
                }
            }
            Event::Notice(input) => {
                self.tell_scheduling(input);
            }
            Event::WorkerTimer { worker } => {
                self.tell_worker(worker, WorkerInput::Timeout);
                let again = self.seats[worker].policy.poll_timeout();
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

    fn request(&mut self, client: usize) {
        let lump = self.clients[client].lump as usize;
        self.clients[client].pending.extend(std::iter::repeat_n(self.now, lump));
        if let Place::At { worker, .. } = self.clients[client].place {
            self.make_ready(client, worker);
        }
    }

    fn make_ready(&mut self, client: usize, worker: usize) {
        let seat = &mut self.seats[worker];
        if !seat.ready.contains(&client) {
            seat.ready.push_back(client);
        }
        if self.stalled_until > self.now {
            self.at(self.stalled_until, Event::Serve { worker });
        } else if !self.seats[worker].serving {
            self.begin_serving(worker);
        }
    }

    fn begin_serving(&mut self, worker: usize) {
        let Some(&client) = self.seats[worker].ready.front() else { return };
        self.seats[worker].serving = true;
        let state = &self.clients[client];
        let cost = state.cost.unwrap_or(self.service_time);
        let in_turn = state.pending.len().min(TURN_REQUESTS);
        let work = (cost * in_turn as u64).scale(self.seats[worker].stolen);
        self.seats[worker].in_turn = in_turn;
        self.seats[worker].worked += work;
        self.seats[worker].turn = work;
        if work.is_zero() {
            self.serve(worker);
        } else {
            self.after(work, Event::Serve { worker });
        }
    }

    fn serve(&mut self, worker: usize) {
        let was_serving = std::mem::replace(&mut self.seats[worker].serving, false);
        if !was_serving {
            // The end of a stall.
            return self.begin_serving(worker);
        }
        let Some(client) = self.seats[worker].ready.pop_front() else { return };
        let Place::At { worker: at, slot } = self.clients[client].place else {
            return self.begin_serving(worker);
        };
        assert_eq!(at, worker, "only those who are here are ready here");
        let in_turn = self.seats[worker].in_turn.min(self.clients[client].pending.len());
        let requests: Vec<Instant> = self.clients[client].pending.drain(..in_turn).collect();
        if !self.clients[client].pending.is_empty() {
            self.seats[worker].ready.push_back(client);
        }
        self.clients[client].served += requests.len() as u64;
        let now = self.now;
        self.seats[worker].latencies.extend(requests.iter().map(|&since| now.since(since)));
        let busy = self.seats[worker].turn;
        let input = WorkerInput::Served { slot, requests: requests.len() as u32, busy };
        if let WorkerOutput::Verdict(Verdict::Send { target, why }) = self.tell_worker(worker, input) {
            assert_ne!(target.index(), worker, "no connection is sent to where it is");
            self.send(worker, slot, target.index(), why);
        }
        self.begin_serving(worker);
    }

    fn send(&mut self, source: usize, slot: u32, target: usize, why: Why) {
        let client = self.seats[source].slots[slot as usize].expect("a connection that is here is sent");
        let WorkerOutput::Departure(departure) =
            self.tell_worker(source, WorkerInput::Departure { slot, sent: true })
        else {
            unreachable!("a departure is the answer")
        };
        assert_eq!(departure.conn, ConnId(client as u64));
        if why.is_sent_home() {
            assert_eq!(WorkerId(target as u16), departure.home, "only home");
        }
        self.forget(source, slot, client);
        if self.lose_transfers > 0 {
            self.lose_transfers -= 1;
            self.clients[client].place = Place::Closed;
        } else {
            self.clients[client].place = Place::Flying;
            self.after(TRANSFER, Event::Land { client, source, target, why, departure });
        }
        self.released(source);
    }

    fn depart_for_good(&mut self, client: usize, worker: usize, slot: u32) {
        self.tell_worker(worker, WorkerInput::Departure { slot, sent: false });
        self.forget(worker, slot, client);
        self.clients[client].place = Place::Closed;
        let home = self.clients[client].home.index();
        if home != worker {
            self.after(MESSAGE, Event::Letter { worker: home, order: Order::ClosedAway });
        }
        self.released(worker);
    }

    fn released(&mut self, worker: usize) {
        if self.seats[worker].policy.connections() == 0 {
            let released = SchedulingInput::Released(WorkerId(worker as u16));
            self.after(MESSAGE, Event::Notice(released));
        }
    }

    fn forget(&mut self, worker: usize, slot: u32, client: usize) {
        let seat = &mut self.seats[worker];
        seat.slots[slot as usize] = None;
        seat.ready.retain(|&ready| ready != client);
        if seat.ready.is_empty() && self.service_time.is_zero() {
            seat.serving = false;
        }
    }

    fn arrive(&mut self, client: usize, worker: usize, load: ConnectionLoad) {
        let slots = &mut self.seats[worker].slots;
        let slot = slots.iter().position(Option::is_none).unwrap_or(slots.len());
        if slot == slots.len() {
            slots.push(None);
        }
        slots[slot] = Some(client);
        let slot = slot as u32;
        self.clients[client].place = Place::At { worker, slot };
        let (conn, home) = (ConnId(client as u64), self.clients[client].home);
        self.tell_worker(worker, WorkerInput::Arrival { slot, conn, home, load });
        if !self.clients[client].pending.is_empty() {
            self.make_ready(client, worker);
        }
    }

    fn report(&mut self) {
        let mut reading = Reading::default();
        let mut all = Vec::new();
        for worker in 0..self.seats.len() {
            let seat = &mut self.seats[worker];
            let mut latencies = std::mem::take(&mut seat.latencies);
            let busy = Ratio::of(std::mem::take(&mut seat.worked), self.params.report_period);
            latencies.sort_unstable();
            let tail = percentile(&latencies, 0.99);
            let sample = Sample { busy, tail, requests: latencies.len() as u32 };
            all.extend(latencies);
            let output = self.tell_worker(worker, WorkerInput::Report(sample));
            let WorkerOutput::Report { reading: report, movable } = output else { unreachable!("a report") };
            reading.workers.push(report);
            let worker = WorkerId(worker as u16);
            self.tell_scheduling(SchedulingInput::Movable { worker, movable });
        }
        all.sort_unstable();
        let mean = all.iter().copied().sum::<Duration>() / (all.len() as u64).max(1);
        reading.service = ServiceReading {
            rate: Some(Rate::of(all.len() as u64, self.params.report_period)),
            mean: Some(mean).filter(|_| !all.is_empty()),
            p95: percentile(&all, 0.95),
            p99: percentile(&all, 0.99),
            tail: None,
        };
        self.readings.clone_from(&reading.workers);
        let output = self.tell_scheduling(SchedulingInput::Reading(reading));
        let guidance = output.guidance.expect("after a reading there is guidance");
        for worker in 0..self.seats.len() {
            self.after(MESSAGE, Event::Letter { worker, order: Order::Guidance(guidance) });
        }
        self.after(self.params.report_period, Event::Report);
    }
}

fn percentile(sorted: &[Duration], share: f64) -> Option<Duration> {
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(last as f64 * share).ceil() as usize])
}
