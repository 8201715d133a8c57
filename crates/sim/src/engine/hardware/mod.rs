//! The simulated machine: the mode and operating point of each CPU, how long it takes to get out of
//! them, and their power.
//!
//! It knows nothing of requests. Time is in nanoseconds since the run began.
//!
//! Rules:
//! - Waking takes the *true* exit latency where one is known, else the advertised one. Its energy
//!   is [`Platform::wake_joules`]. Where a state has an entry latency, a wake-up that comes during
//!   the entry waits for its end.
//! - A change of operating point takes effect `delay` after it was asked for (as in the Peafowl
//!   paper's simulation, section 4.3). Meanwhile the core runs on at the old speed and draws the
//!   mean of both levels; then it stands still for `stall`. While one change is under way a newer
//!   wish replaces its goal, not its time.
//! - A package sleeps while all its cores are deep enough; the core that ends it pays its exit
//!   latency too.
//! - Turbo clocks are in `turbo`, operating points in `clocks`, sleep and waking in `sleeps`.

mod clocks;
mod sleeps;

use super::cpu_set::MAX_CPUS;
use super::meter::{Meter, Mode, Modes, Residency};
use super::turbo::Turbo;
use clocks::Change;
use machine::{ClockDomain, Platform};

/// The power that the present clock of the uncore spares.
#[derive(Clone, Copy, Debug, Default)]
struct Uncore {
    /// Of each socket awake, since a time.
    spared_watts: f64,
    since: u64,
    /// Until then, of all sockets: joules spared, and time asleep.
    spared_joules: f64,
    asleep_ns: u64,
}

#[derive(Clone, Debug)]
pub struct Hardware {
    pub modes: Modes,
    cpus: usize,
    /// A core is one thread and has no clock beyond its operating points', and memory is as fast as the
    /// requests are described for.
    is_plain: bool,
    memory_slowness: f64,
    uncore: Uncore,
    threads: Meter,
    physical: Option<Meter>,
    siblings: Option<Vec<usize>>,
    shared_thread_speed: f64,
    /// The operating point in effect, by CPU.
    point: Vec<u8>,
    /// The operating point that policies want, by CPU.
    wish: Vec<u8>,
    /// The operating point that each core asks for: the highest of its threads at work, else the
    /// last.
    asked: Vec<u8>,
    /// A change under way, by clock domain.
    change: Vec<Option<Change>>,
    cpus_of_domain: Vec<Vec<usize>>,
    domain_of: Vec<usize>,
    delay_ns: u64,
    stall_ns: u64,
    /// Nominal frequency over that of the operating point.
    slowness: Vec<f64>,
    exit_ns: Vec<u64>,
    wake_joules: Vec<f64>,
    entry_ns: Vec<u64>,
    has_entry: bool,
    /// When the present sleep began.
    slept_at: Vec<u64>,
    sockets: Vec<Socket>,
    socket_of_core: Vec<usize>,
    package_from: Option<Mode>,
    /// From this mode on a core does not count as awake: the package's, any sleep for a turbo
    /// clock, or none.
    deep_from: Mode,
    package_exit_ns: u64,
    turbo: Turbo,
    /// The highest operating point that each socket's power allows.
    ceiling: Vec<u8>,
    /// Time of all cores by the operating point that they asked for, and since when each does.
    asked_ns: Vec<u64>,
    asked_at: Vec<u64>,
    /// Of cores that ran on at the old speed while their clock changed, by socket.
    extra_joules: Vec<f64>,
    transitions: u64,
}

#[derive(Clone, Debug)]
struct Socket {
    cores: u16,
    /// Number of cores that keep it awake.
    awake: u16,
    asleep_since: u64,
    asleep_ns: u64,
}

impl Hardware {
    /// The machine at time zero: every core asleep in its shallowest state, in the fastest
    /// operating point.
    pub fn new(platform: &Platform) -> Self {
        let modes = Modes::new(platform);
        let cpus = platform.cpus();
        assert!(cpus <= MAX_CPUS, "{cpus} CPUs; the platform was not checked");
        let physical_cores = cpus / usize::from(platform.threads_per_core);
        let table = &platform.frequencies;
        let fastest = (table.points.len() - 1) as u8;
        let nominal = table.nominal().0 as f64;
        let shallowest = modes.asleep(0);
        let per_socket = usize::from(platform.cores_per_socket);
        let socket_of = |core: usize| core / per_socket;
        let has_threads = platform.threads_per_core > 1;
        let domain_of: Vec<usize> = (0..cpus)
            .map(|cpu| match table.domain {
                ClockDomain::Core => cpu % physical_cores,
                ClockDomain::Socket => socket_of(cpu % physical_cores),
            })
            .collect();
        let domains = domain_of.iter().max().map_or(0, |last| last + 1);
        let cpus_of_domain =
            (0..domains).map(|domain| (0..cpus).filter(|&cpu| domain_of[cpu] == domain).collect()).collect();
        let package_from = platform.package.map(|package| modes.asleep(package.from_state));
        let begins_deep = match package_from {
            Some(from) => shallowest >= from,
            None => !platform.turbo.is_empty(),
        };
        Self {
            cpus,
            is_plain: !has_threads && platform.turbo.is_empty() && platform.memory_slowness == 1.0,
            memory_slowness: platform.memory_slowness,
            uncore: Uncore::default(),
            threads: Meter::new(&modes, cpus, shallowest),
            physical: has_threads.then(|| Meter::new(&modes, physical_cores, shallowest)),
            siblings: has_threads.then(|| (0..cpus).map(|cpu| (cpu + physical_cores) % cpus).collect()),
            shared_thread_speed: platform.shared_thread_speed,
            point: vec![fastest; cpus],
            wish: vec![fastest; cpus],
            asked: vec![fastest; physical_cores],
            change: vec![None; domains],
            cpus_of_domain,
            domain_of,
            delay_ns: table.delay.as_nanos(),
            stall_ns: table.stall.as_nanos(),
            slowness: table.points.iter().map(|point| nominal / point.frequency.0 as f64).collect(),
            exit_ns: (platform.cstates.0.iter()).map(|state| state.real_exit_latency().as_nanos()).collect(),
            wake_joules: platform.wake_joules(),
            entry_ns: (platform.cstates.0.iter())
                .map(|state| state.entry_latency.map_or(0, |entry| entry.as_nanos()))
                .collect(),
            has_entry: platform.cstates.0.iter().any(|state| state.entry_latency.is_some()),
            slept_at: vec![0; cpus],
            sockets: (0..platform.sockets)
                .map(|_| Socket {
                    cores: platform.cores_per_socket,
                    awake: if begins_deep { 0 } else { platform.cores_per_socket },
                    asleep_since: 0,
                    asleep_ns: 0,
                })
                .collect(),
            socket_of_core: (0..physical_cores).map(socket_of).collect(),
            package_from,
            deep_from: package_from.unwrap_or(if platform.turbo.is_empty() {
                Mode::NONE
            } else {
                shallowest
            }),
            package_exit_ns: platform.package.map_or(0, |package| package.exit_latency.as_nanos()),
            turbo: Turbo::new(platform),
            ceiling: vec![fastest; usize::from(platform.sockets)],
            asked_ns: vec![0; table.points.len()],
            asked_at: vec![0; physical_cores],
            extra_joules: vec![0.0; usize::from(platform.sockets)],
            transitions: 0,
            modes,
        }
    }

    /// Number of logical CPUs of the machine.
    #[inline]
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// The other thread of the CPU's core.
    #[inline]
    pub fn sibling(&self, cpu: usize) -> Option<usize> {
        self.siblings.as_ref().map(|siblings| siblings[cpu])
    }

    /// Index of the operating point in effect.
    #[inline]
    pub fn point(&self, cpu: usize) -> u8 {
        self.point[cpu]
    }

    pub fn socket(&self, cpu: usize) -> usize {
        self.socket_of_core[cpu % self.socket_of_core.len()]
    }

    /// A piece of work of this much computing and memory time (at the nominal clock, alone on its
    /// core) begins or goes on: its time here. That settles the core's turbo clock.
    #[inline]
    pub fn begin_ns(&mut self, cpu: usize, compute_ns: u64, memory_ns: u64, now: u64) -> u64 {
        if self.is_plain && self.is_fastest(cpu) {
            return compute_ns + memory_ns;
        }
        self.begin_slower_ns(cpu, compute_ns, memory_ns, now)
    }

    #[inline(never)]
    fn begin_slower_ns(&mut self, cpu: usize, compute_ns: u64, memory_ns: u64, now: u64) -> u64 {
        if !self.turbo.is_empty() && self.is_fastest(cpu) {
            self.turbo.begin(cpu, self.socket(cpu), self.sockets[self.socket(cpu)].awake, now);
        }
        self.length_ns(cpu, compute_ns, memory_ns)
    }

    /// The time of so much work here if it begins now.
    pub fn length_ns(&self, cpu: usize, compute_ns: u64, memory_ns: u64) -> u64 {
        let is_fastest = self.is_fastest(cpu);
        if self.is_plain && is_fastest {
            return compute_ns + memory_ns;
        }
        let mut slowness = self.slowness[usize::from(self.point[cpu])];
        if is_fastest && !self.turbo.is_empty() {
            let socket = self.socket(cpu);
            slowness = self.turbo.slowness(socket, self.sockets[socket].awake).unwrap_or(slowness);
        }
        let mut length = compute_ns as f64 * slowness + memory_ns as f64 * self.memory_slowness;
        if self.sibling(cpu).is_some_and(|sibling| self.is_working(sibling)) {
            length /= self.shared_thread_speed;
        }
        length.round() as u64
    }

    /// The CPU is in the fastest operating point.
    #[inline]
    pub fn is_fastest(&self, cpu: usize) -> bool {
        usize::from(self.point[cpu]) + 1 == self.slowness.len()
    }

    #[inline]
    fn is_working(&self, cpu: usize) -> bool {
        let mode = self.threads.mode(cpu);
        mode == self.modes.working(self.point[cpu])
    }

    #[inline]
    fn set_mode(&mut self, cpu: usize, mode: Mode, now: u64) {
        if !self.is_plain {
            return self.set_mode_of_thread(cpu, mode, now);
        }
        let old = self.threads.mode(cpu);
        self.threads.set(cpu, mode, now);
        if (old >= self.deep_from) != (mode >= self.deep_from) {
            self.count_awake(cpu, mode >= self.deep_from, now);
        }
    }

    /// The same where threads share a core, or there are turbo clocks.
    #[inline(never)]
    fn set_mode_of_thread(&mut self, cpu: usize, mode: Mode, now: u64) {
        self.turbo.end(cpu, now);
        let old = self.core_mode(cpu);
        self.threads.set(cpu, mode, now);
        if let (Some(physical), Some(siblings)) = (&mut self.physical, &self.siblings) {
            let core = cpu % self.socket_of_core.len();
            physical.set(core, mode.min(self.threads.mode(siblings[cpu])), now);
        }
        let new = self.core_mode(cpu);
        if (old >= self.deep_from) != (new >= self.deep_from) {
            self.count_awake(cpu, new >= self.deep_from, now);
        }
    }

    /// A core has fallen deep asleep, or come out of that: its socket may follow.
    fn count_awake(&mut self, cpu: usize, asleep: bool, now: u64) {
        let socket = self.socket(cpu);
        let socket = &mut self.sockets[socket];
        if asleep {
            socket.awake -= 1;
            if socket.awake == 0 {
                socket.asleep_since = now;
            }
        } else {
            if socket.awake == 0 && self.package_from.is_some() {
                socket.asleep_ns += now - socket.asleep_since;
            }
            socket.awake += 1;
            debug_assert!(socket.awake <= socket.cores);
        }
    }

    fn core_mode(&self, cpu: usize) -> Mode {
        match &self.physical {
            Some(physical) => physical.mode(cpu % self.socket_of_core.len()),
            None => self.threads.mode(cpu),
        }
    }

    /// The CPU executes from now on.
    #[inline]
    pub fn work(&mut self, cpu: usize, now: u64) {
        self.set_mode(cpu, self.modes.working(self.point[cpu]), now);
    }

    /// The CPU's thread spins for a device from now on.
    #[inline]
    pub fn spin(&mut self, cpu: usize, now: u64) {
        self.set_mode(cpu, self.modes.spinning(self.point[cpu]), now);
    }

    /// The CPU has nothing to do and polls from now on.
    #[inline]
    pub fn poll(&mut self, cpu: usize, now: u64) {
        self.set_mode(cpu, self.modes.polling(self.point[cpu]), now);
    }

    /// Number of sleeps begun so far.
    pub fn transitions(&self) -> u64 {
        self.transitions
    }

    /// Time of one CPU that executed.
    pub fn working_ns(&self, cpu: usize, now: u64) -> u64 {
        self.threads.working_ns(&self.modes, cpu, now)
    }

    /// Time in which any thread of the CPU's core executed.
    pub fn core_working_ns(&self, cpu: usize, now: u64) -> u64 {
        match &self.physical {
            Some(physical) => physical.working_ns(&self.modes, cpu % self.socket_of_core.len(), now),
            None => self.working_ns(cpu, now),
        }
    }

    /// Time of one CPU that was not asleep.
    pub fn awake_ns(&self, cpu: usize, now: u64) -> u64 {
        self.threads.awake_ns(&self.modes, cpu, now)
    }

    /// Time of one CPU that was not idle: neither asleep nor polling.
    pub fn busy_ns(&self, cpu: usize, now: u64) -> u64 {
        self.threads.busy_ns(&self.modes, cpu, now)
    }

    /// Time of all CPUs by mode; joules are those of the threads as if each had a core, see
    /// [`Self::core_joules`].
    pub fn residency(&self, now: u64) -> Residency {
        self.threads.residency(&self.modes, 0..self.cpus, now)
    }

    pub fn core_joules(&self, now: u64) -> f64 {
        let meter = self.physical.as_ref().unwrap_or(&self.threads);
        meter.residency(&self.modes, 0..self.socket_of_core.len(), now).joules
            + self.turbo.joules(now)
            + self.extra_joules.iter().sum::<f64>()
    }

    /// The same of one socket's cores.
    pub fn socket_joules(&self, socket: usize, now: u64) -> f64 {
        let meter = self.physical.as_ref().unwrap_or(&self.threads);
        let per_socket = self.socket_of_core.len() / self.sockets.len();
        let cores = socket * per_socket..(socket + 1) * per_socket;
        meter.residency(&self.modes, cores, now).joules
            + self.turbo.socket_joules(socket, now)
            + self.extra_joules[socket]
    }

    /// Time that one socket slept as a whole.
    pub fn socket_asleep_ns(&self, socket: usize, now: u64) -> u64 {
        let socket = &self.sockets[socket];
        let open =
            if self.package_from.is_some() && socket.awake == 0 { now - socket.asleep_since } else { 0 };
        socket.asleep_ns + open
    }

    /// Time of all cores by the operating point that they asked for.
    pub fn asked_ns(&self, now: u64) -> Vec<u64> {
        let mut asked_ns = self.asked_ns.clone();
        for (point, since) in self.asked.iter().zip(&self.asked_at) {
            asked_ns[usize::from(*point)] += now - since;
        }
        asked_ns
    }

    /// Time that sockets slept as a whole, over all sockets.
    pub fn package_asleep_ns(&self, now: u64) -> u64 {
        if self.package_from.is_none() {
            return 0;
        }
        let open = |socket: &Socket| if socket.awake == 0 { now - socket.asleep_since } else { 0 };
        self.sockets.iter().map(|socket| socket.asleep_ns + open(socket)).sum()
    }

    pub fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// Memory may become slower while it runs.
    pub fn with_paces_that_vary(mut self) -> Self {
        self.is_plain = false;
        self
    }

    /// From now on each socket awake takes so much less than at its uncore's fastest clock, and memory
    /// takes so many times as long for work that begins.
    pub fn slow_uncore(&mut self, spared_watts: f64, memory_slowness: f64, now: u64) {
        let spared_joules = self.uncore_spared_joules(now);
        let asleep_ns = self.package_asleep_ns(now);
        self.uncore = Uncore { spared_watts, spared_joules, since: now, asleep_ns };
        self.memory_slowness = memory_slowness;
    }

    /// Watts of a socket awake, below those at the fastest clock.
    pub fn uncore_spared_watts(&self) -> f64 {
        self.uncore.spared_watts
    }

    pub fn uncore_spared_joules(&self, now: u64) -> f64 {
        let Uncore { spared_watts, spared_joules, since, asleep_ns } = self.uncore;
        if spared_watts == 0.0 {
            return spared_joules;
        }
        let all_ns = (now - since) * self.sockets.len() as u64;
        let awake_ns = all_ns - (self.package_asleep_ns(now) - asleep_ns);
        spared_joules + spared_watts * awake_ns as f64 * 1e-9
    }
}
