//! The doors for strangers' bytes, one function for each: it takes any bytes, and panics if an
//! invariant breaks. The tests give it the inputs in `corpus/`, libFuzzer variations of them
//! (`scripts/fuzz`).

use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::Write as _;

mod peafowl;

pub mod answer;
pub mod config;
pub mod control_line;
pub mod hot;
pub mod http_answer;
pub mod http_head;
pub mod items;
pub mod journal;
pub mod kit;
pub mod knobs;
pub mod module;
pub mod perf_data;
pub mod plan;
pub mod published;
pub mod recording;
pub mod redis_reply;
pub mod request;
pub mod scenario;
pub mod scrape_page;
pub mod session;
pub mod slots;
pub mod state;
pub mod trace;
pub mod wake_line;
pub mod wake_ring;

#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As its file, its program and its folder in `corpus/` are called.
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Another folder with inputs, from the repository's root.
    pub more: Option<&'static str>,
}

pub const TARGETS: &[Target] = &[
    Target { name: "answer", run: answer::run, more: None },
    Target { name: "config", run: config::run, more: None },
    Target { name: "control_line", run: control_line::run, more: None },
    Target { name: "hot", run: hot::run, more: None },
    Target { name: "http_answer", run: http_answer::run, more: None },
    Target { name: "http_head", run: http_head::run, more: None },
    Target { name: "items", run: items::run, more: None },
    Target { name: "journal", run: journal::run, more: Some("testdata/journals") },
    Target { name: "kit", run: kit::run, more: None },
    Target { name: "knobs", run: knobs::run, more: None },
    Target { name: "module", run: module::run, more: None },
    Target { name: "perf_data", run: perf_data::run, more: None },
    Target { name: "plan", run: plan::run, more: None },
    Target { name: "published", run: published::run, more: None },
    Target { name: "recording", run: recording::run, more: None },
    Target { name: "redis_reply", run: redis_reply::run, more: None },
    Target { name: "request", run: request::run, more: None },
    Target { name: "scenario", run: scenario::run, more: Some("scenarios") },
    Target { name: "scrape_page", run: scrape_page::run, more: None },
    Target { name: "session", run: session::run, more: None },
    Target { name: "slots", run: slots::run, more: Some("testdata/slots") },
    Target { name: "state", run: state::run, more: None },
    Target { name: "trace", run: trace::run, more: None },
    Target { name: "wake_line", run: wake_line::run, more: None },
    Target { name: "wake_ring", run: wake_ring::run, more: None },
];

/// A file with this in it, and without a name.
fn file_of(bytes: &[u8]) -> File {
    let file = rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut file = File::from(file);
    file.write_all(bytes).expect("memory");
    file
}
