//! Invariants, whatever the events; and the paper's flowchart to compare with.

use super::tests::{Event, MAX, MID, MIN, hurry_up, ms, play};
use super::*;
use machine::Duration;
use proptest::prelude::*;

/// The flowchart, word for word: sleep, take the events that there are, look at every thread.
fn as_in_the_paper(events: &[Event], params: &Params, threads: u32) -> Vec<(u64, u16, u64)> {
    let Threshold::Fixed(threshold) = params.threshold else { panic!("the paper's is fixed") };
    let sleep = params.sleep.unwrap();
    let until = events.last().map_or(Instant::ZERO, |event| event.at) + Duration::from_secs(1);
    let (mut inside, mut clocks) = (vec![None; threads as usize], vec![0; threads as usize]);
    let (mut events, mut commands) = (events.iter().peekable(), Vec::new());
    let mut now = Instant::ZERO;
    while now <= until {
        while let Some(event) = events.next_if(|event| event.at <= now) {
            inside[event.thread as usize] = event.enters.then_some(event.at);
        }
        for (thread, clock) in clocks.iter_mut().enumerate() {
            let wanted = match inside[thread] {
                None => MIN,
                Some(entered) if now.since(entered) > threshold => MAX,
                Some(_) => MID,
            };
            if *clock != wanted {
                *clock = wanted;
                commands.push((now.as_nanos() / 1_000_000, thread as u16, wanted));
            }
        }
        now += sleep;
    }
    commands
}

/// Calls and nonsense; never at the very instant of a look.
fn trace(threads: u32) -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec((prop_oneof![0_u64..300, Just(0)], 0..threads, any::<bool>()), 0..60).prop_map(
        |steps| {
            let mut at = 0;
            let step = |(gap, thread, enters): (u64, u32, bool)| {
                at += gap;
                Event { at: ms(at) + Duration::from_nanos(1), thread, enters }
            };
            steps.into_iter().map(step).collect()
        },
    )
}

proptest! {
    #[test]
    fn the_paper_preset_is_the_paper(events in trace(3), tuned in any::<bool>()) {
        let params = if tuned { Params::tuned() } else { Params::paper() };
        prop_assert_eq!(play(&mut hurry_up(params, 3), &events), as_in_the_paper(&events, &params, 3));
    }

    #[test]
    fn events_of_different_threads_may_come_in_any_order(
        mut events in trace(4),
        polled in any::<bool>(),
    ) {
        let learned = Learned { calls: 3, ..Learned::default() };
        let base = if polled { Params::paper() } else { Params::default() };
        let params = Params { threshold: Threshold::Learned(learned), ..base };
        let (mut one, mut other) = (hurry_up(params, 4), hurry_up(params, 4));
        let commands = play(&mut one, &events);
        // Turns round the events of one instant, each thread's own events apart.
        events.chunk_by_mut(|a, b| a.at == b.at).for_each(|now| now.sort_by_key(|event| std::cmp::Reverse(event.thread)));
        prop_assert_eq!(play(&mut other, &events), commands);
        prop_assert_eq!(one, other);
    }

    #[test]
    fn what_is_written_and_read_back_commands_alike(before in trace(3), after in trace(3)) {
        let mut policy = hurry_up(Params::default(), 3);
        play(&mut policy, &before);
        let mut read: HurryUp = serde_json::from_str(&serde_json::to_string(&policy).unwrap()).unwrap();
        prop_assert_eq!(&read, &policy);
        prop_assert_eq!(play(&mut read, &after), play(&mut policy, &after));
    }

    #[test]
    fn every_command_is_a_change_to_a_point_of_the_table(events in trace(3)) {
        let mut policy = hurry_up(Params::default(), 3);
        let mut last = [0; 3];
        for (_, cpu, clock) in play(&mut policy, &events) {
            prop_assert!([MIN, MID, MAX].contains(&clock));
            prop_assert_ne!(std::mem::replace(&mut last[usize::from(cpu)], clock), clock);
        }
        // A thread outside is slow in the end, one inside is late.
        for (thread, clock) in policy.threads.iter().zip(last) {
            prop_assert_eq!(clock, if thread.call.is_some() { MAX } else { MIN });
        }
    }
}
