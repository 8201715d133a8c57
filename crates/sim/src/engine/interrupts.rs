//! Work that preempts requests: interrupts of devices and of the network card, and work of other
//! programs.
//!
//! On a CPU that works on a request they run at once and the request ends that much later. On a CPU
//! that sleeps they cost a wake-up first: an interrupt that lands on a deeply sleeping core delays
//! the request that it announces, although the core that will serve it is awake (the Peafowl paper,
//! section 5 and Figure 11).

use super::setup::{NoiseOn, Target};
use super::task::Task;
use super::{Doing, Engine, Later};

/// Work that goes before requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interrupt {
    /// CPU time at the nominal clock.
    pub cost_ns: u64,
    pub then: Then,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    Nothing,
    Dispatch(Task),
    /// A request of several pieces goes on.
    Resume(u32),
    /// A client on this very machine sends its next request.
    Send {
        client: u32,
    },
}

impl Engine {
    /// An interrupt lands on a CPU.
    pub(super) fn interrupt(&mut self, cpu: usize, interrupt: Interrupt) {
        let now = self.now;
        match self.cores[cpu].doing {
            Doing::Working | Doing::Program => {
                let cost = self.hardware.length_ns(cpu, interrupt.cost_ns, 0);
                self.metrics.interrupted(interrupt.cost_ns);
                let core = &mut self.cores[cpu];
                core.began += cost;
                core.ends += cost;
                let ends = core.ends;
                self.events.set(cpu, ends);
                match interrupt.then {
                    Then::Nothing => {}
                    then => self.events.add(now + cost, Later::Then(then)),
                }
            }
            Doing::Asleep | Doing::Polling => {
                self.cores[cpu].interrupts.push_back(interrupt);
                self.signal_work(cpu);
            }
            Doing::Between | Doing::Waking | Doing::Interrupted | Doing::Napping => {
                self.cores[cpu].interrupts.push_back(interrupt)
            }
        }
    }

    /// An awake CPU begins the next of its interrupts.
    pub(super) fn begin_interrupt(&mut self, cpu: usize) {
        let Some(next) = self.cores[cpu].interrupts.front().copied() else { return };
        let now = self.now;
        if !matches!(self.cores[cpu].doing, Doing::Between | Doing::Interrupted) {
            self.hardware.work(cpu, now);
            self.retime_sibling(cpu);
        }
        self.cores[cpu].doing = Doing::Interrupted;
        let cost = self.hardware.begin_ns(cpu, next.cost_ns, 0, now);
        self.events.set(cpu, now + cost);
        self.clock_siblings(cpu);
    }

    /// The interrupt that the CPU was busy with is over.
    pub(super) fn end_interrupt(&mut self, cpu: usize) {
        if let Some(done) = self.cores[cpu].interrupts.pop_front() {
            self.metrics.interrupted(done.cost_ns);
            self.follow(done.then);
        }
        self.events.clear(cpu);
        self.next_work(cpu);
    }

    /// Carries out the consequence of an interrupt, now.
    pub(super) fn follow(&mut self, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Dispatch(task) => self.dispatch(task),
            Then::Resume(request) => self.resume(request),
            Then::Send { client } => self.send_again(client),
        }
    }

    /// The CPU that an interrupt lands on; `number` is the connection's, or for a device the request's.
    pub(super) fn target(&self, on: &Target, number: u32, same: usize) -> usize {
        let cpu = match on {
            Target::Same => same,
            Target::Cpu(cpu) => usize::from(*cpu).min(self.hardware.cpus() - 1),
            // Multiplied by an odd constant: neighbours are spread.
            Target::Spread => spread(number) % self.hardware.cpus(),
            Target::Active => self.nth_active(spread(number)),
        };
        let is_moved = self.steers && !self.active.contains(cpu);
        if is_moved { self.nth_active(spread(number)) } else { cpu }
    }

    /// A request comes in through the network card.
    pub(super) fn receive(&mut self, task: Task) {
        let Some(nic) = &self.setup.nic else { return };
        let (on, cost_ns) = (nic.on.clone(), nic.receive.as_nanos());
        let same = if on == Target::Same { self.home_core(&task) } else { 0 };
        let cpu = self.target(&on, task.connection, same);
        self.interrupt(cpu, Interrupt { cost_ns, then: Then::Dispatch(task) });
    }

    /// A reply was sent: the card says so later, and no request waits for it.
    pub(super) fn transmit(&mut self, cpu: usize, task: &Task) {
        let Some(nic) = &self.setup.nic else { return };
        let (on, cost_ns) = (nic.on.clone(), nic.transmit.as_nanos());
        if cost_ns > 0 {
            let cpu = self.target(&on, task.connection, cpu);
            self.interrupt(cpu, Interrupt { cost_ns, then: Then::Nothing });
        }
    }

    /// Sources of noise are numbered: those of the machine one each, those of every CPU one per CPU.
    pub(super) fn begin_noise(&mut self) {
        let cpus = self.hardware.cpus();
        let mut source = 0;
        for noise in &self.setup.noise {
            if noise.follows.is_some() {
                source += 1;
                continue;
            }
            for _ in 0..noise.on.sources(cpus) {
                let gap = noise.every.as_nanos() as f64 * self.chance.noise(source).exponential();
                self.events.add(gap as u64, Later::Noise { source });
                source += 1;
            }
        }
    }

    /// A noise source strikes, and will again.
    pub(super) fn strike(&mut self, source: usize) {
        let (index, place) = self.noise_of(source);
        let noise = &self.setup.noise[index];
        let chance = self.chance.noise(source);
        let cost_ns = noise.length.draw(chance).as_nanos();
        if noise.on == NoiseOn::Scheduled {
            return self.schedule(source, cost_ns);
        }
        let gap = noise.every.as_nanos() as f64 * chance.exponential();
        let cpu = match noise.on {
            NoiseOn::Each => place,
            NoiseOn::Any | NoiseOn::Scheduled => {
                let place = chance.below(self.active_count as u64) as usize;
                self.active.nth(place).unwrap_or(0)
            }
        };
        let deferrable = noise.deferrable;
        self.events.add(self.now + (gap as u64).max(1), Later::Noise { source });
        let interrupt = Interrupt { cost_ns, then: Then::Nothing };
        if !deferrable || !self.hold_back(cpu, interrupt) {
            self.interrupt(cpu, interrupt);
        }
    }
}

fn spread(number: u32) -> usize {
    (number.wrapping_mul(0x9e37_79b1) >> 16) as usize
}
