//! The request path: a request arrives, is queued, worked on, and leaves.

use super::event_queue::NEVER;
use super::setup::{Dispatch, Pick};
use super::task::{Task, WHOLE};
use super::{Doing, Engine};
use policy::kind::Ends;
use workload::Job;

impl Engine {
    /// The next request of the load is due.
    #[inline]
    pub(super) fn arrive(&mut self) {
        let task = self.next;
        self.ahead.arrives();
        if self.setup.closed.is_none() {
            self.fetch();
        } else {
            self.next_at = NEVER;
        }
        if self.programs.has_sender() {
            return self.hand_to_sender(task);
        }
        if self.setup.depth.is_some() { self.offer(task) } else { self.enter(task) }
    }

    /// A request enters the system now.
    #[inline(always)]
    pub(super) fn enter(&mut self, task: Task) {
        self.count_in();
        self.let_in(task);
    }

    #[inline(always)]
    pub(super) fn count_in(&mut self) {
        self.metrics.enter(self.now);
        if !self.adapts {
            let in_system = self.metrics.in_system() + self.unsent();
            self.metrics.responses.observe(in_system);
        }
    }

    /// A request that counts already goes its way.
    // These three are a request's way in: as one function they do not hand it through memory from
    // one to the next.
    #[inline(always)]
    pub(super) fn let_in(&mut self, mut task: Task) {
        self.sent_at = self.now;
        if self.programs.has_followers() {
            self.wake_followers();
        }
        if self.setup.dispatch != Dispatch::Shared {
            task.core = self.choose_core(&task) as u16;
        }
        self.about(Some(&task));
        if self.core_policy.watches() {
            self.counting_sees_arrival(task.arrived_ns);
        }
        if self.staging.is_some() {
            self.stage(task);
        } else {
            self.admit(task);
        }
        self.about(None);
    }

    /// Looks one request further.
    #[inline(always)]
    pub(super) fn fetch(&mut self) {
        if self.fetched >= self.setup.requests {
            self.backlog = self.metrics.in_system() + self.unsent();
            self.next_at = NEVER;
            return;
        }
        self.fetched += 1;
        let job = if self.ahead.is_on() { self.fetch_ahead() } else { self.next_of_load() };
        match job {
            Some(job) => {
                self.next = Task::of(&job);
                self.next_at = self.next.arrived_ns;
            }
            None => {
                self.backlog = self.metrics.in_system() + self.unsent();
                self.next_at = NEVER;
            }
        }
    }

    /// The next request of the load that is meant for this server.
    // As in `Jobs`: one that goes through memory on its way takes longer than all that is drawn for
    // it.
    #[inline(always)]
    pub(super) fn next_of_load(&mut self) -> Option<Job> {
        match &mut self.leaf {
            None => self.jobs.next(),
            Some(leaf) => leaf.next(&mut self.jobs),
        }
    }

    /// The request is let in: through the network card, if there is one.
    #[inline(always)]
    pub(super) fn admit(&mut self, task: Task) {
        // A card that takes no time to receive interrupts no CPU before the request.
        if self.setup.nic.as_ref().is_some_and(|nic| !nic.receive.is_zero()) {
            self.receive(task);
        } else {
            self.dispatch(task);
        }
    }

    #[inline(always)]
    pub(super) fn dispatch(&mut self, task: Task) {
        if self.has_phases() {
            return self.begin_phases(task);
        }
        match self.setup.dispatch {
            Dispatch::Shared => self.enqueue_shared(task),
            Dispatch::Random | Dispatch::RoundRobin => {
                let mut core = self.routed_core().unwrap_or(usize::from(task.core));
                if self.wake_delay.is_on() {
                    core = self.reroute(core);
                }
                self.enqueue(core, task);
            }
            Dispatch::Connections => {
                if let Some(core) = self.worker_of(&task) {
                    self.enqueue(core, task);
                }
            }
            Dispatch::ForkJoin => self.fork(task),
        }
    }

    /// The core whose queue a request will join, where that is settled when it arrives.
    #[inline]
    fn choose_core(&mut self, task: &Task) -> usize {
        match self.setup.dispatch {
            // The first that is free; which connection's worker is asked when it is let in.
            Dispatch::Shared | Dispatch::ForkJoin => 0,
            Dispatch::Connections if self.placement.is_some() => 0,
            // Drawn when the request was generated, where a policy knows the future.
            _ if self.ahead.is_on() => self.ahead.core_of_arrival(),
            Dispatch::Connections => self.nth_active(task.connection as usize),
            Dispatch::RoundRobin => {
                self.turn = self.turn.wrapping_add(1);
                self.nth_active(self.turn)
            }
            Dispatch::Random => {
                let place = self.chance.dispatch.below(self.active_count as u64) as usize;
                self.nth_active(place)
            }
        }
    }

    /// The active core of this place, counted round.
    #[inline]
    pub(super) fn nth_active(&self, place: usize) -> usize {
        let active = self.active_count;
        // Most often all cores are active, and then they are numbered through.
        if active == self.setup.workers {
            place % active
        } else {
            self.active.nth(place % active).unwrap_or(0)
        }
    }

    /// The core that a request of several phases lives on.
    pub(super) fn home_core(&mut self, task: &Task) -> usize {
        match self.setup.dispatch {
            Dispatch::Shared | Dispatch::ForkJoin => self.pick_idle().unwrap_or_else(|| {
                self.turn = self.turn.wrapping_add(1);
                self.nth_active(self.turn)
            }),
            Dispatch::Connections => self.seat_of(task).unwrap_or(usize::from(task.core)),
            Dispatch::Random | Dispatch::RoundRobin => usize::from(task.core),
        }
    }

    #[inline]
    pub(super) fn enqueue_shared(&mut self, task: Task) {
        let wakes = self.wakes_thread(&task);
        self.shared.push_back(task);
        if !wakes {
            if self.dvfs.watches_arrivals() {
                self.clock_arrival_shared();
            }
            return;
        }
        // More cores on their way than tasks waiting would wake for nothing.
        if let Some(core) = self.pick_idle() {
            self.signal_work(core);
        } else if self.dvfs.watches_arrivals() {
            self.clock_arrival_shared();
        }
    }

    /// An idle active core, if there is one.
    #[inline]
    pub(super) fn pick_idle(&mut self) -> Option<usize> {
        match self.setup.pick {
            Pick::Shallowest => self.idle.iter().find_map(|state| state.both(&self.active).first()),
            Pick::Lowest => self.idle.iter().filter_map(|state| state.both(&self.active).first()).min(),
            Pick::Random => {
                let count: usize = self.idle.iter().map(|state| state.both(&self.active).len()).sum();
                if count == 0 {
                    return None;
                }
                let mut place = self.chance.pick.below(count as u64) as usize;
                for state in self.idle.iter() {
                    let here = state.both(&self.active);
                    if place < here.len() {
                        return here.nth(place);
                    }
                    place -= here.len();
                }
                None
            }
        }
    }

    #[inline]
    pub(super) fn enqueue(&mut self, core: usize, task: Task) {
        self.cores[core].queue.push_back(task);
        if self.wake_delay.is_on() {
            return self.delay_arrival(core);
        }
        match self.cores[core].doing {
            Doing::Asleep | Doing::Polling => return self.signal_work(core),
            _ if self.dvfs.watches_arrivals() => self.clock_choose(core),
            _ => {}
        }
        if self.setup.stealing.is_some() {
            self.call_thief(core);
        }
    }

    /// The core is awake and looks for something to do.
    #[inline]
    pub(super) fn next_work(&mut self, core: usize) {
        let state = &mut self.cores[core];
        if !state.interrupts.is_empty() {
            return self.begin_interrupt(core);
        }
        let mut task = state.queue.pop_front();
        if task.is_none() && self.has_shared {
            if self.threads.is_some() && self.ends_turn(core) {
                return self.begin_interrupt(core);
            }
            if self.active.contains(core) {
                task =
                    if self.threads.is_none() { self.shared.pop_front() } else { self.take_for_thread(core) };
            }
        }
        if task.is_none() && self.setup.stealing.is_some() {
            task = self.steal(core);
        }
        match task {
            Some(task) => self.start(core, task),
            None if self.begin_piece(core) => {}
            None => self.go_idle(core),
        }
    }

    #[inline(always)]
    fn start(&mut self, core: usize, task: Task) {
        let now = self.now;
        let state = &mut self.cores[core];
        state.task = task;
        state.left = 1.0;
        state.began = now;
        state.started = now;
        let was = std::mem::replace(&mut state.doing, Doing::Working);
        if !matches!(was, Doing::Between | Doing::Interrupted) {
            self.hardware.work(core, now);
            self.retime_sibling(core);
        }
        let length = self.hardware.begin_ns(core, task.compute_ns, task.memory_ns, now);
        self.cores[core].ends = now + length;
        self.events.set(core, now + length);
        if self.dvfs.watches_work() {
            self.about(Some(&task));
            self.clock_started(core);
            self.about(None);
        }
        self.clock_siblings(core);
    }

    /// A task that a nap stopped goes on.
    pub(super) fn resume_halted(&mut self, core: usize) {
        let now = self.now;
        self.hardware.work(core, now);
        let state = &mut self.cores[core];
        state.doing = Doing::Working;
        state.began = now;
        let part = |ns: u64| (ns as f64 * state.left).round() as u64;
        let (compute, memory) = (part(state.task.compute_ns), part(state.task.memory_ns));
        let length = self.hardware.begin_ns(core, compute, memory, now);
        self.cores[core].ends = now + length;
        self.events.set(core, now + length);
    }

    /// The speed of the core's work has changed: the rest of it takes another time from now on.
    pub(super) fn retime(&mut self, core: usize, stall_ns: u64) {
        let now = self.now;
        if self.cores[core].doing == Doing::Interrupted {
            // Too short to bother, but a stall counts.
            let due = self.events.due(core) + stall_ns;
            self.events.set(core, due);
            return;
        }
        if self.cores[core].doing == Doing::Program {
            return self.retime_piece(core, stall_ns);
        }
        if self.cores[core].doing != Doing::Working {
            return;
        }
        let state = &mut self.cores[core];
        let planned = state.ends.saturating_sub(state.began);
        if planned > 0 {
            state.left *= state.ends.saturating_sub(now.max(state.began)) as f64 / planned as f64;
        }
        let (compute, memory) = (state.task.compute_ns as f64, state.task.memory_ns as f64);
        let left = state.left;
        state.began = now + stall_ns;
        let (compute, memory) = ((compute * left).round() as u64, (memory * left).round() as u64);
        let length = self.hardware.begin_ns(core, compute, memory, now);
        let ends = now + stall_ns + length;
        self.cores[core].ends = ends;
        self.events.set(core, ends);
    }

    #[inline]
    pub(super) fn complete(&mut self, core: usize) {
        let task = self.cores[core].task;
        self.cores[core].doing = Doing::Between;
        self.metrics.worked(task.compute_ns, task.memory_ns);
        self.cores[core].completed_ns += task.compute_ns + task.memory_ns;
        if self.setup.stealing.is_some() {
            self.note_turn(core);
        }
        if self.chronicle.is_some() {
            self.tell_of_work(core, &task);
        }
        let phase = self.pieces.phase(task.request);
        let ends = if task.request == WHOLE {
            self.leave(core, &task);
            Ends::Request
        } else {
            self.piece_done(core, &task)
        };
        if self.dvfs.watches_work() {
            self.clock_completed(core, &task, (phase, ends));
        }
        self.about(None);
        if self.wake_delay.is_on() {
            self.delay_completed(core, &task);
        }
        // Spinning for a device keeps the core, and a nap may have stopped it.
        if self.cores[core].doing == Doing::Between {
            self.next_work(core);
        }
    }

    #[inline(always)]
    pub(super) fn leave(&mut self, core: usize, task: &Task) {
        let response = self.now - task.arrived_ns;
        self.metrics.leave(self.now, response, self.outside_ns, task.class);
        if self.is_watched {
            self.tell_of_answer(core, task, response);
        }
    }

    /// Tells those policies of an answer that follow requests one by one.
    #[inline(never)]
    fn tell_of_answer(&mut self, core: usize, task: &Task, response: u64) {
        if self.setup.nic.is_some() {
            self.transmit(core, task);
        }
        if self.placement.is_some() {
            self.served(core, task, response);
        }
        if self.core_policy.watches() {
            self.counting_sees_completion(task, response);
        }
        if self.uncore.is_some() {
            self.uncore_sees(response);
        }
        if self.staging.is_some() {
            self.staged_served(task.arrived_ns);
        }
        if let Some(closed) = &self.setup.closed {
            let client = closed.client_of(task.connection);
            self.think(client);
        }
        if self.setup.depth.is_some() {
            self.free(task.connection);
        }
        if let Some(leaf) = &self.leaf {
            leaf.answered(task.ticket, response + self.outside_ns);
        }
    }
}
