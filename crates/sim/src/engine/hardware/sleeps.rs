//! Falling asleep and waking up.

use super::Hardware;

impl Hardware {
    #[inline]
    pub fn sleep(&mut self, cpu: usize, state: u8, now: u64) {
        self.transitions += 1;
        self.slept_at[cpu] = now;
        self.set_mode(cpu, self.modes.asleep(state), now);
    }

    /// The CPU is signalled in its sleep: how long until it executes.
    #[inline]
    pub fn wake(&mut self, cpu: usize, now: u64) -> u64 {
        let Some(state) = self.modes.state(self.threads.mode(cpu)) else { return 0 };
        let mut exit = self.exit_ns[usize::from(state)];
        if self.has_entry {
            exit += self.end_entry(cpu, state, now);
        }
        if self.package_from.is_some() && self.sockets[self.socket(cpu)].awake == 0 {
            exit += self.package_exit_ns;
        }
        let is_core_asleep = self.modes.state(self.core_mode(cpu)).is_some();
        if self.exit_ns[usize::from(state)] == 0 && is_core_asleep {
            let socket = self.socket(cpu);
            self.extra_joules[socket] += self.wake_joules[usize::from(state)];
        }
        self.set_mode(cpu, self.modes.waking(state, self.point[cpu]), now);
        exit
    }

    /// The same of a CPU that a timer called in time, and that executes now: so much of its sleep as the
    /// exit takes was the exit.
    pub fn wake_in_time(&mut self, cpu: usize, now: u64) {
        let point = self.point[cpu];
        let time = |state: u8, since: u64| {
            let state = usize::from(state);
            self.exit_ns[state].min((now - since).saturating_sub(self.entry_ns[state]))
        };
        if let Some(state) = self.modes.state(self.threads.mode(cpu)) {
            let time = time(state, self.threads.since(cpu));
            self.threads.rebook(cpu, self.modes.waking(state, point), time);
        }
        let core = cpu % self.socket_of_core.len();
        if let Some(physical) = &mut self.physical
            && let Some(state) = self.modes.state(physical.mode(core))
        {
            let time = time(state, physical.since(core));
            physical.rebook(core, self.modes.waking(state, point), time);
        }
        self.wake(cpu, now);
    }

    /// Books the entry into the present sleep as time awake. The time until it is over: it cannot
    /// be cut short.
    fn end_entry(&mut self, cpu: usize, state: u8, now: u64) -> u64 {
        let point = self.point[cpu];
        let (entry, slept) = (self.entry_ns[usize::from(state)], now - self.slept_at[cpu]);
        self.threads.rebook(cpu, self.modes.entering(state, point), entry.min(slept));
        let left = entry.saturating_sub(slept);
        let core = cpu % self.socket_of_core.len();
        let Some(physical) = &mut self.physical else { return left };
        // A core enters the shallower of its threads' states when the last of them sleeps.
        let Some(state) = self.modes.state(physical.mode(core)) else { return left };
        let (entry, slept) = (self.entry_ns[usize::from(state)], now - physical.since(core));
        physical.rebook(core, self.modes.entering(state, point), entry.min(slept));
        left.max(entry.saturating_sub(slept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{Platform, Waking};

    const CORE: usize = 0;

    /// One core of the machine, with so many threads.
    fn one_core(platform: &Platform, threads: u16) -> Platform {
        let mut platform = platform.clone();
        (platform.sockets, platform.cores_per_socket, platform.threads_per_core) = (1, 1, threads);
        platform
    }

    /// Joules of one sleep from entry to the first instruction, all threads in the same state.
    fn joules_of_sleep(platform: &Platform, state: u8, length_ns: u64) -> f64 {
        let mut hardware = Hardware::new(platform);
        let cpus = hardware.cpus();
        (0..cpus).for_each(|cpu| hardware.work(cpu, 0));
        (0..cpus).for_each(|cpu| hardware.sleep(cpu, state, 0));
        let exit = hardware.wake(CORE, length_ns);
        hardware.work(CORE, length_ns + exit);
        hardware.core_joules(length_ns + exit)
    }

    fn joules_of_polling(platform: &Platform, length_ns: u64) -> f64 {
        let mut hardware = Hardware::new(platform);
        hardware.poll(CORE, 0);
        hardware.core_joules(length_ns)
    }

    #[test]
    fn every_state_of_every_preset_breaks_even_at_its_target_residency() {
        for preset in Platform::presets().iter().filter(|preset| preset.waking == Waking::BreakEven) {
            for threads in [1, 2] {
                let platform = one_core(preset, threads);
                for (state, row) in platform.cstates.0.iter().enumerate() {
                    let residency_ns = row.target_residency.as_nanos();
                    let here = joules_of_sleep(&platform, state as u8, residency_ns);
                    let shallower = match state.checked_sub(1) {
                        Some(above) => joules_of_sleep(&platform, above as u8, residency_ns),
                        None => joules_of_polling(&platform, residency_ns),
                    };
                    let name = (&platform.name, &row.name, threads);
                    assert!((here / shallower - 1.0).abs() < 1e-9, "{name:?}: {here} J, {shallower} J");
                }
            }
        }
    }

    #[test]
    fn polling_draws_its_share_of_the_power_of_work_in_every_point() {
        let mut platform = one_core(&Platform::by_name("xeon-gold-6126").expect("a preset"), 1);
        assert_eq!(platform.poll_share, 0.57);
        platform.frequencies.delay = machine::Duration::ZERO;
        for point in [0, platform.frequencies.points.len() as u8 - 1] {
            let mut hardware = Hardware::new(&platform);
            if let Some((at, domain)) = hardware.wish(CORE, point, 0) {
                hardware.take_effect(domain, at);
            }
            hardware.poll(CORE, 0);
            hardware.spin(CORE, 1_000_000_000);
            let watts = platform.frequencies.points[usize::from(point)].power.as_watts();
            assert!((hardware.core_joules(2_000_000_000) / (2.0 * 0.57 * watts) - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn a_clock_that_changes_while_its_core_polls_costs_the_mean_of_both_levels() {
        let mut platform = one_core(&Platform::by_name("xeon-gold-6126").expect("a preset"), 1);
        platform.frequencies.delay = machine::Duration::from_micros(100);
        let mut hardware = Hardware::new(&platform);
        hardware.poll(CORE, 0);
        let (at, domain) = hardware.wish(CORE, 0, 0).expect("a change");
        hardware.take_effect(domain, at);
        let points = &platform.frequencies.points;
        let ends = points[0].power.as_watts() + points[points.len() - 1].power.as_watts();
        let found = hardware.core_joules(at) / (at as f64 * 1e-9);
        assert!((found - 0.57 * ends / 2.0).abs() < 1e-9, "{found} W");
    }

    #[test]
    fn an_entry_latency_is_within_the_target_residency() {
        // It takes time, and its energy is in the wake-up's already.
        let mut platform = one_core(&Platform::by_name("tradeoffs-sandybridge").expect("a preset"), 1);
        platform.waking = Waking::BreakEven;
        let without = joules_of_sleep(&platform, 3, 345_000);
        platform.cstates.0[3].entry_latency = Some(machine::Duration::from_micros(30));
        assert!((joules_of_sleep(&platform, 3, 345_000) - without).abs() < 1e-12);
    }

    #[test]
    fn full_power_is_the_power_of_the_point_for_the_whole_exit() {
        let mut platform = one_core(&Platform::by_name("tradeoffs-sandybridge").expect("a preset"), 1);
        platform.waking = Waking::FullPower;
        let state = &platform.cstates.0[1];
        let (asleep, exit) = (state.power.expect("one").as_watts(), state.exit_latency.as_secs_f64());
        let active = platform.frequencies.points.last().expect("an operating point").power.as_watts();
        let expected = asleep * 200e-6 + active * exit;
        assert!((joules_of_sleep(&platform, 1, 200_000) - expected).abs() < 1e-12);
    }

    #[test]
    fn a_thread_that_wakes_beside_one_at_work_costs_nothing() {
        let platform = one_core(&Platform::by_name("xeon-silver-4116").expect("a preset"), 2);
        let mut hardware = Hardware::new(&platform);
        hardware.work(0, 0);
        let exit = hardware.wake(1, 1_000_000);
        hardware.work(1, 1_000_000 + exit);
        let watts = platform.frequencies.points.last().expect("an operating point").power.as_watts();
        let found = hardware.core_joules(2_000_000);
        assert!((found - watts * 2e-3).abs() < 1e-12, "{found} J");
    }

    #[test]
    fn waking_in_no_time_costs_its_energy_all_the_same() {
        let mut platform = one_core(&Platform::by_name("xeon-silver-4116").expect("a preset"), 1);
        platform.cstates.0[0].exit_latency = machine::Duration::ZERO;
        let found = joules_of_sleep(&platform, 0, 1_000_000);
        let asleep = platform.cstates.0[0].power.expect("one").as_watts() * 1e-3;
        assert!((found - asleep - platform.wake_joules()[0]).abs() < 1e-12 && found > asleep);
    }
}
