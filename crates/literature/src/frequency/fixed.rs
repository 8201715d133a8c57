//! One gear, whatever happens: Linux's `performance`, `powersave` and `userspace` governors (Hurry-up, section II-D).

use super::{GearIndex, GearTable};
use machine::Kilohertz;
use serde::{Deserialize, Serialize};

/// Which gear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fixed {
    /// The fastest.
    #[default]
    Performance,
    /// The slowest.
    Powersave,
    /// The slowest with at least this clock; the fastest if none has it (the kernel's `CPUFREQ_RELATION_L`).
    Userspace(Kilohertz),
}

impl Fixed {
    /// The gear.
    pub fn gear(self, gears: &GearTable) -> GearIndex {
        match self {
            Self::Performance => gears.fastest(),
            Self::Powersave => gears.slowest(),
            Self::Userspace(clock) => gears.at_least(clock),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::gears::tests::nine_gears;

    #[test]
    fn each_names_its_gear() {
        let gears = nine_gears();
        assert_eq!(Fixed::Performance.gear(&gears), GearIndex(8));
        assert_eq!(Fixed::Powersave.gear(&gears), GearIndex(0));
        for (khz, gear) in [(0, 0), (2_000_000, 5), (2_000_001, 6), (3_700_000, 8)] {
            assert_eq!(Fixed::Userspace(Kilohertz(khz)).gear(&gears), GearIndex(gear), "{khz}");
        }
    }

    #[test]
    fn a_scenario_can_say_it() {
        for fixed in [Fixed::Performance, Fixed::Powersave, Fixed::Userspace(Kilohertz(2_000_000))] {
            let text = serde_json::to_string(&fixed).unwrap();
            assert_eq!(serde_json::from_str::<Fixed>(&text).unwrap(), fixed);
        }
        assert_eq!(
            serde_json::to_string(&Fixed::Userspace(Kilohertz(2_000_000))).unwrap(),
            r#"{"userspace":2000000}"#
        );
    }
}
