//! `--perfetto`: a governed service as a trace. Its CPUs with slices while they are active, its rate,
//! tail and cores, the use and the clock of each CPU as counters, and each decision with its reason.
//! An arrow leads from the epoch that was judged to the decision about it.
//!
//! Sleeps and requests are not single events here: the daemon has them summed up by epoch.

use anyhow::{Context as _, Result};
use daemon::Governed;
use machine::{CpuId, FrequencyLimit, Instant, Rate};
use report::perfetto::{Flow, Trace, Track};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

type Out = Trace<BufWriter<File>>;

pub struct ServiceTrace {
    path: PathBuf,
    out: Out,
    began: Instant,
    last: Instant,
    services: BTreeMap<String, Tracks>,
    flows: u64,
}

struct Tracks {
    service: Track,
    rate: Track,
    tail: Track,
    cores: Track,
    since: Instant,
    cpus: BTreeMap<CpuId, CpuTracks>,
}

struct CpuTracks {
    cpu: Track,
    busy: Track,
    clock: Option<Track>,
    is_active: bool,
}

impl ServiceTrace {
    pub fn create(path: &Path, now: Instant) -> Result<Self> {
        let out =
            Trace::create(path).with_context(|| format!("--perfetto: cannot write {}", path.display()))?;
        Ok(Self { path: path.to_owned(), out, began: now, last: now, services: BTreeMap::new(), flows: 0 })
    }

    /// An epoch of a service has ended.
    pub fn take(&mut self, now: Instant, governed: &Governed) {
        let status = governed.status();
        let out = &mut self.out;
        let tracks = self
            .services
            .entry(status.name.clone())
            .or_insert_with(|| Tracks::begin(out, &status.name, self.began));
        self.flows += 1;
        let flow = Flow(self.flows);
        let change = governed.last_change().filter(|change| change.epoch == status.epochs);
        out.begin(tracks.since, tracks.service, "epoch", change.map(|_| flow));
        out.end(now, tracks.service);
        (tracks.since, self.last) = (now, now);
        if let Some(change) = change {
            let name = format!("CPU {}", status.cpus);
            out.instant(now, tracks.service, &name, &[("why", &change.why)], Some(flow));
        }
        if let Some(rate) = status.service.rate {
            out.value(now, tracks.rate, Rate::as_per_second(rate));
        }
        if let Some(tail) = status.service.tail.or(status.service.p99).or(status.service.p95) {
            out.value(now, tracks.tail, tail.as_nanos() as f64 / 1000.0);
        }
        out.value(now, tracks.cores, f64::from(status.cores.0));
        for cpu in &status.allowed.0 {
            let service = tracks.service;
            let of = tracks.cpus.entry(*cpu).or_insert_with(|| CpuTracks::begin(out, *cpu, service));
            let is_active = status.cpus.0.contains(cpu);
            match (of.is_active, is_active) {
                (false, true) => out.begin(now, of.cpu, "active", None),
                (true, false) => out.end(now, of.cpu),
                _ => {}
            }
            of.is_active = is_active;
            if let Some(FrequencyLimit::AtMost(clock) | FrequencyLimit::Exactly(clock)) =
                status.clocks.get(cpu)
            {
                let name = format!("CPU {} clock", cpu.0);
                let track = *of.clock.get_or_insert_with(|| out.counter(&name, "kHz", Some(service)));
                out.value(now, track, clock.0 as f64);
            }
        }
        for usage in governed.last_cpus() {
            if let (Some(of), Some(busy)) = (tracks.cpus.get(&usage.cpu), usage.busy) {
                out.value(now, of.busy, busy.as_f64() * 100.0);
            }
        }
    }

    /// Closes all that is open, and says where the trace is or why there is none.
    pub fn end(mut self) -> String {
        for of in self.services.values().flat_map(|tracks| tracks.cpus.values()) {
            if of.is_active {
                self.out.end(self.last, of.cpu);
            }
        }
        let path = self.path.display();
        match self.out.finish() {
            Ok(()) => format!("trace: {path} (open it in ui.perfetto.dev)"),
            Err(error) => format!("the trace {path} is cut off: {error}"),
        }
    }
}

impl Tracks {
    fn begin(out: &mut Out, name: &str, began: Instant) -> Self {
        let service = out.track(name, None);
        Self {
            service,
            rate: out.counter("rate", "requests/s", Some(service)),
            tail: out.counter("tail", "us", Some(service)),
            cores: out.counter("active cores", "cores", Some(service)),
            since: began,
            cpus: BTreeMap::new(),
        }
    }
}

impl CpuTracks {
    fn begin(out: &mut Out, cpu: CpuId, service: Track) -> Self {
        let name = format!("CPU {}", cpu.0);
        Self {
            cpu: out.track(&name, Some(service)),
            busy: out.counter(&format!("{name} busy"), "%", Some(service)),
            clock: None,
            is_active: false,
        }
    }
}
