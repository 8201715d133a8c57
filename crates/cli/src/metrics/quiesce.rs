//! Metrics of quiescence: the time in which all CPUs slept together, and the units frozen for it.

use super::Page;
use daemon::quiesce::{BackgroundStatus, QuiesceStatus};
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use std::fmt;

/// Writes the metrics of all instances, by name.
pub fn encode(all: &[(&str, &QuiesceStatus)], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut page = Page(encoder);
    let name = |name: &str| ("controller", name.to_owned());
    let domains = |value: fn(&QuiesceStatus) -> f64| {
        let of = |&(of, status): &(&str, &QuiesceStatus)| {
            ([name(of), ("domain", status.domain.clone())], value(status))
        };
        all.iter().map(of).collect::<Vec<_>>()
    };
    let each = |value: fn(&BackgroundStatus) -> f64| {
        let units = all.iter().flat_map(|&(of, status)| {
            status.background.iter().map(move |unit| ([name(of), ("unit", unit.unit.clone())], value(unit)))
        });
        units.collect::<Vec<_>>()
    };
    let known = |value: fn(&QuiesceStatus) -> Option<f64>| {
        let known = all.iter().filter_map(|&(of, status)| Some(([name(of)], value(status)?)));
        known.collect::<Vec<_>>()
    };
    page.counter(
        "quiesce_all_idle",
        "Time in which all CPUs of the domain were idle at once.",
        Some(Unit::Seconds),
        domains(|status| status.all_idle_s),
    )?;
    page.counter(
        "quiesce_all_idle_sleeps",
        "How often all CPUs of the domain were idle at once.",
        None,
        domains(|status| status.all_idle_times as f64),
    )?;
    page.gauge("quiesce_frozen", "1 while the unit is frozen.", None, each(|b| b.is_frozen.into()))?;
    page.counter(
        "quiesce_frozen_time",
        "Time for which the unit was frozen.",
        Some(Unit::Seconds),
        each(|b| b.frozen_s),
    )?;
    page.counter("quiesce_freezes", "How often the unit was frozen.", None, each(|b| b.freezes as f64))?;
    page.counter(
        "quiesce_unconfirmed",
        "How often it was thawed before all of its threads stood still.",
        None,
        each(|b| b.unconfirmed as f64),
    )?;
    page.gauge(
        "quiesce_spared",
        "1 while the unit is not frozen at all: it holds a critical process or one that others wait for, or \
         its freezer failed.",
        None,
        each(|b| b.spared.is_some().into()),
    )?;
    page.gauge(
        "quiesce_cost",
        "Time that freezing and thawing take, as measured.",
        Some(Unit::Seconds),
        known(|status| Some(status.cost_us / 1e6)),
    )?;
    page.gauge(
        "quiesce_pays",
        "1 if all CPUs were found to be idle for more of the time with freezing, 0 if not; absent until that \
         is known.",
        None,
        known(|status| status.payoff.verdict.pays.map(f64::from)),
    )?;
    page.gauge(
        "quiesce_gain_ratio",
        "Share of the time for which all CPUs were idle with freezing, less that without, at the last trial.",
        None,
        known(|status| status.payoff.verdict.gain),
    )?;
    let delays = all.iter().flat_map(|&(of, status)| {
        let quantiles = ["0.5", "0.99", "1"].into_iter();
        status.thaw_us.into_iter().flat_map(move |delays| {
            let named = quantiles.clone().zip(delays);
            named.map(move |(quantile, us)| ([name(of), ("quantile", quantile.to_owned())], us / 1e6))
        })
    });
    page.gauge(
        "quiesce_thaw_delay",
        "From the moment at which a critical thread went on until the thaw was written, by quantile.",
        Some(Unit::Seconds),
        delays.collect::<Vec<_>>(),
    )?;
    page.counter(
        "quiesce_lost_events",
        "Events of the scheduler for which there was no room; all went on after each.",
        None,
        known(|status| Some(status.lost as f64)),
    )
}
