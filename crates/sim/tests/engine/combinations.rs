//! Policies in any combination, on machines and services of any kind: the engine runs all that a
//! scenario accepts, and the sums are right at the end.

use super::{document, task};
use proptest::prelude::*;
use sim::scenario::Estimates;
use sim::{Document, Outcome};
use toml::Value;

fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(words)
}

fn any_line() -> impl Strategy<Value = String> {
    let cores = one_of(&[
        "",
        "",
        "carb",
        "peafowl",
        "autoscale",
        "lavd-compaction",
        "powernap",
        "dreamweaver",
        "joint",
        "joint-store",
    ]);
    let idle = one_of(&[
        "",
        "poll",
        "shallow",
        "deep",
        "menu",
        "teo",
        "menu-feedback",
        "teo-feedback",
        "clairvoyant",
        "clairvoyant-energy",
        "clairvoyant-prewake",
    ]);
    let clock = one_of(&[
        "",
        "",
        "powersave",
        "ondemand",
        "schedutil",
        "sensitivity",
        "pegasus",
        "rubik",
        "hurry-up",
        "adrenaline",
        "gemini-like",
        "nmap-like",
        "ecofaas-like",
        "sleepscale",
    ]);
    let time = one_of(&["", "", "", "dynsleep", "udpm", "staged", "anticipate", "quiesce"]);
    let uncore = one_of(&["", "", "", "uncore"]);
    let interrupts = one_of(&["", "", "", "steer"]);
    (cores, idle, clock, time, uncore, interrupts).prop_map(
        |(cores, idle, clock, time, uncore, interrupts)| {
            let words: Vec<&str> = [cores, idle, clock, time, uncore, interrupts]
                .into_iter()
                .filter(|word| !word.is_empty())
                .collect();
            if words.is_empty() { "menu".to_owned() } else { words.join(" + ") }
        },
    )
}

fn any_document() -> impl Strategy<Value = Document> {
    let machine = (
        one_of(&["xeon-silver-4116", "xeon-silver-4116-no-pc6"]),
        (1i64..=2, 1i64..=12, 1i64..=2),
        any::<(bool, bool)>(),
        one_of(&["4ms", "1ms", "never"]),
    );
    let service = (
        one_of(&["shared", "random", "round-robin", "connections", "fork-join"]),
        one_of(&["shallowest", "lowest", "random"]),
        0i64..3,
        (0u8..4, 0u8..4, 0u8..4),
        0u8..5,
    );
    let load = (0.02..0.6f64, one_of(&["poisson", "h2:2", "uniform"]), 1i64..200, 0.0..0.5f64);
    (machine, service, load).prop_map(|(machine, service, load)| {
        let (preset, (sockets, cores, threads), (package, turbo), tick) = machine;
        let (dispatch, pick, parked, (noise, nic, device), clients) = service;
        let (utilisation, arrivals, connections, memory) = load;
        let text = |text: &str| Value::String(text.to_owned());
        let table = |text: &str| Value::Table(text.parse().expect("a table"));
        let workers = (sockets * cores * threads - parked).max(1);
        let mut set = vec![
            ("machine.preset", text(preset)),
            ("machine.sockets", Value::Integer(sockets)),
            ("machine.cores", Value::Integer(cores)),
            ("machine.threads", Value::Integer(threads)),
            ("machine.package", Value::Boolean(package)),
            ("machine.turbo", Value::Boolean(turbo)),
            ("machine.tick", text(tick)),
            ("server.dispatch", text(dispatch)),
            ("server.pick", text(pick)),
            ("server.workers", Value::Integer(workers)),
            ("run.utilisation", Value::Float(utilisation)),
            ("run.requests", Value::Integer(2_000)),
            ("workload.arrivals", text(arrivals)),
            ("workload.connections", Value::Integer(connections)),
            ("workload.memory", Value::Float(memory)),
            ("workload.batch", Value::Integer(connections % 3 + 1)),
        ];
        if let Some(on) = [None, Some("each"), Some("any"), Some("scheduled")][usize::from(noise)] {
            let noise = format!(
                "every = \"300us\"\nlength = {{ exponential = \"15us\" }}\non = \"{on}\"\ndeferrable = {}",
                on != "scheduled"
            );
            set.push(("server.noise", Value::Array(vec![table(&noise)])));
        }
        if let Some(on) = [None, Some("same"), Some("spread"), Some("active")][usize::from(nic)] {
            set.push(("server.nic", table(&format!("receive = \"1us\"\ntransmit = \"1us\"\non = \"{on}\""))));
        }
        let wait = [None, Some("block"), Some("spin"), Some("block")][usize::from(device)];
        if let Some(wait) = wait {
            let device =
                format!("latency = {{ exponential = \"60us\" }}\ninterrupt = \"1us\"\nwait = \"{wait}\"");
            set.push(("server.device", table(&device)));
        }
        if dispatch == "connections" && parked == 1 {
            set.push(("server.stealing", table("cost = \"300ns\"")));
        }
        if dispatch == "fork-join" {
            let shards = [
                "",
                "count = 1",
                "count = 3\nonto = \"idle\"\nwork = \"drawn\"",
                "count = 2\nonto = \"idle\"",
            ];
            let shards = shards[usize::from(device)];
            if !shards.is_empty() {
                set.push(("server.shards", table(shards)));
            }
        }
        let clients = [
            "",
            "count = 5\nthink = { exponential = \"80us\" }",
            "count = 5\ncycle = { exponential = \"80us\" }\nin_step = true",
            "depth = 1",
            "depth = 2\nmeasured = \"due\"",
        ][usize::from(clients)];
        if !clients.is_empty() {
            set.push(("server.clients", table(clients)));
        }
        document(&set)
    })
}

fn is_sound(outcome: &Outcome, document: &Document) -> Result<(), TestCaseError> {
    let platform = document.platform(&document.scenario().expect("a scenario")).expect("a machine");
    let asleep: f64 = outcome.states.iter().map(|state| state.share).sum();
    let all = outcome.working + outcome.waking + outcome.polling + asleep;
    prop_assert!((all - 1.0).abs() < 1e-9, "the shares of CPU time add up to {all}");
    let cores = f64::from(platform.sockets) * f64::from(platform.cores_per_socket);
    let turbo = platform.turbo.iter().map(|bin| bin.power.as_watts()).fold(0.0, f64::max);
    let most = platform.frequencies.points.iter().map(|point| point.power.as_watts()).fold(turbo, f64::max);
    let deepest = platform.cstates.0.iter().filter_map(|state| state.power).map(|power| power.as_watts());
    let least = deepest.fold(f64::INFINITY, f64::min);
    let watts = outcome.power.cores_watts;
    prop_assert!(
        watts >= least * cores * (1.0 - 1e-9),
        "{watts} W, all {cores} cores asleep draw {least} each"
    );
    prop_assert!(
        watts <= most * cores * (1.0 + 1e-9),
        "{watts} W, all {cores} cores at work draw {most} each"
    );
    prop_assert!(outcome.active > 0.0 && outcome.active <= platform.cpus() as f64 + 1e-9);
    if outcome.verdict != sim::outcome::Verdict::Unstable {
        prop_assert_eq!(outcome.requests, 2_000);
        let by_class: u64 = outcome.classes.iter().map(|class| class.requests).sum();
        prop_assert_eq!(by_class, 2_000);
    }
    let points: f64 = outcome.frequencies.iter().map(|(_, share)| share).sum();
    prop_assert!((points - 1.0).abs() < 1e-9, "the shares of the operating points add up to {points}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_global_rejects: 40_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_scenario_accepts_the_engine_runs(
        document in any_document(),
        line in any_line(),
        seed in 1u64..1_000_000,
    ) {
        // A combination that does not fit is refused with its reason, and is no case.
        prop_assume!(document.setup(&line, seed).is_ok());
        let outcome = task(document.clone(), &line, seed).run().expect("it was accepted");
        is_sound(&outcome, &document)?;
        let again = task(document, &line, seed).run().expect("it was accepted");
        prop_assert_eq!(outcome, again);
    }
}

/// Of a core's own wake-up while others come out of a nap: it was counted for one of theirs, and the
/// task that the nap had stopped there was lost.
#[test]
fn a_core_that_wakes_while_others_leave_a_nap_loses_no_task() {
    let table = |text: &str| Value::Table(text.parse().expect("a table"));
    let set = [
        ("run.requests", Value::Integer(2_000)),
        ("run.utilisation", Value::Float(0.48)),
        ("server.dispatch", Value::String("fork-join".into())),
        ("server.clients", table("count = 5\ncycle = { exponential = \"80us\" }\nin_step = true")),
        ("server.shards", table("count = 3\nonto = \"idle\"\nwork = \"drawn\"")),
        ("server.nic", table("receive = \"1us\"\ntransmit = \"1us\"\non = \"spread\"")),
        (
            "server.device",
            table("latency = { exponential = \"60us\" }\ninterrupt = \"1us\"\nwait = \"spin\""),
        ),
    ];
    for seed in 1..6 {
        let outcome = task(document(&set), "dreamweaver + poll", seed).run().expect("a run");
        assert_eq!(outcome.requests, 2_000, "seed {seed}");
    }
}

#[test]
fn two_threads_at_turbo_draw_no_more_than_their_core() {
    let text = "[machine]\npreset = \"xeon-silver-4116\"\nsockets = 1\ncores = 1\nthreads = 2\n\
                turbo = true\npackage = false\n[workload]\nservice = { exponential = \"10us\" }\n\
                [run]\nutilisation = 0.9\nrequests = 20_000\n";
    let document = Document::parse("test.toml".as_ref(), text, &Estimates::default()).expect("a scenario");
    let platform = document.platform(&document.scenario().expect("a scenario")).expect("a machine");
    let most = platform.turbo.iter().map(|bin| bin.power.as_watts()).fold(0.0, f64::max);
    let outcome = task(document, "menu", 1).run().expect("a run");
    assert!(outcome.power.cores_watts <= most, "{} W, at most {most}", outcome.power.cores_watts);
}

#[test]
fn the_combinations_are_not_all_refused() {
    // Else the property above would hold for nothing at all.
    let text = "[machine]\npreset = \"xeon-silver-4116\"\n[workload]\nrate = \"10k\"\n\
                service = { exponential = \"10us\" }\n[server]\ndispatch = \"random\"\n";
    let document = Document::parse("test.toml".as_ref(), text, &Estimates::default()).expect("a scenario");
    for line in ["teo + rubik", "carb + deep + schedutil", "clairvoyant", "udpm", "poll + pegasus"] {
        let document = document.with("goal", &Value::String("300us@p99".to_owned())).expect("a key");
        assert!(document.setup(line, 1).is_ok(), "{line}");
    }
}
