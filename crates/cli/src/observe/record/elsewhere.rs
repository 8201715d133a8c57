//! A recording made elsewhere, by perf or trace-cmd, as `roost plan` reads it.
//!
//! It has the scheduler's events and perhaps those of sleep, and no requests: a wake-up of the
//! service's threads stands for one, and says that it is an ESTIMATE. Response times, connections,
//! the topology and the idle states are absent.

use super::machine::sleeps;
use super::requests::variation;
use ::observe::recording::{ServiceRecording, ServiceWork};
use ::observe::sleep::SleepPattern;
use machine::{Duration, PowerModel, Processor};
use sim::plan::recording::{Arrivals, Machine, Other, Responses, Service, Sleeps};
use sim::plan::{Known, Recording, Source};

pub fn elsewhere(found: ServiceRecording, process: u32) -> Recording {
    let work = &found.work;
    let length_s = work.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let sleeps = sleeps_of(&found, length_s);
    let mut gaps = found.notes.clone();
    gaps.extend(MISSING.map(str::to_owned));
    if found.sleeps.is_none() {
        gaps.push(
            "the recording has no cpu_idle events, so wake-ups of CPUs and idle lengths are missing"
                .to_owned(),
        );
    }
    if sleeps.busy_cpus.is_none() {
        gaps.push(
            "a CPU has too few events to say whether it worked, so the number of busy CPUs is missing"
                .to_owned(),
        );
    }
    Recording {
        format: Recording::FORMAT,
        began: UNKNOWN.to_owned(),
        length_s,
        machine: machine_of(&found),
        service: Some(service_of(
            work,
            found.name.clone().unwrap_or_else(|| format!("process {process}")),
            length_s,
        )),
        arrivals: arrivals_of(work, length_s),
        responses: Responses {
            waiting_p50_us: work.waiting.as_ref().map(|waiting| {
                let by = "the middle of sched_wakeup to sched_switch of its threads";
                Known::derived(waiting.value_at_quantile(0.5) as f64 / 1e3, by)
            }),
            ..Responses::default()
        },
        others: others_of(work, length_s),
        sleeps,
        generator: None,
        gaps,
    }
}

/// Neither perf nor trace-cmd writes down the date in a way that says its zone.
const UNKNOWN: &str = "unknown";
const MISSING: [&str; 2] = [
    "requests are not in the recording: each wake-up of the service's threads counts as one; a service that \
     takes several at a time has more, and one whose threads wake each other has fewer",
    "response times, connections, the idle states and the topology are not in the recording: the tail is not \
     compared, each CPU counts as a core, and the idle states are the preset's",
];

fn machine_of(found: &ServiceRecording) -> Machine {
    let model_name = found.processor.clone().unwrap_or_default();
    let vendor = if model_name.starts_with("AMD") { "AuthenticAMD" } else { "" };
    let model = PowerModel::for_processor(&Processor { vendor: vendor.to_owned(), family: None, model_name });
    let preset = model.name.split(',').next().unwrap_or_default().to_owned();
    Machine {
        kernel: found.kernel.clone(),
        processor: found.processor.clone(),
        preset: found.processor.is_some().then(|| {
            if model.name == preset {
                Known::derived(preset, "the preset of this processor")
            } else {
                Known::estimate(preset, "of a machine like it: the processor is not listed")
            }
        }),
        topology: Some(Source::Estimate),
        sockets: 1,
        cores: u16::try_from(found.cpus).unwrap_or(u16::MAX),
        threads: 1,
        ..Machine::default()
    }
}

fn service_of(work: &ServiceWork, name: String, length_s: f64) -> Service {
    let often = work.threads.iter().filter(|&&turns| turns as f64 >= length_s).count() as u32;
    let cpu_us = work.service.cpu.as_secs_f64() * 1e6;
    Service {
        name,
        threads: (often > 0)
            .then(|| Known::measured(often, "threads on a CPU once a second or more, sched_switch")),
        cpu_us: (work.wakes > 0 && cpu_us > 0.0).then(|| {
            Known::estimate(cpu_us / work.wakes as f64, "CPU time of its threads over their wake-ups")
        }),
        work_cv: work.work.as_ref().and_then(variation).map(|cv| {
            Known::estimate(cv.value, "lognormal through p50 and p90 of CPU time from wake-up to sleep")
        }),
        turns_per_s: Some(Known::measured(
            work.service.turns as f64 / length_s,
            "turns on a CPU, sched_switch",
        )),
        requests_a_turn: None,
        ..Service::default()
    }
}

fn arrivals_of(work: &ServiceWork, length_s: f64) -> Arrivals {
    Arrivals {
        requests: work.wakes,
        rate_per_s: (work.wakes > 0)
            .then(|| Known::estimate(work.wakes as f64 / length_s, "wake-ups of its threads, sched_switch")),
        each_second: work.each_second.iter().map(|&count| count as f64).collect(),
        ..Arrivals::default()
    }
}

fn others_of(work: &ServiceWork, length_s: f64) -> Vec<Other> {
    if work.others.turns == 0 {
        return Vec::new();
    }
    let length = work.others.cpu.as_secs_f64() * 1e6 / work.others.turns as f64;
    vec![Other {
        name: "other threads".to_owned(),
        per_s: Known::measured(work.others.turns as f64 / length_s, "turns on a CPU, sched_switch"),
        length_us: (length > 0.0).then(|| Known::derived(length, "CPU time over turns, sched_switch")),
    }]
}

/// Busy CPUs by the events of sleep, else by those of the scheduler: whichever tell of nearly all
/// the time of all CPUs. A CPU without an event may have done anything.
fn sleeps_of(found: &ServiceRecording, length_s: f64) -> Sleeps {
    let work = &found.work;
    let threads_s = (work.service.cpu + work.others.cpu).as_secs_f64();
    let seen_s = threads_s + work.idle.as_secs_f64();
    let by_threads = (seen_s >= NEARLY_ALL * length_s * f64::from(found.cpus))
        .then(|| Known::measured(threads_s / length_s, "CPU time of all threads, sched_switch"));
    let Some(pattern) = &found.sleeps else {
        return Sleeps { busy_cpus: by_threads, ..Sleeps::default() };
    };
    let length_s = pattern.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let busy = told(pattern, found.cpus, length_s).or(by_threads);
    sleeps(pattern, busy, threads_s, length_s)
}

const NEARLY_ALL: f64 = 0.95;

fn told(pattern: &SleepPattern, cpus: u32, length_s: f64) -> Option<Known<f64>> {
    let active: Duration = pattern.cpus.iter().map(|cpu| cpu.active.time()).sum();
    let idle: Duration = pattern.cpus.iter().flat_map(|cpu| &cpu.idle).map(|lengths| lengths.time()).sum();
    let seen = (active + idle).as_secs_f64();
    (seen >= NEARLY_ALL * length_s * f64::from(cpus))
        .then(|| Known::measured(active.as_secs_f64() / length_s, "cpu_idle events"))
}
