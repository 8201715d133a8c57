//! A core's gears as the frequency policies see them: by place, from slow to fast.
//!
//! A *gear* is one clock setting ([`machine::Gear`]), its *speed* the share of the nominal
//! frequency that it runs at. Work that only computes takes 1 / speed times as long; work that
//! waits for memory less. Whether a gear lowers the voltage too, or stops the clock for part of the
//! time, shows in its power alone.
//!
//! Invariants: at least one gear and at most [`GearTable::MAX_GEARS`]; frequencies rise from
//! gear to gear, power never falls; the fastest has speed 1. Turbo is not in the table: it is the
//! fastest gear while few cores are awake, and no policy may count on it.

use machine::{FrequencyTable, Gear, Kilohertz, Microwatts};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A gear by its place in the [`GearTable`]; a greater one is faster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GearIndex(pub u8);

impl GearIndex {
    /// As an index into a list that has one entry for each.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for GearIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("gear{}", self.0))
    }
}

/// Frequency, speed and power of every gear. It holds no pointer, and questions to it neither
/// allocate nor divide.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Gear>", into = "Vec<Gear>")]
pub struct GearTable {
    count: u8,
    gears: [Gear; Self::MAX_GEARS],
    speeds: [f64; Self::MAX_GEARS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GearTableError {
    #[error("there are no gears\n\nhint: give at least one: {{ frequency, power }}")]
    Empty,
    /// This count is more than a table holds.
    #[error("{0} gears are more than {max}\n\nhint: leave out every other one", max = GearTable::MAX_GEARS)]
    TooMany(usize),
    /// This one does not follow the one before it.
    #[error(
        "gear {0} is out of order\n\nhint: list gears from slow to fast, above 0 kHz, power never falling"
    )]
    OutOfOrder(usize),
}

impl GearTable {
    /// How many gears a table holds. Steps of 100 MHz between 0.8 and 3.9 GHz fit; ours.
    pub const MAX_GEARS: usize = 32;

    pub fn new(frequencies: &FrequencyTable) -> Result<Self, GearTableError> {
        Self::from_gears(&frequencies.gears)
    }

    /// Those gears, from the slowest on.
    pub fn from_gears(from: &[Gear]) -> Result<Self, GearTableError> {
        let &fastest = from.last().ok_or(GearTableError::Empty)?;
        if from.len() > Self::MAX_GEARS {
            return Err(GearTableError::TooMany(from.len()));
        }
        let mut slower = (Kilohertz(0), Microwatts(0));
        for (place, gear) in from.iter().enumerate() {
            if gear.frequency <= slower.0 || gear.power < slower.1 {
                return Err(GearTableError::OutOfOrder(place));
            }
            slower = (gear.frequency, gear.power);
        }
        let mut gears = [fastest; Self::MAX_GEARS];
        gears[..from.len()].copy_from_slice(from);
        let speeds = gears.map(|gear| gear.frequency.0 as f64 / fastest.frequency.0 as f64);
        Ok(Self { count: from.len() as u8, gears, speeds })
    }

    pub const fn count(&self) -> usize {
        self.count as usize
    }

    /// All of them, slow to fast.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = GearIndex> + use<> {
        (0..self.count).map(GearIndex)
    }

    /// The gear with the lowest clock.
    pub const fn slowest(&self) -> GearIndex {
        GearIndex(0)
    }

    /// The gear of the nominal frequency.
    pub const fn fastest(&self) -> GearIndex {
        GearIndex(self.count - 1)
    }

    /// The clock of a gear. As in all questions about a gear, one that is not in the table is the
    /// caller's bug and panics.
    pub fn khz(&self, gear: GearIndex) -> Kilohertz {
        self.gears[..self.count()][gear.index()].frequency
    }

    /// Its clock as a share of the nominal one: above 0, up to 1.
    pub fn speed(&self, gear: GearIndex) -> f64 {
        self.speeds[..self.count()][gear.index()]
    }

    /// The power of one core that executes in it.
    pub fn power(&self, gear: GearIndex) -> Microwatts {
        self.gears[..self.count()][gear.index()].power
    }

    /// The slowest gear with at least this speed; the fastest if none has it, or if `speed` is
    /// undefined.
    pub fn at_least_speed(&self, speed: f64) -> GearIndex {
        // Negated, so that NaN finds no gear that will do.
        #[expect(clippy::neg_cmp_op_on_partial_ord)]
        let place = self.speeds[..self.count()].partition_point(|&has| !(has >= speed));
        GearIndex((place as u8).min(self.count - 1))
    }

    /// The slowest gear with at least this clock; the fastest if none has it.
    pub fn at_least(&self, clock: Kilohertz) -> GearIndex {
        let place = self.gears[..self.count()].partition_point(|gear| gear.frequency < clock);
        GearIndex((place as u8).min(self.count - 1))
    }

    /// The gear whose clock is closest to this; the faster of two equally close.
    pub fn nearest(&self, clock: Kilohertz) -> GearIndex {
        let above = self.at_least(clock);
        let below = GearIndex(above.0.saturating_sub(1));
        let nearer_below = clock.0.abs_diff(self.khz(below).0) < clock.0.abs_diff(self.khz(above).0);
        if nearer_below { below } else { above }
    }

    /// The fastest gear with at most this power; the slowest if none has it.
    pub fn at_most_power(&self, power: Microwatts) -> GearIndex {
        let place = self.gears[..self.count()].partition_point(|gear| gear.power <= power);
        GearIndex((place as u8).saturating_sub(1))
    }
}

impl TryFrom<Vec<Gear>> for GearTable {
    type Error = GearTableError;
    fn try_from(gears: Vec<Gear>) -> Result<Self, GearTableError> {
        Self::from_gears(&gears)
    }
}

impl From<GearTable> for Vec<Gear> {
    fn from(table: GearTable) -> Self {
        table.gears[..table.count()].to_vec()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use machine::{ClockDomain, Duration, GearKind};
    use proptest::prelude::*;

    /// Gears at these clocks, and power that rises with the cube of the clock: 10 W at the fastest.
    pub(crate) fn gears_at(mhz: &[u64]) -> GearTable {
        let fastest = mhz[mhz.len() - 1] as f64;
        let gear = |&mhz: &u64| Gear {
            frequency: Kilohertz(mhz * 1_000),
            power: Microwatts::from_watts(10.0 * (mhz as f64 / fastest).powi(3)),
            kind: GearKind::Pstate,
        };
        GearTable::from_gears(&mhz.iter().map(gear).collect::<Vec<_>>()).unwrap()
    }

    /// 1.0 to 2.6 GHz in steps of 200 MHz.
    pub(crate) fn nine_gears() -> GearTable {
        gears_at(&[1_000, 1_200, 1_400, 1_600, 1_800, 2_000, 2_200, 2_400, 2_600])
    }

    #[test]
    fn gears_answer_for_themselves() {
        let gears = gears_at(&[1_000, 2_000, 2_500]);
        assert_eq!((gears.slowest(), gears.fastest(), gears.count()), (GearIndex(0), GearIndex(2), 3));
        assert_eq!(gears.khz(GearIndex(1)), Kilohertz(2_000_000));
        assert_eq!(gears.speed(GearIndex(1)), 0.8);
        assert_eq!(gears.power(GearIndex(2)), Microwatts(10_000_000));
        assert_eq!(gears.iter().rev().collect::<Vec<_>>(), [GearIndex(2), GearIndex(1), GearIndex(0)]);
    }

    #[test]
    fn speed_rounds_up_and_power_rounds_down() {
        let gears = gears_at(&[1_000, 2_000, 2_500]);
        for (speed, gear) in
            [(-1.0, 0), (0.0, 0), (0.4, 0), (0.41, 1), (0.8, 1), (0.81, 2), (1.0, 2), (9.0, 2), (f64::NAN, 2)]
        {
            assert_eq!(gears.at_least_speed(speed), GearIndex(gear), "{speed}");
        }
        for (watts, gear) in [(0.0, 0), (0.64, 0), (5.11, 0), (5.12, 1), (9.99, 1), (10.0, 2), (99.0, 2)] {
            assert_eq!(gears.at_most_power(Microwatts::from_watts(watts)), GearIndex(gear), "{watts}");
        }
    }

    #[test]
    fn clocks_round_up_or_to_the_nearest() {
        let gears = gears_at(&[1_000, 2_000, 2_500]);
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
            let expected = (GearIndex(up), GearIndex(nearest));
            assert_eq!((gears.at_least(clock), gears.nearest(clock)), expected, "{mhz}");
        }
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn a_gear_of_another_table_is_a_bug() {
        gears_at(&[1_000, 2_000]).speed(GearIndex(2));
    }

    #[test]
    fn bad_gears_make_no_table() {
        let gear = |khz, microwatts| Gear {
            frequency: Kilohertz(khz),
            power: Microwatts(microwatts),
            kind: GearKind::DutyCycle,
        };
        let table = |gears: Vec<Gear>| {
            GearTable::new(&FrequencyTable {
                gears,
                domain: ClockDomain::Core,
                delay: Duration::ZERO,
                stall: Duration::ZERO,
            })
        };
        assert_eq!(table(vec![]), Err(GearTableError::Empty));
        assert_eq!(table(vec![gear(0, 1)]), Err(GearTableError::OutOfOrder(0)));
        assert_eq!(table(vec![gear(2, 1), gear(2, 1)]), Err(GearTableError::OutOfOrder(1)));
        assert_eq!(table(vec![gear(1, 2), gear(2, 1)]), Err(GearTableError::OutOfOrder(1)));
        let many = |count| (1..=count).map(|khz| gear(khz, 1)).collect::<Vec<_>>();
        assert_eq!(table(many(33)), Err(GearTableError::TooMany(33)));
        assert_eq!(table(many(32)).unwrap().count(), 32);
        let text = GearTableError::TooMany(33).to_string();
        assert!(text.starts_with("33 gears are more than 32\n\nhint: "), "{text}");
    }

    #[test]
    fn a_table_survives_being_written_and_read() {
        let gears = nine_gears();
        let text = serde_json::to_string(&gears).unwrap();
        assert_eq!(serde_json::from_str::<GearTable>(&text).unwrap(), gears);
        assert!(serde_json::from_str::<GearTable>("[]").is_err());
    }

    proptest! {
        #[test]
        fn the_gear_found_is_the_nearest_that_will_do(
            steps in prop::collection::vec(1_u64..500, 1..=32),
            speed in 0.0..1.1_f64,
            watts in 0.0..11.0_f64,
        ) {
            let mut mhz = 0;
            let clocks: Vec<u64> = steps.iter().map(|step| { mhz += step; mhz }).collect();
            let gears = gears_at(&clocks);
            let enough = gears.iter().find(|&gear| gears.speed(gear) >= speed).unwrap_or(gears.fastest());
            prop_assert_eq!(gears.at_least_speed(speed), enough);
            let power = Microwatts::from_watts(watts);
            let frugal = gears.iter().rfind(|&gear| gears.power(gear) <= power).unwrap_or(gears.slowest());
            prop_assert_eq!(gears.at_most_power(power), frugal);
            prop_assert_eq!(gears.speed(gears.fastest()), 1.0);
        }
    }
}
