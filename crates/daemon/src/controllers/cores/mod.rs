//! One service: its readings, its policy's decisions, and the actions on them.
//!
//! ```text
//!        +------------------------------ an epoch -------------------------------+
//!   -----| pending, drift | reading -> policy -> commands -> host -> audit |--- 20 ms settle, uncounted ---
//! ```
//!
//! A command that was refused is *pending*: it is tried again each epoch, and each failure goes to
//! the policy, which fails open when they do not end. *Drift* is repaired once. If it comes back
//! the policy learns of it, everything of ours is taken away, and the other process's change stays.
//!
//! ```text
//!   own.rs         its policy of one's own, once an epoch
//!   open.rs        finds it and takes hold of it, or gives the reason against it
//!   carry_out.rs   carries out its policy's commands
//!   status.rs      its state, for queries
//! ```
//!
//! What always holds:
//! - The policy's inputs and answers are recorded before they are carried out.
//! - Failing open and pausing put back the state from before us, and not merely a wide set of ours.
//! - A dry run opens nothing that could change anything.

mod carry_out;
mod open;
mod own;
mod service_telemetry;
mod sources;
mod status;
mod telemetry;

pub(crate) use open::unused_name;
pub use open::{Open, OpenError, Prospect};
pub use sources::TelemetrySource;
pub use status::{LastChange, Status, UncoreStatus};
pub use telemetry::{AlarmSink, Telemetry, Window};

use crate::audit::Entry;
use crate::clocks::{Clocks, Pace};
use crate::config::{ServiceConfig, Target};
use crate::park::Park;
use hdrhistogram::Histogram;
use linux::arbiter::{Claim, ClockMeans, IdleLimits};
use linux::probes::RequestAlarm;
use linux::service::Service;
use linux::{Confiner, CpuUsage, IdleMisprediction, Root, RotatingLog, UncoreDomain, UsageMeter};
use machine::Duration;
use machine::{
    CpuId, CpuList, CpuReading, CstateTable, FrequencyLimit, Goal, IdleLimit, Instant, Kilohertz, Rate,
    Ratio, Reading, ServiceReading,
};
use open::premature_sleeps;
use own::Own;
use policy::governing::{Decision, FrequencyMode, Input, Mode, ServiceController, UncoreMode};
use policy::log::{Recorded as _, state_line, step_line};
use std::collections::{BTreeMap, BTreeSet};

pub struct Governed {
    root: Root,
    config: ServiceConfig,
    service: Service,
    policy: ServiceController,
    own: Option<Own>,
    telemetry: Telemetry,
    /// `None` in a dry run.
    confiner: Option<Confiner>,
    usage: UsageMeter,
    premature: IdleMisprediction,
    /// How its CPUs get on, where that decides their clocks.
    pace: Option<Pace>,
    /// The policy of its clocks.
    means: ClockMeans,
    /// `None` in a dry run, and where no clock is to be chosen.
    clocks: Option<Clocks>,
    /// The same for the uncore of its sockets.
    uncore: Option<Clocks>,
    /// Its sockets' uncore, where that is to be chosen.
    uncore_domains: Vec<UncoreDomain>,
    /// Knows which services need which CPUs, and moves all other processes accordingly.
    park: Option<Park>,
    last_usage: Vec<CpuUsage>,
    /// The file of its cpuset, and the CPUs in force there.
    cpuset: Option<(String, CpuList)>,
    recording: Option<RotatingLog>,
    /// Commands that could not be carried out yet.
    pending: Option<Decision>,
    pending_clocks: BTreeMap<CpuId, Decision>,
    /// Drift was repaired in the epoch before.
    repaired: bool,
    /// In force, as far as we know.
    cpus: CpuList,
    limits: BTreeMap<CpuId, IdleLimit>,
    /// Floors that yield to another process which needs the CPU.
    yielded: BTreeSet<CpuId>,
    limits_of_clocks: BTreeMap<CpuId, FrequencyLimit>,
    pending_uncore: Option<Decision>,
    limit_of_uncore: FrequencyLimit,
    /// The fastest present clock of its sockets' uncore, where that is to be chosen.
    last_uncore: Option<Kilohertz>,
    last: ServiceReading,
    last_cpus: Vec<CpuReading>,
    last_change: Option<LastChange>,
    epochs: u64,
    /// Epochs in a row in which the goal was missed.
    missed: u32,
}

/// Events for the caller.
#[derive(Debug, Default)]
pub struct EpochReport {
    pub entries: Vec<Entry>,
    /// Notices for the operator; each is reported once.
    pub notices: Vec<String>,
    /// The service's CPUs have changed: counting begins anew.
    pub moved: bool,
    pub ended: bool,
    /// It has ended for us alone: its cpuset is another, and it is to be taken anew.
    pub has_other_cpus: bool,
}

impl Governed {
    /// Its processes, as they were found last.
    pub fn processes(&self) -> &BTreeSet<u32> {
        &self.service.processes
    }

    /// Reports the needed CPUs through this from now on. It keeps processes that are not governed
    /// off the parked ones.
    pub fn keep_others_off(&mut self, park: Option<&Park>) {
        let park = park.filter(|_| self.confiner.is_some());
        if let Some(park) = park {
            let could = self.allowed();
            let claim = Claim {
                active: self.cpus.clone(),
                offline: if self.config.hotplug { could.clone() } else { CpuList::default() },
                could,
                places: self.confiner.as_ref().and_then(Confiner::place).into_iter().collect(),
                ..Claim::default()
            };
            park.join(&self.config.name, claim);
        }
        self.park = park.cloned();
    }

    /// Its clocks are chosen from now on, through this.
    pub fn choose_clocks(&mut self, clocks: Option<&Clocks>) {
        let clocks =
            clocks.filter(|_| self.confiner.is_some() && self.config.frequency != FrequencyMode::Stock);
        if let Some(clocks) = clocks {
            clocks.join(&self.config.name, &self.allowed());
        }
        self.clocks = clocks.cloned();
    }

    /// The uncore of its sockets is set from now on, through this.
    pub fn choose_uncore(&mut self, uncore: Option<&Clocks>) {
        let uncore = uncore.filter(|_| self.confiner.is_some() && self.config.uncore != UncoreMode::Stock);
        if let Some(uncore) = uncore {
            uncore.join(&self.config.name, &self.allowed());
        }
        self.uncore = uncore.cloned();
    }

    /// The CPUs that it may use.
    fn allowed(&self) -> CpuList {
        CpuList(self.last_usage.iter().map(|usage| usage.cpu).collect())
    }

    pub fn name(&self) -> &str {
        &self.config.name
    }

    pub fn target(&self) -> &Target {
        &self.config.target
    }

    pub fn epoch(&mut self, now: Instant, mut holder: Option<&mut IdleLimits>, report: &mut EpochReport) {
        self.epochs += 1;
        self.look_at_cpuset(report);
        if report.ended {
            return;
        }
        self.retry_pending(now, holder.as_deref_mut(), report);
        self.look_for_drift(now, holder.as_deref_mut(), report);
        if report.ended {
            return;
        }
        self.look_for_other_clocks(now, holder.as_deref_mut(), report);
        self.yield_floors(holder.as_deref_mut(), report);
        let reading = self.read(now);
        self.last = reading.service.clone();
        self.last_cpus.clone_from(&reading.cpus);
        if let (Some(goal), Some(tail)) = (self.policy.goal(), self.last.tail) {
            self.missed = if tail > goal.latency { self.missed + 1 } else { 0 };
        }
        if let Some(own) = &mut self.own
            && *self.policy.mode() == Mode::Searching
            && reading.service.rate.is_some()
        {
            let ordered = own.decide(now, &reading, self.policy.cores().0, self.policy.goal());
            if let Input::Fault(fault) = &ordered {
                let fix = "hint: mend it, and begin again; all cores are awake until then";
                report.notices.push(format!("{}: {fault}\n{fix}", self.config.name));
            }
            self.tell(now, ordered, holder.as_deref_mut(), report);
        }
        self.tell(now, Input::Reading(reading), holder, report);
        self.telemetry.arm(self.policy.wants_alarm());
        let notices = self.telemetry.drain_notices();
        report.notices.extend(notices.into_iter().map(|notice| format!("{}: {notice}", self.config.name)));
        if let Some(recording) = &mut self.recording
            && let Err(error) = recording.flush()
        {
            report.notices.push(format!("{}: recording ends here: {error}", self.config.name));
            self.recording = None;
        }
    }

    /// A kubelet gives containers other CPUs while they run. They are followed at once, and not fought:
    /// by affinity, only where the service has a cpuset of its own.
    fn look_at_cpuset(&mut self, report: &mut EpochReport) {
        let Some((file, before)) = &self.cpuset else { return };
        let Some(confiner) = self.confiner.as_mut().filter(|confiner| confiner.place().is_none()) else {
            return;
        };
        let Some(now) = linux::service::other_cpus(&self.root, file, before) else { return };
        confiner.follow(before);
        report.notices.push(format!("{}: its cpuset has changed: {before} -> {now}", self.config.name));
        (report.ended, report.has_other_cpus) = (true, true);
    }

    /// The tail at this goal's percentile is told, where the service has no goal of its own; its
    /// policy is not asked about it.
    pub fn watch_goal(&mut self, goal: Goal) {
        if self.policy.goal().is_none() {
            self.telemetry.set_goal(Some(goal));
        }
    }

    /// Far more requests came than the last epochs let expect. A late alarm, or one for a policy
    /// that has all cores, is ignored.
    pub fn alarm(
        &mut self,
        now: Instant,
        alarm: &RequestAlarm,
        holder: Option<&mut IdleLimits>,
        report: &mut EpochReport,
    ) {
        if !self.telemetry.takes(alarm) || !self.policy.wants_alarm() {
            return;
        }
        self.tell(now, Input::Alarm, holder, report);
        let took = linux::now().since(alarm.at);
        let (name, arrivals) = (&self.config.name, alarm.arrivals);
        let window = linux::probes::ALARM_WINDOW;
        report
            .notices
            .push(format!("{name}: alarm: {arrivals} requests within {window}; all cores {took} later"));
    }

    /// Calls `heard` at each alarm.
    pub fn hear(&mut self, heard: AlarmSink) {
        self.telemetry.hear(heard);
    }

    /// Epochs are so long from now on.
    pub fn set_epoch(&mut self, epoch: Duration) {
        self.telemetry.set_epoch(epoch);
        if let Some(own) = &mut self.own {
            own.set_epoch(epoch);
        }
    }

    /// Its helpers keep to these CPUs.
    pub fn stay_on(&self, cpus: &CpuList) {
        self.telemetry.stay_on(cpus);
    }

    /// Events until now belong to the state before.
    pub fn settled(&mut self, now: Instant) {
        self.telemetry.forget(now);
    }

    /// Gives the policy an event, and carries out the answer.
    pub fn tell(
        &mut self,
        now: Instant,
        input: Input,
        mut holder: Option<&mut IdleLimits>,
        report: &mut EpochReport,
    ) {
        if let Input::Goal(goal) = &input {
            self.telemetry.set_goal(Some(*goal));
            self.config.goal = Some(*goal);
            if let Some(own) = &mut self.own {
                own.set_goal(*goal);
            }
        }
        let decided = self.ask(now, &input, report);
        if decided.is_empty() {
            return;
        }
        // A newer decision on the CPUs replaces the one that is pending.
        let mut refused = None;
        for decided in decided {
            if let Err(reason) = self.carry_out(&decided, holder.as_deref_mut(), report) {
                refused = Some(reason);
            }
        }
        self.report(now, refused, holder, report);
    }

    /// Another configuration of the same service.
    pub fn reload(
        &mut self,
        now: Instant,
        config: &ServiceConfig,
        epoch: Duration,
        holder: Option<&mut IdleLimits>,
        report: &mut EpochReport,
    ) {
        if self.config.idle != config.idle {
            let cpus = self.allowed();
            self.premature = premature_sleeps(&self.root, config, &cpus, report);
        }
        self.config = config.clone();
        self.telemetry.set_goal(config.goal);
        self.tell(now, Input::Reload(config.params(epoch)), holder, report);
    }

    /// Puts everything of this service back.
    pub fn release(mut self, holder: Option<&mut IdleLimits>) -> Vec<String> {
        if let Some(park) = &self.park {
            park.leave(&self.config.name);
        }
        for clocks in self.clocks.iter().chain(&self.uncore) {
            clocks.withdraw(&self.config.name);
        }
        if let Some(holder) = holder {
            holder.withdraw(&self.config.name);
        }
        self.confiner.as_mut().map(Confiner::release).unwrap_or_default()
    }

    /// The CPUs that it has now.
    pub fn cpus(&self) -> &CpuList {
        &self.cpus
    }

    /// The use of its allowed CPUs in the last epoch, the parked ones among them.
    pub fn last_cpus(&self) -> &[CpuReading] {
        &self.last_cpus
    }

    /// Its response times in the last epoch, and the delay before each.
    pub fn last_times(&self) -> Option<(&Histogram<u64>, Duration)> {
        self.telemetry.last_times()
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
        let uncore = linux::uncore_clock(&self.root, &self.uncore_domains);
        self.last_uncore = uncore;
        Reading { service: self.telemetry.read(now), cpus, uncore, ..Reading::default() }
    }

    fn ask(&mut self, now: Instant, input: &Input, report: &mut EpochReport) -> Vec<Decision> {
        let output = self.policy.apply(now, input);
        if let Some(recording) = &mut self.recording {
            let written = recording.write(&step_line::<ServiceController>(now, input, &output));
            let turned = written.and_then(|()| {
                if recording.is_full() { recording.rotate(&state_line(&self.policy)) } else { Ok(()) }
            });
            if let Err(error) = turned {
                report.notices.push(format!("{}: recording ends here: {error}", self.config.name));
                self.recording = None;
            }
        }
        output
    }

    /// Tells the policy whether its commands are in force. The answer is carried out as well, but
    /// not reported again: a policy whose every command is refused must not be asked for ever.
    fn report(
        &mut self,
        now: Instant,
        refused: Option<String>,
        mut holder: Option<&mut IdleLimits>,
        report: &mut EpochReport,
    ) {
        let input = match refused {
            None => Input::Applied,
            Some(reason) => Input::Refused { reason },
        };
        for decided in self.ask(now, &input, report) {
            let _ = self.carry_out(&decided, holder.as_deref_mut(), report);
        }
    }
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

#[cfg(test)]
mod tests;
