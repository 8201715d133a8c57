//! One machine as a row of a table, and the platform derived from it.

use crate::{
    ClockDomain, Cstate, CstateKind, CstateTable, Duration, FrequencyTable, Gear, GearKind, Kilohertz,
    Microwatts, PackageState, Platform, PowerModel, TurboBin,
};

pub(super) struct Row {
    pub name: &'static str,
    /// The words of `/proc/cpuinfo`'s model name that tell this machine, in small letters; empty if
    /// none does.
    pub mark: &'static str,
    pub sockets: u16,
    pub cores: u16,
    pub threads: u16,
    pub megahertz: [u64; 3],
    /// Thermal design power of a socket.
    pub tdp_watts: u64,
    /// One core that executes at the nominal clock.
    pub active_milliwatts: u64,
    pub states: &'static [State],
    pub gears: Gears,
    pub domain: ClockDomain,
    /// From a request for a clock until it is in effect.
    pub delay_us: u64,
    /// Of each socket, beside its cores.
    pub uncore: Uncore,
    /// Of the rest of the server; none: by the header's rule.
    pub rest_milliwatts: Option<u64>,
    pub sources: Sources,
}

/// Name, exit latency us, target residency us, measured wake-up latency us (0: not measured),
/// milliwatts.
pub(super) struct State(pub &'static str, pub u64, pub u64, pub u64, pub u64);

/// How a core's gears are made.
pub(super) enum Gears {
    /// P-states from the slowest to the base clock, 100 MHz apart, with the power of the header's
    /// law.
    Law,
    /// P-states as published, fast to slow: MHz and mV. Power is `leak` x V + `dynamic` x V^2 x
    /// GHz.
    Published { leak: f64, dynamic: f64, points: &'static [(u64, u64)] },
    /// Duty-cycle steps, slow to fast, in MHz: power linear in the clock.
    DutyCycle(&'static [u64]),
}

/// Power of a socket beside its cores: awake, and asleep if it can sleep, which it may from the
/// deepest core state on.
pub(super) enum Uncore {
    /// A share of the thermal design power, and asleep a share of that.
    OfTdp {
        percent: u64,
        asleep_percent: Option<u64>,
    },
    Milliwatts(u64, Option<u64>),
}

/// The sources of the figures, a line each; empty where there is nothing to say.
#[derive(Clone, Copy)]
pub(super) struct Sources {
    pub idle: &'static str,
    pub active: &'static str,
    pub asleep: &'static str,
    pub gears: &'static str,
    pub changes: &'static str,
    pub uncore: &'static str,
    pub package: &'static str,
    pub rest: &'static str,
    /// Remarks.
    pub notes: &'static [&'static str],
}

pub(super) const RULES: Sources = Sources {
    idle: "",
    active: "C0: (TDP [R] - 20 % uncore) / cores at the base clock: ESTIMATE",
    asleep: "idle power: C1 0.36 (AgileWatts' ratio [R]), C1E 0.22, C3 0.05, C6 0.025 of C0: ESTIMATE",
    gears: "gears: clocks [R]; V linear from 0.70 V (slowest) to 1.0 V (turbo), P = aV + bV^2 f, aV = 15 % \
            of C0 at base, none below C1: ESTIMATE",
    changes: "clock changes: decided on a grid of about 500 us, 21 to 524 us, here the middle [R \
              Haswell-EP to Skylake-SP]",
    uncore: "uncore: 20 % of TDP: ESTIMATE",
    package: "package state: 30 % of the uncore's power, which with its cores' makes the few dozen watts \
              of a sleeping socket [P CPU sleeps 1]; its wake-up is within the kernel's figure for the \
              deepest state: ESTIMATE",
    rest: "rest of the server: 22/78 of its processors' power at full load [P Tradeoffs I]: ESTIMATE for \
           this one",
    notes: &[],
};

/// A server by the header's rules, except for the particulars of its kind.
pub(super) const SERVER: Row = Row {
    name: "",
    mark: "",
    sockets: 2,
    cores: 0,
    threads: 2,
    megahertz: [0; 3],
    tdp_watts: 0,
    active_milliwatts: 0,
    states: &[],
    gears: Gears::Law,
    domain: ClockDomain::Core,
    delay_us: 270,
    uncore: Uncore::OfTdp { percent: 20, asleep_percent: Some(30) },
    rest_milliwatts: None,
    sources: RULES,
};

impl Row {
    /// The table that live runs are charged by.
    pub fn model(&self) -> PowerModel {
        self.platform().power_model()
    }

    pub fn platform(&self) -> Platform {
        let microwatts = |milliwatts: u64| Microwatts(milliwatts * 1000);
        let (uncore, asleep) = self.uncore_milliwatts();
        let full = u64::from(self.sockets) * (u64::from(self.cores) * self.active_milliwatts + uncore);
        Platform {
            name: self.name.to_owned(),
            sockets: self.sockets,
            cores_per_socket: self.cores,
            threads_per_core: self.threads,
            shared_thread_speed: SHARED_THREAD_SPEED,
            cstates: CstateTable(self.cstates()),
            package: asleep.map(|milliwatts| PackageState {
                from_state: self.states.len() as u8 - 1,
                power: microwatts(milliwatts),
                exit_latency: Duration::ZERO,
            }),
            frequencies: FrequencyTable {
                gears: self.gears(),
                domain: self.domain,
                delay: Duration::from_micros(self.delay_us),
                stall: Duration::ZERO,
            },
            turbo: Vec::new(),
            uncore: microwatts(uncore),
            rest: microwatts(self.rest_milliwatts.unwrap_or(full * 22 / 78)),
            sources: self.sources(),
        }
    }

    /// Turbo bins; none where the turbo clock is the base clock.
    pub fn turbo(&self) -> Vec<TurboBin> {
        let [_, base, turbo] = self.megahertz;
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
        let mut bins = vec![bin(2, turbo), bin(self.cores / 2, part(2)), bin(self.cores, part(1))];
        bins.dedup_by(|later, earlier| later.cores <= earlier.cores);
        bins
    }

    fn uncore_milliwatts(&self) -> (u64, Option<u64>) {
        match self.uncore {
            Uncore::OfTdp { percent, asleep_percent } => {
                let awake = self.tdp_watts * percent * 10;
                (awake, asleep_percent.map(|percent| awake * percent / 100))
            }
            Uncore::Milliwatts(awake, asleep) => (awake, asleep),
        }
    }

    fn cstates(&self) -> Vec<Cstate> {
        let states = self.states.iter().map(|&State(name, exit, residency, true_exit, milliwatts)| Cstate {
            name: name.to_owned(),
            kind: CstateKind::Halting,
            exit_latency: Duration::from_micros(exit),
            true_exit_latency: (true_exit > 0).then(|| Duration::from_micros(true_exit)),
            entry_latency: None,
            target_residency: Duration::from_micros(residency),
            power: Some(Microwatts(milliwatts * 1000)),
        });
        states.collect()
    }

    fn gears(&self) -> Vec<Gear> {
        let gear = |megahertz: u64, power, kind| Gear { frequency: Kilohertz(megahertz * 1000), power, kind };
        match self.gears {
            Gears::Law => {
                let [slowest, base, _] = self.megahertz;
                let mut clocks: Vec<u64> =
                    (0..).map_while(|n| base.checked_sub(100 * n)).take_while(|f| *f > slowest).collect();
                clocks.push(slowest);
                clocks.iter().rev().map(|f| gear(*f, self.law(*f), GearKind::Pstate)).collect()
            }
            Gears::Published { leak, dynamic, points } => {
                let power = |(megahertz, millivolts): (u64, u64)| {
                    let (gigahertz, volts) = (megahertz as f64 / 1e3, millivolts as f64 / 1e3);
                    Microwatts::from_watts(leak * volts + dynamic * volts * volts * gigahertz)
                };
                points.iter().rev().map(|point| gear(point.0, power(*point), GearKind::Pstate)).collect()
            }
            Gears::DutyCycle(clocks) => {
                let power = |f: u64| Microwatts(self.active_milliwatts * 1000 * f / clocks[clocks.len() - 1]);
                clocks.iter().map(|f| gear(*f, power(*f), GearKind::DutyCycle)).collect()
            }
        }
    }

    /// Power of a core at this clock.
    fn law(&self, megahertz: u64) -> Microwatts {
        let [slowest, base, turbo] = self.megahertz;
        let volts = |f: u64| {
            // One clock, one voltage.
            let span = (turbo - slowest).max(1) as f64;
            VOLTS_SLOWEST + (VOLTS_TURBO - VOLTS_SLOWEST) * (f as f64 - slowest as f64) / span
        };
        let volts = volts(megahertz) / volts(base);
        let share = LEAK_SHARE * volts + (1.0 - LEAK_SHARE) * volts * volts * megahertz as f64 / base as f64;
        let watts = self.active_milliwatts as f64 / 1e3 * share;
        // A core that executes takes no less than one that is halted at the base clock's voltage.
        Microwatts::from_watts(watts).max(Microwatts(self.states[0].4 * 1000))
    }

    fn sources(&self) -> Vec<String> {
        let Sources { idle, active, asleep, gears, changes, uncore, package, rest, notes } = self.sources;
        let mut lines = vec![idle, active, asleep, gears, changes, uncore, package, rest];
        if self.uncore_milliwatts().1.is_none() {
            lines.retain(|line| *line != package);
        }
        if self.threads > 1 {
            lines.push("hyperthreads: two of a core do 1.3 times the work of one: ESTIMATE");
        }
        if self.megahertz[2] > self.megahertz[1] {
            lines.push("turbo: off unless asked for; its clock [R], its bins and power ESTIMATE");
        }
        lines.extend(notes);
        lines.retain(|line| !line.is_empty());
        let tdp = format!("TDP {} W [R]", self.tdp_watts);
        lines.into_iter().map(|line| line.replace("TDP [R]", &tdp)).collect()
    }
}

/// Of the slowest and the turbo clock: ESTIMATE, where voltages are not published.
const VOLTS_SLOWEST: f64 = 0.70;
const VOLTS_TURBO: f64 = 1.0;
/// Share of a core's power at the base clock that goes by voltage alone: ESTIMATE.
const LEAK_SHARE: f64 = 0.15;
/// As the default of a platform: ESTIMATE.
const SHARED_THREAD_SPEED: f64 = 0.65;
