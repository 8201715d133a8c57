//! The clocks of the machine's domains: wishes of policies, and changes that take their time.
//!
//! A domain runs at the highest gear that one of its CPUs wants.

use super::Hardware;

/// A clock that is being changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    goal: u8,
    asked_at: u64,
}

impl Hardware {
    /// A policy wants this gear for the CPU. If that begins a change of its clock: when it takes
    /// effect.
    #[inline]
    pub fn wish(&mut self, cpu: usize, gear: u8, now: u64) -> Option<(u64, usize)> {
        if self.wish[cpu] == gear {
            return None;
        }
        self.wish[cpu] = gear;
        let domain = self.domain_of[cpu];
        let goal = self.goal(domain);
        if let Some(change) = &mut self.change[domain] {
            change.goal = goal;
            return None;
        }
        if goal == self.gear[cpu] {
            return None;
        }
        self.change[domain] = Some(Change { goal, asked_at: now });
        Some((now + self.delay_ns, domain))
    }

    fn goal(&self, domain: usize) -> u8 {
        self.cpus_of_domain[domain].iter().map(|&cpu| self.wish[cpu]).max().unwrap_or(0)
    }

    /// The change of the domain's clock takes effect: if the gear is a new one, it and the time
    /// that executing cores stand still. The caller re-times their work.
    pub fn take_effect(&mut self, domain: usize, now: u64) -> Option<u64> {
        let change = self.change[domain].take()?;
        let first = *self.cpus_of_domain[domain].first()?;
        let old = self.gear[first];
        if change.goal == old {
            return None;
        }
        let surplus = (self.gear_watts[usize::from(change.goal)] - self.gear_watts[usize::from(old)]) / 2.0;
        for index in 0..self.cpus_of_domain[domain].len() {
            let cpu = self.cpus_of_domain[domain][index];
            self.gear[cpu] = change.goal;
            // Paid by the core, not by each of its threads.
            let is_first = cpu < self.socket_of_core.len();
            if is_first && self.modes.state(self.core_mode(cpu)).is_none() {
                self.extra_joules += surplus * (now - change.asked_at) as f64 * 1e-9;
            }
            let mode = self.threads.mode(cpu);
            // The clock of a sleeping core stands; it draws its state's power.
            if mode == self.modes.working(old) {
                self.work(cpu, now);
            } else if mode == self.modes.polling(old) {
                self.poll(cpu, now);
            } else if mode == self.modes.waking(old) {
                self.set_mode(cpu, self.modes.waking(change.goal), now);
            }
        }
        Some(self.stall_ns)
    }

    /// The CPUs of a clock domain.
    pub fn cpus_of_domain(&self, domain: usize) -> &[usize] {
        &self.cpus_of_domain[domain]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Platform;

    /// Mean watts of one core while its clock goes from the fastest gear to the slowest, with so
    /// many threads at work; and the mean of both gears.
    fn watts_of_a_change(working: usize) -> (f64, f64) {
        let mut platform = Platform::by_name("xeon-silver-4116").expect("a preset");
        (platform.sockets, platform.cores_per_socket, platform.threads_per_core) = (1, 1, 2);
        let mut hardware = Hardware::new(&platform);
        (0..working).for_each(|cpu| hardware.work(cpu, 0));
        // An idle thread has no wish for speed.
        let changes: Vec<_> = (0..2).filter_map(|cpu| hardware.wish(cpu, 0, 0)).collect();
        let [(at, domain)] = changes[..] else { panic!("one clock, one change: {changes:?}") };
        hardware.take_effect(domain, at);
        let watts = &hardware.gear_watts;
        (hardware.core_joules(at) / (at as f64 * 1e-9), (watts[0] + watts[watts.len() - 1]) / 2.0)
    }

    #[test]
    fn a_change_of_clock_is_paid_once_by_a_core_of_two_threads() {
        for working in [1, 2] {
            let (found, mean) = watts_of_a_change(working);
            assert!((found - mean).abs() < 1e-9, "{working} at work: {found} W, not {mean}");
        }
    }
}
