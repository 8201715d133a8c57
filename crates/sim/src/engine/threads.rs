//! A service of a few threads, each with connections of its own, on the cores that may serve.
//!
//! - *thread*: serves the requests of its connections one after another, on one core at a time.
//! - *turn*: a thread on a core, from its wake-up until none of its requests waits. It costs CPU time
//!   `before` the first request (switching to the thread, the return from epoll) and `after` the last.
//!
//! A core that has served a request takes the same thread's next one, else the thread whose request
//! has waited longest. Of threads that wait for a core none is passed over for longer than a time
//! slice: then the turn is broken off, and goes on behind them. A thread is woken by a request only if
//! it sleeps; requests that come during its turn cost no wake-up. So CPU time by request falls as the
//! load grows.

use super::programs::slice_ns;
use super::task::Task;
use super::{Engine, Interrupt, Then};

#[derive(Clone, Debug)]
pub(super) struct Threads {
    before_ns: u64,
    after_ns: u64,
    slice_ns: u64,
    /// By thread: requests that wait, and whether it has a core.
    queued: Vec<u32>,
    is_running: Vec<bool>,
    /// By core: the thread that is on it, and when its turn, or this part of it, began.
    on: Vec<Option<(usize, u64)>>,
}

impl Threads {
    pub fn new(setup: &super::Setup) -> Option<Box<Self>> {
        let threads = setup.threads.as_ref()?;
        let (count, cpus) = (usize::from(threads.count), setup.platform.cpus());
        Some(Box::new(Self {
            before_ns: threads.before.as_nanos(),
            after_ns: threads.after.as_nanos(),
            slice_ns: slice_ns(cpus),
            queued: vec![0; count],
            is_running: vec![false; count],
            on: vec![None; cpus],
        }))
    }

    fn of(&self, task: &Task) -> usize {
        task.connection as usize % self.queued.len()
    }

    fn is_ready(&self, thread: usize) -> bool {
        self.queued[thread] > 0 && !self.is_running[thread]
    }
}

impl Engine {
    /// Counts a request that joins the queue. True: its thread sleeps, and has to be woken.
    pub(super) fn wakes_thread(&mut self, task: &Task) -> bool {
        let Some(threads) = &mut self.threads else { return true };
        let thread = threads.of(task);
        threads.queued[thread] += 1;
        threads.queued[thread] == 1 && !threads.is_running[thread]
    }

    /// The core's thread gives it up if it has nothing to do, or may not run here any longer. True:
    /// the end of its turn takes the CPU.
    pub(super) fn ends_turn(&mut self, core: usize) -> bool {
        let is_active = self.active.contains(core);
        let Some(threads) = &mut self.threads else { return false };
        let Some((thread, _)) = threads.on[core] else { return false };
        let waits = threads.queued[thread] > 0;
        if waits && is_active {
            return false;
        }
        threads.on[core] = None;
        threads.is_running[thread] = false;
        if waits {
            if let Some(idle) = self.pick_idle() {
                self.signal_work(idle);
            }
            return false;
        }
        let cost_ns = threads.after_ns;
        if cost_ns > 0 {
            self.cores[core].interrupts.push_back(Interrupt { cost_ns, then: Then::Nothing });
        }
        cost_ns > 0
    }

    /// The next request for this core out of the shared queue.
    pub(super) fn take_for_thread(&mut self, core: usize) -> Option<Task> {
        let now = self.now;
        let threads = self.threads.as_mut()?;
        let mine = threads.on[core];
        let is_other_ready = (0..threads.queued.len()).any(|thread| threads.is_ready(thread));
        if let Some((thread, began)) = mine {
            if now - began < threads.slice_ns || !is_other_ready {
                let place = self.shared.iter().position(|task| threads.of(task) == thread)?;
                threads.queued[thread] -= 1;
                return self.shared.remove(place);
            }
            threads.is_running[thread] = false;
            threads.on[core] = None;
        }
        if !is_other_ready {
            return None;
        }
        let ready = |task: &Task| {
            let thread = threads.of(task);
            !threads.is_running[thread] && mine.is_none_or(|(last, _)| last != thread)
        };
        let place = self.shared.iter().position(ready)?;
        let mut task = self.shared.remove(place)?;
        let thread = threads.of(&task);
        threads.queued[thread] -= 1;
        threads.is_running[thread] = true;
        threads.on[core] = Some((thread, now));
        task.compute_ns += threads.before_ns;
        Some(task)
    }
}
