//! One block: the daemon of `roost govern` for so long, or the same daemon in a dry run.
//!
//! ```text
//!   signals --+--> filter --> Daemon::run --epochs--> Watched --> Block
//!   socket  --+      |                                  |
//!                    +-- refuses leases and `roost set` +-- begin and end for the meters
//! ```
//!
//! An ungoverned block is watched by the same programs at the same times, so that the price of
//! watching is on both sides. While a block lasts, its daemon listens at the control socket: a
//! second daemon is refused by name, and so is every command that would change the measured service.
//! Everything goes back when the daemon's run ends.

use super::client::ClientTail;
use super::meters::Meters;
use super::options::Instead;
use crate::daemon::{Request, View, begin, locked, refused};
use crate::govern::trace::ServiceTrace;
use ::daemon::{Answer, Ask, ControllerReport, Event, Finished, Governed, Heard, Status};
use anyhow::Result;
use hdrhistogram::Histogram;
use linux::Root;
use machine::{Duration, Goal, Instant, Rate};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use study::prove::{Block, Figure, Treatment};

/// A signal that came, and the daemon that has to hear of it.
#[derive(Clone, Default)]
pub struct Stop {
    pub came: Arc<AtomicBool>,
    to: Arc<Mutex<Option<Sender<Event>>>>,
}

impl Stop {
    pub fn now(&self) {
        self.came.store(true, Ordering::SeqCst);
        if let Some(sender) = self.to.lock().ok().and_then(|to| to.clone()) {
            // The block may have ended by itself.
            let _ = sender.send(Event::Stop);
        }
    }

    pub fn has_come(&self) -> bool {
        self.came.load(Ordering::SeqCst)
    }

    fn tells(&self, sender: Option<Sender<Event>>) {
        if let Ok(mut to) = self.to.lock() {
            *to = sender;
        }
    }
}

pub struct Order {
    pub number: u32,
    pub pair: u32,
    pub treatment: Treatment,
    pub length: Duration,
    pub settling: Duration,
    pub epoch: Duration,
    /// The percentile of the tail, from 0 to 1.
    pub quantile: f64,
    pub goal: Option<Goal>,
    pub instead: Instead,
    pub trace: Option<Arc<Mutex<ServiceTrace>>>,
}

/// A block that has ended, and the reason why no other one can follow, if so.
pub struct Ran {
    pub block: Block,
    pub broken: Option<anyhow::Error>,
    /// No epoch ended for a while: the service has gone, or this machine was held up.
    pub was_silent: bool,
}

/// Why a block of a service without work does not count.
pub const NO_REQUESTS: &str = "no requests were seen";

/// Runs it on a thread of its own: a daemon keeps its thread to the CPUs that are awake, and the
/// next block's daemon must not begin there.
pub fn run(
    order: &Order,
    request: Request<'_>,
    meters: (&Meters, Option<&ClientTail>),
    stop: &Stop,
    began: Instant,
) -> Result<Ran> {
    std::thread::scope(|scope| {
        let block = scope.spawn(|| run_here(order, request, meters, stop, began));
        block.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn run_here(
    order: &Order,
    request: Request<'_>,
    (meters, client): (&Meters, Option<&ClientTail>),
    stop: &Stop,
    began: Instant,
) -> Result<Ran> {
    let view = Arc::new(Mutex::new(Watched::new(order)));
    let (sender, unfiltered) = channel();
    let (passes, events) = channel();
    stop.tells(Some(sender.clone()));
    if stop.has_come() {
        stop.now();
    }
    let started = linux::now();
    if let Some(trace) = &order.trace {
        told(trace).rest(started, started);
    }
    let daemon = begin(request, &view, sender.clone())?;
    let seen = Arc::new(Silence::default());
    seen.heard();
    let filter = {
        let (seen, patience) = (Arc::clone(&seen), order.epoch * 3 + Duration::from_secs(2));
        std::thread::spawn(move || filter(&unfiltered, &passes, &seen, patience))
    };
    let burner = Burner::begin(match (order.treatment, order.instead) {
        (Treatment::Governed, Instead::Burn(cpus)) => cpus,
        _ => 0.0,
    });
    let finished: Finished = daemon.run(&events, Some(order.length), |governed| {
        seen.heard();
        locked(&*view).epoch(governed);
    });
    drop(burner);
    stop.tells(None);
    seen.is_over.store(true, Ordering::SeqCst);
    let _ = sender.send(Event::Stop);
    let _ = filter.join();
    let view = locked(&*view);
    let mut block = view.block(order, meters, started.since(began));
    let broken = finished.outcome.err().map(refused);
    let was_silent = seen.was_silent.load(Ordering::SeqCst);
    if let Some(error) = &broken {
        block.void = Some(format!("{error:#}"));
    } else if was_silent {
        block.void = Some("its epochs ended late, or no longer".to_owned());
    } else if stop.has_come() {
        block.void = Some("a signal came before its end".to_owned());
    }
    // Nothing is held any longer: an answer that takes long costs the service nothing.
    if let Some((client, end)) = client.zip(view.span.map(|(_, end)| end))
        && block.void.is_none()
    {
        client.add(&mut block, end);
    }
    if let Some(trace) = &order.trace {
        tell(&mut told(trace), started, linux::now(), &block);
    }
    Ok(Ran { block, broken, was_silent })
}

fn told(trace: &Mutex<ServiceTrace>) -> std::sync::MutexGuard<'_, ServiceTrace> {
    trace.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The block as a stretch of the trace, with its figures.
fn tell(trace: &mut ServiceTrace, started: Instant, ended: Instant, block: &Block) {
    let name = match block.treatment {
        Treatment::Governed => format!("block {}, governed", block.number),
        Treatment::Ungoverned => format!("block {}, ungoverned", block.number),
    };
    let unit = |figure: &str| match figure.parse() {
        Ok(Figure::Watts(_)) => "W",
        Ok(Figure::JoulesPerRequest(_)) => "J",
        Ok(Figure::Tail | Figure::ClientTail) => "ns",
        Ok(Figure::CpuPerRequest) => "s",
        Ok(Figure::BusyCpus | Figure::AwakeCpus) => "CPUs",
        Ok(Figure::Cores) => "cores",
        Err(_) => "",
    };
    let figures: Vec<(String, &str, f64)> =
        block.figures.iter().map(|(figure, &value)| (figure.clone(), unit(figure), value)).collect();
    trace.rest(ended, ended);
    trace.stretch("blocks", &name, (started, ended), &figures);
}

/// When an epoch of the service ended last, and whether the block ended for want of one.
#[derive(Default)]
struct Silence {
    last_ns: AtomicU64,
    was_silent: AtomicBool,
    is_over: AtomicBool,
}

impl Silence {
    fn heard(&self) {
        self.last_ns.store(linux::now().as_nanos(), Ordering::Relaxed);
    }
}

/// Passes events on to the daemon, except those of others who would change the measured service. Ends a
/// block whose service tells nothing any longer.
fn filter(unfiltered: &Receiver<Event>, passes: &Sender<Event>, seen: &Silence, patience: Duration) {
    const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(200);
    while !seen.is_over.load(Ordering::SeqCst) {
        match unfiltered.recv_timeout(LOOK_EVERY) {
            Ok(Event::Heard(Heard::Question(Ask::Lease(_) | Ask::Set { .. }, reply))) => {
                let why = "roost prove measures a service on this machine; end it first".to_owned();
                reply.send(Answer::Refused(why));
            }
            Ok(event) => {
                // The daemon may have ended by itself.
                let _ = passes.send(event);
            }
            Err(RecvTimeoutError::Timeout) => {
                let last = Instant::from_nanos(seen.last_ns.load(Ordering::Relaxed));
                if linux::now().since(last) > patience {
                    seen.was_silent.store(true, Ordering::SeqCst);
                    let _ = passes.send(Event::Stop);
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The epochs of a block, as far as they count.
struct Watched {
    treatment: Treatment,
    trace: Option<Arc<Mutex<ServiceTrace>>>,
    quantile: f64,
    /// The settling time is over then.
    from: Instant,
    /// End of the epoch before the first that counts, and of the last one.
    span: Option<(Instant, Instant)>,
    times: Option<(Histogram<u64>, Duration)>,
    /// Sums over the time that counts.
    seconds: f64,
    requests: Option<f64>,
    cores: f64,
    /// Without the kernel's view: the sum of each epoch's tail, by requests.
    told: f64,
}

impl Watched {
    fn new(order: &Order) -> Self {
        Self {
            treatment: order.treatment,
            trace: order.trace.clone(),
            quantile: order.quantile,
            from: linux::now() + order.settling,
            span: None,
            times: None,
            seconds: 0.0,
            requests: Some(0.0),
            cores: 0.0,
            told: 0.0,
        }
    }

    fn tail(&self) -> Option<f64> {
        let requests = self.requests.filter(|requests| *requests > 0.0)?;
        match &self.times {
            Some((times, before)) => {
                // Ten beyond the percentile, as everywhere here.
                let is_enough = times.len() as f64 * (1.0 - self.quantile) >= 10.0;
                let tail = times.value_at_quantile(self.quantile) as f64;
                is_enough.then(|| tail + before.as_nanos() as f64)
            }
            None => (self.told > 0.0).then(|| self.told / requests),
        }
    }

    fn block(&self, order: &Order, meters: &Meters, began: Duration) -> Block {
        let mut block = Block {
            number: order.number,
            pair: order.pair,
            treatment: order.treatment,
            began_s: began.as_secs_f64(),
            measured_s: self.seconds,
            rate_per_s: self.requests.filter(|_| self.seconds > 0.0).map(|sum| sum / self.seconds),
            figures: BTreeMap::new(),
            missing: BTreeMap::new(),
            missed_goal: None,
            void: None,
        };
        let Some((begin, end)) = self.span.filter(|_| self.seconds > 0.0) else {
            block.void = Some("no epoch ended after the settling time".to_owned());
            return block;
        };
        let sample = meters.take(begin, end);
        let Some(rate) = block.rate_per_s.filter(|rate| *rate > 0.0) else {
            block.void = Some(NO_REQUESTS.to_owned());
            return block;
        };
        block.missing =
            sample.missing.into_iter().map(|(meter, why)| (Figure::Watts(meter).to_string(), why)).collect();
        let mut put = |figure: Figure, value: Option<f64>| {
            block
                .figures
                .extend(value.filter(|value| value.is_finite()).map(|value| (figure.to_string(), value)));
        };
        for (meter, watts) in meters.names().iter().zip(&sample.watts) {
            put(Figure::Watts(meter.name.clone()), *watts);
            put(Figure::JoulesPerRequest(meter.name.clone()), watts.map(|watts| watts / rate));
        }
        let tail = self.tail();
        put(Figure::Tail, tail);
        put(Figure::BusyCpus, sample.busy_cpus);
        put(Figure::CpuPerRequest, sample.busy_cpus.map(|busy| busy / rate));
        put(Figure::AwakeCpus, sample.awake_cpus);
        put(Figure::Cores, Some(self.cores / self.seconds));
        block.missed_goal = order.goal.zip(tail).map(|(goal, tail)| tail > goal.latency.as_nanos() as f64);
        block
    }
}

impl View for Watched {
    /// Of hundreds of changes a block makes; its figures show their effect.
    fn say(&mut self, _line: &str) {}

    fn epoch(&mut self, governed: &Governed) {
        let now = linux::now();
        if let Some(trace) = &self.trace {
            told(trace).take(now, governed, self.treatment == Treatment::Governed);
        }
        let status = governed.status();
        let before = self.span.map(|(_, end)| end);
        let cores = match self.treatment {
            Treatment::Governed => status.cores.0,
            // A dry run's cores are those that it would have given.
            Treatment::Ungoverned => status.cores.1,
        };
        let service = status.service;
        if now < self.from {
            return;
        }
        let Some(before) = before else {
            // The epoch in which the settling time ended counts on neither side.
            self.span = Some((now, now));
            return;
        };
        self.span = self.span.map(|(begin, _)| (begin, now));
        let seconds = now.since(before).as_secs_f64();
        self.seconds += seconds;
        self.cores += f64::from(cores) * seconds;
        let requests = service.rate.map(|rate| Rate::as_per_second(rate) * seconds);
        self.requests = self.requests.zip(requests).map(|(sum, more)| sum + more);
        if let (Some(tail), Some(requests)) = (service.tail.or(service.p99), requests) {
            self.told += tail.as_nanos() as f64 * requests;
        }
        if let Some((times, delay)) = governed.last_times() {
            match &mut self.times {
                None => self.times = Some((times.clone(), delay)),
                Some((sum, last)) => {
                    // All have the same bounds.
                    let _ = sum.add(times);
                    *last = delay;
                }
            }
        }
    }

    fn polled(&mut self, _governed: &[Status], _controllers: &[ControllerReport]) {}
}

/// Work without a use, so many CPUs' worth: for benches that ask whether it is found.
struct Burner {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Burner {
    fn begin(cpus: f64) -> Self {
        /// Short beside a block, long beside a timer's error.
        const PERIOD: std::time::Duration = std::time::Duration::from_millis(10);
        let over = Arc::new(AtomicBool::new(false));
        let thread = (cpus > 0.0).then(|| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let began = std::time::Instant::now();
                    while began.elapsed() < PERIOD.mul_f64(cpus) {
                        std::hint::spin_loop();
                    }
                    std::thread::sleep(PERIOD.saturating_sub(began.elapsed()));
                }
            })
        });
        Self { over, thread }
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The machine's files: as `roost govern` finds them.
pub fn root_of(governing: &crate::govern::GovernArgs) -> Root {
    governing.root.clone().map_or_else(Root::system, Root::at)
}
