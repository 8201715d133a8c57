//! Carries out a policy's commands: CPUs, idle limits and clocks. They are in force or pending, and
//! repaired where another process changed them.

use super::{EpochReport, Governed, LastChange};
use crate::audit::{Entry, now_unix_s};
use crate::clocks::Repair;
use crate::park::Park;
use linux::arbiter::IdleLimits;
use linux::{ConfineError, FrequencyState, LimitState};
use machine::{Command, CpuId, CpuList, FrequencyLimit, IdleLimit, Instant};
use policy::governing::{Decision, FrequencyMode, Input, UncoreMode, Why};
use std::collections::BTreeSet;

impl Governed {
    pub(super) fn retry_pending(
        &mut self,
        now: Instant,
        mut holder: Option<&mut IdleLimits>,
        report: &mut EpochReport,
    ) {
        if let Some(decided) = self.pending.take() {
            let refused = self.carry_out(&decided, holder.as_deref_mut(), report).err();
            self.report(now, refused, holder.as_deref_mut(), report);
        }
        let pending = std::mem::take(&mut self.pending_clocks);
        if !pending.is_empty() {
            let again = |decided| self.carry_out(decided, None, report).err();
            let refused = pending.values().filter_map(again).last();
            self.report(now, refused, holder.as_deref_mut(), report);
        }
        if let Some(decided) = self.pending_uncore.take() {
            let refused = self.carry_out(&decided, None, report).err();
            self.report(now, refused, holder, report);
        }
    }

    pub(super) fn look_for_drift(
        &mut self,
        now: Instant,
        holder: Option<&mut IdleLimits>,
        report: &mut EpochReport,
    ) {
        let Some(confiner) = &mut self.confiner else { return };
        let drift = match confiner.check() {
            Ok(drift) => drift,
            Err(ConfineError::Ended) => {
                report.ended = true;
                return;
            }
            Err(error) => {
                report.notices.push(format!("{}: {error}", self.config.name));
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
            self.tell(now, Input::Drift { what }, holder, report);
            return;
        }
        let (old, new) = (foreign.reads.clone(), foreign.ours.clone());
        match confiner.reassert() {
            Ok(_) => {
                let entry = self.entry("cpus", old, new, format!("set once more: {what}"));
                report.entries.push(entry);
            }
            Err(error) => report.notices.push(format!("{}: {error}", self.config.name)),
        }
    }

    /// Another process changed a clock, or the uncore's. It is set once more; where that fails the policy gives
    /// everything up.
    pub(super) fn look_for_other_clocks(
        &mut self,
        now: Instant,
        mut holder: Option<&mut IdleLimits>,
        report: &mut EpochReport,
    ) {
        let both = [("clock", self.clocks.clone()), ("uncore", self.uncore.clone())];
        for (knob, clocks) in both.into_iter().filter_map(|(knob, clocks)| Some((knob, clocks?))) {
            match clocks.repair(&self.config.name) {
                Repair::Unneeded => {}
                Repair::Done(what) => {
                    let why = format!("set once more: {what}");
                    report.entries.push(self.entry(knob, "another's".to_owned(), "ours".to_owned(), why));
                }
                Repair::Vain(what) => {
                    self.tell(now, Input::Drift { what }, holder.as_deref_mut(), report);
                }
            }
        }
    }

    /// All CPUs of the service ask alike, so its sockets get it. One that is refused is pending.
    fn limit_uncore(
        &mut self,
        limit: FrequencyLimit,
        decided: &Decision,
        report: &mut EpochReport,
    ) -> Result<(), String> {
        self.pending_uncore = None;
        let mut by = String::new();
        if self.confiner.is_some() {
            let Some(uncore) = &self.uncore else { return Ok(()) };
            for &cpu in &self.allowed().0 {
                match uncore.limit(&self.config.name, cpu, limit) {
                    FrequencyState::Refused { reason } => {
                        self.pending_uncore = Some(decided.clone());
                        return Err(reason);
                    }
                    FrequencyState::InForce { setting: Some(setting), .. } => by = format!(" ({setting})"),
                    FrequencyState::InForce { .. } | FrequencyState::Free => {}
                }
            }
        }
        let old = std::mem::replace(&mut self.limit_of_uncore, limit);
        // The tail with another memory is another.
        report.moved |= self.config.uncore == UncoreMode::Auto;
        report.entries.push(self.entry(
            "uncore",
            clock_told(old),
            clock_told(limit) + &by,
            decided.why.to_string(),
        ));
        Ok(())
    }

    /// One that is refused is pending.
    fn limit_clock(
        &mut self,
        cpu: CpuId,
        limit: FrequencyLimit,
        decided: &Decision,
        report: &mut EpochReport,
    ) -> Result<(), String> {
        self.pending_clocks.remove(&cpu);
        let mut by = String::new();
        let old = self.limits_of_clocks.get(&cpu).copied().unwrap_or(FrequencyLimit::None);
        if self.confiner.is_some() {
            let Some(clocks) = &self.clocks else { return Ok(()) };
            let state = clocks.limit(&self.config.name, cpu, limit);
            match state {
                FrequencyState::Refused { reason } => {
                    self.pending_clocks.insert(cpu, decided.clone());
                    return Err(reason);
                }
                // The actuator on this machine, where that is no clock.
                FrequencyState::InForce { setting: Some(setting), .. } => by = format!(" ({setting})"),
                FrequencyState::InForce { .. } | FrequencyState::Free => {}
            }
        }
        self.limits_of_clocks.insert(cpu, limit);
        // The tail under another clock is another; each core's own progress changes too often to
        // begin anew for.
        report.moved |= self.config.frequency == FrequencyMode::Pegasus;
        let entry = self.entry(
            &format!("clock of {cpu}"),
            clock_told(old),
            clock_told(limit) + &by,
            decided.why.to_string(),
        );
        report.entries.push(entry);
        Ok(())
    }

    pub(super) fn carry_out(
        &mut self,
        decided: &Decision,
        holder: Option<&mut IdleLimits>,
        report: &mut EpochReport,
    ) -> Result<(), String> {
        match &decided.command {
            Command::SetActiveCpus(cpus) => self.set_cpus(cpus, decided, report),
            Command::LimitIdle { cpu, limit } => self.limit_idle(*cpu, *limit, &decided.why, holder, report),
            Command::SetFrequency { cpu, limit } => self.limit_clock(*cpu, *limit, decided, report),
            Command::SetUncore(limit) => self.limit_uncore(*limit, decided, report),
            // For stores that move their own connections; this policy never says so.
            Command::MoveConnection { .. } | Command::Activate(_) | Command::Deactivate(_) => Ok(()),
        }
    }

    fn set_cpus(
        &mut self,
        cpus: &CpuList,
        decided: &Decision,
        report: &mut EpochReport,
    ) -> Result<(), String> {
        self.pending = None;
        let failing_open = matches!(decided.why, Why::Open(_) | Why::Paused);
        if let Some(park) = &self.park {
            park.claim(&self.config.name, &CpuList(&self.cpus.0 | &cpus.0));
        }
        if let Some(confiner) = &mut self.confiner {
            if failing_open {
                report.notices.extend(
                    confiner.release().into_iter().map(|line| format!("{}: {line}", self.config.name)),
                );
            } else if let Err(error) = confiner.confine(cpus) {
                if matches!(error, ConfineError::Ended) {
                    report.ended = true;
                    return Ok(());
                }
                self.pending = Some(decided.clone());
                let reason = error.to_string();
                report.notices.push(format!("{}: cpus {cpus}: {reason}", self.config.name));
                return Err(reason);
            }
        }
        if let Some(park) = &self.park {
            park.claim(&self.config.name, cpus);
        }
        let old = std::mem::replace(&mut self.cpus, cpus.clone());
        report.moved |= old != *cpus;
        if old != *cpus || failing_open {
            self.last_change = Some(LastChange { epoch: self.epochs, why: decided.why.to_string() });
            let entry = self.entry("cpus", old.to_string(), cpus.to_string(), decided.why.to_string());
            report.entries.push(entry);
        }
        if let Some(lent) = self.park.as_ref().and_then(Park::lend) {
            report.entries.push(lent.entry(&decided.why.to_string(), &self.config.policy_name()));
        }
        Ok(())
    }

    fn limit_idle(
        &mut self,
        cpu: CpuId,
        limit: IdleLimit,
        why: &Why,
        holder: Option<&mut IdleLimits>,
        report: &mut EpochReport,
    ) -> Result<(), String> {
        if self.confiner.is_some() {
            let Some(holder) = holder else { return Ok(()) };
            // A floor is looked at again in each epoch; a new one waits for that where it may have
            // to yield.
            let yields = limit == IdleLimit::Deepest && self.yielded.contains(&cpu);
            let state = holder.limit(&self.config.name, cpu, if yields { IdleLimit::None } else { limit });
            report.notices.extend(holder.drain_notices());
            if let LimitState::Refused { reason } = state {
                return Err(reason);
            }
        }
        let old = self.limits.insert(cpu, limit).unwrap_or(IdleLimit::None);
        let entry = self.entry(&format!("idle limit of {cpu}"), told(old), told(limit), why.to_string());
        report.entries.push(entry);
        Ok(())
    }

    /// A floor is a wish for power: where another service or process needs the CPU for something it
    /// is not in force.
    pub(super) fn yield_floors(&mut self, holder: Option<&mut IdleLimits>, report: &mut EpochReport) {
        let floors: BTreeSet<CpuId> = (self.limits.iter())
            .filter_map(|(&cpu, limit)| (*limit == IdleLimit::Deepest).then_some(cpu))
            .collect();
        let (Some(holder), Some(park), Some(_)) = (holder, &self.park, &self.confiner) else { return };
        if floors.is_empty() && self.yielded.is_empty() {
            return;
        }
        let yielded = &floors & &park.needed_by_others(&self.config.name).0;
        for &cpu in yielded.symmetric_difference(&self.yielded).filter(|cpu| floors.contains(cpu)) {
            let (old, new, why) = match yielded.contains(&cpu) {
                true => (IdleLimit::Deepest, IdleLimit::None, "another needs it"),
                false => (IdleLimit::None, IdleLimit::Deepest, "no other needs it any more"),
            };
            holder.limit(&self.config.name, cpu, new);
            report.entries.push(self.entry(
                &format!("idle limit of {cpu}"),
                told(old),
                told(new),
                why.to_owned(),
            ));
        }
        report.notices.extend(holder.drain_notices());
        self.yielded = yielded;
    }

    fn entry(&self, what: &str, old: String, new: String, why: String) -> Entry {
        Entry {
            at_unix_s: now_unix_s(),
            service: self.config.name.clone(),
            what: what.to_owned(),
            old,
            new,
            why,
            by: self.config.policy_name(),
        }
    }
}

fn told(limit: IdleLimit) -> String {
    match limit {
        IdleLimit::None => "none".to_owned(),
        IdleLimit::Deepest => "the deepest state".to_owned(),
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
