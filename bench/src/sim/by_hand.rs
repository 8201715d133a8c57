//! The fast reference: the queue written out by hand.
//!
//! M/M/k with idle states, as an expert writes it in an afternoon: a binary heap of events, an
//! array of cores, a bit mask of the idle ones, the same random numbers and the same histogram as
//! the simulator has. An idle core goes down the ladder of its states by timers, each after the
//! target residency of the next. A timer whose core has been woken meanwhile is left in the heap
//! and ignored when it comes up. Energy is time by mode times power.
//!
//! It can do this and nothing else: no policies, no clocks, no intervals, no interrupts. A
//! simulator that can do all that is allowed to be a fifth slower.

use hdrhistogram::Histogram;
use machine::Platform;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use workload::Random;

pub struct Outcome {
    pub mean_ns: f64,
    pub p99_ns: f64,
    pub watts: f64,
}

/// An idle state of the loop.
struct State {
    exit_ns: u64,
    residency_ns: u64,
    watts: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Done,
    Awake,
    /// An idle core goes one state deeper, if it still sleeps the same sleep.
    Deeper,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Event {
    at: u64,
    core: u16,
    what: What,
    /// Which of the core's sleeps a timer is for.
    sleep: u32,
}

impl Ord for Event {
    /// The earliest is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at)
    }
}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Modes of a core: working, waking, and from here on its idle states.
const WORKING: usize = 0;
const WAKING: usize = 1;
const ASLEEP: usize = 2;
/// So many states, at most.
const MODES: usize = ASLEEP + 6;

#[derive(Clone, Copy)]
struct Core {
    mode: usize,
    since: u64,
    sleeps: u32,
    arrived: u64,
    time_ns: [u64; MODES],
}

impl Core {
    #[inline]
    fn enter(&mut self, mode: usize, now: u64) {
        self.time_ns[self.mode] += now - self.since;
        self.mode = mode;
        self.since = now;
    }
}

/// Serves `requests` requests, exponential in gaps and lengths.
pub fn simulate(platform: &Platform, load: f64, service_ns: f64, requests: u64, seed: u64) -> Outcome {
    let states: Vec<State> = (platform.cstates.0.iter())
        .map(|state| State {
            exit_ns: state.true_exit_latency.unwrap_or(state.exit_latency).as_nanos(),
            residency_ns: state.target_residency.as_nanos(),
            watts: state.power.map_or(0.0, |power| power.as_watts()),
        })
        .collect();
    assert!(states.len() <= MODES - ASLEEP, "{} idle states", states.len());
    let count = platform.cpus();
    let gap_ns = service_ns / (load * count as f64);
    let (mut gaps, mut services) = (Random::new(seed, 0), Random::new(seed, 1));
    let mut cores = vec![Core { mode: ASLEEP, since: 0, sleeps: 0, arrived: 0, time_ns: [0; MODES] }; count];
    let mut idle: u64 = (1 << count) - 1;
    let mut queue: VecDeque<(u64, u64)> = VecDeque::new();
    let mut events: BinaryHeap<Event> = BinaryHeap::new();
    if let Some(deeper) = states.get(1) {
        let timer = |core| Event { at: deeper.residency_ns, core, what: What::Deeper, sleep: 0 };
        events.extend((0..count as u16).map(timer));
    }
    // With bounds: one that grows by itself does not do so when it is told to saturate.
    let mut responses =
        Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).expect("three digits are allowed");
    let mut sum_ns = 0u128;
    let mut clock = gap_ns * gaps.exponential();
    let mut next = clock as u64;
    let (mut sent, mut done, mut now) = (0, 0, 0);
    while done < requests {
        let due = events.peek().map_or(u64::MAX, |event| event.at);
        if next <= due {
            now = next;
            queue.push_back((now, (service_ns * services.exponential()) as u64));
            sent += 1;
            if sent < requests {
                clock += gap_ns * gaps.exponential();
                next = clock as u64;
            } else {
                next = u64::MAX;
            }
            if idle != 0 {
                let core = idle.trailing_zeros() as u16;
                idle &= idle - 1;
                let woken = &mut cores[usize::from(core)];
                let exit_ns = states[woken.mode - ASLEEP].exit_ns;
                woken.sleeps += 1;
                woken.enter(WAKING, now);
                events.push(Event { at: now + exit_ns, core, what: What::Awake, sleep: 0 });
            }
            continue;
        }
        let Some(event) = events.pop() else { break };
        let core = &mut cores[usize::from(event.core)];
        if event.what == What::Deeper {
            if core.sleeps == event.sleep && core.mode >= ASLEEP {
                core.enter(core.mode + 1, event.at);
                let state = core.mode - ASLEEP;
                if let Some(deeper) = states.get(state + 1) {
                    let at = event.at + deeper.residency_ns - states[state].residency_ns;
                    events.push(Event { at, ..event });
                }
            }
            continue;
        }
        now = event.at;
        if event.what == What::Done {
            let response_ns = now - core.arrived;
            responses.record(response_ns).expect("it grows to any value");
            sum_ns += u128::from(response_ns);
            done += 1;
        }
        if let Some((arrived, length)) = queue.pop_front() {
            core.arrived = arrived;
            if core.mode != WORKING {
                core.enter(WORKING, now);
            }
            events.push(Event { at: now + length, core: event.core, what: What::Done, sleep: 0 });
        } else {
            core.enter(ASLEEP, now);
            idle |= 1 << event.core;
            if let Some(deeper) = states.get(1) {
                let at = now + deeper.residency_ns;
                events.push(Event { at, core: event.core, what: What::Deeper, sleep: core.sleeps });
            }
        }
    }
    let active_watts = platform.frequencies.points.last().map_or(0.0, |point| point.power.as_watts());
    let watts_of = |mode: usize| if mode < ASLEEP { active_watts } else { states[mode - ASLEEP].watts };
    let mut joules = 0.0;
    for core in &mut cores {
        core.enter(ASLEEP, now);
        let times = core.time_ns.iter().take(ASLEEP + states.len()).enumerate();
        joules += times.map(|(mode, &ns)| ns as f64 * 1e-9 * watts_of(mode)).sum::<f64>();
    }
    Outcome {
        mean_ns: sum_ns as f64 / done.max(1) as f64,
        p99_ns: responses.value_at_quantile(0.99) as f64,
        watts: joules / (now as f64 * 1e-9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Duration;
    use sim::exact::ResponseTime;

    fn ten_cores() -> Platform {
        let mut platform = Platform::by_name("xeon-silver-4116").unwrap();
        (platform.sockets, platform.cores_per_socket, platform.threads_per_core) = (1, 10, 1);
        platform
    }

    #[test]
    fn without_exit_latencies_it_is_erlangs_queue() {
        let mut platform = ten_cores();
        for state in &mut platform.cstates.0 {
            state.exit_latency = Duration::ZERO;
            state.true_exit_latency = None;
        }
        let exact = ResponseTime::mmk(10, 8.0, 1.0);
        let outcome = simulate(&platform, 0.8, 10_000.0, 1_000_000, 1);
        assert!((outcome.mean_ns / 10_000.0 / exact.mean() - 1.0).abs() < 0.01, "{}", outcome.mean_ns);
        assert!((outcome.p99_ns / 10_000.0 / exact.quantile(0.99) - 1.0).abs() < 0.02, "{}", outcome.p99_ns);
    }

    #[test]
    fn power_lies_between_that_of_work_alone_and_of_nothing_but_work() {
        let platform = ten_cores();
        let active = platform.frequencies.points.last().unwrap().power.as_watts();
        let outcome = simulate(&platform, 0.8, 10_000.0, 100_000, 1);
        assert!(outcome.watts > 0.8 * 10.0 * active && outcome.watts < 10.0 * active, "{}", outcome.watts);
        let quiet = simulate(&platform, 0.001, 10_000.0, 10_000, 1);
        let deepest = platform.cstates.0.last().unwrap().power.unwrap().as_watts();
        assert!(quiet.watts < 0.1 * active * 10.0 && quiet.watts > deepest * 10.0, "{}", quiet.watts);
    }
}
