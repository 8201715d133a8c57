//! AMD's processors, by year. Idle tables come from firmware, which advertises ten times the real
//! wake-up latency and more.

use super::row::{RULES, Row, SERVER, Sources, State, Uncore};
use crate::ClockDomain;

const ZEN: Sources = Sources {
    idle: "idle states: as firmware advertises them [R]; C2 really 5 to 15 us, here the middle [A gVisor]",
    active: "C0: (TDP [R] - 40 % uncore) / cores at the base clock: ESTIMATE",
    asleep: "idle power: C1 0.36 (AgileWatts' ratio, of an Intel [R]), C2 about 0.03 of C0: ESTIMATE",
    changes: "clock changes: about 1 ms [A amd-pstate]",
    uncore: "uncore: 40 % of TDP: ESTIMATE",
    package: "package state: 44 % of the uncore's power, as on Zen 2 [R]: ESTIMATE",
    ..RULES
};

/// The common part of all EPYCs.
const EPYC: Row = Row {
    delay_us: 1000,
    uncore: Uncore::OfTdp { percent: 40, asleep_percent: Some(44) },
    sources: ZEN,
    ..SERVER
};

pub(super) const ROWS: &[Row] = &[
    // The CPU-sleeps paper's machine for GPU kernels.
    Row {
        name: "a10-6800k",
        mark: "a10-6800k",
        sockets: 1,
        cores: 4,
        threads: 1,
        megahertz: [2000, 4100, 4400],
        tdp_watts: 100,
        active_milliwatts: 15_000,
        states: &[State("C1", 1, 2, 0, 5_400), State("C2", 100, 200, 0, 400)],
        domain: ClockDomain::Socket,
        delay_us: 100,
        uncore: Uncore::Milliwatts(8_000, None),
        sources: Sources {
            idle: "idle states: C2 100 us, the wake-up delay that the paper reckons with [P CPU sleeps 2], \
                   residency twice that, as acpi_idle has it [K]; C1 ESTIMATE",
            active: "C0: TDP 100 W [R] less graphics and the rest leaves 10 W a core; 15 W for one at the \
                     boosted clock: ESTIMATE",
            asleep: "idle power: C1 0.36, C2 0.025 of C0: ESTIMATE",
            changes: "clock changes: 100 us, one clock for all: ESTIMATE",
            uncore: "uncore: 8 W, northbridge and memory controller without graphics: ESTIMATE",
            ..RULES
        },
        ..SERVER
    },
    Row {
        name: "epyc-7502",
        mark: "7502",
        cores: 32,
        megahertz: [1500, 2500, 3350],
        tdp_watts: 180,
        active_milliwatts: 3_400,
        states: &[State("C1", 1, 2, 0, 1_200), State("C2", 400, 800, 22, 100)],
        // 99 W all asleep, 180 W with the first core in C1: 40.5 W a socket.
        uncore: Uncore::Milliwatts(72_000, Some(31_500)),
        // 99 W less two sockets with their cores in C2.
        rest_milliwatts: Some(29_600),
        sources: Sources {
            idle: "idle states: as firmware advertises them [R]; C2 really 20 to 25 us, here the middle [R \
                   Zen 2 study]",
            package: "package state and rest: two sockets take 99 W in all with every core in C2, 180 W \
                      with the first in C1 [R Zen 2 study]; how the 99 W divide: ESTIMATE",
            rest: "",
            notes: &["each further core in C1 adds 0.09 W [R Zen 2 study], less than the ESTIMATE here"],
            ..ZEN
        },
        ..EPYC
    },
    Row {
        name: "epyc-7763",
        mark: "7763",
        cores: 64,
        megahertz: [1500, 2450, 3500],
        tdp_watts: 280,
        active_milliwatts: 2_600,
        states: &[State("C1", 1, 2, 0, 900), State("C2", 800, 1600, 10, 100)],
        ..EPYC
    },
    Row {
        name: "epyc-9654",
        mark: "9654",
        cores: 96,
        megahertz: [1500, 2400, 3700],
        tdp_watts: 360,
        active_milliwatts: 2_300,
        states: &[State("C1", 1, 2, 0, 800), State("C2", 800, 1600, 10, 100)],
        ..EPYC
    },
    Row {
        name: "epyc-9755",
        mark: "9755",
        cores: 128,
        megahertz: [1500, 2700, 4100],
        tdp_watts: 500,
        active_milliwatts: 2_300,
        states: &[State("C1", 1, 2, 0, 800), State("C2", 800, 1600, 10, 100)],
        ..EPYC
    },
];
