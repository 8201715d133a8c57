//! `--perfetto` of `roost govern` and `roost prove`: a governed service as a trace. Its CPUs with
//! slices while they are active, its rate, tail and cores, the use and the clock of each CPU as
//! counters, and each decision with its reason. An arrow leads from the epoch that was judged to the
//! decision about it.
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
    /// Tracks and counters that are no service's.
    own: BTreeMap<String, Track>,
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
        Ok(Self {
            path: path.to_owned(),
            out,
            began: now,
            last: now,
            services: BTreeMap::new(),
            own: BTreeMap::new(),
            flows: 0,
        })
    }

    /// An epoch of a service has ended, of one that is only watched if not `acts`: then its CPUs and the
    /// decisions about it are not told.
    pub fn take(&mut self, now: Instant, governed: &Governed, acts: bool) {
        let status = governed.status();
        let out = &mut self.out;
        let tracks = self
            .services
            .entry(status.name.clone())
            .or_insert_with(|| Tracks::begin(out, &status.name, self.began));
        self.flows += 1;
        let flow = Flow(self.flows);
        let change = governed.last_change().filter(|change| acts && change.epoch == status.epochs);
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
        // A dry run's cores are those that it would have given.
        out.value(now, tracks.cores, f64::from(if acts { status.cores.0 } else { status.cores.1 }));
        for cpu in &status.allowed.0 {
            let service = tracks.service;
            let of = tracks.cpus.entry(*cpu).or_insert_with(|| CpuTracks::begin(out, *cpu, service));
            let is_active = acts && status.cpus.0.contains(cpu);
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

    /// Nothing is governed from now on until an epoch ends again, which begins at `until`.
    pub fn rest(&mut self, now: Instant, until: Instant) {
        self.last = self.last.max(now);
        for tracks in self.services.values_mut() {
            tracks.since = until;
            for of in tracks.cpus.values_mut() {
                if std::mem::take(&mut of.is_active) {
                    self.out.end(now, of.cpu);
                }
            }
        }
        self.began = until;
    }

    /// A stretch of time on the track `name`, with figures as counters beside it.
    pub fn stretch(
        &mut self,
        track: &str,
        name: &str,
        span: (Instant, Instant),
        figures: &[(String, &str, f64)],
    ) {
        let out = &mut self.out;
        let on = *self.own.entry(track.to_owned()).or_insert_with(|| out.track(track, None));
        out.begin(span.0, on, name, None);
        out.end(span.1, on);
        for (figure, unit, value) in figures {
            let counter =
                *self.own.entry(figure.clone()).or_insert_with(|| out.counter(figure, unit, Some(on)));
            out.value(span.1, counter, *value);
        }
    }

    /// A sentence on the track `track`.
    pub fn say(&mut self, track: &str, now: Instant, text: &str, notes: &[(&str, &str)]) {
        let out = &mut self.out;
        let on = *self.own.entry(track.to_owned()).or_insert_with(|| out.track(track, None));
        out.instant(now, on, text, notes, None);
    }

    /// Closes all that is open, and says where the trace is or why there is none.
    pub fn end(mut self) -> String {
        self.rest(self.last, self.last);
        self.out.end_at(&self.path)
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
