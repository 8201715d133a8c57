//! Metrics of services: the load, the cores, and the limits of each.
//!
//! A figure that was not seen in the last epoch is missing on the page, and not zero.

use super::Page;
use daemon::Status;
use machine::{Duration, FrequencyLimit};
use policy::governing::Mode;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use std::fmt;

/// Writes the metrics of all services.
pub fn encode(services: &[Status], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut page = Page(encoder);
    let each = |value: fn(&Status) -> Option<f64>| {
        let of = move |status: &Status| Some(([("service", status.name.clone())], value(status)?));
        services.iter().filter_map(of).collect::<Vec<_>>()
    };
    let mut gauge =
        |name: &str, help: &str, value: fn(&Status) -> Option<f64>| page.gauge(name, help, None, each(value));
    gauge("cores_active", "Physical cores that the service has now.", |s| Some(f64::from(s.cores.0)))?;
    gauge("cores_allowed", "Physical cores that it may use.", |s| Some(f64::from(s.cores.1)))?;
    gauge(
        "requests_per_second",
        "Requests answered per second in the last epoch, as the kernel saw them.",
        |s| s.service.rate.map(machine::Rate::as_per_second),
    )?;
    gauge("goal_missed_epochs", "Epochs in a row in which the goal was missed.", |s| {
        Some(f64::from(s.missed))
    })?;
    gauge("failed_open", "1 while it has failed open: all cores, no limits.", |s| {
        Some(f64::from(u8::from(matches!(s.mode, Mode::Open { .. }))))
    })?;
    gauge("paused", "1 while a person asked for all cores.", |s| {
        Some(f64::from(u8::from(s.mode == Mode::Paused)))
    })?;
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let tails = services.iter().flat_map(|s| {
        let named = [
            ("mean", s.service.mean),
            ("p95", s.service.p95),
            ("p99", s.service.p99),
            ("goal", s.service.tail),
        ];
        named.into_iter().filter_map(move |(name, time)| {
            Some(([("service", s.name.clone()), ("figure", name.to_owned())], seconds(time)?))
        })
    });
    page.gauge(
        "response",
        "Response time from ready to replied, over as many epochs as the figure needs; `goal` is \
         the goal's percentile.",
        Some(Unit::Seconds),
        tails.collect::<Vec<_>>(),
    )?;
    let caps = services.iter().flat_map(|s| {
        s.clocks.iter().filter_map(move |(cpu, limit)| {
            let (FrequencyLimit::AtMost(clock) | FrequencyLimit::Exactly(clock)) = limit else {
                return None;
            };
            Some(([("service", s.name.clone()), ("cpu", cpu.0.to_string())], clock.0 as f64 * 1e3))
        })
    });
    page.gauge(
        "clock_cap_hertz",
        "The cap on a CPU's clock, where the service has one; a CPU that is not here is free.",
        None,
        caps.collect::<Vec<_>>(),
    )?;
    let uncore = |s: &Status| match s.uncore.limit {
        FrequencyLimit::AtMost(clock) | FrequencyLimit::Exactly(clock) => Some(clock.0 as f64 * 1e3),
        FrequencyLimit::None => None,
    };
    page.gauge(
        "uncore_cap_hertz",
        "The cap on the clock of the service's uncore, where it has one.",
        None,
        each(uncore),
    )?;
    let uncore = |s: &Status| s.uncore.current.map(|clock| clock.0 as f64 * 1e3);
    page.gauge(
        "uncore_hertz",
        "The fastest present clock of the service's uncore, where it is to be chosen.",
        None,
        each(uncore),
    )?;
    let goals = each(|s| s.goal.map(|goal| goal.latency.as_secs_f64()));
    page.gauge("goal", "The service's latency goal.", Some(Unit::Seconds), goals)?;
    page.counter("epochs", "Epochs since it is governed.", None, each(|s| Some(s.epochs as f64)))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use machine::{CpuList, Rate, ServiceReading};

    pub fn status() -> Status {
        Status {
            name: "cache".into(),
            command: "memcached".into(),
            processes: 1,
            policy: "carb with a goal".into(),
            goal: Some("500us@p99".parse().unwrap()),
            mode: Mode::Searching,
            cpus: "0-1".parse().unwrap(),
            allowed: CpuList::default(),
            cores: (2, 8),
            service: ServiceReading { rate: Some(Rate::per_second(1000.0)), ..ServiceReading::default() },
            curve: Vec::new(),
            actuator: None,
            seen_by: "sockets".into(),
            epochs: 7,
            missed: 0,
            frequency: policy::governing::FrequencyMode::Sensitivity,
            frequency_actuator: None,
            uncore: ::daemon::UncoreStatus {
                mode: policy::governing::UncoreMode::Auto,
                limit: FrequencyLimit::AtMost(machine::Kilohertz(1_600_000)),
                current: Some(machine::Kilohertz(1_500_000)),
            },
            clocks: [(machine::CpuId(1), FrequencyLimit::AtMost(machine::Kilohertz(1_400_000)))].into(),
        }
    }

    /// A page on which nothing is missing.
    pub fn everything() -> String {
        let time = Some(Duration::from_micros(300));
        let service = ServiceReading {
            rate: Some(Rate::per_second(1000.0)),
            mean: time,
            p95: time,
            p99: time,
            tail: time,
        };
        super::super::daemon::tests::page_of(vec![Status { service, ..status() }])
    }

    #[test]
    fn what_was_not_seen_is_missing_and_not_zero() {
        let page = super::super::daemon::tests::page_of(vec![status()]);
        assert!(page.contains("roost_cores_active{service=\"cache\"} 2"), "{page}");
        assert!(
            page.contains("roost_clock_cap_hertz{service=\"cache\",cpu=\"1\"} 1400000000")
                && !page.contains("cpu=\"0\""),
            "{page}"
        );
        assert!(page.contains("roost_goal_seconds{service=\"cache\"} 0.0005"), "{page}");
        assert!(page.contains("roost_epochs_total{service=\"cache\"} 7"), "{page}");
        assert!(!page.contains("roost_response_seconds{"), "{page}");
    }
}
