//! `[server.threads]`: threads that share one queue.

use super::{Document, ScenarioError, Server};
use crate::engine::{Dispatch, Held, Threads};

impl Document {
    pub(super) fn threads(&self, server: &Server) -> Result<Option<Threads>, ScenarioError> {
        let Some(table) = &server.threads else { return Ok(None) };
        if table.count == 0 {
            return Err(self.wrong("server.threads.count", "0", "give 1 or more"));
        }
        if server.dispatch != Dispatch::Shared || server.device.is_some() || server.shards.is_some() {
            let problem = "threads share one queue of whole requests";
            let fix =
                "leave out server.threads, or set server.dispatch = \"shared\" without device and shards";
            return Err(self.wrong("server.threads", problem, fix));
        }
        let held = match (&table.held_every, &table.held_for) {
            (None, None) => None,
            (Some(every), Some(length)) if !every.0.is_zero() => {
                Some(Held { every: every.0, length: self.sampler("server.threads.held_for", length)? })
            }
            (Some(_), Some(_)) => {
                let fix = "give the mean time between two, such as 30ms";
                return Err(self.wrong("server.threads.held_every", "0", fix));
            }
            (Some(_), None) => {
                return Err(self.wrong(
                    "server.threads.held_for",
                    "missing",
                    "say for how long, or leave out held_every",
                ));
            }
            (None, Some(_)) => {
                return Err(self.wrong(
                    "server.threads.held_every",
                    "missing",
                    "say how often, or leave out held_for",
                ));
            }
        };
        Ok(Some(Threads { count: table.count, before: table.before.0, after: table.after.0, held }))
    }
}
