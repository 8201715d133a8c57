//! `roost observe` on this machine, now: sleeps of all CPUs, and the requests of one service.
//!
//! Nothing is changed: programs watch and go with this process. A tick a second takes in new
//! events; the live view, the export and the report at the end have the same figures.

use super::answers::Answers;
use super::page::RequestPoint;
use super::record::{self, Before};
use super::results::{self, Observation, Verified};
use super::trace::SleepTrace;
use super::watched::Watched;
use super::{Args, sweep, table, view};
use crate::exit::{Exit, coded, usage};
use crate::metrics::sleep::{Board, Seen};
use crate::table::{columns, print};
use ::observe::requests::{RequestPattern, RequestWatch, percentile};
use ::observe::sleep::{Findings, SleepPattern, SleepWatch, Without};
use ::observe::verdict::{Evidence, PowerEvidence, Verdict, compare};
use ::observe::verify::{Blocks, VerifyError, verify};
use anyhow::{Context as _, Result};
use linux::perf::{HardwareResidency, WorkCounters};
use linux::service::{self, Service};
use linux::{EnergyMeter, Root};
use machine::{Duration, EnergyReading, Instant, Microwatts};
use observe::scrape::Scraper;
use report::terminal::{Screen, Wish};
use sim::plan::Recording;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub fn run(args: &Args) -> Result<ExitCode> {
    let root = Root::system();
    if let Some(rates) = args.sweep {
        let ended = signals()?;
        return sweep::run(args, rates, &ended);
    }
    let service = target(args, &root)?;
    let mut watch = Watch::open(args, &root, service)?;
    if let Some(address) = args.names.address() {
        let address = crate::metrics::sleep::serve(address, &args.names, Arc::clone(&watch.board))?;
        eprintln!("metrics on http://{address}/metrics");
    }
    let ended = signals()?;
    watch.until_over(args, &ended)?;
    let trace = watch.trace.take();
    let (mut observation, requests, recording) = watch.conclude();
    if let Some(trace) = trace {
        eprintln!("{}", trace.end(&observation));
    }
    if args.verify {
        observation.verified = Some(put_to_the_test(&root, requests, &observation, &ended)?);
    }
    let place = results::write(args.out.as_deref(), &observation, Some(&recording))?;
    if args.json {
        crate::json::print(1, &observation)?;
    } else {
        print(&format!("{}\nreport: {}\n", table::of(&observation, columns()), place.display()))?;
    }
    let is_beyond = observation.verified.as_ref().is_some_and(|verified| !verified.comparison.is_within());
    Ok(if is_beyond { Exit::GoalMissed.into() } else { ExitCode::SUCCESS })
}

/// True once the user wants this to end.
fn signals() -> Result<Arc<AtomicBool>> {
    Ok(crate::signals::end_flag()?)
}

/// Both extremes of sleep, in turns, under the load that is there.
fn put_to_the_test(
    root: &Root,
    requests: Option<RequestWatch>,
    observation: &Observation,
    ended: &AtomicBool,
) -> Result<Verified> {
    let Some(mut requests) = requests else {
        return Err(coded(
            Exit::Unsupported,
            "--verify: the service's requests cannot be seen here; see `roost doctor`",
        ));
    };
    let blocks = Blocks { pairs: 10, length: machine::Duration::from_secs(3) };
    let cpus = linux::online_cpus(root).context("reading which CPUs there are")?;
    let told =
        |pair: u32, side: &str| eprintln!("verify: pair {} of {}, {side} sleep", pair + 1, blocks.pairs);
    let measured = verify(root, &cpus, &mut requests, blocks, ended, told).map_err(|error| match error {
        VerifyError::NoChoice(_) => coded(Exit::Unsupported, format!("--verify: {error}")),
        VerifyError::Held(_) => coded(Exit::Refused, format!("--verify: {error}")),
        VerifyError::NoRequests(_) => coded(Exit::Invalid, format!("--verify: {error}")),
        VerifyError::Stopped => coded(Exit::Failed, format!("--verify: {error}")),
    })?;
    let comparison = compare(&observation.verdict.prediction(), &measured.shallow, &measured.deep);
    Ok(Verified {
        pairs: blocks.pairs,
        shallow_p99: measured.shallow.p99,
        deep_p99: measured.deep.p99,
        power_source: measured.power.to_string(),
        comparison,
    })
}

/// The service that is meant, if one is.
fn target(args: &Args, root: &Root) -> Result<Option<Service>> {
    let found = if let Some(pid) = args.service.pid {
        service::of_process(root, pid)
    } else if let Some(folder) = &args.service.cgroup {
        service::of_cgroup(root, folder)
    } else if let Some(unit) = &args.service.unit {
        service::of_unit(root, unit)
    } else if let Some(port) = args.service.port {
        service::of_port(root, port)
    } else {
        return Ok(None);
    };
    found.and_then(Service::with_port).map(Some).map_err(usage)
}

struct Watch {
    watched: Watched,
    service: Option<Service>,
    sleeps: SleepWatch,
    requests: Option<RequestWatch>,
    energy: EnergyMeter,
    energy_before: Option<EnergyReading>,
    power: Option<super::power::Source>,
    scraper: Option<Scraper>,
    watts: Vec<f64>,
    work: Result<WorkCounters, String>,
    hardware: Result<HardwareResidency, String>,
    notes: Vec<String>,
    began: Instant,
    last: SleepPattern,
    points: Vec<RequestPoint>,
    /// Requests of each second.
    each_second: Vec<f64>,
    /// p99 of the responses in each second that has enough of them, in us.
    tails_us: Vec<f64>,
    board: Board,
    before: Before,
    started: String,
    trace: Option<SleepTrace>,
}

impl Watch {
    fn open(args: &Args, root: &Root, service: Option<Service>) -> Result<Self> {
        // First, since a wrong name ends it, and nothing watches yet.
        let mut watched = Watched::named("here")?;
        if let Some(file) = &args.wake_latency {
            watched.measured(file)?;
        }
        let scraper = super::scrape::opened(args)?;
        let began = linux::now();
        let (mut sleeps, mut notes) = SleepWatch::open(root, Without::Nothing, began);
        if sleeps.read(began).cpus.is_empty() && sleeps.is_blind() {
            return Err(coded(
                Exit::Unsupported,
                format!("this machine shows nothing of its sleeps:\n{}", notes.join("\n")),
            ));
        }
        let requests = match &service {
            None => None,
            Some(service) => {
                let (watch, failed) = RequestWatch::open(root, service, began);
                notes
                    .extend(failed.iter().map(|(way, why)| format!("requests are not seen at {way}: {why}")));
                watch.ok()
            }
        };
        let cpus = sleeps.cpus().clone();
        let mut energy = EnergyMeter::open(root, &cpus, began);
        let energy_before = energy.read(began);
        let power = super::power::Source::of(args)?;
        let before = Before::now(root, service.as_ref());
        let last = sleeps.read(began);
        let trace = args.perfetto.as_ref().map(|path| SleepTrace::create(path, began)).transpose()?;
        let mut trace = trace;
        notes.extend(trace.as_mut().and_then(|trace| trace.watch(&cpus)));
        Ok(Self {
            trace,
            before,
            started: crate::run_folder::started()?,
            each_second: Vec::new(),
            tails_us: Vec::new(),
            watched,
            service,
            sleeps,
            requests,
            energy,
            energy_before,
            power,
            scraper,
            watts: Vec::new(),
            work: WorkCounters::open(&cpus),
            hardware: HardwareResidency::open(&cpus),
            notes,
            began,
            last,
            points: Vec::new(),
            board: Board::default(),
        })
    }

    /// Until the time is over, a signal comes, or the person at the terminal has seen enough.
    fn until_over(&mut self, args: &Args, ended: &AtomicBool) -> Result<()> {
        // Dropped on every way out, so that later output is printed on the terminal as it was.
        let mut screen = match args.live {
            true if std::io::stdout().is_terminal() => {
                Some(Screen::open().context("cannot draw on this terminal; leave out --live")?)
            }
            true => return Err(usage("--live draws on a terminal, and the output is none; leave it out")),
            false => None,
        };
        let mut shown = view::View::new(&self.title(), args.length());
        let mut due = self.began + TICK;
        let length = if args.length().is_zero() { Duration::MAX } else { args.length() };
        let over = self.began + length;
        while !ended.load(Ordering::Relaxed) {
            let now = linux::now();
            if now >= due.min(over) {
                let (pattern, requests) = self.tick(now);
                let own = self.scraper.as_ref().map(Scraper::now);
                let watts = self.watts.last().copied();
                shown.tick(now.since(self.began), &pattern, requests.as_ref(), own, watts);
                if now >= over {
                    return Ok(());
                }
                due += TICK;
            }
            match &mut screen {
                Some(screen) => {
                    screen.draw(|frame| shown.shown().draw(frame))?;
                    if screen.wish(PATIENCE)? == Wish::Quit {
                        return Ok(());
                    }
                }
                None => std::thread::sleep(PATIENCE.into()),
            }
            self.catch_up();
        }
        self.tick(linux::now());
        Ok(())
    }

    /// Takes in new events; those that are read one by one wait in small buffers.
    fn catch_up(&mut self) {
        self.sleeps.catch_up();
        if let Some(trace) = &mut self.trace {
            trace.catch_up(|cpu| self.watched.table(cpu));
        }
    }

    /// A second's figures as counters of the trace.
    fn trace_second(&mut self, now: Instant) {
        let watts = self.watts.last().copied();
        let point = self.points.last().cloned();
        let Some(trace) = &mut self.trace else { return };
        trace.catch_up(|cpu| self.watched.table(cpu));
        trace.value(now, "power", "W", watts);
        if let Some(point) = point {
            trace.value(now, "requests", "requests/s", Some(point.per_s));
            trace.value(now, "p50", "us", point.p50_ns.map(|time| time / 1e3));
            trace.value(now, "p99", "us", point.p99_ns.map(|time| time / 1e3));
        }
        trace.clocks(now, &Root::system());
    }

    /// Takes in the events since the last tick, and returns them.
    fn tick(&mut self, now: Instant) -> (SleepPattern, Option<RequestPattern>) {
        let whole = self.sleeps.read(now);
        let step = whole.since(&self.last);
        let requests = self.requests.as_mut().map(|watch| watch.read(now));
        if let Some((watch, seen)) = self.requests.as_mut().zip(requests.as_ref()) {
            // Where the map is gone, so are the requests.
            let _ = watch.count_windows(now, seen.rate());
        }
        if let Some(seen) = requests.as_ref().filter(|seen| !seen.elapsed.is_zero()) {
            self.each_second.push(seen.requests as f64);
            self.tails_us.extend(record::tail_us(seen));
            let times = seen.response.as_ref().or(seen.service.as_ref());
            let at = |percent| {
                times.and_then(|times| percentile(times, percent)).map(|time| time.as_nanos() as f64)
            };
            self.points.push(RequestPoint {
                at_s: (now.since(self.began).as_secs_f64() - seen.elapsed.as_secs_f64() / 2.0).max(0.0),
                per_s: seen.rate().as_per_second(),
                p50_ns: at(50.0),
                p99_ns: at(99.0),
            });
        }
        if let Some(watts) = self.power.as_mut().and_then(super::power::Source::watts) {
            self.watts.push(watts);
        }
        if let Some(scraper) = &mut self.scraper {
            scraper.catch_up();
        }
        self.trace_second(now);
        let seen = Seen {
            pattern: whole.clone(),
            known: self.watched.known.clone(),
            requests: self.requests.as_ref().map(|watch| watch.total().clone()),
            own: self.scraper.as_ref().map(Scraper::now),
            energy: self.energy.read(now),
        };
        *self.board.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(seen);
        self.last = whole;
        (step, requests)
    }

    fn title(&self) -> String {
        match &self.service {
            Some(service) => format!("How the CPUs sleep under {}", named(service)),
            None => "How the CPUs of this machine sleep".to_owned(),
        }
    }

    /// Mean power and its source: the user's own meter first, then the machine's.
    fn mean_power(&mut self) -> Option<(Microwatts, String)> {
        if let Some(source) = self.power.as_ref().filter(|_| !self.watts.is_empty()) {
            let mean = self.watts.iter().sum::<f64>() / self.watts.len() as f64;
            return Some((Microwatts((mean * 1e6) as u64), source.name()));
        }
        let now = linux::now();
        let reading = self.energy.read(now)?;
        let before = self.energy_before.as_ref()?;
        let used = reading.used.as_joules() - before.used.as_joules();
        let watts = used / now.since(self.began).as_secs_f64().max(1e-9);
        Some((Microwatts((watts.max(0.0) * 1e6) as u64), reading.source.to_string()))
    }

    /// The sum of it; and the watch of requests, for readers that want more of them.
    fn conclude(mut self) -> (Observation, Option<RequestWatch>, Recording) {
        let title = self.title();
        let recording = self.recording();
        let scraped = self.scraper.take().map(Scraper::conclude);
        let findings = Findings::of(&self.last, &self.watched.known);
        let answers = self.service.as_ref().zip(self.requests.as_ref());
        let answers = answers.map(|(service, watch)| Answers::of(named(service), watch.total()));
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(unheard(&self.last, self.sleeps.cpus().0.len()));
        if let Some(answers) = &answers {
            if answers.requests == 0 {
                notes.push(format!("{} answered no request while it was watched", answers.service));
            } else if answers.merged * 20 > answers.requests {
                notes.push(format!(
                    "data came {} times while a request of its connection was under way, and was \
                     taken as part of it: clients pipeline, or requests are long; rate and times \
                     are of such groups",
                    answers.merged
                ));
            }
        }
        let power = self.mean_power();
        let work = match &mut self.work {
            Ok(counters) => counters.read(),
            Err(why) => {
                notes.push(format!("instructions and stalls are not counted here: {why}"));
                Vec::new()
            }
        };
        let hardware = match &mut self.hardware {
            Ok(residency) => residency.read(),
            Err(why) => {
                notes.push(format!("residency is as requested, not as entered: {why}"));
                Vec::new()
            }
        };
        let stalled = results::stalled(&work);
        let is_measured = !self.watts.is_empty() || self.energy.is_measured();
        let evidence = Evidence {
            findings,
            requests: answers.as_ref().and_then(Answers::evidence),
            power: PowerEvidence { measured: power.clone().filter(|_| is_measured), ..self.watched.power },
            stalled,
        };
        let verdict = Verdict::of(&evidence);
        let observation = Observation {
            title,
            layout: None,
            machine: self.watched.name,
            notes,
            words: verdict.words(),
            findings: evidence.findings,
            verdict,
            requests: self.points,
            answers,
            scraped,
            power: power.map(|(mean, source)| results::Power { mean, source }),
            work: results::work(&work),
            hardware: results::hardware(&hardware),
            verified: None,
        };
        (observation, self.requests, recording)
    }

    /// The observation as a plan needs it.
    fn recording(&mut self) -> Recording {
        let root = Root::system();
        let wake = self.watched.known.wake.iter();
        let scheduling = self.watched.scheduling.unwrap_or_default();
        let seen = record::Seen {
            began: self.started.clone(),
            service: self.service.as_ref(),
            sleeps: &self.last,
            wake: wake
                .map(|(&state, wake)| {
                    let micros = |time: Duration| (time - scheduling).as_nanos() as f64 / 1e3;
                    (state, [micros(wake.p50), micros(wake.p99)])
                })
                .collect(),
            requests: self.requests.as_ref().map(RequestWatch::total),
            each_second: std::mem::take(&mut self.each_second),
            tails_us: std::mem::take(&mut self.tails_us),
            windows: self.requests.as_ref().and_then(|watch| watch.windows(linux::now())),
            gaps: self.notes.clone(),
        };
        std::mem::take(&mut self.before).recording(&root, seen)
    }
}

/// Watches a service for a plan, and leaves the run folder of an observation.
pub fn record_for_plan(args: &Args) -> Result<(Recording, std::path::PathBuf)> {
    let root = Root::system();
    let service = target(args, &root)?;
    let mut watch = Watch::open(args, &root, service)?;
    watch.until_over(args, &*signals()?)?;
    let (observation, _, recording) = watch.conclude();
    let report = results::write(args.out.as_deref(), &observation, Some(&recording))?;
    Ok((recording, report))
}

/// As a sentence names a service.
fn named(service: &Service) -> String {
    let ports: Vec<String> = service.ports.iter().map(u16::to_string).collect();
    format!("{} (port {})", service.name, ports.join(", "))
}

/// A CPU without one event was busy, or asleep, the whole time.
fn unheard(seen: &SleepPattern, cpus: usize) -> Option<String> {
    let silent = cpus.saturating_sub(seen.cpus.len());
    (silent > 0).then(|| {
        format!(
            "{silent} of {cpus} CPUs neither fell asleep nor woke while they were watched, so \
             they are missing below: busy, or asleep, the whole time"
        )
    })
}

const TICK: Duration = Duration::from_secs(1);
/// Events that are read one by one must not wait longer; keys neither.
const PATIENCE: Duration = Duration::from_millis(100);
