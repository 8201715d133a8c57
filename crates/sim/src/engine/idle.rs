//! Idle entry and exit.
//!
//! A CPU without work asks its governor, which sees the same as Linux's: when the CPU's next timer
//! is, when the tick, which exit latency is tolerated. The CPU has a timer of its own: without any,
//! menu would believe that every sleep is to last for ever. Requests from the network are no timers
//! and come unforeseen. The *clairvoyant* policies see the true next event of the CPU; they need to
//! know which core a request will go to before it comes, so requests are drawn ahead and their core
//! with them, and only a dispatch that does not depend on the queues allows that.

use super::event_queue::NEVER;
use super::known::Idle;
use super::{Doing, Engine, MAX_STATES};
use crate::policies::Clairvoyance;
use machine::{CstateIndex, Duration, Instant};
use policy::kind::idle::{IdleEntry, IdleTable, Sleep, WakeCause, Woken};

pub(super) struct Sleepers {
    pub table: IdleTable,
    /// Some policies settle the states themselves: of active and of parked CPUs.
    pub settled: Option<(u8, u8)>,
    kind: Kind,
    tick: Periodic,
    timer: Periodic,
    tick_cost_ns: u64,
    true_exit_ns: Vec<u64>,
    /// Time and energy by state, for the clairvoyant that minds energy: watts.
    watts: Vec<f64>,
    wake_joules: Vec<f64>,
}

/// Something that comes at every multiple of its period.
struct Periodic {
    period_ns: u64,
    next_ns: u64,
}

impl Periodic {
    fn new(period_ns: u64) -> Self {
        Self { period_ns, next_ns: period_ns }
    }

    /// When it comes next. Divides only when one has passed: this is asked at every idle entry.
    #[inline]
    fn next_after(&mut self, now: u64) -> u64 {
        if now >= self.next_ns {
            self.next_ns = (now / self.period_ns + 1) * self.period_ns;
        }
        self.next_ns
    }
}

enum Kind {
    Governors(Vec<Idle>),
    Clairvoyant(Clairvoyance),
}

impl Sleepers {
    pub fn new(setup: &super::Setup) -> Self {
        let platform = &setup.platform;
        let table = IdleTable::new(&platform.cstates);
        let kind = match setup.policies.clairvoyance() {
            Some(which) => Kind::Clairvoyant(which),
            None => {
                let governors = setup.policies.idle(setup, &table, platform.cpus());
                Kind::Governors(governors.into_iter().map(Idle::from).collect())
            }
        };
        let states = &platform.cstates.0;
        Self {
            table,
            settled: None,
            kind,
            tick: Periodic::new(setup.tick.map_or(NEVER, |tick| tick.as_nanos().max(1))),
            timer: Periodic::new(setup.timer.as_nanos()),
            tick_cost_ns: setup.tick_cost.as_nanos(),
            true_exit_ns: states.iter().map(|state| state.real_exit_latency().as_nanos()).collect(),
            watts: states.iter().map(|state| state.power.map_or(0.0, |power| power.as_watts())).collect(),
            wake_joules: platform.wake_joules(),
        }
    }

    pub fn deepest(&self) -> u8 {
        (self.table.len() - 1) as u8
    }

    /// The deepest state that a CPU may enter.
    pub fn deepest_of(&self, is_active: bool) -> u8 {
        let settled = self.settled.map(|(active, parked)| if is_active { active } else { parked });
        settled.unwrap_or(self.deepest())
    }

    /// A settled state is an idle limit, so a sleep that the CPU's own timer will end is no deeper than
    /// pays until then; `None`: none pays.
    fn settled_until(&self, timer: Duration, is_active: bool) -> Option<u8> {
        let settled = usize::from(self.deepest_of(is_active));
        let state = (0..=settled).rev().find(|&state| self.table.target_residency(state) <= timer)?;
        Some(state as u8)
    }

    /// Its true exit latency and its target residency.
    pub fn costs_of(&self, state: u8) -> (u64, Duration) {
        let state = usize::from(state);
        (self.true_exit_ns[state], self.table.target_residency(state))
    }
}

impl Engine {
    #[inline]
    pub(super) fn go_idle(&mut self, cpu: usize) {
        let now = self.now;
        self.metrics.active(now - self.cores[cpu].idle_since);
        self.cores[cpu].idle_since = now;
        if self.cores[cpu].awake_until > now {
            return self.spin(cpu, self.cores[cpu].awake_until);
        }
        if self.dvfs.watches_work() {
            self.clock_idle(cpu);
        }
        if self.wake_delay.is_on() {
            self.delay_idle(cpu);
            return self.fall_asleep(cpu, self.sleepers.deepest(), NEVER);
        }
        let own = self.cores[cpu].timer_ns.saturating_sub(now);
        if self.sleepers.settled.is_some() {
            return match self.sleepers.settled_until(Duration::from_nanos(own), self.active.contains(cpu)) {
                Some(state) => self.fall_asleep(cpu, state, NEVER),
                None => self.spin(cpu, NEVER),
            };
        }
        let limit_ns = self.cores[cpu].limit_ns;
        let next_tick = self.sleepers.tick.next_after(now) - now;
        let next_timer = (self.sleepers.timer.next_after(now) - now).min(own);
        match &mut self.sleepers.kind {
            Kind::Governors(governors) => {
                let entry = IdleEntry {
                    now: Instant::from_nanos(now),
                    next_timer: Duration::from_nanos(next_timer),
                    next_tick: Duration::from_nanos(next_tick),
                    limit: Duration::from_nanos(limit_ns),
                };
                match governors[cpu].select(&self.sleepers.table, &entry) {
                    Sleep::Poll => {
                        if let Some(fault) = governors[cpu].fault() {
                            self.core_policy.fault.get_or_insert_with(|| fault.to_owned());
                        }
                        self.spin(cpu, NEVER);
                    }
                    Sleep::State { index, keep_tick } => {
                        let keeps = keep_tick && self.sleepers.tick.period_ns < NEVER;
                        self.cores[cpu].tick_kept = keeps;
                        self.fall_asleep(cpu, index.0, now + if keeps { next_tick } else { next_timer });
                    }
                }
            }
            Kind::Clairvoyant(which) => {
                let which = *which;
                let next = self.next_event(cpu);
                let length = next.saturating_sub(now);
                let state = self.foresee(which, length, limit_ns);
                let until = match which {
                    Clairvoyance::Prewake if next < NEVER => {
                        let exit = self.sleepers.true_exit_ns[usize::from(state)];
                        next.saturating_sub(exit).max(now)
                    }
                    _ => NEVER,
                };
                if which == Clairvoyance::Prewake && next < NEVER {
                    // Awake from then until the event comes.
                    self.cores[cpu].awake_until = next;
                }
                self.fall_asleep(cpu, state, until);
            }
        }
    }

    /// The state for a sleep whose length is known.
    fn foresee(&self, which: Clairvoyance, length_ns: u64, limit_ns: u64) -> u8 {
        let table = &self.sleepers.table;
        let limit = Duration::from_nanos(limit_ns);
        if which != Clairvoyance::LeastEnergy {
            return table.deepest_for(Duration::from_nanos(length_ns), limit) as u8;
        }
        // Of the sleep, and of the wake-up that follows it.
        let energy = |state: usize| {
            self.sleepers.watts[state] * length_ns as f64 * 1e-9 + self.sleepers.wake_joules[state]
        };
        let within = |&state: &usize| state == 0 || table.exit_latency(state) <= limit;
        let states = (0..table.len()).filter(within);
        states.min_by(|&one, &other| energy(one).total_cmp(&energy(other))).unwrap_or(0) as u8
    }

    /// Polls until `until`, or until something comes.
    pub(super) fn spin(&mut self, cpu: usize, until: u64) {
        self.cores[cpu].doing = Doing::Polling;
        self.idle.insert(0, cpu);
        self.hardware.poll(cpu, self.now);
        self.retime_sibling(cpu);
        self.clock_siblings(cpu);
        self.events.set(cpu, until);
    }

    /// Sleeps in `state`; a timer ends that at `until`.
    #[inline]
    pub(super) fn fall_asleep(&mut self, cpu: usize, state: u8, until: u64) {
        let core = &mut self.cores[cpu];
        core.doing = Doing::Asleep;
        core.state = state;
        self.idle.insert(usize::from(state) + 1, cpu);
        self.hardware.sleep(cpu, state, self.now);
        self.retime_sibling(cpu);
        self.clock_siblings(cpu);
        self.events.set(cpu, until);
    }

    /// A request, or an interrupt, wants the CPU.
    #[inline]
    pub(super) fn signal_work(&mut self, cpu: usize) {
        self.signal(cpu, WakeCause::Interrupt);
    }

    /// A timer has woken the CPU, just in time for now.
    pub(super) fn signal_in_time(&mut self, cpu: usize) {
        self.wake_up(cpu, WakeCause::Timer, true);
    }

    #[inline]
    pub(super) fn signal(&mut self, cpu: usize, by: WakeCause) {
        self.wake_up(cpu, by, false);
    }

    #[inline]
    fn wake_up(&mut self, cpu: usize, by: WakeCause, is_in_time: bool) {
        let now = self.now;
        let core = &self.cores[cpu];
        let (length, state) = (now - core.idle_since, core.state);
        match core.doing {
            Doing::Polling => {
                self.idle.remove(0, cpu);
                self.metrics.idle(length);
                if self.chronicle.is_some() {
                    self.tell_of_sleep(cpu, now - length, None, 0);
                }
                let core = &mut self.cores[cpu];
                core.doing = Doing::Waking;
                core.idle_since = now;
                return self.ready(cpu);
            }
            Doing::Asleep => {}
            _ => return,
        }
        self.idle.remove(usize::from(state) + 1, cpu);
        if self.wake_delay.is_on() {
            self.delay_waking(cpu);
        }
        let core = &mut self.cores[cpu];
        core.doing = Doing::Waking;
        core.idle_since = now;
        let mut exit = 0;
        if is_in_time {
            self.hardware.wake_in_time(cpu, now);
        } else {
            exit = self.hardware.wake(cpu, now);
        }
        if self.setup.waking_spread > 0.0 && !is_in_time {
            let factor = (self.setup.waking_spread * self.chance.waking.normal()).exp();
            exit = (exit as f64 * factor).round() as u64;
        }
        self.metrics.idle(length);
        self.metrics.slept(state, length, &self.sleepers.table);
        if self.chronicle.is_some() {
            self.tell_of_sleep(cpu, now - length, Some(state), exit);
        }
        if let Kind::Governors(governors) = &mut self.sleepers.kind {
            let woken =
                Woken { selected: CstateIndex(state), residency: Duration::from_nanos(length + exit), by };
            governors[cpu].reflect(&self.sleepers.table, &woken);
        }
        self.retime_sibling(cpu);
        if exit == 0 {
            self.ready(cpu);
        } else {
            self.events.set(cpu, now + exit);
        }
    }

    /// The wake-up is over.
    #[inline]
    pub(super) fn ready(&mut self, cpu: usize) {
        if self.comes_from_nap(cpu) {
            return self.nap_ended(cpu);
        }
        if self.wake_delay.is_on() {
            self.delay_awake(cpu);
        }
        self.next_work(cpu);
    }

    /// A timer of an idle CPU: a tick, a planned wake-up, the end of a time that it was kept awake
    /// for.
    pub(super) fn idle_timer(&mut self, cpu: usize) {
        let now = self.now;
        self.events.clear(cpu);
        if self.cores[cpu].doing == Doing::Polling {
            // Nothing wants it awake any longer.
            self.idle.remove(0, cpu);
            self.metrics.idle(now - self.cores[cpu].idle_since);
            if self.chronicle.is_some() {
                self.tell_of_sleep(cpu, self.cores[cpu].idle_since, None, 0);
            }
            self.cores[cpu].idle_since = now;
            return self.next_work(cpu);
        }
        let planned = self.wake_delay.is_on() || self.cores[cpu].awake_until > now;
        let cost = self.sleepers.tick_cost_ns;
        if !planned && cost > 0 {
            self.cores[cpu]
                .interrupts
                .push_back(super::Interrupt { cost_ns: cost, then: super::Then::Nothing });
        }
        let by_tick = !planned && self.cores[cpu].tick_kept;
        self.signal(cpu, if by_tick { WakeCause::Tick } else { WakeCause::Timer });
    }

    /// The other thread of the CPU's core runs faster or slower after this one began or ended
    /// something.
    #[inline]
    pub(super) fn retime_sibling(&mut self, cpu: usize) {
        if let Some(sibling) = self.hardware.sibling(cpu) {
            self.retime(sibling, 0);
        }
    }

    /// The states of active and of parked CPUs are these from now on; those that sleep in another
    /// select anew.
    pub(super) fn settle_sleep(&mut self, active: u8, parked: u8) {
        self.sleepers.settled = Some((active, parked));
        for cpu in 0..self.hardware.cpus() {
            let wanted = if self.active.contains(cpu) { active } else { parked };
            let core = &self.cores[cpu];
            if core.doing == Doing::Asleep && core.state != wanted {
                // As Linux does by an IPI.
                self.signal_work(cpu);
            }
        }
    }

    /// Sets how deep the CPU may sleep; a sleep too deep, or polling that need be no longer, is ended
    /// so that it takes effect.
    pub(super) fn limit_idle(&mut self, cpu: usize, limit_ns: u64) {
        let tightened = limit_ns < self.cores[cpu].limit_ns;
        self.cores[cpu].limit_ns = limit_ns;
        let core = &self.cores[cpu];
        if core.doing == Doing::Polling && !tightened && core.awake_until <= self.now {
            return self.signal_work(cpu);
        }
        if core.doing != Doing::Asleep {
            return;
        }
        let state = usize::from(core.state);
        let too_deep = tightened && self.sleepers.table.exit_latency(state).as_nanos() > limit_ns;
        let too_shallow = !tightened && state + 1 < self.sleepers.table.len();
        if too_deep || too_shallow {
            // As Linux does by an IPI: the CPU selects anew.
            self.signal_work(cpu);
        }
    }
}

const _: () = assert!(MAX_STATES < 256);
