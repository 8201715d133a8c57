//! Turns the table of work stealing into the engine's.

use super::{Document, ScenarioError, Server};
use crate::engine::{Dispatch, Stealing};
use machine::Duration;

impl Document {
    /// How workers steal, if they do.
    pub(super) fn stealing(&self, server: &Server) -> Result<Option<Stealing>, ScenarioError> {
        let Some(table) = server.stealing else { return Ok(None) };
        let wrong = |problem: &str, fix: &str| Err(self.wrong("server.stealing", problem, fix));
        if server.dispatch != Dispatch::Connections {
            let fix = "set server.dispatch = \"connections\", or leave the table out";
            return wrong("without a queue for each worker's connections", fix);
        }
        if server.device.is_some() {
            let fix = "leave out one of the two: a thread that waits for a device stays on its core";
            return wrong("beside a device", fix);
        }
        let after = table.after.map_or(Duration::ZERO, |after| after.0);
        Ok(Some(Stealing { cost: table.cost.0, after }))
    }
}
