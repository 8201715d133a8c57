//! Taking hold: units, their processes, the program in the kernel and the freezer; or why not.

use super::decider::Decider;
use super::joules::Joules;
use super::tally::{Cost, GroupTally, Tally};
use super::{
    Background, Critical, Domain, EventTracker, Quiesce, QuiesceError, Stop, role_of_background,
    role_of_critical,
};
use linux::Root;
use linux::freezer::{Freezer, FreezerOptions, FreezerWay, name_of, processes_of, survey};
use linux::probes::WaitProgram;
use machine::{Duration, Ratio};
use policy::quiescence::{GroupId, Params, PayoffParams, Quiescence, Role};
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// The beginning of an interaction, where only the processes that answer a unit's requests are
/// critical.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A thread of a critical unit reads a request from a connection to a port on which the unit
    /// listens; its answer ends it.
    Accept,
    /// A thread of a critical unit goes on after it waited for a character device (a terminal, a
    /// mouse); its next such wait ends it.
    Input,
}

pub struct QuiesceOptions {
    pub root: Root,
    pub critical: Vec<String>,
    pub background: Vec<String>,
    /// Which CPUs are to sleep together.
    pub domain: String,
    /// No process is frozen for longer at a time.
    pub max_pause: Duration,
    /// Nor, in the long run, for more than this share of the time.
    pub max_share: Ratio,
    /// Follow the effects of requests, instead of taking critical units as a whole.
    pub trigger: Option<Trigger>,
    /// Freeze whether it pays or not.
    pub always: bool,
    pub dry_run: bool,
    /// A folder for the log of all that the policy is told.
    pub record: Option<PathBuf>,
    /// Not by these ways of freezing.
    pub without: Vec<FreezerWay>,
    /// Called at every step of every change, for tests that end the process there.
    pub checkpoint: Option<linux::Checkpoint>,
}

/// Rounds of the trial of each group: the median of nine is neither the first nor an outlier.
const ROUNDS: usize = 9;
/// The assumed cost of freezing and thawing where nothing may be tried: as measured on a virtual
/// machine with cgroups of version 2.
const COST_UNTRIED: Duration = Duration::from_micros(50);
/// Under this name groups are held.
const HOLDER: &str = "roost quiesce";

impl Quiesce {
    /// Takes hold. Each background group is frozen and thawed a few times, to measure the cost.
    pub fn open(options: QuiesceOptions) -> Result<Self, QuiesceError> {
        let QuiesceOptions { root, critical, background, trigger, without, .. } = options;
        let domain = Domain::find(&root, &options.domain)?;
        let critical: Vec<Critical> = critical
            .into_iter()
            .map(|unit| {
                let processes = processes_of(&root, &unit)?;
                Ok(Critical { processes, name: name_of(&root, &unit), unit })
            })
            .collect::<Result<_, QuiesceError>>()?;
        let all: BTreeSet<u32> = critical.iter().flat_map(|critical| &critical.processes).copied().collect();
        let ways = survey(&root, &background, &all, &without)?;
        let mut frozen = BTreeSet::new();
        for unit in &background {
            frozen.extend(processes_of(&root, unit)?);
        }
        domain.is_reached_by(&frozen)?;
        let program = WaitProgram::load(&domain.cpus, trigger.is_some())?;
        if trigger == Some(Trigger::Accept) {
            let mut ports = BTreeSet::new();
            for &process in &all {
                ports.extend(linux::service::ports_of(&root, process));
            }
            if ports.is_empty() {
                let reason = "no critical unit listens on a TCP port that this user can see".to_owned();
                return Err(QuiesceError::Trigger { trigger: "accept", reason });
            }
            if !program.sees_requests() {
                let reason = "this kernel has no event of a read from a socket (Linux 6.3)".to_owned();
                return Err(QuiesceError::Trigger { trigger: "accept", reason });
            }
            program.follow_ports(&ports)?;
        }
        let mut freezer = None;
        let mut notices = Vec::new();
        if !options.dry_run {
            let asked =
                FreezerOptions { without, checkpoint: options.checkpoint, ..FreezerOptions::new(HOLDER) };
            let mut opened = Freezer::open(&root, &background, &all, asked)?;
            notices.extend(opened.drain_notices());
            freezer = Some(opened);
        }
        let first = critical.len();
        let group = |unit: usize, is_critical: bool| {
            let role =
                if is_critical { role_of_critical(unit, None) } else { role_of_background(first, unit) };
            GroupId(role.group)
        };
        let declared = (0..critical.len()).filter(|_| trigger.is_none());
        let roles: Vec<(GroupId, Role)> = declared
            .map(|unit| (group(unit, true), Role::Critical))
            .chain((0..background.len()).map(|unit| (group(unit, false), Role::Background)))
            .collect();
        // An action that is not done cannot show whether it pays.
        let is_tried = !options.always && !options.dry_run;
        let params = Params {
            max_freeze: options.max_pause,
            max_share: options.max_share,
            payoff: PayoffParams { is_tried, ..PayoffParams::default() },
            ..Params::default()
        };
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|error| QuiesceError::Watch(error.into()))?;
        let held = |(unit, way): (String, FreezerWay)| Background {
            name: name_of(&root, &unit),
            unit,
            way,
            processes: BTreeSet::new(),
            tally: GroupTally::default(),
            come: BTreeSet::new(),
            needed: BTreeMap::new(),
            spared: None,
        };
        let background: Vec<Background> = background.into_iter().zip(ways).map(held).collect();
        let now = linux::now();
        let mut quiesce = Self {
            joules: Joules::open(&root, &domain.cpus, now),
            was_on: true,
            root,
            program,
            tracker: EventTracker::new(trigger),
            decider: Decider::new(Quiescence::new(params, roles), options.record.as_deref())?,
            freezer,
            critical: critical
                .into_iter()
                .map(|critical| Critical { processes: BTreeSet::new(), ..critical })
                .collect(),
            background,
            domain,
            trigger,
            tally: Tally::begin(now),
            notices,
            lost: 0,
            rescanned: now,
            stop: Stop(Arc::new(stop)),
            stopped,
        };
        quiesce.try_out()?;
        quiesce.rescan(now)?;
        quiesce.tally.before = quiesce.program.all_idle();
        quiesce.tally.began = linux::now();
        Ok(quiesce)
    }

    /// The cost of freezing and thawing all groups.
    fn try_out(&mut self) -> Result<(), QuiesceError> {
        let Some(freezer) = &mut self.freezer else {
            self.tally.cost = Cost::untried(linux::now(), COST_UNTRIED);
            self.decider.handle_cost(linux::now(), COST_UNTRIED);
            return Ok(());
        };
        let mut cost = Duration::ZERO;
        for (number, background) in self.background.iter_mut().enumerate() {
            match freezer.measure(number, ROUNDS)? {
                Some(measured) => {
                    background.tally.cost = Some(measured);
                    cost += measured;
                }
                None => self.notices.push(format!(
                    "{}: left alone for now: another process has frozen it, or it does not stand still in 100 ms",
                    background.unit
                )),
            }
        }
        let cost = if cost.is_zero() { COST_UNTRIED } else { cost };
        self.tally.cost = Cost::tried(linux::now(), cost);
        self.decider.handle_cost(linux::now(), cost);
        Ok(())
    }

    /// Tries again where no wait was worth freezing for a while. Nothing is frozen now.
    pub(super) fn try_again(&mut self) -> Result<(), QuiesceError> {
        let Some(freezer) = &mut self.freezer else { return Ok(()) };
        let mut cost = Some(Duration::ZERO);
        for number in 0..self.background.len() {
            // A group that another program has frozen leaves the cost of all unknown.
            cost = cost.zip(freezer.measure(number, ROUNDS)?).map(|(all, one)| all + one);
        }
        let now = linux::now();
        let cost = self.tally.cost.tried_again(now, cost);
        self.decider.handle_cost(now, cost);
        Ok(())
    }
}
