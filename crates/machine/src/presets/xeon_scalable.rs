//! Intel's servers from Skylake-SP on, by year, with the machines of Peafowl and Hurry-up among
//! them. Idle tables are `intel_idle`'s.

use super::row::{RULES, Row, SERVER, Sources, State, Uncore};

const SKX: Sources = Sources { idle: "idle states: skx [K]", ..RULES };
const NEWER: &str =
    "clock changes: as on Skylake-SP, about 270 us [R], of which nothing is known here: ESTIMATE";
const SPR: Sources = Sources { idle: "idle states: spr [K]", changes: NEWER, ..RULES };
const GNR: Sources = Sources { idle: "idle states: gnr [K]", ..SPR };

const SILVER_4116_STATES: &[State] =
    &[State("C1", 2, 2, 0, 2_000), State("C1E", 10, 20, 0, 1_200), State("C6", 133, 600, 0, 100)];

/// The machine of the Peafowl paper.
const PEAFOWL: Sources = Sources {
    gears: "gears: 0.8 to 2.1 GHz [P Peafowl 4.3]; V linear from 0.70 V (slowest) to 1.0 V (turbo), P = aV \
            + bV^2 f, aV = 15 % of C0 at base, none below C1: ESTIMATE, since the paper plots its own \
            (Figure 8)",
    changes: "clock changes: 10 us, as the paper simulates [P Peafowl 4.3]; on the machine about 500 us [R]",
    notes: &["hyperthreads: not mentioned [P Peafowl 4], workers have cores of their own: off"],
    ..SKX
};

const SILVER_4116: Row = Row {
    name: "xeon-silver-4116",
    mark: "4116",
    cores: 12,
    threads: 1,
    megahertz: [800, 2100, 3000],
    tdp_watts: 85,
    active_milliwatts: 5_700,
    states: SILVER_4116_STATES,
    delay_us: 10,
    sources: PEAFOWL,
    ..SERVER
};

const SPR_8480: Row = Row {
    name: "xeon-8480+",
    mark: "8480+",
    cores: 56,
    megahertz: [800, 2000, 3800],
    tdp_watts: 350,
    active_milliwatts: 5_000,
    states: &[State("C1", 1, 1, 0, 1_800), State("C1E", 2, 4, 0, 1_100), State("C6", 290, 800, 190, 100)],
    sources: Sources {
        notes: &["C6 really takes 150 to 230 us to leave, here the middle [A gVisor]"],
        ..SPR
    },
    ..SERVER
};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "xeon-silver-4114",
        mark: "4114",
        cores: 10,
        megahertz: [800, 2200, 3000],
        tdp_watts: 85,
        active_milliwatts: 4_000,
        states: &[State("C1", 2, 2, 0, 1_440), State("C1E", 10, 20, 0, 880), State("C6", 133, 600, 0, 100)],
        sources: Sources {
            active: "C0: 4 W at the base clock [R AgileWatts]",
            asleep: "idle power: C1 1.44 W, C1E 0.88 W, C6 0.1 W [R AgileWatts]",
            notes: &["the slowest gear takes about 1 W [R AgileWatts], less than C1 at the base clock's \
                 voltage: here as C1"],
            ..SKX
        },
        ..SERVER
    },
    // The Peafowl paper's.
    SILVER_4116,
    Row {
        name: "xeon-silver-4116-no-pc6",
        mark: "",
        states: &[State("C1", 2, 2, 0, 2_000), State("C1E", 10, 20, 0, 1_200), State("C6", 92, 276, 0, 100)],
        uncore: Uncore::OfTdp { percent: 20, asleep_percent: None },
        sources: Sources { idle: "idle states: skx with package C6 disabled by the BIOS [K]", ..PEAFOWL },
        ..SILVER_4116
    },
    // The machine of Peafowl's simulation: ten of its cores and nothing else.
    Row {
        name: "peafowl-simulation",
        mark: "",
        sockets: 1,
        cores: 10,
        uncore: Uncore::Milliwatts(0, None),
        rest_milliwatts: Some(0),
        sources: Sources {
            uncore: "uncore: none, the simulation sums core power [P Peafowl 4.3]",
            rest: "",
            notes: &["10 workers on cores of their own [P Peafowl 4.1]"],
            ..PEAFOWL
        },
        ..SILVER_4116
    },
    // The Hurry-up paper's.
    Row {
        name: "xeon-gold-6126",
        mark: "6126",
        cores: 12,
        threads: 1,
        megahertz: [1000, 2600, 3700],
        tdp_watts: 125,
        active_milliwatts: 8_300,
        states: &[State("C1", 2, 2, 0, 3_000), State("C1E", 10, 20, 0, 1_800), State("C6", 133, 600, 0, 200)],
        sources: Sources {
            gears: "gears: 1.0 to 2.6 GHz, each core its own [P Hurry-up]; V linear from 0.70 V (slowest) \
                    to 1.0 V (turbo), P = aV + bV^2 f, aV = 15 % of C0 at base, none below C1: ESTIMATE",
            notes: &[
                "hyperthreads off; the server on socket 0, its client on socket 1 [P Hurry-up V-A]",
                "that light queries take the least energy at 2.0 GHz and more at 1.0 than at 2.6 [P \
                 Hurry-up III] does not follow from core power alone: it needs a share of the awake \
                 socket's, an ESTIMATE",
            ],
            ..SKX
        },
        ..SERVER
    },
    Row {
        name: "xeon-gold-6130",
        mark: "6130",
        cores: 16,
        megahertz: [1000, 2100, 3700],
        tdp_watts: 125,
        active_milliwatts: 6_300,
        states: &[State("C1", 2, 2, 0, 2_300), State("C1E", 10, 20, 0, 1_400), State("C6", 133, 600, 0, 200)],
        sources: Sources { notes: &["C6 133/600 is what the Peafowl paper quotes too [P]"], ..SKX },
        ..SERVER
    },
    Row {
        name: "xeon-gold-6248",
        mark: "6248",
        cores: 20,
        megahertz: [1000, 2500, 3900],
        tdp_watts: 150,
        active_milliwatts: 6_000,
        states: &[State("C1", 2, 2, 0, 2_200), State("C1E", 10, 20, 0, 1_300), State("C6", 133, 600, 0, 150)],
        sources: Sources { idle: "idle states: skx, which Cascade Lake shares [K]", ..SKX },
        ..SERVER
    },
    Row {
        name: "xeon-8360y",
        mark: "8360y",
        cores: 36,
        megahertz: [800, 2400, 3500],
        tdp_watts: 250,
        active_milliwatts: 5_600,
        states: &[State("C1", 1, 1, 0, 2_000), State("C1E", 4, 4, 0, 1_200), State("C6", 170, 600, 0, 100)],
        sources: Sources { idle: "idle states: icx [K]", changes: NEWER, ..RULES },
        ..SERVER
    },
    SPR_8480,
    Row {
        name: "xeon-8480+-no-pc6",
        mark: "",
        states: &[State("C1", 1, 1, 0, 1_800), State("C1E", 2, 4, 0, 1_100), State("C6", 190, 600, 0, 100)],
        uncore: Uncore::OfTdp { percent: 20, asleep_percent: None },
        sources: Sources { idle: "idle states: spr with package C6 disabled by the BIOS [K]", ..SPR },
        ..SPR_8480
    },
    Row {
        name: "xeon-8592+",
        mark: "8592+",
        cores: 64,
        megahertz: [800, 1900, 3900],
        tdp_watts: 350,
        active_milliwatts: 4_400,
        states: &[State("C1", 1, 1, 0, 1_600), State("C1E", 2, 4, 0, 960), State("C6", 290, 800, 190, 110)],
        sources: Sources {
            idle: "idle states: spr, which Emerald Rapids shares [K]",
            notes: &["C6 really takes 150 to 230 us to leave, here the middle [A gVisor]"],
            ..SPR
        },
        ..SERVER
    },
    Row {
        name: "xeon-6980p",
        mark: "6980p",
        cores: 128,
        megahertz: [800, 2000, 3900],
        tdp_watts: 500,
        active_milliwatts: 3_100,
        states: &[
            State("C1", 1, 1, 0, 1_100),
            State("C1E", 4, 4, 0, 680),
            State("C6", 170, 650, 0, 80),
            State("C6P", 210, 1000, 190, 80),
        ],
        sources: Sources {
            notes: &["C6P really takes 150 to 230 us to leave, here the middle [A gVisor]"],
            ..GNR
        },
        ..SERVER
    },
    Row {
        name: "xeon-6726p-b",
        mark: "6726p-b",
        sockets: 1,
        cores: 42,
        megahertz: [800, 2300, 3500],
        tdp_watts: 235,
        active_milliwatts: 4_500,
        states: &[
            State("C1", 1, 1, 0, 1_600),
            State("C1E", 4, 4, 0, 990),
            State("C6", 220, 650, 0, 110),
            State("C6P", 240, 750, 0, 110),
        ],
        sources: Sources { idle: "idle states: gnr-d [K]; C1 and C1E as gnr's", ..GNR },
        ..SERVER
    },
    Row {
        name: "xeon-6780e",
        mark: "6780e",
        cores: 144,
        threads: 1,
        megahertz: [800, 2200, 3000],
        tdp_watts: 330,
        active_milliwatts: 1_800,
        states: &[
            State("C1", 1, 1, 0, 650),
            State("C1E", 2, 10, 0, 400),
            State("C6S", 270, 700, 0, 45),
            State("C6SP", 310, 900, 0, 45),
        ],
        sources: Sources { idle: "idle states: srf [K]", ..SPR },
        ..SERVER
    },
];
