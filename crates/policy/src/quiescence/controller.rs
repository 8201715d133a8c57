//! Which groups stand still now: as the causal graph allows, and for no longer than is fair.
//!
//! Fairness is a debt, kept for each group: it grows while the group is frozen and is paid back
//! while it runs, at such a rate that the frozen share stays below [`Params::max_share`]. At
//! [`Params::max_freeze`] the group is thawed, whatever waits; it may be frozen again when
//! half of that is paid back.

use super::causal::{Causal, Overflow};
use super::payoff::Payoff;
use super::{Event, GroupId, Params, Role, TaskId, Verdict};
use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// The commands of quiescence to its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuiescenceCommand {
    Freeze(GroupId),
    Thaw(GroupId),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Number of times that a group was frozen.
    pub freezes: u64,
    /// Of these, those that ended because the group had stood still for long enough.
    pub ended_by_bound: u64,
    /// Times for which groups were frozen, all together; up to the last thaw of each.
    pub frozen: Duration,
    /// Times that a background group was left alone because a critical task received something from
    /// it.
    pub left_alone: u64,
    /// Times that knowledge was lost and everything thawed.
    pub losses: u64,
    /// Freezes that ended just before a wait was over that always lasts equally long.
    pub ended_early: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outlook {
    /// A critical task runs, or waits for something else, or there is none.
    Busy,
    /// All wait, and nothing is frozen: the wait is not worth it yet, or groups are owed time, or
    /// helped lately.
    Waiting,
    Frozen,
    /// All wait, and nothing is frozen because that does not pay, or because it is found out
    /// whether it does.
    LeftOff,
    /// Events were lost: the critical tasks are not known.
    Blind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Background {
    group: GroupId,
    /// Since when it is frozen, if it is.
    frozen: Option<Instant>,
    /// The driver was told that it is.
    told: bool,
    debt: Duration,
    /// The time at which `debt` had that value.
    as_of: Instant,
    left_alone_until: Instant,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quiescence {
    params: Params,
    causal: Causal,
    groups: Vec<Background>,
    /// Knowledge was lost: nothing is frozen before this.
    blind_until: Option<Instant>,
    is_stopped: bool,
    /// It takes so long to thaw, at most: so much before the end of a punctual wait every group
    /// goes on.
    lead: Duration,
    payoff: Payoff,
    due: Option<Instant>,
    record: Record,
}

impl Quiescence {
    /// Groups that are not named are neither frozen nor critical by themselves.
    pub fn new(params: Params, groups: impl IntoIterator<Item = (GroupId, Role)>) -> Self {
        let mut roles: Vec<_> = groups.into_iter().collect();
        // A group named twice is critical if it was called so once.
        roles.sort_by_key(|&(group, role)| (group, role != Role::Critical));
        roles.dedup_by_key(|&mut (group, _)| group);
        let background =
            roles.iter().filter(|(_, role)| *role == Role::Background).map(|&(group, _)| Background {
                group,
                frozen: None,
                told: false,
                debt: Duration::ZERO,
                as_of: Instant::ZERO,
                left_alone_until: Instant::ZERO,
            });
        Self {
            params,
            groups: background.collect(),
            causal: Causal::new(&params, roles),
            blind_until: None,
            is_stopped: false,
            lead: Duration::ZERO,
            payoff: Payoff::new(params.payoff),
            due: None,
            record: Record::default(),
        }
    }

    /// One of the same groups under other constants, which knows nothing yet.
    pub fn anew(&self, params: Params) -> Self {
        Self::new(params, self.causal.roles())
    }

    pub fn handle_event(&mut self, now: Instant, event: &Event) {
        self.causal.expire(now, self.params.max_interaction);
        let followed = self.causal.handle_event(now, event);
        match *event {
            Event::Block { task, .. } if self.causal.is_critical(task.id) => {
                self.payoff.handle_block(now, task.id);
            }
            Event::Unblock { task } if self.causal.is_critical(task.id) => {
                self.payoff.handle_unblock(now, task.id);
            }
            Event::Block { task, .. } | Event::Unblock { task } => self.payoff.forget(task.id),
            Event::Exit { task } => self.payoff.forget(task),
            _ => {}
        }
        match followed {
            Ok(None) => {}
            Ok(Some(helper)) => {
                if let Ok(at) = self.groups.binary_search_by_key(&helper, |background| background.group) {
                    self.groups[at].left_alone_until = now + self.params.leave_alone;
                    self.record.left_alone += 1;
                }
            }
            Err(Overflow) => {
                self.causal.forget_interactions();
                self.go_blind(now);
            }
        }
        self.decide(now);
    }

    /// Events were lost: the critical tasks are not known now. Right after this the driver says
    /// again of each task of the critical groups whether it is blocked.
    pub fn handle_lost(&mut self, now: Instant) {
        self.causal.forget_all();
        self.payoff.forget_all();
        self.go_blind(now);
        self.decide(now);
    }

    /// Freezing and thawing take this, as measured: from now on a wait is worth it that is
    /// [`Params::worth`] times as long.
    pub fn handle_cost(&mut self, now: Instant, cost: Duration) {
        self.params.min_wait = cost * u64::from(self.params.worth);
        self.lead = cost;
        self.payoff.handle_cost(cost);
        self.decide(now);
    }

    /// All CPUs have been idle at once for so long, since some beginning. A driver that can tell
    /// says so before each event; then it is tried out whether freezing pays.
    pub fn handle_idle(&mut self, idle: Duration) {
        self.payoff.handle_idle(idle);
    }

    /// False while nothing is frozen because that does not pay, or because it is found out whether
    /// it does.
    pub fn is_on(&self) -> bool {
        self.payoff.is_on()
    }

    /// Whether freezing pays, as far as was found out.
    pub fn verdict(&self) -> Verdict {
        self.payoff.verdict()
    }

    /// A background group is likely to be needed: it is left alone as one that has just helped.
    pub fn leave_alone(&mut self, now: Instant, group: GroupId) {
        if let Ok(at) = self.groups.binary_search_by_key(&group, |background| background.group) {
            self.groups[at].left_alone_until = now + self.params.leave_alone;
            self.decide(now);
        }
    }

    /// Why nothing stands still that might, or that something does.
    pub fn outlook(&self, now: Instant) -> Outlook {
        if self.groups.iter().any(|background| background.frozen.is_some()) {
            Outlook::Frozen
        } else if self.blind_until.is_some_and(|until| until > now) {
            Outlook::Blind
        } else if self.causal.is_waiting() {
            if self.payoff.is_on() { Outlook::Waiting } else { Outlook::LeftOff }
        } else {
            Outlook::Busy
        }
    }

    /// True if the task is critical now.
    pub fn is_critical(&self, task: TaskId) -> bool {
        self.causal.is_critical(task)
    }

    /// A wait shorter than this is not worth freezing for.
    pub fn min_wait(&self) -> Duration {
        self.params.min_wait
    }

    /// Everything runs from now on: frozen groups are thawed.
    pub fn handle_stop(&mut self, now: Instant) {
        self.is_stopped = true;
        self.decide(now);
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        if self.due.is_some_and(|due| due <= now) {
            self.causal.expire(now, self.params.max_interaction);
            self.decide(now);
        }
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// The next command. Groups that shall run come before groups that shall stop.
    pub fn poll_command(&mut self) -> Option<QuiescenceCommand> {
        let find = |frozen: bool| {
            move |background: &&mut Background| {
                background.told != frozen && background.frozen.is_some() == frozen
            }
        };
        if let Some(background) = self.groups.iter_mut().find(find(false)) {
            background.told = false;
            return Some(QuiescenceCommand::Thaw(background.group));
        }
        let background = self.groups.iter_mut().find(find(true))?;
        background.told = true;
        Some(QuiescenceCommand::Freeze(background.group))
    }

    pub fn record(&self) -> Record {
        self.record
    }

    /// Interactions may be under way of which nothing is known.
    fn go_blind(&mut self, now: Instant) {
        self.blind_until = Some(now + self.params.max_interaction);
        self.record.losses += 1;
    }

    /// Brings every group into the state that it should be in, and sets the time of the next
    /// decision.
    fn decide(&mut self, now: Instant) {
        let Params { min_wait, max_freeze, max_interaction, .. } = self.params;
        self.blind_until = self.blind_until.filter(|&until| until > now);
        let may_stop = !self.is_stopped && self.blind_until.is_none() && self.causal.is_waiting();
        self.payoff.handle_waiting(now, may_stop);
        let worthwhile_from = if may_stop { self.causal.is_worthwhile_from(now, min_wait) } else { now };
        let mut due = [self.causal.oldest().map(|began| began + max_interaction), self.blind_until]
            .into_iter()
            .flatten()
            .min();
        let repayment = self.params.repayment();
        let (lead, end) = (self.lead, may_stop.then(|| self.causal.ends_at(now)).flatten());
        let thaw_at = end.map(|end| Instant::from_nanos(end.as_nanos().saturating_sub(lead.as_nanos())));
        let is_ending = thaw_at.is_some_and(|at| at <= now);
        for background in &mut self.groups {
            background.settle(now, repayment);
            let may_stop = may_stop && !self.causal.reaches(background.group);
            if let Some(since) = background.frozen
                && !(may_stop
                    && !is_ending
                    && background.debt < max_freeze
                    && background.left_alone_until <= now)
            {
                background.frozen = None;
                self.record.frozen += now.since(since);
                self.record.ended_by_bound += u64::from(background.debt >= max_freeze);
                self.record.ended_early += u64::from(is_ending && background.debt < max_freeze);
            }
            if background.frozen.is_none() && may_stop && !max_freeze.is_zero() {
                let paid_at = background.paid_at(max_freeze / 2, repayment);
                let ending = end.filter(|_| is_ending).unwrap_or(now);
                let from = worthwhile_from.max(paid_at).max(background.left_alone_until).max(ending);
                if from <= now {
                    if self.payoff.may_freeze() {
                        background.frozen = Some(now);
                        self.record.freezes += 1;
                    }
                } else {
                    due = due.into_iter().chain([from]).min();
                }
            }
            if background.frozen.is_some() {
                due = due.into_iter().chain([now + (max_freeze - background.debt)]).chain(thaw_at).min();
            }
        }
        self.due = due;
    }
}

impl Background {
    /// Brings the debt up to date.
    fn settle(&mut self, now: Instant, repayment: f64) {
        let passed = now.since(self.as_of);
        self.as_of = self.as_of.max(now);
        if self.frozen.is_some() {
            self.debt += passed;
        } else {
            self.debt -= passed.scale(repayment);
        }
    }

    /// When the debt will be down to `rest`, if the group runs.
    fn paid_at(&self, rest: Duration, repayment: f64) -> Instant {
        if self.debt <= rest {
            return self.as_of;
        }
        // Rounded up: the payment by then is rounded down, and a timer that comes a nanosecond too
        // early is set again for the next one, and so on.
        let nano = Duration::from_nanos(1);
        self.as_of + (self.debt - rest + nano).scale(1.0 / repayment) + nano
    }
}

impl Params {
    /// The time that one second of running pays for. Neither nothing nor without end.
    fn repayment(&self) -> f64 {
        let share = self.max_share.as_f64().clamp(0.01, 0.99);
        share / (1.0 - share)
    }
}
