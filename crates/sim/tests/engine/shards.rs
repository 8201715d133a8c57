//! Requests that fork, against closed forms.

use super::queues::{found, near, table};
use super::{document, run, task};
use sim::Document;
use sim::exact::ResponseTime;
use sim::outcome::Estimate;
use sim::scenario::Estimates;
use toml::Value;

/// The mean response time of a request that forks to two servers with a queue each and joins again,
/// with exponential services at rate `mu` drawn for each (Flatto and Hahn, SIAM J. Appl. Math. 44,
/// 1984; the mean in this form by Nelson and Tantawi, IEEE Trans. Comput. 37, 1988).
fn fork_join_of_two(lambda: f64, mu: f64) -> f64 {
    assert!(lambda > 0.0 && lambda < mu, "the queues are not stable: lambda {lambda}, mu {mu}");
    (12.0 - lambda / mu) / 8.0 / (mu - lambda)
}

fn forked(cores: i64, shards: &str, service: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("machine.cores", Value::Integer(cores)),
        ("server.dispatch", Value::String("fork-join".to_owned())),
        ("server.shards", table(shards)),
        ("workload.service", table(service)),
        ("run.utilisation", Value::Float(0.7)),
        ("run.requests", Value::Integer(100_000)),
    ]
}

#[test]
fn two_shards_on_two_cores_join_as_flatto_and_hahn_say() {
    let [mean, _] = found(&forked(2, "count = 2\nwork = \"drawn\"", "exponential = \"10us\""), "poll");
    near(mean, fork_join_of_two(0.7, 1.0), "mean");
}

#[test]
fn one_shard_on_a_random_core_is_a_request_of_that_core() {
    let [mean, p99] = found(&forked(5, "count = 1", "exponential = \"10us\""), "poll");
    let exact = ResponseTime::mm1(0.7, 1.0);
    near(mean, exact.mean(), "mean");
    near(p99, exact.quantile(0.99), "p99");
}

#[test]
fn one_shard_onto_idle_cores_is_the_shared_queue() {
    let forked = forked(5, "count = 1\nonto = \"idle\"", "exponential = \"10us\"");
    let mut shared: Vec<_> = forked.clone();
    shared.retain(|(key, _)| *key != "server.shards" && *key != "server.dispatch");
    for policies in ["menu", "poll", "rubik"] {
        assert_eq!(run(&forked, policies, 3), run(&shared, policies, 3), "{policies}");
    }
}

/// Hurry-up's search engine: five shards of some 50 ms, then five answers of 0.5 ms. By the answers alone one
/// slow core would do, and clients that wait would never say otherwise.
#[test]
fn cores_are_counted_for_the_whole_work_of_a_request_that_forks() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../papers/hurry-up/low.toml");
    let text = "base = \"base.toml\"\ngoal = \"525ms@p99\"\n[workload]\nclass = \"shared:low\"\n\
                [run]\nrequests = 20_000\n";
    let document = Document::parse(file.as_ref(), text, &Estimates::default()).expect("a scenario");
    let outcome = task(document, "joint", 1).run().expect("a run");
    let p99_ms = outcome.responses.p99_ns.expect("a tail").value / 1e6;
    assert!(p99_ms < 525.0 * 1.03 && outcome.power.cpu_watts < 32.0, "{p99_ms} ms, {:?}", outcome.power);
}

/// Mean and 99th percentile of constant services of 10 us at a trickle, in such services.
fn at_a_trickle(cores: i64, shards: &str, more: &[(&'static str, Value)]) -> [f64; 2] {
    let mut set = forked(cores, shards, "deterministic = \"10us\"");
    set.push(("workload.arrivals", Value::String("uniform".to_owned())));
    set.push(("run.requests", Value::Integer(20_000)));
    set.push(("run.utilisation", Value::Float(1e-3)));
    set.extend_from_slice(more);
    let responses = run(&set, "poll", 1).responses;
    let of = |estimate: Option<Estimate>| estimate.expect("a figure").value / 1e4;
    [of(responses.mean_ns), of(responses.p99_ns)]
}

#[test]
fn constant_shards_on_idle_cores_take_the_time_of_one() {
    for (cores, shards, services) in [
        (8, "count = 4\nonto = \"idle\"\nwork = \"divided\"", 0.25),
        (8, "count = 4\nonto = \"random\"\nwork = \"divided\"", 0.25),
        (8, "count = 4\nonto = \"idle\"", 1.0),
        // The second round, of half a service, on idle cores and in turns on two.
        (8, "count = 4\nonto = \"idle\"\nfetch = \"5us\"", 1.5),
        (2, "count = 4\nonto = \"idle\"\nfetch = \"5us\"", 3.0),
        // Five on two cores: three rounds.
        (2, "count = 5\nonto = \"idle\"", 3.0),
        (8, "count = 8", 1.0),
    ] {
        for found in at_a_trickle(cores, shards, &[]) {
            assert!((found / services - 1.0).abs() < 2e-3, "{shards}: {found}, not {services}");
        }
    }
}

#[test]
fn the_device_is_called_when_the_last_shard_has_answered() {
    // 30 us for the device and 2 us for its interrupt, after the shards of 10 us each.
    for (cores, shards, wait, services) in [
        (8, "count = 4\nonto = \"idle\"", "block", 1.0 + 3.2),
        (2, "count = 5\nonto = \"idle\"", "block", 3.0 + 3.2),
        (2, "count = 5\nonto = \"idle\"", "spin", 3.0 + 3.0),
        (8, "count = 4\nonto = \"random\"\nwork = \"divided\"", "block", 0.25 + 3.2),
        // After the second round, and only then.
        (2, "count = 4\nonto = \"idle\"\nfetch = \"5us\"", "block", 3.0 + 3.2),
    ] {
        let device =
            format!("latency = {{ deterministic = \"30us\" }}\ninterrupt = \"2us\"\nwait = \"{wait}\"");
        let found = at_a_trickle(cores, shards, &[("server.device", table(&device))]);
        for found in found {
            assert!((found / services - 1.0).abs() < 2e-3, "{shards}, {wait}: {found}, not {services}");
        }
    }
}

#[test]
fn the_slowest_of_two_shards_and_a_device_follow_each_other() {
    // The greater of two exponentials of mean 1 has a mean of 1.5, the device one of 2.
    let mut set = forked(4, "count = 2\nonto = \"idle\"\nwork = \"drawn\"", "exponential = \"10us\"");
    set.push(("run.utilisation", Value::Float(1e-3)));
    let device = "latency = { exponential = \"20us\" }\ninterrupt = \"0us\"";
    set.push(("server.device", table(device)));
    let [mean, _] = found(&set, "poll");
    near(mean, 3.5, "mean");
}

#[test]
fn no_part_of_a_request_that_forks_comes_after_the_call() {
    let set = |before: &str| {
        let device =
            format!("latency = {{ exponential = \"20us\" }}\ninterrupt = \"1us\"\nbefore = {before}");
        let mut set = forked(4, "count = 2", "exponential = \"10us\"");
        set.push(("server.device", table(&device)));
        document(&set)
    };
    let told = set("0.5").setup("menu", 1).map(|_| ()).unwrap_err().to_string();
    assert!(told.contains("server.device.before") && told.contains("leave it out"), "{told}");
    assert!(set("1.0").setup("menu", 1).is_ok());
}

#[test]
fn a_utilisation_counts_all_shards() {
    for shards in
        ["count = 3", "count = 3\nwork = \"divided\"", "count = 3\nonto = \"idle\"\nwork = \"drawn\""]
    {
        let working = run(&forked(6, shards, "exponential = \"10us\""), "poll", 1).working;
        assert!((working / 0.7 - 1.0).abs() < 0.02, "{shards}: {working}");
    }
}

#[test]
fn with_fewer_active_cores_than_shards_each_gets_as_many_as_any_other() {
    // CARB begins with the fewest cores: shards still all find one.
    let mut set = forked(10, "count = 7\nwork = \"drawn\"", "exponential = \"10us\"");
    set.push(("run.utilisation", Value::Float(0.05)));
    let outcome = run(&set, "carb", 1);
    assert_eq!(outcome.requests, 100_000);
    assert!(outcome.active < 9.0, "{} active", outcome.active);
}

#[test]
fn shards_that_cannot_be_are_refused_with_the_fix() {
    let fork = ("server.dispatch", Value::String("fork-join".to_owned()));
    for (set, key, fix) in [
        (vec![("server.shards", table("count = 2"))], "server.shards: without", "fork-join"),
        (vec![fork.clone(), ("server.shards", table("count = 0"))], "server.shards.count: 0", "from 1 to 10"),
        (vec![fork.clone(), ("server.shards", table("count = 11"))], "server.shards.count: 11", "onto"),
        (vec![fork.clone(), ("server.shards", table("onto = \"idle\""))], "missing field `count`", "shards"),
        (vec![fork, ("server.shards", table("count = 2\nonto = \"busy\""))], "busy", "idle"),
    ] {
        let error = document(&set).setup("menu", 1);
        let error = error.err().map_or_else(String::new, |error| error.to_string());
        assert!(error.contains(key) && error.contains(fix), "{key}: {error}");
    }
}
