//! Intel's processors from Sandy Bridge to Broadwell, by year, with the machines of CARB,
//! Tradeoffs, CPU sleeps and Procrastinator among them. Idle tables are `intel_idle`'s.

use super::row::{Gears, RULES, Row, SERVER, Sources, State, Uncore};
use crate::ClockDomain;

const SNB: Sources = Sources {
    idle: "idle states: snb [K]",
    changes: "clock changes: one clock a socket; 10 us, as Procrastinator has for Ivy Bridge [C]: ESTIMATE",
    ..RULES
};
const IVT: Sources = Sources { idle: "idle states: ivt, 1 or 2 sockets [K]", ..SNB };
const HSW: Sources = Sources { idle: "idle states: hsw [K]", ..RULES };

/// Procrastinator's code [C], and the figures that it does not give.
const PROCRASTINATOR: Sources = Sources {
    active: "C0: Procrastinator's a V + b V^2 f [C]",
    asleep: "idle power: C1 1.2 W, C3 0.13 W, C6 0 [C Procrastinator]; C1E ESTIMATE",
    gears: "gears: Procrastinator's table of voltages and frequencies [C]",
    changes: "clock changes: 10 us, each core its own [C Procrastinator], though these processors share \
              one clock",
    uncore: "uncore: Procrastinator's, at the base clock [C]",
    ..IVT
};

/// The machine of the Tradeoffs paper.
const TRADEOFFS: Sources = Sources {
    idle: "idle states: C1, C3, C6, C7, entry and exit together [P Tradeoffs II]",
    asleep: "idle power: C1 0.36 (AgileWatts' ratio [R]), C3 0.05, C6 and C7 0.025 of C0: ESTIMATE",
    gears: "gears: 2.6 GHz, fixed [P Tradeoffs III-A]",
    changes: "",
    package: "package state: what leaves the idle processors 11 % of the server's power at full load, 78 % \
              less the 67 % that they vary by [P Tradeoffs I]",
    rest: "rest of the server: 22 % of its power at full load [P Tradeoffs I]",
    notes: &["turbo and C-state demotion by the hardware are off [P Tradeoffs III-A]"],
    ..RULES
};

const TRADEOFFS_STATES: &[State] = &[
    State("C1", 1, 1, 0, 4_100),
    State("C3", 80, 106, 0, 575),
    State("C6", 104, 345, 0, 300),
    State("C7", 109, 345, 0, 300),
];

const TRADEOFFS_MACHINE: Row = Row {
    name: "tradeoffs-sandybridge",
    cores: 8,
    megahertz: [2600, 2600, 2600],
    tdp_watts: 115,
    active_milliwatts: 11_500,
    states: TRADEOFFS_STATES,
    domain: ClockDomain::Socket,
    // (11 % / 78 % of 230 W - 16 cores in C7) / 2 sockets.
    uncore: Uncore::Milliwatts(23_000, Some(13_800)),
    sources: TRADEOFFS,
    ..SERVER
};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "xeon-e5-2670",
        mark: "e5-2670",
        cores: 8,
        megahertz: [1200, 2600, 3300],
        tdp_watts: 115,
        active_milliwatts: 11_500,
        states: &[
            State("C1", 2, 2, 0, 4_100),
            State("C1E", 10, 20, 0, 2_500),
            State("C3", 80, 211, 0, 575),
            State("C6", 104, 345, 0, 300),
        ],
        domain: ClockDomain::Socket,
        delay_us: 10,
        sources: SNB,
        ..SERVER
    },
    TRADEOFFS_MACHINE,
    Row {
        name: "tradeoffs-duty-cycle",
        megahertz: [2600, 3300, 3300],
        active_milliwatts: 14_596,
        gears: Gears::DutyCycle(&[2600, 2800, 3000, 3200, 3300]),
        domain: ClockDomain::Core,
        delay_us: 10,
        // The same machine.
        rest_milliwatts: Some(64_871),
        sources: Sources {
            active: "C0: (TDP [R] - 20 % uncore) / cores at 2.6 GHz, above it linear in the clock: ESTIMATE",
            gears: "gears: duty-cycle steps of about 200 MHz, 2.6 to 3.3 GHz, voltage unchanged [P \
                    Tradeoffs IV-B]",
            changes: "clock changes: 10 us: ESTIMATE",
            notes: &["C-state demotion by the hardware is off [P Tradeoffs III-A]"],
            ..TRADEOFFS
        },
        ..TRADEOFFS_MACHINE
    },
    Row {
        name: "ivybridge-desktop-4",
        mark: "i7-3770",
        sockets: 1,
        cores: 4,
        threads: 1,
        megahertz: [1600, 3400, 3400],
        tdp_watts: 77,
        active_milliwatts: 6_509,
        states: &[
            State("C1", 1, 1, 0, 1_200),
            State("C1E", 10, 20, 0, 760),
            State("C3", 59, 156, 0, 130),
            State("C6", 80, 300, 0, 0),
        ],
        gears: Gears::Published {
            leak: 0.7083,
            dynamic: 1.4744,
            points: &[
                (3400, 1071),
                (3300, 1046),
                (3200, 1026),
                (3000, 991),
                (2900, 976),
                (2800, 956),
                (2600, 956),
                (2400, 956),
                (2200, 951),
                (2100, 951),
                (2000, 951),
                (1700, 946),
                (1600, 946),
            ],
        },
        delay_us: 10,
        // 0.9002 V + 1.0747 V^2 f at 3.4 GHz.
        uncore: Uncore::Milliwatts(5_155, None),
        sources: Sources { idle: "idle states: ivb [K], recalled", ..PROCRASTINATOR },
        ..SERVER
    },
    Row {
        name: "ivybridge-ep-12",
        mark: "e5-2697 v2",
        sockets: 1,
        cores: 12,
        threads: 1,
        megahertz: [1200, 2700, 2700],
        tdp_watts: 130,
        active_milliwatts: 3_460,
        states: &[
            State("C1", 1, 1, 0, 1_200),
            State("C1E", 10, 80, 0, 760),
            State("C3", 59, 156, 0, 130),
            State("C6", 82, 300, 0, 0),
        ],
        gears: Gears::Published {
            leak: 0.2261,
            dynamic: 1.2208,
            points: &[
                (2700, 991),
                (2500, 971),
                (2400, 961),
                (2300, 956),
                (2200, 946),
                (2100, 941),
                (2000, 936),
                (1900, 926),
                (1800, 921),
                (1700, 911),
                (1600, 901),
                (1500, 896),
                (1400, 891),
                (1300, 886),
                (1200, 876),
            ],
        },
        delay_us: 10,
        // 2.6099 V + 4.8233 V^2 f at 2.7 GHz.
        uncore: Uncore::Milliwatts(15_376, Some(4_600)),
        sources: PROCRASTINATOR,
        ..SERVER
    },
    Row {
        name: "xeon-e7-4890-v2",
        mark: "e7-4890 v2",
        sockets: 4,
        cores: 15,
        megahertz: [1200, 2800, 3400],
        tdp_watts: 155,
        active_milliwatts: 8_300,
        states: &[
            State("C1", 1, 1, 0, 3_000),
            State("C1E", 10, 250, 0, 1_800),
            State("C3", 59, 300, 0, 415),
            State("C6", 84, 400, 0, 200),
        ],
        domain: ClockDomain::Socket,
        delay_us: 10,
        sources: Sources { idle: "idle states: ivt, 3 or 4 sockets [K]", ..SNB },
        ..SERVER
    },
    Row {
        name: "xeon-e7-8890-v2",
        mark: "e7-8890 v2",
        sockets: 8,
        cores: 15,
        megahertz: [1200, 2800, 3400],
        tdp_watts: 155,
        active_milliwatts: 8_300,
        states: &[
            State("C1", 1, 1, 0, 3_000),
            State("C1E", 10, 500, 0, 1_800),
            State("C3", 59, 600, 0, 415),
            State("C6", 88, 700, 0, 200),
        ],
        domain: ClockDomain::Socket,
        delay_us: 10,
        sources: Sources { idle: "idle states: ivt, more than 4 sockets [K]", ..SNB },
        ..SERVER
    },
    // The CARB paper's.
    Row {
        name: "xeon-e5-2630-v3",
        mark: "e5-2630 v3",
        sockets: 1,
        cores: 8,
        threads: 1,
        megahertz: [1200, 2400, 3200],
        tdp_watts: 85,
        active_milliwatts: 8_500,
        states: &[
            State("C1", 2, 2, 0, 3_100),
            State("C1E", 10, 20, 0, 1_900),
            State("C3", 33, 100, 0, 425),
            State("C6", 133, 400, 0, 200),
        ],
        sources: Sources {
            notes: &["8 cores, turbo on [P CARB 4.1]: ask for it; hyperthreads are not mentioned: off"],
            ..HSW
        },
        ..SERVER
    },
    // The CPU-sleeps paper's.
    Row {
        name: "xeon-e5-2620-v3",
        mark: "e5-2620 v3",
        cores: 6,
        megahertz: [1200, 2400, 3200],
        tdp_watts: 85,
        active_milliwatts: 11_300,
        states: &[
            State("C1", 2, 2, 0, 4_100),
            State("C1E", 10, 20, 0, 2_500),
            State("C3", 33, 100, 0, 565),
            State("C6", 133, 400, 106, 300),
        ],
        sources: Sources {
            notes: &["C6 adds 106 us to a ping-pong [P CPU sleeps 1]: taken for its true exit latency"],
            ..HSW
        },
        ..SERVER
    },
    Row {
        name: "xeon-e5-2680-v4",
        mark: "e5-2680 v4",
        cores: 14,
        megahertz: [1200, 2400, 3300],
        tdp_watts: 120,
        active_milliwatts: 6_900,
        states: &[
            State("C1", 2, 2, 0, 2_500),
            State("C1E", 10, 20, 0, 1_500),
            State("C3", 40, 100, 0, 345),
            State("C6", 133, 400, 0, 170),
        ],
        sources: Sources { idle: "idle states: bdw [K]", ..RULES },
        ..SERVER
    },
];
