//! Requests that wait at one worker, more of them than its plan can have.
//!
//! The driver counts them at every look at its sockets and tells when they are more than the *limit* that a
//! plan gave. They are too many by themselves, with no wait for a rate: so a jump of the load is seen after
//! as many requests. Guests are then sent home until half of the limit is left.
//!
//! A CPU that was taken away for a while finds as many without any jump. The time since it served last
//! tells: the requests that should have come meanwhile are credited, and the credit fades over the longest
//! stall that is remembered ([`Params::stall_memory`](super::Params::stall_memory)).

use machine::{Duration, Instant, Rate};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Backlog {
    /// When the worker served last.
    pub served: Instant,
    credit: f64,
    credited: Instant,
    pub is_over: bool,
}

impl Backlog {
    /// So many wait at a worker that has `load` requests a second.
    pub fn judge(&mut self, now: Instant, waiting: u32, limit: u32, load: Rate, memory: Duration) {
        let earned = load.as_per_second() * now.since(self.served).min(memory).as_secs_f64();
        let faded = now.since(self.credited).as_secs_f64() / memory.as_secs_f64().max(1e-9);
        let left = self.credit * (1.0 - faded).max(0.0);
        if earned > left {
            (self.credit, self.credited) = (earned, now);
        }
        let limit = f64::from(limit) * if self.is_over { 0.5 } else { 1.0 };
        self.is_over = f64::from(waiting) - earned.max(left) > limit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Duration = Duration::from_millis(20);

    fn at_us(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    /// At 50,000 requests a second, looks at the backlog some microseconds after the last request.
    fn judged(looks: &[(u64, u64, u32)]) -> Vec<bool> {
        let mut backlog = Backlog::default();
        let look = |&(served_us, now_us, waiting): &(u64, u64, u32)| {
            backlog.served = at_us(served_us);
            backlog.judge(at_us(now_us), waiting, 100, Rate::per_second(50e3), MEMORY);
            backlog.is_over
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn more_than_the_limit_are_too_many_until_half_of_it_is_left() {
        let looks = [(0, 10, 100), (20, 30, 102), (30, 40, 60), (40, 50, 40), (50, 60, 60)];
        assert_eq!(judged(&looks), [false, true, true, false, false]);
    }

    #[test]
    fn as_many_as_came_while_the_cpu_was_taken_away_are_not() {
        // 250 in 5 ms, and 150 more are a jump; the credit fades.
        assert_eq!(judged(&[(0, 5_000, 340)]), [false]);
        assert_eq!(judged(&[(0, 5_000, 360)]), [true]);
        assert_eq!(
            judged(&[(0, 5_000, 300), (14_990, 15_000, 200), (24_990, 25_000, 200)]),
            [false, false, true]
        );
    }
}
