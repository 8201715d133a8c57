//! Metrics of the planner of wake-ups: requests, accounts, windows.

use super::Page;
use daemon::wake::{CpuStatus, WakeStatus};
use machine::Duration;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use std::fmt;

/// Writes the metrics of the planner of wake-ups.
pub fn encode(status: &WakeStatus, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut page = Page(encoder);
    let asked = [
        ("accepted", status.asked.accepted),
        ("refused", status.asked.refused),
        ("too_late", status.asked.too_late),
        ("no_room", status.asked.full),
        ("nonsense", status.asked.nonsense),
        ("wrong_token", status.asked.wrong_tokens),
    ];
    page.counter(
        "wake_requests",
        "Requests for CPUs to be ready, by their outcome.",
        None,
        asked.map(|(name, count)| ([("outcome", name.to_owned())], count as f64)),
    )?;
    let accounts = || status.accounts.iter().map(|account| [("principal", account.name.clone())]);
    page.counter(
        "wake_cpu",
        "CPU time on each principal's account; time without a request is (unowned), sleep is (idle).",
        Some(Unit::Seconds),
        accounts().zip(status.accounts.iter().map(|account| account.time.as_secs_f64())),
    )?;
    page.counter(
        "wake_energy",
        &format!("Energy on each principal's account, {}.", status.energy),
        Some(Unit::Joules),
        accounts().zip(status.accounts.iter().map(|account| account.joules)),
    )?;
    let cpus = |value: fn(&CpuStatus) -> Option<f64>| {
        let values =
            status.cpus.iter().filter_map(move |cpu| Some(([("cpu", cpu.cpu.0.to_string())], value(cpu)?)));
        values.collect::<Vec<_>>()
    };
    page.counter("wake_windows", "Windows opened.", None, cpus(|cpu| Some(cpu.windows as f64)))?;
    page.gauge(
        "wake_exit_latency",
        "The time that waking the CPU takes, as measured lately, 99th percentile.",
        Some(Unit::Seconds),
        cpus(|cpu| Some(cpu.exit_latency.as_secs_f64())),
    )?;
    page.gauge(
        "wake_timer_late_p99",
        "How long after the times of their timers windows were open, 99th percentile.",
        Some(Unit::Seconds),
        cpus(|cpu| cpu.late_p99.map(Duration::as_secs_f64)),
    )?;
    page.gauge(
        "wake_lead",
        "The time that a request needs before its CPU is ready.",
        Some(Unit::Seconds),
        [([], status.lead.as_secs_f64())],
    )
}
