//! Clients that wait for replies before they send again.
//!
//! Of a closed loop each client has one request outstanding. It sends again after a pause, or in
//! cycles: so long after it sent last, and at once when the answer took longer, as Faban's drivers do
//! (`CycleType.CYCLETIME`).
//!
//! Clients of a load with a rate of its own keep to its schedule, but no connection has more than
//! `depth` requests outstanding. A request that is due on a full connection waits at its client, and
//! leaves when an answer makes room; so does Mutilate (`Connection::drive_write_machine`), whose
//! response times begin with the sending. Those that still wait when the load ends are never sent,
//! unless their time has counted from when they were due.

use super::event_queue::NEVER;
use super::setup::{Closed, Measured, Pause, Phases, Setup};
use super::task::Task;
use super::{Engine, Interrupt, Later, Then};
use std::collections::{BTreeSet, VecDeque};
use workload::Jobs;

/// The clients' side of the connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    /// When each client of a cycle sent last.
    sent_ns: Vec<u64>,
    lines: Vec<Line>,
    /// Of clients that pause by a timer of their CPU: the CPU, when the timer is due, and whose it is.
    timers: BTreeSet<(usize, u64, u32)>,
    /// The CPU of each such client's last timer, and when that was due.
    armed: Vec<(usize, u64)>,
    /// Requests that wait at clients and are in no queue of the server yet.
    unsent: u64,
}

#[derive(Clone, Debug, Default)]
struct Line {
    outstanding: u32,
    waiting: VecDeque<Task>,
}

impl Clients {
    pub fn new(setup: &Setup, jobs: &Jobs) -> Self {
        let cycles = setup.closed.as_ref().filter(|closed| matches!(closed.pause, Pause::Cycle { .. }));
        let lines = if setup.depth.is_some() { jobs.connections() as usize } else { 0 };
        let timers = setup.closed.as_ref().filter(|closed| closed.timer);
        Self {
            sent_ns: vec![0; cycles.map_or(0, |closed| closed.clients as usize)],
            lines: vec![Line::default(); lines],
            timers: BTreeSet::new(),
            armed: vec![(0, 0); timers.map_or(0, |closed| closed.clients as usize)],
            unsent: 0,
        }
    }

    /// Number of requests that wait for a place on their connection and do not count as entered.
    #[inline]
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// The next timer of a CPU.
    fn next_timer(&self, cpu: usize) -> u64 {
        let next = self.timers.range((cpu, 0, 0)..).next();
        next.filter(|(of, ..)| *of == cpu).map_or(NEVER, |(_, at, _)| *at)
    }
}

impl Closed {
    /// The connection of one of the clients.
    fn connection(&self, client: u32) -> u32 {
        client / self.depth
    }

    /// A client of a connection: they are alike where there are several.
    pub(super) fn client_of(&self, connection: u32) -> u32 {
        connection * self.depth
    }

    pub(super) fn connections(&self) -> u32 {
        self.clients / self.depth
    }
}

impl Engine {
    /// All clients of the closed loop begin.
    pub(super) fn begin_clients(&mut self) {
        let Some(closed) = &self.setup.closed else { return };
        let clients = closed.clients;
        for client in 0..clients {
            let Some(closed) = &self.setup.closed else { return };
            match &closed.pause {
                Pause::Think(_) => self.think(client),
                Pause::Cycle { length, phases } => {
                    let cycle = length.mean().as_nanos() as f64;
                    let share = match phases {
                        Phases::InStep => 0.0,
                        Phases::Even => f64::from(client) / f64::from(clients),
                        Phases::Random => self.chance.client(client).unit(),
                    };
                    self.send_at(client, (cycle * share) as u64);
                }
            }
        }
    }

    /// A client of the closed loop has its answer, or begins: it sends again after a pause.
    pub(super) fn think(&mut self, client: u32) {
        let Some(closed) = &self.setup.closed else { return };
        let at = match &closed.pause {
            Pause::Think(think) => self.now + think.draw(self.chance.client(client)).as_nanos(),
            Pause::Cycle { length, .. } => {
                let sent = self.clients.sent_ns[client as usize];
                (sent + length.draw(self.chance.client(client)).as_nanos()).max(self.now)
            }
        };
        self.send_at(client, at);
    }

    fn send_at(&mut self, client: u32, at: u64) {
        if let Some(closed) = self.setup.closed.as_ref().filter(|closed| closed.timer) {
            let cpu = self.nth_active(closed.connection(client) as usize);
            self.clients.timers.insert((cpu, at, client));
            self.clients.armed[client as usize] = (cpu, at);
            self.cores[cpu].timer_ns = self.clients.next_timer(cpu);
        }
        self.events.add(at, Later::Client { client });
    }

    pub(super) fn client_timer(&mut self, client: u32) {
        let Some(closed) = &self.setup.closed else { return self.send_waiting(client) };
        if !closed.timer {
            return self.send_again(client);
        }
        // Its CPU wakes for the timer first, if it sleeps, and if it is parked meanwhile.
        let (cpu, at) = self.clients.armed[client as usize];
        self.clients.timers.remove(&(cpu, at, client));
        self.cores[cpu].timer_ns = self.clients.next_timer(cpu);
        self.interrupt(cpu, Interrupt { cost_ns: 0, then: Then::Send { client } });
    }

    /// A client of the closed loop sends again.
    pub(super) fn send_again(&mut self, client: u32) {
        let Some(closed) = &self.setup.closed else { return };
        let connection = closed.connection(client);
        if self.now > self.stop_at {
            // The load is over, and clients stop.
            self.is_stopped = true;
            self.fetched = self.setup.requests;
        }
        if self.fetched < self.setup.requests
            && let Some(job) = self.jobs.next()
        {
            self.fetched += 1;
            if let Some(sent) = self.clients.sent_ns.get_mut(client as usize) {
                *sent = self.now;
            }
            self.enter(Task { connection, arrived_ns: self.now, ..Task::of(&job) });
        }
    }

    /// A request is due on a connection of bounded depth: it is sent, or waits at its client.
    pub(super) fn offer(&mut self, task: Task) {
        let Some(depth) = self.setup.depth else { return self.enter(task) };
        let counts_now = depth.measured == Measured::Due;
        if counts_now {
            self.count_in();
        }
        let line = &mut self.clients.lines[task.connection as usize];
        if line.outstanding >= depth.requests {
            line.waiting.push_back(task);
            self.clients.unsent += u64::from(!counts_now);
            return;
        }
        line.outstanding += 1;
        if counts_now { self.let_in(task) } else { self.enter(task) }
    }

    /// An answer has come: its connection has room for the next request that waits, if any.
    pub(super) fn free(&mut self, connection: u32) {
        let Some(depth) = self.setup.depth else { return };
        let line = &mut self.clients.lines[connection as usize];
        if self.now > self.stop_at && depth.measured == Measured::Sent {
            self.clients.unsent -= line.waiting.len() as u64;
            line.waiting.clear();
        }
        if line.waiting.is_empty() {
            line.outstanding -= 1;
        } else {
            // The place is kept. Sent as an event of its own: this core is in the middle of something.
            self.events.add(self.now, Later::Client { client: connection });
        }
    }

    fn send_waiting(&mut self, connection: u32) {
        let Some(depth) = self.setup.depth else { return };
        let line = &mut self.clients.lines[connection as usize];
        let Some(task) = line.waiting.pop_front() else { return };
        if depth.measured == Measured::Due {
            return self.let_in(task);
        }
        self.clients.unsent -= 1;
        self.enter(Task { arrived_ns: self.now, ..task });
    }
}
