//! `roost sim` as people use it: known figures, the same figures again, a sweep that was killed,
//! input that is wrong.

use crate::fixture::{ROOST, repository, signal, trace_events, trace_read_back};
use serde_json::Value;
use sim::scenario::Estimates;
use sim::{Document, policies};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs `roost sim` in the repository.
fn roost_sim(arguments: &[&str]) -> Ran {
    let output = Command::new(ROOST).arg("sim").args(arguments).current_dir(repository()).output();
    let output = output.expect("roost runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// A folder that goes with the test, and a place in it that is not there yet.
fn somewhere() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("run").to_str().expect("UTF-8").to_owned();
    (folder, place)
}

const MMK: &str = "scenarios/mmk.toml";

/// The rows of a CSV file by the names of its columns.
fn rows(path: &Path) -> Vec<std::collections::BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(path).expect("a CSV file");
    reader.deserialize().map(|row| row.expect("every row has every column")).collect()
}

#[test]
fn a_queue_with_ten_servers_has_the_mean_that_theory_says() {
    let (_folder, place) = somewhere();
    let arguments =
        ["run", MMK, "--policy", "poll", "--set", "machine.tick=never", "--set", "run.requests=1M"];
    let ran = roost_sim(&[&arguments[..], &["--out", &place]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for word in ["poll", "±", "p99.9", "modelled (xeon-silver-4116)", "ESTIMATE", "polling", "report: "] {
        assert!(ran.out.contains(word), "no {word} in\n{}", ran.out);
    }
    let rows = rows(&Path::new(&place).join("summary.csv"));
    let figure = |name: &str| rows[0][name].parse::<f64>().unwrap_or_else(|_| panic!("{name}: {rows:?}"));
    // Erlang C for ten servers at 0.8: 10 us of service and 2.0459 of waiting.
    assert!((figure("mean_ns") - 12_045.9).abs() < 0.02 * 12_045.9, "{rows:?}");
    assert!(
        figure("mean_low_ns") < figure("mean_ns") && figure("mean_ns") < figure("mean_high_ns"),
        "{rows:?}"
    );
    assert!((figure("working") - 0.8).abs() < 0.01, "{rows:?}");
    assert!((figure("awake_cores") - 10.0).abs() < 1e-6, "{rows:?}");
    // What the queue does not do costs as much as what it does: a core that polls never rests.
    let whole = figure("core_watts") + figure("uncore_watts");
    assert!((whole - figure("cpu_watts")).abs() < 1e-6, "{rows:?}");
}

#[test]
fn a_trace_has_sleeps_requests_clocks_and_the_decisions_that_requests_led_to() {
    let (folder, place) = somewhere();
    let trace = folder.path().join("sim.pftrace");
    let scenario = folder.path().join("scenario.toml");
    fs::write(
        &scenario,
        "policies = [\"menu\", \"menu + rubik\"]\ngoal = \"20ms@p95\"\n\
         [machine]\npreset = \"xeon-gold-6126\"\nsockets = 1\ncores = 2\n\
         [workload]\nservice = { exponential = \"2ms\" }\n\
         [run]\nutilisation = 0.5\nrequests = 3000\n",
    )
    .expect("a scenario");
    let (scenario, path) = (scenario.to_str().expect("UTF-8"), trace.to_str().expect("UTF-8"));
    let ran = roost_sim(&["run", scenario, "--out", &place, "--perfetto", path]);
    assert!(ran.code == Some(0) && ran.err.contains("open it in ui.perfetto.dev"), "{}", ran.err);
    let size = fs::metadata(&trace).expect("the trace").len();
    assert!(size < 6000 * 600, "{size} bytes for 6000 requests");
    let full =
        roost_sim(&["run", MMK, "--set", "run.requests=3000", "--out", &place, "--perfetto", "/dev/full"]);
    assert!(full.code == Some(0) && full.err.contains("cut off: No space left"), "{}", full.err);
    let nowhere = roost_sim(&["run", MMK, "--out", &place, "--perfetto", "/no/such/folder/x"]);
    assert!(nowhere.code == Some(2) && nowhere.err.contains("--perfetto: cannot write"), "{}", nowhere.err);
    let Some(found) = trace_read_back(&trace) else { return };
    let tracks: Vec<&str> = found["tracks"].as_object().unwrap().values().filter_map(Value::as_str).collect();
    for track in ["menu", "menu + rubik", "CPU 1 sleep", "CPU 1 requests", "CPU 1 waiting 1", "decisions"] {
        assert!(tracks.contains(&track), "no {track} in {tracks:?}");
    }
    assert_eq!(found["counters"]["CPU 0 clock"], "kHz", "{}", found["counters"]);
    let begun = |track: &str| {
        trace_events(&found, "TYPE_SLICE_BEGIN")
            .filter(|event| event["track"].as_str().is_some_and(|name| name.ends_with(track)))
            .count()
    };
    // Every request of both contestants, and of some the waiting; sleeps in states of the table.
    assert_eq!(begun(" requests"), 6000);
    let waited: usize = (1..=16).map(|lane| begun(&format!(" waiting {lane}"))).sum();
    assert!((600..=6000).contains(&waited), "{waited}: waking counts");
    assert!(trace_events(&found, "TYPE_SLICE_BEGIN").any(|event| event["name"] == "C1"), "it slept");
    // A decision that a request led to hangs on the slice of that request.
    let decided = trace_events(&found, "TYPE_INSTANT").find(|event| event["flows"][0].is_u64());
    let decided = decided.expect("a decision with its request");
    let request = format!("request {}", decided["notes"]["request"].as_str().expect("its number"));
    let mut of_it =
        trace_events(&found, "TYPE_SLICE_BEGIN").filter(|event| event["flows"] == decided["flows"]);
    assert!(of_it.any(|event| event["name"] == *request), "{decided}");
    assert!(decided["name"].as_str().unwrap().contains("MHz"), "{decided}");
    let clocks: std::collections::BTreeSet<u64> = trace_events(&found, "TYPE_COUNTER")
        .filter(|event| event["track"] == "CPU 0 clock")
        .map(|event| event["value"].as_f64().unwrap() as u64)
        .collect();
    assert!(clocks.len() > 1, "its clock changes: {clocks:?}");
}

#[test]
fn contestants_are_compared_in_pairs() {
    let (_folder, place) = somewhere();
    let contestants = ["--policy", "shallow", "--policy", "poll", "--set", "run.requests=100k"];
    let ran = roost_sim(&[&["run", MMK, "--out", &place, "--against", "poll"], &contestants[..]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("against poll, on the same arrivals, services and noise"), "{}", ran.out);
    let rows = rows(&Path::new(&place).join("differences.csv"));
    let row = |figure: &str| rows.iter().find(|row| row["figure"] == figure).expect("the figure's row");
    let number = |figure: &str, column: &str| row(figure)[column].parse::<f64>().expect("a number");
    assert!(rows.iter().all(|row| row["contestant"] == "shallow" && row["against"] == "poll"), "{rows:?}");
    // Sleep saves power and costs time, both beyond doubt.
    assert!(number("cpu_watts", "difference_high") < 0.0 && number("mean_ns", "difference_low") > 0.0);
    assert!(number("cpu_watts", "relative") < 0.0 && number("mean_ns", "pairs") >= 10.0, "{rows:?}");
    assert_eq!(
        (row("mean_ns")["of"].as_str(), row("cpu_watts")["of"].as_str()),
        ("batches", "stretches of time")
    );
    let json = fs::read_to_string(Path::new(&place).join("outcomes.json")).expect("a file");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["differences"].as_array().map(Vec::len), Some(rows.len()));
    let wrong = roost_sim(&["run", MMK, "--out", &place, "--against", "tio"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.err);
    assert!(wrong.err.contains("did you mean `teo`?"), "{}", wrong.err);
}

#[test]
fn figures_do_not_depend_on_the_number_of_threads() {
    let of = |cpus: &str| {
        let (_folder, place) = somewhere();
        let words = ["sim", "run", MMK, "--set", "run.requests=20k", "--json", "--out", &place];
        let command =
            Command::new("taskset").args(["-c", cpus, ROOST]).args(words).current_dir(repository()).output();
        let ran = command.expect("taskset runs");
        assert_eq!((ran.status.code(), ran.stderr.as_slice()), (Some(0), &b""[..]));
        let out = String::from_utf8(ran.stdout).expect("text");
        let parsed: Value = serde_json::from_str(&out).expect("one JSON document");
        assert_eq!(parsed["contestants"].as_array().map(Vec::len), Some(5));
        assert_eq!(parsed["contestants"][0]["contestant"], "poll");
        let kept =
            fs::read_to_string(Path::new(&place).join("outcomes.json")).expect("the same in the folder");
        assert_eq!(kept, out);
        out
    };
    assert_eq!(of("0"), of("0-1"));
}

#[test]
fn a_sweep_that_was_killed_ends_like_one_that_was_not() {
    let (_folder, whole) = somewhere();
    let (_other, killed) = somewhere();
    let axes = ["--set", "run.utilisation=0.1,0.3,0.5,0.7", "--set", "machine.cores=2,4,10"];
    let arguments = [
        &["sim", "sweep", MMK, "--set", "run.requests=50k", "--policy", "menu", "--policy", "teo"],
        &axes[..],
    ];
    let command = |place: &str, cpus: &str| {
        let mut command = Command::new("taskset");
        command.args(["-c", cpus, ROOST]).args(arguments.concat()).args(["--out", place]);
        command.current_dir(repository());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    assert!(command(&whole, "0-1").status().expect("roost runs").success());

    let mut child = command(&killed, "0").spawn().expect("roost runs");
    let cells = Path::new(&killed).join("cells.jsonl");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !fs::read_to_string(&cells).is_ok_and(|text| text.lines().count() > 2) {
        assert!(Instant::now() < deadline, "no cell was finished");
        std::thread::yield_now();
    }
    signal(child.id(), "KILL");
    let status = child.wait().expect("a killed child");
    assert_eq!(status.code(), None, "it was over before it could be killed");
    // As if the kill had come in the middle of a line.
    let text = fs::read_to_string(&cells).expect("finished cells");
    fs::write(&cells, &text[..text.len() - 20]).expect("the file is ours");

    let ran = roost_sim(&["sweep", "--out", &killed]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("of 24 cells were finished before"), "{}", ran.err);
    let csv = |place: &str| fs::read_to_string(Path::new(place).join("cells.csv")).expect("a table");
    assert_eq!(csv(&whole), csv(&killed));
    assert!(Path::new(&killed).join("report.html").exists());
    let rows = rows(&Path::new(&whole).join("cells.csv"));
    assert_eq!(rows.len(), 24);
    assert_eq!((rows[0]["machine.cores"].as_str(), rows[0]["run.utilisation"].as_str()), ("2", "0.1"));
    assert!(rows.iter().all(|row| row["verdict"] == "complete" && row["p99_ns"].parse::<f64>().is_ok()));

    // Another scenario is no continuation, and says what is different.
    let before = fs::read(&cells).expect("finished cells");
    let ran = roost_sim(&["sweep", "--out", &killed, "--set", "run.requests=30k"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("run.requests was 50000 and is 30000"), "{}", ran.err);
    assert_eq!(fs::read(&cells).expect("finished cells"), before);
    // More of the same is: one contestant more in twelve places.
    let more = ["--policy", "menu", "--policy", "teo", "--policy", "deep"];
    let ran = roost_sim(&[&["sweep", "--out", &killed, "--json"], &more[..]].concat());
    let parsed: Value = serde_json::from_str(&ran.out).expect("one JSON document");
    assert_eq!(parsed["cells"].as_array().map(Vec::len), Some(36), "{}", ran.err);
}

#[test]
fn what_more_comes_than_can_be_served_has_no_figures() {
    let (_folder, place) = somewhere();
    let arguments =
        ["run", MMK, "--set", "run.utilisation=1.3", "--policy", "menu", "--set", "run.requests=100k"];
    let ran = roost_sim(&[&arguments[..], &["--out", &place]].concat());
    assert_eq!(ran.code, Some(6), "{}", ran.err);
    assert!(ran.out.contains("unstable: menu: more arrives than can be served"), "{}", ran.out);
    assert!(!ran.out.contains('±') && !ran.out.contains("power, modelled"), "{}", ran.out);
    let rows = rows(&Path::new(&place).join("summary.csv"));
    assert_eq!(rows[0]["verdict"], "unstable");
    assert_eq!((rows[0]["p99_ns"].as_str(), rows[0]["cpu_watts"].as_str()), ("", ""));
}

#[test]
fn a_goal_or_a_precision_that_was_not_reached_is_code_5() {
    let (_folder, place) = somewhere();
    let out = ["--policy", "shallow", "--out", &place];
    let run = |more: &[&str]| roost_sim(&[&["run", MMK], &out[..], more].concat());
    let ran = run(&["--set", "run.requests=50k", "--set", "goal=1us@p99"]);
    assert_eq!(ran.code, Some(5), "{}", ran.err);
    assert!(ran.out.contains("goal 1.00us@p99 MISSED: shallow"), "{}", ran.out);
    let ran = run(&["--set", "run.requests=50k", "--set", "goal=1s@p99"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("met: shallow"), "{}", ran.out);
    // At any percentile, which then is a figure of the run.
    let ran = run(&["--set", "run.requests=50k", "--set", "goal=1us@p97.5"]);
    assert_eq!(ran.code, Some(5), "{}", ran.err);
    assert!(ran.out.contains("goal 1.00us@p97.5 MISSED: shallow"), "{}", ran.out);
    let row = &rows(&Path::new(&place).join("summary.csv"))[0];
    let nanos = |name: &str| row[name].parse::<f64>().unwrap_or_else(|_| panic!("{name}: {row:?}"));
    assert!(nanos("p95_ns") < nanos("p97.5_ns") && nanos("p97.5_ns") < nanos("p99_ns"), "{row:?}");
    let page = fs::read_to_string(Path::new(&place).join("report.html")).expect("the page");
    assert!(page.contains("goal: p97.5 of at most 1.00us"), "the goal is drawn");
    assert_eq!(run(&["--set", "run.requests=50k", "--set", "goal=1s@p97"]).code, Some(0));
    let story = ["--set", "run.horizon=whole", "--set", "run.requests=10k", "--set", "run.precision=80%@p97"];
    let ran = run(&story);
    assert_eq!(ran.code, Some(0), "{}{}", ran.err, ran.out);
    let ran = run(&["--set", "run.precision=0.5%@p99", "--set", "run.requests=50k"]);
    assert_eq!(ran.code, Some(5), "{}", ran.err);
    assert!(ran.out.contains("imprecise: shallow: not 0.5%@p99"), "{}", ran.out);
    // A story is told to its end, however precise.
    let story = ["--set", "run.horizon=whole", "--set", "run.replications=2", "--set", "run.requests=10k"];
    let ran = run(&[&story[..], &["--set", "run.precision=0.5%@p99"]].concat());
    assert_eq!((ran.code, ran.out.contains("imprecise: shallow")), (Some(5), true), "{}{}", ran.err, ran.out);
    // Without a limit of its own it goes on for as long as it takes.
    let ran = run(&["--set", "run.precision=10%@mean"]);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.err, ran.out);
    assert_eq!(rows(&Path::new(&place).join("summary.csv"))[0]["verdict"], "precise");
}

#[test]
fn the_page_of_a_simulation_is_made_again_from_its_data() {
    let wanted: &[&[&str]] = &[
        &["run", MMK, "--policy", "menu", "--set", "run.requests=10k"],
        &["sweep", MMK, "--policy", "menu", "--set", "run.requests=10k", "--set", "run.seed=1,2"],
        &[
            "fleet",
            MMK,
            "--policy",
            "menu",
            "--set",
            "run.requests=1k",
            "--set",
            "fleet={servers=2,fanout=2}",
        ],
    ];
    for arguments in wanted {
        let (_folder, place) = somewhere();
        let ran = roost_sim(&[arguments, &["--out", &place][..]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let report = || Command::new(ROOST).args(["report", &place]).output().expect("roost runs");
        let page = Path::new(&place).join("report.html");
        let before = fs::read(&page).expect("the page");
        fs::remove_file(&page).expect("the page is ours");
        let made = report();
        assert_eq!(made.status.code(), Some(0), "{}", String::from_utf8_lossy(&made.stderr));
        assert!(fs::read(&page).expect("the page") == before, "it is another page");
        // Without the data, the way to it is named.
        fs::remove_file(Path::new(&place).join("page.json")).expect("the data are ours");
        let refused = report();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!((refused.status.code(), said.contains("page.json")), (Some(2), true), "{said}");
        assert!(said.contains("again") && said.contains("sim sweep --out"), "{said}");
        assert!(fs::read(&page).expect("the page") == before, "a refusal leaves the page");
    }
}

#[test]
fn a_folder_without_a_run_is_refused_and_its_page_is_left() {
    let (_folder, place) = somewhere();
    fs::create_dir_all(&place).expect("the folder is ours");
    fs::write(Path::new(&place).join("report.html"), "report.html").expect("the folder is ours");
    let output = Command::new(ROOST).args(["report", &place]).output().expect("roost runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.contains("no run.toml")), (Some(2), true), "{said}");
    assert_eq!(fs::read_to_string(Path::new(&place).join("report.html")).expect("the page"), "report.html");
}

/// A scenario that is right, and what is put in its place or after it.
fn scenario(machine: &str, workload: &str, more: &str) -> String {
    format!(
        "policies = [\"menu\"]\n[machine]\npreset = \"xeon-silver-4116\"\n{machine}\n[workload]\n{workload}\n{more}\n"
    )
}

const LOAD: &str = "rate = \"10k\"\nservice = { exponential = \"10us\" }";

fn states(deep: &str) -> String {
    let shallow = "{ name = \"C1\", kind = \"halting\", exit_latency = 2000, target_residency = \
                   2000, power = 1000000 }";
    format!("package = false\ncstates = [{shallow}, {{ name = \"C6\", kind = \"halting\", {deep} }}]")
}

#[test]
fn wrong_input_is_named_with_its_file_key_and_fix_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a temporary file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let trace = |path: &str| scenario("", &format!("trace = {path:?}"), "");
    let empty = file("empty.csv", "");
    let unsorted = file("unsorted.csv", "2,a,1ms\n1,a,1ms\n");
    let undefined = file("undefined.csv", "0,a,1ms\nnan,a,1ms\n");
    let backwards = file("backwards.csv", "-1,a,1ms\n");
    let falling = file("falling.cdf", "1 0\n2 0.9\n3 0.5\n");
    let law_of = |path: &str| {
        let law = format!("{{ distribution = \"empirical\", file = {path:?}, unit = \"us\" }}");
        scenario("", &format!("rate = 1000\nservice = {law}"), "")
    };
    let few_states = "cstates = [{ name = \"C1\", kind = \"halting\", exit_latency = 2000, \
                      target_residency = 2000, power = 1000000 }]";
    let below = states("exit_latency = 200000, target_residency = 100000, power = 500000");
    let rising = states("exit_latency = 200000, target_residency = 200000, power = 2000000");
    let law = |cv: &str| {
        format!("rate = 1000\nservice = {{ distribution = \"lognormal\", mean = \"10us\", cv = {cv} }}")
    };
    let table: &[(String, &[&str], &[&str])] = &[
        (scenario("", LOAD, "[server]\ndispach = \"shared\""), &[], &["dispach", "did you mean `dispatch`"]),
        (scenario(&below, LOAD, ""), &[], &["machine.cstates", "C6", "residency", "hint"]),
        (scenario(&rising, LOAD, ""), &[], &["machine.cstates", "C6", "power", "hint"]),
        (scenario("", LOAD, "[run]\nutilisation = nan"), &[], &["run.utilisation", "NaN", "such as 0.8"]),
        (scenario("rest_watts = nan", LOAD, ""), &[], &["machine.rest_watts", "zero or more"]),
        (scenario("", "rate = nan\nservice = \"memcached\"", ""), &[], &["rate", "such as 800"]),
        (scenario("", &law("nan"), ""), &[], &["cv", "such as 0.5"]),
        (scenario("", &law("-1"), ""), &[], &["cv", "such as 0.5"]),
        (trace(&empty), &[], &["workload", "empty.csv", "each line is"]),
        (trace(&unsorted), &[], &["unsorted.csv:2", "sort the trace"]),
        (trace("nowhere.csv"), &[], &["nowhere.csv", "No such file"]),
        (scenario("", LOAD, ""), &["--policy", "menu + pegasos"], &["`pegasos`", "did you mean `pegasus`"]),
        (scenario("", LOAD, ""), &["--policy", "pegasus"], &["goal", "such as goal = "]),
        (
            scenario("", LOAD, "[server]\noutside = \"40us\""),
            &["--policy", "pegasus", "--set", "goal=40us@p99"],
            &["goal", "lie outside the server", "raise it"],
        ),
        (scenario("", LOAD, ""), &["--policy", "menu + teo"], &["menu", "teo", "name one of them"]),
        (
            scenario("", LOAD, ""),
            &["--policy", "peafowl"],
            &["server.dispatch", "packs connections", "hint: set server.dispatch = \"connections\""],
        ),
        (
            scenario("", LOAD, ""),
            &["--policy", "clairvoyant"],
            &["server.dispatch", "hint: set server.dispatch"],
        ),
        (
            scenario("", LOAD, "[server]\ndispatch = \"random\"\nworkers = 3"),
            &["--policy", "clairvoyant"],
            &["server.workers", "leave server.workers out"],
        ),
        (
            scenario("", LOAD, "[server]\ndispatch = \"random\""),
            &["--policy", "carb + clairvoyant"],
            &["policies", "how many cores are awake"],
        ),
        (
            scenario("", LOAD, ""),
            &["--policy", "udpm", "--set", "goal=1ms@p99"],
            &["server.dispatch", "own queue", "hint: set server.dispatch = \"random\""],
        ),
        (
            scenario("", LOAD, ""),
            &["--policy", "quiesce"],
            &["server.device", "wait for a device", "add a table [server.device]"],
        ),
        (
            scenario("", LOAD, ""),
            &["--policy", "anticipate"],
            &["server.device", "latency = ", "interrupt = "],
        ),
        (
            scenario(few_states, LOAD, ""),
            &[],
            &[
                "machine.cstates",
                "once all cores are in state 3, and there are 1",
                "set machine.package = false",
            ],
        ),
        (scenario("cstate.C6.watts = nan", LOAD, ""), &[], &["machine.cstate.C6.watts", "zero or more"]),
        (scenario("package_watts = -1.0", LOAD, ""), &[], &["machine.package_watts", "zero or more"]),
        (
            scenario("", LOAD, "[params.powernap]\nnaps = 3"),
            &[],
            &["params.powernap", "no parameters", "hint"],
        ),
        (
            scenario("", LOAD, "[params.pegasus]\nepoch = \"2s\""),
            &[],
            &[
                "params.pegasus",
                "no contestant has the policy `pegasus`: there are `menu`",
                "hint: leave it out",
            ],
        ),
        (
            scenario("", LOAD, "[[variant]]\nname = \"a\"\nset = { \"params.carb.epoch\" = \"2s\" }"),
            &[],
            &["params.carb", "no contestant has"],
        ),
        (
            scenario("", LOAD, ""),
            &["--set", "params.teo.tick=1ms", "--policy", "menu"],
            &["params.teo", "no contestant has the policy `teo`"],
        ),
        (
            scenario("", LOAD, "[params.menu]\ntick = \"0s\""),
            &[],
            &["params.menu.tick", "hint: write a time above zero, such as 100ms"],
        ),
        (
            scenario("", LOAD, ""),
            &["--policy", "pegasus", "--set", "goal=1ms@p99", "--set", "params.pegasus.idle=0.9"],
            &["params.pegasus.idle", "0.9 is above `comfortable`, 0.85", "no more than `comfortable`"],
        ),
        (
            scenario("", LOAD, ""),
            &["--policy", "udpm", "--set", "goal=1ms@p99", "--set", "params.udpm.tails.least=0"],
            &["params.udpm.tails.least", "from 1 on"],
        ),
        (
            scenario("", LOAD, ""),
            &["--policy", "schedutil", "--set", "params.schedutil.headroom=nan"],
            &["params.schedutil.headroom", "not finite"],
        ),
        (
            scenario("", LOAD, ""),
            &["--policy", "anticipate", "--set", "params.anticipate.device.band.history=0"],
            &["params.anticipate.device.band.history", "from 1 on"],
        ),
        (trace(&undefined), &[], &["undefined.csv:2", "nan"]),
        (trace(&backwards), &[], &["backwards.csv:1", "-1"]),
        (law_of(&falling), &[], &["falling.cdf:3", "hint"]),
        (law_of("nowhere.cdf"), &[], &["nowhere.cdf", "No such file"]),
        (scenario("", LOAD, ""), &["--policy", "menu", "--policy", "menu"], &["two contestants", "hint"]),
        (
            scenario("", LOAD, "[params.menu]\ntik = \"1ms\""),
            &[],
            &["params.menu", "`tik`", "docs/reference/policies.md"],
        ),
        (
            scenario("", LOAD, ""),
            &["--set", "machine.preset=xeon-silver-4117"],
            &["preset", "xeon-silver-4116"],
        ),
        (scenario("", LOAD, ""), &["--set", "server.wokers=3"], &["--set server.wokers", "`workers`"]),
        (scenario("", LOAD, ""), &["--set", "server.workers=99"], &["server.workers", "99", "hint"]),
        (
            scenario("", LOAD, ""),
            &["--set", "workload.rate=1k,2k"],
            &["--set workload.rate", "roost sim sweep"],
        ),
        (scenario("", LOAD, ""), &["--set", "policies=menu"], &["--policy"]),
        (scenario("", LOAD, ""), &["--set", "rate"], &["KEY=VALUE"]),
        (scenario("", LOAD, ""), &["--set", "run.precision=1%"], &["1%@p99"]),
        (scenario("", LOAD, ""), &["--set", "run.requests=1.5"], &["such as 200k"]),
        (scenario("", LOAD, "[fleet]\nservers = 2\nfanout = 2"), &[], &["fleet"]),
        ("policies = [".to_owned(), &[], &["line 1"]),
    ];
    let out = folder.path().join("out");
    for (text, flags, said) in table {
        let path = file("wrong.toml", text);
        let out = out.to_str().expect("UTF-8");
        let ran = roost_sim(&[&["run", &path, "--out", out], *flags].concat());
        assert_eq!(ran.code, Some(2), "{flags:?}\n{text}\n{}{}", ran.out, ran.err);
        for words in *said {
            assert!(ran.err.contains(words), "no `{words}` for {flags:?}\n{text}\n{}", ran.err);
        }
        assert!(!flags.is_empty() || ran.err.contains("wrong.toml"), "{}", ran.err);
        assert_eq!(ran.out, "", "{flags:?}");
    }
    assert!(!out.exists(), "a run that never began left {}", out.display());
    let nothing = folder.path().to_str().expect("UTF-8");
    let ran = roost_sim(&["sweep", "--out", nothing]);
    assert_eq!((ran.code, ran.err.contains("no sweep was begun here")), (Some(2), true), "{}", ran.err);
    fs::write(folder.path().join("run.toml"), "format = 1").expect("a temporary file");
    let ran = roost_sim(&["run", MMK, "--out", nothing]);
    assert_eq!((ran.code, ran.err.contains("another kind of run")), (Some(2), true), "{}", ran.err);
    for missing in [&["run"][..], &["sweep"], &["run", "nowhere.toml"]] {
        let ran = roost_sim(missing);
        assert_eq!(ran.code, Some(2), "{missing:?}");
        assert!(ran.err.contains("scenarios/mmk.toml"), "{missing:?}: {}", ran.err);
    }
}

/// The scenario files that come with Roost.
fn scenarios() -> Vec<PathBuf> {
    let folder = fs::read_dir(repository().join("scenarios")).expect("the folder is there");
    let paths = folder.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    paths.sort();
    paths
}

#[test]
fn every_scenario_that_comes_along_can_run() {
    let paths = scenarios();
    assert!(paths.len() >= 6, "{paths:?}");
    for path in paths {
        let document = Document::read(&path, &Estimates::default()).unwrap_or_else(|error| panic!("{error}"));
        document.check_params().unwrap_or_else(|error| panic!("{error}"));
        for contestant in document.contestants().expect("contestants") {
            if let Err(error) = contestant.document.setup(&contestant.policies, 1) {
                panic!("{error}");
            }
        }
    }
    let text = fs::read_to_string(repository().join(MMK)).expect("the shortest one");
    assert!(text.lines().count() <= 12, "a plain queue is a scenario of at most 12 lines");
    let guide = fs::read_to_string(repository().join("GUIDE.md")).expect("the guide");
    assert!(guide.contains(text.trim()), "the guide shows another scenario than {MMK}");
}

#[test]
fn a_time_series_comes_with_every_run() {
    let (_folder, place) = somewhere();
    let ran = roost_sim(&["run", MMK, "--policy", "teo", "--set", "run.requests=50k", "--out", &place]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let points = rows(&Path::new(&place).join("points.csv"));
    assert!(points.len() > 64, "{}", points.len());
    let mut before = 0.0;
    for point in &points {
        let figure = |name: &str| point[name].parse::<f64>().unwrap_or_else(|_| panic!("{name}: {point:?}"));
        assert!(before < figure("until_s"), "{point:?}");
        before = figure("until_s");
        let asleep = figure("residency.C1") + figure("residency.C1E") + figure("residency.C6");
        assert!((asleep + figure("awake_cores") / 10.0 - 1.0).abs() < 1e-6, "{point:?}");
    }
    let run = fs::read_to_string(Path::new(&place).join("run.toml")).expect("what was run");
    let run: toml::Table = run.parse().expect("TOML");
    let scenario = run["config"]["scenario"].as_table().expect("the scenario in force");
    assert_eq!(scenario["run"]["requests"].as_integer(), Some(50_000));
    let page = fs::read_to_string(Path::new(&place).join("report.html")).expect("the page");
    assert!(page.contains("\"lines\"") && page.contains("teo"), "a page without figures");
    // It can be run again from there.
    let text = toml::to_string(scenario).expect("TOML");
    let again = Document::parse(Path::new("run.toml"), &text, &Estimates::default());
    assert!(again.is_ok_and(|document| document.contestants().is_ok()));
}

/// The keys that a policy's table may have, in the words of the error about one that it may not.
fn parameters(word: &str) -> Vec<String> {
    // Some policies need connections, some need work that any core can take.
    let keys = ["dispatch = \"connections\"\n", ""].map(|dispatch| parameters_with(word, dispatch));
    let [connections, shared] = keys;
    connections.or(shared).unwrap_or_else(|error| panic!("{word}: {error}"))
}

fn parameters_with(word: &str, dispatch: &str) -> Result<Vec<String>, String> {
    let table = word.split('@').next().expect("a word");
    let text = format!(
        "policies = [{word:?}]\ngoal = \"1ms@p99\"\n[machine]\npreset = \"xeon-silver-4116\"\nsockets = 1\n\
         [server]\n{dispatch}[server.device]\nlatency = {{ deterministic = \"10us\" }}\n\
         interrupt = \"1us\"\n[workload]\nrate = \"10k\"\nservice = \"memcached\"\n[params.{table}]\n\
         nothing = 1\n"
    );
    let document = Document::parse(Path::new("scenario"), &text, &Estimates::default()).expect("a scenario");
    let error = match document.setup(word, 1) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{word}: a parameter that there is not was ignored"),
    };
    if error.contains(&format!("`{word}` takes no parameters")) {
        return Ok(Vec::new());
    }
    if !error.contains("unknown field `nothing`") {
        return Err(error);
    }
    let line = error.lines().next().unwrap_or_default();
    Ok(line.split('`').skip(3).step_by(2).map(str::to_owned).collect())
}

#[test]
fn every_key_that_a_policy_takes_is_on_the_reference_page() {
    let page =
        fs::read_to_string(repository().join("docs/reference/policies.md")).expect("the page is there");
    let mut missing: Vec<String> = Vec::new();
    for word in policies::words() {
        let unknown = parameters(word)
            .into_iter()
            .filter(|key| !page.contains(&format!("| `{key}` |")) && !page.contains(&format!("| `{key}.")));
        missing.extend(unknown.map(|key| format!("{key} of {word}")));
    }
    assert!(missing.is_empty(), "docs/reference/policies.md lacks {}", missing.join(", "));
}

#[test]
fn versions_of_a_kernels_policy_share_one_table() {
    let run = |set: &str| {
        let (_folder, place) = somewhere();
        let words = ["--set", "run.requests=20k", "--set", set, "--json", "--out", &place];
        roost_sim(&[&["run", MMK, "--policy", "teo@7.0"][..], &words].concat())
    };
    let [plain, slow] = ["run.seed=1", "params.teo.tick=\"40ms\""].map(run);
    assert_eq!((plain.code, slow.code), (Some(0), Some(0)), "{}{}", plain.err, slow.err);
    let refused = run("params={\"teo@7.0\"={tick=\"40ms\"}}");
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("write them below [params.teo]"), "{}", refused.err);
}

#[test]
fn every_preset_is_documented() {
    let text = fs::read_to_string(repository().join("docs/scenarios.md")).expect("the page is there");
    let machines = machine::Platform::presets().into_iter().map(|preset| preset.name);
    let services = workload::Distribution::presets().iter().map(|preset| preset.name.to_owned());
    let missing: Vec<String> =
        machines.chain(services).filter(|name| !text.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/scenarios.md does not tell of: {}", missing.join(", "));
}
