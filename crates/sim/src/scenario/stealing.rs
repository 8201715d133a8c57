//! Turns the table of work stealing into its cost.

use super::{Document, ScenarioError, Server};
use crate::engine::Dispatch;
use machine::Duration;

impl Document {
    /// The CPU time that a stolen request costs, if workers steal.
    pub(super) fn stealing(&self, server: &Server) -> Result<Option<Duration>, ScenarioError> {
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
        Ok(Some(table.cost.0))
    }
}
