//! Machines from published descriptions: tables of their power for those that have no meter, and
//! whole platforms for a simulator.
//!
//! Each machine is a file of `presets/`. It takes the keys that it does not give from the machine
//! or the kind (`presets/kinds/`) that it is `like`, source by source; `mark` and `paper` it gives
//! itself.
//!
//! Each figure's origin is in its file, and comes with the platform as [`Platform::sources`]: [P] a
//! paper that Roost builds on, [K] the mainline kernel's tables, [C] published research code, [A]
//! an abstract or an issue thread, [R] recalled, ESTIMATE where none is published. Unless a file
//! says otherwise:
//!
//! - Intel exit latencies and residencies are `intel_idle`'s [K]; AMD's come from firmware [R].
//! - Power while active is an ESTIMATE: thermal design power less the uncore's share (20 %; AMD 40
//!   %), by the number of cores, at the base clock. At a slower clock it is a V + b V^2 f. V is
//!   linear from 0.70 V at the slowest to 1.0 V at the turbo clock, and a V is 15 % of it at the
//!   base clock. It is never less than in C1, which is stated at the base clock's voltage.
//! - Power asleep is an ESTIMATE from it: C1 0.36 (AgileWatts' ratio [R]), C1E 0.22, C3 0.05, C6
//!   0.025.
//! - The rest of a server takes 22/78 of its processors' power at full load, the share that the
//!   Tradeoffs paper measured on one [P, section I]; for any other an ESTIMATE.
//!
//! So a comparison of two runs on one table says more than either figure alone.

mod description;

use crate::{Platform, PowerModel};
use description::Description;
use std::sync::LazyLock;
use toml::{Table, Value};

/// A processor's identity, as in `/proc/cpuinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// `GenuineIntel`, `AuthenticAMD`; empty on Arm.
    pub vendor: String,
    pub family: Option<u32>,
    /// `Intel(R) Xeon(R) Gold 6126 CPU @ 2.60GHz`.
    pub model_name: String,
}

impl PowerModel {
    pub fn presets() -> Vec<PowerModel> {
        MACHINES.iter().map(Description::model).collect()
    }

    /// The table called `name`, such as `xeon-gold-6126`.
    pub fn by_name(name: &str) -> Option<PowerModel> {
        machine(name).map(Description::model)
    }

    /// The table for `processor`: its own, or else that of a machine like it, whose name then says
    /// that it is assumed.
    pub fn for_processor(processor: &Processor) -> PowerModel {
        let described = processor.model_name.to_ascii_lowercase();
        let words = || described.split(|c: char| !c.is_ascii_alphanumeric() && c != '+' && c != '-');
        // A mark of two words, as `e5-2630 v3`, is one model of several generations.
        let is_marked = |machine: &&Description| {
            let mark = &machine.mark;
            !mark.is_empty() && mark.split(' ').all(|part| words().any(|word| word == part))
        };
        if let Some(machine) = MACHINES.iter().filter(is_marked).max_by_key(|machine| machine.mark.len()) {
            return machine.model();
        }
        // AMD's families: 23 Zen to Zen 2, 25 Zen 3 and 4, 26 Zen 5. Anything else: the machine of
        // the Peafowl paper.
        let assumed = match (processor.vendor.as_str(), processor.family) {
            ("AuthenticAMD", Some(..=23)) => "epyc-7502",
            ("AuthenticAMD", Some(24 | 25)) => "epyc-7763",
            ("AuthenticAMD", _) => "epyc-9755",
            _ => "xeon-silver-4116",
        };
        let mut model = Self::by_name(assumed).expect("every assumed table is listed");
        model.name = format!("{assumed}, an ESTIMATE for this unlisted processor");
        model
    }
}

impl Platform {
    /// Every machine. All pass [`Platform::check`]; turbo is off.
    pub fn presets() -> Vec<Platform> {
        MACHINES.iter().map(Description::platform).collect()
    }

    /// The machine called `name`, such as `xeon-gold-6126`; or by the paper that ran on it: `carb`,
    /// `tradeoffs`, `peafowl`, `cpu-sleeps`, `hurry-up`.
    pub fn by_name(name: &str) -> Option<Platform> {
        machine(name).map(Description::platform)
    }

    /// The preset called `name` and those that its file is like, the nearest first: statements
    /// about one of them hold for `name`, as far as its own file does not say otherwise. Nothing if
    /// there is none of this name.
    pub fn ancestry(name: &str) -> Vec<String> {
        let mut names = Vec::new();
        let mut next = machine(name).map(|machine| machine.name.clone());
        while let Some(name) = next {
            let file = FILES.iter().chain(&KINDS).find(|file| file.0 == name);
            let own = file.and_then(|(_, text)| text.parse::<Table>().ok()).unwrap_or_default();
            next = own.get("like").and_then(Value::as_str).map(str::to_owned);
            names.push(name);
        }
        names
    }

    /// The same with the turbo bins of the preset of its name: ESTIMATEs, of which few machines
    /// have published ones. The turbo clock itself for two cores, two thirds of the way up for half
    /// of the socket, one third for all of it.
    pub fn with_turbo(mut self) -> Platform {
        self.turbo = machine(&self.name).map(Description::turbo).unwrap_or_default();
        self
    }
}

fn machine(name: &str) -> Option<&'static Description> {
    MACHINES.iter().find(|machine| machine.name == name || machine.paper.as_deref() == Some(name))
}

/// Read when a preset is first asked for.
static MACHINES: LazyLock<Vec<Description>> = LazyLock::new(|| {
    let described = |&(name, _): &(&str, &str)| {
        let mut machine: Description =
            table(name).try_into().unwrap_or_else(|error| panic!("presets/{name}.toml: {error}"));
        machine.name = name.to_owned();
        machine
    };
    FILES.iter().map(described).collect()
});

/// The keys of a file, and the others from the file that it is like.
fn table(name: &str) -> Table {
    let file = FILES.iter().chain(&KINDS).find(|file| file.0 == name);
    let text = file.unwrap_or_else(|| panic!("presets/{name}.toml is not listed")).1;
    let mut own: Table = text.parse().unwrap_or_else(|error| panic!("presets/{name}.toml: {error}"));
    let Some(like) = own.remove("like") else { return own };
    let mut all = table(like.as_str().expect("`like` names a file"));
    all.retain(|key, _| key != "mark" && key != "paper");
    for (key, value) in own {
        match (all.get_mut(&key), value) {
            (Some(Value::Table(sources)), Value::Table(given)) if key == "sources" => sources.extend(given),
            (_, value) => drop(all.insert(key, value)),
        }
    }
    all
}

macro_rules! files {
    ($($name:literal,)*) => {
        [$(($name, include_str!(concat!("../../presets/", $name, ".toml")))),*]
    };
}

/// Machines by vendor and year.
const FILES: [(&str, &str); 33] = files![
    "xeon-e5-2670",
    "tradeoffs-sandybridge",
    "tradeoffs-duty-cycle",
    "ivybridge-desktop-4",
    "ivybridge-ep-12",
    "xeon-e7-4890-v2",
    "xeon-e7-8890-v2",
    "xeon-e5-2630-v3",
    "xeon-e5-2620-v3",
    "xeon-e5-2680-v4",
    "xeon-silver-4114",
    "agilewatts",
    "agilepkgc",
    "xeon-silver-4116",
    "xeon-silver-4116-no-pc6",
    "peafowl-simulation",
    "xeon-gold-6126",
    "xeon-gold-6130",
    "xeon-gold-6248",
    "xeon-8360y",
    "xeon-8480+",
    "xeon-8480+-no-pc6",
    "xeon-8592+",
    "xeon-6980p",
    "xeon-6726p-b",
    "xeon-6780e",
    "a10-6800k",
    "epyc-7502",
    "epyc-7763",
    "epyc-9654",
    "epyc-9755",
    "exynos-5422-big",
    "exynos-5422-little",
];

const KINDS: [(&str, &str); 8] = files![
    "kinds/server",
    "kinds/sandy-bridge",
    "kinds/procrastinator",
    "kinds/haswell",
    "kinds/skylake-sp",
    "kinds/sapphire-rapids",
    "kinds/epyc",
    "kinds/exynos-5422",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClockDomain, Duration, Kilohertz, Microwatts, OperatingPoint, PointKind};
    use std::collections::BTreeSet;

    fn machine(name: &str) -> Platform {
        Platform::by_name(name).unwrap()
    }

    fn point(platform: &Platform, megahertz: u64) -> OperatingPoint {
        let points = &platform.frequencies.points;
        *points.iter().find(|point| point.frequency == Kilohertz(megahertz * 1000)).unwrap()
    }

    #[test]
    fn a_renamed_machine_descends_from_the_one_that_it_is_like() {
        assert_eq!(Platform::ancestry("peafowl-simulation")[..2], ["peafowl-simulation", "xeon-silver-4116"]);
        assert_eq!(Platform::ancestry("tradeoffs")[0], "tradeoffs-sandybridge", "by its paper");
        assert!(Platform::ancestry("no-such-machine").is_empty());
    }

    #[test]
    fn every_machine_can_be_and_says_what_it_rests_on() {
        for platform in Platform::presets() {
            platform.check().unwrap();
            platform.clone().with_turbo().check().unwrap();
            assert_eq!(Platform::by_name(&platform.name).as_ref(), Some(&platform));
            assert!(platform.sources.len() >= 5, "{}", platform.name);
            for line in &platform.sources {
                let tagged = ["[P", "[K", "[C", "[R", "[A", "ESTIMATE"].iter().any(|tag| line.contains(tag));
                assert!(tagged, "{}: {line}", platform.name);
            }
            let model = PowerModel::by_name(&platform.name).unwrap();
            assert_eq!(platform.power_model(), model, "live and simulated runs are charged alike");
        }
    }

    #[test]
    fn the_papers_machines_are_what_the_papers_say() {
        let shape = |name| {
            let platform = machine(name);
            (platform.sockets, platform.cores_per_socket, platform.threads_per_core)
        };
        assert_eq!(shape("carb"), (1, 8, 1));
        assert_eq!(shape("tradeoffs"), (2, 8, 2));
        assert_eq!(shape("peafowl"), (2, 12, 1));
        assert_eq!(shape("cpu-sleeps"), (2, 6, 2));
        assert_eq!(shape("hurry-up"), (2, 12, 1));
        let clocks = |name| {
            let points = machine(name).frequencies.points;
            (points[0].frequency.0 / 1000, points[points.len() - 1].frequency.0 / 1000)
        };
        assert_eq!(clocks("tradeoffs"), (2600, 2600));
        assert_eq!(clocks("tradeoffs-duty-cycle"), (2600, 3300));
        assert_eq!(clocks("peafowl"), (800, 2100));
        assert_eq!(clocks("hurry-up"), (1000, 2600));
        assert_eq!(machine("hurry-up").frequencies.domain, ClockDomain::Core);
        assert_eq!(machine("peafowl").frequencies.delay, Duration::from_micros(10));
        let simulated = machine("peafowl-simulation");
        assert_eq!((simulated.cpus(), simulated.uncore, simulated.rest), (10, Microwatts(0), Microwatts(0)));
        // Processors are 78 % of the power at full load, and 11 % idle: 67 % of the maximum lies
        // between (section I).
        let tradeoffs = machine("tradeoffs");
        let full = 2.0 * (8.0 * point(&tradeoffs, 2600).power.as_watts() + tradeoffs.uncore.as_watts());
        let whole = full + tradeoffs.rest.as_watts();
        assert!((full / whole - 0.78).abs() < 0.002, "{full} of {whole} W");
        let deepest = tradeoffs.cstates.0[3].power.unwrap().as_watts();
        let idle = 2.0 * (8.0 * deepest + tradeoffs.package.unwrap().power.as_watts());
        assert!((idle / whole - 0.11).abs() < 0.002, "{idle} of {whole} W");
        assert!((machine("tradeoffs-duty-cycle").rest.as_watts() - tradeoffs.rest.as_watts()).abs() < 0.01);
    }

    #[test]
    fn printed_tables_give_the_printed_powers() {
        let watts =
            |name, megahertz| (point(&machine(name), megahertz).power.as_watts() * 100.0).round() / 100.0;
        for (megahertz, expected) in [(2700, 3.46), (2000, 2.35), (1200, 1.32)] {
            assert_eq!(watts("ivybridge-ep-12", megahertz), expected);
        }
        for (megahertz, expected) in [(3400, 6.51), (1600, 2.78)] {
            assert_eq!(watts("ivybridge-desktop-4", megahertz), expected);
        }
        assert_eq!(machine("ivybridge-ep-12").frequencies.points.len(), 15);
        assert_eq!(machine("ivybridge-desktop-4").frequencies.points.len(), 13);
    }

    #[test]
    fn estimated_points_follow_the_law() {
        let platform = machine("xeon-e5-2630-v3");
        // V(1.8 GHz) = 0.70 + 0.30 x 0.6 / 2.0 = 0.79, V(2.4) = 0.88; a V = 15 % of 8.5 W at 2.4
        // GHz.
        let expected = 0.15 * 8.5 * 0.79 / 0.88 + 0.85 * 8.5 * (0.79f64 / 0.88).powi(2) * 1.8 / 2.4;
        assert!((point(&platform, 1800).power.as_watts() - expected).abs() < 1e-5, "{expected}");
        assert_eq!(point(&platform, 2400).power, Microwatts(8_500_000));
        assert_eq!(platform.frequencies.points.len(), 13);
        // Duty cycle changes no voltage: power is linear in the clock.
        let duty = machine("tradeoffs-duty-cycle");
        assert!(duty.frequencies.points.iter().all(|point| point.kind == PointKind::DutyCycle));
        let per_hertz = |megahertz| point(&duty, megahertz).power.0 as f64 / megahertz as f64;
        assert!((per_hertz(2600) / per_hertz(3300) - 1.0).abs() < 1e-3);
        // As everywhere else at 2.6 GHz.
        assert!((point(&duty, 2600).power.as_watts() - 11.5).abs() < 0.01);
    }

    #[test]
    fn turbo_is_off_unless_asked_for() {
        assert!(Platform::presets().iter().all(|platform| platform.turbo.is_empty()));
        let turbo = machine("carb").with_turbo().turbo;
        let bins: Vec<(u16, u64)> = turbo.iter().map(|bin| (bin.cores, bin.frequency.0 / 1000)).collect();
        assert_eq!(bins, [(2, 3200), (4, 2900), (8, 2600)]);
        assert!(turbo.iter().all(|bin| bin.power > Microwatts(8_500_000)));
        // The vendor's table, where the file has it.
        let turbo = machine("hurry-up").with_turbo().turbo;
        let bins: Vec<(u16, u64)> = turbo.iter().map(|bin| (bin.cores, bin.frequency.0 / 1000)).collect();
        assert_eq!(bins, [(2, 3700), (4, 3500), (8, 3400), (12, 3300)]);
    }

    #[test]
    fn real_wake_ups_may_be_ten_times_as_fast_as_advertised() {
        for name in ["epyc-7502", "epyc-9654"] {
            let deepest = machine(name).cstates.0[1].clone();
            let real = deepest.true_exit_latency.unwrap();
            assert!(deepest.exit_latency.as_nanos() >= 10 * real.as_nanos(), "{name}: {real}");
        }
    }

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
