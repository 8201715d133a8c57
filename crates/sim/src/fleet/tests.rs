//! Fleets against queues whose answers are known.

use super::{Fleet, FleetOutcome};
use crate::Document;
use crate::exact::ResponseTime;
use crate::outcome::{Estimate, Verdict};
use crate::scenario::ScenarioError;
use std::path::Path;

fn fleet(text: &str) -> Result<Fleet, ScenarioError> {
    let document = Document::parse(Path::new("fleet.toml"), text, &Default::default())?;
    Fleet::new(&document.contestants()?[0], 1)
}

fn run(text: &str, threads: usize) -> FleetOutcome {
    let fleet = fleet(text).unwrap_or_else(|error| panic!("{error}"));
    fleet.run(threads, || ()).unwrap_or_else(|error| panic!("{error}"))
}

/// Servers of one core that never sleeps, exponential services of 10 us.
fn single_cores(fleet: &str, run: &str) -> String {
    format!(
        "[machine]\npreset = \"xeon-silver-4116\"\nsockets = 1\ncores = 1\nthreads = 1\ntick = \"never\"\n\
         [workload]\nservice = {{ exponential = \"10us\" }}\n[fleet]\npolicies = [\"poll\"]\n{fleet}\n[run]\n{run}\n"
    )
}

/// True of an interval that covers the truth.
fn covers(estimate: Option<Estimate>, truth: f64) -> bool {
    estimate.and_then(|estimate| estimate.interval()).is_some_and(|interval| interval.covers(truth))
}

#[test]
fn a_fan_out_of_one_is_a_single_server() {
    for servers in [1, 8] {
        let text =
            single_cores(&format!("servers = {servers}\nfanout = 1"), "utilisation = 0.5\nrequests = 200000");
        let outcome = run(&text, 2);
        let exact = ResponseTime::mm1(0.05, 0.1);
        let root = outcome.root().unwrap();
        assert!(covers(root.mean_ns, exact.mean() * 1e3), "{servers}: {root:?}");
        assert!(covers(root.p50_ns, exact.quantile(0.5) * 1e3), "{servers}: {root:?}");
        assert!(covers(root.p99_ns, exact.quantile(0.99) * 1e3), "{servers}: {root:?}");
        assert_eq!(outcome.leaf(), outcome.root());
        let rate = 50e3 * f64::from(servers);
        assert!((outcome.rate / rate - 1.0).abs() < 0.01, "{servers}: {}", outcome.rate);
    }
}

#[test]
fn the_root_of_independent_leaves_has_the_distribution_of_their_maximum() {
    // Any two servers share a sixtieth of their requests: near enough to nothing.
    let text = single_cores("servers = 240\nfanout = 4", "utilisation = 0.2\nrequests = 40000");
    let outcome = run(&text, 2);
    let leaf = ResponseTime::mm1(0.02, 0.1);
    let leaves: Vec<u32> = outcome.waited.iter().map(|waited| waited.leaves).collect();
    assert_eq!(leaves, [1, 4]);
    for waited in &outcome.waited {
        // All are within the time at which each is with the root of the chance.
        let exact = |share: f64| leaf.quantile(share.powf(1.0 / f64::from(waited.leaves))) * 1e3;
        let found = &waited.responses;
        let mean = leaf.mean() * 1e3 * (1..=waited.leaves).map(|rank| 1.0 / f64::from(rank)).sum::<f64>();
        assert!(covers(found.mean_ns, mean), "{mean}: {waited:?}");
        for (share, found) in [(0.5, found.p50_ns), (0.95, found.p95_ns), (0.99, found.p99_ns)] {
            assert!(covers(found, exact(share)), "{share}, {}: {waited:?}", exact(share));
        }
    }
}

#[test]
fn leaves_asked_together_are_slow_together() {
    // The same instants of arrival at all of them: busy at the same times, so the slowest is less
    // slow than that of independent ones.
    let text = single_cores("servers = 8\nfanout = 8", "utilisation = 0.8\nrequests = 100000");
    let outcome = run(&text, 2);
    let leaf = ResponseTime::mm1(0.08, 0.1);
    let independent = leaf.quantile(f64::powf(0.5, 1.0 / 8.0)) * 1e3;
    let together = outcome.root().unwrap().p50_ns.unwrap().interval().unwrap();
    assert!(together.high() < independent, "{together:?} of {independent}");
    assert!(together.low() > leaf.quantile(0.5) * 1e3, "{together:?}");
}

const MIXED: &str = "
    [machine]
    preset = \"xeon-silver-4116\"
    sockets = 1
    cores = 2
    threads = 1
    [workload]
    service = { exponential = \"20us\" }
    memory = 0.3
    deadline = \"200us\"
    [fleet]
    servers = 7
    fanout = 4
    policies = [\"menu\", \"teo + ondemand\", \"menu\"]
    [run]
    utilisation = 0.4
    requests = 8000";

#[test]
fn the_number_of_threads_changes_nothing() {
    let one = run(MIXED, 1);
    assert_eq!(one, run(MIXED, 4));
    assert_eq!(one.verdict, Verdict::Complete);
}

#[test]
fn servers_have_their_policies_in_turn() {
    let outcome = run(MIXED, 2);
    let groups: Vec<(&str, u32)> =
        outcome.groups.iter().map(|group| (group.policies.as_str(), group.servers)).collect();
    assert_eq!(groups, [("menu", 5), ("teo + ondemand", 2)]);
    // Nothing is asked twice or lost, and energy is the sum of its parts.
    let asked: u64 = outcome.groups.iter().map(|group| group.requests).sum();
    assert_eq!((outcome.requests, asked), (8000, 4 * 8000));
    assert_eq!(outcome.classes[0].requests, 8000);
    assert!(outcome.classes[0].missed.is_some_and(|missed| missed > 0));
    let watts: f64 = outcome.groups.iter().map(|group| group.power.server_watts).sum();
    assert!((watts / outcome.power.server_watts - 1.0).abs() < 1e-9, "{watts}");
    let joules = outcome.power.server_watts * outcome.length_s / 8000.0;
    assert!((joules / outcome.power.joules_per_request - 1.0).abs() < 1e-9, "{joules}");
    assert!(outcome.points.iter().all(|point| point.group_cpu_watts.len() == 2));
    assert_eq!(outcome.contestant, "menu, teo + ondemand, menu");
}

#[test]
fn a_group_has_the_response_times_of_its_own_servers() {
    let text = single_cores("servers = 6\nfanout = 3", "utilisation = 0.5\nrequests = 60000")
        .replace("[\"poll\"]", "[\"poll\", \"deep\"]");
    let outcome = run(&text, 2);
    let [poll, deep] = &outcome.groups[..] else { panic!("{:?}", outcome.groups) };
    assert!(covers(poll.responses.mean_ns, ResponseTime::mm1(0.05, 0.1).mean() * 1e3), "{poll:?}");
    // Each busy period begins with a wake-up from the deepest state.
    let (awake, asleep) = (poll.responses.mean_ns.unwrap().value, deep.responses.mean_ns.unwrap().value);
    assert!(asleep > 2.0 * awake, "{asleep} and {awake}");
    assert!(deep.power.cores_watts < poll.power.cores_watts && deep.awake < poll.awake, "{deep:?}");
}

#[test]
fn leaves_work_on_the_class_and_with_the_memory_share_of_the_request() {
    let text = |policies: &str, memory: f64| {
        format!(
            "[machine]\npreset = \"xeon-silver-4116\"\nsockets = 1\ncores = 8\nthreads = 1\ntick = \"never\"\n\
             [fleet]\npolicies = [\"{policies}\"]\nservers = 2\nfanout = 1\n[run]\nrequests = 4000\n[workload]\n\
             rate = 200\n[[workload.class]]\nname = \"short\"\nshare = 0.7\n\
             service = {{ deterministic = \"100us\" }}\n\
             [[workload.class]]\nname = \"long\"\nshare = 0.3\nservice = {{ deterministic = \"1ms\" }}\n\
             memory = {memory}\n"
        )
    };
    let times = |policies: &str, memory: f64| {
        let outcome = run(&text(policies, memory), 1);
        let root = outcome.root().unwrap();
        (root.p50_ns.unwrap().value.round(), root.p95_ns.unwrap().value.round())
    };
    let near = |found: f64, truth: f64| (found / truth - 1.0).abs() < 2e-3;
    let (short, long) = times("poll", 0.5);
    assert!(near(short, 100e3) && near(long, 1e6), "{short} {long}");
    // Half of the long ones' time is memory's, which no clock changes; the short ones have none.
    let (slow_short, slow_long) = times("poll + powersave", 0.5);
    let stretch = slow_short / short;
    assert!(stretch > 1.5 && near(slow_long, 0.5e6 * (1.0 + stretch)), "{slow_short} {slow_long}");
}

#[test]
fn a_sample_of_the_servers_stands_for_all() {
    // Thinned, a Poisson stream is one again: each sampled server is the M/M/1 of the whole fleet.
    let of = |fleet: &str, requests: u32| {
        run(&single_cores(fleet, &format!("utilisation = 0.5\nrequests = {requests}")), 2)
    };
    let sampled = of("servers = 2000\nfanout = 1\nsample = 20", 4_000_000);
    let exact = ResponseTime::mm1(0.05, 0.1);
    let root = sampled.root().unwrap();
    assert!(covers(root.mean_ns, exact.mean() * 1e3), "{root:?}");
    assert!(covers(root.p99_ns, exact.quantile(0.99) * 1e3), "{root:?}");
    let sample = sampled.sample.unwrap();
    // 40,000 on average, with a deviation of 200.
    assert!(sample.servers == 20 && (39_000..41_000).contains(&sample.requests), "{sample:?}");
    assert!((sampled.rate / (50e3 * 2000.0) - 1.0).abs() < 0.01, "{}", sampled.rate);
    assert_eq!((sampled.servers, sampled.requests, sampled.groups[0].servers), (2000, 4_000_000, 2000));
    // Half of each core's time is work, and all of it power.
    let few = of("servers = 40\nfanout = 1", 40_000);
    let per_server = |outcome: &FleetOutcome| outcome.power.cpu_watts / f64::from(outcome.servers);
    assert!((per_server(&sampled) / per_server(&few) - 1.0).abs() < 0.02, "{sampled:?}");
    assert!((sampled.groups[0].working - 0.5).abs() < 0.02, "{sampled:?}");
    assert_eq!(few.sample, None);
}

#[test]
fn a_sample_of_mixed_servers_has_all_policies_in_proportion() {
    let text = MIXED.replace("servers = 7", "servers = 7001\nsample = 70").replace("8000", "200000");
    let outcome = run(&text, 2);
    let groups: Vec<u32> = outcome.groups.iter().map(|group| group.servers).collect();
    assert_eq!(groups, [4667, 2334]);
    assert_eq!(outcome, run(&text, 1));
    let watts: f64 = outcome.groups.iter().map(|group| group.power.server_watts).sum();
    assert!((watts / outcome.power.server_watts - 1.0).abs() < 1e-9, "{watts}");
    assert_eq!(fleet(&text.replace("sample = 70", "sample = 7001")).unwrap().servings(), 7001);
}

#[test]
fn a_server_that_nobody_asks_draws_power_to_the_end() {
    let text = single_cores("servers = 40\nfanout = 1", "utilisation = 0.1\nrequests = 100\nsamples = 20");
    let outcome = run(&text, 2);
    let each = outcome.power.cpu_watts / 40.0;
    for point in &outcome.points {
        assert!((point.cpu_watts / 40.0 / each - 1.0).abs() < 1e-6, "{point:?} of {each}");
    }
}

#[test]
fn requests_of_several_pieces_are_answered_once() {
    let text = format!(
        "{}[server.device]\nlatency = {{ deterministic = \"80us\" }}\ninterrupt = \"2us\"\n",
        single_cores("servers = 2\nfanout = 2", "utilisation = 0.2\nrequests = 5000")
    );
    let outcome = run(&text, 1);
    let (leaf, root) = (outcome.leaf().unwrap(), outcome.root().unwrap());
    assert!((92e3..105e3).contains(&leaf.mean_ns.unwrap().value), "{leaf:?}");
    assert!((95e3..115e3).contains(&root.mean_ns.unwrap().value), "{root:?}");
}

#[test]
fn what_lies_outside_is_on_the_way_to_every_leaf() {
    let plain = single_cores("servers = 2\nfanout = 2", "utilisation = 0.2\nrequests = 5000");
    let with = run(&format!("{plain}[server]\noutside = \"100us\"\n"), 1).root().unwrap().mean_ns.unwrap();
    let without = run(&plain, 1).root().unwrap().mean_ns.unwrap();
    assert!((with.value - without.value - 100e3).abs() < 10.0, "{with:?} {without:?}");
}

#[test]
fn a_story_has_intervals_if_it_is_told_several_times() {
    let story = |run: &str| {
        format!(
            "[machine]\npreset = \"xeon-silver-4116\"\nsockets = 1\ncores = 1\nthreads = 1\n[workload]\n\
             rate = \"60k\"\nshape = \"ramp:20k..60k\"\nservice = {{ exponential = \"10us\" }}\n\
             [fleet]\nservers = 3\nfanout = 3\n[run]\nlength = \"50ms\"\nsamples = 10\n{run}"
        )
    };
    let once = run(&story(""), 2);
    assert_eq!((once.replications, once.length_s), (1, 0.05));
    // 40,000 a second on average.
    assert!((1800..2200).contains(&once.requests), "{}", once.requests);
    assert!(once.root().unwrap().p99_ns.unwrap().half_width.is_none());
    assert!(once.power.cpu_half_width_watts.is_none());
    let often = run(&story("replications = 10"), 2);
    assert_eq!((often.replications, often.points.len()), (10, 10));
    assert!(often.root().unwrap().p95_ns.unwrap().half_width.is_some_and(|half_width| half_width > 0.0));
    assert!(often.power.cpu_half_width_watts.is_some());
    let (early, late) = (&often.points[1], &often.points[8]);
    assert!(late.rate > 1.5 * early.rate && late.cpu_watts > early.cpu_watts, "{early:?} {late:?}");
}

#[test]
fn a_leaf_that_cannot_keep_up_makes_the_fleet_unstable() {
    let outcome = run(&single_cores("servers = 3\nfanout = 2", "utilisation = 1.5\nrequests = 20000"), 2);
    assert_eq!(outcome.verdict, Verdict::Unstable);
    assert_eq!(outcome.groups[0].unstable, 3);
    assert_eq!(outcome.root().unwrap().mean_ns, None);
}

#[test]
fn what_cannot_be_is_refused_by_key_and_fix() {
    let good = single_cores("servers = 4\nfanout = 4", "utilisation = 0.5");
    let with = |from: &str, to: &str| good.replace(from, to);
    for (text, key) in [
        (with("[fleet]\npolicies = [\"poll\"]\nservers = 4\nfanout = 4\n", ""), "fleet: the scenario has no"),
        (with("servers = 4", "servers = 0"), "fleet.servers: 0"),
        (with("fanout = 4", "fanout = 5"), "fleet.fanout: 5"),
        (with("fanout = 4", "fanout = 0"), "fleet.fanout: 0"),
        (with("fanout = 4", "fanout = 4\nsample = 3"), "fleet.sample: 3"),
        (with("fanout = 4", "fanout = 4\nsample = 5"), "fleet.sample: 5"),
        (with("[\"poll\"]", "[\"pol\"]"), "pol"),
        (format!("policies = [\"menu\"]\n{good}"), "fleet.policies: stand beside"),
        (with("[run]", "[run]\nprecision = \"1%@p99\""), "run.precision: "),
        (with("[run]", "[run]\nrequests = 100000000000"), "run.requests: more than"),
        (
            format!("{good}[server.clients]\ncount = 3\nthink = {{ exponential = \"1ms\" }}\n"),
            "server.clients: ",
        ),
    ] {
        let error = fleet(&text).err().map_or_else(String::new, |error| error.to_string());
        assert!(error.starts_with("fleet.toml: ") && error.contains(key), "{key}: {error}");
        assert!(error.contains("hint: "), "{error}");
    }
}
