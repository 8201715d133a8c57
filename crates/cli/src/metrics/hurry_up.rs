//! Metrics of Hurry-up: calls of the hot function, the threshold, and the frequencies that were
//! set.

use super::Page;
use daemon::hurry_up::HurryStatus;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use std::fmt;

/// Writes the metrics of all instances, by name.
pub fn encode(all: &[(&str, &HurryStatus)], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut page = Page(encoder);
    let each = |value: fn(&HurryStatus) -> f64| {
        let of = |&(of, status): &(&str, &HurryStatus)| ([("controller", of.to_owned())], value(status));
        all.iter().map(of).collect::<Vec<_>>()
    };
    page.gauge("hurry_up_hot_threads", "Threads in the hot function.", None, each(|s| s.hot.len() as f64))?;
    page.gauge(
        "hurry_up_threshold",
        "A call is heavy after this time.",
        Some(Unit::Seconds),
        each(|s| s.threshold_us as f64 / 1e6),
    )?;
    page.counter(
        "hurry_up_enters",
        "Enters of the hot function that were seen.",
        None,
        each(|s| s.enters as f64),
    )?;
    page.counter("hurry_up_calls", "Calls whose length is known.", None, each(|s| s.calls as f64))?;
    page.counter("hurry_up_writes", "Frequencies that were set.", None, each(|s| s.writes as f64))?;
    let frequencies = all.iter().flat_map(|&(of, status)| {
        status.cpus.iter().map(move |cpu| {
            let labels = [("controller", of.to_owned()), ("cpu", cpu.cpu.0.to_string())];
            (labels, cpu.clock.0 as f64 * 1e3)
        })
    });
    page.gauge(
        "hurry_up_frequency_hertz",
        "The frequency that was asked of each CPU.",
        None,
        frequencies.collect::<Vec<_>>(),
    )
}
