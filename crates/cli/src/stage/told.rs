//! The live view and the results, in a terminal.

use super::cells;
use crate::table::Table;
use ::proxy::{Burst, Status};
use machine::{Duration, Rate};
use report::terminal::{ClassNow, ServerNow, StageView};
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt::Write as _;

pub fn summary(status: &Status) -> String {
    let [classes, servers] = [cells::classes(status), cells::servers(status)].map(|cells| {
        let mut table = Table::new(1, cells.head);
        cells.rows.into_iter().for_each(|row| table.row(row));
        table
    });
    let mut text = format!("goal {}\n{}\n{}", status.goal, classes.text(), servers.text());
    let counts = status.counts();
    let lost = [
        (counts.failed, "no server answered (502)"),
        (counts.timed_out, "no server answered in time (504)"),
        (counts.no_memory, "no memory for the body (503)"),
        (counts.refused, "refused for what they were (4xx)"),
        (counts.broke_off, "answers that broke off"),
        (counts.retried, "sent again"),
    ];
    for (count, what) in lost.iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(text, "{count}: {what}");
    }
    if let Some(why) = &status.last_failure {
        let _ = writeln!(text, "the last failure: {why}");
    }
    text
}

/// A running proxy's own word, as text.
pub fn status(status: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let time = |value: &Value| {
        value.as_u64().map_or_else(|| "-".to_owned(), |nanos| Duration::from_nanos(nanos).to_string())
    };
    let mut all = format!("goal {}, {} connections\n", text(&status["goal"]), status["connections"]);
    for server in status["servers"].as_array().into_iter().flatten() {
        let state = if server["is_up"] == Value::Bool(true) { "up" } else { "DOWN" };
        let _ = writeln!(
            all,
            "{}: {state}, {} held, {} in service, {} bursts, leads by {}",
            text(&server["name"]),
            server["held"],
            server["in_service"],
            server["bursts"],
            time(&server["lead_ns"])
        );
    }
    for class in status["classes"].as_array().into_iter().flatten() {
        let (counts, latency) = (&class["counts"], &class["latency"]);
        let _ = writeln!(
            all,
            "{}: {} came, {} answered, {} late; p50 {}, p99.9 {}, held {} on average",
            text(&class["name"]),
            counts["arrived"],
            counts["answered"],
            counts["late"],
            time(&latency["p50_ns"]),
            time(&latency["p999_ns"]),
            time(&class["held"]["mean_ns"])
        );
    }
    all
}

/// The live view as it grows.
pub struct View {
    shown: StageView,
    is_wanted: bool,
    last: Option<(Duration, u64)>,
}

impl View {
    /// Before the first status; `is_wanted` is false without a reader.
    pub fn new(is_wanted: bool) -> Self {
        Self { shown: StageView::default(), is_wanted, last: None }
    }

    pub fn shown(&self) -> &StageView {
        &self.shown
    }

    pub fn tick(&mut self, at: Duration, status: &Status, bursts: &[VecDeque<Burst>]) {
        if !self.is_wanted {
            return;
        }
        let answered = status.counts().answered;
        let rate = self.last.map(|(before, count)| Rate::of(answered - count, at - before));
        self.last = Some((at, answered));
        let view = &mut self.shown;
        view.goal = status.goal.to_string();
        view.at = at;
        view.rate = rate;
        view.connections = status.connections;
        view.memory = (status.memory, status.memory_limit);
        view.servers.resize_with(status.servers.len(), ServerNow::default);
        for (number, server) in status.servers.iter().enumerate() {
            let now = &mut view.servers[number];
            now.name.clone_from(&server.name);
            now.is_up = server.is_up;
            (now.held, now.in_service, now.bursts) = (server.held, server.in_service, server.bursts);
            now.lead = server.lead;
            let sizes = bursts.get(number).into_iter().flatten().map(|burst| burst.released);
            now.sizes.extend(sizes);
            let more = now.sizes.len().saturating_sub(SIZES_KEPT);
            now.sizes.drain(..more);
        }
        view.classes = status
            .classes
            .iter()
            .map(|class| ClassNow {
                name: class.name.clone(),
                answered: class.counts.answered,
                late: class.counts.late,
                p50: class.latency.p50,
                tail: class.latency.goal,
                held: class.held.mean,
            })
            .collect();
        view.lost = status.last_failure.clone();
    }
}

/// As many as the widest terminal has columns.
const SIZES_KEPT: usize = 400;
