//! Where each CPU's time went: busy, or in an idle state.
//!
//! cpuidle adds a sleep to its state when the sleep *ends*, so on a quiet machine seconds can be
//! missing; `/proc/stat` counts a sleep while it lasts, but in steps of a clock tick and without
//! telling states apart. So residency comes from cpuidle, and where `/proc/stat` has seen more
//! idleness than cpuidle, the rest is a sleep in progress.
//!
//! Invariants:
//! - Times are since the meter was made, so that a lost reading loses nothing.
//! - busy + residency + asleep never exceed the time that passed, by more than the kernel's own
//!   rounding.
//! - A CPU that is offline is not idle, and not busy either: all of it is `None`, as long as it is
//!   away. Its use over a span in which it came back is not known exactly: the kernel may count its
//!   absence as idleness or not at all.
//! - Without cpuidle, residency is `None` and busy comes from `/proc/stat` alone; without that too,
//!   busy is `None`.

use crate::cpuidle::{Residency, idle_table};
use crate::root::Root;
use machine::{CpuId, CpuList, CstateTable, Duration, Instant};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// One CPU's time since the meter was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuUsage {
    pub cpu: CpuId,
    pub elapsed: Duration,
    pub busy: Option<Duration>,
    /// Time in each idle state as requested, in the order of the CPU's table, over the sleeps that
    /// have ended.
    pub residency: Option<Vec<Duration>>,
    /// Time in a sleep that has not ended, whose state will be known when it ends.
    pub asleep: Duration,
}

#[derive(Debug)]
pub struct UsageMeter {
    root: Root,
    stat: Stat,
    since: Instant,
    cpus: Vec<Watched>,
}

#[derive(Debug)]
struct Watched {
    cpu: CpuId,
    table: CstateTable,
    residency: Option<Residency>,
    /// `/proc/stat`'s idle time at the start.
    idle_before: Option<Duration>,
}

impl UsageMeter {
    pub fn start(root: &Root, cpus: &CpuList, now: Instant) -> Self {
        let mut stat = Stat::open(root);
        let idle = stat.idle_times();
        let watch = |&cpu| Watched {
            cpu,
            table: idle_table(root, cpu).unwrap_or_default(),
            residency: Residency::start(root, cpu).ok(),
            idle_before: idle.get(&cpu).copied(),
        };
        Self { root: root.clone(), since: now, cpus: cpus.0.iter().map(watch).collect(), stat }
    }

    /// The idle states of each CPU, in the order of the readings.
    pub fn tables(&self) -> impl Iterator<Item = (CpuId, &CstateTable)> {
        self.cpus.iter().map(|watched| (watched.cpu, &watched.table))
    }

    /// Reads all of them, in order of number.
    pub fn read(&mut self, now: Instant) -> Vec<CpuUsage> {
        let elapsed = now.since(self.since);
        let idle = self.stat.idle_times();
        let root = &self.root;
        let usage = |watched: &mut Watched| {
            // Its files may stay, and stand still.
            if !idle.is_empty() && !idle.contains_key(&watched.cpu) {
                let (cpu, asleep) = (watched.cpu, Duration::ZERO);
                return CpuUsage { cpu, elapsed, busy: None, residency: None, asleep };
            }
            let residency =
                watched.residency.as_mut().and_then(|counts| Some(counts.read(root).ok()?.to_vec()));
            let idle = idle.get(&watched.cpu).zip(watched.idle_before).map(|(&now, before)| now - before);
            account(watched.cpu, elapsed, residency, idle)
        };
        self.cpus.iter_mut().map(usage).collect()
    }
}

/// Splits `elapsed` by the two sources.
fn account(
    cpu: CpuId,
    elapsed: Duration,
    residency: Option<Vec<Duration>>,
    idle: Option<Duration>,
) -> CpuUsage {
    /// Below this, the two sources differ by rounding: two ticks of the usual 100 a second.
    const ROUNDING: Duration = Duration::from_millis(20);
    let ended: Option<Duration> = residency.as_ref().map(|states| states.iter().copied().sum());
    let asleep = match (ended, idle) {
        (Some(ended), Some(idle)) if idle > ended + ROUNDING => idle - ended,
        _ => Duration::ZERO,
    };
    let idle = ended.map(|ended| ended + asleep).or(idle);
    CpuUsage { cpu, elapsed, busy: idle.map(|idle| elapsed - idle), residency, asleep }
}

/// `/proc/stat`. It stays open: closing a file costs the kernel a grace period, and some CPU a
/// wake-up.
#[derive(Debug)]
struct Stat {
    file: Option<File>,
    /// Its last text; the buffer is used again.
    text: Vec<u8>,
}

impl Stat {
    fn open(root: &Root) -> Self {
        Self { file: File::open(root.path("proc/stat")).ok(), text: Vec::new() }
    }

    /// Idle time of each CPU since boot, waiting for I/O included; none where the kernel does not
    /// tell.
    fn idle_times(&mut self) -> BTreeMap<CpuId, Duration> {
        let Some(file) = &self.file else { return BTreeMap::new() };
        let mut length = 0;
        loop {
            if self.text.len() < length + PIECE {
                self.text.resize(length + PIECE, 0);
            }
            match file.read_at(&mut self.text[length..], length as u64) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(_) => return BTreeMap::new(),
            }
        }
        let text = String::from_utf8_lossy(&self.text[..length]);
        parse_idle_times(&text, rustix::param::clock_ticks_per_second())
    }
}

/// The room for growth at each reading.
const PIECE: usize = 16 * 1024;

fn parse_idle_times(text: &str, ticks_per_second: u64) -> BTreeMap<CpuId, Duration> {
    let cpu = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split(' ');
        // The first line, `cpu `, sums them all up: it has no number.
        let cpu = CpuId(fields.next()?.parse().ok()?);
        // user nice system idle iowait
        let mut ticks =
            fields.filter(|field| !field.is_empty()).skip(3).map_while(|field| field.parse::<u64>().ok());
        let idle = ticks.next()?.checked_add(ticks.next().unwrap_or(0))?;
        Some((cpu, Duration::from_nanos(idle.checked_mul(1_000_000_000)? / ticks_per_second.max(1))))
    };
    text.lines().filter_map(cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;
    use proptest::prelude::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn at(secs: u64) -> Instant {
        Instant::from_nanos(secs * 1_000_000_000)
    }

    #[test]
    fn time_is_split_into_busy_states_and_a_sleep_in_progress() {
        let machine = FakeMachine::intel_server(2);
        machine
            .write("proc/stat", "cpu  0 0 0 300 0 0 0\ncpu0 9 9 9 100 0 0 0\ncpu1 0 0 0 200 0 0 0\nintr 1\n");
        let mut meter = UsageMeter::start(machine.root(), &"1".parse().unwrap(), at(100));
        machine.write("sys/devices/system/cpu/cpu1/cpuidle/state1/time", "1000000\n");
        machine.write("sys/devices/system/cpu/cpu1/cpuidle/state3/time", "3000000\n");
        // 5 s idle by /proc/stat, one of them waiting for I/O; cpuidle knows of 4.
        machine.write("proc/stat", "cpu1 300 0 0 600 100 0 0\n");
        let usage = meter.read(at(110)).remove(0);
        assert_eq!((usage.cpu, usage.elapsed), (CpuId(1), secs(10)));
        assert_eq!(usage.residency, Some(vec![secs(0), secs(1), secs(0), secs(3)]));
        assert_eq!((usage.asleep, usage.busy), (secs(1), Some(secs(5))));
    }

    #[test]
    fn without_cpuidle_the_ticks_must_do_and_without_both_it_is_unknown() {
        let machine = FakeMachine::intel_server(1);
        machine.remove("sys/devices/system/cpu/cpu0/cpuidle");
        machine.write("proc/stat", "cpu0 0 0 0 0 0\n");
        let mut meter = UsageMeter::start(machine.root(), &"0".parse().unwrap(), at(0));
        machine.write("proc/stat", "cpu0 0 0 0 700 0\n");
        let usage = meter.read(at(10)).remove(0);
        assert_eq!((usage.busy, usage.residency), (Some(secs(3)), None));
        // It is held open, so removing it would take nothing away.
        machine.write("proc/stat", "");
        let usage = meter.read(at(10)).remove(0);
        assert_eq!(usage.busy, None, "missing, not zero");
    }

    #[test]
    fn a_cpu_that_is_offline_is_neither_busy_nor_idle() {
        let machine = FakeMachine::intel_server(2);
        machine.write("proc/stat", "cpu0 0 0 0 100 0 0\ncpu1 0 0 0 100 0 0\n");
        let mut meter = UsageMeter::start(machine.root(), &"0-1".parse().unwrap(), at(0));
        machine.write("proc/stat", "cpu0 0 0 0 600 0 0\n");
        let usage = meter.read(at(10));
        assert_eq!(usage[0].busy, Some(secs(5)));
        assert_eq!((usage[1].busy, usage[1].residency.clone()), (None, None), "its files are there still");
        machine.write("proc/stat", "cpu0 0 0 0 1100 0 0\ncpu1 0 0 0 100 0 0\n");
        assert!(meter.read(at(20))[1].busy.is_some());
    }

    #[test]
    fn this_machines_time_adds_up() {
        let cpus = crate::allowed_cpus().unwrap();
        let mut meter = UsageMeter::start(&Root::system(), &cpus, crate::now());
        let mut sum = 0u64;
        for number in 0..20_000_000u64 {
            sum = std::hint::black_box(sum.wrapping_add(number));
        }
        for usage in meter.read(crate::now()) {
            let idle: Duration = usage.residency.iter().flatten().copied().sum();
            let known = idle + usage.asleep + usage.busy.unwrap_or_default();
            assert!(known <= usage.elapsed + secs(1), "{usage:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "(cpu)?[0-9 a-z\n-]{0,80}", ticks in any::<u64>()) {
            parse_idle_times(&text, ticks);
        }

        #[test]
        fn nothing_is_counted_twice(
            elapsed in 0u64..1_000_000, states in proptest::collection::vec(0u64..500_000, 0..5), idle in 0u64..1_000_000,
        ) {
            let states: Vec<Duration> = states.into_iter().map(Duration::from_millis).collect();
            let (elapsed, idle) = (Duration::from_millis(elapsed), Duration::from_millis(idle));
            let ended: Duration = states.iter().copied().sum();
            let usage = account(CpuId(0), elapsed, Some(states), Some(idle));
            let slept = ended + usage.asleep;
            prop_assert!(slept >= ended.max(idle) - Duration::from_millis(20));
            prop_assert_eq!(usage.busy, Some(elapsed - slept));
        }
    }
}
