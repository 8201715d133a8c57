//! Power tables of machines that somebody has described, for those that have no meter.
//!
//! Each figure's origin is in its row: [P] a paper that Roost builds on, [K] the mainline kernel's tables, [C]
//! published research code, [A] an abstract or an issue thread, [R] recalled, ESTIMATE where nobody publishes it.
//! Unless a row says otherwise:
//!
//! - Intel exit latencies and residencies are `intel_idle`'s [K]; AMD's come from firmware [R].
//! - Power while active is an ESTIMATE: thermal design power less the uncore's share (20 %; AMD 40 %), by the number
//!   of cores, at the base clock.
//! - Power asleep is an ESTIMATE from it: C1 0.36 (AgileWatts' ratio [R]), C1E 0.22, C3 0.05, C6 0.025.
//!
//! So a comparison of two runs on one table says more than either figure alone.

use crate::{Cstate, CstateKind, Duration, Microwatts, PowerModel};

/// What a processor says of itself, as in `/proc/cpuinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// `GenuineIntel`, `AuthenticAMD`; empty on Arm.
    pub vendor: String,
    /// The number of the family.
    pub family: Option<u32>,
    /// `Intel(R) Xeon(R) Gold 6126 CPU @ 2.60GHz`.
    pub model_name: String,
}

impl PowerModel {
    /// Every table, by year of the machine.
    pub fn presets() -> Vec<PowerModel> {
        ROWS.iter().map(Row::model).collect()
    }

    /// The table called `name`, such as `xeon-gold-6126`.
    pub fn by_name(name: &str) -> Option<PowerModel> {
        ROWS.iter().find(|row| row.name == name).map(Row::model)
    }

    /// The table for `processor`: its own, or else that of a machine like it, whose name then says that it is assumed.
    pub fn for_processor(processor: &Processor) -> PowerModel {
        let described = processor.model_name.to_ascii_lowercase();
        let words = || described.split(|c: char| !c.is_ascii_alphanumeric() && c != '+' && c != '-');
        // A mark of two words, as `e5-2630 v3`, is one model of several generations.
        let is_marked = |row: &&Row| row.mark.split(' ').all(|part| words().any(|word| word == part));
        if let Some(row) = ROWS.iter().filter(is_marked).max_by_key(|row| row.mark.len()) {
            return row.model();
        }
        // AMD's families: 23 Zen to Zen 2, 25 Zen 3 and 4, 26 Zen 5. Anything else: the machine of the Peafowl paper.
        let assumed = match (processor.vendor.as_str(), processor.family) {
            ("AuthenticAMD", Some(..=23)) => "epyc-7502",
            ("AuthenticAMD", Some(24 | 25)) => "epyc-7763",
            ("AuthenticAMD", _) => "epyc-9755",
            _ => "xeon-silver-4116",
        };
        let mut model = Self::by_name(assumed).expect("every assumed table is in ROWS");
        model.name = format!("{assumed}, an ESTIMATE for this unlisted processor");
        model
    }
}

struct Row {
    name: &'static str,
    /// The words of `/proc/cpuinfo`'s model name that tell this machine, in small letters.
    mark: &'static str,
    active_milliwatts: u64,
    states: &'static [State],
}

/// Name, exit latency us, target residency us, what waking really takes us (0: nobody has measured), milliwatts.
struct State(&'static str, u64, u64, u64, u64);

impl Row {
    fn model(&self) -> PowerModel {
        let idle = self.states.iter().map(|&State(name, exit, residency, true_exit, milliwatts)| Cstate {
            name: name.to_owned(),
            kind: CstateKind::Halting,
            exit_latency: Duration::from_micros(exit),
            true_exit_latency: (true_exit > 0).then(|| Duration::from_micros(true_exit)),
            entry_latency: None,
            target_residency: Duration::from_micros(residency),
            power: Some(Microwatts(milliwatts * 1000)),
        });
        PowerModel {
            name: self.name.to_owned(),
            active: Microwatts(self.active_milliwatts * 1000),
            idle: idle.collect(),
        }
    }
}

const ROWS: &[Row] = &[
    // Sandy Bridge, 8 cores, TDP 115 W [R]. `snb` [K].
    Row {
        name: "xeon-e5-2670",
        mark: "e5-2670",
        active_milliwatts: 11_500,
        states: &[
            State("C1", 2, 2, 0, 4_100),
            State("C1E", 10, 20, 0, 2_500),
            State("C3", 80, 211, 0, 575),
            State("C6", 104, 345, 0, 300),
        ],
    },
    // The Tradeoffs paper's Sandy Bridge: latencies [P], C1 / C3 / C6 / C7, entry and exit together. Power as above;
    // C7's as C6's, ESTIMATE.
    Row {
        name: "tradeoffs-sandybridge",
        mark: "tradeoffs-sandybridge",
        active_milliwatts: 11_500,
        states: &[
            State("C1", 1, 1, 0, 4_100),
            State("C3", 80, 106, 0, 575),
            State("C6", 104, 345, 0, 300),
            State("C7", 109, 345, 0, 300),
        ],
    },
    // Ivy Bridge-EP, 12 cores at 2.7 GHz. `ivt` [K]; power active, C1, C3 and C6 by Procrastinator [C]; C1E ESTIMATE.
    Row {
        name: "ivybridge-ep-12",
        mark: "e5-2697 v2",
        active_milliwatts: 3_460,
        states: &[
            State("C1", 1, 1, 0, 1_200),
            State("C1E", 10, 80, 0, 760),
            State("C3", 59, 156, 0, 130),
            State("C6", 82, 300, 0, 0),
        ],
    },
    // Haswell-EP, 8 cores, TDP 85 W [R]: the CARB paper's. `hsw` [K].
    Row {
        name: "xeon-e5-2630-v3",
        mark: "e5-2630 v3",
        active_milliwatts: 8_500,
        states: &[
            State("C1", 2, 2, 0, 3_100),
            State("C1E", 10, 20, 0, 1_900),
            State("C3", 33, 100, 0, 425),
            State("C6", 133, 400, 0, 200),
        ],
    },
    // Haswell-EP, 6 cores, TDP 85 W [R]: the CPU-sleeps paper's; C6 adds 106 us to a ping-pong [P]. `hsw` [K].
    Row {
        name: "xeon-e5-2620-v3",
        mark: "e5-2620 v3",
        active_milliwatts: 11_300,
        states: &[
            State("C1", 2, 2, 0, 4_100),
            State("C1E", 10, 20, 0, 2_500),
            State("C3", 33, 100, 0, 565),
            State("C6", 133, 400, 106, 300),
        ],
    },
    // Skylake-SP, 10 cores. `skx` [K]; all power by AgileWatts [R].
    Row {
        name: "xeon-silver-4114",
        mark: "4114",
        active_milliwatts: 4_000,
        states: &[State("C1", 2, 2, 0, 1_440), State("C1E", 10, 20, 0, 880), State("C6", 133, 600, 0, 100)],
    },
    // Skylake-SP, 12 cores, TDP 85 W [R]: the Peafowl paper's. `skx` [K].
    Row {
        name: "xeon-silver-4116",
        mark: "4116",
        active_milliwatts: 5_700,
        states: &[State("C1", 2, 2, 0, 2_000), State("C1E", 10, 20, 0, 1_200), State("C6", 133, 600, 0, 100)],
    },
    // Skylake-SP, 12 cores, TDP 125 W [R]: the Hurry-up paper's. `skx` [K].
    Row {
        name: "xeon-gold-6126",
        mark: "6126",
        active_milliwatts: 8_300,
        states: &[State("C1", 2, 2, 0, 3_000), State("C1E", 10, 20, 0, 1_800), State("C6", 133, 600, 0, 200)],
    },
    // Skylake-SP, 16 cores, TDP 125 W [R]. `skx` [K]; C6 133/600 is what the Peafowl paper quotes too [P].
    Row {
        name: "xeon-gold-6130",
        mark: "6130",
        active_milliwatts: 6_300,
        states: &[State("C1", 2, 2, 0, 2_300), State("C1E", 10, 20, 0, 1_400), State("C6", 133, 600, 0, 200)],
    },
    // Ice Lake-SP, 36 cores, TDP 250 W [R]. `icx` [K].
    Row {
        name: "xeon-8360y",
        mark: "8360y",
        active_milliwatts: 5_600,
        states: &[State("C1", 1, 1, 0, 2_000), State("C1E", 4, 4, 0, 1_200), State("C6", 170, 600, 0, 100)],
    },
    // Sapphire Rapids, 56 cores, TDP 350 W [R]. `spr` [K]; C6 really 150 to 230 us [A], here the middle.
    Row {
        name: "xeon-8480+",
        mark: "8480+",
        active_milliwatts: 5_000,
        states: &[State("C1", 1, 1, 0, 1_800), State("C1E", 2, 4, 0, 1_100), State("C6", 290, 800, 190, 100)],
    },
    // Zen 2, 32 cores, TDP 180 W [R]. C2 really 20 to 25 us (a Zen 2 study) [R], here the middle.
    Row {
        name: "epyc-7502",
        mark: "7502",
        active_milliwatts: 3_400,
        states: &[State("C1", 1, 2, 0, 1_200), State("C2", 400, 800, 22, 100)],
    },
    // Zen 3, 64 cores, TDP 280 W [R]. C2 really 5 to 15 us [A], here the middle; so for the two below.
    Row {
        name: "epyc-7763",
        mark: "7763",
        active_milliwatts: 2_600,
        states: &[State("C1", 1, 2, 0, 900), State("C2", 800, 1600, 10, 100)],
    },
    // Zen 4, 96 cores, TDP 360 W [R].
    Row {
        name: "epyc-9654",
        mark: "9654",
        active_milliwatts: 2_300,
        states: &[State("C1", 1, 2, 0, 800), State("C2", 800, 1600, 10, 100)],
    },
    // Zen 5, 128 cores, TDP 500 W [R].
    Row {
        name: "epyc-9755",
        mark: "9755",
        active_milliwatts: 2_300,
        states: &[State("C1", 1, 2, 0, 800), State("C2", 800, 1600, 10, 100)],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn processor(vendor: &str, family: u32, model_name: &str) -> Processor {
        Processor { vendor: vendor.into(), family: Some(family), model_name: model_name.into() }
    }

    #[test]
    fn deeper_states_take_longer_to_leave_and_less_power() {
        for model in PowerModel::presets() {
            let mut power = model.active;
            let mut latency = Duration::ZERO;
            for state in &model.idle {
                assert!(
                    state.exit_latency > latency && state.power.unwrap() <= power,
                    "{}: {}",
                    model.name,
                    state.name
                );
                (power, latency) = (state.power.unwrap(), state.exit_latency);
                assert!(
                    state.true_exit_latency.is_none_or(|real| real <= state.exit_latency),
                    "{}",
                    model.name
                );
            }
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        let presets = PowerModel::presets();
        let names: BTreeSet<&str> = presets.iter().map(|model| model.name.as_str()).collect();
        assert_eq!(names.len(), presets.len());
        for model in &presets {
            assert_eq!(PowerModel::by_name(&model.name).as_ref(), Some(model));
        }
        assert_eq!(PowerModel::by_name("abacus"), None);
    }

    #[test]
    fn a_listed_processor_gets_its_own_table() {
        for (model_name, table) in [
            ("Intel(R) Xeon(R) Gold 6126 CPU @ 2.60GHz", "xeon-gold-6126"),
            ("Intel(R) Xeon(R) CPU E5-2630 v3 @ 2.40GHz", "xeon-e5-2630-v3"),
            ("Intel(R) Xeon(R) CPU E5-2670 0 @ 2.60GHz", "xeon-e5-2670"),
            ("Intel(R) Xeon(R) Platinum 8480+", "xeon-8480+"),
            ("AMD EPYC 9654 96-Core Processor", "epyc-9654"),
        ] {
            assert_eq!(PowerModel::for_processor(&processor("", 0, model_name)).name, table);
        }
    }

    #[test]
    fn an_unlisted_processor_gets_a_table_that_says_it_is_assumed() {
        for (processor, table) in [
            (processor("AuthenticAMD", 26, "AMD EPYC"), "epyc-9755"),
            (processor("AuthenticAMD", 25, "AMD EPYC 7313"), "epyc-7763"),
            (processor("AuthenticAMD", 23, "AMD EPYC 7282"), "epyc-7502"),
            (processor("GenuineIntel", 6, "Intel(R) Xeon(R) Gold 16126"), "xeon-silver-4116"),
            (Processor::default(), "xeon-silver-4116"),
        ] {
            let name = PowerModel::for_processor(&processor).name;
            assert!(name.starts_with(table) && name.contains("ESTIMATE"), "{processor:?}: {name}");
        }
    }

    #[test]
    fn the_same_model_number_of_another_generation_is_another_machine() {
        let name =
            PowerModel::for_processor(&processor("GenuineIntel", 6, "Intel(R) Xeon(R) CPU E5-2630 v4")).name;
        assert!(name.contains("ESTIMATE"), "{name}");
    }
}
