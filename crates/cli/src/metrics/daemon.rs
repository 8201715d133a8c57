//! The page of the daemon (`roost daemon --metrics`): services, and all controllers that run.

use super::{METRICS, Names, Page, Route, page};
use anyhow::Result;
use daemon::{ControllerStatus, Event, Snapshot};
use linux::Root;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use std::fmt;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A daemon that does not answer by then has ended, or hangs. Journals are looked for as seldom.
const PATIENCE: Duration = Duration::from_secs(5);

/// Begins to answer at `address`; returns the address with the port that was chosen.
pub fn serve(address: SocketAddr, names: &Names, daemon: Sender<Event>) -> Result<SocketAddr> {
    let began_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let looked = Mutex::new((None, 0));
    let compose = move || {
        // A look excludes `roost restore` for a moment, so that strangers must not ask for many.
        let mut looked = looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.0.is_none_or(|at: Instant| at.elapsed() >= PATIENCE) {
            *looked = (Some(Instant::now()), linux::restore_pending(&Root::system()));
        }
        let pending = looked.1;
        drop(looked);
        let (sender, snapshot) = channel();
        daemon.send(Event::Snapshot(sender)).ok()?;
        snapshot.recv_timeout(PATIENCE).ok().map(|snapshot| page(All { snapshot, began_s, pending }))
    };
    super::serve(address, names, vec![Route { path: "/metrics", kind: METRICS, compose: Arc::new(compose) }])
}

#[derive(Debug)]
struct All {
    snapshot: Snapshot,
    began_s: f64,
    pending: usize,
}

impl Collector for All {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Snapshot { services, controllers, lent } = &self.snapshot;
        let mut page = Page(&mut encoder);
        let pending = "Journals that killed runs have left and `roost restore` has yet to follow.";
        page.gauge("restore_pending", pending, None, [([], self.pending as f64)])?;
        let began = "When the daemon began, in seconds since 1970.";
        page.gauge("start_time", began, Some(Unit::Seconds), [([], self.began_s)])?;
        if let Some(lent) = lent {
            let of = |value: f64| [([("group", lent.to.clone())], value)];
            let cpus = "CPUs that no service needs and that this group of batch work has now.";
            page.gauge("lent_cpus", cpus, None, of(lent.cpus.0.len() as f64))?;
            if let Some(used) = lent.used {
                let help = "CPU time that the group has had since it was taken hold of.";
                page.counter("lent_cpu", help, Some(Unit::Seconds), of(used.as_secs_f64()))?;
            }
        }
        super::govern::encode(services, &mut encoder)?;
        let quiesce = controllers.iter().filter_map(|(name, status)| match status {
            ControllerStatus::Quiesce(status) => Some((name.as_str(), &**status)),
            _ => None,
        });
        super::quiesce::encode(&quiesce.collect::<Vec<_>>(), &mut encoder)?;
        let hurry_up = controllers.iter().filter_map(|(name, status)| match status {
            ControllerStatus::HurryUp(status) => Some((name.as_str(), &**status)),
            _ => None,
        });
        super::hurry_up::encode(&hurry_up.collect::<Vec<_>>(), &mut encoder)?;
        let wake = controllers.iter().find_map(|(_, status)| match status {
            ControllerStatus::Wake(status) => Some(&**status),
            _ => None,
        });
        wake.map_or(Ok(()), |status| super::wake::encode(status, &mut encoder))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn page_of_wake() -> String {
        #[derive(Debug)]
        struct Wake(daemon::wake::WakeStatus);
        impl Collector for Wake {
            fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
                crate::metrics::wake::encode(&self.0, &mut encoder)
            }
        }
        page(Wake(crate::wake::page::tests::status(9, 300)))
    }

    fn lent() -> Option<daemon::Lent> {
        let used = Some(machine::Duration::from_millis(1500));
        Some(daemon::Lent { to: "batch.slice".to_owned(), cpus: "2-3".parse().unwrap(), used })
    }

    pub fn page_of(services: Vec<daemon::Status>) -> String {
        page(All {
            snapshot: Snapshot { services, controllers: Vec::new(), lent: lent() },
            began_s: 1.5e9,
            pending: 1,
        })
    }
}
