//! The best of a plan as a specification for scx_layered, a scheduler of sched_ext that keeps the
//! threads of a *layer* on few CPUs.
//!
//! With u the CPU time of a layer's threads, in CPUs, scx_layered gives it ceil(u / high) to
//! floor(u / low) CPUs (`calc_target_range`, scx_layered 1.1.2). low = u / (n + 1/2) and high =
//! u / (n - 1/2) make that n at the recorded load, and as many more or less as the load changes. All
//! other threads are a layer of their own, so that they are packed as well.
//!
//! Invariant: a policy that scx_layered cannot carry out is refused, and not written half.

use super::simulate::Plan;
use super::source::Source;
use serde_json::{Value, json};
use sim::plan::{Choice, Ranked};

pub const LAYERS: &str = "layers.json";

/// Another scheduler's words for a plan.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    #[value(name = "scx_layered")]
    ScxLayered,
}

/// The specification, or why there is none.
pub fn layers(source: &Source, plan: &Plan) -> Result<String, String> {
    let best = match plan.choice {
        Choice::Best(place) => &plan.ranked[place],
        Choice::NoneKeeps { .. } => return Err("no policy keeps the goal, so none is written".to_owned()),
        Choice::NoGoal => return Err("no goal was said, so nothing is the best: add --goal".to_owned()),
    };
    let service = source.recording.service.as_ref();
    let name = service.map(|service| service.name.clone()).filter(|name| !name.is_empty());
    let name = name.ok_or("the recording does not name the service's process")?;
    let cpu_us = service.and_then(|service| service.cpu_us.as_ref());
    let rate = source.recording.arrivals.rate_per_s.as_ref();
    let used = cpu_us.zip(rate).map(|(cpu_us, rate)| cpu_us.value * rate.value * 1e-6);
    let used = used.filter(|used| *used > 0.0).ok_or("the recording lacks the service's CPU time")?;
    let layers = [of_service(source, best, name, used)?, rest()];
    Ok(serde_json::to_string_pretty(&layers).expect("plain data"))
}

fn of_service(source: &Source, best: &Ranked, name: String, used: f64) -> Result<Value, String> {
    let (candidate, policies) = (&best.candidate, best.candidate.policies.as_str());
    let refused = |why: &str| Err(format!("scx_layered {why}, as `{}` wants it", candidate.name));
    if policies.contains("pegasus") {
        return refused("sets no clock by the tail");
    }
    if policies == "poll" {
        return refused("makes no idle CPU poll");
    }
    let shallowest = source.recording.machine.states.iter().find(|state| !state.polls);
    let is_shallow = candidate.line.as_ref().is_some_and(|line| line.contains("--idle shallow"));
    let cores = best.outcome.active.round().max(1.0);
    let by_goal = policies.starts_with("carb-goal");
    let workers = source.recording.service.as_ref().and_then(|service| service.cpus).unwrap_or(1) as u16;
    let fewest = if by_goal { 1 } else { cores as u16 };
    let most = if by_goal { workers } else { cores as u16 };
    let mut kind = json!({
        "util_range": util_range(used, cores),
        "cpus_range": [fewest, most],
        "preempt": true,
    });
    if is_shallow {
        kind["idle_resume_us"] = shallowest.map_or(1, |state| state.exit_us.ceil().max(1.0) as u32).into();
    }
    Ok(json!({
        "name": name,
        "comment": format!(
            "made by roost plan from {}: {}; {used:.3} CPUs of CPU time when it was recorded",
            source.folder.display(),
            candidate.name
        ),
        // The name of the process, which its threads share.
        "matches": [[{ "PcommPrefix": name }]],
        // On its own CPUs alone.
        "kind": { "Confined": kind },
    }))
}

/// How busy the layer's CPUs may be at least and at most, so that `used` CPUs of work get `cores`.
fn util_range(used: f64, cores: f64) -> (f64, f64) {
    // Upwards, so that none is zero.
    let rounded = |share: f64| (share * 1e4).ceil() / 1e4;
    let (low, high) = (used / (cores + 0.5), (used / (cores - 0.5)).min(MOST_BUSY));
    (rounded(low), rounded(high))
}

/// All other threads; scx_layered wants a last layer that takes them.
fn rest() -> Value {
    json!({
        "name": "rest",
        "comment": "all other threads, packed on few CPUs too",
        "matches": [[]],
        "kind": { "Grouped": { "util_range": [0.5, 0.7], "preempt": false } },
    })
}

/// CPUs that are busier than this queue whatever their number.
const MOST_BUSY: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of CPUs by scx_layered 1.1.2's `calc_target_range`.
    fn cpus(used: f64, (low, high): (f64, f64)) -> (f64, f64) {
        let least = (used / high).ceil();
        (least, (used / low).floor().max(least))
    }

    #[test]
    fn the_layer_has_as_many_cpus_as_the_plan_has_cores() {
        for cores in 1..9 {
            for busy in [0.05, 0.3, 0.6, 0.9] {
                let cores = f64::from(cores);
                let used = busy * cores;
                let range = util_range(used, cores);
                assert!(0.0 < range.0 && range.0 < range.1 && range.1 < 1.0, "{used} {range:?}");
                assert_eq!(cpus(used, range), (cores, cores), "{used} {range:?}");
                assert!(cpus(4.0 * used, range).0 > cores, "{used} {range:?}");
            }
        }
    }
}
