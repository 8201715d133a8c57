//! The clients of a closed loop: each sends again after a pause.

use super::event_queue::NEVER;
use super::task::Task;
use super::{Engine, Interrupt, Later, Then};

impl Engine {
    /// A client of the closed loop has its answer, or begins: it sends again after a pause.
    pub(super) fn think(&mut self, client: u32) {
        let Some(closed) = &self.setup.closed else { return };
        let pause = closed.think.draw(&mut self.chance).as_nanos();
        let at = self.now + pause;
        if closed.timer {
            let cpu = self.nth_active(client as usize);
            self.cores[cpu].timer_ns = self.cores[cpu].timer_ns.min(at);
        }
        self.events.add(at, Later::Client { client });
    }

    pub(super) fn client_timer(&mut self, client: u32) {
        let Some(closed) = &self.setup.closed else { return };
        if !closed.timer {
            return self.send_again(client);
        }
        // Its CPU wakes for the timer first, if it sleeps.
        let cpu = self.nth_active(client as usize);
        self.cores[cpu].timer_ns = NEVER;
        self.interrupt(cpu, Interrupt { cost_ns: 0, then: Then::Send { client } });
    }

    /// A client of the closed loop sends again.
    pub(super) fn send_again(&mut self, client: u32) {
        if self.fetched < self.setup.requests
            && let Some(job) = self.jobs.next()
        {
            self.fetched += 1;
            self.enter(Task { connection: client, arrived_ns: self.now, ..Task::of(&job) });
        }
    }
}
