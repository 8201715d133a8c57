//! The machine and its sleeps as a plan needs them.

use super::requests::finite;
use ::observe::sleep::{SleepPattern, SleepSource, Wakers};
use linux::{Root, UsageMeter};
use machine::{Cstate, CstateIndex, CstateKind, CstateTable, LengthHistogram, PowerModel};
use sim::plan::Known;
use sim::plan::recording::{Length, Machine, Responses, Sleeps, State};
use std::collections::{BTreeMap, BTreeSet};

pub fn machine(
    root: &Root,
    pattern: &SleepPattern,
    wake: &BTreeMap<CstateIndex, [f64; 2]>,
    responses: &Responses,
    busy: Option<&Known<f64>>,
    length_s: f64,
) -> Machine {
    let topology = linux::topology(root).map(|topology| topology.0).unwrap_or_default();
    let packages: BTreeSet<_> = topology.iter().map(|cpu| cpu.package).collect();
    let cores: BTreeSet<_> = topology.iter().map(|cpu| (cpu.package, cpu.core)).collect();
    let sockets = packages.len().max(1);
    let processor = linux::processor(root);
    let model = PowerModel::for_processor(&processor);
    let preset = model.name.split(',').next().unwrap_or_default().to_owned();
    let driver = linux::idle_driver(root);
    let facts = linux::identity(root, &mut linux::Gaps::default());
    // A CPU that was busy the whole time has no pattern, and its kernel knows its states all the same.
    let any = topology.first().and_then(|cpu| linux::idle_table(root, cpu.id).ok());
    let seen = pattern.cpus.iter().map(|cpu| &cpu.table).max_by_key(|table| table.0.len());
    let table = seen.or(any.as_ref());
    let mut gaps = linux::Gaps::default();
    let clocks = linux::frequency_domains(root, &mut gaps);
    let first = clocks.first();
    let bounds = first.and_then(|domain| domain.hardware_min.zip(domain.hardware_max));
    let polls = std::fs::read_to_string(root.path("sys/module/haltpoll/parameters/guest_halt_poll_ns")).ok();
    let is_haltpoll = driver.governor.as_deref() == Some("haltpoll");
    Machine {
        kernel: facts.kernel,
        processor: facts.processor,
        preset: Some(if model.name == preset {
            Known::derived(preset, "the preset of this processor")
        } else {
            Known::estimate(preset, "of a machine like it: the processor is not listed")
        }),
        virtual_machine: facts.virtual_machine,
        topology: None,
        sockets: sockets as u16,
        cores: (cores.len() / sockets).max(1) as u16,
        threads: (topology.len() / cores.len().max(1)).max(1) as u16,
        governor: driver.governor,
        halt_poll_us: polls
            .filter(|_| is_haltpoll)
            .and_then(|text| text.trim().parse::<f64>().ok())
            .map(|nanos| nanos / 1e3),
        idle_driver: driver.driver,
        states: table
            .map(|table| states(table, pattern, wake, responses, &model, busy, length_s))
            .unwrap_or_default(),
        clocks_khz: bounds.map(|(slow, fast)| vec![slow.0, fast.0]).unwrap_or_default(),
    }
}

fn states(
    table: &CstateTable,
    pattern: &SleepPattern,
    wake: &BTreeMap<CstateIndex, [f64; 2]>,
    responses: &Responses,
    model: &PowerModel,
    busy: Option<&Known<f64>>,
    length_s: f64,
) -> Vec<State> {
    let cpus = pattern.cpus.len().max(1) as f64;
    let halting = table.0.iter().filter(|state| state.kind == CstateKind::Halting).count();
    let busy = busy.map_or(1.0, |busy| busy.value / cpus);
    let state = |(at, state): (usize, &Cstate)| {
        let times = pattern.cpus.iter().filter_map(|cpu| cpu.idle.get(at));
        let share = times.map(|times| times.time().as_secs_f64()).sum::<f64>() / length_s / cpus;
        let polls = state.kind == CstateKind::Polling;
        let probed = wake.get(&CstateIndex(at as u8));
        let probed = |place: usize, which: &str| {
            let by = format!("{which} of a probe's wake-ups by another CPU, less that of a polling CPU");
            probed.map(|wake| Known::measured(wake[place], by))
        };
        let measured = probed(0, "the middle");
        // Where most requests find an idle CPU and there is one state to wake from.
        let is_told = !polls && halting == 1 && busy < 0.5;
        let derived = responses.waiting_p50_us.as_ref().filter(|_| is_told).map(|waiting| {
            Known::derived(
                waiting.value,
                format!("the middle of ready to taken, while CPUs are idle {:.0} % of the time", {
                    (1.0 - busy) * 100.0
                }),
            )
        });
        State {
            name: state.name.clone(),
            polls,
            exit_us: state.exit_latency.as_nanos() as f64 / 1e3,
            residency_us: state.target_residency.as_nanos() as f64 / 1e3,
            wake_us: measured.or(derived),
            wake_p99_us: probed(1, "the p99"),
            watts: Some(Known::estimate(
                model.idle_power(state).as_watts(),
                format!("the power table {}", model.name),
            )),
            share: (pattern.source != SleepSource::Counts).then_some(share),
        }
    };
    table.0.iter().enumerate().map(state).collect()
}

/// Mean number of CPUs that were not idle: by events where each CPU told of nearly all its time, else
/// by the kernel's own counts.
pub fn busy(usage: &mut Option<UsageMeter>, pattern: &SleepPattern) -> Option<Known<f64>> {
    const NEARLY_ALL: f64 = 0.95;
    let length_s = pattern.elapsed.as_secs_f64();
    let counted = usage.as_mut().map(|usage| usage.read(linux::now())).unwrap_or_default();
    let active = pattern.cpus.iter().map(|cpu| cpu.active.time().as_secs_f64()).sum::<f64>();
    let idle = pattern.cpus.iter().flat_map(|cpu| &cpu.idle).map(|lengths| lengths.time().as_secs_f64());
    let told = active + idle.sum::<f64>();
    let all = length_s * counted.len().max(pattern.cpus.len()) as f64;
    if pattern.source != SleepSource::Counts && all > 0.0 && told >= NEARLY_ALL * all {
        return Some(Known::measured(active / length_s, pattern.source.to_string()));
    }
    let busy = counted.iter().map(|cpu| Some(cpu.busy?.as_secs_f64() / cpu.elapsed.as_secs_f64()));
    let sum = busy.sum::<Option<f64>>().filter(|_| !counted.is_empty())?;
    Some(Known::measured(sum, "cpuidle's counts and /proc/stat"))
}

pub fn sleeps(pattern: &SleepPattern, busy: Option<Known<f64>>, all_s: f64, length_s: f64) -> Sleeps {
    if pattern.source == SleepSource::Counts {
        return Sleeps { busy_cpus: busy, ..Sleeps::default() };
    }
    let by = pattern.source.to_string();
    let cpus = pattern.cpus.len().max(1) as f64;
    let mut all = LengthHistogram::default();
    let mut wakers = Wakers::default();
    let mut are_watched = false;
    for cpu in &pattern.cpus {
        cpu.idle.iter().for_each(|lengths| all.add(lengths));
        if let Some(seen) = &cpu.wakers {
            wakers.add(seen);
            are_watched = true;
        }
    }
    let per_s = |count: u64| count as f64 / length_s;
    let causes = [
        ("timer", wakers.timer),
        ("device", wakers.device),
        ("another CPU", wakers.ipi),
        ("unseen", wakers.unseen),
    ];
    let lengths = (0..LengthHistogram::BUCKETS).filter(|&bucket| all.counts[bucket] > 0);
    let length = |bucket: usize| {
        let (from, to) = LengthHistogram::bounds(bucket);
        Length {
            from_ns: from.as_nanos(),
            to_ns: finite(to) as u64,
            per_s: per_s(all.counts[bucket]),
            time_share: all.times[bucket].as_secs_f64() / length_s / cpus,
        }
    };
    let beyond = busy.as_ref().map_or(0.0, |busy| busy.value - all_s / length_s);
    Sleeps {
        wakes_per_s: Some(Known::measured(per_s(all.count()), by)),
        causes_per_s: causes
            .into_iter()
            .filter(|_| are_watched)
            .map(|(name, count)| (name.to_owned(), per_s(count)))
            .collect(),
        idle_lengths: lengths.map(length).collect(),
        beyond_threads_cpus: (all_s > 0.0 && beyond > 0.0).then(|| {
            Known::derived(beyond, "busy CPUs less the CPU time of all threads: interrupts and wake-ups")
        }),
        busy_cpus: busy,
    }
}
