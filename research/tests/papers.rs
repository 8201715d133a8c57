//! `roost-papers`: every figure of the papers can be run and every claim finds its runs; kept runs
//! are not made again.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

const PAPERS: &str = env!("CARGO_BIN_EXE_roost-papers");
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs `roost-papers` in the repository.
fn paper(arguments: &[&str]) -> Ran {
    let output = Command::new(PAPERS).args(arguments).current_dir(REPOSITORY).output();
    let output = output.expect("roost runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// The figures that the papers print and that are simulated.
const FIGURES: [(&str, &[&str]); 5] = [
    ("carb", &["1", "2", "3", "4", "5", "6", "7", "8"]),
    ("tradeoffs", &["3", "6", "7", "8", "10"]),
    ("peafowl", &["1", "4", "5", "6", "7", "9", "10", "11"]),
    ("cpu-sleeps", &["1", "2", "3", "bursts", "quiescence"]),
    ("hurry-up", &["1", "2", "3", "7", "8", "9", "10", "11", "12", "13", "table1", "table3", "table4"]),
];

#[test]
fn the_list_has_every_figure() {
    let ran = paper(&["--list"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let listed: Vec<&str> = ran.out.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for (paper, figures) in FIGURES {
        for figure in figures {
            assert!(listed.contains(&format!("{paper}/{figure}").as_str()), "{paper}/{figure}: {}", ran.out);
        }
    }
}

#[test]
fn figures_are_run_once_judged_and_varied() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("run").to_str().expect("UTF-8").to_owned();
    let markdown = folder.path().join("papers.md").to_str().expect("UTF-8").to_owned();
    let names = ["tradeoffs/6", "cpu-sleeps/2", "hurry-up/8", "hurry-up/9"];
    let flags = ["--quick", "--sensitivity", "--json", "--out", &place, "--markdown", &markdown];
    let arguments = [&names[..], &flags[..]].concat();
    let first = paper(&arguments);
    assert_eq!((first.code, first.err.as_str()), (Some(0), ""));
    let results: Value = serde_json::from_str(&first.out).expect("one JSON document");
    assert_eq!(results["quick"], true);
    let figures = results["figures"].as_array().expect("figures");
    assert_eq!(figures.len(), 4);
    // A median of two sleeping CPUs against two awake ones is no matter of chance: 2.4 in the
    // paper, here by its sign.
    let ratio = &figures[0]["headlines"][0];
    assert_eq!(ratio["id"], "tradeoffs-rpc-median");
    assert!(ratio["ours"].as_f64().is_some_and(|ours| (1.2..5.0).contains(&ours)), "{ratio}");
    for figure in figures {
        let runs = figure["runs"].as_array().expect("runs");
        assert!(runs.iter().all(|run| run["outcome"]["requests"].as_u64() > Some(0)), "{figure}");
        let headlines = figure["headlines"].as_array().expect("headlines").len();
        assert_eq!(figure["sensitivities"].as_array().map(Vec::len), Some(headlines));
        // A table begins from the headline's own value.
        for at in 0..headlines {
            let (table, headline) = (&figure["sensitivities"][at], &figure["headlines"][at]);
            assert_eq!(table["claim"], headline["id"]);
            assert_eq!(table["base"]["Ok"], headline["ours"], "{table}");
        }
    }
    let moved = &figures[0]["sensitivities"][0]["moved"];
    assert!(moved[0]["by"].as_f64().is_some_and(|by| by > 0.0), "nothing moves it: {moved}");
    let page = fs::read_to_string(Path::new(&place).join("report.html")).expect("a page");
    assert!(page.contains("Nothing here is a result") && page.contains("tradeoffs-rpc-median"));
    let text = fs::read_to_string(&markdown).expect("the tables");
    assert!(text.contains("## Tradeoffs") && text.contains("`tradeoffs-rpc-median`"), "{text}");

    // The runs of Hurry-up 8 and 9 are the same; and none is made again.
    let cells = Path::new(&place).join("cells.jsonl");
    let kept = fs::read_to_string(&cells).expect("finished runs");
    assert_eq!(figures[2]["runs"], figures[3]["runs"]);
    let again = paper(&arguments);
    assert_eq!(again.code, Some(0), "{}", again.err);
    assert_eq!(fs::read_to_string(&cells).expect("finished runs"), kept);
    assert_eq!(again.out, first.out);
}

/// Requests of a finished run, by its line.
fn length(line: &str) -> u64 {
    let cell: Value = serde_json::from_str(line).expect("a run");
    cell["run"]["requests"].as_u64().expect("its requests")
}

#[test]
fn runs_that_are_compared_have_the_short_forms_length_on_both_sides() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("run");
    let ran = paper(&["cpu-sleeps/2", "--sensitivity", "--json", "--out", place.to_str().expect("UTF-8")]);
    let results = json(&ran);
    let own = results["figures"][0]["runs"].as_array().expect("runs").len();
    let cells = fs::read_to_string(place.join("cells.jsonl")).expect("finished runs");
    let (whole, short): (Vec<u64>, Vec<u64>) =
        cells.lines().map(length).partition(|&length| length >= 200_000);
    // And two of Roost's own policy beside them.
    assert_eq!((whole.len(), own), (8, 6), "the figure's own runs keep their length");
    assert!(short.len() > 8 && short.iter().all(|&length| (20_000..22_000).contains(&length)), "{short:?}");
    let tables = results["figures"][0]["sensitivities"].as_array().expect("tables");
    assert!(tables.iter().all(|table| table["base"]["Ok"].is_f64()), "{tables:?}");
}

/// How the contest of `cpu-sleeps/2` begins.
const CONTEST: &str = "[[contest]]\npaper = \"cpu-sleeps\"\nfigure = \"2\"\n";

/// The requests of the runs of `cpu-sleeps/2`, its contest with this line more.
fn lengths_with(line: &str) -> Vec<u64> {
    let papers = edited("headlines.toml", |text| text.replace(CONTEST, &format!("{CONTEST}{line}\n")));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("run");
    let [papers, out] = [papers.path(), &place].map(|path| path.to_str().expect("UTF-8"));
    json(&paper(&["cpu-sleeps/2", "--quick", "--json", "--papers", papers, "--out", out]));
    let cells = fs::read_to_string(place.join("cells.jsonl")).expect("finished runs");
    let mut lengths: Vec<u64> = cells.lines().map(length).collect();
    lengths.sort_unstable();
    lengths
}

#[test]
fn both_sides_of_a_longer_contest_are_longer_and_the_figure_is_not() {
    let lengths = lengths_with("longer = 3");
    let once = lengths[0];
    assert_eq!(lengths, [vec![once; 6], vec![3 * once; 4]].concat());
}

#[test]
fn keys_for_both_sides_of_a_contest_are_not_set_for_the_figure() {
    let lengths = lengths_with("both_set.\"run.requests\" = 777");
    let figure = lengths[lengths.len() - 1];
    assert!(figure > 777);
    assert_eq!(lengths, [vec![777; 4], vec![figure; 6]].concat());
}

#[test]
fn a_wrong_key_of_a_contest_is_found_before_the_first_run() {
    for line in ["both_set.\"run.horizn\" = 1", "ours_set.\"server.worker\" = 1"] {
        let papers = edited("headlines.toml", |text| text.replace(CONTEST, &format!("{CONTEST}{line}\n")));
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = folder.path().join("run");
        let [papers, out] = [papers.path(), &place].map(|path| path.to_str().expect("UTF-8"));
        let ran = paper(&["cpu-sleeps/2", "--quick", "--papers", papers, "--out", out]);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert!(ran.err.contains("contest of cpu-sleeps/2 in headlines.toml"), "{}", ran.err);
        let cells = fs::read_to_string(place.join("cells.jsonl")).unwrap_or_default();
        assert_eq!(cells, "", "runs were made");
    }
}

#[test]
fn a_wrong_name_is_told_the_nearest() {
    for (name, hint) in [("crab", "did you mean `carb`?"), ("carb/9", "did you mean `carb/"), ("x", "--list")]
    {
        let ran = paper(&[name]);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert!(ran.err.contains(hint), "{name}: {}", ran.err);
    }
    let ran = paper(&[]);
    assert!(ran.code == Some(2) && ran.err.contains("--list"), "{}", ran.err);
}

#[test]
fn a_name_to_vary_that_does_not_exist_is_refused_before_the_first_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let ran = paper(&["hurry-up/1", "--quick", "--vary", "nonsense", "--out", out.to_str().unwrap()]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("nonsense"), "{}", ran.err);
    let cells = fs::read_to_string(out.join("cells.jsonl")).unwrap_or_default();
    assert_eq!(cells.lines().count(), 0, "runs were made");
}

/// A copy of the folder of papers in which a figure's file has another text.
fn edited(figure: &str, edit: impl Fn(&str) -> String) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).expect("a folder");
        for entry in fs::read_dir(from).expect("the folder of papers") {
            let path = entry.expect("an entry").path();
            let copied = to.join(path.file_name().expect("a name"));
            if path.is_dir() {
                copy(&path, &copied);
            } else {
                fs::copy(&path, copied).expect("a copy");
            }
        }
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    copy(&Path::new(REPOSITORY).join("papers"), folder.path());
    let path = folder.path().join(figure);
    let text = fs::read_to_string(&path).expect("a figure");
    let changed = edit(&text);
    assert_ne!(changed, text, "{figure} has no such line");
    fs::write(path, changed).expect("written");
    folder
}

fn json(ran: &Ran) -> Value {
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    serde_json::from_str(&ran.out).expect("one JSON document")
}

#[test]
fn a_correction_undone_gives_the_figure_of_before() {
    let out = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| out.path().join(name).to_str().expect("UTF-8").to_owned();
    // The scenario as it was before `polling-share`, by hand.
    let before = edited("cpu-sleeps/1.toml", |text| {
        let kept = text.lines().filter(|line| !line.starts_with("poll_share"));
        kept.map(|line| format!("{line}\n")).collect()
    });
    let papers = before.path().to_str().expect("UTF-8");
    let old =
        json(&paper(&["cpu-sleeps/1", "--quick", "--json", "--papers", papers, "--out", &place("old")]));
    let names = ["cpu-sleeps/1", "tradeoffs/8", "--undo", "cpu-sleeps/1"];
    let new = json(&paper(&[&names[..], &["--quick", "--json", "--out", &place("new")]].concat()));

    let effects = new["corrections"].as_array().expect("effects");
    let effect = effects.iter().find(|effect| effect["correction"] == "polling-share").expect("its effect");
    let moved = effect["moved"].as_array().expect("claims");
    let claims = |results: &Value| -> Vec<(Value, Value)> {
        let figures = results["figures"].as_array().expect("figures");
        let figure = figures.iter().find(|figure| figure["paper"] == "cpu-sleeps").expect("the figure");
        let headlines = figure["headlines"].as_array().expect("headlines");
        headlines.iter().map(|claim| (claim["id"].clone(), claim["ours"].clone())).collect()
    };
    let side = |side: &str| -> Vec<(Value, Value)> {
        moved.iter().map(|moved| (moved["claim"].clone(), moved[side]["Ok"].clone())).collect()
    };
    assert_eq!(side("without"), claims(&old));
    assert_eq!(side("with"), claims(&new));
    // And it does something, where it says so.
    let awake = moved.iter().find(|moved| moved["claim"] == "sleeps-ssd-awake-power").expect("the claim");
    assert_ne!(awake["with"], awake["without"], "{awake}");

    // Of a figure that was not named nothing is undone, though `waking` changes it.
    let elsewhere = |effect: &&Value| {
        let moved = effect["moved"].as_array().expect("claims");
        moved.iter().any(|moved| moved["claim"].as_str().is_some_and(|claim| claim.starts_with("tradeoffs")))
    };
    assert_eq!(effects.iter().find(elsewhere), None);
}

#[test]
fn a_name_to_undo_that_does_not_exist_is_refused_with_the_names_that_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("run");
    let ran = paper(&["cpu-sleeps/1", "--quick", "--undo", "waking", "--out", out.to_str().expect("UTF-8")]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("`waking`"), "{}", ran.err);
    for (paper, figures) in FIGURES {
        let names = format!("{paper}/{}", figures[0]);
        assert!(ran.err.contains(&names), "{names}: {}", ran.err);
    }
    assert!(ran.err.contains("peafowl/1, 4, 5, 6, 7, 9, 10, 11;"), "{}", ran.err);
    let cells = fs::read_to_string(out.join("cells.jsonl")).unwrap_or_default();
    assert_eq!(cells.lines().count(), 0, "runs were made");
}
