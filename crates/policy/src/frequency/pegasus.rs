//! Pegasus: as little power as keeps the service just inside its latency target (iso-latency; Lo et
//! al., ISCA 2014, recalled).
//!
//! One controller for a machine. Once an epoch it compares the measured latency X, whatever
//! statistic the target T is stated for, with T and moves a *cap*, a share of the machine's full
//! power:
//!
//! | X | cap |
//! |---|---|
//! | above 1.35 T | full power for 5 minutes |
//! | above T | + 7 % |
//! | 0.85 T to T | as it is |
//! | below 0.85 T | - 1 % |
//! | below 0.60 T | - 3 % |
//!
//! Percent are read as points of full power, which is our reading: a step is then a larger share of
//! a low cap than of a high one, and below a cap of 7 % it would cross the band of 15 % in which
//! nothing is done. The cap does not fall below the power of the slowest operating point, where it
//! would do nothing but delay the way up; that is ours too.
//!
//! **The actuator** is one operating point for all cores: the fastest that takes no more than the
//! cap while it executes, as a share of the fastest operating point's power. A cap on power, as in
//! the paper, and not on frequency: a point then means the same watts everywhere. (RAPL caps an
//! average, and lets a half idle package run faster; this does not.)
//!
//! Invariants: the cap is between the slowest operating point's share and 1; for 5 minutes after a
//! violation it is 1; a service that cannot be measured has full power.
//!
//! Where it fails. It settles only if some operating point's latency is in the band. If one
//! operating point leaves X below 0.85 T and the next slower brings it above T, a ratio of 1.18, it
//! goes back and forth between them; and if that takes X above 1.35 T, it spends 5 minutes at full
//! power each time. It comes down by a point per epoch, from full to half power in about a minute
//! at epochs of a second; load that changes faster is served at the power of the last peak.

use super::{PointIndex, PointTable};
use crate::check::Check;
use crate::kind::{Decision, FrequencyPolicy, Make, Making, Policy, Readings, Seen};
use crate::registry::{Entry, Maturity, Parameter, Question, Runs, Word, number, settings, share, time};
use machine::{Duration, Instant, Microwatts, Ratio};
use serde::{Deserialize, Serialize};

pub static ENTRY: Entry = Entry {
    words: &[Word::new("pegasus", "by the measured tail, all cores alike", |around| {
        let plain = Params::default();
        settings(Params { target: around.latency_or(plain.target), ..plain })
    })],
    question: Question::Frequency,
    help: "Once an epoch the measured tail is compared with the target, and the share of full power that \
           the machine may draw moves by a few per cent; far above the target it is all of it, for \
           minutes.",
    runs: Runs::Live,
    maturity: Maturity::Experimental,
    origin: "Pegasus (Lo et al., ISCA 2014), recalled",
    needs_goal: true,
    make: Make::Frequency(|making| Box::new(Server::new(making))),
    ..Entry::of::<Params>()
};

/// The controller's constants, recalled from the paper where nothing else is said. Thresholds are
/// shares of the target, changes points of full power.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub target: Duration,
    #[serde(with = "machine::duration_text")]
    pub epoch: Duration,
    pub violation: f64,
    #[serde(with = "machine::duration_text")]
    pub hold: Duration,
    pub raise: f64,
    pub comfortable: f64,
    pub lower: f64,
    pub idle: f64,
    pub lower_fast: f64,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("target", "T: the latency that shall hold")
            .above_zero()
            .given("the goal")
            .source("stands for a target that each service states"),
        time("epoch", "time between two decisions")
            .above_zero()
            .source("ours: a tail of some thousand requests per second"),
        number("violation", "above this multiple of T, full power at once").source("Pegasus, recalled"),
        time("hold", "and for so long").source("Pegasus, recalled"),
        share("raise", "the step up above T").source("Pegasus, recalled"),
        number("comfortable", "below this multiple of T it steps down")
            .above_zero()
            .not_above("violation")
            .source("Pegasus, recalled"),
        share("lower", "by this").source("Pegasus, recalled"),
        number("idle", "below this multiple of T it steps down faster")
            .not_above("comfortable")
            .source("Pegasus, recalled"),
        share("lower_fast", "by this").source("Pegasus, recalled"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self {
            target: Duration::from_millis(1),
            epoch: Duration::from_secs(1),
            violation: 1.35,
            hold: Duration::from_secs(300),
            raise: 0.07,
            comfortable: 0.85,
            lower: 0.01,
            idle: 0.60,
            lower_fast: 0.03,
        }
    }
}

/// The measurement of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Latency {
    /// X.
    Measured(Duration),
    /// No request came: nothing can be learned, and none waited.
    NoRequests,
    /// Telemetry is lost.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pegasus {
    params: Params,
    cap: f64,
    /// The end of full power after the last violation.
    full_until: Instant,
}

impl Pegasus {
    /// The controller begins at full power.
    pub fn new(params: Params) -> Self {
        Self { params, cap: 1.0, full_until: Instant::ZERO }
    }

    /// Time between two calls of [`handle_epoch`](Self::handle_epoch).
    pub fn period(&self) -> Duration {
        self.params.epoch
    }

    /// Another target from now on. The cap stays; it was found for this load, and is moved from
    /// where it is.
    pub fn set_target(&mut self, target: Duration) {
        self.params.target = target;
    }

    /// The cap, as a share of full power.
    pub fn cap(&self) -> Ratio {
        Ratio::new(self.cap)
    }

    /// An epoch is over: the operating point of all cores in the next.
    pub fn handle_epoch(&mut self, now: Instant, points: &PointTable, latency: Latency) -> PointIndex {
        let full = points.power(points.fastest()).0.max(1) as f64;
        let least = points.power(points.slowest()).0 as f64 / full;
        self.cap = match latency {
            _ if now < self.full_until => 1.0,
            Latency::Unknown => 1.0,
            Latency::NoRequests => self.cap,
            Latency::Measured(measured) => self.judge(now, measured).clamp(least, 1.0),
        };
        points.at_most_power(Microwatts((self.cap * full) as u64))
    }

    fn judge(&mut self, now: Instant, measured: Duration) -> f64 {
        let Params { target, violation, hold, raise, comfortable, lower, idle, lower_fast, .. } = self.params;
        if measured > target.scale(violation) {
            self.full_until = now + hold;
            1.0
        } else if measured > target {
            self.cap + raise
        } else if measured < target.scale(idle) {
            self.cap - lower_fast
        } else if measured < target.scale(comfortable) {
            self.cap - lower
        } else {
            self.cap
        }
    }
}

/// The policy of a server whose driver measures the tail.
pub struct Server {
    policy: Pegasus,
    points: PointTable,
    quantile: f64,
    due: Instant,
    decision: Option<Decision>,
}

impl Server {
    fn new(making: &Making<'_>) -> Self {
        let policy = Pegasus::new(making.params());
        let (quantile, due) = (making.goal().quantile, Instant::ZERO + policy.period());
        Self { policy, points: making.points(), quantile, due, decision: None }
    }
}

impl Policy for Server {
    fn readings(&self) -> Readings {
        Readings { cpus: false, quantile: Some(self.quantile) }
    }

    fn handle_timeout(&mut self, now: Instant, seen: &Seen<'_>) {
        let latency = seen.responses.tail.map_or(Latency::NoRequests, Latency::Measured);
        self.decision = Some(Decision::Points(self.policy.handle_epoch(now, &self.points, latency)));
        self.due = now + self.policy.period();
    }

    fn poll_decision(&mut self) -> Option<Decision> {
        self.decision.take()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.due)
    }
}

impl FrequencyPolicy for Server {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::points::tests::{nine_points, points_at};
    use proptest::prelude::*;

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    fn micros(micros: u64) -> Latency {
        Latency::Measured(Duration::from_micros(micros))
    }

    #[test]
    fn the_table_by_hand() {
        let points = nine_points();
        for (latency, cap) in [
            (micros(1_350), 0.57),
            (micros(1_001), 0.57),
            (micros(1_000), 0.5),
            (micros(850), 0.5),
            (micros(849), 0.49),
            (micros(600), 0.49),
            (micros(599), 0.47),
            (micros(1_351), 1.0),
            (Latency::NoRequests, 0.5),
            (Latency::Unknown, 1.0),
        ] {
            let mut pegasus = Pegasus { cap: 0.5, ..Pegasus::new(Params::default()) };
            pegasus.handle_epoch(at(1), &points, latency);
            assert!((pegasus.cap - cap).abs() < 1e-12, "{latency:?}: {}", pegasus.cap);
        }
    }

    #[test]
    fn a_cap_is_the_fastest_point_within_its_power() {
        // Power is the cube of the clock: 0.79 of full power at 2.4 GHz of 2.6, 0.06 at 1.0.
        let points = nine_points();
        for (cap, point) in [(1.0, 8), (0.999, 7), (0.79, 7), (0.78, 6), (0.3, 3), (0.0, 0)] {
            let mut pegasus = Pegasus { cap, ..Pegasus::new(Params::default()) };
            assert_eq!(pegasus.handle_epoch(at(1), &points, Latency::NoRequests), PointIndex(point), "{cap}");
        }
    }

    #[test]
    fn a_violation_means_five_minutes_of_full_power() {
        let points = nine_points();
        let mut pegasus = Pegasus { cap: 0.3, ..Pegasus::new(Params::default()) };
        assert_eq!(pegasus.handle_epoch(at(10), &points, micros(1_400)), points.fastest());
        for second in 11..310 {
            let latency = [micros(100), Latency::NoRequests, micros(9_000)][second as usize % 3];
            assert_eq!(pegasus.handle_epoch(at(second), &points, latency), points.fastest(), "{second}");
            assert_eq!(pegasus.cap(), Ratio::ONE);
        }
        pegasus.handle_epoch(at(310), &points, micros(100));
        assert_eq!(pegasus.cap(), Ratio::new(0.97));
    }

    #[test]
    fn points_too_far_apart_never_settle() {
        // 0.8 T at the fast one, 1.2 T at the slow one: the known limit of a band of 15 %.
        let points = points_at(&[2_000, 3_000]);
        let mut pegasus = Pegasus::new(Params::default());
        let mut point = points.fastest();
        let mut visits = [0; 2];
        for second in 0..2_000 {
            point = pegasus.handle_epoch(at(second), &points, micros(if point.0 == 1 { 800 } else { 1_200 }));
            visits[point.index()] += u32::from(second >= 1_000);
        }
        assert!(visits[0] > 100 && visits[1] > 100, "{visits:?}");
    }

    proptest! {
        #[test]
        fn it_settles_just_inside_the_target(needs in 0.1..0.95_f64) {
            // Latency in inverse proportion to the cap; at the cap `needs` it is the target.
            let points = points_at(&[800, 3_000]);
            let mut pegasus = Pegasus::new(Params::default());
            let mut worst = Duration::ZERO;
            for second in 0..600 {
                let latency = Params::default().target.scale(needs / pegasus.cap);
                pegasus.handle_epoch(at(second), &points, Latency::Measured(latency));
                if second >= 300 {
                    worst = worst.max(latency);
                    prop_assert!(latency >= Params::default().target.scale(0.85), "{latency}");
                }
            }
            prop_assert!(worst <= Params::default().target, "{worst}");
        }

        #[test]
        fn the_cap_stays_within_its_bounds(
            epochs in prop::collection::vec((0_u64..400, prop::option::weighted(0.9, 0_u64..2_000)), 0..300),
        ) {
            let points = nine_points();
            let least = points.power(points.slowest()).0 as f64 / points.power(points.fastest()).0 as f64;
            let mut pegasus = Pegasus::new(Params::default());
            let mut now = 0;
            let mut violated: Option<u64> = None;
            for (after, latency) in epochs {
                now += after;
                let is_held = violated.is_some_and(|at| now < at + 300);
                let point = pegasus.handle_epoch(at(now), &points, latency.map_or(Latency::Unknown, micros));
                prop_assert!(point.index() < points.count());
                prop_assert!((least..=1.0).contains(&pegasus.cap));
                if is_held {
                    prop_assert_eq!(point, points.fastest());
                } else if latency.is_some_and(|micros| micros > 1_350) {
                    violated = Some(now);
                }
            }
        }
    }
}
