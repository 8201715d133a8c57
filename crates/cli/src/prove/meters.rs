//! All meters of the machine, read at regular times by threads of their own.
//!
//! ```text
//!   RAPL, or the model -+                       +-- watts of each, mean of a block
//!   hwmon sensors ------+--> samples by time ---+
//!   commands, a thread -+                       +-- busy and awake CPUs
//!   each                |
//!   use of the CPUs ----+
//! ```
//!
//! Counters are compared at the first and the last sample of the part of a block that counts, by
//! the samples' own times. Sensors give the mean of their samples there. A meter without two
//! samples there is missing in that block.

use crate::command_meter::CommandMeter;
use linux::{EnergyMeter, PowerSensor, Root, UsageMeter};
use machine::{CpuList, CstateKind, Duration, EnergySource, Instant};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Samples of one quantity: a counter in units, or a level.
#[derive(Debug, Default)]
struct Track {
    samples: Vec<(Instant, f64)>,
}

impl Track {
    fn within(&self, begin: Instant, end: Instant) -> impl Iterator<Item = (Instant, f64)> + Clone + '_ {
        self.samples.iter().copied().filter(move |(at, _)| (begin..=end).contains(at))
    }

    /// Growth per second of a counter.
    fn growth(&self, begin: Instant, end: Instant) -> Option<f64> {
        let mut within = self.within(begin, end);
        let (first, last) = (within.next()?, within.last()?);
        Some((last.1 - first.1) / last.0.since(first.0).as_secs_f64())
    }

    fn mean(&self, begin: Instant, end: Instant) -> Option<f64> {
        let within = self.within(begin, end);
        let count = within.clone().count();
        (count > 0).then(|| within.map(|(_, value)| value).sum::<f64>() / count as f64)
    }
}

#[derive(Debug, Default)]
struct Tracks {
    joules: Track,
    busy_s: Track,
    awake_s: Track,
    sensors: Vec<Track>,
    commands: Vec<Track>,
    /// Why a command's last reading was none, if so.
    failures: Vec<Option<String>>,
}

/// A meter of power and how it knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct MeterName {
    pub name: String,
    pub source: EnergySource,
}

/// The part of a block that counts, as the meters saw it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// In the order of the meters.
    pub watts: Vec<Option<f64>>,
    /// Why a command has none, by the name of the meter.
    pub missing: BTreeMap<String, String>,
    pub busy_cpus: Option<f64>,
    pub awake_cpus: Option<f64>,
}

pub struct Meters {
    names: Vec<MeterName>,
    /// The energy counter comes before the sensors.
    counts_first: bool,
    /// How the energy is known, for people.
    describes: Vec<String>,
    tracks: Arc<Mutex<Tracks>>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Meters {
    /// Begins to read all of them this often: commands first among the names, since their owner
    /// named them, then RAPL, sensors, and the model where nothing else measures.
    pub fn open(root: &Root, cpus: &CpuList, commands: Vec<CommandMeter>, every: Duration) -> Self {
        let now = linux::now();
        let mut energy = EnergyMeter::open(root, cpus, now);
        let sensors = PowerSensor::all(root);
        let measured = |name: String| MeterName { source: EnergySource::Measured(name.clone()), name };
        let name = match energy.source() {
            EnergySource::Measured(name) => measured(name),
            EnergySource::Modelled(name) => {
                MeterName { name: name.clone(), source: EnergySource::Modelled(name) }
            }
        };
        let of_commands = commands.iter().map(|command| measured(command.name()));
        let of_sensors = sensors.iter().map(|sensor| measured(sensor.name.clone()));
        let counts_first = energy.is_measured();
        let names = if counts_first {
            of_commands.chain([name]).chain(of_sensors).collect()
        } else {
            of_commands.chain(of_sensors).chain([name]).collect()
        };
        let describes = energy.describe();
        let mut usage = UsageMeter::start(root, cpus, now);
        let tracks = Arc::new(Mutex::new(Tracks {
            sensors: sensors.iter().map(|_| Track::default()).collect(),
            commands: commands.iter().map(|_| Track::default()).collect(),
            failures: vec![None; commands.len()],
            ..Tracks::default()
        }));
        let over = Arc::new(AtomicBool::new(false));
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        for (at, command) in commands.into_iter().enumerate() {
            threads.push(repeat(every, &over, &tracks, move |tracks| {
                let read = command.read();
                let mut tracks = locked(tracks);
                tracks.failures[at] = read.as_ref().err().cloned();
                tracks.commands[at].samples.extend(read.ok().map(|watts| (linux::now(), watts)));
            }));
        }
        let root = root.clone();
        threads.push(repeat(every, &over, &tracks, move |tracks| {
            let now = linux::now();
            let used = energy.read(now).map(|reading| reading.used.0 as f64 / 1e6);
            let (busy, awake) = busy_and_awake(&mut usage, now);
            let levels: Vec<Option<f64>> =
                sensors.iter().map(|sensor| sensor.read(&root).map(|power| power.0 as f64 / 1e6)).collect();
            let mut tracks = locked(tracks);
            let push = |track: &mut Track, value: Option<f64>| {
                track.samples.extend(value.map(|value| (now, value)));
            };
            push(&mut tracks.joules, used);
            push(&mut tracks.busy_s, busy);
            push(&mut tracks.awake_s, awake);
            for (track, level) in tracks.sensors.iter_mut().zip(levels) {
                push(track, level);
            }
        }));
        Self { names, counts_first, describes, tracks, over, threads }
    }

    pub fn names(&self) -> &[MeterName] {
        &self.names
    }

    /// How the energy is known, a line each.
    pub fn describe(&self) -> &[String] {
        &self.describes
    }

    /// The means from `begin` to `end`; older samples are forgotten.
    pub fn take(&self, begin: Instant, end: Instant) -> Sample {
        let mut tracks = locked(&self.tracks);
        let commands: Vec<_> = tracks.commands.iter().map(|track| track.mean(begin, end)).collect();
        let sensors: Vec<_> = tracks.sensors.iter().map(|track| track.mean(begin, end)).collect();
        let late = || "no reading of it ended in the part that counts".to_owned();
        let missing = self.names.iter().zip(commands.iter().zip(&tracks.failures));
        let missing = missing.filter(|(_, (mean, _))| mean.is_none());
        let missing =
            missing.map(|(name, (_, why))| (name.name.clone(), why.clone().unwrap_or_else(late))).collect();
        let counted = tracks.joules.growth(begin, end);
        let watts = if self.counts_first {
            commands.into_iter().chain([counted]).chain(sensors).collect()
        } else {
            commands.into_iter().chain(sensors).chain([counted]).collect()
        };
        let sample = Sample {
            watts,
            missing,
            busy_cpus: tracks.busy_s.growth(begin, end),
            awake_cpus: tracks.awake_s.growth(begin, end),
        };
        let Tracks { joules, busy_s, awake_s, sensors, commands, .. } = &mut *tracks;
        for track in [joules, busy_s, awake_s].into_iter().chain(sensors).chain(commands) {
            track.samples.retain(|(at, _)| *at > end);
        }
        sample
    }
}

impl Drop for Meters {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn locked(tracks: &Mutex<Tracks>) -> std::sync::MutexGuard<'_, Tracks> {
    tracks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that does `read` this often until it is over.
fn repeat(
    every: Duration,
    over: &Arc<AtomicBool>,
    tracks: &Arc<Mutex<Tracks>>,
    mut read: impl FnMut(&Mutex<Tracks>) + Send + 'static,
) -> JoinHandle<()> {
    let (over, tracks) = (Arc::clone(over), Arc::clone(tracks));
    std::thread::spawn(move || {
        let mut due = linux::now();
        while !over.load(Ordering::Relaxed) {
            read(&tracks);
            due = (due + every).max(linux::now());
            std::thread::park_timeout(due.since(linux::now()).into());
        }
    })
}

/// CPU seconds of work, and of all but sleep in a state that halts, since the meter began. `None`
/// while any CPU does not say.
fn busy_and_awake(usage: &mut UsageMeter, now: Instant) -> (Option<f64>, Option<f64>) {
    let used = usage.read(now);
    let busy = used.iter().map(|cpu| cpu.busy.map(Duration::as_secs_f64)).sum::<Option<f64>>();
    let tables = usage.tables().map(|(_, table)| table);
    let awake = used.iter().zip(tables).map(|(cpu, table)| {
        let polling = cpu.residency.iter().flatten().zip(&table.0);
        let polling = polling.filter(|(_, state)| state.kind != CstateKind::Halting);
        let polling: f64 = polling.map(|(time, _)| time.as_secs_f64()).sum();
        Some(cpu.busy?.as_secs_f64() + polling)
    });
    (busy, awake.sum::<Option<f64>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Instant {
        Instant::from_nanos(secs * 1_000_000_000)
    }

    #[test]
    fn counters_grow_between_samples_and_levels_are_means() {
        let track = Track { samples: (0..10).map(|second| (at(second), 3.0 * second as f64)).collect() };
        assert_eq!(track.growth(at(2), at(7)), Some(3.0));
        assert_eq!(track.mean(at(2), at(4)), Some(9.0));
        assert_eq!(track.growth(at(2), at(2)), None, "one sample is no growth");
        assert_eq!(track.mean(at(20), at(30)), None);
    }

    #[test]
    fn every_meter_of_the_machine_has_its_watts() {
        let (command, _) = CommandMeter::open("echo 42").unwrap();
        let cpus = linux::allowed_cpus().unwrap();
        let meters = Meters::open(&Root::system(), &cpus, vec![command], Duration::from_millis(20));
        assert_eq!(meters.names()[0].name, "echo 42");
        let begin = linux::now();
        std::thread::sleep(std::time::Duration::from_millis(800));
        let sample = meters.take(begin, linux::now());
        assert_eq!(sample.watts.len(), meters.names().len());
        assert_eq!(sample.watts[0], Some(42.0));
        assert!(sample.busy_cpus.is_some_and(|busy| busy <= cpus.0.len() as f64 + 0.1), "{sample:?}");
        assert_eq!(meters.take(begin, linux::now()).watts[0], None, "each sample counts once");
    }
}
