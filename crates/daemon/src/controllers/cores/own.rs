//! A policy of one's own at work for one service.
//!
//! It is called once an epoch, before [`ServiceController`](policy::governing::ServiceController)
//! gets the reading, which then puts its orders into force. Its module sees shares of CPU time that
//! were not idle, and no power.

use super::OpenError;
use crate::config::ServiceConfig;
use crate::own_policy::Policy;
use linux::Root;
use machine::{CpuId, CstateKind, Duration, Goal, Instant, Reading, ServiceReading};
use policy::governing::{CpuTopology, FrequencyMode, Input};
use policy::kind::Responses;
use policy::own::{self, Decide as _};
use wasm::{Decides, Deciding, Knobs, Module};

pub(super) struct Own {
    deciding: Result<Deciding, String>,
    /// Its CPUs in the order in which it knows them: of each core the first thread, then of each
    /// the second.
    cpus: Vec<CpuId>,
    epoch: Duration,
    /// When it began, which is zero on its own clock.
    began: Instant,
}

impl Own {
    /// `None` for a service whose policy is one of Roost's.
    pub fn open(
        root: &Root,
        config: &ServiceConfig,
        topology: &CpuTopology,
        epoch: Duration,
        now: Instant,
    ) -> Result<Option<Self>, OpenError> {
        let Policy::Own(policy) = &config.policy else { return Ok(None) };
        let refused = |reason: String| OpenError::Policy { service: config.name.clone(), reason };
        let path = policy.path().display();
        let module = policy.module().ok_or_else(|| refused(format!("{path} did not come with it")))?;
        check(module, config).map_err(|reason| refused(format!("{path} {reason}")))?;
        let threads = topology.cores.iter().map(Vec::len).max().unwrap_or(0);
        let cpus =
            (0..threads).flat_map(|thread| topology.cores.iter().filter_map(move |core| core.get(thread)));
        let cpus: Vec<CpuId> = cpus.copied().collect();
        let table = cpus.first().and_then(|&cpu| linux::idle_table(root, cpu).ok());
        let halting =
            table.iter().flat_map(|table| &table.0).filter(|state| state.kind == CstateKind::Halting);
        let points = topology.points.iter().flat_map(|points| points.iter().map(|point| points.khz(point)));
        let knobs = Knobs {
            workers: topology.cores.len() as u16,
            cpus: cpus.len(),
            idle_states: halting.map(|state| (state.exit_latency, state.target_residency)).collect(),
            clocks: points.collect(),
            goal: config.goal,
        };
        let deciding = Deciding::new(module, knobs).map_err(refused)?;
        if quantile_of(deciding.quantile(), config.goal).is_none() {
            let quantile = deciding.quantile();
            return Err(refused(format!(
                "{path} asks for the quantile {quantile} of response times\nhint: 0.95, 0.99 or the goal's is \
                 measured"
            )));
        }
        Ok(Some(Self { deciding: Ok(deciding), cpus, epoch, began: now }))
    }

    /// Its orders, or its fault, which stays.
    pub fn decide(&mut self, now: Instant, reading: &Reading, active: u16, goal: Option<Goal>) -> Input {
        let deciding = match &mut self.deciding {
            Ok(deciding) => deciding,
            Err(fault) => return Input::Fault(fault.clone()),
        };
        let service = &reading.service;
        let share = |id: &CpuId| reading.cpus.iter().find(|cpu| cpu.cpu == *id)?.busy;
        let working: Vec<f64> =
            self.cpus.iter().map(|cpu| share(cpu).map_or(f64::NAN, |busy| busy.as_f64())).collect();
        let count = service.rate.map_or(0.0, |rate| rate.as_per_second() * self.epoch.as_secs_f64());
        let tail = quantile_of(deciding.quantile(), goal).and_then(|of| of(service));
        let responses = Responses { count: count.round() as u64, tail, mean: service.mean };
        let seen = own::Reading {
            now: Instant::ZERO + now.since(self.began),
            span: self.epoch,
            responses,
            active,
            working: &working,
            core_watts: f64::NAN,
        };
        match deciding.on_epoch(&seen) {
            Ok(orders) => Input::Orders(orders),
            Err(fault) => {
                self.deciding = Err(fault.clone());
                Input::Fault(fault)
            }
        }
    }

    pub fn set_goal(&mut self, goal: Goal) {
        if let Ok(deciding) = &mut self.deciding {
            deciding.set_goal(goal);
        }
    }

    pub fn set_epoch(&mut self, epoch: Duration) {
        self.epoch = epoch;
    }
}

/// Why it cannot decide here, and the remedy.
fn check(module: &Module, config: &ServiceConfig) -> Result<(), &'static str> {
    match module.decides() {
        Decides::Epochs if module.orders_clocks() && !matches!(config.frequency, FrequencyMode::Cap(_)) => {
            Err(
                "orders clocks\nhint: name the highest one that it may order, such as frequency = \"2600MHz\"",
            )
        }
        Decides::Epochs => Ok(()),
        Decides::Requests => {
            Err("decides at each request (on_arrival, on_completion), which only a simulation tells of\n\
             hint: decide in on_epoch")
        }
        Decides::Idle => {
            Err("chooses idle states (on_idle), and the kernel has its own governor for that\nhint: order \
             set_idle_limit_ns in on_epoch; `roost sim run` simulates on_idle")
        }
    }
}

/// Where a reading has this quantile.
fn quantile_of(quantile: f64, goal: Option<Goal>) -> Option<fn(&ServiceReading) -> Option<Duration>> {
    match quantile {
        _ if goal.is_some_and(|goal| goal.quantile == quantile) => Some(|service| service.tail),
        0.95 => Some(|service| service.p95),
        0.99 => Some(|service| service.p99),
        _ => None,
    }
}
