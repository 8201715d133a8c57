//! SIGHUP: the configuration is read again.
//!
//! What always holds: a configuration that is wrong, or that asks for clocks which cannot be had
//! here, changes nothing. Where the means of setting something changes, the old means puts its
//! settings back first. An unchanged service is not disturbed.

use super::knobs::{wanted_clocks, wanted_uncore};
use super::{Daemon, Owner, Slot, State};
use crate::config::{Config, ServiceConfig};
use crate::controllers::cores::EpochReport;
use crate::controllers::{Hosted, Table};
use std::fmt::Display;

impl Daemon {
    /// Reads the configuration again; one that is wrong changes nothing.
    pub(super) fn reload(&mut self) {
        let Some(file) = self.file.clone() else {
            return self.say("there is no configuration file to read again");
        };
        let config = match Config::load(&file) {
            Ok(config) => config,
            Err(error) => return self.say(&kept(error)),
        };
        if let Some(reason) = (self.objection)(&config) {
            return self.say(&kept(reason));
        }
        if let Some((name, asker)) = self.leased_name(&config.part()) {
            return self.say(&kept(format!(
                "{name} is governed for {asker}\nhint: end that command, or name it otherwise in {}",
                file.display()
            )));
        }
        let clocks = match wanted_clocks(&self.root, &config, &self.cpus_there()) {
            Ok(clocks) => clocks,
            Err(error) => return self.say(&kept(error)),
        };
        if let Err(error) = wanted_uncore(&self.root, &config, &self.cpus_there()) {
            return self.say(&kept(error));
        }
        let mut before = std::mem::replace(&mut self.config, config);
        // A lease's service is no part of the file.
        let of_leases = self.leased_services();
        before.services.retain(|service| !of_leases.contains(service));
        self.config.services.extend(of_leases.iter().cloned());
        self.end_leases_not_admitted();
        let of_leases = self.leased_services();
        self.reload_controllers();
        if (&before.socket, &before.metrics, &before.audit)
            != (&self.config.socket, &self.config.metrics, &self.config.audit)
        {
            self.say("socket, metrics and audit are taken when the daemon starts: restart it to move them");
        }
        if let Err(error) = self.hold() {
            self.say(&error.to_string());
        }
        let is_other = before.clock_means() != self.config.clock_means();
        if self.clocks.as_ref().is_some_and(|held| is_other || !held.is_for(&clocks)) {
            self.hold_clocks_anew(&before);
        } else if let Err(error) = self.hold_clocks() {
            self.say(&error.to_string());
        }
        if let Err(error) = self.hold_uncore() {
            self.say(&error.to_string());
        }
        match self.hold_park() {
            Err(error) => self.say(&error.to_string()),
            Ok(()) => {
                for slot in &mut self.slots {
                    if let State::Governed { governed, .. } = &mut slot.state {
                        governed.keep_others_off(self.park.as_ref());
                    }
                }
            }
        }
        let (mut old, leased): (Vec<Slot>, Vec<Slot>) =
            std::mem::take(&mut self.slots).into_iter().partition(|slot| slot.owner == Owner::Config);
        self.slots = leased;
        for config in self.config.services.clone() {
            if of_leases.contains(&config) {
                continue;
            }
            let same = old.iter().position(|slot| {
                slot.config.name == config.name
                    && slot.config.target == config.target
                    && slot.config.cpus == config.cpus
                    && slot.config.actuator == config.actuator
                    && slot.config.hotplug == config.hotplug
                    // Whether it has operating points and counters is found out when it is opened.
                    && slot.config.frequency == config.frequency
                    && slot.config.uncore == config.uncore
                    && slot.config.telemetry == config.telemetry
                    // A policy of one's own begins anew with its file.
                    && (slot.config.policy == config.policy
                        || !slot.config.policy.is_own() && !config.policy.is_own())
            });
            match same.map(|at| old.swap_remove(at)) {
                Some(mut slot) => {
                    let mut report = EpochReport::default();
                    if let State::Governed { governed, .. } = &mut slot.state {
                        governed.set_epoch(self.config.epoch);
                    }
                    if let State::Governed { governed, .. } = &mut slot.state
                        && slot.config != config
                    {
                        governed.reload(
                            linux::now(),
                            &config,
                            self.config.epoch,
                            self.holder.as_mut(),
                            &mut report,
                        );
                    }
                    slot.config = config;
                    self.slots.push(slot);
                    self.tell(report);
                }
                None => {
                    // Its CPUs may be held by the service of the same name that goes.
                    if let Some(at) = old.iter().position(|slot| slot.config.name == config.name) {
                        self.let_go(old.swap_remove(at));
                    }
                    let found = self.opened(config, Owner::Config);
                    self.take(found);
                }
            }
        }
        old.into_iter().for_each(|slot| self.let_go(slot));
        let lending = self.hold_lending();
        self.tell_of_lending(lending);
        self.say(&format!("{} read again", file.display()));
    }
}

impl Daemon {
    fn leased_services(&self) -> Vec<ServiceConfig> {
        self.leases.values().flat_map(|lease| lease.part.services.iter().cloned()).collect()
    }

    /// Controllers whose table is as it was go on; the others end, and new ones begin.
    fn reload_controllers(&mut self) {
        let wanted: Vec<Table> = self.config.part().tables();
        self.drop_controllers(|hosted| hosted.owner == Owner::Config && !wanted.contains(&hosted.table));
        for table in wanted {
            if !self.controllers.iter().any(|hosted| hosted.table == table) {
                self.controllers.push(Hosted::new(table, Owner::Config));
            }
        }
    }
}

fn kept(reason: impl Display) -> String {
    format!("the configuration is not taken, the earlier one stays: {reason}")
}
