//! The Prometheus page of a running store (`--metrics`), and its status as JSON, on a thread of their own.
//!
//! Everything comes from the same [`Status`] as `stats roost`. Nobody asking costs nothing: the thread has no timer.

use crate::exit::usage;
use anyhow::{Context as _, Result};
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use server::Inspector;
use server::status::Status;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Begins to answer at `address`; returns the address with the port that was chosen.
pub fn serve(address: SocketAddr, inspector: Arc<Inspector>) -> Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(address).map_err(|error| {
        usage(format!("cannot serve metrics at {address}: {error}\nhint: choose another with --metrics (port 0 lets the system choose)"))
    })?;
    listener.set_nonblocking(true).context("preparing the metrics page")?;
    let address = listener.local_addr().context("preparing the metrics page")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("preparing the metrics page")?;
    let json = Arc::clone(&inspector);
    let router = Router::new()
        .route(
            "/metrics",
            get(async move || {
                answer(&inspector, page, "application/openmetrics-text; version=1.0.0; charset=utf-8")
            }),
        )
        .route("/status.json", get(async move || answer(&json, as_json, "application/json")));
    std::thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listening socket");
                // Ends with the process; a failed accept is retried by axum.
                let _ = axum::serve(listener, router).await;
            });
        })
        .context("preparing the metrics page")?;
    Ok(address)
}

fn answer(inspector: &Inspector, compose: fn(&Status) -> String, kind: &'static str) -> Response {
    match inspector.status() {
        Some(status) => ([(header::CONTENT_TYPE, kind)], compose(&status)).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the store has ended\n").into_response(),
    }
}

fn as_json(status: &Status) -> String {
    serde_json::to_string(status).expect("plain figures")
}

/// The metrics page in the OpenMetrics text format.
fn page(status: &Status) -> String {
    let mut text = String::new();
    let mut registry = prometheus_client::registry::Registry::with_prefix("roost");
    registry.register_collector(Box::new(Snapshot(status.clone())));
    text::encode(&mut text, &registry).expect("writing to a string");
    text
}

/// A status as the source of metrics.
#[derive(Debug)]
struct Snapshot(Status);

impl prometheus_client::collector::Collector for Snapshot {
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
        page.histogram(
            "transfer_time",
            "From leaving one epoll set to the first read by the other, awake or asleep.",
            Unit::Seconds,
            transfers.total.as_secs_f64(),
            count,
            &buckets,
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
        let of = |value: fn(&server::status::WorkerStatus) -> f64| {
            workers.iter().map(move |worker| ([("worker", worker.worker.0.to_string())], value(worker)))
        };
        page.gauge(
            "worker_active",
            "1 while the worker serves, 0 while its CPU may sleep.",
            None,
            of(|w| f64::from(u8::from(w.active))),
        )?;
        page.gauge(
            "worker_load",
            "Requests per second that the worker's connections send.",
            None,
            of(|w| w.load.as_per_second()),
        )?;
        let limits = workers.iter().filter_map(|worker| {
            Some(([("worker", worker.worker.0.to_string())], worker.limit?.as_per_second()))
        });
        page.gauge(
            "worker_limit",
            "Requests per second that the worker has learned to be acceptable.",
            None,
            limits,
        )?;
        page.gauge(
            "worker_residents",
            "Connections served where they are at home.",
            None,
            of(|w| f64::from(w.residents)),
        )?;
        page.gauge("worker_guests", "Connections served away from home.", None, of(|w| f64::from(w.guests)))?;
        page.counter("worker_requests", "Requests served by the worker.", None, of(|w| w.requests as f64))?;
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

/// A name, a unit and a sentence for each metric, beside its values.
struct Page<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Page<'_, '_> {
    fn counter<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        values: impl IntoIterator<Item = ([(&'static str, String); N], f64)>,
    ) -> fmt::Result {
        use prometheus_client::metrics::counter::ConstCounter;
        self.family(name, help, unit, MetricType::Counter, values, ConstCounter::new)
    }

    fn gauge<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        values: impl IntoIterator<Item = ([(&'static str, String); N], f64)>,
    ) -> fmt::Result {
        use prometheus_client::metrics::gauge::ConstGauge;
        self.family(name, help, unit, MetricType::Gauge, values, ConstGauge::new)
    }

    /// `buckets`: upper bound and how many lie between it and the bound before.
    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        unit: Unit,
        sum: f64,
        count: u64,
        buckets: &[(f64, u64)],
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, Some(&unit), MetricType::Histogram)?;
        encoder.encode_histogram::<[(&str, &str); 0]>(sum, count, buckets, None)
    }

    fn family<const N: usize, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        kind: MetricType,
        values: impl IntoIterator<Item = ([(&'static str, String); N], f64)>,
        metric: impl Fn(f64) -> M,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in values {
            metric(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
