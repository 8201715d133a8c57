//! A worker's own decisions (Algorithm 1): after each request, whether its connection goes
//! elsewhere.
//!
//! ```text
//!   driver                                   Worker
//!   a connection is handed to it    ---->    handle_arrival
//!   requests of one were served     ---->    handle_served    ----> Stay, or Send to a target
//!   the scheduler's order came      ---->    handle_order     ----> Accepted or Refused
//!   poll_timeout() fell due         ---->    handle_timeout; then poll_transfer
//!                                                             ----> a silent connection to send
//!   the report period is over       ---->    handle_report    ----> a WorkerReading for the scheduler
//!   a connection closed or was sent ---->    handle_departure ----> the books that travel with it
//! ```
//!
//! A decision names a connection by its *slot*, the driver's index of it: small numbers, reused.
//! Nothing changes in the books until the driver says so with `handle_departure`, so a refused or
//! failed transfer needs no undoing.
//!
//! Invariants:
//! - `handle_served` is O(1), without allocation, lock or clock.
//! - Only guests are sent home, and never to this worker itself.
//! - An order is carried out at most once; one that finds no connection lapses with a timeout.
//! - Late, early and repeated timeouts do no harm.

mod report;

use super::backlog::Backlog;
use super::capacity::Capacity;
use super::limit::LearnedLimit;
use super::overload::Detector;
use super::{Answer, ConnectionLoad, Departure, Load, Order, Params, Transfer, Verdict};
use crate::{Guidance, Movable, Why};
use machine::{ConnId, Duration, Instant, Pick, Rate, WorkerId};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Connection {
    id: ConnId,
    home: WorkerId,
    load: ConnectionLoad,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Pending {
    target: WorkerId,
    pick: Pick,
    /// Only a connection whose home is the target, until patience ends.
    homing: bool,
    due: Instant,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    id: WorkerId,
    params: Params,
    connections: Vec<Option<Connection>>,
    open: u32,
    residents: u32,
    /// Connections at home here that are served elsewhere.
    away: u32,
    /// The sum of the loads at the last report, corrected by arrivals and departures since.
    load: Rate,
    learned: LearnedLimit,
    guidance: Guidance,
    /// The load above which guests go home.
    ceiling: Option<Rate>,
    /// Reports in a row with the tail above the goal.
    tail_missed: u32,
    /// Its capacity, where load is busy time.
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<Capacity>,
    /// Turns since the last report, and when that was.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    turns: u32,
    #[serde(skip_serializing_if = "crate::is_default")]
    reported: Option<Instant>,
    /// The uncertainty of one of its loads, as a share of it.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    noise: f64,
    /// Reports in a row in which it worked for too much of the time.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    swamped: u32,
    detector: Detector,
    #[serde(default, skip_serializing_if = "crate::is_default")]
    backlog: Backlog,
    order: Option<Pending>,
    ready: Option<Transfer>,
    movable: Option<Movable>,
}

impl Worker {
    /// A worker without connections; `learned` is the limit of an earlier run, or nothing.
    pub fn new(params: Params, id: WorkerId, learned: Option<LearnedLimit>) -> Self {
        let mut worker = Self {
            id,
            params,
            connections: Vec::new(),
            open: 0,
            residents: 0,
            away: 0,
            load: Rate::ZERO,
            learned: learned.unwrap_or_default(),
            guidance: Guidance::default(),
            ceiling: None,
            tail_missed: 0,
            capacity: (params.load == Load::BusyTime).then(Capacity::default),
            turns: 0,
            reported: None,
            noise: 0.0,
            swamped: 0,
            detector: Detector::default(),
            backlog: Backlog::default(),
            order: None,
            ready: None,
            movable: None,
        };
        worker.arm();
        worker
    }

    /// A connection is served here from now on: a new one, or one sent by another worker.
    ///
    /// # Panics
    /// If the slot is taken: the driver would lose a connection; or beyond all that a worker may have.
    pub fn handle_arrival(
        &mut self,
        now: Instant,
        slot: u32,
        conn: ConnId,
        home: WorkerId,
        load: ConnectionLoad,
    ) {
        assert!(slot < SLOTS_MAX, "slot {slot} of {}", self.id);
        let index = slot as usize;
        if index >= self.connections.len() {
            self.connections.resize(index + 1, None);
        }
        assert!(self.connections[index].is_none(), "slot {slot} of {} is taken", self.id);
        self.connections[index] = Some(Connection { id: conn, home, load });
        self.open += 1;
        if home == self.id {
            self.residents += 1;
            self.away = self.away.saturating_sub(1);
        }
        self.load += load.load(now, &self.params);
    }

    /// A connection left: it closed, or it was sent as this worker asked.
    ///
    /// # Panics
    /// If the slot is empty.
    pub fn handle_departure(&mut self, now: Instant, slot: u32, sent: bool) -> Departure {
        let connection =
            self.connections[slot as usize].take().expect("a connection in the slot that departs");
        let rate = connection.load.load(now, &self.params);
        self.open -= 1;
        // Where no connection is, none waits.
        self.backlog.is_over &= self.open > 0;
        if connection.home == self.id {
            self.residents -= 1;
            self.away += u32::from(sent);
        }
        self.load = self.load - rate;
        if self.ready.is_some_and(|ready| ready.slot == slot) {
            self.ready = None;
        }
        if self.movable.is_some_and(|movable| movable.conn == connection.id) {
            self.movable = None;
        }
        Departure { conn: connection.id, home: connection.home, load: connection.load, rate }
    }

    /// `requests` of the connection in `slot` were served in a turn that took `busy`: the request
    /// path. Where load is requests, `busy` means nothing.
    #[inline]
    pub fn handle_served(&mut self, now: Instant, slot: u32, requests: u32, busy: Duration) -> Verdict {
        let work = match &mut self.capacity {
            Some(capacity) => {
                self.turns = self.turns.saturating_add(1);
                capacity.charge(requests, busy, &self.params)
            }
            None => Duration::ZERO,
        };
        let burst = self.detector.record(now, requests);
        self.backlog.served = now;
        let Some(Some(connection)) = self.connections.get_mut(slot as usize) else {
            return Verdict::Stay;
        };
        connection.load.record(now, requests, work, &self.params);
        let home = connection.home;
        if home != self.id {
            self.load += connection.load.rerate(now, &self.params);
        }
        if let Some(order) = self.order
            && matches!(order.pick, Pick::NextServed)
            && (!order.homing || home == order.target)
        {
            self.order = None;
            if self.has_too_much() {
                self.rehome(slot, order.target);
            }
            return Verdict::Send { target: order.target, why: Why::Ordered };
        }
        if home == self.id {
            return Verdict::Stay;
        }
        if self.backlog.is_over {
            return Verdict::Send { target: home, why: Why::Burst };
        }
        if !self.params.send_home {
            return Verdict::Stay;
        }
        let why = if burst {
            Why::Burst
        } else if self.ceiling.is_some_and(|ceiling| self.load > ceiling) || self.swamped >= SWAMPED_REPORTS {
            Why::Overload
        } else if self.tail_missed >= self.params.tail_reports.max(1) {
            Why::Tail
        } else {
            return Verdict::Stay;
        };
        Verdict::Send { target: home, why }
    }

    /// More waiting requests than this are to be told by [`Self::handle_backlog`], and fewer once they were
    /// too many; `None`: any number is to be kept.
    #[inline]
    pub fn watches_backlog(&self, waiting: u32) -> bool {
        self.guidance.backlog.is_some_and(|limit| waiting > limit) || self.backlog.is_over
    }

    /// So many requests wait here. Follow with `handle_served` for those that are served.
    pub fn handle_backlog(&mut self, now: Instant, waiting: u32) {
        let limit = self.guidance.backlog.unwrap_or(u32::MAX);
        self.backlog.judge(now, waiting, limit, self.load, self.params.stall_memory);
    }

    pub fn handle_order(&mut self, now: Instant, order: Order) -> Answer {
        match order {
            Order::Move { target, pick } => return self.begin_move(now, target, pick),
            Order::Cancel => self.order = None,
            Order::Guidance(guidance) => self.guidance = guidance,
            Order::ResetLimit => {
                self.learned.reset();
                self.capacity = self.capacity.map(|_| Capacity::default());
            }
            Order::ClosedAway => self.away = self.away.saturating_sub(1),
        }
        self.arm();
        Answer::Accepted
    }

    fn begin_move(&mut self, now: Instant, target: WorkerId, pick: Pick) -> Answer {
        let found = match pick {
            Pick::NextServed => self.open > 0,
            Pick::This(conn) => self.connections.iter().flatten().any(|connection| connection.id == conn),
        };
        if !found || target == self.id {
            return Answer::Refused;
        }
        let homing = self.params.prefer_home
            && pick == Pick::NextServed
            && self.connections.iter().flatten().any(|connection| connection.home == target);
        // A named connection is taken at once: a transfer carries whatever is half done.
        let due = if pick == Pick::NextServed { now + self.params.order_patience } else { now };
        self.order = Some(Pending { target, pick, homing, due });
        Answer::Accepted
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.order.map(|order| order.due)
    }

    /// Time passed: an order whose patience ended takes the named or the quietest connection, or
    /// lapses if there is none. Follow with `poll_transfer`.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(order) = self.order.filter(|order| order.due <= now) else {
            return;
        };
        self.order = None;
        let params = self.params;
        let slot = match order.pick {
            Pick::This(conn) => self.slots().find(|(_, c)| c.id == conn).map(|(slot, _)| slot),
            Pick::NextServed => self
                .slots()
                .filter(|(_, c)| !order.homing || c.home == order.target)
                .min_by(|(_, a), (_, b)| {
                    let (a_rate, b_rate) = (a.load.load(now, &params), b.load.load(now, &params));
                    a_rate.as_per_second().total_cmp(&b_rate.as_per_second()).then(a.id.cmp(&b.id))
                })
                .map(|(slot, _)| slot),
        };
        let Some(slot) = slot else { return };
        if matches!(order.pick, Pick::This(_)) || self.has_too_much() {
            self.rehome(slot, order.target);
        }
        self.ready = Some(Transfer { slot, target: order.target, why: Why::Ordered });
    }

    /// A connection to send although it was not just served; `handle_departure` must follow.
    pub fn poll_transfer(&mut self) -> Option<Transfer> {
        self.ready.take()
    }

    /// It misses the latency goal, or works for too much of the time.
    fn has_too_much(&self) -> bool {
        self.tail_missed > 0 || self.swamped > 0
    }

    /// A connection that is moved by name, or while this worker has too much to do, is moved
    /// because this worker has more than it should. If it lived here, it lives at the target from
    /// now on: as a guest there it would come back with the next burst, to where there is no room
    /// for it.
    fn rehome(&mut self, slot: u32, target: WorkerId) {
        if let Some(connection) = &mut self.connections[slot as usize]
            && connection.home == self.id
        {
            connection.home = target;
            self.residents -= 1;
        }
    }

    pub fn id(&self) -> WorkerId {
        self.id
    }

    pub fn connections(&self) -> u32 {
        self.open
    }

    fn slots(&self) -> impl Iterator<Item = (u32, &Connection)> {
        (0..).zip(&self.connections).filter_map(|(slot, c)| c.as_ref().map(|c| (slot, c)))
    }
}

/// Reports in a row with too much work, before guests go home for that: one may be the
/// hypervisor's.
const SWAMPED_REPORTS: u32 = 2;
/// No process has as many sockets (Linux: `fs.nr_open`, a million unless raised).
const SLOTS_MAX: u32 = 1 << 24;

#[cfg(test)]
mod tests;
