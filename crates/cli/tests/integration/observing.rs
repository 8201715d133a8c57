//! `roost observe --from` as people use it: a real recording, one that breaks off, and files that
//! are of no use.

use crate::fixture::{ROOST, repository, skipped, trace_events, trace_read_back};
use machine::{CpuId, Duration, LengthHistogram, Microwatts, Platform};
use observe::sleep::{CpuPattern, Findings, Known, SleepPattern, SleepSource};
use observe::verdict::{Evidence, Held, PowerEvidence, Side, Verdict, compare};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const RECORDING: &str = "crates/observe/testdata/recordings/lab-perf-script.txt";
const WITH_WAKERS: &str = "crates/observe/testdata/recordings/lab-tracefs.txt";
const PROBED: &str = "crates/observe/testdata/doctor/lab-probe.json";

fn roost(arguments: &[&str]) -> Output {
    Command::new(ROOST).args(arguments).current_dir(repository()).output().expect("roost runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Observes a file in a folder that goes with the test.
fn observe(folder: &Path, file: &str, flags: &[&str]) -> Output {
    let out = folder.join("run");
    roost(&[&["observe", "--from", file, "--out", out.to_str().expect("UTF-8")], flags].concat())
}

/// One clear line and exit code 2.
fn refused(folder: &Path, content: &[u8]) -> String {
    let file = folder.join("rec.txt");
    fs::write(&file, content).expect("a temporary file");
    let output = observe(folder, file.to_str().expect("UTF-8"), &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!((said.lines().count(), said.contains("rec.txt")), (1, true), "{said}");
    assert!(!folder.join("run").exists(), "nothing was observed, and yet there is a folder");
    said
}

#[test]
fn a_real_recording_becomes_a_table_a_document_and_a_page() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = observe(folder.path(), RECORDING, &["--machine", "xeon-silver-4116"]);
    let said = text(&output.stdout).replace('\n', " ");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for words in ["1.80s on 8 CPUs, 1088 sleeps, 0 events lost", "C1E", "cpu7", "Try first: ", "report: "] {
        assert!(said.contains(words), "no {words} in\n{said}");
    }
    let run = folder.path().join("run");
    let page = fs::read_to_string(run.join("report.html")).expect("the page");
    for words in ["Time by the length of periods", "Residency by CPU", "Sleeps per second", "\"lines\""] {
        assert!(page.contains(words), "no {words} on the page");
    }
    let kept: Value =
        serde_json::from_slice(&fs::read(run.join("sleeps.json")).expect("the document")).expect("JSON");
    let all = &kept["findings"]["all"];
    let states = all["states"].as_array().expect("states");
    let shares: f64 = states.iter().filter_map(|state| state["share"].as_f64()).sum();
    assert!((shares + all["active"].as_f64().expect("a share") - 1.0).abs() < 1e-6, "{all}");
    assert!(run.join("run.toml").is_file());
}

#[test]
fn a_file_of_perf_is_read_like_its_text() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let of = |name: &str| {
        let file = format!("crates/observe/testdata/recordings/{name}");
        let output = observe(folder.path(), &file, &["--json"]);
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (found["layout"].clone(), found["findings"]["all"]["sleeps"].clone())
    };
    let (file, text) = (of("service.perf.data"), of("service-perf-script.txt"));
    assert_eq!((&file.0, &text.0), (&"perf record".into(), &"perf script".into()));
    assert!(file.1 == text.1 && file.1.as_u64() > Some(100), "{file:?} {text:?}");
}

#[test]
fn the_sleeps_of_a_recording_are_slices_of_a_trace() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("sleeps.pftrace");
    let flags = ["--machine", "xeon-silver-4116", "--json", "--perfetto", path.to_str().expect("UTF-8")];
    let output = observe(folder.path(), RECORDING, &flags);
    assert!(text(&output.stderr).contains("open it in ui.perfetto.dev"), "{}", text(&output.stderr));
    let kept: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let Some(found) = trace_read_back(&path) else { return };
    let sleeps = trace_events(&found, "TYPE_SLICE_BEGIN").count() as u64;
    assert_eq!(kept["findings"]["all"]["sleeps"].as_u64(), Some(sleeps));
    assert!(found["tracks"].as_object().unwrap().values().any(|name| name == "CPU 7 sleep"), "{found}");
    let words = kept["words"].as_array().expect("the verdict").len();
    assert_eq!(
        trace_events(&found, "TYPE_INSTANT").filter(|event| event["track"] == "verdict").count(),
        words
    );
}

#[test]
fn this_machine_is_traced_where_it_shows_its_sleeps() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, out) = (folder.path().join("here.pftrace"), folder.path().join("run"));
    let mut flags = vec!["observe", "--for", "2s", "--json", "--meter", "echo 7"];
    flags.extend(["--perfetto", path.to_str().expect("UTF-8"), "--out", out.to_str().expect("UTF-8")]);
    let output = roost(&flags);
    if output.status.code() == Some(3) {
        return skipped("a trace of this machine", "it shows nothing of its sleeps");
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let Some(found) = trace_read_back(&path) else { return };
    assert_eq!(found["counters"]["power"], "W", "{}", found["counters"]);
    let kept: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let notes = kept["notes"].to_string();
    let sleeps = trace_events(&found, "TYPE_SLICE_BEGIN").count();
    // CPUs that other programs keep busy do not sleep.
    let is_without =
        notes.contains("the trace has no sleeps") || notes.contains("neither fell asleep nor woke");
    assert!(sleeps > 0 || is_without, "{notes}");
}

#[test]
fn the_document_is_also_printed_and_says_nothing_of_states_that_nobody_described() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = observe(folder.path(), WITH_WAKERS, &["--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let all = &found["findings"]["all"];
    assert_eq!(all["states"][3]["name"], "state 3");
    assert!(all.get("premature").is_none() && found["verdict"].get("tail").is_none(), "{all}");
    assert!(all["wakers"]["timer"].as_u64().is_some_and(|timer| timer > 100), "{all}");
    assert_eq!(found["layout"], "trace-cmd report");
}

#[test]
fn a_recording_that_breaks_off_counts_as_far_as_it_goes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let whole = fs::read(repository().join(RECORDING)).expect("the recording");
    let file = folder.path().join("cut.txt");
    fs::write(&file, &whole[..whole.len() / 2 + 11]).expect("a temporary file");
    let output = observe(folder.path(), file.to_str().expect("UTF-8"), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout).replace('\n', " ");
    assert!(said.contains("note: The recording breaks off in the middle of line"), "{said}");
}

#[test]
fn what_is_no_recording_is_told_so_in_one_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    assert!(refused(path, b"").contains("is empty"));
    assert!(refused(path, b"once upon a time\n").contains("is no recording"));
    assert!(refused(path, &[0x9f; 70_000]).contains("is no recording"));
    assert!(refused(path, b"PERFILE2\0\0").contains("perf script"));
    let others = b"bash 7 [000] 1.5: sched:sched_waking: comm=x\n";
    assert!(refused(path, others).contains("perf record -e power:cpu_idle -a"));
    let timeless = b"swapper 0 [000] power:cpu_idle: state=1 cpu_id=0\n";
    assert!(refused(path, timeless).contains("line 1: no time"));
    let missing = observe(path, "no/such/rec.txt", &[]);
    assert_eq!((missing.status.code(), text(&missing.stderr).lines().count()), (Some(2), 1));
}

#[test]
fn flags_that_are_wrong_name_the_fix() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = observe(folder.path(), RECORDING, &["--machine", "xeon-silver-411"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("did you mean xeon-silver-4116?"), "{said}");
    // Of this machine the kernel tells its states; another's are named for a recording alone.
    let output = roost(&["observe", "--machine", "xeon-silver-4116"]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.contains("--from")), (Some(2), true), "{said}");
}

/// A document of `roost doctor --json --probe`, of a machine with the states of `xeon-silver-4114`.
fn probed(folder: &Path) -> String {
    let lab = fs::read_to_string(repository().join(PROBED)).expect("the document");
    let file = folder.join("probed.json");
    // The lab's states have that server's latencies, under the names that ACPI gives them.
    fs::write(&file, lab.replace("\"C2\"", "\"C1E\"").replace("\"C3\"", "\"C6\"")).expect("a temporary file");
    file.to_str().expect("UTF-8").to_owned()
}

#[test]
fn measured_wake_latencies_take_the_place_of_advertised_ones_and_are_called_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let machine = ["--machine", "xeon-silver-4114"];
    let file = probed(folder.path());
    let measured = [&machine[..], &["--wake-latency", &file, "--json"]].concat();
    let of = |flags: &[&str]| -> Value {
        let output = observe(folder.path(), RECORDING, flags);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let advertised = of(&[&machine[..], &["--json"]].concat());
    let measured = of(&measured);
    let all = |found: &Value, pointer: &str| found["findings"]["all"].pointer(pointer).cloned();
    for (found, source, c6_ns) in [(&advertised, "advertised", 133_000), (&measured, "measured", 192_061)] {
        assert_eq!(all(found, "/wake_cost/source"), Some(source.into()));
        assert_eq!(all(found, "/states/3/wake/source"), Some(source.into()));
        assert_eq!(all(found, "/states/3/wake/usual_ns"), Some(c6_ns.into()));
        assert_eq!(found["verdict"]["tail"]["source"], source);
    }
    let cost =
        |found: &Value| all(found, "/wake_cost/share").and_then(|share| share.as_f64()).expect("a cost");
    assert!(cost(&measured) > cost(&advertised), "an emulator wakes late");
    let page = fs::read_to_string(folder.path().join("run/report.html")).expect("the page");
    assert!(
        page.contains("With measured latencies") && !page.contains("us advertised"),
        "the page says who says so"
    );
    let said = observe(folder.path(), RECORDING, &[&machine[..], &["--wake-latency", &file]].concat());
    let said = text(&said.stdout);
    assert!(
        said.contains("192us measured") && said.contains("(measured)") && !said.contains("advertised"),
        "{said}"
    );
}

#[test]
fn wake_latencies_of_no_use_are_refused_with_the_way_to_good_ones() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, content: &str| {
        let file = folder.path().join(name);
        fs::write(&file, content).expect("a temporary file");
        file.to_str().expect("UTF-8").to_owned()
    };
    let lab = repository().join(PROBED).to_str().expect("UTF-8").to_owned();
    let xeon = &["--machine", "xeon-silver-4114"][..];
    for (file, machine, words) in [
        ("/no/such/file".to_owned(), xeon, "No such file"),
        (write("empty.json", ""), xeon, "no JSON of `roost doctor`"),
        (write("other.json", "[1, 2]"), xeon, "no JSON of `roost doctor`"),
        (write("unprobed.json", "{\"probe\": null}"), xeon, "written without --probe"),
        (write("half.json", "{\"probe\": {\"sleeper\": 1}}"), xeon, "no JSON of `roost doctor`"),
        (lab.clone(), xeon, "of another machine: its C2"),
        (lab, &[][..], "name its machine with --machine"),
    ] {
        let output = observe(folder.path(), RECORDING, &[machine, &["--wake-latency", &file]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains(&format!("--wake-latency {file}: ")) && said.contains(words),
            "{words}: {said}"
        );
        assert!(said.contains("hint: "), "{said}");
        assert!(!folder.path().join("run").exists());
    }
}

#[test]
fn report_makes_the_page_of_an_observation_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    observe(folder.path(), RECORDING, &[]);
    let run = folder.path().join("run");
    let page = fs::read(run.join("report.html")).expect("the page");
    fs::remove_file(run.join("report.html")).expect("the page is ours");
    let output = roost(&["report", run.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(fs::read(run.join("report.html")).expect("the page") == page, "it is another page");
}

/// What the verdict makes of CPUs of `platform` that were idle for this share of the time.
fn verdict(platform: &Platform, idle: f64) -> Verdict {
    let lengths = |share: f64| {
        let mut lengths = LengthHistogram::default();
        (0..4_000).for_each(|_| lengths.record(Duration::from_micros(500).scale(share)));
        lengths
    };
    let cpu = |cpu| CpuPattern {
        cpu: CpuId(cpu),
        table: platform.cstates.clone(),
        idle: vec![lengths(idle)],
        active: lengths(1.0 - idle),
        wakers: None,
    };
    let cpus = (0..platform.cpus() as u16).map(cpu).collect();
    let pattern = SleepPattern { elapsed: Duration::from_secs(2), source: SleepSource::Bpf, cpus, lost: 0 };
    let power = PowerEvidence {
        model: Some(platform.power_model()),
        threads_per_core: platform.threads_per_core,
        measured: None,
    };
    Verdict::of(&Evidence { power, ..Evidence::of(Findings::of(&pattern, &Known::default())) })
}

/// The simulator takes the place of a machine: it knows queues, packed connections and short sleeps
/// in deep states, of which the prediction knows nothing.
#[test]
fn the_extremes_as_simulated_stay_within_what_is_predicted() {
    for scenario in ["scenarios/memcached.toml", "scenarios/mmk.toml", "scenarios/search.toml"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let out = folder.path().join("run");
        let policies = ["--policy", "shallow", "--policy", "deep", "--set", "run.requests=100k", "--json"];
        let place = ["--out", out.to_str().expect("UTF-8")];
        let output = roost(&[&["sim", "run", scenario], &policies[..], &place].concat());
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let known = |place: usize, pointer: &str| {
            found["contestants"][place].pointer(pointer).and_then(Value::as_f64)
        };
        let of = |place: usize, pointer: &str| {
            known(place, pointer).unwrap_or_else(|| panic!("{scenario}: no {pointer}"))
        };
        let side = |place: usize| {
            // So few requests have no interval everywhere. Without one the comparison is only
            // stricter.
            let half_width = known(place, "/responses/p99_ns/half_width").unwrap_or(0.0);
            Side {
                p99: Duration::from_nanos(of(place, "/responses/p99_ns/value") as u64),
                p99_half_width: Duration::from_nanos(half_width as u64),
                power: Some((Microwatts::from_watts(of(place, "/power/cores_watts")), Microwatts(0))),
            }
        };
        let platform: Platform =
            serde_json::from_value(found["machines"][0].clone()).expect("the simulated machine");
        let predicted = verdict(&platform, 1.0 - of(0, "/working")).prediction();
        assert!(predicted.tail.is_some_and(|tail| tail > Duration::from_micros(50)), "{predicted:?}");
        let comparison = compare(&predicted, &side(0), &side(1));
        assert!(comparison.is_within(), "{scenario}: {comparison}");
        // And something did move: this is no bound that nothing can reach.
        assert!(
            matches!(comparison.tail, Some(Held::Within { changed, bound }) if changed > 0.2 * bound),
            "{comparison}"
        );
    }
}
