//! The page of a staged-burst proxy (`roost stage --metrics`), and its status as JSON.

use super::{Names, Page};
use ::proxy::{ClassStatus, ServerStatus, Status};
use anyhow::Result;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use std::fmt;
use std::net::SocketAddr;

/// Begins to answer at `address`; returns the address with the port that was chosen.
pub fn serve(
    address: SocketAddr,
    names: &Names,
    look: impl Fn() -> Option<Status> + Send + Sync + 'static,
) -> Result<SocketAddr> {
    super::serve_status(address, names, look, Snapshot)
}

/// A status as the source of metrics.
#[derive(Debug)]
struct Snapshot(Status);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Self(status) = self;
        let mut page = Page(&mut encoder);
        let servers = |value: fn(&ServerStatus) -> f64| {
            let of = move |server: &ServerStatus| ([("server", server.name.clone())], value(server));
            status.servers.iter().map(of).collect::<Vec<_>>()
        };
        let classes = |value: fn(&ClassStatus) -> f64| {
            let of = move |class: &ClassStatus| ([("class", class.name.clone())], value(class));
            status.classes.iter().map(of).collect::<Vec<_>>()
        };
        page.gauge(
            "stage_connections",
            "Connections of clients.",
            None,
            [([], f64::from(status.connections))],
        )?;
        page.gauge("stage_bodies", "Memory of all bodies.", Some(Unit::Bytes), [([], status.memory as f64)])?;
        page.gauge(
            "stage_up",
            "1 if the server answered when it was last asked.",
            None,
            servers(|s| f64::from(u8::from(s.is_up))),
        )?;
        page.gauge(
            "stage_held",
            "Requests that wait for the server's next burst.",
            None,
            servers(|s| s.held as f64),
        )?;
        page.gauge(
            "stage_in_service",
            "Requests that were held and that the server works on.",
            None,
            servers(|s| s.in_service as f64),
        )?;
        page.counter(
            "stage_failures",
            "Requests that the server failed.",
            None,
            servers(|s| s.failures as f64),
        )?;
        let leads = status
            .servers
            .iter()
            .filter_map(|server| Some(([("server", server.name.clone())], server.lead?.as_secs_f64())));
        page.gauge(
            "stage_lead",
            "How long before its deadline a request goes at the latest: a burst's measured tail and the margin.",
            Some(Unit::Seconds),
            leads.collect::<Vec<_>>(),
        )?;
        let bursts = status.servers.iter().flat_map(|server| {
            let record = server.stage;
            [
                ("period", record.by_period),
                ("deadline", record.by_deadline),
                ("full", record.by_full),
                ("way", record.by_giving_way),
                ("drain", record.by_drain),
            ]
            .map(|(why, count)| ([("server", server.name.clone()), ("why", why.to_owned())], count as f64))
        });
        page.counter(
            "stage_bursts",
            "Bursts, by the reason that made them go.",
            None,
            bursts.collect::<Vec<_>>(),
        )?;
        page.counter("stage_arrived", "Requests that came.", None, classes(|c| c.counts.arrived as f64))?;
        page.counter(
            "stage_late",
            "Answers later than their deadline.",
            None,
            classes(|c| c.counts.late as f64),
        )?;
        page.counter("stage_retried", "Requests sent again.", None, classes(|c| c.counts.retried as f64))?;
        let ends = status.classes.iter().flat_map(|class| {
            let counts = class.counts;
            [
                ("answered", counts.answered),
                ("refused", counts.refused),
                ("no_memory", counts.no_memory),
                ("failed", counts.failed),
                ("timed_out", counts.timed_out),
                ("gone", counts.gone),
                ("broke_off", counts.broke_off),
            ]
            .map(|(end, count)| ([("class", class.name.clone()), ("end", end.to_owned())], count as f64))
        });
        page.counter("stage_ended", "Requests, by how they ended.", None, ends.collect::<Vec<_>>())?;
        for (name, help, times) in [
            (
                "stage_latency",
                "From a request's arrival to its answer's end, since the beginning.",
                (|c| c.latency) as fn(&ClassStatus) -> _,
            ),
            ("stage_holding", "How long requests were held, since the beginning.", |c| c.held),
        ] {
            let values = status.classes.iter().filter(|class| times(class).count > 0).flat_map(|class| {
                let times: ::proxy::Times = times(class);
                [("0.5", times.p50), ("0.99", times.p99), ("0.999", times.p999), ("1", times.max)].map(
                    |(quantile, time)| {
                        (
                            [("class", class.name.clone()), ("quantile", quantile.to_owned())],
                            time.as_secs_f64(),
                        )
                    },
                )
            });
            page.gauge(name, help, Some(Unit::Seconds), values.collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Of a proxy without servers and classes.
    pub fn empty() -> String {
        let status = serde_json::json!({
            "goal": "500ms@p99", "hold": true, "connections": 0, "memory": 0, "memory_limit": 1,
            "servers": [], "classes": [],
        });
        super::super::page(Snapshot(serde_json::from_value(status).unwrap()))
    }
}
