//! Requests of several pieces: shards that run side by side, or a device call between two phases of
//! one thread. Where there are both, the thread of the last shard calls the device, and the request is
//! done when that thread goes on.
//!
//! A device's interrupt lands on a CPU of its own choosing. If that CPU sleeps its wake-up is on
//! the request's path, and then the thread's own CPU may have to wake as well: two exits for one
//! event (the CPU-sleeps paper, section 2).

use super::event_queue::NEVER;
use super::interrupts::{Interrupt, Then};
use super::quiescing::Phase;
use super::setup::{Dispatch, ShardWork, Wait};
use super::task::{Pieces, Task, WHOLE};
use super::{Doing, Engine, Later};
use policy::kind::Ends;
use workload::Random;

impl Engine {
    /// One piece to every active core, or so many of them to some.
    pub(super) fn fork(&mut self, task: Task) {
        let count = self.setup.shards.count;
        let left = count.unwrap_or(self.active_count as u16);
        let request = self.pieces.insert(Pieces {
            left,
            class: task.class,
            connection: task.connection,
            ticket: task.ticket,
            arrived_ns: task.arrived_ns,
            calls: self.setup.device.is_some(),
            ..Pieces::default()
        });
        if self.quiescing.is_some() && self.setup.device.is_some() {
            self.phase(request, Phase::Begins);
        }
        let mut chance = self.chance.shards(task.ticket);
        if count.is_none() {
            let cores = self.active;
            for core in cores.iter() {
                let piece = self.piece(request, &task, left, &mut chance);
                self.enqueue(core, piece);
            }
            return;
        }
        for place in 0..left {
            let piece = self.piece(request, &task, left, &mut chance);
            if self.has_shared {
                self.enqueue_shared(piece);
            } else {
                let core = self.shard_core(usize::from(place));
                self.enqueue(core, piece);
            }
        }
    }

    /// Each shard is searched anew, so that the slowest decides.
    fn piece(&self, request: u32, task: &Task, count: u16, chance: &mut Random) -> Task {
        let shards = &self.setup.shards;
        let mut piece = Task { request, ..*task };
        if shards.work == ShardWork::Drawn
            && let class = &self.jobs.classes()[usize::from(task.class)]
            && let Some(service) = &class.service
        {
            let whole = service.draw(chance);
            piece.memory_ns = class.memory_of(whole).as_nanos();
            piece.compute_ns = whole.as_nanos() - piece.memory_ns;
        }
        let share = if shards.work == ShardWork::Divided { 1.0 / f64::from(count) } else { 1.0 };
        let factor = shards.factor.as_ref().map_or(1.0, |law| law.draw(chance).as_secs_f64());
        let part = |ns: u64| (ns as f64 * share * factor) as u64;
        Task { compute_ns: part(piece.compute_ns), memory_ns: part(piece.memory_ns), ..piece }
    }

    /// The core of a request's piece number `place`: each active core once before any gets a second
    /// one.
    fn shard_core(&mut self, place: usize) -> usize {
        let at = place % self.active_count;
        if at == 0 {
            self.drawn.clear();
            self.drawn.extend(self.active.iter().map(|core| core as u16));
        }
        // Fisher and Yates, as far as it is needed.
        let other = at + self.chance.dispatch.below((self.drawn.len() - at) as u64) as usize;
        self.drawn.swap(at, other);
        usize::from(self.drawn[at])
    }

    /// Requests are of two phases with a call of the device between them.
    #[inline]
    pub(super) fn has_phases(&self) -> bool {
        self.setup.device.is_some() && self.setup.dispatch != Dispatch::ForkJoin
    }

    /// The first phase of a request that will call the device.
    pub(super) fn begin_phases(&mut self, task: Task) {
        let core = self.home_core(&task);
        let before = self.setup.device.as_ref().map_or(1.0, |device| device.before);
        let part = |ns: u64| (ns as f64 * before) as u64;
        let (compute, memory) = (part(task.compute_ns), part(task.memory_ns));
        let request = self.pieces.insert(Pieces {
            left: 2,
            class: task.class,
            connection: task.connection,
            ticket: task.ticket,
            core: core as u16,
            arrived_ns: task.arrived_ns,
            compute_ns: task.compute_ns - compute,
            memory_ns: task.memory_ns - memory,
            ..Pieces::default()
        });
        if self.quiescing.is_some() {
            self.phase(request, Phase::Begins);
        }
        self.enqueue(core, Task { request, compute_ns: compute, memory_ns: memory, ..task });
    }

    /// A piece of a request is done. How much is over with it.
    pub(super) fn piece_done(&mut self, core: usize, task: &Task) -> Ends {
        let pieces = self.pieces.get_mut(task.request);
        pieces.left -= 1;
        pieces.done_ns = [pieces.done_ns[0] + task.compute_ns, pieces.done_ns[1] + task.memory_ns];
        if pieces.left == 0 {
            if self.second_round(task) || self.last_call(core, task.request) {
                return Ends::Phase;
            }
            let Pieces { done_ns: [compute_ns, memory_ns], device_ns, .. } = self.pieces.remove(task.request);
            self.device_ns = device_ns;
            if self.quiescing.is_some() {
                self.phase(task.request, Phase::Ends);
            }
            let whole = Task { request: WHOLE, compute_ns, memory_ns, ..*task };
            self.leave(core, &whole);
            self.device_ns = 0;
            Ends::Request
        } else if self.has_phases() {
            self.submit(core, task.request);
            Ends::Phase
        } else {
            Ends::Piece
        }
    }

    /// The second round of a request whose shards have answered, where it has one: as many pieces of a
    /// fixed length join the queue, behind all that waits there. False if there is none to come.
    fn second_round(&mut self, task: &Task) -> bool {
        let shards = &self.setup.shards;
        let (Some(fetch), Some(count)) = (shards.fetch, shards.count) else { return false };
        let pieces = self.pieces.get_mut(task.request);
        if std::mem::replace(&mut pieces.fetches, true) {
            return false;
        }
        pieces.left = count;
        pieces.phase += 1;
        let piece = Task { compute_ns: fetch.as_nanos(), memory_ns: 0, ..*task };
        for _ in 0..count {
            self.enqueue_shared(piece);
        }
        true
    }

    /// All shards of a request have answered: the thread of the last one calls the device, where there
    /// is one, and has no work left when the answer comes. False if there is no call to come.
    fn last_call(&mut self, core: usize, request: u32) -> bool {
        let pieces = self.pieces.get_mut(request);
        if !std::mem::take(&mut pieces.calls) {
            return false;
        }
        pieces.left = 1;
        self.submit(core, request);
        true
    }

    /// The request's work before the call is done: it calls the device.
    fn submit(&mut self, core: usize, request: u32) {
        let now = self.now;
        let Some(device) = &self.setup.device else { return };
        let pieces = self.pieces.get_mut(request);
        let ticket = pieces.ticket;
        // A connection that moved took its requests along.
        pieces.core = core as u16;
        let latency = device.latency.draw(&mut self.chance.device(ticket)).as_nanos().max(1);
        let wait = device.wait;
        pieces.phase += 1;
        match wait {
            Wait::Spin => pieces.done_ns[1] += latency,
            Wait::Block => {
                pieces.device_ns += latency;
                self.blocked += 1;
            }
        }
        let on = device.on.clone();
        self.events.add(now + latency, Later::Device { request });
        if self.quiescing.is_some() {
            self.phase(request, Phase::Blocks);
        }
        if self.pre_wake.is_some() {
            let handler = self.target(&on, ticket, core);
            self.foresee_device(request, core, handler);
        }
        if wait == Wait::Spin {
            // The thread keeps its core: it polls for the answer, and nothing else runs here
            // meanwhile.
            self.cores[core].doing = Doing::Waking;
            self.hardware.spin(core, now);
            self.events.set(core, NEVER);
        }
    }

    pub(super) fn device_done(&mut self, request: u32) {
        let Some(device) = &self.setup.device else { return };
        let (wait, on, cost_ns) = (device.wait, device.on.clone(), device.interrupt.as_nanos());
        let pieces = *self.pieces.get_mut(request);
        match wait {
            Wait::Spin => self.resume(request),
            Wait::Block => {
                self.blocked -= 1;
                let cpu = self.target(&on, pieces.ticket, usize::from(pieces.core));
                self.interrupt(cpu, Interrupt { cost_ns, then: Then::Resume(request) });
            }
        }
        // Only now: a CPU that was kept awake for the answer would else be sent to sleep just
        // before it.
        self.device_answered(request);
    }

    /// The thread that waited for the device goes on, before anything that waits behind it.
    pub(super) fn resume(&mut self, request: u32) {
        if self.quiescing.is_some() {
            self.phase(request, Phase::GoesOn);
        }
        let pieces = *self.pieces.get_mut(request);
        let core = usize::from(pieces.core);
        let task = Task {
            arrived_ns: pieces.arrived_ns,
            compute_ns: pieces.compute_ns,
            memory_ns: pieces.memory_ns,
            request,
            connection: pieces.connection,
            core: pieces.core,
            class: pieces.class,
            ticket: pieces.ticket,
        };
        self.cores[core].queue.push_front(task);
        match self.cores[core].doing {
            Doing::Asleep | Doing::Polling => self.signal_work(core),
            Doing::Waking if self.events.due(core) == NEVER => self.ready(core),
            _ => {}
        }
    }
}
