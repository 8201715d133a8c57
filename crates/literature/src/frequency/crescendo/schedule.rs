//! Which operating point for which part of a request: schedules, and for each the time that it
//! takes.
//!
//! Work is cut into equal *parts* up to the quantile that the goal speaks of. The share of requests
//! that get as far as part i is S_i; the time that the part takes in operating point g is t(g) =
//! compute / speed(g) + memory. The schedule that spends least energy among those that take no
//! longer minimises
//!
//! ```text
//!   sum over i of  S_i * t(g_i) * (P(g_i) + E)  +  lambda * t(g_i)
//! ```
//!
//! for some lambda: only few requests pay for a late part, all of them wait for it. The sum falls
//! apart into its terms, so each part's operating point is found by itself, whatever the shape of P
//! (Lorch and Smith, "Improving dynamic voltage scaling algorithms with PACE", SIGMETRICS 2001,
//! with a cubic P; here with the table's). One schedule is kept for each of a range of lambdas,
//! slow to fast.
//!
//! P is the power of a core beyond its power asleep; E the energy that its stay costs the rest of
//! the machine.
//!
//! Invariants: within a schedule operating points do not fall; a later schedule is in no part
//! slower; times are finite.

use machine::Microwatts;
use policy::frequency::log_histogram::LogHistogram;
use policy::frequency::{PointIndex, PointTable};
use serde::{Deserialize, Serialize};

/// Parts that work is cut into \[D\]: twice as many save another hundredth of the energy at most
/// (tested).
pub(super) const PARTS: usize = 32;
/// Schedules \[D\]: from one to the next, lambda grows by the square root of two.
const SCHEDULES: usize = 48;

/// The cost of the stay of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    /// Of a core that has nothing to do.
    pub asleep: Microwatts,
    /// Of the rest of the machine, for as long as the core is awake.
    pub others_watts: f64,
    /// Memory time for each nanosecond of computing at the nominal clock.
    pub memory: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Schedules {
    /// Computing time of one part, at the nominal clock.
    part_ns: f64,
    parts: usize,
    memory: f64,
    slow_to_fast: Vec<Schedule>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Schedule {
    points: Vec<PointIndex>,
    /// From the beginning of each part to the end of the last.
    left_ns: Vec<f64>,
}

/// The plan for a request that has come to some place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    pub point: PointIndex,
    /// For so long at the earliest.
    pub lasts_ns: f64,
}

impl Schedules {
    /// For requests that compute as `measured` says, parts no shorter than `least_ns`; `None`
    /// without any computing.
    pub fn of(
        measured: &LogHistogram,
        quantile: f64,
        least_ns: f64,
        cost: Cost,
        points: &PointTable,
    ) -> Option<Self> {
        let longest_ns = measured.quantile(quantile)?.as_nanos() as f64;
        if longest_ns <= 0.0 {
            return None;
        }
        let parts = ((longest_ns / least_ns.max(1.0)) as usize).clamp(1, PARTS);
        Some(Self::in_parts(measured, longest_ns, parts, cost, points))
    }

    fn in_parts(
        measured: &LogHistogram,
        longest_ns: f64,
        parts: usize,
        cost: Cost,
        points: &PointTable,
    ) -> Self {
        let part_ns = longest_ns / parts as f64;
        let survive = survivors(measured, part_ns, parts);
        let fastest_watts = points.power(points.fastest()).as_watts().max(1e-6);
        let all: Vec<Priced> = points.iter().map(|point| Priced::new(point, &cost, points)).collect();
        let schedule = |step: usize| {
            let lambda = fastest_watts * f64::exp2(step as f64 / 2.0 - LEAST_LAMBDA);
            let chosen: Vec<Priced> =
                survive.iter().map(|&share| Priced::best(&all, share, lambda)).collect();
            let mut left_ns = vec![0.0; parts + 1];
            for part in (0..parts).rev() {
                left_ns[part] = left_ns[part + 1] + part_ns * chosen[part].time;
            }
            Schedule { points: chosen.iter().map(|priced| priced.point).collect(), left_ns }
        };
        let mut slow_to_fast: Vec<Schedule> = (0..SCHEDULES).map(schedule).collect();
        slow_to_fast.dedup();
        Self { part_ns, parts, memory: cost.memory, slow_to_fast }
    }

    /// For a request that has computed so much and has so much time left: the next step of the
    /// cheapest schedule with which it keeps its goal, or of the fastest. `None` beyond the
    /// quantile.
    pub fn step(&self, done_ns: f64, time_ns: f64, points: &PointTable) -> Option<Step> {
        let at = done_ns / self.part_ns;
        // A hair before the next part is in it: a step that was planned to end with a part has
        // ended with it.
        let part = (at + HAIR) as usize;
        if part >= self.parts {
            return None;
        }
        let ahead = (part as f64 + 1.0 - at).clamp(0.0, 1.0);
        let left = |schedule: &Schedule| {
            let within = schedule.left_ns[part] - schedule.left_ns[part + 1];
            schedule.left_ns[part + 1] + within * ahead
        };
        let enough = self.slow_to_fast.partition_point(|schedule| left(schedule) > time_ns * (1.0 + HAIR));
        let schedule = &self.slow_to_fast[enough.min(self.slow_to_fast.len() - 1)];
        let point = schedule.points[part];
        // To where the operating point changes, or time is to be compared with plan again.
        let same = schedule.points[part..].iter().take_while(|&&other| other == point).count();
        let compute_ns = (same as f64 - 1.0 + ahead).max(HAIR) * self.part_ns;
        Some(Step { point, lasts_ns: compute_ns * (1.0 / points.speed(point) + self.memory) })
    }
}

/// The cost of a nanosecond of nominal computing in an operating point.
#[derive(Clone, Copy, Debug)]
struct Priced {
    point: PointIndex,
    time: f64,
    energy: f64,
}

impl Priced {
    fn new(point: PointIndex, cost: &Cost, points: &PointTable) -> Self {
        let time = 1.0 / points.speed(point) + cost.memory;
        let watts = points.power(point).as_watts() - cost.asleep.as_watts() + cost.others_watts;
        Self { point, time, energy: watts.max(0.0) * time }
    }

    /// The fastest of those that cost least: within a schedule operating points must not fall
    /// through rounding.
    fn best(all: &[Self], share: f64, lambda: f64) -> Self {
        let price = |priced: &Self| share * priced.energy + lambda * priced.time;
        let cheaper = |a: Self, b: &Self| if price(b) <= price(&a) { *b } else { a };
        all.iter().skip(1).fold(all[0], cheaper)
    }
}

/// The share of requests that get to each part; to a part that no more than the goal's misses get
/// to, so many.
fn survivors(measured: &LogHistogram, part_ns: f64, parts: usize) -> Vec<f64> {
    let total = measured.total() as f64;
    let mut beyond = vec![0.0; parts];
    for bucket in measured.buckets() {
        // Whole parts up to its end, and of the part in which it ends as much as it needs.
        let reaches = bucket.middle_ns() / part_ns;
        for (part, share) in beyond.iter_mut().enumerate() {
            *share += f64::from(bucket.count) * (reaches - part as f64).clamp(0.0, 1.0);
        }
    }
    let mut least = 1.0_f64;
    for share in &mut beyond {
        least = least.min(*share / total);
        *share = least;
    }
    beyond
}

/// The first lambda is 2^-this of the fastest operating point's power: less than the misses of any
/// goal can outweigh.
const LEAST_LAMBDA: f64 = 14.0;

/// In parts, and as a share of time: the harmless error of rounding.
const HAIR: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::points::tests::nine_points;
    use machine::Duration;
    use proptest::prelude::*;

    pub(crate) fn measured(lengths_us: impl IntoIterator<Item = f64>) -> LogHistogram {
        let mut histogram = LogHistogram::new();
        lengths_us.into_iter().for_each(|us| histogram.record(Duration::from_secs_f64(us * 1e-6)));
        histogram
    }

    const COST: Cost = Cost { asleep: Microwatts(0), others_watts: 0.0, memory: 0.0 };

    fn schedules(lengths_us: &[f64], memory: f64) -> Schedules {
        let histogram = measured(lengths_us.iter().copied());
        Schedules::of(&histogram, 0.99, 1.0, Cost { memory, ..COST }, &nine_points()).unwrap()
    }

    /// Mean energy of requests, and the time of the longest, all on time from the start.
    fn spent(schedules: &Schedules, lengths_us: &[f64], budget_us: f64) -> (f64, f64) {
        let points = nine_points();
        let (mut energy, mut longest) = (0.0, 0.0_f64);
        for &length in lengths_us {
            let (mut done, mut time) = (0.0, 0.0);
            while done < length * 1e3 - 1e-6 {
                let step = schedules.step(done, budget_us * 1e3 - time, &points);
                let step = step.unwrap_or(Step { point: points.fastest(), lasts_ns: f64::MAX });
                let per_work = 1.0 / points.speed(step.point) + schedules.memory;
                let lasts = step.lasts_ns.min((length * 1e3 - done) * per_work);
                energy += lasts * points.power(step.point).as_watts();
                time += lasts;
                done += lasts / per_work;
            }
            longest = longest.max(time);
        }
        (energy / lengths_us.len() as f64, longest / 1e3)
    }

    #[test]
    fn most_requests_are_done_before_it_gets_fast() {
        // Nine of ten take 10 us, the tenth 100 us; 200 us are left for that.
        let lengths: Vec<f64> = (0..1_000).map(|k| if k % 10 == 0 { 100.0 } else { 10.0 }).collect();
        let schedules = schedules(&lengths, 0.0);
        let points = nine_points();
        let (energy, longest) = spent(&schedules, &lengths, 200.0);
        assert!((180.0..=200.5).contains(&longest), "{longest}");
        // At one operating point for all of a request, that which makes it in time.
        let steady = points.at_least_speed(100.0 / 200.0);
        let mean_ns = lengths.iter().sum::<f64>();
        let steady = mean_ns / points.speed(steady) * points.power(steady).as_watts();
        assert!(energy < 0.97 * steady, "{energy} nJ, {steady} with one operating point");
        let first = schedules.step(0.0, 200e3, &points).unwrap().point;
        assert!(first < schedules.step(50e3, 95e3, &points).unwrap().point);
    }

    #[test]
    fn more_parts_save_little() {
        // Exponential, mean 50 us; the 99th of a hundred needs 230.
        let lengths: Vec<f64> =
            (0..2_000).map(|k| -50.0 * (1.0 - (f64::from(k) + 0.5) / 2_000.0).ln()).collect();
        let histogram = measured(lengths.iter().copied());
        let longest_ns = histogram.quantile(0.99).unwrap().as_nanos() as f64;
        for budget_us in [250.0, 350.0, 500.0] {
            let energy = |parts| {
                let schedules = Schedules::in_parts(&histogram, longest_ns, parts, COST, &nine_points());
                spent(&schedules, &lengths, budget_us).0
            };
            assert!(energy(2 * PARTS) > 0.99 * energy(PARTS), "{budget_us} us");
            assert!(energy(1) > 1.02 * energy(PARTS), "{budget_us} us: nothing to win");
        }
    }

    #[test]
    fn who_is_late_gets_faster_and_who_is_beyond_help_the_fastest() {
        let lengths: Vec<f64> = (0..1_000).map(|k| 10.0 + f64::from(k) * 0.1).collect();
        let (schedules, points) = (schedules(&lengths, 0.3), nine_points());
        let point = |time_us: f64| schedules.step(0.0, time_us * 1e3, &points).unwrap().point;
        let times = [1e4, 300.0, 250.0, 200.0, 150.0, 130.0, 50.0, 0.0, -10.0];
        assert!(times.windows(2).all(|pair| point(pair[0]) <= point(pair[1])));
        assert_eq!((point(1e4), point(-10.0)), (points.slowest(), points.fastest()));
        assert_eq!(schedules.step(109.99e3, 1e9, &points), None, "beyond the quantile");
    }

    #[test]
    fn a_stay_that_costs_the_machine_more_is_shorter() {
        let histogram = measured((0..1_000).map(|k| 50.0 + f64::from(k) * 0.05));
        let points = nine_points();
        let first = |others_watts| {
            let cost = Cost { others_watts, ..COST };
            Schedules::of(&histogram, 0.99, 1.0, cost, &points)
                .unwrap()
                .step(0.0, 1e9, &points)
                .unwrap()
                .point
        };
        assert_eq!(first(0.0), points.slowest());
        assert!(first(1_000.0) > points.slowest());
    }

    #[test]
    fn no_work_no_schedule_and_short_work_one_part() {
        let of = |histogram: &LogHistogram, least_ns| {
            Schedules::of(histogram, 0.99, least_ns, COST, &nine_points()).map(|schedules| schedules.parts)
        };
        assert_eq!(of(&LogHistogram::new(), 1.0), None);
        assert_eq!(of(&measured([0.0; 10]), 1.0), None);
        assert_eq!(of(&measured([10.0; 10]), 40e3), Some(1), "the clock is slower than the request");
        assert_eq!(of(&measured([10.0; 10]), 2_500.0), Some(4));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn points_rise_and_faster_schedules_are_faster(
            lengths in prop::collection::vec(0.5..500.0_f64, 1..60),
            memory in 0.0..2.0_f64,
            budget in 1.0..5_000.0_f64,
        ) {
            let schedules = schedules(&lengths, memory);
            for schedule in &schedules.slow_to_fast {
                prop_assert!(schedule.points.is_sorted());
                prop_assert!(schedule.left_ns.iter().all(|left| left.is_finite()));
            }
            for pair in schedules.slow_to_fast.windows(2) {
                let slower = pair[0].points.iter().zip(&pair[1].points).all(|(slow, fast)| slow <= fast);
                prop_assert!(slower);
            }
            // A request that can keep the goal does.
            let longest = lengths.iter().copied().fold(0.0, f64::max);
            let (_, took) = spent(&schedules, &lengths, budget);
            let least = longest * (1.0 + memory);
            prop_assert!(took <= budget.max(least) * 1.02 + 0.1, "{took} of {budget}, at best {least}");
        }
    }
}
