//! Reads the answers of services: no sockets, no clock. Nothing here panics, whatever the text is.

use super::exposition::{Sample, samples};
use super::source::{Failure, LINE_SHOWN, Names};
use super::tally::{Reading, Tail};
use machine::Duration;
use serde::Deserialize;
use std::collections::BTreeSet;

pub fn of_memcached(answer: &str) -> Result<Reading, Failure> {
    let stat = |name: &str| {
        let mut lines = answer.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
        lines.find(|(found, _)| *found == name).and_then(|(_, value)| value.trim_end().parse::<u64>().ok())
    };
    if stat("cmd_get").is_none() {
        return Err(Failure::new("its stats have no number cmd_get", MEMCACHED));
    }
    Ok(Reading {
        requests: COMMANDS.iter().filter_map(|name| stat(name)).map(|count| count as f64).sum(),
        uptime: stat("uptime").map(Duration::from_secs),
        connections: stat("curr_connections").map(|open| open.saturating_sub(1)),
        tail: None,
    })
}

/// Redis' answer to `INFO`, without its first line.
pub fn of_redis(answer: &str) -> Result<Reading, Failure> {
    let field = |name: &str| {
        let mut fields = answer.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(found, _)| *found == name).and_then(|(_, value)| value.trim_end().parse::<u64>().ok())
    };
    let commands = field("total_commands_processed")
        .ok_or_else(|| Failure::new("its INFO has no number total_commands_processed", REDIS))?;
    Ok(Reading {
        requests: commands as f64,
        uptime: field("uptime_in_seconds").map(Duration::from_secs),
        connections: field("connected_clients").map(|open| open.saturating_sub(1)),
        tail: None,
    })
}

/// The page of nginx' `stub_status`: accepted, handled and requests stand under their names.
pub fn of_nginx(page: &str) -> Result<Reading, Failure> {
    let mut lines = page.lines();
    let active = lines.next().and_then(|line| line.trim().strip_prefix("Active connections: "));
    let is_named = lines.next().is_some_and(|line| line.trim() == "server accepts handled requests");
    let mut counts = lines.next().unwrap_or_default().split_ascii_whitespace().map(str::parse::<u64>);
    let (Some(active), true, Some(Ok(requests))) = (active, is_named, counts.nth(2)) else {
        return Err(Failure::new("its page is not that of stub_status", NGINX));
    };
    Ok(Reading {
        requests: requests as f64,
        connections: active.parse::<u64>().ok().map(|open| open.saturating_sub(1)),
        ..Reading::default()
    })
}

/// The Prometheus page of Envoy's admin interface, whose own requests do not count.
pub fn of_envoy(page: &str) -> Result<Reading, Failure> {
    let of = |name: &'static str| {
        samples(page).filter(move |sample| {
            sample.name == name && sample.label("envoy_http_conn_manager_prefix") != Some("admin")
        })
    };
    let mut counts = of("envoy_http_downstream_rq_total").map(|sample| sample.value).peekable();
    if counts.peek().is_none() {
        return Err(Failure::new("its page has no requests of an HTTP listener", ENVOY_HTTP));
    }
    let requests: f64 = counts.sum();
    if !requests.is_finite() {
        return Err(Failure::new(format!("its requests are {requests}"), ENVOY_HTTP));
    }
    let buckets = buckets(of("envoy_http_downstream_rq_time_bucket"), 1e-3);
    let tail = Some(Tail::Buckets(buckets)).filter(|tail| *tail != Tail::Buckets(Vec::new()));
    Ok(Reading { requests, tail, ..Reading::default() })
}

/// The fields of Roost's status (`store::status::Status`) that are used here; the rest is skipped.
#[derive(Deserialize)]
struct RoostStatus {
    uptime: Duration,
    requests: u64,
    connections: u32,
    workers: Vec<RoostWorker>,
}

#[derive(Deserialize)]
struct RoostWorker {
    tail: Option<Duration>,
}

/// A Roost's answer to `stats roost-json`.
pub fn of_roost(answer: &str) -> Result<Reading, Failure> {
    let json = answer.trim_end().strip_prefix("STAT status ");
    let json = json.ok_or_else(|| Failure::new("it has no status", ROOST))?;
    let status: RoostStatus = serde_json::from_str(json)
        .map_err(|cause| Failure::new(format!("it is another version of Roost ({cause})"), ROOST))?;
    Ok(Reading {
        requests: status.requests as f64,
        uptime: Some(status.uptime),
        connections: Some(u64::from(status.connections.saturating_sub(1))),
        tail: status.workers.iter().filter_map(|worker| worker.tail).max().map(Tail::Recent),
    })
}

/// A page of metrics. Of a summary its `quantile` is taken, a share of one.
pub fn of_page(page: &str, names: &Names, quantile: f64) -> Result<Reading, Failure> {
    let of = |name: &str| -> Vec<f64> {
        samples(page).filter(|sample| sample.name == name).map(|sample| sample.value).collect()
    };
    let rate = names.rate.as_deref().unwrap_or_default();
    let mut counts = of(rate);
    if counts.is_empty() {
        // OpenMetrics speaks of a counter without its ending.
        counts = of(&format!("{rate}_total"));
    }
    if counts.is_empty() {
        return Err(absent(page, rate, names.called[0]));
    }
    let requests: f64 = counts.into_iter().sum();
    if !requests.is_finite() {
        return Err(Failure::new(
            format!("{rate} is {requests}"),
            format!("name a counter with {}", names.called[0]),
        ));
    }
    let tail = names.tail.as_ref().map(|name| tail(page, name, quantile, names.called[1]));
    Ok(Reading { requests, tail: tail.transpose()?.flatten(), ..Reading::default() })
}

/// A histogram, a summary's quantile, or a gauge; `None` while it has no value.
fn tail(page: &str, name: &str, quantile: f64, called: &str) -> Result<Option<Tail>, Failure> {
    let bucket = format!("{}_bucket", name.strip_suffix("_bucket").unwrap_or(name));
    let buckets = buckets(samples(page).filter(|sample| sample.name == bucket), 1.0);
    if !buckets.is_empty() {
        return Ok(Some(Tail::Buckets(buckets)));
    }
    let mut is_there = false;
    let mut others: BTreeSet<String> = BTreeSet::new();
    let mut worst: Option<f64> = None;
    for sample in samples(page).filter(|sample| sample.name == name) {
        match sample.label("quantile") {
            Some(other) if other.parse().is_ok_and(|other: f64| (other - quantile).abs() < 1e-9) => {}
            Some(other) => {
                if others.len() < QUANTILES_SHOWN {
                    others.insert(other.chars().take(LINE_SHOWN).collect());
                }
                continue;
            }
            // A gauge is the quantile that its name says.
            None => {}
        }
        is_there = true;
        // Before its first value a summary tells NaN.
        if sample.value.is_finite() && sample.value >= 0.0 {
            worst = Some(worst.map_or(sample.value, |worst| worst.max(sample.value)));
        }
    }
    if is_there {
        return Ok(worst.map(|time| Tail::Recent(Duration::from_secs_f64(time.min(LONGEST_S)))));
    }
    if others.is_empty() {
        return Err(absent(page, name, called));
    }
    let others: Vec<String> = others.iter().map(|quantile| quantile.escape_debug().to_string()).collect();
    Err(Failure::new(
        format!("its {name} tells the quantile {}, and not {quantile}", others.join(", ")),
        format!("name a histogram or another summary with {called}"),
    ))
}

/// A histogram over all its labels; its bounds are in `unit_s` seconds.
fn buckets<'a>(samples: impl Iterator<Item = Sample<'a>>, unit_s: f64) -> Vec<(f64, f64)> {
    let mut buckets: Vec<(f64, f64)> = Vec::new();
    for sample in samples {
        let Some(bound) = sample.label("le").and_then(|bound| bound.parse::<f64>().ok()) else { continue };
        let bound = bound * unit_s;
        if bound.is_nan() || !sample.value.is_finite() {
            continue;
        }
        match buckets.binary_search_by(|(other, _)| other.total_cmp(&bound)) {
            Ok(at) => buckets[at].1 += sample.value,
            Err(at) => buckets.insert(at, (bound, sample.value)),
        }
    }
    buckets
}

/// No such name: the most like it is shown.
fn absent(page: &str, name: &str, flag: &str) -> Failure {
    let like = |sample: &Sample<'_>| (strsim::jaro_winkler(sample.name, name) * 1e6) as u64;
    match samples(page).max_by_key(like) {
        Some(nearest) => Failure::new(
            format!("its page has no {name}"),
            format!("name one that it has with {flag}; the most alike is {}", nearest.name),
        ),
        None => Failure::new(
            "its page has no metrics",
            "name the address of its metrics, as in http://127.0.0.1:9100/metrics",
        ),
    }
}

/// Per key of each command, exactly one of these rises.
const COMMANDS: [&str; 9] = [
    "cmd_get",
    "cmd_set",
    "cmd_touch",
    "delete_hits",
    "delete_misses",
    "incr_hits",
    "incr_misses",
    "decr_hits",
    "decr_misses",
];

/// Of a summary that has others than the one asked for.
const QUANTILES_SHOWN: usize = 9;
/// No service answers later than after a day; a page may hold any number.
const LONGEST_S: f64 = 86_400.0;
pub(super) const MEMCACHED: &str = "name a memcached that speaks its text protocol";
pub(super) const REDIS: &str = "name a Redis that answers INFO without a password";
pub(super) const NGINX: &str = "name the location with `stub_status`, as in nginx:127.0.0.1:80/nginx_status";
pub(super) const ROOST: &str = "name a Roost of this version";
const ENVOY_HTTP: &str = "name an Envoy with an HTTP listener, or its page with telemetry of your own choice";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_nginx_is_its_requests_and_connections() {
        let page = "Active connections: 291 \nserver accepts handled requests\n 16630948 16630948 31070465 \n\
                    Reading: 6 Writing: 179 Waiting: 106 \n";
        let reading = of_nginx(page).unwrap();
        assert_eq!((reading.requests, reading.connections), (31_070_465.0, Some(290)));
        for page in ["", "x", "Active connections: 1 \nserver accepts handled requests\n 1 1 \n", "<html>"] {
            assert!(format!("{:#}", of_nginx(page).unwrap_err()).contains("stub_status"), "{page:?}");
        }
    }

    #[test]
    fn an_envoys_own_page_counts_no_requests_and_its_times_are_milliseconds() {
        // Envoy 1.40 with one HTTP listener, after seven requests: /stats/prometheus?filter=...
        let page = include_str!("../../tests/testdata/envoy-1.40.page.txt");
        let reading = of_envoy(page).unwrap();
        assert_eq!(reading.requests, 7.0);
        let Some(Tail::Buckets(buckets)) = reading.tail else { panic!("no histogram") };
        assert_eq!(buckets[..4].iter().map(|bucket| bucket.0).collect::<Vec<_>>(), [5e-4, 1e-3, 5e-3, 1e-2]);
        assert_eq!(buckets.last().map(|bucket| bucket.1), Some(7.0));
        let admin = "envoy_http_downstream_rq_total{envoy_http_conn_manager_prefix=\"admin\"} 4\n";
        assert!(format!("{:#}", of_envoy(admin).unwrap_err()).contains("with an HTTP listener"));
        let none = "envoy_http_downstream_rq_total{envoy_http_conn_manager_prefix=\"a\"} NaN\n";
        assert!(of_envoy(none).unwrap_err().to_string().contains("NaN"));
    }
}
