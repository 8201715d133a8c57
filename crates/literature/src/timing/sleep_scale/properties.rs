//! The playback against an event simulation, and the choice against all others.

use super::tests::states;
use super::{Choice, Params, Played, Queueing, Served, SleepScale, steady};
use crate::frequency::points::tests::nine_points;
use machine::{CstateIndex, Duration, Instant, Ratio};
use policy::frequency::PointIndex;
use proptest::prelude::*;
use std::collections::VecDeque;

/// The same queue as an event simulation: responses by order of arrival, and active time.
fn simulated(
    requests: &[Served],
    cores: usize,
    exit: Duration,
    speed: f64,
    shared: bool,
) -> (Vec<Duration>, Duration) {
    let mut responses = vec![Duration::ZERO; requests.len()];
    let mut active = Duration::ZERO;
    let mut asleep: VecDeque<usize> = (0..cores).collect();
    let mut queues = vec![VecDeque::new(); cores];
    let mut serving: Vec<Option<(Instant, usize)>> = vec![None; cores];
    let needs = |request: usize| requests[request].compute.scale(1.0 / speed) + requests[request].memory;
    let mut next = 0;
    loop {
        let done = (0..cores).filter_map(|core| serving[core].map(|(at, _)| (at, core))).min();
        let arrival = requests.get(next).map(|served| served.arrived);
        match (done, arrival) {
            (Some((at, core)), arrival) if arrival.is_none_or(|arrival| at <= arrival) => {
                let (_, request) = serving[core].take().unwrap();
                responses[request] = at.since(requests[request].arrived);
                if let Some(request) = queues[if shared { 0 } else { core }].pop_front() {
                    serving[core] = Some((at + needs(request), request));
                    active += needs(request);
                } else {
                    asleep.push_back(core);
                }
            }
            (_, Some(at)) => {
                let home = usize::from(requests[next].core);
                let wakes = if shared {
                    (!asleep.is_empty()).then_some(0)
                } else {
                    asleep.iter().position(|&core| core == home)
                };
                if let Some(core) = wakes.and_then(|place| asleep.remove(place)) {
                    serving[core] = Some((at + exit + needs(next), next));
                    active += exit + needs(next);
                } else {
                    queues[if shared { 0 } else { home }].push_back(next);
                }
                next += 1;
            }
            _ => return (responses, active),
        }
    }
}

proptest! {
    #[test]
    fn the_recursion_is_the_event_simulation(
        requests in prop::collection::vec((1_u64..90_000, 0_u16..4, 0_u64..60_000, 0_u64..20_000), 1..120),
        shared in any::<bool>(),
        exit_us in 0_u64..150,
        quantile in 0.0..1.0_f64,
    ) {
        let mut at = Instant::ZERO;
        let requests: Vec<_> = requests.into_iter().map(|(gap, core, compute, memory)| {
            at += Duration::from_nanos(gap);
            let (compute, memory) = (Duration::from_nanos(compute), Duration::from_nanos(memory));
            Served { arrived: at, core, compute, memory }
        }).collect();
        let queueing = if shared { Queueing::Shared } else { Queueing::PerCore };
        let params = Params { queueing, quantile: Ratio::new(quantile), ..Params::default() };
        let policy = SleepScale::new(params, states(), nine_points(), 4, Instant::ZERO);
        let exit = Duration::from_micros(exit_us);
        let (mut responses, active) = simulated(&requests, 4, exit, 0.7, shared);
        responses.sort_unstable();
        let tail = responses[((quantile * responses.len() as f64).ceil() as usize).max(1) - 1];
        prop_assert_eq!(policy.play(&requests, exit, 0.7), Played { tail, active });
    }

    #[test]
    fn the_choice_meets_the_goal_if_any_does_and_nothing_that_does_is_cheaper(
        requests in prop::collection::vec((1_u64..900_000, 1_u64..60_000), 1..200),
        goal_us in 20_u64..600,
    ) {
        let params = Params { goal: Duration::from_micros(goal_us), ..Params::default() };
        let mut policy = SleepScale::new(params, states(), nine_points(), 2, Instant::ZERO);
        let mut at = Instant::ZERO;
        let mut log = Vec::new();
        for (gap, compute) in requests {
            at += Duration::from_nanos(gap);
            let compute = Duration::from_nanos(compute);
            log.push(Served { arrived: at, core: 0, compute, memory: Duration::ZERO });
        }
        // In another order: they need not complete as they came.
        log.iter().rev().for_each(|&served| policy.handle_completion(served));
        policy.handle_timeout(Instant::ZERO + Duration::from_secs(1));
        let energy = |choice: Choice| {
            let state = states()[choice.state.index()];
            let played = policy.play(&log, state.exit_latency, policy.points.speed(choice.point));
            let active = played.active.as_nanos() as f64;
            let working = active * policy.points.power(choice.point).0 as f64;
            let joules = working + (2e9 - active) * state.power.0 as f64;
            let speed = policy.points.speed(choice.point);
            let keeps_up = steady::keeps_up(&log, Queueing::Shared, 2, speed);
            (keeps_up && played.tail <= params.goal).then_some(joules)
        };
        let places = (0..3).flat_map(|state| (0..9).map(move |point| (state, point)));
        let choices = places
            .map(|(state, point)| Choice { state: CstateIndex(state), point: PointIndex(point) });
        let least = choices.filter_map(energy).min_by(f64::total_cmp);
        prop_assert_eq!(energy(policy.choice()), least);
    }
}
