//! Any text is a scenario that can run or an error that names the fault; neither takes down the
//! program, and a scenario that is right is right again when it is written with every default.

use sim::Document;
use sim::scenario::Estimates;
use std::path::Path;

pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // Other files are not the subject here.
    if ["file", "trace", "csv"].iter().any(|word| text.contains(word)) {
        return;
    }
    let Ok(document) = Document::parse(Path::new("scenario.toml"), text, &Estimates::default()) else {
        return;
    };
    let Ok(scenario) = document.scenario() else { return };
    let Ok(contestants) = document.contestants() else { return };
    let _ = document.check_params();
    for contestant in contestants.iter().take(4) {
        match contestant.document.setup(&contestant.policies, 1) {
            Ok((_, jobs)) => assert!(jobs.take(8).map(|job| job.at).is_sorted()),
            Err(error) => assert!(error.to_string().starts_with("scenario.toml: "), "{error}"),
        }
    }
    let written = toml::to_string(&scenario).expect("a scenario is TOML");
    let again = Document::parse(Path::new("run.toml"), &written, &Estimates::default());
    again.expect("a scenario in force is a scenario");
}
