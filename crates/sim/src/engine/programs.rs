//! Threads of other programs on the CPUs of the service, as a fair scheduler places them.
//!
//! A thread works for a *piece*, then sleeps, and works again. Its piece begins where the last one
//! ended, if that CPU is idle, else on another idle one; while none is, it waits. The scheduler lets it
//! run for a *slice* at least, whatever waits ([`slice_ns`]). A request therefore takes a CPU without a
//! piece, or waits for one; at the end of a slice it goes before the piece, since a thread that sleeps
//! most of the time is owed time by one that does not (EEVDF: Stoica and Abdel-Wahab, 1995). A service
//! that keeps all CPUs busy starves the pieces here, where the kernel would share. Threads that
//! requests wake are in `followers`.

use super::cpu_set::CpuSet;
use super::followers::Follower;
use super::setup::{NoiseOn, Setup};
use super::{Doing, Engine, Later};
use std::collections::VecDeque;

/// The work of a thread from one sleep to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    source: usize,
    /// CPU time at the nominal clock.
    left_ns: u64,
    /// The rest of it, after this slice.
    later_ns: u64,
    /// The rest of the slice, after the piece.
    spare_ns: u64,
}

/// The least that a thread may run before another takes its place: 0.7 ms, and as much again for each
/// doubling of the CPUs, up to eight (`sysctl_sched_base_slice`, `kernel/sched/fair.c`, Linux 6.18).
pub(super) fn slice_ns(cpus: usize) -> u64 {
    700_000 * u64::from(1 + cpus.clamp(1, 8).ilog2())
}

#[derive(Clone, Debug)]
pub(super) struct Programs {
    /// For any CPU.
    waiting: VecDeque<Piece>,
    /// For the CPU that was woken for each, with its number.
    queued: VecDeque<(usize, Piece)>,
    /// Where each source's last piece ended.
    last: Vec<usize>,
    pub(super) followers: Vec<Follower>,
}

impl Piece {
    /// A slice that has room takes of the piece's rest.
    fn fill(&mut self) {
        let more = self.spare_ns.min(self.later_ns);
        self.left_ns += more;
        self.later_ns -= more;
        self.spare_ns -= more;
    }

    /// It has so much work left from now on.
    pub(super) fn renew(&mut self, work_ns: u64) {
        self.later_ns = work_ns.saturating_sub(self.left_ns);
        self.fill();
    }

    pub(super) fn source(&self) -> usize {
        self.source
    }
}

impl Programs {
    pub fn new(setup: &Setup, cpus: usize) -> Self {
        let sources = setup.noise.iter().map(|noise| noise.on.sources(cpus)).sum();
        Self {
            waiting: VecDeque::new(),
            queued: VecDeque::new(),
            last: vec![cpus - 1; sources],
            followers: Follower::all(setup, cpus),
        }
    }

    /// The piece of this source that waits for a CPU.
    pub(super) fn waiting_of(&mut self, source: usize) -> Option<&mut Piece> {
        let queued = self.queued.iter_mut().map(|(_, piece)| piece);
        self.waiting.iter_mut().chain(queued).find(|piece| piece.source == source)
    }
}

impl Engine {
    /// A piece comes: to an idle CPU, if there is one.
    pub(super) fn schedule(&mut self, source: usize, length_ns: u64) {
        let piece = Piece { source, left_ns: 0, later_ns: length_ns, spare_ns: 0 };
        match self.idle_for(source) {
            Some(cpu) => self.queue_piece(cpu, piece),
            None => self.programs.waiting.push_back(piece),
        }
    }

    /// The same of a thread whose own timer wakes its CPU in time.
    pub(super) fn schedule_in_time(&mut self, source: usize, length_ns: u64) {
        let piece = Piece { source, left_ns: 0, later_ns: length_ns, spare_ns: 0 };
        match self.idle_for(source) {
            Some(cpu) => {
                self.programs.queued.push_back((cpu, piece));
                self.signal_in_time(cpu);
            }
            None => self.programs.waiting.push_back(piece),
        }
    }

    /// An idle CPU for a source's piece: the one where its last ended, or another.
    // A parked CPU is as good: it is the service that may not run there.
    fn idle_for(&self, source: usize) -> Option<usize> {
        let last = self.programs.last[source];
        if self.idle.contains(last) { Some(last) } else { self.idle.iter().find_map(CpuSet::first) }
    }

    fn queue_piece(&mut self, cpu: usize, piece: Piece) {
        self.programs.queued.push_back((cpu, piece));
        self.signal_work(cpu);
    }

    /// An awake CPU without requests begins a piece: its own, or one that waits for any CPU, or for
    /// one that is busy. False: there is none.
    #[inline]
    pub(super) fn begin_piece(&mut self, cpu: usize) -> bool {
        if self.programs.waiting.is_empty() && self.programs.queued.is_empty() {
            return false;
        }
        let Some(piece) = self.next_piece(cpu) else { return false };
        let now = self.now;
        let was = std::mem::replace(&mut self.cores[cpu].doing, Doing::Program);
        if !matches!(was, Doing::Between | Doing::Interrupted) {
            self.hardware.work(cpu, now);
            self.retime_sibling(cpu);
        }
        self.begin_slice(cpu, piece);
        self.clock_siblings(cpu);
        self.send_held(piece.source);
        true
    }

    fn next_piece(&mut self, cpu: usize) -> Option<Piece> {
        let of = |programs: &mut Programs, place: usize| Some(programs.queued.remove(place)?.1);
        if let Some(place) = self.programs.queued.iter().position(|queued| queued.0 == cpu) {
            return of(&mut self.programs, place);
        }
        if let Some(piece) = self.programs.waiting.pop_front() {
            return Some(piece);
        }
        let is_busy =
            |queued: &(usize, Piece)| matches!(self.cores[queued.0].doing, Doing::Working | Doing::Program);
        let place = self.programs.queued.iter().position(is_busy)?;
        of(&mut self.programs, place)
    }

    fn begin_slice(&mut self, cpu: usize, mut piece: Piece) {
        piece.later_ns += piece.left_ns;
        piece.left_ns = 0;
        piece.spare_ns = slice_ns(self.hardware.cpus());
        piece.fill();
        self.time_piece(cpu, piece, 0);
    }

    pub(super) fn time_piece(&mut self, cpu: usize, piece: Piece, stall_ns: u64) {
        let length = self.hardware.begin_ns(cpu, piece.left_ns, 0, self.now);
        let core = &mut self.cores[cpu];
        core.piece = Some(piece);
        core.began = self.now + stall_ns;
        core.ends = core.began + length;
        let ends = core.ends;
        self.events.set(cpu, ends);
    }

    /// The CPU's clock has changed, or its sibling's work: the rest takes another time.
    pub(super) fn retime_piece(&mut self, cpu: usize, stall_ns: u64) {
        if let Some(piece) = self.stop_piece(cpu) {
            self.time_piece(cpu, piece, stall_ns);
        }
    }

    /// Takes the piece off its CPU; what was done is counted.
    pub(super) fn stop_piece(&mut self, cpu: usize) -> Option<Piece> {
        let core = &mut self.cores[cpu];
        let mut piece = core.piece.take()?;
        let planned = core.ends.saturating_sub(core.began);
        let ahead = core.ends.saturating_sub(self.now.max(core.began));
        let left = if planned > 0 { ahead as f64 / planned as f64 } else { 0.0 };
        let left_ns = (piece.left_ns as f64 * left).round() as u64;
        self.metrics.interrupted(piece.left_ns - left_ns);
        piece.left_ns = left_ns;
        Some(piece)
    }

    /// A slice is over, and perhaps the piece: then the thread sleeps until its next one.
    pub(super) fn end_slice(&mut self, cpu: usize) {
        let Some(piece) = self.stop_piece(cpu) else { return };
        let core = &self.cores[cpu];
        let wanted = !core.queue.is_empty() || !core.interrupts.is_empty();
        let wanted = wanted || (!self.shared.is_empty() && self.active.contains(cpu));
        let is_over = piece.left_ns + piece.later_ns == 0;
        if !is_over && !wanted {
            return self.begin_slice(cpu, piece);
        }
        if is_over {
            let noise = &self.setup.noise[self.noise_of(piece.source).0];
            if noise.follows.is_none() {
                let gap = noise.every.as_nanos() as f64 * self.chance.noise(piece.source).exponential();
                self.events.add(self.now + (gap as u64).max(1), Later::Noise { source: piece.source });
            }
            self.programs.last[piece.source] = cpu;
        } else {
            let idle = self.idle.iter().find_map(CpuSet::first);
            match idle {
                Some(idle) => self.queue_piece(idle, piece),
                None => self.programs.waiting.push_front(piece),
            }
        }
        self.cores[cpu].doing = Doing::Between;
        self.events.clear(cpu);
        self.next_work(cpu);
    }

    /// Takes the piece off a CPU that is stopped in the middle of it.
    pub(super) fn suspend_piece(&mut self, cpu: usize) {
        if let Some(piece) = self.stop_piece(cpu) {
            self.programs.waiting.push_front(piece);
        }
    }

    /// The number of a source's table, and its place among the sources of that table.
    pub(super) fn noise_of(&self, source: usize) -> (usize, usize) {
        let cpus = self.hardware.cpus();
        let (mut index, mut place) = (0, source);
        while place >= self.setup.noise[index].on.sources(cpus) {
            place -= self.setup.noise[index].on.sources(cpus);
            index += 1;
        }
        (index, place)
    }
}

impl NoiseOn {
    /// How many sources of it the machine has.
    pub(super) fn sources(self, cpus: usize) -> usize {
        match self {
            Self::Each => cpus,
            Self::Any | Self::Scheduled => 1,
        }
    }
}
