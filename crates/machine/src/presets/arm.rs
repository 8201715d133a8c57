//! The phone of the CPU-sleeps paper: an Exynos 5422, whose two clusters are machines of their own
//! here.

use super::row::{Row, SERVER, Sources, State, Uncore};
use crate::ClockDomain;

const EXYNOS: Sources = Sources {
    idle: "idle states: big.LITTLE's cluster power-down [K], recalled; WFI ESTIMATE",
    active: "C0: about 6 W for four busy Cortex-A15, 1 W for four Cortex-A7 [R]: ESTIMATE",
    asleep: "idle power: WFI 0.36, off 0.025 of C0: ESTIMATE",
    gears: "gears: up to 1.9 GHz (big) and 1.3 GHz (little) [P CPU sleeps 3]; V linear from 0.70 to 1.0 V, \
            P = aV + bV^2 f, none below WFI: ESTIMATE",
    changes: "clock changes: 100 us, one clock a cluster: ESTIMATE",
    uncore: "uncore: the cluster's second-level cache and interconnect, part of the jump at the fifth core \
             [P CPU sleeps 3]: ESTIMATE",
    package: "package state: the cluster switched off: ESTIMATE",
    rest: "rest of the phone: not included: ESTIMATE it where it counts",
    notes: &[],
};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "exynos-5422-big",
        sockets: 1,
        cores: 4,
        threads: 1,
        megahertz: [800, 1900, 1900],
        tdp_watts: 6,
        active_milliwatts: 1_500,
        states: &[State("WFI", 1, 1, 0, 540), State("off", 500, 2000, 0, 40)],
        domain: ClockDomain::Socket,
        delay_us: 100,
        uncore: Uncore::Milliwatts(400, Some(20)),
        rest_milliwatts: Some(0),
        sources: EXYNOS,
        ..SERVER
    },
    Row {
        name: "exynos-5422-little",
        sockets: 1,
        cores: 4,
        threads: 1,
        megahertz: [500, 1300, 1300],
        tdp_watts: 1,
        active_milliwatts: 250,
        states: &[State("WFI", 1, 1, 0, 90), State("off", 700, 2500, 0, 6)],
        domain: ClockDomain::Socket,
        delay_us: 100,
        uncore: Uncore::Milliwatts(100, Some(10)),
        rest_milliwatts: Some(0),
        sources: EXYNOS,
        ..SERVER
    },
];
