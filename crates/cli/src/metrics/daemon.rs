//! The page of the daemon (`roost daemon --metrics`): services, and all controllers that run.

use super::{METRICS, Names, Route, page};
use anyhow::Result;
use daemon::{ControllerStatus, Event, Snapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// A daemon that does not answer by then has ended, or hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Begins to answer at `address`; returns the address with the port that was chosen.
pub fn serve(address: SocketAddr, names: &Names, daemon: Sender<Event>) -> Result<SocketAddr> {
    let compose = move || {
        let (sender, snapshot) = channel();
        daemon.send(Event::Snapshot(sender)).ok()?;
        snapshot.recv_timeout(PATIENCE).ok().map(|snapshot| page(All(snapshot)))
    };
    super::serve(address, names, vec![Route { path: "/metrics", kind: METRICS, compose: Arc::new(compose) }])
}

#[derive(Debug)]
struct All(Snapshot);

impl Collector for All {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Snapshot { services, controllers } = &self.0;
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

    pub fn page_of(services: Vec<daemon::Status>) -> String {
        page(All(Snapshot { services, controllers: Vec::new() }))
    }
}
