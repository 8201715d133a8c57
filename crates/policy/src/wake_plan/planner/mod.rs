//! The sleep plan of the machine: requests in, the begin and end of windows out.
//!
//! The driver calls [`Planner::handle_timeout`] when [`Planner::poll_timeout`] fell due, and after
//! every call drains [`Planner::poll_command`]. On the way into an idle state it may also ask
//! [`Planner::awake_until`], which is a plain look-up.
//!
//! Invariants, with a driver that is on time:
//! - a CPU is awake throughout `[ready, ready + stay)` of every accepted request, unless the
//!   request was withdrawn or its event came; and from the exit latency and the margin before that,
//!   unless the request itself came later;
//! - windows of a CPU never overlap, and each ends: none is longer than its requests;
//! - the ledger sums to the time between [`WakeCommand::KeepAwake`] and [`WakeCommand::MaySleep`];
//! - requests that are late, over, absurd or too many, withdrawals that come twice or too late,
//!   timeouts that come early, late or twice, do no harm. A refused request changes nothing.

use super::allowance::Allowance;
use super::cpu_plan::{CpuCosts, CpuPlan, Standing};
use super::{
    Account, AllowanceParams, Ledger, Payer, Principal, Refused, Request, RequestId, WakeCommand, Window,
};
use crate::check::Check;
use crate::registry::{Parameter, count, table, time};
use machine::{CpuId, Duration, Instant};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub margin: Duration,
    #[serde(with = "machine::duration_text")]
    pub max_stay: Duration,
    #[serde(with = "machine::duration_text")]
    pub max_ahead: Duration,
    pub max_per_cpu: u16,
    pub max_per_principal: u16,
    pub max_principals: u16,
    pub allowance: Option<AllowanceParams>,
    pub machine: Option<AllowanceParams>,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("margin", "waking begins so much earlier than the exit latency alone would have it")
            .source("ours: a timer's lateness on an idle machine; zero in the paper"),
        time("max_stay", "the longest that a request may ask to stay ready")
            .above_zero()
            .source("ours: longer than any disk or kernel is uncertain by"),
        time("max_ahead", "the furthest ahead that a request may be")
            .above_zero()
            .source("ours: a request that far away holds a place for nothing"),
        count("max_per_cpu", "requests outstanding for one CPU")
            .above_zero()
            .source("ours: a fast disk's queue as one CPU fills it"),
        count("max_per_principal", "requests outstanding of one payer").above_zero().source("ours"),
        count("max_principals", "principals with an account").above_zero().source("ours"),
        table("allowance", "what a payer may ask for in the long run", AllowanceParams::PARAMETERS)
            .absent("no bound")
            .source("ours; none in the paper"),
        table("machine", "what all together may, of the time of all CPUs", AllowanceParams::PARAMETERS)
            .absent("no bound")
            .source("ours; none in the paper"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self {
            margin: Duration::from_micros(5),
            max_stay: Duration::from_millis(100),
            max_ahead: Duration::from_secs(60),
            max_per_cpu: 64,
            max_per_principal: 256,
            max_principals: 1024,
            allowance: None,
            machine: None,
        }
    }
}

impl Params {
    /// The paper's experiment: waking begins the exit latency ahead, without a margin.
    pub fn paper() -> Self {
        Self { margin: Duration::ZERO, ..Self::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Planner {
    params: Params,
    plans: Vec<CpuPlan>,
    ledger: Ledger,
    accepted: u64,
    /// When any window opens or closes next.
    due: Option<Instant>,
    /// A change has to be reported.
    changed: bool,
}

impl Planner {
    pub fn new(params: Params, cpus: &[CpuCosts]) -> Self {
        let mut plans: Vec<_> = cpus.iter().copied().map(CpuPlan::new).collect();
        plans.sort_by_key(|plan| plan.costs.cpu);
        plans.dedup_by_key(|plan| plan.costs.cpu);
        for plan in &mut plans {
            plan.reserve(params.max_per_cpu);
        }
        Self { params, plans, ledger: Ledger::default(), accepted: 0, due: None, changed: false }
    }

    /// Before it first asks: `principal` uses the allowance of `payer`. Without this it has one of
    /// its own.
    pub fn handle_entered(&mut self, principal: Principal, payer: Payer) {
        if let Payer::Shared(number) = payer {
            self.ledger.share(principal, number);
        }
    }

    /// A CPU shall be ready. One whose time is nearer than the exit latency begins to wake at once.
    pub fn handle_request(&mut self, now: Instant, request: &Request) -> Result<RequestId, Refused> {
        let Params { max_stay, max_ahead, .. } = self.params;
        let at = self.place(request.cpu).ok_or(Refused::UnknownCpu(request.cpu))?;
        if request.ready + request.stay <= now {
            return Err(Refused::Past);
        }
        if request.ready.since(now) > max_ahead {
            return Err(Refused::TooFar(max_ahead));
        }
        if request.stay > max_stay {
            return Err(Refused::TooLong(max_stay));
        }
        self.plans[at].advance(now, &mut self.ledger);
        let answer = self.accept(now, at, request);
        self.settle(at, now);
        answer
    }

    /// The event came: the CPU has work now, and the window ends unless others need it. False if
    /// the request was over.
    pub fn handle_came(&mut self, now: Instant, id: RequestId) -> bool {
        self.end(now, id, |account| account.came += 1)
    }

    /// The request is taken back. False if it was over.
    pub fn handle_withdrawn(&mut self, now: Instant, id: RequestId) -> bool {
        self.end(now, id, |account| account.withdrawn += 1)
    }

    /// A principal is gone: its requests are withdrawn and its account is closed and handed out.
    /// Its payer's used allowance stays used up.
    pub fn handle_departed(&mut self, now: Instant, principal: Principal) -> Option<Account> {
        for at in 0..self.plans.len() {
            self.plans[at].advance(now, &mut self.ledger);
            let withdrawn = self.plans[at].remove_all_of(principal) as u64;
            self.ledger.note(principal, |account| account.withdrawn += withdrawn);
            self.settle(at, now);
        }
        let params = self.params.allowance;
        let is_settled = |allowance: &Allowance, awake| {
            params.is_none_or(|params| allowance.is_settled(&params, now, awake))
        };
        self.ledger.close(principal, is_settled)
    }

    /// Waking `cpu` takes this long, as was measured. Requests that were accepted before keep their
    /// time.
    pub fn handle_exit_latency(&mut self, cpu: CpuId, exit_latency: Duration) {
        if let Some(at) = self.place(cpu) {
            self.plans[at].costs.exit_latency = exit_latency;
        }
    }

    /// Time passed: opens and closes windows.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        for at in 0..self.plans.len() {
            if self.plans[at].due().is_some_and(|due| due <= now) {
                self.bring_up_to_date(at, now);
            }
        }
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// When the next window of `cpu` opens, or its open one closes: for drivers with a timer on
    /// each CPU.
    pub fn due_of(&self, cpu: CpuId) -> Option<Instant> {
        self.plans[self.place(cpu)?].due()
    }

    /// The costs of waking a CPU, as they were told last.
    pub fn costs_of(&self, cpu: CpuId) -> Option<CpuCosts> {
        Some(self.plans[self.place(cpu)?].costs)
    }

    pub fn poll_command(&mut self) -> Option<WakeCommand> {
        if !self.changed {
            return None;
        }
        for plan in &mut self.plans {
            let cpu = plan.costs.cpu;
            match plan.change() {
                None => {}
                Some(Some(Window { from, until })) => {
                    return Some(WakeCommand::KeepAwake { cpu, from, until });
                }
                Some(None) => return Some(WakeCommand::MaySleep { cpu }),
            }
        }
        self.changed = false;
        None
    }

    /// Until when `cpu` is kept awake, if it is now.
    pub fn awake_until(&self, cpu: CpuId) -> Option<Instant> {
        Some(self.plans[self.place(cpu)?].open()?.until)
    }

    /// The plan of `cpu`: windows in order, of requests that were outstanding when it was last
    /// looked at.
    pub fn windows(&self, cpu: CpuId) -> impl Iterator<Item = Window> {
        self.place(cpu).into_iter().flat_map(|at| self.plans[at].windows())
    }

    /// The accounts of all principals. Windows that are open are in them up to the last call that
    /// touched their CPU.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Between an advance of that CPU's plan and its settling.
    fn accept(&mut self, now: Instant, at: usize, request: &Request) -> Result<RequestId, Refused> {
        let Params { margin, max_per_cpu, max_per_principal, max_principals, .. } = self.params;
        let is_full =
            |planner: &Self| planner.ledger.outstanding(request.principal) >= u64::from(max_per_principal);
        if is_full(self) {
            // Some may be over, on CPUs that were not looked at since.
            (0..self.plans.len())
                .filter(|&other| other != at)
                .for_each(|other| self.bring_up_to_date(other, now));
            if is_full(self) {
                return Err(Refused::PrincipalFull(max_per_principal));
            }
        }
        let cpus = self.plans.len() as u64;
        let plan = &mut self.plans[at];
        if plan.outstanding() >= usize::from(max_per_cpu) {
            return Err(Refused::CpuFull(max_per_cpu));
        }
        let begin = request.ready - (plan.costs.exit_latency + margin);
        let account = self.ledger.open(request.principal, max_principals);
        account.ok_or(Refused::TooManyPrincipals(max_principals))?;
        let Params { allowance, machine, .. } = &self.params;
        let machine = machine.as_ref().map(|machine| (machine, cpus));
        self.ledger.take(request.principal, now, allowance.as_ref(), machine)?;
        self.ledger.note(request.principal, |account| {
            account.accepted += 1;
            account.late += u64::from(begin < now);
        });
        self.accepted += 1;
        let id = RequestId { cpu: request.cpu, number: self.accepted };
        let (begin, until) = (begin.max(now), request.ready + request.stay);
        plan.insert(Standing { id, principal: request.principal, begin, until });
        Ok(id)
    }

    fn end(&mut self, now: Instant, id: RequestId, note: impl FnOnce(&mut Account)) -> bool {
        let Some(at) = self.place(id.cpu) else { return false };
        self.plans[at].advance(now, &mut self.ledger);
        let principal = self.plans[at].remove(id);
        if let Some(principal) = principal {
            self.ledger.note(principal, note);
        }
        self.settle(at, now);
        principal.is_some()
    }

    fn bring_up_to_date(&mut self, at: usize, now: Instant) {
        self.plans[at].advance(now, &mut self.ledger);
        self.settle(at, now);
    }

    /// After an advance of that CPU's plan.
    fn settle(&mut self, at: usize, now: Instant) {
        self.changed |= self.plans[at].settle(now);
        self.due = self.plans.iter().filter_map(CpuPlan::due).min();
    }

    fn place(&self, cpu: CpuId) -> Option<usize> {
        self.plans.binary_search_by_key(&cpu, |plan| plan.costs.cpu).ok()
    }
}

#[cfg(test)]
mod tests;
