//! One service: what is seen of it, what its policy says, and what is done about it.
//!
//! ```text
//!        +-------------------------- an epoch ---------------------------+
//!   -----| owed, drift | reading -> policy -> commands -> host -> audit  |--- 20 ms: what queued up before is not counted ---
//! ```
//!
//! A command that was refused is *owed*: it is tried again each epoch, and each failure is told to the policy, which fails open
//! when they do not end. *Drift* is repaired once; where it comes back the policy is told, and everything of ours is taken away
//! while somebody else's change stays.
//!
//! What always holds:
//! - What the policy was told and what it answered is recorded before it is carried out.
//! - Failing open and pausing put back what was there before us, and not merely a wide set of ours.
//! - A dry run opens nothing that could change anything.

use crate::audit::{Entry, now_unix_s};
use crate::clocks::{self, Clocks, Pace, Repair};
use crate::config::{ServiceConfig, Target};
use crate::park::Park;
use crate::telemetry::{Heard, Telemetry};
use host::bpf::RequestAlarm;
use host::service::{Service, ServiceError};
use host::{
    ConfineActuator, ConfineError, ConfineOptions, Confiner, CpuUsage, FrequencyState, IdleHolder,
    LimitState, PrematureSleeps, Root, SegmentBounds, Segments, UsageMeter,
};
use machine::{
    Command, CpuId, CpuList, CpuReading, CstateKind, CstateTable, Duration, FrequencyLimit, Goal, IdleLimit,
    Instant, Kilohertz, Rate, Ratio, Reading, ServiceReading,
};
use policy::governing::{Decided, FrequencyMode, Governing, IdleMode, Input, Mode, Place, Why, seats};
use policy::log::{Recorded as _, state_line, step_line};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use thiserror::Error;

/// Why a service cannot be governed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// It is not there.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// Its requests cannot be seen.
    #[error(
        "the requests of {service} cannot be seen here: {reason}\nhint: `roost doctor` tells what is missing"
    )]
    Blind {
        /// Its name.
        service: String,
        /// What each way says.
        reason: String,
    },
    /// It does not tell of itself.
    #[error("{service} does not tell of itself: {reason}")]
    Unheard {
        /// Its name.
        service: String,
        /// Who was asked, what came, and what to do.
        reason: String,
    },
    /// It cannot be kept on CPUs.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// Its configuration leaves no CPU.
    #[error("{service}: cpus = \"{asked}\" leaves none: it may run on {allowed}")]
    NoCpu {
        /// Its name.
        service: String,
        /// What the configuration says.
        asked: CpuList,
        /// What it had before.
        allowed: CpuList,
    },
    /// Its clocks cannot be chosen here.
    #[error("{service}: {reason}")]
    Clocks {
        /// Its name.
        service: String,
        /// What is missing, and what to do.
        reason: String,
    },
    /// The recording cannot be begun.
    #[error("cannot record into {folder}: {cause}\nhint: name another folder with --record")]
    Record {
        /// Where.
        folder: String,
        /// Why.
        cause: std::io::Error,
    },
}

/// A service that is governed.
pub struct Governed {
    root: Root,
    config: ServiceConfig,
    service: Service,
    policy: Governing,
    telemetry: Telemetry,
    /// `None` in a dry run.
    confiner: Option<Confiner>,
    usage: UsageMeter,
    premature: PrematureSleeps,
    /// How its CPUs get on, where that decides their clocks.
    pace: Option<Pace>,
    /// `None` in a dry run, and where no clock is to be chosen.
    clocks: Option<Clocks>,
    /// Tells everybody else where to be.
    park: Option<Park>,
    last_usage: Vec<CpuUsage>,
    recording: Option<Segments>,
    /// What could not be carried out yet.
    owed: Option<Decided>,
    owed_clocks: BTreeMap<CpuId, Decided>,
    /// Drift was repaired in the epoch before.
    repaired: bool,
    /// In force, as far as we know.
    cpus: CpuList,
    limits: BTreeMap<CpuId, IdleLimit>,
    limits_of_clocks: BTreeMap<CpuId, FrequencyLimit>,
    last: ServiceReading,
    last_cpus: Vec<CpuReading>,
    last_change: Option<LastChange>,
    epochs: u64,
    /// Epochs in a row in which the goal was missed.
    missed: u32,
}

/// The last change of a service's CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastChange {
    /// In which epoch of the service.
    pub epoch: u64,
    /// Why.
    pub why: String,
}

/// What happened that somebody must hear of.
#[derive(Debug, Default)]
pub struct News {
    /// What was changed.
    pub entries: Vec<Entry>,
    /// What an operator should know; each is said once.
    pub notices: Vec<String>,
    /// The service's CPUs have changed: what follows is to be counted anew.
    pub moved: bool,
    /// The service is no more.
    pub ended: bool,
}

/// A service, for those who ask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its first process's command.
    pub command: String,
    /// How many processes it has.
    pub processes: usize,
    /// By which policy.
    pub policy: String,
    /// What it shall keep.
    pub goal: Option<Goal>,
    /// What it is under.
    pub mode: Mode,
    /// The CPUs that it has.
    pub cpus: CpuList,
    /// Of these.
    pub allowed: CpuList,
    /// Cores awake, and cores there are.
    pub cores: (u16, u16),
    /// Its last epoch.
    pub service: ServiceReading,
    /// The tail by number of cores at the present load, as far as it was seen.
    pub curve: Vec<(u16, Duration)>,
    /// By what it is kept there; `None` in a dry run.
    pub actuator: Option<String>,
    /// By what means its requests are seen.
    pub seen_by: String,
    /// Epochs so far.
    pub epochs: u64,
    /// Epochs in a row in which the goal was missed.
    pub missed: u32,
    /// What chooses its clocks.
    #[serde(default)]
    pub frequency: FrequencyMode,
    /// The caps on the clocks of its CPUs; one that is not here is free.
    #[serde(default)]
    pub clocks: BTreeMap<CpuId, FrequencyLimit>,
}

/// What a dry run would work on.
pub struct Outlook {
    /// The service.
    pub service: Service,
    /// The CPUs that it may use.
    pub allowed: CpuList,
    /// Its seats and their idle states.
    pub place: Place,
}

impl Outlook {
    /// Looks, and touches nothing.
    pub fn of(root: &Root, config: &ServiceConfig) -> Result<Self, OpenError> {
        let service = config.target.find(root)?;
        // Threads run on the CPUs of the machine that runs; a made-up one has CPUs of its own.
        let allowed = if *root == Root::system() {
            host::cpus_of(&service)?
        } else {
            host::online_cpus(root).map_err(ConfineError::from)?
        };
        let allowed = within(config, &allowed)?;
        if let Some(reason) = clocks::missing(root, config.frequency, &allowed) {
            return Err(OpenError::Clocks { service: config.name.clone(), reason });
        }
        let place = place(root, config, &allowed);
        Ok(Self { service, allowed, place })
    }
}

impl Governed {
    /// Finds the service, begins to watch it, and takes hold of its CPUs, all of which it keeps for now.
    pub fn open(
        root: &Root,
        config: &ServiceConfig,
        epoch: Duration,
        record: Option<&Path>,
        dry_run: bool,
        now: Instant,
        news: &mut News,
    ) -> Result<Self, OpenError> {
        let outlook = Outlook::of(root, config)?;
        let mut telemetry = Telemetry::open(root, &outlook.service, config, epoch, now)?;
        let notices = telemetry.drain_notices();
        news.notices.extend(notices.into_iter().map(|notice| format!("{}: {notice}", config.name)));
        let confiner = if dry_run {
            None
        } else {
            let options = ConfineOptions {
                actuator: config.actuator,
                ..ConfineOptions::new(format!("roost govern {}", config.name))
            };
            let mut confiner = Confiner::open(root, &outlook.service, options)?;
            news.notices.extend(
                confiner.drain_notices().into_iter().map(|notice| format!("{}: {notice}", config.name)),
            );
            Some(confiner)
        };
        let policy = Governing::new(config.params(epoch), outlook.place);
        if policy.idle_has_no_effect() {
            news.notices.push(format!(
                "{}: idle = \"{}\" has no effect here: these CPUs have no second state that halts",
                config.name, config.idle
            ));
        }
        let recording = record.map(|folder| {
            let instance = unused_instance(folder, &config.name);
            Segments::begin(folder, &instance, BOUNDS, &state_line(&policy))
                .map_err(|cause| OpenError::Record { folder: folder.display().to_string(), cause })
        });
        let recording = recording.transpose()?;
        let premature = premature_sleeps(root, config, &outlook.allowed, news);
        let pace = pace(config, &outlook.allowed)?;
        let mut usage = UsageMeter::start(root, &outlook.allowed, now);
        let last_usage = usage.read(now);
        Ok(Self {
            root: root.clone(),
            config: config.clone(),
            service: outlook.service,
            cpus: policy.active(),
            policy,
            telemetry,
            confiner,
            usage,
            premature,
            pace,
            clocks: None,
            park: None,
            last_usage,
            recording,
            owed: None,
            owed_clocks: BTreeMap::new(),
            repaired: false,
            limits: BTreeMap::new(),
            limits_of_clocks: BTreeMap::new(),
            last: ServiceReading::default(),
            last_cpus: Vec::new(),
            last_change: None,
            epochs: 0,
            missed: 0,
        })
    }

    /// What is not governed is kept off its parked CPUs from now on, through this.
    pub fn keep_others_off(&mut self, park: Option<&Park>) {
        let park = park.filter(|_| self.confiner.is_some());
        if let Some(park) = park {
            let allowed = CpuList(self.last_usage.iter().map(|usage| usage.cpu).collect());
            park.join(&self.config.name, &allowed, self.confiner.as_ref().and_then(Confiner::place));
            park.claim(&self.config.name, &self.cpus);
        }
        self.park = park.cloned();
    }

    /// Its clocks are chosen from now on, through this.
    pub fn choose_clocks(&mut self, clocks: Option<&Clocks>) {
        let clocks =
            clocks.filter(|_| self.confiner.is_some() && self.config.frequency != FrequencyMode::Stock);
        if let Some(clocks) = clocks {
            clocks.join(&self.config.name, &CpuList(self.last_usage.iter().map(|usage| usage.cpu).collect()));
        }
        self.clocks = clocks.cloned();
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Where it was looked for.
    pub fn target(&self) -> &Target {
        &self.config.target
    }

    /// An epoch is over.
    pub fn epoch(&mut self, now: Instant, mut holder: Option<&mut IdleHolder>, news: &mut News) {
        self.epochs += 1;
        self.pay(now, holder.as_deref_mut(), news);
        self.look_for_drift(now, holder.as_deref_mut(), news);
        if news.ended {
            return;
        }
        self.look_for_other_clocks(now, holder.as_deref_mut(), news);
        let reading = self.read(now);
        self.last = reading.service.clone();
        self.last_cpus.clone_from(&reading.cpus);
        if let (Some(goal), Some(tail)) = (self.policy.goal(), self.last.tail) {
            self.missed = if tail > goal.latency { self.missed + 1 } else { 0 };
        }
        self.tell(now, Input::Reading(reading), holder, news);
        self.telemetry.arm(self.policy.wants_alarm());
        let notices = self.telemetry.drain_notices();
        news.notices.extend(notices.into_iter().map(|notice| format!("{}: {notice}", self.config.name)));
        if let Some(recording) = &mut self.recording
            && let Err(error) = recording.flush()
        {
            news.notices.push(format!("{}: recording ends here: {error}", self.config.name));
            self.recording = None;
        }
    }

    /// The tail at this goal's percentile is told, where the service has no goal of its own; its policy is not asked about it.
    pub fn watch_goal(&mut self, goal: Goal) {
        if self.policy.goal().is_none() {
            self.telemetry.set_goal(Some(goal));
        }
    }

    /// Far more came than the last epochs let expect: what is late, or of a policy that has all cores, is no news.
    pub fn alarm(
        &mut self,
        now: Instant,
        alarm: &RequestAlarm,
        holder: Option<&mut IdleHolder>,
        news: &mut News,
    ) {
        if !self.telemetry.takes(alarm) || !self.policy.wants_alarm() {
            return;
        }
        self.tell(now, Input::Alarm, holder, news);
        let took = host::now().since(alarm.at);
        let (name, arrivals) = (&self.config.name, alarm.arrivals);
        let window = host::bpf::ALARM_WINDOW;
        news.notices
            .push(format!("{name}: alarm: {arrivals} requests within {window}; all cores {took} later"));
    }

    /// Calls `heard` at each alarm.
    pub fn hear(&mut self, heard: Heard) {
        self.telemetry.hear(heard);
    }

    /// Epochs are so long from now on.
    pub fn set_epoch(&mut self, epoch: Duration) {
        self.telemetry.set_epoch(epoch);
    }

    /// Its helpers keep to these CPUs.
    pub fn stay_on(&self, cpus: &CpuList) {
        self.telemetry.stay_on(cpus);
    }

    /// What happened until now belongs to how things were.
    pub fn settled(&mut self, now: Instant) {
        self.telemetry.forget(now);
    }

    /// Tells the policy something, and carries out what it answers.
    pub fn tell(&mut self, now: Instant, input: Input, mut holder: Option<&mut IdleHolder>, news: &mut News) {
        if let Input::Goal(goal) = &input {
            self.telemetry.set_goal(Some(*goal));
            self.config.goal = Some(*goal);
        }
        let decided = self.ask(now, &input, news);
        if decided.is_empty() {
            return;
        }
        // A newer decision on the CPUs replaces the one that is owed.
        let mut refused = None;
        for decided in decided {
            if let Err(reason) = self.carry_out(&decided, holder.as_deref_mut(), news) {
                refused = Some(reason);
            }
        }
        self.report(now, refused, holder, news);
    }

    /// Another configuration of the same service.
    pub fn reload(
        &mut self,
        now: Instant,
        config: &ServiceConfig,
        epoch: Duration,
        holder: Option<&mut IdleHolder>,
        news: &mut News,
    ) {
        if self.config.idle != config.idle {
            let cpus = CpuList(self.last_usage.iter().map(|usage| usage.cpu).collect());
            self.premature = premature_sleeps(&self.root, config, &cpus, news);
        }
        self.config = config.clone();
        self.telemetry.set_goal(config.goal);
        self.tell(now, Input::Reload(config.params(epoch)), holder, news);
    }

    /// Puts everything of this service back.
    pub fn release(mut self, holder: Option<&mut IdleHolder>) -> Vec<String> {
        if let Some(park) = &self.park {
            park.leave(&self.config.name);
        }
        if let Some(clocks) = &self.clocks {
            clocks.withdraw(&self.config.name);
        }
        if let Some(holder) = holder {
            holder.withdraw(&self.config.name);
        }
        self.confiner.as_mut().map(Confiner::release).unwrap_or_default()
    }

    /// As it is now.
    pub fn status(&self) -> Status {
        let actuator = self.confiner.as_ref().map(Confiner::actuator);
        Status {
            name: self.config.name.clone(),
            command: self.service.name.clone(),
            processes: self.service.processes.len(),
            policy: self.config.policy_name().to_owned(),
            goal: self.policy.goal(),
            mode: self.policy.mode().clone(),
            cpus: self.cpus.clone(),
            allowed: CpuList(self.last_usage.iter().map(|usage| usage.cpu).collect()),
            cores: self.policy.seats(),
            service: self.last.clone(),
            curve: self.policy.curve(),
            actuator: actuator.as_ref().map(ConfineActuator::to_string),
            seen_by: self.telemetry.to_string(),
            epochs: self.epochs,
            missed: self.missed,
            frequency: self.config.frequency,
            clocks: (self.limits_of_clocks.iter())
                .filter(|(_, limit)| **limit != FrequencyLimit::None)
                .map(|(&cpu, &limit)| (cpu, limit))
                .collect(),
        }
    }

    /// The CPUs that it has now.
    pub fn cpus(&self) -> &CpuList {
        &self.cpus
    }

    /// What the CPUs that it may use did in the last epoch, the parked ones among them.
    pub fn last_cpus(&self) -> &[CpuReading] {
        &self.last_cpus
    }

    /// The last change of its CPUs.
    pub fn last_change(&self) -> Option<&LastChange> {
        self.last_change.as_ref()
    }

    /// The idle states of the CPUs that it may use.
    pub fn idle_tables(&self) -> impl Iterator<Item = (CpuId, &CstateTable)> {
        self.usage.tables()
    }

    fn read(&mut self, now: Instant) -> Reading {
        let usage = self.usage.read(now);
        let premature = self.premature.read();
        let of = |now: &CpuUsage| premature.get(&now.cpu).copied();
        let pace = self.pace.as_mut().map(|pace| pace.read(&usage)).unwrap_or_default();
        let both = usage.iter().zip(&self.last_usage);
        let cpus = both.map(|(now, before)| cpu_reading(now, before, of(now), pace.get(&now.cpu))).collect();
        self.last_usage = usage;
        Reading { service: self.telemetry.read(now), cpus, ..Reading::default() }
    }

    fn ask(&mut self, now: Instant, input: &Input, news: &mut News) -> Vec<Decided> {
        let output = self.policy.apply(now, input);
        if let Some(recording) = &mut self.recording {
            let written = recording.write(&step_line::<Governing>(now, input, &output));
            let turned = written.and_then(|()| {
                if recording.is_full() { recording.turn(&state_line(&self.policy)) } else { Ok(()) }
            });
            if let Err(error) = turned {
                news.notices.push(format!("{}: recording ends here: {error}", self.config.name));
                self.recording = None;
            }
        }
        output
    }

    /// Tells the policy whether what it wanted is in force. What it answers to that is carried out as well, but not
    /// reported again: a policy that is refused everything must not be asked for ever.
    fn report(
        &mut self,
        now: Instant,
        refused: Option<String>,
        mut holder: Option<&mut IdleHolder>,
        news: &mut News,
    ) {
        let input = match refused {
            None => Input::Applied,
            Some(reason) => Input::Refused { reason },
        };
        for decided in self.ask(now, &input, news) {
            let _ = self.carry_out(&decided, holder.as_deref_mut(), news);
        }
    }

    fn pay(&mut self, now: Instant, mut holder: Option<&mut IdleHolder>, news: &mut News) {
        if let Some(decided) = self.owed.take() {
            let refused = self.carry_out(&decided, holder.as_deref_mut(), news).err();
            self.report(now, refused, holder.as_deref_mut(), news);
        }
        let owed = std::mem::take(&mut self.owed_clocks);
        if !owed.is_empty() {
            let again = |decided| self.carry_out(decided, None, news).err();
            let refused = owed.values().filter_map(again).last();
            self.report(now, refused, holder, news);
        }
    }

    fn look_for_drift(&mut self, now: Instant, holder: Option<&mut IdleHolder>, news: &mut News) {
        let Some(confiner) = &mut self.confiner else { return };
        let drift = match confiner.check() {
            Ok(drift) => drift,
            Err(ConfineError::Ended) => {
                news.ended = true;
                return;
            }
            Err(error) => {
                news.notices.push(format!("{}: {error}", self.config.name));
                return;
            }
        };
        let Some(foreign) = drift.foreign.first() else {
            self.repaired = false;
            return;
        };
        let what = foreign.to_string();
        if std::mem::replace(&mut self.repaired, true) {
            self.repaired = false;
            self.tell(now, Input::Drift { what }, holder, news);
            return;
        }
        let (old, new) = (foreign.reads.clone(), foreign.ours.clone());
        match confiner.reassert() {
            Ok(_) => {
                let entry = self.entry("cpus", old, new, format!("set once more: {what}"));
                news.entries.push(entry);
            }
            Err(error) => news.notices.push(format!("{}: {error}", self.config.name)),
        }
    }

    /// Somebody else's change of a clock: set once more, and where that was in vain the policy lets go of everything.
    fn look_for_other_clocks(&mut self, now: Instant, holder: Option<&mut IdleHolder>, news: &mut News) {
        let Some(clocks) = &self.clocks else { return };
        match clocks.repair(&self.config.name) {
            Repair::Unneeded => {}
            Repair::Done(what) => {
                let entry = self.entry(
                    "clock",
                    "another's".to_owned(),
                    "ours".to_owned(),
                    format!("set once more: {what}"),
                );
                news.entries.push(entry);
            }
            Repair::Vain(what) => self.tell(now, Input::Drift { what }, holder, news),
        }
    }

    /// One that is refused is owed.
    fn limit_clock(
        &mut self,
        cpu: CpuId,
        limit: FrequencyLimit,
        decided: &Decided,
        news: &mut News,
    ) -> Result<(), String> {
        self.owed_clocks.remove(&cpu);
        let old = self.limits_of_clocks.get(&cpu).copied().unwrap_or(FrequencyLimit::None);
        if self.confiner.is_some() {
            let Some(clocks) = &self.clocks else { return Ok(()) };
            let state = clocks.limit(&self.config.name, cpu, limit);
            news.notices.extend(clocks.drain_notices());
            if let FrequencyState::Refused { reason } = state {
                self.owed_clocks.insert(cpu, decided.clone());
                return Err(reason);
            }
        }
        self.limits_of_clocks.insert(cpu, limit);
        // The tail under another clock is another; each core's own progress changes too often to begin anew for.
        news.moved |= self.config.frequency == FrequencyMode::Pegasus;
        let entry = self.entry(
            &format!("clock of {cpu}"),
            clock_told(old),
            clock_told(limit),
            decided.why.to_string(),
        );
        news.entries.push(entry);
        Ok(())
    }

    fn carry_out(
        &mut self,
        decided: &Decided,
        holder: Option<&mut IdleHolder>,
        news: &mut News,
    ) -> Result<(), String> {
        match &decided.command {
            Command::SetActiveCpus(cpus) => self.set_cpus(cpus, decided, news),
            Command::LimitIdle { cpu, limit } => self.limit_idle(*cpu, *limit, &decided.why, holder, news),
            Command::SetFrequency { cpu, limit } => self.limit_clock(*cpu, *limit, decided, news),
            // For stores that move their own connections; this policy never says so.
            Command::MoveConnection { .. } | Command::Activate(_) | Command::Deactivate(_) => Ok(()),
        }
    }

    fn set_cpus(&mut self, cpus: &CpuList, decided: &Decided, news: &mut News) -> Result<(), String> {
        self.owed = None;
        let failing_open = matches!(decided.why, Why::Open(_) | Why::Paused);
        if let Some(park) = &self.park {
            park.claim(&self.config.name, &CpuList(&self.cpus.0 | &cpus.0));
        }
        if let Some(confiner) = &mut self.confiner {
            if failing_open {
                news.notices.extend(
                    confiner.release().into_iter().map(|line| format!("{}: {line}", self.config.name)),
                );
            } else if let Err(error) = confiner.confine(cpus) {
                if matches!(error, ConfineError::Ended) {
                    news.ended = true;
                    return Ok(());
                }
                self.owed = Some(decided.clone());
                let reason = error.to_string();
                news.notices.push(format!("{}: cpus {cpus}: {reason}", self.config.name));
                return Err(reason);
            }
        }
        if let Some(park) = &self.park {
            park.claim(&self.config.name, cpus);
        }
        let old = std::mem::replace(&mut self.cpus, cpus.clone());
        news.moved |= old != *cpus;
        if old != *cpus || failing_open {
            self.last_change = Some(LastChange { epoch: self.epochs, why: decided.why.to_string() });
            let entry = self.entry("cpus", old.to_string(), cpus.to_string(), decided.why.to_string());
            news.entries.push(entry);
        }
        Ok(())
    }

    fn limit_idle(
        &mut self,
        cpu: CpuId,
        limit: IdleLimit,
        why: &Why,
        holder: Option<&mut IdleHolder>,
        news: &mut News,
    ) -> Result<(), String> {
        if self.confiner.is_some() {
            let Some(holder) = holder else { return Ok(()) };
            let state = holder.limit(&self.config.name, cpu, limit);
            news.notices.extend(holder.drain_notices());
            if let LimitState::Refused { reason } = state {
                return Err(reason);
            }
        }
        let old = self.limits.insert(cpu, limit).unwrap_or(IdleLimit::None);
        let entry = self.entry(&format!("idle limit of {cpu}"), told(old), told(limit), why.to_string());
        news.entries.push(entry);
        Ok(())
    }

    fn entry(&self, what: &str, old: String, new: String, why: String) -> Entry {
        Entry {
            at_unix_s: now_unix_s(),
            service: self.config.name.clone(),
            what: what.to_owned(),
            old,
            new,
            why,
            by: self.config.policy_name().to_owned(),
        }
    }
}

fn told(limit: IdleLimit) -> String {
    match limit {
        IdleLimit::None => "none".to_owned(),
        IdleLimit::ExitLatency(latency) => format!("exit latency <= {latency}"),
    }
}

fn clock_told(limit: FrequencyLimit) -> String {
    match limit {
        FrequencyLimit::None => "free".to_owned(),
        FrequencyLimit::AtMost(clock) => format!("at most {clock}"),
        FrequencyLimit::Exactly(clock) => clock.to_string(),
    }
}

/// Counting costs an interrupt for each CPU and epoch, so only where it decides something.
fn pace(config: &ServiceConfig, cpus: &CpuList) -> Result<Option<Pace>, OpenError> {
    if config.frequency != FrequencyMode::Sensitivity {
        return Ok(None);
    }
    Pace::open(cpus).map(Some).map_err(|reason| OpenError::Clocks { service: config.name.clone(), reason })
}

/// A service that ended and came back, or a daemon that was started again, must not write over what was recorded before,
/// nor go on with it: it begins with another state. `~` is in no service's name.
fn unused_instance(folder: &Path, name: &str) -> String {
    let mut instances = (1u64..).map(|run| match run {
        1 => format!("service-{name}"),
        run => format!("service-{name}~{run}"),
    });
    // The first segments of a long run are gone, so any of them counts.
    let taken: Vec<String> = std::fs::read_dir(folder)
        .map(|entries| {
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        })
        .unwrap_or_default();
    let is_taken = |instance: &String| taken.iter().any(|file| file.starts_with(&format!("{instance}.")));
    instances.find(|instance| !is_taken(instance)).expect("numbers do not end")
}

/// Only the loop on them asks for premature sleeps.
fn premature_sleeps(root: &Root, config: &ServiceConfig, cpus: &CpuList, news: &mut News) -> PrematureSleeps {
    if config.idle != IdleMode::Feedback {
        return PrematureSleeps::start(root, &CpuList::default());
    }
    let sleeps = PrematureSleeps::start(root, cpus);
    if sleeps.is_blind() {
        news.notices.push(format!(
            "{}: idle = \"feedback\" has no effect here: the kernel counts no premature sleeps (`above`, since 5.1)",
            config.name
        ));
    }
    sleeps
}

/// What of `allowed` the configuration leaves.
fn within(config: &ServiceConfig, allowed: &CpuList) -> Result<CpuList, OpenError> {
    let Some(asked) = &config.cpus else { return Ok(allowed.clone()) };
    let left = CpuList(asked.0.intersection(&allowed.0).copied().collect());
    if left.0.is_empty() {
        let (asked, allowed) = (asked.clone(), allowed.clone());
        return Err(OpenError::NoCpu { service: config.name.clone(), asked, allowed });
    }
    Ok(left)
}

fn place(root: &Root, config: &ServiceConfig, allowed: &CpuList) -> Place {
    let topology = host::topology_of(root, allowed);
    let halts = |&cpu: &CpuId| {
        let table = host::idle_table(root, cpu).ok()?;
        let halting = table.0.iter().filter(|state| state.kind == CstateKind::Halting);
        let mut latencies: Vec<Duration> = halting.map(|state| state.exit_latency).collect();
        latencies.sort_unstable();
        latencies.dedup();
        Some((cpu, latencies))
    };
    let wants_gears = config.frequency != FrequencyMode::Stock;
    let gears = wants_gears.then(|| clocks::gears(root, allowed).ok()).flatten();
    Place { seats: seats(&topology, allowed), halts: allowed.0.iter().filter_map(halts).collect(), gears }
}

fn cpu_reading(
    now: &CpuUsage,
    before: &CpuUsage,
    premature: Option<Ratio>,
    pace: Option<&(Rate, Kilohertz)>,
) -> CpuReading {
    let elapsed = now.elapsed - before.elapsed;
    let share = |part: Duration| Ratio::new(part.as_secs_f64() / elapsed.as_secs_f64().max(1e-9));
    let busy = now.busy.zip(before.busy).map(|(now, before)| share(now - before));
    let residency = now
        .residency
        .as_ref()
        .zip(before.residency.as_ref())
        .map(|(now, before)| now.iter().zip(before).map(|(&now, &before)| share(now - before)).collect());
    let (instructions, clock) = pace.copied().unzip();
    CpuReading { cpu: now.cpu, busy, residency, premature, instructions, clock }
}

/// 256 MiB for each service.
const BOUNDS: SegmentBounds = SegmentBounds { size: 16 << 20, kept: 16 };

#[cfg(test)]
mod tests {
    use super::*;

    /// This process as the service, which nobody asks for anything; `None`, said, where requests cannot be seen.
    fn idle_service(
        telemetry: crate::TelemetrySource,
        port: u16,
        news: &mut News,
    ) -> Option<Result<Governed, OpenError>> {
        let text = format!("name = \"test\"\nport = {port}\npolicy = \"fixed\"");
        let mut config: ServiceConfig = toml::from_str(&text).unwrap();
        config.telemetry = telemetry;
        let epoch = Duration::from_millis(50);
        match Governed::open(&Root::system(), &config, epoch, None, true, host::now(), news) {
            Err(OpenError::Blind { reason, .. }) => {
                eprintln!("skipped: {reason}");
                None
            }
            other => Some(other),
        }
    }

    /// Epochs until this holds, forty at the most.
    fn until(governed: &mut Governed, news: &mut News, holds: impl Fn(&Governed) -> bool) -> bool {
        (0..40).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            governed.epoch(host::now(), None, news);
            holds(governed)
        })
    }

    #[test]
    fn programs_that_are_detached_are_no_silence_and_are_loaded_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut news = News::default();
        let Some(governed) = idle_service(crate::TelemetrySource::Requests, port, &mut news) else { return };
        let mut governed = governed.unwrap();
        for _ in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(50));
            governed.epoch(host::now(), None, &mut news);
            assert_eq!(governed.last.rate, Some(machine::Rate::ZERO), "nobody asks, and that is seen");
        }
        governed.telemetry.sever();
        let is_open = |governed: &Governed| matches!(governed.policy.mode(), Mode::Open { .. });
        assert!(until(&mut governed, &mut news, is_open), "{:?}", governed.last);
        let Mode::Open { failure, .. } = governed.policy.mode() else { unreachable!() };
        assert_eq!(failure.to_string(), "nothing was seen of the service for 3 epochs");
        // Loaded again meanwhile: it comes back by itself.
        let is_back = |governed: &Governed| *governed.policy.mode() == Mode::Searching;
        assert!(until(&mut governed, &mut news, is_back), "{:?}", news.notices);
        assert_eq!(governed.last.rate, Some(machine::Rate::ZERO));
        assert!(news.notices.iter().any(|notice| notice.contains("were loaded again")), "{:?}", news.notices);
    }

    #[test]
    fn a_server_that_no_longer_answers_is_lost_and_comes_back() {
        use std::io::{BufRead as _, BufReader, Write as _};
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let hangs = Arc::new(AtomicBool::new(false));
        let hang = Arc::clone(&hangs);
        std::thread::spawn(move || {
            let count = AtomicU64::new(0);
            for client in listener.incoming() {
                let mut client = client.unwrap();
                let _ = BufReader::new(&client).read_line(&mut String::new());
                if !hang.load(Ordering::Relaxed) {
                    let count = count.fetch_add(100, Ordering::Relaxed);
                    let _ = client.write_all(format!("STAT cmd_get {count}\r\nEND\r\n").as_bytes());
                }
            }
        });
        let memcached = crate::TelemetrySource::Memcached { address: None, with_requests: false };
        let mut news = News::default();
        let mut governed = idle_service(memcached, port, &mut news).unwrap().unwrap();
        assert_eq!(governed.status().seen_by, format!("memcached:127.0.0.1:{port}"));
        let has_rate =
            |governed: &Governed| governed.last.rate.is_some_and(|rate| rate > machine::Rate::ZERO);
        assert!(until(&mut governed, &mut news, has_rate), "{:?}", news.notices);
        hangs.store(true, Ordering::Relaxed);
        let is_open = |governed: &Governed| matches!(governed.policy.mode(), Mode::Open { .. });
        assert!(until(&mut governed, &mut news, is_open), "{:?}", governed.last);
        hangs.store(false, Ordering::Relaxed);
        let is_back = |governed: &Governed| *governed.policy.mode() == Mode::Searching;
        assert!(until(&mut governed, &mut news, is_back) && has_rate(&governed), "{:?}", news.notices);
    }

    #[test]
    fn a_source_that_is_not_there_is_one_error_with_its_fix() {
        // A listener that is no memcached.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let page = crate::TelemetrySource::Prometheus {
            url: format!("http://{free}/metrics"),
            rate: "requests_total".into(),
            tail: None,
        };
        let error = idle_service(page, port, &mut News::default()).unwrap().err().unwrap().to_string();
        assert!(error.contains("nobody listens there; start the service"), "{error}");
    }

    #[test]
    fn a_recording_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let next = || unused_instance(folder.path(), "shop");
        assert_eq!(next(), "service-shop");
        std::fs::write(folder.path().join("service-shop.000007.jsonl"), "").unwrap();
        std::fs::write(folder.path().join("service-shop-2.000000.jsonl"), "").unwrap();
        assert_eq!(next(), "service-shop~2");
        std::fs::write(folder.path().join("service-shop~2.000000.jsonl"), "").unwrap();
        assert_eq!(next(), "service-shop~3");
        assert_eq!(unused_instance(&folder.path().join("none"), "shop"), "service-shop");
    }
}
