//! The clock at which light requests take the least energy (Hurry-up, Figure 2, observation 4: not the lowest).
//!
//! The problem: a slower core takes less power, and longer. While it works longer, everything that a working core keeps
//! from sleeping is on longer too. Where the sum is least is Hurry-up's *middle* level.
//!
//! The approach: for each gear of a machine's table, a request's CPU time is stretched as the simulator stretches it (all of it
//! with the clock, but the part that waits for memory), and is charged what a core takes above what it takes asleep, plus the
//! machine's own power for as long as that core is the reason that the machine is awake.
//!
//! ```text
//!   time(gear)   = time x (waiting + (1 - waiting) x nominal / gear)
//!   energy(gear) = time(gear) x (power(gear) - power asleep + kept awake x rest)
//! ```
//!
//! *Kept awake* is 1 where requests come one at a time and the next is sent when the last was answered, as in the paper's own
//! experiment: a slower run is a longer run, of the whole machine. It is 0 where requests come when they come and the rest is on
//! anyway. In between it is the share of a busy core in keeping the socket's uncore up.
//!
//! What always holds: a figure for every gear, in the table's order; the choice is the one of least energy among those that can
//! carry the load, the faster of two equals; energies are finite and never negative.

use machine::{Duration, Kilohertz, Microwatts, Platform, Ratio};
use serde::{Deserialize, Serialize};

/// What a light request asks of a core.
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
    /// How much of the rest of the machine is on because a core works: 0 to 1.
    pub kept_awake: Ratio,
}

/// What one clock costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockCost {
    /// The clock.
    pub frequency: Kilohertz,
    /// CPU time of a light request.
    pub time: Duration,
    /// Energy of one request, in joules.
    pub joules: f64,
    /// Whether the cores carry the load at this clock, with a tenth to spare.
    pub carries: bool,
}

/// All clocks of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeastEnergy {
    /// Slow to fast.
    pub clocks: Vec<ClockCost>,
    /// The one of least energy; `None` if none carries the load.
    pub best: Option<usize>,
}

/// A queue that is busier than this has no tail worth speaking of.
const BUSY_MOST: f64 = 0.9;

/// The energy of a light request at each clock of `platform`.
pub fn least_energy(platform: &Platform, work: &Work) -> LeastEnergy {
    let nominal = platform.frequencies.nominal().0 as f64;
    let measured = if work.measured_at.0 == 0 { nominal } else { work.measured_at.0 as f64 };
    let waiting = work.waiting.as_f64();
    let asleep = platform.cstates.0.first().and_then(|state| state.power).unwrap_or(Microwatts(0)).as_watts();
    let rest = f64::from(platform.sockets) * platform.uncore.as_watts() + platform.rest.as_watts();
    let clocks: Vec<ClockCost> = platform
        .frequencies
        .gears
        .iter()
        .map(|gear| {
            let time = work.time.scale(waiting + (1.0 - waiting) * measured / gear.frequency.0.max(1) as f64);
            let above = (gear.power.as_watts() - asleep).max(0.0) + work.kept_awake.as_f64() * rest;
            let busy = work.per_second.max(0.0) * time.as_secs_f64() / platform.cpus().max(1) as f64;
            ClockCost {
                frequency: gear.frequency,
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

    fn work(kept_awake: f64, waiting: f64) -> Work {
        Work {
            time: Duration::from_millis(2),
            measured_at: Kilohertz(0),
            waiting: Ratio::new(waiting),
            per_second: 100.0,
            kept_awake: Ratio::new(kept_awake),
        }
    }

    /// Hurry-up's own processor.
    fn platform() -> Platform {
        Platform::by_name("xeon-gold-6126").expect("the preset of Hurry-up's machine")
    }

    #[test]
    fn a_machine_that_is_on_for_the_request_is_cheapest_fast_and_one_that_is_on_anyway_is_not() {
        let alone = least_energy(&platform(), &work(1.0, 0.0));
        let shared = least_energy(&platform(), &work(0.0, 0.0));
        assert_eq!(alone.best, Some(alone.clocks.len() - 1), "{alone:?}");
        assert!(shared.best.unwrap() < alone.best.unwrap(), "{shared:?}");
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
        let slow = platform.frequencies.gears[0].frequency;
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
            prop_assert!(found.clocks.windows(2).all(|pair| pair[0].time >= pair[1].time && pair[0].carries <= pair[1].carries));
            prop_assert!(found.clocks.iter().all(|clock| clock.joules.is_finite() && clock.joules >= 0.0));
            if let Some(best) = found.best {
                prop_assert!(found.clocks.iter().all(|clock| !clock.carries || clock.joules >= found.clocks[best].joules));
            } else {
                prop_assert!(found.clocks.iter().all(|clock| !clock.carries));
            }
        }
    }
}
