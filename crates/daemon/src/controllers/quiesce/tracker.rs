//! The events of the program in the kernel as the policy's events, with the learned waits and the
//! learned paths of requests.

use super::decider::Decider;
use super::open::Trigger;
use linux::probes::{WaitChannel, WaitEvent, WaitHappened, WaitKind, WaitTask};
use machine::Instant;
use policy::quiescence::{
    ChannelId, Edge, Event, Graph, GroupId, InteractionId, Nature, Site, Task, TaskId, Waits,
};
use std::collections::{BTreeMap, BTreeSet};

/// State beside the policy's.
#[derive(Debug, Default)]
pub(super) struct EventTracker {
    pub(super) waits: Waits,
    pub(super) graph: Graph,
    pub(super) requests: u64,
    trigger: Option<Trigger>,
    /// Requests under way: the type of each.
    under_way: BTreeMap<u64, u32>,
    /// The group of the pipe or socket that was written to.
    channels: BTreeMap<WaitChannel, GroupId>,
    /// Threads that requests may have reached.
    marked: BTreeSet<u32>,
    at_input: BTreeSet<u32>,
    has_events: bool,
    /// A request has ended since the marked were last looked through.
    is_over: bool,
}

/// Requests and channels at a time; the policy itself takes 64 and 1024.
const KNOWN_MAX: usize = 4096;
/// The type of interactions that begin with input, which has no port.
const INPUT_TYPE: u32 = 0;

impl EventTracker {
    pub(super) fn new(trigger: Option<Trigger>) -> Self {
        Self { trigger, ..Self::default() }
    }

    /// Tells the policy. When a thread last went on, if one did.
    pub(super) fn hear(&mut self, policy: &mut Decider, events: &[WaitEvent]) -> Option<Instant> {
        self.has_events = !events.is_empty();
        let mut woken = None;
        for event in events {
            let (at, task) = (event.at, task_of(event.task));
            match event.happened {
                WaitHappened::Blocked { on, place } => self.blocked(policy, at, event.task, on, place),
                WaitHappened::Unblocked { by } => {
                    woken = woken.or(Some(at));
                    let helper = by.filter(|by| by.role.is_background).map(|by| GroupId(by.role.group));
                    self.waits.ended(at, task.id, helper);
                    if let Some(by) = by.filter(|_| helper.is_some() || self.trigger.is_some()) {
                        self.edge(by, event.task, Edge::Wake);
                        self.reach(event.task);
                        policy.handle_event(at, &Event::Signal { from: task_of(by), to: task });
                    }
                    policy.handle_event(at, &Event::Unblock { task });
                    if self.at_input.remove(&event.task.id) {
                        self.begin(policy, at, event.task, u64::from(event.task.id), INPUT_TYPE);
                    }
                }
                WaitHappened::Marked { by } => {
                    self.edge(by, event.task, Edge::Wake);
                    self.reach(event.task);
                    policy.handle_event(at, &Event::Signal { from: task_of(by), to: task });
                }
                WaitHappened::Forked { child } => {
                    self.edge(event.task, child, Edge::Fork);
                    self.reach(child);
                    policy.handle_event(at, &Event::Fork { parent: task, child: task_of(child) });
                    // It is ready to run. Of a critical group it is critical itself.
                    policy.handle_event(at, &Event::Unblock { task: task_of(child) });
                }
                WaitHappened::Ended => {
                    self.waits.forget(task.id);
                    self.marked.remove(&event.task.id);
                    self.at_input.remove(&event.task.id);
                    policy.handle_event(at, &Event::Exit { task: task.id });
                }
                WaitHappened::Sent { channel } => {
                    if self.channels.len() < KNOWN_MAX {
                        self.channels.insert(channel, task.group);
                    }
                    policy.handle_event(at, &Event::Send { task, channel: id_of(channel) });
                }
                WaitHappened::Received { channel } => {
                    if let Some(from) = self.channels.remove(&channel) {
                        self.edge_of(from, task.group, Edge::Channel);
                    }
                    self.reach(event.task);
                    policy.handle_event(at, &Event::Receive { task, channel: id_of(channel) });
                }
                WaitHappened::Triggered { request, port } => {
                    self.begin(policy, at, event.task, request, port.into());
                }
                WaitHappened::Responded { request } => self.end(policy, at, request),
            }
        }
        woken
    }

    fn blocked(&mut self, policy: &mut Decider, at: Instant, task: WaitTask, on: WaitKind, place: u64) {
        let nature = match on {
            WaitKind::Network | WaitKind::Disk => Nature::Io,
            WaitKind::Many | WaitKind::Local => Nature::Doubtful,
            WaitKind::Within => Nature::Within,
            WaitKind::Other | WaitKind::Input => Nature::Other,
        };
        // Disk and network have places of their own.
        let place = place ^ on as u64;
        let site = Site { group: GroupId(task.role.group), nature, place };
        let wait = self.waits.began(at, TaskId(task.id), site);
        policy.handle_event(at, &Event::Block { task: task_of(task), on: wait });
        if on == WaitKind::Input && self.trigger == Some(Trigger::Input) {
            self.at_input.insert(task.id);
            self.end(policy, at, u64::from(task.id));
        }
    }

    fn begin(&mut self, policy: &mut Decider, at: Instant, task: WaitTask, request: u64, kind: u32) {
        if self.trigger.is_none()
            || (self.under_way.len() >= KNOWN_MAX && !self.under_way.contains_key(&request))
        {
            return;
        }
        self.reach(task);
        if self.under_way.insert(request, kind).is_none() {
            self.requests += 1;
            for group in self.graph.begins(kind) {
                policy.leave_alone(at, group);
            }
        }
        let interaction = InteractionId(request);
        policy.handle_event(at, &Event::Trigger { task: task_of(task), interaction });
    }

    fn end(&mut self, policy: &mut Decider, at: Instant, request: u64) {
        if self.under_way.remove(&request).is_some() {
            policy.handle_event(at, &Event::Response { interaction: InteractionId(request) });
            self.is_over = true;
        }
    }

    fn edge(&mut self, from: WaitTask, to: WaitTask, edge: Edge) {
        self.edge_of(GroupId(from.role.group), GroupId(to.role.group), edge);
    }

    /// While several types are under way, it is not known of which one it is, so it counts for all.
    fn edge_of(&mut self, from: GroupId, to: GroupId, edge: Edge) {
        let kinds: BTreeSet<u32> = self.under_way.values().copied().collect();
        kinds.into_iter().for_each(|kind| self.graph.reached(kind, from, to, edge));
    }

    fn reach(&mut self, task: WaitTask) {
        if self.trigger.is_some() && !task.role.is_critical {
            self.marked.insert(task.id);
        }
    }

    /// Threads that no request reaches any more, once: they need no more events.
    pub(super) fn drain_unmarked(&mut self, policy: &Decider) -> Vec<u32> {
        if !std::mem::take(&mut self.is_over) {
            return Vec::new();
        }
        let over: Vec<u32> =
            self.marked.iter().copied().filter(|&thread| !policy.is_critical(TaskId(thread))).collect();
        for &thread in &over {
            self.marked.remove(&thread);
            self.waits.forget(TaskId(thread));
        }
        over
    }

    /// Requests whose answer was not seen end for the policy, in time: the marked are looked
    /// through then.
    pub(super) fn expire(&mut self, policy: &Decider) {
        self.is_over = true;
        if self.marked.iter().all(|&thread| !policy.is_critical(TaskId(thread))) {
            self.under_way.clear();
            self.channels.clear();
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.waits.forget_all();
        self.under_way.clear();
        self.channels.clear();
        self.at_input.clear();
        self.is_over = true;
    }

    /// True if something happened at the last look.
    pub(super) fn has_events(&self) -> bool {
        self.has_events
    }
}

fn id_of(channel: WaitChannel) -> ChannelId {
    match channel {
        WaitChannel::Pipe(number) => ChannelId::Pipe(number),
        WaitChannel::Socket(number) => ChannelId::Socket(number),
    }
}

fn task_of(task: WaitTask) -> Task {
    Task { id: TaskId(task.id), group: GroupId(task.role.group) }
}
