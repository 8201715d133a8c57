//! The price of a core's time, and the operating point that is cheapest at it.
//!
//! Work is cut into equal *parts* up to the quantile that the goal speaks of. The share of requests
//! that get as far as part i is S_i; the time that the part takes in operating point g is t(g) =
//! compute / speed(g) + memory. The *schedule* that spends least energy among those that take no
//! longer minimises
//!
//! ```text
//!   sum over i of  S_i * t(g_i) * (P(g_i) + E)  +  lambda * t(g_i)
//! ```
//!
//! for some lambda, the *price of time* of the request: only few requests pay for a late part, all
//! of them wait for it. The sum falls apart into its terms, so each part's operating point is found
//! by itself, whatever the shape of P (Lorch and Smith, "Improving dynamic voltage scaling
//! algorithms with PACE", SIGMETRICS 2001, with a cubic P; here with the table's). It is the
//! cheapest at the price E + lambda / S_i of a core's time, which a *ladder* tells. A range of lambdas
//! is tried.
//!
//! P is the power of a core beyond its power asleep; E the power that ends as well when the core has
//! done its work.
//!
//! Invariants: within a schedule operating points do not fall; a greater lambda is in no part slower.

use machine::Microwatts;
use policy::frequency::log_histogram::LogHistogram;
use policy::frequency::{PointIndex, PointTable};
use serde::{Deserialize, Serialize};

/// Parts that work is cut into \[D\]: twice as many save another hundredth of the energy at most
/// (tested).
pub(super) const PARTS: usize = 32;
/// Schedules \[D\]: from one to the next, lambda grows by the square root of two.
const SCHEDULES: usize = 48;

/// The operating points that are cheapest at some price, each with the price from which on it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Ladder(Vec<Rung>);

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Rung {
    from_watts: f64,
    point: PointIndex,
    /// Of a nanosecond of computing at the nominal clock.
    time: f64,
}

impl Ladder {
    /// With the memory time for each nanosecond of computing at the nominal clock, and the speed and
    /// power that the fastest operating point really has.
    pub fn new(points: &PointTable, asleep: Microwatts, memory: f64, turbo: (f64, Microwatts)) -> Self {
        let priced = |point| {
            let is_fastest = point == points.fastest();
            let (speed, power) = if is_fastest { turbo } else { (points.speed(point), points.power(point)) };
            let time = 1.0 / speed + memory;
            (point, time, (power.as_watts() - asleep.as_watts()).max(0.0) * time)
        };
        let all: Vec<(PointIndex, f64, f64)> = points.iter().map(priced).collect();
        // The faster of two that cost the same.
        let first = all.iter().rev().min_by(|a, b| a.2.total_cmp(&b.2));
        let mut at = *first.expect("a table has a point");
        let mut rungs = vec![Rung { from_watts: 0.0, point: at.0, time: at.1 }];
        loop {
            let crossing = |other: &(PointIndex, f64, f64)| (other.2 - at.2) / (at.1 - other.1);
            let faster = all.iter().rev().filter(|other| other.1 < at.1);
            let Some(next) = faster.min_by(|a, b| crossing(a).total_cmp(&crossing(b))) else { break };
            rungs.push(Rung { from_watts: crossing(next), point: next.0, time: next.1 });
            at = *next;
        }
        Self(rungs)
    }

    /// The cheapest operating point where a core's time costs so much.
    pub fn point(&self, watts: f64) -> PointIndex {
        self.rung(watts).point
    }

    fn rung(&self, watts: f64) -> &Rung {
        &self.0[self.0.partition_point(|rung| rung.from_watts <= watts).max(1) - 1]
    }

    /// No price beyond it makes a difference.
    pub fn highest(&self) -> f64 {
        self.0[self.0.len() - 1].from_watts
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Schedules {
    /// Computing time of one part, at the nominal clock.
    part_ns: f64,
    /// The share of requests that get to each part.
    survive: Vec<f64>,
    /// By part: the mean computing of a request that is at its beginning.
    rest_ns: Vec<f64>,
    slow_to_fast: Vec<Schedule>,
}

/// Of a request that has not begun, beside nothing that costs more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Schedule {
    lambda: f64,
    time_ns: f64,
}

/// The part of the work that a request has come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    part: usize,
    /// The share of this part that is still to do.
    ahead: f64,
}

impl Schedules {
    /// For requests that compute as `measured` says, parts no shorter than `least_ns`, where a core's time
    /// costs `others_watts` beside it; `None` without any computing.
    pub fn of(
        measured: &LogHistogram,
        quantile: f64,
        least_ns: f64,
        others_watts: f64,
        ladder: &Ladder,
    ) -> Option<Self> {
        let longest_ns = measured.quantile(quantile)?.as_nanos() as f64;
        if longest_ns <= 0.0 {
            return None;
        }
        let parts = ((longest_ns / least_ns.max(1.0)) as usize).clamp(1, PARTS);
        Some(Self::in_parts(measured, longest_ns, parts, others_watts, ladder))
    }

    fn in_parts(
        measured: &LogHistogram,
        longest_ns: f64,
        parts: usize,
        others_watts: f64,
        ladder: &Ladder,
    ) -> Self {
        let part_ns = longest_ns / parts as f64;
        let survive = survivors(measured, part_ns, parts);
        let highest = ladder.highest().max(1e-6);
        let lambdas =
            (0..SCHEDULES).map(|step| highest * f64::exp2((step as f64 + 1.0 - SCHEDULES as f64) / 2.0));
        let schedule = |lambda: f64| {
            let time = |survive: &f64| ladder.rung(others_watts + lambda / survive).time;
            Schedule { lambda, time_ns: part_ns * survive.iter().map(time).sum::<f64>() }
        };
        let mut slow_to_fast: Vec<Schedule> = lambdas.map(schedule).collect();
        slow_to_fast.dedup_by(|next, kept| next.time_ns == kept.time_ns);
        let mut rest_ns = vec![0.0; parts];
        let mut beyond = 0.0;
        for part in (0..parts).rev() {
            beyond += survive[part];
            rest_ns[part] = part_ns * beyond / survive[part];
        }
        Self { part_ns, survive, rest_ns, slow_to_fast }
    }

    pub fn parts(&self) -> usize {
        self.survive.len()
    }

    /// Of a request that has computed so much; `None` beyond the quantile.
    pub fn place(&self, done_ns: f64) -> Option<Place> {
        let at = done_ns / self.part_ns;
        // A hair before the next part is in it: a step that was planned to end with a part has
        // ended with it.
        let part = (at + HAIR) as usize;
        (part < self.survive.len()).then(|| Place { part, ahead: (part as f64 + 1.0 - at).clamp(0.0, 1.0) })
    }

    /// The price of time of a request there with so much time left, on a core whose time costs
    /// `others_watts` beside it: that of the cheapest schedule with which it keeps its goal; `None` if no
    /// schedule keeps it.
    pub fn price(&self, place: Place, time_ns: f64, others_watts: f64, ladder: &Ladder) -> Option<f64> {
        let Place { part, ahead } = place;
        let left_ns = |lambda: f64| {
            let time = |survive: &f64| ladder.rung(others_watts + lambda / survive).time;
            let later: f64 = self.survive[part + 1..].iter().map(time).sum();
            self.part_ns * (time(&self.survive[part]) * ahead + later)
        };
        let is_late = |schedule: &Schedule| left_ns(schedule.lambda) > time_ns * (1.0 + HAIR);
        self.slow_to_fast.get(self.slow_to_fast.partition_point(is_late)).map(|schedule| schedule.lambda)
    }

    /// The same for one that waits, where nothing costs more beside it.
    pub fn price_of_waiting(&self, time_ns: f64) -> Option<f64> {
        let is_late = |schedule: &Schedule| schedule.time_ns > time_ns * (1.0 + HAIR);
        self.slow_to_fast.get(self.slow_to_fast.partition_point(is_late)).map(|schedule| schedule.lambda)
    }

    /// The price of a core's time for a request there.
    pub fn watts(&self, place: Place, lambda: f64) -> f64 {
        lambda / self.survive[place.part]
    }

    /// The mean computing that is left to it.
    pub fn rest_ns(&self, place: Place) -> f64 {
        (self.rest_ns[place.part] - (1.0 - place.ahead) * self.part_ns).max(0.0)
    }

    /// For so long at the earliest the operating point of this price stays the cheapest.
    pub fn lasts_ns(&self, place: Place, lambda: f64, others_watts: f64, ladder: &Ladder) -> f64 {
        let rung = ladder.rung(others_watts + self.watts(place, lambda));
        let same = |survive: &&f64| ladder.rung(others_watts + lambda / **survive).point == rung.point;
        let parts = self.survive[place.part..].iter().take_while(same).count().max(1) as f64;
        (parts - 1.0 + place.ahead).max(HAIR) * self.part_ns * rung.time
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

    fn ladder(memory: f64) -> Ladder {
        let points = nine_points();
        Ladder::new(&points, Microwatts(0), memory, (1.0, points.power(points.fastest())))
    }

    fn schedules(lengths_us: &[f64], memory: f64) -> Schedules {
        let histogram = measured(lengths_us.iter().copied());
        Schedules::of(&histogram, 0.99, 1.0, 0.0, &ladder(memory)).unwrap()
    }

    /// The operating point of a request that has done so much, how long it lasts, and the time of a
    /// nanosecond of computing in it.
    fn step(
        schedules: &Schedules,
        memory: f64,
        done_ns: f64,
        time_ns: f64,
    ) -> Option<(PointIndex, f64, f64)> {
        let (ladder, place) = (ladder(memory), schedules.place(done_ns)?);
        let lambda = schedules.price(place, time_ns, 0.0, &ladder)?;
        let rung = ladder.rung(schedules.watts(place, lambda));
        Some((rung.point, schedules.lasts_ns(place, lambda, 0.0, &ladder), rung.time))
    }

    /// Mean energy of requests, and the time of the longest, all on time from the start.
    fn spent(schedules: &Schedules, memory: f64, lengths_us: &[f64], budget_us: f64) -> (f64, f64) {
        let points = nine_points();
        let (mut energy, mut longest) = (0.0, 0.0_f64);
        for &length in lengths_us {
            let (mut done, mut time) = (0.0, 0.0);
            while done < length * 1e3 - 1e-6 {
                let fastest = (points.fastest(), f64::MAX, 1.0 + memory);
                let (point, lasts, per_work) =
                    step(schedules, memory, done, budget_us * 1e3 - time).unwrap_or(fastest);
                let lasts = lasts.min((length * 1e3 - done) * per_work);
                energy += lasts * points.power(point).as_watts();
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
        let (energy, longest) = spent(&schedules, 0.0, &lengths, 200.0);
        assert!((180.0..=200.5).contains(&longest), "{longest}");
        // At one operating point for all of a request, that which makes it in time.
        let steady = points.at_least_speed(100.0 / 200.0);
        let mean_ns = lengths.iter().sum::<f64>();
        let steady = mean_ns / points.speed(steady) * points.power(steady).as_watts();
        assert!(energy < 0.97 * steady, "{energy} nJ, {steady} with one operating point");
        let point = |done_ns, time_ns| step(&schedules, 0.0, done_ns, time_ns).unwrap().0;
        assert!(point(0.0, 200e3) < point(50e3, 95e3));
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
                let schedules = Schedules::in_parts(&histogram, longest_ns, parts, 0.0, &ladder(0.0));
                spent(&schedules, 0.0, &lengths, budget_us).0
            };
            assert!(energy(2 * PARTS) > 0.99 * energy(PARTS), "{budget_us} us");
            assert!(energy(1) > 1.02 * energy(PARTS), "{budget_us} us: nothing to win");
        }
    }

    #[test]
    fn who_is_late_gets_faster_and_who_is_beyond_help_the_fastest() {
        let lengths: Vec<f64> = (0..1_000).map(|k| 10.0 + f64::from(k) * 0.1).collect();
        let (schedules, points) = (schedules(&lengths, 0.3), nine_points());
        let point = |time_us: f64| {
            step(&schedules, 0.3, 0.0, time_us * 1e3).map_or(points.fastest(), |(point, ..)| point)
        };
        let times = [1e4, 300.0, 250.0, 200.0, 150.0, 130.0, 50.0, 0.0, -10.0];
        assert!(times.windows(2).all(|pair| point(pair[0]) <= point(pair[1])));
        assert_eq!((point(1e4), point(-10.0)), (points.slowest(), points.fastest()));
        assert_eq!(schedules.place(109.99e3), None, "beyond the quantile");
    }

    #[test]
    fn the_higher_the_price_the_faster_and_the_cheapest_point_is_on_the_ladder() {
        let (points, ladder) = (nine_points(), ladder(0.3));
        let prices = (0..200).map(|tenths| f64::from(tenths) / 10.0);
        let chosen: Vec<PointIndex> = prices.clone().map(|watts| ladder.point(watts)).collect();
        assert!(chosen.is_sorted() && ladder.point(ladder.highest()) == points.fastest());
        for (watts, chosen) in prices.zip(chosen) {
            let cost = |point| (points.power(point).as_watts() + watts) * (1.0 / points.speed(point) + 0.3);
            let least = points.iter().map(cost).fold(f64::INFINITY, f64::min);
            assert!(cost(chosen) <= least * 1.000_001, "{watts} W: {chosen}");
        }
    }

    #[test]
    fn a_turbo_that_does_more_for_its_power_takes_the_place_of_slower_points() {
        let points = nine_points();
        let power = points.power(points.fastest());
        let turbo = Ladder::new(&points, Microwatts(0), 0.0, (1.5, power));
        assert!(turbo.highest() < ladder(0.0).highest());
        assert_eq!(turbo.point(turbo.highest()), points.fastest());
    }

    #[test]
    fn a_stay_that_costs_the_machine_more_is_shorter() {
        let histogram = measured((0..1_000).map(|k| 50.0 + f64::from(k) * 0.05));
        let (points, ladder) = (nine_points(), ladder(0.0));
        let first = |others_watts| {
            let schedules = Schedules::of(&histogram, 0.99, 1.0, others_watts, &ladder).unwrap();
            let place = schedules.place(0.0).unwrap();
            let lambda = schedules.price(place, 1e9, others_watts, &ladder).unwrap();
            ladder.point(others_watts + schedules.watts(place, lambda))
        };
        assert_eq!(first(0.0), points.slowest());
        assert!(first(1_000.0) > points.slowest());
    }

    #[test]
    fn no_work_no_schedule_and_short_work_one_part() {
        let of = |histogram: &LogHistogram, least_ns| {
            Schedules::of(histogram, 0.99, least_ns, 0.0, &ladder(0.0)).map(|schedules| schedules.parts())
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
            let ladder = ladder(memory);
            let points = |schedule: &Schedule| -> Vec<PointIndex> {
                let watts = schedules.survive.iter().map(|survive| schedule.lambda / survive);
                watts.map(|watts| ladder.point(watts)).collect()
            };
            for schedule in &schedules.slow_to_fast {
                prop_assert!(points(schedule).is_sorted() && schedule.time_ns.is_finite());
            }
            for pair in schedules.slow_to_fast.windows(2) {
                prop_assert!(pair[0].time_ns > pair[1].time_ns);
                let [slower, faster] = [&pair[0], &pair[1]].map(points);
                prop_assert!(slower.iter().zip(&faster).all(|(slow, fast)| slow <= fast));
            }
            // A request that can keep the goal does.
            let longest = lengths.iter().copied().fold(0.0, f64::max);
            let (_, took) = spent(&schedules, memory, &lengths, budget);
            let least = longest * (1.0 + memory);
            prop_assert!(took <= budget.max(least) * 1.02 + 0.1, "{took} of {budget}, at best {least}");
        }
    }
}
