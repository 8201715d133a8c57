//! Turbo clocks: how fast the fastest gear really is, and the power that this takes beyond the
//! gear's own.
//!
//! A clock is decided when a thread's piece of work begins, by how many cores of the socket are
//! awake then, and holds until the thread does something else. The surplus is drawn by the core:
//! while both of its threads work it is drawn once, at the higher of their two clocks. As with
//! modes, time is added up, by clock; energy follows from it.

use machine::Platform;

/// One clock above the fastest gear.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// It holds while so many cores of the socket are awake at most.
    awake_max: u16,
    /// The nominal frequency divided by this one.
    slowness: f64,
    /// Power beyond that of the fastest gear.
    surplus_watts: f64,
}

/// The clocks, and the cores that run at each.
#[derive(Clone, Debug)]
pub(super) struct Turbo {
    clocks: Vec<Clock>,
    /// By thread; `NONE` if it is not at work, or too many cores are awake.
    running: Vec<u8>,
    cores: usize,
    /// When one of the core's threads last changed.
    since: Vec<u64>,
    /// Time of all cores by clock.
    ran_ns: Vec<u64>,
}

const NONE: u8 = u8::MAX;

impl Turbo {
    pub fn new(platform: &Platform) -> Self {
        let nominal = platform.frequencies.nominal().0 as f64;
        let gear_watts = platform.frequencies.gears.last().map_or(0.0, |gear| gear.power.as_watts());
        let clocks = platform.turbo.iter().map(|bin| Clock {
            awake_max: bin.cores,
            slowness: nominal / bin.frequency.0 as f64,
            surplus_watts: bin.power.as_watts() - gear_watts,
        });
        let clocks: Vec<Clock> = clocks.collect();
        assert!(clocks.len() < usize::from(NONE), "{} turbo clocks", clocks.len());
        let cores = platform.cpus() / usize::from(platform.threads_per_core);
        Self {
            running: vec![NONE; platform.cpus()],
            cores,
            since: vec![0; cores],
            ran_ns: vec![0; clocks.len()],
            clocks,
        }
    }

    /// The machine has no such clock.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.clocks.is_empty()
    }

    /// Nominal frequency over the clock of work that begins while so many cores are awake; `None`:
    /// it is the gear's.
    pub fn slowness(&self, awake: u16) -> Option<f64> {
        self.clock(awake).map(|clock| self.clocks[clock].slowness)
    }

    /// The thread begins work in the fastest gear, with so many cores awake.
    pub fn begin(&mut self, cpu: usize, awake: u16, now: u64) {
        let clock = self.clock(awake).map_or(NONE, |clock| clock as u8);
        self.change(cpu, clock, now);
    }

    /// The thread does something else from now on.
    #[inline]
    pub fn end(&mut self, cpu: usize, now: u64) {
        if self.running[cpu] != NONE {
            self.change(cpu, NONE, now);
        }
    }

    /// Joules beyond those of the fastest gear.
    pub fn joules(&self, now: u64) -> f64 {
        let mut ran_ns = self.ran_ns.clone();
        for core in 0..self.cores {
            if let Some(clock) = self.of_core(core) {
                ran_ns[clock] += now - self.since[core];
            }
        }
        let joules = |(clock, &ns): (&Clock, &u64)| clock.surplus_watts * ns as f64 * 1e-9;
        self.clocks.iter().zip(&ran_ns).map(joules).sum()
    }

    fn clock(&self, awake: u16) -> Option<usize> {
        self.clocks.iter().position(|clock| awake <= clock.awake_max)
    }

    fn change(&mut self, cpu: usize, clock: u8, now: u64) {
        let core = cpu % self.cores;
        let since = std::mem::replace(&mut self.since[core], now);
        if let Some(clock) = self.of_core(core) {
            self.ran_ns[clock] += now - since;
        }
        self.running[cpu] = clock;
    }

    /// The clock that a core's power follows: that of its threads which draws the most.
    fn of_core(&self, core: usize) -> Option<usize> {
        let threads = self.running[core..].iter().step_by(self.cores);
        let watts = |clock: &usize| self.clocks[*clock].surplus_watts;
        threads
            .filter(|clock| **clock != NONE)
            .map(|clock| usize::from(*clock))
            .max_by(|one, other| watts(one).total_cmp(&watts(other)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{Kilohertz, Microwatts, TurboBin};

    /// One core of two threads; up to one core awake draws 2 W more, up to two 1 W more.
    fn turbo() -> Turbo {
        let mut platform = Platform::by_name("xeon-silver-4116").expect("a preset");
        (platform.sockets, platform.cores_per_socket, platform.threads_per_core) = (1, 1, 2);
        let fastest = *platform.frequencies.gears.last().expect("it has gears");
        let bin = |cores, more: u64| TurboBin {
            cores,
            frequency: Kilohertz(fastest.frequency.0 + 100_000 * more),
            power: Microwatts(fastest.power.0 + 1_000_000 * more),
        };
        platform.turbo = vec![bin(1, 2), bin(2, 1)];
        Turbo::new(&platform)
    }

    #[test]
    fn a_core_pays_for_the_time_in_which_any_of_its_threads_works() {
        let mut turbo = turbo();
        turbo.begin(0, 1, 1_000_000_000);
        turbo.begin(1, 1, 2_000_000_000);
        // A sibling's coming and going changes nothing, however often the thread's clock is decided
        // anew.
        turbo.begin(0, 1, 2_000_000_000);
        turbo.end(0, 3_000_000_000);
        turbo.end(0, 3_500_000_000);
        assert_eq!(turbo.joules(3_500_000_000), 2.0 * 2.5);
        turbo.end(1, 4_000_000_000);
        assert_eq!(turbo.joules(9_000_000_000), 2.0 * 3.0);
    }

    #[test]
    fn of_two_clocks_the_higher_is_drawn() {
        let mut turbo = turbo();
        turbo.begin(0, 2, 0);
        turbo.begin(1, 1, 1_000_000_000);
        turbo.end(1, 3_000_000_000);
        assert_eq!(turbo.joules(6_000_000_000), 1.0 + 2.0 * 2.0 + 3.0);
        // Three cores awake are too many for a turbo clock.
        turbo.begin(0, 3, 6_000_000_000);
        assert_eq!(turbo.joules(9_000_000_000), 8.0);
        assert_eq!(turbo.slowness(3), None);
    }
}
