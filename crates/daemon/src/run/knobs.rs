//! The knobs that the daemon holds for all its services: idle limits, clocks, and the active CPUs.

use super::{Daemon, NAME, Slot, StartError, State};
use crate::clocks::{self, Clocks};
use crate::config::{Borrower, Config, ServiceConfig};
use crate::controllers::cores::EpochReport;
use crate::park::Park;
use linux::{FrequencyActuator, FrequencyError, LendError, Lending, Root};
use machine::{CpuList, Duration};
use policy::governing::{FrequencyMode, IdleMode, UncoreMode};
use std::collections::BTreeSet;

impl Daemon {
    /// The CPUs that are online, or would be if this process had taken none offline.
    pub(super) fn cpus_there(&self) -> CpuList {
        let online = linux::online_cpus(&self.root).unwrap_or_default();
        let offline = self.park.as_ref().map(Park::offline).unwrap_or_default();
        CpuList(&online.0 | &offline.0)
    }

    /// Takes the CPUs whose idle states a service wants limited.
    pub(super) fn hold(&mut self) -> Result<(), StartError> {
        let wants = |service: &&ServiceConfig| service.idle.any(|mode| mode != IdleMode::Stock);
        if self.dry_run || !self.config.services.iter().any(|service| wants(&service)) {
            return Ok(());
        }
        let online = self.cpus_there();
        let named = self.config.services.iter().filter(wants).map(|service| service.cpus.clone());
        let cpus = named.fold(CpuList::default(), |mut all, cpus| {
            all.0.extend(cpus.unwrap_or_else(|| online.clone()).0);
            all
        });
        self.arbiter.idle.hold(NAME, &cpus)?;
        self.holder = Some(self.arbiter.idle.clone());
        self.tell_of_knobs();
        Ok(())
    }

    /// Takes the clocks that a service wants set. A service that needs more than this machine has
    /// is an error before anything is held.
    pub(super) fn hold_clocks(&mut self) -> Result<(), StartError> {
        let cpus = wanted_clocks(&self.root, &self.config, &self.cpus_there())?;
        if self.dry_run || cpus.0.is_empty() || self.clocks.is_some() {
            return Ok(());
        }
        self.arbiter.clocks.use_means(self.config.clock_means())?;
        self.arbiter.clocks.hold(NAME, &cpus)?;
        self.clocks = Some(Clocks::of(&self.arbiter.clocks));
        self.tell_of_knobs();
        Ok(())
    }

    /// Takes the uncore of the sockets on which a service wants it set.
    pub(super) fn hold_uncore(&mut self) -> Result<(), StartError> {
        let cpus = wanted_uncore(&self.root, &self.config, &self.cpus_there())?;
        if self.dry_run || cpus.0.is_empty() || self.uncore.as_ref().is_some_and(|held| held.is_for(&cpus)) {
            return Ok(());
        }
        self.arbiter.uncore.hold(NAME, &cpus)?;
        self.uncore = Some(Clocks::of(&self.arbiter.uncore));
        self.tell_of_knobs();
        Ok(())
    }

    fn tell_of_knobs(&mut self) {
        let notices = self.arbiter.drain_notices();
        self.tell(EpochReport { notices, ..EpochReport::default() });
    }

    /// Holds the clocks again, through another interface or for more CPUs: CPUs that share a clock
    /// are held together or not at all. The changes in force are put back. The services with such
    /// clocks are opened again, because another interface has other operating points. If the new
    /// interface cannot be had after all, the old one is used again.
    pub(super) fn hold_clocks_anew(&mut self, before: &Config) {
        let (chosen, others) = std::mem::take(&mut self.slots)
            .into_iter()
            .partition(|slot| slot.config.frequency != FrequencyMode::Stock);
        self.slots = others;
        let chosen: Vec<Slot> = chosen;
        chosen.into_iter().for_each(|slot| self.let_go(slot));
        let lines = self.clocks.take().map(|clocks| clocks.release_of(NAME)).unwrap_or_default();
        lines.iter().for_each(|line| self.say(line));
        if let Err(error) = self.hold_clocks() {
            (self.config.frequency_actuator, self.config.allow_msr) =
                (before.frequency_actuator, before.allow_msr);
            let again = self.hold_clocks().err().map_or_else(
                || "clocks are set as before".to_owned(),
                |error| format!("and not as before either: {error}"),
            );
            self.say(&format!("{error}; {again}"));
        }
    }

    /// Opens the claims on active CPUs, and sets the groups that leave parked ones.
    pub(super) fn hold_park(&mut self) -> Result<(), StartError> {
        if self.config.services.iter().any(|service| service.hotplug) {
            linux::Hotplug::supported(&self.root)?;
        }
        let scope = self.config.park.scope(self.config.move_interrupts);
        if self.dry_run || self.config.services.is_empty() {
            return Ok(());
        }
        let park = match &self.park {
            Some(park) => park,
            None => match Park::open(&self.arbiter.active) {
                Ok(park) => self.park.insert(park),
                // The daemon governs without claims if no other task was to leave a CPU or to have one.
                Err(error) if scope.is_empty() && self.config.lend.is_none() => {
                    self.say_once(&format!("other processes do not know which CPUs are needed: {error}"));
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            },
        };
        park.concern(scope);
        let notices = park.drain_notices();
        self.tell(EpochReport { notices, ..EpochReport::default() });
        Ok(())
    }

    /// Takes hold of the group that has the CPUs which no service needs, or lets go of one that is
    /// named no longer. While no service is governed, no CPU is known to be free: the group is left alone.
    pub(super) fn hold_lending(&mut self) -> Result<(), LendError> {
        let Some(park) = self.park.clone().filter(|_| !self.dry_run) else { return Ok(()) };
        let has = park.lent().map(|lent| lent.to);
        let services = self.processes();
        let wanted = self.config.lend.as_ref().map(Borrower::group).filter(|_| !services.is_empty());
        if has.as_deref() == wanted {
            return Ok(());
        }
        let lines = park.lend_to(None);
        let opened = wanted.map(|group| Lending::open(&self.root, group, &services, NAME, None));
        let held = opened.transpose().map(|lending| {
            if lending.is_some() {
                park.lend_to(lending);
                park.lend();
            }
        });
        lines.iter().for_each(|line| self.say(line));
        held
    }

    pub(super) fn tell_of_lending(&mut self, told: Result<(), LendError>) {
        if let Err(error) = told {
            self.say_once(&error.to_string());
            self.lends_at = linux::now() + LOOK_FOR_BORROWER;
        }
    }

    /// After each turn: claims of other processes have changed perhaps, or the group has come or gone.
    pub(super) fn look_after_lending(&mut self, report: &mut EpochReport) {
        if self.config.lend.is_none() || self.park.is_none() {
            return;
        }
        let services = self.processes();
        let Some(park) = &self.park else { return };
        if park.lent().is_some() && !services.is_empty() {
            let lent = park.lend_beside(&services);
            report.entries.extend(lent.map(|lent| lent.entry("other processes' needs", NAME)));
        } else if self.lends_at <= linux::now() {
            self.lends_at = linux::now() + LOOK_FOR_BORROWER;
            let told = self.hold_lending();
            self.tell_of_lending(told);
        }
    }

    /// The processes of all services that are governed now.
    fn processes(&self) -> BTreeSet<u32> {
        let of = |slot: &Slot| match &slot.state {
            State::Governed { governed, .. } => governed.processes().clone(),
            State::Waiting { .. } | State::Withdrawn { .. } => BTreeSet::new(),
        };
        self.slots.iter().flat_map(of).collect()
    }
}

/// A group of batch work that is not there may come.
const LOOK_FOR_BORROWER: Duration = Duration::from_secs(1);

/// The CPUs whose clocks are to be set, of those in `there`; an error if a service cannot have that
/// here.
pub(super) fn wanted_clocks(root: &Root, config: &Config, there: &CpuList) -> Result<CpuList, StartError> {
    let means = config.clock_means();
    let asks = |service: &&ServiceConfig| service.frequency != FrequencyMode::Stock;
    let writes_msr = means.actuator == Some(FrequencyActuator::DutyCycle);
    if writes_msr && !means.allow_msr && config.services.iter().any(|service| asks(&service)) {
        return Err(FrequencyError::MsrNotAllowed.into());
    }
    wanted(config, there, asks, |service, cpus| clocks::missing(root, service.frequency, cpus, means))
}

/// The same of the uncore of their sockets.
pub(super) fn wanted_uncore(root: &Root, config: &Config, there: &CpuList) -> Result<CpuList, StartError> {
    let asks = |service: &&ServiceConfig| service.uncore != UncoreMode::Stock;
    wanted(config, there, asks, |service, cpus| clocks::uncore_missing(root, service.uncore, cpus))
}

/// The CPUs of the services that ask; an error with the reason if one of them lacks something.
fn wanted(
    config: &Config,
    there: &CpuList,
    asks: impl Fn(&&ServiceConfig) -> bool,
    missing: impl Fn(&ServiceConfig, &CpuList) -> Option<String>,
) -> Result<CpuList, StartError> {
    let mut all = CpuList::default();
    for service in config.services.iter().filter(asks) {
        let cpus = service.cpus.as_ref().unwrap_or(there);
        if let Some(reason) = missing(service, cpus) {
            return Err(StartError::NoClocks { service: service.name.clone(), reason });
        }
        all.0.extend(&cpus.0);
    }
    Ok(all)
}
