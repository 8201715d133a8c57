use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::Write as _;

const HEADER: &str = "run,users,faban_s,operations,mean_s,p99_s,energy_counter,kHz_1000000,kHz_2601000\n";

/// A folder with these lines of `runs.csv`, and a log of `queries` for each run that is named.
fn folder(lines: &[&str], logs: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("runs.csv"), HEADER.to_owned() + &lines.join("\n")).unwrap();
    fs::create_dir(folder.path().join("queries")).unwrap();
    for (name, text) in logs {
        let path = folder.path().join("queries").join(name.replace('/', "__") + ".csv.gz");
        let mut file = GzEncoder::new(fs::File::create(path).unwrap(), Compression::fast());
        file.write_all(text.as_bytes()).unwrap();
        file.finish().unwrap();
    }
    folder
}

/// A query each second, from the first to `seconds`, of `keywords` keywords.
fn log(seconds: u64) -> String {
    let rows = (0..=seconds).map(|second| format!("{},{},300\n", second * 1_000, second % 3 + 1));
    "start_ms,keywords,service_ms\n".to_owned() + &rows.collect::<String>()
}

#[test]
fn power_is_energy_by_the_time_of_the_counters() {
    let lines = [
        "low/1.0-1,8,100,90,0.1,0.2,1000000 2001000000,4000,6000",
        "low/1.0-2,8,100,90,0.1,0.2,262142328850 999000000,10000,",
    ];
    let folder = folder(&lines, &[]);
    let runs = runs(folder.path()).unwrap();
    assert_eq!(runs[0].measured.seconds(), 100.0);
    assert_eq!(runs[0].measured.watts(), Some(20.0));
    assert_eq!(runs[0].measured.p99_s, Some(0.2));
    // The counter began again: 1 J before its end and 999 J after it.
    assert_eq!(runs[1].measured.watts(), Some(10.0));
}

#[test]
fn counters_that_cannot_be_have_no_power() {
    let lines = [
        "low/1.0-1,8,100,90,0.1,0.2,18446744073709551615 1,4000,6000",
        "low/1.0-2,8,100,90,0.1,0.2,1 18446744073709551615,4000,6000",
        "low/1.0-3,8,100,90,0.1,0.2,1 2,-4000,6000",
        "low/1.0-4,8,100,90,0.1,0.2,1 2,NaN,6000",
    ];
    let folder = folder(&lines, &[]);
    for run in runs(folder.path()).unwrap() {
        assert_eq!(run.measured.watts(), None, "{}", run.name);
        assert_eq!(run.exclusion().unwrap(), Some(Exclusion::NoCounters), "{}", run.name);
    }
}

#[test]
fn only_runs_at_fixed_frequencies_are_baselines() {
    let of = |name: &str| {
        let line = format!("{name},4,100,90,0.1,0.2,1 2,1,1");
        runs(folder(&[&line], &[]).path()).unwrap()[0].role()
    };
    for name in [
        "mixed/1.3/2",
        "high/1.0-1",
        "low/2.6-3",
        "governors/performance/high/1",
        "governors/powersave/low/2",
    ] {
        assert_eq!(of(name), Role::Baseline, "{name}");
    }
    for name in [
        "governors/ondemand/high/1",
        "final/high",
        "governors/hurryup-mod/low/1",
        "two-states/2.0ghz/low/1",
        "highest/1",
    ] {
        assert_eq!(of(name), Role::HeldOut, "{name}");
    }
}

#[test]
fn each_reason_of_the_rule_leaves_a_run_out() {
    let good = "4,100,90,0.1,0.2,1 2,5000,5000";
    let lines = [
        format!("final/good,{good}"),
        "final/no-energy,4,100,90,0.1,0.2,,5000,5000".to_owned(),
        "final/no-clocks,4,100,90,0.1,0.2,1 2,,".to_owned(),
        "final/two,4,100,90,0.1,0.2,1 2 3 4,5000,5000".to_owned(),
        format!("final/no-log,{good}"),
        "final/short,4,100,200,0.1,0.2,1 2,5000,5000".to_owned(),
        format!("final/long,{good}"),
        format!("final/early,{good}"),
        "final/censored,4,100,90,0.1,> 2.475,1 2,5000,5000".to_owned(),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let whole = log(98);
    let (long, early) = (log(130), log(80));
    let logs = [
        ("final/good", &whole),
        ("final/two", &whole),
        ("final/short", &whole),
        ("final/long", &long),
        ("final/early", &early),
        ("final/censored", &whole),
    ];
    let folder = folder(&lines, &logs.map(|(name, text)| (name, text.as_str())));
    let found: Vec<_> = runs(folder.path()).unwrap().iter().map(|run| run.exclusion().unwrap()).collect();
    let of_length = |log_s: f64| Some(Exclusion::OtherLength { log_s, run_s: 100.0 });
    let wanted = [
        None,
        Some(Exclusion::NoCounters),
        Some(Exclusion::NoCounters),
        Some(Exclusion::TwoRunsInOne),
        Some(Exclusion::NoLog),
        Some(Exclusion::ShortLog { queries: 99, operations: 200 }),
        of_length(130.0),
        of_length(80.0),
        Some(Exclusion::CensoredTail),
    ];
    assert_eq!(found, wanted);
}

#[test]
fn arrivals_are_the_same_without_the_column_of_service_times() {
    let whole = log(98);
    let without: String =
        whole.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned() + "\n").collect();
    let lines = ["final/whole,4,100,90,0.1,0.2,1 2,1,1", "final/without,4,100,90,0.1,0.2,1 2,1,1"];
    let folder = folder(&lines, &[("final/whole", &whole), ("final/without", &without)]);
    let runs = runs(folder.path()).unwrap();
    assert_eq!(runs[0].arrivals().unwrap(), runs[1].arrivals().unwrap());
    assert_eq!(runs[0].arrivals().unwrap()[1], Arrival { start_ms: 1_000, keywords: 2 });
    // A run that is held out tells its service times to none.
    assert!(runs[0].work().unwrap_err().to_string().contains("held out"));
}

#[test]
fn the_work_of_a_baseline_is_known() {
    let folder = folder(&["mixed/1.3/2,4,100,90,0.1,0.2,1 2,1,1"], &[("mixed/1.3/2", &log(98))]);
    let work = runs(folder.path()).unwrap()[0].work().unwrap();
    assert_eq!(work[2], Work { start_ms: 2_000, keywords: 3, service_ms: 300 });
}

#[test]
fn a_folder_of_something_else_is_an_error_that_names_the_place() {
    let empty = tempfile::tempdir().unwrap();
    let told = format!("{:#}", runs(empty.path()).unwrap_err());
    assert!(told.contains("runs.csv") && told.contains("hint"), "{told}");
    let folder = folder(&["final/a,four,100,90,0.1,0.2,1 2,1,1"], &[]);
    let told = format!("{:#}", runs(folder.path()).unwrap_err());
    assert!(told.contains("line 2") && told.contains("users"), "{told}");
    fs::write(folder.path().join("runs.csv"), "run,users\nx,1\n").unwrap();
    assert!(runs(folder.path()).is_err());
}

/// The folder of the real runs, if there is one here.
fn real_runs() -> Option<PathBuf> {
    let folder = std::env::var_os("HURRY_UP_RUNS").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("SKIPPED: HURRY_UP_RUNS names no folder with the authors' runs");
    }
    folder
}

#[test]
fn the_constants_are_those_that_the_baselines_give() {
    let Some(folder) = real_runs() else { return };
    assert_eq!(calibrated_text(&folder).unwrap(), constants::KEPT, "run `roost-papers calibrate DIR`");
}

/// Half a minute of three treatments, a query a second.
fn treated(log: &str, counters: &str) -> tempfile::TempDir {
    let names = ["final/hup-mod-calibrated-mix", "governors/ondemand/low/1", "overhead/2.6-hup/1"];
    let lines = names.map(|name| format!("{name},4,30,27,{counters}"));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    folder(&lines, &names.map(|name| (name, log)))
}

#[test]
fn a_prediction_knows_arrivals_alone() {
    let whole = log(28);
    let without: String =
        whole.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned() + "\n").collect();
    let folders = [treated(&whole, "0.1,0.2,1000000 900000000,1000,2000"), treated(&without, "0,> 2.475,,,")];
    let constants = Constants::kept().unwrap();
    let predictions = folders.map(|folder| {
        let runs = runs(folder.path()).unwrap();
        let of = |run: &Run| {
            predicted(&constants, &Treatment::of(run).unwrap(), &run.arrivals().unwrap()).unwrap()
        };
        runs.iter().map(of).collect::<Vec<Predicted>>()
    });
    // To the last bit: floats are compared as they are.
    assert_eq!(predictions[0], predictions[1]);
    let [tuned, ondemand, _] = &predictions[0][..] else { panic!("three runs") };
    assert!(tuned.watts > constants.asleep_watts && tuned.watts < 125.0, "{} W", tuned.watts);
    assert!(ondemand.p99_s > 0.0 && ondemand.p99_s < 5.0, "{} s", ondemand.p99_s);
    assert_ne!(tuned.watts, ondemand.watts);
}

#[test]
fn a_folder_is_validated_and_shown() {
    let folder = treated(&log(28), "0.1,0.2,1000000 900000000,1000,2000");
    let validation = validated(folder.path(), &Constants::kept().unwrap()).unwrap();
    assert_eq!(validation.judged_runs().count(), 3);
    // 899 J in 30 s, by hand.
    let run = &validation.runs[0];
    assert!((run.power.measured - 899.0 / 30.0).abs() < 1e-9);
    assert!((run.power.error - (run.power.predicted / run.power.measured - 1.0)).abs() < 1e-12);
    let text = validation_text(&validation);
    for part in ["final/hup-mod-calibrated-mix", "3 runs held out", "90th percentile", "bar 12 %"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&validation_json(&validation).unwrap()).unwrap();
    assert_eq!(json["format"], 1);
    assert!(json["runs"][0]["power"]["error"].is_number());
    let page = validation_page(&validation, "now");
    let html = page.html();
    assert!(html.contains("governors/ondemand/low/1") && html.contains("Measured against predicted"));
}

#[test]
fn a_folder_without_runs_that_are_held_out_is_an_error() {
    let folder = folder(&["mixed/2.6/1,8,100,90,0.1,0.2,1 2,1,1"], &[("mixed/2.6/1", &log(98))]);
    let told = validated(folder.path(), &Constants::kept().unwrap()).unwrap_err().to_string();
    assert!(told.contains("held out") && told.contains("hint"), "{told}");
}

#[test]
fn baselines_are_compared_without_a_look_at_any_other_run() {
    let counters = "4,30,27,0.1,0.2,1000000 900000000,0,3000";
    let lines = ["governors/performance/low/1", "final/hup-mod-calibrated-mix"];
    let lines = lines.map(|name| format!("{name},{counters}"));
    // The other run has no log that could be read.
    let held_out = ("final/hup-mod-calibrated-mix", "nonsense");
    let folder = folder(
        &lines.iter().map(String::as_str).collect::<Vec<_>>(),
        &[("governors/performance/low/1", &log(28)), held_out],
    );
    let constants = Constants::kept().unwrap();
    assert!(validated(folder.path(), &constants).is_err());
    let validation = validated_baselines(folder.path(), &constants).unwrap();
    assert_eq!((validation.runs.len(), validation.judged_runs().count()), (1, 1));
    assert!(validation_text(&validation).contains("1 baselines"));
}
