//! A core's operating points as the frequency policies see them: by place, from slow to fast.
//!
//! A *operating point* is one clock setting ([`machine::OperatingPoint`]), its *speed* the share of
//! the nominal frequency that it runs at. Work that only computes takes 1 / speed times as long;
//! work that waits for memory less. Whether an operating point lowers the voltage too, or stops the
//! clock for part of the time, shows in its power alone.
//!
//! Invariants: at least one operating point and at most [`PointTable::MAX_POINTS`]; frequencies
//! rise from operating point to operating point, power never falls; the fastest has speed 1. Turbo
//! is not in the table: it is the fastest operating point while few cores are awake, and no policy
//! may count on it.

use machine::{FrequencyTable, Kilohertz, Microwatts, OperatingPoint};
use serde::{Deserialize, Serialize};
use std::fmt;

/// An operating point by its place in the [`PointTable`]; a greater one is faster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PointIndex(pub u8);

impl PointIndex {
    /// As an index into a list that has one entry for each.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PointIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("point{}", self.0))
    }
}

/// Frequency, speed and power of every operating point. It holds no pointer, and questions to it
/// neither allocate nor divide.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<OperatingPoint>", into = "Vec<OperatingPoint>")]
pub struct PointTable {
    count: u8,
    points: [OperatingPoint; Self::MAX_POINTS],
    speeds: [f64; Self::MAX_POINTS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointTableError {
    #[error("there are no operating points\n\nhint: give at least one: {{ frequency, power }}")]
    Empty,
    /// This count is more than a table holds.
    #[error("{0} operating points are more than {max}\n\nhint: leave out every other one", max = PointTable::MAX_POINTS)]
    TooMany(usize),
    /// This one does not follow the one before it.
    #[error(
        "operating point {0} is out of order\n\nhint: list them from slow to fast, above 0 kHz, power \
         never falling"
    )]
    OutOfOrder(usize),
}

impl PointTable {
    /// How many operating points a table holds. Steps of 100 MHz between 0.8 and 3.9 GHz fit; ours.
    pub const MAX_POINTS: usize = 32;

    pub fn new(frequencies: &FrequencyTable) -> Result<Self, PointTableError> {
        Self::from_points(&frequencies.points)
    }

    /// Those operating points, from the slowest on.
    pub fn from_points(from: &[OperatingPoint]) -> Result<Self, PointTableError> {
        let &fastest = from.last().ok_or(PointTableError::Empty)?;
        if from.len() > Self::MAX_POINTS {
            return Err(PointTableError::TooMany(from.len()));
        }
        let mut slower = (Kilohertz(0), Microwatts(0));
        for (place, point) in from.iter().enumerate() {
            if point.frequency <= slower.0 || point.power < slower.1 {
                return Err(PointTableError::OutOfOrder(place));
            }
            slower = (point.frequency, point.power);
        }
        let mut points = [fastest; Self::MAX_POINTS];
        points[..from.len()].copy_from_slice(from);
        let speeds = points.map(|point| point.frequency.0 as f64 / fastest.frequency.0 as f64);
        Ok(Self { count: from.len() as u8, points, speeds })
    }

    pub const fn count(&self) -> usize {
        self.count as usize
    }

    /// All of them, slow to fast.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = PointIndex> + use<> {
        (0..self.count).map(PointIndex)
    }

    /// The operating point with the lowest clock.
    pub const fn slowest(&self) -> PointIndex {
        PointIndex(0)
    }

    /// The operating point of the nominal frequency.
    pub const fn fastest(&self) -> PointIndex {
        PointIndex(self.count - 1)
    }

    /// The clock of an operating point. As in all questions about an operating point, one that is
    /// not in the table is the caller's bug and panics.
    pub fn khz(&self, point: PointIndex) -> Kilohertz {
        self.points[..self.count()][point.index()].frequency
    }

    /// Its clock as a share of the nominal one: above 0, up to 1.
    pub fn speed(&self, point: PointIndex) -> f64 {
        self.speeds[..self.count()][point.index()]
    }

    /// The power of one core that executes in it.
    pub fn power(&self, point: PointIndex) -> Microwatts {
        self.points[..self.count()][point.index()].power
    }

    /// The slowest operating point with at least this speed; the fastest if none has it, or if
    /// `speed` is undefined.
    pub fn at_least_speed(&self, speed: f64) -> PointIndex {
        // Negated, so that NaN finds no operating point that will do.
        #[expect(clippy::neg_cmp_op_on_partial_ord)]
        let place = self.speeds[..self.count()].partition_point(|&has| !(has >= speed));
        PointIndex((place as u8).min(self.count - 1))
    }

    /// The slowest operating point with at least this clock; the fastest if none has it.
    pub fn at_least(&self, clock: Kilohertz) -> PointIndex {
        let place = self.points[..self.count()].partition_point(|point| point.frequency < clock);
        PointIndex((place as u8).min(self.count - 1))
    }

    /// The operating point whose clock is closest to this; the faster of two equally close.
    pub fn nearest(&self, clock: Kilohertz) -> PointIndex {
        let above = self.at_least(clock);
        let below = PointIndex(above.0.saturating_sub(1));
        let nearer_below = clock.0.abs_diff(self.khz(below).0) < clock.0.abs_diff(self.khz(above).0);
        if nearer_below { below } else { above }
    }

    /// The fastest operating point with at most this power; the slowest if none has it.
    pub fn at_most_power(&self, power: Microwatts) -> PointIndex {
        let place = self.points[..self.count()].partition_point(|point| point.power <= power);
        PointIndex((place as u8).saturating_sub(1))
    }
}

impl TryFrom<Vec<OperatingPoint>> for PointTable {
    type Error = PointTableError;
    fn try_from(points: Vec<OperatingPoint>) -> Result<Self, PointTableError> {
        Self::from_points(&points)
    }
}

impl From<PointTable> for Vec<OperatingPoint> {
    fn from(table: PointTable) -> Self {
        table.points[..table.count()].to_vec()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use machine::{ClockDomain, Duration, PointKind};
    use proptest::prelude::*;

    /// Operating points at these clocks, and power that rises with the cube of the clock: 10 W at
    /// the fastest.
    pub(crate) fn points_at(mhz: &[u64]) -> PointTable {
        let fastest = mhz[mhz.len() - 1] as f64;
        let point = |&mhz: &u64| OperatingPoint {
            frequency: Kilohertz(mhz * 1_000),
            power: Microwatts::from_watts(10.0 * (mhz as f64 / fastest).powi(3)),
            kind: PointKind::Pstate,
        };
        PointTable::from_points(&mhz.iter().map(point).collect::<Vec<_>>()).unwrap()
    }

    /// 1.0 to 2.6 GHz in steps of 200 MHz.
    pub(crate) fn nine_points() -> PointTable {
        points_at(&[1_000, 1_200, 1_400, 1_600, 1_800, 2_000, 2_200, 2_400, 2_600])
    }

    #[test]
    fn points_answer_for_themselves() {
        let points = points_at(&[1_000, 2_000, 2_500]);
        assert_eq!((points.slowest(), points.fastest(), points.count()), (PointIndex(0), PointIndex(2), 3));
        assert_eq!(points.khz(PointIndex(1)), Kilohertz(2_000_000));
        assert_eq!(points.speed(PointIndex(1)), 0.8);
        assert_eq!(points.power(PointIndex(2)), Microwatts(10_000_000));
        assert_eq!(points.iter().rev().collect::<Vec<_>>(), [PointIndex(2), PointIndex(1), PointIndex(0)]);
    }

    #[test]
    fn speed_rounds_up_and_power_rounds_down() {
        let points = points_at(&[1_000, 2_000, 2_500]);
        for (speed, point) in
            [(-1.0, 0), (0.0, 0), (0.4, 0), (0.41, 1), (0.8, 1), (0.81, 2), (1.0, 2), (9.0, 2), (f64::NAN, 2)]
        {
            assert_eq!(points.at_least_speed(speed), PointIndex(point), "{speed}");
        }
        for (watts, point) in [(0.0, 0), (0.64, 0), (5.11, 0), (5.12, 1), (9.99, 1), (10.0, 2), (99.0, 2)] {
            assert_eq!(points.at_most_power(Microwatts::from_watts(watts)), PointIndex(point), "{watts}");
        }
    }

    #[test]
    fn clocks_round_up_or_to_the_nearest() {
        let points = points_at(&[1_000, 2_000, 2_500]);
        for (mhz, up, nearest) in [
            (0, 0, 0),
            (1_000, 0, 0),
            (1_499, 1, 0),
            (1_500, 1, 1),
            (2_249, 2, 1),
            (2_250, 2, 2),
            (9_000, 2, 2),
        ] {
            let clock = Kilohertz(mhz * 1_000);
            let expected = (PointIndex(up), PointIndex(nearest));
            assert_eq!((points.at_least(clock), points.nearest(clock)), expected, "{mhz}");
        }
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn a_point_of_another_table_is_a_bug() {
        points_at(&[1_000, 2_000]).speed(PointIndex(2));
    }

    #[test]
    fn bad_points_make_no_table() {
        let point = |khz, microwatts| OperatingPoint {
            frequency: Kilohertz(khz),
            power: Microwatts(microwatts),
            kind: PointKind::DutyCycle,
        };
        let table = |points: Vec<OperatingPoint>| {
            PointTable::new(&FrequencyTable {
                points,
                domain: ClockDomain::Core,
                delay: Duration::ZERO,
                stall: Duration::ZERO,
            })
        };
        assert_eq!(table(vec![]), Err(PointTableError::Empty));
        assert_eq!(table(vec![point(0, 1)]), Err(PointTableError::OutOfOrder(0)));
        assert_eq!(table(vec![point(2, 1), point(2, 1)]), Err(PointTableError::OutOfOrder(1)));
        assert_eq!(table(vec![point(1, 2), point(2, 1)]), Err(PointTableError::OutOfOrder(1)));
        let many = |count| (1..=count).map(|khz| point(khz, 1)).collect::<Vec<_>>();
        assert_eq!(table(many(33)), Err(PointTableError::TooMany(33)));
        assert_eq!(table(many(32)).unwrap().count(), 32);
        let text = PointTableError::TooMany(33).to_string();
        assert!(text.starts_with("33 operating points are more than 32\n\nhint: "), "{text}");
    }

    #[test]
    fn a_table_survives_being_written_and_read() {
        let points = nine_points();
        let text = serde_json::to_string(&points).unwrap();
        assert_eq!(serde_json::from_str::<PointTable>(&text).unwrap(), points);
        assert!(serde_json::from_str::<PointTable>("[]").is_err());
    }

    proptest! {
        #[test]
        fn the_point_found_is_the_nearest_that_will_do(
            steps in prop::collection::vec(1_u64..500, 1..=32),
            speed in 0.0..1.1_f64,
            watts in 0.0..11.0_f64,
        ) {
            let mut mhz = 0;
            let clocks: Vec<u64> = steps.iter().map(|step| { mhz += step; mhz }).collect();
            let points = points_at(&clocks);
            let enough = points.iter().find(|&point| points.speed(point) >= speed).unwrap_or(points.fastest());
            prop_assert_eq!(points.at_least_speed(speed), enough);
            let power = Microwatts::from_watts(watts);
            let frugal = points.iter().rfind(|&point| points.power(point) <= power).unwrap_or(points.slowest());
            prop_assert_eq!(points.at_most_power(power), frugal);
            prop_assert_eq!(points.speed(points.fastest()), 1.0);
        }
    }
}
