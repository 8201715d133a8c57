//! The plan of one CPU: the windows that its requests merge into, and which of them is open now.
//!
//! A request begins early by the CPU's exit latency and the margin. Requests that overlap or touch
//! are one window; so are two with a gap between them in which sleeping would not pay (shorter than
//! `min_sleep`): the later one begins at the end of the earlier, and its principal pays for that
//! too.
//!
//! ```text
//!   requests     |== a ==|            |= c =|
//!                     |=== b ===|  ^
//!   windows      |=== a, b ====|======= c =|          the gap ^ is shorter than min_sleep
//!                from                      until
//! ```
//!
//! Invariants: windows are in order and more than `min_sleep` apart; each begins where a request
//! begins and ends where one ends; every request lies in one. A window is charged from the moment
//! that it opened to the moment that it closed, by the driver's clock, so late timeouts are paid
//! for too.

use super::ledger::Ledger;
use super::{Principal, RequestId, Window};
use machine::{CpuId, Duration, Instant, Microwatts};
use serde::{Deserialize, Serialize};

/// A CPU as the planner knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuCosts {
    pub cpu: CpuId,
    /// The time to wake from the state that it would sleep in: measured, a high percentile;
    /// advertised where none was measured.
    pub exit_latency: Duration,
    /// A sleep shorter than this saves nothing: the target residency of its shallowest state that
    /// halts.
    pub min_sleep: Duration,
    /// Power that keeping it awake takes.
    pub power: Microwatts,
}

/// An accepted request whose window is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Standing {
    pub id: RequestId,
    pub principal: Principal,
    /// When the CPU begins to wake for it.
    pub begin: Instant,
    pub until: Instant,
}

impl Standing {
    fn covers(&self, at: Instant) -> bool {
        self.begin <= at && at < self.until
    }
}

/// The requests of one CPU and its open window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CpuPlan {
    pub costs: CpuCosts,
    /// By begin; equal ones by arrival.
    standing: Vec<Standing>,
    open: Option<Window>,
    /// The open window is charged up to here.
    charged_to: Instant,
    /// The last command to the driver.
    told: Option<Window>,
}

impl CpuPlan {
    pub fn new(costs: CpuCosts) -> Self {
        Self { costs, standing: Vec::new(), open: None, charged_to: Instant::ZERO, told: None }
    }

    /// Room for that many requests is made now, so that none allocates later.
    pub fn reserve(&mut self, requests: u16) {
        self.standing.reserve_exact(usize::from(requests));
    }

    pub fn outstanding(&self) -> usize {
        self.standing.len()
    }

    /// Pays for the windows that were open until `now` and drops the requests that are over.
    pub fn advance(&mut self, now: Instant, ledger: &mut Ledger) {
        if self.open.is_some() {
            self.charge(now, ledger);
        }
        self.standing.retain(|request| {
            let over = request.until <= now;
            if over {
                ledger.note(request.principal, |account| account.expired += 1);
            }
            !over
        });
    }

    /// After [`Self::advance`].
    pub fn insert(&mut self, request: Standing) {
        let at = self.standing.partition_point(|standing| standing.begin <= request.begin);
        self.standing.insert(at, request);
    }

    /// After [`Self::advance`]. The principal of the request, if it was still standing.
    pub fn remove(&mut self, id: RequestId) -> Option<Principal> {
        let at = self.standing.iter().position(|request| request.id == id)?;
        Some(self.standing.remove(at).principal)
    }

    /// After [`Self::advance`]. How many requests of `principal` were standing.
    pub fn remove_all_of(&mut self, principal: Principal) -> usize {
        let before = self.standing.len();
        self.standing.retain(|request| request.principal != principal);
        before - self.standing.len()
    }

    /// After [`Self::advance`] and whatever changed the requests: opens, moves or closes the
    /// window. True if it did.
    pub fn settle(&mut self, now: Instant) -> bool {
        // An open window goes on over a gap in which sleeping would not pay.
        let mut end = self.open.map(|_| now);
        for request in &self.standing {
            match end {
                None if request.begin <= now => end = Some(request.until),
                Some(until) if request.begin <= until + self.costs.min_sleep => {
                    end = Some(until.max(request.until));
                }
                _ => break,
            }
        }
        let until = end.filter(|&until| until > now);
        if self.open.is_none() {
            self.charged_to = now;
        }
        let from = self.open.map_or(now, |window| window.from);
        let open = until.map(|until| Window { from, until });
        std::mem::replace(&mut self.open, open) != open
    }

    /// When the window opens or closes next.
    pub fn due(&self) -> Option<Instant> {
        match self.open {
            Some(window) => Some(window.until),
            None => self.standing.first().map(|request| request.begin),
        }
    }

    pub fn open(&self) -> Option<Window> {
        self.open
    }

    /// The window as it is, if the driver was told another.
    pub fn change(&mut self) -> Option<Option<Window>> {
        (self.told != self.open).then(|| {
            self.told = self.open;
            self.open
        })
    }

    /// The whole plan: the merged standing requests.
    pub fn windows(&self) -> impl Iterator<Item = Window> {
        let mut rest = self.standing.as_slice();
        std::iter::from_fn(move || {
            let (first, mut later) = rest.split_first()?;
            let mut window = Window { from: first.begin, until: first.until };
            while let Some((next, after)) = later.split_first() {
                if next.begin > window.until + self.costs.min_sleep {
                    break;
                }
                window.until = window.until.max(next.until);
                later = after;
            }
            rest = later;
            Some(window)
        })
    }

    /// Charges the open window up to `now`, piece by piece: within a piece the same requests stand.
    fn charge(&mut self, now: Instant, ledger: &mut Ledger) {
        while self.charged_to < now {
            let at = self.charged_to;
            let ends = self
                .standing
                .iter()
                .filter_map(|request| [request.begin, request.until].into_iter().find(|&moment| moment > at));
            let end = ends.fold(now, Instant::min);
            // In a gap within a window the request after it has begun early.
            let reach = at + self.costs.min_sleep;
            let bridging = self.standing.iter().find(|request| request.begin > at && request.begin <= reach);
            let covering = || self.standing.iter().filter(|request| request.covers(at));
            let sharers = covering().enumerate().filter_map(|(nth, request)| {
                let named_before = covering().take(nth).any(|other| other.principal == request.principal);
                (!named_before).then_some(request.principal)
            });
            if let (None, Some(next)) = (covering().next(), bridging) {
                ledger.charge(std::iter::once(next.principal), end.since(at), self.costs.power);
            } else {
                ledger.charge(sharers, end.since(at), self.costs.power);
            }
            self.charged_to = end;
        }
    }
}
