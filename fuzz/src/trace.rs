//! Any bytes are a trace of requests, a load shape or an empirical distribution, or they are
//! refused with file and fix. Of a trace that is accepted every request can be had, by rising time.
//!
//! The first byte says which of the three.

use crate::file_of;
use machine::Duration;
use std::os::fd::AsRawFd as _;
use workload::{Demand, Distribution, Shape, SpecError, TimeUnit};

/// The trace of a file, or its fault.
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

pub fn run(bytes: &[u8]) {
    let [kind, content @ ..] = bytes else { return };
    let file = file_of(content);
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    if let Err(error) = read(*kind, &path) {
        let said = error.to_string();
        assert!(said.contains(&path) || said.contains('`') || said.contains("rate"), "{said}");
    }
}
