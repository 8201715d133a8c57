//! Any bytes are a recording for `roost plan` or are refused with the reason. A recording that is
//! accepted makes a file that is TOML, whatever its names are, and a scenario that can run or an error
//! that names the fault.

use sim::Document;
use sim::plan::{Recording, candidates, scenario_text};
use sim::scenario::Estimates;
use std::path::Path;

pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(recording) = Recording::read(text) else { return };
    let goal = "1ms@p99".parse().ok();
    let Ok(written) = scenario_text(&recording, goal) else { return };
    written.parse::<toml::Table>().expect("what is written is TOML");
    let Ok(document) = Document::parse(Path::new("scenario.toml"), &written, &Estimates::default()) else {
        return;
    };
    for candidate in candidates(&recording, 2, "--port 1", goal) {
        let changed = candidate
            .set
            .iter()
            .try_fold(document.clone(), |document, (key, value)| document.with(key, value));
        if let Ok(changed) = changed {
            // An error names the fault; a panic is one.
            drop(changed.setup(&candidate.policies, 1));
        }
    }
}
