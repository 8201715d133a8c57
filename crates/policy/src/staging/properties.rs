//! Invariants of a stage, and how it fares with a server behind it.

use super::Verdict::ReleaseNow;
use super::*;
use machine::Instant;
use proptest::prelude::*;
use std::collections::VecDeque;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Chance, from a seed.
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 11) as f64 / (1_u64 << 53) as f64
}

/// Serves `count` requests with half a second each, that come and are served (on 8 CPUs) at random
/// with these means.
fn serve(params: Params, count: u64, between_ms: f64, service_ms: f64) -> Stager {
    let mut stager = Stager::new(params);
    let mut state = 11;
    let mut length =
        |mean_ms: f64| Duration::from_secs_f64(-mean_ms / 1e3 * (1.0 - uniform(&mut state)).ln());
    let mut cpus = [Instant::ZERO; 8];
    let mut under_way: Vec<(Instant, Release)> = Vec::new();
    let (mut arrivals, mut next) = (0, Instant::ZERO);
    while arrivals < count || !under_way.is_empty() || stager.held() > 0 {
        let done = under_way.iter().map(|&(end, _)| end).min();
        let arrival = (arrivals < count).then_some(next);
        let now = [done, arrival, stager.poll_timeout()].into_iter().flatten().min().unwrap();
        if Some(now) == done {
            let at = under_way.iter().position(|&(end, _)| end == now).unwrap();
            let (_, release) = under_way.swap_remove(at);
            stager.handle_completed(now, &release);
        } else if Some(now) == arrival {
            stager.handle_arrival(now, StagedId(arrivals), now + ms(500));
            arrivals += 1;
            next = now + length(between_ms);
        } else {
            stager.handle_timeout(now);
        }
        while let Some(release) = stager.poll_release() {
            let cpu = cpus.iter_mut().min().unwrap();
            *cpu = now.max(*cpu) + length(service_ms);
            under_way.push((*cpu, release));
        }
    }
    stager
}

#[test]
fn feedback_keeps_the_tolerated_share_in_the_long_run() {
    // Nearly always alone, and the longest of the last 19 is exceeded by one in twenty: five times
    // the tolerated share, were it not for the margin.
    let params = Params { quantile: Ratio::new(0.99), history: 19, first: 19, ..Params::default() };
    let record = serve(params, 100_000, 1_000.0, 40.0).record();
    let missed = record.held_and_missed + record.passed_and_missed;
    assert!((800..=1_050).contains(&missed), "{record:?}");
    assert!(record.held > ms(200) * 100_000, "{record:?}");
}

#[test]
fn the_papers_load_is_held_for_long_and_in_time() {
    let record = serve(Params::default(), 100_000, 10.0, 12.0).record();
    assert!(record.held_and_missed + record.passed_and_missed <= 100, "{record:?}");
    assert!(record.held > ms(180) * 100_000, "{record:?}");
}

#[test]
fn deadlines_make_fewer_bursts_than_a_period_for_the_same_target() {
    let [period, deadline] =
        [Params::paper(), Params::default()].map(|params| serve(params, 20_000, 10.0, 12.0));
    assert_eq!(period.record().held_and_missed, 0);
    assert!(deadline.record().held_and_missed <= 20, "{deadline:?}");
    let (slow, fast) = (deadline.record().by_deadline, period.record().by_period);
    assert!(slow * 3 < fast * 2, "{slow} {fast}");
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { slack: u64 },
    Withdraw { which: usize },
    Complete { which: usize },
    Fail { which: usize },
    GiveWay,
    Drain,
}

fn any_step() -> impl Strategy<Value = (u64, Step)> {
    let step = prop_oneof![
        8 => (0_u64..600).prop_map(|slack| Step::Arrive { slack }),
        1 => (0_usize..100).prop_map(|which| Step::Withdraw { which }),
        5 => (0_usize..10).prop_map(|which| Step::Complete { which }),
        1 => (0_usize..10).prop_map(|which| Step::Fail { which }),
        1 => Just(Step::GiveWay),
        1 => Just(Step::Drain),
    ];
    (0_u64..60, step)
}

proptest! {
    #[test]
    fn released_once_in_order_and_never_held_into_danger(
        mode in prop_oneof![Just(Mode::Period), Just(Mode::Deadline), Just(Mode::Guarded)],
        phase in 0_u64..400,
        max_staged in 1_u32..12,
        steps in prop::collection::vec(any_step(), 1..150),
    ) {
        let (has_deadlines, has_periods) = (mode != Mode::Period, mode != Mode::Deadline);
        let params = Params { mode, phase: ms(phase), max_staged, first: 3, history: 9, ..Params::default() };
        let mut stager = Stager::new(params);
        let mut now = Instant::ZERO;
        let (mut arrived, mut withdrawn, mut released) = (0_u64, Vec::new(), Vec::new());
        let mut held: VecDeque<(StagedId, Instant, Instant)> = VecDeque::new();
        let mut under_way: Vec<Release> = Vec::new();
        let last = (ms(100_000).as_nanos() / 1_000_000, Step::Fail { which: usize::MAX });
        for (wait, step) in steps.into_iter().chain([last]) {
            let end = now + ms(wait);
            loop {
                let due = stager.poll_timeout().filter(|&due| due <= end);
                now = due.unwrap_or(end).max(now);
                match (due, &step) {
                    (Some(_), _) => stager.handle_timeout(now),
                    (None, Step::Arrive { slack }) => {
                        let (id, deadline) = (StagedId(arrived), now + ms(*slack));
                        held.push_back((id, now, deadline));
                        arrived += 1;
                        let verdict = stager.handle_arrival(now, id, deadline);
                        prop_assert_eq!(verdict == ReleaseNow, stager.held() == 0);
                    }
                    (None, Step::Withdraw { which }) => {
                        let id = StagedId(*which as u64);
                        let known = held.iter().position(|&(held, ..)| held == id);
                        prop_assert_eq!(stager.handle_withdrawn(now, id), known.is_some());
                        if let Some(known) = known {
                            held.remove(known);
                            withdrawn.push(id);
                        }
                    }
                    (None, Step::Complete { which }) if *which < under_way.len() => {
                        stager.handle_completed(now, &under_way.remove(*which));
                    }
                    (None, Step::Fail { which }) if *which < under_way.len() => {
                        stager.handle_failed(now, &under_way.remove(*which));
                    }
                    (None, Step::GiveWay) => stager.handle_give_way(now),
                    (None, Step::Drain) => stager.handle_drain(now),
                    _ => {}
                }
                while let Some(release) = stager.poll_release() {
                    let (id, arrival, deadline) = held.pop_front().expect("only what is held is released");
                    prop_assert_eq!((id, arrival, deadline), (release.id, release.arrived, release.deadline));
                    prop_assert_eq!(release.released, now);
                    under_way.push(release);
                    released.push(id);
                }
                prop_assert!(held.len() == stager.held() && held.len() < max_staged as usize);
                let coming = stager.coming();
                prop_assert_eq!(coming.map(|coming| coming.due), stager.poll_timeout());
                prop_assert!(coming.is_none_or(|coming| coming.floor <= coming.due));
                let size = (under_way.len() + held.len()) as u32;
                for (_, arrival, deadline) in &held {
                    prop_assert!(stager.poll_timeout().is_some_and(|due| due > now));
                    let lead = stager.lead(size).filter(|_| has_deadlines);
                    prop_assert!(lead.is_none_or(|lead| now < *deadline - lead));
                    let one = Duration::from_nanos(1);
                    prop_assert!(!has_deadlines || now < *arrival + deadline.since(*arrival).max(one));
                    prop_assert!(!has_periods || now < *arrival + params.period);
                }
                // State that is written and read back is the same state.
                let text = serde_json::to_string(&stager).unwrap();
                prop_assert_eq!(&serde_json::from_str::<Stager>(&text).unwrap(), &stager);
                if due.is_none() {
                    break;
                }
            }
        }
        prop_assert!(held.is_empty() && stager.poll_timeout().is_none());
        prop_assert_eq!(released.len() + withdrawn.len(), arrived as usize);
    }
}
