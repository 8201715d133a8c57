//! Where each core's time goes, and the energy that follows from it.
//!
//! A core is in one *mode* at a time: working, spinning or polling in an operating point, or waking
//! up from, entering or asleep in an idle state. A thread that *spins* waits for a device; a core
//! that *polls* is idle. The meter adds up the time in each mode and nothing else; energy is
//! computed from the sums when it is read. So a change of mode costs one addition, and joules
//! cannot drift away from residencies. Energy that belongs to no mode (the mean of two levels while
//! a clock changes, a turbo clock's surplus) is added beside.
//!
//! Hyperthreads: each thread has its own modes; the physical core, which draws the power, is in the
//! most awake of its threads' modes.

use machine::{Platform, Waking};

/// A core's mode, as an index; smaller is more awake. Working, spinning and polling come once per
/// operating point, entering a sleep and sleeping once per idle state, and waking up both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mode(u8);

impl Mode {
    /// Deeper than every mode.
    pub const NONE: Self = Self(u8::MAX);
}

/// The modes of one platform, and the power of each.
#[derive(Clone, Debug)]
pub struct Modes {
    points: u8,
    states: u8,
    waking: Waking,
    watts: Vec<f64>,
}

impl Modes {
    /// The modes of the platform's cores.
    pub fn new(platform: &Platform) -> Self {
        let states = &platform.cstates.0;
        let points = platform.frequencies.points.iter().map(|point| point.power.as_watts());
        let asleep = states.iter().map(|state| state.power.map_or(0.0, |power| power.as_watts()));
        // A wake-up that takes no time is paid apart.
        let waking = states.iter().zip(platform.wake_joules()).zip(asleep.clone());
        let waking = waking.map(|((state, joules), asleep)| match state.real_exit_latency().as_secs_f64() {
            0.0 => asleep,
            seconds => joules / seconds,
        });
        let polling = points.clone().map(|watts| watts * platform.poll_share);
        let awake = points.clone().chain(polling.clone()).chain(polling).chain(points);
        let watts = awake.chain(waking).chain(asleep.clone()).chain(asleep).collect();
        let points = platform.frequencies.points.len() as u8;
        Self { points, states: states.len() as u8, waking: platform.waking, watts }
    }

    #[inline]
    pub fn working(&self, point: u8) -> Mode {
        Mode(point)
    }

    /// Spinning for a device: burns a share of the power of work.
    #[inline]
    pub fn spinning(&self, point: u8) -> Mode {
        Mode(self.points + point)
    }

    /// Polling with nothing to do: burns the same share.
    #[inline]
    pub fn polling(&self, point: u8) -> Mode {
        Mode(2 * self.points + point)
    }

    /// Between the wake-up signal and the first instruction.
    #[inline]
    pub fn waking(&self, state: u8, point: u8) -> Mode {
        match self.waking {
            Waking::FullPower => Mode(3 * self.points + point),
            Waking::BreakEven => Mode(4 * self.points + state),
        }
    }

    /// On the way into a state. Its power beyond the state's is part of the wake-up's
    /// energy, where that follows from the state's target residency.
    #[inline]
    pub fn entering(&self, state: u8, point: u8) -> Mode {
        match self.waking {
            Waking::FullPower => Mode(3 * self.points + point),
            Waking::BreakEven => Mode(4 * self.points + self.states + state),
        }
    }

    #[inline]
    pub fn asleep(&self, state: u8) -> Mode {
        Mode(4 * self.points + 2 * self.states + state)
    }

    /// The idle state of a mode; `None` if awake.
    #[inline]
    pub fn state(&self, mode: Mode) -> Option<u8> {
        mode.0.checked_sub(self.asleep(0).0)
    }

    /// A core in it draws power by its operating point.
    #[inline]
    pub fn has_clock(&self, mode: Mode) -> bool {
        mode.0 < 4 * self.points
    }

    /// The same mode in another operating point, where it has one.
    pub fn in_point(&self, mode: Mode, point: u8) -> Mode {
        if self.has_clock(mode) { Mode(mode.0 / self.points * self.points + point) } else { mode }
    }

    pub fn watts(&self, mode: Mode) -> f64 {
        self.watts[usize::from(mode.0)]
    }

    fn count(&self) -> usize {
        self.watts.len()
    }
}

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
    /// Time spent executing, indexed by operating point.
    pub working_ns: Vec<u64>,
    pub waking_ns: u64,
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
        let beyond = Mode(modes.polling(0).0 + modes.points);
        let polling = self.before_ns(beyond, core, now) - self.before_ns(modes.polling(0), core, now);
        self.awake_ns(modes, core, now) - polling
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
        let (points, asleep) = (usize::from(modes.points), usize::from(modes.asleep(0).0));
        let mut sums = vec![0u64; self.modes];
        for core in cores {
            for (sum, ns) in sums.iter_mut().zip(&self.residency_ns[core * self.modes..][..self.modes]) {
                *sum += ns;
            }
            sums[usize::from(self.cores[core].mode.0)] += now - self.cores[core].since;
        }
        let joules = sums.iter().zip(&modes.watts).map(|(&ns, watts)| ns as f64 * 1e-9 * watts).sum();
        Residency {
            working_ns: sums[..points].to_vec(),
            waking_ns: sums[3 * points..asleep].iter().sum(),
            polling_ns: sums[points..3 * points].iter().sum(),
            asleep_ns: sums[asleep..].to_vec(),
            joules,
        }
    }
}
