//! Turns the table of a device into the engine's own.

use super::{Document, ScenarioError, Server};
use crate::engine::{Device, Dispatch};

impl Document {
    /// The device that every request calls, checked.
    pub(super) fn device(&self, server: &Server) -> Result<Option<Device>, ScenarioError> {
        let Some(table) = &server.device else { return Ok(None) };
        let forks = server.dispatch == Dispatch::ForkJoin;
        let before = table.before.unwrap_or(if forks { 1.0 } else { 0.5 });
        let wrong = |problem: String, fix: &str| Err(self.wrong("server.device.before", problem, fix));
        if !(0.0..=1.0).contains(&before) {
            return wrong(before.to_string(), "a share from 0 to 1");
        }
        if forks && before != 1.0 {
            let fix = "leave it out: all shards come before the call";
            return wrong(format!("{before} beside a request that forks"), fix);
        }
        Ok(Some(Device {
            latency: self.sampler("server.device.latency", &table.latency)?,
            before,
            interrupt: table.interrupt.0,
            on: table.on.clone(),
            wait: table.wait,
        }))
    }
}
