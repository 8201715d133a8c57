//! Watching this machine's sleeps: by the best backend that it allows.
//!
//! ```text
//!   backend        lengths  states  wakers   costs                       needs
//!   BPF            yes      yes     yes      0.2 us an event             root or CAP_BPF + CAP_PERFMON, BTF
//!   perf events    yes      yes     no       and copying each event out  root or CAP_PERFMON
//!   cpuidle        no       yes     no       a few files a second        nothing
//! ```

use super::{CpuPattern, Recorder, SleepPattern, SleepSource, Wakers};
use linux::perf::{IdleEvent, IdleEvents};
use linux::probes::IdleProgram;
use linux::{Root, idle_table, online_cpus, state_counts};
use machine::{CpuId, CpuList, CstateTable, Duration, Instant, LengthHistogram};
use std::collections::BTreeMap;

/// Sleeps of all CPUs since this was opened.
#[derive(Debug)]
pub struct SleepWatch {
    root: Root,
    cpus: CpuList,
    tables: BTreeMap<CpuId, CstateTable>,
    since: Instant,
    backend: Backend,
}

#[derive(Debug)]
enum Backend {
    Bpf(IdleProgram),
    Perf { events: IdleEvents, recorder: Recorder },
    Counts(BTreeMap<CpuId, Vec<(u64, Duration)>>),
}

/// A backend to leave out, as though the machine lacked it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    Nothing,
    /// The wakers of idle periods, which costs a little at every interrupt.
    Wakers,
    Bpf,
    Events,
}

impl SleepWatch {
    /// Starts to watch, and says for each better backend why it was not taken.
    pub fn open(root: &Root, without: Without, now: Instant) -> (Self, Vec<String>) {
        let cpus = online_cpus(root).unwrap_or_default();
        let tables = cpus.0.iter().map(|&cpu| (cpu, idle_table(root, cpu).unwrap_or_default())).collect();
        let mut notices = Vec::new();
        let backend = match without {
            Without::Nothing | Without::Wakers => match IdleProgram::load(without == Without::Nothing) {
                Ok(program) => Some(Backend::Bpf(program)),
                Err(error) => {
                    notices.push(format!("sleeps are not counted in the kernel: {error}"));
                    None
                }
            },
            _ => None,
        };
        let backend = backend.or_else(|| match without {
            Without::Events => None,
            _ => match IdleEvents::open(&cpus) {
                Ok(events) => Some(Backend::Perf { events, recorder: Recorder::default() }),
                Err(error) => {
                    notices.push(format!("sleeps are not read as events: {error}"));
                    None
                }
            },
        });
        let backend = backend.unwrap_or_else(|| {
            notices
                .push("without events there are no lengths of sleeps: residency and counts alone".to_owned());
            Backend::Counts(cpus.0.iter().map(|&cpu| (cpu, ended(root, cpu))).collect())
        });
        (Self { root: root.clone(), cpus, tables, since: now, backend }, notices)
    }

    /// Takes in new events. Events that are read one by one fill their buffers in a second on a
    /// busy machine: call this several times a second.
    pub fn catch_up(&mut self) {
        if let Backend::Perf { events, recorder } = &mut self.backend {
            events.drain(|event| match event {
                IdleEvent::Change { at, cpu, state } => recorder.event(at, cpu, state),
                IdleEvent::Lost { cpu, events } => recorder.lose(events, Some(cpu)),
            });
        }
    }

    /// The periods since this was opened.
    pub fn read(&mut self, now: Instant) -> SleepPattern {
        self.catch_up();
        let elapsed = now.since(self.since);
        let table = |cpu: CpuId| self.tables.get(&cpu).cloned().unwrap_or_default();
        match &self.backend {
            Backend::Bpf(program) => {
                let counts: Vec<_> = program.read();
                let lost = counts.iter().map(|counts| counts.odd).sum();
                let cpu = |counts: linux::probes::IdleCounts| {
                    let table = table(counts.cpu);
                    let [timer, device, ipi, unseen] = counts.wakers;
                    let wakers = program.sees_wakers().then_some(Wakers { timer, device, ipi, unseen });
                    let used = counts
                        .idle
                        .iter()
                        .rposition(|lengths| lengths.count() > 0)
                        .map_or(0, |last| last + 1);
                    let mut idle = counts.idle;
                    idle.truncate(used.max(table.0.len()));
                    CpuPattern { cpu: counts.cpu, table, idle, active: counts.active, wakers }
                };
                let cpus =
                    counts.into_iter().filter(|counts| self.cpus.0.contains(&counts.cpu)).map(cpu).collect();
                SleepPattern { elapsed, source: SleepSource::Bpf, cpus, lost }
            }
            Backend::Perf { recorder, .. } => recorder.pattern(elapsed, SleepSource::PerfRing, table),
            Backend::Counts(before) => {
                let cpu = |&cpu: &CpuId| {
                    let before = before.get(&cpu).cloned().unwrap_or_default();
                    let idle =
                        ended(&self.root, cpu).into_iter().enumerate().map(|(state, (count, time))| {
                            let (count_before, time_before) = before.get(state).copied().unwrap_or_default();
                            unknown_lengths(count.saturating_sub(count_before), time - time_before)
                        });
                    let mut idle: Vec<LengthHistogram> = idle.collect();
                    let slept = |idle: &[LengthHistogram]| {
                        idle.iter().fold(Duration::ZERO, |sum, lengths| sum + lengths.time())
                    };
                    // A sleep counts when it ends, so one that was under way at the beginning
                    // counts whole: the surplus is taken from the state that has most.
                    let surplus = slept(&idle) - elapsed;
                    if let Some(most) = idle.iter_mut().max_by_key(|lengths| lengths.time()) {
                        *most = unknown_lengths(most.count(), most.time() - surplus);
                    }
                    let slept = slept(&idle);
                    let periods = idle.iter().map(LengthHistogram::count).sum();
                    let active = unknown_lengths(periods, elapsed - slept);
                    CpuPattern { cpu, table: table(cpu), idle, active, wakers: None }
                };
                let cpus =
                    self.cpus.0.iter().filter(|cpu| before.get(cpu).is_some_and(|states| !states.is_empty()));
                SleepPattern { elapsed, source: SleepSource::Counts, cpus: cpus.map(cpu).collect(), lost: 0 }
            }
        }
    }

    /// True if nothing can be seen: no events, and no cpuidle to count for itself.
    pub fn is_blind(&self) -> bool {
        matches!(&self.backend, Backend::Counts(before) if before.values().all(Vec::is_empty))
    }

    pub fn cpus(&self) -> &CpuList {
        &self.cpus
    }
}

/// Sleeps that have ended in each state, those that the driver refused included, and their time.
fn ended(root: &Root, cpu: CpuId) -> Vec<(u64, Duration)> {
    let states = state_counts(root, cpu).unwrap_or_default();
    states.iter().map(|state| (state.usage + state.rejected.unwrap_or(0), state.time)).collect()
}

/// So many periods of this time together, of which no length is known: all are put where their mean
/// lies. Readers learn from [`SleepSource::Counts`] that the shape means nothing.
fn unknown_lengths(count: u64, time: Duration) -> LengthHistogram {
    let mut lengths = LengthHistogram::default();
    if let Some(mean) = time.as_nanos().checked_div(count) {
        let bucket = LengthHistogram::bucket_of(Duration::from_nanos(mean));
        lengths.counts[bucket] = count;
        lengths.times[bucket] = time;
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn without_events_cpuidles_counts_still_give_residency() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let write = |file: &str, text: &str| {
            let path = root.path(&format!("sys/devices/system/cpu/{file}"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("online", "0\n");
        let counts = |usage: u64, micros: u64| {
            for (state, name, latency) in [(0, "POLL", 0), (1, "C1", 2)] {
                let state = format!("cpu0/cpuidle/state{state}");
                write(&format!("{state}/name"), name);
                write(&format!("{state}/latency"), &latency.to_string());
                write(&format!("{state}/residency"), &latency.to_string());
                write(&format!("{state}/usage"), &usage.to_string());
                write(&format!("{state}/rejected"), "1");
                write(&format!("{state}/time"), &micros.to_string());
            }
        };
        counts(10, 1_000);
        let (mut watch, notices) = SleepWatch::open(&root, Without::Events, Instant::from_nanos(0));
        assert!(notices.iter().any(|notice| notice.contains("no lengths")), "{notices:?}");
        counts(14, 401_000);
        let pattern = watch.read(Instant::from_nanos(1_000_000_000));
        let cpu = &pattern.cpus[0];
        assert_eq!((cpu.idle[1].count(), cpu.idle[1].time()), (4, Duration::from_millis(400)));
        assert_eq!(cpu.active.time(), Duration::from_millis(200));
        assert_eq!((pattern.source, pattern.lost), (SleepSource::Counts, 0));
        // A sleep of nine seconds that ended in this one.
        counts(15, 9_401_000);
        let pattern = watch.read(Instant::from_nanos(2_000_000_000));
        let idle: Duration =
            pattern.cpus[0].idle.iter().fold(Duration::ZERO, |sum, lengths| sum + lengths.time());
        assert!(idle >= Duration::from_secs(2) && pattern.cpus[0].active.time().is_zero(), "{idle}");
    }

    #[test]
    fn this_machine_is_watched_by_any_backend_it_has() {
        for without in [Without::Nothing, Without::Wakers, Without::Bpf, Without::Events] {
            let began = linux::now();
            let (mut watch, notices) = SleepWatch::open(&Root::system(), without, began);
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(5));
                watch.catch_up();
            }
            let pattern = watch.read(linux::now());
            eprintln!("{:?}: {} by {}, {notices:?}", without, pattern.cpus.len(), pattern.source);
            for cpu in &pattern.cpus {
                let idle =
                    cpu.idle.iter().map(LengthHistogram::time).fold(Duration::ZERO, |sum, time| sum + time);
                // The kernel's own counts come in whole microseconds and at other instants.
                assert!(idle + cpu.active.time() <= pattern.elapsed + Duration::from_millis(20), "{cpu:?}");
            }
        }
    }
}
