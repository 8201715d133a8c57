//! Turbo clocks: how fast the fastest operating point really is, and the power that this takes
//! beyond the operating point's own.
//!
//! A clock is decided when a thread's piece of work begins, by how many cores of the socket are
//! awake then, and holds until the thread does something else. The surplus is drawn by the core:
//! while both of its threads work it is drawn once, at the higher of their two clocks. As with
//! modes, time is added up, by clock; energy follows from it.

use machine::Platform;

/// One clock above the fastest operating point.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// The nominal frequency divided by this one.
    slowness: f64,
    /// Power beyond that of the fastest operating point.
    surplus_watts: f64,
}

/// The clocks, and the cores that run at each.
#[derive(Clone, Debug)]
pub(super) struct Turbo {
    /// From the slowest: those of the bins, and the steps between them that a limit may stop at.
    clocks: Vec<Clock>,
    /// Up to so many awake cores, the place of their clock.
    bins: Vec<(u16, u8)>,
    /// Number of clocks that each socket may use.
    allowed: Vec<usize>,
    /// By thread; `NONE` if it is not at work, or too many cores are awake.
    running: Vec<u8>,
    cores: usize,
    per_socket: usize,
    /// When one of the core's threads last changed.
    since: Vec<u64>,
    /// Time of each socket's cores by clock.
    ran_ns: Vec<u64>,
}

const NONE: u8 = u8::MAX;

/// Clocks are so far apart, in kHz: Intel's ratios.
const STEP_KHZ: u64 = 100_000;

impl Turbo {
    pub fn new(platform: &Platform) -> Self {
        let nominal = platform.frequencies.nominal().0;
        let point_watts = platform.frequencies.points.last().map_or(0.0, |point| point.power.as_watts());
        let mut points = vec![(nominal, point_watts)];
        points.extend(platform.turbo.iter().rev().map(|bin| (bin.frequency.0, bin.power.as_watts())));
        let clocks = clocks(platform, &points);
        assert!(clocks.len() < usize::from(NONE), "{} turbo clocks", clocks.len());
        let place = |khz| clocks.iter().position(|&clock| clock == khz).expect("each bin has a clock") as u8;
        let bins = platform.turbo.iter().map(|bin| (bin.cores, place(bin.frequency.0))).collect();
        let clock = |&khz: &u64| Clock {
            slowness: nominal as f64 / khz as f64,
            surplus_watts: watts_at(khz, &points) - point_watts,
        };
        let clocks: Vec<Clock> = clocks.iter().map(clock).collect();
        let cores = platform.cpus() / usize::from(platform.threads_per_core);
        let sockets = usize::from(platform.sockets);
        Self {
            bins,
            allowed: vec![clocks.len(); sockets],
            running: vec![NONE; platform.cpus()],
            cores,
            per_socket: usize::from(platform.cores_per_socket),
            since: vec![0; cores],
            ran_ns: vec![0; clocks.len() * sockets],
            clocks,
        }
    }

    /// The machine has no such clock.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.clocks.is_empty()
    }

    /// Number of clocks, those between two bins too.
    pub fn clocks(&self) -> usize {
        self.clocks.len()
    }

    /// The socket may use so many of the clocks, from the slowest on.
    pub fn limit(&mut self, socket: usize, clocks: usize) {
        self.allowed[socket] = clocks;
    }

    /// Nominal frequency over the clock of work that begins while so many cores are awake; `None`:
    /// it is the operating point's.
    pub fn slowness(&self, socket: usize, awake: u16) -> Option<f64> {
        self.clock(socket, awake).map(|clock| self.clocks[clock].slowness)
    }

    /// The thread begins work in the fastest operating point, with so many cores of its socket
    /// awake.
    pub fn begin(&mut self, cpu: usize, socket: usize, awake: u16, now: u64) {
        let clock = self.clock(socket, awake).map_or(NONE, |clock| clock as u8);
        self.change(cpu, clock, now);
    }

    /// The thread does something else from now on.
    #[inline]
    pub fn end(&mut self, cpu: usize, now: u64) {
        if self.running[cpu] != NONE {
            self.change(cpu, NONE, now);
        }
    }

    /// Joules beyond those of the fastest operating point.
    pub fn joules(&self, now: u64) -> f64 {
        (0..self.allowed.len()).map(|socket| self.socket_joules(socket, now)).sum()
    }

    /// The same of the cores of one socket.
    pub fn socket_joules(&self, socket: usize, now: u64) -> f64 {
        let count = self.clocks.len();
        let mut ran_ns = self.ran_ns[socket * count..][..count].to_vec();
        for core in (socket * self.per_socket..).take(self.per_socket) {
            if let Some(clock) = self.of_core(core) {
                ran_ns[clock] += now - self.since[core];
            }
        }
        let joules = |(clock, &ns): (&Clock, &u64)| clock.surplus_watts * ns as f64 * 1e-9;
        self.clocks.iter().zip(&ran_ns).map(joules).sum()
    }

    fn clock(&self, socket: usize, awake: u16) -> Option<usize> {
        let (_, clock) = self.bins.iter().find(|(most, _)| awake <= *most)?;
        usize::from(*clock).min(self.allowed[socket].checked_sub(1)?).into()
    }

    fn change(&mut self, cpu: usize, clock: u8, now: u64) {
        let core = cpu % self.cores;
        let since = std::mem::replace(&mut self.since[core], now);
        if let Some(clock) = self.of_core(core) {
            self.ran_ns[core / self.per_socket * self.clocks.len() + clock] += now - since;
        }
        self.running[cpu] = clock;
    }

    /// The clock that a core's power follows: that of its threads which draws the most.
    fn of_core(&self, core: usize) -> Option<usize> {
        let threads = self.running[core..].iter().step_by(self.cores);
        threads.filter(|clock| **clock != NONE).map(|clock| usize::from(*clock)).max()
    }
}

/// The clocks above the fastest operating point, in kHz from the slowest: those of the bins, and
/// where a cap may stop between them, each step.
fn clocks(platform: &Platform, points: &[(u64, f64)]) -> Vec<u64> {
    let mut clocks: Vec<u64> = points[1..].iter().map(|point| point.0).collect();
    if let (Some(_), Some(&fastest)) = (platform.cap, clocks.iter().max()) {
        let nominal = points[0].0;
        clocks
            .extend((nominal / STEP_KHZ + 1..).map(|step| step * STEP_KHZ).take_while(|khz| *khz < fastest));
    }
    clocks.sort_unstable();
    clocks.dedup();
    clocks
}

/// Power at a clock between two known ones, on the power law through both.
fn watts_at(khz: u64, points: &[(u64, f64)]) -> f64 {
    let above = points.iter().position(|point| point.0 >= khz).unwrap_or(points.len() - 1);
    let (low, high) = (points[above.saturating_sub(1)], points[above]);
    if high.0 == khz || low.0 == high.0 || low.1 <= 0.0 {
        return high.1;
    }
    let part = (khz as f64 / low.0 as f64).ln() / (high.0 as f64 / low.0 as f64).ln();
    low.1 * (high.1 / low.1).powf(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{Kilohertz, Microwatts, TurboBin};

    /// One core of two threads; up to one core awake draws 2 W more, up to two 1 W more.
    fn turbo() -> Turbo {
        let mut platform = Platform::by_name("xeon-silver-4116").expect("a preset");
        (platform.sockets, platform.cores_per_socket, platform.threads_per_core) = (1, 1, 2);
        let fastest = *platform.frequencies.points.last().expect("it has operating points");
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
        turbo.begin(0, 0, 1, 1_000_000_000);
        turbo.begin(1, 0, 1, 2_000_000_000);
        // A sibling's coming and going changes nothing, however often the thread's clock is decided
        // anew.
        turbo.begin(0, 0, 1, 2_000_000_000);
        turbo.end(0, 3_000_000_000);
        turbo.end(0, 3_500_000_000);
        assert_eq!(turbo.joules(3_500_000_000), 2.0 * 2.5);
        turbo.end(1, 4_000_000_000);
        assert_eq!(turbo.joules(9_000_000_000), 2.0 * 3.0);
    }

    #[test]
    fn of_two_clocks_the_higher_is_drawn() {
        let mut turbo = turbo();
        turbo.begin(0, 0, 2, 0);
        turbo.begin(1, 0, 1, 1_000_000_000);
        turbo.end(1, 3_000_000_000);
        assert_eq!(turbo.joules(6_000_000_000), 1.0 + 2.0 * 2.0 + 3.0);
        // Three cores awake are too many for a turbo clock.
        turbo.begin(0, 0, 3, 6_000_000_000);
        assert_eq!(turbo.joules(9_000_000_000), 8.0);
        assert_eq!(turbo.slowness(0, 3), None);
    }
}
