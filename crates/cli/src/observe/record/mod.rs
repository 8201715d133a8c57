//! `recording.json`: an observed service as `roost plan` reads it.
//!
//! The threads' CPU time is read twice, at both ends of the observation; everything else is counted
//! by the watches that run anyway. docs/plan.md has the formulas.

mod elsewhere;
mod machine;
mod requests;
mod uses;

pub use elsewhere::elsewhere;
pub use requests::tail_us;

use ::machine::CstateIndex;
use ::observe::requests::RequestPattern;
use ::observe::sleep::{SleepPattern, SleepSource};
use linux::probes::WindowCounts;
use linux::service::Service;
use linux::{Peers, Root, ThreadUse, UsageMeter};
use machine::{busy, machine, sleeps};
use requests::{arrivals, responses, service_seen};
use sim::plan::Recording;
use sim::plan::load::loop_of;
use sim::plan::recording::Generator;
use std::collections::{BTreeMap, BTreeSet};
use uses::Uses;

/// The file in the run's folder.
pub const RECORDING: &str = "recording.json";

/// The threads of the machine when the observation began.
#[derive(Debug, Default)]
pub struct Before {
    threads: BTreeMap<u32, ThreadUse>,
    peers: Peers,
    /// `None` where the kernel does not list its CPUs.
    usage: Option<UsageMeter>,
}

/// Everything that was watched, when it ends.
pub struct Seen<'a> {
    pub began: String,
    pub service: Option<&'a Service>,
    pub sleeps: &'a SleepPattern,
    /// Measured wake-ups without the scheduler's part, p50 and p99 in microseconds by the state's
    /// number.
    pub wake: BTreeMap<CstateIndex, [f64; 2]>,
    pub requests: Option<&'a RequestPattern>,
    pub each_second: Vec<f64>,
    /// [`tail_us`] of each second that has one.
    pub tails_us: Vec<f64>,
    pub windows: Option<(WindowCounts, u64)>,
    pub gaps: Vec<String>,
}

impl Before {
    pub fn now(root: &Root, service: Option<&Service>) -> Self {
        let cpus = linux::online_cpus(root).ok();
        let usage = cpus.map(|cpus| UsageMeter::start(root, &cpus, linux::now()));
        Self { threads: linux::thread_uses(root), peers: peers(root, service), usage }
    }

    /// The recording of all that was seen since.
    pub fn recording(mut self, root: &Root, seen: Seen<'_>) -> Recording {
        let busy = busy(&mut self.usage, seen.sleeps);
        let after = linux::thread_uses(root);
        let late = peers(root, seen.service);
        let length_s = seen.sleeps.elapsed.as_secs_f64();
        let mut gaps = seen.gaps;
        if let SleepSource::Counts = seen.sleeps.source {
            gaps.push("the kernel shows no events of sleep, so idle lengths are missing".to_owned());
        }
        let uses = Uses::between(&self.threads, &after, seen.service, &self.peers, &late);
        if after.is_empty() {
            gaps.push("this kernel keeps no schedstat, so CPU time by thread is missing".to_owned());
        }
        let has_ended = seen.service.is_some_and(|service| {
            let alive = |&process: &u32| root.path(&format!("proc/{process}")).exists();
            !service.processes.is_empty() && !service.processes.iter().any(alive)
        });
        if has_ended {
            gaps.push(
                "the service ended while it was watched: its CPU time is missing, and its rate is that of \
                 the seconds until its last request"
                    .to_owned(),
            );
        }
        let connections = self.peers.connections.max(late.connections);
        let arrivals =
            arrivals(&seen.each_second, seen.requests, seen.windows, connections, length_s, has_ended);
        let responses = seen.requests.map(|requests| responses(requests, seen.tails_us)).unwrap_or_default();
        let machine = machine(root, seen.sleeps, &seen.wake, &responses, busy.as_ref(), length_s);
        let service = seen.service.map(|service| {
            let uses = (!has_ended && !after.is_empty()).then_some(&uses);
            service_seen(service, seen.requests, uses, length_s)
        });
        let peers = [&self.peers.processes, &late.processes].into_iter().flatten();
        let own = std::process::id();
        let names: BTreeSet<String> =
            peers.filter(|(process, _)| **process != own).map(|(_, name)| name.clone()).collect();
        let rate = arrivals.rate_per_s.as_ref().map(|rate| rate.value);
        let connections = arrivals.connections.as_ref().map(|connections| connections.value);
        let kind = rate
            .zip(responses.mean_us.as_ref())
            .zip(connections)
            .and_then(|((rate, mean), connections)| loop_of(rate, mean.value, connections));
        let generator = kind.map(|kind| Generator { names: names.into_iter().collect(), kind });
        Recording {
            format: Recording::FORMAT,
            began: seen.began,
            length_s,
            machine,
            service,
            arrivals,
            responses,
            others: uses.others(length_s),
            sleeps: sleeps(seen.sleeps, busy, uses.all_s, length_s),
            generator,
            gaps,
        }
    }
}

fn peers(root: &Root, service: Option<&Service>) -> Peers {
    let of = |service: &Service| {
        let &process = service.processes.first()?;
        Some(linux::peers(root, process, &service.ports))
    };
    service.and_then(of).unwrap_or_default()
}
