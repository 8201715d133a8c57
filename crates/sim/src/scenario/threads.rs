//! `[server.threads]`: threads that share one queue.

use super::{Document, ScenarioError, Server};
use crate::engine::{Dispatch, Threads};

impl Document {
    pub(super) fn threads(&self, server: &Server) -> Result<Option<Threads>, ScenarioError> {
        let Some(table) = server.threads else { return Ok(None) };
        if table.count == 0 {
            return Err(self.wrong("server.threads.count", "0", "give 1 or more"));
        }
        if server.dispatch != Dispatch::Shared || server.device.is_some() || server.shards.is_some() {
            let problem = "threads share one queue of whole requests";
            let fix =
                "leave out server.threads, or set server.dispatch = \"shared\" without device and shards";
            return Err(self.wrong("server.threads", problem, fix));
        }
        Ok(Some(Threads { count: table.count, before: table.before.0, after: table.after.0 }))
    }
}
