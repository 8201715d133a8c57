//! A whole server as a table: its cores, their idle states and frequencies, and the power of all of
//! it.
//!
//! A [`Platform`] describes a machine; how its cores behave is the simulator's business, or
//! Linux's. It is plain data that a scenario may write out in full, or name a preset and override a
//! key of it.
//!
//! Terms. A *operating point* is one clock setting: a P-state (lower voltage with lower frequency)
//! or a step of duty-cycle modulation (the clock is stopped for part of the time, the voltage
//! stays). A *clock domain* is a set of cores that share one clock. *Exit latency* is as Linux
//! means it; see [`Cstate`](crate::Cstate).
//!
//! [`Platform::check`] guarantees the rest to every later reader. A platform has at least one core,
//! operating point and idle state. Operating points rise in frequency and do not fall in power.
//! Idle states rise in exit latency and do not rise in power, and none has a target residency below
//! its exit latency. No state takes more power than the slowest operating point at work. Polling
//! takes no more than work.

use crate::{CstateKind, CstateTable, Duration, Kilohertz, Microwatts, PowerModel, Waking};
use serde::{Deserialize, Serialize};

/// How an operating point slows the core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PointKind {
    #[default]
    Pstate,
    /// Frequency alone: power is linear in it at best.
    DutyCycle,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatingPoint {
    pub frequency: Kilohertz,
    /// Power of one core that executes in it.
    pub power: Microwatts,
    #[serde(default)]
    pub kind: PointKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockDomain {
    #[default]
    Core,
    /// All of a socket; the fastest request wins.
    Socket,
}

/// The operating points of a core and the cost of a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrequencyTable {
    /// Slow to fast; the last is the nominal frequency, which service times are stated at.
    pub points: Vec<OperatingPoint>,
    #[serde(default)]
    pub domain: ClockDomain,
    /// From the request until the new frequency is in effect; the core runs on at the old one.
    #[serde(with = "crate::duration_text")]
    pub delay: Duration,
    /// How long the core stands still when the change takes effect.
    #[serde(with = "crate::duration_text")]
    pub stall: Duration,
}

impl FrequencyTable {
    pub fn nominal(&self) -> Kilohertz {
        self.points.last().map_or(Kilohertz(1), |point| point.frequency)
    }
}

/// A sleep of a whole socket, possible while all its cores sleep at least as deep as `from_state`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageState {
    /// The shallowest core state (place in the table) that all cores must be in.
    pub from_state: u8,
    pub power: Microwatts,
    /// The wake-up's cost in addition to the core's own exit latency.
    #[serde(with = "crate::duration_text")]
    pub exit_latency: Duration,
}

/// The clock that a core in the fastest operating point really gets while at most `cores` of its
/// socket are awake.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurboBin {
    /// Up to so many cores awake.
    pub cores: u16,
    pub frequency: Kilohertz,
    /// Power of one core that executes at it.
    pub power: Microwatts,
}

/// A bound on a socket's mean power, as the first limit of Intel's RAPL sets one (PL1; Intel 64 and
/// IA-32 Software Developer's Manual, volume 3, "Package RAPL Domain"): the clock falls until the
/// mean is at the bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerCap {
    pub power: Microwatts,
    /// The time constant of the exponential mean that is bounded.
    #[serde(with = "crate::duration_text")]
    pub window: Duration,
}

/// The clock of a socket's uncore, and that which follows it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UncoreClock {
    pub slowest: Kilohertz,
    /// At which the table's power and the requests' memory time hold.
    pub fastest: Kilohertz,
    /// Share of the uncore's power that goes down with the clock, in proportion.
    pub power_share: f64,
    /// Share of memory time that is spent in the uncore: it grows as the clock falls. The rest is the
    /// memory's own.
    pub time_share: f64,
}

impl UncoreClock {
    /// The power at this clock, as a share of that at the fastest.
    pub fn power(&self, clock: Kilohertz) -> f64 {
        1.0 - self.power_share + self.power_share * clock.0 as f64 / self.fastest.0 as f64
    }

    /// The clocks that can be set, slow to fast: steps of 100 MHz, as Intel's.
    pub fn clocks(&self) -> Vec<Kilohertz> {
        let steps = (self.slowest.0..self.fastest.0).step_by(100_000).map(Kilohertz);
        steps.chain([self.fastest]).collect()
    }

    /// The memory time at this clock, as a multiple of that at the fastest.
    pub fn slowness(&self, clock: Kilohertz) -> f64 {
        1.0 - self.time_share + self.time_share * self.fastest.0 as f64 / clock.0 as f64
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    /// As printed beside every figure that comes of it.
    pub name: String,
    pub sockets: u16,
    pub cores_per_socket: u16,
    /// Hyperthreads of a core; they share its clock and its sleep.
    pub threads_per_core: u16,
    /// A thread's speed while its sibling works too, relative to running alone.
    #[serde(default = "shared_thread_speed")]
    pub shared_thread_speed: f64,
    /// Idle states of a core, shallow to deep. Polling is none of them: it is a core that works on
    /// nothing.
    pub cstates: CstateTable,
    /// A sleep of the whole socket, if it has one.
    #[serde(default)]
    pub package: Option<PackageState>,
    pub frequencies: FrequencyTable,
    /// Faster than nominal while few cores are awake; by number of cores. Empty: turbo is off.
    #[serde(default)]
    pub turbo: Vec<TurboBin>,
    /// Power of a core that polls, as a share of its power at work in the same operating point.
    #[serde(default = "poll_share")]
    pub poll_share: f64,
    /// How the energy of waking is settled.
    #[serde(default)]
    pub waking: Waking,
    /// Power of a socket beside its cores, while any core of it is awake or it has no package
    /// state.
    pub uncore: Microwatts,
    /// The uncore's clock, where it can be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncore_clock: Option<UncoreClock>,
    /// Memory time as a multiple of that of the requests' description; 1 at the uncore's fastest clock.
    #[serde(default = "as_described", skip_serializing_if = "is_as_described")]
    pub memory_slowness: f64,
    /// The bound on each socket's power; none if nothing limits it.
    #[serde(default)]
    pub cap: Option<PowerCap>,
    /// Leakage: warm silicon takes more. A socket whose tables add up to D watts more than it takes
    /// asleep draws D / (1 - warming D) more, so this is the share by which each watt drawn raises
    /// the power of all of them. From 0, for tables that hold at each temperature.
    #[serde(default)]
    pub warming: f64,
    /// Power of the rest of the server, always.
    pub rest: Microwatts,
    /// The source of each figure: papers, kernel tables, or the word ESTIMATE. Printed with the
    /// results.
    #[serde(default)]
    pub sources: Vec<String>,
}

/// So many idle states a governor's table has room for.
const CSTATES: usize = 12;

fn shared_thread_speed() -> f64 {
    // Two threads of a core do about 1.3 times the work of one: ESTIMATE, of the size that vendors
    // state.
    0.65
}

fn as_described() -> f64 {
    1.0
}

fn is_as_described(slowness: &f64) -> bool {
    *slowness == 1.0
}

/// As work, where nothing is known of a machine.
pub(crate) fn poll_share() -> f64 {
    1.0
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("machine `{name}`: {key}: {problem}\n\nhint: {fix}")]
pub struct PlatformError {
    pub name: String,
    pub key: String,
    pub problem: String,
    pub fix: String,
}

impl Platform {
    pub fn cpus(&self) -> usize {
        usize::from(self.sockets) * usize::from(self.cores_per_socket) * usize::from(self.threads_per_core)
    }

    /// The power table that live runs on such a machine are charged by.
    pub fn power_model(&self) -> PowerModel {
        let active = self.frequencies.points.last().map_or(Microwatts(0), |point| point.power);
        let polling = Microwatts::from_watts(active.as_watts() * self.poll_share);
        let idle = self.cstates.0.clone();
        PowerModel { name: self.name.clone(), active, polling: Some(polling), idle }
    }

    /// The same machine with its uncore at this clock; `None` where that cannot be set so. A socket that
    /// sleeps takes the same as before, but no more than its uncore awake.
    pub fn with_uncore_at(mut self, clock: Kilohertz) -> Option<Self> {
        let of = self.uncore_clock.filter(|of| (of.slowest..=of.fastest).contains(&clock))?;
        self.uncore = Microwatts::from_watts(self.uncore.as_watts() * of.power(clock));
        self.memory_slowness = of.slowness(clock);
        if let Some(package) = &mut self.package {
            package.power = package.power.min(self.uncore);
        }
        Some(self)
    }

    /// Watts of a socket that sleeps as a whole; its uncore's if it cannot.
    pub fn asleep_watts(&self) -> f64 {
        self.package.map_or(self.uncore, |package| package.power).as_watts()
    }

    /// The most watts that the tables allow one socket beyond those of its sleep.
    fn most_beyond_sleep(&self) -> f64 {
        let points = self.frequencies.points.iter().map(|point| point.power);
        let core = points.chain(self.turbo.iter().map(|bin| bin.power)).max().unwrap_or(Microwatts(0));
        core.as_watts() * f64::from(self.cores_per_socket) + self.uncore.as_watts() - self.asleep_watts()
    }

    /// The factor on a socket's power beyond its sleep, which comes to so many watts by the tables:
    /// the warmth of [`Platform::warming`] added up, 1 + wD + (wD)^2 + ... = 1 / (1 - wD).
    pub fn warmth(&self, beyond_sleep_watts: f64) -> f64 {
        1.0 / (1.0 - self.warming * beyond_sleep_watts)
    }

    /// Everything that the module's header promises, or the first thing that does not hold.
    pub fn check(&self) -> Result<(), PlatformError> {
        let wrong = |key: &str, problem: String, fix: &str| {
            Err(PlatformError { name: self.name.clone(), key: key.to_owned(), problem, fix: fix.to_owned() })
        };
        if self.cpus() == 0 {
            return wrong(
                "cores",
                "there are none".into(),
                "give sockets, cores_per_socket and threads_per_core",
            );
        }
        if !(self.shared_thread_speed > 0.0 && self.shared_thread_speed <= 1.0) {
            let problem = format!("{} is no share of a thread's speed", self.shared_thread_speed);
            return wrong("shared_thread_speed", problem, "give a number above 0 and up to 1");
        }
        if !(self.poll_share > 0.0 && self.poll_share <= 1.0) {
            let problem = format!("{} is no share of the power of work", self.poll_share);
            return wrong("poll_share", problem, "give a number above 0 and up to 1");
        }
        let points = &self.frequencies.points;
        if points.is_empty() || points[0].frequency.0 == 0 || points[0].power.0 == 0 {
            return wrong(
                "frequencies.points",
                "empty or zero".into(),
                "give at least one operating point: { frequency, power }",
            );
        }
        for pair in points.windows(2) {
            if pair[1].frequency <= pair[0].frequency || pair[1].power < pair[0].power {
                let problem =
                    format!("{} kHz does not follow {} kHz", pair[1].frequency.0, pair[0].frequency.0);
                return wrong(
                    "frequencies.points",
                    problem,
                    "list operating points from slow to fast, power never falling",
                );
            }
        }
        if self.cstates.0.is_empty() {
            return wrong("cstates", "there are none".into(), "give at least C1");
        }
        if self.cstates.0.len() > CSTATES {
            let problem = format!("{} states", self.cstates.0.len());
            return wrong("cstates", problem, "list at most 12, those that the machine really enters");
        }
        let mut above = (Duration::ZERO, points[0].power, "the slowest operating point");
        let mut residency = Duration::ZERO;
        for state in &self.cstates.0 {
            let Some(power) = state.power else {
                return wrong(
                    "cstates",
                    format!("{} has no power", state.name),
                    "give its power in microwatts",
                );
            };
            if state.exit_latency < above.0 || power > above.1 {
                let problem = format!("{} wakes faster or takes more power than {}", state.name, above.2);
                return wrong(
                    "cstates",
                    problem,
                    "list states from shallow to deep: exit latency rises, power falls",
                );
            }
            if state.kind == CstateKind::Polling {
                let problem = format!("{} polls", state.name);
                return wrong("cstates", problem, "leave polling states out: spinning is work, not sleep");
            }
            if state.target_residency < state.exit_latency {
                let problem = format!("{}: target residency is below its exit latency", state.name);
                return wrong(
                    "cstates",
                    problem,
                    "a sleep cannot pay before it can be left: raise target_residency",
                );
            }
            if state.target_residency < residency {
                let problem = format!("{}: target residency falls with depth", state.name);
                return wrong(
                    "cstates",
                    problem,
                    "a deeper state pays in longer sleeps only: raise target_residency",
                );
            }
            residency = state.target_residency;
            above = (state.exit_latency, power, &state.name);
        }
        if let Some(package) = &self.package {
            if usize::from(package.from_state) >= self.cstates.0.len() {
                let problem = format!("from_state {} is not in cstates", package.from_state);
                return wrong("package", problem, "name the place of a core state, counted from 0");
            }
            if package.power > self.uncore {
                return wrong(
                    "package",
                    "takes more power than the uncore awake".into(),
                    "lower package.power",
                );
            }
        }
        if let Some(cap) = &self.cap {
            if cap.power <= self.uncore {
                let problem = format!(
                    "{} W are no more than the socket takes beside its cores ({} W)",
                    cap.power.as_watts(),
                    self.uncore.as_watts()
                );
                return wrong("cap.watts", problem, "raise it: only cores can be slowed down");
            }
            if cap.window.is_zero() {
                return wrong("cap.window", "0".into(), "give the time of the mean, such as 1s");
            }
        }
        let most = self.most_beyond_sleep();
        if !(self.warming >= 0.0 && self.warming * most < 0.9) {
            let problem =
                format!("{} a watt: at {most:.1} W beyond sleep the heat would feed itself", self.warming);
            return wrong("warming", problem, "give a small share, such as 0.003, or 0 for none");
        }
        for pair in self.turbo.windows(2) {
            if pair[1].cores <= pair[0].cores || pair[1].frequency > pair[0].frequency {
                return wrong("turbo", "bins are out of order".into(), "more cores awake, less clock");
            }
        }
        Ok(())
    }
}
