//! The clocks of the machine's domains: wishes of policies, and changes that take their time.
//!
//! A domain runs at the highest operating point that one of its cores asks for. A core asks for the
//! highest that its threads at work want: a thread without work asks for nothing. Of a core without
//! work the last stands.

use super::Hardware;

/// A clock that is being changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    goal: u8,
    asked_at: u64,
}

impl Hardware {
    /// A policy wants this operating point for the CPU. If that begins a change of its clock: when
    /// it takes effect.
    #[inline]
    pub fn wish(&mut self, cpu: usize, point: u8, now: u64) -> Option<(u64, usize)> {
        self.wish[cpu] = point;
        self.ask(cpu, self.wanted_at_work(cpu).unwrap_or(point), now)
    }

    /// A thread has begun or ended its work: which operating point its core asks for from now on.
    #[inline]
    pub fn ask_anew(&mut self, cpu: usize, now: u64) -> Option<(u64, usize)> {
        self.siblings.as_ref()?;
        self.ask(cpu, self.wanted_at_work(cpu)?, now)
    }

    /// The highest operating point that the threads at work of the CPU's core want; `None` without
    /// any.
    fn wanted_at_work(&self, cpu: usize) -> Option<u8> {
        let threads = [Some(cpu), self.sibling(cpu)];
        threads
            .into_iter()
            .flatten()
            .filter(|&thread| self.is_at_work(thread))
            .map(|thread| self.wish[thread])
            .max()
    }

    /// It executes, if only to wait for a device.
    fn is_at_work(&self, cpu: usize) -> bool {
        self.is_working(cpu) || self.threads.mode(cpu) == self.modes.spinning(self.point[cpu])
    }

    /// The CPU's core asks for this operating point.
    fn ask(&mut self, cpu: usize, point: u8, now: u64) -> Option<(u64, usize)> {
        let core = cpu % self.asked.len();
        if self.asked[core] == point {
            return None;
        }
        let old = std::mem::replace(&mut self.asked[core], point);
        self.asked_ns[usize::from(old)] += now - std::mem::replace(&mut self.asked_at[core], now);
        self.aim(self.domain_of[cpu], now)
    }

    /// The domain's clock is to be the one that its CPUs want and its socket's power allows.
    fn aim(&mut self, domain: usize, now: u64) -> Option<(u64, usize)> {
        let first = *self.cpus_of_domain[domain].first()?;
        let goal = self.goal(domain).min(self.ceiling[self.socket(first)]);
        if let Some(change) = &mut self.change[domain] {
            change.goal = goal;
            return None;
        }
        if goal == self.point[first] {
            return None;
        }
        self.change[domain] = Some(Change { goal, asked_at: now });
        Some((now + self.delay_ns, domain))
    }

    fn goal(&self, domain: usize) -> u8 {
        let cores = self.asked.len();
        self.cpus_of_domain[domain].iter().map(|&cpu| self.asked[cpu % cores]).max().unwrap_or(0)
    }

    /// Number of clocks that a socket's ceiling can be at: the operating points, and those of
    /// turbo.
    pub fn ceilings(&self) -> usize {
        self.slowness.len() + self.turbo.clocks()
    }

    /// From now on no core of the socket is faster than this clock, counted from the slowest
    /// operating point. The changes of clock domains that begin, and when each takes effect.
    pub fn limit(&mut self, socket: usize, clock: usize, now: u64) -> Vec<(u64, usize)> {
        let points = self.slowness.len();
        self.ceiling[socket] = clock.min(points - 1) as u8;
        self.turbo.limit(socket, (clock + 1).saturating_sub(points));
        let domains = 0..self.cpus_of_domain.len();
        domains
            .filter_map(|domain| {
                let is_here = |&cpu: &usize| self.socket(cpu) == socket;
                if self.cpus_of_domain[domain].first().is_some_and(is_here) {
                    self.aim(domain, now)
                } else {
                    None
                }
            })
            .collect()
    }

    /// The change of the domain's clock takes effect: if the operating point is a new one, it and
    /// the time that executing cores stand still. The caller re-times their work.
    pub fn take_effect(&mut self, domain: usize, now: u64) -> Option<u64> {
        let change = self.change[domain].take()?;
        let first = *self.cpus_of_domain[domain].first()?;
        let old = self.point[first];
        if change.goal == old {
            return None;
        }
        for index in 0..self.cpus_of_domain[domain].len() {
            let cpu = self.cpus_of_domain[domain][index];
            self.point[cpu] = change.goal;
            // Paid by the core, not by each of its threads.
            let is_first = cpu < self.socket_of_core.len();
            if is_first {
                let mode = self.core_mode(cpu);
                let goal = self.modes.in_point(mode, change.goal);
                let surplus = (self.modes.watts(goal) - self.modes.watts(mode)) / 2.0;
                let socket = self.socket(cpu);
                self.extra_joules[socket] += surplus * (now - change.asked_at) as f64 * 1e-9;
            }
            // The clock of a sleeping core stands; it draws its state's power.
            let mode = self.threads.mode(cpu);
            if self.modes.has_clock(mode) {
                self.set_mode(cpu, self.modes.in_point(mode, change.goal), now);
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

    /// Mean watts of one core while its clock goes from the fastest operating point to the slowest,
    /// with so many threads at work; and the mean of both operating points.
    fn watts_of_a_change(working: usize) -> (f64, f64) {
        let mut platform = Platform::by_name("xeon-silver-4116").expect("a preset");
        (platform.sockets, platform.cores_per_socket, platform.threads_per_core) = (1, 1, 2);
        let mut hardware = Hardware::new(&platform);
        (0..working).for_each(|cpu| hardware.work(cpu, 0));
        let changes: Vec<_> = (0..2).filter_map(|cpu| hardware.wish(cpu, 0, 0)).collect();
        let [(at, domain)] = changes[..] else { panic!("one clock, one change: {changes:?}") };
        hardware.take_effect(domain, at);
        let points = &platform.frequencies.points;
        let ends = points[0].power.as_watts() + points[points.len() - 1].power.as_watts();
        (hardware.core_joules(at) / (at as f64 * 1e-9), ends / 2.0)
    }

    #[test]
    fn a_thread_without_work_asks_for_nothing() {
        let mut platform = Platform::by_name("xeon-silver-4116").expect("a preset");
        (platform.sockets, platform.cores_per_socket, platform.threads_per_core) = (1, 1, 2);
        platform.frequencies.delay = machine::Duration::ZERO;
        let mut hardware = Hardware::new(&platform);
        let fastest = hardware.point(0);
        let settle = |hardware: &mut Hardware, change: Option<(u64, usize)>| {
            if let Some((at, domain)) = change {
                hardware.take_effect(domain, at);
            }
            hardware.point(0)
        };
        // Thread 0 works in operating point 2; its sibling sleeps, and nothing has asked it.
        hardware.work(0, 0);
        let change = hardware.wish(0, 2, 0);
        assert_eq!(settle(&mut hardware, change), 2);
        // The sibling's work counts while it lasts.
        hardware.work(1, 1_000);
        let change = hardware.ask_anew(1, 1_000);
        assert_eq!(settle(&mut hardware, change), fastest);
        hardware.sleep(1, 0, 2_000);
        let change = hardware.ask_anew(1, 2_000);
        assert_eq!(settle(&mut hardware, change), 2);
        // Its wish is kept until it works again, and a core without work keeps its clock.
        let change = hardware.wish(1, 5, 3_000);
        assert_eq!(settle(&mut hardware, change), 2);
        hardware.sleep(0, 0, 4_000);
        let change = hardware.ask_anew(0, 4_000);
        assert_eq!(settle(&mut hardware, change), 2);
        hardware.work(1, 5_000);
        let change = hardware.ask_anew(1, 5_000);
        assert_eq!(settle(&mut hardware, change), 5);
        // A clock that is asked of an idle core holds.
        hardware.sleep(1, 0, 6_000);
        let change = hardware.wish(0, 1, 6_000);
        assert_eq!(settle(&mut hardware, change), 1);
    }

    #[test]
    fn a_change_of_clock_is_paid_once_by_a_core_of_two_threads() {
        for working in [1, 2] {
            let (found, mean) = watts_of_a_change(working);
            assert!((found - mean).abs() < 1e-9, "{working} at work: {found} W, not {mean}");
        }
    }
}
