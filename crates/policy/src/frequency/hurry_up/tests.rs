use super::*;
use crate::frequency::points::tests::{nine_points, points_at};

pub(super) const MIN: u64 = 1_000_000;
pub(super) const MID: u64 = 2_000_000;
pub(super) const MAX: u64 = 2_600_000;

pub(super) fn ms(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// Thread 10 on cpu0, 11 on cpu1, ...
pub(super) fn hurry_up(params: Params, threads: u32) -> HurryUp {
    let bound = (0..threads).map(|thread| (ThreadId(10 + thread), CpuId(thread as u16)));
    HurryUp::new(params, &nine_points(), bound)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) at: Instant,
    pub(super) thread: u32,
    pub(super) enters: bool,
}

fn event(at: u64, thread: u32, enters: bool) -> Event {
    Event { at: ms(at), thread, enters }
}

fn tell(policy: &mut HurryUp, event: Event) {
    let thread = ThreadId(10 + event.thread);
    if event.enters { policy.handle_enter(event.at, thread) } else { policy.handle_exit(event.at, thread) }
}

/// Milliseconds, CPU and kilohertz of every command while these events happen, and for a second
/// after.
pub(super) fn play(policy: &mut HurryUp, events: &[Event]) -> Vec<(u64, u16, u64)> {
    let mut commands = Vec::new();
    let mut drain = |policy: &mut HurryUp, now: Instant| {
        while let Some(shift) = policy.poll_command() {
            commands.push((now.as_nanos() / 1_000_000, shift.cpu.0, shift.frequency.0));
        }
    };
    drain(policy, Instant::ZERO);
    let mut events = events.iter().copied().peekable();
    let until = events.clone().last().map_or(Instant::ZERO, |event| event.at) + Duration::from_secs(1);
    loop {
        let timer = policy.poll_timeout().filter(|due| *due <= until);
        let now = match (events.peek(), timer) {
            (Some(event), timer) if timer.is_none_or(|due| event.at <= due) => {
                let now = event.at;
                while let Some(event) = events.next_if(|event| event.at == now) {
                    tell(policy, event);
                }
                now
            }
            (_, Some(due)) => {
                policy.handle_timeout(due);
                due
            }
            (_, None) => return commands,
        };
        drain(policy, now);
    }
}

#[test]
fn the_paper_preset_looks_every_ten_milliseconds() {
    let events = [
        event(3, 0, true),
        event(11, 1, true),
        event(14, 1, false), // a call that no look saw
        event(101, 1, true),
        event(355, 0, false), // 352 ms: heavy, but found so at 360 only
        event(372, 0, true),
        event(733, 0, false), // 361 ms
    ];
    let expected = [
        (0, 0, MIN),
        (0, 1, MIN),
        (10, 0, MID),
        (110, 1, MID),
        (360, 0, MIN),
        (380, 0, MID),
        (460, 1, MAX), // over 350 ms since 101, and nothing tells it to stop
        (730, 0, MAX),
        (740, 0, MIN),
    ];
    assert_eq!(play(&mut hurry_up(Params::paper(), 2), &events), expected);
}

#[test]
fn the_default_acts_when_something_happens() {
    let events = [
        event(3, 0, true),
        event(11, 1, true),
        event(14, 1, false),
        event(355, 0, false), // 352 ms
    ];
    let expected =
        [(0, 0, MIN), (0, 1, MIN), (3, 0, MID), (11, 1, MID), (14, 1, MIN), (353, 0, MAX), (355, 0, MIN)];
    let mut policy = hurry_up(Params::default(), 2);
    assert_eq!(play(&mut policy, &events), expected);
    assert_eq!(policy.poll_timeout(), None, "a quiet machine needs no timer");
}

#[test]
fn the_threshold_becomes_what_most_calls_stay_below() {
    let mut policy = hurry_up(Params::default(), 1);
    assert_eq!(policy.threshold(), Duration::from_millis(350));
    // 1 to 100 ms, evenly.
    for call in 0..=200 {
        policy.handle_enter(ms(call * 1_000), ThreadId(10));
        policy.handle_exit(ms(call * 1_000 + 1 + call % 100), ThreadId(10));
    }
    let learned = policy.threshold().as_millis();
    assert!((94..=97).contains(&learned), "{learned}");
}

#[test]
fn the_threshold_has_a_floor() {
    let mut policy = hurry_up(Params::default(), 1);
    for call in 0..=200 {
        policy.handle_enter(ms(call), ThreadId(10));
        policy.handle_exit(ms(call) + Duration::from_micros(5), ThreadId(10));
    }
    assert_eq!(policy.threshold(), Duration::from_millis(1));
}

#[test]
fn lost_and_repeated_events_do_no_harm() {
    let events = [
        event(5, 0, false), // no enter
        event(10, 0, true),
        event(100, 0, true), // its exit was lost: the clock starts anew
        event(300, 0, false),
        event(300, 0, false),
        event(500, 7, true), // no known thread
    ];
    let mut policy = hurry_up(Params::default(), 1);
    assert_eq!(play(&mut policy, &events), [(0, 0, MIN), (10, 0, MID), (300, 0, MIN)]);
    assert_eq!(policy.calls.total(), 1);
}

#[test]
fn a_core_of_two_threads_is_as_fast_as_the_faster_needs() {
    let bound = [(ThreadId(10), CpuId(4)), (ThreadId(11), CpuId(4))];
    let mut policy = HurryUp::new(Params::default(), &nine_points(), bound);
    let events = [event(10, 0, true), event(20, 1, true), event(30, 0, false), event(40, 1, false)];
    assert_eq!(play(&mut policy, &events), [(0, 4, MIN), (10, 4, MID), (40, 4, MIN)]);
}

#[test]
fn a_clock_that_the_machine_lacks_is_rounded_up() {
    let points = points_at(&[1_200, 1_800, 2_200]);
    let mut policy = HurryUp::new(Params::default(), &points, [(ThreadId(10), CpuId(0))]);
    let commands = play(&mut policy, &[event(10, 0, true), event(900, 0, false)]);
    // Both f_mid and f_max are the fastest there is.
    assert_eq!(commands, [(0, 0, 1_200_000), (10, 0, 2_200_000), (900, 0, 1_200_000)]);
}

#[test]
fn parameters_are_written_as_people_write_them() {
    for params in [Params::default(), Params::paper(), Params::tuned()] {
        let json = serde_json::to_string(&params).unwrap();
        assert_eq!(serde_json::from_str::<Params>(&json).unwrap(), params, "{json}");
    }
    let json = r#"{"sleep":"never","threshold":{"learned":{"quantile":0.9}}}"#;
    let learned = Learned { quantile: 0.9, ..Learned::default() };
    let expected = Params { threshold: Threshold::Learned(learned), ..Params::default() };
    assert_eq!(serde_json::from_str::<Params>(json).unwrap(), expected);
    assert!(serde_json::from_str::<Params>(r#"{"threshhold":{"fixed":"1ms"}}"#).is_err());
}
