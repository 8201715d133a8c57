//! Any bytes are a trace of requests, a load shape or an empirical distribution, or they are refused with file and fix.
//! Of a trace that is accepted every request can be had, by rising time.
//!
//! The first byte says which of the three.

#![no_main]

use libfuzzer_sys::fuzz_target;
use machine::Duration;
use std::path::PathBuf;
use workload::{Demand, Distribution, Shape, SpecError, TimeUnit};

/// What a file says, or why it is none.
fn read(kind: u8, file: &str) -> Result<(), SpecError> {
    match kind % 3 {
        0 => {
            let mut jobs =
                Demand { trace: Some(file.into()), ..Demand::default() }.jobs(Duration::from_secs(1))?;
            let mut before = Duration::ZERO;
            let mut count = 0;
            for job in jobs.by_ref() {
                assert!(before <= job.at);
                (before, count) = (job.at, count + 1);
            }
            assert!(count > 0);
            jobs.check()
        }
        1 => {
            let shape: Shape = format!("csv:{file}").parse()?;
            shape.profile(None, Duration::from_secs(1), 1.0).map(|profile| {
                assert!(profile.peak().as_per_second() > 0.0);
            })
        }
        _ => {
            let law =
                Distribution::Empirical { file: file.into(), unit: TimeUnit::Microseconds }.sampler()?;
            assert!(law.mean().as_nanos() > 0);
            Ok(())
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [kind, content @ ..] = bytes else { return };
    let path: PathBuf = std::env::temp_dir().join(format!("roost-fuzz-{}.csv", std::process::id()));
    std::fs::write(&path, content).expect("a temporary file");
    let file = path.to_str().expect("UTF-8");
    if let Err(error) = read(*kind, file) {
        let said = error.to_string();
        assert!(said.contains(file) || said.contains('`') || said.contains("rate"), "{said}");
    }
});
