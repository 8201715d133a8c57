//! The end of a report period: the sum of the loads, the limit that it teaches, and the bound up to
//! which guests stay.

use super::Worker;
use crate::Movable;
use crate::peafowl::{LearnedLimit, Sample};
use machine::{Instant, Rate, WorkerReading};

impl Worker {
    /// The report period is over: sums the loads, learns the limit, judges the load.
    /// O(connections).
    pub fn handle_report(&mut self, now: Instant, sample: &Sample) -> WorkerReading {
        let (mut load, mut resident_load, mut heaviest) = (Rate::ZERO, Rate::ZERO, Rate::ZERO);
        let mut requests = Rate::ZERO;
        for connection in self.connections.iter().flatten() {
            let rate = connection.load.load(now, &self.params);
            requests += connection.load.rate(now, &self.params);
            load += rate;
            heaviest = heaviest.max(rate);
            if connection.home == self.id {
                resident_load += rate;
            }
        }
        let is_swamped = sample.busy > self.params.overload_busy;
        if let Some(capacity) = self.capacity.filter(|_| is_swamped) {
            // With a queue, turns are long and far apart, and the silence between them makes
            // connections look lighter than they are. A worker that never waits carries all that it
            // can.
            load = load.max(capacity.got_of(sample.busy));
        }
        self.load = load;
        self.movable = self.guidance.share.and_then(|share| self.closest_to(load - share, now));
        let tail = sample.tail.filter(|_| sample.requests >= self.params.tail_samples);
        self.tail_missed = match (tail, self.params.latency_goal) {
            (Some(tail), Some(goal)) if tail > goal => self.tail_missed.saturating_add(1),
            _ => 0,
        };
        let saturated = match self.params.latency_goal {
            Some(_) => self.tail_missed > 0,
            None => sample.busy > self.params.saturation_busy,
        };
        let before = self.capacity.and(self.reported.replace(now));
        let elapsed = before.map_or(self.params.report_period, |before| now.since(before));
        if let Some(capacity) = &mut self.capacity {
            let worked = elapsed.scale(sample.busy.as_f64());
            capacity.report(now, worked, &self.params);
            self.learned.set(capacity.limit_in_requests(&self.params));
            let turns = f64::from(std::mem::take(&mut self.turns))
                * self.params.window_span.as_nanos() as f64
                / elapsed.as_nanos().max(1) as f64;
            self.noise = turns.max(1.0).sqrt().recip();
        } else if self.residents > 0 && resident_load > Rate::ZERO && !saturated {
            self.learned.observe(resident_load, self.away == 0, &self.params);
        }
        self.swamped = if is_swamped { self.swamped.saturating_add(1) } else { 0 };
        self.arm();
        WorkerReading {
            worker: self.id,
            connections: self.open,
            residents: self.residents,
            load,
            resident_load,
            limit: self.own_limit(),
            rate: self.capacity.map(|_| requests),
            heaviest,
            busy: sample.busy,
            tail,
        }
    }

    /// The connection whose move would bring this worker closest to its share, as of the last
    /// report.
    pub fn movable(&self) -> Option<Movable> {
        self.movable
    }

    /// The learned limit, to be kept across restarts: in requests per second, whatever the policy
    /// counts.
    pub fn learned(&self) -> &LearnedLimit {
        &self.learned
    }

    /// The limit in force, in the unit that the policy counts in: this worker's own, else the one
    /// that the scheduler made of the others'.
    pub fn limit(&self) -> Option<Rate> {
        self.own_limit().or(self.guidance.fallback_limit)
    }

    fn own_limit(&self) -> Option<Rate> {
        match &self.capacity {
            Some(capacity) => Some(capacity.limit(&self.params)),
            None => self.learned.limit(),
        }
    }

    /// The sum of loads as last known.
    pub fn load(&self) -> Rate {
        self.load
    }

    /// The connection whose load is closest to `excess`. Half as much again still evens things out:
    /// it overshoots by less than it mends.
    fn closest_to(&self, excess: Rate, now: Instant) -> Option<Movable> {
        if excess <= self.load.scale(self.params.imbalance / 2.0) {
            return None;
        }
        let distance = |movable: &Movable| (movable.load.as_per_second() - excess.as_per_second()).abs();
        self.connections
            .iter()
            .flatten()
            .map(|c| Movable { conn: c.id, load: c.load.load(now, &self.params) })
            .filter(|movable| movable.load <= excess.scale(1.5))
            .min_by(|a, b| distance(a).total_cmp(&distance(b)).then(a.conn.cmp(&b.conn)))
    }

    pub(super) fn arm(&mut self) {
        let limit = self.limit();
        if self.capacity.is_some() {
            self.arm_by_busy_time();
            return;
        }
        self.detector.arm(limit, self.load, &self.params);
        // The noise of the load's own measurement: a Poisson count over the window.
        let span_s = self.params.window_span.as_secs_f64();
        let noise = if span_s > 0.0 { (self.load.as_per_second() / span_s).sqrt() } else { 0.0 };
        self.ceiling = limit.map(|limit| {
            limit.scale(self.params.approach) + Rate::per_second(self.params.approach_z * noise)
        });
    }
    /// The detector counts requests, so its drain is the limit at the cost of a request of late.
    fn arm_by_busy_time(&mut self) {
        let limit = self.limit();
        let in_requests = self.learned.limit();
        let load_in_requests = match (limit, in_requests) {
            (Some(limit), Some(requests)) if limit > Rate::ZERO => {
                requests.scale(self.load.as_per_second() / limit.as_per_second())
            }
            _ => Rate::ZERO,
        };
        self.detector.arm(in_requests, load_in_requests, &self.params);
        let noisy = self.params.approach * (1.0 + self.params.approach_z * self.noise.min(NOISE_MOST));
        // However uncertain it is: no worker's load is higher than all the time.
        let most = self.params.overload_busy.as_f64() / self.params.full_busy.as_f64();
        self.ceiling = limit.map(|limit| limit.scale(noisy.min(most.max(self.params.approach))));
    }
}

/// A load that is more uncertain than this is no ground to wait for.
const NOISE_MOST: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::super::tests::{HERE, THERE, at_ms, fresh, limited, sent, with_homes};
    use super::*;
    use crate::Guidance;
    use crate::Why;
    use crate::peafowl::{Order, Params, Verdict};
    use machine::{ConnId, Duration, Ratio};

    #[test]
    fn a_burst_is_seen_between_two_reports() {
        let mut worker = with_homes(limited(1_000.0, Params::default()), &[THERE]);
        let burst = (0..1_000).find(|us| {
            worker.handle_served(at_ms(1) + Duration::from_micros(*us * 10), 0, 1, Duration::ZERO)
                != Verdict::Stay
        });
        assert!(burst.is_some_and(|requests| requests < 50), "{burst:?}");
    }

    #[test]
    fn a_worker_that_has_learned_nothing_takes_the_fallback() {
        let mut worker = fresh(&[THERE]);
        assert_eq!(worker.limit(), None);
        let fallback_limit = Some(Rate::per_second(500.0));
        worker.handle_order(at_ms(1), Order::Guidance(Guidance { fallback_limit, ..Guidance::default() }));
        assert_eq!(worker.limit(), fallback_limit);
        let tripped = (0..200).any(|us| {
            worker.handle_served(at_ms(2) + Duration::from_micros(us), 0, 1, Duration::ZERO)
                == sent(THERE, Why::Burst)
        });
        assert!(tripped);
        assert_eq!(worker.learned().limit(), None, "guests teach nothing");
    }

    fn load_up(worker: &mut Worker, from_ms: u64, to_ms: u64, per_ms: u32) {
        for ms in from_ms..to_ms {
            worker.handle_served(at_ms(ms), 0, per_ms, Duration::ZERO);
        }
    }

    #[test]
    fn a_saturated_peak_is_not_learned() {
        let goal = Some(Duration::from_micros(500));
        let with_goal = Params { latency_goal: goal, ..Params::default() };
        let tail =
            |us, requests| Sample { busy: Ratio::new(0.99), tail: Some(Duration::from_micros(us)), requests };
        for (params, sample, learns) in [
            (with_goal, tail(501, 5_000), false),
            (with_goal, tail(499, 5_000), true),
            (with_goal, tail(5_000, 3), true),
            (Params::default(), tail(9_000, 5_000), false),
            (Params::default(), Sample { busy: Ratio::new(0.9), ..Sample::default() }, true),
            (Params::paper(), tail(9_000, 5_000), true),
        ] {
            let mut worker = with_homes(Worker::new(params, HERE, None), &[HERE]);
            load_up(&mut worker, 1, 100, 50);
            let reading = worker.handle_report(at_ms(100), &sample);
            assert_eq!(reading.limit.is_some(), learns, "{sample:?}");
        }
    }

    #[test]
    fn residents_away_do_not_teach_that_the_load_is_low() {
        let mut worker = fresh(&[HERE, HERE]);
        let mut now_ms = 1;
        for _ in 0..50 {
            load_up(&mut worker, now_ms, now_ms + 100, 5);
            now_ms += 100;
            worker.handle_report(at_ms(now_ms), &Sample::default());
        }
        let learned = *worker.learned();
        worker.handle_departure(at_ms(now_ms), 0, true);
        for _ in 0..500 {
            worker.handle_served(at_ms(now_ms), 1, 1, Duration::ZERO);
            now_ms += 100;
            worker.handle_report(at_ms(now_ms), &Sample::default());
        }
        assert_eq!(*worker.learned(), learned);
        // It closes at the other worker: from now on the requests that are here are all.
        worker.handle_order(at_ms(now_ms), Order::ClosedAway);
        worker.handle_report(at_ms(now_ms + 100), &Sample::default());
        assert_ne!(*worker.learned(), learned);
    }

    #[test]
    fn a_reset_begins_to_learn_anew() {
        let mut worker = with_homes(limited(9_999.0, Params::default()), &[HERE]);
        worker.handle_order(at_ms(1), Order::ResetLimit);
        assert_eq!(worker.limit(), None);
        load_up(&mut worker, 1, 100, 1);
        let reading = worker.handle_report(at_ms(100), &Sample::default());
        assert!(reading.limit.is_some_and(|limit| limit < Rate::per_second(1_100.0)));
    }

    #[test]
    fn the_movable_connection_is_the_one_that_fits_the_excess() {
        let mut worker = fresh(&[HERE, HERE, HERE]);
        for ms in 1..=200 {
            for (slot, requests) in [(0, 8), (1, 3), (2, 1)] {
                worker.handle_served(at_ms(ms), slot, requests, Duration::ZERO);
            }
        }
        let guide = |share| {
            let share = Some(Rate::per_second(share));
            Order::Guidance(Guidance { share, ..Guidance::default() })
        };
        assert_eq!(worker.movable(), None, "no report was asked for");
        for (share, conn) in
            [(4_000.0, Some(100)), (9_000.0, Some(101)), (10_200.0, Some(102)), (12_000.0, None)]
        {
            worker.handle_order(at_ms(200), guide(share));
            worker.handle_report(at_ms(200), &Sample::default());
            assert_eq!(worker.movable().map(|movable| movable.conn), conn.map(ConnId), "share {share}");
        }
    }
}
