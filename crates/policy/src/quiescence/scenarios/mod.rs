//! Hand-made traces of a phone: a browser that waits for the network, an updater and an indexer
//! behind it.

mod interactions;
mod third_parties;

use super::QuiescenceCommand::{Freeze, Thaw};
use super::*;
use machine::Instant;

const BROWSER: GroupId = GroupId(1);
const UPDATER: GroupId = GroupId(2);
const INDEXER: GroupId = GroupId(3);
const NETWORK: Wait = Wait::Io { expected: Some(Duration::from_millis(100)) };
const UNKNOWN: Wait = Wait::Io { expected: None };

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn task(id: u32, group: GroupId) -> Task {
    Task { id: TaskId(id), group }
}

/// The page is loaded by this one.
fn main_thread() -> Task {
    task(10, BROWSER)
}

fn trigger(task: Task) -> Event {
    Event::Trigger { task, interaction: InteractionId(1) }
}

fn block(task: Task, on: Wait) -> Event {
    Event::Block { task, on }
}

struct Phone(Quiescence);

impl Phone {
    fn new(params: Params) -> Self {
        Self(Quiescence::new(params, [(UPDATER, Role::Background), (INDEXER, Role::Background)]))
    }

    fn commands(&mut self) -> Vec<QuiescenceCommand> {
        std::iter::from_fn(|| self.0.poll_command()).collect()
    }

    fn event(&mut self, ms: u64, event: Event) -> Vec<QuiescenceCommand> {
        self.0.handle_event(at(ms), &event);
        self.commands()
    }

    fn timeout(&mut self, ms: u64) -> Vec<QuiescenceCommand> {
        self.0.handle_timeout(at(ms));
        self.commands()
    }
}

#[test]
fn the_papers_page_load_stops_the_background_for_the_wait() {
    let mut phone = Phone::new(Params::default());
    assert_eq!(phone.event(0, trigger(main_thread())), []);
    assert_eq!(phone.event(5, block(main_thread(), NETWORK)), [Freeze(UPDATER), Freeze(INDEXER)]);
    // Shortly before the end it is not thawed: there is nothing to gain from that.
    assert_eq!(phone.timeout(104), []);
    assert_eq!(phone.event(105, Event::Unblock { task: main_thread() }), [Thaw(UPDATER), Thaw(INDEXER)]);
    assert_eq!(phone.event(130, Event::Response { interaction: InteractionId(1) }), []);
    assert_eq!(phone.0.record().frozen, Duration::from_millis(200));
    assert_eq!(phone.0.poll_timeout(), None);
}

#[test]
fn of_waits_that_always_last_as_long_the_end_is_not_waited_for() {
    let mut phone = Phone::new(Params::default());
    phone.0.handle_cost(at(0), Duration::from_micros(500));
    phone.event(0, trigger(main_thread()));
    let punctual = Wait::Punctual { length: Duration::from_millis(100) };
    assert_eq!(phone.event(5, block(main_thread(), punctual)), [Freeze(UPDATER), Freeze(INDEXER)]);
    // The timeout comes before the end by the time that thawing takes, neither earlier nor later.
    let ends = at(105).since(Instant::ZERO) - Duration::from_micros(500);
    assert_eq!(phone.0.poll_timeout(), Some(Instant::ZERO + ends));
    assert_eq!(phone.timeout(104), []);
    phone.0.handle_timeout(Instant::ZERO + ends);
    assert_eq!(phone.commands(), [Thaw(UPDATER), Thaw(INDEXER)]);
    assert_eq!(phone.0.record().ended_early, 2);
    // It lasts for longer than ever: worth it again, when it has done so for twenty times as long
    // as freezing takes.
    assert_eq!(phone.timeout(114), []);
    assert_eq!(phone.0.poll_timeout(), Some(at(115)));
    assert_eq!(phone.timeout(115), [Freeze(UPDATER), Freeze(INDEXER)]);
    assert_eq!(phone.event(120, Event::Unblock { task: main_thread() }), [Thaw(UPDATER), Thaw(INDEXER)]);
}

#[test]
fn a_driver_that_comes_after_the_end_thaws_when_the_critical_goes_on() {
    let mut phone = Phone::new(Params::default());
    phone.0.handle_cost(at(0), Duration::from_micros(500));
    phone.event(0, trigger(main_thread()));
    let punctual = Wait::Punctual { length: Duration::from_millis(100) };
    assert_eq!(phone.event(5, block(main_thread(), punctual)).len(), 2);
    assert_eq!(phone.timeout(106), []);
    assert_eq!(phone.event(107, Event::Unblock { task: main_thread() }).len(), 2);
}

#[test]
fn without_an_interaction_nobody_is_stopped() {
    let mut phone = Phone::new(Params::default());
    assert_eq!(phone.event(0, block(main_thread(), NETWORK)), []);
    assert_eq!(phone.event(1, block(task(20, UPDATER), UNKNOWN)), []);
    assert_eq!(phone.0.poll_timeout(), None);
    phone.event(2, trigger(main_thread()));
    phone.event(3, block(main_thread(), NETWORK));
    assert_eq!(phone.event(50, Event::Response { interaction: InteractionId(1) }).len(), 2);
}

#[test]
fn a_wait_of_unknown_length_is_believed_when_it_has_lasted() {
    let mut phone = Phone::new(Params::default());
    phone.event(0, trigger(main_thread()));
    assert_eq!(phone.event(5, block(main_thread(), UNKNOWN)), []);
    assert_eq!(phone.0.poll_timeout(), Some(at(6)));
    assert_eq!(phone.timeout(6).len(), 2);
}

#[test]
fn a_short_wait_is_not_worth_it_unless_it_lasts() {
    let mut phone = Phone::new(Params::default());
    let disk = Wait::Io { expected: Some(Duration::from_micros(900)) };
    phone.event(0, trigger(main_thread()));
    phone.event(5, block(main_thread(), disk));
    assert_eq!(phone.0.poll_timeout(), Some(at(6) + Duration::from_micros(900)));
}

#[test]
fn a_lock_is_no_wait_for_input_or_output() {
    let mut phone = Phone::new(Params::default());
    phone.event(0, trigger(main_thread()));
    assert_eq!(phone.event(5, block(main_thread(), Wait::Other)), []);
    let helper = task(11, BROWSER);
    phone.event(6, Event::Fork { parent: main_thread(), child: helper });
    assert_eq!(phone.event(7, block(helper, NETWORK)), []);
    assert_eq!(phone.event(8, block(main_thread(), NETWORK)).len(), 2);
}

#[test]
fn who_waits_within_its_process_is_no_slack_and_no_obstacle() {
    let mut phone = Phone::new(Params::default());
    let helper = task(11, BROWSER);
    phone.event(0, trigger(main_thread()));
    phone.event(0, Event::Fork { parent: main_thread(), child: helper });
    assert_eq!(phone.event(1, block(main_thread(), Wait::Within)), []);
    assert_eq!(phone.event(2, block(helper, Wait::Within)), [], "no task waits for input or output");
    assert_eq!(phone.event(3, block(helper, NETWORK)), [Freeze(UPDATER), Freeze(INDEXER)]);
    assert_eq!(phone.event(4, Event::Unblock { task: main_thread() }), [Thaw(UPDATER), Thaw(INDEXER)]);
}

#[test]
fn what_freezing_costs_decides_which_waits_are_worth_it() {
    let mut phone = Phone::new(Params::default());
    phone.0.handle_cost(at(0), Duration::from_millis(4));
    phone.event(0, trigger(main_thread()));
    let wait = |ms| Wait::Io { expected: Some(Duration::from_millis(ms)) };
    assert_eq!(phone.event(0, block(main_thread(), wait(79))), []);
    assert_eq!(phone.event(1, block(main_thread(), wait(81))), [Freeze(UPDATER), Freeze(INDEXER)]);
}

#[test]
fn a_group_that_is_likely_to_help_is_left_alone() {
    let mut phone = Phone::new(Params::default());
    phone.event(0, trigger(main_thread()));
    phone.0.leave_alone(at(0), UPDATER);
    phone.0.leave_alone(at(0), BROWSER);
    assert_eq!(phone.event(5, block(main_thread(), NETWORK)), [Freeze(INDEXER)]);
    assert_eq!(phone.0.outlook(at(5)), Outlook::Frozen);
    assert!(phone.0.is_critical(main_thread().id) && !phone.0.is_critical(TaskId(20)));
}

#[test]
fn all_that_a_critical_task_causes_is_critical() {
    let helpers = [task(11, BROWSER), task(20, UPDATER)];
    let (pipe, socket) = (ChannelId::Pipe(7), ChannelId::Socket(7));
    let reach: [&[Event]; 4] = [
        &[Event::Fork { parent: main_thread(), child: helpers[1] }],
        &[Event::Signal { from: main_thread(), to: helpers[1] }],
        &[
            Event::Send { task: main_thread(), channel: pipe },
            Event::Receive { task: helpers[1], channel: pipe },
        ],
        &[
            Event::Send { task: main_thread(), channel: socket },
            Event::Receive { task: helpers[0], channel: socket },
            Event::Fork { parent: helpers[0], child: helpers[1] },
            Event::Exit { task: helpers[0].id },
        ],
    ];
    for events in reach {
        let mut phone = Phone::new(Params::default());
        phone.event(0, trigger(main_thread()));
        events.iter().for_each(|event| drop(phone.event(1, *event)));
        assert_eq!(phone.event(2, block(main_thread(), NETWORK)), [], "{events:?}: the helper runs");
        // When it waits too, its group still runs: it is critical.
        assert_eq!(phone.event(3, block(helpers[1], NETWORK)), [Freeze(INDEXER)], "{events:?}");
        assert_eq!(phone.event(4, Event::Exit { task: helpers[1].id }), [Freeze(UPDATER)], "{events:?}");
    }
}

#[test]
fn what_is_not_delivered_yet_keeps_everybody_running() {
    let mut phone = Phone::new(Params::default());
    let (pipe, reader) = (ChannelId::Pipe(7), task(20, UPDATER));
    phone.event(0, trigger(main_thread()));
    phone.event(1, Event::Send { task: main_thread(), channel: pipe });
    assert_eq!(phone.event(2, block(main_thread(), NETWORK)), []);
    phone.event(3, Event::Receive { task: reader, channel: pipe });
    assert_eq!(phone.event(4, block(reader, NETWORK)), [Freeze(INDEXER)]);
}

#[test]
fn a_background_group_that_helps_is_left_alone() {
    let mut phone = Phone::new(Params::default());
    let (pipe, writer) = (ChannelId::Pipe(7), task(20, UPDATER));
    phone.event(0, Event::Send { task: writer, channel: pipe });
    phone.event(0, trigger(main_thread()));
    phone.event(1, Event::Receive { task: main_thread(), channel: pipe });
    assert_eq!(phone.event(2, block(main_thread(), UNKNOWN)), []);
    assert_eq!(phone.timeout(3), [Freeze(INDEXER)]);
    // A frozen group that yet manages to help is thawed.
    let signal = Event::Signal { from: task(30, INDEXER), to: main_thread() };
    assert_eq!(phone.event(4, signal), [Thaw(INDEXER)]);
    assert_eq!(phone.timeout(1001), [Freeze(UPDATER)]);
    assert_eq!(phone.0.record().left_alone, 2);
}

#[test]
fn a_long_wait_freezes_within_bounds() {
    let params = Params { max_interaction: Duration::from_secs(1000), ..Params::default() };
    let mut phone = Phone::new(params);
    phone.event(0, trigger(main_thread()));
    phone.event(0, block(main_thread(), UNKNOWN));
    assert_eq!(phone.timeout(1).len(), 2);
    assert_eq!((phone.timeout(250), phone.0.poll_timeout()), (vec![], Some(at(251))));
    assert_eq!(phone.timeout(251), [Thaw(UPDATER), Thaw(INDEXER)]);
    while let Some(due) = phone.0.poll_timeout().filter(|&due| due < at(100_000)) {
        phone.0.handle_timeout(due);
    }
    let share = phone.0.record().frozen.as_secs_f64() / 2.0 / 100.0;
    assert!((0.74..=0.753).contains(&share), "{share}");
    assert!(phone.0.record().ended_by_bound > 300);
}

#[test]
fn declared_groups_are_critical_without_any_trigger() {
    let mut quiescence =
        Quiescence::new(Params::default(), [(UPDATER, Role::Background), (BROWSER, Role::Critical)]);
    quiescence.handle_event(at(0), &block(main_thread(), NETWORK));
    assert_eq!(quiescence.poll_command(), Some(Freeze(UPDATER)));
    quiescence.handle_event(at(1), &Event::Unblock { task: task(11, BROWSER) });
    assert_eq!(quiescence.poll_command(), Some(Thaw(UPDATER)));
}

#[test]
fn a_loss_thaws_until_every_interaction_must_be_over() {
    for overflow in [false, true] {
        let mut phone = Phone::new(Params { max_tasks: 2, ..Params::default() });
        phone.event(0, trigger(main_thread()));
        assert_eq!(phone.event(0, block(main_thread(), NETWORK)).len(), 2);
        let thawed = if overflow {
            phone.event(1, Event::Fork { parent: main_thread(), child: task(11, BROWSER) });
            phone.event(1, Event::Fork { parent: main_thread(), child: task(12, BROWSER) });
            phone.event(1, trigger(main_thread()))
        } else {
            phone.0.handle_lost(at(1));
            phone.commands()
        };
        assert!(overflow || thawed == [Thaw(UPDATER), Thaw(INDEXER)]);
        assert_eq!(phone.0.record().losses, 1);
        phone.event(2, trigger(main_thread()));
        assert_eq!(phone.event(3, block(main_thread(), UNKNOWN)), []);
        assert_eq!(phone.0.poll_timeout(), Some(at(10_001)));
        phone.event(9_000, Event::Trigger { task: main_thread(), interaction: InteractionId(2) });
        assert_eq!(phone.timeout(10_001).len(), 2);
    }
}

#[test]
fn a_critical_group_too_large_to_know_is_never_taken_to_wait() {
    let params = Params { max_tasks: 2, ..Params::default() };
    let mut quiescence = Quiescence::new(params, [(UPDATER, Role::Background), (BROWSER, Role::Critical)]);
    for id in [10, 11, 12] {
        quiescence.handle_event(at(0), &block(task(id, BROWSER), UNKNOWN));
    }
    quiescence.handle_event(at(0), &Event::Exit { task: TaskId(10) });
    for ms in [1, 10_000, 20_000] {
        quiescence.handle_timeout(at(ms));
        assert_eq!(quiescence.poll_command(), None);
    }
    quiescence.handle_lost(at(30_000));
    for id in [11, 12] {
        quiescence.handle_event(at(30_000), &block(task(id, BROWSER), UNKNOWN));
    }
    quiescence.handle_timeout(at(40_000));
    assert_eq!(quiescence.poll_command(), Some(Freeze(UPDATER)));
}

#[test]
fn two_waits_are_both_to_be_worth_it() {
    let mut phone = Phone::new(Params::default());
    let helper = task(11, BROWSER);
    phone.event(0, trigger(main_thread()));
    phone.event(0, Event::Fork { parent: main_thread(), child: helper });
    phone.event(0, block(main_thread(), UNKNOWN));
    phone.event(0, block(helper, Wait::Io { expected: Some(Duration::from_micros(1500)) }));
    assert_eq!(phone.0.poll_timeout(), Some(Instant::from_nanos(2_500_000)));
}

#[test]
fn a_critical_helper_is_no_reason_to_leave_its_group_alone() {
    let mut phone = Phone::new(Params::default());
    let (pipe, helper) = (ChannelId::Pipe(7), task(20, UPDATER));
    phone.event(0, trigger(main_thread()));
    phone.event(1, Event::Fork { parent: main_thread(), child: helper });
    phone.event(2, Event::Send { task: helper, channel: pipe });
    phone.event(3, Event::Receive { task: main_thread(), channel: pipe });
    phone.event(4, Event::Signal { from: helper, to: main_thread() });
    assert_eq!(phone.0.record().left_alone, 0);
}

#[test]
fn a_clock_that_steps_back_counts_nothing_twice() {
    let mut phone = Phone::new(Params::default());
    phone.event(0, trigger(main_thread()));
    phone.event(0, block(main_thread(), Wait::Io { expected: Some(Duration::from_secs(5)) }));
    for ms in [200, 100, 200, 150, 240] {
        assert_eq!(phone.event(ms, Event::Exit { task: TaskId(99) }), [], "{ms}");
    }
    assert_eq!(phone.timeout(250).len(), 2);
}
