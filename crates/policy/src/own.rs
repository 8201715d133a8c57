//! A policy of one's own: code outside this workspace decides once an epoch, or at each request.
//!
//! A host of such code (the Python package, the crate `wasm`) implements [`Decide`], and [`Own`]
//! calls it as the searches of CARB are called: with the readings of the epoch that has ended. Its
//! orders hold until the next ones.
//!
//! Terms:
//! - An *order* changes the number of active cores, the limit on the idle states of active cores,
//!   or the clock of all cores. A knob that it leaves out stays.
//!
//! Invariants: orders outside the machine's bounds are a fault, not a guess; after a fault it is
//! never called again.

use crate::frequency::PointTable;
use crate::kind::{Completion, CorePolicy, Decision, Making, Policy, Readings, Responses, Seen};
use machine::{Duration, Instant, Kilohertz};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The code that decides. A run makes its own, and calls it on its thread.
pub trait Decide: 'static {
    /// An error is told to the user, and ends the run.
    fn on_epoch(&mut self, reading: &Reading<'_>) -> Result<Orders, String>;

    /// It wants to know of every request that comes and leaves. A driver asks once.
    fn watches_requests(&self) -> bool {
        false
    }

    /// A request came; there are `in_system` with it.
    fn on_arrival(&mut self, _now: Instant, _in_system: u32) -> Result<Orders, String> {
        Ok(Orders::default())
    }

    /// A request left after this time; `in_system` are left.
    fn on_completion(
        &mut self,
        _now: Instant,
        _response: Duration,
        _in_system: u32,
    ) -> Result<Orders, String> {
        Ok(Orders::default())
    }
}

/// An epoch that has ended, as the driver has measured it.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    pub now: Instant,
    pub span: Duration,
    /// Of the requests that were answered in it.
    pub responses: Responses,
    /// Cores that new work may go to.
    pub active: u16,
    /// Of each CPU, the share of the epoch that it spent at work: on requests where they are
    /// simulated, not idle where they are real. NaN: it is not known.
    pub working: &'a [f64],
    /// Mean power of all cores in the epoch; NaN: it is not known.
    pub core_watts: f64,
}

/// Changes; `None` leaves things as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// From 1 to all cores that serve requests.
    pub cores: Option<u16>,
    /// Active cores enter no state with a longer exit latency; [`Duration::MAX`] lifts the limit.
    pub idle_limit: Option<Duration>,
    /// All cores take the slowest operating point that is at least as fast.
    pub clock: Option<Kilohertz>,
}

/// A policy that calls [`Decide`] after each epoch, and checks the orders.
pub struct Own {
    decide: Option<Box<dyn Decide>>,
    fault: Option<String>,
    watches_requests: bool,
    epoch: Duration,
    quantile: f64,
    workers: u16,
    points: PointTable,
    began: Instant,
    /// Of each CPU since the run began, when the epoch began.
    worked: Vec<Duration>,
    working: Vec<f64>,
    /// Energy of all cores when the epoch began.
    joules: f64,
    decisions: VecDeque<Decision>,
}

impl Own {
    /// It decides after each `epoch`, which is above zero, and sees the tail at `quantile`.
    pub fn new(decide: Box<dyn Decide>, making: &Making<'_>, epoch: Duration, quantile: f64) -> Self {
        let (watches_requests, none) = (decide.watches_requests(), Self::failed(String::new(), making));
        Self { decide: Some(decide), fault: None, watches_requests, epoch, quantile, ..none }
    }

    /// One that could not be made, for this reason.
    pub fn failed(reason: String, making: &Making<'_>) -> Self {
        Self {
            decide: None,
            fault: Some(reason),
            watches_requests: false,
            epoch: Duration::MAX,
            quantile: 0.5,
            workers: making.workers,
            points: making.points(),
            began: Instant::ZERO,
            worked: vec![Duration::ZERO; making.cpus()],
            working: vec![0.0; making.cpus()],
            joules: 0.0,
            decisions: VecDeque::new(),
        }
    }

    /// Carries out the answer of a call, which may be its fault.
    fn take(&mut self, orders: Result<Orders, String>) {
        if let Err(fault) = orders.and_then(|orders| self.obey(orders)) {
            self.fault = Some(fault);
            self.decide = None;
            self.watches_requests = false;
            self.decisions.clear();
        }
    }

    fn obey(&mut self, orders: Orders) -> Result<(), String> {
        let Orders { cores, idle_limit, clock } = orders;
        if let Some(cores) = cores {
            if !(1..=self.workers).contains(&cores) {
                return Err(format!("{cores} cores are none of the machine's: order 1 to {}", self.workers));
            }
            self.decisions.push_back(Decision::Active(cores));
        }
        self.decisions.extend(idle_limit.map(Decision::IdleLimit));
        self.decisions.extend(clock.map(|clock| Decision::Points(self.points.at_least(clock))));
        Ok(())
    }
}

impl Policy for Own {
    fn readings(&self) -> Readings {
        Readings { cpus: true, quantile: Some(self.quantile) }
    }

    fn handle_timeout(&mut self, now: Instant, seen: &Seen<'_>) {
        let span = now.since(self.began);
        let Some(decide) = self.decide.as_mut().filter(|_| span >= self.epoch) else { return };
        let cpus = self.worked.iter_mut().zip(&mut self.working).zip(seen.cpus);
        for ((worked, working), cpu) in cpus {
            let time = cpu.working - std::mem::replace(worked, cpu.working);
            *working = time.as_nanos() as f64 / span.as_nanos() as f64;
        }
        let joules = seen.core_joules - std::mem::replace(&mut self.joules, seen.core_joules);
        let core_watts = joules / span.as_secs_f64();
        self.began = now;
        let (responses, active, working) = (seen.responses, seen.active, &self.working[..]);
        let orders = decide.on_epoch(&Reading { now, span, responses, active, working, core_watts });
        self.take(orders);
    }

    fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // A driver looks for a fault at timeouts.
        Some(if self.decide.is_some() { self.began + self.epoch } else { self.began })
    }
}

impl CorePolicy for Own {
    fn handle_arrival(&mut self, now: Instant, in_system: u32) {
        if self.watches_requests
            && let Some(decide) = &mut self.decide
        {
            let orders = decide.on_arrival(now, in_system);
            self.take(orders);
        }
    }

    fn handle_completion(&mut self, now: Instant, done: &Completion, in_system: u32) {
        if self.watches_requests
            && let Some(decide) = &mut self.decide
        {
            let orders = decide.on_completion(now, done.response, in_system);
            self.take(orders);
        }
    }

    fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }
}
