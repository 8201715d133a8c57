//! The parts that all connections of a proxy share.

use crate::backend::Backend;
use crate::budget::Budget;
use crate::config::Config;
use crate::proxy::StartError;
use crate::routes::{Classes, Routes};
use crate::stage::Stage;
use crate::status::Books;
use crate::timetable::Timetable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::{OwnedSemaphorePermit, watch};

#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) backend: Backend,
    pub(crate) stage: Arc<Stage>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) routes: Routes,
    pub(crate) classes: Classes,
    pub(crate) servers: Vec<Behind>,
    pub(crate) timetable: Arc<Timetable>,
    pub(crate) budget: Budget,
    pub(crate) books: Books,
    pub(crate) connections: AtomicU32,
}

/// A client's place among the connections, for as long as any of it lives: a tunnel keeps it after
/// HTTP has ended.
#[derive(Debug)]
pub(crate) struct Place {
    shared: Arc<Shared>,
    _permit: Option<OwnedSemaphorePermit>,
    /// Becomes true when the proxy is to end.
    pub(crate) stop: watch::Receiver<bool>,
}

impl Place {
    pub(crate) fn take(
        shared: &Arc<Shared>,
        permit: Option<OwnedSemaphorePermit>,
        stop: watch::Receiver<bool>,
    ) -> Arc<Self> {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { shared: shared.clone(), _permit: permit, stop })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    pub(crate) fn new(config: Config) -> Result<Self, StartError> {
        config.check()?;
        let mut servers = Vec::new();
        let timetable = Timetable::new(config.servers.len());
        for (number, server) in config.servers.iter().enumerate() {
            let log = config.record.as_deref().map(|folder| (folder, server.shown()));
            let stage =
                Stage::new(config.stage_of(number), log, timetable.line(number)).map_err(|cause| {
                    StartError::Record { folder: config.record.clone().unwrap_or_default(), cause }
                })?;
            servers.push(Behind { backend: Backend::new(server, &config.limits)?, stage });
        }
        Ok(Self {
            routes: Routes::of(&config),
            classes: Classes::of(&config),
            servers,
            timetable,
            budget: Budget::new(config.limits.memory),
            books: Books::new(Classes::names(&config)),
            connections: AtomicU32::new(0),
            config,
        })
    }
}
