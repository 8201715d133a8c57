//! Threads of other programs that requests wake, and the one that sends them.
//!
//! A request wakes the thread, which works for a time `w` and sleeps again. A request that comes while
//! it works, or waits for a CPU, begins `w` anew: times that overlap count once. With requests at
//! random and a CPU at once the thread so works for the busy periods of M/D/inf: its share of a CPU is
//! 1 - exp(-rate w), its turns on one rate x exp(-rate w) a second (Takacs, *Introduction to the Theory
//! of Queues*, 1962, chapter 3).
//!
//! The thread that *sends* is a load generator on this very machine. A request that is due waits until
//! the thread is on a CPU, and its response time counts from then. A timer of its own wakes it; the load
//! says when it is up for a request, so the way out of an idle state is over by then.

use super::programs::Piece;
use super::task::Task;
use super::{Engine, Setup};
use std::collections::VecDeque;

/// A thread that each request wakes, and that may send them.
#[derive(Clone, Debug)]
pub(super) struct Follower {
    source: usize,
    work_ns: u64,
    /// Requests that it has still to send; none of a thread that sends nothing.
    held: Option<VecDeque<Task>>,
}

impl Follower {
    pub fn all(setup: &Setup, cpus: usize) -> Vec<Self> {
        let mut source = 0;
        let mut all = Vec::new();
        for noise in &setup.noise {
            if let Some(follows) = noise.follows {
                let work_ns = noise.length.mean().as_nanos();
                all.push(Self { source, work_ns, held: follows.sends.then(VecDeque::new) });
            }
            source += noise.on.sources(cpus);
        }
        all
    }
}

impl super::programs::Programs {
    #[inline]
    pub fn has_followers(&self) -> bool {
        !self.followers.is_empty()
    }

    #[inline]
    pub fn has_sender(&self) -> bool {
        self.has_followers() && self.followers.iter().any(|follower| follower.held.is_some())
    }

    fn held(&self) -> u64 {
        self.followers
            .iter()
            .filter_map(|follower| follower.held.as_ref())
            .map(|held| held.len() as u64)
            .sum()
    }
}

impl Engine {
    /// Requests that are due and not sent yet.
    #[inline]
    pub(super) fn unsent(&self) -> u64 {
        self.clients.unsent() + self.programs.held()
    }

    /// A request wakes the threads that only listen.
    pub(super) fn wake_followers(&mut self) {
        for place in 0..self.programs.followers.len() {
            if self.programs.followers[place].held.is_none() {
                self.wake_follower(place);
            }
        }
    }

    /// A request is due at the thread that sends.
    pub(super) fn hand_to_sender(&mut self, task: Task) {
        let Some(place) = self.programs.followers.iter().position(|one| one.held.is_some()) else { return };
        if let Some(held) = &mut self.programs.followers[place].held {
            held.push_back(task);
        }
        if self.wake_follower(place) {
            self.send_held(self.programs.followers[place].source);
        }
    }

    /// The thread works for its time from now on. True: it is on a CPU already.
    fn wake_follower(&mut self, place: usize) -> bool {
        let Follower { source, work_ns, .. } = self.programs.followers[place];
        let sends = self.programs.followers[place].held.is_some();
        let is_its = |piece: Option<&Piece>| piece.is_some_and(|piece| piece.source() == source);
        if let Some(cpu) = self.cores.iter().position(|core| is_its(core.piece.as_ref())) {
            if let Some(mut piece) = self.stop_piece(cpu) {
                piece.renew(work_ns);
                self.time_piece(cpu, piece, 0);
            }
            return true;
        }
        match self.programs.waiting_of(source) {
            Some(piece) => piece.renew(work_ns),
            None if sends => self.schedule_in_time(source, work_ns),
            None => self.schedule(source, work_ns),
        }
        false
    }

    /// The thread is on a CPU: it sends the requests that it holds.
    pub(super) fn send_held(&mut self, source: usize) {
        let its = |follower: &&mut Follower| follower.source == source;
        let follower = self.programs.followers.iter_mut().find(its);
        let Some(held) = follower.and_then(|follower| follower.held.as_mut()) else { return };
        let held = std::mem::take(held);
        for task in held {
            self.enter(Task { arrived_ns: self.now, ..task });
        }
    }
}
