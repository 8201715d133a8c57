//! Turns the table of clients into a closed loop or a bound on each connection.

use super::{Clients, Document, ScenarioError, Spread};
use crate::engine::{Closed, Depth, Measured, Pause, Phases};

impl Document {
    /// The closed loop of a `count` of clients, or else the depth of the load's own connections.
    pub(super) fn clients(&self, table: &Clients) -> Result<(Option<Closed>, Option<Depth>), ScenarioError> {
        let wrong = |key: &str, problem: &str, fix: &str| {
            Err(self.wrong(&format!("server.clients.{key}"), problem, fix))
        };
        if table.depth == Some(0) {
            return wrong("depth", "0", "at least one request outstanding");
        }
        let has_phases = table.in_step || table.phases.is_some();
        let Some(count) = table.count else {
            let of_loop = [
                ("think", table.think.is_some()),
                ("cycle", table.cycle.is_some()),
                ("in_step", table.in_step),
                ("phases", table.phases.is_some()),
                ("timer", table.timer),
            ];
            if let Some((key, _)) = of_loop.iter().find(|(_, is_set)| *is_set) {
                return wrong(
                    key,
                    "belongs to a closed loop, and none is there",
                    "add count, the number of clients",
                );
            }
            let Some(requests) = table.depth else {
                let fix =
                    "add count and think or cycle for a closed loop, or depth for connections of the load";
                return wrong("count", "missing, and depth as well", fix);
            };
            return Ok((None, Some(Depth { requests, measured: table.measured })));
        };
        if count == 0 {
            return wrong("count", "0", "at least one client");
        }
        if table.measured == Measured::Due {
            let fix = "leave it out: nothing waits at a client that sends after a reply";
            return wrong("measured", "`due` in a closed loop", fix);
        }
        let depth = table.depth.unwrap_or(1);
        let Some(clients) = count.checked_mul(depth).filter(|&clients| clients <= CLIENTS_MAX) else {
            return wrong("count", &format!("{count} times depth {depth}"), "at most 1000000 in all");
        };
        let pause = match (&table.think, &table.cycle) {
            (Some(_), Some(_)) => return wrong("cycle", "stands beside think", "give one of the two"),
            (None, None) => {
                let fix = "add think = { exponential = \"1ms\" }, or cycle = { deterministic = \"1s\" }";
                return wrong("think", "missing, and cycle as well", fix);
            }
            (Some(_), None) if has_phases => {
                let key = if table.in_step { "in_step" } else { "phases" };
                return wrong(key, "needs a cycle, and there is a pause", "write cycle in place of think");
            }
            (Some(think), None) => Pause::Think(self.sampler("server.clients.think", think)?),
            (None, Some(_)) if depth > 1 => {
                let fix = "leave it out: a client with a cycle has one request outstanding";
                return wrong("depth", "stands beside cycle", fix);
            }
            (None, Some(cycle)) => {
                let phases = match (table.in_step, table.phases) {
                    (true, Some(_)) => {
                        return wrong("phases", "stands beside in_step", "give one of the two");
                    }
                    (true, None) => Phases::InStep,
                    (false, Some(Spread::Even)) => Phases::Even,
                    (false, Some(Spread::Random) | None) => Phases::Random,
                };
                Pause::Cycle { length: self.sampler("server.clients.cycle", cycle)?, phases }
            }
        };
        Ok((Some(Closed { clients, depth, pause, timer: table.timer }), None))
    }
}

/// As many as a load may have connections.
const CLIENTS_MAX: u32 = 1_000_000;
