//! Requests as a store's workers count them, and as the policy learns from them: no worker can ask
//! a policy that all share at each request, so each counts, and the counts are told once an epoch.
//!
//! A count of arrivals says nothing of their irregularity: it is taken for that of a Poisson process,
//! and the measured tail corrects the rest. A report has requests enough to tell the load by itself; with
//! older ones beside it, the plan would follow later and hold ready for longer.

use super::lengths::{BUCKETS, Lengths, OCTAVE_BITS};
use super::search::Base;
use super::{Joint, Plan};
use crate::log_buckets::{Bucket, start_ns};
use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// The requests that were answered since the last report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// How long each kept its worker: by bucket, how many.
    work: Vec<(u16, u32)>,
    /// How long each took until it was answered.
    responses: Vec<(u16, u32)>,
    /// The responses contain the time that the CPU took to wake.
    sees_exits: bool,
}

impl Answered {
    /// How many buckets a worker counts in.
    pub const BUCKETS: usize = BUCKETS;

    /// The bucket of a length of time; a longer one than 69 s is in the last.
    #[inline]
    pub fn bucket(length: Duration) -> usize {
        Lengths::bucket(length)
    }

    /// From the counts of all buckets in order. `sees_exits`: the responses begin when the request came
    /// to the machine, and not when a thread was awake to see it.
    pub fn new(
        work: impl Iterator<Item = u32>,
        responses: impl Iterator<Item = u32>,
        sees_exits: bool,
    ) -> Self {
        Self { work: filled(work), responses: filled(responses), sees_exits }
    }

    fn count(&self) -> u64 {
        self.responses.iter().map(|&(_, count)| u64::from(count)).sum()
    }
}

fn filled(counts: impl Iterator<Item = u32>) -> Vec<(u16, u32)> {
    (0_u16..).zip(counts).filter(|&(_, count)| count > 0).collect()
}

fn buckets(counts: &[(u16, u32)]) -> impl Iterator<Item = Bucket> + '_ {
    let edge_ns = |place: usize| start_ns::<OCTAVE_BITS>(place) as f64;
    counts.iter().map(move |&(place, count)| {
        // A damaged record may name any.
        let place = usize::from(place).min(BUCKETS - 1);
        Bucket { from_ns: edge_ns(place), to_ns: edge_ns(place + 1), count }
    })
}

impl Joint {
    /// A report: the epoch is over. `answered` are the requests of all workers since the last one.
    /// Returns the new decision, if it differs from the present one. In place of every other call.
    pub fn handle_answered(&mut self, now: Instant, answered: &Answered) -> Option<Plan> {
        let before = self.plan;
        let last = self.told.replace(now);
        let count = answered.count();
        if count > 0 && self.arrivals.count() == 0.0 {
            // Each report is a window of its own, and so are the first requests after a rest.
            let epoch_ago = now.as_nanos().saturating_sub(self.params.epoch().as_nanos());
            self.arrivals.resume(last.unwrap_or(Instant::ZERO).max(Instant::from_nanos(epoch_ago)));
        }
        self.arrivals.record_all(now, count);
        for bucket in buckets(&answered.work) {
            self.service.record_all(bucket);
        }
        // The time that the model counts for every request.
        let exit = if answered.sees_exits { Duration::ZERO } else { self.exit() };
        let exit_ns = exit.as_nanos() as f64;
        for Bucket { from_ns, to_ns, count } in buckets(&answered.responses) {
            let took = Bucket { from_ns: from_ns + exit_ns, to_ns: to_ns + exit_ns, count };
            let late = took.later_than(self.params.target_ns());
            self.correction.record_all(took);
            self.budget.record_all(count, late);
        }
        self.end_epoch(now);
        if count == 0
            && let Some(latest) = self.reported[0]
        {
            // Nothing to plan from, and the plans before go all the same.
            self.base = held(Some(&mut self.reported), latest);
            self.plan = self.base_plan();
        }
        (self.plan != before).then_some(self.plan)
    }

    /// A queue at one core says that the load has jumped: all cores until the next report. Returns the new
    /// decision, if it differs from the present one.
    pub fn handle_backlog(&mut self, now: Instant) -> Option<Plan> {
        let before = self.plan;
        self.surge_of_all(now);
        (self.plan != before).then_some(self.plan)
    }

    /// More requests that wait at one core than this are no chance; `None`: there is no core left to help.
    pub fn backlog(&self) -> Option<u32> {
        self.guard.backlog.filter(|_| self.plan.active < self.cores)
    }

    /// The exit latency of an active core's idle state.
    pub fn exit(&self) -> Duration {
        self.states[self.plan.idle.index()].exit_latency
    }
}

/// The plan of a report is that of most cores among the last three: connections that move cost more than
/// a core that is awake for a while. `reported`: the two before, the latest first.
pub(super) fn held(reported: Option<&mut [Option<Base>; 2]>, base: Base) -> Base {
    let Some(reported) = reported else { return base };
    let most = reported.iter().flatten().copied().max_by_key(|held| held.active);
    *reported = [Some(base), reported[0]];
    most.filter(|held| held.active > base.active).unwrap_or(base)
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::super::simulated::{CORES, points, states};
    use super::super::{Params, Queueing};
    use super::*;
    use crate::frequency::PointTable;

    const EPOCH_NS: f64 = 100e6;

    fn joint(target_us: u64) -> Joint {
        let all: Vec<machine::OperatingPoint> = points().into();
        let params = Params {
            target: Duration::from_micros(target_us),
            queueing: Queueing::PerCore,
            graded: false,
            ..Params::default()
        };
        let points = PointTable::from_points(&all[all.len() - 1..]).unwrap();
        Joint::new(params, CORES, &points, &states(), Instant::ZERO)
    }

    /// Counts of so many requests: exponential work of 10 us, and the response of a core at this load.
    fn answered(random: &mut Random, requests: u32, load: f64) -> Answered {
        let (mut work, mut responses) = (vec![0; BUCKETS], vec![0; BUCKETS]);
        for _ in 0..requests {
            let length = |mean_ns: f64, chance: f64| Duration::from_nanos((mean_ns * chance) as u64);
            work[Answered::bucket(length(10e3, random.exponential()))] += 1;
            responses[Answered::bucket(length(10e3 / (1.0 - load), random.exponential()))] += 1;
        }
        Answered::new(work.into_iter(), responses.into_iter(), true)
    }

    /// Epochs of this many requests a second; the cores at the end. Responses are those of the plan.
    fn planned(joint: &mut Joint, random: &mut Random, epoch: &mut u64, epochs: u64, per_second: f64) -> u16 {
        for _ in 0..epochs {
            *epoch += 1;
            let load = per_second * 10e-6 / f64::from(joint.plan().active);
            let requests = (per_second * EPOCH_NS / 1e9) as u32;
            let answered = answered(random, requests, load.min(0.98));
            joint.handle_answered(Instant::from_nanos(*epoch * EPOCH_NS as u64), &answered);
        }
        joint.plan().active
    }

    /// A core is an M/M/1 queue: its 99th percentile is 4.6 services / (1 - load).
    #[test]
    fn counts_make_the_plan_of_the_load_and_more_cores_at_once() {
        let (mut joint, mut random, mut epoch) = (joint(300), Random::new(5), 0);
        let mut cores = |epochs, per_second| planned(&mut joint, &mut random, &mut epoch, epochs, per_second);
        for (per_second, least, most) in [(20e3, 1, 1), (200e3, 3, 3), (400e3, 5, 5), (800e3, 10, 10)] {
            let active = cores(60, per_second);
            assert!((least..=most).contains(&active), "{active} at {per_second}");
        }
        assert_eq!(cores(60, 20e3), 1);
        assert!(cores(1, 400e3) >= 5, "a jump is answered with the first report that shows it");
        assert!(cores(2, 20e3) >= 5 && cores(4, 20e3) == 1, "cores go after three reports");
    }

    #[test]
    fn silence_ends_with_one_core_and_the_first_requests_are_no_trickle() {
        let (mut joint, mut random, mut epoch) = (joint(300), Random::new(6), 0);
        planned(&mut joint, &mut random, &mut epoch, 20, 400e3);
        assert_eq!(planned(&mut joint, &mut random, &mut epoch, 30, 0.0), 1);
        // Nothing was told for an hour.
        epoch += 36_000;
        assert!(planned(&mut joint, &mut random, &mut epoch, 1, 400e3) >= 5);
    }

    #[test]
    fn a_backlog_wakes_all_until_the_next_report() {
        let (mut joint, mut random, mut epoch) = (joint(300), Random::new(7), 0);
        planned(&mut joint, &mut random, &mut epoch, 30, 100e3);
        assert_eq!(joint.backlog(), Some(90), "three goals of 300 us, in requests of 10 us");
        let surge = joint.handle_backlog(Instant::from_nanos(epoch * EPOCH_NS as u64 + 1)).unwrap();
        assert_eq!((surge.active, joint.backlog()), (CORES, None));
        assert!(planned(&mut joint, &mut random, &mut epoch, 1, 100e3) < CORES);
    }

    #[test]
    fn a_damaged_record_is_counted_in_the_last_bucket() {
        let mut joint = joint(300);
        let counts = vec![(u16::MAX, 1_000)];
        let damaged = Answered { work: counts.clone(), responses: counts, sees_exits: false };
        joint.handle_answered(Instant::from_nanos(EPOCH_NS as u64), &damaged);
        assert_eq!(joint.plan().active, CORES);
    }

    /// A worker does not see how long its CPU took to wake, so that is added.
    #[test]
    fn exits_that_are_not_seen_count_as_late_all_the_same() {
        let aims = [true, false].map(|sees_exits| {
            let mut joint = joint(300);
            joint.plan.idle = machine::CstateIndex(1);
            let took = Duration::from_micros(290);
            let counts = |bucket: usize| (0..BUCKETS).map(move |at| if at == bucket { 10_000 } else { 0 });
            let work = counts(Answered::bucket(Duration::from_micros(10)));
            let answered = Answered::new(work, counts(Answered::bucket(took)), sees_exits);
            joint.handle_answered(Instant::from_nanos(EPOCH_NS as u64), &answered);
            joint.budget.aim()
        });
        assert!(aims[1] < aims[0], "{aims:?}");
    }
}
