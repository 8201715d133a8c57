//! One operating point, whatever happens: Linux's `performance`, `powersave` and `userspace`
//! governors (Hurry-up, section II-D).

use super::{PointIndex, PointTable};
use machine::Kilohertz;
use policy::check::Check;
use policy::kind::{Constant, Make};
use policy::registry::{Entry, Parameter, Question, Word, clock, settings};
use serde::{Deserialize, Serialize};

/// The operating point that every core keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fixed {
    /// The fastest.
    #[default]
    Performance,
    /// The slowest.
    Powersave,
    /// The slowest with at least this clock; the fastest if none has it (the kernel's
    /// `CPUFREQ_RELATION_L`).
    Userspace(Kilohertz),
}

/// The entry of the two ends of the table.
pub static ENDS: Entry = Entry {
    words: &[Word::bare("performance", "the fastest"), Word::bare("powersave", "the slowest")],
    question: Question::Frequency,
    help: "One end of the table of frequencies, whatever happens.",
    origin: "Linux; Hurry-up, section II-D",
    is_constant: true,
    make: Make::Frequency(|making| {
        let end = if making.word == "powersave" { Fixed::Powersave } else { Fixed::Performance };
        Box::new(Constant(Some(end.point(&making.points()))))
    }),
    ..Entry::PLAIN
};

/// The entry of any other frequency.
pub static USERSPACE: Entry = Entry {
    words: &[Word::new("fixed", "one frequency", |around| {
        let nominal = around.platform.and_then(|platform| platform.frequencies.points.last());
        settings(
            nominal.map_or_else(UserspaceParams::default, |point| UserspaceParams { khz: point.frequency }),
        )
    })],
    question: Question::Frequency,
    help: "One frequency, whatever happens: the slowest of the machine's that is at least the one given.",
    origin: "Linux, the userspace governor",
    is_constant: true,
    make: Make::Frequency(|making| {
        let UserspaceParams { khz } = making.params();
        Box::new(Constant(Some(Fixed::Userspace(khz).point(&making.points()))))
    }),
    ..Entry::of::<UserspaceParams>()
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserspaceParams {
    pub khz: Kilohertz,
}

impl Check for UserspaceParams {
    const PARAMETERS: &'static [Parameter] =
        &[clock("khz", "which").given("the machine").source("the nominal frequency")];
}

impl Default for UserspaceParams {
    fn default() -> Self {
        Self { khz: Kilohertz(2_100_000) }
    }
}

impl Fixed {
    pub fn point(self, points: &PointTable) -> PointIndex {
        match self {
            Self::Performance => points.fastest(),
            Self::Powersave => points.slowest(),
            Self::Userspace(clock) => points.at_least(clock),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::points::tests::nine_points;

    #[test]
    fn each_names_its_point() {
        let points = nine_points();
        assert_eq!(Fixed::Performance.point(&points), PointIndex(8));
        assert_eq!(Fixed::Powersave.point(&points), PointIndex(0));
        for (khz, point) in [(0, 0), (2_000_000, 5), (2_000_001, 6), (3_700_000, 8)] {
            assert_eq!(Fixed::Userspace(Kilohertz(khz)).point(&points), PointIndex(point), "{khz}");
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
