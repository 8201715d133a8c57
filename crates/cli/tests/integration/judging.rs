//! What commands say of their own figures, and whether it is true: a generator that was late, runs
//! that overwrite each other.

use crate::fixture::{ROOST, Server, repository, signal};
use linux::EndsWithParent as _;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A generator that stands still for 90 ms sends less than a hundredth of the requests of ten
/// seconds late. Its p99, p99.9 and maximum are its own all the same.
#[test]
fn a_generator_that_stood_still_says_which_figures_are_its_own() {
    let server = Server::start(&[]);
    let generator = Command::new(ROOST)
        .args(["load", "--rate", "2k", "--warmup", "1s", "--for", "9400ms", "--json"])
        .args(["--gets", "1", &format!("127.0.0.1:{}", server.port)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .ends_with_parent()
        .spawn()
        .expect("roost runs");
    let mut generator = generator;
    // The warm-up is over when two intervals have been told.
    let mut told = std::io::BufReader::new(generator.stderr.take().expect("piped"));
    for _ in 0..4 {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut told, &mut line).expect("a line of progress");
        assert!(!line.is_empty(), "the generator has ended early");
    }
    signal(generator.id(), "STOP");
    std::thread::sleep(Duration::from_millis(90));
    signal(generator.id(), "CONT");
    let rest = std::thread::spawn(move || std::io::read_to_string(told).expect("text"));
    let output = generator.wait_with_output().expect("it ends");
    let said = rest.join().expect("no panic");
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let text = format!("{outcome:#}");
    for figure in ["p99", "p999", "max"] {
        assert_eq!(outcome["stands"][figure], false, "{figure}: {text}");
    }
    assert!(
        outcome["latency"]["p99_ns"].as_u64() > outcome["latency_without_own"]["p99_ns"].as_u64(),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(6), "{text}");
    let reasons = outcome["invalid_because"].to_string();
    assert!(reasons.contains("the p99 of ") && reasons.contains("the generator's own"), "{reasons}");
    // Nothing was stored, so it read nothing.
    assert!(said.contains("found no value") && said.contains("--preload"), "{said}");
}

/// Runs that begin in the same second keep a folder each, and each says where its own is.
#[test]
fn runs_of_the_same_second_have_a_folder_each() {
    let place = tempfile::tempdir().expect("a folder");
    let scenario = repository().join("scenarios/mmk.toml");
    let scenario = scenario.to_str().expect("a name");
    let runs: Vec<_> = (1..=4)
        .map(|seed: u32| {
            Command::new(ROOST)
                .current_dir(place.path())
                .args([
                    "sim",
                    "run",
                    scenario,
                    "--policy",
                    "menu",
                    "--set",
                    "run.requests=2k",
                    "--set",
                    &format!("run.seed={seed}"),
                ])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .ends_with_parent()
                .spawn()
                .expect("roost runs")
        })
        .collect();
    let mut said = BTreeSet::new();
    for run in runs {
        let output = run.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{text}");
        let report = text
            .lines()
            .find_map(|line| line.strip_prefix("report: "))
            .expect("where its page is")
            .to_owned();
        assert!(place.path().join(&report).is_file(), "{report}");
        said.insert(report);
    }
    assert_eq!(said.len(), 4, "{said:?}");
    let kept = std::fs::read_dir(place.path().join("runs")).expect("the runs").count();
    assert_eq!(kept, 4);
}

/// Runs `roost` in a folder of its own; its exit code, and what it wrote to both streams.
fn roost(arguments: &[&str]) -> (Option<i32>, String, String) {
    let place = tempfile::tempdir().expect("a folder");
    let output = Command::new(ROOST)
        .current_dir(place.path())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("roost runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Options of which one would silently have no effect are refused, with what to do.
#[test]
fn options_that_contradict_each_other_are_refused() {
    let port = ["serve", "--port", "0", "--idle-actuator", "none"];
    let serve = |more: &[&'static str]| [&port, more].concat();
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("serve.toml");
    std::fs::write(&file, "[stealing]\nafter = \"20us\"\n").expect("a file");
    let stealing = ["--stage", "50ms@p99", "--config", file.to_str().expect("a name")];
    let table: [(Vec<&str>, &str); 8] = [
        (serve(&["--latency-goal", "500us@p99", "--policy", "all-awake"]), "--policy peafowl"),
        (serve(&["--latency-goal", "500us@p99", "--policy", "carb"]), "leave one of them out"),
        (serve(&["--stage", "50ms@p99", "--policy", "carb"]), "leave --stage out"),
        (serve(&["--policy", "joint"]), "add one, such as --latency-goal 500us@p99"),
        (
            serve(&["--policy", "joint", "--latency-goal", "500us@p99", "--active-idle", "poll"]),
            "leave it out, or leave all idle states alone by --idle-actuator none",
        ),
        (
            serve(&["--policy", "joint", "--latency-goal", "500us@p99", "--stage", "50ms@p99"]),
            "leave --stage out",
        ),
        ([&port[..], &stealing].concat(), "leave out one of the two"),
        (
            vec![
                "stage",
                "--to",
                "http://127.0.0.1:9",
                "--listen",
                "127.0.0.1:0",
                "--goal",
                "100ms@p99",
                "--period",
                "1s",
            ],
            "--period 50.0ms",
        ),
    ];
    for (arguments, told) in table {
        let (code, _, error) = roost(&arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
        assert!(error.contains(told), "{arguments:?} should mention `{told}`: {error}");
    }
}

/// A simulation of which no contestant has a figure is no success.
#[test]
fn a_simulation_in_which_nothing_is_stable_says_so_and_fails() {
    let scenario = repository().join("scenarios/mmk.toml");
    let scenario = scenario.to_str().expect("a name");
    let (code, out, error) = roost(&[
        "sim",
        "run",
        scenario,
        "--policy",
        "menu",
        "--set",
        "run.requests=5k",
        "--set",
        "run.utilisation=1.5",
    ]);
    assert_eq!(code, Some(6), "{out}{error}");
    assert!(out.contains("unstable") && error.contains("there is no figure"), "{out}{error}");
}

/// The first minute of a day is no day.
#[test]
fn a_run_shorter_than_its_shape_says_how_much_is_played() {
    let scenario = repository().join("scenarios/mmk.toml");
    let scenario = scenario.to_str().expect("a name");
    let day = "workload.shape=diurnal:1k..9k";
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("a name");
    let run = ["sim", "run", scenario, "--policy", "menu", "--set", day, "--out", out];
    let second = ["--set", "run.requests=1M", "--set", "run.length=1s", "--set", "run.replications=1"];
    let (_, _, error) = roost(&[&run[..], &second].concat());
    assert!(error.contains("0.00116 %") && error.contains("workload.compression = 86400 plays"), "{error}");
    assert!(!error.contains("run.requests"), "{error}");
    // So few requests end it before, whatever length was asked for.
    let few = ["--set", "run.requests=2k", "--set", "run.length=60s"];
    let (_, _, error) = roost(&[&run[..], &few].concat());
    assert!(error.contains("run.requests = 2000 end it"), "{error}");
    assert!(!error.contains("compression = 1440 "), "{error}");
    let (_, _, error) = roost(&["load", "127.0.0.1:1", "--rate", "1k", "--shape", "diurnal", "--for", "60s"]);
    assert!(error.contains("--compress 1440 plays all"), "{error}");
}

/// An error names the wrong word and its fix.
#[test]
fn messages_say_what_to_do() {
    let empty = tempfile::tempdir().expect("a folder");
    let empty = empty.path().to_str().expect("a name");
    let table: &[(&[&str], &[&str], &[&str])] = &[
        (
            &["serve", "--latency-goal", "500us@p101"],
            &["p101 is no percentile", "500us@p99"],
            &["such as 500us@p99"],
        ),
        (&["serve", "--latency-goal", "500us@p95"], &["measures p99", "write 500us@p99"], &[]),
        (&["serve", "--port", "0", "--listen", "unix:/nonexistent/x"], &["unix:PATH"], &[]),
        (&["serve", "--metrics", "127.0.0.1"], &["such as 127.0.0.1:9464"], &["socket address"]),
        (&["stage", "--to", "http://h:1", "--listen", "11299"], &["such as 127.0.0.1:"], &["socket address"]),
        (&["load", "https://127.0.0.1:80/", "--rate", "10"], &["TLS is not spoken"], &[]),
        (
            &["observe", "--machine", "nosuch", "--from", "/etc/passwd"],
            &["no such machine", "xeon-silver-4116"],
            &["did you mean"],
        ),
        (&["daemon", "--config", "/nonexistent.toml"], &["--port"], &[]),
        (&["govern", "--dry-run"], &["--port"], &[]),
        (&["govern", "hurry-up"], &["--slots", "--uprobe"], &[]),
        (&["restore", "--root", "/nonexistent"], &["no such folder"], &["nothing to put back"]),
        (&["report", empty], &["has no run.toml"], &[]),
        (&["replay", empty], &["no recording"], &[]),
    ];
    for (arguments, told, untold) in table {
        let (code, out, error) = roost(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {out}{error}");
        let said = format!("{out}{error}");
        for words in *told {
            assert!(said.contains(words), "{arguments:?} should mention `{words}`: {said}");
        }
        for words in *untold {
            assert!(!said.contains(words), "{arguments:?} should not mention `{words}`: {said}");
        }
    }
}

/// More cores than a service may run on are no plan, and a policy that fixes nothing is not taken
/// without a word.
#[test]
fn a_plan_that_cannot_be_is_refused_and_one_that_changes_nothing_is_told() {
    let server = Server::start(&[]);
    let port = server.port.to_string();
    let plan = |more: &[&str]| {
        roost(&[&["govern", "--dry-run", "--port", &port, "--policy", "fixed"], more].concat())
    };
    let (code, out, error) = plan(&["--cores", "9000"]);
    assert_eq!(code, Some(2), "{out}{error}");
    assert!(error.contains("cores = 9000 is more than the "), "{error}");
    let (code, out, error) = plan(&[]);
    assert_eq!(code, Some(0), "{out}{error}");
    assert!(error.contains("changes nothing"), "{error}");
    let (code, _, error) = plan(&["--cores", "1"]);
    assert_eq!((code, error.contains("changes nothing")), (Some(0), false), "{error}");
}
