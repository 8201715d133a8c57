//! SleepScale: once an epoch, the idle state and the clock that would have been best for the last
//! epoch [R Liu, Draper and Kim, ISCA 2014].
//!
//! A deeper idle state and a slower clock both save power and both cost latency, and which mix is
//! best depends on the load. SleepScale logs arrivals and the need of each request, and at the end
//! of an epoch plays the log back through a queue in every idle state and every operating point. Of
//! those combinations whose tail is within the goal, the one that takes least energy is used in the
//! next epoch; if none is, the shallowest state and the fastest operating point. The paper's
//! manager also predicts the load of the next epoch and may delay the entry into sleep; here an
//! epoch is short against the changes of load that it can follow at all, and sleep is entered at
//! once \[D\].
//!
//! The playback is a recursion over arrivals, not an event queue. A server (a core) that runs out
//! of work sleeps; a request that finds servers asleep wakes the one that has slept longest and is
//! served by it one exit latency later; one that finds none waits for the first to be free. With t
//! the arrival and `free` the server's last completion:
//!
//! ```text
//!   start = t + exit latency   if free <= t        done = start + compute / speed + memory
//!           free               otherwise
//! ```
//!
//! With one server that is Lindley's recursion. Energy is the operating point's power from wake-up
//! to completion, and the state's for the rest of the servers' time, up to now: a service that fell
//! silent is worth a deep sleep.
//!
//! The playback begins with all servers asleep, and of a busy service the log is short: 4096
//! requests at 800 kRPS are five milliseconds, in which a queue that grows without end has hardly
//! begun to. So an operating point takes part only if the log says for certain that it keeps up
//! (`steady`).
//!
//! Invariants: the choice keeps up and met the goal in the playback, if any did, and no other that
//! did took less energy; the log is bounded; without a log nothing changes.

#[cfg(test)]
mod properties;
mod server;
mod steady;

pub use server::Server;

use super::SleepState;
use machine::{CstateIndex, Duration, Instant, Ratio};
use policy::check::Check;
use policy::frequency::{PointIndex, PointTable};
use policy::kind::Make;
use policy::registry::{Entry, Parameter, Question, Queues, Word, count, one_of, quantile, settings, time};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queueing {
    #[default]
    Shared,
    /// Each core has its own, and gets the requests that it got.
    PerCore,
}

pub static ENTRY: Entry = Entry {
    words: &[Word::new("sleepscale", "by playing back the last epoch", |around| {
        let plain = Params::default();
        settings(Params {
            goal: around.latency_or(plain.goal),
            quantile: Ratio::new(around.quantile_or(plain.quantile.as_f64())),
            queueing: match around.queues {
                Queues::Shared | Queues::Stolen => Queueing::Shared,
                Queues::PerCore | Queues::Connections => Queueing::PerCore,
            },
            ..plain
        })
    })],
    question: Question::Frequency,
    also: &[Question::Idle],
    help: "At the end of an epoch its arrivals are played back through a queue in every idle state and at \
           every frequency; of those whose tail is within the goal, the one of least energy is used next.",
    origin: "SleepScale (Liu, Draper and Kim, ISCA 2014), recalled",
    needs_goal: true,
    make: Make::Frequency(|making| {
        let (params, states, points) = (making.params(), making.states(), making.points());
        let policy = SleepScale::new(params, states, points, making.workers, Instant::ZERO);
        Box::new(Server::new(policy))
    }),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub goal: Duration,
    pub quantile: Ratio,
    #[serde(with = "machine::duration_text")]
    pub epoch: Duration,
    pub log: u32,
    pub least: u32,
    pub queueing: Queueing,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("goal", "the tail of the response time that shall hold")
            .above_zero()
            .given("the goal")
            .source("the strictest goal of Peafowl, section 4.3"),
        quantile("quantile", "which tail").given("the goal").source("Peafowl, section 4.3"),
        time("epoch", "time between two choices")
            .above_zero()
            .source("as CARB's; the paper's traces change by the minute"),
        count("log", "requests that are remembered at most")
            .above_zero()
            .source("ours: forty lie beyond a 99th percentile"),
        count("least", "an epoch with fewer is filled up with earlier ones")
            .above_zero()
            .not_above("log")
            .source("ours"),
        one_of("queueing", "how requests get to cores", &["shared", "per_core"]).given("the dispatch"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self {
            goal: Duration::from_micros(300),
            quantile: Ratio::new(0.99),
            epoch: Duration::from_secs(1),
            log: 4096,
            least: 100,
            queueing: Queueing::Shared,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The idle state that a core without work enters, by its place in the list that was handed in.
    pub state: CstateIndex,
    pub point: PointIndex,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Served {
    pub arrived: Instant,
    pub core: u16,
    /// Time of computing, at the nominal speed.
    pub compute: Duration,
    /// Its time of waiting for memory.
    pub memory: Duration,
}

/// Chooses idle state and operating point for a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SleepScale {
    params: Params,
    states: Vec<SleepState>,
    points: PointTable,
    cores: u16,
    /// A ring, once it is full.
    log: Vec<Served>,
    oldest: u32,
    began: Instant,
    choice: Choice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Played {
    tail: Duration,
    /// Waking and serving, of all cores.
    active: Duration,
}

impl SleepScale {
    /// Begins with the shallowest of `states`, of which there is at least one, and the fastest
    /// operating point.
    pub fn new(
        params: Params,
        states: Vec<SleepState>,
        points: PointTable,
        cores: u16,
        now: Instant,
    ) -> Self {
        let choice = Choice { state: CstateIndex(0), point: points.fastest() };
        Self { params, states, points, cores, log: Vec::new(), oldest: 0, began: now, choice }
    }

    pub fn choice(&self) -> Choice {
        self.choice
    }

    pub fn handle_completion(&mut self, served: Served) {
        if self.log.len() < self.params.log.max(1) as usize {
            self.log.push(served);
        } else {
            self.log[self.oldest as usize] = served;
            self.oldest = (self.oldest + 1) % self.log.len() as u32;
        }
    }

    /// When [`Self::handle_timeout`] wants to be called: at the end of the epoch.
    pub fn poll_timeout(&self) -> Instant {
        self.began + self.params.epoch
    }

    /// Chooses anew if the epoch is over; says so if that changes anything.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Choice> {
        if now < self.poll_timeout() {
            return None;
        }
        let before = self.choice;
        let requests = self.last_requests();
        if let Some(first) = requests.first() {
            // A log that is full tells nothing about the time before it.
            let whole_log = requests.len() >= self.params.log as usize;
            let since = if whole_log { first.arrived } else { first.arrived.min(self.began) };
            let span = now.since(since);
            self.choice = self.best(&requests, span);
        }
        self.began = now;
        (self.choice != before).then_some(self.choice)
    }

    /// Those that arrived in this epoch, and if they are few, some before them; by arrival.
    fn last_requests(&self) -> Vec<Served> {
        let mut requests = self.log.clone();
        requests.sort_by_key(|served| served.arrived);
        let earlier = requests.partition_point(|served| served.arrived < self.began);
        requests.split_off(earlier.min(requests.len().saturating_sub(self.params.least as usize)))
    }

    fn best(&self, requests: &[Served], span: Duration) -> Choice {
        let all = f64::from(self.cores) * span.as_nanos() as f64;
        let mut best: Option<(f64, Choice)> = None;
        let keep_up = |&point: &PointIndex| {
            steady::keeps_up(requests, self.params.queueing, self.cores, self.points.speed(point))
        };
        // The slower, the more there is to do.
        let points: Vec<PointIndex> = self.points.iter().rev().take_while(keep_up).collect();
        for (place, state) in (0..).zip(&self.states) {
            for &point in &points {
                let played = self.play(requests, state.exit_latency, self.points.speed(point));
                if played.tail > self.params.goal {
                    // Slower operating points only add to it.
                    break;
                }
                let active = played.active.as_nanos() as f64;
                let asleep = (all - active).max(0.0);
                let energy = active * self.points.power(point).0 as f64 + asleep * state.power.0 as f64;
                if best.is_none_or(|(least, _)| energy < least) {
                    best = Some((energy, Choice { state: CstateIndex(place), point }));
                }
            }
        }
        best.map_or(Choice { state: CstateIndex(0), point: self.points.fastest() }, |(_, choice)| choice)
    }

    fn play(&self, requests: &[Served], exit_latency: Duration, speed: f64) -> Played {
        // No core has served yet: all sleep.
        let mut free = vec![Instant::ZERO; usize::from(self.cores)];
        let mut responses = Vec::with_capacity(requests.len());
        let mut active = Duration::ZERO;
        for served in requests {
            let server = match self.params.queueing {
                Queueing::PerCore => usize::from(served.core),
                Queueing::Shared => (0..free.len()).min_by_key(|&server| free[server]).unwrap_or_default(),
            };
            let needs = served.compute.scale(1.0 / speed) + served.memory;
            let (start, wake) = if free[server] <= served.arrived {
                (served.arrived + exit_latency, exit_latency)
            } else {
                (free[server], Duration::ZERO)
            };
            free[server] = start + needs;
            active += wake + needs;
            responses.push(free[server].since(served.arrived));
        }
        let rank = (self.params.quantile.as_f64() * responses.len() as f64).ceil() as usize;
        let (_, &mut tail, _) = responses.select_nth_unstable(rank.max(1) - 1);
        Played { tail, active }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::points::tests::{nine_points, points_at};
    use machine::Microwatts;

    /// C1, C1E and C6 of a Xeon Silver 4116: exit latencies in us and powers in W.
    pub(super) fn states() -> Vec<SleepState> {
        [(2, 2.0), (10, 1.2), (133, 0.1)]
            .map(|(micros, watts)| SleepState {
                exit_latency: Duration::from_micros(micros),
                power: Microwatts::from_watts(watts),
                wake_joules: 0.0,
            })
            .to_vec()
    }

    fn served(at_us: u64, core: u16, compute_us: u64) -> Served {
        let (arrived, compute) =
            (Instant::ZERO + Duration::from_micros(at_us), Duration::from_micros(compute_us));
        Served { arrived, core, compute, memory: Duration::ZERO }
    }

    /// The choice after one second of requests, 20 us each, at this distance, at one core.
    fn chosen(gap_us: u64, goal_us: u64, points: PointTable) -> Choice {
        let params = Params { goal: Duration::from_micros(goal_us), log: 1_000, ..Params::default() };
        let mut policy = SleepScale::new(params, states(), points, 1, Instant::ZERO);
        (0..1_000_000 / gap_us).for_each(|i| policy.handle_completion(served(i * gap_us, 0, 20)));
        let end = policy.poll_timeout();
        assert_eq!(end, Instant::ZERO + Duration::from_secs(1));
        assert_eq!(policy.handle_timeout(end - Duration::from_nanos(1)), None);
        policy.handle_timeout(end);
        policy.choice()
    }

    #[test]
    fn sparse_requests_get_the_deepest_state_and_dense_ones_a_shallow_one() {
        let one_point = || points_at(&[2_000]);
        assert_eq!(chosen(100_000, 300, one_point()).state, CstateIndex(2));
        // Waking for 10 us at 10 W saves 0.8 W for 300 us: C1E. For C6 the core would be awake half
        // of the time.
        assert_eq!(chosen(300, 300, one_point()).state, CstateIndex(1));
        // 20 of 40 us are idle: no room to wake from anything but C1.
        assert_eq!(chosen(40, 300, one_point()).state, CstateIndex(0));
        // Sparse, but the goal is nearer than the way out of C6.
        assert_eq!(chosen(100_000, 100, one_point()).state, CstateIndex(1));
    }

    #[test]
    fn slack_is_spent_on_the_clock_and_an_impossible_goal_on_nothing() {
        // Nine operating points, power with the cube of the clock: the slowest, 52 us a request,
        // costs least.
        assert_eq!(chosen(1_000, 300, nine_points()).point, PointIndex(0));
        // No time for C1E, and 2 us for C1 leave 27 for 20 / speed: 26 at 2.0 GHz, but 28.9 at 1.8.
        assert_eq!(chosen(1_000, 29, nine_points()), Choice { state: CstateIndex(0), point: PointIndex(5) });
        assert_eq!(chosen(1_000, 10, nine_points()), Choice { state: CstateIndex(0), point: PointIndex(8) });
    }

    #[test]
    fn a_point_that_cannot_keep_up_is_not_taken_however_slowly_its_queue_grows() {
        // 52 us each at 1.0 GHz, one every 51: after a thousand of them the last waits for 1 ms,
        // well within the goal.
        assert_eq!(chosen(51, 2_000, nine_points()).point, PointIndex(1));
        assert_eq!(chosen(53, 2_000, nine_points()).point, PointIndex(0));
        // Nothing keeps up: the fastest.
        assert_eq!(chosen(19, 30_000, nine_points()), Choice { state: CstateIndex(0), point: PointIndex(8) });
    }

    #[test]
    fn silence_leads_to_the_deepest_state_and_no_log_to_nothing() {
        let mut policy = SleepScale::new(Params::default(), states(), points_at(&[2_000]), 2, Instant::ZERO);
        let second = |n| Instant::ZERO + Duration::from_secs(n);
        assert_eq!(policy.handle_timeout(second(1)), None);
        (0..25_000).for_each(|i| policy.handle_completion(served(1_000_000 + i * 40, 0, 20)));
        assert_eq!((policy.handle_timeout(second(2)), policy.choice().state), (None, CstateIndex(0)));
        // The last hundred requests are all there is to go by; two seconds later they look rare.
        assert_eq!(policy.handle_timeout(second(4)).map(|choice| choice.state), Some(CstateIndex(2)));
    }
}
