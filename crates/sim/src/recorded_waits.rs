//! A recorded run of quiescence, once more in simulated time under other constants.
//!
//! The events of the machine (each block and its cause, each wake-up, the time that freezing took,
//! for how long all CPUs were idle) is told to the policy again at the recorded times; when it
//! commands and when its own timers fall due is up to it. Waits last as long as they did, whatever
//! would have stood still, so this says when others would have been frozen and for how long, and no
//! more.

use machine::{Duration, Instant};
use policy::quiescence::{GroupId, Quiescence, QuiescenceCommand, QuiescenceInput, Record};
use serde::Serialize;
use std::collections::BTreeMap;

/// One step of a recording: its time, the policy's input, its commands.
pub type Step = (Instant, QuiescenceInput, Vec<QuiescenceCommand>);

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StoodStill {
    /// From the first step to the last, seconds.
    pub length_s: f64,
    pub freezes: u64,
    /// Seconds spent frozen, by number of group.
    pub frozen_s: BTreeMap<u32, f64>,
    /// Share of the time spent frozen, by group.
    pub frozen_share: BTreeMap<u32, f64>,
}

impl StoodStill {
    fn of(began: Instant, ended: Instant, commands: &[(Instant, QuiescenceCommand)]) -> Self {
        let mut since: BTreeMap<GroupId, Instant> = BTreeMap::new();
        let mut frozen: BTreeMap<GroupId, Duration> = BTreeMap::new();
        let mut freezes = 0;
        for &(at, command) in commands {
            match command {
                QuiescenceCommand::Freeze(group) => {
                    freezes += 1;
                    since.insert(group, at);
                }
                QuiescenceCommand::Thaw(group) => {
                    let length = since.remove(&group).map_or(Duration::ZERO, |since| at.since(since));
                    *frozen.entry(group).or_default() += length;
                }
            }
        }
        for (group, since) in since {
            *frozen.entry(group).or_default() += ended.since(since);
        }
        let length_s = ended.since(began).as_secs_f64();
        let frozen_s: BTreeMap<u32, f64> =
            frozen.into_iter().map(|(group, time)| (group.0, time.as_secs_f64())).collect();
        let share = |(&group, seconds): (&u32, &f64)| (group, seconds / length_s.max(f64::MIN_POSITIVE));
        Self { length_s, freezes, frozen_share: frozen_s.iter().map(share).collect(), frozen_s }
    }
}

pub fn as_recorded(steps: &[Step]) -> StoodStill {
    let commands: Vec<_> =
        steps.iter().flat_map(|(at, _, commands)| commands.iter().map(|command| (*at, *command))).collect();
    let (first, last) = (steps.first(), steps.last());
    let at = |step: Option<&Step>| step.map_or(Instant::ZERO, |(at, ..)| *at);
    StoodStill::of(at(first), at(last), &commands)
}

/// The groups that this policy, which knows nothing yet, would have had stand still.
pub fn again(steps: &[Step], mut policy: Quiescence) -> (StoodStill, Record) {
    let mut commands = Vec::new();
    let mut poll = |policy: &mut Quiescence, at: Instant| {
        commands.extend(std::iter::from_fn(|| policy.poll_command()).map(|command| (at, command)));
    };
    for (at, input, _) in steps {
        while let Some(due) = policy.poll_timeout().filter(|due| due <= at) {
            policy.handle_timeout(due);
            poll(&mut policy, due);
        }
        match *input {
            QuiescenceInput::Event(event) => policy.handle_event(*at, &event),
            QuiescenceInput::Idle(idle) => policy.handle_idle(idle),
            QuiescenceInput::Cost(cost) => policy.handle_cost(*at, cost),
            QuiescenceInput::LeaveAlone(group) => policy.leave_alone(*at, group),
            QuiescenceInput::Lost => policy.handle_lost(*at),
            QuiescenceInput::Stop => policy.handle_stop(*at),
            // Its own are at other times. A recording has its events in batches, which were decided
            // upon as one.
            QuiescenceInput::Timeout => continue,
            QuiescenceInput::Poll => {}
        }
        if matches!(input, QuiescenceInput::Poll | QuiescenceInput::Idle(_) | QuiescenceInput::Stop) {
            poll(&mut policy, *at);
        }
    }
    let at = |step: Option<&Step>| step.map_or(Instant::ZERO, |(at, ..)| *at);
    let still = StoodStill::of(at(steps.first()), at(steps.last()), &commands);
    (still, policy.record())
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Ratio;
    use policy::log::Recorded as _;
    use policy::quiescence::{Event, Params, PayoffParams, Role, Task, TaskId, Wait};

    const CLIENT: Task = Task { id: TaskId(7), group: GroupId(1) };
    const BACKGROUND: GroupId = GroupId(2);

    fn policy(max_share: f64) -> Quiescence {
        let payoff = PayoffParams { is_tried: false, ..PayoffParams::default() };
        let params = Params { max_share: Ratio::new(max_share), payoff, ..Params::default() };
        Quiescence::new(params, [(CLIENT.group, Role::Critical), (BACKGROUND, Role::Background)])
    }

    /// Ten waits of 100 ms, each after 10 ms of work, as a driver would record them.
    fn recording() -> Vec<Step> {
        let mut policy = policy(0.99);
        let mut steps = Vec::new();
        for fetch in 0..10 {
            for (ms, event) in [
                (0, Event::Unblock { task: CLIENT }),
                (
                    10,
                    Event::Block {
                        task: CLIENT,
                        on: Wait::Io { expected: Some(Duration::from_millis(100)) },
                    },
                ),
            ] {
                let at = Instant::ZERO + Duration::from_millis(fetch * 110 + ms);
                for input in [
                    QuiescenceInput::Idle(Duration::ZERO),
                    QuiescenceInput::Event(event),
                    QuiescenceInput::Poll,
                ] {
                    let commands = policy.apply(at, &input);
                    steps.push((at, input, commands));
                }
            }
        }
        steps
    }

    #[test]
    fn the_same_constants_freeze_as_recorded_and_others_otherwise() {
        let steps = recording();
        let had = as_recorded(&steps);
        assert_eq!(had.freezes, 10);
        assert!((had.frozen_s[&BACKGROUND.0] - 0.9).abs() < 1e-9, "{had:?}");
        let (same, record) = again(&steps, policy(0.99));
        assert_eq!((same, record.freezes), (had.clone(), 10));
        let (shorter, _) = again(&steps, policy(0.2));
        assert!(shorter.frozen_s[&BACKGROUND.0] < 0.5 * had.frozen_s[&BACKGROUND.0], "{shorter:?}");
    }

    #[test]
    fn nothing_recorded_is_nothing_still() {
        assert_eq!(as_recorded(&[]), StoodStill::default());
        assert_eq!(again(&[], policy(0.99)).0, StoodStill::default());
    }
}
