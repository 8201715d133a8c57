//! Critical tasks: marks that spread from trigger to response along cause and effect.
//!
//! Each interaction under way is one bit of a word. A task's *marks* are the interactions that have
//! reached it, a channel's those that were written into it. Marks are added along every event that
//! carries cause from one task to another and taken away everywhere when their interaction ends;
//! nothing else takes them from a living task, so more tasks may be marked than truly matter, never
//! fewer. Only marked tasks and channels are remembered.

use super::{ChannelId, Event, GroupId, InteractionId, Params, Role, Task, TaskId, Wait};
use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// There is more to know than the tables hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overflow;

/// Interactions at a time: the bits of a word.
const MAX_INTERACTIONS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Interaction {
    id: InteractionId,
    began: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Critical {
    task: Task,
    marks: u64,
    /// True if its group was declared critical.
    always: bool,
    /// The wait that it is blocked in and since when; `None` if it runs, or if that is not known.
    blocked: Option<(Instant, Wait)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Channel {
    id: ChannelId,
    marks: u64,
    /// Of these, the part that was not read yet.
    undelivered: u64,
    /// The background group that wrote last, if nothing of it was read since.
    background: Option<GroupId>,
}

/// The causal graph, as far as it matters now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Causal {
    max_tasks: usize,
    max_channels: usize,
    /// By group.
    roles: Vec<(GroupId, Role)>,
    /// Indexed by the bit of the interaction.
    interactions: Vec<Option<Interaction>>,
    /// By task.
    critical: Vec<Critical>,
    channels: Vec<Channel>,
    /// There was no room for a task of a critical group: a critical task is missing of which
    /// nothing is known.
    is_short: bool,
}

impl Causal {
    pub fn new(params: &Params, mut roles: Vec<(GroupId, Role)>) -> Self {
        roles.sort_by_key(|&(group, _)| group);
        Self {
            max_tasks: usize::from(params.max_tasks),
            max_channels: usize::from(params.max_channels),
            roles,
            interactions: vec![None; MAX_INTERACTIONS],
            critical: Vec::with_capacity(usize::from(params.max_tasks)),
            channels: Vec::with_capacity(usize::from(params.max_channels)),
            is_short: false,
        }
    }

    /// The declared role of each group.
    pub fn roles(&self) -> impl Iterator<Item = (GroupId, Role)> + '_ {
        self.roles.iter().copied()
    }

    /// Follows one event. The background group of which a critical task has just received
    /// something, if one has.
    pub fn handle_event(&mut self, now: Instant, event: &Event) -> Result<Option<GroupId>, Overflow> {
        match *event {
            Event::Trigger { task, interaction } => {
                let mark = self.begin(now, interaction)?;
                self.mark(task, mark)?;
            }
            Event::Response { interaction } => {
                if let Some(bit) = self.bit_of(interaction) {
                    self.end(bit);
                }
            }
            Event::Fork { parent, child } => self.mark(child, self.marks_of(parent))?,
            Event::Signal { from, to } => {
                let marks = self.marks_of(from);
                self.mark(to, marks)?;
                let is_helped = !self.is_critical(from.id) && self.is_critical(to.id);
                return Ok(self.background(from).filter(|_| is_helped));
            }
            Event::Send { task, channel } => self.send(task, channel)?,
            Event::Receive { task, channel } => return self.receive(task, channel),
            Event::Block { task, on } => self.set_blocked(task, Some((now, on)))?,
            Event::Unblock { task } => self.set_blocked(task, None)?,
            Event::Exit { task } => self.critical.retain(|critical| critical.task.id != task),
        }
        Ok(None)
    }

    /// Forgets all interactions, and marks that come from them alone.
    pub fn forget_interactions(&mut self) {
        self.interactions.fill(None);
        self.channels.clear();
        self.critical.retain_mut(|critical| {
            critical.marks = 0;
            critical.always
        });
    }

    /// Forgets everything: a task that is critical always will be heard of again.
    pub fn forget_all(&mut self) {
        self.forget_interactions();
        self.critical.clear();
        self.is_short = false;
    }

    /// Ends the interactions that have lasted too long.
    pub fn expire(&mut self, now: Instant, max_interaction: Duration) {
        for bit in 0..MAX_INTERACTIONS {
            if self.interactions[bit].is_some_and(|interaction| interaction.began + max_interaction <= now) {
                self.end(bit);
            }
        }
    }

    /// The time when the oldest interaction began.
    pub fn oldest(&self) -> Option<Instant> {
        self.interactions.iter().flatten().map(|interaction| interaction.began).min()
    }

    /// True if a task of the group is critical.
    pub fn reaches(&self, group: GroupId) -> bool {
        self.critical.iter().any(|critical| critical.task.group == group)
    }

    /// True if something is critical and all that is waits for input or output, or for others of
    /// its own process.
    pub fn is_waiting(&self) -> bool {
        let is_io = |critical: &Critical| {
            matches!(critical.blocked, Some((_, Wait::Io { .. } | Wait::Punctual { .. })))
        };
        let waits =
            |critical: &Critical| is_io(critical) || matches!(critical.blocked, Some((_, Wait::Within)));
        !self.is_short
            && self.critical.iter().any(is_io)
            && self.critical.iter().all(waits)
            && self.channels.iter().all(|channel| channel.undelivered == 0)
    }

    /// The first moment, from `now` on, at which all waits are far from their expected ends:
    /// `min_wait` before, or, overdue, as much after.
    pub fn is_worthwhile_from(&self, now: Instant, min_wait: Duration) -> Instant {
        let expected_ends = || {
            self.critical.iter().filter_map(|critical| match critical.blocked? {
                (since, Wait::Io { expected }) => Some(since + expected.unwrap_or(Duration::ZERO)),
                (since, Wait::Punctual { length }) => Some(since + length),
                (_, Wait::Within | Wait::Other) => None,
            })
        };
        let mut from = now;
        // Moving past one end may come near to another; each is passed once at most.
        while let Some(end) = expected_ends().find(|&end| from + min_wait > end && from < end + min_wait) {
            from = end + min_wait;
        }
        from
    }

    /// When the first of the punctual waits ends that has not ended yet.
    pub fn ends_at(&self, now: Instant) -> Option<Instant> {
        let end = |critical: &Critical| match critical.blocked? {
            (since, Wait::Punctual { length }) => Some(since + length).filter(|&end| end > now),
            _ => None,
        };
        self.critical.iter().filter_map(end).min()
    }

    fn begin(&mut self, now: Instant, id: InteractionId) -> Result<u64, Overflow> {
        let bit = match self.bit_of(id) {
            Some(bit) => bit,
            None => self.interactions.iter().position(Option::is_none).ok_or(Overflow)?,
        };
        self.interactions[bit].get_or_insert(Interaction { id, began: now });
        Ok(1 << bit)
    }

    fn bit_of(&self, id: InteractionId) -> Option<usize> {
        self.interactions.iter().position(|slot| slot.is_some_and(|interaction| interaction.id == id))
    }

    fn end(&mut self, bit: usize) {
        self.interactions[bit] = None;
        let others = !(1 << bit);
        self.critical.retain_mut(|critical| {
            critical.marks &= others;
            critical.marks != 0 || critical.always
        });
        self.channels.retain_mut(|channel| {
            channel.marks &= others;
            channel.undelivered &= others;
            channel.marks != 0 || channel.background.is_some()
        });
    }

    fn send(&mut self, task: Task, id: ChannelId) -> Result<(), Overflow> {
        let marks = self.marks_of(task);
        let background = self.background(task).filter(|_| !self.is_critical(task.id));
        if marks == 0 && background.is_none() {
            return Ok(());
        }
        let at = match self.channels.binary_search_by_key(&id, |channel| channel.id) {
            Ok(at) => at,
            Err(_) => {
                if self.channels.len() >= self.max_channels {
                    // The last writer is a hint, which may be lost. Marks may not.
                    let hint = self.channels.iter().position(|channel| channel.marks == 0);
                    match hint {
                        Some(hint) => drop(self.channels.remove(hint)),
                        None if marks == 0 => return Ok(()),
                        None => return Err(Overflow),
                    }
                }
                let at = self.channels.partition_point(|channel| channel.id < id);
                self.channels.insert(at, Channel { id, marks: 0, undelivered: 0, background: None });
                at
            }
        };
        let channel = &mut self.channels[at];
        channel.marks |= marks;
        channel.undelivered |= marks;
        channel.background = background.or(channel.background);
        Ok(())
    }

    fn receive(&mut self, task: Task, id: ChannelId) -> Result<Option<GroupId>, Overflow> {
        let Ok(at) = self.channels.binary_search_by_key(&id, |channel| channel.id) else { return Ok(None) };
        let channel = &mut self.channels[at];
        channel.undelivered = 0;
        let (marks, background) = (channel.marks, channel.background.take());
        if marks == 0 {
            self.channels.remove(at);
        }
        self.mark(task, marks)?;
        Ok(background.filter(|_| self.is_critical(task.id)))
    }

    fn set_blocked(&mut self, task: Task, blocked: Option<(Instant, Wait)>) -> Result<(), Overflow> {
        self.mark(task, 0)?;
        if let Ok(at) = self.place(task.id) {
            self.critical[at].blocked = blocked;
        }
        Ok(())
    }

    /// Adds marks to a task. One that has none, and need not have any, is not remembered.
    fn mark(&mut self, task: Task, marks: u64) -> Result<(), Overflow> {
        let always = self.role(task.group) == Some(Role::Critical);
        match self.place(task.id) {
            Ok(at) => {
                let critical = &mut self.critical[at];
                (critical.task, critical.always) = (task, always);
                critical.marks |= marks;
                if critical.marks == 0 && !always {
                    self.critical.remove(at);
                }
            }
            Err(_) if marks == 0 && !always => {}
            Err(_) if self.critical.len() >= self.max_tasks => {
                self.is_short |= always;
                return Err(Overflow);
            }
            Err(at) => self.critical.insert(at, Critical { task, marks, always, blocked: None }),
        }
        Ok(())
    }

    fn marks_of(&self, task: Task) -> u64 {
        self.place(task.id).map_or(0, |at| self.critical[at].marks)
    }

    /// True if the task is critical.
    pub fn is_critical(&self, task: TaskId) -> bool {
        self.place(task).is_ok()
    }

    fn background(&self, task: Task) -> Option<GroupId> {
        (self.role(task.group) == Some(Role::Background)).then_some(task.group)
    }

    fn place(&self, task: TaskId) -> Result<usize, usize> {
        self.critical.binary_search_by_key(&task, |critical| critical.task.id)
    }

    fn role(&self, group: GroupId) -> Option<Role> {
        self.roles.binary_search_by_key(&group, |&(group, _)| group).ok().map(|at| self.roles[at].1)
    }
}
