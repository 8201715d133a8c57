//! The page of `roost quiesce --metrics`: how much of the time all CPUs slept together, and what stood still for it.

use super::{METRICS, Names, Page, Route};
use anyhow::Result;
use daemon::quiesce::QuiesceStatus;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Where it leaves how things stand, once a second.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<Option<QuiesceStatus>>>);

impl Board {
    /// So they stand now.
    pub fn take(&self, status: QuiesceStatus) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    }
}

/// Begins to answer at `address`; returns the address with the port that was chosen.
pub fn serve(address: SocketAddr, names: &Names) -> Result<(SocketAddr, Board)> {
    let board = Board::default();
    let shown = board.clone();
    let compose = move || {
        let status = shown.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(status.map_or(String::new(), |status| super::page(Stand(status))))
    };
    let routes = vec![Route { path: "/metrics", kind: METRICS, compose: Arc::new(compose) }];
    Ok((super::serve(address, names, routes)?, board))
}

#[derive(Debug)]
struct Stand(QuiesceStatus);

impl Collector for Stand {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (mut page, status) = (Page(&mut encoder), &self.0);
        let none: [(&'static str, String); 0] = [];
        let domain = || [("domain", status.domain.clone())];
        page.counter(
            "quiesce_all_idle",
            "Time in which all CPUs of the domain were idle at once.",
            Some(Unit::Seconds),
            [(domain(), status.all_idle_s)],
        )?;
        page.counter(
            "quiesce_all_idle_sleeps",
            "How often all CPUs of the domain were idle at once.",
            None,
            [(domain(), status.all_idle_times as f64)],
        )?;
        let each = |value: fn(&daemon::quiesce::BackgroundStatus) -> f64| {
            status
                .background
                .iter()
                .map(move |background| ([("unit", background.unit.clone())], value(background)))
                .collect::<Vec<_>>()
        };
        page.gauge("quiesce_frozen", "1 while the unit stands still.", None, each(|b| b.is_frozen.into()))?;
        page.counter(
            "quiesce_frozen_time",
            "Time for which the unit stood still.",
            Some(Unit::Seconds),
            each(|b| b.frozen_s),
        )?;
        page.counter("quiesce_freezes", "How often the unit was frozen.", None, each(|b| b.freezes as f64))?;
        page.counter(
            "quiesce_unconfirmed",
            "How often it was thawed before everybody in it stood still.",
            None,
            each(|b| b.unconfirmed as f64),
        )?;
        page.gauge(
            "quiesce_spared",
            "1 while the unit is not frozen at all: it holds a critical process or one that others wait for, or its freezer failed.",
            None,
            each(|b| b.spared.is_some().into()),
        )?;
        page.gauge(
            "quiesce_cost",
            "What freezing and thawing take, as measured.",
            Some(Unit::Seconds),
            [(none.clone(), status.cost_us / 1e6)],
        )?;
        page.gauge(
            "quiesce_pays",
            "1 if all CPUs were found to be idle for more of the time with freezing, 0 if not; absent until that is known.",
            None,
            status.payoff.pays.map(|pays| (none.clone(), pays.into())),
        )?;
        page.gauge(
            "quiesce_gain_ratio",
            "Share of the time for which all CPUs were idle with freezing, less that without, at the last trial.",
            None,
            status.payoff.gain.map(|gain| (none.clone(), gain)),
        )?;
        let delays =
            status.thaw_us.into_iter().flat_map(|delays| ["0.5", "0.99", "1"].into_iter().zip(delays));
        page.gauge(
            "quiesce_thaw_delay",
            "From a critical thread's going on until the thaw was written, by quantile.",
            Some(Unit::Seconds),
            delays.map(|(quantile, us)| ([("quantile", quantile.to_owned())], us / 1e6)),
        )?;
        page.counter(
            "quiesce_lost_events",
            "Events of the scheduler for which there was no room; all went on after each.",
            None,
            [(none, status.lost as f64)],
        )
    }
}
