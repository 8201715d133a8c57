//! One pace for all cores, whatever happens: the fastest P-state that is no faster than a share of
//! the nominal frequency.
//!
//! The scale of the answer is the machine's own, so one line compares machines whose frequencies
//! differ: `fixed-pace` at 0.6 is 60 % of each one's nominal speed. The userspace governor
//! ([`fixed`](super::fixed)) takes kilohertz instead and rounds up.

use super::{PointIndex, PointTable};
use machine::Ratio;
use policy::check::Check;
use policy::kind::{Constant, Make};
use policy::registry::{Entry, Parameter, Question, Word, settings, share};
use serde::{Deserialize, Serialize};

pub static ENTRY: Entry = Entry {
    words: &[Word::new("fixed-pace", "a share of the nominal frequency", |_| settings(Params::default()))],
    question: Question::Frequency,
    help: "All cores run at one frequency, whatever happens: the fastest of the machine's that is at most \
           the given share of its nominal one; the slowest if none is.",
    origin: "ours, after Linux's userspace governor",
    is_constant: true,
    make: Make::Frequency(|making| {
        let params: Params = making.params();
        Box::new(Constant(Some(params.point(&making.points()))))
    }),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    pub fraction: Ratio,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] =
        &[share("fraction", "of the nominal frequency").source("ours: the middle of most tables")];
}

impl Default for Params {
    fn default() -> Self {
        Self { fraction: Ratio::new(0.6) }
    }
}

impl Params {
    fn point(self, points: &PointTable) -> PointIndex {
        let fits = |point: &PointIndex| points.speed(*point) <= self.fraction.as_f64() + ROUNDING;
        points.iter().rfind(fits).unwrap_or(points.slowest())
    }
}

/// A share that a file writes in decimals still means the P-state of that share.
const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::points::tests::nine_points;
    use proptest::prelude::*;

    fn point(fraction: f64) -> u8 {
        Params { fraction: Ratio::new(fraction) }.point(&nine_points()).0
    }

    #[test]
    fn it_is_the_fastest_that_is_not_above_the_share() {
        // 1.0 to 2.6 GHz in steps of 200 MHz: thirteenths from 5/13 on.
        for (fraction, index) in [(0.0, 0), (0.38, 0), (0.45, 0), (0.4616, 1), (0.6, 2), (0.62, 3), (1.0, 8)]
        {
            assert_eq!(point(fraction), index, "{fraction}");
        }
    }

    proptest! {
        #[test]
        fn a_greater_share_is_never_slower(less in 0.0_f64..=1.0, more in 0.0_f64..=1.0) {
            let (less, more) = (less.min(more), less.max(more));
            prop_assert!(point(less) <= point(more));
        }
    }
}
