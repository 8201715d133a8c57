//! Invariants of every run, whatever the machine and the service.

use super::{document, run, run_many, task};
use proptest::prelude::*;
use sim::Outcome;
use toml::Value;

fn sane(outcome: &Outcome) -> Result<(), TestCaseError> {
    let asleep: f64 = outcome.states.iter().map(|state| state.share).sum();
    let all = outcome.working + outcome.waking + outcome.polling + asleep;
    prop_assert!((all - 1.0).abs() < 1e-9, "the shares of CPU time add up to {all}");
    let cpus = 20.0;
    prop_assert!(outcome.active > 0.0 && outcome.active <= cpus + 1e-9);
    prop_assert!(outcome.awake >= 0.0 && outcome.awake <= cpus + 1e-9);
    prop_assert!(outcome.power.cores_watts > 0.0 && outcome.power.cores_watts < 20.0 * 10.0);
    prop_assert!(outcome.requests > 0);
    Ok(())
}

const POLICIES: [&str; 11] = [
    "poll",
    "menu",
    "teo + schedutil",
    "deep + ondemand",
    "carb",
    "rubik",
    "powernap",
    "dreamweaver",
    "autoscale",
    "lavd-compaction",
    "uncore",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_time_and_no_request_is_lost(
        dispatch in prop::sample::select(vec!["shared", "random", "round-robin", "connections", "fork-join"]),
        policies in prop::sample::select(POLICIES.to_vec()),
        threads in 1i64..=2,
        (noise, nic, device) in any::<(bool, bool, bool)>(),
        package: bool,
        turbo: bool,
        utilisation in 0.05..0.5f64,
        seed in 1u64..1000,
    ) {
        let mut set = vec![
            ("server.dispatch", Value::String(dispatch.to_owned())),
            ("machine.threads", Value::Integer(threads)),
            ("machine.package", Value::Boolean(package)),
            ("machine.turbo", Value::Boolean(turbo)),
            ("run.utilisation", Value::Float(utilisation)),
            ("run.requests", Value::Integer(3_000)),
            ("workload.connections", Value::Integer(64)),
        ];
        let table = |text: &str| Value::Table(text.parse().expect("a table"));
        if noise {
            let noise = table("every = \"500us\"\nlength = { exponential = \"20us\" }");
            set.push(("server.noise", Value::Array(vec![noise])));
        }
        if nic {
            set.push(("server.nic", table("receive = \"1us\"\ntransmit = \"1us\"\non = \"spread\"")));
        }
        if device {
            set.push(("server.device", table("latency = { exponential = \"50us\" }\ninterrupt = \"1us\"")));
        }
        sane(&run(&set, policies, seed))?;
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let tasks: Vec<_> = ["menu", "teo", "rubik", "carb"]
        .into_iter()
        .flat_map(|policies| (1..3).map(move |seed| task(document(&[]), policies, seed)))
        .collect();
    assert_eq!(run_many(&tasks, 1), run_many(&tasks, 4));
}

#[test]
fn another_seed_is_another_run() {
    let (one, other) = (run(&[], "menu", 1), run(&[], "menu", 2));
    assert_ne!(one.responses.mean_ns, other.responses.mean_ns);
    assert_eq!(one, run(&[], "menu", 1));
}

#[test]
fn a_deeper_sleep_costs_latency_and_saves_power_where_pauses_are_long() {
    let set = [("run.utilisation", Value::Float(0.01)), ("run.requests", Value::Integer(20_000))];
    let (shallow, deep) = (run(&set, "shallow", 1), run(&set, "deep", 1));
    assert!(deep.power.cores_watts < 0.5 * shallow.power.cores_watts);
    let mean = |outcome: &Outcome| outcome.responses.mean_ns.expect("a mean").value;
    assert!(mean(&deep) > mean(&shallow) + 50_000.0);
}
