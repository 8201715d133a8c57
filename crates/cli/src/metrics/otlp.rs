//! A metrics page pushed to an OpenTelemetry collector: OTLP over HTTP, in protobuf.
//!
//! ```text
//!   page, as Prometheus reads it --> families --> one request an interval --> ENDPOINT/v1/metrics
//! ```
//! - Settings are OpenTelemetry's own variables of the environment, see [`Settings`]. Without an
//!   endpoint nothing is sent.
//! - A family keeps its name, as the OpenTelemetry specification asks of metrics of Prometheus
//!   (compatibility/prometheus_and_openmetrics); its unit becomes UCUM's.
//! - Energy that was measured is told under `hw.energy` too, the name of the semantic conventions.
//!   Modelled energy is another thing.
//! - All is cumulative, so that an interval that was lost costs resolution and no figure.

use super::Compose;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A collector that has not answered by then is asked again an interval later.
const PATIENCE: Duration = Duration::from_secs(10);
/// A page that is not there yet is asked for again after this time.
const SOON: Duration = Duration::from_secs(1);
/// The default of OTEL_METRIC_EXPORT_INTERVAL in OpenTelemetry's specification.
const INTERVAL: Duration = Duration::from_secs(60);
const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// The settings that the environment of this process holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    url: String,
    interval: Duration,
    /// The names and values of the variable OTEL_EXPORTER_OTLP_HEADERS.
    headers: Vec<(String, String)>,
    /// The sender, by OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
    resource: BTreeMap<String, String>,
}

impl Settings {
    /// `None` where no endpoint is named. An error names the variable to change.
    pub fn from(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let of_all = variable("OTEL_EXPORTER_OTLP_ENDPOINT");
        let of_all = of_all.map(|base| format!("{}/v1/metrics", base.trim_end_matches('/')));
        let Some(url) = variable("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT").or(of_all) else { return Ok(None) };
        if !url.starts_with("http://") {
            return Err(format!("{url}: only http:// is spoken; name a collector of this machine"));
        }
        let protocol = variable("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL");
        if let Some(other) = protocol.or_else(|| variable("OTEL_EXPORTER_OTLP_PROTOCOL"))
            && other != "http/protobuf"
        {
            return Err(format!(
                "OTEL_EXPORTER_OTLP_PROTOCOL is {other}: http/protobuf alone is spoken, to a collector's port \
                 4318; set OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/protobuf"
            ));
        }
        let interval = match variable("OTEL_METRIC_EXPORT_INTERVAL").map(|text| (text.parse(), text)) {
            Some((Ok(millis @ 100..), _)) => Duration::from_millis(millis),
            Some((_, text)) => {
                return Err(format!("OTEL_METRIC_EXPORT_INTERVAL is {text}: milliseconds from 100 on"));
            }
            None => INTERVAL,
        };
        let pairs = |name: &str| {
            let text = variable(name).unwrap_or_default();
            let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
            pairs.map(|(name, value)| (name.trim().to_owned(), decoded(value.trim()))).collect::<Vec<_>>()
        };
        let mut resource = BTreeMap::from([("service.name".to_owned(), "roost".to_owned())]);
        resource.extend(pairs("OTEL_RESOURCE_ATTRIBUTES"));
        resource.extend(variable("OTEL_SERVICE_NAME").map(|name| ("service.name".to_owned(), name)));
        Ok(Some(Self { url, interval, headers: pairs("OTEL_EXPORTER_OTLP_HEADERS"), resource }))
    }
}

/// Begins to send `page`, until the process ends.
///
/// `instance` tells this page from others of the machine.
pub fn push(mut settings: Settings, instance: String, page: Compose) -> std::io::Result<()> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    settings.resource.entry("host.name".to_owned()).or_insert(host);
    settings.resource.entry("service.instance.id".to_owned()).or_insert(instance);
    let began = SystemTime::now();
    // A password in the URL is not for the log.
    let place = settings.url.rsplit('@').next().unwrap_or_default().to_owned();
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        // A collector is nearby; a proxy for the world outside does not know it.
        .proxy(None)
        .user_agent(concat!("roost/", env!("CARGO_PKG_VERSION")))
        .build()
        .into();
    let sending = move || {
        let mut is_well = true;
        loop {
            let text = page();
            let is_there = text.is_some();
            if let Some(text) = text {
                let body = request(&text, &settings.resource, began, SystemTime::now()).encode_to_vec();
                let mut post = agent.post(&settings.url).header("content-type", "application/x-protobuf");
                for (name, value) in &settings.headers {
                    post = post.header(name, value);
                }
                match post.send(&body) {
                    Err(error) if is_well => {
                        eprintln!("roost: no metrics arrive at {place}: {error}; they are sent on");
                        is_well = false;
                    }
                    Ok(_) if !is_well => {
                        eprintln!("roost: metrics arrive at {place} again");
                        is_well = true;
                    }
                    _ => {}
                }
            }
            std::thread::sleep(if is_there { settings.interval } else { SOON.min(settings.interval) });
        }
    };
    std::thread::Builder::new().name("otlp".to_owned()).spawn(sending).map(drop)
}

/// `%2C` and the like, as in W3C baggage; anything else stands.
fn decoded(text: &str) -> String {
    let mut bytes = text.as_bytes().iter();
    let mut out = Vec::new();
    while let Some(&byte) = bytes.next() {
        let code = bytes.as_slice().get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(told) if byte == b'%' => {
                out.push(told);
                bytes.nth(1);
            }
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

type Labels = Vec<(String, String)>;

/// A family of a page: its words, and its samples by the rest of their names, such as `_sum`.
#[derive(Debug, Default)]
struct Family {
    name: String,
    help: String,
    unit: String,
    kind: String,
    samples: Vec<(String, Labels, f64)>,
}

/// The families of a page of ours, in its order.
fn families(page: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in page.lines() {
        if let Some(told) = line.strip_prefix("# ") {
            let mut parts = told.splitn(3, ' ');
            let (Some(word), Some(name)) = (parts.next(), parts.next()) else { continue };
            let text = parts.next().unwrap_or_default().to_owned();
            if families.last().is_none_or(|family| family.name != name) {
                families.push(Family { name: name.to_owned(), ..Family::default() });
            }
            let family = families.last_mut().expect("there is one now");
            match word {
                "HELP" => family.help = text.replace("\\n", "\n").replace("\\\"", "\"").replace("\\\\", "\\"),
                "UNIT" => family.unit = text,
                "TYPE" => family.kind = text,
                _ => {}
            }
        } else if let Some(family) = families.last_mut() {
            family.samples.extend(sample(line, &family.name));
        }
    }
    families
}

fn sample(line: &str, family: &str) -> Option<(String, Labels, f64)> {
    let rest = line.strip_prefix(family)?;
    let end = rest.find(['{', ' '])?;
    let (suffix, mut rest) = rest.split_at(end);
    let mut labels = Vec::new();
    if let Some(within) = rest.strip_prefix('{') {
        rest = within;
        while !rest.starts_with('}') {
            let (name, quoted) = rest.split_once("=\"")?;
            let (mut value, mut is_escaped, mut at) = (String::new(), false, None);
            for (place, letter) in quoted.char_indices() {
                match letter {
                    _ if is_escaped => {
                        value.push(if letter == 'n' { '\n' } else { letter });
                        is_escaped = false;
                    }
                    '\\' => is_escaped = true,
                    '"' => {
                        at = Some(place);
                        break;
                    }
                    _ => value.push(letter),
                }
            }
            labels.push((name.trim_start_matches(',').to_owned(), value));
            rest = &quoted[at? + 1..];
        }
        rest = &rest[1..];
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((suffix.to_owned(), labels, value))
}

/// When the page's counters began, and now, in nanoseconds since 1970.
type Times = (u64, u64);

fn request(
    page: &str,
    resource: &BTreeMap<String, String>,
    began: SystemTime,
    now: SystemTime,
) -> ExportMetricsServiceRequest {
    let nanos = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let times = (nanos(began), nanos(now));
    let scope = InstrumentationScope {
        name: "roost".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Default::default()
    };
    let metrics = families(page).iter().flat_map(|family| metrics(family, times)).collect();
    let attributes = resource.iter().map(|(key, value)| attribute(key, value)).collect();
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource { attributes, ..Default::default() }),
            scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, ..Default::default() }],
            ..Default::default()
        }],
    }
}

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..Default::default() }
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    labels.iter().map(|(key, value)| attribute(key, value)).collect()
}

fn metrics(family: &Family, times: Times) -> Vec<Metric> {
    // As UCUM has it.
    let unit = match family.unit.as_str() {
        "seconds" => "s",
        "joules" => "J",
        "bytes" => "By",
        "hertz" => "Hz",
        "ratios" => "1",
        other => other,
    };
    let metric = |name: &str, data: Data| Metric {
        name: name.to_owned(),
        description: family.help.clone(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Default::default()
    };
    let point = |attributes: Vec<KeyValue>, value: f64| NumberDataPoint {
        attributes,
        start_time_unix_nano: times.0,
        time_unix_nano: times.1,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..Default::default()
    };
    let all = family.samples.iter().map(|(_, labels, value)| point(attributes(labels), *value));
    let sum =
        |data_points| Data::Sum(Sum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic: true });
    match family.kind.as_str() {
        "counter" => {
            let mut told = vec![metric(&family.name, sum(all.collect()))];
            let measured = family.samples.iter().filter(|_| unit == "J").filter_map(|(_, labels, value)| {
                let (_, source) = labels.iter().find(|(name, _)| name == "source")?;
                let meter = source.strip_prefix("measured (")?.strip_suffix(')')?;
                Some(point(vec![attribute("hw.id", meter), attribute("hw.type", "cpu")], *value))
            });
            let measured = measured.collect::<Vec<_>>();
            if !measured.is_empty() {
                told.push(metric("hw.energy", sum(measured)));
            }
            told
        }
        "histogram" => {
            let data_points = histogram(family, times);
            let histogram = Histogram { data_points, aggregation_temporality: CUMULATIVE };
            vec![metric(&family.name, Data::Histogram(histogram))]
        }
        _ => vec![metric(&family.name, Data::Gauge(Gauge { data_points: all.collect() }))],
    }
}

/// A point for each set of labels; the buckets of the text are cumulative, those of a point are not.
fn histogram(family: &Family, times: Times) -> Vec<HistogramDataPoint> {
    let mut points: BTreeMap<Labels, HistogramDataPoint> = BTreeMap::new();
    for (suffix, labels, value) in &family.samples {
        let mut labels = labels.clone();
        let bound = labels.iter().position(|(name, _)| name == "le").map(|at| labels.remove(at).1);
        let point = points.entry(labels).or_default();
        match suffix.as_str() {
            "_sum" => point.sum = Some(*value),
            "_bucket" => {
                // The bound of the last is infinite, which the data model leaves out.
                point.explicit_bounds.extend(bound.and_then(|bound| bound.parse::<f64>().ok()));
                point.bucket_counts.push(*value as u64 - point.count);
                point.count = *value as u64;
            }
            _ => {}
        }
    }
    let finished = points.into_iter().map(|(labels, mut point)| {
        point.explicit_bounds.retain(|bound| bound.is_finite());
        (point.start_time_unix_nano, point.time_unix_nano) = times;
        HistogramDataPoint { attributes: attributes(&labels), ..point }
    });
    finished.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Page, page as page_of, sleep};
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::DescriptorEncoder;
    use proptest::prelude::*;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::sync::Arc;

    fn settings(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        let all: BTreeMap<&str, &str> = variables.iter().copied().collect();
        Settings::from(|name| all.get(name).map(|value| (*value).to_owned()))
    }

    fn read(page: &str) -> Vec<Metric> {
        let all = request(page, &BTreeMap::new(), UNIX_EPOCH, SystemTime::now());
        all.resource_metrics[0].scope_metrics[0].metrics.clone()
    }

    #[test]
    fn the_environment_settles_it() {
        assert_eq!(settings(&[]), Ok(None));
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/");
        let told = settings(&[
            endpoint,
            ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20eA==, tenant=a%2Cb%"),
            ("OTEL_RESOURCE_ATTRIBUTES", "rack=7,service.name=other"),
            ("OTEL_SERVICE_NAME", "cache"),
        ]);
        let told = told.unwrap().unwrap();
        assert_eq!((told.url.as_str(), told.interval.as_secs()), ("http://127.0.0.1:4318/v1/metrics", 1));
        let header = |at: usize| (told.headers[at].0.as_str(), told.headers[at].1.as_str());
        assert_eq!((header(0), header(1)), (("authorization", "Basic eA=="), ("tenant", "a,b%")));
        assert_eq!((told.resource["rack"].as_str(), told.resource["service.name"].as_str()), ("7", "cache"));
        let whole = settings(&[endpoint, ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://x/y")]);
        assert_eq!(whole.unwrap().unwrap().url, "http://x/y");
        for (name, value, hint) in [
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://x", "http://"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "4318"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "soon", "milliseconds"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "0", "milliseconds"),
        ] {
            let error = settings(&[endpoint, (name, value)]).unwrap_err();
            assert!(error.contains(value) && error.contains(hint), "{error}");
        }
    }

    #[test]
    fn each_figure_of_a_page_is_a_point() {
        let page = page_of(sleep::tests::everything());
        let metrics = read(&page);
        let mut points = 0;
        for metric in &metrics {
            match metric.data.as_ref().unwrap() {
                Data::Gauge(gauge) => points += gauge.data_points.len(),
                Data::Sum(sum) => {
                    assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "{metric:?}");
                    points += if metric.name == "hw.energy" { 0 } else { sum.data_points.len() };
                }
                Data::Histogram(histogram) => {
                    for point in &histogram.data_points {
                        assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count, "{metric:?}");
                        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
                        assert!(point.explicit_bounds.is_sorted() && point.time_unix_nano > 0);
                        points += point.bucket_counts.len() + 2;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        let samples = page.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(points, samples, "{page}");
        let named = |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap();
        assert_eq!(named("roost_idle_length_seconds").unit, "s");
        assert!(named("roost_wakeups").description.starts_with("Wake-ups"));
        let energy = named("hw.energy");
        let Some(Data::Sum(sum)) = &energy.data else { panic!("{energy:?}") };
        assert_eq!(energy.unit, "J");
        assert_eq!(sum.data_points[0].value, Some(number_data_point::Value::AsDouble(5e-6)));
    }

    #[test]
    fn modelled_energy_is_not_hardwares() {
        let mut seen = sleep::tests::everything();
        seen.energy.as_mut().unwrap().source = machine::EnergySource::Modelled("a table".to_owned());
        let metrics = read(&page_of(seen));
        assert!(metrics.iter().any(|metric| metric.name == "roost_energy_joules"));
        assert!(metrics.iter().all(|metric| metric.name != "hw.energy"));
    }

    #[derive(Debug)]
    struct One(String, f64);
    impl Collector for One {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
            let labels = || [("a", self.0.clone()), ("b", "}{ 1".to_owned())];
            Page(&mut encoder).gauge("one", "Has a\\ and \n in it.", None, [(labels(), self.1)])
        }
    }

    proptest! {
        #[test]
        fn labels_and_values_come_back(label in any::<String>(), value in any::<f64>()) {
            let metrics = read(&page_of(One(label.clone(), value)));
            let Some(Data::Gauge(gauge)) = &metrics[0].data else { panic!("{metrics:?}") };
            prop_assert_eq!(gauge.data_points.len(), 1);
            let point = &gauge.data_points[0];
            let Some(number_data_point::Value::AsDouble(told)) = point.value else { panic!("{point:?}") };
            prop_assert!(told == value || told.is_nan() && value.is_nan(), "{told} for {value}");
            prop_assert_eq!(&point.attributes, &vec![attribute("a", &label), attribute("b", "}{ 1")]);
        }
    }

    #[test]
    fn a_page_arrives_and_one_that_is_refused_is_sent_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let mut settings = settings(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
            ("OTEL_EXPORTER_OTLP_HEADERS", "tenant=me"),
        ]);
        settings.as_mut().unwrap().as_mut().unwrap().interval = Duration::from_millis(1);
        let page: Compose = Arc::new(|| Some(page_of(sleep::tests::seen())));
        push(settings.unwrap().unwrap(), "here:1".to_owned(), page).unwrap();
        for code in ["503 Busy", "200 OK"] {
            let mut reader = BufReader::new(listener.accept().unwrap().0);
            let (mut head, mut length) = (Vec::new(), 0);
            while head.last().is_none_or(|line: &String| line.len() > 2) {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let line = line.to_ascii_lowercase();
                length = line.strip_prefix("content-length: ").map_or(length, |n| n.trim().parse().unwrap());
                head.push(line);
            }
            assert!(head[0].starts_with("post /v1/metrics "), "{head:?}");
            assert!(head.iter().any(|line| line == "tenant: me\r\n"), "{head:?}");
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let all = ExportMetricsServiceRequest::decode(&body[..]).unwrap();
            let of = &all.resource_metrics[0].resource.as_ref().unwrap().attributes;
            assert!(of.iter().any(|attribute| attribute.key == "service.instance.id"), "{of:?}");
            let answer = format!("HTTP/1.1 {code}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            reader.into_inner().write_all(answer.as_bytes()).unwrap();
        }
    }
}
