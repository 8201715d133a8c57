//! `--perfetto` of `roost observe`: every sleep of each CPU as a slice, and each second's requests, power
//! and clocks as counters. The verdict is an instant at the end.
//!
//! Sleeps are read one by one beside the counts in the kernel, which tell nothing of single ones. A
//! slice is written when its sleep ends, so one whose end was not seen is missing.

use super::results::Observation;
use crate::exit::usage;
use anyhow::Result;
use linux::Root;
use linux::perf::{IdleEvent, IdleEvents};
use machine::{CpuId, CpuList, CstateTable, Instant};
use report::perfetto::{Trace, Track};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

pub struct SleepTrace {
    path: PathBuf,
    out: Trace<BufWriter<File>>,
    events: Option<IdleEvents>,
    cpus: BTreeMap<CpuId, Followed>,
    counters: BTreeMap<String, Track>,
    last: Instant,
    sleeps: u64,
}

struct Followed {
    track: Track,
    table: CstateTable,
    asleep: Option<(Instant, usize)>,
    latest: Instant,
}

/// So many sleeps are told: 500,000 are some 40 MB.
const SLEEPS: u64 = 500_000;

impl SleepTrace {
    pub fn create(path: &Path, now: Instant) -> Result<Self> {
        let out = Trace::create(path)
            .map_err(|error| usage(format!("--perfetto: cannot write {}: {error}", path.display())))?;
        Ok(Self {
            path: path.to_owned(),
            out,
            events: None,
            cpus: BTreeMap::new(),
            counters: BTreeMap::new(),
            last: now,
            sleeps: 0,
        })
    }

    /// Watches this machine's CPUs; why their sleeps cannot be told one by one.
    pub fn watch(&mut self, cpus: &CpuList) -> Option<String> {
        match IdleEvents::open(cpus) {
            Ok(events) => {
                self.events = Some(events);
                None
            }
            Err(error) => {
                Some(format!("the trace has no sleeps, which are not read as events here: {error}"))
            }
        }
    }

    /// Takes in new sleeps of this machine.
    pub fn catch_up(&mut self, table: impl Fn(CpuId) -> CstateTable) {
        let Some(mut events) = self.events.take() else { return };
        events.drain(|event| self.event(event, &table));
        self.events = Some(events);
    }

    pub fn event(&mut self, event: IdleEvent, table: &impl Fn(CpuId) -> CstateTable) {
        let (IdleEvent::Change { cpu, .. } | IdleEvent::Lost { cpu, .. }) = event;
        let out = &mut self.out;
        let of = self.cpus.entry(cpu).or_insert_with(|| Followed {
            track: out.track(&format!("CPU {} sleep", cpu.0), None),
            table: table(cpu),
            asleep: None,
            latest: Instant::from_nanos(0),
        });
        let IdleEvent::Change { at, state, .. } = event else {
            of.asleep = None;
            return;
        };
        if at < of.latest {
            of.asleep = None;
            return;
        }
        of.latest = at;
        self.last = self.last.max(at);
        let ended = std::mem::replace(&mut of.asleep, state.map(|state| (at, state)));
        let (None, Some((since, state))) = (state, ended) else { return };
        self.sleeps += 1;
        if self.sleeps > SLEEPS {
            if self.sleeps == SLEEPS + 1 {
                out.instant(at, of.track, &format!("cut here: {SLEEPS} sleeps are shown"), &[], None);
            }
            return;
        }
        let name = of.table.0.get(state).map_or_else(|| format!("state {state}"), |known| known.name.clone());
        out.begin(since, of.track, &name, None);
        out.end(at, of.track);
    }

    pub fn value(&mut self, now: Instant, name: &str, unit: &str, value: Option<f64>) {
        let Some(value) = value.filter(|value| value.is_finite()) else { return };
        let out = &mut self.out;
        let track = *self.counters.entry(name.to_owned()).or_insert_with(|| out.counter(name, unit, None));
        self.last = self.last.max(now);
        out.value(now, track, value);
    }

    /// The clock of each domain, where the kernel tells it.
    pub fn clocks(&mut self, now: Instant, root: &Root) {
        let mut gaps = linux::Gaps::default();
        for domain in linux::frequency_domains(root, &mut gaps) {
            for cpu in &domain.cpus.0 {
                let clock = domain.current.map(|clock| clock.0 as f64);
                self.value(now, &format!("CPU {} clock", cpu.0), "kHz", clock);
            }
        }
    }

    /// Adds the verdict, and says where the trace is or why there is none.
    pub fn end(mut self, observation: &Observation) -> String {
        let track = self.out.track("verdict", None);
        for sentence in &observation.words {
            self.out.instant(self.last, track, sentence, &[], None);
        }
        self.out.end_at(&self.path)
    }
}
