//! Metrics pages: a running Roost's figures for Prometheus, on a thread of its own.
//!
//! ```text
//!   store.rs        a running store (`roost serve --metrics`)
//!   sleep.rs        how a machine sleeps and a service answers (`roost observe --metrics`)
//!   dashboard.rs    tests: the shipped dashboard shows the figures of that page
//!   daemon.rs       the daemon (`roost daemon --metrics`): one page for all that it runs
//!   govern.rs, hurry_up.rs, quiesce.rs, wake.rs     the parts of that page
//!   stage.rs        a staged-burst proxy (`roost stage --metrics`)
//!   otlp.rs         any of them sent to an OpenTelemetry collector
//! ```
//!
//! Everything on a page is composed on request. Serving, short descriptors and strangers are the
//! business of [`crate::http`].

#[cfg(test)]
mod dashboard;
#[cfg(test)]
mod reference;

pub mod daemon;
pub mod govern;
mod hurry_up;
mod otlp;
mod quiesce;
pub mod sleep;
mod stage;
mod store;
mod wake;

pub use stage::serve as serve_stage;
pub use store::serve as serve_store;

use crate::exit::usage;
use crate::http::{self, Hosts, Limits};
use anyhow::{Context as _, Result};
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// The answer under a path: its kind, and how it is composed; `None` once the subject is gone.
struct Route {
    path: &'static str,
    kind: &'static str,
    compose: Compose,
}

type Compose = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// The kind of a page of metrics.
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where a metrics page is asked for, and under which names.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Names {
    /// Serve Prometheus metrics at this address, such as 127.0.0.1:9464; under the names of HOST as
    /// well, besides addresses, `localhost` and this machine's name
    #[arg(
        id = "metrics",
        long,
        value_name = "ADDRESS:PORT[,HOST...]",
        value_parser = parse_place,
        help_heading = "Advanced",
        hide_short_help = true
    )]
    place: Option<Place>,
}

#[derive(Clone, Debug)]
struct Place {
    address: SocketAddr,
    names: Vec<String>,
}

impl Names {
    pub fn address(&self) -> Option<SocketAddr> {
        self.place.as_ref().map(|place| place.address)
    }
}

fn parse_place(text: &str) -> Result<Place, String> {
    let mut parts = text.split(',');
    let address = crate::exit::parse_address(parts.next().unwrap_or_default())?;
    Ok(Place { address, names: parts.map(str::to_owned).collect() })
}

/// Begins to answer at `address`; returns the address with the port that was chosen.
fn serve(address: SocketAddr, names: &Names, routes: Vec<Route>) -> Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(address).map_err(|error| {
        usage(format!(
            "cannot serve metrics at {address}: {error}\nhint: choose another with --metrics \
             (port 0 lets the system choose)"
        ))
    })?;
    let address = listener.local_addr().context("preparing the metrics page")?;
    let mut router = Router::new();
    for Route { path, kind, compose } in routes {
        if path == "/metrics" {
            push(address, Arc::clone(&compose))?;
        }
        router = router.route(path, get(move || std::future::ready(answer(kind, compose()))));
    }
    let hosts = Hosts::Named(names.place.as_ref().map_or_else(Vec::new, |place| place.names.clone()));
    // Ends with the process.
    http::serve("metrics", listener, router, Limits::PAGE, hosts, std::future::pending())
        .context("preparing the metrics page")?;
    Ok(address)
}

/// Sends the page over OTLP as well, where the environment asks for it.
fn push(address: SocketAddr, page: Compose) -> Result<()> {
    match otlp::Settings::from(|name| std::env::var(name).ok()) {
        Ok(Some(settings)) => otlp::push(settings, address.to_string(), page).context("starting a thread"),
        Ok(None) => Ok(()),
        // A service is governed even where its metrics cannot be sent.
        Err(fault) => {
            eprintln!("roost: no metrics are sent over OTLP: {fault}");
            Ok(())
        }
    }
}

/// The same with a status, as metrics and as JSON.
fn serve_status<S: Serialize + 'static, C: Collector>(
    address: SocketAddr,
    names: &Names,
    look: impl Fn() -> Option<S> + Send + Sync + 'static,
    source: fn(S) -> C,
) -> Result<SocketAddr> {
    let look = Arc::new(look);
    let seen = Arc::clone(&look);
    let json = move || look().map(|status| serde_json::to_string(&status).expect("plain figures"));
    let metrics = move || seen().map(|status| page(source(status)));
    let routes = vec![
        Route { path: "/metrics", kind: METRICS, compose: Arc::new(metrics) },
        Route { path: "/status.json", kind: "application/json", compose: Arc::new(json) },
    ];
    serve(address, names, routes)
}

fn answer(kind: &'static str, composed: Option<String>) -> Response {
    match composed {
        Some(text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "what was watched has ended\n").into_response(),
    }
}

/// A page in the OpenMetrics text format.
fn page(source: impl Collector) -> String {
    let mut text = String::new();
    let mut registry = prometheus_client::registry::Registry::with_prefix("roost");
    registry.register_collector(Box::new(source));
    text::encode(&mut text, &registry).expect("writing to a string");
    text
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

    /// One histogram for each set of labels.
    fn histogram<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        unit: Unit,
        histograms: impl IntoIterator<Item = ([(&'static str, String); N], Buckets)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, Some(&unit), MetricType::Histogram)?;
        for (labels, Buckets { sum, buckets }) in histograms {
            let count = buckets.iter().map(|(_, count)| count).sum();
            let mut encoder = family.encode_family(&labels)?;
            encoder.encode_histogram::<[(&str, &str); 0]>(sum, count, &buckets, None)?;
        }
        Ok(())
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

struct Buckets {
    /// Of all values.
    sum: f64,
    /// Upper bound, and how many lie between it and the bound before. The last is infinite.
    buckets: Vec<(f64, u64)>,
}
