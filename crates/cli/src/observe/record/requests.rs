//! Requests as a plan needs them: their arrival, their work, their response times.

use super::uses::Uses;
use ::observe::requests::{RequestPattern, percentile};
use hdrhistogram::Histogram;
use linux::probes::WindowCounts;
use linux::service::Service;
use machine::LengthHistogram;
use sim::plan::Known;
use sim::plan::load::dispersion;
use sim::plan::recording::{Arrivals, Bucket, Responses, Service as ServiceSeen};
use std::collections::BTreeMap;

pub fn service_seen(
    service: &Service,
    requests: Option<&RequestPattern>,
    uses: Option<&Uses>,
    length_s: f64,
) -> ServiceSeen {
    let mut seen = ServiceSeen {
        name: service.name.clone(),
        ports: service.ports.iter().copied().collect(),
        cpus: service
            .processes
            .iter()
            .find_map(|&process| Some(linux::cpus_of_process(process)?.0.len() as u32)),
        ..ServiceSeen::default()
    };
    let count = requests.map_or(0, |requests| requests.requests);
    if let Some(uses) = uses {
        let often = uses.threads.iter().filter(|&&turns| turns as f64 >= length_s).count();
        seen.threads = (often > 0)
            .then(|| Known::measured(often as u32, "threads on a CPU once a second or more, schedstat"));
        seen.turns_per_s =
            Some(Known::measured(uses.service.turns as f64 / length_s, "turns on a CPU, schedstat"));
        if count > 0 && uses.service.cpu_s > 0.0 {
            let by = "CPU time of its threads over requests, schedstat";
            seen.cpu_us = Some(Known::derived(uses.service.cpu_s * 1e6 / count as f64, by));
            seen.requests_a_turn = (uses.service.turns > 0)
                .then(|| Known::derived(count as f64 / uses.service.turns as f64, "requests over turns"));
        }
    }
    if let Some(work) =
        requests.and_then(|requests| requests.service.as_ref()).filter(|work| !work.is_empty())
    {
        seen.work_us = Some(Known::measured(work.mean() / 1e3, "taken to replied, mean, by probes"));
        seen.work_cv = variation(work);
    }
    seen
}

/// The variation of a lognormal distribution through the middle and the ninetieth percentile: the
/// tail beyond is time in which the thread had no CPU.
pub fn variation(times: &Histogram<u64>) -> Option<Known<f64>> {
    /// The standard normal distribution's ninetieth percentile.
    const P90: f64 = 1.2816;
    let (p50, p90) = (times.value_at_percentile(50.0) as f64, times.value_at_percentile(90.0) as f64);
    if times.len() < 1_000 || p50 <= 0.0 {
        return None;
    }
    let sigma = (p90 / p50).ln() / P90;
    let cv = (sigma * sigma).exp_m1().sqrt();
    Some(Known::derived(cv, "lognormal through p50 and p90 of taken to replied"))
}

pub fn arrivals(
    each_second: &[f64],
    requests: Option<&RequestPattern>,
    windows: Option<(WindowCounts, u64)>,
    connections: u64,
    length_s: f64,
    has_ended: bool,
) -> Arrivals {
    let Some(requests) = requests else { return Arrivals::default() };
    let last = each_second.iter().rposition(|&count| count > 0.0).map_or(0, |last| last + 1);
    let seconds = if has_ended { (last as f64).clamp(1.0, length_s.max(1.0)) } else { length_s };
    Arrivals {
        requests: requests.requests,
        rate_per_s: (requests.requests > 0).then(|| {
            Known::measured(requests.requests as f64 / seconds, format!("requests over {seconds:.1} s"))
        }),
        each_second: each_second.to_vec(),
        scv: windows.and_then(|(seen, windows)| {
            let scv = dispersion(windows, seen.arrivals, seen.squares)?;
            Some(Known::derived(scv, format!("dispersion of the counts of {windows} windows of 4.2 ms")))
        }),
        connections: (connections > 0).then(|| Known::measured(connections, "/proc/net/tcp")),
        merged_per_s: Some(Known::measured(
            requests.merged as f64 / length_s,
            "data while a request of its connection was under way, by probes",
        )),
    }
}

/// So many responses within a second, or its p99 is that of one or two requests.
const ENOUGH: u64 = 200;

/// p99 of a second's responses, in us.
pub fn tail_us(second: &RequestPattern) -> Option<f64> {
    let times = second.response.as_ref().filter(|times| times.len() >= ENOUGH)?;
    Some(percentile(times, 99.0)?.as_nanos() as f64 / 1e3)
}

/// The middle of the seconds' tails: trouble in a few seconds does not move it. `None` where most of the
/// `seconds` have no tail.
fn steady(mut tails_us: Vec<f64>, seconds: f64) -> Option<f64> {
    tails_us.sort_by(f64::total_cmp);
    let middle = tails_us.len() / 2;
    tails_us.get(middle).copied().filter(|_| tails_us.len() as f64 * 2.0 > seconds)
}

pub fn responses(requests: &RequestPattern, tails_us: Vec<f64>) -> Responses {
    let Some(times) = requests.response.as_ref().filter(|times| !times.is_empty()) else {
        return Responses::default();
    };
    let by = "ready to replied, by probes";
    let at =
        |times: &Histogram<u64>, percent| percentile(times, percent).map(|time| time.as_nanos() as f64 / 1e3);
    // Four to a doubling, as lengths of sleep are kept.
    let mut buckets: BTreeMap<usize, u64> = BTreeMap::new();
    for value in times.iter_recorded() {
        let length = machine::Duration::from_nanos(value.value_iterated_to());
        *buckets.entry(LengthHistogram::bucket_of(length)).or_default() += value.count_at_value();
    }
    let histogram = buckets
        .into_iter()
        .map(|(bucket, count)| Bucket { to_us: finite(LengthHistogram::bounds(bucket).1) / 1e3, count });
    let waited = |percent| {
        let time = requests.waiting.as_ref().and_then(|waiting| at(waiting, percent))?;
        Some(Known::measured(time, "ready to taken, by probes"))
    };
    Responses {
        mean_us: Some(Known::measured(times.mean() / 1e3, by)),
        p50_us: at(times, 50.0).map(|time| Known::measured(time, by)),
        p99_us: at(times, 99.0).map(|time| Known::measured(time, by)),
        p99_steady_us: steady(tails_us, requests.elapsed.as_secs_f64())
            .map(|time| Known::measured(time, "the middle of the seconds' p99, ready to replied, by probes")),
        waiting_p50_us: waited(50.0),
        waiting_p90_us: waited(90.0),
        histogram: histogram.collect(),
    }
}

/// The last bucket has no end: a minute, beyond which nothing is recorded.
pub fn finite(length: machine::Duration) -> f64 {
    length.as_nanos().min(60_000_000_000) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steady_tail_is_that_of_most_seconds() {
        let calm = || vec![90.0, 100.0, 110.0, 95.0, 105.0];
        assert_eq!(steady(calm(), 5.0), Some(100.0));
        // A second of trouble moves the p99 of the whole, and this by one place.
        assert_eq!(steady([calm(), vec![9_000.0]].concat(), 6.0), Some(105.0));
        // Seconds with few requests have no tail of their own.
        assert_eq!(steady(calm(), 10.0), None);
        assert_eq!(steady(Vec::new(), 0.0), None);
    }

    #[test]
    fn a_rate_ends_with_its_service() {
        let mut seen = vec![100.0; 10];
        seen.extend([0.0; 10]);
        let pattern = |requests| RequestPattern {
            elapsed: machine::Duration::from_secs(20),
            way: linux::probes::RequestWay::Calls,
            requests,
            timed: 0,
            merged: 0,
            unfit: 0,
            response: None,
            service: None,
            waiting: None,
            interrupt: None,
            wakes_hidden: 0,
        };
        let rate = |has_ended| {
            arrivals(&seen, Some(&pattern(1_000)), None, 0, 20.0, has_ended).rate_per_s.unwrap().value
        };
        assert_eq!((rate(false), rate(true)), (50.0, 100.0));
        let nothing = arrivals(&[], Some(&pattern(0)), None, 0, 20.0, false);
        assert_eq!((nothing.rate_per_s, nothing.connections, nothing.scv), (None, None, None));
    }

    #[test]
    fn the_variation_of_a_lognormal_is_found_whatever_its_tail() {
        let mut times = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        let mut random = workload::Random::new(3, 0);
        for draw in 0..50_000 {
            let stalled = if draw % 50 == 0 { 100.0 } else { 1.0 };
            times.record((10_000.0 * (0.5 * random.normal()).exp() * stalled) as u64).unwrap();
        }
        // sqrt(exp(0.25) - 1) = 0.533.
        let found = variation(&times).unwrap().value;
        assert!((found - 0.533).abs() < 0.05, "{found}");
        times.reset();
        assert_eq!(variation(&times), None);
    }
}
