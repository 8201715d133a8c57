//! Where each core's time goes, and the energy that follows from it.
//!
//! A core is in one *mode* at a time: working, spinning, waking up or polling in a gear, or asleep
//! in an idle state. A thread that *spins* waits for a device; a core that *polls* is idle. The meter adds up the time in each mode and nothing else; energy is computed from the
//! sums when it is read. So a change of mode costs one addition, and joules cannot drift away
//! from residencies. Energy that belongs to no mode (the mean of two levels while a clock changes,
//! a turbo clock's surplus) is added beside.
//!
//! Hyperthreads: each thread has its own modes; the physical core, which draws the power, is in the
//! most awake of its threads' modes.

use machine::Platform;

/// A core's mode, as an index; smaller is more awake. Working, spinning, waking and polling come
/// once per gear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mode(u8);

impl Mode {
    /// Deeper than every mode.
    pub const NONE: Self = Self(u8::MAX);
}

/// The modes of one platform, and the power of each.
#[derive(Clone, Debug)]
pub struct Modes {
    gears: u8,
    watts: Vec<f64>,
}

impl Modes {
    /// The modes of the platform's cores.
    pub fn new(platform: &Platform) -> Self {
        let gears: Vec<f64> = platform.frequencies.gears.iter().map(|gear| gear.power.as_watts()).collect();
        let states = platform.cstates.0.iter().map(|state| state.power.map_or(0.0, |power| power.as_watts()));
        let awake = std::iter::repeat_n(&gears, usize::from(AWAKE)).flatten().copied();
        let watts = awake.chain(states).collect();
        Self { gears: gears.len() as u8, watts }
    }

    #[inline]
    pub fn working(&self, gear: u8) -> Mode {
        Mode(gear)
    }

    /// Spinning for a device: burns as if it worked.
    #[inline]
    pub fn spinning(&self, gear: u8) -> Mode {
        Mode(self.gears + gear)
    }

    /// Between the wake-up signal and the first instruction: burns as if it worked.
    #[inline]
    pub fn waking(&self, gear: u8) -> Mode {
        Mode(2 * self.gears + gear)
    }

    /// Polling with nothing to do: burns as if it worked.
    #[inline]
    pub fn polling(&self, gear: u8) -> Mode {
        Mode(3 * self.gears + gear)
    }

    #[inline]
    pub fn asleep(&self, state: u8) -> Mode {
        Mode(AWAKE * self.gears + state)
    }

    /// The idle state of a mode; `None` if awake.
    #[inline]
    pub fn state(&self, mode: Mode) -> Option<u8> {
        mode.0.checked_sub(AWAKE * self.gears)
    }

    fn count(&self) -> usize {
        self.watts.len()
    }
}

/// So many modes of each gear.
const AWAKE: u8 = 4;

/// Time by mode of a set of cores.
#[derive(Clone, Debug)]
pub struct Meter {
    modes: usize,
    residency_ns: Vec<u64>,
    cores: Vec<Present>,
}

/// The mode of a core, and since when.
#[derive(Clone, Copy, Debug)]
struct Present {
    mode: Mode,
    since: u64,
}

/// Sums over all cores of a meter, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Residency {
    /// Time spent executing, indexed by gear.
    pub working_ns: Vec<u64>,
    pub waking_ns: u64,
    /// Idle or for a device.
    pub polling_ns: u64,
    /// Time spent asleep, indexed by idle state.
    pub asleep_ns: Vec<u64>,
    pub joules: f64,
}

impl Residency {
    pub fn total_ns(&self) -> u64 {
        self.working_ns.iter().chain(&self.asleep_ns).sum::<u64>() + self.waking_ns + self.polling_ns
    }
}

impl Meter {
    /// `cores` cores, all in `mode` from time zero.
    pub fn new(modes: &Modes, cores: usize, mode: Mode) -> Self {
        Self {
            modes: modes.count(),
            residency_ns: vec![0; modes.count() * cores],
            cores: vec![Present { mode, since: 0 }; cores],
        }
    }

    /// The core is in `mode` from `now` on.
    #[inline]
    pub fn set(&mut self, core: usize, mode: Mode, now: u64) {
        let old = std::mem::replace(&mut self.cores[core], Present { mode, since: now });
        self.residency_ns[core * self.modes + usize::from(old.mode.0)] += now - old.since;
    }

    #[inline]
    pub fn mode(&self, core: usize) -> Mode {
        self.cores[core].mode
    }

    /// Since when the core has been in its present mode.
    pub fn since(&self, core: usize) -> u64 {
        self.cores[core].since
    }

    /// Books `length_ns` of the core's past, counted in its present mode so far, as `mode`: the
    /// entry into a sleep, say, once it is known how long it lasted.
    #[inline]
    pub fn rebook(&mut self, core: usize, mode: Mode, length_ns: u64) {
        self.cores[core].since += length_ns;
        self.residency_ns[core * self.modes + usize::from(mode.0)] += length_ns;
    }

    /// Time of one core that executed or was on its way to it, up to `now`: all but sleep.
    pub fn awake_ns(&self, modes: &Modes, core: usize, now: u64) -> u64 {
        self.before_ns(modes.asleep(0), core, now)
    }

    /// Time of one core that was not idle, up to `now`: all but sleep and polling.
    pub fn busy_ns(&self, modes: &Modes, core: usize, now: u64) -> u64 {
        self.before_ns(modes.polling(0), core, now)
    }

    /// Time of one core that executed, up to `now`.
    pub fn working_ns(&self, modes: &Modes, core: usize, now: u64) -> u64 {
        self.before_ns(modes.spinning(0), core, now)
    }

    /// Time of one core in the modes before this one.
    fn before_ns(&self, mode: Mode, core: usize, now: u64) -> u64 {
        let row = &self.residency_ns[core * self.modes..][..usize::from(mode.0)];
        let open = if self.cores[core].mode < mode { now - self.cores[core].since } else { 0 };
        row.iter().sum::<u64>() + open
    }

    /// Everything up to `now`, over the cores in `cores`.
    pub fn residency(&self, modes: &Modes, cores: std::ops::Range<usize>, now: u64) -> Residency {
        let gears = usize::from(modes.gears);
        let mut sums = vec![0u64; self.modes];
        for core in cores {
            for (sum, ns) in sums.iter_mut().zip(&self.residency_ns[core * self.modes..][..self.modes]) {
                *sum += ns;
            }
            sums[usize::from(self.cores[core].mode.0)] += now - self.cores[core].since;
        }
        let joules = sums.iter().zip(&modes.watts).map(|(&ns, watts)| ns as f64 * 1e-9 * watts).sum();
        Residency {
            working_ns: sums[..gears].to_vec(),
            waking_ns: sums[2 * gears..3 * gears].iter().sum(),
            polling_ns: sums[gears..2 * gears].iter().chain(&sums[3 * gears..4 * gears]).sum(),
            asleep_ns: sums[usize::from(AWAKE) * gears..].to_vec(),
            joules,
        }
    }
}
