//! The page of a running store (`roost serve --metrics`), and its status as JSON. Everything comes
//! from the same [`Status`] as `stats roost`.

use super::{Buckets, Names, Page};
use anyhow::Result;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use store::Inspector;
use store::status::{Status, WorkerStatus};

/// Begins to answer at `address`; returns the address with the port that was chosen.
pub fn serve(address: SocketAddr, names: &Names, inspector: Arc<Inspector>) -> Result<SocketAddr> {
    super::serve_status(address, names, move || inspector.status(), Snapshot)
}

/// A status as the source of metrics.
#[derive(Debug)]
struct Snapshot(Status);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let status = &self.0;
        let mut page = Page(&mut encoder);
        page.counter("requests", "Requests served.", None, [([], status.requests as f64)])?;
        page.gauge(
            "connections",
            "Client connections open now.",
            None,
            [([], f64::from(status.connections))],
        )?;
        page.gauge("items", "Items held.", None, [([], status.items as f64)])?;
        page.gauge(
            "memory_used",
            "Memory charged to the limit.",
            Some(Unit::Bytes),
            [([], status.memory_used as f64)],
        )?;
        page.gauge(
            "memory_limit",
            "The memory limit.",
            Some(Unit::Bytes),
            [([], status.memory_limit as f64)],
        )?;
        let transfers = &status.transfers;
        page.counter(
            "transfers",
            "Connections that moved to another worker.",
            None,
            [
                ([("why", "ordered".to_owned())], transfers.ordered as f64),
                ([("why", "send_home".to_owned())], transfers.send_home as f64),
            ],
        )?;
        let count = transfers.to_awake + transfers.to_sleeper;
        let mut buckets: Vec<(f64, u64)> = Vec::new();
        let mut below = 0;
        for &(bound, at_most) in &transfers.histogram {
            buckets.push((bound.as_secs_f64(), at_most - below));
            below = at_most;
        }
        buckets.push((f64::INFINITY, count - below));
        let none: [(&'static str, String); 0] = [];
        page.histogram(
            "transfer_time",
            "From leaving one epoll set to the first read by the other, awake or asleep.",
            Unit::Seconds,
            [(none, Buckets { sum: transfers.total.as_secs_f64(), buckets })],
        )?;
        let latencies = [("0.5", transfers.p50), ("0.99", transfers.p99)];
        let latencies = latencies.into_iter().filter_map(|(quantile, latency)| {
            Some(([("quantile", quantile.to_owned())], latency?.as_secs_f64()))
        });
        page.gauge(
            "transfer_latency",
            "From leaving one epoll set to the first read by the other, which was awake.",
            Some(Unit::Seconds),
            latencies,
        )?;
        self.workers(&mut page)?;
        self.cpus(&mut page)?;
        if let Some(energy) = &status.energy {
            page.counter(
                "energy",
                "Energy used since the start; the source label says whether it was measured.",
                Some(Unit::Joules),
                [([("source", energy.source.to_string())], energy.used.as_joules())],
            )?;
        }
        Ok(())
    }
}

impl Snapshot {
    fn workers(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let workers = &self.0.workers;
        let of = |value: fn(&WorkerStatus) -> f64| {
            workers.iter().map(move |worker| ([("worker", worker.worker.0.to_string())], value(worker)))
        };
        let mut gauge =
            |name: &str, help: &str, value: fn(&WorkerStatus) -> f64| page.gauge(name, help, None, of(value));
        gauge("worker_active", "1 while the worker serves, 0 while its CPU may sleep.", |w| {
            f64::from(u8::from(w.active))
        })?;
        gauge("worker_load", "Requests per second that the worker's connections send.", |w| {
            w.load.as_per_second()
        })?;
        gauge("worker_residents", "Connections served where they are at home.", |w| f64::from(w.residents))?;
        gauge("worker_guests", "Connections served away from home.", |w| f64::from(w.guests))?;
        let limits = workers.iter().filter_map(|worker| {
            Some(([("worker", worker.worker.0.to_string())], worker.limit?.as_per_second()))
        });
        page.gauge(
            "worker_limit",
            "Requests per second, of the kind served last, that the worker can carry.",
            None,
            limits,
        )?;
        page.counter("worker_requests", "Requests served by the worker.", None, of(|w| w.requests as f64))?;
        page.counter(
            "worker_stolen_turns",
            "Turns that the worker took for others' connections.",
            None,
            of(|w| w.stolen as f64),
        )?;
        page.counter(
            "worker_busy",
            "Time spent working.",
            Some(Unit::Seconds),
            of(|w| w.busy.as_secs_f64()),
        )?;
        page.counter(
            "worker_awake",
            "Time spent active.",
            Some(Unit::Seconds),
            of(|w| w.awake.as_secs_f64()),
        )?;
        let tails = workers.iter().filter_map(|worker| {
            Some(([("worker", worker.worker.0.to_string())], worker.tail?.as_secs_f64()))
        });
        page.gauge(
            "worker_tail_p99",
            "99th percentile from ready to replied, inside the server.",
            Some(Unit::Seconds),
            tails,
        )
    }

    fn cpus(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let cpus = &self.0.cpus;
        let limits = cpus.iter().filter_map(|cpu| match cpu.limit {
            machine::IdleLimit::ExitLatency(latency) if cpu.in_force == Some(true) => {
                Some(([("cpu", cpu.cpu.0.to_string())], latency.as_secs_f64()))
            }
            _ => None,
        });
        page.gauge(
            "cpu_idle_limit",
            "Exit latency that the CPU's idle states are limited to, where a limit is in force.",
            Some(Unit::Seconds),
            limits,
        )?;
        let busy =
            cpus.iter().filter_map(|cpu| Some(([("cpu", cpu.cpu.0.to_string())], cpu.busy?.as_secs_f64())));
        page.counter("cpu_busy", "Time that the CPU was not idle.", Some(Unit::Seconds), busy)?;
        let residency = cpus.iter().flat_map(|cpu| {
            cpu.residency.iter().map(|(state, time)| {
                ([("cpu", cpu.cpu.0.to_string()), ("state", state.clone())], time.as_secs_f64())
            })
        });
        page.counter("cpu_idle", "Time in each idle state as requested.", Some(Unit::Seconds), residency)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// With every figure that a store may have.
    pub fn everything() -> String {
        let status = serde_json::json!({
            "uptime": 2_000_000_000, "policy": "peafowl",
            "workers": [{
                "worker": 0, "cpu": 0, "active": true, "load": 900.0, "limit": 5000.0, "residents": 3,
                "guests": 1, "requests": 1800, "busy": 400_000_000, "awake": 2_000_000_000, "tail": 250_000,
            }],
            "cpus": [{
                "cpu": 0, "limit": { "exit_latency": 1000 }, "in_force": true,
                "residency": [["POLL", 7000]], "busy": 400_000_000,
            }],
            "transfers": {
                "ordered": 2, "send_home": 1, "to_awake": 3, "p50": 4000, "p99": 9000, "max": 9000,
                "sleeper_p50": null, "sleeper_p99": null, "histogram": [[5000, 2], [10000, 3]],
                "total": 17000, "last_sent_home": null, "scale_ups": [], "scale_ups_began": [],
            },
            "requests": 1800, "connections": 4, "items": 12, "memory_used": 4096, "memory_limit": 8192,
            "meters_read": 0, "energy": { "used": 9_000_000, "source": { "modelled": "a table" } },
        });
        super::super::page(Snapshot(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn a_page_has_the_figures_of_the_status() {
        let page = everything();
        for line in [
            "roost_worker_limit{worker=\"0\"} 5000",
            "roost_worker_tail_p99_seconds{worker=\"0\"} 0.00025",
            "roost_transfer_time_seconds_bucket{le=\"0.00001\"} 3",
            "roost_cpu_idle_limit_seconds{cpu=\"0\"} 0.000001",
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
    }
}
