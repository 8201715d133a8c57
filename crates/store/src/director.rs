//! The director: the one thread that is not a worker. It accepts connections, runs the scheduling
//! policy once per report period, carries its commands to workers and CPUs, and keeps the learned
//! limits.
//!
//! ```text
//!   listeners --accept--> place() --Adopt--> a worker's mailbox
//!   workers' reports --> Reading --> policy --> MoveConnection ---> Order in a worker's mailbox
//!                                          `--> Activate, Deactivate --> active_idle --> LimitIdle --> limits
//! ```
//!
//! It is never on a request's path: scale-up happens between workers alone, and the director learns
//! of it from their notices. The paper pins its scheduler to a core of its own and believes that
//! this "may not be necessary" (section 3.1). Here the thread costs a few microseconds per period
//! and stays on CPUs that are awake anyway, so that scheduling never wakes a CPU which it has just
//! put to sleep. When nothing happens it sleeps as well: without clients it has no timer.

use crate::acceptor::{self, Accepted, Acceptor};
use crate::config::{Config, Policy};
use crate::connection::{Connection, Socket};
use crate::learned::Learned;
use crate::limits::Limits;
use crate::recording::RecordedScheduler;
use crate::shared::{Mail, Notice, Response, Shared};
use crate::tally::Tallied;
use machine::{
    Command, ConnId, CpuId, CpuList, Duration, IdleLimit, Instant, Reading, ServiceReading, WorkerId,
};
use policy::Guidance;
use policy::active_idle::ActiveIdle;
use policy::peafowl::{ConnectionLoad, Order};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Without load the director looks at most this often, for the policy's own timers.
const IDLE_PERIOD: Duration = Duration::from_secs(1);

/// A load that is as good as none, requests per second.
const NEGLIGIBLE: f64 = 0.1;

/// How often learned limits are written, when they changed.
const SAVE_PERIOD: Duration = Duration::from_secs(30);

/// How old a reading of the meters may be when another client connects.
const READING_AGE: Duration = Duration::from_secs(1);

/// No client makes the meters be read more often than this.
const LEAST_READING_AGE: Duration = Duration::from_millis(50);

pub(crate) struct Director {
    shared: Arc<Shared>,
    acceptor: Acceptor,
    scheduling: RecordedScheduler,
    worker_cpus: Vec<CpuId>,
    active: BTreeSet<WorkerId>,
    active_idle: ActiveIdle,
    /// The store's requests to the machine; `None` where that is to be left alone.
    limits: Option<Limits>,
    learned: Learned,
    guidance: Guidance,
    connections_so_far: u64,
    requests_before: u64,
    /// Where the policy plans from counts.
    tallied: Option<Tallied>,
    next_tick: Option<Instant>,
    next_save: Instant,
    stopping: bool,
    warned_of_descriptors: bool,
}

impl Director {
    pub(crate) fn new(
        shared: Arc<Shared>,
        config: &Config,
        acceptor: Acceptor,
        scheduling: RecordedScheduler,
        active_idle: ActiveIdle,
        limits: Option<Limits>,
        learned: Learned,
    ) -> Self {
        let now = shared.now();
        Self {
            acceptor,
            scheduling,
            worker_cpus: config.worker_cpus.clone(),
            active: (0..config.worker_cpus.len() as u16).map(WorkerId).collect(),
            active_idle,
            limits,
            learned,
            guidance: Guidance::default(),
            connections_so_far: 0,
            requests_before: 0,
            tallied: matches!(config.policy, Policy::Joint(_)).then(Tallied::new),
            next_tick: Some(now),
            next_save: now + SAVE_PERIOD,
            stopping: false,
            warned_of_descriptors: false,
            shared,
        }
    }

    /// Directs until told to stop. On the way out the workers are told to finish and the machine is
    /// put back.
    pub(crate) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut notices = Vec::new();
        self.show_active(shared.now());
        while !self.stopping {
            shared.director().collect(&mut notices);
            for notice in notices.drain(..) {
                self.handle_notice(notice);
            }
            let now = shared.now();
            self.acceptor.handle_timeout(now);
            self.accept(now);
            if self.next_tick.is_some_and(|due| due <= now) {
                self.tick(now);
            }
            if self.scheduling.poll_timeout().is_some_and(|due| due <= now) {
                self.scheduling.handle_timeout(now);
            }
            self.carry_out(now);
            if let Some(limits) = &mut self.limits {
                limits.flush(now);
            }
            if !self.stopping && self.wait(now) {
                self.look_after();
            }
        }
        self.learned.save(shared.ports(), &shared.log);
        for port in shared.ports() {
            port.mailbox.post(Mail::Drain);
        }
        // Dropping the idle control puts every limit back; the workers drain meanwhile.
    }

    /// Until something happens; true if there is something to be looked after of idle limits.
    fn wait(&self, now: Instant) -> bool {
        let mailbox = self.shared.director();
        let look = self.limits.as_ref().and_then(Limits::due);
        let timers = [self.next_tick, self.scheduling.poll_timeout(), self.acceptor.resumes_at(), look];
        let due = timers.into_iter().flatten().min();
        let wait = if mailbox.fall_asleep() { due.map(|due| due.since(now)) } else { Some(Duration::ZERO) };
        let timeout = wait.map(|wait| Timespec {
            tv_sec: (wait.as_nanos() / 1_000_000_000) as i64,
            tv_nsec: (wait.as_nanos() % 1_000_000_000) as i64,
        });
        let mut watched: Vec<PollFd<'_>> = self
            .acceptor
            .watched()
            .chain(self.limits.iter().flat_map(Limits::bells))
            .chain([mailbox.bell()])
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // An interrupted or failed wait is an early look round, which is harmless.
        let _ = poll(&mut watched, timeout.as_ref());
        mailbox.wake_up();
        // The bell is level-triggered here: it is silenced by reading it.
        if watched.last().is_some_and(|bell| bell.revents().contains(PollFlags::IN)) {
            let _ = rustix::io::read(mailbox.bell(), &mut [0_u8; 8]);
        }
        let others = self.acceptor.watched().count();
        let bells = watched.get(others..watched.len() - 1).unwrap_or_default();
        look.is_some_and(|due| due <= self.shared.now())
            || bells.iter().any(|bell| !bell.revents().is_empty())
    }

    fn handle_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Moved { at, moved } => self.scheduling.handle_moved(at, moved),
            Notice::Refused { at, worker } => self.scheduling.handle_refused(at, worker),
            Notice::Emptied { at, worker } => self.scheduling.handle_released(at, worker),
            Notice::Room => self.acceptor.handle_room(),
            Notice::Roused => self.next_tick = Some(self.shared.now()),
            Notice::ResetLimits => {
                self.learned.forget(&self.shared.log);
                for port in self.shared.ports() {
                    port.mailbox.post(Mail::Order(Order::ResetLimit));
                }
            }
            Notice::MetersAsked => self.shared.inspector.refresh(self.shared.now(), LEAST_READING_AGE),
            Notice::Stop => self.stopping = true,
        }
    }

    fn accept(&mut self, now: Instant) {
        let Self { acceptor, shared, scheduling, connections_so_far, .. } = self;
        let before = *connections_so_far;
        let limit = shared.limits.max_connections;
        let accepted = acceptor.accept(
            now,
            || shared.connections() < limit,
            |socket, is_tls| {
                let peer = acceptor::peer(&socket);
                let Some(socket) = shared.carrier(socket, is_tls) else { return };
                let id = ConnId(*connections_so_far);
                *connections_so_far += 1;
                place(shared, scheduling, now, id, peer, socket);
            },
            || shared.connection_rejected(),
        );
        if *connections_so_far != before {
            // The next client may ask for the meters, and gets the last reading.
            shared.inspector.refresh(now, READING_AGE);
        }
        if accepted != Accepted::OutOfDescriptors {
            shared.resume_accepting();
        }
        match accepted {
            Accepted::All => {}
            Accepted::SomeMore => self.next_tick = Some(now),
            Accepted::OutOfDescriptors => {
                shared.pause_accepting();
                if !self.warned_of_descriptors {
                    self.warned_of_descriptors = true;
                    shared.log.say(
                        "no file descriptor is left for a new client; it waits until another leaves\n\
                         hint: raise the limit (ulimit -n) or lower limits.connections in --config",
                    );
                }
            }
        }
        if self.next_tick.is_none() && self.shared.connections() > 0 {
            self.next_tick = Some(now + self.shared.report_period());
        }
    }

    /// One report period: the workers' published figures become a reading.
    fn tick(&mut self, now: Instant) {
        self.ask_the_silent(now);
        let reading = self.reading();
        let requests: u64 = self.shared.ports().iter().map(|port| port.published().requests).sum();
        let served = requests != std::mem::replace(&mut self.requests_before, requests);
        for (worker, port) in self.shared.ports().iter().enumerate() {
            self.scheduling.handle_movable(now, WorkerId(worker as u16), port.published().movable);
        }
        if let Some(tallied) = &mut self.tallied {
            self.scheduling.handle_answered(now, tallied.answered(self.shared.ports()));
        }
        let guidance = self.scheduling.handle_reading(now, reading);
        if self.guidance != guidance {
            self.guidance = guidance;
            self.shared.guide(guidance);
        }
        self.look_after();
        self.shared.director_dozes(!served);
        self.next_tick = if served {
            Some(now + self.shared.report_period())
        } else if self.shared.connections() > 0 {
            Some(now + IDLE_PERIOD)
        } else {
            None
        };
        if now >= self.next_save {
            self.next_save = now + SAVE_PERIOD;
            self.learned.save(self.shared.ports(), &self.shared.log);
        }
    }

    /// A worker that serves nothing does not report by itself, and its last word would stand for
    /// ever. Once its load has decayed to next to nothing it is left to sleep.
    fn ask_the_silent(&self, now: Instant) {
        for port in self.shared.ports() {
            let published = port.published();
            let loaded = published
                .reading
                .is_some_and(|reading| reading.requests_per_second().as_per_second() > NEGLIGIBLE);
            if loaded && now.since(published.at) > self.shared.report_period() * 2 {
                port.mailbox.post(Mail::Report);
            }
        }
    }

    fn reading(&self) -> Reading {
        let workers: Vec<_> =
            self.shared.ports().iter().filter_map(|port| port.published().reading).collect();
        let rate = workers.iter().map(|worker| worker.requests_per_second()).sum();
        let responses: Vec<Response> =
            self.shared.ports().iter().filter_map(|port| port.published().response).collect();
        // The slowest worker's percentile bounds the service's: every worker answers that share
        // within it.
        let service = ServiceReading {
            rate: Some(rate),
            mean: mean(&responses),
            p95: responses.iter().map(|response| response.p95).max(),
            p99: responses.iter().map(|response| response.p99).max(),
            tail: None,
        };
        Reading { workers, service, ..Reading::default() }
    }

    fn carry_out(&mut self, now: Instant) {
        let mut changed = false;
        while let Some(command) = self.scheduling.poll_command() {
            match command {
                Command::MoveConnection { source, target, pick } => {
                    self.order(source, Order::Move { target, pick });
                }
                Command::Activate(worker) => changed |= self.active.insert(worker),
                Command::Deactivate(worker) => changed |= self.active.remove(&worker),
                Command::LimitIdle { cpu, limit } => self.limit_idle(cpu, limit),
                // For services that do not place their connections themselves.
                Command::SetActiveCpus(_) | Command::SetFrequency { .. } | Command::SetUncore(_) => {}
            }
        }
        if changed {
            self.show_active(now);
        }
    }

    fn limit_idle(&mut self, cpu: CpuId, limit: IdleLimit) {
        if let Some(limits) = &mut self.limits {
            let in_force = limits.limit(cpu, limit);
            self.shared.view().set_limit(cpu, limit, in_force);
        }
    }

    /// Limits are asked of another, where that has changed.
    fn look_after(&mut self) {
        if let Some(limits) = &mut self.limits {
            limits.look_after(self.shared.now());
            let mut view = self.shared.view();
            limits.states().for_each(|(cpu, limit, in_force)| view.set_limit(cpu, limit, in_force));
        }
    }

    fn order(&self, worker: WorkerId, order: Order) {
        self.shared.port(worker).mailbox.post(Mail::Order(order));
    }

    /// Makes the set of active workers true: for the CPUs' idle limits, for readers, and for
    /// this thread.
    fn show_active(&mut self, now: Instant) {
        let active: Vec<WorkerId> = self.active.iter().copied().collect();
        for command in self.active_idle.handle_active(&active) {
            if let Command::LimitIdle { cpu, limit } = command {
                self.limit_idle(cpu, limit);
            }
        }
        self.shared.offers.set_thieves(&active);
        self.shared.view().set_active(&active, now);
        let cpus = CpuList(active.iter().map(|worker| self.worker_cpus[worker.index()]).collect());
        if let Some(limits) = &mut self.limits {
            limits.need(&cpus);
        }
        if !cpus.0.is_empty() {
            // Where this is not permitted the thread stays where the kernel puts it.
            let _ = linux::pin_current_thread_to(&cpus);
        }
    }
}

fn mean(responses: &[Response]) -> Option<Duration> {
    let samples: u64 = responses.iter().map(|response| u64::from(response.samples)).sum();
    let total: Duration = responses.iter().map(|response| response.mean * u64::from(response.samples)).sum();
    (samples > 0).then(|| total / samples)
}

/// Gives a new connection its home and its worker.
fn place(
    shared: &Shared,
    scheduling: &mut RecordedScheduler,
    now: Instant,
    id: ConnId,
    peer: String,
    socket: Socket,
) {
    let placement = scheduling.place(now);
    shared.connection_opened(id, peer, placement.home, placement.serve);
    let connection = Box::new(Connection::new(socket, id, placement.home));
    let load = ConnectionLoad::new(now);
    shared.port(placement.serve).mailbox.post(Mail::Adopt { connection, load, transfer: None });
}
