//! What all connections of a proxy share.

use crate::backend::Backend;
use crate::budget::Budget;
use crate::config::{Config, ConfigError};
use crate::routes::{Classes, Routes};
use crate::stage::Stage;
use crate::status::Books;
use crate::timetable::Timetable;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// A server and its stage.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) backend: Backend,
    pub(crate) stage: Arc<Stage>,
}

/// A proxy's state.
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

/// Why it cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MakeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Record(#[from] io::Error),
}

impl Shared {
    /// `record` is the folder for logs of what the stages' policies are told.
    pub(crate) fn new(config: Config, record: Option<&Path>) -> Result<Self, MakeError> {
        config.check()?;
        let mut servers = Vec::new();
        let timetable = Timetable::new(config.servers.len());
        for (number, server) in config.servers.iter().enumerate() {
            let log = record.map(|folder| (folder, server.shown()));
            let stage = Stage::new(config.stage_of(number), log, timetable.line(number))?;
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
