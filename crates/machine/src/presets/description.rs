//! One machine as its file describes it, and the platform derived from it.

use crate::{
    ClockDomain, Cstate, CstateKind, CstateTable, Duration, FrequencyTable, Kilohertz, Microwatts,
    OperatingPoint, PackageState, Platform, PointKind, PowerModel, TurboBin, UncoreClock, Waking,
};
use serde::Deserialize;

/// A file's keys: the cores of a socket, the threads of a core, idle states from shallow to deep.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    #[serde(skip)]
    pub name: String,
    /// The words of `/proc/cpuinfo`'s model name that tell this machine, in small letters; empty if
    /// none does.
    #[serde(default)]
    pub mark: String,
    /// The paper that ran on it.
    pub paper: Option<String>,
    sockets: u16,
    cores: u16,
    threads: u16,
    megahertz: Clocks,
    /// Turbo clocks as the vendor's table has them: up to so many awake cores, MHz. Empty:
    /// estimated from the turbo clock.
    #[serde(default)]
    turbo_bins: Vec<(u16, u64)>,
    /// Thermal design power of a socket.
    tdp_watts: u64,
    /// One core that executes at the base clock.
    active_watts: f64,
    cstates: Vec<State>,
    points: Points,
    domain: ClockDomain,
    /// Power of polling, as a share of that of work.
    #[serde(default = "crate::platform::poll_share")]
    poll_share: f64,
    /// How the energy of waking is settled.
    #[serde(default)]
    waking: Waking,
    /// From a request for a clock until it is in effect.
    #[serde(with = "crate::duration_text")]
    delay: Duration,
    uncore: Uncore,
    /// Its clocks in MHz, and that which follows them; none: it cannot be set.
    uncore_clock: Option<UncoreClocks>,
    /// Of the rest of the server; none: by the rule of the module above.
    rest_watts: Option<f64>,
    sources: Sources,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct UncoreClocks {
    slowest: u64,
    fastest: u64,
    power_share: f64,
    time_share: f64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Clocks {
    slowest: u64,
    base: u64,
    turbo: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    name: String,
    #[serde(with = "crate::duration_text")]
    exit_latency: Duration,
    /// The measured wake-up latency, where there is one.
    #[serde(default, with = "crate::duration_text::optional")]
    measured: Option<Duration>,
    #[serde(with = "crate::duration_text")]
    target_residency: Duration,
    watts: f64,
}

/// The origin of a core's operating points.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Points {
    /// P-states from the slowest to the base clock, 100 MHz apart, with the power of the law in the
    /// module above.
    Law,
    /// P-states as published, fast to slow: MHz and mV. Power is `leak` x V + `dynamic` x V^2 x
    /// GHz.
    Published { leak: f64, dynamic: f64, points: Vec<(u64, u64)> },
    /// Duty-cycle steps, slow to fast, in MHz: power linear in the clock.
    DutyCycle(Vec<u64>),
}

/// Power of a socket beside its cores: awake, and asleep if it can sleep, which it may from the
/// deepest core state on.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Uncore {
    /// A share of the thermal design power, and asleep a share of that.
    OfTdp {
        percent: u64,
        asleep_percent: Option<u64>,
    },
    Watts {
        awake: f64,
        asleep: Option<f64>,
    },
}

/// The sources of the figures, a line each; empty where there is nothing to say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sources {
    idle: String,
    active: String,
    asleep: String,
    #[serde(default = "polls_as_work")]
    polling: String,
    points: String,
    changes: String,
    uncore: String,
    #[serde(default)]
    uncore_clock: String,
    package: String,
    rest: String,
    #[serde(default)]
    notes: Vec<String>,
}

impl Description {
    /// The table that live runs are charged by.
    pub fn model(&self) -> PowerModel {
        self.platform().power_model()
    }

    pub fn platform(&self) -> Platform {
        let (uncore, asleep) = self.uncore();
        let full = u64::from(self.sockets) * (u64::from(self.cores) * self.active().0 + uncore.0);
        // In whole milliwatts, since it is an ESTIMATE.
        let rest = Microwatts(full * 22 / 78 / 1000 * 1000);
        Platform {
            name: self.name.clone(),
            sockets: self.sockets,
            cores_per_socket: self.cores,
            threads_per_core: self.threads,
            shared_thread_speed: SHARED_THREAD_SPEED,
            cstates: CstateTable(self.cstates()),
            package: asleep.map(|power| PackageState {
                from_state: self.cstates.len() as u8 - 1,
                power,
                exit_latency: Duration::ZERO,
            }),
            frequencies: FrequencyTable {
                points: self.points(),
                domain: self.domain,
                delay: self.delay,
                stall: Duration::ZERO,
            },
            turbo: Vec::new(),
            poll_share: self.poll_share,
            waking: self.waking,
            uncore,
            uncore_clock: self.uncore_clock.map(|clocks| UncoreClock {
                slowest: Kilohertz(clocks.slowest * 1000),
                fastest: Kilohertz(clocks.fastest * 1000),
                power_share: clocks.power_share,
                time_share: clocks.time_share,
            }),
            memory_slowness: 1.0,
            cap: None,
            warming: 0.0,
            rest: self.rest_watts.map_or(rest, Microwatts::from_watts),
            sources: self.sources(),
        }
    }

    /// Turbo bins; none where the turbo clock is the base clock.
    pub fn turbo(&self) -> Vec<TurboBin> {
        let Clocks { base, turbo, .. } = self.megahertz;
        if turbo <= base {
            return Vec::new();
        }
        // Whole hundreds, as processors count them.
        let part = |thirds: u64| base + (turbo - base) * thirds / 3 / 100 * 100;
        let bin = |cores: u16, megahertz: u64| TurboBin {
            cores,
            frequency: Kilohertz(megahertz * 1000),
            power: self.law(megahertz),
        };
        if !self.turbo_bins.is_empty() {
            return self.turbo_bins.iter().map(|&(cores, megahertz)| bin(cores, megahertz)).collect();
        }
        let mut bins = vec![bin(2, turbo), bin(self.cores / 2, part(2)), bin(self.cores, part(1))];
        bins.dedup_by(|later, earlier| later.cores <= earlier.cores);
        bins
    }

    fn active(&self) -> Microwatts {
        Microwatts::from_watts(self.active_watts)
    }

    /// Awake, and asleep if it can sleep.
    fn uncore(&self) -> (Microwatts, Option<Microwatts>) {
        match self.uncore {
            Uncore::OfTdp { percent, asleep_percent } => {
                let awake = self.tdp_watts * percent * 10_000;
                (Microwatts(awake), asleep_percent.map(|percent| Microwatts(awake * percent / 100)))
            }
            Uncore::Watts { awake, asleep } => {
                (Microwatts::from_watts(awake), asleep.map(Microwatts::from_watts))
            }
        }
    }

    fn cstates(&self) -> Vec<Cstate> {
        let states = self.cstates.iter().map(|state| Cstate {
            name: state.name.clone(),
            kind: CstateKind::Halting,
            exit_latency: state.exit_latency,
            true_exit_latency: state.measured,
            entry_latency: None,
            target_residency: state.target_residency,
            power: Some(Microwatts::from_watts(state.watts)),
        });
        states.collect()
    }

    fn points(&self) -> Vec<OperatingPoint> {
        let point = |megahertz: u64, power, kind| OperatingPoint {
            frequency: Kilohertz(megahertz * 1000),
            power,
            kind,
        };
        match &self.points {
            Points::Law => {
                let Clocks { slowest, base, .. } = self.megahertz;
                let mut clocks: Vec<u64> =
                    (0..).map_while(|n| base.checked_sub(100 * n)).take_while(|f| *f > slowest).collect();
                clocks.push(slowest);
                clocks.iter().rev().map(|f| point(*f, self.law(*f), PointKind::Pstate)).collect()
            }
            Points::Published { leak, dynamic, points } => {
                let power = |(megahertz, millivolts): (u64, u64)| {
                    let (gigahertz, volts) = (megahertz as f64 / 1e3, millivolts as f64 / 1e3);
                    Microwatts::from_watts(leak * volts + dynamic * volts * volts * gigahertz)
                };
                points.iter().rev().map(|row| point(row.0, power(*row), PointKind::Pstate)).collect()
            }
            Points::DutyCycle(clocks) => {
                let power = |f: u64| Microwatts(self.active().0 * f / clocks[clocks.len() - 1]);
                clocks.iter().map(|f| point(*f, power(*f), PointKind::DutyCycle)).collect()
            }
        }
    }

    /// Power of a core at this clock.
    fn law(&self, megahertz: u64) -> Microwatts {
        let Clocks { slowest, base, turbo } = self.megahertz;
        let volts = |f: u64| {
            // One clock, one voltage.
            let span = (turbo - slowest).max(1) as f64;
            VOLTS_SLOWEST + (VOLTS_TURBO - VOLTS_SLOWEST) * (f as f64 - slowest as f64) / span
        };
        let volts = volts(megahertz) / volts(base);
        let share = LEAK_SHARE * volts + (1.0 - LEAK_SHARE) * volts * volts * megahertz as f64 / base as f64;
        let watts = self.active_watts * share;
        // A core that executes takes no less than one that is halted at the base clock's voltage.
        Microwatts::from_watts(watts).max(Microwatts::from_watts(self.cstates[0].watts))
    }

    fn waking_source(&self) -> &'static str {
        match self.waking {
            Waking::BreakEven => "waking: breaks even at the target residencies of the idle table [K]",
            Waking::FullPower => {
                "waking: as work for the whole exit latency, since firmware gives no target residency \
                 and Linux takes twice the latency [K]"
            }
        }
    }

    fn sources(&self) -> Vec<String> {
        let Sources {
            idle,
            active,
            asleep,
            polling,
            points,
            changes,
            uncore,
            uncore_clock,
            package,
            rest,
            notes,
        } = &self.sources;
        let mut lines =
            vec![idle.as_str(), active, asleep, polling, self.waking_source(), points, changes, uncore];
        lines.push(uncore_clock);
        if self.uncore().1.is_some() {
            lines.push(package);
        }
        lines.push(rest);
        if self.threads > 1 {
            lines.push("hyperthreads: two of a core do 1.3 times the work of one: ESTIMATE");
        }
        if self.megahertz.turbo > self.megahertz.base {
            lines.push(if self.turbo_bins.is_empty() {
                "turbo: off unless asked for; its clock [R], its bins and power ESTIMATE"
            } else {
                "turbo: off unless asked for; its bins [R vendor's table], their power ESTIMATE"
            });
        }
        lines.extend(notes.iter().map(String::as_str));
        lines.retain(|line| !line.is_empty());
        let tdp = format!("TDP {} W [R]", self.tdp_watts);
        lines.into_iter().map(|line| line.replace("TDP [R]", &tdp)).collect()
    }
}

fn polls_as_work() -> String {
    "polling: the power of work: ESTIMATE".to_owned()
}

/// Of the slowest and the turbo clock: ESTIMATE, where voltages are not published.
const VOLTS_SLOWEST: f64 = 0.70;
const VOLTS_TURBO: f64 = 1.0;
/// Share of a core's power at the base clock that goes by voltage alone: ESTIMATE.
const LEAK_SHARE: f64 = 0.15;
/// As the default of a platform: ESTIMATE.
const SHARED_THREAD_SPEED: f64 = 0.65;

#[cfg(test)]
mod tests {
    use super::super::{FILES, KINDS, MACHINES, table};
    use super::*;
    use std::path::Path;
    use toml::Value;

    #[test]
    fn every_file_is_listed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("presets");
        let count = |folder: &Path| {
            let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
            files.filter(|path| path.extension().is_some_and(|end| end == "toml")).count()
        };
        assert_eq!(count(&folder), FILES.len());
        assert_eq!(count(&folder.join("kinds")), KINDS.len());
    }

    #[test]
    fn every_figure_has_a_source() {
        for Description { name, sources, .. } in MACHINES.iter() {
            let machine = Platform::by_name(name).unwrap();
            let Sources { idle, active, asleep, polling, points, changes, uncore, package, rest, .. } =
                sources;
            for source in [idle, active, asleep, polling, points, uncore] {
                assert!(!source.is_empty(), "{name}");
            }
            assert_eq!(machine.poll_share == 1.0, *polling == polls_as_work(), "{name}");
            assert_eq!(sources.uncore_clock.is_empty(), machine.uncore_clock.is_none(), "{name}");
            // One operating point never changes.
            assert!(!changes.is_empty() || machine.frequencies.points.len() == 1, "{name}");
            assert!(!package.is_empty() || machine.package.is_none(), "{name}");
            let rest_has_one = !rest.is_empty() || package.starts_with("package state and rest:");
            assert!(rest_has_one || machine.rest == Microwatts(0), "{name}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        let refused = |change: fn(&mut toml::Table)| {
            let mut keys = table("ivybridge-ep-12");
            change(&mut keys);
            let error = keys.try_into::<Description>().err().expect("refused").to_string();
            assert!(error.contains("`colour`"), "{error}");
        };
        fn add(keys: &mut Value) {
            keys.as_table_mut().unwrap().insert("colour".to_owned(), "blue".into());
        }
        refused(|keys| drop(keys.insert("colour".to_owned(), "blue".into())));
        refused(|keys| add(&mut keys["megahertz"]));
        refused(|keys| add(&mut keys["cstates"][0]));
        refused(|keys| add(&mut keys["points"]["published"]));
        refused(|keys| add(&mut keys["uncore"]["watts"]));
        refused(|keys| add(&mut keys["sources"]));
    }
}
