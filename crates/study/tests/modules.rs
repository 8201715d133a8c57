//! Policies in WebAssembly beside the built-in ones, in whole runs.

use sim::runner::{Task, run_all};
use sim::{Document, Outcome};
use std::path::Path;
use study::grid;
use study::options::{self, Options};
use tempfile::TempDir;

const SCENARIO: &str = "
    goal = \"200us@p99\"
    [machine]
    preset = \"xeon-silver-4116\"
    sockets = 1
    cores = 10
    threads = 1
    [workload]
    service = { exponential = \"20us\" }
    [run]
    utilisation = 0.3
    requests = 600_000";

fn example(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wasm/examples").join(name);
    std::fs::read(path).expect("an example")
}

/// A scenario with these policies, and modules beside it.
struct Study(TempDir);

impl Study {
    fn new(modules: &[(&str, Vec<u8>)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in modules {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        Self(folder)
    }

    fn document(&self, policies: &[&str]) -> anyhow::Result<Document> {
        let path = self.0.path().join("scenario.toml");
        std::fs::write(&path, format!("policies = {policies:?}\n{SCENARIO}")).unwrap();
        let (policies, changes, threads, json) = (Vec::new(), Vec::new(), None, false);
        let options = Options { policies, changes, threads, json };
        options.complete(options.document(Some(&path))?)
    }

    fn run(&self, policies: &[&str]) -> Vec<Result<Outcome, String>> {
        let contestants = options::contestants(&self.document(policies).unwrap()).unwrap();
        let tasks: Vec<Task> =
            contestants.into_iter().map(|contestant| options::task(contestant).unwrap().task).collect();
        let outcomes = run_all(&tasks, 2, &Default::default(), |_, _| {});
        outcomes.into_iter().map(|outcome| outcome.map_err(|error| error.to_string())).collect()
    }
}

/// A module of this text, with the export of its version.
fn module(text: &str) -> Vec<u8> {
    let version = r#"(func (export "roost_policy") (result i32) (i32.const 1))"#;
    wat::parse_str(format!("(module {text} {version})")).expect("a module")
}

fn figures(outcome: &Result<Outcome, String>) -> String {
    let mut outcome = outcome.clone().expect("it ran");
    (outcome.contestant, outcome.policies) = Default::default();
    serde_json::to_string(&outcome).expect("plain data")
}

#[test]
fn carb_decides_as_the_built_in_one() {
    let study = Study::new(&[("carb-1.wasm", example("carb.wasm"))]);
    let outcomes = study.run(&["carb-paper", "carb-1.wasm", "menu"]);
    assert!(figures(&outcomes[0]) == figures(&outcomes[1]));
    assert!(figures(&outcomes[0]) != figures(&outcomes[2]), "the search matters here");
}

#[test]
fn idle_states_are_chosen_and_the_same_seed_gives_the_same_figures() {
    let deepest = module(
        r#"(import "roost" "idle_states" (func $states (result i32)))
           (func (export "on_idle") (param i64 i64 i64 i64) (result i32)
               (i32.sub (call $states) (i32.const 1)))"#,
    );
    let study = Study::new(&[("ladder-1.wasm", example("ladder.wasm")), ("deepest-1.wasm", deepest)]);
    let outcomes = study.run(&["deep", "deepest-1.wasm", "ladder-1.wasm", "menu", "ladder-1.wasm + carb"]);
    assert!(figures(&outcomes[0]) == figures(&outcomes[1]), "always the deepest state");
    let power = |at: usize| outcomes[at].as_ref().expect("it ran").power.cores_watts;
    assert!(power(2) != power(0) && power(2) != power(3) && power(4) != power(2));
    assert!(figures(&outcomes[2]) == figures(&study.run(&["ladder-1.wasm"])[0]));
}

#[test]
fn arrivals_and_completions_are_told_where_a_module_asks() {
    // As many cores as there are requests.
    let text = r#"(import "roost" "set_cores" (func $set (param i32)))
        (import "roost" "workers" (func $workers (result i32)))
        (func $follow (param $in i32)
            (local.set $in (select (local.get $in) (call $workers)
                (i32.lt_u (local.get $in) (call $workers))))
            (call $set (select (local.get $in) (i32.const 1) (local.get $in))))
        (func (export "on_arrival") (param i64 i32) (call $follow (local.get 1)))
        (func (export "on_completion") (param i64 i64 i32) (call $follow (local.get 2)))"#;
    let outcomes = Study::new(&[("follow-1.wasm", module(text))]).run(&["menu", "follow-1.wasm"]);
    let active = |at: usize| outcomes[at].as_ref().expect("it ran").active;
    // Three requests are there on average.
    assert!(active(0) == 10.0 && (2.5..4.0).contains(&active(1)), "{} {}", active(0), active(1));
}

#[test]
fn a_fault_ends_its_own_run_and_says_when() {
    let late = |call: &str| {
        let text = format!(
            r#"(import "roost" "now_ns" (func $now (result i64)))
               (func $late (param i64) (if (i64.gt_s (local.get 0) (i64.const 3000000)) (then (unreachable))))
               {call}"#
        );
        module(&text)
    };
    let study = Study::new(&[
        (
            "idle-fault.wasm",
            late(
                r#"(func (export "on_idle") (param i64 i64 i64 i64) (result i32)
                       (call $late (local.get 0)) (i32.const 0))"#,
            ),
        ),
        (
            "arrival-fault.wasm",
            late(r#"(func (export "on_arrival") (param i64 i32) (call $late (local.get 0)))"#),
        ),
        ("loop-fault.wasm", module(r#"(func (export "on_epoch") (loop (br 0)))"#)),
        ("start-fault.wasm", module(r#"(func (export "on_start") unreachable) (func (export "on_epoch"))"#)),
    ]);
    let lines =
        ["idle-fault.wasm", "arrival-fault.wasm + teo", "start-fault.wasm", "loop-fault.wasm", "menu"];
    let outcomes = study.run(&lines);
    let faults = [
        "idle-fault.wasm at 3.0",
        "arrival-fault.wasm at 3.0",
        "start-fault.wasm: wasm `unreachable` instruction",
        "loop-fault.wasm at 1.00s: ran out of fuel",
    ];
    for (outcome, told) in outcomes.iter().zip(faults) {
        let problem = outcome.as_ref().expect_err("it is at fault");
        assert!(problem.starts_with("policies: `") && problem.contains(told), "{problem}");
    }
    assert!(outcomes[4].is_ok());
}

#[test]
fn a_file_that_is_not_there_or_no_policy_is_told_and_a_changed_one_is_another_cell() {
    let study = Study::new(&[
        ("none-1.wasm", b"\0asm".to_vec()),
        ("cell-1.wasm", module(r#"(func (export "on_epoch"))"#)),
    ]);
    for (line, told) in [
        ("nowhere-1.wasm", "cannot read "),
        ("none-1.wasm + teo", "binary format"),
        ("cell-1.wasm + carb", "both cell-1.wasm and carb decide how many cores"),
    ] {
        let document = study.document(&[line]);
        let error = document.and_then(|document| {
            options::contestants(&document)?
                .into_iter()
                .try_for_each(|contestant| options::task(contestant).map(drop))
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    let digest = || {
        let document = study.document(&["cell-1.wasm"]).unwrap();
        grid::scenario_digest(&options::task(options::contestants(&document).unwrap().remove(0)).unwrap())
            .unwrap()
    };
    let (first, again) = (digest(), digest());
    let other = module(r#"(func (export "on_epoch") nop)"#);
    std::fs::write(study.0.path().join("cell-1.wasm"), other).unwrap();
    assert!(first == again && first != digest());
    let idle = r#"(func (export "on_idle") (param i64 i64 i64 i64) (result i32) (i32.const 0))"#;
    std::fs::write(study.0.path().join("cell-1.wasm"), module(idle)).unwrap();
    let error = study.document(&["cell-1.wasm"]).unwrap_err().to_string();
    assert!(error.contains("decides something else than before"), "{error}");
}
