//! Any bytes are a published trace, or they are refused. Roost can replay its own form of one that is
//! accepted.
//!
//! The first byte says which format.

use crate::file_of;
use machine::Duration;
use std::os::fd::AsRawFd as _;
use std::sync::LazyLock;
use study::traces::{FORMATS, import};
use workload::{Demand, Distribution, Sampler, Shape};

static LAW: LazyLock<Sampler> = LazyLock::new(|| {
    let law = Distribution::Exponential { mean: Duration::from_micros(10) };
    law.sampler().expect("a mean above zero")
});

pub fn run(bytes: &[u8]) {
    let [kind, content @ ..] = bytes else { return };
    let format = &FORMATS[usize::from(*kind) % FORMATS.len()];
    let folder = tempfile::tempdir().expect("a folder");
    let mut written = Vec::new();
    let Ok(counted) = import(format, content, folder.path(), Some(&LAW), 1, &mut written) else { return };
    assert!(counted.rows > 0);
    let file = file_of(&written);
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    if written.starts_with(b"time,") {
        let demand = Demand { trace: Some(path.into()), ..Demand::default() };
        let jobs = demand.jobs(Duration::from_secs(1)).expect("a trace of ours");
        assert!(jobs.count() > 0);
    } else {
        let shape: Shape = format!("csv:{path}").parse().expect("a shape of ours");
        shape.profile(None, Duration::from_secs(1), 1.0).expect("a rate above zero");
    }
}
