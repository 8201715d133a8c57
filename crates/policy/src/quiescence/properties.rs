//! Invariants of quiescence, tried with events in any order against a plain account of the critical
//! tasks.

use super::*;
use machine::Instant;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const BACKGROUND: [GroupId; 2] = [GroupId(2), GroupId(3)];
const CRITICAL: GroupId = GroupId(4);

/// Twenty tasks in five groups.
fn task(id: u32) -> Task {
    Task { id: TaskId(id), group: GroupId(id % 5) }
}

/// The critical tasks, with sets and without bounds.
#[derive(Default)]
struct Account {
    /// By interaction: when it began, and the tasks that it has reached.
    reached: BTreeMap<InteractionId, (Instant, BTreeSet<TaskId>, BTreeSet<ChannelId>)>,
    /// Tasks of the critical group that were heard of.
    always: BTreeSet<TaskId>,
    waiting: BTreeSet<TaskId>,
    /// Of these, those that wait for another of their process.
    within: BTreeSet<TaskId>,
}

impl Account {
    fn spread(&mut self, from: TaskId, to: TaskId) {
        for (_, tasks, _) in self.reached.values_mut() {
            if tasks.contains(&from) {
                tasks.insert(to);
            }
        }
    }

    fn hear(&mut self, now: Instant, event: &Event, max_interaction: Duration) {
        self.reached.retain(|_, (began, ..)| *began + max_interaction > now);
        let named: &[Task] = match event {
            Event::Trigger { task, .. } | Event::Block { task, .. } | Event::Unblock { task } => &[*task],
            Event::Signal { to, .. } => &[*to],
            Event::Fork { child, .. } => &[*child],
            _ => &[],
        };
        self.always.extend(named.iter().filter(|task| task.group == CRITICAL).map(|task| task.id));
        match *event {
            Event::Trigger { task, interaction } => {
                let (_, tasks, _) =
                    self.reached.entry(interaction).or_insert((now, BTreeSet::new(), BTreeSet::new()));
                tasks.insert(task.id);
            }
            Event::Response { interaction } => {
                self.reached.remove(&interaction);
            }
            Event::Fork { parent, child } => self.spread(parent.id, child.id),
            Event::Signal { from, to } => self.spread(from.id, to.id),
            Event::Send { task, channel } => {
                for (_, tasks, channels) in self.reached.values_mut() {
                    channels.extend(tasks.contains(&task.id).then_some(channel));
                }
            }
            Event::Receive { task, channel } => {
                for (_, tasks, channels) in self.reached.values_mut() {
                    tasks.extend(channels.contains(&channel).then_some(task.id));
                }
            }
            Event::Block { task, on } => {
                self.waiting.remove(&task.id);
                self.within.remove(&task.id);
                self.waiting.extend((on != Wait::Other).then_some(task.id));
                self.within.extend((on == Wait::Within).then_some(task.id));
            }
            Event::Unblock { task } => {
                self.waiting.remove(&task.id);
            }
            Event::Exit { task } => {
                for (_, tasks, _) in self.reached.values_mut() {
                    tasks.remove(&task);
                }
                self.always.remove(&task);
                self.waiting.remove(&task);
            }
        }
    }

    fn critical(&self) -> BTreeSet<TaskId> {
        let reached = self.reached.values().flat_map(|(_, tasks, _)| tasks);
        reached.chain(&self.always).copied().collect()
    }
}

fn any_event() -> impl Strategy<Value = Event> {
    let any_task = || (0_u32..20).prop_map(task);
    let any_channel = || {
        (any::<bool>(), 0_u64..4).prop_map(
            |(pipe, id)| {
                if pipe { ChannelId::Pipe(id) } else { ChannelId::Socket(id) }
            },
        )
    };
    let any_interaction = || (0_u64..4).prop_map(InteractionId);
    let any_wait = prop_oneof![
        6 => prop::option::of(0_u64..400)
            .prop_map(|ms| Wait::Io { expected: ms.map(Duration::from_millis) }),
        3 => (0_u64..400).prop_map(|ms| Wait::Punctual { length: Duration::from_millis(ms) }),
        1 => Just(Wait::Other),
        2 => Just(Wait::Within),
    ];
    prop_oneof![
        2 => (any_task(), any_interaction())
            .prop_map(|(task, interaction)| Event::Trigger { task, interaction }),
        2 => any_interaction().prop_map(|interaction| Event::Response { interaction }),
        1 => (any_task(), any_task()).prop_map(|(parent, child)| Event::Fork { parent, child }),
        1 => (any_task(), any_task()).prop_map(|(from, to)| Event::Signal { from, to }),
        1 => (any_task(), any_channel()).prop_map(|(task, channel)| Event::Send { task, channel }),
        2 => (any_task(), any_channel()).prop_map(|(task, channel)| Event::Receive { task, channel }),
        20 => (any_task(), any_wait).prop_map(|(task, on)| Event::Block { task, on }),
        2 => any_task().prop_map(|task| Event::Unblock { task }),
        2 => any_task().prop_map(|task| Event::Exit { task: task.id }),
    ]
}

proptest! {
    #[test]
    fn nobody_critical_is_frozen_and_everybody_is_thawed_in_the_end(
        max_tasks in prop::sample::select(vec![3_u16, 1024]),
        max_channels in prop::sample::select(vec![1_u16, 1024]),
        max_interaction_ms in prop::sample::select(vec![200_u64, 1_000_000]),
        has_critical_group in any::<bool>(),
        events in prop::collection::vec((0_u64..40, any_event()), 0..300),
        lost_at in prop::option::weighted(0.2, 0_usize..300),
        max_share in prop::sample::select(vec![0.1_f64, 0.3, 0.75, 0.99]),
        cost_us in prop::sample::select(vec![0_u64, 50, 5_000]),
        idles in prop::option::of(0.0_f64..1.0),
    ) {
        let max_interaction = Duration::from_millis(max_interaction_ms);
        let bounds = Params { max_tasks, max_channels, ..Params::default() };
        let params = Params { max_interaction, max_share: Ratio::new(max_share), ..bounds };
        let roles = BACKGROUND.map(|group| (group, Role::Background)).into_iter();
        let critical = has_critical_group.then_some((CRITICAL, Role::Critical));
        let mut quiescence = Quiescence::new(params, roles.chain(critical));
        quiescence.handle_cost(Instant::ZERO, Duration::from_micros(cost_us));
        let mut account = Account::default();
        let mut now = Instant::ZERO;
        let mut frozen: BTreeMap<GroupId, Instant> = BTreeMap::new();
        let mut frozen_for: BTreeMap<GroupId, Duration> = BTreeMap::new();
        for (nth, (wait, event)) in events.into_iter().enumerate() {
            let end = now + Duration::from_millis(wait);
            let mut timers = 0;
            loop {
                timers += 1;
                prop_assert!(timers < 200, "no timer spins");
                let due = quiescence.poll_timeout().filter(|&due| due <= end);
                if let Some(share) = idles {
                    quiescence.handle_idle(now.since(Instant::ZERO).scale(share));
                }
                now = due.unwrap_or(end).max(now);
                if due.is_some() {
                    quiescence.handle_timeout(now);
                    prop_assert!(quiescence.poll_timeout().is_none_or(|next| next > now), "no timer spins");
                    account.reached.retain(|_, (began, ..)| *began + max_interaction > now);
                } else if lost_at == Some(nth) {
                    quiescence.handle_lost(now);
                    account.waiting.clear();
                    for &id in &account.always {
                        quiescence.handle_event(now, &Event::Unblock { task: task(id.0) });
                    }
                } else {
                    quiescence.handle_event(now, &event);
                    account.hear(now, &event, max_interaction);
                    if !has_critical_group {
                        account.always.clear();
                    }
                }
                while let Some(command) = quiescence.poll_command() {
                    match command {
                        QuiescenceCommand::Freeze(group) => {
                            prop_assert!(BACKGROUND.contains(&group));
                            prop_assert_eq!(frozen.insert(group, now), None);
                        }
                        QuiescenceCommand::Thaw(group) => {
                            let since = frozen.remove(&group).expect("only the frozen thaw");
                            prop_assert!(now.since(since) <= params.max_freeze);
                            *frozen_for.entry(group).or_default() += now.since(since);
                        }
                    }
                }
                let critical = account.critical();
                for (&group, &since) in &frozen {
                    prop_assert!(now.since(since) < params.max_freeze);
                    prop_assert!(critical.iter().all(|&id| task(id.0).group != group), "{:?} {:?}", group, critical);
                    prop_assert!(critical.is_subset(&account.waiting), "{:?}", critical);
                    prop_assert!(critical.is_empty() || !critical.is_subset(&account.within), "{:?}", critical);
                    // After a loss an interaction may be taken to have begun later than it did.
                    prop_assert!(!critical.is_empty() || quiescence.record().losses > 0);
                }
                let text = serde_json::to_string(&quiescence).unwrap();
                prop_assert_eq!(&serde_json::from_str::<Quiescence>(&text).unwrap(), &quiescence);
                if due.is_none() {
                    break;
                }
            }
        }
        quiescence.handle_stop(now);
        while let Some(command) = quiescence.poll_command() {
            let QuiescenceCommand::Thaw(group) = command else { panic!("{command:?} after the stop") };
            let since = frozen.remove(&group).expect("only the frozen thaw");
            *frozen_for.entry(group).or_default() += now.since(since);
        }
        prop_assert!(frozen.is_empty());
        // So much standing still is paid for by running; the last debt may be unpaid, and each time
        // a nanosecond is lost.
        let paid = max_share / (1.0 - max_share);
        for total in frozen_for.values() {
            let running = now.since(Instant::ZERO) - *total;
            let most = params.max_freeze + running.scale(paid) + Duration::from_micros(1);
            prop_assert!(*total <= most, "{} {}", total, running);
        }
        quiescence.handle_event(now, &Event::Trigger { task: task(1), interaction: InteractionId(9) });
        let on = Wait::Io { expected: Some(Duration::MAX) };
        quiescence.handle_event(now, &Event::Block { task: task(1), on });
        prop_assert_eq!(quiescence.poll_command(), None);
        prop_assert_eq!(quiescence.record().frozen, frozen_for.values().copied().sum::<Duration>());
    }
}

mod wait_graphs {
    use super::super::Params;
    use super::super::chain::{Chain, Own, Part, Program};
    use proptest::prelude::*;

    fn part(groups: usize) -> impl Strategy<Value = Part> {
        prop_oneof![
            2 => (50_u64..1_500).prop_map(Part::Elsewhere),
            1 => (0..groups, 1_u64..60).prop_map(|(group, steps)| Part::Asks { group, steps }),
        ]
    }

    fn program(groups: usize) -> impl Strategy<Value = Program> {
        (1_u64..100, prop::collection::vec(part(groups), 1..5), 0_u64..40)
            .prop_map(|(work, parts, jitter)| Program { work, parts, jitter })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Critical threads, each with a chain of third parties, of which some ask background
        /// groups.
        #[test]
        fn freezing_never_pays_where_it_delays_who_waits_through_third_parties(
            programs in prop::collection::vec(program(2), 1..4),
            loads in prop::collection::vec(0.0_f64..0.6, 2),
            seed in 1_u64..1_000_000,
        ) {
            let owns: Vec<Own> = loads.into_iter().map(|load| Own { burst: 50, load }).collect();
            let mut free = Chain::new(Params::default(), &programs, &owns, seed).never_freezing();
            let mut judged = Chain::new(Params::default(), &programs, &owns, seed);
            let mut always = Params::default();
            always.payoff.is_tried = false;
            let mut forced = Chain::new(always, &programs, &owns, seed);
            free.run(60);
            forced.run(60);
            let found = judged.run(60);
            for asker in 0..programs.len() {
                let ((_, _, without), (_, _, with)) = (free.figures(asker, 20), forced.figures(asker, 20));
                // Plainly delayed: more than the jitter.
                let is_delayed = (with as f64) < without as f64 * 0.93;
                prop_assert!(
                    !is_delayed || found.pays != Some(true),
                    "thread {asker}: {with} cycles of {without}, {found:?}"
                );
            }
        }
    }
}
