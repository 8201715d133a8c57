//! The floor under a scenario's power: no policy can take less, whatever it knows.
//!
//! The problem: "loses by 3 %" says little where 1.4 % is all there is. So a contest has a floor.
//!
//! *Method.* All costs that a policy could avoid are left out: no wake-up takes time or energy, no request
//! waits, no other program runs, a core is in its cheapest idle state whenever it does not work, and the
//! future is known. The work is left, at clocks chosen for each request alone:
//!
//! - A request of compute time c and memory time m (at the nominal clock) takes t = c s + m at a clock of
//!   slowness s, and (P - P_idle) t of energy beyond an idle core's. It may change clocks on its way, so
//!   every mixture can be had: the least energy within a time is on the lower convex hull of the clocks'
//!   points (as with convex power in Yao, Demers and Shenker, FOCS 1995).
//! - Each request takes the cheapest point at least. Under a goal of time T at quantile q the share q is
//!   answered within T, none of them faster than its own work: these pay the hull's value at T. The 1 - q
//!   that save most by being late are let off.
//! - Cores: idle watts of all, and rate x mean energy by request. Sockets: asleep but for the time in which
//!   their cores must work, all of them together.
//!
//! *Why it is one.* The simulator's energy is the sum of power over the time in each mode; each step above
//! takes time or power away from a run, or gives a choice that no policy has. Of hyperthreads a core's are
//! at work together, 2 x `shared_thread_speed` for the power of one. Not covered: while a clock changes,
//! the simulator draws the mean of both levels at the old speed, so a policy that slows down just before
//! each sleep can come out a little below.
//!
//! Where a request forks or calls a device the goal is left out, which only lowers the floor.

use super::engine::Dispatch;
use super::runner::Task;
use super::{Goal, ScenarioError};
use machine::{Kilohertz, Microwatts, Platform};

/// Watts below which no policy comes.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Floor {
    pub cores_watts: f64,
    /// Cores, and the sockets beside them.
    pub cpu_watts: f64,
    pub server_watts: f64,
    /// Of a request's work, beyond an idle core's power.
    pub joules_per_request: f64,
}

/// So many requests are drawn: their mean energy is within half a percent for a coefficient of variation
/// of 1 (two standard errors).
const DRAWN: usize = 200_000;

impl Task {
    /// The floor of its scenario at this rate of answers a second.
    pub fn floor(&self, rate: f64) -> Result<Floor, ScenarioError> {
        let (setup, jobs) = self.contestant.document.setup(&self.contestant.policies, self.seed)?;
        let seconds = |time: machine::Duration| time.as_secs_f64();
        let works: Vec<_> = jobs.take(DRAWN).map(|job| (seconds(job.compute), seconds(job.memory))).collect();
        let is_whole = setup.dispatch != Dispatch::ForkJoin && setup.device.is_none();
        Ok(Floor::of(&setup.platform, setup.goal.filter(|_| is_whole), &works, rate))
    }
}

/// A clock at which work can run.
#[derive(Clone, Copy, Debug)]
struct Choice {
    /// Time over that at the nominal clock.
    slowness: f64,
    /// Its power beyond that of an idle core.
    watts: f64,
}

impl Floor {
    /// Of `rate` requests per second, like these: compute and memory time at the nominal clock, in seconds.
    pub fn of(platform: &Platform, goal: Option<Goal>, works: &[(f64, f64)], rate: f64) -> Self {
        let idle = platform.cstates.0.iter().map(|state| state.power.map_or(0.0, |power| power.as_watts()));
        let idle = idle.fold(f64::INFINITY, f64::min);
        let choices = choices(platform, idle);
        let threads = match platform.threads_per_core {
            1 => 1.0,
            threads => (f64::from(threads) * platform.shared_thread_speed).max(1.0),
        };
        let count = works.len().max(1) as f64;
        let (mut least, mut shortest, mut savings) = (0.0, 0.0, Vec::with_capacity(works.len()));
        for &(compute, memory) in works {
            let point = |choice: &Choice| {
                let time = compute * choice.slowness + memory;
                (time, choice.watts * time / threads)
            };
            let hull = hull(choices.iter().map(point).collect());
            let cheapest = hull.last().map_or(0.0, |point| point.1);
            least += cheapest;
            shortest += hull.first().map_or(0.0, |point| point.0);
            // One that no clock answers in time is late anyway.
            let in_time = goal.and_then(|goal| within(&hull, goal.latency.as_secs_f64()));
            savings.push(in_time.map_or(0.0, |joules| joules - cheapest));
        }
        savings.sort_by(f64::total_cmp);
        // 1 - 0.99 is a little less than 0.01.
        let late = |goal: Goal| ((1.0 - goal.quantile) * works.len() as f64 + 1e-6).floor();
        let late = goal.map_or(0.0, late) as usize;
        let paid: f64 = savings[..works.len().saturating_sub(late)].iter().sum();
        let joules_per_request = (least + paid) / count;
        let (sockets, cores) = (f64::from(platform.sockets), f64::from(platform.cores_per_socket));
        let cores_watts = sockets * cores * idle + rate * joules_per_request;
        let awake = (rate * shortest / count / (cores * threads)).min(sockets);
        let slowest = platform.uncore_clock.map_or(1.0, |clock| clock.power(clock.slowest));
        let uncore = platform.uncore.as_watts() * slowest;
        let asleep = platform.asleep_watts().min(uncore);
        let cpu_watts = cores_watts + sockets * asleep + awake * (uncore - asleep);
        let server_watts = cpu_watts + platform.rest.as_watts();
        Self { cores_watts, cpu_watts, server_watts, joules_per_request }
    }
}

fn choices(platform: &Platform, idle_watts: f64) -> Vec<Choice> {
    let nominal = platform.frequencies.nominal().0 as f64;
    let points = platform.frequencies.points.iter().map(|point| (point.frequency, point.power));
    let turbo = platform.turbo.iter().map(|bin| (bin.frequency, bin.power));
    let choice = |(clock, power): (Kilohertz, Microwatts)| Choice {
        slowness: nominal / clock.0 as f64,
        watts: (power.as_watts() - idle_watts).max(0.0),
    };
    points.chain(turbo).map(choice).collect()
}

/// The lower convex hull of points of time and energy, from the shortest time to the least energy.
fn hull(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
    let mut hull: Vec<(f64, f64)> = Vec::with_capacity(points.len());
    for point in points {
        if hull.last().is_some_and(|last| point.1 >= last.1) {
            continue;
        }
        while let [.., before, last] = hull[..]
            && (last.1 - before.1) * (point.0 - before.0) >= (point.1 - before.1) * (last.0 - before.0)
        {
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

/// The least energy within `time`; `None` if no clock is fast enough.
fn within(hull: &[(f64, f64)], time: f64) -> Option<f64> {
    let after = hull.partition_point(|point| point.0 <= time);
    let before = hull[..after].last()?;
    let Some(next) = hull.get(after) else { return Some(before.1) };
    Some(before.1 + (next.1 - before.1) * (time - before.0) / (next.0 - before.0))
}

#[cfg(test)]
mod tests;
