//! The clock at which light requests take the least energy (Hurry-up, Figure 2, observation 4: not
//! the lowest).
//!
//! The problem: a slower core takes less power, and longer. While it works longer, the parts that a
//! working core keeps from sleeping are on longer too. Where the sum is least is Hurry-up's
//! *middle* level.
//!
//! The approach: for each operating point of a machine's table, a request's CPU time is stretched
//! as the simulator stretches it (all of it with the clock, but the part that waits for memory),
//! and is charged the energy that there would not be without it: the core's power above its deepest
//! sleep, and its share of the socket's power beside the cores, above the power of that in *its*
//! deepest sleep.
//!
//! ```text
//!   time(operating point)   = time x (waiting + (1 - waiting) x measured at / operating point)
//!   energy(operating point) = time(operating point) x (power(operating point) - core asleep +
//!   uncore share x (uncore - package asleep))
//! ```
//!
//! Where that comes from: the first line is the simulator's law of speed (`sim`, and Hurry-up III:
//! nearly threefold the time at 1.0 of 2.6 GHz). The second is the difference of two machines, one
//! that works on the request and one that sleeps as deep as it can: the power that is there either
//! way (fans, memory that is refreshed, the other socket, an uncore that has no sleep) is in both,
//! and so cancels. The powers are those of the machine's table, each with its source
//! ([`Platform::sources`]).
//!
//! *Uncore share* is 1 where this core alone keeps its socket awake, as with one client that asks
//! again when it was answered. Where many cores work it is less: [`even_share`] divides a socket's
//! among its cores. The truth lies between, and moves the best clock: the larger the share, the
//! faster. With an even share Hurry-up's own machine reproduces both of its observations: light
//! requests take the least energy in between, and more at 1.0 GHz than at 2.6 (III, observations 3
//! and 4).
//!
//! Invariants: a figure for every operating point, in the table's order; the choice is the one of
//! least energy among those that can carry the load, the faster of two equals; energies are finite
//! and never negative.

use machine::{Duration, Kilohertz, Microwatts, Platform, Ratio};
use serde::{Deserialize, Serialize};

/// The needs of a light request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// CPU time of one, at the clock `measured_at`.
    pub time: Duration,
    /// The clock at which that was so; zero for the machine's nominal one.
    pub measured_at: Kilohertz,
    /// The part of it that waits for memory, which no clock shortens.
    pub waiting: Ratio,
    /// How many come a second, over all cores.
    pub per_second: f64,
    /// How much of its socket's uncore is on for this core: 0 to 1.
    pub uncore_share: Ratio,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockCost {
    pub frequency: Kilohertz,
    /// CPU time of a light request.
    pub time: Duration,
    /// Energy of one request, in joules.
    pub joules: f64,
    /// Whether the cores carry the load at this clock, with a tenth to spare.
    pub carries: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeastEnergy {
    /// Sorted from the slowest clock to the fastest.
    pub clocks: Vec<ClockCost>,
    /// The one of least energy; `None` if none carries the load.
    pub best: Option<usize>,
}

/// A queue that is busier than this has no tail worth speaking of.
const BUSY_MOST: f64 = 0.9;

/// A socket's uncore, divided among its cores: the charge of one where all have the same load.
pub fn even_share(platform: &Platform) -> Ratio {
    Ratio::new(1.0 / f64::from(platform.cores_per_socket.max(1)))
}

/// The energy of a light request at each clock of `platform`.
pub fn least_energy(platform: &Platform, work: &Work) -> LeastEnergy {
    let nominal = platform.frequencies.nominal().0 as f64;
    let measured = if work.measured_at.0 == 0 { nominal } else { work.measured_at.0 as f64 };
    let waiting = work.waiting.as_f64();
    let asleep = platform.cstates.0.last().and_then(|state| state.power).unwrap_or(Microwatts(0)).as_watts();
    // An uncore without a sleep of its own is on either way.
    let package = platform.package.map_or(platform.uncore, |package| package.power);
    let uncore = (platform.uncore.as_watts() - package.as_watts()).max(0.0);
    let clocks: Vec<ClockCost> = platform
        .frequencies
        .points
        .iter()
        .map(|point| {
            let time =
                work.time.scale(waiting + (1.0 - waiting) * measured / point.frequency.0.max(1) as f64);
            let above = (point.power.as_watts() - asleep).max(0.0) + work.uncore_share.as_f64() * uncore;
            let busy = work.per_second.max(0.0) * time.as_secs_f64() / platform.cpus().max(1) as f64;
            ClockCost {
                frequency: point.frequency,
                time,
                joules: time.as_secs_f64() * above,
                carries: busy <= BUSY_MOST,
            }
        })
        .collect();
    let best = (0..clocks.len())
        .filter(|&at| clocks[at].carries)
        .min_by(|&one, &other| clocks[one].joules.total_cmp(&clocks[other].joules).then(other.cmp(&one)));
    LeastEnergy { clocks, best }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn work(uncore_share: f64, waiting: f64) -> Work {
        Work {
            time: Duration::from_millis(2),
            measured_at: Kilohertz(0),
            waiting: Ratio::new(waiting),
            per_second: 100.0,
            uncore_share: Ratio::new(uncore_share),
        }
    }

    /// Hurry-up's own processor.
    fn platform() -> Platform {
        Platform::by_name("xeon-gold-6126").expect("the preset of Hurry-up's machine")
    }

    fn best(platform: &Platform, work: &Work) -> Kilohertz {
        let found = least_energy(platform, work);
        found.clocks[found.best.expect("it carries so little")].frequency
    }

    #[test]
    fn a_light_request_is_cheapest_in_between_and_dearer_slow_than_fast() {
        let platform = platform();
        let found = least_energy(&platform, &work(even_share(&platform).as_f64(), 0.0));
        // Hurry-up, Figure 2: the least at 2.0 GHz, with 1.7 and 2.3 near it; Figure 3: more at 1.0
        // than at 2.6 GHz.
        let best = found.clocks[found.best.unwrap()];
        assert!((1_700_000..=2_300_000).contains(&best.frequency.0), "{best:?}");
        let (slowest, fastest) = (found.clocks[0], found.clocks[found.clocks.len() - 1]);
        assert!(slowest.joules > fastest.joules && fastest.joules > best.joules, "{found:?}");
    }

    #[test]
    fn a_socket_that_is_on_for_one_core_is_to_sleep_again_soon() {
        let mut platform = platform();
        let fastest = platform.frequencies.nominal();
        assert_eq!(best(&platform, &work(1.0, 0.0)), fastest);
        platform.uncore = Microwatts::from_watts(500.0);
        let share = even_share(&platform).as_f64();
        assert_eq!(best(&platform, &work(share, 0.0)), fastest, "an uncore like that dominates shared, too");
    }

    #[test]
    fn what_is_there_either_way_is_not_charged() {
        let quiet = platform();
        let mut loud = platform();
        loud.rest = Microwatts::from_watts(1_000.0);
        loud.sockets = 4;
        let one = |platform: &Platform| least_energy(platform, &Work { per_second: 0.0, ..work(0.5, 0.2) });
        assert_eq!(one(&quiet), one(&loud));
        // An uncore that never sleeps is on without the request as well.
        let mut sleepless = platform();
        sleepless.package = None;
        assert_eq!(one(&sleepless), least_energy(&quiet, &Work { per_second: 0.0, ..work(0.0, 0.2) }));
    }

    #[test]
    fn a_load_that_no_clock_carries_has_no_best_one() {
        let heavy = Work { per_second: 1e9, ..work(0.0, 0.0) };
        let found = least_energy(&platform(), &heavy);
        assert_eq!(found.best, None);
        assert!(found.clocks.iter().all(|clock| !clock.carries));
    }

    #[test]
    fn a_time_that_was_measured_at_a_slow_clock_is_shorter_at_the_fast_one() {
        let platform = platform();
        let slow = platform.frequencies.points[0].frequency;
        let found = least_energy(&platform, &Work { measured_at: slow, ..work(0.0, 0.0) });
        assert_eq!(found.clocks[0].time, Duration::from_millis(2));
        let ratio = slow.0 as f64 / platform.frequencies.nominal().0 as f64;
        assert_eq!(found.clocks.last().unwrap().time, Duration::from_millis(2).scale(ratio));
    }

    proptest! {
        #[test]
        fn faster_is_never_longer_and_the_best_is_the_least(
            awake in 0.0..=1.0f64, waiting in 0.0..=1.0f64, per_second in 0.0..1e5f64, micros in 0u64..1_000_000
        ) {
            let asked = Work { time: Duration::from_micros(micros), per_second, ..work(awake, waiting) };
            let found = least_energy(&platform(), &asked);
            for pair in found.clocks.windows(2) {
                prop_assert!(pair[0].time >= pair[1].time && pair[0].carries <= pair[1].carries);
            }
            prop_assert!(found.clocks.iter().all(|clock| clock.joules.is_finite() && clock.joules >= 0.0));
            if let Some(best) = found.best {
                prop_assert!(found.clocks.iter().all(|clock| !clock.carries || clock.joules >= found.clocks[best].joules));
            } else {
                prop_assert!(found.clocks.iter().all(|clock| !clock.carries));
            }
        }
    }
}
